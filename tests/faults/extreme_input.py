#!/usr/bin/env python3
"""What a stranger would try: numbers beyond reason in every option, odd files in place of every input, kills at random moments, a full
disk, a folder that cannot be written, readers that leave, two processes on one name. A command must end in time, with exit code 0, 1
or 2, and with one line when it fails; what stands at an output's name is whole.

    extreme_input.py CLOOB [--attempts N] [--seed S] [SECTION...]

Sections: numbers, files, kills, disk, pipes, twice. --attempts limits each section (default 12, for ctest; 0: everything).
Prints a line per finding and a table; exit code 1 when there is a finding, 77 when images cannot be drawn here."""
import argparse, filecmp, os, random, re, resource, shutil, signal, socket, subprocess, sys, tempfile, time

HUGE = ["9223372036854775807", "9223372036854775808", "99999999999999999999", "-9223372036854775808", "-1", "4294967297", "2147483648",
        "1e308", "1e-308", "nan", "inf", "-inf", "0", "", " ", "0x7fffffffffffffff", "1,1,1,1", "%s%n", "5 5", "\u0665"]
TRAIN = ("--train-data world/train.tsv --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8 --epochs 1 --max-steps 1 --warmup 1 "
         "--workers 1 --threads 1 --device cpu --quiet --logs made").split()
# name: (arguments, outputs that are the same for every run, or None where only the program can say whether they are whole)
COMMANDS = {
    "train": (["train", *TRAIN, "--name", "r"], None),
    "sweep": (["sweep", *TRAIN, "--grid", "lr=1e-3,5e-4", "--val-data", "few.tsv", "--path-data", "world", "--select", "clip_val_loss", "--name", "s"], None),
    "ablate": (["ablate", *TRAIN, "--val-data", "few.tsv", "--path-data", "world", "--seeds", "1", "--name", "a"], None),
    "embed": ("embed --checkpoint model.safetensors --data few.tsv --path-data world --out made/e.safetensors --workers 1 --threads 1 --quiet".split(), "e.safetensors"),
    "index": ("search index few --checkpoint model.safetensors --out made/i.safetensors --threads 1 --quiet".split(), None),
    "query": ("search query red --index i.safetensors --html made/q.html --threads 1 --quiet".split(), "q.html"),
    "convert": ("convert model.safetensors made/c.pt --quiet".split(), "c.pt"),
    "convert-hf": ("convert model.safetensors made/h --to open_clip --quiet".split(), None),
    "average": ("average model.safetensors model.safetensors --out made/v.safetensors --quiet".split(), "v.safetensors"),
    "benchmark": ("benchmark --checkpoint model.safetensors --datasets set --out made/b --device cpu --threads 1 --quiet".split(), None),
    "classify": ("classify --checkpoint model.safetensors --labels red,blue --device cpu --threads 1 few".split(), None),
    "zeroshot": ("zeroshot --checkpoint model.safetensors --data classes --device cpu --threads 1 --quiet".split(), None),
    "retrieve": ("retrieve --input e.safetensors --threads 1 --quiet".split(), None),
    "analyze": ("analyze --input e.safetensors --out made/an --threads 1 --quiet".split(), None),
    "probe": ("probe --train p.safetensors --test p.safetensors --lambda 1 --threads 1 --quiet".split(), None),
    "compare": ("compare a.jsonl b.jsonl".split(), None),
    "report": ("report logs/a --out made/r.html --quiet".split(), None),
    "tokenizer": ("tokenizer train --input few.tsv --size 540 --out made/v.txt".split(), "v.txt"),
    "encode": ("tokenizer encode --vocab v.txt red".split(), None),
    "view": ("info image --view made/p.png --size 32".split(), "p.png"),
    "prompts": ("prompts import prompts.md --out made/p.json".split(), "p.json"),
    "loss": ("loss --input e.safetensors --grad made/g.safetensors --threads 1 --quiet".split(), "g.safetensors"),
    "info": ("info model.safetensors".split(), None),
    "synth": ("synth --out made/w --count 2 --size 32 --seed 1 --quiet".split(), None),
    "serve": ("serve --checkpoint model.safetensors --index i.safetensors --port 0 --device cpu --threads 1 --quiet".split(), None),
}
INPUTS = ["model.safetensors", "e.safetensors", "i.safetensors", "p.safetensors", "few.tsv", "few", "world/train.tsv", "classes", "set", "a.jsonl",
          "image", "v.txt", "prompts.md", "logs/a"]
# asked for that much, it does that much: not a fault, and nothing to wait for
LONG = {"synth": {"count", "val-count", "test-count", "per-class", "size", "per-group"}, "serve": {"timeout"}}


class Hunt:
    def __init__(self, cloob, attempts, seed):
        self.cloob, self.limit, self.random = cloob, attempts, random.Random(seed)
        self.tried, self.findings, self.log = {}, [], []
        self.environment = dict(os.environ, OMP_NUM_THREADS="1", GOMP_SPINCOUNT="2000")

    def sample(self, items):
        items = list(items)
        return self.random.sample(items, self.limit) if 0 < self.limit < len(items) else items

    def start(self, arguments, **more):
        def limits():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if not self.sanitized: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        return subprocess.Popen([self.cloob, *arguments], env=self.environment, preexec_fn=limits, stdin=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, **{"stdout": subprocess.PIPE, **more})

    def run(self, section, what, arguments, seconds=240, codes=(0, 1, 2)):
        """Runs to the end and judges it; returns the exit code."""
        process = self.start(arguments)
        if arguments[0] == "serve": # ends when asked to, unless it refused to start
            line = process.stdout.readline()
            if line: process.send_signal(signal.SIGTERM)
        return self.judge(section, what, process, seconds, codes)

    def judge(self, section, what, process, seconds=240, codes=(0, 1, 2)):
        self.tried[section] = self.tried.get(section, 0) + 1
        try:
            _, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.finding(section, what, f"still running after {seconds} s")
            return None
        text = err.decode(errors="replace")
        lines = [l for l in text.split("\n") if l.strip() and not l.startswith("warning:")]
        if process.returncode not in codes:
            self.finding(section, what, f"exit code {process.returncode}: {text[-300:]}")
        elif process.returncode in (1, 2) and len(lines) != 1:
            self.finding(section, what, f"{len(lines)} lines: {text[-300:]!r}")
        self.log.append((section, what, process.returncode, lines[-1] if lines else ""))
        return process.returncode

    def finding(self, section, what, why):
        self.findings.append((section, what, why))
        print(f"FINDING: {section}: {what}: {why}", flush=True)

    # ---- sections ------------------------------------------------------------------------------------------------------------------

    def numbers(self):
        """Every option of every command with values beyond reason."""
        cases = []
        for name, (arguments, _) in COMMANDS.items():
            command = arguments[0]
            text = subprocess.run([self.cloob, "help", command], capture_output=True, text=True).stdout
            for option, value in re.findall(r"^  --([a-z0-9-]+)( \S+)?", text, re.M):
                if not value or option in LONG.get(command, ()): continue
                cases += [(name, arguments + ["--" + option, v]) for v in HUGE]
        for name, arguments in self.sample(cases):
            fresh()
            self.run("numbers", f"cloob {' '.join(map(repr, arguments[-2:]))} ({name})", arguments, 120)

    def files(self):
        """Every input replaced by something odd, or damaged."""
        cases = [(name, i, kind) for name, (arguments, _) in COMMANDS.items() for i, a in enumerate(arguments) if a in INPUTS for kind in ODD]
        for name, i, kind in self.sample(cases):
            fresh()
            arguments = list(COMMANDS[name][0])
            arguments[i] = odd(kind, arguments[i], self.random)
            self.run("files", f"{name}: {kind} as {COMMANDS[name][0][i]}", arguments)
            clear_odd()

    def kills(self):
        """SIGKILL at a random moment: outputs are whole or not there; the same command then ends well and leaves nothing partial."""
        names = [n for n in ("train", "embed", "index", "convert", "convert-hf", "benchmark", "sweep", "average", "loss", "tokenizer", "report", "synth")]
        lengths = {}
        for k in range(self.limit or 600):
            name = names[k % len(names)]
            arguments, output = COMMANDS[name]
            again = arguments + (["--resume", "latest"] if name == "train" else [])
            if name not in lengths:
                fresh()
                begin = time.monotonic()
                self.run("kills", f"{name} undisturbed", arguments)
                lengths[name] = time.monotonic() - begin
                keep(name, output)
            fresh()
            process = self.start(arguments)
            time.sleep(self.random.random() * lengths[name])
            process.kill()
            process.communicate()
            self.whole("kills", name)
            if name == "train" and not os.path.exists("made/r/checkpoints"): again = arguments
            code = self.run("kills", f"{name} after a kill", again)
            if code != 0: # a run without a checkpoint says so, and starts with another name
                if not (name == "train" and code == 1 or name == "train" and code == 2):
                    self.finding("kills", name, f"does not end well after a kill: code {code}: {self.log[-1][3]}")
            self.whole("kills", name, code == 0)
            self.left("kills", name)

    def disk(self):
        """A disk with little room, and one that cannot be written."""
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", "made"], capture_output=True).returncode != 0:
            print("no small disks here: disk is left out")
            return
        subprocess.run(["umount", "made"])
        names = [n for n, (a, _) in COMMANDS.items() if any(x.startswith("made") for x in a) and n != "serve"]
        cases = [(n, size) for n in names for size in ("4k", "16k", "64k", "256k", "1m", "ro")]
        for name, size in self.sample(cases):
            fresh()
            arguments = COMMANDS[name][0]
            subprocess.run(["mount", "-t", "tmpfs", "-o", "ro" if size == "ro" else "size=" + size, "none", "made"], check=True)
            try:
                code = self.run("disk", f"{name} on a disk of {size}", arguments)
                if size == "ro" and code == 0: self.finding("disk", name, "ends well on a disk that cannot be written")
                if code: self.whole("disk", name)
                self.left("disk", name)
            finally:
                subprocess.run(["umount", "-l", "made"])

    def pipes(self):
        """Readers of stdout that leave at once."""
        for name, (arguments, _) in self.sample(COMMANDS.items()):
            for more in ([], ["--json"]):
                if name == "serve": continue
                fresh()
                r, w = os.pipe()
                process = self.start(arguments + more, stdout=w)
                os.close(w)
                os.close(r)
                self.judge("pipes", f"{name} {' '.join(more)}", process, codes=(0, 1, 2, -signal.SIGPIPE)) # quiet, as head wants it

    def twice(self):
        """Two and three processes on one name, at the same time."""
        names = ["train", "embed", "index", "convert", "convert-hf", "benchmark", "sweep", "average", "tokenizer", "synth", "report"]
        for k in range(self.limit or 200):
            name = names[k % len(names)]
            arguments, output = COMMANDS[name]
            if not os.path.exists("good/" + name):
                fresh()
                self.run("twice", f"{name} alone", arguments)
                keep(name, output)
            fresh()
            processes = [self.start(arguments)]
            time.sleep(self.random.random() * 0.1)
            processes += [self.start(arguments) for _ in range(self.random.randint(1, 2))]
            codes = [self.judge("twice", f"{name}, several at once", p) for p in processes]
            if not 0 in codes: self.finding("twice", name, f"nobody ends well: {codes}: {self.log[-1][3]}")
            self.whole("twice", name, True)
            self.left("twice", name)

    # ---- what must hold ------------------------------------------------------------------------------------------------------------

    def whole(self, section, name, expected=False):
        output = COMMANDS[name][1]
        if output and os.path.exists("made/" + output):
            if os.path.exists("good/" + name) and not filecmp.cmp("made/" + output, "good/" + name, shallow=False):
                self.finding(section, name, f"{output} differs from that of an undisturbed run")
        elif output and expected:
            self.finding(section, name, f"{output} is not there")
        for folder, _, names in os.walk("made"):
            for f in names:
                path = os.path.join(folder, f)
                if not f.endswith(".safetensors") or ".tmp" in f: continue
                check = ["search", "query", "red", "--index", path] if name == "index" else ["info", path]
                if name in ("loss", "embed"): continue # compared by bytes
                r = subprocess.run([self.cloob, *check], capture_output=True, env=self.environment)
                if r.returncode: self.finding(section, name, f"{path} is damaged: {r.stderr.decode()[-200:]}")

    def left(self, section, name):
        partial = [os.path.join(d, f) for d, _, fs in os.walk("made") for f in fs if ".tmp" in f or f.endswith(".partial")]
        if partial: self.finding(section, name, f"left over: {partial}")


def keep(name, output):
    os.makedirs("good", exist_ok=True)
    if output and os.path.exists("made/" + output): shutil.copy("made/" + output, "good/" + name)
    elif not output: open("good/" + name, "w").close()


def fresh():
    shutil.rmtree("made", ignore_errors=True)
    os.makedirs("made")


ODD = ["missing", "empty", "folder", "null", "zero", "fifo", "socket", "loop", "sparse", "random", "cut", "flipped", "doubled", "text", "long name",
       "newline", "not utf-8", "memory", "nul", "deep", "no name", "old", "future"]
EPOCHS = {"old": -2**31, "future": 2**40}


def odd(kind, path, rng):
    """The name of something odd in place of path."""
    data = open(path, "rb").read() if os.path.isfile(path) else b"filepath\ttitle\n"
    name = "odd/" + os.path.basename(path)
    os.makedirs("odd", exist_ok=True)
    if kind == "missing": return "odd/missing"
    if kind == "null": return "/dev/null"
    if kind == "zero": return "/dev/zero"
    if kind == "memory": return "/proc/self/mem"
    if kind == "no name": return ""
    if kind == "long name": return "odd/" + "x" * 5000
    if kind == "deep":
        return "odd/" + "../odd/" * 500 + "x"
    if kind == "folder": os.makedirs(name)
    elif kind == "fifo": os.mkfifo(name)
    elif kind == "loop": os.symlink(os.path.basename(name), name)
    elif kind == "socket":
        s = socket.socket(socket.AF_UNIX)
        s.bind(name)
        s.close()
    elif kind == "sparse":
        with open(name, "wb") as f: f.truncate(1 << 40)
    elif kind in ("newline", "not utf-8"):
        name = b"odd/a\nb" if kind == "newline" else b"odd/\xff\xfe"
        with open(name, "wb") as f: f.write(data)
    elif kind in EPOCHS:
        if os.path.isdir(path):
            shutil.copytree(path, name)
            for d, _, fs in os.walk(name):
                for f in fs: os.utime(os.path.join(d, f), (EPOCHS[kind],) * 2)
        else:
            with open(name, "wb") as f: f.write(data)
            os.utime(name, (EPOCHS[kind],) * 2)
    else:
        if kind == "empty": data = b""
        if kind == "random": data = rng.randbytes(4096)
        if kind == "cut": data = data[:rng.randrange(max(len(data), 1))]
        if kind == "doubled": data += data
        if kind == "text": data = b"Dear reader,\n\nthis is no such file.\n" * 50
        if kind == "nul": data = b"\0" * 5000
        if kind == "flipped" and data:
            at = rng.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1:]
        with open(name, "wb") as f: f.write(data)
    return name


def clear_odd():
    shutil.rmtree("odd", ignore_errors=True)


def world(cloob):
    """A small world and a trained model, as tests/cli/fixture.sh makes them."""
    def c(*arguments): return subprocess.run([cloob, *arguments], capture_output=True)
    if c(*"synth --out world --count 24 --val-count 6 --per-class 2 --size 32 --seed 1 --quiet".split()).returncode: sys.exit(77)
    train = [a if a != "made" else "logs" for a in TRAIN]
    if c("train", *train, "--name", "a").returncode: sys.exit("no model")
    os.symlink("logs/a/checkpoints/latest.safetensors", "model.safetensors")
    with open("world/train.tsv") as f, open("few.tsv", "w") as g: g.writelines(f.readlines()[:9])
    images = sorted(os.path.join(d, f) for d, _, fs in os.walk("world/images") for f in fs)
    os.mkdir("few")
    for i in images[:3]: shutil.copy(i, "few")
    shutil.copy(images[0], "image")
    os.symlink(os.path.join("world/classes", sorted(os.listdir("world/classes"))[0]), "classes")
    for group in "ab":
        with open(group + ".jsonl", "w") as f: f.writelines(f'{{"accuracy": 0.{r}}}\n' for r in range(1, 4))
    with open("prompts.md", "w") as f: f.write("## s\n```\nclasses = ['red', 'blue']\n\ntemplates = ['a {}.']\n```\n")
    os.makedirs("set/test")
    members = []
    for k, i in enumerate(images[:4]):
        os.makedirs("members", exist_ok=True)
        shutil.copy(i, f"members/s{k}.jpg")
        with open(f"members/s{k}.cls", "w") as f: f.write(str(k % 2))
        members += [f"s{k}.jpg", f"s{k}.cls"]
    subprocess.run(["tar", "-C", "members", "-cf", "set/test/0.tar", *members], check=True)
    with open("set/classnames.txt", "w") as f: f.write("red\nblue\n")
    with open("set/zeroshot_classification_templates.txt", "w") as f: f.write("a {c}.\n")
    for arguments in ("embed --checkpoint model.safetensors --data world/train.tsv --out e.safetensors --quiet",
                      "embed --checkpoint model.safetensors --data classes --features pre --out p.safetensors --quiet",
                      "search index few --checkpoint model.safetensors --out i.safetensors --quiet",
                      "tokenizer train --input few.tsv --size 540 --out v.txt"):
        r = c(*arguments.split())
        if r.returncode: sys.exit(f"{arguments}: {r.stderr.decode()}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("cloob")
    p.add_argument("--attempts", type=int, default=12)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--log")
    p.add_argument("sections", nargs="*", default=[])
    o = p.parse_intermixed_args()
    hunt = Hunt(os.path.realpath(o.cloob), o.attempts, o.seed)
    log = os.path.realpath(o.log) if o.log else None
    with open(o.cloob, "rb") as f: hunt.sanitized = bool(re.search(rb"__[at]san_init", f.read())) # they reserve address space
    here = tempfile.mkdtemp(prefix="cloob-hostile-")
    os.chdir(here)
    try:
        world(hunt.cloob)
        if subprocess.run([hunt.cloob, "help", "serve"], capture_output=True).returncode: del COMMANDS["serve"]
        for name, (arguments, _) in COMMANDS.items(): # the undisturbed commands work
            fresh()
            if hunt.run("undisturbed", name, arguments): hunt.finding("undisturbed", name, hunt.log[-1][3])
        for section in o.sections or ["numbers", "files", "kills", "disk", "pipes", "twice"]: getattr(hunt, section)()
    finally:
        os.chdir("/")
        shutil.rmtree(here, ignore_errors=True)
    if log:
        with open(log, "w") as f: f.writelines("\t".join(map(str, row)) + "\n" for row in hunt.log)
    for section, n in hunt.tried.items():
        print(f"{section:12} {n:6} attempts {sum(f[0] == section for f in hunt.findings):4} findings")
    return 1 if hunt.findings else 0


sys.exit(main())
