#!/usr/bin/env python3
"""Checks `cloob convert` against the programs whose files it reads and writes.

    bench/peers/interchange_check.py [build/cloob]

Needs torch, open_clip_torch, transformers and safetensors; the product itself needs none of them. Weights are the
procedural ones of the reference (bench/peers/cloob_ref.py), so every file is also compared with numbers that
no converter has touched. Prints a line per check; the exit code is the verdict.
"""
import collections, json, os, pathlib, pickle, struct, subprocess, sys, tempfile, zipfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
root = pathlib.Path(__file__).resolve().parents[2]
foreign = root / "tests/ref/foreign"
sys.path.insert(0, str(root / "bench/peers"))

import torch
import torch.nn as nn
from safetensors import safe_open
from safetensors.torch import load_file
import cloob_ref as ref

cloob = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else root / "build" / "cloob").resolve())
work = pathlib.Path(tempfile.mkdtemp(prefix="interchange-"))
failures = 0


def check(what, ok, detail=""):
    global failures
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {what}{': ' + str(detail) if detail != '' else ''}")


def convert(src, dst, *options):
    run = subprocess.run([cloob, "convert", str(src), str(dst), "--json", "--quiet", *options], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr.strip())
    return json.loads(run.stdout)


def same(a, b):
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and torch.equal(a[k], b[k]) for k in a)


def procedural(name, scale=True):
    p = {k: v.float() for k, v in ref.procedural_params(ref.ARCH[name]).items()}
    return {**p, "logit_scale": torch.tensor(30.0).log()} if scale else p


def expected(name, n=3):
    cfg = ref.ARCH[name]
    p, x, t = ref.procedural_params(cfg), ref.procedural_images(n, cfg["res"]), ref.procedural_tokens(n, cfg)
    return x.float(), t, ref.encode_image(p, cfg, x).float(), ref.encode_text(p, cfg, t).float()


def error(a, b):
    return float((a - b).norm() / b.norm())


def nested(name):
    c = ref.ARCH[name]
    vision = dict(image_size=c["res"], layers=c["layers"], width=c["width"])
    if "patch" in c:
        vision["patch_size"] = c["patch"]
    text = dict(context_length=c["ctx"], vocab_size=c["vocab"], width=c["twidth"], heads=c["theads"], layers=c["tlayers"])
    return dict(embed_dim=c["embed"], quick_gelu=True, vision_cfg=vision, text_cfg=text)


# ---------------------------------------------------------------- a small CLIP-like module, for TorchScript

class Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(collections.OrderedDict(c_fc=nn.Linear(width, 4 * width), c_proj=nn.Linear(4 * width, width)))
        self.causal = causal

    def forward(self, x):
        n = x.shape[0]
        mask = torch.full([n, n], float("-inf")).triu(1) if self.causal else torch.zeros([n, n])
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, need_weights=False, attn_mask=mask)[0]
        h = self.mlp[0](self.ln_2(x))
        return x + self.mlp[1](h * torch.sigmoid(1.702 * h))


class Tower(nn.Module):
    def __init__(self, width, layers, heads, causal):
        super().__init__()
        self.resblocks = nn.Sequential(*[Block(width, heads, causal) for _ in range(layers)])

    def forward(self, x):
        return self.resblocks(x.permute(1, 0, 2)).permute(1, 0, 2)


class Vision(nn.Module):
    def __init__(self, c):
        super().__init__()
        w, grid = c["width"], c["res"] // c["patch"]
        self.conv1 = nn.Conv2d(3, w, c["patch"], c["patch"], bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(w))
        self.positional_embedding = nn.Parameter(torch.zeros(grid * grid + 1, w))
        self.ln_pre, self.ln_post = nn.LayerNorm(w), nn.LayerNorm(w)
        self.transformer = Tower(w, c["layers"], w // 64, False)
        self.proj = nn.Parameter(torch.zeros(w, c["embed"]))

    def forward(self, x):
        x = self.conv1(x).flatten(2).permute(0, 2, 1)
        x = torch.cat([self.class_embedding.expand(x.shape[0], 1, -1), x], 1) + self.positional_embedding
        return self.ln_post(self.transformer(self.ln_pre(x))[:, 0]) @ self.proj


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        t = c["twidth"]
        self.visual = Vision(c)
        self.transformer = Tower(t, c["tlayers"], c["theads"], True)
        self.token_embedding = nn.Embedding(c["vocab"], t)
        self.positional_embedding = nn.Parameter(torch.zeros(c["ctx"], t))
        self.ln_final = nn.LayerNorm(t)
        self.text_projection = nn.Parameter(torch.zeros(t, c["embed"]))
        self.logit_scale = nn.Parameter(torch.zeros([]))
        self.register_buffer("context_length", torch.tensor(c["ctx"]))

    def forward(self, image, tokens):
        x = self.transformer(self.token_embedding(tokens) + self.positional_embedding)
        x = self.ln_final(x)[torch.arange(x.shape[0]), tokens.argmax(-1)] @ self.text_projection
        return self.visual(image), x


# ---------------------------------------------------------------- checks

def foreign_files():
    for name in "authors_epoch_2.pt", "openai_state_dict.pt":
        out = work / "foreign.safetensors"
        convert(foreign / name, out, "--config", str(foreign / "mini-rn.json"))
        have, want = load_file(out), {k: v for k, v in torch.load(foreign / "openai_state_dict.pt").items() if k != "logit_scale"}
        equal = all(torch.equal(have[k], v) for k, v in want.items())
        extra = sorted({k.rsplit(".", 1)[-1] for k in have if k not in want})
        check(f"{name} equals the procedural weights bit for bit", equal, f"additional tensors: {extra}")


def sources(name):
    """Every container and spelling that should lead to the same native weights."""
    p = procedural(name)
    text = lambda k: not k.startswith(("visual.", "logit_"))
    jku = {("logit_inv_tau" if k == "logit_scale" else "transformer." + k if text(k) else k): v for k, v in p.items()}
    wrapped = {"epoch": 7, "name": "run", "state_dict": {"module." + k: v for k, v in jku.items()}}
    weight = nn.Parameter(torch.ones(3))
    opt = torch.optim.AdamW([weight]); weight.sum().backward(); opt.step()
    wrapped["optimizer"] = opt.state_dict()
    wrapped["scheduler"] = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 5).state_dict()
    save = torch.save
    save(p, work / "zip.pt")
    save(p, work / "stream.pt", _use_new_zipfile_serialization=False)
    save(collections.OrderedDict((k, nn.Parameter(v)) for k, v in p.items()), work / "parameters.pt")
    save({k: v.t().contiguous().t() if v.ndim == 2 else v for k, v in p.items()}, work / "strided.pt")
    save(wrapped, work / "jku.pt")
    save(wrapped, work / "jku_stream.pt", _use_new_zipfile_serialization=False)
    save({("text." + k if text(k) else k): v for k, v in p.items()}, work / "custom_text.pt")
    for proto in 1, 3, 4, 5:  # torch itself cannot read back protocol 0
        save(p, work / f"protocol{proto}.pt", pickle_protocol=proto)
    return ["zip.pt", "stream.pt", "parameters.pt", "strided.pt", "jku.pt", "jku_stream.pt", "custom_text.pt",
            *[f"protocol{n}.pt" for n in (1, 3, 4, 5)]]


def reading(name):
    want = procedural(name)
    for file in sources(name):
        try:
            report = convert(work / file, work / "out.safetensors")
            check(f"{name} from {file}", same(load_file(work / "out.safetensors"), want), report["container"] + ", " + report["names"])
        except RuntimeError as e:
            check(f"{name} from {file}", False, e)


def half(name):
    p = {k: v.half() if v.ndim > 1 else v for k, v in procedural(name).items()}
    torch.save(p, work / "half.pt")
    convert(work / "half.pt", work / "half.safetensors")
    check(f"{name} half precision is kept", same(load_file(work / "half.safetensors"), p))


def round_trips(name):
    native = work / f"{name}.safetensors"
    torch.save(procedural(name), work / "plain.pt")
    convert(work / "plain.pt", native)
    for to, out in ("openai", "o.pt"), ("openai", "o.safetensors"), ("jku", "j.pt"), ("open_clip", "oc"), ("hf", "hf"):
        if to == "hf" and isinstance(ref.ARCH[name]["layers"], list):
            continue
        convert(native, work / (name + out), "--to", to)
        convert(work / (name + out), work / "back.safetensors")
        meta = lambda f: {k: v for k, v in safe_open(f, "pt").metadata().items() if k not in ("epoch", "run")}
        check(f"{name} to {to} ({out}) and back", same(load_file(native), load_file(work / "back.safetensors"))
              and meta(native) == meta(work / "back.safetensors"))


def torch_strict(name):
    loaded = torch.load(work / f"{name}o.pt", weights_only=True)
    check(f"{name} for torch: weights_only load equals", same(dict(loaded), procedural(name)))
    jku = torch.load(work / f"{name}j.pt", weights_only=True)
    check(f"{name} for the authors' code: keys", set(jku) == {"epoch", "name", "state_dict"}
          and all(k.startswith("module.") for k in jku["state_dict"]) and "module.logit_inv_tau" in jku["state_dict"])


@torch.no_grad()
def open_clip_strict(name):
    import open_clip
    x, t, image, text = expected(name)
    model = open_clip.CLIP(**nested(name)).eval()
    model.load_state_dict(torch.load(work / f"{name}o.pt", weights_only=True), strict=True)
    e = error(model.encode_image(x), image), error(model.encode_text(t), text)
    check(f"{name} in open_clip, load_state_dict(strict)", max(e) < 1e-4, "image %.1e text %.1e" % e)
    model = open_clip.create_model(f"local-dir:{work / (name + 'oc')}").eval()
    e = error(model.encode_image(x), image), error(model.encode_text(t), text)
    check(f"{name} in open_clip, local-dir:", max(e) < 1e-4, "image %.1e text %.1e" % e)
    torch.save({"epoch": 1, "name": "x", "state_dict": model.state_dict()}, work / "from_open_clip.pt")
    convert(work / "from_open_clip.pt", work / "out.safetensors")
    got = {k: v for k, v in load_file(work / "out.safetensors").items() if not k.endswith("num_batches_tracked")}
    check(f"{name} from an open_clip training checkpoint", same(got, procedural(name)))


@torch.no_grad()
def hugging_face_strict(name):
    from transformers import CLIPModel, CLIPImageProcessor
    x, t, image, text = expected(name)
    model, info = CLIPModel.from_pretrained(work / f"{name}hf", output_loading_info=True)
    wrong = {k: list(v) for k, v in info.items() if len(v)}
    check(f"{name} in transformers, keys", not wrong, wrong or "all")
    pooled = lambda y: getattr(y, "pooler_output", y)
    e = error(pooled(model.eval().get_image_features(x)), image), error(pooled(model.get_text_features(t)), text)
    check(f"{name} in transformers, outputs", max(e) < 1e-4, "image %.1e text %.1e" % e)
    check(f"{name} in transformers, preprocessor", CLIPImageProcessor.from_pretrained(work / f"{name}hf").crop_size["height"] == ref.ARCH[name]["res"])
    model.save_pretrained(work / "from_hf")
    convert(work / "from_hf", work / "out.safetensors")
    check(f"{name} from transformers' save_pretrained", same(load_file(work / "out.safetensors"), procedural(name)))


@torch.no_grad()
def torch_script(name):
    c = ref.ARCH[name]
    model = Model(c).eval()
    model.load_state_dict(procedural(name), strict=False)
    x, t, image, text = expected(name)
    got = model(x, t)
    check(f"{name} our own module agrees with the reference", max(error(got[0], image), error(got[1], text)) < 1e-4)
    torch.jit.script(model).save(str(work / "script.pt"))
    torch.jit.trace(model, (x, t)).save(str(work / "trace.pt"))
    for file in "script.pt", "trace.pt":
        report = convert(work / file, work / "out.safetensors")
        check(f"{name} from TorchScript ({file}, torch {torch.__version__})", same(load_file(work / "out.safetensors"), procedural(name)),
              f"{report['container']}, ignored {report['ignored']}")


# ---------------------------------------------------------------- bad input

class Evil:
    def __init__(self, f, *a):
        self.f, self.a = f, a

    def __reduce__(self):
        return self.f, self.a


def zip_with(pickle_bytes, storages=()):
    path = work / "bad.pt"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("bad/data.pkl", pickle_bytes)
        for k, v in storages:
            z.writestr(f"bad/data/{k}", v)
        z.writestr("bad/version", "3\n")
    return path.read_bytes()


def tensor_pickle(size, stride, count, offset=0, times=1):
    """{'a': tensor} by hand: torch itself would refuse to make the lies below."""
    num = lambda v: b"\x8a\x08" + struct.pack("<q", v)
    tup = lambda v: b"(" + b"".join(map(num, v)) + b"t"
    text = lambda v: b"X" + struct.pack("<I", len(v)) + v.encode()
    one = (text("a") + b"ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu")
           + num(count) + b"tQ" + num(offset) + tup(size) + tup(stride) + b"\x89ccollections\nOrderedDict\n)RtR")
    return b"\x80\x02}(" + one * times + b"u."


def bad_input():
    touched = work / "touched"
    evil = {"state_dict": Evil(os.system, f"touch {touched}")}
    good = (work / "zip.pt").read_bytes()
    torch.save(evil, work / "evil.pt")
    torch.save(evil, work / "evil_stream.pt", _use_new_zipfile_serialization=False)
    bomb = work / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("b/data.pkl", tensor_pickle([1 << 28], [1], 1 << 28))
        z.writestr("b/data/0", b"\0" * (1 << 28))
    floats = bytes(64)
    cases = {
        "os.system in a zip": (work / "evil.pt").read_bytes(),
        "os.system in a stream": (work / "evil_stream.pt").read_bytes(),
        "os.system in a bare pickle": pickle.dumps(evil),
        "builtins.eval": zip_with(pickle.dumps(Evil(eval, "1"), 2)),
        "builtins.getattr": zip_with(b"\x80\x02cbuiltins\ngetattr\n(}X\x03\x00\x00\x00gettR."),
        "zip cut in half": good[: len(good) // 2],
        "zip without its last byte": good[:-1],
        "stream cut short": (work / "stream.pt").read_bytes()[:-5],
        "zip bomb": bomb.read_bytes(),
        "storage too small": zip_with(tensor_pickle([4, 8], [8, 1], 32), [("0", floats)]),
        "tensor beyond its storage": zip_with(tensor_pickle([4, 8], [8, 1], 16), [("0", floats)]),
        "tensor expanded from one element": zip_with(tensor_pickle([1 << 30, 1 << 30], [0, 0], 16), [("0", floats)]),
        "offset beyond the storage": zip_with(tensor_pickle([4], [1], 16, 13), [("0", floats)]),
        "negative size": zip_with(tensor_pickle([-4], [1], 16), [("0", floats)]),
        "negative stride": zip_with(tensor_pickle([4], [-1], 16), [("0", floats)]),
        "negative offset": zip_with(tensor_pickle([4], [1], 16, -4), [("0", floats)]),
        "overflowing sizes": zip_with(tensor_pickle([1 << 62, 4], [4, 1], 16), [("0", floats)]),
        "duplicate keys": zip_with(tensor_pickle([4], [1], 16, times=2), [("0", floats)]),
        "missing storage": zip_with(tensor_pickle([4], [1], 16)),
        "PNG": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "empty": b"",
        "zip of something else": None,
    }
    for what, data in cases.items():
        path = work / "case.pt"
        if data is None:
            with zipfile.ZipFile(path, "w") as z:
                z.writestr("hello.txt", "hello")
        else:
            path.write_bytes(data)
        out = work / "never.safetensors"
        run = subprocess.run([cloob, "convert", str(path), str(out), "--quiet"], capture_output=True, text=True, timeout=60)
        lines = run.stderr.strip().splitlines()
        check(f"refused: {what}", run.returncode == 1 and len(lines) == 1 and not out.exists(),
              lines[0].replace(str(path), "F").removeprefix("cloob convert: ") if lines else run.stderr)
    check("nothing was run", not touched.exists())
    run = subprocess.run([cloob, "convert", str(work / "tiny-rn.safetensors"), str(work / "rn_hf"), "--to", "hf"], capture_output=True, text=True)
    check("refused: a ResNet for Hugging Face", run.returncode == 1 and "no ResNet" in run.stderr)


if __name__ == "__main__":
    import warnings
    warnings.filterwarnings("ignore")
    foreign_files()
    for name in "tiny-rn", "tiny-vit":
        reading(name)
        half(name)
        round_trips(name)
        torch_strict(name)
        open_clip_strict(name)
    hugging_face_strict("tiny-vit")
    torch_script("tiny-vit")
    bad_input()
    subprocess.run(["rm", "-r", str(work)])
    print(f"{failures} failed")
    sys.exit(failures > 0)
