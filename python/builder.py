"""Builds the wheel: the package and libcloob.so in one file. A build backend (PEP 517) without dependencies.

    pip wheel python/ --no-deps -w dist        or        python3 python/builder.py dist

The library is the one in ../build, or that named by CLOOB_LIBRARY. What it is linked with (oneDNN, libjpeg ...) is taken
from the system, so the wheel is for machines where scripts/install-deps.sh has run.
"""
from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
import sysconfig
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "cloob"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same input gives the same bytes


def _version() -> str:
    """The one the build declares, so that there is a single place for it."""
    text = (HERE.parent / "CMakeLists.txt").read_text() if (HERE.parent / "CMakeLists.txt").exists() else ""
    found = re.search(r"project\(cloob VERSION ([0-9.]+)", text)
    if not found:
        raise SystemExit(f"{HERE.parent / 'CMakeLists.txt'}: no version found; build from the repository")
    return found.group(1)


def _library() -> Path:
    path = Path(os.environ.get("CLOOB_LIBRARY", HERE.parent / "build" / "libcloob.so"))
    if not path.exists():
        raise SystemExit(f"{path}: no library to put into the wheel; run make, or name one with CLOOB_LIBRARY")
    return path.resolve()


def _metadata() -> str:
    return (
        f"Metadata-Version: 2.1\nName: cloob\nVersion: {_version()}\n"
        "Summary: CLOOB (Hopfield retrieval and InfoLOOB): embeddings of images and texts, and the objective\n"
        "Requires-Python: >=3.9\nRequires-Dist: numpy>=1.23\n"
        "Provides-Extra: torch\nRequires-Dist: torch; extra == 'torch'\n"
    )


def _tag() -> str:
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def _files(bundled: bool) -> dict[str, bytes]:
    info = f"cloob-{_version()}.dist-info"
    files = {}
    if bundled:
        for path in sorted(PACKAGE.rglob("*")):
            if path.suffix in (".py", ".typed"):
                files[f"cloob/{path.relative_to(PACKAGE).as_posix()}"] = path.read_bytes()
        files["cloob/libcloob.so"] = _library().read_bytes()
    else:
        files["cloob.pth"] = f"{HERE}\n".encode()
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: cloob\nRoot-Is-Purelib: false\nTag: {_tag()}\n".encode()
    licence = HERE.parent / "LICENSE"
    if licence.exists():
        files[f"{info}/LICENSE"] = licence.read_bytes()
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    return files


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _write(folder: str, bundled: bool) -> str:
    name = f"cloob-{_version()}-{_tag()}.whl"
    Path(folder).mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as out:
        for path, data in _files(bundled).items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, data)
    return name


# ---- what pip calls


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    return _write(wheel_directory, bundled=True)


def build_editable(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    return _write(wheel_directory, bundled=False)


def build_sdist(sdist_directory: str, config_settings: object = None) -> str:
    raise SystemExit("the package is built from the repository; there is no source distribution")


if __name__ == "__main__":
    print(Path(sys.argv[1] if len(sys.argv) > 1 else "dist") / build_wheel(sys.argv[1] if len(sys.argv) > 1 else "dist"))
