"""Files of a running server: hostile indexes, rewritten images and models, models and indexes that fail, unknown keys,
decoding that must not hold texts. usage: test_state.py CLOOB"""
import atexit
import base64
import http.client
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import threading
import time
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from server import Server, World
from urllib.parse import quote


def png(width, height, noise=False):
    """A gray image, of one value or of random bytes stored without compression."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + os.urandom(width) for _ in range(height)) if noise else bytes((width + 1) * height)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 0 if noise else 9)) + chunk(b"IEND", b"")


def rename_entries(index, out, root, names):
    """An index whose first entries have other names, below another root."""
    with open(index, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    head, body = json.loads(data[8:8 + n]), data[8 + n:]
    meta, names = head.pop("__metadata__"), sorted(n.encode() for n in names)
    ends, at = [], 0
    for name in names:
        at += len(name)
        ends.append(at)
    tensors, fresh, offset = {}, {"__metadata__": {**meta, "root": root}}, 0
    for key, t in head.items():
        a, b = t["data_offsets"]
        rows = body[a:b]
        if key == "name":
            rows, t["shape"] = b"".join(names), [at]
        elif key == "name_end":
            rows, t["shape"] = struct.pack(f"<{len(ends)}q", *ends), [len(ends)]
        elif key != "probe" and not key.startswith("bad_"):
            rows = rows[:(b - a) // t["shape"][0] * len(names)]
            t["shape"][0] = len(names)
        tensors[key] = rows
    for key in sorted(tensors, key=lambda k: -{"I64": 8, "F32": 4}.get(head[k]["dtype"], 1)):
        fresh[key] = {**head[key], "data_offsets": [offset, offset + len(tensors[key])]}
        offset += len(tensors[key])
    text = json.dumps(fresh).encode()
    text += b" " * (-len(text) % 8)
    with open(out, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(tensors[k] for k in fresh if k != "__metadata__"))


def a_weight(model):
    """Where a byte of the image tower is in the file."""
    with open(model, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
    return 8 + n + min(t["data_offsets"][0] for k, t in head.items() if k.startswith("visual."))


def refused(w, *options):
    """stderr of a server that must not start: one line."""
    p = subprocess.run([w.cloob, "serve", "--port", "0", *options], cwd=w.dir, capture_output=True, text=True, timeout=60)
    assert p.returncode in (1, 2) and p.stderr.strip().count("\n") == 0, (p.returncode, p.stderr)
    return p.stderr


def status_of(s, path, name):
    return s.get(f"/v1/{path}?path={quote(name)}")[0]


def until(what, seconds, check):
    end = time.time() + seconds
    while time.time() < end:
        if check():
            return
        time.sleep(0.1)
    raise AssertionError("not within %d s: %s" % (seconds, what))


def hostile_index(w):
    """An index names a root and paths; neither opens a file outside the folder it belongs to, nor one that is no image."""
    os.makedirs(w.path("hostile/below"))
    with open(w.path("secret.png"), "wb") as f:
        f.write(png(8, 8))
    for name in ("hostile/good.png", "hostile/below/good.png"):
        shutil.copy(w.path("secret.png"), w.path(name))
    with open(w.path("hostile/note.png"), "w") as f:
        f.write("root:x:0:0: not an image\n")
    os.symlink("../secret.png", w.path("hostile/link.png"))
    os.symlink("..", w.path("hostile/up"))
    os.symlink("good.png", w.path("hostile/inside.png"))
    names = ["../secret.png", "below/../../secret.png", "etc/passwd", "link.png", "note.png", "up/secret.png",
             w.path("secret.png")]
    good = ["below/good.png", "good.png", "inside.png"]
    outside = w.path("secret.png")[1:]
    for root in ("/", w.dir, w.path("hostile"), "..", ""):
        rename_entries(w.path("photos.safetensors"), w.path("hostile/x.safetensors"), root, names + good + [outside])
        s = Server(w, "--index", "hostile/x.safetensors")
        for name in names + [outside]:
            for kind in ("image", "thumb"):
                assert status_of(s, kind, name) == 404, (root, kind, name)
        for name in good:
            assert status_of(s, "image", name) == status_of(s, "thumb", name) == 200, (root, name)
        hits = s.json("/v1/search", {"limit": 100})["results"]
        assert {h["path"] for h in hits if "width" in h} == set(good), (root, hits)
        assert s.stop()[0] == 0
    # an index elsewhere: its images are shown when the command line says where they are
    rename_entries(w.path("photos.safetensors"), w.path("elsewhere/x.safetensors"), "/", w.files[:3])
    s = Server(w, "--index", "elsewhere/x.safetensors")
    assert status_of(s, "image", w.files[0]) == 404
    code, err = s.stop()
    assert code == 0 and "--root" in err, err
    s = Server(w, "--index", "elsewhere/x.safetensors", "--root", "w/images")
    assert status_of(s, "image", w.files[0]) == 200
    assert s.stop()[0] == 0
    assert "nowhere" in refused(w, "--checkpoint", w.model, "--index", "elsewhere/x.safetensors", "--root", "nowhere")
    # next to the folder that it is the index of, as cloob search index --out writes it
    s = Server(w, "--index", "photos.safetensors")
    assert status_of(s, "image", w.files[0]) == 200
    assert s.stop()[0] == 0


def rewritten_images(w):
    """Images that are shortened and written again while they are shown."""
    shutil.copytree(w.images, w.path("rewritten"))
    big = png(3000, 3000, noise=True)
    name = w.path("rewritten/big.png")
    with open(name, "wb") as f:
        f.write(big)
    w.run("search", "index", "rewritten", "--checkpoint", w.model)
    s = Server(w, "--index", "rewritten")
    codes = []
    for i in range(12):
        with open(name, "wb") as f:
            f.write(big)
        asks = [threading.Thread(target=lambda p=p: codes.append(s.get(p)[0]))
                for p in (f"/v1/thumb?path=big.png&size={16 + i}", f"/v1/thumb?path=big.png&size={64 + i}", "/v1/search?limit=99")]
        [t.start() for t in asks]
        time.sleep(0.01 * (i % 6))
        os.truncate(name, 5000)
        [t.join() for t in asks]
    assert s.process.poll() is None, "the server ended: %s" % s.process.returncode
    assert set(codes) <= {200, 404, 405}, codes
    assert s.json("/health")["status"] == "ok"
    assert s.stop()[0] == 0


def serve_copy(w, *options):
    shutil.copy(w.model, w.path("hot.safetensors"))
    model, w.model = w.model, w.path("hot.safetensors")
    try:
        return Server(w, *options)
    finally:
        w.model = model


def rewritten_model(w):
    """Weights that are shortened in place keep answering; other damaged files, and a cut index, change nothing."""
    hot, texts = w.path("hot.safetensors"), ["a red circle"]
    image = os.path.join(w.images, w.files[0])
    shutil.copy(w.path("photos.safetensors"), w.path("cut.safetensors"))
    s = serve_copy(w, "--index", "cut.safetensors")
    want = w.embed(texts=texts, images=[image])
    ask = lambda: [d["embedding"] for d in s.json("/v1/embeddings", {"input": texts})["data"]]
    assert max(abs(a - b) for a, b in zip(ask()[0], want["text"][0])) < 1e-6
    for size in (1000, 0):
        os.truncate(hot, size)
        os.truncate(w.path("cut.safetensors"), size)
        for _ in range(3):
            status, _, data = s.post("/v1/embeddings", w.image(), {"Content-Type": "image/jpeg"})
            row = json.loads(data)["data"][0]["embedding"]
            assert status == 200 and max(abs(a - b) for a, b in zip(row, want["image"][0])) < 1e-6, status
            assert max(abs(a - b) for a, b in zip(ask()[0], want["text"][0])) < 1e-6
            assert s.json("/v1/search", {"text": "a red circle"})["total"] > 10
            time.sleep(0.5)
    assert s.json("/health/ready")["status"] == "ok"
    code, err = s.stop()
    assert code == 0 and "the loaded version stays in use" in err, err


def damaged_model(w):
    """Weights that cannot be loaded: 503, not ready, until the file is repaired."""
    hot = w.path("hot.safetensors")
    s = serve_copy(w, "--idle-unload", "0.2s")
    gone = lambda: b'cloob_model_loaded{model="hot"} 0' in s.get("/metrics")[2]
    with open(hot, "rb") as f:
        data = f.read()
    wrong = bytearray(data)
    wrong[a_weight(w.model)] ^= 1
    for bad in (bytes(wrong), data[:len(data) // 2], None):
        until("idle weights are freed", 30, gone)
        if bad is None:
            os.rename(hot, hot + ".away")
        else:
            with open(hot, "r+b") as f:
                f.write(bad)
                f.truncate()
        until("the damage is found", 20, lambda: s.post("/v1/embeddings", {"input": "x"})[0] != 200)
        for body in ({"input": "x"}, {"input": ["a", "b"]}):
            status, headers, answer = s.post("/v1/embeddings", body)
            assert status == 503 and "retry-after" in headers and b"hot.safetensors" in answer, (status, answer)
        status, _, answer = s.get("/health/ready")
        assert status == 503 and b"hot" in answer, (status, answer)
        assert s.json("/health/live")["status"] == "ok"
        model = s.json("/v1/models")["data"][0]
        assert model["state"] == "failed" and "hot.safetensors" in model["error"], model
        assert b'cloob_model_usable{model="hot"} 0' in s.get("/metrics")[2]
        if bad is None:
            os.rename(hot + ".away", hot)
        else:
            with open(hot, "r+b") as f:
                f.write(data)
        until("the model is usable again", 30, lambda: s.post("/v1/embeddings", {"input": "x"})[0] == 200)
        assert s.json("/health/ready")["status"] == "ok"
        assert s.json("/v1/models")["data"][0]["state"] == "ready"
    assert s.stop()[0] == 0
    with open(w.path("wrong.safetensors"), "wb") as f:
        f.write(wrong)
    assert "wrong.safetensors" in refused(w, "--checkpoint", "wrong.safetensors")


def failed_index(w):
    os.makedirs(w.path("empty"))
    with open(w.path("empty/a.jpg"), "w") as f:
        f.write("no image")
    s = Server(w, "--index", "empty")
    until("the index fails", 20, lambda: s.json("/v1/indexes")["indexes"][0]["state"] == "failed")
    assert "no readable images" in s.json("/v1/indexes")["indexes"][0]["error"]
    for path, body in (("/v1/search", {"text": "x"}), ("/knn-service", {"text": "x"}), ("/v1/map", None)):
        status, _, data = s.post(path, body) if body else s.get(path)
        assert status == 503 and b"no readable images" in data, (path, status, data)
    assert s.json("/health/ready")["status"] == "ok"  # models answer
    assert s.stop()[0] == 0


def other_model(w):
    """The index of a folder that another model made is not replaced."""
    w.run("train", "--train-data", "w/train.tsv", "--model", "tiny", "--batch-size", "16", "--max-steps", "1", "--seed", "9",
          "--logs", "runs", "--name", "second")
    second = w.path("runs/second/checkpoints/latest.safetensors")
    shutil.copytree(w.images, w.path("theirs"))
    w.run("search", "index", "theirs", "--checkpoint", second)
    index = w.path("theirs/.cloob-index.safetensors")
    with open(index, "rb") as f:
        before = f.read()
    err = refused(w, "--checkpoint", w.model, "--index", "theirs")
    for word in (second, w.model, index[len(w.dir) + 1:], "another model", "delete the file"):
        assert word in err, (word, err)
    with open(index, "rb") as f:
        assert f.read() == before
    s = Server(w, "--checkpoint", second, "--index", "theirs")  # the second model made it
    assert s.json("/v1/search", {"text": "x"})["total"] == len(w.files)
    assert s.stop()[0] == 0


def precisions(w):
    """serve refuses what classify refuses."""
    a = w.run("classify", "--checkpoint", w.model, "--device", "cpu", "--precision", "fp8", "--labels", "a,b",
              os.path.join(w.images, w.files[0]), fails=True)
    b = refused(w, "--checkpoint", w.model, "--device", "cpu", "--precision", "fp8")
    assert a.returncode == 1 and "fp8" in b and a.stderr.split(":", 1)[1] == b.split(":", 1)[1], (a.stderr, b)


def unknown_keys(w, s):
    image = "data:image/png;base64,AAAA"
    for path, body, key in (("/v1/search", {"text": "x", "limt": 3}, "limt"), ("/v1/search", {"query": "x"}, "query"),
                            ("/v1/search", {"terms": [{"text": "x", "wieght": 2}]}, "wieght"), ("/v1/search", {"te": "x"}, "te"),
                            ("/v1/classify", {"images": [image], "labels": ["a", "b"], "label": 1}, "label"),
                            ("/v1/similarity", {"images": [image], "texts": ["a"], "hopfield": {"beta": 3}}, "beta")):
        status, _, data = s.post(path, body)
        assert status == 400 and f'unknown key "{key}"' in json.loads(data)["error"]["message"], (body, status, data)
    # and a setting of the wrong type is not ignored
    for path, key, value in (("/v1/classify", "templates", "a {}"), ("/v1/classify", "top", "3"), ("/v1/classify", "top", 0),
                             ("/v1/similarity", "hopfield", True), ("/v1/similarity", "hopfield", {"scale": "8"}),
                             ("/v1/similarity", "hopfield", {"index": 1})):
        body = {"images": [base64.b64encode(w.image()).decode()], key: value}
        body.update({"labels": ["a", "b"]} if path == "/v1/classify" else {"texts": ["a"]})
        assert s.post(path, body)[0] == 400, body
    # clients of other protocols send what they like
    assert s.post("/v1/embeddings", {"input": "x", "user": "me", "extra": 1})[0] == 200
    assert s.post("/embed", {"inputs": "x", "truncation_direction": "Right"})[0] == 200
    assert s.post("/knn-service", {"text": "x", "deduplicate": True, "use_mclip": False})[0] == 200


def texts_pass(w, s):
    """Many large images at once do not hold a text."""
    sanitized = b"__asan_init" in open(w.cloob, "rb").read()  # too slow for 120 within the client's minute on a busy machine
    image, done, count = png(3000, 3000), [], 40 if sanitized else 120

    def one():
        done.append(s.post("/v1/embeddings", image, {"Content-Type": "image/png"})[0])

    threads = [threading.Thread(target=one) for _ in range(count)]
    [t.start() for t in threads]
    until("images are being decoded", 60, lambda: len(done) > 0)
    for i in range(3):
        before = len(done)
        assert s.post("/v1/embeddings", {"input": "a red circle"})[0] == 200
        answered = len(done) - before
        assert answered < count // 4, f"{answered} of {count} images were answered before one text"
    [t.join() for t in threads]
    assert done == [200] * count, done


def memory_limits(w):
    """Under ulimit -v the server says in one line that it cannot start, or answers; it does not end on a request."""
    limited = lambda kb: lambda: resource.setrlimit(resource.RLIMIT_AS, (kb << 10, kb << 10))
    if subprocess.run([w.cloob, "version"], preexec_fn=limited(1 << 20), capture_output=True).returncode != 0:
        return  # a sanitizer reserves more than that
    for kb in (280000, 350000, 365000, 400000, 1000000):
        p = subprocess.Popen([w.cloob, "serve", "--checkpoint", w.model, "--port", "0", "--device", "cpu", "--quiet"], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limited(kb))
        atexit.register(p.kill)
        line = p.stdout.readline().strip()
        for i in range(4 if line else 0):
            c = http.client.HTTPConnection("127.0.0.1", int(line.rsplit(":", 1)[1]), timeout=60)
            body = w.image() if i % 2 else json.dumps({"input": ["a red circle"] * (1 + 100 * i)})
            c.request("POST", "/v1/embeddings", body, {"Content-Type": "image/jpeg"} if i % 2 else {})
            assert c.getresponse().status in (200, 503), kb
            c.close()
        p.terminate()
        err = p.communicate(timeout=90)[1].strip()
        if line:
            assert p.returncode == 0, (kb, err)
        else:
            assert p.returncode in (1, 2, 127) and err.count("\n") == 0 and ("memory" in err or p.returncode == 127), (kb, err)


def one_tower(w):
    """An image tower and a text tower alone: one encodes, the other's inputs are refused; search without texts."""
    ref = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../ref/towers")
    kept = w.model
    w.run("search", "index", "w/images", "--checkpoint", f"{ref}/clip_vision_projection", "--out", "tower.safetensors")
    hit = json.loads(w.run("search", "query", "--index", "tower.safetensors", "--image", os.path.join(w.images, w.files[0]), "--n", "1", "--json").stdout)
    assert w.files[0] in json.dumps(hit), hit
    p = w.run("search", "query", "--index", "tower.safetensors", "a red circle", fails=True)
    assert p.returncode != 0 and "no text tower" in p.stderr, p.stderr
    p = w.run("search", "index", "w/images", "--checkpoint", f"{ref}/clip_text_projection", "--out", "no.safetensors", fails=True)
    assert p.returncode != 0 and "no image tower" in p.stderr and not os.path.exists(w.path("no.safetensors")), p.stderr
    for side, other in (("vision", "text"), ("text", "image")):
        w.model = f"{side}={ref}/clip_{side}_projection"
        s = Server(w, *(["--index", "tower.safetensors"] if side == "vision" else []))
        inputs = {"text": {"input": [[38, 4, 39]]}, "image": {"input": [{"image": "data:image/jpeg;base64," + base64.b64encode(w.image()).decode()}]}}
        facts, info = s.json("/v1/models")["data"][0], s.json("/info")
        assert facts["image"] == info["image"] == (side == "vision") and not facts["text"] and not info["text"]
        assert (facts["image_size"] > 0) == (side == "vision") and (facts["context"] > 0) == (side == "text")
        for key, body in inputs.items():
            status, _, data = s.post("/v1/embeddings", body)
            assert status == (400 if key == other else 200), (side, key, status, data)
            assert key != other or f"no {other} tower" in json.loads(data)["error"]["message"], data
        if side == "vision":
            assert w.files[3] in json.dumps(s.json("/v1/search", {"image": base64.b64encode(w.image(3)).decode(), "limit": 1}))
            assert "no text tower" in json.dumps(s.json("/v1/search", {"text": "a dog"}, code=400))
            assert s.post("/embed", {"inputs": "a dog"})[0] >= 400 and s.post("/tokenize", {"inputs": "a dog"})[0] >= 400
        code, err = s.stop()
        assert code == 0 and ("only an image tower" in err or "only a text tower" in err), err
    w.model = kept


def main():
    w = World(sys.argv[1])
    w.run("search", "index", "w/images", "--checkpoint", w.model, "--out", "photos.safetensors")
    os.makedirs(w.path("elsewhere"))
    parts = {"hostile_index": hostile_index, "rewritten_images": rewritten_images, "rewritten_model": rewritten_model,
             "damaged_model": damaged_model, "failed_index": failed_index, "other_model": other_model, "precisions": precisions, "one_tower": one_tower, "memory_limits": memory_limits}
    only = sys.argv[2:]
    for name, part in parts.items():
        if not only or name in only:
            part(w)
    s = Server(w, "--index", "photos.safetensors")
    if not only or "unknown_keys" in only:
        unknown_keys(w, s)
    if not only or "texts_pass" in only:
        texts_pass(w, s)
    assert s.stop()[0] == 0
    print("ok")


main()
