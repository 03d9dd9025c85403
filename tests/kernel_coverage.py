#!/usr/bin/env python3
"""Which GPU kernels of the library have been launched, and which have not.

    tests/kernel_coverage.py BUILD FILE...      BUILD: a build folder with libcloob.a; FILE: what tests/kernel_launches.c wrote
    tests/kernel_coverage.py BUILD --names      the kernels' names, each as it lies in mangled names: a filter for tools

A kernel is a __global__ function of src; its variants are the instances of a template that the library holds. Prints how
many of both were launched, each kernel with its variants, and the kernels that no file names. Exit code 1 when there are
any."""
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def library(build):
    """{object: mangled names of its kernels}: what objects give the runtime to register."""
    found, current = collections.defaultdict(set), ""
    out = subprocess.run(["readelf", "-W", "-p", ".rodata.str1.1", "-p", ".rodata.str1.8", build / "libcloob.a"],
                         capture_output=True, check=False).stdout.decode("utf-8", "replace")
    for line in out.splitlines():
        if line.startswith("File: "):
            current = re.sub(r".*\(([^)]*)\)$", r"\1", line)
        elif m := re.match(r"\s*\[\s*[0-9a-f]+\]\s+(_Z\w+)$", line):
            found[current].add(m[1])
    return {k: v for k, v in found.items() if k.endswith(".cu.o")}


def demangle(names):
    names = sorted(names)
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, out.splitlines()))


def function_of(text):
    """forward_kernel of "void forward_kernel<64, true>(float*)"."""
    text = text.replace("(anonymous namespace)::", "")
    text = re.sub(r"^void ", "", text)
    return re.split(r"[<(]", text, maxsplit=1)[0].split("::")[-1]


def declared():
    """{name of a kernel: files of src that declare it}."""
    where = collections.defaultdict(set)
    for path in sorted(ROOT.glob("src/**/*.cu*")):
        for m in re.finditer(r"__global__\s+void\s+(?:__launch_bounds__\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*)?(\w+)\s*\(",
                             path.read_text()):
            where[m[1]].add(path.name)
    return where


def kernels_of(build, where):
    """{(file, kernel): mangled names of its variants}."""
    held = library(build)
    text = demangle(set().union(*held.values()))
    kernels = collections.defaultdict(set)
    for obj, names in held.items():
        for n in names:
            if function_of(text[n]) in where:
                kernels[obj[:-2], function_of(text[n])].add(n)
    return kernels


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    where = declared()
    kernels = kernels_of(pathlib.Path(sys.argv[1]), where)
    if sys.argv[2] == "--names":
        print("\n".join(sorted({f"{len(name)}{name}" for _, name in kernels})))
        return
    ran = {line.strip() for f in sys.argv[2:] for line in open(f, encoding="utf-8")}
    missed = [k for k, v in sorted(kernels.items()) if not v & ran]
    variants = set().union(*kernels.values())
    print(f"{len(kernels) - len(missed)} of {len(kernels)} kernels, {len(variants & ran)} of {len(variants)} variants")
    for (obj, name), v in sorted(kernels.items()):
        print(f"  {obj}: {name} {len(v & ran)} of {len(v)}")
    for obj, name in missed:
        print(f"not launched: {obj}: {name}")
    absent = sorted(set(where) - {name for _, name in kernels})
    if absent:
        print("declared, but not in this library:", ", ".join(absent))
    sys.exit(1 if missed else 0)


main()
