"""What goes in: arrays of anything that speaks DLPack or numpy's array interface, and images in their many forms."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional, Protocol, Sequence, Union

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
    """What the package needs of a PIL image."""

    @property
    def size(self) -> tuple[int, int]: ...

    def convert(self, mode: str) -> Any: ...


ArrayIn = Union["AnyArray", SupportsDLPack, Sequence[Any]]
ImageIn = Union[PathIn, bytes, bytearray, memoryview, PilImage, "AnyArray", SupportsDLPack]

_CPU_KINDS = (1, 3)  # kDLCPU, kDLCUDAHost

# ---- arrays


def as_numpy(value: Any) -> AnyArray:
    """A view where possible. Tensors on a GPU are brought to the host; gradients are not followed."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):  # torch: DLPack refuses tensors that want gradients
        value = value.detach()
    if hasattr(value, "__dlpack_device__"):
        if int(value.__dlpack_device__()[0]) not in _CPU_KINDS:
            if not hasattr(value, "cpu"):
                raise TypeError(f"{type(value).__name__}: is on a device; bring it to the host first")
            value = value.cpu()
        try:
            return np.from_dlpack(value)
        except (TypeError, RuntimeError, BufferError):  # bf16, which numpy does not know
            if hasattr(value, "float"):
                return np.from_dlpack(value.float())
            raise
    return np.asarray(value)


def rows(value: Any, name: str, dtype: Any = np.float32) -> AnyArray:
    """A contiguous matrix of that type; a view where it is one already."""
    given = as_numpy(value)
    if given.dtype.kind not in "fiu" and given.dtype.name != "bfloat16":
        raise TypeError(f"{name}: numbers are wanted, not {given.dtype}")
    a = np.ascontiguousarray(given, dtype=dtype)
    if a.ndim != 2:
        raise ArgumentError(f"{name}: a matrix of rows is wanted, not shape {a.shape}")
    return a


# ---- images


def is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def is_one_image(value: Any) -> bool:
    """A path, the bytes of a file, or a PIL image; arrays tell by their shape."""
    return is_path(value) or isinstance(value, (bytes, bytearray, memoryview)) or is_pil(value)


def is_pil(value: Any) -> bool:
    return hasattr(value, "convert") and hasattr(value, "size")


class Images:
    """Images in the form that cloob_encode_inputs takes. Keeps what the pointers point to."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.array = (ImageInput * max(count, 1))()
        self._kept: list[Any] = []

    def set(self, i: int, value: Any) -> None:
        """Image i of the call: a path, the bytes of a file, a PIL image, or pixels (height, width, 3) of uint8."""
        slot = self.array[i]
        if is_path(value):
            path = path_bytes(value)
            self._kept.append(path)
            slot.path = path
            return
        if isinstance(value, (bytes, bytearray, memoryview)):
            data = np.frombuffer(value, np.uint8)
            if not data.size:
                raise ArgumentError("no bytes")
            slot.data, slot.bytes = data.ctypes.data, data.size
        else:
            data = np.ascontiguousarray(as_numpy(value.convert("RGB") if is_pil(value) else value))
            if data.dtype != np.uint8 or data.ndim != 3 or data.shape[2] != 3 or not data.size:
                raise ArgumentError(f"images are {data.dtype} {data.shape}; a path, the bytes of an image file, a PIL image or "
                                    "uint8 (height, width, 3) is wanted")
            slot.data, slot.height, slot.width = data.ctypes.data, *data.shape[:2]
        self._kept.append(data)


def name_input(error: Exception, name: str) -> Exception:
    """The same error with the input's name in front."""
    if isinstance(error, (ValueError, TypeError)) and len(error.args) == 1:
        return type(error)(f"{name}: {error}")
    return ArgumentError(f"{name}: {error}")


def check_errors(errors: str) -> bool:
    """True: skip what cannot be used."""
    if errors not in ("raise", "skip"):
        raise ArgumentError(f"errors {errors!r}: 'raise' or 'skip'")
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

