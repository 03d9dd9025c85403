"""The protocols of other projects: rows equal those of cloob embed, in the form that their clients read. usage: test_dialects.py CLOOB"""
import base64
import http.server
import json
import os
import shutil
import struct
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from server import Server, World, multipart

TEXTS = ["a red circle", "two blue squares"]


def near(a, b, tolerance=1e-6):
    assert len(a) == len(b), (len(a), len(b))
    worst = max((abs(x - y) for x, y in zip(a, b)), default=0)
    assert worst <= tolerance, f"rows differ by {worst}"


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def refused(s, path, body, code=400, key="error"):
    answer = s.json(path, body, code=code)
    message = answer[key] if isinstance(answer[key], str) else answer[key]["message"]
    assert message, answer
    return message


def ollama(w, s, want, image):
    answer = s.json("/api/embed", {"model": "latest:latest", "input": TEXTS, "options": {}, "keep_alive": "5m"})
    near(answer["embeddings"][0], want["text"][0]), near(answer["embeddings"][1], want["text"][1])
    assert answer["model"] == "latest:latest" and answer["total_duration"] > 0 and answer["prompt_eval_count"] > 4
    near(s.json("/api/embed", {"input": TEXTS[1]})["embeddings"][0], want["text"][1])
    rows = s.json("/api/embed", {"input": TEXTS[0], "images": [image]})["embeddings"]
    near(rows[0], want["text"][0]), near(rows[1], want["image"][0])
    short = s.json("/api/embed", {"input": TEXTS[0], "dimensions": 8})["embeddings"][0]
    length = sum(x * x for x in want["text"][0][:8]) ** 0.5
    near(short, [x / length for x in want["text"][0][:8]])
    assert s.json("/api/embed", {"model": "m", "input": ""})["embeddings"] == []  # as clients load a model
    assert s.json("/api/embed", {"model": "m"})["embeddings"] == []
    near(s.json("/api/embeddings", {"model": "m", "prompt": TEXTS[0]})["embedding"], want["text"][0])
    near(s.json("/api/embeddings", {"model": "m", "images": [image]})["embedding"], want["image"][0])
    assert s.json("/api/embeddings", {"model": "m", "prompt": ""})["embedding"] == []
    model = s.json("/api/tags")["models"][0]
    assert model["name"] == model["model"] == "latest" and model["size"] == os.path.getsize(w.model) and model["details"]["family"]
    assert s.json("/api/version")["version"]
    refused(s, "/api/embed", {"input": 3}), refused(s, "/api/embed", {"input": "a", "images": ["@"]})
    refused(s, "/api/embeddings", {"prompt": "a", "images": [image]})
    assert "tokens" in refused(s, "/api/embed", {"input": "word " * 500, "truncate": False})
    assert len(s.json("/api/embed", {"input": "word " * 500})["embeddings"]) == 1


def cohere(w, s, want, image):
    url = "data:image/jpeg;base64," + image
    body = {"model": "latest", "input_type": "search_document", "texts": TEXTS, "embedding_types": ["float", "base64"]}
    answer = s.json("/v2/embed", body)
    rows = answer["embeddings"]
    for i in range(2):
        near(rows["float"][i], want["text"][i])
        near(struct.unpack(f"<{len(rows['float'][i])}f", base64.b64decode(rows["base64"][i])), want["text"][i])
    assert "float and base64" in refused(s, "/v2/embed", {"texts": TEXTS, "embedding_types": ["binary"]}, key="message")
    assert answer["texts"] == TEXTS and answer["response_type"] == "embeddings_by_type" and answer["meta"]["billed_units"]["input_tokens"] > 4
    near(s.json("/v2/embed", {"images": [url], "input_type": "image"})["embeddings"]["float"][0], want["image"][0])
    inputs = [{"content": [{"type": "text", "text": TEXTS[1]}]}, {"content": [{"type": "image_url", "image_url": {"url": url}}]}]
    rows = s.json("/v2/embed", {"inputs": inputs})["embeddings"]["float"]
    near(rows[0], want["text"][1]), near(rows[1], want["image"][0])
    assert len(s.json("/v2/embed", {"texts": TEXTS, "output_dimension": 8})["embeddings"]["float"][0]) == 8
    for bad in ({"texts": TEXTS, "embedding_types": ["int8"]}, {"texts": TEXTS, "truncate": "START"}, {"texts": [1]}, {},
                {"inputs": [{"content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": url}}]}]}):
        refused(s, "/v2/embed", bad, key="message")


def weaviate(s, want, image):
    answer = s.json("/vectorize", {"texts": TEXTS, "images": [image]})
    near(answer["textVectors"][0], want["text"][0]), near(answer["textVectors"][1], want["text"][1])
    near(answer["imageVectors"][0], want["image"][0])
    assert len(answer["textVectors"]) == 2 and len(answer["imageVectors"]) == 1
    assert s.json("/vectorize", {"texts": [], "images": []}) == {"imageVectors": [], "textVectors": []}
    for path in ("/vectors", "/vectors/"):
        answer = s.json(path, {"text": TEXTS[0], "config": {"pooling_strategy": "masked_mean"}})
        assert answer["dim"] == len(want["text"][0]) and answer["text"] == TEXTS[0]
        near(answer["vector"], want["text"][0])
    for path in ("/.well-known/ready", "/.well-known/live"):
        status, _, data = s.get(path)
        assert status == 204 and data == b""
    assert s.json("/meta")["model"] == "latest"
    refused(s, "/vectorize", {"texts": "a", "images": [3]}), refused(s, "/vectors", {})


def tei(w, s, want):
    near(s.json("/", {"inputs": TEXTS[0]})[0], want["text"][0])
    raw = s.json("/embed", {"inputs": TEXTS[0], "normalize": False})[0]
    near([x / sum(y * y for y in raw) ** 0.5 for x in raw], want["text"][0])
    for path in ("/similarity", "/"):
        near(s.json(path, {"inputs": {"source_sentence": TEXTS[0], "sentences": [TEXTS[1], TEXTS[0]]}}),
             [dot(want["text"][0], want["text"][1]), 1], 2e-6)
    for body in ({"inputs": {"source_sentence": "a", "sentences": []}}, {"inputs": {"sentences": ["a"]}}, {"inputs": {}}, {"inputs": "a"}):
        refused(s, "/similarity", body, 422)
    for setting in ({"prompt_name": "query"}, {"truncation_direction": "Left"}, {"normalize": "yes"}, {"dimensions": 0}):
        refused(s, "/embed", {"inputs": "a", **setting}, 422)
    tokens = s.json("/tokenize", {"inputs": TEXTS})
    bare = s.json("/tokenize", {"inputs": TEXTS[0], "add_special_tokens": False})
    assert len(tokens) == 2 and len(bare) == 1 and tokens[0][1:-1] == bare[0]
    assert tokens[0][0]["special"] and tokens[0][-1]["special"] and not any(t["special"] for t in bare[0])
    assert "".join(t["text"] for t in bare[0]).replace(" ", "") == TEXTS[0].replace(" ", "")
    ids = [[t["id"] for t in text] for text in tokens]
    near(s.json("/embed", {"inputs": ids})[1], want["text"][1])  # the ids are those that the model reads
    assert s.json("/decode", {"ids": ids}) == TEXTS and s.json("/decode", {"ids": ids[1]}) == [TEXTS[1]]
    assert s.json("/tokenize", {"inputs": []}) == []
    # rows of all tokens: the last is the row that /embed pools, and a row depends on the tokens up to its own
    both, last = s.json("/embed_all", {"inputs": TEXTS}), s.json("/embed", {"inputs": TEXTS, "normalize": False})
    assert [len(rows) for rows in both] == [len(i) for i in ids]
    near(both[0][-1], last[0], 1e-5), near(both[1][-1], last[1], 1e-5)
    longer = s.json("/embed_all", {"inputs": [ids[0][:-1] + [ids[1][1]] + ids[0][-1:]]})[0]
    for k in range(len(ids[0]) - 1):
        near(longer[k], both[0][k], 1e-5)
    assert max(abs(a - b) for a, b in zip(both[0][1], both[0][2])) > 1e-3
    for path, body in (("/tokenize", {"inputs": 3}), ("/tokenize", {}), ("/decode", {"ids": [10 ** 9]}), ("/decode", {"ids": ["a"]}), ("/decode", {"ids": "a"}), ("/embed_all", {"inputs": "word " * 500}), ("/embed_all", {"inputs": "data:image/png;base64,AAAA"}),
                       ("/tokenize", {"inputs": ["a"] * 3000})):
        refused(s, path, body, 422)


def tokens_first(w, want):
    """Rows of all tokens before any other request, in fp32, int8 and f16: they share packed weights with /embed, and neither changes the other."""
    for options, dtype in (((), "float32"), (("--precision", "int8"), "int8"), (("--precision", "f16"), "float16")):
        s = Server(w, *options)
        assert s.json("/info")["model_dtype"] == dtype
        first = s.json("/embed_all", {"inputs": TEXTS})
        last = s.json("/embed", {"inputs": TEXTS, "normalize": False})
        for i in range(2):
            near(first[i][-1], last[i], 1e-5)
            near(s.json("/embed_all", {"inputs": TEXTS[i]})[0][-1], first[i][-1], 1e-5)
            if not options:
                near(s.json("/embed", {"inputs": TEXTS[i]})[0], want["text"][i])
        assert s.stop()[0] == 0


def predict(s, entries, image=None, text=None):
    fields = [("entries", None, None, json.dumps(entries).encode())]
    if image:
        fields.append(("image", "blob", "application/octet-stream", image))
    if text:
        fields.append(("text", None, None, text.encode()))
    body, kind = multipart(fields)
    status, _, data = s.post("/predict", body, {"Content-Type": kind})
    return status, json.loads(data)


FACES = {"facial-recognition": {"detection": {"modelName": "buffalo_l", "options": {"minScore": 0.7}}, "recognition": {"modelName": "buffalo_l"}}}
OCR = {"ocr": {"detection": {"modelName": "PP-OCRv5_mobile", "options": {"minScore": 0.5, "maxResolution": 736}},
               "recognition": {"modelName": "PP-OCRv5_mobile", "options": {"minScore": 0.8}}}}


def immich(w, s, want):
    """As immich's server asks; without an upstream other tasks find nothing, and the answer is 200, so that immich keeps using the server."""
    status, answer = predict(s, {"clip": {"textual": {"modelName": "nllb-clip-base-siglip__v1", "options": {"language": "de"}}}}, text=TEXTS[0])
    assert status == 200 and list(answer) == ["clip"]
    near(json.loads(answer["clip"]), want["text"][0])
    assert predict(s, {"clip": {"textual": {"modelName": "m", "options": {"language": 3}}}}, text="a")[0] == 422
    assert predict(s, FACES, w.image()) == (200, {"facial-recognition": [], "imageHeight": 32, "imageWidth": 32})
    status, answer = predict(s, OCR, w.image())
    assert status == 200 and answer["ocr"] == {"text": [], "box": [], "boxScore": [], "textScore": []}
    for entries, image in ((FACES, None), (FACES, b"no image"), ({**FACES, **OCR}, w.image()), ({"other": {}}, w.image()), ([], w.image())):
        assert predict(s, entries, image)[0] == 422, entries


class Upstream(http.server.BaseHTTPRequestHandler):
    """immich's own service, as far as the forwarding sees it."""
    got = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Upstream.got.append((self.path, self.headers["Content-Type"], body, self.headers.get("Authorization")))
        busy = b"busy" in body
        data = b'{"detail": "busy"}' if busy else b'{"facial-recognition": [{"score": 0.9}], "imageHeight": 32, "imageWidth": 32}'
        self.send_response(503 if busy else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words):
        pass


def forwarding(w, want):
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    s = Server(w, "--immich-upstream", f"http://127.0.0.1:{upstream.server_address[1]}/")
    status, answer = predict(s, FACES, w.image())
    if status == 503 and "libcurl" in answer["detail"]:
        print("no libcurl: forwarding is not tested")
        s.stop()
        return
    assert (status, answer) == (200, {"facial-recognition": [{"score": 0.9}], "imageHeight": 32, "imageWidth": 32})
    path, kind, body, key = Upstream.got[0]
    assert path == "/predict" and kind.startswith("multipart/form-data; boundary=") and w.image() in body and key is None
    assert predict(s, {"ocr": {"busy": {}}}, w.image()) == (503, {"detail": "busy"})
    status, answer = predict(s, {"clip": {"visual": {"modelName": "m"}}}, w.image())
    near(json.loads(answer["clip"]), want["image"][0])
    assert len(Upstream.got) == 2  # CLIP is answered here
    upstream.shutdown()
    upstream.server_close()
    status, answer = predict(s, FACES, w.image())
    assert status == 503 and "--immich-upstream" in answer["detail"], answer
    assert s.stop()[0] == 0


def several_models(w, want):
    """Names in requests select among the served models, in any project's spelling; they open and fetch nothing."""
    shutil.copy(w.model, w.path("b.safetensors"))
    s = Server(w, "--checkpoint", "ViT-B-32__laion2b-s34b-b79k=" + w.path("b.safetensors"), "--allow-url-host", "localhost")
    for name in ("latest", "latest:latest", "ViT-B-32__laion2b-s34b-b79k", "ViT-B-32/laion2b_s34b_b79k", "vit-b-32__laion2b_s34b_b79k:latest"):
        near(s.json("/api/embed", {"model": name, "input": TEXTS[0]})["embeddings"][0], want["text"][0])
        status, answer = predict(s, {"clip": {"visual": {"modelName": name}}}, w.image())
        assert status == 200, (name, answer)
    for name in ("ViT-B-32__openai", "hf:org/name", w.model, "../b.safetensors", "http://localhost/m.safetensors"):
        assert "no model" in refused(s, "/api/embed", {"model": name, "input": "a"}, 404)
        assert "no model" in refused(s, "/v2/embed", {"model": name, "texts": ["a"]}, 404, "message")
        assert predict(s, {"clip": {"visual": {"modelName": name}}}, w.image())[0] == 404
    assert s.stop()[0] == 0


def documentation(s):
    status, headers, data = s.get("/docs")
    assert status == 200 and headers["content-type"].startswith("text/html") and b"http" not in data.replace(b"http-equiv", b"")
    paths = s.json("/openapi.json")["paths"]
    assert {"/api/embed", "/v2/embed", "/vectorize", "/similarity", "/tokenize", "/"} <= set(paths)
    ids = [o["operationId"] for p in paths.values() for o in p.values()]
    assert len(ids) == len(set(ids)), "operation ids repeat"


def main():
    w = World(sys.argv[1])
    want = w.embed(texts=TEXTS, images=[os.path.join(w.images, w.files[0])])
    s = Server(w)
    image = base64.b64encode(w.image()).decode()
    ollama(w, s, want, image)
    cohere(w, s, want, image)
    weaviate(s, want, image)
    tei(w, s, want)
    immich(w, s, want)
    documentation(s)
    code, err = s.stop()
    assert code == 0 and err.count("--immich-upstream") == 1, err  # reported once
    tokens_first(w, want)
    forwarding(w, want)
    several_models(w, want)
    print("ok")


main()
