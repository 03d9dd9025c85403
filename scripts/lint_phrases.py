#!/usr/bin/env python3
"""Finds phrases that readers do not understand, in sources, pages, scripts and tests: the list below is the whole rule.

    scripts/lint_phrases.py [FILE...]        every tracked text file by default; exit code 1 on a finding

tests/docs/run.py uses the same list for the pages."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# what to avoid -> what to write; parts of regular expressions, matched as whole words, also across the lines of a comment
PHRASES = {
    "a bandwidth we reach": "the bandwidth that kernels reach",
    "beside (?:and renamed|each other|ours|open_clip|it|them|the|a)": "written atomically; next to, concurrently, compared with",
    "called wrongly": "invalid argument: requires ...",
    "everybody's weights": "OpenAI, open_clip, Hugging Face and JKU weights",
    "for want of": "without, because ... is missing",
    "goes on": "continues",
    "goes past": "skips",
    "in one go": "in one pass",
    "(?:is|are) told": "is printed, reported",
    "is no case for it": "does not help",
    "looked at": "inspected, read, checked",
    "memory is out": "out of memory",
    "mended": "fixed",
    "not understood": "unknown option, invalid value",
    "of its kind": "leave it out",
    "of one's own": "your own, custom",
    "of (?:ours|our own)": "cloob's",
    "such a one": "repeat the noun",
    "taken along": "fused, included",
    "taken off": "subtracted from",
    "that you give win": "flags override this",
    "wait(?:s|ing)? for company": "wait for more inputs",
    "wakes as": "unpacks to",
}
IN_PAGES = dict(PHRASES, **{"pictures?": "image"})  # elsewhere it may be a prompt
CHECKED = ("*.c", "*.h", "*.cu", "*.cuh", "*.def", "*.inc", "*.md", "*.py", "*.sh", "*.js", "*.css", "*.html", "*.cmake", "CMakeLists.txt", "Makefile")
SKIPPED = re.compile(r"^(scripts/lint_phrases\.py|tests/ref/(?!make/)|tests/fuzz/corpus/|docs/measurements/data/.*\.jsonl)")


def findings(text, phrases=PHRASES):
    """(line, phrase) of every unclear phrase; a comment's line ends and margins count as spaces."""
    unclear = re.compile(r"\b(?:%s)\b" % "|".join(p.replace(" ", r"\s+") for p in phrases), re.I)
    flat = re.sub(r"\n[ \t]*(?:\*(?!/)|//|#)?", lambda m: " " * len(m.group(0)), text)
    return [(text.count("\n", 0, m.start()) + 1, " ".join(m.group(0).split())) for m in unclear.finditer(flat)]


def better(phrase):
    return next(to for p, to in IN_PAGES.items() if re.fullmatch(p, phrase, re.I))


def main():
    listed = subprocess.run(["git", "ls-files", *CHECKED], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    names = sys.argv[1:] or listed
    bad = 0
    for name in (n for n in names if n and not SKIPPED.match(n) and (ROOT / n).is_file()):
        for line, phrase in findings((ROOT / name).read_text(encoding="utf-8")):
            print('%s:%d: "%s": write instead: %s' % (name, line, phrase, better(phrase)), file=sys.stderr)
            bad += 1
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
