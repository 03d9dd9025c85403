"""The modern Hopfield network: what states retrieve from stored patterns."""
from __future__ import annotations

import ctypes as c

import numpy as np

from ._arrays import ArrayIn, rows
from ._library import ArgumentError, Hopfield, HopfieldOptions, integer, lib, shared_context


def _network(stored: ArrayIn, states: ArrayIn, beta: float) -> tuple[Hopfield, np.ndarray, np.ndarray]:
    s, x = rows(stored, "stored"), rows(states, "states")
    if s.shape[1] != x.shape[1]:
        raise ArgumentError(f"states have width {x.shape[1]}, stored patterns {s.shape[1]}")
    return Hopfield(s.ctypes.data, s.shape[0], s.shape[1], beta), s, x


def hopfield(states: ArrayIn, stored: ArrayIn, beta: float = 8.0, *, updates: int = 1, tolerance: float = 0.0,
             unit: bool = True) -> np.ndarray:
    """softmax(beta states stored^T) stored, one row per state (n, d) of float32.

    `unit` brings the rows back to unit length, as in the paper. With more `updates` a state that moves less than
    `tolerance` stops. beta 0 retrieves the mean of all patterns.
    """
    net, keep, x = _network(stored, states, beta)
    o = HopfieldOptions()
    lib.cloob_hopfield_options_init(c.byref(o))
    o.updates, o.tolerance, o.unit = integer(updates, "updates", 1, 2**31 - 1), tolerance, bool(unit)
    out = np.empty_like(x)
    shared_context().call(lib.cloob_hopfield_retrieve, c.byref(net), c.byref(o), x.ctypes.data, x.shape[0], out.ctypes.data, None)
    del keep
    return out


def hopfield_energy(states: ArrayIn, stored: ArrayIn, beta: float = 8.0) -> np.ndarray:
    """The energy of each state (n,) of float64, which every update lowers."""
    net, keep, x = _network(stored, states, beta)
    out = np.empty(x.shape[0], np.float64)
    shared_context().call(lib.cloob_hopfield_energy, c.byref(net), x.ctypes.data, x.shape[0], out.ctypes.data)
    del keep
    return out
