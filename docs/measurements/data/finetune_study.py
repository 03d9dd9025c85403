#!/usr/bin/env python3
"""From scratch, full, locked, LoRA and WiSE-FT side by side: a small ViT learns from one data set and is adapted to a few
hundred pairs of another.

    docs/measurements/data/finetune_study.py --cloob build/cloob --first clothes.tsv --first-val clothes_val.tsv --second shoes.tsv \\
        --second-val shoes_val.tsv --classes CLASS_FOLDERS --out DIR [--device cuda --jobs 8]

TSV files have the columns filepath and title, with paths relative to themselves. Of the second set, disjoint parts of
--pairs pairs are drawn: one for choosing, --seeds for the comparison. Learning rates, and the settings of the recipe
(--candidates), are chosen on further pairs of the second set. --second-val and CLASS_FOLDERS are the test: each model is scored
on them once. DIR/results.jsonl gets a line for every model, DIR/table.md means with 95 % intervals, and rank-sum tests against
training from scratch with Holm's correction over the rows of a column. After --seconds nothing new is begun."""
import argparse
import concurrent.futures
import csv
import json
import math
import pathlib
import random
import statistics
import subprocess
import threading
import time

MODEL = {"name": "small-vit", "embed_dim": 128, "quick_gelu": True,
         "vision_cfg": {"image_size": 64, "layers": 6, "width": 192, "head_width": 64, "patch_size": 8},
         "text_cfg": {"context_length": 32, "vocab_size": 4096, "width": 192, "heads": 3, "layers": 4}}
QUIET = ["--report-to", "none", "--save-frequency", "0", "--workers", "2", "--quiet"]
COMMON = QUIET + ["--init-inv-tau", "15", "--wd", "0.1", "--aug-scale-min", "0.6"]
# name, flags, learning rates to choose from, from the given weights
METHODS = [
    ("scratch", [], ["3e-4", "5e-4", "1e-3"], False),
    ("full", [], ["1e-4", "3e-4", "1e-3"], True),
    ("layer decay 0.75", ["--layer-decay", "0.75"], ["3e-4", "1e-3", "3e-3"], True),
    ("image tower locked", ["--lock-image"], ["3e-4", "1e-3"], True),
    ("text tower locked", ["--lock-text"], ["1e-4", "3e-4", "1e-3"], True),
    ("two groups unlocked", ["--lock-image", "--lock-image-unlocked-groups", "2", "--lock-text",
                             "--lock-text-unlocked-layers", "2"], ["3e-4", "1e-3", "3e-3"], True),
    ("LoRA r=8", ["--lora", "r=8"], ["1e-3", "3e-3"], True),
    ("preset finetune", None, [None], True),
]
T_95 = [0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]  # by degrees of freedom
# the recipe with one thing changed, to be evaluated on the pairs for choosing
CANDIDATES = ["", "--lr 1e-5 --epochs 3", "--lr 1e-4", "--lr 1e-3", "--epochs 3", "--epochs 10", "--epochs 60", "--aug-scale-min 0.6",
              "--init-inv-tau 15", "--hopfield-warmup 0", "--batch-size 125", "--lr 1e-3 --aug-scale-min 0.6", "--lora r=8",
              "--lora r=8 --lr 1e-3"]


def read(path):
    with open(path, encoding="utf-8", newline="") as f:
        rows = list(csv.reader(f, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    base = pathlib.Path(path).resolve().parent
    return [(str(base / r[0]), r[1]) for r in rows]


def write(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        f.write("filepath\ttitle\n" + "".join(f"{a}\t{b}\n" for a, b in rows))
    return path


class Study:
    def __init__(self, a):
        self.a, self.out = a, pathlib.Path(a.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.results = open(self.out / "results.jsonl", "a", encoding="utf-8")
        self.began, self.lock = time.time(), threading.Lock()

    def call(self, *args):
        done = subprocess.run([self.a.cloob, *map(str, args)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"cloob {' '.join(map(str, args))}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def train(self, name, data, flags):
        self.call("train", "--train-data", data, "--name", name, "--logs", self.out / "runs", "--device", self.a.device,
                  "--threads", self.a.threads, *flags)
        return self.out / "runs" / name / "checkpoints" / "latest.safetensors"

    def retrieval(self, model, data):
        where = f"{model}.{pathlib.Path(data).stem}.safetensors"
        common = ["--device", self.a.eval_device, "--threads", "2", "--quiet"]
        self.call("embed", "--checkpoint", model, "--data", data, "--out", where, *common)
        r = json.loads(self.call("retrieve", "--input", where, "--json", *common))
        pathlib.Path(where).unlink()
        return 50 * (r["image_to_text_R@10"] + r["text_to_image_R@10"])

    def score(self, model):
        z = json.loads(self.call("zeroshot", "--checkpoint", model, "--data", self.a.classes, "--device",
                                 self.a.eval_device, "--threads", "2", "--json", "--quiet"))
        return {"classes_top1": 100 * z["top1"], "second_r10": self.retrieval(model, self.a.second_val),
                "first_r10": self.retrieval(model, self.first_val)}

    def note(self, **row):
        row["seconds"] = round(time.time() - self.began, 1)
        with self.lock:
            self.results.write(json.dumps(row) + "\n")
            self.results.flush()

    def flags(self, method, lr, seed):
        _, own, _, given = method
        epochs = self.a.epochs if given else self.a.scratch_epochs
        steps = epochs * (self.a.pairs // self.a.batch)
        flags = COMMON + ["--seed", seed, "--batch-size", self.a.batch, "--vocab", self.vocab]
        if own is None:  # the recipe by itself
            return QUIET + ["--preset", "finetune", "--pretrained", self.given, "--seed", seed]
        if given:
            flags += ["--pretrained", self.given]
        else:
            flags += ["--model", self.config]
        return flags + ["--lr", lr, "--warmup", steps // 10, "--hopfield-warmup", steps // 3, "--epochs", epochs, *own]

    def prepare(self):
        a = self.a
        first, val = read(a.first), read(a.first_val)
        self.first_val = write(self.out / "first_val.tsv", list({r[0]: r for r in val}.values()))  # a caption an image
        pool = read(a.second)
        random.Random(0).shuffle(pool)
        self.parts = [write(self.out / f"part{i}.tsv", pool[i * a.pairs:(i + 1) * a.pairs]) for i in range(a.seeds + 1)]
        rest = pool[(a.seeds + 1) * a.pairs:]
        self.choose = write(self.out / "choose.tsv", rest[:a.choose])
        (self.out / "captions.txt").write_text("".join(t + "\n" for _, t in first + rest[a.choose:]), encoding="utf-8")
        self.vocab, self.config, self.given = self.out / "vocab.bpe", self.out / "model.json", None
        self.config.write_text(json.dumps(MODEL))
        self.call("tokenizer", "train", "--input", self.out / "captions.txt", "--size", "4096", "--out", self.vocab)
        self.given = self.train("given", a.first, COMMON + [
            "--model", self.config, "--vocab", self.vocab, "--batch-size", "128", "--epochs", a.first_epochs, "--lr",
            "1e-3", "--hopfield-warmup", a.first_epochs * len({f for f, _ in first}) // 128 // 3, "--one-caption-per-image",
            "--workers", 2 * a.jobs])
        self.note(method="as given", seed=0, **self.score(self.given))

    def late(self):
        return time.time() - self.began > self.a.seconds

    def on_choice(self, name, flags):
        """A model of the part for choosing, scored on the pairs for choosing."""
        return None if self.late() else self.retrieval(self.train(name.replace(" ", "_"), self.parts[0], flags), self.choose)

    def pick(self, pools):
        jobs = {}
        for m in self.methods:
            for lr in m[2] if len(m[2]) > 1 else []:
                jobs[pools.submit(self.on_choice, f"pick-{m[0]}-{lr}", self.flags(m, lr, 100))] = (m[0], lr)
        found = {}
        for job in concurrent.futures.as_completed(jobs):
            method, lr = jobs[job]
            if job.result() is not None:
                self.note(pick=method, lr=lr, choose_r10=job.result())
                found.setdefault(method, []).append((job.result(), lr))
        return {k: max(v)[1] for k, v in found.items()}

    def candidates(self, pools):
        recipe = next(m for m in METHODS if m[1] is None)
        jobs = {}
        for seed in 100, 101, 102:
            for i, more in enumerate(CANDIDATES):
                jobs[pools.submit(self.on_choice, f"candidate-{i}-{seed}", self.flags(recipe, None, seed) + more.split())] = (more, seed)
        return jobs

    def one(self, m, lr, seed):
        if self.late() or (lr is None and len(m[2]) > 1):
            return
        model = self.train(f"{m[0]}-{seed}".replace(" ", "_"), self.parts[seed], self.flags(m, lr, seed))
        self.note(method=m[0], lr=lr, seed=seed, **self.score(model))
        if m[0] in ("full", "preset finetune"):
            both = f"{model}.wise"
            self.call("average", self.given, model, "--alpha", "0.5", "--out", both)
            self.note(method=m[0] + ", WiSE-FT 0.5", lr=lr, seed=seed, **self.score(both))
            pathlib.Path(both).unlink()

    def p_value(self, key, one, other):
        """Of the rank-sum test, two-sided."""
        for name, runs in ("one", one), ("other", other):
            (self.out / f"{name}.jsonl").write_text("".join(json.dumps({key: r[key]}) + "\n" for r in runs))
        return json.loads(self.call("compare", self.out / "one.jsonl", self.out / "other.jsonl", "--json"))["metrics"][key]["p"]

    def corrected(self, key, methods):
        """Holm's correction over all methods against training from scratch."""
        base = methods.get("scratch", [])
        ps = sorted((self.p_value(key, runs, base), name) for name, runs in methods.items()
                    if name != "scratch" and len(runs) > 1 and len(base) > 1)
        out, least = {}, 0
        for i, (p, name) in enumerate(ps):
            least = max(least, min(1, p * (len(ps) - i)))
            out[name] = least
        return out

    def table(self):
        rows = [json.loads(line) for line in open(self.out / "results.jsonl", encoding="utf-8")]
        methods = {}
        for r in rows:
            if "method" in r:
                methods.setdefault(r["method"], []).append(r)
        keys = "classes_top1", "second_r10", "first_r10"
        ps = {key: self.corrected(key, methods) for key in keys}
        lines = ["| | runs | rate | classes, top-1 % | p | second set, R@10 % | p | first set, R@10 % | p |", "|---|---|---|---|---|---|---|---|---|"]
        for name, runs in methods.items():
            cells = []
            for key in keys:
                v = [r[key] for r in runs]
                half = T_95[len(v) - 1] * statistics.stdev(v) / math.sqrt(len(v)) if len(v) > 1 else None
                cells.append(f"{statistics.mean(v):.1f}" + (f" ± {half:.1f}" if half is not None else ""))
                cells.append(f"{ps[key][name]:.1g}" if name in ps[key] else "")
            lines.append(f"| {name} | {len(runs)} | {runs[0].get('lr') or ''} | " + " | ".join(cells) + " |")
        (self.out / "table.md").write_text("\n".join(lines) + "\n")
        return lines

    def run(self):
        wanted = self.a.methods.split(",") if self.a.methods else [m[0] for m in METHODS]
        self.methods = [m for m in METHODS if m[0] in wanted]
        self.prepare()
        with concurrent.futures.ThreadPoolExecutor(self.a.jobs) as pools:
            rates = self.pick(pools)
            seeds = range(1, self.a.seeds + 1)
            jobs = {pools.submit(self.one, m, rates.get(m[0]), s): None for s in seeds[:5] for m in self.methods}
            jobs.update(self.candidates(pools) if self.a.candidates else {})
            jobs.update({pools.submit(self.one, m, rates.get(m[0]), s): None for s in seeds[5:] for m in self.methods})
            for i, job in enumerate(concurrent.futures.as_completed(jobs)):
                if i % 5 == 4:
                    self.table()  # of what there is, should the rest be cut off
                if job.exception():
                    self.note(failed=str(job.exception()))
                elif jobs[job] and job.result() is not None:
                    self.note(candidate=jobs[job][0], seed=jobs[job][1], choose_r10=job.result())
        print("\n".join(self.table()))


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name in ("--cloob", "--first", "--first-val", "--second", "--second-val", "--classes", "--out"):
    p.add_argument(name, required=True)
p.add_argument("--pairs", type=int, default=500)
p.add_argument("--seeds", type=int, default=5)
p.add_argument("--choose", type=int, default=800, help="pairs that learning rates are chosen on")
p.add_argument("--candidates", action="store_true", help="also score the recipe with other settings, on the pairs for choosing")
p.add_argument("--methods", help="names of the table's rows, joined by commas; all of them by default")
p.add_argument("--seconds", type=float, default=1e9)
p.add_argument("--batch", type=int, default=100)
p.add_argument("--epochs", type=int, default=60)
p.add_argument("--scratch-epochs", type=int, default=100)
p.add_argument("--first-epochs", type=int, default=40)
p.add_argument("--device", default="auto")
p.add_argument("--eval-device", default="cpu")
p.add_argument("--threads", default="2")
p.add_argument("--jobs", type=int, default=1)
Study(p.parse_args()).run()
