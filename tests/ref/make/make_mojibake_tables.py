#!/usr/bin/env python3
"""Makes src/data/text/mojibake_tables.inc: what single-byte encodings make of the bytes 0x80 to 0xFF, and the classes of the characters that come
out where UTF-8 was read in one of them.

    python3 tests/ref/make/make_mojibake_tables.py          needs ftfy 6.3, whose notion of classes it is (Robyn Speer, Apache License 2.0)"""
import pathlib, re

from ftfy.badness import MOJIBAKE_CATEGORIES
from ftfy.chardata import CHARMAP_ENCODINGS, UTF8_CLUES

names = {"c1": "CONTROL", "bad": "ODD", "law": "LAW", "currency": "MONEY", "start_punctuation": "OPENING", "end_punctuation": "CLOSING", "numeric": "NUMERIC",
         "kaomoji": "FACE", "upper_accented": "UPPER", "lower_accented": "LOWER", "upper_common": "CAPITAL", "lower_common": "SMALL", "box": "BOX", "common": "PLAIN",
         "utf8_first_of_2": "LEAD2", "utf8_first_of_3": "LEAD3", "utf8_first_of_4": "LEAD4", "utf8_continuation": "TAIL", "utf8_continuation_strict": "TAIL_STRICT"}
classes = {}
for name, text in {**MOJIBAKE_CATEGORIES, **UTF8_CLUES}.items():
    fits = re.compile("[" + text + "]")
    for c in range(0x10000):
        if fits.match(chr(c)):
            classes.setdefault(c, []).append(names[name])


def literal(code):  # what cannot be seen on its own as an escape, so that the table can be read
    seen = chr(code).isprintable() and not 0xE000 <= code < 0xFC00
    return chr(code) if seen else f"\\{code:03o}" if code < 0x100 else f"\\u{code:04X}"


def wrapped(codes, indent, room=112):
    lines, line = [], ""
    for piece in map(literal, codes):
        if len(indent + line + piece) + 4 > room:
            lines.append(line)
            line = ""
        line += piece
    return [f'{indent}u"{l}"' for l in lines + [line]]


out = ["/* Made by tests/ref/make/make_mojibake_tables.py. */", "", "/* What the bytes 0x80 to 0xFF are; unassigned ones are C1 controls. Latin-1's are the first 256 code points. */",
       f"static const char16_t byte_meaning[MOJIBAKE_ENCODINGS][128 + 1] = {{"]
for i, e in enumerate(CHARMAP_ENCODINGS):
    if e != "latin-1":
        code = [ord(bytes([b]).decode(e)) for b in range(128, 256)]
        out += [f"    [{i}] = /* {e} */"] + wrapped(code, "        ")
        out[-1] += ","
rows = []  # neighbours of the same classes are one row
for c, k in sorted(classes.items()):
    if rows and rows[-1][1] == c - 1 and rows[-1][2] == k:
        rows[-1][1] = c
    else:
        rows.append([c, c, k])
out += ["};", "", "/* By code point, from the first to the last. */", "static const struct {", "    uint16_t first, last;", "    uint32_t classes;", f"}} known[{len(rows)}] = {{"]
out += [f"    {{ 0x{a:04X}, 0x{b:04X}, {' | '.join(k)} }}," for a, b, k in rows]
out.append("};")
path = pathlib.Path(__file__).resolve().parents[3] / "src" / "data" / "text" / "mojibake_tables.inc"
path.write_text("\n".join(out) + "\n")
