#!/usr/bin/env python3
"""Frozen values for tests/eval: small data and what NumPy and SciPy, in double, make of it.

    python3 tests/ref/make/make_eval_ref.py        writes tests/ref/eval_*.{safetensors,json}

Needs numpy, scipy, safetensors; the library and its tests do not."""
import json
import os

import numpy as np
from safetensors.numpy import save_file
from scipy.stats import mannwhitneyu

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def write(name, value):
    with open(os.path.join(OUT, name), "w") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def ranks(s):
    """Places from 1 by decreasing similarity, equal ones by index."""
    order = np.argsort(-s, axis=1, kind="stable")
    return (order == np.arange(len(s))[:, None]).argmax(1) + 1


def recall(name, r):
    out = {f"{name}_R@{k}": float((r <= k).mean()) for k in (1, 5, 10)}
    return out | {f"{name}_mean_rank": float(r.mean()), f"{name}_median_rank": float(np.floor(np.median(r))),
                  f"{name}_MRR": float((1 / r).mean())}


def spread(name, x):
    n = len(x)
    i, j = np.triu_indices(n, 1)
    s = (x @ x.T)[i, j]
    values = np.linalg.eigvalsh(np.cov(x.T))[::-1].clip(0)
    return {
        f"ajne_{name}": float(n / 4 - np.arccos(s.clip(-1, 1)).sum() / (np.pi * n)),
        f"uniformity_{name}": float(np.log(np.exp(-2 * (2 - 2 * s)).mean())),
        f"eigenvalues_{name}": values.tolist(),
        f"effective_{name}": int((values.cumsum() / values.sum() < 0.99).sum()) + 1,
    }


def pairs():
    rng = np.random.default_rng(5)
    n, d = 131, 24
    base = rng.standard_normal((n, d)) * np.linspace(1.5, 0.1, d)
    x = unit(base + 0.55 * rng.standard_normal((n, d))).astype(np.float32)
    y = unit(base + 0.55 * rng.standard_normal((n, d))).astype(np.float32)
    save_file({"image": x, "text": y}, os.path.join(OUT, "eval_pairs.safetensors"))
    x, y = x.astype(np.float64), y.astype(np.float64)
    s = x @ y.T
    off = np.where(np.eye(n, dtype=bool), -np.inf, s)
    off = -np.sort(-off, axis=1)
    out = recall("image_to_text", ranks(s)) | recall("text_to_image", ranks(s.T)) | spread("x", x) | spread("y", y)
    out |= {"matched_mean": float(np.diag(s).mean()), "alignment": float(((x - y) ** 2).sum(1).mean())}
    out |= {f"top{k}_unmatched_mean": float(off[:, :min(k, n - 1)].mean()) for k in (10, 100, 1000)}
    write("eval_pairs.json", out)


def captions():
    """Several captions per image, ranked as Flickr30k and COCO are published: an image by its best caption among all texts."""
    rng = np.random.default_rng(17)
    n, d = 61, 16
    counts = rng.integers(1, 8, n)
    counts[5] = 0
    owner = rng.permutation(np.repeat(np.arange(n), counts))
    base = rng.standard_normal((n, d))
    x = unit(base + 0.7 * rng.standard_normal((n, d))).astype(np.float32)
    y = unit(base[owner] + 0.9 * rng.standard_normal((len(owner), d))).astype(np.float32)
    save_file({"image": x, "text": y, "text_image": owner.astype(np.int64)}, os.path.join(OUT, "eval_captions.safetensors"))
    s = x.astype(np.float64) @ y.astype(np.float64).T
    best = np.array([min(list(np.argsort(-s[i], kind="stable")).index(j) for j in np.flatnonzero(owner == i)) + 1
                     for i in range(n) if (owner == i).any()])
    back = np.array([list(np.argsort(-s[:, j], kind="stable")).index(owner[j]) + 1 for j in range(len(owner))])
    write("eval_captions.json", recall("image_to_text", best) | recall("text_to_image", back))


def newton(x, y, classes, lam):
    """The exact optimum of sum of cross entropies + lam/2 |W|^2, bias free."""
    n, d = x.shape
    a, k = np.hstack([x, np.ones((n, 1))]), d + 1
    w, keep = np.zeros(classes * k), lam * np.tile(np.r_[np.ones(d), 0], classes)

    def value(w):
        z = a @ w.reshape(classes, k).T
        z -= z.max(1, keepdims=True)
        p = np.exp(z)
        total = p.sum(1, keepdims=True)
        f = (np.log(total[:, 0]) - z[np.arange(n), y]).sum() + 0.5 * (keep * w * w).sum()
        return f, p / total

    f, p = value(w)
    for _ in range(60):
        g = ((p - np.eye(classes)[y]).T @ a).ravel() + keep * w
        h = np.diag(keep + 1e-12)
        for b in range(classes):
            for c in range(classes):
                h[b*k:b*k+k, c*k:c*k+k] += (a * (p[:, b] * ((b == c) - p[:, c]))[:, None]).T @ a
        step, t = np.linalg.solve(h, g), 1.0
        while value(w - t * step)[0] > f and t > 1e-9:
            t /= 2
        w = w - t * step
        f, p = value(w)
    return f, w.reshape(classes, k)


def probe():
    rng = np.random.default_rng(11)
    d, classes, centre = 7, 5, None
    centre = rng.standard_normal((classes, d)) * 1.2
    data = {}
    for name, n in (("train", 150), ("val", 90), ("test", 110)):
        label = rng.integers(0, classes, n)
        data[f"{name}.x"] = (centre[label] + rng.standard_normal((n, d))).astype(np.float32)
        data[f"{name}.y"] = label.astype(np.int64)
    save_file(data, os.path.join(OUT, "eval_probe.safetensors"))
    rows = []
    for lam in (1e-4, 1e-2, 1.0, 30.0, 1000.0):
        f, w = newton(data["train.x"].astype(np.float64), data["train.y"], classes, lam)
        row = {"lambda": lam, "objective": float(f), "coef_norm": float(np.linalg.norm(w[:, :d]))}
        for name in ("train", "val", "test"):
            z = data[f"{name}.x"].astype(np.float64) @ w[:, :d].T + w[:, d]
            row[f"{name}_acc"] = float((z.argmax(1) == data[f"{name}.y"]).mean())
        rows.append(row)
    write("eval_probe.json", rows)


def rank_sum():
    rng = np.random.default_rng(3)
    cases = [([1.0], [2.0]), ([3.0, 1.0], [2.0]), ([0.5] * 4, [0.5] * 3), ([1, 2, 2, 3], [2, 4, 5]),
             (rng.normal(0, 1, 8).tolist(), rng.normal(1, 1, 20).tolist()),
             (rng.normal(0, 1, 12).tolist(), rng.normal(0.3, 1, 15).tolist())]
    rows = []
    for a, b in cases:
        row = {"a": a, "b": b, "U": float(mannwhitneyu(a, b).statistic)}
        tied = len(set(a + b)) < len(a + b)
        for side in ("two-sided", "less", "greater"):
            row[f"normal_{side}"] = float(mannwhitneyu(a, b, alternative=side, method="asymptotic").pvalue)
            exact = mannwhitneyu(a, b, alternative=side, method="exact").pvalue
            row[f"exact_{side}"] = None if tied or min(len(a), len(b)) > 8 else float(exact)
        rows.append(row)
    write("eval_ranksum.json", rows)


def holm(p):
    """Holm's step-down correction, from its definition: max over smaller ones of (tests left) * p."""
    order = np.argsort(p, kind="stable")
    out, running = np.zeros(len(p)), 0.0
    for k, i in enumerate(order):
        running = max(running, min(1.0, (len(p) - k) * p[i]))
        out[i] = running
    return out


def groups():
    rng = np.random.default_rng(23)
    names, runs = ["clip", "infoloob", "cloob"], []
    for name, shift in zip(names, (0.0, 0.3, 1.2)):
        runs += [{"method": name, "accuracy": float(rng.normal(shift)), "loss": float(rng.normal(-shift))} for _ in range(6)]
    out = {"runs": runs}
    for key in ("accuracy", "loss"):
        value = {n: np.array([r[key] for r in runs if r["method"] == n]) for n in names}
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1:]]
        p = [float(mannwhitneyu(value[a], value[b], method="exact").pvalue) for a, b in pairs]
        delta = [float(np.sign(value[a][:, None] - value[b][None]).mean()) for a, b in pairs]
        out[key] = {"groups": {n: {"mean": float(v.mean()), "spread": float(v.std(ddof=1))} for n, v in value.items()},
                    "pairs": [{"p": q, "p_holm": float(h), "delta": d} for q, h, d in zip(p, holm(np.array(p)), delta)]}
    write("eval_groups.json", out)


def subset():
    """Zero-shot among some of the classes, several of which may be one folder's: argmax over the subset, right if it is any of them."""
    rng = np.random.default_rng(29)
    classes, d, n = 20, 12, 200
    weight = unit(rng.standard_normal((classes, d))).astype(np.float32)
    folder = {0: [3], 1: [7, 11], 2: [0], 3: [15, 16, 19], 4: [5], 5: [8], 6: [9]}
    label = rng.integers(0, len(folder), n)
    image = np.array([weight[rng.choice(folder[k])] for k in label]) + 0.45 * rng.standard_normal((n, d))
    image = unit(image).astype(np.float32)
    used = sorted(c for cs in folder.values() for c in cs)
    of = np.array([next(k for k, cs in folder.items() if c in cs) for c in used])
    score = image.astype(np.float64) @ weight[used].astype(np.float64).T
    said = of[score.argmax(1)]
    ranked = [list(dict.fromkeys(of[np.argsort(-s, kind="stable")])) for s in score]
    save_file({"weight": weight[used], "group": of.astype(np.int64), "image": image, "label": label.astype(np.int64)},
              os.path.join(OUT, "eval_subset.safetensors"))
    write("eval_subset.json", {"top1": float((said == label).mean()), "top5": float(np.mean([k in r[:5] for k, r in zip(label, ranked)])),
                               "mean_per_class": float(np.mean([(said == label)[label == k].mean() for k in folder]))})


if __name__ == "__main__":
    pairs()
    captions()
    groups()
    subset()
    probe()
    rank_sum()
