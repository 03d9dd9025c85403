"""What the wheel carries besides its own files: the libraries that libcloob and the program are linked with, under names of
their own so that no other package's copy is used instead, those that they open on first use, their licences, and a list
of them (SBOM, CycloneDX).

    python3 python/bundle.py FOLDER FILE...      licences and sbom.cdx.json of what FILEs (programs, libraries) need, into FOLDER

Needs patchelf, ldd and objdump, and dpkg for licences.
"""
from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

# What every Linux with glibc has; the platform tag says which glibc. (PEP 600; libstdc++ and libgcc must be the process's own.)
SYSTEM = re.compile(r"^(ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libutil|libgcc_s|libstdc\+\+)\.so\.\d+$")
LIBRARIES = "cloob/libs"
# Opened on first use by these names (core/shared_object.h). Others (libheif, cairo, MPI, CUDA) are the system's, where it has them.
# The system's libcurl.so.4 is preferred, because it gets security updates; libcurl-gnutls.so.4 is for a machine without it.
LOADED = ("libgomp.so.1", "libtiff.so.6", "libmicrohttpd.so.12", "libcurl-gnutls.so.4")
AUTHORITIES = Path("/usr/share/ca-certificates/mozilla")  # not /etc/ssl/certs, which may have this machine's own


def _run(*command: object) -> str:
    try:
        return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise SystemExit(f"{command[0]}: not found; scripts/install-deps.sh test installs it") from None
    except subprocess.CalledProcessError as e:
        raise SystemExit(f"{' '.join(map(str, command))}: {e.stderr.strip()}") from None


def needed(path: Path) -> dict[str, Path]:
    """By name, every library outside the system's that a file needs, directly or through others."""
    found = {}
    for line in _run("ldd", path).splitlines():
        name, _, rest = line.strip().partition(" => ")
        if not rest or SYSTEM.match(name):
            continue
        if rest.startswith("not found"):
            raise SystemExit(f"{path}: needs {name}, which is not installed")
        found[name] = Path(rest.split(" (")[0])
    return found


def loaded() -> dict[str, Path]:
    """Where the dynamic linker finds the libraries of LOADED."""
    known = dict(re.findall(r"^\s*(\S+) \(libc6,x86-64[^)]*\) => (\S+)$", _run("/sbin/ldconfig", "-p"), re.MULTILINE)[::-1])
    missing = [name for name in LOADED if name not in known]
    if missing:
        raise SystemExit(f"{', '.join(missing)}: not installed; scripts/install-deps.sh installs them")
    return {name: Path(known[name]) for name in LOADED}


def all_needed(files: list[Path]) -> dict[str, Path]:
    """What the files need, what they open on first use, and what that needs."""
    opened = loaded()
    found = dict(opened)
    for path in [*files, *opened.values()]:
        found.update({name: p for name, p in needed(path).items() if name not in opened})
    return found


def certificates() -> bytes:
    """Mozilla's certification authorities, for a machine that has none."""
    files = sorted(AUTHORITIES.glob("*.crt"))
    if not files:
        raise SystemExit(f"{AUTHORITIES}: no certificates; scripts/install-deps.sh installs ca-certificates")
    return b"".join(f.read_bytes() for f in files)


def glibc(paths: list[Path]) -> tuple[int, int]:
    """The newest version of glibc whose symbols the files use."""
    versions = {tuple(map(int, v)) for p in paths for v in re.findall(r"GLIBC_(\d+)\.(\d+)", _run("objdump", "-T", p))}
    newest = max(versions, default=(2, 17))
    return newest[0], newest[1]


def platform_tag(paths: list[Path]) -> str:
    major, minor = glibc(paths)
    return f"manylinux_{major}_{minor}_{_run('uname', '-m').strip()}"


def bundle(files: dict[str, Path], work: Path) -> dict[str, Path]:
    """Copies of files (by their place in the wheel) and of the libraries that they need, all of which find each other."""
    libraries = all_needed(list(files.values()))
    names = {name: name if name in LOADED else _own_name(name, path) for name, path in libraries.items()}
    out: dict[str, Path] = {}
    for place, path in [*files.items(), *((f"{LIBRARIES}/{names[n]}", p) for n, p in sorted(libraries.items()))]:
        copy = work / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path.resolve(), copy)
        up = "/".join([".."] * (place.count("/") - 1))
        libs = "$ORIGIN" if place.startswith(LIBRARIES) else "$ORIGIN/" + (up + "/" if up else "") + "libs"
        if not place.startswith(LIBRARIES):
            _run("strip", "--strip-unneeded", copy)
        _patch(copy, names, Path(place).name if place.startswith(LIBRARIES) else None, libs)
        out[place] = copy
    return out


def _patch(file: Path, names: dict[str, str], soname: str | None, rpath: str) -> None:
    """One change per call: patchelf 0.14 loses some of several."""
    for wanted in _run("patchelf", "--print-needed", file).split():
        if names.get(wanted, wanted) != wanted:
            _run("patchelf", "--replace-needed", wanted, names[wanted], file)
    if soname:
        _run("patchelf", "--set-soname", soname, file)
    _run("patchelf", "--set-rpath", rpath, file)
    left = [n for n in _run("patchelf", "--print-needed", file).split() if names.get(n, n) != n]
    if left:
        raise SystemExit(f"{file}: patchelf left {', '.join(left)}")


def _own_name(name: str, path: Path) -> str:
    """libjpeg.so.62 becomes libjpeg-1a2b3c4d.so.62."""
    digest = hashlib.sha256(path.resolve().read_bytes()).hexdigest()[:8]
    stem, _, rest = name.partition(".so")
    return f"{stem}-{digest}.so{rest}"


# ---- licences


@dataclass(frozen=True)
class Package:
    """A Debian package of which files are carried."""

    name: str
    version: str
    source: str
    copyright: bytes


def packages(paths: list[Path]) -> list[Package]:
    """The packages that own the files, each once, by name."""
    found = {}
    for path in paths:
        name = _owner(path)
        if name in found:
            continue
        version, source = _run("dpkg-query", "-W", "-f", "${Version} ${source:Package}", name).split()
        text = Path(f"/usr/share/doc/{name.split(':')[0]}/copyright")
        if not text.exists():
            raise SystemExit(f"{name}: {text} is missing; its licence has to go with the library")
        found[name] = Package(name.split(":")[0], version, source, text.read_bytes())
    return sorted(found.values(), key=lambda p: p.name)


def _owner(path: Path) -> str:
    real = path.resolve()
    for candidate in (path, real, Path("/usr") / str(path).lstrip("/"), Path(str(real).replace("/usr/", "/", 1))):
        done = subprocess.run(["dpkg", "-S", str(candidate)], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split(": ")[0].split(",")[0]
    raise SystemExit(f"{path}: no Debian package owns it, so its licence is not known")


def sbom(version: str, parts: list[Package]) -> bytes:
    """CycloneDX 1.5; the same parts give the same bytes."""
    components = [{"type": "library", "name": p.name, "version": p.version, "purl": f"pkg:deb/debian/{p.name}@{p.version}",
                   "licenses": [{"license": {"name": n}} for n in _licence_names(p.copyright)]} for p in parts]
    content = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
               "metadata": {"component": {"type": "library", "name": "cloob", "version": version, "licenses": [{"license": {"id": "MIT"}}]}},
               "components": components}
    seed = json.dumps(content, sort_keys=True)
    content["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, seed)}"
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


def _licence_names(text: bytes) -> list[str]:
    """The short names of a machine-readable copyright file."""
    names = re.findall(r"^License:[ \t]*(\S.*)$", text.decode("utf-8", "replace"), re.MULTILINE)
    return sorted({n.strip() for n in names}) or ["see the copyright file"]


def licence_files(version: str, files: list[Path]) -> dict[str, bytes]:
    """By name: licences/PACKAGE/copyright of every package that the files need, and sbom.cdx.json."""
    parts = packages([*sorted(set(all_needed(files).values())), next(iter(sorted(AUTHORITIES.glob("*.crt"))))])
    out = {f"licenses/{p.name}/copyright": p.copyright for p in parts}
    out["sboms/cloob.cdx.json"] = sbom(version, parts)
    return out


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    from builder import version

    for name, data in licence_files(version(), [Path(f) for f in sys.argv[2:]]).items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
