#!/usr/bin/env python3
"""A CSV as a chart of lines in SVG, with nothing but Python: the first column is x, the others are lines.

    scripts/plot_csv.py IN.csv OUT.svg "title" ["x label" "y label"] [--top Y]

A column named by --by makes a line per value of it: --by beta --y energy. --top cuts the y axis."""
import argparse
import csv

COLORS = ["#4053d3", "#ddb310", "#b51d14", "#00beff", "#fb49b0", "#00b25d"]
W, H, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 70, 20, 40, 50


def ticks(low, high, n=5):
    return [low + i * (high - low) / n for i in range(n + 1)]


def lines(rows, o):
    names = list(rows[0])
    if o.by:
        x = names[1]
        groups = list(dict.fromkeys(r[o.by] for r in rows))
        return x, [("%s %s" % (o.by, g), [(float(r[x]), float(r[o.y])) for r in rows if r[o.by] == g]) for g in groups]
    return names[0], [(n, [(float(r[names[0]]), float(r[n])) for r in rows]) for n in names[1:]]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("input", "output", "title"):
        p.add_argument(name)
    p.add_argument("x_label", nargs="?")
    p.add_argument("y_label", nargs="?", default="")
    p.add_argument("--top", type=float)
    p.add_argument("--by")
    p.add_argument("--y")
    o = p.parse_args()
    with open(o.input, newline="") as f:
        x_name, series = lines(list(csv.DictReader(f)), o)
    xs = [x for _, points in series for x, _ in points]
    ys = [min(y, o.top) if o.top else y for _, points in series for _, y in points]
    x0, x1, y0, y1 = min(xs), max(xs), min(0, min(ys)), o.top or max(ys)

    def at(x, y):
        return LEFT + (x - x0) / (x1 - x0) * (W - LEFT - RIGHT), H - BOTTOM - (y - y0) / (y1 - y0) * (H - TOP - BOTTOM)

    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">' % (W, H),
           '<rect width="100%" height="100%" fill="white"/>',
           '<text x="%d" y="22" font-size="15" font-weight="bold">%s</text>' % (LEFT, o.title)]
    for v in ticks(y0, y1):
        out.append('<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.3g</text>'
                   % (LEFT, at(x0, v)[1], W - RIGHT, LEFT - 6, at(x0, v)[1] + 4, v))
    for v in ticks(x0, x1):
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%.3g</text>' % (at(v, y0)[0], H - BOTTOM + 18, v))
    out.append('<text x="%d" y="%d" text-anchor="middle">%s</text>' % ((LEFT + W - RIGHT) // 2, H - 10, o.x_label or x_name))
    out.append('<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">%s</text>' % ((TOP + H - BOTTOM) // 2, o.y_label))
    for k, (name, points) in enumerate(series):
        color, shown = COLORS[k % len(COLORS)], [(x, y) for x, y in points if not o.top or y <= o.top * 1.0001]
        path = " ".join("%s%.1f %.1f" % ("L" if i else "M", *at(x, y)) for i, (x, y) in enumerate(shown))
        out.append('<path d="%s" fill="none" stroke="%s" stroke-width="2"/>' % (path, color))
        out.append('<path d="M%d %dh20" stroke="%s" stroke-width="3"/><text x="%d" y="%d">%s</text>'
                   % (W - 190, TOP + 14 + 18 * k, color, W - 164, TOP + 18 + 18 * k, name.replace("_", " ")))
    out.append("</svg>\n")
    with open(o.output, "w") as f:
        f.write("\n".join(out))


if __name__ == "__main__":
    main()
