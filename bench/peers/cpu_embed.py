#!/usr/bin/env python3
"""Image embedding on a CPU: cloob beside OpenVINO, ONNX Runtime and PyTorch, each in its precisions, taking turns in one run.

    python bench/peers/cpu_embed.py --make --folder F [--models RN50,ViT-B-32]        once: weights, inputs, the peers' files
    PYTHONPATH=python python bench/peers/cpu_embed.py --folder F --models RN50 --threads 2 [--batches 1,32] [--limit avx512|avx2]

Needs torch, open_clip_torch, onnx, onnxruntime and openvino, and nncf for OpenVINO's int8; who cannot start is left out with a line
that says why. All get the same random weights and inputs. Each runs in a process of its own and they take turns: one batch that is not
counted, then as many as fit into --seconds. Prints rows of a table per batch size: medians in milliseconds (wall clock, and processor time for
machines that others use too), and the smallest cosine with PyTorch's fp32 over 32 images. OpenVINO's int8 is NNCF's static quantisation, calibrated with 32 other images; ONNX Runtime's
is dynamic: matrix products alone, convolutions stay fp32. --limit keeps cloob (CLOOB_CPU_LIMIT), and oneDNN in OpenVINO and
PyTorch (ONEDNN_MAX_CPU_ISA), from newer instructions; ONNX Runtime has no such variable.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import numpy as np
from embed_torch import cosine, make_weights, towers

LIMITS = {"avx512": {"CLOOB_CPU_LIMIT": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
          "avx2": {"CLOOB_CPU_LIMIT": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}}
WHO = [f"{who} {p}" for who, all_p in (("cloob", "fp32 bf16 int8"), ("OpenVINO", "fp32 bf16 int8"), ("ORT", "fp32 int8"), ("PyTorch", "fp32 bf16"))
       for p in all_p.split()]


# ---- files


def make(name: str, folder: Path) -> None:
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    folder.mkdir(parents=True, exist_ok=True)
    model = make_weights(name, folder)
    images = torch.randn(32, 3, 224, 224)
    np.save(folder / "images.npy", images.numpy())
    torch.onnx.export(towers(model, torch)[0], (images[:2],), str(folder / "fp32.onnx"), input_names=["x"], output_names=["y"],
                      dynamic_axes={"x": {0: "n"}, "y": {0: "n"}}, opset_version=17, dynamo=False)
    quantize_dynamic(folder / "fp32.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=["MatMul", "Gemm"])
    try:
        import nncf
        import openvino as ov
    except ImportError as e:
        return print(f"{name}: no int8 for OpenVINO: {e}")
    calibration = torch.randn(32, 1, 3, 224, 224).numpy()
    kind = nncf.ModelType.TRANSFORMER if name.startswith("ViT") else None
    ov.save_model(nncf.quantize(ov.Core().read_model(folder / "fp32.onnx"), nncf.Dataset(list(calibration)), model_type=kind), folder / "int8.xml")


# ---- who runs, each a function of the images


def cloob_runner(name: str, precision: str, threads: int, folder: Path):
    import cloob

    models = {}

    def run(x):
        if len(x) not in models:
            models[len(x)] = cloob.load(folder / "weights.safetensors", config=name, device="cpu", precision=precision, threads=threads, invariant=False, batch=len(x))
        return models[len(x)].encode_image(x)

    return run


def openvino_runner(name: str, precision: str, threads: int, folder: Path):
    import openvino as ov

    core, models = ov.Core(), {}
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32"}

    def run(x):
        if len(x) not in models:
            m = core.read_model(folder / ("int8.xml" if precision == "int8" else "fp32.onnx"))
            m.reshape([len(x), 3, 224, 224])
            models[len(x)] = core.compile_model(m, "CPU", options)
        return models[len(x)](x)[0]

    return run


def onnxruntime_runner(name: str, precision: str, threads: int, folder: Path):
    import onnxruntime as ort

    o = ort.SessionOptions()
    o.intra_op_num_threads = threads
    s = ort.InferenceSession(str(folder / f"{precision}.onnx"), o, providers=["CPUExecutionProvider"])
    return lambda x: s.run(None, {"x": x})[0]


def torch_runner(name: str, precision: str, threads: int, folder: Path):
    import open_clip
    import safetensors.torch
    import torch

    torch.set_num_threads(threads)
    model = open_clip.create_model(name + "-quickgelu").eval()
    model.load_state_dict(safetensors.torch.load_file(folder / "weights.safetensors"))
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    tower = towers(model.to(memory_format=torch.channels_last, dtype=dtype), torch)[0]

    def run(x):
        with torch.inference_mode():
            return tower(torch.from_numpy(x).to(dtype).contiguous(memory_format=torch.channels_last)).float().numpy()

    return run


RUNNERS = {"cloob": cloob_runner, "OpenVINO": openvino_runner, "ORT": onnxruntime_runner, "PyTorch": torch_runner}


def serve(who: str, name: str, threads: int, folder: Path) -> None:
    """A line with a batch size in; a line with milliseconds and, as a file, the rows out."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    run = RUNNERS[who.split()[0]](name, who.split()[1], threads, folder)
    images = np.load(folder / "images.npy")
    np.save(folder / f"{who}.npy", np.concatenate([run(images[i : i + 1]) for i in range(len(images))]))
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        x, seconds, times = images[: int(line.split()[0])], float(line.split()[1]), []
        run(x)
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            begin = time.perf_counter(), time.process_time()
            run(x)
            times.append((1e3 * (time.perf_counter() - begin[0]), 1e3 * (time.process_time() - begin[1])))
        print(json.dumps(times), file=replies, flush=True)


# ---- turns


def measure(name: str, args: argparse.Namespace) -> None:
    folder = args.folder / name
    env = {**os.environ, **LIMITS.get(args.limit, {}), "OMP_NUM_THREADS": str(args.threads)}
    command = [sys.executable, __file__, "--folder", str(args.folder), "--models", name, "--threads", str(args.threads), "--serve"]
    with open(folder / "errors.txt", "w") as errors:
        workers = {who: subprocess.Popen([*command, who], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=env) for who in WHO}
    for who in list(workers):
        if workers[who].stdout.readline().strip() != "ready":
            print(f"{who} did not start; {folder}/errors.txt says why")
            workers.pop(who).wait(30)
    want = np.load(folder / "PyTorch fp32.npy")
    cosines = {who: cosine(np.load(folder / f"{who}.npy"), want) for who in workers}
    label = f"{name}, {args.threads} thread{'s' * (args.threads > 1)}"
    print(f"| {label}{', ' + args.limit if args.limit else ''} | " + " | ".join(workers) + " |\n|" + "---|" * (1 + len(workers)))
    for batch in args.batches.split(","):
        times: dict = {who: [] for who in workers}
        for _ in range(args.rounds):
            for who, w in workers.items():
                print(batch, args.seconds, file=w.stdin, flush=True)
                times[who] += json.loads(w.stdout.readline())
        for i, clock in enumerate(("ms", "ms of CPU time")):
            print(f"| batch {batch}, {clock} | " + " | ".join(f"{statistics.median(pair[i] for pair in t):.1f}" for t in times.values()) + " |", flush=True)
    print("| smallest cosine | " + " | ".join(f"{c:.5f}" for c in cosines.values()) + " |\n", flush=True)
    for w in workers.values():
        w.stdin.close()
        w.wait(30)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--folder", type=Path, required=True)
    p.add_argument("--make", action="store_true", help="write the files that all read")
    p.add_argument("--models", default="RN50,ViT-B-32")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--batches", default="1,32")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--seconds", type=float, default=0.7, help="of each turn; one batch at least")
    p.add_argument("--limit", choices=LIMITS)
    p.add_argument("--serve", help=argparse.SUPPRESS)
    args = p.parse_args()
    for name in args.models.split(","):
        if args.serve:
            serve(args.serve, name, args.threads, args.folder / name)
        elif args.make:
            make(name, args.folder / name)
        else:
            measure(name, args)


if __name__ == "__main__":
    main()
