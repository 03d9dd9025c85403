"""A model: embeddings of images and texts, and classification."""
from __future__ import annotations

import ctypes as c
import os
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterable, Literal, Optional, Sequence, Union, overload

import numpy as np

from ._inputs import (ArrayIn, ImageIn, Images, as_numpy, check_errors, describe, float_images, is_one_image, name_input, pointer)
from ._library import (ArgumentError, Context, DeviceError, Error, PathIn, defaults, integer, lib, members, optional, output_code,
                       path_bytes, preload_cuda, shared_context, string_array, text_bytes, UnsupportedError)
from ._structs import IMAGE, TEXT, ModelFacts, ModelOptions

if TYPE_CHECKING:
    from ._inputs import AnyArray, Bools, Floats

TextIn = Union[str, Iterable[str], ArrayIn]
ImagesIn = Union[ImageIn, Iterable[ImageIn]]


@dataclass(frozen=True)
class Facts:
    """Description of a model. Unknown: an empty text, epoch -1, scale 0."""

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
    """A model for inference, created by cloob.load. Threads may share it: calls run one at a time, without the interpreter lock.

    Pickling stores the path and the options; unpickling opens the file again. A model works in the child of a fork, except on
    a GPU, where the child raises DeviceError.
    """

    def __init__(self, path: PathIn, *, device: str = "auto", precision: str = "fp32", vocab: Optional[PathIn] = None,
                 config: Optional[PathIn] = None, invariant: bool = True, batch: int = 32, threads: int = 0,
                 photos: bool = False) -> None:
        self._context = Context(threads)
        self._classifiers: OrderedDict[Any, c.c_void_p] = OrderedDict()
        o, handle = defaults(ModelOptions), c.c_void_p()
        o.device, o.precision = text_bytes(device, "device"), text_bytes(precision, "precision")
        o.vocab, o.config = optional(vocab), optional(config)
        o.invariant, o.batch, o.photos = bool(invariant), integer(batch, "batch", 1, 2**31 - 1), bool(photos)
        self._handle = handle
        if device == "auto" or device.startswith("cuda"):
            preload_cuda()
        self._pid = os.getpid()
        self._context.call(lib.cloob_model_open, path_bytes(path), c.byref(o), c.byref(handle))
        self.path = os.path.abspath(os.fsdecode(path))
        self._options: dict[str, Any] = dict(device=device, precision=precision, vocab=_absolute(vocab), config=_config(config),
                                             invariant=invariant, batch=batch, threads=threads, photos=photos)
        self.facts = self._facts()

    # ---- life

    def close(self) -> None:
        """Frees the memory once running calls have ended; later calls raise ArgumentError."""
        if getattr(self, "_handle", None):
            with self._context.lock:
                handle, self._handle = self._handle, c.c_void_p()
                while self._classifiers:
                    lib.cloob_classifier_destroy(self._classifiers.popitem()[1])
                if self._pid == os.getpid() or not self._on_gpu():
                    lib.cloob_model_close(handle)  # closing NULL does nothing; another thread may have been first

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        f = self.facts
        return f"<cloob.Model {f.name or f.family}, embeddings of {f.embed}, on {f.device}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, self._options)

    def _facts(self) -> Facts:
        f = ModelFacts()
        lib.cloob_model_get_facts(self._handle, c.byref(f))
        return Facts(**members(f, Facts))

    def _on_gpu(self) -> bool:
        return hasattr(self, "facts") and self.facts.device.startswith("cuda")

    def call(self, function: Any, *arguments: Any) -> None:
        """function(context, model, *arguments)."""
        with self._context.lock:
            self._context.call(function, self._open_handle(), *arguments)

    def _open_handle(self) -> c.c_void_p:
        if not self._handle:
            raise ArgumentError("the model is closed")
        if self._pid != os.getpid() and self._on_gpu():
            raise DeviceError("a GPU cannot be used in the child of a fork; start processes with "
                              "multiprocessing.get_context('spawn'), or load the model in the child only")
        return self._handle

    def _need(self, side: int) -> None:
        if not (self.facts.context if side == TEXT else self.facts.image_size):
            name = "text" if side == TEXT else "image"
            raise UnsupportedError(f"{self.path} has no {name} tower; load a model with both towers")

    def _rows(self, n: int, output: str, side: int) -> Floats:
        with self._context.lock:
            return np.zeros((n, lib.cloob_model_width(self._open_handle(), output_code(output), side)), np.float32)

    # ---- texts

    def tokenize(self, texts: Union[str, Sequence[str]]) -> AnyArray:
        """Tokenizes texts with the model's tokenizer: (n, context) of int32, the input of encode_text.

        >>> model.tokenize("a cat").shape == (1, model.facts.context)
        True
        """
        list_ = _text_list([texts] if isinstance(texts, str) else texts)
        out = np.zeros((len(list_), self.facts.context), np.int32)
        self.call(lib.cloob_model_tokenize, string_array(list_), len(list_), pointer(out))
        return out

    def encode_text(self, texts: TextIn, output: str = "unit") -> Floats:
        """Embeds texts, or rows of tokens (n, context): (n, D) of float32; a single text gives (D,).

        output: "unit": rows of length 1; "raw": not normalised; "features": before the projection.

        >>> model.encode_text(["a cat", "a dog"]).shape
        (2, 32)
        >>> model.encode_text("a cat").shape
        (32,)
        """
        if isinstance(texts, str):
            row: Floats = self.encode_text([texts], output)[0]
            return row
        if texts is None or isinstance(texts, (bytes, int, float)):
            raise TypeError(f"texts: expected a str, several, or rows of tokens, got {type(texts).__name__}")
        if not hasattr(texts, "__array__") and not hasattr(texts, "__dlpack__"):
            texts = list(texts)  # also of a generator
        if getattr(getattr(texts, "dtype", None), "kind", "") in ("U", "O"):
            texts = as_numpy(texts).tolist()
        if isinstance(texts, list) and not (texts and isinstance(texts[0], (list, tuple, np.ndarray))):
            list_ = _text_list(texts)
            out = self._rows(len(list_), output, TEXT)
            self.call(lib.cloob_encode_texts, string_array(list_), len(list_), output_code(output), pointer(out))
            return out
        return self._encode_tokens(as_numpy(texts), output)

    def _encode_tokens(self, tokens: AnyArray, output: str) -> Floats:
        self._need(TEXT)
        if tokens.dtype.kind not in "iu" or tokens.ndim != 2 or tokens.shape[1] != self.facts.context:
            raise ArgumentError(f"tokens: expected integers (n, {self.facts.context}), got {tokens.dtype} {tokens.shape}")
        narrow = np.ascontiguousarray(tokens, np.int32)
        if not np.array_equal(narrow, tokens):
            raise ArgumentError("tokens: an id does not fit into 32 bits")
        out = self._rows(len(narrow), output, TEXT)
        self.call(lib.cloob_encode_tokens, pointer(narrow), len(narrow), output_code(output), pointer(out))
        return out

    # ---- images

    @overload
    def encode_image(self, images: ImagesIn, output: str = ..., *, errors: Literal["raise"] = ...) -> Floats: ...

    @overload
    def encode_image(self, images: ImagesIn, output: str = ..., *, errors: Literal["skip"]) -> tuple[Floats, Bools]: ...

    def encode_image(self, images: ImagesIn, output: str = "unit", *, errors: str = "raise") -> Union[Floats, tuple[Floats, Bools]]:
        """Embeds images: (n, D) of float32; a single image gives (D,).

        An image is a path, the bytes of an image file, an open file, a PIL image, or an array of uint8 (height, width, 3) of any
        size; it is resized and cropped as for evaluation. Several images are a list, another iterable, or an array of uint8
        (n, height, width, 3). Floats (n, 3, S, S) or (3, S, S) must be normalised already, as by `preprocess`. An error names
        the path or the position. output: as for encode_text.

        errors="skip" returns (rows, ok): ok (n,) is False for unusable images, whose rows are zero.

        >>> model.encode_image("cat.png").shape
        (32,)
        >>> rows, ok = model.encode_image(["cat.png", "missing.png"], errors="skip")
        >>> ok.tolist()
        [True, False]
        """
        skip, one = check_errors(errors), False
        if is_one_image(images):
            images, one = [images], True  # type: ignore[list-item]
        elif hasattr(images, "__array__") or hasattr(images, "__dlpack__"):
            a = as_numpy(images)
            one = a.ndim == 3
            images = [a] if one else a
            if a.ndim not in (3, 4):
                raise ArgumentError(f"images: expected uint8 (n, height, width, 3) or floats (n, 3, S, S), got {describe(a)}")
        elif not isinstance(images, Iterable):
            raise TypeError(f"images: expected an image or several, got {type(images).__name__}")
        else:
            images = list(images)  # type: ignore[arg-type]
        rows, ok = self._encode_images(images, output, skip)
        if not skip:
            return rows[0] if one else rows
        return (rows[0], ok[0]) if one else (rows, ok)

    def _encode_images(self, images: Any, output: str, skip: bool) -> tuple[Floats, Bools]:
        self._need(IMAGE)
        ok = np.ones(len(images), np.bool_)
        if isinstance(images, np.ndarray) and images.dtype.kind == "f":
            return self._encode_floats(images, output, ok, skip), ok
        if isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.shape[1:] == (self.facts.image_size,) * 2 + (3,):
            whole, out = np.ascontiguousarray(images), self._rows(len(images), output, IMAGE)
            self.call(lib.cloob_encode_images, pointer(whole), len(whole), output_code(output), pointer(out))
            return out, ok
        floats = float_images(images, self.facts.image_size) if len(images) and not isinstance(images, np.ndarray) else None
        if floats is not None:
            return self._encode_floats(np.stack(floats), output, ok, skip), ok
        return self._encode_inputs(images, output, ok, skip), ok

    def _encode_floats(self, a: AnyArray, output: str, ok: Bools, skip: bool) -> Floats:
        S = self.facts.image_size
        if a.shape[1:] != (3, S, S):
            raise ArgumentError(f"images: expected uint8 (n, height, width, 3) or floats (n, 3, {S}, {S}), got {describe(a)}")
        x = np.ascontiguousarray(a, np.float32)
        if skip:  # else the library refuses what is not finite
            ok[:] = np.isfinite(x.reshape(len(x), -1)).all(axis=1)
            if not ok.all():
                x = np.where(ok[:, None, None, None], x, np.float32(0))
        out = self._rows(len(x), output, IMAGE)
        self.call(lib.cloob_encode_image_tensor, pointer(x), len(x), output_code(output), pointer(out))
        out[~ok] = 0
        return out

    def _inputs(self, images: Sequence[Any], ok: Optional[Bools]) -> Images:
        """An unusable image clears its element of `ok`; without `ok` its error is raised."""
        inputs = Images(len(images))
        for i, image in enumerate(images):
            try:
                inputs.set(i, image)
            except (OSError, ValueError, TypeError, Error) as e:
                if ok is None:
                    raise (name_input(e, f"images[{i}]") if len(images) > 1 else e) from None
                ok[i] = False
        return inputs

    def _encode_inputs(self, images: Sequence[Any], output: str, ok: Bools, skip: bool) -> Floats:
        inputs, bad = self._inputs(images, ok if skip else None), np.zeros(len(images), np.bool_)
        out = self._rows(len(images), output, IMAGE)
        self.call(lib.cloob_encode_inputs, inputs.array, len(images), output_code(output), pointer(out), pointer(bad) if skip else None)
        ok &= ~bad
        return out

    def preprocess(self, images: ImagesIn) -> Floats:
        """Resizes, crops and normalises images: (n, 3, S, S) of float32; a single image gives (3, S, S).

        encode_image of the result equals encode_image of the images up to rounding.

        >>> model.encode_image(model.preprocess(["cat.png"])).shape
        (1, 32)
        """
        self._need(IMAGE)
        one = is_one_image(images) or not isinstance(images, (list, tuple)) and as_numpy(images).ndim == 3
        list_: Any = [images] if one else images
        out = np.empty((len(list_), 3, self.facts.image_size, self.facts.image_size), np.float32)
        self.call(lib.cloob_model_preprocess, self._inputs(list_, None).array, len(list_), pointer(out), None)
        return out[0] if one else out

    # ---- classes

    @overload
    def classify(self, images: ImagesIn, labels: Sequence[str], templates: Sequence[str] = ..., *,
                 errors: Literal["raise"] = ...) -> Floats: ...

    @overload
    def classify(self, images: ImagesIn, labels: Sequence[str], templates: Sequence[str] = ..., *,
                 errors: Literal["skip"]) -> tuple[Floats, Bools]: ...

    def classify(self, images: ImagesIn, labels: Sequence[str], templates: Sequence[str] = (), *,
                 errors: str = "raise") -> Union[Floats, tuple[Floats, Bools]]:
        """Probabilities of labels, without training: (n, labels) of float32; a single image gives (labels,).

        labels: two or more. Each template contains {} in place of the label; default: "a photo of a {}.". The prompts of a
        label are averaged.
        errors="skip" returns (probabilities, ok), as encode_image does.

        >>> p = model.classify("cat.png", ["cat", "dog", "fish"])
        >>> p.shape, round(float(p.sum()), 5)
        ((3,), 1.0)
        """
        skip = check_errors(errors)
        rows, ok = self.encode_image(images, errors="skip") if skip else (self.encode_image(images), None)
        many = np.atleast_2d(rows)
        used: Bools = np.ones(len(many), np.bool_) if ok is None else np.atleast_1d(np.asarray(ok))
        out = np.zeros((len(many), len(labels)), np.float32)
        good, p = np.ascontiguousarray(many[used]), np.zeros((int(used.sum()), len(labels)), np.float32)
        with self._context.lock:
            self._context.call(lib.cloob_classify, self._classifier(labels, templates), pointer(good), len(good), pointer(p))
        out[used] = p
        result = out[0] if rows.ndim == 1 else out
        return result if ok is None else (result, ok)

    def _classifier(self, labels: Sequence[str], templates: Sequence[str]) -> c.c_void_p:
        """Caches the last few classifiers, so that the text tower runs once for the same labels. Call with the lock held."""
        if isinstance(labels, str) or isinstance(templates, str):
            raise TypeError("labels and templates: expected lists of texts, got a str")
        key = (tuple(labels), tuple(templates))
        if key not in self._classifiers:
            made, words, prompts = c.c_void_p(), _text_list(labels, "labels"), _text_list(templates, "templates")
            self.call(lib.cloob_classifier_create, string_array(words), len(words), string_array(prompts), len(prompts), c.byref(made))
            self._classifiers[key] = made
            if len(self._classifiers) > 4:
                lib.cloob_classifier_destroy(self._classifiers.popitem(last=False)[1])
        self._classifiers.move_to_end(key)
        return self._classifiers[key]


def _text_list(texts: Sequence[Any], name: str = "texts") -> list[bytes]:
    return [text_bytes(t, f"{name}[{i}]") for i, t in enumerate(texts)]


def _absolute(path: Optional[PathIn]) -> Optional[str]:
    return None if path is None else os.path.abspath(os.fsdecode(path))


def _config(config: Optional[PathIn]) -> Optional[str]:
    """A file, or a model's name."""
    return _absolute(config) if config is not None and os.path.exists(config) else None if config is None else os.fsdecode(config)


def _reopen(path: str, options: dict[str, Any]) -> Model:
    return Model(path, **options)


def resolve(name: PathIn, download: bool = True) -> str:
    """The file or folder of a model: `name` itself if it exists, otherwise its folder in Hugging Face's cache, into which it is
    downloaded if it is missing and `download` is true."""
    path = c.create_string_buffer(4096)
    shared_context().call(lib.cloob_hub_path, path_bytes(name), bool(download), path, len(path))
    return os.fsdecode(path.value)


def load(name: PathIn, *, device: str = "auto", precision: str = "fp32", vocab: Optional[PathIn] = None,
         config: Optional[PathIn] = None, invariant: bool = True, batch: int = 32, threads: int = 0, photos: bool = False,
         download: bool = True) -> Model:
    """Opens a model by the path of a file or folder (any format that `cloob convert` reads), or by name.

    Names: hf:ORG/NAME, ARCHITECTURE/TAG as in open_clip, and the names that `cloob pull` lists. A model that is not in Hugging
    Face's cache is downloaded, unless `download` is false. Do not pass names from untrusted input.

    device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1". precision: "fp32", "bf16", "f16", "int8" (CPU), "fp8" (GPU),
    or "auto". vocab: a tokenizer for weights without one. config: a model's name or .json file, if the shapes are ambiguous.
    invariant: a row has the same bytes alone or in any batch; without it, rows are computed in batches of `batch`, which is
    faster. threads: CPU threads; 0: all cores. photos: apply the EXIF orientation of image files, as `cloob search` does.

    >>> cloob.load("model.safetensors").encode_image("cat.png").shape
    (32,)
    """
    return Model(resolve(name, download), device=device, precision=precision, vocab=vocab, config=config, invariant=invariant,
                 batch=batch, threads=threads, photos=photos)
