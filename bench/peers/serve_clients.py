"""Real clients against cloob serve: openai, ollama, cohere, huggingface_hub, clip_retrieval, prometheus_client's parser, schemathesis over /openapi.json.

usage: python bench/peers/serve_clients.py build/cloob [--examples N]
Needs openai, ollama, cohere, huggingface_hub, clip_retrieval (--no-deps) with requests, prometheus_client and schemathesis from the Python package index. Weaviate's inference
containers and immich's service have no client there: their servers call them, and tests/serve/test_dialects.py sends what they send."""
import argparse
import base64
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
                import struct
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


TEXTS = ["a red circle", "two blue squares"]


def report(name, version, rows, want):
    worst = max(near(a, b) for a, b in zip(rows, want))
    print(f"{name} {version}: rows differ from cloob embed by {worst:.1e}")
    assert worst <= 1e-6 and len(rows) == len(want)


def check_ollama(w, s, want):
    import importlib.metadata
    import ollama
    client = ollama.Client(host=s.url)
    rows = client.embed(model="latest", input=TEXTS).embeddings
    old = client.embeddings(model="latest", prompt=TEXTS[0]).embedding
    short = client.embed(model="latest", input=TEXTS[0], dimensions=16).embeddings[0]
    models = client.list().models
    assert len(short) == 16 and models[0].model == "latest" and models[0].size and models[0].modified_at
    try:
        client.embed(model="latest", input="word " * 500, truncate=False)
        raise AssertionError("a text beyond the context was accepted")
    except ollama.ResponseError as e:
        assert e.status_code == 400 and "tokens" in e.error, e
    report("ollama", importlib.metadata.version("ollama"), [*rows, old], [*want["text"], want["text"][0]])


def check_cohere(w, s, want):
    import cohere
    client = cohere.ClientV2(api_key="none", base_url=s.url)
    image = "data:image/jpeg;base64," + base64.b64encode(w.image()).decode()
    answer = client.embed(model="latest", input_type="search_document", texts=TEXTS, embedding_types=["float", "base64"])
    rows = list(answer.embeddings.float_)
    assert answer.texts == TEXTS
    rows += client.embed(model="latest", input_type="image", images=[image], embedding_types=["float"]).embeddings.float_
    mixed = [{"content": [{"type": "text", "text": TEXTS[1]}]}, {"content": [{"type": "image_url", "image_url": {"url": image}}]}]
    rows += client.embed(model="latest", input_type="search_document", inputs=mixed, embedding_types=["float"]).embeddings.float_
    try:
        client.embed(model="latest", input_type="search_document", texts=TEXTS, embedding_types=["int8"])
        raise AssertionError("int8 was accepted")
    except cohere.core.ApiError as e:
        assert e.status_code == 400, e
    report("cohere", cohere.__version__, rows, [*want["text"], want["image"][0], want["text"][1], want["image"][0]])


def check_huggingface(s, want):
    import huggingface_hub
    client = huggingface_hub.InferenceClient(base_url=s.url)
    rows = [list(map(float, client.feature_extraction(t)[0])) for t in TEXTS]
    cosine = client.sentence_similarity(TEXTS[0], other_sentences=[TEXTS[1], TEXTS[0]])
    assert abs(cosine[1] - 1) < 1e-5 and abs(cosine[0] - sum(a * b for a, b in zip(*want["text"]))) < 1e-5, cosine
    report("huggingface_hub", huggingface_hub.__version__, rows, want["text"])


def check_clip_retrieval(w, s):
    """Its package imports everything it can do; the client is one file of it."""
    import importlib.util
    place = os.path.join(os.path.dirname(importlib.util.find_spec("clip_retrieval").origin), "clip_client.py")
    spec = importlib.util.spec_from_file_location("clip_client", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    client = module.ClipClient(url=s.url + "/knn-service", indice_name=s.json("/indices-list")[0], num_images=3)
    found = client.query(text=TEXTS[0])
    alike = client.query(image=os.path.join(w.images, w.files[0]))
    assert len(found) == 3 and found[0]["similarity"] >= found[1]["similarity"] and abs(alike[0]["similarity"] - 1) < 1e-5, (found, alike)
    print("clip_retrieval", importlib.metadata.version("clip_retrieval"), "finds an image by itself and by a text")


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
    want = w.embed(texts=TEXTS, images=[os.path.join(w.images, w.files[0])])
    w.run("search", "index", "w/images", "--checkpoint", w.model)
    s = Server(w, "--index", "w/images", "--logs", "runs")
    check_openai(w, s, want)
    check_ollama(w, s, want)
    check_cohere(w, s, want)
    check_huggingface(s, want)
    check_clip_retrieval(w, s)
    check_prometheus(s)
    code = check_schemathesis(s, o.examples)
    metrics = s.get("/metrics")[2].decode()
    errors = [line for line in metrics.splitlines() if 'status="5xx"' in line]
    print("answers 5xx:", errors or "none")
    s.stop()
    sys.exit(code or bool(errors))


main()
