#!/usr/bin/env python3
"""Writes src/data/text/html_entities.inc: HTML5's named character references, sorted, out of Python's html.entities.

Each row is a name without its semicolon, whether HTML also knows it without one, and one or two characters.
"""
import html.entities
import os
import unicodedata


def literal(c):  # what cannot be seen on its own as an escape
    seen = c.isprintable() and not unicodedata.combining(c) and unicodedata.bidirectional(c) not in ("R", "AL") and c not in '"\\'
    return c if seen else "\\%03o" % ord(c) if ord(c) < 0x100 else "\\u%04X" % ord(c)


rows = []
for name, text in html.entities.html5.items():
    if name.endswith(";"):
        bare = int(name[:-1] in html.entities.html5)
        rows.append('{"%s",%d,U"%s"}' % (name[:-1], bare, "".join(map(literal, text))))
rows.sort(key=lambda row: row.split('"')[1].encode())

lines, line = [], ""
for row in rows:
    if len(line) + len(row) > 108:
        lines.append(line)
        line = ""
    line += row + ","
lines.append(line)

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "..", "..", "..", "src", "data", "text", "html_entities.inc"), "w") as out:
    out.write("/* Made by tests/ref/make/make_html_entities.py: name, known without semicolon, characters. */\n")
    out.write("\n".join(lines) + "\n")
