#!/bin/sh
# The committed figures and tables of the findings follow from the committed runs. usage: figures.sh CLOOB PYTHON SOURCE
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$2" "$3/scripts/plot_figures.py" "$1" "$dir/figures" --check
"$2" "$3/scripts/findings_tables.py" "$1" --check
