"""Real clients against cloob serve: openai, prometheus_client's parser, schemathesis over /openapi.json.

usage: python bench/peers/serve_clients.py build/cloob [--examples N]
Needs openai, prometheus_client and schemathesis from the Python package index."""
import argparse
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "serve"))
from server import Server, World  # noqa: E402


def near(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def check_openai(w, s, want):
    import openai
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="none")
    texts = ["a red circle", "two blue squares"]
    worst = 0.0
    for extra in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        answer = client.embeddings.create(model="latest", input=texts, **extra)
        for i, d in enumerate(answer.data):
            row = d.embedding
            if isinstance(row, str):
                import base64, struct
                raw = base64.b64decode(row)
                row = struct.unpack(f"<{len(raw) // 4}f", raw)
            worst = max(worst, near(row, want["text"][i]))
    short = client.embeddings.create(model="latest", input=texts[0], dimensions=16).data[0].embedding
    assert len(short) == 16
    assert client.models.list().data[0].id == "latest"
    try:
        client.embeddings.create(model="latest", input=[])
        raise AssertionError("an empty input was accepted")
    except openai.BadRequestError as e:
        message = str(e)
    print(f"openai {openai.__version__}: rows differ from cloob embed by {worst:.1e}; refusal: {message[:80]}")
    assert worst <= 1e-6


def check_prometheus(s):
    from prometheus_client.parser import text_string_to_metric_families
    families = list(text_string_to_metric_families(s.get("/metrics")[2].decode()))
    names = {f.name for f in families}
    assert {"cloob_requests", "cloob_batch_rows", "cloob_encode_seconds", "cloob_queue_inputs"} <= names, names
    print(f"prometheus_client: {len(families)} families, {sum(len(f.samples) for f in families)} samples")


def check_schemathesis(s, examples):
    tool = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    p = subprocess.run([tool, "run", s.url + "/openapi.json", "--checks", "not_a_server_error",
                        "--max-examples", str(examples), "--phases", "examples,fuzzing"], capture_output=True, text=True)
    print("\n".join(p.stdout.strip().splitlines()[-25:]))
    return p.returncode


def main():
    a = argparse.ArgumentParser()
    a.add_argument("cloob")
    a.add_argument("--examples", type=int, default=30)
    o = a.parse_args()
    w = World(o.cloob)
    want = w.embed(texts=["a red circle", "two blue squares"])
    w.run("search", "index", "w/images", "--checkpoint", w.model)
    s = Server(w, "--index", "w/images", "--logs", "runs")
    check_openai(w, s, want)
    check_prometheus(s)
    code = check_schemathesis(s, o.examples)
    metrics = s.get("/metrics")[2].decode()
    errors = [line for line in metrics.splitlines() if 'status="5xx"' in line]
    print("answers 5xx:", errors or "none")
    s.stop()
    sys.exit(code or bool(errors))


main()
