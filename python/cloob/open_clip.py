"""The interface of open_clip for inference: scripts written for it run with the import changed.

    import cloob.open_clip as open_clip

    model, _, preprocess = open_clip.create_model_and_transforms("ViT-B-32", pretrained="weights.safetensors")
    tokenizer = open_clip.get_tokenizer("ViT-B-32")
    image = preprocess(Image.open("cat.jpg")).unsqueeze(0)
    features = model.encode_image(image)

Results are PyTorch tensors (on the CPU, without gradients) if PyTorch is installed, otherwise numpy arrays. Weights: a file, a
folder (also "local-dir:FOLDER"), or a name ("hf-hub:ORG/NAME", or a model and its tag), as for cloob.load. Inference only; both
transforms are the transform of evaluation.
"""
from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any, Optional, Sequence, Union

import numpy as np

from ._library import ArgumentError, UnsupportedError
from ._model import Model, load
from ._tokenizer import Tokenizer

__all__ = ["CLIP", "SimpleTokenizer", "create_model", "create_model_and_transforms", "create_model_from_pretrained",
           "get_tokenizer", "tokenize"]

_PREFIXES = ("local-dir:", "hf-hub:")
_opened: dict[str, Model] = {}  # by the name that the script used: get_tokenizer asks for it


def _out(a: Any) -> Any:
    """A tensor if PyTorch is installed."""
    if importlib.util.find_spec("torch") is None:
        return a
    import torch

    return torch.from_numpy(a if a.flags.c_contiguous else np.ascontiguousarray(a))


class Preprocess:
    """Converts an image, or several, to the model's input: (3, S, S) of normalised floats."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __call__(self, image: Any) -> Any:
        return _out(self._model.preprocess(image))


class SimpleTokenizer:
    """Converts texts to rows of tokens (n, context_length) of int64, as open_clip's."""

    def __init__(self, encode: Any, context_length: int) -> None:
        self._encode, self.context_length = encode, context_length

    def __call__(self, texts: Union[str, Sequence[str]], context_length: Optional[int] = None) -> Any:
        length = context_length or self.context_length
        return _out(self._encode(texts, length).astype(np.int64))


class _Visual:
    def __init__(self, model: Model) -> None:
        self.image_size = (model.facts.image_size,) * 2
        self.output_dim = model.facts.embed


class CLIP:
    """A cloob.Model with the methods of open_clip's models. `model` is the cloob.Model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.visual = _Visual(model)
        self.context_length, self.vocab_size = model.facts.context, model.facts.vocab
        self.logit_scale = _out(np.array(np.log(model.facts.inv_tau or 1.0), np.float32))
        self.logit_bias = None
        self.training = False

    def encode_image(self, image: Any, normalize: bool = False) -> Any:
        """Embeddings (n, D) of images (n, 3, S, S); of unit length with normalize."""
        return _out(self.model.encode_image(image, "unit" if normalize else "raw"))

    def encode_text(self, text: Any, normalize: bool = False) -> Any:
        """Embeddings (n, D) of tokens (n, context_length)."""
        return _out(self.model.encode_text(text, "unit" if normalize else "raw"))

    def get_logits(self, image: Any, text: Any) -> tuple[Any, Any]:
        """The scaled cosines (images, texts), and the same transposed."""
        x, y = self.model.encode_image(image), self.model.encode_text(text)
        logits = np.float32(self.model.facts.inv_tau or 1.0) * (x @ y.T)
        return _out(logits), _out(logits.T)

    def __call__(self, image: Any = None, text: Any = None) -> tuple[Any, Any, Any]:
        """Unit embeddings of both, and the inverse temperature."""
        scale = _out(np.array(self.model.facts.inv_tau or 1.0, np.float32))
        return (None if image is None else self.encode_image(image, True), None if text is None else self.encode_text(text, True), scale)

    forward = __call__

    def eval(self) -> CLIP:
        return self

    def to(self, *_: Any, **__: Any) -> CLIP:
        """The device is chosen when the model is created (device=...); rows are returned on the CPU."""
        return self

    cpu = float = requires_grad_ = to

    def train(self, mode: bool = True) -> CLIP:
        if mode:
            raise UnsupportedError("cloob.open_clip has inference only; train with cloob.train or `cloob train`")
        return self


def _source(model_name: str, pretrained: Optional[str]) -> tuple[str, Optional[str]]:
    """The path or name to open, and the name of the configuration if the weights may not contain it."""
    for prefix in _PREFIXES:
        if model_name.startswith(prefix):
            return (model_name[len(prefix):] if prefix == "local-dir:" else model_name), None
    if os.path.exists(model_name) and not pretrained:
        return model_name, None
    if not pretrained:
        raise ArgumentError(f"{model_name}: pass `pretrained`, a file of weights or a tag; cloob.open_clip creates no random weights")
    if os.path.exists(pretrained):
        return pretrained, model_name
    return f"{model_name}/{pretrained}", None


def create_model(model_name: str, pretrained: Optional[str] = None, precision: str = "fp32", device: Any = "cpu", *,
                 vocab: Optional[str] = None, **unused: Any) -> CLIP:
    """Opens the weights. precision and device as in cloob.load; vocab: a merges file for get_tokenizer and texts."""
    for name, value in unused.items():
        if value not in (None, False, {}, ()) and name not in ("cache_dir", "load_weights", "weights_only", "require_pretrained"):
            raise UnsupportedError(f"{name}={value!r}: cloob.open_clip has no such option")
    path, config = _source(model_name, pretrained)
    model = load(path, config=config, device=str(device), precision=precision, vocab=vocab)
    _opened[model_name] = model
    return CLIP(model)


def create_model_and_transforms(model_name: str, pretrained: Optional[str] = None, precision: str = "fp32", device: Any = "cpu",
                                **options: Any) -> tuple[CLIP, Preprocess, Preprocess]:
    """The model, and its transform of evaluation twice: open_clip returns one for training and one for evaluation."""
    model = create_model(model_name, pretrained, precision, device, **options)
    return model, Preprocess(model.model), Preprocess(model.model)


def create_model_from_pretrained(model_name: str, pretrained: Optional[str] = None, precision: str = "fp32", device: Any = "cpu",
                                 **options: Any) -> tuple[CLIP, Preprocess]:
    """The model and the transform of evaluation."""
    model = create_model(model_name, pretrained, precision, device, **options)
    return model, Preprocess(model.model)


def get_tokenizer(model_name: str = "", context_length: Optional[int] = None, *, vocab: Optional[str] = None,
                  **unused: Any) -> SimpleTokenizer:
    """The tokenizer of the model that was created under this name; if it has none, CLIP's merges from `vocab` or open_clip's package."""
    opened = _opened.get(model_name)
    length = context_length or (opened.facts.context if opened else 77)
    if vocab is None and opened is not None and opened.facts.has_tokenizer and length == opened.facts.context:
        model = opened
        return SimpleTokenizer(lambda texts, _: model.tokenize(texts), length)
    found = vocab or _installed_merges()
    if found is None:
        problem = "its weights contain no tokenizer" if opened else "no model was created under this name"
        raise ArgumentError(f"{model_name}: {problem}; pass a merges file as `vocab`")
    return SimpleTokenizer(Tokenizer(found), length)


def _installed_merges() -> Optional[str]:
    """CLIP's merges in the installed open_clip, which is not imported."""
    spec = importlib.util.find_spec("open_clip")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "bpe_simple_vocab_16e6.txt.gz"
        if path.exists():
            return str(path)
    return None


def tokenize(texts: Union[str, Sequence[str]], context_length: int = 77) -> Any:
    """CLIP's tokens (n, context_length)."""
    return get_tokenizer(context_length=context_length)(texts)
