#!/usr/bin/env python3
"""What a set of `cloob synth` can teach: trains a small CLOOB in PyTorch (independent of cloob's training code)
and prints the zero-shot accuracy of every factor on held-out combinations. Needs torch and Pillow.

    bench/peers/synth_learn.py DIR [--epochs 6] [--width 24] [--beta 30] [--inv-tau 30] [--lr 7e-4] [--threads 1]
"""
import argparse
import csv
import glob
import json
import re
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image

LENGTH, DIM, BATCH = 20, 128, 128
MEAN = torch.tensor([0.481, 0.458, 0.408]).view(1, 3, 1, 1)
STD = torch.tensor([0.269, 0.261, 0.276]).view(1, 3, 1, 1)


def images(paths):
    return torch.from_numpy(np.stack([np.asarray(Image.open(p).convert("RGB")) for p in paths]))


def normalised(x):
    return ((x.permute(0, 3, 1, 2).float() / 255 - MEAN) / STD).contiguous(memory_format=torch.channels_last)


def random_crop(x):
    """Windows of 95 to 100 % of each side, as the random resized crop of training."""
    n = len(x)
    scale = torch.rand(n) * 0.05 + 0.95
    theta = torch.zeros(n, 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = scale
    theta[:, :, 2] = (1 - scale)[:, None] * (torch.rand(n, 2) * 2 - 1)
    grid = F.affine_grid(theta, x.shape, align_corners=False)
    return F.grid_sample(x, grid, align_corners=False, padding_mode="reflection")


class Words:
    """One number per word; 1 ends a text, 0 pads."""

    def __init__(self, texts):
        self.id = {}
        for t in texts:
            for w in self.split(t):
                self.id.setdefault(w, len(self.id) + 2)

    @staticmethod
    def split(text):
        return re.findall(r"[a-z0-9]+", text.lower())

    def __call__(self, texts):
        rows = []
        for t in texts:
            ids = [self.id[w] for w in self.split(t)[: LENGTH - 1] if w in self.id] + [1]
            rows.append(ids + [0] * (LENGTH - len(ids)))
        return torch.tensor(rows)


class Residual(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
            nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o))
        self.skip = nn.Sequential(nn.AvgPool2d(stride), nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


class AttentionPool(nn.Module):
    def __init__(self, c, tokens, heads=4):
        super().__init__()
        self.heads, self.place = heads, nn.Parameter(torch.randn(tokens + 1, c) / c**0.5)
        self.q, self.k, self.v = nn.Linear(c, c), nn.Linear(c, c), nn.Linear(c, c)
        self.out = nn.Linear(c, DIM)

    def forward(self, x):
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(1, keepdim=True), x], 1) + self.place
        n, _, c = x.shape
        split = lambda t: t.view(n, -1, self.heads, c // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.q(x[:, :1])), split(self.k(x)), split(self.v(x)))
        return self.out(y.transpose(1, 2).reshape(n, c))


def image_tower(size, w):
    return nn.Sequential(
        nn.Conv2d(3, w, 3, 2, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(),
        nn.Conv2d(w, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(),
        Residual(w, w, 1), Residual(w, 2 * w, 2), Residual(2 * w, 4 * w, 2), Residual(4 * w, 8 * w, 2),
        AttentionPool(8 * w, (size // 16) ** 2)).to(memory_format=torch.channels_last)


class TextTower(nn.Module):
    def __init__(self, words, c=128):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, c), nn.Parameter(0.01 * torch.randn(LENGTH, c))
        layer = nn.TransformerEncoderLayer(c, 4, 4 * c, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.out = nn.LayerNorm(c), nn.Linear(c, DIM)

    def forward(self, t):
        h = self.norm(self.body(self.embed(t) + self.place, src_key_padding_mask=t == 0))
        return self.out(h[torch.arange(len(t)), (t == 1).float().argmax(1)])


def cloob_loss(x, y, beta, inv_tau):
    def retrieve(state, stored):
        return F.normalize((beta * state @ stored.T).softmax(1) @ stored, dim=1)

    def leave_one_out(a, b):
        s = a @ b.T * inv_tau
        rest = s.masked_fill(torch.eye(len(s), dtype=torch.bool), float("-inf")).logsumexp(1)
        return (rest - s.diag()).mean()

    image = leave_one_out(retrieve(x, x), retrieve(y, x))
    text = leave_one_out(retrieve(y, y), retrieve(x, y))
    return (image + text) / inv_tau


@torch.no_grad()
def zero_shot(image, text, words, test, prompts):
    image.eval(), text.eval()
    score = {}
    for factor, entry in prompts.items():
        weights = []
        for name in entry["classes"]:
            e = text(words([t.replace("{}", name) for t in entry["templates"]]))
            weights.append(F.normalize(F.normalize(e, dim=1).mean(0), dim=0))
        weights = torch.stack(weights)
        hits = [((image(normalised(x)) @ weights.T).argmax(1) == c).float().mean().item() for c, x in enumerate(test[factor])]
        score[factor] = sum(hits) / len(hits)
    image.train(), text.train()
    return score


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir")
    for name, value in (("epochs", 6.0), ("beta", 30.0), ("inv-tau", 30.0), ("lr", 7e-4)):
        p.add_argument("--" + name, type=float, default=value)
    for name, value in (("width", 24), ("threads", 1), ("per-class", 40), ("seed", 0)):
        p.add_argument("--" + name, type=int, default=value)
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    rows = list(csv.DictReader(open(o.dir + "/train.tsv"), delimiter="\t"))
    prompts = json.load(open(o.dir + "/prompts.json"))
    x = images(f"{o.dir}/{r['filepath']}" for r in rows)
    test = {f: [images(sorted(glob.glob(f"{o.dir}/classes/{f}/{c}/*"))[: o.per_class]) for c in e["classes"]]
            for f, e in prompts.items()}
    words = Words(r["title"] for r in rows)
    t = words([r["title"] for r in rows])
    image, text = image_tower(x.shape[1], o.width), TextTower(len(words.id) + 2)
    parameters = list(image.parameters()) + list(text.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=o.lr, weight_decay=0.1)
    steps, began = int(o.epochs * (len(rows) // BATCH)), time.time()
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, o.lr, total_steps=steps, pct_start=0.1)
    for s in range(steps):
        at = s % (len(rows) // BATCH)
        if at == 0:
            order = torch.randperm(len(rows))
        index = order[at * BATCH:(at + 1) * BATCH]
        a = F.normalize(image(random_crop(normalised(x[index]))), dim=1)
        b = F.normalize(text(t[index]), dim=1)
        loss = cloob_loss(a, b, o.beta, o.inv_tau)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if s % 50 == 49:
            print(f"step {s + 1} of {steps}, loss {loss.item():.4f}, {time.time() - began:.0f} s", flush=True)
    for factor, accuracy in zero_shot(image, text, words, test, prompts).items():
        print(f"{factor:<11} {accuracy:.3f}   chance {1 / len(prompts[factor]['classes']):.3f}")


if __name__ == "__main__":
    main()
