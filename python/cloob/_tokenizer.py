"""CLIP's byte-pair encoding."""
from __future__ import annotations

import ctypes as c
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Sequence, Union

import numpy as np

from ._inputs import pointer
from ._library import PathIn, integer, lib, libc_free, path_bytes, shared_context, string_array, text_bytes

if TYPE_CHECKING:
    from ._inputs import AnyArray


class Tokenizer:
    """A tokenizer from a merges file, plain or gzip: OpenAI's, or one that `cloob tokenizer train` wrote. Threads may share it.

    >>> tokenizer = cloob.Tokenizer("merges.txt")
    >>> tokenizer.decode(tokenizer.encode("a cat"))
    'a cat'
    """

    def __init__(self, path: PathIn) -> None:
        handle = c.c_void_p()
        shared_context().call(lib.cloob_tokenizer_open, path_bytes(path), c.byref(handle))
        self._handle = handle
        self.path = os.path.abspath(os.fsdecode(path))

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.path,)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.cloob_tokenizer_close(self._handle)
            self._handle = c.c_void_p()

    @property
    def vocab_size(self) -> int:
        return int(lib.cloob_tokenizer_vocab_size(self._handle))

    @property
    def start_id(self) -> int:
        return int(lib.cloob_tokenizer_start_id(self._handle))

    @property
    def end_id(self) -> int:
        return int(lib.cloob_tokenizer_end_id(self._handle))

    def encode(self, text: str) -> list[int]:
        """Encodes a text without start, end or padding."""
        ids, count = c.POINTER(c.c_int32)(), c.c_int64()
        data = text_bytes(text)
        shared_context().call(lib.cloob_tokenizer_encode, self._handle, data, len(data), c.byref(ids), c.byref(count))
        try:
            return ids[: count.value]
        finally:
            libc_free(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids to a text; start and end tokens are skipped."""
        text = c.c_void_p()
        array = (c.c_int32 * max(len(ids), 1))(*(integer(i, "id", -(2**31), 2**31 - 1) for i in ids))
        shared_context().call(lib.cloob_tokenizer_decode, self._handle, array, len(ids), c.byref(text))
        try:
            return c.string_at(text).decode("utf-8", "replace")
        finally:
            libc_free(text)

    def __call__(self, texts: Union[str, Sequence[str]], length: int = 77) -> AnyArray:
        """Encodes texts as a model's input: (n, length) of int32 with start, end and zeros; longer texts are truncated."""
        list_ = [texts] if isinstance(texts, str) else list(texts)
        length = integer(length, "length", 1, 1 << 20)
        out = np.zeros((len(list_), length), np.int32)
        array = string_array([text_bytes(t) for t in list_])
        shared_context().call(lib.cloob_tokenizer_encode_rows, self._handle, array, len(list_), length, pointer(out))
        return out


@lru_cache(maxsize=4)
def _cached(path: str, stamp: tuple[int, int]) -> Tokenizer:
    return Tokenizer(path)


def tokenize(texts: Union[str, Sequence[str]], vocab: PathIn, length: int = 77) -> AnyArray:
    """Encodes texts as a model's input: (n, length) of int32. The tokenizer is cached."""
    path = os.fspath(vocab)
    try:
        st = os.stat(path)
        stamp = (st.st_size, st.st_mtime_ns)
    except OSError:
        stamp = (0, 0)  # opening it reports the reason
    return _cached(path, stamp)(texts, length)
