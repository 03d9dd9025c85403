"""An index of images: built from a folder or from vectors, searched by a text, an image or a vector."""
from __future__ import annotations

import ctypes as c
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

import numpy as np

from ._inputs import ArrayIn, ImageIn, as_numpy, check_errors, is_one_image, is_path, pointer, rows
from ._library import ArgumentError, PathIn, integer, lib, path_bytes, shared_context, string_array, text_bytes
from ._model import Model, load
from ._structs import SearchEntries, SearchHit, SearchUpdate

if TYPE_CHECKING:
    from ._inputs import AnyArray, Bools, Floats

FILE_NAME = ".cloob-index.safetensors"  # of an index inside its folder


@dataclass(frozen=True)
class Hit:
    """A search result: the entry's name, its cosine with the query, and the path of its file."""

    name: str
    score: float
    path: str


def _unit(a: AnyArray, name: str) -> Floats:
    length = np.linalg.norm(a, axis=1, keepdims=True)
    if not (np.isfinite(length) & (length > 0)).all():
        raise ArgumentError(f"{name}: a row is zero or not finite")
    return np.ascontiguousarray(a / length, np.float32)


class Index:
    """An index: entries, each with a name and an embedding of unit length.

    >>> index = cloob.Index(model, root=".")
    >>> index.add(["cat.png", "dog.png"])
    2
    >>> index.search("a cat", k=1)[0].name in ("cat.png", "dog.png")
    True
    >>> index.save("pets.index")
    >>> len(cloob.Index.open("pets.index", model))
    2

    `cloob search` uses the same files. New entries are in memory until `save`. Threads may share an index while none of them
    adds or saves. root: the folder that the names of files are relative to.
    """

    def __init__(self, model: Optional[Model] = None, root: PathIn = ".") -> None:
        self._model = model
        self._root = os.path.realpath(os.fsdecode(root))
        self._handle = c.c_void_p()
        self._path: Optional[str] = None
        self._new: dict[str, Floats] = {}  # not saved yet
        self._checked = False  # the model made the open file

    @classmethod
    def build(cls, folder: PathIn, model: Union[Model, PathIn], path: Optional[PathIn] = None) -> Index:
        """Embeds the images of a folder, or those that changed since the last call, and saves the index while it runs.

        model: a Model, or its path or name. path: the index file; default: the hidden file in the folder that `cloob search
        index FOLDER` writes.

        >>> len(cloob.Index.build("classes", model, "classes.index"))
        4
        """
        if not isinstance(model, Model):
            model = load(model)
        file = os.fspath(path) if path is not None else os.path.join(os.fspath(folder), FILE_NAME)
        update, vocab = SearchUpdate(), model._options["vocab"]
        model.call(lib.cloob_search_index, path_bytes(folder), path_bytes(file), path_bytes(model.path),
                   None if vocab is None else path_bytes(vocab), c.byref(update))
        return cls.open(file, model)

    @classmethod
    def open(cls, path: PathIn, model: Union[Model, PathIn, None] = None) -> Index:
        """Opens an index file, or the index of a folder. Without a model, the model that built the index is opened when a text
        or an image is searched."""
        file = os.path.join(os.fspath(path), FILE_NAME) if os.path.isdir(path) else os.fspath(path)
        index = cls(model if isinstance(model, Model) or model is None else load(model))
        index._read(os.path.abspath(file))
        return index

    def _read(self, path: str) -> None:
        handle = c.c_void_p()
        shared_context().call(lib.cloob_search_open, path_bytes(path), c.byref(handle))
        self.close()
        self._handle, self._path, self._checked = handle, path, False
        self._root = os.fsdecode(lib.cloob_search_root(handle))

    def close(self) -> None:
        """Closes the file; only unsaved entries remain."""
        if getattr(self, "_handle", None):
            lib.cloob_search_close(self._handle)
            self._handle = c.c_void_p()

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Number of entries, saved and unsaved; a name that is in both counts twice until `save`."""
        return int(lib.cloob_search_count(self._handle)) + len(self._new)

    def __repr__(self) -> str:
        return f"<cloob.Index of {len(self)} entries, {len(self._new)} unsaved, root {self._root}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._new or self._path is None:
            raise TypeError("an index with unsaved entries cannot be pickled; save it first")
        return Index.open, (self._path, self._model)

    @property
    def root(self) -> str:
        """The folder that the names of files are relative to."""
        return self._root

    @property
    def model(self) -> Model:
        """The model that built the index."""
        if self._model is None:
            stored = lib.cloob_search_checkpoint(self._handle) if self._handle else None
            if not stored:
                raise ArgumentError("the index has no model; pass one to Index or Index.open")
            self._model = load(os.fsdecode(stored), vocab=os.fsdecode(lib.cloob_search_vocab(self._handle)) or None)
        if self._handle and not self._checked:
            with self._model._context.lock:  # the arguments of cloob_search_check are the index, then the model
                self._model._context.call(lib.cloob_search_check, self._handle, self._model._open_handle())
            self._checked = True
        return self._model

    # ---- entries

    def add(self, images: Union[ImageIn, Sequence[ImageIn], None] = None, names: Optional[Sequence[str]] = None, *,
            vectors: Optional[ArrayIn] = None, errors: str = "raise") -> int:
        """Adds images, or `vectors` (n, D), which are normalised to unit length; returns the number of added entries.

        Image files are named by their path relative to `root`; other images and vectors need `names`. An entry of the same name
        is replaced. errors="skip" skips images that cannot be read.
        """
        skip = check_errors(errors)
        if (images is None) == (vectors is None):
            raise ArgumentError("pass either images or vectors")
        if vectors is not None:
            made = _unit(rows(vectors, "vectors"), "vectors")
            used = np.ones(len(made), np.bool_)
        else:
            list_: Any = [images] if is_one_image(images) else list(images)  # type: ignore[arg-type]
            if names is None and all(is_path(i) for i in list_):
                names = [os.path.relpath(os.path.realpath(os.fsdecode(i)), self._root) for i in list_]
            made, used = self._encode(list_, skip)
        if names is None or isinstance(names, str) or len(names) != len(made):
            given = "none" if names is None else "a str" if isinstance(names, str) else str(len(names))
            raise ArgumentError(f"names: expected a list of {len(made)} names, one per entry, got {given}")
        width = self._width()
        if width and len(made) and made.shape[1] != width:
            raise ArgumentError(f"vectors have {made.shape[1]} elements, the entries of the index {width}")
        for name in names:
            if not text_bytes(name, "names"):
                raise ArgumentError("names: an empty name")
        self._new.update({name: row for name, row, ok in zip(names, made, used) if ok})
        return int(used.sum())

    def _width(self) -> int:
        """Elements of an entry; 0: no entry yet."""
        new = next(iter(self._new.values()), None)
        return len(new) if new is not None else int(lib.cloob_search_width(self._handle)) if self._handle else 0

    def _encode(self, images: Any, skip: bool) -> tuple[Floats, Bools]:
        if skip:
            return self.model.encode_image(images, errors="skip")
        made = self.model.encode_image(images)
        return made, np.ones(len(made), np.bool_)

    def save(self, path: Optional[PathIn] = None) -> None:
        """Writes all entries, by default to the file that was opened, atomically: a reader sees the old or the new file."""
        to = os.path.abspath(os.fspath(path)) if path is not None else self._path
        if to is None:
            raise ArgumentError("a new index has no file yet; pass `path`")
        names = list(self._new)
        made = np.ascontiguousarray(np.stack([self._new[n] for n in names]) if names else np.zeros((0, 0)), np.float32)
        e, array = SearchEntries(), string_array([os.fsencode(n) for n in names])
        e.name, e.row, e.n, e.D = c.cast(array, c.c_void_p), pointer(made), len(names), made.shape[1]
        if self._handle:
            shared_context().call(lib.cloob_search_save, self._handle, c.byref(e), path_bytes(to))
        else:
            vocab = self.model._options["vocab"]
            e.root, e.checkpoint = path_bytes(self._root), path_bytes(self.model.path)
            e.vocab = None if vocab is None else path_bytes(vocab)
            with self.model._context.lock:
                e.model = self.model._open_handle()
                self.model._context.call(lib.cloob_search_save, None, c.byref(e), path_bytes(to))
        self._new = {}
        self._read(to)

    # ---- asking

    def search(self, text: Optional[str] = None, *, image: Optional[ImageIn] = None, vector: Optional[ArrayIn] = None,
               k: int = 10) -> list[Hit]:
        """Finds the k entries nearest to a text, an image (any form that encode_image accepts) or a vector (D,), best first."""
        if (text is not None) + (image is not None) + (vector is not None) != 1:
            raise ArgumentError("pass one of text, image and vector")
        if text is not None:
            text_bytes(text, "text")
            query = self.model.encode_text(text)
        elif image is not None:
            query = self.model.encode_image(image)
        else:
            query = _unit(rows(as_numpy(vector)[None], "vector"), "vector")[0]
        found = self._search_file(query, integer(k, "k", 1, 2**31 - 1)) + self._search_new(query)
        return sorted(found, key=lambda hit: (-hit.score, hit.name))[:k]

    def _search_file(self, query: Floats, k: int) -> list[Hit]:
        count = int(lib.cloob_search_count(self._handle))
        if not count:
            return []
        wanted = min(count, k + len(self._new))
        hits, found = (SearchHit * wanted)(), c.c_int64()
        shared_context().call(lib.cloob_search_query, self._handle, pointer(query), len(query), wanted, hits, c.byref(found))
        try:
            paths = [(os.fsdecode(c.string_at(h.path)), float(h.score)) for h in hits[: found.value]]
        finally:
            lib.cloob_search_hits_release(hits, found.value)
        below = len(self._root) + 1
        return [Hit(p[below:], score, p) for p, score in paths if p[below:] not in self._new]

    def _search_new(self, query: Floats) -> list[Hit]:
        if not self._new:
            return []
        stack = np.stack(list(self._new.values()))
        if stack.shape[1] != len(query):
            raise ArgumentError(f"the query has {len(query)} elements, the rows of the index {stack.shape[1]}")
        return [Hit(n, float(s), os.path.join(self._root, n)) for n, s in zip(self._new, stack @ query)]
