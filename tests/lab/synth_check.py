#!/usr/bin/env python3
"""Checks a set written by `cloob synth` from its files alone: naming rates, co-occurrences, held-out pairs,
class folders. Prints a table and exits with 1 if something is off. Needs only Python's standard library.

    tests/lab/synth_check.py DIR
"""
import csv
import json
import math
import os
import sys

FREE = ("size", "count", "position")


def read_table(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f, delimiter="\t"))


class Checks:
    def __init__(self):
        self.failed = 0

    def say(self, good, text):
        self.failed += not good
        print(("ok    " if good else "WRONG ") + text)

    def share(self, what, hits, n, expected):
        """A share over n draws within four standard errors (and one draw) of what it should be."""
        bound = 4 * math.sqrt(max(expected * (1 - expected), 1e-9) / n) + 1 / n
        got = hits / n
        self.say(abs(got - expected) <= bound, f"{what}: {got:.4f}, expected {expected:.4f} (+- {bound:.4f})")


def held_out(mark, row):
    return any(row[f] in mark["held_out"][f][row["object"]] for f in ("colour", "background"))


def check_naming(c, mark, naming):
    train = [r for r in naming if r["split"] == "train"]
    for factor, rate in mark["named"].items():
        c.share(f"captions that name the {factor}", sum(r[factor] == "1" for r in train), len(train), rate)


def check_together(c, mark, prompts, train):
    s = mark["strength"]
    for factor, favourite in mark["favourites"].items():
        cause, k = favourite["of"], len(prompts[factor]["classes"])
        allowed = k - 2 if factor in mark["held_out"] else k  # two values of each object never appear
        expected = (s + (1 - s) / k) / (s + (1 - s) * allowed / k)
        hits = sum(r[factor] == favourite[r[cause]] for r in train)
        c.share(f"{factor} is the favourite of the {cause}", hits, len(train), expected)
    for factor in ("object",) + FREE:
        for value in prompts[factor]["classes"]:
            hits = sum(r[factor] == value for r in train)
            c.share(f"{factor} {value}", hits, len(train), 1 / len(prompts[factor]["classes"]))


def check_held_out(c, mark, factors):
    train = [r for r in factors if r["split"] == "train"]
    test = [r for r in factors if r["split"] == "test"]
    val = [r for r in factors if r["split"] == "val"]
    c.say(not any(held_out(mark, r) for r in train), f"no held-out pair in {len(train)} training images")
    c.say(all(held_out(mark, r) for r in test), f"a held-out pair in each of {len(test)} test images")
    c.say(sum(held_out(mark, r) for r in val) == len(val) // 2, f"held out: half of {len(val)} validation images")


def check_folders(c, root, mark, prompts, factors):
    truth = {r["filepath"]: r for r in factors}
    for factor, entry in prompts.items():
        folder = os.path.join(root, "classes", factor)
        c.say(sorted(os.listdir(folder)) == entry["classes"], f"classes/{factor}: folders are the classes, in order")
        wrong = 0
        for name in entry["classes"]:
            files = os.listdir(os.path.join(folder, name))
            wrong += len(files) != mark["per_class"] or not files
            wrong += sum(truth[f"classes/{factor}/{name}/{f}"][factor] != name for f in files)
        c.say(wrong == 0, f"classes/{factor}: {mark['per_class']} images in each of {len(entry['classes'])} folders")
        c.say(all("{}" in t for t in entry["templates"]), f"prompts of {factor} have a place for the class")


def check_lists(c, root, mark, factors):
    splits = {"train": mark["count"], "val": mark["val_count"]}
    for split, count in splits.items():
        c.say(sum(r["split"] == split for r in factors) == count, f"{split}: {count} rows of ground truth")
        if mark["format"] == "csv":
            rows = read_table(os.path.join(root, split + ".tsv"))
            there = all(os.path.getsize(os.path.join(root, r["filepath"])) > 0 for r in rows)
            c.say(len(rows) == count and there, f"{split}.tsv: {count} pairs, every image there")
            c.say(all(r["title"].strip() for r in rows), f"{split}.tsv: no empty caption")
        else:
            sizes = json.load(open(os.path.join(root, "sizes.json")))
            total = sum(n for name, n in sizes.items() if name.startswith(split + "-"))
            c.say(total == count, f"sizes.json: {count} {split} pairs")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root, c = sys.argv[1], Checks()
    mark, prompts = (json.load(open(os.path.join(root, n))) for n in ("synth.json", "prompts.json"))
    factors = read_table(os.path.join(root, "factors.tsv"))
    check_lists(c, root, mark, factors)
    check_naming(c, mark, read_table(os.path.join(root, "naming.tsv")))
    check_together(c, mark, prompts, [r for r in factors if r["split"] == "train"])
    check_held_out(c, mark, factors)
    check_folders(c, root, mark, prompts, factors)
    print(f"{c.failed} wrong")
    sys.exit(1 if c.failed else 0)


if __name__ == "__main__":
    main()
