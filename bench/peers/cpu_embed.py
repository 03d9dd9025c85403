#!/usr/bin/env python3
"""Image embedding on a CPU: cloob compared with OpenVINO, ONNX Runtime (ORT) and PyTorch, each in its precisions, in one run.

    python bench/peers/cpu_embed.py --make --folder F [--models RN50,ViT-B-32]        once: weights, inputs, the peers' files
    PYTHONPATH=python python bench/peers/cpu_embed.py --folder F --models RN50 --threads 1,2 [--batches 1,32] [--limit avx512|avx2]

Needs torch, open_clip_torch, onnx, onnxruntime and openvino, and nncf for OpenVINO's int8. All programs get the same random weights and
inputs. Each runs in its own process; they are timed alternately, --rounds times: one batch as warm-up, then batches for --seconds. A program
that cannot start is left out, with a message. Prints one table per model: medians of wall time and of CPU time (for machines with other
load), in milliseconds, and the smallest cosine with PyTorch's fp32 over 32 images.

int8 is each peer's fastest mode for the batch size: OpenVINO's model is quantised by NNCF and computes the other operations in fp32 or bf16; ORT's
is quantised statically (QDQ), or dynamically, which leaves convolutions in fp32. Static quantisation is per channel, calibrated with 32 random images.
The modes in use are printed below the table. --limit keeps cloob (CLOOB_CPU_LIMIT) and oneDNN in OpenVINO and PyTorch (ONEDNN_MAX_CPU_ISA) from
newer instructions; ORT has no such setting. --make writes missing files only. With several values of --threads, all but the last are
timed with the first batch size only.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import numpy as np
from embed_torch import cosine, make_weights, towers

LIMITS = {"avx512": {"CLOOB_CPU_LIMIT": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
          "avx2": {"CLOOB_CPU_LIMIT": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}}


# ---- files


def make(name: str, folder: Path) -> None:
    """Writes the files that are missing."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    exact = folder / "fp32.onnx"
    if not exact.exists():
        model = make_weights(name, folder)
        images = torch.randn(32, 3, 224, 224)
        np.save(folder / "images.npy", images.numpy())
        torch.onnx.export(towers(model, torch)[0], (images[:2],), str(exact), input_names=["x"], output_names=["y"],
                          dynamic_axes={"x": {0: "n"}, "y": {0: "n"}}, opset_version=17, dynamo=False)
    calibration = list(np.random.default_rng(1).standard_normal((32, 1, 3, 224, 224), np.float32))
    for file, quantize in (("int8.onnx", quantize_dynamic), ("int8_static.onnx", quantize_static), ("int8.xml", quantize_nncf)):
        if not (folder / file).exists():
            try:
                quantize(name, exact, folder / file, calibration)
            except ImportError as e:
                print(f"{name}: no {file}: {e}")


def quantize_dynamic(name: str, exact: Path, out: Path, calibration: list) -> None:
    from onnxruntime import quantization as q

    q.quantize_dynamic(exact, out, weight_type=q.QuantType.QInt8, per_channel=True, op_types_to_quantize=["MatMul", "Gemm"])


def quantize_static(name: str, exact: Path, out: Path, calibration: list) -> None:
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(q.CalibrationDataReader):
        rows = iter(calibration)

        def get_next(self):
            return next(({"x": x} for x in self.rows), None)

    prepared = out.with_suffix(".tmp")
    quant_pre_process(exact, prepared, skip_symbolic_shape=True)
    q.quantize_static(prepared, out, Reader(), quant_format=q.QuantFormat.QDQ, per_channel=True, activation_type=q.QuantType.QUInt8, weight_type=q.QuantType.QInt8)
    prepared.unlink()


def quantize_nncf(name: str, exact: Path, out: Path, calibration: list) -> None:
    import nncf
    import openvino as ov

    kind = nncf.ModelType.TRANSFORMER if name.startswith("ViT") else None
    ov.save_model(nncf.quantize(ov.Core().read_model(exact), nncf.Dataset(calibration), model_type=kind), out)


# ---- one function of a batch of images for each program and mode


def cloob_run(name: str, threads: int, folder: Path, precision: str):
    import cloob

    models = {}

    def run(x):
        if len(x) not in models:
            models[len(x)] = cloob.load(folder / "weights.safetensors", config=name, device="cpu", precision=precision, threads=threads, invariant=False, batch=len(x))
        return models[len(x)].encode_image(x)

    return run


def openvino_run(name: str, threads: int, folder: Path, file: str, hint: str):
    import openvino as ov

    core, models = ov.Core(), {}
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": hint}

    def run(x):
        if len(x) not in models:
            m = core.read_model(folder / file)
            m.reshape([len(x), 3, 224, 224])
            models[len(x)] = core.compile_model(m, "CPU", options)
        return models[len(x)](x)[0]

    return run


def onnxruntime_run(name: str, threads: int, folder: Path, file: str):
    import onnxruntime as ort

    o = ort.SessionOptions()
    o.intra_op_num_threads = threads
    s = ort.InferenceSession(str(folder / file), o, providers=["CPUExecutionProvider"])
    return lambda x: s.run(None, {"x": x})[0]


def torch_run(name: str, threads: int, folder: Path, precision: str):
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


COLUMNS = {  # the modes of each column
    **{f"cloob {p}": {p: partial(cloob_run, precision=p)} for p in ("fp32", "bf16", "int8")},
    "OpenVINO fp32": {"fp32": partial(openvino_run, file="fp32.onnx", hint="f32")},
    "OpenVINO bf16": {"bf16": partial(openvino_run, file="fp32.onnx", hint="bf16")},
    "OpenVINO int8": {f"with {h}": partial(openvino_run, file="int8.xml", hint=h) for h in ("f32", "bf16")},
    "ORT fp32": {"fp32": partial(onnxruntime_run, file="fp32.onnx")},
    "ORT int8": {"static": partial(onnxruntime_run, file="int8_static.onnx"), "dynamic": partial(onnxruntime_run, file="int8.onnx")},
    "PyTorch fp32": {"fp32": partial(torch_run, precision="fp32")},
    "PyTorch bf16": {"bf16": partial(torch_run, precision="bf16")},
}


def seconds_of(run, x: np.ndarray) -> tuple[float, float]:
    begin = time.perf_counter(), time.process_time()
    run(x)
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


def start_modes(column: str, *args) -> dict:
    """The modes that work here: not all processors have bf16."""
    modes = {}
    for mode, create in COLUMNS[column].items():
        try:
            modes[mode] = create(*args)
            modes[mode](np.zeros((1, 3, 224, 224), np.float32))
        except Exception:
            if not modes and mode == list(COLUMNS[column])[-1]:
                raise
            modes.pop(mode, None)
    return modes


def work(column: str, name: str, threads: int, batches: list[int], folder: Path) -> None:
    """Writes the rows of all images to COLUMN.npy. Then reads lines with a batch size and seconds, and replies with times and the mode."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to stdout
    modes = start_modes(column, name, threads, folder)
    images, best = np.load(folder / "images.npy"), {}
    for n in batches:
        for run in modes.values():
            run(images[:n])
        best[n] = min(modes, key=lambda m: min(seconds_of(modes[m], images[:n])[0] for _ in range(3))) if len(modes) > 1 else next(iter(modes))
    np.save(folder / f"{column}.npy", np.concatenate([modes[best[n]](images[i : i + n]) for n in batches for i in range(0, len(images), n)]))
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        n, seconds, times = int(line.split()[0]), float(line.split()[1]), []
        run, x = modes[best[n]], images[:n]
        run(x)
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            times.append(seconds_of(run, x))
        print(json.dumps({"times": times, "mode": best[n] if len(COLUMNS[column]) > 1 else ""}), file=replies, flush=True)


# ---- the table


def measure(name: str, args: argparse.Namespace) -> None:
    print(f"| {name}{', ' + args.limit if args.limit else ''} | " + " | ".join(COLUMNS) + " |\n|" + "---|" * (1 + len(COLUMNS)))
    notes: list[str] = []
    counts, batches = ([int(n) for n in a.split(",")] for a in (args.threads, args.batches))
    for threads in counts:
        last = threads == counts[-1]
        cosines = measure_threads(name, args, threads, batches if last else batches[:1], notes)
    print("| smallest cosine | " + " | ".join(f"{cosines[c]:.5f}" if c in cosines else "" for c in COLUMNS) + " |\n")
    print("\n".join(notes), flush=True)


def measure_threads(name: str, args: argparse.Namespace, threads: int, batches: list[int], notes: list[str]) -> dict[str, float]:
    folder = args.folder / name
    env = {**os.environ, **LIMITS.get(args.limit, {}), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--folder", str(args.folder), "--models", name, "--threads", str(threads), "--batches", ",".join(map(str, batches)), "--work"]
    label = f"{threads} thread{'s' * (threads > 1)}"
    workers = {}
    with open(folder / "errors.txt", "w") as errors:
        for column in COLUMNS:  # one after the other: modes are compared at the start
            w = subprocess.Popen([*command, column], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=env)
            if w.stdout.readline().strip() == "ready":
                workers[column] = w
            else:
                w.wait(30)
                notes.append(f"{column} did not start with {label}: see {folder}/errors.txt")
    rows = {column: np.load(folder / f"{column}.npy") for column in workers}
    for batch in batches:
        times: dict[str, list] = {column: [] for column in workers}
        modes = {}
        for _ in range(args.rounds):
            for column, w in workers.items():
                print(batch, args.seconds, file=w.stdin, flush=True)
                reply = json.loads(w.stdout.readline())
                times[column] += reply["times"]
                modes[column] = reply["mode"]
        for clock, unit in enumerate(("ms", "ms of CPU time")):
            cells = (f"{1e3 * statistics.median(pair[clock] for pair in times[c]):.1f}" if c in times else "" for c in COLUMNS)
            print(f"| batch {batch}, {label}, {unit} | " + " | ".join(cells) + " |", flush=True)
        notes.append(f"batch {batch}, {label}: " + ", ".join(f"{c} {m}" for c, m in modes.items() if m))
    for w in workers.values():
        w.stdin.close()
        w.wait(30)
    return {c: cosine(r, rows["PyTorch fp32"]) for c, r in rows.items()}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--folder", type=Path, required=True)
    p.add_argument("--make", action="store_true", help="write the missing weights, inputs and quantised models")
    p.add_argument("--models", default="RN50,ViT-B-32")
    p.add_argument("--threads", default=str(len(os.sched_getaffinity(0))), help="one or several numbers; all but the last with the first batch size only")
    p.add_argument("--batches", default="1,32")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--seconds", type=float, default=0.7, help="per program, batch size and round; at least one batch")
    p.add_argument("--limit", choices=LIMITS)
    p.add_argument("--work", help=argparse.SUPPRESS)
    args = p.parse_args()
    for name in args.models.split(","):
        if args.work:
            work(args.work, name, int(args.threads), [int(n) for n in args.batches.split(",")], args.folder / name)
        elif args.make:
            make(name, args.folder / name)
        else:
            measure(name, args)


if __name__ == "__main__":
    main()
