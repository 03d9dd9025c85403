#!/bin/sh
# cloob report --figure: what it draws, what it refuses, and the committed figures and tables of the findings. usage: figures.sh CLOOB PYTHON SOURCE
set -eu
cloob=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $1"; exit 1; }

cat >"$dir/two.json" <<'END'
{"name": "two", "title": "Two lines", "x_label": "x", "y_label": "y", "series": [
 {"name": "a, b", "x": [0, 1], "y": [1, 2.5], "low": [0.5, 2], "high": [1.5, 3]}, {"name": "c", "x": [0, 1], "y": [2, 1]}]}
END
"$cloob" report --figure "$dir/two.json" --export "$dir/out"
printf 'series,x,y,low,high\n"a, b",0,1,0.5,1.5\n"a, b",1,2.5,2,3\nc,0,2,,\nc,1,1,,\n' | cmp - "$dir/out/two.csv"
head -c 5 "$dir/out/two.pdf" | grep -q '%PDF-' || fail "two.pdf is no PDF"
grep -q '<svg' "$dir/out/two.svg" || fail "two.svg is no SVG"

# Long names of runs: every glyph lies within the image, and the whole name is there.
cat >"$dir/long.json" <<'END'
{"name": "long", "title": "Validation accuracy of two runs whose names hold all of their settings, and a title that is just as long", "x_label": "x", "y_label": "y", "series": [
 {"name": "method-infonce-hopfield_lr-2.5e-4_init_inv_tau-30_learnable_inv_tau-False_scale_hopfield-50_wd-0.1-seed1", "x": [0, 1], "y": [1, 2]},
 {"name": "a name without a place to break it: ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé", "x": [0, 1], "y": [2, 1]},
 {"name": "short", "x": [0, 1], "y": [2, 2]}]}
END
"$cloob" report --figure "$dir/long.json" --export "$dir/out"
"$2" - "$dir/out/two.svg" "$dir/out/long.svg" <<'END'
import re, sys
for path in sys.argv[1:]:
    svg = open(path).read()
    wide, high = (float(v) for v in re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', svg).groups())
    at = [(float(x), float(y)) for x, y in re.findall(r'<use [^>]*x="([-0-9.]+)" y="([-0-9.]+)"', svg)]
    assert len(at) > 10, f"{path}: only {len(at)} glyphs"
    assert all(0 <= x <= wide - 6 and 0 <= y <= high - 3 for x, y in at), f"{path}: a glyph outside of {wide} x {high}: {max(at)}"
    if path.endswith("long.svg"):
        legend = [p for p in at if p[1] > 326]
        assert len(legend) > 190, f"{path}: {len(legend)} glyphs in the legend"
END

refused() { # WHAT TEXT
    printf '%s' "$2" >"$dir/bad.json"
    ! "$cloob" report --figure "$dir/bad.json" --export "$dir/out" 2>"$dir/said" || fail "took $2"
    grep -q "$1" "$dir/said" || fail "$(cat "$dir/said") instead of: $1"
}
refused '"x" of series "a" must be a list of 2 numbers' '{"name": "n", "series": [{"name": "a", "x": [1], "y": [1, 2]}]}'
refused 'needs a "name"' '{"series": []}'
refused 'file name, not a path' '{"name": "../n", "series": []}'
refused 'no point' '{"name": "n", "series": []}'
refused 'bars need' '{"name": "n", "bars": true, "series": [{"name": "a", "x": [1], "y": [1]}]}'

"$2" "$3/scripts/plot_figures.py" "$cloob" "$dir/figures" --check
"$2" "$3/scripts/findings_tables.py" "$cloob" --check
