#!/usr/bin/env python3
"""Makes tests/ref/foreign: a small model in other programs' files, and what PyTorch computes with it.

    python3 tests/ref/make/make_foreign_ref.py               needs torch and numpy

    mini-rn.json            the model's configuration in the authors' flat form
    authors_epoch_2.pt      a training checkpoint in the authors' layout: "module." names, optimizer, scheduler
    openai_state_dict.pt    a bare state dict with OpenAI's names
    mini-rn.safetensors     eval.image, eval.text: raw embeddings of six procedural images and texts, computed in double
    RN50.safetensors, ViT-B-32.safetensors     the same of two large models, four pairs (build/test_towers large)

Weights, images and tokens are procedural (tests/model/procedural.h), so the files are compared with numbers that no
converter has touched."""
import json
import pathlib
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench/peers"))
import cloob_ref as ref  # noqa: E402

OUT = ROOT / "tests/ref/foreign"
MINI = dict(embed=16, res=64, layers=[1, 2, 1, 1], width=2, ctx=10, vocab=80, twidth=16, theads=2, tlayers=2)


@torch.no_grad()
def outputs(cfg, rows, path):
    p = ref.procedural_params(cfg)
    image = ref.encode_image(p, cfg, ref.procedural_images(rows, cfg["res"]))
    text = ref.encode_text(p, cfg, ref.procedural_tokens(rows, cfg))
    ref.save_safetensors(path, {"eval.image": image.float(), "eval.text": text.float()})


def authors_checkpoint(p):
    """What the authors' training program saves: text names below "transformer.", all below "module."."""
    text = lambda k: not k.startswith("visual.")
    state = {"module." + ("transformer." + k if text(k) else k): v for k, v in p.items()}
    state["module.logit_inv_tau"] = torch.tensor(30.0).log()
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 5)
    return {"epoch": 2, "name": "mini", "state_dict": state, "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    config = dict(embed_dim=MINI["embed"], image_resolution=MINI["res"], vision_layers=MINI["layers"], vision_width=MINI["width"],
                  vision_patch_size=None, context_length=MINI["ctx"], vocab_size=MINI["vocab"], transformer_width=MINI["twidth"],
                  transformer_heads=MINI["theads"], transformer_layers=MINI["tlayers"])
    (OUT / "mini-rn.json").write_text(json.dumps(config, indent=1) + "\n")
    p = {k: v.float() for k, v in ref.procedural_params(MINI).items()}
    torch.save(authors_checkpoint(p), OUT / "authors_epoch_2.pt")
    torch.save({**p, "logit_scale": torch.tensor(30.0).log()}, OUT / "openai_state_dict.pt")
    outputs(MINI, 6, OUT / "mini-rn.safetensors")
    for name in "RN50", "ViT-B-32":
        outputs(ref.ARCH[name], 4, OUT / (name + ".safetensors"))


main()
