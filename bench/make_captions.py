#!/usr/bin/env python3
"""Writes a large file of captions for timing `cloob tokenizer train`.

    bench/make_captions.py --table train.tsv --count 10000000 --out captions.txt

Repeats the captions of a table (TSV or TSV.gz with a column "title", as `cloob synth` writes it) and appends an invented word to every third one.
"""
import argparse
import csv
import gzip
import random

SYLLABLES = ["ba", "ke", "lo", "mi", "nu", "ra", "se", "ti", "vo", "xa", "zen", "dor", "mal", "pik", "ster", "gru", "ühl", "né"]

parser = argparse.ArgumentParser()
parser.add_argument("--table", required=True)
parser.add_argument("--count", type=int, default=10_000_000)
parser.add_argument("--out", required=True)
a = parser.parse_args()
with (gzip.open if a.table.endswith(".gz") else open)(a.table, "rt") as f:
    rows = [row["title"] for row in csv.DictReader(f, delimiter="\t")]
rng = random.Random(0)
with open(a.out, "w") as out:
    for i in range(a.count):
        word = " " + "".join(rng.choices(SYLLABLES, k=rng.randint(2, 5))) if i % 3 == 0 else ""
        out.write(rows[i % len(rows)] + word + "\n")
