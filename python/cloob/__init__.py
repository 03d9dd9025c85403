"""CLOOB from Python: embeddings of images and texts, the tokenizer, Hopfield retrieval, and the objective.

    import cloob

    model = cloob.load("RN50.safetensors")
    image = model.encode_image("cat.jpg")                       # (D,), unit length
    text = model.encode_text(["a cat", "a dog"])                # (2, D)
    print(text @ image)

Arrays are numpy's. Whatever speaks DLPack or numpy's array interface goes in, without a copy where its type and layout
are right; results convert with torch.from_dlpack. cloob.torch has the objective for autograd; PyTorch is
imported only there. Failures of the library are cloob.Error and its kinds, with the library's one-line message.
"""
from ._hopfield import hopfield, hopfield_energy
from ._library import DeviceError, Error, FormatError, NumericError, UnsupportedError, library_path, version
from ._model import Facts, Model, load
from ._objective import METHODS, Objective, objective
from ._tokenizer import Tokenizer, tokenize

__version__ = version()
__all__ = [
    "DeviceError", "Error", "Facts", "FormatError", "METHODS", "Model", "NumericError", "Objective", "Tokenizer",
    "UnsupportedError", "hopfield", "hopfield_energy", "library_path", "load", "objective", "tokenize", "version",
]
