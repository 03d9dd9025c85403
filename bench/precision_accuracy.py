#!/usr/bin/env python3
"""Accuracy of bf16 and int8 on a CPU: cosines with fp32, retrieval and zero-shot accuracy of one checkpoint.

    python3 bench/precision_accuracy.py --checkpoint M --data val.tsv [--images N] [--all-captions] [--limits all,avx512,avx2]
                                        [--zeroshot CLASSES] [--cloob build/cloob] [--precisions bf16,int8] [-- OPTIONS]

Embeds the first N images of --data and their first (or all) captions with `cloob embed --device cpu` in fp32 and in each precision, under each
value of CLOOB_CPU_LIMIT ("all": none), and prints a row each: smallest and mean cosine with fp32 of images and of texts, R@1 from image
to text and from text to image, and with --zeroshot the top-1 accuracy. OPTIONS go to all commands that read the model (--config, --vocab),
--path-data to those that read --data. Needs numpy."""
from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def read_tensors(path: Path, names: tuple[str, ...]) -> list[np.ndarray]:
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    return [np.frombuffer(data[8 + size :][slice(*header[n]["data_offsets"])], "<f4").reshape(header[n]["shape"]) for n in names]


def first_images(source: Path, count: int, out: Path) -> Path:
    """The rows of the first `count` images of a TSV or CSV file whose first column is the image."""
    kept: set[str] = set()
    with open(source) as f, open(out, "w") as g:
        g.write(f.readline())
        for line in f:
            image = line.split("\t" if "\t" in line else ",")[0]
            if image in kept or len(kept) < count:
                kept.add(image)
                g.write(line)
    return out


def cosines(a: np.ndarray, b: np.ndarray) -> str:
    c = (a.astype(float) * b).sum(1) / np.linalg.norm(a.astype(float), axis=1) / np.linalg.norm(b.astype(float), axis=1)
    return f"{c.min():.5f}, {c.mean():.5f}"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cloob", default="build/cloob")
    p.add_argument("--checkpoint", required=True)
    p.add_argument("--data", type=Path, required=True, help="TSV or CSV: image, caption")
    p.add_argument("--path-data", help="folder or tar of the images")
    p.add_argument("--images", type=int, default=0, help="use the first N images; 0: all")
    p.add_argument("--all-captions", action="store_true", help="embed every caption of an image; default: the first one")
    p.add_argument("--zeroshot", help="class folders, or a tar of them")
    p.add_argument("--precisions", default="bf16,int8")
    p.add_argument("--limits", default="all", help="values of CLOOB_CPU_LIMIT; all: none")
    p.add_argument("options", nargs="*", help="for cloob, after --")
    args = p.parse_args()

    with tempfile.TemporaryDirectory(prefix="cloob_accuracy_") as folder:
        data = first_images(args.data, args.images, Path(folder) / "data.tsv") if args.images else args.data
        place = ["--path-data", args.path_data] if args.path_data else ["--path-data", str(args.data.parent)]

        def run(limit: str, *command: str) -> dict:
            env = {**os.environ, **({} if limit == "all" else {"CLOOB_CPU_LIMIT": limit})}
            done = subprocess.run([args.cloob, *command, "--quiet", "--json"], env=env, text=True, capture_output=True)
            if done.returncode:
                sys.exit(f"cloob {' '.join(command)}: {done.stderr.strip()}")
            return json.loads(done.stdout)

        def measure(limit: str, precision: str) -> tuple[list[np.ndarray], list[float]]:
            out = Path(folder) / "rows.safetensors"
            model = ["--checkpoint", args.checkpoint, "--device", "cpu", "--precision", precision, *args.options]
            captions = ["--all-captions" if args.all_captions else "--one-caption-per-image"]
            run(limit, "embed", "--data", str(data), *place, *captions, "--out", str(out), *model)
            ranks = run("all", "eval", "retrieval", "--input", str(out), "--device", "cpu")
            scores = [ranks["image_to_text_R@1"], ranks["text_to_image_R@1"]]
            if args.zeroshot:
                scores.append(run(limit, "eval", "zeroshot", "--data", args.zeroshot, *model)["top1"])
            return read_tensors(out, ("image", "text")), scores

        print("| instructions | precision | images: smallest, mean cosine | texts | R@1 image to text | text to image |" + " zero-shot |" * bool(args.zeroshot))
        print("|---|---|---|---|---|---|" + "---|" * bool(args.zeroshot))
        exact, exact_scores = measure("all", "fp32")
        print(f"| all | fp32 | {len(exact[0])} images | {len(exact[1])} texts |" + "".join(f" {100 * s:.2f} % |" for s in exact_scores), flush=True)
        for limit in args.limits.split(","):
            for precision in args.precisions.split(","):
                rows, scores = measure(limit, precision)
                change = "".join(f" {100 * s:.2f} % ({100 * (s - e):+.2f}) |" for s, e in zip(scores, exact_scores))
                print(f"| {limit} | {precision} | {cosines(rows[0], exact[0])} | {cosines(rows[1], exact[1])} |{change}", flush=True)


if __name__ == "__main__":
    main()
