#!/usr/bin/env python3
"""Makes docs/reference/models.md: every configuration that open_clip ships, and what we do with it.

    tests/ref/make/make_models_table.py [build/cloob] > docs/reference/models.md          needs open_clip_torch

Each file is given to `cloob info FILE` as it is. A configuration that crashes us ends the script."""
import json, pathlib, subprocess, sys

import open_clip

root = pathlib.Path(__file__).resolve().parents[3]
cloob = sys.argv[1] if len(sys.argv) > 1 else str(root / "build" / "cloob")
runs, refused = [], []
for path in sorted((pathlib.Path(open_clip.__file__).parent / "model_configs").glob("*.json")):
    r = subprocess.run([cloob, "info", str(path), "--json"], capture_output=True, text=True)
    if r.returncode == 0:
        named = subprocess.run([cloob, "info", path.stem, "--json"], capture_output=True, text=True)  # QuickGELU for OpenAI's own sizes
        runs.append(json.loads(named.stdout if named.returncode == 0 else r.stdout))
    elif r.returncode == 1 and len(r.stderr.strip().splitlines()) == 1:
        refused.append((path.stem, r.stderr.strip().split(".json: ", 1)[1]))
    else:
        sys.exit(f"{path.name}: exit code {r.returncode}: {r.stderr}")

print(f"""# Models

Names for `--model`, `cloob info NAME` and `--config`, and what becomes of each of the {len(runs) + len(refused)} configurations that
open_clip {open_clip.__version__} ships: {len(runs)} run, {len(refused)} are refused by name. Made by `tests/ref/make/make_models_table.py`. Besides these there are
`tiny`, `tiny-rn` and `tiny-vit` for demos and tests. A `.json` file of open_clip or Hugging Face can stand wherever a name can.
These are architectures; published weights have [names of their own](../how-to/models-by-name.md), which `cloob pull` fetches.

A Hugging Face folder of one tower (`CLIPVisionModel`, `CLIPTextModel`, both with and without projection, MetaCLIP 2's and SigLIP's
alike) embeds its side; for the other side the error says that the model has none. rinna's Japanese CLIP and CLOOB (transformers' ViT
and a RoBERTa) embed images and texts; the folder needs the `spiece.model` of rinna/japanese-roberta-base. M-CLIP's folders (XLM-RoBERTa
or LaBSE, and a linear layer) are text towers. `convert --to hf` writes both.

MobileCLIP's image towers (FastViT, and a ViT with convolutions in front) are folded while they are read: branches, batch norms and
layer scale become one convolution or matrix each. They can be fine-tuned (`--pretrained`), but not trained from random weights.
`convert --to open_clip` writes timm's layers: the first branch of each has the folded kernel, and the other branches, the batch norms and
the layer scales have no effect. open_clip loads the folder strictly and computes the same embeddings in eval mode, also after fine-tuning in
cloob. The statistics of the original batch norms cannot be recovered, so that open_clip should train from the original file. MobileCLIP-S0 of
the first version has a hybrid text tower (`mct`); no configuration of open_clip has it, and cloob does not have it either.

OpenAI's own sizes (`RN50` to `RN50x64`, `ViT-B-32`, `ViT-B-16`, `ViT-L-14`, `ViT-L-14-336`) have QuickGELU under their plain names, as
OpenAI's weights do; open_clip's files of the same names have GELU and are read so. `NAME-quickgelu` asks for QuickGELU of any model.

## Those that run

| configuration | image tower | px | patch | embedding | text tower | context | vocabulary | million parameters |
|---|---|---:|---:|---:|---|---:|---:|---:|""")
for line in dict.fromkeys(  # open_clip's NAME and NAME-quickgelu are one row where they are one model
    f"| {m['model']} | {m['image_layers']} x {m['image_width']}, {m['image_activation']} | {m['image_size']} | {m['patch_size'] or ''} "
    f"| {m['embed_dim']} | {m['text_layers']} x {m['text_width']}, {m['text_activation']} | {m['context_length']} | {m['vocab_size']} "
    f"| {m['parameters'] / 1e6:.1f} |" for m in runs):
    print(line)
print("""
## Those that are refused

None of these is another size or another name of a model that runs. The column *needs* is what cloob lacks; `cloob info FILE` gives the reason for a file.

`embed_cls` is refused in any configuration. It appends a class token to each text, under a mask that open_clip shifts by one: the class token sees
the text and the first padding token, and itself only where the text fills the context. A causal mask cannot express this in any order of the
tokens. Attention would need a mask for each text, forward and backward, on the CPU and the GPU. Only CoCa's models have `embed_cls`, and they would
also need CoCa's attentional pooler.

| configurations | published weights | needs |
|---|---|---|""")
NEEDS = {  # by the beginning of the name
    "ViTamin": "stages of MBConv with layer norms in front of the blocks, GeGLU", "coca": "attentional pooler, class token in the text, text decoder",
    "mt5": "relative positions, RMS norm, gated GELU", "nllb": "M2M-100's encoder: sinusoidal positions, ReLU, a token of the language; NLLB's tokenizer",
    "swin": "shifted windows with relative positions", "vit_medium": "no bias of queries, keys and values; without published weights nobody needs it",
    "vit_relpos": "positions as an MLP of distances, in every block"}
published = {name for name, _ in open_clip.list_pretrained()}
for family, reason in NEEDS.items():
    names = [name for name, _ in refused if name.startswith(family)]
    print(f"| {', '.join(f'`{n}`' for n in names)} | {'yes' if published & set(names) else 'none'} | {reason} |")
assert all(any(name.startswith(f) for f in NEEDS) for name, _ in refused), refused
