#!/usr/bin/env python3
"""Makes a Hugging Face folder of ViT-bigG-14's size (2.5 billion parameters, 10 GB in fp32) in shards, as sparse files of zeros.

    tests/ref/make/make_large_weights.py DIR [SHARD_GB=5]
    /usr/bin/time -v cloob convert DIR big.safetensors      # "Maximum resident set size"

Only headers are written: the folder takes a few KB of disk, the converted file all of its 10 GB."""
import json, os, pathlib, struct, sys

folder, limit = pathlib.Path(sys.argv[1]), float(sys.argv[2] if len(sys.argv) > 2 else 5) * 1e9
folder.mkdir(parents=True, exist_ok=True)
vision = dict(hidden_size=1664, intermediate_size=8192, num_hidden_layers=48, num_attention_heads=16, image_size=224, patch_size=14,
              hidden_act="gelu", projection_dim=1280)
text = dict(hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=20, vocab_size=49408,
            max_position_embeddings=77, hidden_act="gelu", projection_dim=1280)
shapes = {"logit_scale": []}
for tower, c in ("vision_model", vision), ("text_model", text):
    w, inner = c["hidden_size"], c["intermediate_size"]
    for i in range(c["num_hidden_layers"]):
        p = f"{tower}.encoder.layers.{i}."
        for name, shape in [(f"self_attn.{x}_proj", [w, w]) for x in "qkv"] + [("self_attn.out_proj", [w, w]), ("mlp.fc1", [inner, w]), ("mlp.fc2", [w, inner])]:
            shapes[p + name + ".weight"], shapes[p + name + ".bias"] = shape, shape[:1]
        for name in "layer_norm1", "layer_norm2":
            shapes[p + name + ".weight"] = shapes[p + name + ".bias"] = [w]
w, t = 1664, 1280
for name, n in ("vision_model.pre_layrnorm", w), ("vision_model.post_layernorm", w), ("text_model.final_layer_norm", t):
    shapes[name + ".weight"] = shapes[name + ".bias"] = [n]
shapes |= {"vision_model.embeddings.class_embedding": [w], "vision_model.embeddings.position_embedding.weight": [257, w],
           "vision_model.embeddings.patch_embedding.weight": [w, 3, 14, 14], "visual_projection.weight": [1280, w],
           "text_model.embeddings.token_embedding.weight": [49408, t], "text_model.embeddings.position_embedding.weight": [77, t],
           "text_projection.weight": [1280, t]}


def size(shape):
    n = 4
    for d in shape:
        n *= d
    return n


shards = [[]]
for name, shape in shapes.items():
    if sum(size(shapes[k]) for k in shards[-1]) + size(shape) > limit:
        shards.append([])
    shards[-1].append(name)
index = {}
for i, names in enumerate(shards):
    file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
    header, at = {}, 0
    for k in names:
        header[k] = dict(dtype="F32", shape=shapes[k], data_offsets=[at, at + size(shapes[k])])
        at, index[k] = at + size(shapes[k]), file
    head = json.dumps(header).encode()
    with open(folder / file, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        f.truncate(8 + len(head) + at)
    print(file, os.path.getsize(folder / file))
(folder / "model.safetensors.index.json").write_text(json.dumps(dict(metadata={}, weight_map=index)))
(folder / "config.json").write_text(json.dumps(dict(model_type="clip", projection_dim=1280, vision_config=vision, text_config=text)))
