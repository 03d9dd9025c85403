#!/usr/bin/env python3
"""The objective in PyTorch, timed with cloob's in the same run.

    python3 bench/peers/loss_torch.py --device cpu --n 4096 --dim 512 --cloob build/cloob
    python3 bench/peers/loss_torch.py --device cuda --precision bf16 --n 4096 16384 32768 --dim 1024

The `objective` of bench/peers/cloob_ref.py is timed: loss and both gradients, median of the repeats. With --cloob our
program runs between the repeats on the CPU, so that both see the same machine. Memory is what the process (CPU: peak
resident size) or PyTorch's allocator (GPU) took beyond the embeddings."""
import argparse, json, pathlib, resource, subprocess, sys, time

p = argparse.ArgumentParser()
p.add_argument("--device", default="cpu")
p.add_argument("--precision", default="fp32")
p.add_argument("--n", type=int, nargs="+", default=[4096])
p.add_argument("--dim", type=int, default=512)
p.add_argument("--repeats", type=int, default=5)
p.add_argument("--cloob")
a = p.parse_args()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch
import cloob_ref

gpu = a.device.startswith("cuda")
dtype = torch.bfloat16 if a.precision == "bf16" else torch.float32


def rows(n, base=None):
    x = torch.randn(n, a.dim, device=a.device)
    x = torch.nn.functional.normalize(x if base is None else x / a.dim ** 0.5 + base, dim=1)
    return x.to(dtype).requires_grad_()


def once(x, y):
    x.grad = y.grad = None
    if gpu: torch.cuda.synchronize()
    t = time.perf_counter()
    loss = cloob_ref.objective(x, y)[0]
    loss.backward()
    if gpu: torch.cuda.synchronize()
    return (time.perf_counter() - t) * 1e3, float(loss.detach())


def median(v):
    return sorted(v)[len(v) // 2]


def ours(n):
    out = subprocess.run([a.cloob, "bench", "loss", "--n", str(n), "--dim", str(a.dim), "--device", a.device, "--precision",
                          a.precision, "--repeats", "1", "--json"], capture_output=True, text=True, check=True).stdout
    return json.loads(out)


for n in a.n:
    try:
        x = rows(n); y = rows(n, x.detach().float())
        once(rows(64), rows(64))
        if gpu:
            torch.cuda.reset_peak_memory_stats(); before = torch.cuda.memory_allocated()
        else:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        once(x, y)
        peer, mine = [], []
        for _ in range(a.repeats):
            ms, loss = once(x, y)
            peer.append(ms)
            if a.cloob: mine.append(ours(n))
        after = torch.cuda.max_memory_allocated() if gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        line = {"peer": "torch " + torch.__version__, "device": a.device, "precision": a.precision, "n": n, "dim": a.dim,
                "ms": round(median(peer), 3), "gib": round((after - before) / 2 ** 30, 3), "loss": loss}
        if mine:
            line.update(cloob_ms=round(median([m["ms"] for m in mine]), 3), cloob_gib=round(mine[0]["peak_bytes"] / 2 ** 30, 4),
                        memory_ratio=round((after - before) / max(1, mine[0]["peak_bytes"]), 1))
        print(json.dumps(line), flush=True)
    except torch.OutOfMemoryError if hasattr(torch, "OutOfMemoryError") else RuntimeError:
        print(json.dumps({"peer": "torch", "n": n, "ms": None, "why": "out of memory"}), flush=True)
    x = y = None
    if gpu: torch.cuda.empty_cache()
