#!/usr/bin/env python3
"""Writes tests/ref/objective/objective_*.safetensors: small objectives with losses and gradients in float64, by
PyTorch's own differentiation of the definition. Needs torch, numpy and safetensors; the tests do not.

    python3 tests/ref/make/make_objective_ref.py
"""
import os
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

OUT = os.path.join(os.path.dirname(__file__), "..", "objective")
METHODS = {"cloob": (True, True), "infonce": (False, False), "infoloob": (True, False), "infonce_hopfield": (False, True)}


def retrieve(states, stored, beta):
    p = torch.softmax(beta * (states @ stored.T), dim=1) @ stored
    return p / p.norm(dim=1, keepdim=True)


def term(anchors, samples, inv_tau, leave_one_out):
    k = inv_tau * (anchors @ samples.T)
    n = len(k)
    rows = [torch.cat([k[i, :i], k[i, i + 1:]]) if leave_one_out else k[i] for i in range(n)]
    return torch.stack([torch.logsumexp(r, 0) - k[i, i] for i, r in enumerate(rows)]).mean()


def objective(x, y, U, V, beta, inv_tau, loob, hopfield):
    if not hopfield:
        return term(x, y, inv_tau, loob), term(y, x, inv_tau, loob)
    u, v = (x if U is None else U), (y if V is None else V)
    return (term(retrieve(x, u, beta), retrieve(y, u, beta), inv_tau, loob),
            term(retrieve(y, v, beta), retrieve(x, v, beta), inv_tau, loob))


def unit(n, d, g):
    # rounded to float32, so that what the tests read is what was used here
    return F.normalize(torch.randn(n, d, generator=g, dtype=torch.float64), dim=1).float().double()


def write(name, n, d, beta, inv_tau, noise=1.0, mu=0, mv=0, twin=False, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = unit(n, d, g)
    y = F.normalize(x + noise * unit(n, d, g), dim=1).float().double()
    if twin:
        x[1], y[1] = x[0], y[0]
    U, V = (unit(mu, d, g) if mu else None), (unit(mv, d, g) if mv else None)
    out = {"x": x.float(), "y": y.float(), "beta": torch.tensor([beta], dtype=torch.float64),
           "inv_tau": torch.tensor([inv_tau], dtype=torch.float64)}
    if mu: out["U"] = U.float()
    if mv: out["V"] = V.float()
    for method, (loob, hopfield) in METHODS.items():
        leaves = {"x": x, "y": y, "U": U, "V": V, "beta": torch.tensor(beta, dtype=torch.float64),
                  "inv_tau": torch.tensor(inv_tau, dtype=torch.float64)}
        leaves = {k: v.clone().requires_grad_() for k, v in leaves.items() if v is not None}
        image, text = objective(leaves["x"], leaves["y"], leaves.get("U"), leaves.get("V"), leaves["beta"],
                                leaves["inv_tau"], loob, hopfield)
        names = list(leaves)
        grads = torch.autograd.grad(image + text, [leaves[k] for k in names], allow_unused=True, retain_graph=True)
        # What training follows: the paper's InfoLOOB times tau; CLIP's mean of two cross entropies, not divided. With scales as exp(logit).
        followed = (image + text) / leaves["inv_tau"] if loob else (image + text) / 2
        scales = [leaves["inv_tau"], leaves["beta"]]
        for k, leaf, gr in zip(("inv_tau", "beta"), scales, torch.autograd.grad(followed, scales, allow_unused=True)):
            out[f"{method}.train_dlogit_{k}"] = torch.zeros(1, dtype=torch.float64) if gr is None else (gr * leaf.detach()).reshape(1)
        value = {k: v.detach().double().reshape(1) for k, v in
                 (("loss", (image + text) / inv_tau), ("image_term", image), ("text_term", text))}
        out.update({f"{method}.{k}": v for k, v in value.items()})
        for k, gr in zip(names, grads):
            gr = torch.zeros_like(leaves[k]) if gr is None else gr
            if k in ("beta", "inv_tau"):
                out[f"{method}.dsum_d{k}"] = gr.reshape(1)
            else:
                out[f"{method}.d{k}"] = (gr / inv_tau).float()
    save_file(out, os.path.join(OUT, f"objective_{name}.safetensors"))


os.makedirs(OUT, exist_ok=True)
write("usual", 40, 20, 8.0, 30.0)
write("flat", 16, 12, 0.0, 30.0, seed=1)
write("sharp", 24, 10, 120.0, 100.0, seed=2)
write("twins", 12, 9, 14.3, 50.0, twin=True, seed=3)
write("pair", 2, 6, 8.0, 30.0, seed=4)
write("stored", 21, 11, 8.0, 30.0, mu=30, mv=17, seed=5)
write("ragged", 67, 33, 11.0, 70.0, noise=0.7, seed=6)
