#!/usr/bin/env python3
"""Makes tests/ref/siglip.safetensors: SigLIP's sigmoid loss of 67 random pairs and its gradients, by PyTorch in double precision.

    python3 tests/ref/make/make_siglip_ref.py          needs torch and safetensors"""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
x = F.normalize(torch.randn(67, 21), dim=1)
y = F.normalize(x + torch.randn(67, 21) / 4, dim=1)
x, y = x.float().double().requires_grad_(), y.float().double().requires_grad_()
inv_tau, bias = torch.tensor(12.5, requires_grad=True), torch.tensor(-7.25, requires_grad=True)
labels = 2 * torch.eye(67) - 1
loss = -F.logsigmoid(labels * (inv_tau * x @ y.T + bias)).sum() / 67
loss.backward()
out = {"x": x.detach().float(), "y": y.detach().float(), "dx": x.grad.float(), "dy": y.grad.float(), "loss": loss.detach(),
       "inv_tau": inv_tau.detach(), "bias": bias.detach(), "dinv_tau": inv_tau.grad, "dbias": bias.grad}
to = pathlib.Path(__file__).resolve().parents[1] / "siglip.safetensors"
save_file({k: v.contiguous() for k, v in out.items()}, to)
print(to, float(loss))
