#!/usr/bin/env python3
"""Images per second on one core: cloob and Pillow + torchvision, in one run.

    python3 bench/images.py build/bench_images [--count 64] [--seconds 3]

Makes 500x375 JPEGs (quality 90) with the spectrum of photographs, then measures processor time, alternating between the programs:
decoding alone, the 224 px evaluation view, and the 224 px training crop (scale 0.9 to 1).
"""
import argparse, io, json, os, statistics, subprocess, sys, tempfile, time

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np
import torch
from PIL import Image
from torchvision import transforms as T

torch.set_num_threads(1)


def photograph(rng, width=500, height=375):
    """Amplitudes that fall with 1 / frequency, colours that go together, a few hard edges."""
    fy, fx = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]
    f = np.maximum(np.hypot(fy, fx), 1 / width)
    planes = []
    for power in (1.0, 1.3, 1.3):
        s = np.fft.irfft2((rng.standard_normal(f.shape) + 1j * rng.standard_normal(f.shape)) / f**power, (height, width))
        planes.append(s / s.std())
    y, cb, cr = planes
    for _ in range(12):
        t, l = rng.integers(0, height), rng.integers(0, width)
        y[t : t + rng.integers(20, 160), l : l + rng.integers(20, 200)] += rng.normal() * 0.9
    y = 128 + 48 * y
    rgb = np.stack([y + 22 * cr, y - 9 * cb - 12 * cr, y + 24 * cb], -1)
    return Image.fromarray(np.clip(rgb, 0, 255).astype(np.uint8))


def make_files(folder, count, width=500, height=375):
    rng = np.random.default_rng(5)
    files = []
    for i in range(count):
        files.append(os.path.join(folder, f"{i:03d}.jpg"))
        photograph(rng, width, height).save(files[-1], quality=90)
    return files


def peers():
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    tail = [lambda im: im.convert("RGB"), T.ToTensor(), T.Normalize(mean, std)]
    bicubic = T.InterpolationMode.BICUBIC
    return {
        "decode": lambda im: im.convert("RGB").load(),
        "eval": T.Compose([T.Resize(224, bicubic), T.CenterCrop(224)] + tail),
        "train": T.Compose([T.RandomResizedCrop(224, scale=(0.9, 1.0), interpolation=bicubic)] + tail),
        "train_uint8": T.Compose([T.RandomResizedCrop(224, scale=(0.9, 1.0), interpolation=bicubic), T.PILToTensor()]),
    }


def rate_peer(work, blobs, seconds):
    n, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        for b in blobs:
            work(Image.open(io.BytesIO(b)))
        n += len(blobs)
    return n / (time.process_time() - start)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("program")
    a.add_argument("--count", type=int, default=64)
    a.add_argument("--width", type=int, default=500)
    a.add_argument("--height", type=int, default=375)
    a.add_argument("--seconds", type=float, default=1.0)
    a.add_argument("--rounds", type=int, default=5)
    a = a.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(folder, a.count, a.width, a.height)
        blobs = [open(f, "rb").read() for f in files]
        own, theirs, shrunk = {}, {}, {}
        for _ in range(a.rounds):
            for name, work in peers().items():
                theirs.setdefault(name, []).append(rate_peer(work, blobs, a.seconds))
            for name in ("decode", "eval", "train", "shrink"):
                out = subprocess.run([a.program, name, str(a.seconds)] + files, check=True, capture_output=True, text=True)
                shrunk = json.loads(out.stdout)
                own.setdefault(name, []).append(shrunk["items_per_s"])
    print(f"{a.count} JPEGs of {a.width}x{a.height}, quality 90, mean {sum(map(len, blobs)) / len(blobs) / 1024:.0f} KiB; "
          f"one core, per second of processor time, median of {a.rounds} rounds")
    for name in theirs:
        t, o = statistics.median(theirs[name]), statistics.median(own.get(name, own["train"]))
        print(f"{name:12s} cloob {o:7.0f}/s   Pillow + torchvision {t:7.0f}/s   {o / t:5.2f}x")
    print(f"{'jpeg_shrink':12s} cloob {statistics.median(own['shrink']):7.0f}/s   "
          f"difference from train: mean {shrunk['mean_abs']:.3f}, largest {shrunk['max_abs']} levels")


if __name__ == "__main__":
    main()
