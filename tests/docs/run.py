#!/usr/bin/env python3
"""Runs every code block of README.md and docs/, so that no page can go stale.

    tests/docs/run.py --cloob build/cloob [--library build/libcloob.so] [PAGE...]

Blocks fenced as sh, python or c are run in the order of the page, in a separate folder with the files that the pages name, which fixture.py
creates. A C block is saved as program.c, built with pkg-config and run. A fence may have a word:

    ```sh skip: needs a GPU      not run; counted, and listed with its reason
    ```sh fails                  must end with an exit code other than 0
    ```sh serves                 runs until the end of the page; later blocks connect to it on the port that the page names

Besides running them, the program checks every page: links must lead to existing pages and headings, every option that a page gives to
`cloob`, in a block or in a line, must be one that the command has, messages in the tables of troubleshooting must be the program's, and
some unclear phrases are rejected. Command blocks outside
docs/measurements must be fenced; those of the measurements, which take minutes, are counted as not run.

Training is cut to a few steps by a wrapper around the program: a page is checked, not a model. Needs Python 3.9 and nothing else; a block
that needs another package counts as skipped where it is not installed.
"""
import argparse
import concurrent.futures
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from fixture import ROOT, Fixture

sys.path.insert(0, os.path.join(ROOT, "scripts"))
import lint_phrases  # noqa: E402

FENCE = re.compile(r"^```(\w+)?[ \t]*(.*)$")
COMMAND = re.compile(r"^    (?:build/)?(cloob [a-z]+ |make |mpirun |srun |scripts/|python3? |ctest )")
TIMEOUT_SECONDS = 300
PAGE_PORT = "8080"
WITH_PARTS = ("bench", "eval", "search", "tokenizer", "prompts", "info")  # commands with subcommands


def pages(wanted):
    if wanted:
        return [os.path.abspath(p) for p in wanted]
    found = [os.path.join(ROOT, n) for n in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    for folder, _, names in sorted(os.walk(os.path.join(ROOT, "docs"))):
        found += [os.path.join(folder, n) for n in sorted(names) if n.endswith(".md")]
    return found


def blocks(path):
    """(line, language, word, text) of every fenced block; indented command blocks have the language "indented"."""
    found, language, word, begun, lines = [], None, "", 0, []
    before = ""
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
            elif COMMAND.match(line):
                if before.startswith("    "):
                    found[-1] = found[-1][:3] + (found[-1][3] + line,) if found and found[-1][1] == "indented" else found[-1]
                else:
                    found.append((number, "indented", "", line))
            before = line
    return found


# ---- what is read ---------------------------------------------------------------------------------


def anchors(path):
    """The anchors that GitHub gives to the headings of a page."""
    with open(path, encoding="utf-8") as f:
        text = re.sub(r"```.*?```", "", f.read(), flags=re.S)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)}


def broken_links(text, path):
    """Links to files that do not exist, and to headings that their page does not have."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    defined = re.findall(r"^\[([^\]\n]+)\]: ([^#\s]*)(?:#(\S*))?$", text, re.M)
    bad = ["no link [%s]" % name for name in re.findall(r"\]\[([^\]\n]+)\]", text) if name not in [d[0] for d in defined]]
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text) + [d[1:] for d in defined]:
        if re.match(r"[a-z]+:", target):
            continue
        file = os.path.join(os.path.dirname(path), target) if target else path
        if not os.path.exists(file):
            bad.append("the link %s leads nowhere" % target)
        elif anchor and anchor not in anchors(file):
            bad.append("the link %s#%s: no such heading" % (target, anchor))
    return bad


class Options:
    """The options of every command, as its help prints them."""

    def __init__(self, program):
        listed = subprocess.run([program, "help"], capture_output=True, text=True, check=True).stdout
        self.of = {}
        for name in re.findall(r"^  ([a-z]+) ", listed, re.M):
            said = subprocess.run([program, "help", name, "--all"], capture_output=True, text=True, check=True).stdout
            for part in set(re.findall(r"(?:^  |cloob )%s ([a-z|]+)" % name, said, re.M)) if name in WITH_PARTS else ():
                for word in part.split("|"):
                    said += subprocess.run([program, name, word, "--help"], capture_output=True, text=True).stdout
            flags = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", said))
            flags |= {"--batch"} if "--batch-size" in flags else set()  # an alias
            self.of[name] = flags | {"--no-" + f[2:] for f in flags} | {"--help", "--json", "--quiet", "--threads"}
        self.all = set().union(*self.of.values())

    def unknown(self, text):
        """Options in text that the command they are given to does not have; text is a shell line or an inline code span."""
        bad = []
        for part in re.split(r"[|;&]|\n", text.replace("\\\n", " ")):
            given = re.search(r"(?:^|[\s/])cloob ([a-z]+)\b", part)
            flags = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", re.sub(r"\s#.*", "", part[given.end():] if given else part))
            if given and given.group(1) in self.of:
                bad += ["cloob %s has no %s" % (given.group(1), f) for f in flags if f not in self.of[given.group(1)]]
            elif part.startswith("--"):
                bad += ["no command has %s" % f for f in flags if f not in self.all]
        return bad


def message_pieces():
    """The texts between the conversions of the string literals of the sources."""
    pieces = set()
    for top in ("src", "tools"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                if name.endswith((".c", ".h", ".cu", ".def")):
                    with open(os.path.join(folder, name), encoding="utf-8") as f:
                        code = re.sub(r'"\s*\n\s*"', "", f.read())
                    for literal in re.findall(r'"((?:\\.|[^"\\\n])*)"', code):
                        pieces.update(re.split(r"%[-+ 0#]*[\d.*]*(?:ll|[lhzj])?[a-zA-Z]", literal.replace('\\"', '"')))
    return pieces


PIECES = message_pieces()


def unknown_messages(text):
    """Messages quoted in the first column of a table that is headed "message" and that no source has: stale quotes."""
    bad, head = [], None
    for line in text.split("\n"):
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) < 4:
            head = None
        elif head is None:
            head = cells[1].strip()
        elif head.startswith("message"):
            for quote in [a or b for a, b in re.findall(r'`([^`]+)`|"([^"]+)"', cells[1])]:
                words = quote.split()
                n = min(3, len(words))  # that many words in a row, or a long piece
                rows = [" ".join(words[i:i + n]) for i in range(len(words) - n + 1)]
                if not quote.startswith("--") and not any(len(p.strip()) > 12 and p.strip() in quote or any(r in p for r in rows) for p in PIECES):
                    bad.append('no message is "%s"' % quote)
    return bad


def read_page(options, path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    bad = broken_links(text, path) + unknown_messages(text)
    bad += ['line %d: "%s": write instead: %s' % (line, phrase, lint_phrases.better(phrase))
            for line, phrase in lint_phrases.findings(text, lint_phrases.IN_PAGES)]
    for _, language, _, body in blocks(path):
        if language in ("sh", "indented"):
            bad += options.unknown(body)
    for span in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S)):
        if span.startswith("cloob ") or (span.startswith("--") and "/measurements/" not in path): # there also of other programs
            bad += options.unknown(span)
    return bad


# ---- what is run ----------------------------------------------------------------------------------


def free_port():
    """Below the ports that the system gives to others in the meantime."""
    while True:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", random.randrange(20000, 32000)))
                return str(s.getsockname()[1])
            except OSError:
                continue


class Page:
    """One page: its folder, its environment, and the servers that it started."""

    def __init__(self, fixture, path):
        self.fixture, self.path, self.name = fixture, path, os.path.relpath(path, ROOT)
        self.folder, self.servers, self.port = None, [], free_port()

    def command(self, language, text):
        if language == "python":
            return [sys.executable, "-c", text]
        if language == "c":
            with open(os.path.join(self.folder, "program.c"), "w") as f:
                f.write(text)
            text = "cc program.c $(pkg-config --cflags --libs cloob) -o program && ./program"
        return ["bash", "-eu", "-o", "pipefail", "-c", text]

    def serve(self, text, env):
        """Starts a block that does not end and waits until it answers; its output goes to a file."""
        said = open(os.path.join(self.folder, "server.txt"), "w+")
        server = subprocess.Popen(self.command("sh", text), cwd=self.folder, env=env, stdout=said, stderr=subprocess.STDOUT,
                                  start_new_session=True)
        self.servers.append(server)
        for _ in range(TIMEOUT_SECONDS * 4):
            if server.poll() is not None:
                break
            try:
                urllib.request.urlopen("http://127.0.0.1:%s/health/ready" % self.port, timeout=5)
                return 0, ""
            except (urllib.error.URLError, OSError):
                time.sleep(0.25)
        said.seek(0)
        return 1, said.read()

    def run(self, language, word, text):
        """(exit code, output) of a block."""
        self.folder = self.folder or self.fixture.copy(self.name.replace("/", "-"))
        env = dict(self.fixture.environment(self.folder), CLOOB_DOCS_PORT=self.port)
        text = text.replace(PAGE_PORT, self.port)
        if word == "serves":
            return self.serve(text, env)
        try:
            done = subprocess.run(self.command(language, text), cwd=self.folder, env=env, capture_output=True, text=True,
                                  timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL)
            return done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            return -1, "still running after %d s" % TIMEOUT_SECONDS

    def end(self):
        for server in self.servers:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGTERM)
            server.wait()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def why_not(fixture, name, language, word):
    """Why a block is not run, or None."""
    if word.startswith("skip:"):
        return word[5:].strip()
    if word == "serves" and not fixture.serves:
        return "this build has no server"
    if language == "indented":
        return "a measurement" if name.startswith("docs/measurements/") else None
    return None


def run_page(fixture, options, path):
    """(blocks run, reasons of those not run, failures) of a page."""
    page, run, skipped, failures, unserved = Page(fixture, path), 0, [], [], False
    failures += ["%s: %s" % (page.name, text) for text in read_page(options, path)]
    try:
        for line, language, word, text in blocks(path):
            if language not in ("sh", "python", "c", "indented"):
                continue
            where = "%s:%d" % (page.name, line)
            reason = why_not(fixture, page.name, language, word) or ("the server is not there" if unserved and PAGE_PORT in text else None)
            if reason:
                unserved |= word == "serves"
                skipped.append("%s %s" % (where, reason))
                continue
            if language == "indented":
                failures.append("%s: a command block that is not fenced, so that nothing checks it" % where)
                continue
            code, said = page.run(language, word, text)
            lacks = re.search(r"^ModuleNotFoundError: No module named '(\w+)", said, re.M)
            if lacks and lacks.group(1) != "cloob":
                skipped.append("%s needs the package %s" % (where, lacks.group(1)))
                continue
            run += 1
            if (code == 0) == (word == "fails"):
                failures.append("%s: exit code %d\n%s\n--- said:\n%s" % (where, code, text, said[-2000:]))
    finally:
        page.end()
    return run, skipped, failures


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cloob", required=True)
    options.add_argument("--library", default="")
    options.add_argument("--jobs", type=int, default=2, help="pages at a time")
    options.add_argument("page", nargs="*")
    o = options.parse_args()
    known = Options(os.path.abspath(o.cloob))
    fixture = Fixture(o.cloob, o.library)
    try:
        with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
            done = list(pool.map(lambda path: run_page(fixture, known, path), pages(o.page)))
    finally:
        fixture.remove()
    run, skipped, failed = sum(d[0] for d in done), sum((d[1] for d in done), []), sum((d[2] for d in done), [])
    for text in failed:
        print(text + "\n")
    for text in skipped:
        print("not run: " + text)
    print("%d blocks run, %d failed, %d not run" % (run, len(failed), len(skipped)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
