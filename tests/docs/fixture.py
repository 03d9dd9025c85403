"""The folder that the pages of the documentation work in, made once and copied for every page.

world/, cc/          our synthetic world as files and as shards
photos/, captions.csv, labels.txt, captions.txt, dog.jpg, cat.jpg, program.c's inputs
clip.safetensors     a small trained model, and the same under the names and in the formats that pages convert or pull
pairs.safetensors    embeddings of validation pairs
prompts.md           prompt sets in the layout in which CLIP publishes them
"""
import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "hub"))
from hub_server import Hub, Repo  # noqa: E402

WRAPPER = """#!/bin/sh
# Cuts training short: `cloob train` ends after a few steps unless the page says otherwise. Worlds are
# small, and a server listens on the port of its page.
case "$1" in
train|finetune)
    case " $* " in
    *" --max-steps "*|*" --help "*) ;;
    *" --resume "*) set -- "$@" --max-steps 8 ;;
    *) set -- "$@" --max-steps 4 ;;
    esac ;;
ablate|sweep)
    case " $* " in *" --max-steps "*|*" --help "*) ;; *) set -- "$@" --max-steps 2 ;; esac ;;
serve)
    case " $* " in *" --port "*|*" --help "*) ;; *) set -- "$@" --port "$CLOOB_DOCS_PORT" ;; esac ;;
synth)
    case " $* " in *" --per-class "*) ;; *) set -- "$@" --per-class 4 ;; esac
    case " $* " in *" --count 20000 "*) set -- "$@" --count 400 --val-count 32 ;; esac ;;
esac
exec "%s" "$@"
"""

PROMPTS = """# Prompts

## PETS

```bash
classes = [
    'cat',
    'dog',
]

templates = [
    'a photo of a {}.',
]
```
"""

NOTEBOOK = {"cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": [
    "imagenet_classes = [\"tench\", \"goldfish\"]\n", "imagenet_templates = ['a photo of a {}.', 'a drawing of a {}.']\n"]}],
    "metadata": {}, "nbformat": 4, "nbformat_minor": 2}


class EveryModel(dict):
    """Whatever a page pulls is the small trained model."""

    def __init__(self, path):
        super().__init__()
        with open(path, "rb") as f:
            self.model = f.read()

    def __missing__(self, name):
        return self.setdefault(name, Repo(name, {"model.safetensors": self.model}))

    def get(self, name):
        return self[name]


class Fixture:
    def __init__(self, cloob, library):
        self.folder = tempfile.mkdtemp(prefix="cloob-docs-")
        self.program = os.path.abspath(cloob)
        self.library = os.path.abspath(library) if library else ""
        self.bin = os.path.join(self.folder, "bin")
        self.seed = os.path.join(self.folder, "seed")
        os.makedirs(self.bin)
        os.makedirs(self.seed)
        wrapper = os.path.join(self.bin, "cloob")
        with open(wrapper, "w") as f:
            f.write(WRAPPER % self.program)
        os.chmod(wrapper, os.stat(wrapper).st_mode | stat.S_IXUSR)
        self.serves = re.search(r"^ *MICROHTTPD +yes", self.doctor(), re.M) is not None
        self.hub = Hub([])
        self.fill()
        self.hub.repos = EveryModel(self.path("clip.safetensors"))

    def doctor(self):
        return subprocess.run([self.program, "doctor"], capture_output=True, text=True).stdout

    def environment(self, home):
        env = dict(os.environ, HOME=home, CLOOB_CACHE=os.path.join(home, ".cache"), NO_COLOR="1", OMP_NUM_THREADS="1")
        env = {k: v for k, v in env.items() if not k.startswith(("HF_", "HUGGINGFACE_", "XDG_CACHE")) and "proxy" not in k.lower()}
        env["HF_ENDPOINT"] = self.hub.url
        env["PATH"] = self.bin + os.pathsep + env["PATH"]
        env["PYTHONPATH"] = os.path.join(ROOT, "python")
        if self.library:
            env["CLOOB_LIBRARY"] = self.library
            env["LD_LIBRARY_PATH"] = os.path.dirname(self.library)
            env["PKG_CONFIG_PATH"] = self.pkg_config()
        return env

    def pkg_config(self):
        """A pkg-config file for the library as it lies in the build folder."""
        folder = os.path.join(self.folder, "pkgconfig")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "cloob.pc"), "w") as f:
            f.write("Name: cloob\nDescription: docs\nVersion: 0\nCflags: -I%s\nLibs: -L%s -lcloob\n"
                    % (os.path.join(ROOT, "include"), os.path.dirname(self.library)))
        return folder

    def run(self, *words):
        done = subprocess.run([self.program, *words], cwd=self.seed, env=self.environment(self.seed), capture_output=True, text=True)
        if done.returncode:
            sys.exit("the fixture could not be made: cloob %s\n%s" % (" ".join(words), done.stderr))

    def path(self, *names):
        return os.path.join(self.seed, *names)

    def fill(self):
        self.run("synth", "--out", "world", "--count", "160", "--val-count", "48", "--per-class", "4", "--size", "64", "--seed", "3")
        self.run("synth", "--out", "cc", "--count", "64", "--val-count", "16", "--per-class", "4", "--size", "64", "--seed", "4",
                 "--format", "webdataset", "--shard-samples", "16")
        self.photos()
        self.run("tokenizer", "train", "--input", "captions.txt", "--size", "640", "--out", "our.bpe")
        self.run("train", "--train-data", "world/train.tsv", "--model", "tiny", "--batch-size", "16", "--epochs", "1", "--max-steps", "4",
                 "--warmup", "2", "--vocab", "our.bpe", "--name", "seed", "--logs", "logs", "--quiet")
        shutil.copy(self.path("logs", "seed", "checkpoints", "latest.safetensors"), self.path("clip.safetensors"))
        shutil.rmtree(self.path("logs"))
        self.run("embed", "--checkpoint", "clip.safetensors", "--data", "world/val.tsv", "--out", "pairs.safetensors", "--quiet")
        self.downloads()

    def downloads(self):
        """Files that a reader has from elsewhere, under the names that pages use: ours, in the formats of others."""
        with open(self.path("our.bpe"), "rb") as plain, gzip.open(self.path("bpe_simple_vocab_16e6.txt.gz"), "wb") as packed:
            packed.write(plain.read())
        for name, to in (("ViT-B-32.pt", "openai"), ("epoch_31.pt", "jku"), ("siglip-so400m", "open_clip")):
            self.run("convert", "clip.safetensors", name, "--to", to, "--quiet")
        for name in ("model.safetensors", "M.safetensors"):
            shutil.copy(self.path("clip.safetensors"), self.path(name))
        with open(self.path("prompts.md"), "w") as out:
            out.write(PROMPTS)
        with open(self.path("Prompt_Engineering_for_ImageNet.ipynb"), "w") as out:
            json.dump(NOTEBOOK, out)

    def photos(self):
        """photos/ with subfolders, captions.csv next to it, captions.txt, labels.txt, two images of their own."""
        with open(self.path("world", "train.tsv"), encoding="utf-8") as f:
            rows = [line.rstrip("\n").split("\t") for line in f][1:]
        os.makedirs(self.path("photos", "2024"))
        os.makedirs(self.path("photos", "beach"))
        with open(self.path("captions.csv"), "w", encoding="utf-8") as out:
            out.write("image,caption\n")
            for i, (path, title) in enumerate(rows):
                name = os.path.join("photos", ("2024", "beach")[i % 2], os.path.basename(path))
                shutil.copy(self.path("world", path), self.path(name))
                out.write("%s,%s\n" % (name, json.dumps(title, ensure_ascii=False)))
        for name in ("dog.jpg", "cat.jpg"):
            shutil.copy(self.path("world", rows[0][0]), self.path(name))
        with open(self.path("captions.txt"), "w", encoding="utf-8") as out:
            out.writelines(title + "\n" for _, title in rows)
        with open(self.path("labels.txt"), "w") as out:
            out.write("fish\ntree\nhouse\ncar\n")

    def copy(self, name):
        folder = os.path.join(self.folder, name)
        shutil.copytree(self.seed, folder)
        if self.library:
            os.symlink(os.path.dirname(self.library), os.path.join(folder, "build"))
        os.symlink(os.path.join(ROOT, "examples"), os.path.join(folder, "examples"))
        os.symlink(os.path.join(ROOT, "scripts"), os.path.join(folder, "scripts"))
        return folder

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)
