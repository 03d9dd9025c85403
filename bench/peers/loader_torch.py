#!/usr/bin/env python3
"""Training crops per second: `cloob bench data` compared with a PyTorch DataLoader with Pillow and torchvision.

    bench/peers/loader_torch.py --cloob build/cloob --workers 2

Both read the same generated 500x375 JPEGs through a TSV and make 224 px random resized crops (scale 0.9..1, bicubic) and,
with --vocab, CLIP's tokens. The two take turns, several rounds, and medians are compared. The DataLoader is timed twice: as
open_clip runs it (crop, RGB, float, normalise) and without the last two steps, which cloob leaves to the device. CPU time per
image is printed next to the rate: it does not change when other programs share the machine.
Needs Python with torch, torchvision, Pillow and numpy (and open_clip with --vocab); cloob itself needs none of them."""
import argparse
import json
import os
import resource
import statistics
import subprocess
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T


def make_image(rng, width, height):
    """Smooth colour fields, some hard edges and fine grain: about as many bytes as a photograph of that size."""
    small = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    field = np.asarray(Image.fromarray(small).resize((width, height), Image.BICUBIC), dtype=np.float32)
    for _ in range(12):
        x, y = rng.integers(0, width - 40), rng.integers(0, height - 40)
        w, h = rng.integers(20, 160), rng.integers(20, 120)
        field[y:y + h, x:x + w] = 0.4 * field[y:y + h, x:x + w] + 0.6 * rng.integers(0, 256, 3)
    field += rng.normal(0, 9, field.shape)
    return Image.fromarray(np.clip(field, 0, 255).astype(np.uint8))


def make_set(folder, count):
    table = os.path.join(folder, "train.tsv")
    if os.path.exists(table):
        return table
    os.makedirs(os.path.join(folder, "images"), exist_ok=True)
    rng = np.random.default_rng(0)
    words = "a the small large red green old house tree bird boat river street near under two morning light".split()
    with open(table + ".part", "w") as f:
        f.write("filepath\ttitle\n")
        for i in range(count):
            name = f"images/{i:05d}.jpg"
            make_image(rng, 500, 375).save(os.path.join(folder, name), quality=90)
            f.write(f"{name}\t{' '.join(rng.choice(words, 11))}\n")
    os.rename(table + ".part", table)
    return table


class Images(Dataset):
    def __init__(self, table, tail, tokenizer):
        folder = os.path.dirname(table)
        with open(table) as f:
            rows = [line.rstrip("\n").split("\t") for line in f][1:]
        self.rows = [(os.path.join(folder, p), t) for p, t in rows]
        self.tokenizer = tokenizer
        crop = T.RandomResizedCrop(224, scale=(0.9, 1.0), interpolation=T.InterpolationMode.BICUBIC)
        self.view = T.Compose([crop, lambda im: im.convert("RGB"), *tail])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        path, text = self.rows[i]
        image = self.view(Image.open(path))
        return (image, self.tokenizer([text])[0]) if self.tokenizer else image


def cpu_seconds():
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def time_torch(table, tail, tokenizer, batch, workers):
    cpu = cpu_seconds()
    loader = DataLoader(Images(table, tail, tokenizer), batch, shuffle=True, num_workers=workers, drop_last=True,
                        persistent_workers=True)
    for _ in loader:  # starting the workers is not counted
        pass
    begin, items = time.perf_counter(), 0
    for b in loader:
        items += len(b[0] if tokenizer else b)
    rate = items / (time.perf_counter() - begin)
    del loader  # ends the workers, whose time counts from then on
    return rate, 1e3 * (cpu_seconds() - cpu) / (2 * items)


def time_cloob(program, table, vocab, batch, workers):
    command = [program, "bench", "data", "--data", table, "--workers", str(workers), "--batch-size", str(batch), "--json",
               "--epochs", "3", "--quiet"] + (["--vocab", vocab] if vocab else [])
    cpu = cpu_seconds()
    out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return out["items_per_s"], 1e3 * (cpu_seconds() - cpu) / (out["items"] + batch)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cloob", default="build/cloob")
    p.add_argument("--folder", default="/tmp/cloob-loader-bench")
    p.add_argument("--count", type=int, default=1000)
    p.add_argument("--batch", type=int, default=50)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--vocab", help="CLIP's merges file: tokenize captions too")
    a = p.parse_args()
    torch.set_num_threads(1)
    table = make_set(a.folder, a.count)
    size = statistics.mean(os.path.getsize(os.path.join(a.folder, "images", n)) for n in os.listdir(os.path.join(a.folder, "images")))
    tokenizer = None
    if a.vocab:
        import open_clip
        tokenizer = open_clip.get_tokenizer("RN50")
    normalise = T.Normalize((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
    rates = {"cloob": [], "torch_open_clip": [], "torch_uint8": []}
    for _ in range(a.rounds):
        rates["cloob"].append(time_cloob(a.cloob, table, a.vocab, a.batch, a.workers))
        rates["torch_open_clip"].append(time_torch(table, [T.ToTensor(), normalise], tokenizer, a.batch, a.workers))
        rates["torch_uint8"].append(time_torch(table, [T.PILToTensor()], tokenizer, a.batch, a.workers))
    result = {"jpeg_bytes_mean": size, "workers": a.workers, "rounds": rates}
    for k, name in enumerate(["items_per_s", "cpu_ms_per_item"]):
        m = result[name] = {key: statistics.median(pair[k] for pair in v) for key, v in rates.items()}
        for peer in ["torch_open_clip", "torch_uint8"]:
            ratio = m["cloob"] / m[peer] if k == 0 else m[peer] / m["cloob"]
            result[f"{name}_ratio_{peer}"] = ratio
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
