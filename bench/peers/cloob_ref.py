"""A small PyTorch reference of everything numeric in CLOOB, in functional style.

Parameters are a flat dict {name: tensor}; names are those of OpenAI's CLIP state dict. Every number the
C code is compared with comes from here, in float64 unless said otherwise. Needs torch and numpy only.

    python3 cloob_ref.py selftest
"""
import math
import numpy as np
import torch
import torch.nn.functional as F

# ---------------------------------------------------------------- model shapes

ARCH = {
    "RN50":    dict(embed=1024, res=224, layers=[3, 4, 6, 3],   width=64, ctx=77, vocab=49408, twidth=512, theads=8,  tlayers=12),
    "RN101":   dict(embed=512,  res=224, layers=[3, 4, 23, 3],  width=64, ctx=77, vocab=49408, twidth=512, theads=8,  tlayers=12),
    "RN50x4":  dict(embed=640,  res=288, layers=[4, 6, 10, 6],  width=80, ctx=77, vocab=49408, twidth=640, theads=10, tlayers=12),
    "RN50x16": dict(embed=768,  res=384, layers=[6, 8, 18, 8],  width=96, ctx=77, vocab=49408, twidth=768, theads=12, tlayers=12),
    "ViT-B-32": dict(embed=512, res=224, layers=12, width=768, patch=32, ctx=77, vocab=49408, twidth=512, theads=8, tlayers=12),
    "ViT-B-16": dict(embed=512, res=224, layers=12, width=768, patch=16, ctx=77, vocab=49408, twidth=512, theads=8, tlayers=12),
    "ViT-L-14": dict(embed=768, res=224, layers=24, width=1024, patch=14, ctx=77, vocab=49408, twidth=768, theads=12, tlayers=12),
    "tiny-rn":  dict(embed=24, res=64, layers=[1, 2, 1, 1], width=8, ctx=12, vocab=96, twidth=16, theads=2, tlayers=2),
    "tiny-vit": dict(embed=24, res=32, layers=2, width=128, patch=8, ctx=12, vocab=96, twidth=16, theads=2, tlayers=2),
}


def is_resnet(cfg):
    return isinstance(cfg["layers"], list)


def _bn(s, name, c):
    s[name + ".weight"] = (c,); s[name + ".bias"] = (c,)
    s[name + ".running_mean"] = (c,); s[name + ".running_var"] = (c,)


def _blocks(s, prefix, n, w):
    for i in range(n):
        p = f"{prefix}.resblocks.{i}."
        s[p + "attn.in_proj_weight"] = (3 * w, w); s[p + "attn.in_proj_bias"] = (3 * w,)
        s[p + "attn.out_proj.weight"] = (w, w); s[p + "attn.out_proj.bias"] = (w,)
        s[p + "ln_1.weight"] = (w,); s[p + "ln_1.bias"] = (w,)
        s[p + "mlp.c_fc.weight"] = (4 * w, w); s[p + "mlp.c_fc.bias"] = (4 * w,)
        s[p + "mlp.c_proj.weight"] = (w, 4 * w); s[p + "mlp.c_proj.bias"] = (w,)
        s[p + "ln_2.weight"] = (w,); s[p + "ln_2.bias"] = (w,)


def shapes(cfg):
    """Every parameter and buffer of the model with its shape, in a fixed order."""
    s, w = {}, cfg["width"]
    if is_resnet(cfg):
        for i, (ci, co) in enumerate([(3, w // 2), (w // 2, w // 2), (w // 2, w)], 1):
            s[f"visual.conv{i}.weight"] = (co, ci, 3, 3); _bn(s, f"visual.bn{i}", co)
        cin = w
        for L, n in enumerate(cfg["layers"], 1):
            planes = w * 2 ** (L - 1)
            for b in range(n):
                p, stride = f"visual.layer{L}.{b}.", (2 if L > 1 and b == 0 else 1)
                s[p + "conv1.weight"] = (planes, cin, 1, 1); _bn(s, p + "bn1", planes)
                s[p + "conv2.weight"] = (planes, planes, 3, 3); _bn(s, p + "bn2", planes)
                s[p + "conv3.weight"] = (4 * planes, planes, 1, 1); _bn(s, p + "bn3", 4 * planes)
                if stride > 1 or cin != 4 * planes:
                    s[p + "downsample.0.weight"] = (4 * planes, cin, 1, 1); _bn(s, p + "downsample.1", 4 * planes)
                cin = 4 * planes
        e, p = 32 * w, "visual.attnpool."
        s[p + "positional_embedding"] = ((cfg["res"] // 32) ** 2 + 1, e)
        for q in "kqv":
            s[p + f"{q}_proj.weight"] = (e, e); s[p + f"{q}_proj.bias"] = (e,)
        s[p + "c_proj.weight"] = (cfg["embed"], e); s[p + "c_proj.bias"] = (cfg["embed"],)
    else:
        g = cfg["res"] // cfg["patch"]
        s["visual.class_embedding"] = (w,); s["visual.positional_embedding"] = (g * g + 1, w)
        s["visual.proj"] = (w, cfg["embed"]); s["visual.conv1.weight"] = (w, 3, cfg["patch"], cfg["patch"])
        s["visual.ln_pre.weight"] = (w,); s["visual.ln_pre.bias"] = (w,)
        _blocks(s, "visual.transformer", cfg["layers"], w)
        s["visual.ln_post.weight"] = (w,); s["visual.ln_post.bias"] = (w,)
    t = cfg["twidth"]
    _blocks(s, "transformer", cfg["tlayers"], t)
    s["token_embedding.weight"] = (cfg["vocab"], t); s["positional_embedding"] = (cfg["ctx"], t)
    s["ln_final.weight"] = (t,); s["ln_final.bias"] = (t,); s["text_projection"] = (t, cfg["embed"])
    return s


# ---------------------------------------------------------------- reproducible numbers without big files

def _splitmix64(x):
    x = (x + np.uint64(0x9E3779B97F4A7C15))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def fnv1a(name):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def uniform(name, n):
    """n numbers in [-1, 1): element i is splitmix64(fnv1a(name) + i), its top 24 bits scaled."""
    with np.errstate(over="ignore"):
        u = _splitmix64(np.arange(n, dtype=np.uint64) + np.uint64(fnv1a(name)))
    return (u >> np.uint64(40)).astype(np.float64) / 2.0 ** 23 - 1.0


def weight(name, shape):
    """The agreed test value of one parameter, filled in row-major order of its PyTorch shape."""
    u = uniform(name, int(np.prod(shape)))
    leaf = name.rsplit(".", 1)[-1]
    if len(shape) == 1 and leaf == "weight":  v = 1 + 0.1 * u       # gains of batch and layer norms
    elif leaf == "running_var":               v = 1 + 0.5 * u
    elif leaf in ("bias", "in_proj_bias", "running_mean"): v = 0.1 * u
    elif "embedding" in name:                 v = 0.05 * u
    elif leaf in ("proj", "text_projection"): v = u * math.sqrt(3.0 / shape[0])
    else:                                     v = u * math.sqrt(3.0 / int(np.prod(shape[1:])))
    return torch.from_numpy(v.astype(np.float32).astype(np.float64).reshape(shape))


def procedural_params(cfg):
    return {k: weight(k, s) for k, s in shapes(cfg).items()}


def procedural_images(n, res, tag="images"):
    """N x 3 x res x res, in [-2, 2): smooth enough to be image-like is not needed for a numeric check."""
    return torch.from_numpy(2 * uniform(tag, n * 3 * res * res).astype(np.float32).astype(np.float64).reshape(n, 3, res, res))


def procedural_tokens(n, cfg, tag="tokens"):
    """Start token vocab-2, then 3..ctx-2 words below vocab-2, end token vocab-1, zeros after it."""
    ctx, v = cfg["ctx"], cfg["vocab"]
    u = (uniform(tag, n * ctx) + 1) / 2
    t = (1 + np.floor(u * (v - 3))).astype(np.int64).reshape(n, ctx)
    for r in range(n):
        end = 3 + int(u[r * ctx] * (ctx - 4))
        t[r, 0] = v - 2; t[r, end] = v - 1; t[r, end + 1:] = 0
    return torch.from_numpy(t)


# ---------------------------------------------------------------- encoders

class BatchNormState:
    """Collects the updated running statistics of a training-mode pass."""
    def __init__(self, params, training):
        self.p, self.training, self.updated = params, training, {}

    def __call__(self, name, x):
        p = self.p
        if not self.training:
            return F.batch_norm(x, p[name + ".running_mean"], p[name + ".running_var"], p[name + ".weight"], p[name + ".bias"], False, 0.1, 1e-5)
        m, v = p[name + ".running_mean"].detach().clone(), p[name + ".running_var"].detach().clone()
        y = F.batch_norm(x, m, v, p[name + ".weight"], p[name + ".bias"], True, 0.1, 1e-5)
        self.updated[name + ".running_mean"], self.updated[name + ".running_var"] = m, v
        return y


def attention(q, k, v, heads, mask=None):
    n, lq, e = q.shape
    h = lambda t: t.view(n, -1, heads, e // heads).transpose(1, 2)
    s = h(q) @ h(k).transpose(-1, -2) / math.sqrt(e // heads)
    if mask is not None: s = s + mask
    return (s.softmax(-1) @ h(v)).transpose(1, 2).reshape(n, lq, e)


def transformer(p, prefix, x, n, heads, mask=None):
    ln = lambda name, t: F.layer_norm(t, t.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)
    for i in range(n):
        b = f"{prefix}.resblocks.{i}."
        q, k, v = F.linear(ln(b + "ln_1", x), p[b + "attn.in_proj_weight"], p[b + "attn.in_proj_bias"]).chunk(3, -1)
        x = x + F.linear(attention(q, k, v, heads, mask), p[b + "attn.out_proj.weight"], p[b + "attn.out_proj.bias"])
        h = F.linear(ln(b + "ln_2", x), p[b + "mlp.c_fc.weight"], p[b + "mlp.c_fc.bias"])
        x = x + F.linear(h * torch.sigmoid(1.702 * h), p[b + "mlp.c_proj.weight"], p[b + "mlp.c_proj.bias"])
    return x


def encode_image(p, cfg, x, training=False, bn=None):
    bn = bn or BatchNormState(p, training)
    if not is_resnet(cfg):
        w = cfg["width"]
        x = F.conv2d(x, p["visual.conv1.weight"], stride=cfg["patch"]).flatten(2).transpose(1, 2)
        x = torch.cat([p["visual.class_embedding"].expand(x.shape[0], 1, w), x], 1) + p["visual.positional_embedding"]
        x = F.layer_norm(x, (w,), p["visual.ln_pre.weight"], p["visual.ln_pre.bias"], 1e-5)
        x = transformer(p, "visual.transformer", x, cfg["layers"], w // 64)
        x = F.layer_norm(x[:, 0], (w,), p["visual.ln_post.weight"], p["visual.ln_post.bias"], 1e-5)
        return x @ p["visual.proj"]
    for i, stride in ((1, 2), (2, 1), (3, 1)):
        x = F.relu(bn(f"visual.bn{i}", F.conv2d(x, p[f"visual.conv{i}.weight"], stride=stride, padding=1)))
    x = F.avg_pool2d(x, 2)
    for L, n in enumerate(cfg["layers"], 1):
        for b in range(n):
            q, stride, skip = f"visual.layer{L}.{b}.", (2 if L > 1 and b == 0 else 1), x
            h = F.relu(bn(q + "bn1", F.conv2d(x, p[q + "conv1.weight"])))
            h = F.relu(bn(q + "bn2", F.conv2d(h, p[q + "conv2.weight"], padding=1)))
            if stride > 1: h = F.avg_pool2d(h, 2)
            h = bn(q + "bn3", F.conv2d(h, p[q + "conv3.weight"]))
            if q + "downsample.0.weight" in p:
                skip = bn(q + "downsample.1", F.conv2d(F.avg_pool2d(x, 2) if stride > 1 else x, p[q + "downsample.0.weight"]))
            x = F.relu(h + skip)
    a = "visual.attnpool."
    x = x.flatten(2).transpose(1, 2)
    x = torch.cat([x.mean(1, keepdim=True), x], 1) + p[a + "positional_embedding"]
    lin = lambda name, t: F.linear(t, p[a + name + "_proj.weight"], p[a + name + "_proj.bias"])
    return lin("c", attention(lin("q", x[:, :1]), lin("k", x), lin("v", x), cfg["width"] * 32 // 64))[:, 0]


def encode_text(p, cfg, tokens):
    length = tokens.shape[1]                       # may be shorter than the context: what stands behind the end token does not matter
    x = p["token_embedding.weight"][tokens] + p["positional_embedding"][:length]
    mask = torch.full((length, length), float("-inf"), dtype=x.dtype, device=x.device).triu(1)
    x = transformer(p, "transformer", x, cfg["tlayers"], cfg["theads"], mask)
    x = F.layer_norm(x, x.shape[-1:], p["ln_final.weight"], p["ln_final.bias"], 1e-5)
    return x[torch.arange(len(x)), tokens.argmax(-1)] @ p["text_projection"]


# ---------------------------------------------------------------- objective

def hopfield(states, stored, beta):
    """One update of a modern Hopfield network per state, then unit length."""
    return F.normalize((beta * states @ stored.T).softmax(-1) @ stored, dim=-1, eps=0)


def contrast(anchors, samples, inv_tau, leave_one_out):
    """Mean over anchors of -ln( exp(pos) / sum exp ), the positive left out of the sum for InfoLOOB."""
    k = inv_tau * anchors @ samples.T
    d = k.masked_fill(torch.eye(len(k), dtype=torch.bool, device=k.device), float("-inf")) if leave_one_out else k
    return (d.logsumexp(1) - k.diagonal()).mean()


def objective(x, y, *, loob=True, hop=True, beta=8.0, inv_tau=30.0, U=None, V=None):
    """x, y: unit rows. Returns (tau-scaled total, image term, text term), the terms not scaled.

    loob+hop is CLOOB, neither is CLIP's InfoNCE summed over both directions. U and V default to x and y."""
    if hop:
        U, V = x if U is None else U, y if V is None else V
        ux, uy, vx, vy = hopfield(x, U, beta), hopfield(y, U, beta), hopfield(x, V, beta), hopfield(y, V, beta)
        li, lt = contrast(ux, uy, inv_tau, loob), contrast(vy, vx, inv_tau, loob)
    else:
        li, lt = contrast(x, y, inv_tau, loob), contrast(y, x, inv_tau, loob)
    return (li + lt) / inv_tau, li, lt


# ---------------------------------------------------------------- optimiser and schedule

def decays(name):
    """Weight decay is for weights that are neither gains nor biases."""
    return not any(k in name for k in ("bn", "ln", "bias", "downsample.1"))


def lr_scale(step, warmup, total, cycles=None):
    """Linear warmup, then cosine to zero; with `cycles`, that many hard restarts over the whole run."""
    if step < warmup: return step / max(1, warmup)
    t = (step - warmup) / max(1, total - warmup)
    if cycles is None: return max(0.0, 0.5 * (1 + math.cos(math.pi * t)))
    return 0.0 if t >= 1 else max(0.0, 0.5 * (1 + math.cos(math.pi * ((cycles * t) % 1.0))))


# ---------------------------------------------------------------- analysis

def ajne(x):
    """Extended uniformity statistic: 0 for a uniform sphere, large for a crowded one."""
    n = len(x); i, j = torch.triu_indices(n, n, 1)
    return n / 4 - torch.arccos((x @ x.T)[i, j].clamp(-1, 1)).sum() / (math.pi * n)


def effective_eigenvalues(x, share=0.99):
    """How many eigenvalues of the covariance make up `share` of their sum; and all, sorted."""
    c = torch.linalg.eigvalsh(torch.cov(x.T)).flip(0).clamp(min=0)
    return int((c.cumsum(0) / c.sum() < share).sum()) + 1, c


def hopfield_energy(xi, U, beta):
    m = U.norm(dim=1).max()
    return -torch.logsumexp(beta * U @ xi, 0) / beta + math.log(len(U)) / beta + 0.5 * xi @ xi + 0.5 * m * m


# ---------------------------------------------------------------- files

def save_safetensors(path, tensors, meta=None):
    import json, struct
    names = {torch.float64: "F64", torch.float32: "F32", torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8"}
    head, off, blobs = ({"__metadata__": {k: str(v) for k, v in meta.items()}} if meta else {}), 0, []
    for k, t in tensors.items():
        t = t.detach().contiguous().cpu(); b = t.numpy().tobytes()
        head[k] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [off, off + len(b)]}
        off += len(b); blobs.append(b)
    h = json.dumps(head).encode(); h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h))); f.write(h); [f.write(b) for b in blobs]


if __name__ == "__main__":
    cfg = ARCH["tiny-rn"]; p = procedural_params(cfg)
    x = F.normalize(encode_image(p, cfg, procedural_images(6, cfg["res"]), True), dim=1)
    y = F.normalize(encode_text(p, cfg, procedural_tokens(6, cfg)), dim=1)
    print("tiny-rn cloob loss", float(objective(x, y)[0]))
