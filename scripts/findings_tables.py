#!/usr/bin/env python3
"""Writes the tables of docs/measurements/findings.md from docs/measurements/data.

    scripts/findings_tables.py CLOOB                 replaces each table that follows a line <!-- table: NAME -->
    scripts/findings_tables.py CLOOB --check         changes nothing; fails if a table differs

`cloob compare` does the statistics: means, bootstrap intervals, rank-sum tests corrected by Holm, Cliff's delta."""
import argparse
import os
import re
import sys

from plot_figures import METHODS, ROOT, by_setting, compared, runs

PAGE = os.path.join(ROOT, "docs/measurements/findings.md")
SYNTHETIC = {"synthetic-%03d" % p: p for p in (4, 15, 30, 60, 120)}
PAIRS = 960 * 128  # pairs times passes
SETS = {**{name: "%d passes" % p for name, p in SYNTHETIC.items()}, "fashion": "fashion", "photos-vit-s": "photographs, ViT-S",
        "photos-rn50": "photographs, ResNet-50"}
R10 = "image_to_text_R@10"
MEASURED = {"zeroshot/article_types": "zero-shot, 28 article types", R10: "image-to-text R@10", "zeroshot/scenes": "zero-shot, 6 kinds of scenes"}
REAL = [("fashion", "zeroshot/article_types"), ("fashion", R10), ("photos-vit-s", R10), ("photos-vit-s", "zeroshot/scenes"), ("photos-rn50", R10),
        ("photos-rn50", "zeroshot/scenes")]
DIFFERENCES = {"CLOOB - InfoNCE": ("cloob", "clip"), "InfoLOOB - InfoNCE": ("infoloob", "clip"),
               "retrieval, with InfoNCE": ("infonce-hopfield", "clip"), "retrieval, with InfoLOOB": ("cloob", "infoloob")}


def select(name):
    """The metric that the search of a data set selects by."""
    return "zeroshot/average" if name in SYNTHETIC else "zeroshot/article_types" if name == "fashion" else R10


def table(head, rows):
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return [line(head), "|" + "---|" * len(head), *map(line, rows)]


def mean(values): return sum(values) / len(values)


def short(p):
    """A p-value as .048, .16 or 1."""
    return "1" if p >= 0.995 else ("%.3f" if p < 0.0995 else "%.2f").__mod__(p).lstrip("0")


def interval(g): return "%.1f [%.1f, %.1f]" % (100 * g["mean"], 100 * g["low"], 100 * g["high"])


def difference(result, a, b):
    """a - b in points (bold where the corrected p is below .05), with (corrected p, Cliff's delta)."""
    pair = next(p for p in result["pairs"] if {p["a"], p["b"]} == {a, b})
    sign = 1 if pair["a"] == a else -1
    points = "%+.1f" % (100 * sign * pair["difference"])
    return "%s (%s, %+.2f)" % ("**%s**" % points if pair["significant"] else points, short(pair["p_holm"]), sign * pair["cliffs_delta"])


def equal_settings(name):
    """How often, and by how much on average, one method is above another in the settings of the search."""
    cells = []
    for method, base in (("infoloob", "clip"), ("infonce-hopfield", "clip"), ("cloob", "clip"), ("cloob", "infoloob")):
        d = [100 * (v[method] - v[base]) for _, v in by_setting(name, select(name))]
        cells.append("%d of %d, %+.1f" % (sum(x > 0 for x in d), len(d), mean(d)))
    return cells


def embeddings(result):
    cells = []
    for m in METHODS:
        e, a, t = (result["test/" + key]["groups"][m]["mean"] for key in ("image_effective_eigenvalues", "image_ajne", "top10_unmatched_similarity"))
        cells.append("%.0f; %.1f; %s" % (e, a, ("%.2f" % t).lstrip("0")))
    return cells


def tables(cloob):
    result = {name: compared(cloob, name) for name in SETS}
    average = {name: result[name]["test/zeroshot/average"] for name in SYNTHETIC}
    real = [("%s: %s" % (SETS[name], MEASURED[metric]), result[name]["test/" + metric]) for name, metric in REAL]
    means = lambda r: [interval(r["groups"][m]) for m in METHODS]
    tests = lambda r: [difference(r, *pair) for pair in DIFFERENCES.values()]
    return {
        "passes": table(["passes, pairs", *METHODS.values()], [["%d, %s" % (p, format(PAIRS // p, ",")), *means(average[n])] for n, p in SYNTHETIC.items()]),
        "passes-tests": table(["passes", *DIFFERENCES], [[str(p), *tests(average[n])] for n, p in SYNTHETIC.items()]),
        "real": table(["%", *METHODS.values()], [[title, *means(r)] for title, r in real]),
        "real-tests": table(["", *DIFFERENCES], [[title, *tests(r)] for title, r in real]),
        "equal-settings": table(["data", "InfoLOOB above InfoNCE", "InfoNCE + Hopfield above InfoNCE", "CLOOB above InfoNCE", "CLOOB above InfoLOOB"],
                                [[title, *equal_settings(n)] for n, title in SETS.items()]),
        "embeddings": table(["data", *METHODS.values()], [[title, *embeddings(result[n])] for n, title in SETS.items()]),
    }


def replaced(text, name, lines):
    """The page with one table replaced."""
    found = re.compile(r"(<!-- table: %s -->\n)((?:\|.*\n)*)" % name)
    if not found.search(text):
        sys.exit("findings.md has no <!-- table: %s -->" % name)
    return found.sub(lambda m: m.group(1) + "\n".join(lines) + "\n", text)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cloob")
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    with open(PAGE) as f:
        page = f.read()
    made, wrong = tables(o.cloob), []
    for name, lines in made.items():
        new = replaced(page, name, lines)
        if new != page:
            wrong.append(name)
        page = new
    if o.check:
        sys.exit("findings.md differs from docs/measurements/data, run scripts/findings_tables.py: " + ", ".join(wrong) if wrong else 0)
    with open(PAGE, "w") as f:
        f.write(page)


if __name__ == "__main__":
    main()
