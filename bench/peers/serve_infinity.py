#!/usr/bin/env python3
"""Requests per second on a CPU: `cloob serve` and infinity (https://github.com/michaelfeil/infinity), in one run.

    python3 bench/peers/serve_infinity.py --checkpoint M --folder HF --infinity venv/bin/infinity_emb --image FILE.jpg [--cloob build/cloob]

HF is the folder that `cloob convert M HF --to hf` writes. Starts all servers, and suspends all but the one being measured. Each server is measured with
--connections and both kinds of request, --rounds times, by bench/serve/load.c, which is compiled here. Prints Markdown tables: medians of the
rounds. Infinity needs aiohttp to take images; it computes in fp32 on a CPU, whatever --dtype, except with int8; its ONNX engine (optimum) refuses models with images."""
from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

REQUEST = json.dumps({"input": "a photo of a dog", "model": "m"}).encode()


def proc(pid: int, file: str) -> str:
    return Path(f"/proc/{pid}/{file}").read_text()


class Server:
    def __init__(self, name: str, port: int, command: list[str], log: Path):
        self.name, self.port, begin = name, port, time.perf_counter()
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
        self.process = subprocess.Popen(command, stdout=open(log, "w"), stderr=subprocess.STDOUT, env=env)
        while not self.answers():
            if self.process.poll() is not None or time.perf_counter() - begin > 600:
                sys.exit(f"{name} does not answer: see {log}")
            time.sleep(0.02)
        self.start_s = time.perf_counter() - begin
        self.suspend()

    def answers(self) -> bool:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/embeddings", REQUEST, {"Content-Type": "application/json"})
        try:
            return urllib.request.urlopen(request, timeout=300).status == 200
        except OSError:
            return False

    def suspend(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def measure(self, client: list[str]) -> dict:
        self.process.send_signal(signal.SIGCONT)
        before = self.cpu_s()
        result = json.loads(subprocess.run(client, check=True, capture_output=True, text=True).stdout)
        result["cpu_ms"] = 1e3 * (self.cpu_s() - before) / max(1, result["answered"])
        self.suspend()
        return result

    def cpu_s(self) -> float:
        user, system = proc(self.process.pid, "stat").rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        return int(proc(self.process.pid, "statm").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cloob", default="build/cloob")
    p.add_argument("--checkpoint", required=True)
    p.add_argument("--folder", required=True, help="the same model for transformers")
    p.add_argument("--infinity", required=True, help="program infinity_emb")
    p.add_argument("--image", required=True, help="JPEG to send")
    p.add_argument("--connections", default="1,16,64")
    p.add_argument("--kinds", default="text,image")
    p.add_argument("--precisions", default="fp32,bf16,int8", help="of cloob")
    p.add_argument("--dtypes", default="float32,int8", help="of infinity")
    p.add_argument("--seconds", default="5", help="of each measurement")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--prefix", default="", help="command that runs the client, such as flock FILE")
    args = p.parse_args()

    commands = {f"cloob, {x}": [args.cloob, "serve", "--checkpoint", args.checkpoint, "--device", "cpu", "--precision", x, "--port"] for x in args.precisions.split(",")}
    commands |= {f"infinity, torch, {x}": [args.infinity, "v2", "--model-id", args.folder, "--served-model-name", "m", "--engine", "torch", "--device", "cpu",
                                           "--dtype", x, "--url-prefix", "/v1", "--port"] for x in args.dtypes.split(",") if x}
    with tempfile.TemporaryDirectory(prefix="cloob_serve_") as folder:
        client = Path(folder) / "load"
        subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-o", client, Path(__file__).parents[1] / "serve" / "load.c", "-pthread"], check=True)
        servers: list[Server] = []
        try:
            for i, (name, command) in enumerate(commands.items()):
                servers.append(Server(name, 7970 + i, [*command, str(7970 + i)], Path(folder) / f"{i}.log"))
            for kind in args.kinds.split(","):
                print(f"| {kind}s | connections | requests/s | p50, p99, ms | CPU ms per request | failed |\n|---|---|---|---|---|---|")
                for connections in args.connections.split(","):
                    results: dict[Server, list[dict]] = {s: [] for s in servers}
                    for _ in range(args.rounds):
                        for s in servers:
                            command = [*shlex.split(args.prefix), client, str(s.port), connections, args.seconds, kind, args.image]
                            results[s].append(s.measure(command))
                    for s, r in results.items():
                        m = {key: statistics.median(x[key] for x in r) for key in ("per_s", "p50_ms", "p99_ms", "cpu_ms")}
                        print(f"| {s.name} | {connections} | {m['per_s']:.1f} | {m['p50_ms']:.1f}, {m['p99_ms']:.1f} | {m['cpu_ms']:.1f} | {sum(x['failed'] for x in r)} |", flush=True)
                print()
            print("| | start to first answer | resident at the end |\n|---|---|---|")
            for s in servers:
                print(f"| {s.name} | {s.start_s:.2f} s | {s.resident_mb():.0f} MB |")
        finally:
            for s in servers:
                s.stop()


if __name__ == "__main__":
    main()
