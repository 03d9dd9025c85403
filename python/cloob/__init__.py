"""CLOOB from Python: embeddings of images and texts, classification, search, training, evaluation, and the objective.

    import cloob

    model = cloob.load("RN50.safetensors")
    image = model.encode_image("cat.jpg")                       # (D,), unit length
    text = model.encode_text(["a cat", "a dog"])                # (2, D)
    print(text @ image)

Results are numpy arrays; torch.from_dlpack converts them. Inputs may be any arrays that support DLPack or numpy's array
interface, without a copy if type and layout match. cloob.torch has the objective for autograd, cloob.open_clip open_clip's
interface, cloob.mteb mteb's encoder; PyTorch and mteb are imported only there. Errors are cloob.Error and its subclasses,
with a one-line message.
"""
import importlib as _importlib
from typing import Any as _Any

from . import evaluate
from ._index import Hit, Index
from ._library import (ArgumentError, BusyError, CloobError, DeviceError, Error, FileError, FormatError, NumericError, OutOfMemory,
                       PeerError, Stopped, UnsupportedError, library_path, version)
from ._model import Facts, Model, load
from ._objective import METHODS, Objective, hopfield, hopfield_energy, objective
from ._tokenizer import Tokenizer, tokenize
from ._train import Epoch, Run, Step, train

__version__ = version()
__all__ = [
    "ArgumentError", "BusyError", "CloobError", "DeviceError", "Epoch", "Error", "Facts", "FileError", "FormatError", "Hit", "Index",
    "METHODS", "Model", "NumericError", "Objective", "OutOfMemory", "PeerError", "Run", "Step", "Stopped", "Tokenizer",
    "UnsupportedError", "evaluate", "hopfield", "hopfield_energy", "library_path", "load", "objective", "tokenize", "train", "version",
]


def __getattr__(name: str) -> _Any:
    """Imports an adapter on first use, so that `import cloob` alone is enough for cloob.open_clip."""
    if name in ("mteb", "open_clip", "torch"):
        return _importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
