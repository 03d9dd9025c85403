#!/usr/bin/env python3
"""Long commands in a terminal of 80 columns: a sign of life, no line wider than the terminal, and Ctrl-C ends each with the exit code
130 and one message. Usage: terminal.py CLOOB"""
import fcntl
import hashlib
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import unicodedata

COLUMNS = 80
PATIENCE_SECONDS = 120  # for the first sign of life on a busy machine
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def start(command, folder):
    """The command with a terminal for stderr and stdout; (process, our end of the terminal)."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    env = dict(os.environ, TERM="xterm", OMP_NUM_THREADS="1")
    env.pop("NO_COLOR", None)
    process = subprocess.Popen(command, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    return process, ours


def read(ours, enough):
    """What the terminal shows until enough(text), or until the command has ended."""
    text = ""
    while not enough(text):
        if not select.select([ours], [], [], PATIENCE_SECONDS)[0]:
            break
        try:
            got = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not got:
            break
        text += got.decode("utf-8", "replace")
    return text


def width(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in ESCAPE.sub("", line))


def interrupt(name, command, folder, wait_for):
    """Failures of one command, as text."""
    process, ours = start(command, folder)
    text = read(ours, lambda t: re.search(wait_for, t))
    if not re.search(wait_for, text):
        process.kill()
        process.wait()
        return ["%s: no sign of %s: %r" % (name, wait_for, text[-400:])]
    lines = [ESCAPE.sub("", line) for line in re.split(r"[\r\n]+", text)]
    chosen = [i for i, line in enumerate(lines) if "steps in all" in line]
    left = [line for line in lines[chosen[0]:] if re.match("vocabulary .*%", line)] if chosen else []
    bad = ["%s: a line of %d columns: %r" % (name, width(line), line) for line in re.split(r"[\r\n]+", text) if width(line) > COLUMNS]
    bad += ["%s: the line of a task that has ended is drawn again: %r" % (name, line) for line in left[:1]]
    process.send_signal(signal.SIGINT)
    rest = read(ours, lambda t: False)
    code = process.wait()
    said = [line for line in re.split(r"[\r\n]+", ESCAPE.sub("", rest)) if re.search("^cloob.*(interrupted|stopped)|^ended", line)]
    if code != 130:
        bad.append("%s: exit code %d after Ctrl-C: %r" % (name, code, rest[-400:]))
    if len(said) != 1:
        bad.append("%s: %d messages after Ctrl-C: %r" % (name, len(said), said))
    os.close(ours)
    return bad


def refuse(command, folder):
    """Failures of an error message that is wider than the terminal."""
    process, ours = start(command, folder)
    text = read(ours, lambda t: False)
    process.wait()
    os.close(ours)
    lines = [line for line in re.split(r"[\r\n]+", text) if line]
    if len(lines) < 2 or max(map(width, lines)) > COLUMNS or not all(line.startswith("  ") for line in lines[1:]):
        return ["an error is not wrapped: %r" % text]
    return []


def results(command, folder):
    """Failures of results that share a line with the progress bar, as the terminal shows them."""
    process, ours = start(command, folder)
    text = read(ours, lambda t: False)
    code = process.wait()
    os.close(ours)
    shown = [re.split(r"\r(?=\x1b\[K)|\r(?=[a-z])", line.rstrip("\r"))[-1] for line in text.split("\n")]
    both = [line for line in shown if re.search("[.#╌━]{5}.*[0-9]%", line) and not line.endswith("%")]
    return ["%s: exit code %d, the bar is not removed before the results: %r" % (command[1], code, both[:1])] if code or both else []


def whole_lines(command, folder):
    """Failures of a line on stderr that takes several writes: lines of two ranks would mix. Every write is a datagram here."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    code = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=theirs).returncode
    theirs.close()
    ours.setblocking(False)
    parts = []
    try:
        while True:
            parts.append(ours.recv(65536))
    except BlockingIOError:
        pass
    ours.close()
    torn = [part for part in parts if part.count(b"\n") != 1 or not part.endswith(b"\n")]
    return ["%s: exit code %d, a line in several writes: %r" % (command[1], code, parts)] if torn or not parts else []


def hostile_name(cloob, folder):
    """Names of files with control characters, which would act on the terminal, are shown without them there and unchanged in a pipe."""
    os.makedirs(os.path.join(folder, "names"))
    with open(os.path.join(folder, "world", "train.tsv")) as f:
        image = os.path.join(folder, "world", f.readlines()[1].split("\t")[0])
    name = "a\x1b]0;title\x07\x1b[2Jb\u009bc\nd" + os.path.splitext(image)[1]
    os.link(image, os.path.join(folder, "names", name))
    model, bad = ["--checkpoint", "logs/m", "--threads", "1", "--quiet"], []
    subprocess.run([cloob, "search", "index", "names", *model], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    for command in ([cloob, "search", "query", "a dog", "--index", "names", "--quiet"], [cloob, "classify", "--labels", "a,b", "names", *model],
                    [cloob, "classify", "--labels", "a,b", "names", "--sort-into", "sorted", *model]):
        piped = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout
        process, ours = start(command, folder)
        text = read(ours, lambda t: False)
        if process.wait() != 0 or "\x1b]" in text or "[2Jb\u009b" in text or "a?]0;title??[2Jb??c?d" not in text:
            bad.append("%s: a name acts on the terminal: %r" % (command[1], text))
        if name.encode() not in piped:
            bad.append("%s: a name is changed in a pipe: %r" % (command[1], piped))
        os.close(ours)
    return bad


def main():
    cloob, folder, bad = os.path.abspath(sys.argv[1]), tempfile.mkdtemp(prefix="cloob-terminal-"), []
    try:
        quiet = dict(cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run([cloob, "synth", "--out", "world", "--count", "32", "--val-count", "8", "--per-class", "2", "--size", "32"], **quiet)
        subprocess.run([cloob, "train", "--train-data", "world/train.tsv", "--model", "tiny-rn", "--force-image-size", "32", "--batch-size", "8",
                        "--max-steps", "1", "--warmup", "1", "--vocab-size", "540", "--name", "m", "--threads", "1"], **quiet)
        with open(os.path.join(folder, "world", "train.tsv")) as f:
            first = f.readlines()[1]
        with open(os.path.join(folder, "world", "long.tsv"), "w") as f:
            f.write("filepath\ttitle\n" + 200000 * first)
        model = ["--checkpoint", "logs/m", "--threads", "1"]
        train = ["--train-data", "world/train.tsv", "--model", "tiny-rn", "--force-image-size", "32", "--batch-size", "8", "--epochs", "100000",
                 "--warmup", "1", "--vocab-size", "540", "--threads", "1", "--save-frequency", "0"]
        bad += refuse([cloob, "bench", "step", "--method", "a" * 60], folder)
        bad += refuse([cloob, "embed", "--checkpoint", "missing-" + "m" * 50, "--images", "world", "--out", "e.npy"], folder)
        bad += refuse([cloob, "search", "query", "a dog", "--index", "missing-" + "m" * 50], folder)
        bad += refuse([cloob, "info", "missing"], folder)
        bad += hostile_name(cloob, folder)
        bad += whole_lines([cloob, "search", "query", "a dog", "--index", "missing"], folder)
        with open(os.path.join(folder, "world", "broken.tsv"), "w") as f:
            f.write("filepath\ttitle\n" + first + 40 * "missing.png\ta fish\n")
        image = os.path.join(folder, "world", first.split("\t")[0])
        bad += results([cloob, "classify", "--labels", "a,b", image, *model], folder)
        bad += results([cloob, "embed", "--data", "world/broken.tsv", "--out", "e.safetensors", *model], folder)
        bad += whole_lines([cloob, "train", "--name", "lines", "--max-steps", "2", *train], folder)
        bad += results([cloob, "train", "--name", "events", "--log-to", "-", "--log-every-n-steps", "1", "--max-steps", "2", *train], folder)
        bad += interrupt("synth", [cloob, "synth", "--out", "large", "--count", "1000000", "--threads", "1"], folder, "synth.*%")
        bad += interrupt("embed", [cloob, "embed", "--data", "world/long.tsv", "--out", "e.safetensors", *model], folder, "embed .*%")
        bad += interrupt("train", [cloob, "train", "--name", "stopped", *train], folder, "train.*%")
        for name in ("fish", "tree"):  # one image under many names
            os.makedirs(os.path.join(folder, "many", name))
            for i in range(10000):
                os.link(image, os.path.join(folder, "many", name, "%d%s" % (i, os.path.splitext(image)[1])))
        with open(os.path.join(folder, "words.txt"), "w") as f:
            f.writelines("%s\n" % " ".join(hashlib.sha256(b"%d" % (i * 9 + j)).hexdigest()[:8] for j in range(9)) for i in range(30000))
        bad += interrupt("search index", [cloob, "search", "index", "many", "--out", "many.index", *model], folder, "%")
        bad += interrupt("eval zeroshot", [cloob, "eval", "zeroshot", "--data", "many", *model], folder, "%")
        bad += interrupt("tokenizer", [cloob, "tokenizer", "train", "--input", "words.txt", "--size", "40000", "--out", "words.bpe"], folder, "%")
        bad += interrupt("sweep --by method", [cloob, "sweep", "--by", "method", "--name", "a", "--methods", "clip,cloob", "--seeds", "2", "--val-data", "world/val.tsv", *train], folder, "%")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for line in bad:
        print("FAIL: " + line)
    print("%d failures" % len(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
