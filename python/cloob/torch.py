"""The objective for PyTorch's autograd: Hopfield retrieval and InfoLOOB without an N x N matrix.

    from cloob.torch import objective
    loss = objective(F.normalize(image), F.normalize(text), inv_tau=30, scale_hopfield=8)
    loss.backward()

Tensors are read in place, on the CPU, and on a GPU if libcloob has CUDA. Gradients of rows, stored patterns and scales are
computed together with the value. float64 tensors on the CPU are computed in double by the plain definition, as gradcheck needs.
"""
from __future__ import annotations

from typing import Any, Optional, Union

import torch

from . import _library as L
from . import _structs as S
from ._objective import INFONCE, check_shapes, plan_for, scale_gradients

Scale = Union[float, torch.Tensor]

_DTYPES = {torch.float32: S.F32, torch.bfloat16: S.BF16, torch.float64: S.F64}


def _device_name(t: torch.Tensor) -> str:
    if t.device.type == "cuda":
        return f"cuda:{t.device.index}"
    if t.device.type != "cpu":
        raise L.UnsupportedError(f"tensors on {t.device}: the CPU and NVIDIA GPUs are supported")
    return "ref" if t.dtype == torch.float64 else "cpu"


def _run(sets: dict[str, torch.Tensor], method: str, inv_tau: float, scale: float, gradients: bool) -> tuple[Any, dict[str, torch.Tensor]]:
    x = sets["x"]
    if x.dtype not in _DTYPES:
        raise L.ArgumentError(f"embeddings are {x.dtype}: expected float32, bfloat16 or float64")
    check_shapes({k: tuple(t.shape) for k, t in sets.items()})
    for k, t in sets.items():
        if t.dtype != x.dtype or t.device != x.device:
            raise L.ArgumentError(f"{k} is {t.dtype} on {t.device}, x is {x.dtype} on {x.device}")
    rows = {k: t.detach().contiguous() for k, t in sets.items()}
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    g = {k: torch.empty_like(t, dtype=wide) for k, t in rows.items()} if gradients else {}
    shape = S.ObjectiveShape(*x.shape, len(rows.get("u", ())), len(rows.get("v", ())), _DTYPES[x.dtype], gradients)
    p = S.ObjectiveRows(**{k: t.data_ptr() for k, t in rows.items()}, **{"d" + k: t.data_ptr() for k, t in g.items()})
    if x.is_cuda:
        torch.cuda.current_stream(x.device).synchronize()
    return plan_for(method, _device_name(x), shape, inv_tau, scale).run(p, inv_tau, scale), g


class _Once(torch.autograd.Function):
    """Passes gradients on and ties them to the inputs that they depend on, so that differentiating them again is an error.

    PyTorch's once_differentiable raises only where the incoming gradient wants a gradient; a penalty on the gradient of the
    loss would otherwise get a derivative that lacks the objective's own part.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(t.clone() for t in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *d: torch.Tensor) -> Any:
        raise L.UnsupportedError("cloob.torch.objective can be differentiated once: it has no second derivative "
                                 "(gradient penalties and Hessians need another implementation)")


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor, u: Optional[torch.Tensor], v: Optional[torch.Tensor],
                inv_tau: torch.Tensor, scale: torch.Tensor, method: str) -> torch.Tensor:
        sets = {k: t for k, t in (("x", x), ("y", y), ("u", u), ("v", v)) if t is not None}
        wanted = any(ctx.needs_input_grad)
        r, g = _run(sets, method, inv_tau.item(), scale.item(), wanted)
        if wanted:
            ctx.scales = scale_gradients(method, r, inv_tau.item())
            ctx.save_for_backward(*(g.get(k) for k in "xyuv"), x, y, u, v, inv_tau, scale)
        return torch.tensor(r.loss, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32, device=x.device)

    @staticmethod
    def backward(ctx: Any, d: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        gradients, inputs = ctx.saved_tensors[:4], ctx.saved_tensors[4:]
        out: list[Optional[torch.Tensor]] = []
        with torch.no_grad():
            for g, like, needed in zip(gradients, inputs, ctx.needs_input_grad):
                out.append((g * d).to(like.dtype) if needed and g is not None else None)
            for value, like, needed in zip(ctx.scales, inputs[4:], ctx.needs_input_grad[4:6]):
                out.append((d.to(like.device, like.dtype) * value).reshape(like.shape) if needed else None)
        if torch.is_grad_enabled():  # create_graph
            made = [g for g in out if g is not None]
            tied = iter(_Once.apply(len(made), *made, d, *(t for t in inputs if t is not None)))
            out = [None if g is None else next(tied) for g in out]
        return (*out, None)


def objective(x: torch.Tensor, y: torch.Tensor, *, method: str = "cloob", inv_tau: Scale = 30.0,
              scale_hopfield: Scale = 8.0, u: Optional[torch.Tensor] = None, v: Optional[torch.Tensor] = None) -> torch.Tensor:
    """(image_term + text_term) / inv_tau of unit rows x, y (n, d), as a scalar tensor with gradients.

    u, v: stored patterns; default: the batch itself. inv_tau and scale_hopfield may be tensors of one element,
    and then have gradients: those of the value. To learn the temperature of clip or infonce-hopfield, multiply the value
    by inv_tau / 2, as CLOOBLoss does. Can be differentiated once; a second derivative raises UnsupportedError.
    """
    tau, beta = (s if isinstance(s, torch.Tensor) else torch.tensor(float(s), dtype=torch.float64) for s in (inv_tau, scale_hopfield))
    loss: torch.Tensor = _Function.apply(x, y, u, v, tau, beta, method)
    return loss


class CLOOBLoss(torch.nn.Module):
    """The loss of `cloob train` as a module. Features of images and texts may have any length; they are normalised here.

    cloob and infoloob: (image_term + text_term) / inv_tau. clip and infonce-hopfield: (image_term + text_term) / 2, as
    in CLIP and open_clip, so that a learned temperature can rise and fall. Learnable scales are stored as
    logarithms and kept at or below 100, as in CLIP.
    """

    def __init__(self, method: str = "cloob", inv_tau: float = 30.0, scale_hopfield: float = 8.0,
                 learnable_inv_tau: bool = False, learnable_scale_hopfield: bool = False) -> None:
        super().__init__()
        self.method = method
        self.logit_inv_tau = torch.nn.Parameter(torch.tensor(inv_tau).log(), requires_grad=learnable_inv_tau)
        self.logit_scale_hopfield = torch.nn.Parameter(torch.tensor(scale_hopfield).log(), requires_grad=learnable_scale_hopfield)

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        unit = torch.nn.functional.normalize
        inv_tau, scale = (t.exp().clamp(max=100) for t in (self.logit_inv_tau, self.logit_scale_hopfield))
        loss = objective(unit(image, dim=-1), unit(text, dim=-1), method=self.method, inv_tau=inv_tau, scale_hopfield=scale)
        return loss * inv_tau / 2 if self.method in INFONCE else loss
