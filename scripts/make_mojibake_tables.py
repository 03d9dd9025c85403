#!/usr/bin/env python3
"""Makes src/data/text/mojibake_tables.inc: what single-byte encodings make of the bytes 0x80 to 0xFF, and the classes of the characters that come
out where UTF-8 was read in one of them.

    python3 scripts/make_mojibake_tables.py          needs ftfy 6.3, whose notion of classes it is (Robyn Speer, Apache License 2.0)"""
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

out = ["/* Made by scripts/make_mojibake_tables.py. */", "", "/* What the bytes 0x80 to 0xFF are; unassigned ones are C1 controls. */",
       f"static const uint16_t byte_meaning[{len(CHARMAP_ENCODINGS)}][128] = {{"]
for e in CHARMAP_ENCODINGS:
    out.append(f"    /* {e} */\n    {{")
    code = [ord(bytes([b]).decode(e)) for b in range(128, 256)]
    out += ["      " + ", ".join(f"0x{c:04X}" for c in code[i:i + 12]) + "," for i in range(0, 128, 12)]
    out.append("    },")
out += ["};", "", "/* By code point. */", "static const struct {", "    uint16_t code;", f"    uint32_t classes;", f"}} known[{len(classes)}] = {{"]
out += [f"    {{ 0x{c:04X}, {' | '.join(k)} }}," for c, k in sorted(classes.items())]
out.append("};")
path = pathlib.Path(__file__).resolve().parent.parent / "src" / "data" / "text" / "mojibake_tables.inc"
path.write_text("\n".join(out) + "\n")
