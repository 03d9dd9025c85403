"""libcloob through ctypes: where it is, its structs and functions, contexts, and failures as exceptions.

The structs mirror include/cloob/*.h; tests/python compares every offset with the C compiler's.
"""
from __future__ import annotations

import ctypes as c
import logging
import operator
import os
import threading
from ctypes.util import find_library
from pathlib import Path
from typing import Any, Sequence

# ---- failures


class Error(Exception):
    """A call of the library failed; the text says what, where and why. `status` is the library's word for the kind."""

    status = "internal"


class ArgumentError(Error, ValueError):
    status = "argument"


class FileError(Error, OSError):
    status = "io"


class FormatError(Error, ValueError):
    """A file whose content is not what it claims to be."""

    status = "format"


class OutOfMemory(Error, MemoryError):
    status = "memory"


class DeviceError(Error, RuntimeError):
    status = "device"


class UnsupportedError(Error, NotImplementedError):
    """This build or machine does not have the part asked for."""

    status = "unsupported"


class NumericError(Error, ArithmeticError):
    """NaN, infinity, or rows that are not of unit length."""

    status = "numeric"


_KINDS: list[type[Error]] = [Error, ArgumentError, FileError, FormatError, OutOfMemory, DeviceError, Error, UnsupportedError,
                             NumericError, Error]

# ---- structs, in the order of the headers

F32, BF16, F16, F64 = 0, 1, 2, 3  # cloob_dtype
_OUTPUTS = {"unit": 0, "raw": 1, "features": 2}  # cloob_output
IMAGE, TEXT = 0, 1  # cloob_side

LogFn = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)


class CtxOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("threads", c.c_int), ("log", LogFn), ("log_user", c.c_void_p), ("log_level", c.c_int),
                ("progress", c.c_void_p), ("progress_user", c.c_void_p),
                ("should_stop", c.c_void_p), ("stop_user", c.c_void_p), ("copy_files", c.c_bool)]


class ModelOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("device", c.c_char_p), ("precision", c.c_char_p), ("vocab", c.c_char_p), ("config", c.c_char_p),
                ("invariant", c.c_bool), ("batch", c.c_int64), ("max_pixels", c.c_int64), ("photos", c.c_bool)]


class ModelFacts(c.Structure):
    _fields_ = [("name", c.c_char * 64), ("family", c.c_char_p), ("activation", c.c_char_p), ("embed", c.c_int64),
                ("image_size", c.c_int64), ("context", c.c_int64), ("vocab", c.c_int64), ("image_features", c.c_int64),
                ("text_features", c.c_int64), ("parameters", c.c_int64), ("stored", c.c_int), ("method", c.c_char_p),
                ("run", c.c_char_p), ("epoch", c.c_int64), ("inv_tau", c.c_double), ("scale_hopfield", c.c_double),
                ("has_tokenizer", c.c_bool), ("container", c.c_char_p), ("names", c.c_char_p), ("device", c.c_char_p),
                ("precision", c.c_char_p)]


class Hopfield(c.Structure):
    _fields_ = [("stored", c.c_void_p), ("count", c.c_int64), ("dim", c.c_int64), ("beta", c.c_double)]


class HopfieldOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("updates", c.c_int), ("tolerance", c.c_double), ("unit", c.c_bool)]


class ObjectiveOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("method", c.c_int), ("inv_tau", c.c_double), ("scale_hopfield", c.c_double), ("device", c.c_char_p),
                ("compute", c.c_int), ("logit_bias", c.c_double)]


class ObjectiveShape(c.Structure):
    _fields_ = [("n", c.c_int64), ("d", c.c_int64), ("nu", c.c_int64), ("nv", c.c_int64), ("dtype", c.c_int),
                ("gradients", c.c_bool)]


class ObjectiveRows(c.Structure):
    _fields_ = [("x", c.c_void_p), ("y", c.c_void_p), ("u", c.c_void_p), ("v", c.c_void_p),
                ("dx", c.c_void_p), ("dy", c.c_void_p), ("du", c.c_void_p), ("dv", c.c_void_p)]


class ObjectiveResult(c.Structure):
    _fields_ = [("loss", c.c_double), ("image_term", c.c_double), ("text_term", c.c_double), ("dsum_dinv_tau", c.c_double),
                ("dsum_dscale", c.c_double), ("n", c.c_int64), ("d", c.c_int64), ("nu", c.c_int64), ("nv", c.c_int64),
                ("dsum_dbias", c.c_double)]


STRUCTS: dict[str, type[c.Structure]] = {
    "cloob_ctx_options": CtxOptions, "cloob_model_options": ModelOptions, "cloob_model_facts": ModelFacts,
    "cloob_hopfield": Hopfield, "cloob_hopfield_options": HopfieldOptions,
    "cloob_objective_options": ObjectiveOptions, "cloob_objective_shape": ObjectiveShape,
    "cloob_objective_rows": ObjectiveRows, "cloob_objective_result": ObjectiveResult,
}

# ---- functions: result, arguments

_P, _S, _I = c.c_void_p, c.c_char_p, c.c_int64
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "cloob_version": (_S, []),
    "cloob_error": (_S, [_P]),
    "cloob_ctx_options_init": (None, [_P]),
    "cloob_ctx_create": (_P, [_P]),
    "cloob_ctx_destroy": (None, [_P]),
    "cloob_model_options_init": (None, [_P]),
    "cloob_model_open": (c.c_int, [_P, _S, _P, _P]),
    "cloob_model_close": (None, [_P]),
    "cloob_model_get_facts": (None, [_P, _P]),
    "cloob_model_width": (_I, [_P, c.c_int, c.c_int]),
    "cloob_model_tokenize": (c.c_int, [_P, _P, _P, _I, _P]),
    "cloob_encode_images": (c.c_int, [_P, _P, _P, _I, c.c_int, _P]),
    "cloob_encode_image": (c.c_int, [_P, _P, _P, _I, _I, c.c_int, _P]),
    "cloob_encode_files": (c.c_int, [_P, _P, _P, _I, c.c_int, _P, _P]),
    "cloob_encode_texts": (c.c_int, [_P, _P, _P, _I, c.c_int, _P]),
    "cloob_encode_image_tensor": (c.c_int, [_P, _P, _P, _I, c.c_int, _P]),
    "cloob_encode_tokens": (c.c_int, [_P, _P, _P, _I, c.c_int, _P]),
    "cloob_tokenizer_open": (c.c_int, [_P, _S, _P]),
    "cloob_tokenizer_close": (None, [_P]),
    "cloob_tokenizer_vocab_size": (c.c_int32, [_P]),
    "cloob_tokenizer_start_id": (c.c_int32, [_P]),
    "cloob_tokenizer_end_id": (c.c_int32, [_P]),
    "cloob_tokenizer_encode": (c.c_int, [_P, _P, _S, c.c_size_t, _P, _P]),
    "cloob_tokenizer_encode_rows": (c.c_int, [_P, _P, _P, _I, _I, _P]),
    "cloob_tokenizer_decode": (c.c_int, [_P, _P, _P, _I, _P]),
    "cloob_hopfield_options_init": (None, [_P]),
    "cloob_hopfield_retrieve": (c.c_int, [_P, _P, _P, _P, _I, _P, _P]),
    "cloob_hopfield_energy": (c.c_int, [_P, _P, _P, _I, _P]),
    "cloob_objective_options_init": (None, [_P]),
    "cloob_objective_plan_create": (c.c_int, [_P, _P, _P, _P]),
    "cloob_objective_plan_scales": (c.c_int, [_P, _P, c.c_double, c.c_double]),
    "cloob_objective_plan_run": (c.c_int, [_P, _P, _P, _P]),
    "cloob_objective_plan_destroy": (None, [_P]),
}


def _candidates() -> list[str]:
    here = Path(__file__).resolve().parent
    named = os.environ.get("CLOOB_LIBRARY")
    if named:
        return [named]
    inside = [here / "libcloob.so", here.parent.parent / "build" / "libcloob.so"]  # a wheel; a clone
    system = find_library("cloob")
    return [str(p) for p in inside if p.exists()] + ([system] if system else [])


def _open() -> tuple[c.CDLL, str]:
    if "OMP_WAIT_POLICY" not in os.environ:  # as the program does: threads that wait do not keep the cores from others for long
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    problem = "it is in no known place"
    for path in _candidates():
        try:
            return c.CDLL(path), path
        except OSError as e:
            problem = str(e)
    raise ImportError(f"libcloob.so cannot be loaded: {problem}. Run make, or name it with CLOOB_LIBRARY")


def _declare(lib: c.CDLL, path: str) -> None:
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            f = getattr(lib, name)
        except AttributeError:
            raise ImportError(f"{path}: has no {name}; the library and the package are of different versions") from None
        f.restype, f.argtypes = result, arguments


lib, _path = _open()
_declare(lib, _path)
libc_free = c.CDLL(None).free
libc_free.argtypes, libc_free.restype = [c.c_void_p], None


def version() -> str:
    """The library's version."""
    return lib.cloob_version().decode()


def library_path() -> str:
    """The file of the library that is in use."""
    return _path


# ---- contexts

_logger = logging.getLogger("cloob")
_LEVELS = [logging.DEBUG, logging.INFO, logging.WARNING]


@LogFn
def _log(user: Any, level: int, line: bytes) -> None:
    _logger.log(_LEVELS[min(level, 2)], "%s", line.decode("utf-8", "replace"))


class Context:
    """A context of the library, which serves one call at a time. Log lines go to the logger "cloob"."""

    def __init__(self, threads: int = 0) -> None:
        o = CtxOptions()
        lib.cloob_ctx_options_init(c.byref(o))
        o.threads, o.log = integer(threads, "threads", 0, 2**31 - 1), _log
        self._handle: int | None = lib.cloob_ctx_create(c.byref(o))
        self.lock = threading.RLock()
        if not self._handle:
            raise OutOfMemory("no memory for a context")

    def call(self, function: Any, *arguments: Any) -> None:
        """function(context, *arguments); a failure is raised."""
        with self.lock:
            status = function(self._handle, *arguments)
            if status:
                raise _KINDS[status](lib.cloob_error(self._handle).decode("utf-8", "replace"))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.cloob_ctx_destroy(self._handle)
            self._handle = None


_thread = threading.local()


def shared_context() -> Context:
    """The calling thread's own, for calls without a model."""
    if not hasattr(_thread, "context"):
        _thread.context = Context()
    return _thread.context


# ---- small conversions


def text_bytes(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"a text is wanted, not {type(text).__name__}")
    if "\0" in text:
        raise ArgumentError("a text must not hold the character U+0000")
    return text.encode("utf-8", "surrogatepass")


def string_array(texts: Sequence[bytes]) -> c.Array[c.c_char_p]:
    return (c.c_char_p * max(len(texts), 1))(*texts)


def integer(value: Any, name: str, low: int, high: int) -> int:
    """A whole number in the range; ctypes would cut others to their last bits."""
    n = operator.index(value)
    if isinstance(value, bool) or not low <= n <= high:
        raise ArgumentError(f"{name} {value!r}: a whole number from {low} to {high} is wanted")
    return n


def path_bytes(value: str | os.PathLike[str]) -> bytes:
    path = os.fsencode(value)  # TypeError for what is no path
    if b"\0" in path:
        raise ArgumentError("a path must not hold the character U+0000")
    return path


def optional(value: str | os.PathLike[str] | None) -> bytes | None:
    return None if value is None else path_bytes(value)


def output_code(output: str) -> int:
    if output not in _OUTPUTS:
        raise ArgumentError(f"output {output!r}: one of {', '.join(_OUTPUTS)}")
    return _OUTPUTS[output]
