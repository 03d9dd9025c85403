"""libcloob through ctypes: finding and loading it, contexts, errors as exceptions, and forks."""
from __future__ import annotations

import ctypes as c
import importlib.util
import logging
import operator
import os
import threading
import weakref
from ctypes.util import find_library
from pathlib import Path
from typing import Any, Optional, Sequence, Union

from ._structs import FUNCTIONS, OUTPUTS, CtxOptions, LogFn

PathIn = Union[str, "os.PathLike[str]"]

# ---- failures


class Error(Exception):
    """A call of the library failed. The text is one line: what failed, where and why. `status` is the library's name of the kind."""

    status = "internal"


CloobError = Error


class ArgumentError(Error, ValueError):
    """An invalid argument."""

    status = "argument"


class FileError(Error, OSError):
    """Reading or writing a file failed."""

    status = "io"


class FormatError(Error, ValueError):
    """Invalid or damaged file content."""

    status = "format"


class OutOfMemory(Error, MemoryError):
    """Not enough host or device memory."""

    status = "memory"


class DeviceError(Error, RuntimeError):
    """An accelerator or its library failed, or cannot be used in this process."""

    status = "device"


class PeerError(Error, RuntimeError):
    """Another rank ended, or its settings differ."""

    status = "peer"


class UnsupportedError(Error, NotImplementedError):
    """Not available in this build or on this machine."""

    status = "unsupported"


class NumericError(Error, ArithmeticError):
    """NaN, infinity, or rows that are not of unit length."""

    status = "numeric"


class Stopped(Error):
    """Stopped by the caller; all work is saved."""

    status = "stopped"


class BusyError(Error, RuntimeError):
    """The hub cannot be reached, or a timeout expired; try again later."""

    status = "busy"


_KINDS: list[type[Error]] = [Error, ArgumentError, FileError, FormatError, OutOfMemory, DeviceError, PeerError, UnsupportedError,
                             NumericError, Stopped, BusyError]  # by cloob_status


# ---- the library


def _candidates() -> list[str]:
    here = Path(__file__).resolve().parent
    named = os.environ.get("CLOOB_LIBRARY")
    if named:
        return [named]
    inside = [here / "libcloob.so", here.parent.parent / "build" / "libcloob.so"]  # a wheel; a clone
    system = find_library("cloob")
    return [str(p) for p in inside if p.exists()] + ([system] if system else [])


def _open() -> tuple[c.CDLL, str]:
    if "OMP_WAIT_POLICY" not in os.environ:  # as the program does: waiting threads busy-wait only for a short time
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    problem = "not found"
    for path in _candidates():
        try:
            return c.CDLL(path), path
        except OSError as e:
            problem = str(e)
    raise ImportError(f"libcloob.so cannot be loaded: {problem}. Build it with make, or set CLOOB_LIBRARY to its path")


def _declare(lib: c.CDLL, path: str) -> None:
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            f = getattr(lib, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}: the library and the Python package have different versions") from None
        f.restype, f.argtypes = result, arguments


lib, _path = _open()
_declare(lib, _path)
_done: dict[str, bool] = {}  # state of this process
libc_free = c.CDLL(None).free
libc_free.argtypes, libc_free.restype = [c.c_void_p], None


def preload_cuda() -> None:
    """Opens the CUDA libraries of NVIDIA's wheels, where the dynamic linker does not look; libcloob then finds them by name. Only
    on machines with NVIDIA's driver; the system's CUDA needs nothing."""
    if _done.get("cuda") or not os.path.exists("/dev/nvidiactl"):
        return
    _done["cuda"] = True
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for name in ("cublasLt", "cublas", "cudnn", "nccl", "nvjpeg"):
            for file in sorted(Path(folder).glob(f"*/lib/lib{name}.so.*"))[:1]:
                try:
                    c.CDLL(str(file), c.RTLD_GLOBAL)
                except OSError as e:
                    _logger.debug("%s", e)


def version() -> str:
    """Version of the library."""
    return str(lib.cloob_version().decode())


def library_path() -> str:
    """Path of the library in use."""
    return _path


def defaults(kind: type[c.Structure]) -> Any:
    """A struct of options with its size and the library's defaults."""
    o = kind()
    getattr(lib, f"{kind.__name__}_init_size")(c.byref(o), c.sizeof(o))
    return o


# ---- contexts

_logger = logging.getLogger("cloob")
_LEVELS = [logging.DEBUG, logging.INFO, logging.WARNING]


def _write_log(user: Any, level: int, line: bytes) -> None:
    _logger.log(_LEVELS[min(level, 2)], "%s", line.decode("utf-8", "replace"))


_log = LogFn(_write_log)


class Context:
    """A context of the library, which serves one call at a time. Log lines go to the logger "cloob"."""

    def __init__(self, threads: int = 0) -> None:
        o = defaults(CtxOptions)
        o.threads, o.log = integer(threads, "threads", 0, 2**31 - 1), _log
        self._handle: Optional[int] = lib.cloob_ctx_create(c.byref(o))
        self.lock = threading.RLock()
        self._interrupted = False  # a fork happened during a call of another thread
        if not self._handle:
            raise OutOfMemory("no memory for a context")
        _contexts.add(self)

    def call(self, function: Any, *arguments: Any) -> None:
        """function(context, *arguments), without the interpreter lock; a failure is raised."""
        with self.lock:
            if self._interrupted:
                raise DeviceError("this process was forked while another thread used the model; load it again in this process")
            status = function(self._handle, *arguments)
            if status:
                raise _KINDS[status](lib.cloob_error(self._handle).decode("utf-8", "replace"))

    def after_fork(self) -> None:
        """In the child: replaces a lock that another thread held, because the call of that thread never ends there."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
        else:
            self.lock, self._interrupted = threading.RLock(), True

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and not self._interrupted:
            lib.cloob_ctx_destroy(self._handle)
            self._handle = None


_contexts: "weakref.WeakSet[Context]" = weakref.WeakSet()
_thread = threading.local()


def shared_context() -> Context:
    """The calling thread's context, for calls without a model."""
    context: Optional[Context] = getattr(_thread, "context", None)
    if context is None:
        context = _thread.context = Context()
    return context


def per_thread(name: str, make: Any) -> Any:
    """An object of the calling thread, created on first use."""
    if name not in _thread.__dict__:
        _thread.__dict__[name] = make()
    return _thread.__dict__[name]


def _after_fork() -> None:
    for context in list(_contexts):
        context.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ---- small conversions


def text_bytes(text: str, name: str = "a text") -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"{name}: expected a str, got {type(text).__name__}")
    if "\0" in text:
        raise ArgumentError(f"{name}: must not contain the character U+0000")
    return text.encode("utf-8", "surrogatepass")


def string_array(texts: Sequence[bytes]) -> "c.Array[c.c_char_p]":
    return (c.c_char_p * max(len(texts), 1))(*texts)


def integer(value: Any, name: str, low: int, high: int) -> int:
    """An integer in the range; ctypes would truncate others."""
    n = operator.index(value)
    if isinstance(value, bool) or not low <= n <= high:
        raise ArgumentError(f"{name} {value!r}: expected a whole number from {low} to {high}")
    return n


def path_bytes(value: PathIn) -> bytes:
    path = os.fsencode(value)  # TypeError for what is no path
    if b"\0" in path:
        raise ArgumentError("a path must not contain the character U+0000")
    return path


def members(struct: c.Structure, of: Any) -> dict[str, Any]:
    """The fields of a dataclass, read from a struct; bytes become texts."""
    values = {name: getattr(struct, name) for name in of.__dataclass_fields__}
    return {k: os.fsdecode(v) if isinstance(v, bytes) else v for k, v in values.items()}


def optional(value: Optional[PathIn]) -> Optional[bytes]:
    return None if value is None else path_bytes(value)


def output_code(output: str) -> int:
    if output not in OUTPUTS:
        raise ArgumentError(f"output {output!r}: expected one of {', '.join(OUTPUTS)}")
    return OUTPUTS[output]
