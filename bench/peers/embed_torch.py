#!/usr/bin/env python3
"""Embedding one image and one text: cloob compared with open_clip (PyTorch) and onnxruntime, taking turns in one run.

    PYTHONPATH=python bench/peers/embed_torch.py [--models RN50,ViT-B-32] [--precision fp32|bf16] [--int8] [--channels-last] [--repeats 30] [--json]

Needs torch, open_clip_torch, onnx and onnxruntime; downloads nothing. All three get the same random weights, the same
inputs and as many threads. Each runs in a process of its own, so that the waiting threads of one do not take the cores of
another, and they take turns: one embedding that is not counted, then three. Outputs are compared first. Medians in
milliseconds of wall time, and of processor time for machines that others use too. Texts are timed with a caption of
ordinary length and with one that fills all 77 tokens. --precision is ours; the others compute in fp32. --int8 adds ours in
bf16 and int8 and onnxruntime's dynamic int8 (MatMul and Gemm, signed weights by output channel), with their smallest cosine.
"""
from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)


WHATS = {"image": None, "text, 10 words": 10, "text, 75 words": 75}


# ---- files that all three read


def make_weights(name: str, folder: Path):
    """open_clip's model with random weights, also written to weights.safetensors."""
    import open_clip
    import safetensors.torch
    import torch

    torch.manual_seed(0)
    model = open_clip.create_model(name + "-quickgelu").eval()
    for key, b in model.named_buffers():  # statistics that are not 0 and 1
        if key.endswith("running_mean"):
            b.normal_(0, 0.1)
        if key.endswith("running_var"):
            b.uniform_(0.5, 1.5)
    safetensors.torch.save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "weights.safetensors")
    return model


def make_files(name: str, args: argparse.Namespace, folder: Path) -> None:
    import torch

    model = make_weights(name, folder)
    inputs = {"image": torch.randn(args.batch, 3, 224, 224).numpy()}
    inputs.update({what: token_rows(args.batch, n) for what, n in WHATS.items() if n})
    np.savez(folder / "inputs.npz", **inputs)
    for side, tower in zip(("image", "text"), towers(model, torch)):
        example = torch.from_numpy(inputs["image" if side == "image" else "text, 10 words"])
        torch.onnx.export(tower, (example,), str(folder / f"{side}.onnx"), input_names=["x"], output_names=["y"], opset_version=17, dynamo=False)
        if args.int8:
            from onnxruntime.quantization import QuantType, quantize_dynamic

            quantize_dynamic(folder / f"{side}.onnx", folder / f"{side}8.onnx", weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=["MatMul", "Gemm"])


def towers(model, torch):
    class Image(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.m = model

        def forward(self, x):
            return self.m.encode_image(x, normalize=True)

    class Text(Image):
        def forward(self, x):
            return self.m.encode_text(x, normalize=True)

    return Image().eval(), Text().eval()


def token_rows(batch: int, words: int, context: int = 77, vocab: int = 49408) -> np.ndarray:
    r = np.random.default_rng(words)
    t = np.zeros((batch, context), np.int64)
    t[:, 0] = vocab - 2
    t[:, 1 : 1 + words] = r.integers(1, vocab - 2, (batch, words))
    t[:, 1 + words] = vocab - 1
    return t


# ---- the three, each a function of its inputs


def cloob_runner(name: str, args: argparse.Namespace, folder: Path, precision: str | None = None):
    import cloob

    m = cloob.load(folder / "weights.safetensors", config=name, device="cpu", precision=precision or args.precision, threads=args.threads, invariant=args.batch == 1, batch=args.batch)
    return m.encode_image, m.encode_text


def open_clip_runner(name: str, args: argparse.Namespace, folder: Path):
    import open_clip
    import safetensors.torch
    import torch

    torch.set_num_threads(args.threads)
    model = open_clip.create_model(name + "-quickgelu").eval()
    model.load_state_dict(safetensors.torch.load_file(folder / "weights.safetensors"))
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)

    def run(tower):
        def f(a):
            with torch.inference_mode():
                x = torch.from_numpy(a)
                return tower(x.contiguous(memory_format=torch.channels_last) if args.channels_last and x.dim() == 4 else x).numpy()

        return f

    return tuple(run(t) for t in towers(model, torch))


def onnxruntime_runner(name: str, args: argparse.Namespace, folder: Path, bits: str = ""):
    import onnxruntime as ort

    def session(side: str):
        o = ort.SessionOptions()
        o.intra_op_num_threads, o.graph_optimization_level = args.threads, ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        s = ort.InferenceSession(str(folder / f"{side}{bits}.onnx"), o, providers=["CPUExecutionProvider"])
        return lambda a: s.run(None, {"x": a})[0]

    return session("image"), session("text")


RUNNERS = {"cloob": cloob_runner, "open_clip": open_clip_runner, "onnxruntime": onnxruntime_runner}
INT8 = {"cloob_bf16": partial(cloob_runner, precision="bf16"), "cloob_int8": partial(cloob_runner, precision="int8"),
        "onnxruntime_int8": partial(onnxruntime_runner, bits="8")}


def serve(who: str, name: str, args: argparse.Namespace, folder: Path) -> None:
    """Writes the outputs; then a line with an input's name in, a line with three pairs of milliseconds (wall, processor) out."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print goes elsewhere
    image, text = {**RUNNERS, **INT8}[who](name, args, folder)
    inputs = dict(np.load(folder / "inputs.npz"))
    calls = {what: ((image if what == "image" else text), a) for what, a in inputs.items()}
    for _ in range(3):  # weights are packed, pools started
        outputs = {what: f(a) for what, (f, a) in calls.items()}
    np.savez(folder / f"{who}.npz", **outputs)
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        f, a = calls[line.strip()]
        times = []
        for _ in range(4):
            begin = time.perf_counter(), time.process_time()
            f(a)
            times.append((1e3 * (time.perf_counter() - begin[0]), 1e3 * (time.process_time() - begin[1])))
        print(json.dumps(times[1:]), file=replies, flush=True)


# ---- turns


def measure(name: str, args: argparse.Namespace, folder: Path) -> list[dict]:
    make_files(name, args, folder)
    command = [sys.executable, __file__, "--threads", str(args.threads), "--batch", str(args.batch), "--precision", args.precision, "--folder", str(folder), "--models", name] + (["--channels-last"] if args.channels_last else [])
    workers = {who: subprocess.Popen([*command, "--serve", who], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for who in (*RUNNERS, *(INT8 if args.int8 else ()))}
    try:
        for who, w in workers.items():
            if w.stdout.readline().strip() != "ready":
                raise SystemExit(f"{who}: could not start")
        outputs = {who: np.load(folder / f"{who}.npz") for who in workers}
        return [race(name, what, args, workers, outputs) for what in WHATS]
    finally:
        for w in workers.values():
            w.stdin.close()
            w.wait(30)


def race(name: str, what: str, args: argparse.Namespace, workers: dict, outputs: dict) -> dict:
    want = outputs["open_clip"][what]
    for who in ("cloob", "onnxruntime"):
        error = float(np.abs(outputs[who][what] - want).max())
        if error > (1e-4 if args.precision == "fp32" or who != "cloob" else 1e-2):
            raise SystemExit(f"{name}, {what}: {who} is off by {error:g}")
    times: dict = {who: [] for who in workers}
    for _ in range((args.repeats + 2) // 3):
        for who, w in workers.items():
            print(what, file=w.stdin, flush=True)
            times[who] += json.loads(w.stdout.readline())
    row: dict = {"model": name, "what": what, "batch": args.batch}
    for i, clock in enumerate(("wall", "cpu")):
        t = {who: statistics.median(pair[i] for pair in v) for who, v in times.items()}
        row[clock] = {**t, "over_open_clip": t["open_clip"] / t["cloob"], "over_onnxruntime": t["onnxruntime"] / t["cloob"]}
        if not args.json:
            print(f"{name:9} {what:15} {clock:4}  cloob {t['cloob']:7.1f} ms   open_clip {t['open_clip']:7.1f} ms ({row[clock]['over_open_clip']:.2f}x)"
                  f"   onnxruntime {t['onnxruntime']:7.1f} ms ({row[clock]['over_onnxruntime']:.2f}x)", flush=True)
            for who in INT8 if args.int8 else ():
                print(f"{'':32}{who} {t[who]:7.1f} ms, cosine {cosine(outputs[who][what], want):.5f}", flush=True)
    return row


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(float), b.astype(float)
    return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default="RN50,ViT-B-32")
    p.add_argument("--repeats", type=int, default=30)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    p.add_argument("--int8", action="store_true", help="ours in bf16 and int8, onnxruntime in int8, too")
    p.add_argument("--channels-last", action="store_true", help="open_clip's images and weights in that layout")
    p.add_argument("--json", action="store_true", help="print one JSON object")
    p.add_argument("--serve", help=argparse.SUPPRESS)
    p.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.serve:
        return serve(args.serve, args.models, args, args.folder)
    rows = []
    for name in args.models.split(","):
        with tempfile.TemporaryDirectory(prefix="cloob_peer_") as folder:
            rows += measure(name, args, Path(folder))
    if args.json:
        json.dump({"threads": args.threads, "precision": args.precision, "repeats": args.repeats, "rows": rows}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
