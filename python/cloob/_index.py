"""An index of images: made from a folder or from one's own rows, searched by a text, an image or a vector."""
from __future__ import annotations

import ctypes as c
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

import numpy as np

from ._inputs import ArrayIn, ImageIn, check_errors, is_one_image, is_path, pointer, rows
from ._library import ArgumentError, PathIn, integer, lib, path_bytes, shared_context, string_array, text_bytes
from ._model import Model, load
from ._structs import SearchEntries, SearchHit, SearchUpdate

if TYPE_CHECKING:
    from ._inputs import Bools, Floats

FILE_NAME = ".cloob-index.safetensors"  # of an index inside its folder


@dataclass(frozen=True)
class Hit:
    """An entry that was found: its name, the cosine, and where its file is (or would be)."""

    name: str
    score: float
    path: str


class Index:
    """Entries with a name and a unit row each.

    >>> index = cloob.Index(model, root=".")
    >>> index.add(["cat.png", "dog.png"])
    2
    >>> index.search("a cat", k=1)[0].name in ("cat.png", "dog.png")
    True
    >>> index.save("pets.index")
    >>> len(cloob.Index.open("pets.index", model))
    2

    The file is the one of `cloob search`. New entries are in memory until `save`. Threads may share an index as long as none
    of them adds or saves.
    """

    def __init__(self, model: Optional[Model] = None, root: PathIn = ".") -> None:
        self._model = model
        self._root = os.path.realpath(os.fsdecode(root))
        self._handle = c.c_void_p()
        self._path: Optional[str] = None
        self._new: dict[str, Floats] = {}  # not saved yet
        self._checked = False  # the model made the open file

    @classmethod
    def build(cls, folder: PathIn, model: Model, path: Optional[PathIn] = None) -> Index:
        """Embeds the images of a folder, or those that changed since, and saves the index as it works.

        path: the index file; by default the hidden file of the folder that `cloob search index FOLDER` makes.
        """
        file = os.fspath(path) if path is not None else os.path.join(os.fspath(folder), FILE_NAME)
        update, vocab = SearchUpdate(), model._options["vocab"]
        model.call(lib.cloob_search_index, path_bytes(folder), path_bytes(file), path_bytes(model.path),
                   None if vocab is None else path_bytes(vocab), c.byref(update))
        return cls.open(file, model)

    @classmethod
    def open(cls, path: PathIn, model: Union[Model, PathIn, None] = None) -> Index:
        """The index in a file, or in a folder that was indexed. Without a model, the one that made the index is opened when a
        text or an image is searched for."""
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
        """Gives the file and the memory back; only unsaved entries remain."""
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
        """Entries of the file and unsaved ones; a name that is in both counts twice until `save`."""
        return int(lib.cloob_search_count(self._handle)) + len(self._new)

    def __repr__(self) -> str:
        return f"<cloob.Index of {len(self)} entries, {len(self._new)} unsaved, root {self._root}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._new or self._path is None:
            raise TypeError("an index with unsaved entries cannot be pickled; save it first")
        return Index.open, (self._path, self._model)

    @property
    def root(self) -> str:
        """The folder that names of files start from."""
        return self._root

    @property
    def model(self) -> Model:
        """The model that made the index."""
        if self._model is None:
            stored = lib.cloob_search_checkpoint(self._handle) if self._handle else None
            if not stored:
                raise ArgumentError("the index has no model; give one to Index or Index.open")
            self._model = load(os.fsdecode(stored), vocab=os.fsdecode(lib.cloob_search_vocab(self._handle)) or None)
        if self._handle and not self._checked:
            with self._model._context.lock:  # the arguments of cloob_search_check are the index, then the model
                self._model._context.call(lib.cloob_search_check, self._handle, self._model._open_handle())
            self._checked = True
        return self._model

    # ---- entries

    def add(self, images: Union[ImageIn, Sequence[ImageIn], None] = None, names: Optional[Sequence[str]] = None, *,
            vectors: Optional[ArrayIn] = None, errors: str = "raise") -> int:
        """Adds images, or `vectors` (n, D), which are brought to unit length; returns how many were added.

        Files are named by their path below `root`; other images and vectors need `names`. An entry of the same name is replaced.
        errors="skip" leaves images out that cannot be read.
        """
        skip = check_errors(errors)
        if (images is None) == (vectors is None):
            raise ArgumentError("give images or vectors")
        if vectors is not None:
            made = rows(vectors, "vectors")
            length = np.linalg.norm(made, axis=1, keepdims=True)
            if not (np.isfinite(length) & (length > 0)).all():
                raise ArgumentError("vectors: a row is zero or not finite")
            made, used = (made / length).astype(np.float32), np.ones(len(made), np.bool_)
        else:
            list_: Any = [images] if is_one_image(images) else images
            if names is None and all(is_path(i) for i in list_):
                names = [os.path.relpath(os.path.realpath(os.fsdecode(i)), self._root) for i in list_]
            made, used = self._encode(list_, skip)
        if names is None or len(names) != len(made):
            raise ArgumentError(f"{len(made)} entries need as many names, which is the default only for files")
        for name in names:
            if not text_bytes(name, "names"):
                raise ArgumentError("names: an empty name")
        self._new.update({name: row for name, row, ok in zip(names, made, used) if ok})
        return int(used.sum())

    def _encode(self, images: Any, skip: bool) -> tuple[Floats, Bools]:
        if skip:
            return self.model.encode_image(images, errors="skip")
        made = self.model.encode_image(images)
        return made, np.ones(len(made), np.bool_)

    def save(self, path: Optional[PathIn] = None) -> None:
        """Writes all entries, by default into the file that was opened. Atomic: a reader has the old or the new file."""
        to = os.path.abspath(os.fspath(path)) if path is not None else self._path
        if to is None:
            raise ArgumentError("a new index has no file yet; give `path`")
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
        """The k nearest entries, best first, to a text, an image (any form that encode_image takes) or a vector (D,)."""
        if (text is not None) + (image is not None) + (vector is not None) != 1:
            raise ArgumentError("give one of text, image and vector")
        if text is not None:
            query = self.model.encode_text(text)
        elif image is not None:
            query = self.model.encode_image(image)
        else:
            query = rows(np.asarray(vector, np.float32)[None], "vector")[0]
            query = np.ascontiguousarray(query / max(float(np.linalg.norm(query)), 1e-30), np.float32)
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
