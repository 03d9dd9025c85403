"""What hostile or careless clients do to cloob serve, in a size for every build: ambiguous framing, fuzzed requests, aborted uploads,
answers that nobody reads, a server that is asked to end while it answers. usage: test_attack.py CLOOB [NAME...]"""
import base64
import json
import os
import random
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from server import Server, World, multipart, png, serve_bytes

SANITIZED = any(name in open(sys.argv[1], "rb").read() for name in (b"__asan_init", b"__tsan_init"))
HEAD = b"Host: localhost\r\n"


def raw(s, data, timeout=20, close_write=False):
    """All bytes that come back on a connection of its own, until the server closes it or is silent for `timeout`."""
    c = socket.create_connection(("127.0.0.1", s.port), timeout=timeout)
    out = b""
    try:
        c.sendall(data)
        if close_write:
            c.shutdown(socket.SHUT_WR)
        while True:
            part = c.recv(65536)
            if not part:
                break
            out += part
    except socket.timeout:
        out += b"(open)"
    except OSError:
        pass
    c.close()
    return out


def statuses(answer):
    return [int(line.split()[1]) for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def healthy(s, within=2.0):
    begin = time.time()
    assert s.json("/health")["status"] == "ok"
    assert time.time() - begin < within, f"an answer took {time.time() - begin:.1f} s"


def framing(w):
    """What two readers may read as different requests is refused, and its connection closed: the rest is not a request."""
    s = Server(w)
    body = b'{"input": "a"}'
    post = b"POST /v1/embeddings HTTP/1.1\r\n" + HEAD
    hidden = b"GET /v1/models HTTP/1.1\r\n" + HEAD + b"\r\n"
    length = b"Content-Length: %d\r\n" % len(body)
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for name, data in (("two lengths", post + length + b"Content-Length: 3\r\n\r\n" + body + hidden),
                       ("two lengths, small first", post + b"Content-Length: 3\r\n" + length + b"\r\n" + body + hidden),
                       ("length and encoding", post + length + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + hidden),
                       ("encoding and length", post + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n" + chunk + hidden),
                       ("unknown encoding", post + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk + hidden),
                       ("two encodings", post + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunk + hidden),
                       ("two hosts", b"GET /v1/models HTTP/1.1\r\n" + HEAD + b"Host: evil.example\r\n\r\n" + hidden),
                       ("two origins", b"GET /v1/models HTTP/1.1\r\n" + HEAD + b"Origin: http://localhost\r\nOrigin: http://evil.example\r\n\r\n" + hidden),
                       ("a name with a space", post + b"Content-Length : %d\r\n\r\n" % len(body) + body + hidden),
                       ("a control character in a name", post + b"Content-Len\x01gth: 3\r\n" + length + b"\r\n" + body + hidden),
                       ("chunks in HTTP/1.0", post.replace(b"/1.1", b"/1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + hidden),
                       ("a folded length", post + b"Content-Length: 1\r\n 4\r\n\r\n" + body + hidden),
                       ("a signed length", post + b"Content-Length: +%d\r\n\r\n" % len(body) + body + hidden),
                       ("a list of lengths", post + b"Content-Length: %d, %d\r\n\r\n" % (len(body), len(body)) + body + hidden),
                       ("a header without a colon", post + b"NoColon\r\n" + length + b"\r\n" + body + hidden),
                       ("a bare CR", post + b"X: a\rTransfer-Encoding: chunked\r\n\r\n" + chunk + hidden),
                       ("a signed chunk", post + b"Transfer-Encoding: chunked\r\n\r\n+" + chunk + hidden),
                       ("no host", b"GET /v1/models HTTP/1.1\r\n\r\n" + hidden),
                       ("a negative length", post + b"Content-Length: -1\r\n\r\n" + hidden),
                       ("a length in words", post + b"Content-Length: 14 bytes\r\n\r\n" + body + hidden)):
        answer = raw(s, data, 5)
        assert set(statuses(answer)) == {400} and b"(open)" not in answer, (name, answer[:300], answer[-100:])
    for data in (post + length + length + b"\r\n" + body, post + b"Transfer-Encoding: chunked\r\n\r\n" + chunk):
        assert statuses(raw(s, data, 5, close_write=True)) == [200]  # twice the same length; chunks; a client that closes its side
    for mark, code in ((b"Origin: http://evil.example", 403), (b"Sec-Fetch-Site: cross-site", 403), (b"Accept: */*", 200)):
        assert statuses(raw(s, b"GET /v1/models HTTP/1.0\r\n" + mark + b"\r\n\r\n", 5)) == [code], mark  # without a Host
    healthy(s)
    assert s.stop()[0] == 0


def fuzz(w):
    """Mutations of good requests: every connection is answered or closed, the server stays."""
    s = Server(w, "--timeout", "3", "--index", w.images)
    rng = random.Random(20261118)
    body = json.dumps({"input": ["a red circle", "x" * 50], "model": "m"}).encode()
    form = (b'--b\r\nContent-Disposition: form-data; name="input"\r\n\r\na\r\n--b\r\nContent-Disposition: form-data; name="i"; filename="x"\r\n\r\n'
            + w.image() + b"\r\n--b--\r\n")
    seeds = [b"POST /v1/embeddings HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body,
             b"POST /v1/embeddings HTTP/1.1\r\n" + HEAD + b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n" % len(form) + form,
             b"POST /v1/embeddings HTTP/1.1\r\n" + HEAD + b"Content-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(w.image()) + w.image(),
             b"POST /v1/search HTTP/1.1\r\n" + HEAD + b'Transfer-Encoding: chunked\r\n\r\n10\r\n{"text": "a dog"}\r\n0\r\n\r\n',
             b"GET /v1/thumb?path=%s&size=64 HTTP/1.1\r\n" % w.files[0].encode() + HEAD + b"\r\n",
             b"GET /v1/runs/first?x=%41&y HTTP/1.1\r\n" + HEAD + b"Authorization: Bearer x\r\nOrigin: http://localhost\r\n\r\n"]
    tokens = [b"\r\n", b"\r\n\r\n", b"\0", b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: x\r\n", b"%", b"{", b"[" * 100,
              b"\xff\xfe", b"A" * 40000, b"HTTP/9.9", b"..%2f", b"ffffffffffffffff\r\n", b"-1", b"Expect: 100-continue\r\n", b"\\u0000", b"1e999"]

    def mutate(data):
        data = bytearray(data)
        for _ in range(rng.randint(1, 6)):
            at, kind = rng.randrange(len(data) + 1), rng.randrange(5)
            if kind == 0:
                data[at:at] = rng.choice(tokens)
            elif kind == 1:
                del data[at:at + rng.randint(1, 30)]
            elif kind == 2 and at < len(data):
                data[at] = rng.randrange(256)
            elif kind == 3:
                data[at:at] = data[:rng.randint(0, 200)]
            else:
                del data[at:]
        return bytes(data)

    cases = [mutate(rng.choice(seeds)) for _ in range(400)]
    todo, bad = list(range(len(cases))), []

    def work():
        while todo:
            i = todo.pop()
            answer = raw(s, cases[i], 15, close_write=i % 4 != 0)
            if answer.endswith(b"(open)") and not statuses(answer) or any(code >= 500 for code in statuses(answer)):
                bad.append((i, answer[:200]))

    threads = [threading.Thread(target=work) for _ in range(16)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not bad, bad[:3]
    healthy(s)
    assert s.json("/v1/embeddings", {"input": "a"})["data"]
    code, err = s.stop()
    assert code == 0 and "ERROR" not in err and "runtime error" not in err, err[-2000:]


def fuzz_bodies(w):
    """Wrong values inside well-formed bodies of every protocol: an answer below 500, which is JSON, and the server stays."""
    s = Server(w, "--timeout", "10", "--index", w.images)
    rng = random.Random(20261119)
    image = base64.b64encode(w.image()).decode()
    url = "data:image/jpeg;base64," + image
    good = [("/v1/embeddings", {"input": ["a", {"image": url}, [5, 6]], "model": "m", "dimensions": 8, "encoding_format": "base64", "normalized": True}),
            ("/v1/embeddings", {"messages": [{"content": [{"type": "image_url", "image_url": {"url": url}}]}]}),
            ("/embed", {"inputs": ["a", "b"], "normalize": False, "truncate": True, "truncation_direction": "right"}),
            ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b", "c"]}, "parameters": {"truncate": True}}),
            ("/", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}), ("/", {"inputs": "a"}),
            ("/embed_all", {"inputs": ["a b", [5, 6]], "truncate": True}), ("/tokenize", {"inputs": ["a b", "c"], "add_special_tokens": False}), ("/decode", {"ids": [[1, 2], [3]]}),
            ("/api/embed", {"model": "m", "input": ["a"], "images": [image], "truncate": True, "dimensions": 4}),
            ("/api/embeddings", {"model": "m", "prompt": "a"}), ("/api/embeddings", {"images": [image]}),
            ("/v2/embed", {"texts": ["a"], "images": [url], "inputs": [{"content": [{"type": "text", "text": "b"}]}], "truncate": "END", "output_dimension": 9,
                           "embedding_types": ["float", "base64"]}),
            ("/vectorize", {"texts": ["a"], "images": [image]}), ("/vectors", {"text": "a", "config": {}}),
            ("/v1/classify", {"images": [url], "labels": ["a", "b"], "templates": ["a {}"], "top": 1, "errors": "skip"}),
            ("/v1/similarity", {"images": [url], "texts": ["a"], "hopfield": {"scale": 8}, "errors": "skip"}),
            ("/v1/search", {"text": "a", "terms": [{"like": w.files[0], "weight": -1}], "limit": 3, "offset": 1, "name": "*", "after": "2020-01-01"}),
            ("/knn-service", {"text": "a", "num_images": 3}), ("/metadata", {"ids": [0, 1]}),
            ("/predict", {"clip": {"visual": {"modelName": "m", "options": {"language": "de"}}}}), ("/predict", {"clip": {"textual": {"modelName": "m"}}}),
            ("/predict", {"facial-recognition": {"detection": {"modelName": "m"}}}), ("/predict", {"ocr": {}})]
    values = [None, True, 0, -1, 1e300, 2 ** 62, "", "a", "data:image/png;base64,AAAA", "data:,", "http://localhost/x", "\ud83d\ude00" * 50, [], {}, [[]], [None], [[1, "a"]],
              {"text": 1}, {"image": []}, ["a"] * 70, [0.5], list(range(300)), image[:40], "skip", "NONE", "..", "x" * 5000]

    def spoil(v, depth=0):
        """A copy with one node replaced, removed, doubled or wrapped."""
        if isinstance(v, dict) and v and (depth == 0 or rng.random() < 0.8):
            key = rng.choice(list(v))
            if rng.random() < 0.15:
                return {k: x for k, x in v.items() if k != key}
            return {**v, key: spoil(v[key], depth + 1)}
        if isinstance(v, list) and v and rng.random() < 0.6:
            i = rng.randrange(len(v))
            return v[:i] + [spoil(v[i], depth + 1)] + v[i + 1:] * rng.randint(1, 2)
        return [v] if rng.random() < 0.1 else rng.choice(values)

    def send(path, body):
        if path != "/predict":
            return s.post(path, json.dumps(body))
        parts = [("entries", None, None, json.dumps(body).encode()), ("image", "blob", None, w.image() if rng.random() < 0.8 else b"x"), ("text", None, None, b"a")]
        data, kind = multipart(rng.sample(parts, rng.randint(2, 3)))
        return s.post(path, data, {"Content-Type": kind})

    codes = {}
    for path, body in good:
        assert s.post(path, body)[0] == 200 if path != "/predict" else True, path
    for _ in range(1500):
        path, body = rng.choice(good)
        for _ in range(rng.randint(1, 3)):
            body = spoil(body)
        status, _, data = send(path, body)
        codes[status] = codes.get(status, 0) + 1
        json.loads(data)
        assert status < 500, (path, body, status, data[:300])
    assert codes[200] > 50 and codes.get(400, 0) + codes.get(422, 0) > 200, codes
    healthy(s)
    code, err = s.stop()
    assert code == 0 and "ERROR" not in err and "runtime error" not in err, err[-2000:]


def aborted_uploads(w):
    """More aborted requests than an address may have connections: the next request is answered at once."""
    s = Server(w)  # --timeout 60
    data = (b"POST /v1/embeddings HTTP/1.1\r\n" + HEAD + b"Content-Length: 100000\r\n\r\n" + b"{" * 1000, b"POST /v1/embeddings HTTP/1.1\r\nHost: loc",
            b"G", b"POST /v1/embeddings HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n400\r\n" + b"x" * 100)
    for i in range(700):
        c = socket.create_connection(("127.0.0.1", s.port), timeout=10)
        c.sendall(data[i % len(data)])
        c.close()
    healthy(s)
    for _ in range(50):
        if open_connections(s) == 1:
            break
        time.sleep(0.1)
    assert open_connections(s) == 1, open_connections(s)  # the one that asks
    assert s.stop()[0] == 0


def open_connections(s):
    return int(metric(s, "cloob_connections"))


def metric(s, name):
    for line in s.get("/metrics")[2].decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    raise AssertionError("no metric " + name)


def large_request(texts, words=1):
    body = json.dumps({"input": ["word " * words] * texts}).encode()
    return b"POST /v1/embeddings HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def connect_slowly(s):
    """A connection with a small window: the server cannot send far ahead of what is read."""
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.settimeout(60)
    c.connect(("127.0.0.1", s.port))
    return c


def read_answer(c):
    """(status, body whole) of one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = c.recv(65536)
        if not part:
            return 0, False
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    want = int([line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")][0])
    while len(body) < want:
        part = c.recv(65536)
        if not part:
            break
        body += part
    return int(head.split()[1]), len(body) == want


SMALL_LIMIT = 32  # MiB, of the tests of memory
LIMIT = ("--memory-limit", f"{SMALL_LIMIT}MiB") if "--old" not in sys.argv else ()  # --old: a binary without the flag, to see a test fail
SLACK = 48  # MiB: stacks, images being decoded, what malloc has not returned; a sanitizer's shadow makes it useless


def bounded(s, before):
    grown = s.memory() - before if before else 0
    assert SANITIZED or grown < SMALL_LIMIT + SLACK, f"memory grew by {grown:.0f} MiB"
    return grown


def unread_answers(w):
    """Answers that nobody reads are bounded; small requests pass meanwhile, and all do when the clients are gone."""
    s = Server(w, "--max-queue", "100000", *LIMIT)
    s.json("/v1/embeddings", {"input": "a"})
    before, got = s.memory(), []
    clients = [connect_slowly(s) for _ in range(60)]
    for c in clients:
        c.sendall(large_request(2048))
        got.append(int(c.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL).split()[1]))
    assert LIMIT == () or (got[0] == 200 and got[-1] == 429 and set(got) == {200, 429}), got
    healthy(s)
    assert s.json("/v1/embeddings", {"input": "a"})["data"]
    grown = bounded(s, before)
    for c in clients:
        c.close()
    for _ in range(100):
        status, headers, _ = s.post("/v1/embeddings", {"input": ["word"] * 2048})
        if status == 200:
            break
        assert status == 429 and headers["retry-after"] == "1"
        time.sleep(0.1)
    assert status == 200
    assert s.stop()[0] == 0
    return grown


def downloads(w):
    """A small request that names many URLs, and many requests that name some."""
    files, url = serve_bytes(w.image() + bytes(2 << 20))  # decoders do not read what follows the image
    s = Server(w, "--allow-url-host", "localhost", *LIMIT)
    status, _, data = s.post("/v1/embeddings", {"input": [url], "modality": "image"})
    if b"libcurl" in data:
        print("no libcurl: downloads are not tested")
        s.stop()
        return 0
    assert status == 200, data
    before, got = s.memory(), []
    status, _, data = s.post("/v1/embeddings", {"input": [url] * 60, "modality": "image"})
    assert LIMIT == () or (status == 400 and b"--memory-limit" in data), data
    threads = [threading.Thread(target=lambda: got.append(s.post("/v1/embeddings", {"input": [url] * 5, "modality": "image"})[0])) for _ in range(16)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert set(got) <= {200, 429} and 200 in got, got
    grown = bounded(s, before)
    assert s.stop()[0] == 0
    files.shutdown()
    return grown


def uploads(w):
    """Bodies together are bounded, and refused with 429; so is what a body unfolds to."""
    s = Server(w, *LIMIT)
    s.json("/v1/embeddings", {"input": "a"})
    before = s.memory()
    got, body = [], json.dumps({"input": "word " * (1 << 20)}).encode()  # 5 MiB
    head = b"POST /v1/embeddings HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    clients = [socket.create_connection(("127.0.0.1", s.port), timeout=60) for _ in range(20)]
    for c in clients:
        c.sendall(head + body[:-1])
    healthy(s)
    for c in clients:
        c.sendall(body[-1:])
    got = [read_answer(c)[0] for c in clients]
    assert LIMIT == () or (set(got) <= {400, 429} and 429 in got), got  # 400: tokenizing alone takes more than half of the limit
    many = b"[" + b"1," * 250000 + b"1]"
    for _ in range(3):
        assert s.post("/v1/embeddings", b'{"input": ' + many + b"}")[0] in (200, 400, 429)
    labels = [f"{i:04}" + "x" * 900 for i in range(1000)]
    url = "data:image/jpeg;base64," + base64.b64encode(w.image()).decode()
    status, _, data = s.post("/v1/classify", {"images": [url] * 60, "labels": labels})
    assert LIMIT == () or (status == 400 and b"--memory-limit" in data), (status, data[:200])
    status, _, data = s.post("/v1/classify", {"images": [url], "labels": labels[:200], "templates": ["{}" * 500]})
    assert LIMIT == () or (status == 400 and b"--memory-limit" in data), (status, data[:200])
    grown = bounded(s, before)
    assert s.json("/v1/embeddings", {"input": "a"})["data"]
    assert s.stop()[0] == 0
    return grown


def entries(w):
    """Small requests for many entries: what they unfold to is bounded as bodies are."""
    s = Server(w, "--index", w.images, *LIMIT)
    assert [e["id"] for e in s.json("/metadata", {"ids": [1, 0, 1]})] == [1, 0, 1]
    assert len(s.json("/metadata", {"ids": [0] * 10000})) == 10000 and s.post("/metadata", {"ids": [0] * 10001})[0] == 400  # as the schema says
    before, got = s.memory(), []
    body = b'{"ids": [' + b"1," * 9000 + b"1]}"
    threads = [threading.Thread(target=lambda: [got.append(s.post("/metadata", body)[0]) for _ in range(3)]) for _ in range(40)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert set(got) <= {200, 429} and 200 in got, got
    bounded(s, before)
    assert s.stop()[0] == 0
    # files whose size is not in their first bytes are read whole, within the same limit
    os.makedirs(w.path("padded"), exist_ok=True)
    for i in range(2):
        with open(w.path(f"padded/{i}.jpg"), "wb") as f:
            f.write(w.image()[:2] + (b"\xff\xef\xff\xff" + bytes(65533)) * 120 + w.image()[2:])
    w.run("search", "index", "padded", "--checkpoint", w.model)
    s = Server(w, "--index", "padded", *LIMIT)
    assert [e["width"] for e in s.json("/v1/search", {})["results"]] == [32, 32]
    before, got = max(before, s.memory()), []
    threads = [threading.Thread(target=lambda: [got.append(s.post("/v1/search", {})[0]) for _ in range(4)]) for _ in range(40)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert set(got) == {200}, got
    grown = bounded(s, before)
    assert s.stop()[0] == 0
    return grown


def thumbnails(w):
    """Thumbnails of large images at every size, together with the list of runs."""
    os.makedirs(w.path("large"), exist_ok=True)
    data = png(1400, 1400)
    for i in range(4):
        with open(w.path(f"large/{i}.png"), "wb") as f:
            f.write(data)
    w.run("search", "index", "large", "--checkpoint", w.model)
    s = Server(w, "--index", "large", "--logs", "runs", *LIMIT)
    assert s.get("/v1/thumb?path=0.png&size=16")[0] == 200
    before, got, until = s.memory(), set(), time.time() + 3

    def ask(k):
        n = 0
        while time.time() < until:
            n += 1
            got.add(s.get(f"/v1/thumb?path={n % 4}.png&size={17 + (37 * n + k) % 500}")[0])
            got.add(s.get("/v1/runs")[0])

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(24)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert got <= {200, 429} and 200 in got, got
    grown = bounded(s, before)
    assert s.stop()[0] == 0
    return grown


def drains(w):
    """SIGTERM while requests arrive, wait, are answered and are being sent: everything that was accepted is answered whole."""
    s = Server(w, "--timeout", "20", "--max-queue", "4096")
    slow = [connect_slowly(s) for _ in range(4)]  # answers of some megabytes that are read late
    for c in slow:
        c.sendall(large_request(2048))
    half = socket.create_connection(("127.0.0.1", s.port), timeout=30)  # half of its body has arrived
    body = b'{"input": "a red circle"}'
    half.sendall(b"POST /v1/embeddings HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body[:10])
    idle = socket.create_connection(("127.0.0.1", s.port), timeout=30)  # kept alive after an answer
    idle.sendall(b"GET /health HTTP/1.1\r\n" + HEAD + b"\r\n")
    assert read_answer(idle) == (200, True)
    time.sleep(1.5)
    many = []
    for i in range(300):  # sent, and not answered yet
        c = socket.create_connection(("127.0.0.1", s.port), timeout=30)
        c.sendall(b"POST /v1/embeddings HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        many.append(c)
    s.process.send_signal(signal.SIGTERM)
    begin = time.time()
    time.sleep(0.4)
    half.sendall(body[10:])
    answers = [read_answer(c) for c in many]
    assert answers == [(200, True)] * len(many), [a for a in answers if a != (200, True)][:5]
    assert read_answer(half) == (200, True)
    assert idle.recv(10) == b""
    answers = [read_answer(c) for c in slow]
    assert answers == [(200, True)] * len(slow), (answers, time.time() - begin)
    assert s.process.wait(30) == 0 and time.time() - begin < 15
    for c in [*slow, *many, half, idle]:
        c.close()
    # a client that never reads holds the end up for --timeout and no longer; a second signal ends it at once
    for options, signals, least, most in ((("--timeout", "2"), 1, 0.5, 8), (("--timeout", "60"), 2, 0, 8)):
        s = Server(w, *options)
        c = connect_slowly(s)
        c.sendall(large_request(2048))
        time.sleep(1)
        begin = time.time()
        for _ in range(signals):
            s.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        assert s.process.wait(30) == 0 and least < time.time() - begin < most, time.time() - begin
        c.close()


def main():
    w = World(sys.argv[1])
    w.run("search", "index", "w/images", "--checkpoint", w.model)
    names = [a for a in sys.argv[2:] if a != "--old"]
    for test in (framing, fuzz, fuzz_bodies, aborted_uploads, unread_answers, downloads, uploads, entries, thumbnails, drains):
        if names and test.__name__ not in names:
            continue
        begin = time.time()
        grown = test(w)
        print(f"{test.__name__}: {time.time() - begin:.1f} s" + (f", memory grew by {grown:.0f} MiB" if grown else ""), flush=True)
    print("ok")


main()
