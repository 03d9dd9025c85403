"""cloob pull against a hub on loopback: the cache, interruptions, faults, refusals, and models by name in other commands.

    test_pull.py CLOOB [CASE]"""
import email.utils
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request

from hub_server import Hub, Repo, git_sha1, make_certificate
from place import Place, check_cache, files_below, read

DATA = random.Random(1).randbytes(300_000)
SMALL = {"config.json": b'{"model_type": "clip"}', "tokenizer.json": b'{"version": "1.0"}', "README.md": b"# model"}
WEIGHTS = {**SMALL, "model.safetensors": DATA, "pytorch_model.bin": DATA[:1000], "tf_model.h5": DATA[:2000]}


def case_layout():
    """What is fetched, where it goes, and who gets the token."""
    repo = Repo("org/model", WEIGHTS)
    with Hub([repo]) as hub:
        place = Place(hub, HF_TOKEN="secret")
        path = place.pull("hf:org/model")
        assert path == check_cache(place, repo, ["config.json", "tokenizer.json", "model.safetensors"])
        absent = os.path.join(place.repo(), ".no_exist", repo.commit)
        assert "merges.txt" in os.listdir(absent) and "config.json" not in os.listdir(absent)
        assert all(os.path.getsize(os.path.join(absent, n)) == 0 for n in os.listdir(absent))
        locks = os.listdir(os.path.join(place.cache, ".locks", "models--org--model"))
        assert repo.etag("model.safetensors") + ".lock" in locks
        for _, where, token, _ in hub.log:
            assert token == ("" if where.startswith("/store") else "Bearer secret"), where
        # a second pull asks for the commit and the list; --checkpoint asks nothing
        hub.log.clear()
        assert place.pull("hf:org/model") == path and len(hub.log) == 2, hub.log
        hub.log.clear()
        assert place.run("info", "hf:org/model", code=1).err and not hub.log
        assert json.loads(place.run("pull", "hf:org/model", "--json").out) == {"name": "hf:org/model", "path": path}


def case_certificates():
    """https: an authority that is not known is refused, one that SSL_CERT_FILE or REQUESTS_CA_BUNDLE names is accepted."""
    place = Place()
    file = os.path.join(place.home, "authority.pem")
    if not make_certificate(file):
        return print("certificates: skipped, no openssl")
    with Hub([Repo("org/model", {"model.safetensors": DATA})], file) as hub:
        place.env["HF_ENDPOINT"] = hub.url
        refused = place.pull("hf:org/model", code=1)
        assert "certificate" in refused.lower() and "\n" not in refused, refused
        assert "snapshots" in place.pull("hf:org/model", SSL_CERT_FILE=file)
        place.env.update(HF_HUB_CACHE=os.path.join(place.home, "other"), SSL_CERT_FILE="", REQUESTS_CA_BUNDLE=file)
        assert "snapshots" in place.pull("hf:org/model")


def case_roots():
    """Every variable that names the cache, in order."""
    repo = Repo("org/model", {"model.safetensors": DATA})
    with Hub([repo]) as hub:
        for env, root in (({"XDG_CACHE_HOME": "x"}, "x/huggingface/hub"), ({"HF_HOME": "h", "XDG_CACHE_HOME": "x"}, "h/hub"),
                          ({"HUGGINGFACE_HUB_CACHE": "o", "HF_HOME": "h"}, "o"),
                          ({"HF_HUB_CACHE": "c", "HUGGINGFACE_HUB_CACHE": "o"}, "c"), ({"HF_HOME": "~/t"}, "t/hub"),
                          ({"HF_HUB_CACHE": "$HOME/v/${USER_OF_CACHE}/$NOT_SET", "USER_OF_CACHE": "me"}, "v/me/$NOT_SET")):
            place = Place(hub)
            env = {k: v if v[0] in "~$" or k == "USER_OF_CACHE" else os.path.join(place.home, v) for k, v in env.items()}
            assert place.pull("hf:org/model", **env).startswith(os.path.join(place.home, root, "models--org--model/snapshots/"))


def case_endpoints():
    """HF_ENDPOINT with slashes at its end, or with a path."""
    with Hub([Repo("org/model", WEIGHTS)]) as hub:
        hub.faults.pages = 2
        for prefix, end in (("", "//"), ("/mirror/hf", ""), ("/mirror/hf", "/")):
            hub.faults.prefix = prefix
            assert "snapshots" in Place(hub).pull("hf:org/model", HF_ENDPOINT=hub.url + prefix + end)
        for wrong in ("127.0.0.1:9", "ftp://127.0.0.1"):
            assert "is not a URL" in Place(hub).pull("hf:org/model", code=2, HF_ENDPOINT=wrong)


def case_token_file():
    with Hub([Repo("org/model", WEIGHTS)]) as hub:
        hub.faults.token = "from-file"
        place = Place(hub)
        assert "has no such model; a private one needs HF_TOKEN" in place.pull("hf:org/model", code=1)
        os.makedirs(os.path.join(place.home, "h"))
        with open(os.path.join(place.home, "h/token"), "w") as f:
            f.write("from-file\n")
        place.pull("hf:org/model", HF_HOME=os.path.join(place.home, "h"))


def case_offline_and_updates():
    old, new = Repo("org/model", WEIGHTS), Repo("org/model", {**WEIGHTS, "config.json": b"{}"})
    with Hub([old]) as hub:
        place = Place(hub)
        assert "HF_HUB_OFFLINE disables" in place.pull("hf:org/model", code=1, HF_HUB_OFFLINE="1")
        first = place.pull("hf:org/model")
        hub.repos["org/model"] = new
        hub.log.clear()
        assert place.pull("hf:org/model", HF_HUB_OFFLINE="1") == first and not hub.log
        second = place.pull("hf:org/model")
        assert second.endswith(new.commit) and sum(w.startswith("/store") for _, w, _, _ in hub.log) == 0  # shared blob
        assert place.pull("hf:org/model@" + new.commit) == second
        assert "no revision nine" in place.pull("hf:org/model@nine", code=1)
    # the hub is gone: the copy is used
    p = place.run("pull", "hf:org/model")
    assert p.out.strip() == second and "using the copy in the cache" in p.err, p.err
    assert "cannot download from" in place.pull("hf:org/other", code=1)


def case_interrupted():
    """Killed downloads continue; no byte is fetched twice but what was on its way."""
    repo = Repo("org/model", {**SMALL, "model.safetensors": random.Random(2).randbytes(4_000_000)})
    with Hub([repo]) as hub:
        place = Place(hub)
        hub.faults.slow, hub.faults.piece = 0.004, 20_000
        kills = 0
        while kills < 6:
            p = place.start("pull", "hf:org/model")
            before = hub.sent
            while hub.sent - before < 400_000 and p.poll() is None:
                time.sleep(0.005)
            p.send_signal(signal.SIGKILL if kills % 2 else signal.SIGINT)
            err = p.communicate()[1]
            assert p.returncode in (-9, 130), (p.returncode, err)
            assert kills % 2 or "run the command again to continue the download" in err, err
            assert not os.path.exists(os.path.join(place.repo(), "refs"))
            kills += 1
        place.pull("hf:org/model")
        check_cache(place, repo, ["config.json", "tokenizer.json", "model.safetensors"])
        assert hub.sent < 8_000_000, hub.sent
        assert sum(r is not None for _, w, _, r in hub.log if w.startswith("/store")) >= 3


def case_full_disk():
    """A limit on the size of files stands for a full disk: one line, no file under its final name, and a later pull completes."""
    repo = Repo("org/model", WEIGHTS)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Hub([repo]) as hub:
        place = Place(hub)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
        try:
            error = place.pull("hf:org/model", code=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert "cannot write: File too large" in error, error
        assert repo.etag("model.safetensors") not in os.listdir(os.path.join(place.repo(), "blobs"))
        place.pull("hf:org/model")
        check_cache(place, repo, ["config.json", "tokenizer.json", "model.safetensors"])


def case_faults():
    """429 and 503, cut connections, a store without ranges, pages: the result is whole."""
    repo = Repo("org/model", WEIGHTS)
    with Hub([repo]) as hub:
        hub.faults.busy, hub.faults.cut, hub.faults.cut_after, hub.faults.pages = 4, 7, 40_000, 2
        place = Place(hub)
        place.pull("hf:org/model")
        check_cache(place, repo, ["config.json", "tokenizer.json", "model.safetensors"])
        hub.faults.cut, hub.faults.no_range = 2, True
        place = Place(hub)
        place.pull("hf:org/model")
        check_cache(place, repo, ["config.json", "tokenizer.json", "model.safetensors"])
        hub.faults.busy = 1000
        assert re.search("HTTP status (429|503)", Place(hub).pull("hf:org/model", code=1))


def case_retry_after():
    """Retry-After as a date is waited for as well."""
    with Hub([Repo("org/model", WEIGHTS)]) as hub:
        hub.faults.busy, hub.faults.retry_after = 1, email.utils.formatdate(time.time() + 3, usegmt=True)
        began = time.time()
        Place(hub).pull("hf:org/model")
        assert time.time() - began > 1.5, time.time() - began


def case_stalled():
    """A connection that sends nothing is given up and continued."""
    repo = Repo("org/model", WEIGHTS)
    with Hub([repo]) as hub:
        hub.faults.slow, hub.faults.piece = 2.6, 200_000
        place = Place(hub, HF_HUB_DOWNLOAD_TIMEOUT="1")
        p = place.start("pull", "hf:org/model")
        time.sleep(2.0)
        hub.faults.slow = 0
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
        check_cache(place, repo, ["config.json", "tokenizer.json", "model.safetensors"])


def case_wrong_bytes():
    """Bytes that are not the hash's never get a name; what an earlier run left is not trusted."""
    repo = Repo("org/model", WEIGHTS)
    with Hub([repo]) as hub:
        for name in ("model.safetensors", "config.json"):
            place = Place(hub)
            hub.faults.wrong = {name}
            assert "damaged download" in place.pull("hf:org/model", code=1)
            assert repo.etag(name) not in "".join(files_below(place.repo())), files_below(place.repo())
            hub.faults.wrong = set()
            place.pull("hf:org/model")
            check_cache(place, repo, ["config.json", "tokenizer.json", "model.safetensors"])
        place = Place(hub)
        blobs = os.path.join(place.repo(), "blobs")
        os.makedirs(blobs)
        for left in (b"x" * 1000, DATA + b"more", DATA):
            with open(os.path.join(blobs, repo.etag("model.safetensors") + ".cloob.incomplete"), "wb") as f:
                f.write(left)
            place.pull("hf:org/model")
            check_cache(place, repo, ["config.json", "tokenizer.json", "model.safetensors"])
            os.unlink(os.path.join(place.repo(), "snapshots", repo.commit, "model.safetensors"))
            os.unlink(os.path.join(blobs, repo.etag("model.safetensors")))


def case_damaged_cache():
    """A blob that lost its end is fetched again; one that another commit has needs no room."""
    repo = Repo("org/model", WEIGHTS)
    with Hub([repo]) as hub:
        place = Place(hub)
        place.pull("hf:org/model")
        blob = os.path.join(place.repo(), "blobs", repo.etag("model.safetensors"))
        os.truncate(blob, 1000)
        place.pull("hf:org/model")
        check_cache(place, repo, ["config.json", "tokenizer.json", "model.safetensors"])
        disk = os.statvfs(place.home)
        size = disk.f_bavail * disk.f_frsize + (1 << 30)
        hub.faults.rows = [{"type": "file", "oid": "1" * 40, "size": 1, "path": "model.safetensors", "lfs": {"oid": "2" * 64, "size": size}}]
        with open(os.path.join(place.repo(), "blobs", "2" * 64), "wb") as f:
            f.truncate(size)  # takes no space
        hub.repos["org/model"].commit = "3" * 40
        assert place.pull("hf:org/model").endswith("3" * 40)


def case_read_only():
    """Weights that another program fetched alone are used where nothing can be written; a pull says what cannot."""
    repo = Repo("org/model", WEIGHTS)
    with Hub([repo]) as hub:
        place = Place(hub)
        path = place.pull("hf:org/model")
        os.unlink(path + "/tokenizer.json")
        os.unlink(os.path.join(place.repo(), "blobs", repo.etag("tokenizer.json")))
        shutil.rmtree(os.path.join(place.cache, ".locks"))
        open(os.path.join(place.cache, ".locks"), "wb").close()
        assert "cannot make the folder" in place.pull("hf:org/model", code=1)
        used = place.run("info", "hf:org/model", code=1).err
        assert "using the copy in the cache" in used and "model.safetensors: not a safetensors file" in used, used


def case_refused():
    """One line each: gated, missing, no weights, names of files that leave the folder, a full disk."""
    repo = Repo("org/model", WEIGHTS)
    with Hub([repo, Repo("org/text", {"README.md": b"x"})]) as hub:
        place = Place(hub)
        hub.faults.gated = True
        line = place.pull("hf:org/model", code=1)
        assert "requires the consent of its owner; accept the terms at " + hub.url + "/org/model" in line and "\n" not in line
        assert "to a token of that account" in place.pull("hf:org/model", code=1, HF_TOKEN="other")
        place.pull("hf:org/model", HF_TOKEN="secret")
        hub.faults.gated = False
        assert "has no such model" in place.pull("hf:org/none", code=1)
        assert "no weights with a known file name" in place.pull("hf:org/text", code=1)
        assert "contains spaces" in place.pull("hf:org/text", code=2, HF_TOKEN="two words")
        place = Place(hub)
        row = {"type": "file", "oid": git_sha1(b"x"), "size": 1}
        hub.faults.rows = [{**row, "path": p} for p in ("../config.json", "/config.json", "a/../config.json", "x\u0000y")]
        hub.faults.rows[3]["path"] = "..\\config.json"
        assert "no weights with a known file name" in place.pull("hf:org/model", code=1)
        lfs = {"oid": hashlib.sha256(DATA).hexdigest(), "size": 1 << 50}
        hub.faults.rows = [{**row, "path": "model.safetensors", "lfs": lfs}]
        line = place.pull("hf:org/model", code=1)
        assert "free disk space" in line, line
        lfs["size"] = 1000  # the store sends more
        assert "differs from the hub's list of files" in place.pull("hf:org/model", code=1)
        hub.faults.linked = False
        assert "more than the file's 1000 bytes" in place.pull("hf:org/model", code=1)
        assert not [f for f in files_below(place.home) if f.endswith("safetensors")]
        lfs["size"] = 1 << 62  # of several files the sum would overflow
        assert "no weights with a known file name" in place.pull("hf:org/model", code=1)
        hub.faults.endless = True
        assert "cannot download" in place.pull("hf:org/model", code=1)
        hub.faults.endless = False


def case_shards_and_others():
    parts = {f"model-0000{i}-of-00002.safetensors": DATA[i:] for i in (1, 2)}
    index = json.dumps({"weight_map": {"a": list(parts)[0], "b": list(parts)[1], "c": list(parts)[0]}}).encode()
    repo = Repo("org/model", {**SMALL, **parts, "model.safetensors.index.json": index, "pytorch_model.bin": DATA})
    own = Repo("org/own", {"PE-Core-B16.pt": DATA, "README.md": b"x"})
    bad = Repo("org/bad", {"model.safetensors.index.json": b'{"weight_map": {"a": "../../x.safetensors"}}'})
    with Hub([repo, own, bad]) as hub:
        place = Place(hub)
        path = place.pull("hf:org/model")
        check_cache(place, repo, ["config.json", "tokenizer.json", "model.safetensors.index.json", *parts])
        os.unlink(os.path.join(path, list(parts)[1]))  # incomplete: fetched again
        hub.log.clear()
        place.run("info", "hf:org/model", code=1)
        assert hub.log and os.path.exists(os.path.join(path, list(parts)[1]))
        assert place.pull("hf:org/own").endswith("/PE-Core-B16.pt")
        hub.log.clear()
        assert place.pull("hf:org/own", HF_HUB_OFFLINE="1").endswith("/PE-Core-B16.pt") and not hub.log
        assert "is not a file name in its folder" in place.pull("hf:org/bad", code=1)


def case_plain_files():
    """Without symbolic links the snapshot holds the files themselves."""
    repo = Repo("org/model", WEIGHTS)
    with Hub([repo]) as hub:
        place = Place(hub, HF_HUB_DISABLE_SYMLINKS="1")
        path = place.pull("hf:org/model")
        assert not os.path.islink(path + "/model.safetensors") and read(path + "/model.safetensors") == DATA
        assert os.listdir(os.path.join(place.repo(), "blobs")) == []


def case_side_by_side():
    """Several processes want the same model: each file is fetched once."""
    repo = Repo("org/model", {**SMALL, "model.safetensors": random.Random(3).randbytes(2_000_000)})
    with Hub([repo]) as hub:
        hub.faults.slow, hub.faults.piece = 0.01, 100_000
        place = Place(hub)
        runs = [place.start("pull", "hf:org/model") for _ in range(4)]
        outs = {(p.communicate(timeout=120)[0], p.returncode) for p in runs}
        assert len(outs) == 1 and outs.pop()[1] == 0
        check_cache(place, repo, ["config.json", "tokenizer.json", "model.safetensors"])
        assert hub.sent == 2_000_000, hub.sent


def case_names():
    """Tables of names, OpenAI's own cache, and what a missing file's error says."""
    repos = [Repo("laion/CLIP-ViT-B-32-laion2B-s34B-b79K", WEIGHTS), Repo("timm/vit_base_patch32_clip_224.openai", WEIGHTS)]
    with Hub(repos) as hub:
        place = Place(hub)
        wanted = place.pull("ViT-B-32/laion2b_s34b_b79k")
        for name in ("ViT-B-32__laion2b-s34b-b79k", "laion-vit-b-32", "hf-hub:laion/CLIP-ViT-B-32-laion2B-s34B-b79K"):
            assert place.pull(name) == wanted
        clip = os.path.join(place.home, ".cache/clip/ViT-B-32.pt")
        os.makedirs(os.path.dirname(clip))
        open(clip, "wb").close()
        hub.log.clear()
        assert "cache/clip/ViT-B-32.pt" in place.run("info", "ViT-B-32/openai", code=1).err and not hub.log
        assert "vit_base_patch32_clip_224.openai/snapshots/" in place.pull("ViT-B-32-quickgelu__openai")
        listed = place.run("pull").out
        assert "laion-vit-b-32" in listed and "Apache-2.0" in listed
        rows = json.loads(place.run("pull", "--json").out)
        assert len(rows) == len(listed.split("\n\n")[0].splitlines()) - 1 and rows[0]["licence"] == "MIT"
        hub.log.clear()
        for words in (["embed", "--checkpoint", "clip.safetensors", "--images", "x", "--out", "e"], ["convert", "clip.safetensors", "x"],
                      ["serve", "--checkpoint", "clip.safetensors"], ["embed", "--model", "models/clip", "--images", "x", "--out", "e"]):
            assert "with cloob pull ViT-B-32/laion2b_s34b_b79k" in place.run(*words, code=1).err, words
        for name, hint in (("openai/clip-vit-base-patch32", "use hf:openai/clip-vit-base-patch32 for"), ("ViT-B-32", "name is ViT-B-32/openai"),
                           ("https://huggingface.co/org/model", "use hf:org/model for"), ("ViT-B-32__laion2b", "ViT-B-32/laion2b_"),
                           ("coca_ViT-B-32/laion2b_s13b_b90k", "CoCa models are not supported"), ("x", "hf:ORG/NAME for any")):
            assert hint in place.pull(name, code=1), name
        assert not hub.log  # a path that is mistyped asks nobody
        os.makedirs(os.path.join(place.home, "ViT-B-32/laion2b_s34b_b79k"))  # an existing path wins
        assert "no weights in this folder" in place.run("embed", "--checkpoint", "ViT-B-32/laion2b_s34b_b79k", "--images", "x", "--out", "e",
                                              code=1).err
        assert not hub.log


def case_proxy():
    with Hub([Repo("org/model", WEIGHTS)]) as hub:
        place = Place(hub)
        line = place.pull("hf:org/model", code=1, http_proxy="http://127.0.0.1:9")
        assert "cannot download" in line and not hub.log


def case_by_name():
    """cloob pull, then search and serve, from names alone; an index never names a download."""
    place = Place()
    p = place.start("synth", "--out", "w", "--count", "24", "--size", "32", "--seed", "1")
    if p.communicate()[1] and p.returncode:
        return print("skipped: this build draws no images")
    place.run("train", "--train-data", "w/train.tsv", "--model", "tiny", "--batch-size", "8", "--max-steps", "2", "--warmup", "1",
              "--logs", "runs", "--name", "first")
    model = read(os.path.join(place.home, "runs/first/checkpoints/latest.safetensors"))
    with Hub([Repo("org/tiny", {"model.safetensors": model, "README.md": b"x"})]) as hub:
        place.env["HF_ENDPOINT"] = hub.url
        place.run("search", "index", "w/images", "--checkpoint", "hf:org/tiny")
        hub.log.clear()
        found = place.run("search", "query", "a red circle", "--index", "w/images").out
        assert len(found.splitlines()) == 10 and not hub.log
        one = place.run("embed", "--model", "hf:org/tiny", "--images", "w/images", "--out", "a.npy")
        two = place.run("embed", "--checkpoint", "runs/first", "--images", "w/images", "--out", "b.npy")
        assert not one.returncode | two.returncode and read(place.home + "/a.npy") == read(place.home + "/b.npy")
        index_without_weights(place, hub)
        serve_by_name(place, hub)


def index_without_weights(place, hub):
    """The index holds a path; a name in its place is not looked up."""
    file = os.path.join(place.home, "w/images", next(f for f in os.listdir(place.home + "/w/images") if f.startswith(".")))
    data = read(file)
    path = os.path.realpath(os.path.join(place.repo("org/tiny"), "snapshots"))
    at = data.find(path.encode())
    if at < 0:
        at = data.find(os.path.join(place.repo("org/tiny"), "snapshots").encode())
    assert at > 0, "the index does not name its weights by their path"
    end = data.index(b'"', at)
    name = b"hf:org/tiny"
    with open(place.home + "/forged.safetensors", "wb") as f:
        f.write(data[:at] + name + b"@" + b"r" * (end - at - len(name) - 1) + data[end:])
    place.run("search", "query", "a red circle", "--index", "forged.safetensors", code=1)
    assert not hub.log, hub.log


def serve_by_name(place, hub):
    p = place.start("serve", "--checkpoint", "hf:org/tiny", "--port", "0", "--index", "w/images")
    try:
        url = p.stdout.readline().strip()
        assert url.startswith("http://"), p.stderr.read()
        models = json.load(urllib.request.urlopen(url + "/v1/models"))
        assert models["data"][0]["id"] == "tiny", models
        hub.log.clear()
        ask = urllib.request.Request(url + "/v1/embeddings", json.dumps({"input": "a", "model": "hf:org/other"}).encode())
        try:
            urllib.request.urlopen(ask)
        except urllib.error.HTTPError:
            pass
        assert not hub.log  # a request never triggers a download
    finally:
        p.terminate()
        p.communicate(timeout=30)


def main():
    only = sys.argv[2:]
    for name, case in sorted(globals().items()):
        if name.startswith("case_") and (not only or name[5:] in only):
            began = time.time()
            case()
            print(f"{name[5:]}: {time.time() - began:.1f} s", flush=True)


main()
