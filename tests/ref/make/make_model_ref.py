#!/usr/bin/env python3
"""Makes tests/ref/model.json: the outputs of small models, by an independent PyTorch program in double precision.

    python3 tests/ref/make/make_model_ref.py > tests/ref/model.json          needs torch and numpy

Weights, images and tokens are procedural (tests/model/procedural.h), so only results are stored: raw embeddings in evaluation and
training mode, three losses of AdamW training, and two numbers per parameter's gradient and final value: its norm, and its
product with a procedural vector. A wrong sign, scale or layout of any of them shows. `scales` has, for each method, steps in which
the inverse temperature and the Hopfield scale are learned."""
import json
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
ROWS, EMBED, CONTEXT, VOCAB, TEXT, TEXT_HEADS, TEXT_LAYERS = 6, 24, 12, 96, 16, 2, 2
RESNET = dict(size=64, width=8, layers=[1, 2, 1, 1])
VIT = dict(size=32, width=128, layers=2, patch=8)


def mix(x):
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def numbers(name, n):
    """n numbers in [-1, 1) that belong to a name."""
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        return (mix(np.arange(n, dtype=np.uint64) + np.uint64(h)) >> np.uint64(40)).astype(np.float64) / 2**23 - 1


def rounded(x, shape):
    return torch.from_numpy(np.asarray(x, np.float32).astype(np.float64).reshape(shape))


def weight(name, shape):
    """The procedural values of a parameter, scaled by what it is."""
    n, leaf = int(np.prod(shape)), name.split(".")[-1]
    u = numbers(name, n)
    if len(shape) == 1 and leaf == "weight": u = 1 + 0.1 * u
    elif leaf == "running_var": u = 1 + 0.5 * u
    elif leaf in ("bias", "in_proj_bias", "running_mean"): u = 0.1 * u
    elif "embedding" in name: u = 0.05 * u
    else: u = u * math.sqrt(3 / (shape[0] if leaf in ("proj", "text_projection") else n // shape[0]))
    return rounded(u, shape)


class Weights(dict):
    """Parameters made on first use, by name and shape."""

    def get(self, name, *shape):
        if name not in self:
            self[name] = weight(name, shape).requires_grad_("running" not in name)
        return self[name]


class Net:
    def __init__(self, kind):
        self.w, self.kind, self.train = Weights(), kind, False

    def linear(self, x, name, out):
        return F.linear(x, self.w.get(name + ".weight", out, x.shape[-1]), self.w.get(name + ".bias", out))

    def norm(self, x, name):
        n = x.shape[-1]
        return F.layer_norm(x, (n,), self.w.get(name + ".weight", n), self.w.get(name + ".bias", n), 1e-5)

    def conv_bn(self, x, conv, bn, out, kernel, stride=1):
        x = F.conv2d(x, self.w.get(conv + ".weight", out, x.shape[1], kernel, kernel), stride=stride, padding=kernel // 2)
        gain, bias = self.w.get(bn + ".weight", out), self.w.get(bn + ".bias", out)
        mean, var = self.w.get(bn + ".running_mean", out), self.w.get(bn + ".running_var", out)
        return F.batch_norm(x, mean, var, gain, bias, self.train, 0.1, 1e-5)

    def attend(self, q, k, v, heads, causal=False):
        split = lambda t: t.unflatten(-1, (heads, -1)).transpose(1, 2)
        s = split(q) @ split(k).transpose(-1, -2) / math.sqrt(q.shape[-1] // heads)
        if causal: s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
        return (s.softmax(-1) @ split(v)).transpose(1, 2).flatten(-2)

    def blocks(self, x, prefix, layers, heads, causal):
        c = x.shape[-1]
        for i in range(layers):
            p = f"{prefix}.resblocks.{i}."
            qkv = F.linear(self.norm(x, p + "ln_1"), self.w.get(p + "attn.in_proj_weight", 3 * c, c), self.w.get(p + "attn.in_proj_bias", 3 * c))
            x = x + self.linear(self.attend(*qkv.chunk(3, -1), heads, causal), p + "attn.out_proj", c)
            h = self.linear(self.norm(x, p + "ln_2"), p + "mlp.c_fc", 4 * c)
            x = x + self.linear(h * torch.sigmoid(1.702 * h), p + "mlp.c_proj", c)
        return x

    def resnet(self, x):
        width = RESNET["width"]
        for i, (out, stride) in enumerate([(width // 2, 2), (width // 2, 1), (width, 1)], 1):
            x = F.relu(self.conv_bn(x, f"visual.conv{i}", f"visual.bn{i}", out, 3, stride))
        x = F.avg_pool2d(x, 2)
        for stage, count in enumerate(RESNET["layers"], 1):
            for b in range(count):
                p, planes, halve = f"visual.layer{stage}.{b}.", width * 2 ** (stage - 1), stage > 1 and b == 0
                h = F.relu(self.conv_bn(x, p + "conv1", p + "bn1", planes, 1))
                h = F.relu(self.conv_bn(h, p + "conv2", p + "bn2", planes, 3))
                h = self.conv_bn(F.avg_pool2d(h, 2) if halve else h, p + "conv3", p + "bn3", 4 * planes, 1)
                if b == 0:
                    x = self.conv_bn(F.avg_pool2d(x, 2) if halve else x, p + "downsample.0", p + "downsample.1", 4 * planes, 1)
                x = F.relu(h + x)
        a, t = "visual.attnpool.", x.flatten(2).transpose(1, 2)
        t = torch.cat([t.mean(1, keepdim=True), t], 1)
        t = t + self.w.get(a + "positional_embedding", t.shape[1], t.shape[2])
        e = t.shape[2]
        k, q, v = (self.linear(u, a + n + "_proj", e) for n, u in (("k", t), ("q", t[:, :1]), ("v", t)))
        return self.linear(self.attend(q, k, v, e // 64), a + "c_proj", EMBED)[:, 0]

    def vit(self, x):
        w = VIT["width"]
        x = F.conv2d(x, self.w.get("visual.conv1.weight", w, 3, VIT["patch"], VIT["patch"]), stride=VIT["patch"]).flatten(2).transpose(1, 2)
        x = torch.cat([self.w.get("visual.class_embedding", w).expand(len(x), 1, w), x], 1)
        x = self.norm(x + self.w.get("visual.positional_embedding", x.shape[1], w), "visual.ln_pre")
        x = self.blocks(x, "visual.transformer", VIT["layers"], w // 64, False)
        return self.norm(x[:, 0], "visual.ln_post") @ self.w.get("visual.proj", w, EMBED)

    def text(self, tokens):
        x = self.w.get("token_embedding.weight", VOCAB, TEXT)[tokens] + self.w.get("positional_embedding", CONTEXT, TEXT)
        x = self.norm(self.blocks(x, "transformer", TEXT_LAYERS, TEXT_HEADS, True), "ln_final")
        return x[torch.arange(len(x)), tokens.argmax(-1)] @ self.w.get("text_projection", TEXT, EMBED)

    def both(self, images, tokens):
        return (self.resnet if self.kind == "resnet" else self.vit)(images), self.text(tokens)


def terms(x, y, beta, inv_tau, retrieve, leave_out):
    x, y = F.normalize(x, dim=1), F.normalize(y, dim=1)
    recall = lambda s, m: F.normalize((beta * s @ m.T).softmax(1) @ m, dim=1) if retrieve else s
    off = torch.eye(len(x), dtype=torch.bool) if leave_out else torch.zeros(len(x), len(x), dtype=torch.bool)
    side = lambda a, b: ((inv_tau * a @ b.T).masked_fill(off, -math.inf).logsumexp(1) - inv_tau * (a * b).sum(1)).mean()
    return side(recall(x, x), recall(y, x)) + side(recall(y, y), recall(x, y))


def cloob(x, y, beta=8.0, inv_tau=30.0):
    return terms(x, y, beta, inv_tau, True, True) / inv_tau


def inputs(size):
    images = 2 * rounded(numbers("images", ROWS * 3 * size * size), (ROWS, 3, size, size))
    u = (numbers("tokens", ROWS * CONTEXT).reshape(ROWS, CONTEXT) + 1) / 2
    t = 1 + np.floor(u * (VOCAB - 3)).astype(np.int64)
    for r in range(ROWS):
        end = 3 + int(u[r, 0] * (CONTEXT - 4))
        t[r, 0], t[r, end], t[r, end + 1:] = VOCAB - 2, VOCAB - 1, 0
    return images, torch.from_numpy(t)


def two_numbers(name, t):
    t = t.detach().flatten()
    return [float(t.norm()), float(t @ torch.from_numpy(numbers("probe." + name, t.numel())))]


plain = lambda k: any(s in k for s in ("bn", "ln", "bias", "downsample.1"))  # not decayed


def optimizer(learn, more=(), eps=1e-8):
    return torch.optim.AdamW([dict(params=[v for k, v in learn.items() if plain(k)] + list(more), weight_decay=0.0),
                              dict(params=[v for k, v in learn.items() if not plain(k)], weight_decay=0.1)], lr=1e-3, betas=(0.9, 0.999), eps=eps)


def scales(retrieve, leave_out, steps=20):
    """A ViT with both scales learned as logarithms, from 14.3 and 8. InfoLOOB is trained on tau times the sum of both terms (the
    paper's L_InfoLOOB, the authors' cloob()), InfoNCE on half their sum (CLIP, the authors' clip()). Pairs do not match, so CLIP's
    inverse temperature falls. The large eps of AdamW makes the weights depend on the size of the gradients."""
    net, (images, tokens) = Net("vit"), inputs(VIT["size"])
    with torch.no_grad(): net.both(images, tokens)
    logit = [torch.tensor(math.log(s), requires_grad=True) for s in (14.3, 8.0)]
    opt, out = optimizer(net.w, logit, eps=1e-3), dict(inv_tau=[], beta=[], sum=[], norm=[])
    for _ in range(steps):
        inv_tau, beta = (t.exp() for t in logit)
        total = terms(*net.both(images, tokens), beta, inv_tau, retrieve, leave_out)
        opt.zero_grad()
        (total / inv_tau if leave_out else total / 2).backward()
        norm = math.sqrt(sum(float((v.grad ** 2).sum()) for v in net.w.values()))
        for k, v in (("inv_tau", inv_tau), ("beta", beta), ("sum", total), ("norm", norm)): out[k].append(v.item() if torch.is_tensor(v) else v)
        opt.step()
        with torch.no_grad():
            for t in logit: t.clamp_(0, math.log(100))
    return out


def model(kind, size):
    net, (images, tokens) = Net(kind), inputs(size)
    with torch.no_grad(): image, text = net.both(images, tokens)
    out = dict(eval_image=image.flatten().tolist(), eval_text=text.flatten().tolist(), gradient={}, after={}, losses=[])
    net.train = True
    learn = {k: v for k, v in net.w.items() if v.requires_grad}
    opt = optimizer(learn)
    for step in range(3):
        image, text = net.both(images, tokens)
        loss = cloob(image, text)
        opt.zero_grad()
        loss.backward()
        if step == 0:
            out["train_image"] = image.flatten().tolist()
            out["gradient"] = {k: two_numbers(k, v.grad) for k, v in learn.items()}
            out["statistics"] = {k: two_numbers(k, v) for k, v in net.w.items() if not v.requires_grad}
        out["losses"].append(loss.item())
        opt.step()
    out["after"] = {k: two_numbers(k, v) for k, v in learn.items()}
    return out


def short(x):
    if isinstance(x, float): return float(f"{x:.10g}")
    if isinstance(x, list): return [short(v) for v in x]
    return {k: short(v) for k, v in x.items()} if isinstance(x, dict) else x


if __name__ == "__main__":
    # 75 and 57 px: an odd image, and pools that leave out an odd last row and column (38, 19, 9, 4, 2; 29, 14, 7, 3, 1). Of the
    # sizes tried these have no value before a relu below 4e-6: in single precision the sign of one would be chance, and with it a
    # few thousandths of a gradient.
    made = {"tiny-rn": model("resnet", RESNET["size"]), "tiny-vit": model("vit", VIT["size"])}
    for size in (75, 57):
        made[f"tiny-rn {size}"] = model("resnet", size)
        del made[f"tiny-rn {size}"]["after"]  # gradients and three losses are enough there
    made["scales"] = {name: scales(*how) for name, how in (("cloob", (True, True)), ("clip", (False, False)),
                                                           ("infoloob", (False, True)), ("infonce-hopfield", (True, False)))}
    json.dump(short(made), sys.stdout, separators=(",", ":"))
