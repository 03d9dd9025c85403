#!/usr/bin/env python3
"""Wraps paragraphs of block comments that go beyond 120 columns: wrap_comments.py FILE... (`make format` runs it).

Only paragraphs with a line that is too long change. Lines with layout (indented, columns, banners, lists) are left alone,
and so are comments that follow code; clang-format never touches comments here."""
import re
import sys
import textwrap

MOST = 120


def is_prose(line):
    return line and line[0] != " " and not re.search(r"\S   +\S", line) and not re.match(r"-{3,}|\||[-*] ", line)


def body_of(lines):
    """The text of each line of a comment, without its frame."""
    out = []
    for i, line in enumerate(lines):
        text = line[2:] if i == 0 else re.sub(r"^\s*\*?(?!/)", "", line)
        if i == len(lines) - 1:
            text = re.sub(r"\s*\*/$", "", text)
        out.append(text[1:] if text.startswith(" ") else text)
    return out


def wrapped(body, width):
    out, paragraph = [], []

    def flush():
        long = any(len(p) > width for p in paragraph) or (paragraph and len(paragraph[-1]) + 3 > width)
        out.extend(textwrap.wrap(" ".join(p.strip() for p in paragraph), width, break_long_words=False, break_on_hyphens=False) if long else paragraph)
        paragraph.clear()

    for line in body:
        if is_prose(line):
            paragraph.append(line)
        else:
            flush()
            out.append(line)
    flush()
    if len(out[-1]) + 3 > width and " " in out[-1]:  # room for the end
        out[-1:] = out[-1].rsplit(" ", 1)
    return out


def fix(match, source):
    indent = source[source.rfind("\n", 0, match.start()) + 1 : match.start()]
    lines = match.group(0).split("\n")
    if indent.strip() or max(len(indent) + len(lines[0]), *(len(line) for line in lines)) <= MOST:
        return match.group(0)
    alone = len(lines) > 1 and lines[-1].strip() == "*/"
    body = wrapped(body_of(lines[:-1] if alone else lines), MOST - len(indent) - 3)
    text = "\n".join((("/* " if i == 0 else indent + " * ") + line).rstrip() for i, line in enumerate(body))
    return text + ("\n" + indent + " */" if alone else " */")


for path in sys.argv[1:]:
    with open(path) as f:
        source = f.read()
    if any(len(line) > MOST for line in source.split("\n")):
        text = re.sub(r"/\*.*?\*/", lambda m: fix(m, source), source, flags=re.S)
        if text != source:
            with open(path, "w") as f:
                f.write(text)
