#!/usr/bin/env python3
"""What `pip install` brings, and the time to the first embedding: cloob, open_clip_torch, infinity-emb, in one run.

    make wheel
    python3 bench/peers/install_size.py --wheel dist/cloob-*.whl --work /tmp/size

Makes an empty virtual environment for each, installs, and counts the bytes that are new in it (files, not blocks). Then a new
process imports the package, opens a ViT-B-32 with random weights from a local folder and embeds one image: its seconds from
start to end, the median of several after one that warms the disk cache. The weights are made by open_clip's environment in
open_clip's form and converted by cloob for transformers, which infinity-emb uses. Needs a package index; nothing of it is
installed outside --work.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

MAKE = """
import json, open_clip, torch
from pathlib import Path
from safetensors.torch import save_file
folder = Path({folder!r}); folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
model = open_clip.create_model("ViT-B-32")
save_file({{k: v.contiguous() for k, v in model.state_dict().items()}}, folder / "open_clip_model.safetensors")
config = {{"model_cfg": open_clip.get_model_config("ViT-B-32"), "preprocess_cfg": {{}}}}
(folder / "open_clip_config.json").write_text(json.dumps(config))
words = open_clip.tokenizer.SimpleTokenizer()  # transformers reads these two files
(folder / "vocab.json").write_text(json.dumps(words.encoder))
(folder / "merges.txt").write_text("#version: 0.2\\n" + "\\n".join(" ".join(m) for m in words.bpe_ranks))
from PIL import Image
Image.effect_noise((640, 480), 90).convert("RGB").save(folder / "image.jpg")
"""

FIRST = {
    "cloob": """
import cloob
row = cloob.load({folder!r}, device="cpu").encode_image({image!r})
print(row.shape)
""",
    "open_clip_torch": """
import open_clip, torch
from PIL import Image
model, _, preprocess = open_clip.create_model_and_transforms("local-dir:" + {folder!r})
model.eval()
with torch.no_grad():
    row = model.encode_image(preprocess(Image.open({image!r})).unsqueeze(0), normalize=True)
print(row.shape)
""",
    "infinity-emb": """
import asyncio
from PIL import Image
from infinity_emb import AsyncEmbeddingEngine, EngineArgs

async def first():
    engine = AsyncEmbeddingEngine.from_args(EngineArgs(model_name_or_path={hf!r}, engine="torch", device="cpu", model_warmup=False))
    async with engine:
        rows, _ = await engine.image_embed(images=[Image.open({image!r})])
    print(rows[0].shape)

asyncio.run(first())
""",
}


def run(*command: object, quiet: bool = False) -> str:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore"}
    env.pop("PYTHONPATH", None)
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=env)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["failed"])[-1])
    return done.stdout


def size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def install(work: Path, name: str, what: list[str]) -> tuple[Path, int]:
    """The environment's python and the bytes that the installation added, or was measured to have added."""
    folder, note = work / name, work / f"{name}.json"
    python = folder / "bin" / "python"
    if not note.exists():
        run(sys.executable, "-m", "venv", folder)
        before = size(folder)
        run(python, "-m", "pip", "install", "--no-compile", *what)
        note.write_text(json.dumps({"bytes": size(folder) - before}))
    return python, int(json.loads(note.read_text())["bytes"])


def seconds(python: Path, code: str, times: int) -> float:
    taken = []
    for _ in range(times + 1):
        began = time.monotonic()
        run(python, "-c", code)
        taken.append(time.monotonic() - began)
    return statistics.median(taken[1:])


def main() -> None:
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--wheel", required=True, help="dist/cloob-*.whl")
    a.add_argument("--work", type=Path, required=True, help="folder for environments and weights; kept for the next run")
    a.add_argument("--times", type=int, default=5)
    o = a.parse_args()
    o.work.mkdir(parents=True, exist_ok=True)
    packages = {"cloob": [o.wheel], "open_clip_torch": ["open_clip_torch"], "infinity-emb": ["infinity-emb[torch,vision,server]", "aiohttp"]}
    pythons = {name: install(o.work, name, what) for name, what in packages.items()}
    folder, hf = o.work / "ViT-B-32", o.work / "ViT-B-32-hf"
    if not (folder / "image.jpg").exists():
        run(pythons["open_clip_torch"][0], "-c", MAKE.format(folder=str(folder)))
    if not hf.exists():
        run(pythons["cloob"][0].parent / "cloob", "convert", folder, hf, "--to", "hf")
        for name in ("vocab.json", "merges.txt"):
            shutil.copy(folder / name, hf)
    print(f"{'package':18}{'MB installed':>14}{'first embedding, s':>22}")
    for name, (python, bytes_) in pythons.items():
        code = FIRST[name].format(folder=str(folder), hf=str(hf), image=str(folder / "image.jpg"))
        try:
            took = f"{seconds(python, code, o.times):.2f}"
        except RuntimeError as e:
            took = f"failed: {e}"
        print(f"{name:18}{bytes_ / 1e6:14.1f}{took:>22}")


if __name__ == "__main__":
    main()
