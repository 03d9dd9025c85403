"""A small model of random weights in a file, made without anything but numpy; the program; frozen values."""
from __future__ import annotations

import json
import os
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CLOOB_BUILD", SOURCE / "build"))
REF = SOURCE / "tests/ref"
PEERS = SOURCE / "bench/peers"

VOCAB, CONTEXT, EMBED, SIZE = 540, 16, 32, 32
CAPTIONS = ["a small red square", "a large blue circle", "two green stars on a grey ground", "one circle, one square"]


def run(*arguments: object) -> str:
    """The program's stdout; its failure is the test's."""
    done = subprocess.run([str(BUILD / "cloob"), *map(str, arguments)], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(f"cloob {arguments[0]}: {done.stderr}")
    return done.stdout


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    names = {np.dtype("float32"): "F32", np.dtype("int64"): "I64", np.dtype("int32"): "I32"}
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(np.ascontiguousarray(t).tobytes() for t in tensors.values()))


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    types = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32}
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, e in json.loads(data[8 : 8 + n]).items():
        if name != "__metadata__":
            a, b = e["data_offsets"]
            out[name] = np.frombuffer(data[8 + n + a : 8 + n + b], types[e["dtype"]]).reshape(e["shape"])
    return out


def procedural(name: str, n: int) -> np.ndarray:
    """n numbers in [-1, 1) that belong to a name (tests/model/procedural.h)."""
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        x = np.arange(n, dtype=np.uint64) + np.uint64(h) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(40)).astype(np.float64) / 2**23 - 1


def procedural_images(n: int, size: int) -> np.ndarray:
    return (2 * procedural("images", n * 3 * size * size).astype(np.float32)).reshape(n, 3, size, size)


def procedural_tokens(n: int, context: int, vocab: int) -> np.ndarray:
    """Start, three or more words, end, zeros."""
    u = ((procedural("tokens", n * context) + 1) / 2).reshape(n, context)
    t = (1 + np.floor(u * (vocab - 3))).astype(np.int32)
    for r in range(n):
        end = 3 + int(u[r, 0] * (context - 4))
        t[r, 0], t[r, end], t[r, end + 1 :] = vocab - 2, vocab - 1, 0
    return t


def _blocks(shapes: dict, prefix: str, layers: int, w: int) -> None:
    for i in range(layers):
        p = f"{prefix}.resblocks.{i}."
        shapes.update({p + "attn.in_proj_weight": (3 * w, w), p + "attn.in_proj_bias": (3 * w,), p + "attn.out_proj.weight": (w, w),
                       p + "attn.out_proj.bias": (w,), p + "ln_1.weight": (w,), p + "ln_1.bias": (w,),
                       p + "mlp.c_fc.weight": (4 * w, w), p + "mlp.c_fc.bias": (4 * w,), p + "mlp.c_proj.weight": (w, 4 * w),
                       p + "mlp.c_proj.bias": (w,), p + "ln_2.weight": (w,), p + "ln_2.bias": (w,)})


def model_tensors() -> dict[str, np.ndarray]:
    """A ViT of two layers with OpenAI's names; heads are 64 wide, so that the shapes tell everything."""
    w, t, patch = 64, 64, 8
    shapes: dict[str, tuple[int, ...]] = {
        "visual.class_embedding": (w,), "visual.positional_embedding": ((SIZE // patch) ** 2 + 1, w), "visual.proj": (w, EMBED),
        "visual.conv1.weight": (w, 3, patch, patch), "visual.ln_pre.weight": (w,), "visual.ln_pre.bias": (w,),
        "visual.ln_post.weight": (w,), "visual.ln_post.bias": (w,), "token_embedding.weight": (VOCAB, t),
        "positional_embedding": (CONTEXT, t), "ln_final.weight": (t,), "ln_final.bias": (t,), "text_projection": (t, EMBED)}
    _blocks(shapes, "visual.transformer", 2, w)
    _blocks(shapes, "transformer", 2, t)
    r = np.random.default_rng(0)
    tensors = {k: (r.standard_normal(s) * 0.1 + (1 if ".ln" in k and k.endswith("weight") else 0)).astype(np.float32) for k, s in shapes.items()}
    tensors["logit_scale"] = np.array(3.4, np.float32)
    return tensors


class World:
    """A folder with `model`, `vocab` and two `images`, gone with the object."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cloob_python_")
        self.folder = Path(self._folder.name)
        self.model, self.vocab = self.folder / "model.safetensors", self.folder / "merges.txt"
        (self.folder / "captions.txt").write_text("\n".join(CAPTIONS * 3) + "\n")
        run("tokenizer", "train", "--input", self.folder / "captions.txt", "--size", VOCAB, "--out", self.vocab)
        write_safetensors(self.model, model_tensors())
        self.images = [self.folder / "a.ppm.png", self.folder / "b.png"]
        for i, path in enumerate(self.images):
            path.write_bytes(png(image(i)))

    def close(self) -> None:
        self._folder.cleanup()


def image(seed: int, height: int = 45, width: int = 60) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def png(rgb: np.ndarray) -> bytes:
    """An uncompressed-filter RGB PNG, by hand."""
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    h, w, _ = rgb.shape
    raw = b"".join(b"\0" + row.tobytes() for row in rgb)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def unit_rows(seed: int, n: int, d: int, dtype: type = np.float32) -> np.ndarray:
    a = np.random.default_rng(seed).standard_normal((n, d))
    return (a / np.linalg.norm(a, axis=1, keepdims=True)).astype(dtype)
