#!/usr/bin/env python3
"""Makes src/data/text/young_characters.inc: letters and numbers that Python's `regex`, with which CLIP's tokenizer splits words, knows and Unicode 14
does not, so that words are the same with an older utf8proc.

    python3 tests/ref/make/make_young_characters.py          needs regex; Python 3.11 or 3.12, whose unicodedata is old enough"""
import pathlib, unicodedata

import regex

out = ["/* Made by tests/ref/make/make_young_characters.py: first and last code point. */"]
for name, pattern in ("young_letters", r"\p{L}"), ("young_numbers", r"\p{N}"):
    fits, ranges = regex.compile(pattern), []
    for c in range(0x110000):
        if unicodedata.category(chr(c)) == "Cn" and fits.match(chr(c)):
            if ranges and ranges[-1][1] == c - 1:
                ranges[-1][1] = c
            else:
                ranges.append([c, c])
    out.append(f"static const uint32_t {name}[][2] = {{")
    cells = [f"{{ 0x{a:X}, 0x{b:X} }}," for a, b in ranges]
    out += ["    " + " ".join(cells[i:i + 5]) for i in range(0, len(cells), 5)]
    out.append("};")
(pathlib.Path(__file__).resolve().parents[3] / "src" / "data" / "text" / "young_characters.inc").write_text("\n".join(out) + "\n")
