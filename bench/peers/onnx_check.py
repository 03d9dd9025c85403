#!/usr/bin/env python3
"""Both towers of models as ONNX files, run by onnxruntime, beside the program's own embeddings.

    bench/peers/onnx_check.py --cloob build/cloob MODEL.safetensors...

Prints the largest difference of each tower; exit code 1 above 1e-4. Needs numpy, onnx and onnxruntime."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

ROWS = 5


TYPES = {"F32": np.float32, "I32": np.int32, "I64": np.int64}


def read(path):
    raw = pathlib.Path(path).read_bytes()
    n = int.from_bytes(raw[:8], "little")
    head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
    return {k: np.frombuffer(data[v["data_offsets"][0]:v["data_offsets"][1]], TYPES[v["dtype"]]).reshape(v["shape"])
            for k, v in head.items() if k != "__metadata__" and v["dtype"] in TYPES}


def write(path, arrays):
    head, data = {}, b""
    for name, x in arrays.items():
        kind = next(k for k, t in TYPES.items() if x.dtype == t)
        head[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


def texts(rng, context, vocab):
    """Start, words, end, zeros; of several lengths."""
    rows = np.zeros((ROWS, context), np.int64)
    for i in range(ROWS):
        n = 2 + i * (context - 3) // ROWS
        rows[i, 1:n] = rng.integers(1, vocab - 3, n - 1)
        rows[i, 0], rows[i, n] = vocab - 2, vocab - 1
    return rows


def check(cloob, model):
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([cloob, "convert", model, f"{folder}/m.onnx", "--quiet"], check=True, capture_output=True)
        session, given, worst = {}, {}, 0.0
        for tower in ("image", "text"):
            onnx.checker.check_model(f"{folder}/m.{tower}.onnx", full_check=True)
            s = session[tower] = onnxruntime.InferenceSession(f"{folder}/m.{tower}.onnx", providers=["CPUExecutionProvider"])
            size = s.get_inputs()[0].shape[1:]
            config = json.loads(s.get_modelmeta().custom_metadata_map["config"])
            given[s.get_inputs()[0].name] = (rng.normal(size=(ROWS, *size)).astype(np.float32) if tower == "image" else
                                             texts(rng, size[0], config["text_cfg"]["vocab_size"]))
        write(f"{folder}/x.safetensors", given)
        subprocess.run([cloob, "embed", "--checkpoint", model, "--tensors", f"{folder}/x.safetensors", "--out",
                        f"{folder}/e.safetensors", "--quiet", "--device", "cpu"], check=True)
        ours = read(f"{folder}/e.safetensors")
        for tower, s in session.items():
            name = s.get_inputs()[0].name
            theirs = s.run(None, {name: given[name]})[0]
            apart = float(np.abs(ours[tower] - theirs).max())
            worst = max(worst, apart)
            print(f"{model} {tower}: {ROWS} rows of {theirs.shape[1]}, largest difference {apart:.1e}")
    return worst


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--cloob", default="build/cloob")
p.add_argument("models", nargs="+")
a = p.parse_args()
sys.exit(max(check(a.cloob, m) for m in a.models) > 1e-4)
