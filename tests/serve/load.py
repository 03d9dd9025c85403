"""A mixed load of good, careless and hostile clients, and the most memory that the server takes meanwhile.

    load.py CLOOB [SECONDS [LIMIT_MIB]]     600 seconds and 1024 MiB by default; scripts/soak.sh serve runs it

Clients: small texts and images; 2,048 texts at a time; 300 connections that do not read their answers; uploads that are aborted; bodies
of 20 MB; thumbnails at every size together with the list of runs; lists of URLs. Prints a line every 30 seconds and at the end
resident memory of the model alone, the ceiling and the limit. Exit code 1 when the ceiling is above model + limit + SLACK_MIB, when an
answer was neither whole nor a refusal, or when small requests failed. Python's standard library alone."""
import base64
import collections
import http.client
import json
import os
import random
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from server import Server, World, png, serve_bytes

SLACK_MIB = 236  # connections (1024 x 96 KiB), two images of 25 megapixels being decoded, malloc
HEAD = b"Host: localhost\r\n"


class Load:
    def __init__(self, world, server, url):
        self.w, self.s, self.url = world, server, url
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.counts = {}  # client: Counter of statuses
        self.small_s = []  # seconds of small requests
        image = world.image()
        self.image_url = "data:image/jpeg;base64," + base64.b64encode(image).decode()
        self.many_texts = json.dumps({"input": ["a word and another"] * 2048})
        self.large_body = json.dumps({"input": "data:image/jpeg;base64," + base64.b64encode(image + bytes(15 << 20)).decode()})

    def count(self, client, status):
        with self.lock:
            self.counts.setdefault(client, collections.Counter())[status] += 1

    def ask(self, client, method, path, body=None):
        begin = time.time()
        try:
            status = self.s.ask(method, path, body)[0]
        except http.client.IncompleteRead:
            status = "cut"
        except OSError as e:
            status = type(e).__name__
        self.count(client, status)
        if client == "small" and status == 200:
            self.small_s.append(time.time() - begin)
        return status

    def small(self, k):
        rng = random.Random(k)
        while not self.stop.wait(0.1):
            self.ask("small", "POST", "/v1/embeddings", {"input": rng.choice(["a red circle", self.image_url, ["a", "b", "c"]])})

    def many(self, k):
        while not self.stop.wait(0.5):
            self.ask("2,048 texts", "POST", "/v1/embeddings", self.many_texts)

    def unread(self, k):
        data = b"POST /v1/embeddings HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(self.many_texts) + self.many_texts.encode()
        rng = random.Random(k)
        while not self.stop.wait(rng.uniform(0, 5)):
            try:
                held = []
                for _ in range(50):
                    c = socket.socket()
                    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    c.settimeout(30)
                    c.connect(("127.0.0.1", self.s.port))
                    c.sendall(data)
                    held.append(c)
                    self.stop.wait(0.2)
                self.stop.wait(rng.uniform(10, 40))
                for c in held:
                    c.setblocking(False)
                    try:
                        self.count("unread", int(c.recv(12).split()[1]))
                    except (OSError, IndexError):
                        self.count("unread", "none yet")
                    c.close()
            except OSError as e:
                self.count("unread", type(e).__name__)

    def aborted(self, k):
        head = b"POST /v1/embeddings HTTP/1.1\r\n" + HEAD + b"Content-Length: 10000000\r\n\r\n"
        rng = random.Random(k)
        while not self.stop.wait(0.01):
            try:
                c = socket.create_connection(("127.0.0.1", self.s.port), timeout=30)
                c.sendall((head + b"x" * rng.choice([0, 1000, 300000]))[rng.choice([0, 0, 0]):rng.choice([1, 40, 10 ** 6])])
                c.close()
                self.count("aborted", "sent")
            except OSError as e:
                self.count("aborted", type(e).__name__)

    def bodies(self, k):
        while not self.stop.wait(1):
            self.ask("20 MB bodies", "POST", "/v1/embeddings", self.large_body)

    def thumbs(self, k):
        rng = random.Random(k)
        while not self.stop.wait(0.02):
            self.ask("thumbnails", "GET", f"/v1/thumb?path={rng.randrange(4)}.png&size={rng.randint(16, 1024)}")
            self.ask("runs", "GET", rng.choice(["/v1/runs", "/v1/runs/first"]))

    def urls(self, k):
        while not self.stop.wait(1):
            self.ask("URLs", "POST", "/v1/embeddings", {"input": [self.url] * 40, "modality": "image"})

    def run(self, seconds, model_mib, report):
        clients = [(self.small, 6), (self.many, 3), (self.unread, 6), (self.aborted, 2), (self.bodies, 4), (self.thumbs, 6), (self.urls, 3)]
        threads = [threading.Thread(target=f, args=(k,), daemon=True) for f, n in clients for k in range(n)]
        [t.start() for t in threads]
        end = time.time() + seconds
        while time.time() < end and self.s.process.poll() is None:
            time.sleep(min(30, max(0.1, end - time.time())))
            report(f"{seconds - (end - time.time()):5.0f} s: resident {self.s.memory('VmRSS'):.0f} MiB, ceiling {self.s.memory():.0f} MiB")
        self.stop.set()
        [t.join(60) for t in threads]


def main():
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 600
    limit = int(sys.argv[3]) if len(sys.argv) > 3 else 1024
    w = World(sys.argv[1])
    os.makedirs(w.path("large"))
    for i in range(4):
        with open(w.path(f"large/{i}.png"), "wb") as f:
            f.write(png(2000, 2000))
    w.run("search", "index", "large", "--checkpoint", w.model)
    files, url = serve_bytes(w.image() + bytes(8 << 20))
    s = Server(w, "--index", "large", "--logs", "runs", "--allow-url-host", "localhost", "--memory-limit", f"{limit}MiB", "--max-queue", "4096",
               "--timeout", "30")
    for body in ({"input": "a"}, {"input": "data:image/jpeg;base64," + base64.b64encode(w.image()).decode()}):
        s.json("/v1/embeddings", body)
    model = s.memory("VmRSS")
    load = Load(w, s, url)
    load.run(seconds, model, lambda line: print(line, flush=True))
    alive = s.process.poll() is None
    top = s.memory() if alive else 0
    time.sleep(2)
    after = s.memory("VmRSS") if alive else 0
    for client, counts in sorted(load.counts.items()):
        print(f"{client}: " + ", ".join(f"{n} x {status}" for status, n in sorted(counts.items(), key=str)))
    late = sorted(load.small_s) or [0]
    print(f"small requests: median {1e3 * late[len(late) // 2]:.0f} ms, 99 % {1e3 * late[len(late) * 99 // 100]:.0f} ms, slowest {1e3 * late[-1]:.0f} ms")
    print(f"resident: model alone {model:.0f} MiB, ceiling {top:.0f} MiB, afterwards {after:.0f} MiB; limit {limit} MiB, bound {model + limit + SLACK_MIB:.0f} MiB")
    code = s.stop()[0] if alive else s.process.returncode
    wrong = [(c, status) for c, counts in load.counts.items() for status in counts if c not in ("unread", "aborted") and status not in (200, 400, 429)]
    failed = [status for status in load.counts["small"] if status not in (200, 429)]
    if not alive or code != 0 or wrong or failed or top > model + limit + SLACK_MIB:
        print("FAIL:", "the server ended" if not alive else f"exit code {code}, {wrong}, {failed}")
        raise SystemExit(1)


main()
