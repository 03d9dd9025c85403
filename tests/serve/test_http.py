"""Every endpoint of cloob serve, answers compared with cloob embed, limits and refusals. usage: test_http.py CLOOB"""
import base64
import json
import os
import re
import shutil
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from server import Server, World, multipart


def near(a, b, tolerance=1e-6):
    assert len(a) == len(b), (len(a), len(b))
    worst = max(abs(x - y) for x, y in zip(a, b))
    assert worst <= tolerance, f"rows differ by {worst}"


def data_url(data):
    return "data:image/jpeg;base64," + base64.b64encode(data).decode()


def embeddings(s, body, **kw):
    return [d["embedding"] for d in s.json("/v1/embeddings", body, **kw)["data"]]


def openai(w, s, want):
    texts, image = ["a red circle", "two blue squares"], w.image()
    near(embeddings(s, {"input": texts[0]})[0], want["text"][0])
    rows = embeddings(s, {"input": texts, "model": "any", "user": "x"})
    near(rows[0], want["text"][0]), near(rows[1], want["text"][1])
    answer = s.json("/embeddings", {"input": texts})
    assert answer["object"] == "list" and [d["index"] for d in answer["data"]] == [0, 1]
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 4
    coded = embeddings(s, {"input": texts[0], "encoding_format": "base64"})[0]
    near(struct.unpack(f"<{len(want['text'][0])}f", base64.b64decode(coded)), want["text"][0])
    short = embeddings(s, {"input": texts[0], "dimensions": 8})[0]
    length = sum(x * x for x in want["text"][0][:8]) ** 0.5
    near(short, [x / length for x in want["text"][0][:8]])
    # images: as data URLs, Infinity, Jina, vLLM, raw and multipart
    url = data_url(image)
    near(embeddings(s, {"input": url})[0], want["image"][0])
    near(embeddings(s, {"input": [url], "modality": "image"})[0], want["image"][0])
    mixed = embeddings(s, {"input": [{"text": texts[1]}, {"image": url}, {"image": url.split(",")[1]}]})
    near(mixed[0], want["text"][1]), near(mixed[1], want["image"][0]), near(mixed[2], want["image"][0])
    part = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": ""}]
    near(embeddings(s, {"messages": [{"role": "user", "content": part}]})[0], want["image"][0])
    near(embeddings(s, {"messages": [{"role": "user", "content": texts[0]}]})[0], want["text"][0])
    status, _, raw = s.post("/v1/embeddings", image, {"Content-Type": "image/jpeg"})
    assert status == 200
    near(json.loads(raw)["data"][0]["embedding"], want["image"][0])
    body, kind = multipart([("model", None, None, b"m"), ("input", None, None, texts[0].encode()),
                            ("image", "a.jpg", "image/jpeg", image)])
    status, _, raw = s.post("/v1/embeddings", body, {"Content-Type": kind})
    assert status == 200, raw
    near(json.loads(raw)["data"][0]["embedding"], want["text"][0])
    near(json.loads(raw)["data"][1]["embedding"], want["image"][0])
    # rows before unit length; token ids
    raw = embeddings(s, {"input": texts[0], "normalized": False})[0]
    length = sum(x * x for x in raw) ** 0.5
    near([x / length for x in raw], want["text"][0])
    p = w.run("tokenizer", "encode", "--vocab", "v.txt", texts[0], "--json", fails=True)
    if p.returncode == 0:
        near(embeddings(s, {"input": json.loads(p.stdout)})[0], want["text"][0])
    assert len(embeddings(s, {"input": [[5, 6, 7], [8, 9]]})) == 2
    assert s.json("/v1/models")["data"][0]["id"] == "latest"


def refusals(w, s):
    for body in ['{"input"', "[]", "{}", {"input": 3}, {"input": []}, {"input": [None]}, {"input": "x", "dimensions": 0},
                 {"input": "x", "dimensions": 10 ** 6}, {"input": "x", "encoding_format": "hex"},
                 {"input": "data:image/png;base64,@@@"}, {"input": "data:image/png;base64,AAAA"},
                 {"input": [[10 ** 7]]}, {"input": "http://example.org/a.jpg", "modality": "image"},
                 {"messages": []}, {"input": [{"text": "a", "image": "b"}]}, {"input": ["a"] * 3000}]:
        status, _, data = s.post("/v1/embeddings", body)
        assert status == 400, (body, status, data[:200])
        message = json.loads(data)["error"]["message"]
        assert message and "invalid argument: requires" not in message, (body, message)
    assert s.post("/v1/embeddings", b"\xff\xd8\xff garbage", {"Content-Type": "image/jpeg"})[0] == 400
    assert s.post("/v1/embeddings", b"none", {"Content-Type": "multipart/form-data; boundary=x"})[0] == 400
    for path in ("/nothing", "/v1/models%00", "/v1/models%00x", f"/v1/image?path={w.files[0]}%00.png", "/v1/runs/first%00/x"):
        assert s.get(path)[0] == 404, path
    status, headers, _ = s.ask("PUT", "/embed", "{}")
    assert status == 405 and headers["allow"] == "POST"
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[::1].evil.example", "127.0.0.1:80.evil.example",
                 "localhost:80x", "localhost:", "localhost:99999", "[::1", "user@localhost", "localhost/x", "localhost evil.example", "127.evil.example",
                 "localhost.", "[::1%25lo]", "[::ffff:127.0.0.1]", "127.1", "0177.0.0.1", ""):
        assert s.get("/v1/models", {"Host": host})[0] == 403, host
    for host in ("localhost", "LOCALHOST:8080", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:8080"):
        assert s.get("/v1/models", {"Host": host})[0] == 200, host
    for origin in ("http://evil.example", "null", "", f"file://127.0.0.1:{s.port}", f"http://127.0.0.1:{s.port}@evil.example", f"x://y://127.0.0.1:{s.port}"):
        assert s.get("/v1/models", {"Origin": origin})[0] == 403, origin
    assert s.get("/v1/models", {"Origin": f"http://127.0.0.1:{s.port}.evil.example"})[0] == 403
    assert s.get("/v1/models", {"Origin": f"http://127.0.0.1:{s.port}"})[0] == 200
    # images and scripts of other pages have no Origin; following a link to the page, and the page's own requests, pass
    for site, mode, code in (("cross-site", "no-cors", 403), ("same-site", "no-cors", 403), ("cross-site", "cors", 403), ("same-origin", "cors", 200),
                             ("none", "navigate", 200), ("cross-site", "navigate", 200)):
        assert s.get("/v1/models", {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode})[0] == code, (site, mode)


def other_protocols(w, s, want):
    rows = s.json("/embed", {"inputs": ["a red circle", "two blue squares"], "normalize": True})
    near(rows[0], want["text"][0]), near(rows[1], want["text"][1])
    status, _, data = s.post("/embed", {"inputs": "word " * 500})
    assert status == 422 and json.loads(data)["error_type"] == "Validation", data
    assert len(s.json("/embed", {"inputs": "word " * 500, "truncate": True})) == 1
    assert s.json("/info")["max_input_length"] > 0
    assert s.get("/ping")[2] == b"pong"
    entry = json.dumps({"clip": {"visual": {"modelName": "ViT-B-32__openai", "options": {}}}}).encode()
    body, kind = multipart([("entries", None, None, entry), ("image", "blob", "application/octet-stream", w.image())])
    status, _, data = s.post("/predict", body, {"Content-Type": kind})
    answer = json.loads(data)
    assert status == 200 and (answer["imageHeight"], answer["imageWidth"]) == (32, 32)
    near(json.loads(answer["clip"]), want["image"][0])
    entry = json.dumps({"clip": {"textual": {"modelName": "x", "options": {"language": "en"}}}}).encode()
    body, kind = multipart([("entries", None, None, entry), ("text", None, None, b"a red circle")])
    status, _, data = s.post("/predict", body, {"Content-Type": kind})
    near(json.loads(json.loads(data)["clip"]), want["text"][0])
    body, kind = multipart([("entries", None, None, b'{"facial-recognition":{}}'), ("text", None, None, b"x")])
    assert s.post("/predict", body, {"Content-Type": kind})[0] == 422


def search(w, s, want):
    index = s.json("/v1/indexes")["indexes"][0]
    name, n = index["name"], index["images"]
    assert n == len(w.files), index
    answer = s.json("/v1/search", {"text": "a red circle", "limit": 5})
    scores = [r["score"] for r in answer["results"]]
    assert answer["total"] == n and len(scores) == 5 and scores == sorted(scores, reverse=True)
    near([sum(a * b for a, b in zip(want["text"][0], w.embed(images=[os.path.join(w.images, answer["results"][0]["path"])])["image"][0]))],
         [scores[0]], 2e-6)
    next_page = s.json("/v1/search", {"text": "a red circle", "limit": 5, "offset": 5})["results"]
    assert not {r["path"] for r in next_page} & {r["path"] for r in answer["results"]}
    like = s.json("/v1/search", {"terms": [{"like": w.files[3]}], "limit": 1})["results"][0]
    assert like["path"] == w.files[3] and like["score"] > 0.99999 and like["width"] == 32
    by_image = s.json("/v1/search", {"image": data_url(w.image(3)), "limit": 1})["results"][0]
    assert by_image["path"] == w.files[3]
    minus = s.json("/v1/search", {"terms": [{"like": w.files[3], "weight": -1}], "limit": n})["results"]
    assert minus[-1]["path"] == w.files[3]
    assert s.json("/v1/search", {"text": "x", "threshold": 2})["total"] == 0
    assert s.json("/v1/search", {"text": "x", "name": w.files[0]})["total"] == 1
    assert s.json("/v1/search", {"text": "x", "after": "2100-01-01"})["total"] == 0
    assert s.json("/v1/search", {"text": "x", "before": "2100-01-01"})["total"] == n
    assert s.json("/v1/search", {"text": "x", "folder": "nowhere/"})["total"] == 0
    assert s.post("/v1/search", {"text": "x", "index": "other"})[0] == 404
    status, headers, data = s.get(like["thumb"])
    assert status == 200 and headers["content-type"] == "image/jpeg" and data[:2] == b"\xff\xd8"
    assert s.get(like["thumb"])[2] == data
    assert s.get(like["image"])[2] == w.image(3)
    for path in ("../../etc/passwd", "/etc/passwd", "..%2f..%2fetc%2fpasswd", "escape.jpg", ".cloob-index.safetensors"):
        assert s.get(f"/v1/image?index={name}&path={path}")[0] == 404, path
    assert s.json("/indices-list") == [name]
    knn = s.json("/knn-service", {"text": "a red circle", "num_images": 3, "num_result_ids": 6, "indice_name": name})
    assert len(knn) == 6 and "image_path" in knn[2] and "image_path" not in knn[3]
    near([k["similarity"] for k in knn[:5]], scores, 2e-6)
    meta = s.json("/metadata", {"ids": [knn[0]["id"]], "indice_name": name})
    assert meta[0]["metadata"]["image_path"] == answer["results"][0]["path"]
    near([s.json("/knn-service", {"embedding_input": list(want["text"][0]), "num_images": 1})[0]["similarity"]], scores[:1], 2e-6)
    for number in (1e39, -1e300):  # beyond fp32: no NaN in an answer
        status = s.post("/knn-service", {"embedding_input": [number] * len(want["text"][0]), "num_images": 1})[0]
        assert status == 400, number
    for _ in range(200):
        points = s.json("/v1/map?index=" + name)
        if points["state"] == "ready":
            break
        time.sleep(0.05)
    assert len(points["points"]) == len(points["paths"]) == n


def vision(w, s, want):
    image = data_url(w.image())
    top = s.json("/v1/classify", {"images": [image], "labels": ["red", "blue", "green"]})["results"][0]["top"]
    assert abs(sum(t["p"] for t in top) - 1) < 1e-6 and len(top) == 3
    cli = json.loads(w.run("classify", "--checkpoint", w.model, "--labels", "red,blue,green", "--json",
                           os.path.join(w.images, w.files[0])).stdout)[0]["top"]
    for a, b in zip(top, cli):
        assert a["label"] == b["label"] and abs(a["p"] - b["p"]) < 1e-5, (top, cli)
    answer = s.json("/v1/similarity", {"images": [image], "texts": ["a red circle", "two blue squares"], "hopfield": {"scale": 8}})
    near(answer["similarity"][0], [sum(a * b for a, b in zip(want["image"][0], t)) for t in want["text"]])
    assert len(answer["retrieved"][0]) == 2
    assert s.json("/v1/similarity", {"images": [image], "texts": ["x"]})["retrieved"] is None
    # one image that cannot be read among several: refused by its number, or skipped by name
    bad = data_url(b"\xff\xd8\xff no image")
    three, labels = [image, bad, data_url(w.image(1))], ["red", "blue", "green"]
    alone = [s.json("/v1/classify", {"images": [i], "labels": labels})["results"][0] for i in (three[0], three[2])]
    assert "input 1" in s.json("/v1/classify", {"images": three, "labels": labels}, code=400)["error"]["message"]
    answer = s.json("/v1/classify", {"images": three, "labels": labels, "errors": "skip"})
    assert answer["results"] == [alone[0], {"top": []}, alone[1]] and answer["errors"][0] is answer["errors"][2] is None and answer["errors"][1]
    answer = s.json("/v1/similarity", {"images": three, "texts": ["a red circle"], "errors": "skip", "hopfield": {"scale": 8}})
    near(answer["similarity"][0], [sum(a * b for a, b in zip(want["image"][0], want["text"][0]))])
    assert answer["similarity"][1] is answer["retrieved"][1] is None and len(answer["retrieved"][2]) == 1 and answer["errors"][1]
    assert s.json("/v1/classify", {"images": [bad], "labels": labels, "errors": "skip"})["results"] == [{"top": []}]
    assert s.json("/v1/classify", {"images": [image], "labels": labels, "errors": "skip"})["errors"] == [None]
    assert s.post("/v1/classify", {"images": [image], "labels": labels, "errors": "ignore"})[0] == 400


def capture_dates(w):
    """taken is EXIF's DateTimeOriginal; a file without it has only the file's date."""
    date = b"2019:06:30 18:12:40\0"
    tiff = (b"MM\0*" + struct.pack(">I", 8) + struct.pack(">HHHII", 1, 0x8769, 4, 1, 26) + struct.pack(">I", 0)
            + struct.pack(">HHHII", 1, 0x9003, 2, 20, 44) + struct.pack(">I", 0) + date)
    part = b"\xff\xe1" + struct.pack(">H", 2 + 6 + len(tiff)) + b"Exif\0\0" + tiff
    os.makedirs(w.path("dated"), exist_ok=True)
    for name, data in (("camera.jpg", w.image()[:2] + part + w.image()[2:]), ("plain.jpg", w.image())):
        with open(w.path("dated/" + name), "wb") as f:
            f.write(data)
    w.run("search", "index", "dated", "--checkpoint", w.model)
    s = Server(w, "--index", "dated")
    camera, plain = s.json("/v1/search", {})["results"]
    assert camera["taken"] == "2019-06-30T18:12:40" and "taken" not in plain and camera["date"].endswith("Z") and camera["width"] == plain["width"] == 32
    assert s.stop()[0] == 0


def operation(w, s):
    for path in ("/health", "/health/live", "/health/ready"):
        assert s.json(path)["status"] == "ok"
    status, headers, data = s.get("/metrics")
    assert status == 200 and b"cloob_batch_rows_bucket" in data and b'le="+Inf"' in data
    doc = s.json("/openapi.json")
    assert doc["openapi"].startswith("3.1") and "/v1/embeddings" in doc["paths"]
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    with open(os.path.join(root, "tools/serve/routes.c")) as f:
        routes = {(m.lower(), p) for m, p in re.findall(r'\{ "(GET|POST)", +"([^"]+)",', f.read())}
    described = {(m, p) for p in doc["paths"] for m in doc["paths"][p]}
    assert routes - described == {("get", "/"), ("get", "/docs"), ("get", "/page/{name}"), ("post", "/vectors/")} and described < routes, routes ^ described
    assert doc["info"]["version"] == s.json("/api/version")["version"]
    with open(os.path.join(root, "docs/reference/http.md")) as f:
        documented = {(m.split("|")[1].strip().lower(), m.split("`")[1]) for m in f if m.startswith(("| GET |", "| POST |"))}
    assert documented == described, "docs/reference/http.md and page/openapi.json differ"
    status, headers, data = s.get("/")
    assert status == 200 and headers["content-type"].startswith("text/html")
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe-inline" not in policy and "access-control-allow-origin" not in headers
    runs = s.json("/v1/runs")["runs"]
    assert runs[0]["name"] == "first"
    assert len(s.json("/v1/runs/first")["series"]["train/loss"]) >= 1
    assert s.json("/v1/runs/first")["params"]["model"] == "tiny"
    assert s.get("/v1/runs/..%2fw")[0] == 404
    os.makedirs(w.path("runs/endless"))
    with open(w.path("runs/endless/metrics.tsv"), "w") as f:
        f.write("step\tepoch\tloss\n1\tinf\tnan\n")
    assert [r["epoch"] for r in s.json("/v1/runs")["runs"] if r["name"] == "endless"] == [None]
    os.makedirs(w.path("runs/endless/checkpoints"))
    with open(w.path("runs/endless/checkpoints/results.jsonl"), "w") as f:  # series of bounded work: at most 200,000 points
        f.write(json.dumps({str(k): k for k in range(2000)}) + "\n")
        f.writelines(json.dumps({**{str(k): k for k in range(100)}, "epoch": i}) + "\n" for i in range(3999))
    endless = s.json("/v1/runs/endless")
    assert len(endless["results"]) == 3999 and {len(v) for v in endless["series"].values() if v} <= {1, 1333}
    assert endless["series"]["val/7"][-1] == [0, 7]
    # a run's folder may come from elsewhere: its files are read, not what links in it lead to
    with open(w.path("secret"), "w") as f:
        f.write("token: 12345\tcolumn\n1\t2\n")
    os.makedirs(w.path("runs/linked/checkpoints"))
    for name in ("params.txt", "metrics.tsv", "checkpoints/results.jsonl"):
        os.symlink(w.path("secret"), w.path("runs/linked/" + name))
    assert b"12345" not in s.get("/v1/runs/linked")[2] and b"12345" not in s.get("/v1/runs")[2]
    shutil.rmtree(w.path("runs/linked"))


def crowd(w, s, want):
    """Many at once: every answer is right, whoever it was batched with."""
    wrong = []

    def one(k):
        for i in range(6):
            body = {"input": ["a red circle", data_url(w.image())] if (i + k) % 2 else ["two blue squares"]}
            rows = embeddings(s, body)
            exact = [want["text"][0], want["image"][0]] if (i + k) % 2 else [want["text"][1]]
            for row, e in zip(rows, exact):
                if max(abs(a - b) for a, b in zip(row, e)) > 1e-6:
                    wrong.append((k, i))

    threads = [threading.Thread(target=one, args=(k,)) for k in range(24)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong, wrong


def rude_clients(s):
    """Clients that vanish, send garbage or stall cost nothing but their connection."""
    for data in (b"GET /health HTTP/1.1\r\n", b"\x16\x03\x01garbage\r\n\r\n", b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n{",
                 b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n{}"):
        c = socket.create_connection(("127.0.0.1", s.port))
        c.sendall(data)
        c.close()
    assert s.json("/health")["status"] == "ok"
    c = socket.create_connection(("127.0.0.1", s.port))
    c.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
    assert b"413" in c.recv(4000)
    c.close()


def slow_client(w):
    """A header that trickles in is ended after the time a request may take."""
    s = Server(w, "--timeout", "2")
    c = socket.create_connection(("127.0.0.1", s.port))
    begin, ended = time.time(), False
    c.settimeout(0.2)
    c.sendall(b"GET /health HTTP/1.1\r\nX: ")
    while time.time() - begin < 60 and not ended:
        try:
            c.sendall(b"a")
            ended = c.recv(100) == b""
        except socket.timeout:
            continue
        except OSError:
            ended = True
    assert ended
    assert s.stop()[0] == 0


def keys_and_reload(w, want):
    with open(w.path("key"), "w") as f:
        f.write("a-long-secret\n")
    shutil.copy(w.model, w.path("hot.safetensors"))
    model, w.model = w.model, w.path("hot.safetensors")
    s = Server(w, "--api-key-file", "key", "--idle-unload", "0.5s")
    w.model = model
    assert s.get("/health")[0] == 200 and s.get("/v1/models")[0] == 401
    assert s.get("/v1/models", {"Authorization": "Bearer wrong-secret"})[0] == 401
    key = {"Authorization": "Bearer a-long-secret"}
    row = json.loads(s.post("/v1/embeddings", {"input": "a red circle"}, key)[2])["data"][0]["embedding"]
    near(row, want["text"][0])
    for _ in range(600):  # weights go and come back
        if b'cloob_model_loaded{model="hot"} 0' in s.get("/metrics", key)[2]:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("idle weights stay")
    row = json.loads(s.post("/v1/embeddings", {"input": "a red circle"}, key)[2])["data"][0]["embedding"]
    near(row, want["text"][0])
    # the file is replaced: the new weights answer
    w.run("train", "--train-data", "w/train.tsv", "--model", "tiny", "--batch-size", "16", "--max-steps", "4", "--warmup", "1",
          "--logs", "runs", "--name", "second", "--vocab-size", "514", fails=True)
    other = w.path("runs/second/checkpoints/latest.safetensors")
    if os.path.exists(other):
        shutil.copy(other, w.path("new.tmp"))
        os.replace(w.path("new.tmp"), w.path("hot.safetensors"))
        for _ in range(600):
            status, _, data = s.post("/v1/embeddings", {"input": "a red circle"}, key)
            assert status in (200, 429), data  # 429: weights of another shape came while none were loaded
            row = json.loads(data)["data"][0]["embedding"] if status == 200 else want["text"][0]
            if max(abs(a - b) for a, b in zip(row, want["text"][0])) > 1e-4:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the new weights never came")
    code, err = s.stop()
    assert code == 0 and "a-long-secret" not in err, err


def several(w, want):
    """Two models by name, requests received by several threads, an index that is replaced while it is served."""
    other = w.path("runs/second/checkpoints/latest.safetensors")  # of keys_and_reload
    shutil.copytree(w.images, w.path("album"), ignore=shutil.ignore_patterns("escape*", ".*", "*.safetensors"))
    w.run("search", "index", "album", "--checkpoint", w.model, "--out", "album.safetensors")
    s = Server(w, "--checkpoint", "second=" + other, "--index", "album.safetensors", "--http-threads", "3")
    names = [m["id"] for m in s.json("/v1/models")["data"]]
    assert len(names) == 2 and names[1] == "second", names
    near(embeddings(s, {"input": "a red circle", "model": names[0]})[0], want["text"][0])
    near(embeddings(s, {"input": "a red circle"})[0], want["text"][0])  # the first answers when none is named
    row = embeddings(s, {"input": "a red circle", "model": "second"})[0]
    assert len(row) != len(want["text"][0]) or max(abs(a - b) for a, b in zip(row, want["text"][0])) > 1e-4
    assert s.post("/v1/embeddings", {"input": "x", "model": "third"})[0] == 404
    crowd(w, s, want)
    count = s.json("/v1/indexes")["indexes"][0]["images"]
    shutil.copy(os.path.join(w.images, w.files[0]), w.path("album/zz-new.jpg"))
    w.run("search", "index", "album", "--checkpoint", w.model, "--out", "album.safetensors")
    for _ in range(600):
        if s.json("/v1/indexes")["indexes"][0]["images"] == count + 1:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the new index never came")
    code, err = s.stop()
    assert code == 0, err


def bad_starts(w):
    """One clear line each."""
    held = socket.create_server(("127.0.0.1", 0))
    port = str(held.getsockname()[1])
    other = w.path("other.safetensors")
    with open(w.path("zero.key"), "wb") as f:
        f.write(b"12345678\0and more\n")
    with open(w.path("long.key"), "w") as f:
        f.write("k" * 70000)
    cases = [(["--api-key-file", "zero.key"], "zero byte"), (["--api-key-file", "long.key"], "64 KiB"), (["--host", "127.0.0.1.evil.example"], "--api-key-file"), (["--port", port], "in use"), (["--port", "99999"], "65535"), (["--port", "web"], "65535"), (["--host", "0.0.0.0"], "--api-key-file"),
             (["--index", "missing.safetensors"], "missing.safetensors"), (["--api-key-file", "nowhere"], "nowhere"),
             (["--tls-cert", "key"], "--tls-key")]
    for options, words in cases:
        p = w.run("serve", "--checkpoint", w.model, *options, fails=True)
        assert p.returncode != 0 and words in p.stderr and p.stderr.strip().count("\n") == 0, (options, p.stderr)
    p = w.run("serve", "--checkpoint", "no-such-file.safetensors", "--port", "0", fails=True)
    assert p.returncode != 0 and "no-such-file" in p.stderr and p.stderr.strip().count("\n") == 0, p.stderr
    second = w.path("runs/second/checkpoints/latest.safetensors")  # of keys_and_reload
    w.run("search", "index", "w/images", "--checkpoint", second, "--out", other)
    p = w.run("serve", "--checkpoint", w.model, "--index", other, "--port", "0", fails=True)
    assert p.returncode != 0 and "another model" in p.stderr and p.stderr.strip().count("\n") == 0, p.stderr
    held.close()


def main():
    w = World(sys.argv[1])
    want = w.embed(texts=["a red circle", "two blue squares"], images=[os.path.join(w.images, w.files[0])])
    w.run("search", "index", "w/images", "--checkpoint", w.model)
    os.symlink("/etc/hostname", os.path.join(w.images, "escape.jpg"))
    w.files = [f for f in w.files if f != "escape.jpg"]
    s = Server(w, "--index", "w/images", "--logs", "runs")
    openai(w, s, want)
    refusals(w, s)
    other_protocols(w, s, want)
    search(w, s, want)
    vision(w, s, want)
    operation(w, s)
    crowd(w, s, want)
    rude_clients(s)
    code, err = s.stop()
    assert code == 0, (code, err)
    capture_dates(w)
    slow_client(w)
    keys_and_reload(w, want)
    several(w, want)
    bad_starts(w)
    print("ok")


main()
