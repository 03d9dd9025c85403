"""A training step and embeddings beside PyTorch in one run, on this machine's CPU.

    python bench/step_peer.py [--cloob build/cloob] [--model RN50] [--batch 32] [--embed 1 32] [--repeats 5] [--only step|embed]

The peer is open_clip's model of the same name with CLOOB's objective written in PyTorch and torch.optim.AdamW, fp32.
Both get random inputs and as many threads; medians of the timed runs after one that is not counted. Needs torch and
open_clip_torch. Prints one JSON object per measurement."""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time


def hopfield(states, stored, beta):
    import torch
    return torch.nn.functional.normalize((beta * states @ stored.T).softmax(-1) @ stored, dim=-1)


def infoloob(anchors, samples, inv_tau):
    import torch
    k = inv_tau * anchors @ samples.T
    others = k.masked_fill(torch.eye(len(k), dtype=torch.bool), float("-inf"))
    return (others.logsumexp(1) - k.diagonal()).mean()


def cloob_loss(x, y, beta=8.0, inv_tau=30.0):
    ux, uy, vx, vy = hopfield(x, x, beta), hopfield(y, x, beta), hopfield(x, y, beta), hopfield(y, y, beta)
    return (infoloob(ux, uy, inv_tau) + infoloob(vy, vx, inv_tau)) / inv_tau


def median_ms(once, repeats):
    once()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        once()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def torch_side(what, model_name, batch, repeats, threads):
    import open_clip
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = open_clip.create_model(model_name)
    size = model.visual.image_size
    size = size[0] if isinstance(size, (tuple, list)) else size
    images = torch.randn(batch, 3, size, size)
    tokens = torch.randint(1, 49000, (batch, 77))
    tokens[:, -1] = 49407
    norm = torch.nn.functional.normalize
    if what == "embed":
        model.eval()

        @torch.inference_mode()
        def once():
            norm(model.encode_image(images), dim=-1)
    else:
        model.train()
        opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)

        def once():
            opt.zero_grad(set_to_none=True)
            cloob_loss(norm(model.encode_image(images), dim=-1), norm(model.encode_text(tokens), dim=-1)).backward()
            opt.step()
    ms = median_ms(once, repeats)
    return {"ms": ms, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def run(command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def compare(a, what, batch, threads):
    ours = run([a.cloob, "bench", what, "--model", a.model, "--batch", str(batch), "--repeats", str(a.repeats), "--device",
                "cpu", "--threads", str(threads), "--json"])
    # in a process of its own, so that its peak memory is its own
    peer = run([sys.executable, __file__, "--torch", what, "--model", a.model, "--batch", str(batch), "--repeats",
                str(a.repeats), "--threads", str(threads)])
    print(json.dumps({"what": what, "model": a.model, "batch": batch, "threads": threads, "cloob_ms": ours["ms"],
                      "torch_ms": peer["ms"], "speedup": peer["ms"] / ours["ms"], "cloob_peak_bytes": ours["peak_bytes"],
                      "torch_peak_bytes": peer["peak_bytes"], "memory_ratio": ours["peak_bytes"] / peer["peak_bytes"]}))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--cloob", default="build/cloob")
    p.add_argument("--model", default="RN50")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--embed", type=int, nargs="*", default=[1, 32])
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--only", choices=["step", "embed"])
    p.add_argument("--torch", choices=["step", "embed"], help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch:
        print(json.dumps(torch_side(a.torch, a.model, a.batch, a.repeats, a.threads)))
        return
    if a.only != "embed":
        compare(a, "step", a.batch, a.threads)
    for batch in a.embed if a.only != "step" else []:
        compare(a, "embed", batch, a.threads)


if __name__ == "__main__":
    main()
