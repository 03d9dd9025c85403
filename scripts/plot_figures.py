#!/usr/bin/env python3
"""Draws the figures of docs/measurements/findings.md and docs/explanation/theory.md: NAME.svg and NAME.csv.

    scripts/plot_figures.py CLOOB OUT                    findings-*, from docs/measurements/data
    scripts/plot_figures.py CLOOB OUT --theory THEORY [--scenes WORLD]
                                                         theory-* as well, from what examples/theory.c prints
    scripts/plot_figures.py CLOOB OUT --check            the CSV of findings-*, compared with docs/images

CLOOB does the statistics (cloob compare), matplotlib draws; this script picks the numbers."""
import argparse
import csv
import io
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
DATA, IMAGES = os.path.join(ROOT, "docs/measurements/data"), os.path.join(ROOT, "docs/images")
METHODS = {"clip": "InfoNCE (CLIP)", "infoloob": "InfoLOOB", "infonce-hopfield": "InfoNCE + Hopfield",
           "cloob": "InfoLOOB + Hopfield (CLOOB)"}
RETRIEVAL = ["infonce-hopfield", "cloob"]
ACCURACY = "zero-shot accuracy, %"
COLORS = ["#2f5bd7", "#ad4a12", "#236b40", "#9a2196", "#866000", "#0b7080", "#b42253", "#64635e"]


def color(method): return list(METHODS).index(method)  # the same in every figure


def runs(name, stage, data=DATA):
    with open(os.path.join(data, name + ".jsonl")) as f:
        return [r for r in map(json.loads, f) if r["stage"] == stage]


def compared(cloob, name, data=DATA):
    """By metric: mean and 95 % interval of each method's final runs (groups), and the tests of all pairs of methods (pairs)."""
    command = [cloob, "compare", os.path.join(data, name + ".jsonl"), "--by", "method", "--where", "stage=final", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["metrics"]


def by_setting(name, metric):
    """For each setting of the search, the validation metric by method; and the setting's Hopfield scale."""
    value = {}
    for r in runs(name, "search"):
        s = r["settings"]
        key = (s["scale_hopfield"], s["lr"], s["init_inv_tau"], s["learnable_inv_tau"], s["wd"])
        value.setdefault(key, {})[s["method"]] = r["validation"][metric]
    return [(key[0], v) for key, v in value.items()]


def gains(name, metric, method, base):
    """By Hopfield scale: the differences of two methods in points, settings otherwise equal."""
    out = {}
    for scale, v in by_setting(name, metric):
        out.setdefault(scale, []).append(100 * (v[method] - v[base]))
    return out


def series(method, points):
    """points: x, y, low, high; all but x in percent."""
    x, y, low, high = zip(*points)
    return dict(name=METHODS[method], color=color(method), x=list(x), y=[100 * v for v in y], low=[100 * v for v in low],
                high=[100 * v for v in high])


def by_passes(cloob):
    passes = [4, 15, 30, 60, 120]
    level = [compared(cloob, "synthetic-%03d" % p)["test/zeroshot/average"]["groups"] for p in passes]
    return dict(name="findings-passes", title="Response to passes over the pairs", x_label="passes over the pairs", y_label=ACCURACY,
                categories=[str(p) for p in passes],
                series=[series(m, [(i, g[m]["mean"], g[m]["low"], g[m]["high"]) for i, g in enumerate(level)]) for m in METHODS])


def response(name, setting, label, methods):
    """Mean, worst and best over the settings of the search at 60 passes that have a value."""
    found = runs("synthetic-060", "search")
    values = sorted({r["settings"][setting] for r in found}, key=float)
    out = []
    for m in methods:
        points = []
        for i, v in enumerate(values):
            at = [r["validation"]["zeroshot/average"] for r in found if r["settings"]["method"] == m and r["settings"][setting] == v]
            points.append((i, sum(at) / len(at), min(at), max(at)))
        out.append(series(m, points))
    return dict(name=name, title="Response to %s at 60 passes" % label, x_label="%s at 60 passes" % label, y_label=ACCURACY,
                categories=values, series=out)


def gain(name):
    """What retrieval gains by its scale: each setting of the search with it and without, otherwise equal."""
    worlds = [("synthetic-004", "zeroshot/average", "4 passes"), ("synthetic-015", "zeroshot/average", "15 passes"),
              ("synthetic-030", "zeroshot/average", "30 passes"), ("synthetic-060", "zeroshot/average", "60 passes"),
              ("synthetic-120", "zeroshot/average", "120 passes"), ("fashion", "zeroshot/article_types", "fashion")]
    scales, out = ["8", "14.3", "30", "50"], []
    for k, (world, metric, title) in enumerate(worlds):
        found = gains(world, metric, "cloob", "infoloob")
        out.append(dict(name=title, color=k, x=list(range(4)), y=[sum(found[s]) / len(found[s]) for s in scales]))
    return dict(name=name, title="What retrieval adds to InfoLOOB, by its scale", x_label="Hopfield scale",
                y_label="points of accuracy", categories=scales, series=out)


def theory(program, scenes):
    def table(*what):
        text = subprocess.run([program, *what], check=True, capture_output=True, text=True).stdout
        return [{k: float(v) for k, v in r.items()} for r in csv.DictReader(io.StringIO(text))]

    def line(name, rows, x, y): return dict(name=name, x=[r[x] for r in rows], y=[r[y] for r in rows])
    mi, pull, energy, cov = (table(w) for w in ("mi", "saturation", "hopfield", "covariance"))
    x = "mutual_information"
    yield dict(name="theory-mi", title="Bounds of mutual information", x_label="mutual information, nats", y_label="estimate, nats", from_zero=True,
               series=[line("InfoNCE", mi, x, "infonce"), line("InfoLOOB (up to 12)", [r for r in mi if r["infoloob"] <= 12], x, "infoloob"),
                       line("ln N", mi, x, "ln_n"), line("the truth", mi, x, x)])
    yield dict(name="theory-saturation", title="Gradients as pairs separate", x_label="similarity of the positive",
               y_label="size of the gradient", from_zero=True,
               series=[line("InfoNCE, image", pull, "similarity", "infonce"), line("InfoLOOB, image", pull, "similarity", "infoloob"),
                       line("InfoNCE, inverse temperature", pull, "similarity", "temperature_infonce"),
                       line("InfoLOOB, inverse temperature", pull, "similarity", "temperature_infoloob")])
    betas = sorted({r["beta"] for r in energy})
    yield dict(name="theory-hopfield", title="Energy of a Hopfield network by updates", x_label="updates", y_label="energy",
               series=[line("scale %g" % b, [r for r in energy if r["beta"] == b], "update", "energy") for b in betas])
    yield dict(name="theory-covariance", title="What retrieval makes of two features that go together", x_label="Hopfield scale (0: no retrieval)",
               y_label="over the embeddings", from_zero=True, categories=["%g" % r["beta"] for r in cov],
               series=[dict(name=n, x=list(range(len(cov))), y=[r[n] for r in cov]) for n in ("covariance", "correlation")])
    if not scenes:
        return
    world = table("world", scenes)
    names = {"object_background": "object and place", "object_colour": "object and colour", "scenes_background": "object and place, in the scenes",
             "scenes_colour": "object and colour, in the scenes"}
    yield dict(name="theory-world", title="What captions leave out, after retrieval", x_label="Hopfield scale (0: no retrieval)",
               y_label="correlation", from_zero=True, categories=["%g" % r["beta"] for r in world],
               series=[dict(name=t, x=list(range(len(world))), y=[r[n] for r in world]) for n, t in names.items()])


def write_numbers(figure, out):
    bands = any("low" in s for s in figure["series"])
    with open(os.path.join(out, figure["name"] + ".csv"), "w", newline="") as f:
        rows = csv.writer(f, lineterminator="\n")
        rows.writerow(["series", figure["x_label"], figure["y_label"]] + ["low", "high"] * bands)
        for s in figure["series"]:
            for i, x in enumerate(s["x"]):
                at = figure["categories"][x] if "categories" in figure else "%.9g" % x
                band = ["%.9g" % s[k][i] if k in s else "" for k in ("low", "high")] if bands else []
                rows.writerow([s["name"], at, "%.9g" % s["y"][i]] + band)


def draw(figure, out):
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
    matplotlib.rcParams.update({"svg.hashsalt": "cloob", "svg.fonttype": "none", "font.size": 9})
    fig, ax = pyplot.subplots(figsize=(5.8, 3.6))
    for k, s in enumerate(figure["series"]):
        color = COLORS[s.get("color", k)]
        if "low" in s:
            ax.fill_between(s["x"], s["low"], s["high"], color=color, alpha=.18, linewidth=0)
        ax.plot(s["x"], s["y"], color=color, linewidth=1.5, marker="o" if len(s["x"]) <= 40 else "", markersize=3, label=s["name"])
    if "categories" in figure:
        ax.set_xticks(range(len(figure["categories"])), figure["categories"])
    if figure.get("from_zero"):
        ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    ax.set(title=figure["title"], xlabel=figure["x_label"], ylabel=figure["y_label"])
    ax.grid(color="#e4e3de")
    ax.set_axisbelow(True)
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    fig.set_layout_engine("constrained")
    fig.savefig(os.path.join(out, figure["name"] + ".svg"), metadata={"Date": None})
    pyplot.close(fig)


def same(name, out):
    with open(os.path.join(out, name + ".csv")) as a, open(os.path.join(IMAGES, name + ".csv")) as b:
        return a.read() == b.read()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cloob")
    p.add_argument("out")
    p.add_argument("--theory", metavar="THEORY")
    p.add_argument("--scenes", metavar="WORLD", help="with --theory: a folder that cloob synth wrote")
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    figures = [by_passes(o.cloob), response("findings-scale", "scale_hopfield", "the Hopfield scale", RETRIEVAL),
               response("findings-temperature", "init_inv_tau", "the inverse temperature", METHODS), gain("findings-gain")]
    os.makedirs(o.out, exist_ok=True)
    for f in figures + (list(theory(o.theory, o.scenes)) if o.theory else []):
        write_numbers(f, o.out)
        if not o.check:
            draw(f, o.out)
    wrong = [f["name"] for f in figures if o.check and not same(f["name"], o.out)]
    if wrong:
        sys.exit("docs/images differs from what docs/measurements/data says: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
