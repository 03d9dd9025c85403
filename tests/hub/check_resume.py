"""Downloads that are interrupted and continued, and a cache that huggingface_hub reads and writes at the same time.

    check_resume.py CLOOB [COUNT]        COUNT interrupted downloads, 200 by default

Every download is ended several times at a byte of chance: by a kill, by a signal, by a connection that breaks. At its end
every file has its hash, and nothing is left but what huggingface_hub would leave. Where Python has huggingface_hub, both
programs then fetch the same models into one cache at the same time, again with kills, and each finds all of the other's
offline. Exit code 1: a file was wrong."""
import hashlib
import os
import random
import signal
import subprocess
import sys
import time

from hub_server import Hub, Repo
from place import Place, check_cache, files_below

BYTES = 1_500_000
FILES = ["config.json", "tokenizer.json", "model.safetensors"]


def make(i):
    r = random.Random(i)
    return Repo(f"org/model-{i}", {"config.json": b'{"n": %d}' % i, "tokenizer.json": r.randbytes(900),
                                   "model.safetensors": r.randbytes(BYTES)})


def interrupt(place, hub, name, chance):
    """Starts a download and ends it at some byte; false: it was done before."""
    before, until = hub.sent, chance.randrange(BYTES // 4)
    p = place.start("pull", "hf:" + name)
    while hub.sent - before < until and p.poll() is None:
        time.sleep(0.001)
    if p.poll() is None:
        p.send_signal(chance.choice((signal.SIGKILL, signal.SIGINT, signal.SIGTERM)))
    p.communicate()
    return p.returncode != 0


def check_interruptions(count):
    chance, kills, began = random.Random(7), 0, time.time()
    repos = []
    with Hub([]) as hub:
        hub.faults.piece, hub.faults.slow = 30_000, 0.003
        place = Place(hub)
        while kills < count:
            repo = make(len(repos))
            repos.append(repo)
            hub.repos[repo.name] = repo
            for _ in range(min(4, count - kills)):
                kills += interrupt(place, hub, repo.name, chance)
            hub.faults.cut, hub.faults.cut_after = 2, chance.randrange(1, 200_000)
            place.pull("hf:" + repo.name)
            hub.faults.cut = 0
            check_cache(place, repo, FILES)
    left = [f for f in files_below(place.cache) if "incomplete" in f]
    assert not left, left
    resumed = sum(r is not None for _, w, _, r in hub.log if w.startswith("/store"))
    print(f"{kills} interrupted downloads of {len(repos)} models of {BYTES / 1e6} MB, continued {resumed} times, "
          f"{hub.sent / BYTES / len(repos):.2f} times the bytes sent, none corrupt, {time.time() - began:.0f} s", flush=True)


PULL = """
import sys, os
from huggingface_hub import hf_hub_download, snapshot_download, scan_cache_dir
mode, names, files = sys.argv[1], sys.argv[2].split(","), sys.argv[3].split(",")
for n in names:
    if mode == "files":
        for f in files: hf_hub_download(n, f)
    else: snapshot_download(n, local_files_only=mode == "offline")
    if mode == "offline":
        for f in files: hf_hub_download(n, f, local_files_only=True)
if mode == "offline":
    info = scan_cache_dir()
    assert not info.warnings, info.warnings
    assert {r.repo_id for r in info.repos} == set(names), info.repos
"""


def python(place, mode, repos):
    words = [sys.executable, "-c", PULL, mode, ",".join(r.name for r in repos), ",".join(FILES)]
    env = {**place.env, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    if mode == "offline":
        env["HF_HUB_OFFLINE"] = "1"
    return subprocess.Popen(words, env=env, cwd=place.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait(p, may_fail=False):
    err = p.communicate(timeout=300)[1]
    assert p.returncode == 0 or may_fail, err


def check_with_python(count):
    try:
        import huggingface_hub
    except ImportError:
        return print("skipped: no huggingface_hub in this Python")
    chance, began = random.Random(8), time.time()
    repos = [make(1000 + i) for i in range(count)]
    with Hub(repos) as hub:
        hub.faults.piece, hub.faults.slow = 30_000, 0.001
        # one after the other: each finds the other's, without a request
        place = Place(hub)
        wait(python(place, "files", repos[:1]))
        hub.log.clear()
        place.run("info", "hf:" + repos[0].name, code=1)
        assert not hub.log, hub.log
        check_cache(place, repos[0], FILES)
        place = Place(hub)
        place.pull("hf:" + repos[0].name)
        wait(python(place, "offline", repos[:1]))
        # at the same time, in one cache, with kills on both sides
        place = Place(hub)
        for mode in ("files", "all"):
            for repo in repos:
                runs = [python(place, mode, [repo]), place.start("pull", "hf:" + repo.name)]
                time.sleep(chance.random())
                chance.choice(runs).kill()
                for p in runs:
                    wait(p, may_fail=True)
        wait(python(place, "files", repos))
        for repo in repos:
            path = place.pull("hf:" + repo.name)
            for n in FILES:
                with open(os.path.join(path, n), "rb") as f:
                    assert hashlib.sha256(f.read()).digest() == hashlib.sha256(repo.files[n]).digest(), (repo.name, n)
        wait(python(place, "offline", repos))
    print(f"huggingface_hub {huggingface_hub.__version__}: {count} models in one cache, both sides at the same time, "
          f"{time.time() - began:.0f} s", flush=True)


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    check_interruptions(count)
    check_with_python(max(2, count // 20))


main()
