"""A model: weights of any format in, embeddings out."""
from __future__ import annotations

import ctypes as c
import os
from dataclasses import dataclass
from typing import Any, Sequence, Union

import numpy as np

from ._arrays import ArrayIn, as_numpy
from ._library import (IMAGE, TEXT, ArgumentError, Context, ModelFacts, ModelOptions, integer, lib, optional, output_code,
                       path_bytes, string_array, text_bytes)

PathIn = Union[str, "os.PathLike[str]"]
ImageIn = Union[PathIn, ArrayIn]


@dataclass(frozen=True)
class Facts:
    """What a model is; unknown texts are empty, an unknown epoch is -1, unknown scales are 0."""

    name: str
    family: str
    activation: str
    embed: int
    image_size: int
    context: int
    vocab: int
    image_features: int
    text_features: int
    parameters: int
    method: str
    run: str
    epoch: int
    inv_tau: float
    scale_hopfield: float
    has_tokenizer: bool
    container: str
    names: str
    device: str
    precision: str


class Model:
    """Made by cloob.load. Any thread may use it; calls take turns."""

    def __init__(self, path: PathIn, device: str = "auto", precision: str = "fp32", vocab: PathIn | None = None,
                 config: PathIn | None = None, invariant: bool = True, batch: int = 32, threads: int = 0) -> None:
        self._context = Context(threads)
        o, handle = ModelOptions(), c.c_void_p()
        lib.cloob_model_options_init(c.byref(o))
        o.device, o.precision = text_bytes(device), text_bytes(precision)
        o.vocab, o.config = optional(vocab), optional(config)
        o.invariant, o.batch = bool(invariant), integer(batch, "batch", 1, 2**31 - 1)
        self._handle = handle
        self._context.call(lib.cloob_model_open, path_bytes(path), c.byref(o), c.byref(handle))
        self.facts = self._facts()

    def close(self) -> None:
        """Gives the memory back now, after the calls that are under way; later ones raise ArgumentError."""
        if getattr(self, "_handle", None):
            with self._context.lock:
                handle, self._handle = self._handle, c.c_void_p()
                lib.cloob_model_close(handle)  # of NULL, where another thread was first: nothing

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        f = self.facts
        return f"<cloob.Model {f.name or f.family}, embeddings of {f.embed}, on {f.device}>"

    def _facts(self) -> Facts:
        f = ModelFacts()
        lib.cloob_model_get_facts(self._handle, c.byref(f))
        values = {name: getattr(f, name) for name in Facts.__dataclass_fields__}
        return Facts(**{k: v.decode("utf-8", "replace") if isinstance(v, bytes) else v for k, v in values.items()})

    def _call(self, function: Any, *arguments: Any) -> None:
        with self._context.lock:
            if not self._handle:
                raise ArgumentError("the model is closed")
            self._context.call(function, self._handle, *arguments)

    def _rows(self, n: int, output: str, side: int) -> np.ndarray:
        with self._context.lock:
            if not self._handle:
                raise ArgumentError("the model is closed")
            return np.empty((n, lib.cloob_model_width(self._handle, output_code(output), side)), np.float32)

    # ---- texts

    def tokenize(self, texts: str | Sequence[str]) -> np.ndarray:
        """What the model sees of texts: (n, context) of int32, with the tokenizer that belongs to it."""
        list_ = [texts] if isinstance(texts, str) else list(texts)
        out = np.zeros((len(list_), self.facts.context), np.int32)
        self._call(lib.cloob_model_tokenize, string_array([text_bytes(t) for t in list_]), len(list_), out.ctypes.data)
        return out

    def encode_text(self, texts: str | Sequence[str] | ArrayIn, output: str = "unit") -> np.ndarray:
        """Embeddings of texts, or of rows of tokens (n, context): (n, D) of float32; of a single text (D,).

        output: "unit" rows, "raw" before that, or "features" before the projection.
        """
        if isinstance(texts, str):
            return self.encode_text([texts], output)[0]
        if isinstance(texts, (list, tuple)) and all(isinstance(t, str) for t in texts):
            out = self._rows(len(texts), output, TEXT)
            self._call(lib.cloob_encode_texts, string_array([text_bytes(t) for t in texts]), len(texts), output_code(output),
                       out.ctypes.data)
            return out
        return self._encode_tokens(as_numpy(texts), output)

    def _encode_tokens(self, tokens: np.ndarray, output: str) -> np.ndarray:
        if tokens.dtype.kind not in "iu" or tokens.ndim != 2 or tokens.shape[1] != self.facts.context:
            raise ArgumentError(f"tokens are {tokens.dtype} {tokens.shape}; integers of (n, {self.facts.context}) are wanted")
        narrow = np.ascontiguousarray(tokens, np.int32)
        if not np.array_equal(narrow, tokens):
            raise ArgumentError("tokens hold ids beyond 32 bits")
        out = self._rows(len(narrow), output, TEXT)
        self._call(lib.cloob_encode_tokens, narrow.ctypes.data, len(narrow), output_code(output), out.ctypes.data)
        return out

    # ---- images

    def encode_image(self, images: ImageIn | Sequence[ImageIn], output: str = "unit") -> np.ndarray:
        """Embeddings of images: (n, D) of float32; of a single one (D,).

        An image is a path, a PIL image, or an array of bytes (height, width, 3) of any size, which is resized and
        cropped as for evaluation; several are a list, or an array of bytes (n, height, width, 3). Floats
        (n, 3, S, S) or (3, S, S) are taken as already normalised.
        """
        if isinstance(images, (str, os.PathLike)):
            return self._encode_files([images], output)[0]
        if isinstance(images, (list, tuple)):
            if images and all(isinstance(i, (str, os.PathLike)) for i in images):
                return self._encode_files(images, output)
            each = [self.encode_image(i, output) for i in images]
            return np.stack(each) if each else self._rows(0, output, IMAGE)
        if hasattr(images, "convert") and hasattr(images, "size"):  # PIL
            images = np.asarray(images.convert("RGB"))
        return self._encode_array(as_numpy(images), output)

    def _encode_files(self, paths: Sequence[PathIn], output: str) -> np.ndarray:
        out = self._rows(len(paths), output, IMAGE)
        self._call(lib.cloob_encode_files, string_array([path_bytes(p) for p in paths]), len(paths), output_code(output),
                   out.ctypes.data, None)
        return out

    def _encode_array(self, a: np.ndarray, output: str) -> np.ndarray:
        if a.dtype == np.uint8 and a.ndim in (3, 4) and a.shape[-1] == 3:
            return self._encode_bytes(np.ascontiguousarray(a), output)
        S = self.facts.image_size
        if a.dtype.kind != "f" or a.ndim not in (3, 4) or a.shape[-3:] != (3, S, S):
            raise ArgumentError(f"images are {a.dtype} {a.shape}; uint8 (n, height, width, 3) or floats (n, 3, {S}, {S}) are wanted")
        x = np.ascontiguousarray(a, np.float32).reshape(-1, 3, S, S)
        out = self._rows(len(x), output, IMAGE)
        self._call(lib.cloob_encode_image_tensor, x.ctypes.data, len(x), output_code(output), out.ctypes.data)
        return out[0] if a.ndim == 3 else out

    def _encode_bytes(self, a: np.ndarray, output: str) -> np.ndarray:
        S, x = self.facts.image_size, a.reshape(-1, *a.shape[-3:])
        out = self._rows(len(x), output, IMAGE)
        if x.shape[1:3] == (S, S):
            self._call(lib.cloob_encode_images, x.ctypes.data, len(x), output_code(output), out.ctypes.data)
        else:
            for image, row in zip(x, out):
                self._call(lib.cloob_encode_image, image.ctypes.data, image.shape[1], image.shape[0],
                           output_code(output), row.ctypes.data)
        return out[0] if a.ndim == 3 else out


def load(path: PathIn, *, device: str = "auto", precision: str = "fp32", vocab: PathIn | None = None,
         config: PathIn | None = None, invariant: bool = True, batch: int = 32, threads: int = 0) -> Model:
    """Opens weights of any format that `cloob convert` reads.

    vocab: a merges file, where the weights hold none. config: a model's name or .json, where shapes do not tell all.
    invariant: a row has the same bytes alone or in any batch; without it `batch` rows are worked out at a time.
    """
    return Model(path, device, precision, vocab, config, invariant, batch, threads)
