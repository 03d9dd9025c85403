"""A home folder of its own for cloob, and what its cache must look like."""
import os
import subprocess
import sys
import tempfile

CLOOB = os.path.abspath(sys.argv[1])


class Place:
    """A home folder of its own, and cloob in it."""

    def __init__(self, hub=None, **env):
        self.folder = tempfile.TemporaryDirectory(prefix="cloob-hub-")
        self.home = self.folder.name
        self.cache = os.path.join(self.home, ".cache/huggingface/hub")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGG", "XDG_CACHE", "TRANSFORMERS"))
                    and "proxy" not in k.lower()}
        self.env.update({"HOME": self.home, "HF_HUB_DOWNLOAD_TIMEOUT": "5", **env})
        if hub:
            self.env["HF_ENDPOINT"] = hub.url

    def start(self, *words, **env):
        return subprocess.Popen([CLOOB, *words], env={**self.env, **env}, cwd=self.home, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run(self, *words, code=0, **env):
        p = self.start(*words, **env)
        p.out, p.err = p.communicate(timeout=120)
        assert p.returncode == code, (words, p.returncode, p.out, p.err)
        return p

    def pull(self, name, code=0, **env):
        p = self.run("pull", name, code=code, **env)
        return p.out.strip() if code == 0 else p.err.strip()

    def repo(self, name="org/model"):
        return os.path.join(self.cache, "models--" + name.replace("/", "--"))


def read(path):
    with open(path, "rb") as f:
        return f.read()


def files_below(path):
    return sorted(os.path.relpath(os.path.join(d, f), path) for d, _, names in os.walk(path) for f in names)


def check_cache(place, repo, names):
    """The layout of huggingface_hub, byte by byte."""
    folder = place.repo(repo.name)
    assert read(os.path.join(folder, "refs", repo.revision)) == repo.commit.encode()
    snapshot = os.path.join(folder, "snapshots", repo.commit)
    assert sorted(os.listdir(snapshot)) == sorted(names), os.listdir(snapshot)
    for n in names:
        assert os.readlink(os.path.join(snapshot, n)) == "../../blobs/" + repo.etag(n)
        assert read(os.path.join(snapshot, n)) == repo.files[n]
    assert sorted(os.listdir(os.path.join(folder, "blobs"))) == sorted({repo.etag(n) for n in names})
    return snapshot
