#!/usr/bin/env python3
"""Checks the order of the folders in src and tools, and prints what it saw.

    scripts/lint_layers.py           the include graph, files per folder, the ten longest functions; exit code 1 on a finding

docs/architecture.md has the table of layers; this script reads it, so that page, folders and check agree. Findings:
an include that points up or sideways, a folder without a row or a row without a folder, a vendor header outside the
folders that hide it, a line above 120 columns, a --flag in a string of the library (its errors name the field, and the
command line replaces it by the flag), a public function that nobody uses. KNOWN counts findings that are tolerated; the
numbers only go down."""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_COLUMNS = 120
# Which system headers have a home, and where. NCCL and MPI are communicators: src/dist hides them and nothing else calls them.
VENDORS = (
    (re.compile(r"(cuda\w*|cublas\w*|cudnn\w*|curand\w*|cusolver\w*|mma|nvToolsExt|cooperative_groups)\.h$|(cub|cuda|thrust|cute|cutlass)/"),
     re.compile(r"src/tensor/cuda/vendor\.(h|cuh)$"), "tensor/cuda/vendor.h or vendor.cuh"),
    (re.compile(r"(nccl|mpi)\w*\.h$"), re.compile(r"src/dist/"), "src/dist"),
    (re.compile(r"curl/"), re.compile(r"src/hub/curl\.h$"), "hub/curl.h"),
    (re.compile(r"(cblas|openblas|lapacke)\w*(\.h|/.*)$"), re.compile(r"src/.*\bcpu/"), "a folder cpu"),
)
FLAG_HOMES = {"tools/cli", "tools/serve"}
TOPS = (("cloob/", "include/"), (("cli/", "serve/", "lab/"), "tools/"), ("", "src/"))  # how an include begins, and where it is
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)
FLAG = re.compile(r'"(?:[^"\\\n]|\\.)*?(?<![\w-])--[a-z][a-z-]+(?:[^"\\\n]|\\.)*"')
KNOWN = {"flag": 0, "columns": 0}
SUFFIXES = {".c", ".h", ".cu", ".cuh", ".inc", ".def"}


def table():
    """{room: rooms it uses directly}, in the order of the page; rooms as src/..., include/cloob."""
    rows = {}
    for line in (ROOT / "docs/architecture.md").read_text().splitlines():
        m = re.match(r"\| `((?:src|include|tools)/[\w/]+)` \|.*\|([^|]*)\|$", line)
        if m:
            names = [n.strip(" `") for n in m.group(2).split(",") if n.strip(" `")]
            rows[m.group(1)] = [n if n.startswith(("include/", "tools/")) else "src/" + n for n in names]
    return rows


def closure(rows):
    """{room: everything it may include from}."""
    may = {}

    def reach(room):
        if room not in may:
            may[room] = {"include/cloob", room}
            for below in rows[room]:
                may[room] |= reach(below)
        return may[room]

    for room in rows:
        reach(room)
    return may


def room_of(path, rows):
    fits = [r for r in rows if path.startswith(r + "/")]
    return max(fits, key=len) if fits else None


def functions(path, text):
    """(lines, name, path:line) of every function; a body begins with a brace of its own line."""
    lines = text.splitlines()
    begin = 0
    for i, line in enumerate(lines):
        if line == "{":
            begin = i
        elif line == "}" and begin:
            head = begin - 1
            while head > 0 and lines[head - 1] and lines[head - 1][0] not in "}#/ \t" and not lines[head - 1].endswith(";"):
                head -= 1
            name = re.search(r"(?!__)\b(\w+)\s*\((?!\()", re.sub(r"__\w+\s*\([^()]*\)", "", " ".join(lines[head:begin])))
            yield i - head + 1, name.group(1) if name else "?", f"{path}:{head + 1}"
            begin = 0


def unused_public():
    """Names of public functions that no command, test, example or binding uses; a test of misuse alone is no use."""
    names = set()
    for header in (ROOT / "include/cloob").glob("*.h"):
        names |= set(re.findall(r"CLOOB_API[^;]*?\b(cloob_\w+)\s*\(", re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)))
    seen = collections.Counter()
    for top in ("src", "tools", "tests", "examples", "python", "bench"):
        for file in (ROOT / top).rglob("*"):
            if file.suffix in SUFFIXES | {".py"} and file.name != "test_misuse.c":
                seen.update(re.findall(r"\bcloob_\w+", file.read_text(errors="replace")))
    return sorted(n for n in names if seen[n] < 2)  # its definition is the first


def main():
    rows = table()
    may = closure(rows)
    bad = []
    known = collections.defaultdict(list)
    graph = collections.Counter()
    found = []
    folders = collections.Counter()
    vendors = 0
    files = sorted(p for top in ("src", "tools", "include") for p in (ROOT / top).rglob("*") if p.suffix in SUFFIXES)
    for file in files:
        path = file.relative_to(ROOT).as_posix()
        text = file.read_text()
        room = room_of(path, rows)
        folders[path.rsplit("/", 1)[0]] += 1
        if not room:
            bad.append(f"{path}: its folder has no row in docs/architecture.md")
            continue
        for m in INCLUDE.finditer(text):
            at = f"{path}:{text.count(chr(10), 0, m.start()) + 1}"
            for header, home, name in VENDORS:
                vendors += bool(header.match(m.group(2)))
                if header.match(m.group(2)) and not home.match(path):
                    bad.append(f"{at}: the vendor's {m.group(2)} belongs into {name}")
            if m.group(1) == "<":
                continue
            to = next(top + m.group(2) for names, top in TOPS if m.group(2).startswith(names))
            other = room_of(to, rows)
            if not other:
                continue  # generated, or next to the file
            if other != room:
                graph[room, other] += 1
            if other not in may[room]:
                bad.append(f"{at}: {room} may not include from {other}")
        for i, line in enumerate(text.splitlines()):
            if len(line) > MAX_COLUMNS and "clang-format off" not in text:
                known["columns"].append(f"{path}:{i + 1}: {len(line)} columns")
        if room not in FLAG_HOMES and (room != "include/cloob" or file.suffix == ".def"):
            code = re.sub(r"/\*.*?\*/", lambda c: "\n" * c.group(0).count("\n"), text, flags=re.S)
            for m in FLAG.finditer(code):
                known["flag"].append(f"{path}:{code.count(chr(10), 0, m.start()) + 1}: a flag in the library: {m.group(0)[:80]}")
        if file.suffix in {".c", ".cu"}:
            found += functions(path, text)
    unused = unused_public()
    bad += [f"include/cloob: nobody uses {name}" for name in unused]
    for kind, lines in known.items():
        if len(lines) > KNOWN[kind]:
            bad += lines

    print("include graph (folder -> folder: includes)")
    for room in rows:
        uses = sorted(((n, b) for (a, b), n in graph.items() if a == room), key=lambda u: list(rows).index(u[1]))
        if uses:
            print(f"  {room:14} -> " + ", ".join(f"{b.removeprefix('src/')} {n}" for n, b in uses))
    wrong = sum("may not include" in b for b in bad)
    print(f"upward or sideways includes: {wrong}")
    print(f"vendor headers: {vendors} includes, outside their homes {sum('the vendor' in b for b in bad)}")
    top = folders.most_common(5)
    print(f"files per folder: {len(files)} in {len(folders)} folders, most: " + ", ".join(f"{f} {n}" for f, n in top))
    print(f"--flag strings outside {' and '.join(sorted(FLAG_HOMES))}: {len(known['flag'])}")
    print(f"public functions that nobody uses: {len(unused)}")
    print(f"lines above {MAX_COLUMNS} columns: {len(known['columns'])}")
    lengths = sorted(n for n, _, _ in found)
    print(f"functions: {len(lengths)}, median {lengths[len(lengths) // 2]} lines, 90 % up to {lengths[len(lengths) * 9 // 10]}; the ten longest:")
    for n, name, at in sorted(found, reverse=True)[:10]:
        print(f"  {n:4} {name} ({at})")
    for row in rows:
        if not (ROOT / row).is_dir():
            print(f"docs/architecture.md: there is no {row} yet")
    for b in bad:
        print(b, file=sys.stderr)
    return bool(bad)


sys.exit(main())
