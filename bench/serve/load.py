"""Requests per second and latency of one kind of request. Standard library alone; works against any server with /v1/embeddings.

usage: python bench/serve/load.py PORT CONNECTIONS SECONDS text|image [FILE.jpg]"""
import base64
import http.client
import json
import os
import sys
import threading
import time


def main():
    port, connections, seconds, kind = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    body, headers = json.dumps({"input": "a photo of a dog", "model": "m"}), {"Content-Type": "application/json"}
    path = "/v1/embeddings"
    if kind == "image":  # as Infinity writes it
        with open(sys.argv[5], "rb") as f:
            url = "data:image/jpeg;base64," + base64.b64encode(f.read()).decode()
        body = json.dumps({"input": [url], "modality": "image", "model": "m"})
    if os.environ.get("EMBEDDINGS_PATH"):  # a server that has it elsewhere
        path = os.environ["EMBEDDINGS_PATH"]
    took, failed, lock, end = [], [], threading.Lock(), time.time() + seconds

    def one():
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while time.time() < end:
            begin = time.time()
            c.request("POST", path, body, headers)
            r = c.getresponse()
            r.read()
            with lock:
                (took if r.status == 200 else failed).append(time.time() - begin)

    threads = [threading.Thread(target=one) for _ in range(connections)]
    begin = time.time()
    [t.start() for t in threads]
    [t.join() for t in threads]
    took.sort()
    print(json.dumps({"kind": kind, "connections": connections, "per_s": round(len(took) / (time.time() - begin), 1), "failed": len(failed),
                      "p50_ms": round(1e3 * took[len(took) // 2], 1), "p99_ms": round(1e3 * took[len(took) * 99 // 100], 1)}))


main()
