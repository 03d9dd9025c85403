"""A model for mteb (version 2): tasks with texts, images, and both.

    import mteb
    from cloob.mteb import Encoder

    encoder = Encoder("clip.safetensors")
    mteb.evaluate(encoder, mteb.get_tasks(tasks=["CIFAR10ZeroShot"]))

Rows have unit length, so the cosine is the dot product. The embedding of a text with an image is the normalised sum of both
rows, as in mteb's own CLIP models.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Optional, Union

import numpy as np

from ._inputs import as_numpy
from ._library import ArgumentError, PathIn
from ._model import Model, load

if TYPE_CHECKING:
    from ._inputs import AnyArray, Floats

__all__ = ["Encoder"]


class Encoder:
    """mteb's EncoderProtocol around a model. options are those of cloob.load."""

    def __init__(self, model: Union[Model, PathIn], revision: Optional[str] = None, *, device: Optional[str] = None,
                 name: Optional[str] = None, **options: Any) -> None:
        if not isinstance(model, Model):
            model = load(model, device=device or "auto", **options)
        self.model, self._revision = model, revision
        self._name = name or f"cloob/{model.facts.name or model.facts.family}"
        self._meta: Any = None

    # ---- rows

    def encode(self, inputs: Iterable[dict[str, Any]], *, task_metadata: Any = None, hf_split: str = "", hf_subset: str = "",
               prompt_type: Any = None, **unused: Any) -> Floats:
        """(n, D) of float32. inputs: batches with "text", "image" or both, as mteb's loaders give them."""
        made = [self._encode_batch(batch) for batch in inputs]
        if not made:
            return np.zeros((0, self.model.facts.embed), np.float32)
        return np.concatenate(made)

    def _encode_batch(self, batch: dict[str, Any]) -> Floats:
        texts, images = batch.get("text"), batch.get("image")
        parts = []
        if texts is not None:
            parts.append(self.model.encode_text([str(t) for t in texts]))
        if images is not None:
            parts.append(self.model.encode_image(list(images)))
        if not parts:
            raise ArgumentError(f"a batch contains {', '.join(batch)}; expected \"text\" or \"image\"")
        return _unit(np.asarray(sum(parts[1:], parts[0]), np.float32)) if len(parts) > 1 else parts[0]

    def get_text_embeddings(self, texts: Iterable[dict[str, Any]], **unused: Any) -> Floats:
        return self.encode({"text": batch["text"]} for batch in texts)

    def get_image_embeddings(self, images: Iterable[dict[str, Any]], **unused: Any) -> Floats:
        return self.encode({"image": batch["image"]} for batch in images)

    # ---- scores

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines (n, m), as a tensor of PyTorch, which mteb needs anyway."""
        return _tensor(_rows(embeddings1) @ _rows(embeddings2).T)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines (n,) of row i with row i."""
        return _tensor((_rows(embeddings1) * _rows(embeddings2)).sum(axis=-1))

    @property
    def mteb_model_meta(self) -> Any:
        """The metadata that mteb writes into its results."""
        if self._meta is None:
            from mteb.models.model_meta import ModelMeta, ScoringFunction

            facts = self.model.facts
            self._meta = ModelMeta.create_empty(overwrites=dict(
                name=self._name, revision=self._revision or "local", languages=["eng-Latn"], n_parameters=facts.parameters,
                max_tokens=facts.context, embed_dim=facts.embed, open_weights=True, modalities=["image", "text"],
                similarity_fn_name=ScoringFunction.COSINE, use_instructions=False))
        return self._meta


def _unit(a: AnyArray) -> Floats:
    made: Floats = (a / np.maximum(np.linalg.norm(a, axis=-1, keepdims=True), 1e-12)).astype(np.float32)
    return made


def _rows(value: Any) -> Floats:
    return _unit(np.atleast_2d(as_numpy(value)))


def _tensor(a: AnyArray) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(a))
