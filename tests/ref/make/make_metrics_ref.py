#!/usr/bin/env python3
"""Makes tests/ref/eval_metrics.json: small values of average precision, means over classes, accuracy by group and
k nearest neighbours, from NumPy and scikit-learn.

    python3 tests/ref/make/make_metrics_ref.py          needs numpy, scikit-learn"""
import json, pathlib

import numpy as np
from sklearn.metrics import average_precision_score, f1_score, recall_score

rng = np.random.default_rng(5)
out = {}

n, C = 37, 4
score = rng.normal(size=(n, C)).round(3).astype(np.float32)
positive = (rng.random((n, C)) < 0.3).astype(int)
positive[:, 3] = 0  # a class without a positive row
ap = [average_precision_score(positive[:, c], score[:, c]) if positive[:, c].any() else 0 for c in range(C)]
out["average_precision"] = dict(n=n, C=C, score=score.ravel().tolist(), positive=positive.ravel().tolist(), ap=[float(a) for a in ap])

label = rng.integers(0, 5, 60)
label[label == 3] = 2  # class 3 does not occur, and is predicted all the same
predicted = np.where(rng.random(60) < 0.6, label, rng.integers(0, 5, 60))
occur = np.unique(label)
out["classes"] = dict(n=60, C=5, label=label.tolist(), predicted=predicted.tolist(),
                      f1=float(f1_score(label, predicted, average="macro", labels=occur)),
                      recall=float(recall_score(label, predicted, average="macro", labels=occur)))

group, right = rng.integers(0, 6, 60), label == predicted
group[group == 4] = 1  # an empty group in the middle
by = {int(g): float(right[group == g].mean()) for g in np.unique(group)}
out["groups"] = dict(n=60, groups=6, group=group.tolist(), right=right.astype(int).tolist(), accuracy=[by.get(g, -1) for g in range(6)], worst=min(by.values()))

rng.random(80), rng.random(84)  # so that the values below stay what they were
x, y, q = rng.normal(size=(30, 6)).astype(np.float32), rng.integers(0, 3, 30), rng.normal(size=(11, 6)).astype(np.float32)
unit = lambda m: m / np.linalg.norm(m, axis=1, keepdims=True)
s = unit(q.astype(np.float64)) @ unit(x.astype(np.float64)).T
answers = {}
for k in (1, 5, 8, 30):
    said = []
    for row in s:
        near = np.argsort(-row, kind="stable")[:k]
        said.append(int(max(range(3), key=lambda c: ((y[near] == c).sum(), row[near][y[near] == c].sum()))))
    answers[str(k)] = said
out["knn"] = dict(train=x.ravel().tolist(), y=y.tolist(), test=q.ravel().tolist(), n=30, m=11, d=6, answers=answers)

(pathlib.Path(__file__).resolve().parents[1] / "eval_metrics.json").write_text(json.dumps(out) + "\n")
