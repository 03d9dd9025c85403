#!/usr/bin/env python3
"""The linear probe against scikit-learn, in one run on the same data, alternating.

    python3 bench/peers/probe_sklearn.py --cloob build/cloob [--rows 20000 --dim 1024 --classes 100 --repeat 3]

Features are made up to look like an encoder's: rectified, correlated, with a decaying spectrum. Both sides get the
same safetensors file (float32), the same lambda and 1,000 iterations at most. cloob's time is its whole process;
scikit-learn's is .fit() alone, without imports and reading. Peak memory is of the process. Objective (sum of cross
entropies + lambda/2 |W|^2) and test accuracy are computed here, in double, for both. scikit-learn's own stopping rule
leaves the objective well above its minimum; --tight adds a run of it that goes further, --loose one of cloob that stops
earlier. CPU seconds are given because the wall clock of a busy machine says little."""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time


def make(path, rows, dim, classes, seed):
    import numpy as np
    from safetensors.numpy import save_file
    world, rng = np.random.default_rng(1), np.random.default_rng(seed)
    mean, a, b = (world.standard_normal((classes, 64)), world.standard_normal((64, 256)),
                  world.standard_normal((256, dim)) / 16)
    y = rng.integers(0, classes, rows)
    z = mean[y] + 1.5 * rng.standard_normal((rows, 64))
    h = np.maximum(z @ a / 8 + 0.7 * rng.standard_normal((rows, 256)), 0)
    x = np.maximum(h @ b + 0.3 * rng.standard_normal((rows, dim)), 0)
    save_file({"x": x.astype(np.float32), "y": y.astype(np.int64)}, path)


def fit_sklearn(train, out, lam, tol, threads):
    """Runs in a process of its own, so that its peak memory is its own."""
    import warnings
    import numpy as np
    from safetensors.numpy import load_file, save_file
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits
    warnings.simplefilter("ignore")
    data = load_file(train)
    with threadpool_limits(threads):
        begin, cpu = time.perf_counter(), time.process_time()
        model = LogisticRegression(C=1 / lam, max_iter=1000, tol=tol).fit(data["x"], data["y"])
        took = time.perf_counter() - begin
        cpu = time.process_time() - cpu
    save_file({"weight": np.ascontiguousarray(model.coef_.astype(np.float32)),
               "bias": np.ascontiguousarray(model.intercept_.astype(np.float32)),
               "label": np.ascontiguousarray(model.classes_)}, out)
    print(json.dumps({"seconds": took, "cpu": cpu, "iterations": int(model.n_iter_[0]),
                      "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def step(*words):
    """Another part of this script in a process of its own: a child's peak memory begins with its parent's, so the
    parent stays small."""
    return subprocess.run([sys.executable, os.path.abspath(__file__), *map(str, words)], check=True, capture_output=True,
                          text=True).stdout


def run_sklearn(files, lam, tol, threads):
    return json.loads(step("--fit", files["train"], files["model"], lam, tol, threads))


def run_cloob(binary, files, lam, threads, tolerance):
    command = [binary, "probe", "--train", files["train"], "--test", files["test"], "--lambda", repr(lam), "--json",
               "--quiet", "--threads", str(threads), "--out", files["model"], "--tolerance", repr(tolerance)]
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    took = time.perf_counter() - begin
    if status:
        sys.exit("cloob failed")
    return {"seconds": took, "cpu": usage.ru_utime + usage.ru_stime, "iterations": json.loads(text)["iterations"], "peak": usage.ru_maxrss * 1024}


def judge(train, test, model, lam):
    import numpy as np
    from safetensors.numpy import load_file
    model, train, test = load_file(model), load_file(train), load_file(test)
    w, b = model["weight"].astype(np.float64), model["bias"].astype(np.float64)
    z = train["x"] @ w.T + b
    z -= z.max(1, keepdims=True)
    loss = (np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), train["y"]]).sum() + lam / 2 * (w * w).sum()
    answer = model["label"][(test["x"] @ w.T + b).argmax(1)]
    print(json.dumps([float(loss), float((answer == test["y"]).mean())]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--cloob", default="build/cloob")
    for name, value in (("rows", 20000), ("dim", 1024), ("classes", 100), ("repeat", 3), ("threads", 2)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--lam", type=float, default=1.0)
    p.add_argument("--tight", action="store_true")
    p.add_argument("--loose", action="store_true")
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = {n: os.path.join(folder, n + ".safetensors") for n in ("train", "test", "model")}
        step("--make", files["train"], o.rows, o.dim, o.classes, 2)
        step("--make", files["test"], o.rows // 5, o.dim, o.classes, 3)
        sides = {"cloob": lambda: run_cloob(o.cloob, files, o.lam, o.threads, 0.0),
                 "sklearn": lambda: run_sklearn(files, o.lam, 1e-4, o.threads)}
        if o.loose:
            sides["cloob, 1e-3"] = lambda: run_cloob(o.cloob, files, o.lam, o.threads, 1e-3)
        if o.tight:
            sides["sklearn, tol 1e-6"] = lambda: run_sklearn(files, o.lam, 1e-6, o.threads)
        seen = {}
        for _ in range(o.repeat):
            for name, run in sides.items():
                r = run()
                text = step("--judge", files["train"], files["test"], files["model"], o.lam)
                r["objective"], r["accuracy"] = json.loads(text)
                seen.setdefault(name, []).append(r)
        print(f"{o.rows} x {o.dim}, {o.classes} classes, lambda {o.lam}, {o.threads} threads, median of {o.repeat}")
        for name, runs in seen.items():
            runs.sort(key=lambda r: r["seconds"])
            r = runs[len(runs) // 2]
            print(f"{name:18} {r['seconds']:8.2f} s  {r['cpu']:8.2f} CPU s  {r['peak'] / 2**20:7.0f} MiB  {r['iterations']:4} iterations  "
                  f"objective {r['objective']:.4f}  accuracy {r['accuracy']:.4f}")


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["--make"]:
        make(words[1], *map(int, words[2:]))
    elif words[:1] == ["--fit"]:
        fit_sklearn(words[1], words[2], float(words[3]), float(words[4]), int(words[5]))
    elif words[:1] == ["--judge"]:
        judge(words[1], words[2], words[3], float(words[4]))
    else:
        main()
