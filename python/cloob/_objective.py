"""Hopfield retrieval, and the objective of a batch of embeddings with its gradients, without an N x N matrix."""
from __future__ import annotations

import ctypes as c
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Mapping, Optional

import numpy as np

from . import _structs as S
from ._inputs import ArrayIn, as_numpy, pointer, rows
from ._library import ArgumentError, defaults, integer, lib, per_thread, shared_context

if TYPE_CHECKING:
    from ._inputs import AnyArray, Floats

METHODS = ("cloob", "clip", "infoloob", "infonce-hopfield", "siglip")  # cloob_method
INFONCE = ("clip", "infonce-hopfield")

# ---- Hopfield retrieval


def _network(stored: ArrayIn, states: ArrayIn, beta: float) -> tuple[c.Structure, AnyArray, AnyArray]:
    s, x = rows(stored, "stored"), rows(states, "states")
    if s.shape[1] != x.shape[1]:
        raise ArgumentError(f"states have width {x.shape[1]}, stored patterns {s.shape[1]}")
    return S.Hopfield(pointer(s), s.shape[0], s.shape[1], beta), s, x


def hopfield(states: ArrayIn, stored: ArrayIn, beta: float = 8.0, *, updates: int = 1, tolerance: float = 0.0,
             unit: bool = True) -> Floats:
    """Hopfield retrieval: softmax(beta states stored^T) stored, one row per state (n, d) of float32.

    unit: normalise the rows to unit length, as in the paper. With several `updates`, a state that moves less than `tolerance`
    stops. beta 0 retrieves the mean of all patterns.

    >>> cloob.hopfield([[1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]], beta=100).round(3).tolist()
    [[1.0, 0.0]]
    """
    net, keep, x = _network(stored, states, beta)
    o = defaults(S.HopfieldOptions)
    o.updates, o.tolerance, o.unit = integer(updates, "updates", 1, 2**31 - 1), tolerance, bool(unit)
    out = np.empty_like(x)
    shared_context().call(lib.cloob_hopfield_retrieve, c.byref(net), c.byref(o), pointer(x), x.shape[0], pointer(out), None)
    del keep
    return out


def hopfield_energy(states: ArrayIn, stored: ArrayIn, beta: float = 8.0) -> AnyArray:
    """Energy of each state: (n,) of float64. Every update lowers it."""
    net, keep, x = _network(stored, states, beta)
    out = np.empty(x.shape[0], np.float64)
    shared_context().call(lib.cloob_hopfield_energy, c.byref(net), pointer(x), x.shape[0], pointer(out))
    del keep
    return out


# ---- the objective


@dataclass(frozen=True)
class Objective:
    """The loss, and with gradients=True its gradients: dx, dy, and du, dv if patterns were passed.

    dinv_tau and dscale are the gradients for learned scales: derivatives of `loss` for InfoLOOB, of image_term + text_term for
    clip and infonce-hopfield, whose temperature CLIP learns from the loss that is not divided by inv_tau.
    """

    loss: float  # (image_term + text_term) / inv_tau
    image_term: float
    text_term: float
    dinv_tau: float = 0.0
    dscale: float = 0.0
    dx: Optional[AnyArray] = None
    dy: Optional[AnyArray] = None
    du: Optional[AnyArray] = None
    dv: Optional[AnyArray] = None


class Plan:
    """A plan for one shape on one device, cached between calls. Pointers must be of that device."""

    def __init__(self, method: str, device: str, shape: c.Structure, inv_tau: float, scale: float) -> None:
        if method not in METHODS:
            raise ArgumentError(f"method {method!r}: one of {', '.join(METHODS)}")
        o = defaults(S.ObjectiveOptions)
        o.method, o.inv_tau, o.scale_hopfield, o.device = METHODS.index(method), inv_tau, scale, device.encode()
        self._context = shared_context()
        self._handle = c.c_void_p()
        self._scales = (inv_tau, scale)
        self._context.call(lib.cloob_objective_plan_create, c.byref(o), c.byref(shape), c.byref(self._handle))

    def run(self, pointers: c.Structure, inv_tau: float, scale: float) -> c.Structure:
        r = S.ObjectiveResult()
        if (inv_tau, scale) != self._scales:
            self._context.call(lib.cloob_objective_plan_scales, self._handle, inv_tau, scale)
            self._scales = (inv_tau, scale)
        self._context.call(lib.cloob_objective_plan_run, self._handle, c.byref(pointers), c.byref(r))
        return r

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.cloob_objective_plan_destroy(self._handle)
            self._handle = c.c_void_p()


_KEPT = 4  # plans per thread: train and validation shapes, with and without gradients


def plan_for(method: str, device: str, shape: c.Structure, inv_tau: float, scale: float) -> Plan:
    """The calling thread's plan for this shape, created on first use."""
    plans: OrderedDict[tuple[Any, ...], Plan] = per_thread("plans", OrderedDict)
    key = (method, device, shape.n, shape.d, shape.nu, shape.nv, shape.dtype, shape.gradients)
    if key not in plans:
        plans[key] = Plan(method, device, shape, inv_tau, scale)
        while len(plans) > _KEPT:
            plans.popitem(last=False)
    plans.move_to_end(key)
    return plans[key]


def scale_gradients(method: str, r: c.Structure, inv_tau: float) -> tuple[float, float]:
    """Of loss = sum / inv_tau, by inv_tau and by the Hopfield scale; siglip's loss is the sum itself."""
    if method == "siglip":
        return r.dsum_dinv_tau, 0.0
    total = r.image_term + r.text_term
    return r.dsum_dinv_tau / inv_tau - total / inv_tau**2, r.dsum_dscale / inv_tau


def learned_scale_gradients(method: str, r: c.Structure, inv_tau: float) -> tuple[float, float]:
    """The same for the quantity that training minimises: for InfoNCE the sum of both terms."""
    return (r.dsum_dinv_tau, r.dsum_dscale) if method in INFONCE else scale_gradients(method, r, inv_tau)


def check_shapes(shapes: Mapping[str, tuple[int, ...]]) -> None:
    """x and y alike, every set of the same width."""
    x = shapes["x"]
    for name, s in shapes.items():
        if len(s) != 2:
            raise ArgumentError(f"{name}: expected a matrix of rows, got shape {tuple(s)}")
        if s[1] != x[1] or (name == "y" and s[0] != x[0]):
            raise ArgumentError(f"{name} is {tuple(s)}, but x is {tuple(x)}")


def objective(x: ArrayIn, y: ArrayIn, *, method: str = "cloob", inv_tau: float = 30.0, scale_hopfield: float = 8.0,
              u: Optional[ArrayIn] = None, v: Optional[ArrayIn] = None, gradients: bool = True,
              device: str = "cpu") -> Objective:
    """The objective of unit rows x, y (n, d) in host memory. u, v: stored patterns; default: the batch itself.

    float64 arrays are computed in double by the plain definition: exact and slow. Other types are computed in float32.
    device: "cpu" or "ref".

    >>> x = numpy.eye(4)
    >>> round(cloob.objective(x, x, inv_tau=10, scale_hopfield=8).loss, 3) < round(cloob.objective(x, x[::-1]).loss, 3)
    True
    """
    wide = as_numpy(x).dtype == np.float64
    dtype = np.float64 if wide else np.float32
    given = {"x": x, "y": y, "u": u, "v": v}
    a = {k: rows(m, k, dtype) for k, m in given.items() if m is not None}
    check_shapes({k: m.shape for k, m in a.items()})
    if device.startswith("cuda"):
        raise ArgumentError("arrays are in host memory; cloob.torch.objective accepts tensors on a GPU")
    g = {k: np.empty_like(m) for k, m in a.items()} if gradients else {}
    shape = S.ObjectiveShape(*a["x"].shape, len(a["u"]) if "u" in a else 0, len(a["v"]) if "v" in a else 0,
                             S.F64 if wide else S.F32, gradients)
    p = S.ObjectiveRows(**{k: pointer(m) for k, m in a.items()}, **{"d" + k: pointer(m) for k, m in g.items()})
    r = plan_for(method, "ref" if wide else device, shape, inv_tau, scale_hopfield).run(p, inv_tau, scale_hopfield)
    scales = learned_scale_gradients(method, r, inv_tau) if gradients else (0.0, 0.0)
    return Objective(r.loss, r.image_term, r.text_term, *scales, dx=g.get("x"), dy=g.get("y"), du=g.get("u"), dv=g.get("v"))
