"""Arrays in: numpy's view of anything that speaks DLPack or numpy's array interface, copied only where it must be."""
from __future__ import annotations

from typing import Any, Protocol, Union

import numpy as np


class SupportsDLPack(Protocol):
    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


ArrayIn = Union[np.ndarray, SupportsDLPack, Any]

_CPU_KINDS = (1, 3)  # kDLCPU, kDLCUDAHost


def as_numpy(value: ArrayIn) -> np.ndarray:
    """A view where possible. Tensors on a GPU are brought to the host; gradients are not followed."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):  # torch: DLPack refuses tensors that want gradients
        value = value.detach()
    if hasattr(value, "__dlpack_device__"):
        if int(value.__dlpack_device__()[0]) not in _CPU_KINDS:
            if not hasattr(value, "cpu"):
                raise TypeError(f"{type(value).__name__}: lies on a device; bring it to the host first")
            value = value.cpu()
        try:
            return np.from_dlpack(value)
        except (TypeError, RuntimeError, BufferError):  # bf16, which numpy does not know
            if hasattr(value, "float"):
                return np.from_dlpack(value.float())
            raise
    return np.asarray(value)


def rows(value: ArrayIn, name: str, dtype: Any = np.float32) -> np.ndarray:
    """A contiguous matrix of that type; a view where it is one already."""
    given = as_numpy(value)
    if given.dtype.kind not in "fiu" and given.dtype.name != "bfloat16":
        raise TypeError(f"{name}: numbers are wanted, not {given.dtype}")
    a = np.ascontiguousarray(given, dtype=dtype)
    if a.ndim != 2:
        raise ValueError(f"{name}: a matrix of rows is wanted, not shape {a.shape}")
    return a
