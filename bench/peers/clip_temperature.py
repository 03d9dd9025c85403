#!/usr/bin/env python3
"""The learned temperature of `cloob train --method clip` compared with open_clip's: the same images, texts, weights, order and learning rates.

    python3 bench/peers/clip_temperature.py --cloob build/cloob [--steps 200] [--pairs 512] [--shuffled] [--json]

A small ViT is trained by both in fp32 on the CPU: by `cloob train --learnable-inv-tau`, and by open_clip's model, its ClipLoss and PyTorch's
AdamW from the weights that cloob begins with. Prints the largest difference of inv_tau over the steps, of the loss and of the gradient's norm.
--shuffled gives every image the caption of another: with so many pairs that none is seen twice (--pairs 12800), inv_tau must fall. Needs torch, open_clip_torch, safetensors and Pillow.
"""
import argparse, csv, json, math, os, random, subprocess, sys, tempfile

import numpy as np
import open_clip
import torch
from PIL import Image
from safetensors.torch import load_file

BATCH, MODEL, VOCAB = 64, "tiny-vit", 600
M64 = 2**64 - 1


def mix(x):  # splitmix64
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def epoch_order(seed, epoch, n):
    """The order that src/data gives an epoch (docs/reference/data.md, "Order"): rng_permute of src/core/rng.c."""
    h = 0xCBF29CE484222325
    for b in b"data/order":
        h = ((h ^ b) * 0x100000001B3) & M64
    key, half, out = mix(mix(h ^ mix(seed)) ^ mix(~epoch & M64)), 1, []
    while 1 << (2 * half) < n: half += 1
    mask = (1 << half) - 1
    for x in range(n):
        while True:
            left, right = x >> half, x & mask
            for r in range(4):
                left, right = right, left ^ (mix(((key ^ (r << 60)) + right * 0xD1342543DE82EF95) & M64) & mask)
            x = left << half | right
            if x < n: break
        out.append(x)
    return out


def make_pairs(a, run, folder):
    """Images of the model's own size as PNG, so that nothing is resized, and their captions."""
    run("synth", "--out", "world", "--count", a.pairs, "--size", 32, "--seed", 1, "--quiet")
    rows = list(csv.DictReader(open(f"{folder}/world/train.tsv"), delimiter="\t", quoting=csv.QUOTE_NONE))[:a.pairs]
    captions, images = [r["title"] for r in rows], []
    if a.shuffled: random.Random(0).shuffle(captions)
    with open(f"{folder}/pairs.tsv", "w") as f:
        f.write("filepath\ttitle\n")
        for i, (row, caption) in enumerate(zip(rows, captions)):
            image = Image.open(f"{folder}/world/{row['filepath']}").convert("RGB")
            image.save(f"{folder}/{i}.png")
            images.append(np.asarray(image))
            f.write(f"{i}.png\t{caption}\n")
    with open(f"{folder}/captions.txt", "w") as f: f.write("\n".join(captions) + "\n")
    run("tokenizer", "train", "--input", "captions.txt", "--size", VOCAB, "--out", "vocab.bpe")
    return np.stack(images), captions


def train_cloob(a, run, folder, name, steps):
    run("train", "--train-data", "pairs.tsv", "--vocab", "vocab.bpe", "--model", MODEL, "--method", "clip", "--learnable-inv-tau", "--init-inv-tau", a.inv_tau,
        "--batch-size", BATCH, "--epochs", -(-a.steps * BATCH // a.pairs), "--warmup", 10, "--lr", a.lr, "--max-steps", steps, "--aug-scale-min", 1, "--seed", 0,
        "--device", "cpu", "--precision", "fp32", "--threads", 1, "--log-every-n-steps", 1, "--save-frequency", 0, "--report-to", "none", "--logs", "runs", "--name", name, "--quiet")
    rows = list(csv.DictReader(open(f"{folder}/runs/{name}/metrics.tsv"), delimiter="\t"))
    return {k: [float(r[k]) for r in rows] for k in ("inv_tau", "image_term", "text_term", "lr", "grad_norm")}


def open_clip_model(config, weights):
    text, vision = config["text_cfg"], config["vision_cfg"]
    model = open_clip.model.CLIP(config["embed_dim"], vision, {k: text[k] for k in ("context_length", "vocab_size", "width", "heads", "layers")}, quick_gelu=config["quick_gelu"])
    missing, unknown = model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
    if set(missing) - {"logit_scale", "attn_mask"} or unknown:
        sys.exit(f"weights do not fit: missing {missing}, unknown {unknown}")
    return model.train()


def train_open_clip(model, config, images, tokens, ours, inv_tau):
    mean, std = (np.float32(config[k]) for k in ("image_mean", "image_std"))
    x = torch.from_numpy((images.astype(np.float32) / 255 - mean) / std).permute(0, 3, 1, 2).contiguous()
    with torch.no_grad(): model.logit_scale.fill_(math.log(inv_tau))
    rest = {k: p for k, p in model.named_parameters() if k != "logit_scale"}
    plain = lambda k: any(s in k for s in ("bn", "ln", "bias", "downsample.1"))  # gains and biases are not decayed, nor is the temperature
    optimizer = torch.optim.AdamW([dict(params=[p for k, p in rest.items() if plain(k)] + [model.logit_scale], weight_decay=0.0),
                                   dict(params=[p for k, p in rest.items() if not plain(k)], weight_decay=0.2)], lr=1.0, betas=(0.9, 0.98), eps=1e-6)
    loss_of, out, epoch_steps = open_clip.ClipLoss(), dict(inv_tau=[], loss=[], norm=[]), len(images) // BATCH
    for step, lr in enumerate(ours["lr"]):
        if step % epoch_steps == 0: order = epoch_order(0, step // epoch_steps, len(images))
        rows = order[step % epoch_steps * BATCH:][:BATCH]
        for group in optimizer.param_groups: group["lr"] = lr
        optimizer.zero_grad()
        image, text, scale = model(x[rows], tokens[rows])
        loss = loss_of(image, text, scale)
        loss.backward()
        out["inv_tau"].append(scale.item()), out["loss"].append(loss.item())
        out["norm"].append(math.sqrt(sum(float(p.grad.double().square().sum()) for p in rest.values())))
        optimizer.step()
        with torch.no_grad(): model.logit_scale.clamp_(0, math.log(100))
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--cloob", default="build/cloob")
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--pairs", type=int, default=512)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--inv-tau", type=float, default=14.3)
    ap.add_argument("--shuffled", action="store_true")
    ap.add_argument("--json", action="store_true")
    a = ap.parse_args()
    program = os.path.abspath(a.cloob)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # steps this small are faster with one
    with tempfile.TemporaryDirectory() as folder:
        run = lambda *words: subprocess.run([program, *map(str, words)], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
        images, captions = make_pairs(a, run, folder)
        tokens = torch.tensor(json.loads(run("tokenizer", "encode", "--vocab", "vocab.bpe", "--length", 12, "--clean", "full", "--input", "captions.txt", "--json")))
        train_cloob(a, run, folder, "start", 1)  # the first step of the warm-up has rate 0: it leaves the weights as they are drawn
        run("convert", "runs/start/checkpoints/latest.safetensors", "start.safetensors", "--to", "openai")
        config = json.loads(run("info", "runs/start/checkpoints/latest.safetensors", "--json"))["config"]
        ours = train_cloob(a, run, folder, "run", a.steps)
        theirs = train_open_clip(open_clip_model(config, load_file(f"{folder}/start.safetensors")), config, images, tokens, ours, a.inv_tau)
    loss = [(i + t) / 2 for i, t in zip(ours["image_term"], ours["text_term"])]
    worst = lambda p, q: max(abs(u - v) for u, v in zip(p, q))
    out = dict(steps=len(loss), open_clip=open_clip.__version__, torch=torch.__version__, shuffled=a.shuffled, inv_tau_first=ours["inv_tau"][0], inv_tau_min=min(ours["inv_tau"]),
               inv_tau_max=max(ours["inv_tau"]), inv_tau_last=ours["inv_tau"][-1], open_clip_inv_tau_last=theirs["inv_tau"][-1], inv_tau_difference=worst(ours["inv_tau"], theirs["inv_tau"]),
               loss_difference=worst(loss, theirs["loss"]), first_loss_difference=abs(loss[0] - theirs["loss"][0]),
               norm_difference=max(abs(u - v) / v for u, v in zip(ours["grad_norm"], theirs["norm"])))
    if a.json: return print(json.dumps(out))
    print("{steps} steps, open_clip {open_clip}, torch {torch}: inv_tau {inv_tau_first:.4f} to {inv_tau_last:.4f} (open_clip {open_clip_inv_tau_last:.4f}), between {inv_tau_min:.4f} and "
          "{inv_tau_max:.4f}\nlargest differences: inv_tau {inv_tau_difference:.2g}, loss {loss_difference:.2g} (first step {first_loss_difference:.2g}), norm of the gradient {norm_difference:.2g} of it".format(**out))


if __name__ == "__main__":
    main()
