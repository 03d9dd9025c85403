#!/usr/bin/env python3
"""Runs every code block of README.md and docs/, so that no page can go stale.

    tests/docs/run.py --cloob build/cloob [--library build/libcloob.so] [PAGE...]

Blocks fenced as sh, python or c are run in the order of the page, in a folder of its own that holds what the pages speak of: photos/ and
captions.csv of our synthetic world, a small trained model clip.safetensors, embeddings, shards. A fence may carry a word:

    ```sh skip: needs a GPU      not run; the reason is counted and printed
    ```sh fails                  must end with an exit code other than 0

Training is cut to a few steps by a wrapper around the program: a page is checked, not a model. Links between pages are checked too.
Needs Python 3.9 and nothing else; a block that needs another package counts as skipped where it is not installed.
"""
import argparse
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FENCE = re.compile(r"^```(\w+)?[ \t]*(.*)$")
TIMEOUT_SECONDS = 300

WRAPPER = """#!/bin/sh
# Cuts training short: `cloob train` and `finetune` end after a few steps unless the page says otherwise.
case "$1" in
train|finetune)
    case " $* " in *" --max-steps "*|*" --help "*) ;; *) set -- "$@" --max-steps 6 ;; esac ;;
ablate|sweep)
    case " $* " in *" --max-steps "*|*" --help "*) ;; *) set -- "$@" --max-steps 3 ;; esac ;;
esac
exec "%s" "$@"
"""


def pages(wanted):
    if wanted:
        return [os.path.abspath(p) for p in wanted]
    found = [os.path.join(ROOT, "README.md")]
    for folder, _, names in sorted(os.walk(os.path.join(ROOT, "docs"))):
        found += [os.path.join(folder, n) for n in sorted(names) if n.endswith(".md")]
    return found


def blocks(path):
    """(line, language, word, text) of every fenced block."""
    found, language, word, begun, lines = [], None, "", 0, []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            fence = FENCE.match(line)
            if fence and language is None:
                language, word, begun, lines = fence.group(1) or "text", fence.group(2).strip(), number, []
            elif fence:
                found.append((begun, language, word, "".join(lines)))
                language = None
            elif language is not None:
                lines.append(line)
    return found


def broken_links(path):
    bad = []
    with open(path, encoding="utf-8") as f:
        text = re.sub(r"```.*?```", "", f.read(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        if not os.path.exists(os.path.join(os.path.dirname(path), target)):
            bad.append(target)
    return bad


class Fixture:
    """The folder that pages speak of, made once and copied for every page."""

    def __init__(self, cloob, library):
        self.folder = tempfile.mkdtemp(prefix="cloob-docs-")
        self.program = os.path.abspath(cloob)
        self.library = os.path.abspath(library) if library else ""
        self.bin = os.path.join(self.folder, "bin")
        self.seed = os.path.join(self.folder, "seed")
        os.makedirs(self.bin)
        os.makedirs(self.seed)
        wrapper = os.path.join(self.bin, "cloob")
        with open(wrapper, "w") as f:
            f.write(WRAPPER % self.program)
        os.chmod(wrapper, os.stat(wrapper).st_mode | stat.S_IXUSR)
        self.fill()

    def environment(self, home):
        env = dict(os.environ, HOME=home, CLOOB_CACHE=os.path.join(home, ".cache"), NO_COLOR="1", OMP_NUM_THREADS="2")
        env["PATH"] = self.bin + os.pathsep + env["PATH"]
        env["PYTHONPATH"] = os.path.join(ROOT, "python")
        if self.library:
            env["CLOOB_LIBRARY"] = self.library
            env["LD_LIBRARY_PATH"] = os.path.dirname(self.library)
            env["PKG_CONFIG_PATH"] = self.pkg_config()
        return env

    def pkg_config(self):
        """A pkg-config file for the library as it lies in the build folder."""
        folder = os.path.join(self.folder, "pkgconfig")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "cloob.pc"), "w") as f:
            f.write("Name: cloob\nDescription: docs\nVersion: 0\nCflags: -I%s\nLibs: -L%s -lcloob\n"
                    % (os.path.join(ROOT, "include"), os.path.dirname(self.library)))
        return folder

    def run(self, *words):
        done = subprocess.run([self.program, *words], cwd=self.seed, env=self.environment(self.seed), capture_output=True, text=True)
        if done.returncode:
            sys.exit("the fixture could not be made: cloob %s\n%s" % (" ".join(words), done.stderr))

    def fill(self):
        self.run("synth", "--out", "world", "--count", "160", "--val-count", "48", "--per-class", "4", "--size", "64", "--seed", "3")
        self.run("synth", "--out", "cc", "--count", "64", "--val-count", "16", "--per-class", "4", "--size", "64", "--seed", "4",
                 "--format", "webdataset", "--shard-samples", "16")
        self.run("train", "--train-data", "world/train.tsv", "--model", "tiny", "--batch-size", "16", "--epochs", "1", "--max-steps", "4",
                 "--warmup", "2", "--vocab-size", "640", "--name", "seed", "--logs", "logs", "--quiet")
        newest = os.path.join(self.seed, "logs", "seed", "checkpoints", "latest.safetensors")
        shutil.copy(newest, os.path.join(self.seed, "clip.safetensors"))
        shutil.rmtree(os.path.join(self.seed, "logs"))
        self.photos()
        self.run("embed", "--checkpoint", "clip.safetensors", "--data", "world/val.tsv", "--out", "pairs.safetensors", "--quiet")

    def photos(self):
        """photos/ with subfolders, captions.csv and val.csv beside it, labels.txt."""
        rows = [line.rstrip("\n").split("\t") for line in open(os.path.join(self.seed, "world", "train.tsv"), encoding="utf-8")][1:]
        os.makedirs(os.path.join(self.seed, "photos", "2024"))
        os.makedirs(os.path.join(self.seed, "photos", "beach"))
        with open(os.path.join(self.seed, "captions.csv"), "w", encoding="utf-8") as out:
            out.write("image,caption\n")
            for i, (path, title) in enumerate(rows):
                name = os.path.join("photos", ("2024", "beach")[i % 2], os.path.basename(path))
                shutil.copy(os.path.join(self.seed, "world", path), os.path.join(self.seed, name))
                out.write("%s,%s\n" % (name, json.dumps(title, ensure_ascii=False)))
        shutil.copy(os.path.join(self.seed, name), os.path.join(self.seed, "dog.jpg"))
        with open(os.path.join(self.seed, "labels.txt"), "w") as out:
            out.write("fish\ntree\nhouse\ncar\n")

    def copy(self, name):
        folder = os.path.join(self.folder, name)
        shutil.copytree(self.seed, folder)
        return folder

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def command(language, text, folder):
    if language == "sh":
        return ["bash", "-eu", "-c", text]
    if language == "python":
        return [sys.executable, "-c", text]
    with open(os.path.join(folder, "page.c"), "w") as f:
        f.write(text)
    return ["bash", "-eu", "-c", "cc page.c $(pkg-config --cflags --libs cloob) -o page && ./page"]


def run_page(fixture, path, count, links):
    name = os.path.relpath(path, ROOT)
    folder, failures = None, []
    for line, language, word, text in blocks(path):
        if language not in ("sh", "python", "c"):
            continue
        if word.startswith("skip:"):
            count["skipped"].append("%s:%d %s" % (name, line, word[5:].strip()))
            continue
        folder = folder or fixture.copy(name.replace("/", "-"))
        try:
            done = subprocess.run(command(language, text, folder), cwd=folder, env=fixture.environment(folder), capture_output=True,
                                  text=True, timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL)
            code, said = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            code, said = -1, "still running after %d s" % TIMEOUT_SECONDS
        lacks = re.search(r"^ModuleNotFoundError: No module named '(\w+)", said, re.M)
        if lacks and lacks.group(1) != "cloob":
            count["skipped"].append("%s:%d needs the package %s" % (name, line, lacks.group(1)))
            continue
        count["run"] += 1
        if (code == 0) == (word == "fails"):
            failures.append("%s:%d: exit code %d\n%s\n--- said:\n%s" % (name, line, code, text, said[-2000:]))
    if links:
        failures += ["%s: the link %s leads nowhere" % (name, target) for target in broken_links(path)]
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    return failures


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cloob", required=True)
    options.add_argument("--library", default="")
    options.add_argument("--no-links", action="store_true", help="run the blocks alone")
    options.add_argument("page", nargs="*")
    o = options.parse_args()
    count, failed = {"run": 0, "skipped": []}, []
    fixture = Fixture(o.cloob, o.library)
    try:
        for path in pages(o.page):
            failed += run_page(fixture, path, count, not o.no_links)
    finally:
        fixture.remove()
    for text in failed:
        print(text + "\n")
    for text in count["skipped"]:
        print("not run: " + text)
    print("%d blocks run, %d failed, %d skipped" % (count["run"], len(failed), len(count["skipped"])))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
