"""Inputs: arrays that support DLPack or numpy's array interface, and images."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, BinaryIO, Optional, Protocol, Sequence, Union

import numpy as np

from ._library import ArgumentError, PathIn, path_bytes
from ._structs import ImageInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Bools = NDArray[np.bool_]
    AnyArray = NDArray[Any]


class SupportsDLPack(Protocol):
    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


class PilImage(Protocol):
    """The members of a PIL image that the package uses."""

    @property
    def size(self) -> tuple[int, int]: ...

    def convert(self, mode: str) -> Any: ...


ArrayIn = Union["AnyArray", SupportsDLPack, Sequence[Any]]
ImageIn = Union[PathIn, bytes, bytearray, memoryview, BinaryIO, PilImage, "AnyArray", SupportsDLPack]

_CPU_KINDS = (1, 3)  # kDLCPU, kDLCUDAHost

# ---- arrays


def as_numpy(value: Any) -> AnyArray:
    """A view where possible. Tensors on a GPU are copied to the host; gradients are not tracked."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach") and hasattr(value, "__dlpack__"):  # torch: DLPack refuses tensors that require gradients
        value = value.detach()
    if hasattr(value, "__dlpack_device__"):
        if int(value.__dlpack_device__()[0]) not in _CPU_KINDS:
            if not hasattr(value, "cpu"):
                raise TypeError(f"{type(value).__name__} is on a device; copy it to the host first")
            value = value.cpu()
        try:
            return np.from_dlpack(value)
        except (TypeError, RuntimeError, BufferError):  # bf16, which numpy does not know
            if hasattr(value, "float"):
                return np.from_dlpack(value.float())
            raise
    return np.asarray(value)


def rows(value: Any, name: str, dtype: Any = np.float32, hint: str = "") -> AnyArray:
    """A contiguous matrix of that type; a view where it is one already."""
    given = as_numpy(value)
    if given.dtype.kind not in "fiu" and given.dtype.name != "bfloat16":
        raise TypeError(f"{name}: expected numbers, got {given.dtype}{hint}")
    a = np.ascontiguousarray(given, dtype=dtype)
    if a.ndim != 2:
        raise ArgumentError(f"{name}: expected a matrix of rows, got shape {a.shape}")
    return a


# ---- images


def is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def is_one_image(value: Any) -> bool:
    """A path, the bytes of a file, an open file, or a PIL image; of arrays the shape decides."""
    return is_path(value) or isinstance(value, (bytes, bytearray, memoryview)) or is_pil(value) or hasattr(value, "read")


def is_pil(value: Any) -> bool:
    return hasattr(value, "convert") and hasattr(value, "size")


class Images:
    """Images in the form that cloob_encode_inputs takes. Keeps what the pointers point to."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.array = (ImageInput * max(count, 1))()
        self._kept: list[Any] = []

    def set(self, i: int, value: Any) -> None:
        """Image i of the call: a path, the bytes of a file, an open file, a PIL image, or pixels (height, width, 3) of uint8."""
        slot = self.array[i]
        if hasattr(value, "read") and not is_pil(value):
            value = value.read()
        if is_path(value):
            path = path_bytes(value)
            self._kept.append(path)
            slot.path = path
            return
        if isinstance(value, (bytes, bytearray, memoryview)):
            data = np.frombuffer(value, np.uint8)
            if not data.size:
                raise ArgumentError("an image of 0 bytes")
            slot.data, slot.bytes = data.ctypes.data, data.size
        else:
            data = np.ascontiguousarray(as_numpy(value.convert("RGB") if is_pil(value) else value))
            if data.dtype != np.uint8 or data.ndim != 3 or data.shape[2] != 3 or not data.size:
                raise ArgumentError(f"expected an image, got {describe(value)}; an image is a path, the bytes of a file, an open "
                                    "file, a PIL image, or an array uint8 (height, width, 3)")
            slot.data, slot.height, slot.width = data.ctypes.data, *data.shape[:2]
        self._kept.append(data)


def describe(value: Any) -> str:
    """An array by its type and shape, another object by its type."""
    return f"{value.dtype} {tuple(value.shape)}" if hasattr(value, "dtype") else type(value).__name__


def name_input(error: Exception, name: str) -> Exception:
    """The same error, prefixed with the input's name."""
    if isinstance(error, (ValueError, TypeError)) and len(error.args) == 1:
        return type(error)(f"{name}: {error}")
    return ArgumentError(f"{name}: {error}")


def check_errors(errors: str) -> bool:
    """True: skip unusable images."""
    if errors not in ("raise", "skip"):
        raise ArgumentError(f"errors {errors!r}: expected 'raise' or 'skip'")
    return errors == "skip"


def float_images(values: Sequence[Any], size: int) -> Optional[list[AnyArray]]:
    """The images as normalised floats (3, size, size), where they all are; None otherwise."""
    arrays = []
    for value in values:
        if is_one_image(value):
            return None
        a = as_numpy(value)
        if a.dtype.kind != "f" or a.shape != (3, size, size):
            return None
        arrays.append(a)
    return arrays


def pointer(a: AnyArray) -> int:
    return int(a.ctypes.data)

