#!/usr/bin/env python3
"""A software bill of materials as SPDX 2.3 JSON: sbom.py BUILD_DIR FILE... > cloob.spdx.json

Lists cloob, the libraries that the files need (readelf), those that cloob loads on first use (the names in the sources), and
those linked statically, each with the Debian package, version and licence file that dpkg knows. No time stamp of its own: the
date is SOURCE_DATE_EPOCH, so that two builds give the same bytes."""
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def output(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def needed(file):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-W", "-d", file))


def loaded():
    """Files of shared_object tables: the first name of each."""
    names = set()
    for folder in ("src", "tools"):
        for path in sorted((ROOT / folder).rglob("*.c")):
            names.update(re.findall(r'\.file = \{ "(lib[^"]+)"', path.read_text(encoding="utf-8")))
    return sorted(n for n in names if not n.startswith("libcloob"))


def resolve(soname):
    for line in output("ldconfig", "-p").splitlines():
        if line.split(" ")[0].strip() == soname:
            return line.rsplit("=> ", 1)[1]
    return ""


def package_of(soname):
    """(package, version) of the file in Debian's database, or nothing elsewhere."""
    path = os.path.realpath(resolve(soname)) if resolve(soname) else ""
    for name in (path, path.replace("/usr/lib", "/lib", 1), "/usr" + path):
        owner = output("dpkg", "-S", name).split(":")[0] if path else ""
        if owner:
            return owner, output("dpkg-query", "-W", "-f", "${Version}", owner).splitlines()[0]
    return "", ""


def entry(soname, how):
    package, version = package_of(soname)
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]", "-", soname),
        "name": package or soname,
        "versionInfo": version or "unknown",
        "downloadLocation": "NOASSERTION",
        "licenseConcluded": "NOASSERTION",
        "comment": f"{soname}, {how}" + (f"; licence: /usr/share/doc/{package}/copyright" if package else ""),
    }


def main():
    version = re.search(r"project\(cloob VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    linked = sorted({n for f in sys.argv[2:] for n in needed(f) if not n.startswith("ld-linux")})
    parts = [entry(n, "linked") for n in linked] + [entry(n, "loaded on first use") for n in loaded() if n not in linked]
    seed = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    when = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    own = {"SPDXID": "SPDXRef-cloob", "name": "cloob", "versionInfo": version, "downloadLocation": "NOASSERTION",
           "licenseConcluded": "MIT", "licenseDeclared": "MIT", "copyrightText": "Copyright (c) 2026 the cloob authors"}
    print(json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"cloob-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/cloob-{version}-{seed}",
        "creationInfo": {"created": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: packaging/sbom.py"]},
        "packages": [own] + parts,
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-cloob"}]
        + [{"spdxElementId": "SPDXRef-cloob", "relationshipType": "DEPENDS_ON", "relatedSpdxElement": p["SPDXID"]} for p in parts],
    }, indent=1))


if __name__ == "__main__":
    main()
