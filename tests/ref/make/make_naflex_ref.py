#!/usr/bin/env python3
"""Makes tests/ref/naflex: a small SigLIP 2 NaFlex model as transformers 5 saves it, and its embeddings of image files and tokens.

    python3 tests/ref/make/make_naflex_ref.py          needs torch, torchvision, transformers 5 and safetensors

expected.safetensors: "image" (files, D), rows of the files of tests/ref/images named in its metadata, each embedded alone, "tokens" (n, T) and
"text" (n, D). No image has a single column of patches: for those torch 2.15's antialiased interpolate is wrong on the CPU. All rows are raw, computed in double precision from the processor's float32 pixels."""
import pathlib

import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import Siglip2Config, Siglip2ImageProcessor, Siglip2Model

ref = pathlib.Path(__file__).resolve().parents[1]
FILES = ["wide.jpg", "tall.jpg", "row.jpg", "rgb.png", "rgba.png", "palette_trns.png", "gray4.png", "cmyk.jpg", "one.png", "rgb_444.jpg"]

torch.manual_seed(1)
part = dict(hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2)
config = Siglip2Config(text_config=dict(vocab_size=40, max_position_embeddings=8, projection_size=16, **part),
                       vision_config=dict(patch_size=4, num_patches=25, **part))
model = Siglip2Model(config).eval()
with torch.no_grad():
    for p in model.parameters():
        p.add_(torch.randn_like(p) * 0.2)
out = ref / "naflex"
model.save_pretrained(out)
processor = Siglip2ImageProcessor(patch_size=4, max_num_patches=40, do_convert_rgb=True)
processor.save_pretrained(out)
model.double()
tokens = torch.randint(1, 40, (5, 8))
rows = []
with torch.no_grad():
    for name in FILES:
        x = processor(Image.open(ref / "images" / name), return_tensors="pt")
        print(name, x["spatial_shapes"].tolist())
        rows.append(model.get_image_features(**{k: v.double() if v.is_floating_point() else v for k, v in x.items()}).pooler_output)
    text = model.get_text_features(input_ids=tokens).pooler_output
save_file({"image": torch.cat(rows).float(), "text": text.float(), "tokens": tokens.to(torch.int32)}, out / "expected.safetensors",
          metadata={"files": " ".join(FILES)})
