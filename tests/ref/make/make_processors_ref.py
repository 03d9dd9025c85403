#!/usr/bin/env python3
"""Makes tests/ref/processors.json: what transformers' image processors make of the images in tests/ref/images.

    python3 tests/ref/make/make_processors_ref.py tests/ref     (transformers 5, torch, torchvision, Pillow)

Every case has a configuration file's text, the size of the model, an image, and the bytes before normalising in base64. The cases `scaled` have the values of
one corner after normalising. Filters that torch does not have (box, hamming) come from transformers' Pillow backend.
"""
import base64, json, sys
import numpy as np
from PIL import Image
from transformers import CLIPImageProcessor, SiglipImageProcessor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

ref = sys.argv[1]
cases = []


def case(cls, image, pixels_wide, **settings):
    saved = cls(**settings).to_dict()
    config = {k: v for k, v in saved.items() if v is not None}
    config["image_processor_type"] = config["image_processor_type"].removesuffix("Pil")
    raw = cls(**{**settings, "do_rescale": False, "do_normalize": False})
    pixels = raw(Image.open(f"{ref}/images/{image}"), return_tensors="np")["pixel_values"][0]
    assert pixels.shape == (3, pixels_wide, pixels_wide), (pixels.shape, settings)
    full = cls(**settings)(Image.open(f"{ref}/images/{image}"), return_tensors="np")["pixel_values"][0]
    cases.append({"config": config, "image": image, "size": pixels_wide,
                  "pixels": base64.b64encode(np.ascontiguousarray(pixels.transpose(1, 2, 0)).astype(np.uint8).tobytes()).decode(),
                  "corner": [float(v) for v in full[:, 0, 0]]})


def clip(size, edge=None, **more):
    return {"size": {"shortest_edge": edge or size}, "crop_size": {"height": size, "width": size}, **more}


modes = ["rgb_420.jpg", "gray.jpg", "cmyk.jpg", "gray.png", "gray1.png", "gray_alpha.png", "rgba.png", "palette.png", "palette_trns.png", "rgb_trns.png",
         "lossy_alpha.webp"]
for name in modes:
    case(CLIPImageProcessor, name, 15, **clip(15))
for resample in (0, 1, 2, 3):
    case(CLIPImageProcessor, "wide.jpg", 16, **clip(16, resample=resample))
    case(CLIPImageProcessor, "tall.jpg", 17, **clip(17, resample=resample))
for resample in (4, 5):
    case(CLIPImageProcessorPil, "rgb_444.jpg", 16, **clip(16, resample=resample))
case(CLIPImageProcessor, "rgb_444.jpg", 15, **clip(15, 20))                                   # crop below size
case(CLIPImageProcessor, "rgb_444.jpg", 20, **clip(20, 13))                                   # crop above size: black around
case(CLIPImageProcessor, "rgb_444.jpg", 21, do_resize=False, **clip(21))                      # no resize
case(CLIPImageProcessor, "rgb_444.jpg", 15, size={"height": 19, "width": 24}, crop_size={"height": 15, "width": 15})
case(SiglipImageProcessor, "rgb_444.jpg", 18, size={"height": 18, "width": 18})
case(SiglipImageProcessor, "rgba.png", 18, size={"height": 18, "width": 18}, resample=2)
case(CLIPImageProcessor, "rgb_444.jpg", 15, **clip(15, do_normalize=False))
case(CLIPImageProcessor, "rgb_444.jpg", 15, **clip(15, do_rescale=False))
case(CLIPImageProcessor, "rgb_444.jpg", 15, **clip(15, rescale_factor=1 / 127.5, image_mean=[1, 1, 1], image_std=[0.5, 0.25, 2]))
json.dump({"cases": cases}, open(f"{ref}/processors.json", "w"), indent=None, separators=(",", ":"))
print(len(cases), "cases")
