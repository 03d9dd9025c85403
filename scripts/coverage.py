#!/usr/bin/env python3
"""Runs the tests of a build made with -DCLOOB_COVERAGE=ON and prints which share of src they reach.

    scripts/coverage.py BUILD [--no-run]     --no-run: report on the counts that are there

Prints lines and branches per folder of src, the total, and every file under 70 % of its lines, longest gap first.
Code that this machine or build cannot run (another CPU's kernels, stubs for missing parts) counts as not reached."""
import collections
import json
import os
import subprocess
import sys

LEAST = 70.0
build = sys.argv[1]
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

if "--no-run" not in sys.argv:
    for folder, _, names in os.walk(build):
        for name in names:
            if name.endswith(".gcda"):
                os.remove(os.path.join(folder, name))
    tests = subprocess.run(["ctest", "--output-on-failure", "--timeout", "1800"], cwd=build)
    if tests.returncode:
        print("coverage: some tests failed; the figures below count what they reached all the same")

report = subprocess.run(["gcovr", "-r", root, "--filter", os.path.join(root, "src") + "/", "--exclude-unreachable-branches", "-j", str(os.cpu_count()),
                         "--gcov-ignore-parse-errors", "--json-summary=-", build], check=True, stdout=subprocess.PIPE).stdout
files = json.loads(report)["files"]


def percent(covered, total):
    return 100.0 * covered / total if total else 100.0


folders = collections.defaultdict(lambda: [0, 0, 0, 0])
for f in files:
    name = f["filename"]
    for key in (name.rsplit("/", 1)[0], "total"):
        for i, field in enumerate(("line_covered", "line_total", "branch_covered", "branch_total")):
            folders[key][i] += f[field]
total = folders.pop("total")
print(f"{'folder':20} {'lines':>14} {'':>7} {'branches':>14}")
for name, (a, b, c, d) in sorted(folders.items()):
    print(f"{name:20} {a:6} of {b:5} {percent(a, b):6.1f}% {c:6} of {d:5} {percent(c, d):6.1f}%")
low = sorted((f for f in files if percent(f["line_covered"], f["line_total"]) < LEAST), key=lambda f: f["line_covered"] - f["line_total"])
print(f"\n{len(low)} of {len(files)} files have less than {LEAST:.0f} % of their lines covered:")
for f in low:
    print(f"  {percent(f['line_covered'], f['line_total']):5.1f}% lines ({f['line_total'] - f['line_covered']} missing), "
          f"{percent(f['branch_covered'], f['branch_total']):5.1f}% branches  {f['filename']}")
a, b, c, d = total
print(f"\ntotal: {percent(a, b):.1f} % of {b} lines, {percent(c, d):.1f} % of {d} branches")
