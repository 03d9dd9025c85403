"""A training step and embeddings compared with PyTorch in one run, on this machine's CPU.

    python bench/peers/step_torch.py [--cloob build/cloob] [--model RN50] [--batch 32] [--embed 1 32] [--repeats 5] [--only step|embed]
                              [--precision fp32|bf16] [--torch-bf16] [--channels-last]

The peer is open_clip's model of the same name with CLOOB's objective written in PyTorch and torch.optim.AdamW, in fp32 whatever
our precision is; --torch-bf16 times it under bf16 autocast as well, --channels-last gives it images and weights in that layout.
Both get random inputs and as many threads; medians of the timed runs after one that is not counted. Needs torch and
open_clip_torch. Prints one JSON object per measurement."""
import argparse
import contextlib
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
    """Wall clock, and processor time of all threads together, which other programs hardly move."""
    once()
    times, cpu = [], time.process_time()
    for _ in range(repeats):
        start = time.perf_counter()
        once()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times), 1e3 * (time.process_time() - cpu) / repeats


def torch_side(what, model_name, batch, repeats, threads, bf16, channels_last):
    import open_clip
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = open_clip.create_model(model_name)
    size = model.visual.image_size
    size = size[0] if isinstance(size, (tuple, list)) else size
    images = torch.randn(batch, 3, size, size)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    tokens = torch.randint(1, 49000, (batch, 77))
    tokens[:, -1] = 49407

    def cast():
        return torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext()

    def encode(encoder, x):
        with cast():
            y = encoder(x)
        return torch.nn.functional.normalize(y.float(), dim=-1)

    if what == "embed":
        model.eval()

        @torch.inference_mode()
        def once():
            encode(model.encode_image, images)
    else:
        model.train()
        opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)

        def once():
            opt.zero_grad(set_to_none=True)
            cloob_loss(encode(model.encode_image, images), encode(model.encode_text, tokens)).backward()
            opt.step()
    ms, cpu_ms = median_ms(once, repeats)
    return {"ms": ms, "cpu_ms": cpu_ms, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def run(command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def peer(a, what, batch, bf16):
    """In a process of its own, so that its peak memory is its own."""
    return run([sys.executable, __file__, "--torch", what, "--model", a.model, "--batch", str(batch), "--repeats", str(a.repeats),
                "--threads", str(a.threads)] + (["--torch-bf16"] if bf16 else []) + (["--channels-last"] if a.channels_last else []))


def compare(a, what, batch):
    ours = run([a.cloob, "bench", what, "--model", a.model, "--batch", str(batch), "--repeats", str(a.repeats), "--device",
                "cpu", "--threads", str(a.threads), "--precision", a.precision, "--json"])
    torch = peer(a, what, batch, False)
    row = {"what": what, "model": a.model, "batch": batch, "threads": a.threads, "precision": a.precision, "cloob_ms": ours["ms"],
           "torch_ms": torch["ms"], "speedup": torch["ms"] / ours["ms"], "cloob_cpu_ms": ours["cpu_ms"],
           "torch_cpu_ms": torch["cpu_ms"], "cpu_speedup": torch["cpu_ms"] / ours["cpu_ms"], "cloob_peak_bytes": ours["peak_bytes"],
           "torch_peak_bytes": torch["peak_bytes"], "memory_ratio": ours["peak_bytes"] / torch["peak_bytes"]}
    if a.torch_bf16:
        other = peer(a, what, batch, True)
        row.update(torch_bf16_ms=other["ms"], torch_bf16_cpu_ms=other["cpu_ms"], torch_bf16_peak_bytes=other["peak_bytes"])
    print(json.dumps(row), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--cloob", default="build/cloob")
    p.add_argument("--model", default="RN50")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--embed", type=int, nargs="*", default=[1, 32])
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="ours")
    p.add_argument("--torch-bf16", action="store_true", help="PyTorch under bf16 autocast as well")
    p.add_argument("--channels-last", action="store_true", help="PyTorch's images and weights in that layout")
    p.add_argument("--only", choices=["step", "embed"])
    p.add_argument("--torch", choices=["step", "embed"], help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch:
        print(json.dumps(torch_side(a.torch, a.model, a.batch, a.repeats, a.threads, a.torch_bf16, a.channels_last)))
        return
    if a.only != "embed":
        compare(a, "step", a.batch)
    for batch in a.embed if a.only != "step" else []:
        compare(a, "embed", batch)


if __name__ == "__main__":
    main()
