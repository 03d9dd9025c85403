"""Builds the wheel: the package, libcloob.so, the program, and the libraries that both need. A build backend (PEP 517) without
Python dependencies.

    pip wheel python/ --no-deps -w dist        or        python3 python/builder.py dist

The library and the program are those in ../build, or in the folder that CLOOB_BUILD names. With --plain the wheel holds
libcloob.so alone, for a machine where scripts/install-deps.sh has run. Equal inputs give equal bytes; the time stamps are
SOURCE_DATE_EPOCH, or 1980.
"""
from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
import sysconfig
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bundle  # noqa: E402

PACKAGE = HERE / "cloob"
PROGRAM = "cloob/bin/cloob"

# Starts the program of the installed package, without importing the package. NVIDIA's wheels hold the CUDA libraries.
SCRIPT = b'''#!python
import glob, importlib.util, os, sys

here = next(iter(importlib.util.find_spec("cloob").submodule_search_locations))
cuda = glob.glob(os.path.join(os.path.dirname(here), "nvidia", "*", "lib"))
if cuda:
    os.environ["LD_LIBRARY_PATH"] = ":".join([*filter(None, [os.environ.get("LD_LIBRARY_PATH")]), *sorted(cuda)])
program = os.path.join(here, "bin", "cloob")
os.execv(program, [program, *sys.argv[1:]])
'''


def version() -> str:
    """The one the build declares, so that there is a single place for it."""
    text = (HERE.parent / "CMakeLists.txt").read_text() if (HERE.parent / "CMakeLists.txt").exists() else ""
    found = re.search(r"project\(cloob VERSION ([0-9.]+)", text)
    if not found:
        raise SystemExit(f"{HERE.parent / 'CMakeLists.txt'}: no version found; build from the repository")
    return found.group(1)


def _built(name: str) -> Path:
    folder = Path(os.environ.get("CLOOB_BUILD", HERE.parent / "build"))
    path = Path(os.environ["CLOOB_LIBRARY"]) if name == "libcloob.so" and "CLOOB_LIBRARY" in os.environ else folder / name
    if not path.exists():
        raise SystemExit(f"{path}: not built; run make, or name the folder with CLOOB_BUILD")
    return path.resolve()


def _metadata() -> str:
    return (
        f"Metadata-Version: 2.1\nName: cloob\nVersion: {version()}\n"
        "Summary: CLOOB (Hopfield retrieval and InfoLOOB): embeddings of images and texts, search, training, the objective\n"
        "License: MIT\nRequires-Python: >=3.9\nRequires-Dist: numpy>=1.23\n"
        "Provides-Extra: torch\nRequires-Dist: torch; extra == 'torch'\n"
        "Provides-Extra: mteb\nRequires-Dist: mteb>=2; extra == 'mteb'\n"
        "Classifier: Operating System :: POSIX :: Linux\nClassifier: Programming Language :: Python :: 3\nClassifier: Typing :: Typed\n"
    )


def _plain_tag() -> str:
    return re.sub(r"[-.]", "_", sysconfig.get_platform())


def _package() -> dict[str, bytes]:
    paths = [p for p in sorted(PACKAGE.rglob("*")) if p.suffix in (".py", ".typed")]
    return {f"cloob/{p.relative_to(PACKAGE).as_posix()}": p.read_bytes() for p in paths}


def _bundled(info: str) -> tuple[dict[str, bytes], str]:
    """The files with every library inside, and the platform."""
    built = {"cloob/libcloob.so": _built("libcloob.so"), PROGRAM: _built("cloob")}
    with tempfile.TemporaryDirectory() as work:
        copies = bundle.bundle(built, Path(work))
        files = {place: path.read_bytes() for place, path in copies.items()}
        tag = bundle.platform_tag(list(copies.values()))
    files[f"{bundle.LIBRARIES}/ca-certificates.crt"] = bundle.certificates()
    files[f"cloob-{version()}.data/scripts/cloob"] = SCRIPT
    files.update({f"{info}/{name}": data for name, data in bundle.licence_files(version(), list(built.values())).items()})
    return {**_package(), **files}, tag


def _files(kind: str) -> tuple[dict[str, bytes], str]:
    info = f"cloob-{version()}.dist-info"
    if kind == "bundled":
        files, platform = _bundled(info)
    elif kind == "plain":
        files, platform = {**_package(), "cloob/libcloob.so": _built("libcloob.so").read_bytes()}, _plain_tag()
    else:
        files, platform = {"cloob.pth": f"{HERE}\n".encode()}, _plain_tag()
    tag = f"py3-none-{platform}"
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: cloob\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/licenses/LICENSE"] = (HERE.parent / "LICENSE").read_bytes()
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    return files, tag


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _write(folder: str, kind: str) -> str:
    files, tag = _files(kind)
    name = f"cloob-{version()}-{tag}.whl"
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]  # a zip begins in 1980
    Path(folder).mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(Path(folder) / name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, when)
            entry.external_attr = (0o100755 if path == PROGRAM or ".data/scripts/" in path else 0o100644) << 16  # S_IFREG: pip looks
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, data)
    return name


# ---- what pip calls


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    return _write(wheel_directory, "bundled")


def build_editable(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    return _write(wheel_directory, "editable")


def build_sdist(sdist_directory: str, config_settings: object = None) -> str:
    raise SystemExit("the package is built from the repository; there is no source distribution")


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--plain"]
    target = arguments[0] if arguments else "dist"
    print(Path(target) / _write(target, "plain" if "--plain" in sys.argv else "bundled"))
