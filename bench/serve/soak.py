"""Mixed load at saturation with rude clients: every answer is checked, memory and queue are watched.

usage: python bench/serve/soak.py build/cloob [--seconds 600] [--clients 48] [--server build-tsan/cloob] [--threads 1]
--server is the program that serves, where it is another than the one that makes the model and the expected rows.
Good clients send texts and images; others vanish in the middle of a request, send garbage, or stall. Standard library alone."""
import argparse
import base64
import json
import os
import random
import re
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "serve"))
from server import Server, World  # noqa: E402


def memory_kb(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


class Load:
    def __init__(self, world, server, seconds):
        self.w, self.s, self.end = world, server, time.time() + seconds
        texts = ["a red circle", "two blue squares", "one", "a green triangle left of a small yellow star on black"]
        files = [os.path.join(world.images, f) for f in world.files[:4]]
        want = world.embed(texts=texts, images=files)
        self.cases = list(zip(texts, want["text"]))
        for i, row in enumerate(want["image"]):
            self.cases.append(("data:image/jpeg;base64," + base64.b64encode(world.image(i)).decode(), row))
        self.lock = threading.Lock()
        self.right = self.wrong = self.refused = self.rude = self.halted = 0
        self.took, self.errors = [], []
        self.awake = time.time()  # when the main loop last ran: a jump means that the whole machine, or all of us, stood still
        self.jumps = []

    def tick(self):
        """Called once a second."""
        now = time.time()
        if now - self.awake > 10:
            self.jumps.append((self.awake, now))
        self.awake = now

    def lost(self, begin, error):
        """A request without an answer; one that waited through a standstill says nothing about the server."""
        time.sleep(2)  # the main loop notes it first
        with self.lock:
            if any(begin < end and time.time() > first for first, end in self.jumps):
                self.halted += 1
            else:
                self.errors.append(repr(error))

    def good(self, seed):
        rng = random.Random(seed)
        while time.time() < self.end:
            picked = [rng.choice(self.cases) for _ in range(rng.choice([1, 1, 1, 2, 5]))]
            begin = time.time()
            try:
                status, headers, data = self.s.post("/v1/embeddings", {"input": [p[0] for p in picked]})
            except OSError as e:
                self.lost(begin, e)
                continue
            rows = json.loads(data)["data"] if status == 200 else []
            ok = status == 200 and all(max(abs(a - b) for a, b in zip(r["embedding"], p[1])) <= 1e-6 for r, p in zip(rows, picked))
            with self.lock:
                self.took.append(time.time() - begin)
                self.right += ok
                self.refused += status in (429, 503) and "retry-after" in headers
                self.wrong += not ok and status not in (429, 503)

    def bad(self, seed):
        rng = random.Random(seed)
        body = json.dumps({"input": self.cases[-1][0]}).encode()
        head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        while time.time() < self.end:
            kind = rng.randrange(5)
            try:
                c = socket.create_connection(("127.0.0.1", self.s.port), timeout=5)
                if kind == 0:
                    c.sendall((head % len(body)) + body[:rng.randrange(len(body))])  # vanishes in the middle
                elif kind == 1:
                    c.sendall(rng.randbytes(400))
                elif kind == 2:
                    c.sendall((head % len(body)) + body)  # does not wait for the answer
                elif kind == 3:
                    junk = bytes(rng.choice(b'{}[]",:0a\\') for _ in range(200))
                    c.sendall((head % len(junk)) + junk)
                    c.recv(1000)
                else:
                    c.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: lo")
                    time.sleep(rng.uniform(0.5, 4))  # stalls
                c.close()
            except OSError:
                pass
            with self.lock:
                self.rude += 1


def main():
    a = argparse.ArgumentParser()
    a.add_argument("cloob")
    a.add_argument("--seconds", type=float, default=600)
    a.add_argument("--clients", type=int, default=48)
    a.add_argument("--server")
    a.add_argument("--threads", default="0", help="of the server's encoder")
    o = a.parse_args()
    w = World(o.cloob)
    w.cloob = os.path.abspath(o.server or o.cloob)
    s = Server(w, "--timeout", "20", "--max-queue", "16", "--workers", "16", "--threads", o.threads)
    w.cloob = os.path.abspath(o.cloob)
    load = Load(w, s, o.seconds)
    threads = [threading.Thread(target=load.good, args=(i,)) for i in range(o.clients)]
    threads += [threading.Thread(target=load.bad, args=(1000 + i,)) for i in range(8)]
    [t.start() for t in threads]
    memory, queue = [], 0
    while any(t.is_alive() for t in threads):
        time.sleep(1)
        load.tick()
        memory.append(memory_kb(s.process.pid))
        begin = time.time()
        try:
            found = re.search(rb"\ncloob_requests_waiting (\S+)", s.get("/metrics")[2])
            queue = max(queue, float(found.group(1)))
        except OSError as e:
            load.tick()
            load.lost(begin, e)
    half = len(memory) // 2
    code, err = s.stop()
    took = sorted(load.took)
    print(json.dumps({"seconds": o.seconds, "right": load.right, "wrong": load.wrong, "refused": load.refused, "rude": load.rude,
                      "lost": len(load.errors), "halted": load.halted,
                      "standstill_s": round(sum(b - a for a, b in load.jumps)), "p50_ms": round(1e3 * took[len(took) // 2]), "p99_ms": round(1e3 * took[len(took) * 99 // 100]),
                      "queue_max": queue, "rss_mb_first_half": round(statistics.mean(memory[5:half] or memory) / 1024, 1),
                      "rss_mb_second_half": round(statistics.mean(memory[half:]) / 1024, 1), "exit": code}))
    report = [line for line in err.splitlines() if "WARNING: ThreadSanitizer" in line or "ERROR: AddressSanitizer" in line]
    if report or load.wrong or load.errors or code:
        print("\n".join(report + load.errors[:5] + err.splitlines()[:60]))
        sys.exit(1)


main()
