"""Training in one call, with callbacks."""
from __future__ import annotations

import ctypes as c
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Optional

import numpy as np

from ._library import ArgumentError, Context, Error, PathIn, lib, members, path_bytes, text_bytes
from ._structs import CallbackFn, LossCall, LossFn, StopFn, TrainCallbacks, TrainEpoch, TrainStep, TrainSummary

if TYPE_CHECKING:
    from ._inputs import AnyArray, Floats

    LossFunction = Callable[["Floats", "Floats"], "tuple[float, AnyArray, AnyArray]"]

_OPTIONS_BYTES = 1 << 14  # more than cloob_train_options has; the rest stays zero


@dataclass(frozen=True)
class Step:
    """A finished step. `step` and `epoch` count from 1; skipped: loss or gradient not finite, no update."""

    step: int
    steps: int
    epoch: int
    loss: float
    image_term: float
    text_term: float
    grad_norm: float
    lr: float
    inv_tau: float
    skipped: bool


@dataclass(frozen=True)
class Epoch:
    """A finished epoch, after its checkpoint and its evaluation; `metrics` is empty without an evaluation."""

    epoch: int
    epochs: int
    step: int
    loss: float
    checkpoint: str
    metrics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, its last checkpoint (a path for cloob.load), and its figures."""

    run_dir: str
    checkpoint: str
    steps: int
    epochs: int
    skipped_steps: int
    bad_samples: int
    loss: float
    seconds: float
    pairs_per_s: float
    wait_share: float
    method: str


class _Callbacks:
    """The C callbacks. An exception in a Python function ends the run after the step and is raised by train."""

    def __init__(self, loss: Optional[LossFunction], on_step: Optional[Callable[[Step], Any]],
                 on_epoch: Optional[Callable[[Epoch], Any]]) -> None:
        for name, function in (("loss", loss), ("on_step", on_step), ("on_epoch", on_epoch)):
            if function is not None and not callable(function):
                raise TypeError(f"{name}: expected a function, got {type(function).__name__}")
        self.error: Optional[BaseException] = None
        self._loss, self._on_step, self._on_epoch = loss, on_step, on_epoch
        self.functions = TrainCallbacks(should_stop=StopFn(self._stop))  # also lets Python see Ctrl-C between steps
        if loss:
            self.functions.loss = LossFn(self._call_loss)
        if on_step:
            self.functions.on_step = CallbackFn(self._step)
        if on_epoch:
            self.functions.on_epoch = CallbackFn(self._epoch)

    def _guard(self, function: Callable[..., Any], *arguments: Any) -> bool:
        try:
            if self.error is None and function(*arguments) is False:
                self.error = StopIteration()
        except BaseException as e:  # noqa: B902  an exception must not cross C
            self.error = e
        return self.error is None

    def _stop(self, user: Any) -> bool:
        return not self._guard(lambda: None)

    def _step(self, user: Any, at: int) -> None:
        s = TrainStep.from_address(at)
        self._guard(self._on_step or bool, Step(**members(s, Step)))

    def _epoch(self, user: Any, at: int) -> None:
        e = TrainEpoch.from_address(at)
        metrics = json.loads(e.metrics) if e.metrics else {}
        self._guard(self._on_epoch or bool, Epoch(e.epoch, e.epochs, e.step, e.loss, os.fsdecode(e.checkpoint or b""), metrics))

    def _call_loss(self, user: Any, at: int) -> bool:
        return self._guard(self._write_loss, LossCall.from_address(at))

    def _write_loss(self, call: c.Structure) -> None:
        assert self._loss
        shape = (call.n, call.d)
        x, y = (_view(p, shape) for p in (call.x, call.y))
        x.flags.writeable = y.flags.writeable = False
        made = self._loss(x, y)
        if not isinstance(made, (tuple, list)) or len(made) != 3:
            raise TypeError(f"loss: expected the three results loss, dx, dy, got {type(made).__name__}")
        value, dx, dy = made
        call.loss = float(value)
        for name, given, to in (("dx", dx, call.dx), ("dy", dy, call.dy)):
            if to is None:  # validation needs only the loss
                continue
            g = np.asarray(given)
            if g.shape != shape:
                raise ArgumentError(f"loss: {name} has shape {g.shape}, the embeddings {shape}")
            _view(to, shape)[:] = g


def _view(address: int, shape: tuple[int, int]) -> Floats:
    """The memory at an address as rows."""
    return np.ctypeslib.as_array(c.cast(address, c.POINTER(c.c_float)), shape)


def _text(value: Any) -> bytes:
    """The value as its flag accepts it."""
    if isinstance(value, (str, os.PathLike)):
        return path_bytes(value)
    if isinstance(value, (list, tuple)):
        return " ".join(str(v) for v in value).encode()
    return str(value).encode()


def train(train_data: Optional[PathIn] = None, *, loss: Optional[LossFunction] = None, on_step: Optional[Callable[[Step], Any]] = None,
          on_epoch: Optional[Callable[[Epoch], Any]] = None, preset: Optional[str] = None, threads: int = 0, **options: Any) -> Run:
    """Trains as `cloob train` does. Options are its flags with underscores; `cloob help train --all` lists them.

    train_data: a CSV or TSV of images and captions, a folder of images with a text file each, or shards.
    on_step(Step), on_epoch(Epoch): called after each step and epoch; if one returns False, the run is saved and ends.
    loss(x, y): replaces the loss of `method`. It receives the unit embeddings of images and texts (n, d) and returns the loss and
    its gradients by x and by y. An exception in a callback, or Ctrl-C, saves and ends the run and is raised here.
    resume=NAME continues run NAME under `logs` with its settings; options that differ from their defaults override them.

    >>> run = cloob.train("pairs.tsv", model="tiny", epochs=1, batch_size=4, logs="logs", report_to="none")
    >>> run.steps > 0 and os.path.exists(run.checkpoint)
    True
    """
    context, buffer = Context(threads), c.create_string_buffer(_OPTIONS_BYTES)
    lib.cloob_train_options_init_size(buffer, len(buffer))
    settings = ([("preset", preset)] if preset is not None else []) + [("train_data", train_data), *options.items()]
    kept = [(text_bytes(k), _text(v)) for k, v in settings if v is not None]
    for name, value in kept:
        context.call(lib.cloob_train_options_set, buffer, name, value)
    callbacks, summary = _Callbacks(loss, on_step, on_epoch), TrainSummary()
    callbacks.functions.size = len(buffer)
    c.memmove(buffer, c.byref(callbacks.functions), c.sizeof(TrainCallbacks))
    try:
        context.call(lib.cloob_train, buffer, c.byref(summary))
    except Error:
        if callbacks.error is None:
            raise
    if callbacks.error is not None and not isinstance(callbacks.error, StopIteration):
        raise callbacks.error
    return Run(**members(summary, Run))
