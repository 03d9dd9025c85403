#!/usr/bin/env python3
"""Writes src/data/text/html_entities.inc: HTML5's named character references, sorted, out of Python's html.entities.

Each row is a name without its semicolon, whether HTML also knows it without one, and one or two code points.
"""
import html.entities
import os

rows = []
for name, text in html.entities.html5.items():
    if name.endswith(";"):
        bare = int(name[:-1] in html.entities.html5)
        codes = [ord(c) for c in text] + [0]
        rows.append('{"%s",%d,{%d,%d}}' % (name[:-1], bare, codes[0], codes[1]))
rows.sort(key=lambda row: row.split('"')[1].encode())

lines, line = [], ""
for row in rows:
    if len(line) + len(row) > 108:
        lines.append(line)
        line = ""
    line += row + ","
lines.append(line)

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "..", "src", "data", "text", "html_entities.inc"), "w") as out:
    out.write("/* Made by scripts/make_html_entities.py: name, known without semicolon, code points. */\n")
    out.write("\n".join(lines) + "\n")
