#!/usr/bin/env python3
"""Does `cloob train --preset finetune` by itself beat training from scratch on a few hundred pairs? docs/measurements/results.md
has the protocol and the result.

    docs/measurements/data/finetune_recipe.py choose --cloob build/cloob --given weights.safetensors --model model.json \\
        --train a.tsv b.tsv c.tsv --score val.tsv --out DIR
    docs/measurements/data/finetune_recipe.py test   --cloob ... --scratch '--preset small --epochs 100' --train 1.tsv ... 8.tsv --score test.tsv --out DIR

choose: SCRATCH and RECIPE, as many trials of each, on the first training file; then the best two of each on the others. Scored on
--score. test: the preset without another flag, training from scratch with the settings that `choose` found, and the given
weights, with a training file and seed of its own for each run. DIR/results.jsonl gets a line for every run; a run that has
its line is not repeated. R@10 is the mean of both directions, in percent."""
import argparse
import concurrent.futures
import json
import pathlib
import statistics
import subprocess
import threading

QUIET = ["--report-to", "none", "--save-frequency", "0", "--workers", "1", "--threads", "1", "--device", "cpu", "--quiet"]
# VOCAB stands for the vocabulary of the given weights; without it a run learns one from its own captions
SCRATCH = ["--preset small --epochs 100", "--preset small --epochs 100 --lr 3e-4", "--preset small --epochs 100 --lr 3e-3",
           "--preset small --epochs 200", "--preset small --epochs 100 --hopfield-warmup 100",
           "--preset small --epochs 100 --aug-scale-min 0.9", "--preset small --epochs 100 --init-inv-tau 30",
           "--preset small --epochs 100 --vocab VOCAB", "--preset small --epochs 100 --aug-scale-min 0.4", "--preset small --epochs 50",
           "--preset small --epochs 200 --aug-scale-min 0.4", "--preset small --epochs 200 --aug-scale-min 0.4 --lr 3e-4"]
RECIPE = ["", "--lr 1e-4", "--lr 1e-3", "--init-inv-tau 15", "--aug-scale-min 0.6", "--init-inv-tau 15 --aug-scale-min 0.6",
          "--init-inv-tau 15 --aug-scale-min 0.6 --lr 1e-4", "--init-inv-tau 15 --aug-scale-min 0.6 --lr 1e-3",
          "--aug-scale-min 0.4", "--aug-scale-min 0.6 --hopfield-warmup 1000", "--aug-scale-min 0.4 --hopfield-warmup 1000",
          "--aug-scale-min 0.4 --epochs 200"]
METRICS = "r10", "image_to_text", "text_to_image", "classes_top1", "before_r10"


class Study:
    def __init__(self, a):
        self.a, self.out, self.lock = a, pathlib.Path(a.out).resolve(), threading.Lock()
        self.out.mkdir(parents=True, exist_ok=True)
        self.path = self.out / "results.jsonl"
        self.rows = [json.loads(x) for x in self.path.read_text().splitlines()] if self.path.exists() else []

    def call(self, *args):
        done = subprocess.run([self.a.cloob, *map(str, args)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"cloob {' '.join(map(str, args))}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def score(self, model, data):
        where = f"{model}.embedded.safetensors"
        self.call("embed", "--checkpoint", model, "--data", data, "--out", where, "--threads", "1", "--quiet")
        r = json.loads(self.call("retrieve", "--input", where, "--json"))
        pathlib.Path(where).unlink()
        both = 100 * r["image_to_text_R@10"], 100 * r["text_to_image_R@10"]
        return {"r10": round(sum(both) / 2, 3), "image_to_text": round(both[0], 3), "text_to_image": round(both[1], 3)}

    def run(self, stage, method, flags, part, seed):
        key = {"stage": stage, "method": method, "flags": flags, "part": part, "seed": seed}
        for row in self.rows:
            if all(row[k] == v for k, v in key.items()):
                return row
        name = f"{stage}-{method}-{flags}-{part}".replace(" ", "").replace("--", "_")
        base = ["--model", self.a.model] if method == "scratch" else ["--preset", "finetune", "--pretrained", self.a.given]
        model = self.a.given
        if method != "as given":
            own = [self.a.vocab if f == "VOCAB" else f for f in flags.split()]
            self.call("train", "--train-data", self.a.train[part], "--name", name, "--logs", self.out / "runs", "--seed", seed,
                      *QUIET, *base, *own)
            model = self.out / "runs" / name / "checkpoints" / "latest.safetensors"
        row = {**key, **self.score(model, self.a.score)}
        if stage == "test":
            row["before_r10"] = self.score(model, self.a.before)["r10"]
            named = self.call("zeroshot", "--checkpoint", model, "--data", self.a.classes, "--threads", "1", "--json", "--quiet")
            row["classes_top1"] = round(100 * json.loads(named)["top1"], 3)
        with self.lock, open(self.path, "a", encoding="utf-8") as f:
            self.rows.append(row)
            f.write(json.dumps(row) + "\n")
        return row

    def all(self, stage, jobs):
        with concurrent.futures.ThreadPoolExecutor(self.a.jobs) as pool:
            return [x.result() for x in [pool.submit(self.run, stage, *job) for job in jobs]]

    def choose(self):
        trials = [(m, f) for pair in zip(SCRATCH, RECIPE) for m, f in zip(("scratch", "finetune"), pair)]
        first = self.all("choose", [(*t, 0, 100) for t in trials])
        best = [r for m in ("scratch", "finetune") for r in sorted((r for r in first if r["method"] == m), key=lambda r: -r["r10"])[:2]]
        more = [(r["method"], r["flags"], part, 100 + part) for part in range(1, len(self.a.train)) for r in best]
        self.all("choose", more)
        for r in best:
            v = [x["r10"] for x in self.rows if x["stage"] == "choose" and (x["method"], x["flags"]) == (r["method"], r["flags"])]
            print(f"{statistics.mean(v):.2f} of {len(v)}: {r['method']} {r['flags']}")

    def test(self):
        self.all("test", [(m, f, i, i + 1) for i in range(len(self.a.train)) for m, f in (("finetune", ""), ("scratch", self.a.scratch))])
        self.all("test", [("as given", "", 0, 0)])
        for m in "scratch", "finetune":
            rows = [r for r in self.rows if r["stage"] == "test" and r["method"] == m]
            (self.out / f"{m}.jsonl").write_text("".join(json.dumps({k: r[k] for k in METRICS}) + "\n" for r in rows))
        print(self.call("compare", self.out / "scratch.jsonl", self.out / "finetune.jsonl"))


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("stage", choices=("choose", "test"))
for needed in ("--cloob", "--given", "--model", "--score", "--out"):
    p.add_argument(needed, required=True)
p.add_argument("--train", nargs="+", required=True, help="training files, one for each run of a method")
p.add_argument("--vocab", help="the vocabulary of the given weights, for the trial that uses it")
p.add_argument("--before", help="for the test: pairs like those that the given weights come from, to see what is forgotten")
p.add_argument("--classes", help="for the test: class folders whose images are named")
p.add_argument("--scratch", default=SCRATCH[0], help="settings of training from scratch in the test")
p.add_argument("--jobs", type=int, default=1)
if __name__ == "__main__":
    study = Study(p.parse_args())
    getattr(study, study.a.stage)()
