"""CLOOB from Python: embeddings of images and texts, classification, search, training, evaluation, and the objective.

    import cloob

    model = cloob.load("RN50.safetensors")
    image = model.encode_image("cat.jpg")                       # (D,), unit length
    text = model.encode_text(["a cat", "a dog"])                # (2, D)
    print(text @ image)

Arrays are numpy's. Whatever speaks DLPack or numpy's array interface goes in, without a copy where its type and layout
are right; results convert with torch.from_dlpack. cloob.torch has the objective for autograd, cloob.open_clip the interface
of open_clip, cloob.mteb the encoder of mteb: PyTorch and mteb are imported only there. Failures of the library are
cloob.Error and its kinds, with the library's one-line message.
"""
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
