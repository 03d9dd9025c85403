"""Evaluation: zero-shot accuracy, retrieval, linear probes."""
from __future__ import annotations

import ctypes as c
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Union

import numpy as np

from . import _structs as S
from ._inputs import ArrayIn, ImageIn, as_numpy, pointer, rows
from ._library import ArgumentError, FormatError, PathIn, defaults, integer, lib, path_bytes, shared_context
from ._model import Model

if TYPE_CHECKING:
    from ._inputs import AnyArray

__all__ = ["Probe", "Ranks", "Retrieval", "ZeroShot", "probe", "retrieval", "zero_shot"]


# ---- zero-shot


@dataclass(frozen=True)
class ZeroShot:
    """Accuracies are shares of n images; bad: unreadable images, not counted. per_class: name, images, and how many of them were
    classified correctly by the first and by the first five labels."""

    top1: float
    top5: float
    mean_per_class: float
    n: int
    bad: int
    per_class: list[tuple[str, int, int, int]]


def zero_shot(model: Model, data: PathIn, prompts: Union[PathIn, Mapping[str, Any], None] = None, set: Optional[str] = None, *,
              templates: Optional[Sequence[str]] = None, workers: int = 2) -> ZeroShot:
    """Zero-shot accuracy on data with classes (class folders, a tar of them, CIFAR, STL-10, MNIST), as `cloob eval zeroshot`.

    prompts: a JSON file of prompts as that command reads it, or its content; `set` names one of its sets. templates: for the
    class names of the data, each with {} in place of the name. Neither: "a photo of a {}.". workers: threads that decode images.

    >>> cloob.evaluate.zero_shot(model, "classes").n
    4
    """
    o, d, p, result = defaults(S.ZeroshotOptions), c.c_void_p(), c.c_void_p(), S.ZeroshotResult()
    context = shared_context()
    o.eval.workers = integer(workers, "workers", 0, 1024)
    chosen = _prompt_set(prompts, set, data, templates)
    try:
        if chosen is not None:
            text = json.dumps(chosen).encode()
            context.call(lib.cloob_prompts_parse, text, len(text), c.byref(p))
            o.prompts = p
        context.call(lib.cloob_dataset_open, path_bytes(data), None, c.byref(d))
        model.call(lib.cloob_zeroshot, d, c.byref(o), c.byref(result))
        r = result
        classes = [(row.name.decode("utf-8", "replace"), row.n, row.hit1, row.hit5) for row in r.row[: r.classes]]
        return ZeroShot(r.top1, r.top5, r.mean_per_class, r.n, r.bad, classes)
    finally:
        lib.cloob_zeroshot_release(c.byref(result))
        lib.cloob_dataset_close(d)
        lib.cloob_prompts_close(p)


def _prompt_set(prompts: Union[PathIn, Mapping[str, Any], None], name: Optional[str], data: PathIn,
                templates: Optional[Sequence[str]]) -> Optional[dict[str, Any]]:
    """The content of a prompt file with one set."""
    if templates is not None:
        if prompts is not None:
            raise ArgumentError("prompts and templates: pass one of them")
        if not os.path.isdir(data):
            raise ArgumentError("templates need class folders; for other data pass `prompts` with classes and templates")
        classes = sorted(e.name for e in os.scandir(data) if e.is_dir())
        return {"templates": {"classes": [n.replace("_", " ") for n in classes], "templates": list(templates)}}
    if prompts is None:
        return None
    try:
        sets = dict(prompts) if isinstance(prompts, Mapping) else json.loads(Path(prompts).read_text(encoding="utf-8"))
    except ValueError as e:
        raise FormatError(f"{prompts}: not a JSON file of prompts: {e}") from None
    if name is None and len(sets) != 1:
        raise ArgumentError(f"prompts contain {len(sets)} sets; choose one with `set`: {', '.join(list(sets)[:20])}")
    if name is not None and name not in sets:
        raise ArgumentError(f"set {name!r}: prompts contain {', '.join(list(sets)[:20])}")
    key = name if name is not None else next(iter(sets))
    return {key: sets[key]}


# ---- retrieval


@dataclass(frozen=True)
class Ranks:
    """Recalls are shares from 0 to 1; ranks count from 1; mrr is the mean reciprocal rank."""

    recall1: float
    recall5: float
    recall10: float
    mean_rank: float
    median_rank: float
    mrr: float


@dataclass(frozen=True)
class Retrieval:
    """Ranks of the matching texts of each image, and of the matching images of each text."""

    pairs: int
    images: int
    texts: int
    image_to_text: Ranks
    text_to_image: Ranks


def _matrix(a: AnyArray, name: str) -> c.Structure:
    return S.Matrix(pointer(a), S.F32, a.shape[0], a.shape[1], name.encode())


def _labels(y: ArrayIn, n: int, name: str) -> AnyArray:
    labels = as_numpy(y)
    if labels.shape != (n,) or labels.dtype.kind not in "iu":
        raise ArgumentError(f"{name}: expected whole numbers ({n},), got {labels.dtype} {labels.shape}")
    return np.ascontiguousarray(labels, np.int64)


def retrieval(images: Union[ArrayIn, Sequence[ImageIn]], texts: Union[ArrayIn, Sequence[str]], *, model: Optional[Model] = None,
              text_image: Optional[ArrayIn] = None) -> Retrieval:
    """Recall at 1, 5 and 10 and ranks of embeddings (n, D), without an N x N matrix in memory.

    With a model, images and texts are inputs of encode_image and encode_text. text_image: (texts,) the index of the image of
    each text, if images have several captions; default: text i matches image i.

    >>> rows = numpy.eye(8, dtype="float32")
    >>> cloob.evaluate.retrieval(rows, rows).image_to_text.recall1
    1.0
    """
    x = rows(model.encode_image(images) if model else images, "images", hint="; pass `model` to embed images")
    y = rows(model.encode_text(texts) if model else texts, "texts", hint="; pass `model` to embed texts")
    r, o = S.Retrieval(), S.RetrieveOptions()
    owner = None if text_image is None else _labels(text_image, len(y), "text_image")
    if owner is not None:
        o.text_image = pointer(owner)
    shared_context().call(lib.cloob_retrieve, c.byref(r), c.byref(_matrix(x, "images")), c.byref(_matrix(y, "texts")), c.byref(o))
    sides = [Ranks(*(float(getattr(s, f)) for f in Ranks.__dataclass_fields__)) for s in (r.image_to_text, r.text_to_image)]
    return Retrieval(r.pairs, r.images, r.texts, *sides)


# ---- linear probe


@dataclass(frozen=True)
class Probe:
    """Accuracies are shares; weight: (classes, D + 1) of float64, the last column is the bias; label: (classes,)."""

    test_acc: float
    test_acc5: float
    test_mean_per_class: float
    train_acc: float
    val_acc: Optional[float]
    l2: float
    weight: AnyArray
    label: AnyArray


def probe(train: tuple[ArrayIn, ArrayIn], test: tuple[ArrayIn, ArrayIn], val: Optional[tuple[ArrayIn, ArrayIn]] = None, *,
          l2: Union[float, str] = "search", max_iterations: int = 1000) -> Probe:
    """Linear probe: multinomial logistic regression with an L2 penalty, as `cloob eval probe`. A split is a pair (x (n, D), y (n,)).

    l2: the strength of the penalty, or "search": the best on `val`, or without it on every other training row.

    >>> x, y = numpy.eye(8, dtype="float32"), numpy.arange(8) % 2
    >>> cloob.evaluate.probe((x, y), (x, y), l2=0.01).test_acc
    1.0
    """
    kept: list[AnyArray] = []

    def split(given: tuple[ArrayIn, ArrayIn], name: str) -> c.Structure:
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise ArgumentError(f"{name}: expected a pair (x, y), got {type(given).__name__}")
        x = rows(given[0], f"{name} x")
        y = _labels(given[1], len(x), f"{name} y")
        kept.extend((x, y))
        return S.Split(_matrix(x, name), pointer(y), None, 0)

    o, r = defaults(S.ProbeOptions), S.ProbeResult()
    o.search, o.max_iterations = l2 == "search", integer(max_iterations, "max_iterations", 1, 2**31 - 1)
    if not o.search:
        if isinstance(l2, str):
            raise ArgumentError(f"l2 {l2!r}: expected a number or 'search'")
        setattr(o, "lambda", float(l2))
    third = c.byref(split(val, "val")) if val is not None else None
    shared_context().call(lib.cloob_probe, c.byref(r), c.byref(o), c.byref(split(train, "train")), third, c.byref(split(test, "test")))
    try:
        weight = np.ctypeslib.as_array(r.weight, (r.classes, r.dimensions + 1)).copy()
        label = np.ctypeslib.as_array(r.label, (r.classes,)).copy()
    finally:
        lib.cloob_probe_release(c.byref(r))
    return Probe(r.test_acc, r.test_acc5, r.test_mean_per_class, r.train_acc, r.val_acc if r.has_val else None,
                 getattr(r, "lambda"), weight, label)
