#!/usr/bin/env python3
"""Makes tests/ref/families.json: what open_clip computes for a small model of every kind that its configurations ask for.

    python3 tests/ref/make/make_families_ref.py > tests/ref/families.json          needs torch and open_clip_torch

Weights, images and tokens are procedural (tests/model/procedural.h), so only configurations and raw embeddings are stored. open_clip
names its tensors as we do."""
import json
import sys

import numpy as np
import torch
import open_clip

from make_model_ref import numbers, weight

ROWS, CONTEXT, VOCAB, EMBED = 3, 12, 96, 24
V = dict(image_size=32, layers=2, width=32, patch_size=8, head_width=8)
T = dict(context_length=CONTEXT, vocab_size=VOCAB, width=16, heads=2, layers=2)
TANH = dict(act_kwargs=dict(approximate="tanh"))
MODELS = {
    "GELU": (V, T, {}),
    "QuickGELU": (V, T, dict(quick_gelu=True)),
    "mlp_ratio": (dict(V, mlp_ratio=4.3637), dict(T, mlp_ratio=2.5), {}),
    "no_ln_pre, pool avg, final_ln_after_pool, text last, no_causal_mask": (
        dict(V, no_ln_pre=True, pool_type="avg", final_ln_after_pool=True), dict(T, pool_type="last", no_causal_mask=True), {}),
    "pool avg, text first": (dict(V, pool_type="avg"), dict(T, pool_type="first"), {}),
    "layer scale": (dict(V, ls_init_value=0.3), dict(T, ls_init_value=0.3, no_causal_mask=True), {}),
    "tanh GELU, eps": (dict(V, **TANH, norm_kwargs=dict(eps=1e-6)), dict(T, **TANH, norm_kwargs=dict(eps=1e-3)), {}),
    "proj_bias": (V, dict(T, proj_bias=True), {}),
    "no text projection": (V, dict(T, pool_type="first", no_causal_mask=True, proj_type="none", width=EMBED, heads=3), {}),
    "pool eos": (V, dict(T, pool_type="eos", eos_id=3), {}),
    "patch_dropout, output_tokens": (dict(V, patch_dropout=0.5, output_tokens=True), T, {}),
    "patch 16, odd context": (dict(V, image_size=48, patch_size=16), dict(T, context_length=7, heads=4), {}),
    "ResNet, text last": (dict(image_size=64, layers=[1, 2, 1, 1], width=8, head_width=32), dict(T, pool_type="last"), {}),
}


def tokens(context):
    u = (numbers("tokens", ROWS * context).reshape(ROWS, context) + 1) / 2
    t = (1 + np.floor(u * (VOCAB - 3))).astype(np.int64)
    for r in range(ROWS):
        end = 3 + int(u[r, 0] * (context - 4))
        t[r, 0], t[r, end], t[r, end + 1:] = VOCAB - 2, VOCAB - 1, 0
    return torch.from_numpy(t)


@torch.no_grad()
def outputs(vision, text, more):
    model = open_clip.CLIP(embed_dim=EMBED, vision_cfg=vision, text_cfg=text, **more).double().eval()
    own = model.state_dict()
    model.load_state_dict({k: v if v.ndim == 0 or not v.is_floating_point() else weight(k, tuple(v.shape)) for k, v in own.items()})
    size = vision["image_size"]
    x = torch.from_numpy((2 * numbers("images", ROWS * 3 * size * size).astype(np.float32)).reshape(ROWS, 3, size, size)).double()
    model.visual.output_tokens = False
    if hasattr(model, "attn_mask") and model.attn_mask is not None: model.attn_mask = model.attn_mask.double()
    flat = lambda y: [float("%.9g" % v) for v in y.flatten()]
    return dict(image=flat(model.encode_image(x)), text=flat(model.encode_text(tokens(text["context_length"]))))


torch.manual_seed(0)
found = {}
for name, (vision, text, more) in MODELS.items():
    found[name] = dict(config=dict(embed_dim=EMBED, vision_cfg=vision, text_cfg=text, **more), **outputs(vision, text, more))
    print(name, file=sys.stderr)
print("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in found.items()) + "\n}")
