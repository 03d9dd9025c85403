#!/usr/bin/env python3
"""Every family of models against open_clip and transformers: embeddings in fp32 and bf16, and weights converted back.

    bench/peers/families_check.py [--cloob build/cloob] [--images DIR] [--rows 16] [--stored bf16] [--layers N] [--markdown] [NAME ...]

Without names: a small model of random weights per family. A NAME is a full-size configuration of open_clip, or hf:NAME for
transformers' class with that model's sizes; crowson is crowsonkb's CLOOB at its published size (ViT-B/16). --count prints how many of open_clip's configurations run. Needs torch, open_clip_torch, transformers and safetensors; the product needs none of
them. Prints a line per model; the exit code is the verdict: largest difference below 1e-4 of the largest element in fp32, cosine
above 0.9999 in bf16 (small random models: 0.9998), and after conversion back the peer's own weights, bit for bit, and its own embeddings (full size: of four rows). MobileCLIP's
image towers come back with other branches that fold to the same layers: embeddings and folded weights to 1e-5.

A full-size model of open_clip is in memory once and on the disk twice: ViT-bigG-14 takes 10.2 GB and 20.3 GB. With --stored bf16 its
random weights are rounded to bf16 and its files have half the size; both programs still compute in fp32."""
import argparse, copy, gc, hashlib, json, os, pathlib, shutil, subprocess, sys, tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch, open_clip
from safetensors import safe_open
from safetensors.torch import load_file, save_file

root = pathlib.Path(__file__).resolve().parents[2]
a = argparse.ArgumentParser()
a.add_argument("--cloob", default=str(root / "build" / "cloob"))
a.add_argument("--images")
a.add_argument("--rows", type=int, default=16)
a.add_argument("--device", default="cpu", help="of the program; the peer runs on the CPU")
a.add_argument("--markdown", action="store_true")
a.add_argument("--stored", default="fp32", choices=["fp32", "bf16"], help="type of a full-size open_clip model's files")
a.add_argument("--layers", type=int, default=0, help="of both towers of a full-size open_clip model, all else as it is: a check of its widths in little time")
a.add_argument("--fp32-only", action="store_true", help="leave bf16 out")
a.add_argument("--count", action="store_true", help="print how many of open_clip's configurations run, and end")
a.add_argument("--speed", action="store_true", help="images and texts per second of cloob's Python package and of the peer, fp32, in one process")
a.add_argument("--threads", type=int, default=2, help="of both, with --speed")
a.add_argument("names", nargs="*")
args = a.parse_args()
work = pathlib.Path(tempfile.mkdtemp(prefix="families-"))
failures = 0

V = dict(image_size=32, layers=2, width=128, patch_size=8, head_width=32)
T = dict(context_length=12, vocab_size=96, width=64, heads=2, layers=2)
SMALL = {
    "ViT, GELU": (V, T, {}),
    "ViT, QuickGELU": (V, T, dict(quick_gelu=True)),
    "mlp_ratio 4.3637 (g, bigG)": (dict(V, mlp_ratio=4.3637), T, {}),
    "CLIPA": (dict(V, no_ln_pre=True, pool_type="avg", final_ln_after_pool=True), dict(T, pool_type="last", no_causal_mask=True), {}),
    "mean pool, first token": (dict(V, pool_type="avg"), dict(T, pool_type="first"), {}),
    "layer scale": (dict(V, ls_init_value=0.3), dict(T, ls_init_value=0.3, no_causal_mask=True), {}),
    "tanh GELU, eps, proj_bias": (dict(V, act_kwargs=dict(approximate="tanh"), norm_kwargs=dict(eps=1e-6)),
                                  dict(T, act_kwargs=dict(approximate="tanh"), norm_kwargs=dict(eps=1e-3), proj_bias=True), {}),
    "end-of-text id (worldwide)": (V, dict(T, pool_type="eos", eos_id=3), {}),
    "no text projection": (V, dict(T, pool_type="first", no_causal_mask=True, proj_type="none", width=48, heads=4), {}),
    "ResNet": (dict(image_size=64, layers=[1, 2, 1, 1], width=8, head_width=32), dict(T, pool_type="last"), {}),
}


def known_configurations():
    """open_clip asks the hub for the sizes of these text towers; none is reachable here. BiomedCLIP's configuration is in its folder on the hub."""
    from transformers import AutoConfig, BertConfig, RobertaConfig, XLMRobertaConfig
    own, size = AutoConfig.from_pretrained, dict(max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1)
    large = dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    known = {"roberta-base": RobertaConfig(vocab_size=50265, **size), "xlm-roberta-base": XLMRobertaConfig(vocab_size=250002, **size),
             "xlm-roberta-large": XLMRobertaConfig(vocab_size=250002, **size, **large), "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract": BertConfig()}
    open_clip.factory._MODEL_CONFIGS["BiomedCLIP"] = dict(
        embed_dim=512, vision_cfg=dict(timm_model_name="vit_base_patch16_224", timm_model_pretrained=False, timm_pool="", timm_proj="linear", image_size=224),
        text_cfg=dict(hf_model_name="microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract", hf_proj_type="mlp", hf_pooler_type="cls_last_hidden_state_pooler", context_length=256))
    AutoConfig.from_pretrained = lambda name, *rest, **more: known[name] if str(name) in known else own(name, *rest, **more)
    return known


def count_configurations():
    files = sorted((pathlib.Path(open_clip.__file__).parent / "model_configs").glob("*.json"))
    runs = [f for f in files if subprocess.run([args.cloob, "info", str(f)], capture_output=True).returncode == 0]
    print(f"{len(runs)} of open_clip {open_clip.__version__}'s {len(files)} configurations run, {len(files) - len(runs)} are refused")


def rates(pairs, rows):
    """Rows per second of each of the functions, which take turns: the median of three passes after one. With one thread by processor time, which other work on the machine changes little."""
    import time
    clock = time.process_time if args.threads == 1 else time.perf_counter
    seconds = {who: [] for who in pairs}
    for _ in range(4):
        for who, f in pairs.items():
            begin = clock()
            f()
            seconds[who].append(clock() - begin)
    return {who: rows / sorted(s[1:])[1] for who, s in seconds.items()}


@torch.no_grad()
def compare_speed(name):
    """Images and texts per second, the same inputs for both in one process; of hf:naflex images of three shapes, with their preprocessing.
    Of towers with convolutions a third figure follows the two of the images: the peer reparameterised and in channels_last."""
    sys.path.insert(0, str(root / "python"))
    import cloob, numpy as np
    torch.set_num_threads(args.threads)
    folder = work / "speed"
    folder.mkdir()
    if name == "hf:naflex":
        from transformers import Siglip2Config, Siglip2ImageProcessor, Siglip2Model
        model, view = jitter(Siglip2Model(Siglip2Config())), Siglip2ImageProcessor(do_convert_rgb=True)
        model.save_pretrained(folder), view.save_pretrained(folder)
        x = [np.random.randint(0, 256, (s, 640 - s // 2, 3), np.uint8) for i in range(args.rows) for s in [(320, 480, 640)[i % 3]]]
        t = tokens(64, 32000)
        image, text = lambda: model.get_image_features(**view(list(map(torch.from_numpy, (i.transpose(2, 0, 1).copy() for i in x))), return_tensors="pt")), lambda: model.get_text_features(t)
    else:
        model, config = jitter(open_clip.create_model(name, pretrained=None, pretrained_hf=False)), open_clip.get_model_config(name)
        save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
        (folder / "open_clip_config.json").write_text(json.dumps(dict(model_cfg=config, preprocess_cfg=dict(mean=[0.5] * 3, std=[0.5] * 3))))
        x, t = images(config["vision_cfg"]["image_size"]).numpy(), peer_tokens(config["text_cfg"])
        image, text = lambda: model.encode_image(torch.from_numpy(x)), lambda: model.encode_text(t)
    forms = dict(peer=image)
    if name.startswith(("convnext", "MobileCLIP")):  # what PyTorch offers for convolutions
        from timm.utils.model import reparameterize_model
        lasting = copy.deepcopy(model)
        lasting.visual = reparameterize_model(lasting.visual).to(memory_format=torch.channels_last)
        forms["channels_last"] = lambda: lasting.encode_image(torch.from_numpy(x).contiguous(memory_format=torch.channels_last))
    with cloob.load(folder, device="cpu", precision="fp32", threads=args.threads, batch=args.rows) as m:
        cells = [rates(dict(cloob=lambda: m.encode_image(x, output="raw"), **forms), args.rows), rates(dict(cloob=lambda: m.encode_text(t.numpy(), output="raw"), peer=text), args.rows)]
    print("| " + name + " | " + " | ".join(" | ".join("%.1f" % v for v in c.values()) for c in cells) + " |", flush=True)
    shutil.rmtree(folder)


def peer_tokens(text):
    """Texts of 3 tokens and more; a text tower of transformers has no end token, and padding of its own."""
    hf = CONFIGURATIONS.get(text.get("hf_model_name"))
    t = tokens(text.get("context_length", 77), hf.vocab_size if hf else text.get("vocab_size", 49408))
    if hf:
        for i in range(args.rows):
            t[i, min(4 + i, t.shape[1] - 1):] = hf.pad_token_id
    return t


def run(*command):
    r = subprocess.run([args.cloob, *map(str, command)], capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(r.stderr.strip())


def jitter(model):
    """Random gains, biases and batch statistics, so that none is hidden by a 0 or a 1; layer scale (FastViT's is 1e-5) becomes 0.3."""
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 3 and p.shape[1:] == (1, 1):
                p.fill_(0.3)
            if p.ndim == 1 or p.ndim == 3 and p.shape[1:] == (1, 1):
                p.add_(torch.randn_like(p) * 0.1)
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.add_(torch.randn_like(b) * 0.1)
            if name.endswith("running_var"):
                b.mul_(torch.rand_like(b) + 0.5)
    return model.eval()


def images(size):
    if not args.images:
        return torch.randn(args.rows, 3, size, size)
    from PIL import Image
    import numpy as np
    files = sorted(p for p in pathlib.Path(args.images).rglob("*") if p.suffix.lower() in (".jpg", ".png"))[: args.rows]
    pixels = [np.asarray(Image.open(f).convert("RGB").resize((size, size), Image.BICUBIC), np.float32) / 255 for f in files]
    return (torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2) - 0.45) / 0.27


def tokens(context, vocab, end=None):
    t = torch.randint(4, vocab - 2, (args.rows, context))
    for i in range(args.rows):
        at = min(3 + i, context - 1)
        t[i, at] = vocab - 1 if end is None else end
        t[i, at + 1:] = 0 if end is None else vocab - 1
    return t


def compare(name, folder, x, t, image, text, small, back):
    """x: pixels, or a list of image files."""
    global failures
    files = ["--images", *x] if isinstance(x, list) else []
    save_file(dict({} if files else dict(images=x.contiguous()), tokens=t.to(torch.int64)), work / "in.safetensors")
    native, out = work / "native.safetensors", work / "out.safetensors"
    cells, ok = [], True
    try:
        run("convert", folder, native, "--quiet")
        for precision in ["fp32"] if args.fp32_only else ["fp32", "bf16"]:
            run("embed", "--checkpoint", native, "--tensors", work / "in.safetensors", *files, "--raw", "--out", out, "--device", args.device,
                "--precision", precision, "--quiet")
            got = load_file(out)
            for have, want in (got["image"], image), (got["text"], text):
                if precision == "fp32":
                    cells.append("%.1e" % difference(have, want))
                    ok &= float(cells[-1]) < 1e-4
                else:
                    cosine = float(torch.nn.functional.cosine_similarity(have, want).min())
                    cells.append("%.5f" % cosine)
                    ok &= cosine > (0.9998 if small else 0.9999)
            if not small:
                print(f"{name}: {', '.join(cells)} so far", file=sys.stderr, flush=True)
        cells += ["", ""] if args.fp32_only else []
        equal = back(native)
        cells.append(equal if isinstance(equal, str) else "equal" if equal else "NOT EQUAL")
        ok &= bool(equal)
    except RuntimeError as e:
        cells, ok = [str(e)], False
    failures += not ok
    print(("| " + " | ".join([name, *cells]) + " |") if args.markdown else f"{'ok  ' if ok else 'FAIL'} {name}: {', '.join(cells)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)


def difference(have, want):
    """The largest difference, relative to the largest element."""
    return float((have.double() - want.double()).abs().max() / want.double().abs().max().clamp(min=1e-30))


def digests(path):
    """Type, shape and SHA-256 of every tensor of a file, one in memory at a time."""
    with safe_open(path, "pt") as f:
        return {k: (v.dtype, v.shape, hashlib.sha256(v.reshape(-1).view(torch.uint8).numpy()).digest()) for k in f.keys() for v in [f.get_tensor(k)]}


def fill(model, path):
    """The file's tensors into the model, one at a time; names and shapes must be the model's."""
    own = model.state_dict()
    with safe_open(path, "pt") as f:
        assert set(f.keys()) == own.keys()
        for k in f.keys():
            value = f.get_tensor(k)
            assert value.shape == own[k].shape
            own[k].copy_(value)
    return model.eval()


@torch.no_grad()
def large_against_open_clip(name):
    """As against_open_clip, with one copy of the weights in memory and two on the disk at a time."""
    config, folder = open_clip.get_model_config(name), work / "peer"
    folder.mkdir()
    for tower in ("vision_cfg", "text_cfg") if args.layers else ():
        config[tower]["layers"] = args.layers
    model = jitter(open_clip.CLIP(**config) if args.layers else open_clip.create_model(name, pretrained=None, pretrained_hf=False))
    if args.stored == "bf16":
        for v in model.state_dict().values():
            v.copy_(v.bfloat16())
    kept = lambda v: v.bfloat16() if args.stored == "bf16" and v.is_floating_point() else v
    save_file({k: kept(v).contiguous() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps(dict(model_cfg=config, preprocess_cfg=dict(mean=[0.5] * 3, std=[0.5] * 3))))
    x = images(config["vision_cfg"]["image_size"])
    t = peer_tokens(config["text_cfg"])
    rows = lambda f, v: torch.cat([f(v[i:i + 4]) for i in range(0, len(v), 4)])
    image, text = rows(model.encode_image, x), rows(model.encode_text, t)
    del model
    gc.collect()
    want = digests(folder / "open_clip_model.safetensors")

    def back(native):
        shutil.rmtree(folder)
        run("convert", native, work / "back", "--to", "open_clip", "--quiet")
        folded = any(k.startswith("visual.trunk.") and k.endswith("running_var") for k in want)  # MobileCLIP's towers
        if not folded:
            native.unlink()
        if not folded and digests(work / "back" / "open_clip_model.safetensors") != want:
            return False
        again = fill(open_clip.create_model(f"local-dir:{work / 'back'}", load_weights=False, pretrained_hf=False), work / "back" / "open_clip_model.safetensors")
        mine = again.encode_image(x[:4]), again.encode_text(t[:4])
        if not folded:
            return torch.equal(mine[0], image[:4]) and torch.equal(mine[1], text[:4])
        run("convert", work / "back", work / "again.safetensors", "--quiet")
        first, second = load_file(native), load_file(work / "again.safetensors")
        off = max(difference(mine[0], image[:4]), difference(mine[1], text[:4])), max(difference(second[k], first[k]) for k in first)
        return off[0] < 1e-5 and off[1] < 1e-5 and "embeddings to %.1e, folded weights to %.1e" % off

    compare(f"{name}, {args.layers} layers" if args.layers else name, folder, x, t, image, text, False, back)
    shutil.rmtree(work / "back", ignore_errors=True)


@torch.no_grad()
def against_open_clip(name, model, config):
    folder = work / "peer"
    folder.mkdir()
    (folder / "open_clip_config.json").write_text(json.dumps(dict(model_cfg=config, preprocess_cfg=dict(mean=[0.5] * 3, std=[0.5] * 3))))
    state = {k: v.contiguous() for k, v in model.state_dict().items()}
    save_file(state, folder / "open_clip_model.safetensors")
    text = config["text_cfg"]
    x = images(config["vision_cfg"]["image_size"])
    t = tokens(text.get("context_length", 77), text.get("vocab_size", 49408), text.get("eos_id") if text.get("pool_type") == "eos" else None)
    rows = lambda f, v: torch.cat([f(v[i:i + 4]) for i in range(0, len(v), 4)])

    def back(native):
        run("convert", native, work / "back", "--to", "open_clip", "--quiet")
        got = load_file(work / "back" / "open_clip_model.safetensors")
        again = open_clip.create_model(f"local-dir:{work / 'back'}").eval()
        assert torch.equal(again.encode_image(x), model.encode_image(x)) and torch.equal(again.encode_text(t), model.encode_text(t))
        return got.keys() == state.keys() and all(torch.equal(got[k], state[k]) for k in state)

    compare(name, folder, x, t, rows(model.encode_image, x), rows(model.encode_text, t), True, back)


@torch.no_grad()
def against_transformers(name, model, small):
    from transformers import Siglip2ImageProcessor
    folder, pooled = work / "peer", lambda y: getattr(y, "pooler_output", y)
    model.save_pretrained(folder)
    c = model.config
    end = getattr(c.text_config, "eos_token_id", None) if not c.model_type.startswith("siglip") else None
    t = tokens(c.text_config.max_position_embeddings, c.text_config.vocab_size, end)
    masked = dict(attention_mask=(t != 0).long()) if c.model_type == "chinese_clip" else {}
    if c.model_type == "siglip2":
        from PIL import Image
        x = sorted(str(p) for p in pathlib.Path(args.images or root / "tests/ref/images").rglob("*.jpg"))[:args.rows]
        t, view = t[:len(x)], Siglip2ImageProcessor(do_convert_rgb=True)
        view.save_pretrained(folder)
        inputs = view([Image.open(f) for f in x], return_tensors="pt")
    else:
        x = images(c.vision_config.image_size)
        inputs = dict(pixel_values=x)

    def back(native):
        run("convert", native, work / "back", "--to", "hf", "--quiet")
        again, info = type(model).from_pretrained(work / "back", output_loading_info=True)
        mine, theirs = again.state_dict(), model.state_dict()
        return not any(len(v) for v in info.values()) and all(torch.equal(mine[k], theirs[k]) for k in theirs)

    compare(name, folder, x, t, pooled(model.get_image_features(**inputs)), pooled(model.get_text_features(t, **masked)), small, back)


@torch.no_grad()
def against_crowson():
    """The definition of make_towers_ref.py in a pickle of JAX's arrays, which cloob reads and does not write."""
    sys.path.insert(0, str(root / "tests/ref/make"))
    from make_towers_ref import crowson_model
    model, encode_image, encode_text, write = crowson_model(768, 12, 12, 224, 16, 512, 12, 8, 77, 49408, 512)
    for p in model.parameters():
        p.mul_(4 / max(p.shape[0], 16) ** 0.5 if p.ndim == 2 and p.shape[0] < 4096 else 1)  # the definition draws them for small sizes
    folder = work / "peer"
    folder.mkdir()
    write(folder / "model.pkl")
    x, t = images(224), tokens(77, 49408)
    compare("crowsonkb's CLOOB, ViT-B/16", folder / "model.pkl", x, t, encode_image(x), encode_text(t), False, lambda native: "read only")
    shutil.rmtree(folder)


def small_models():
    from transformers import CLIPConfig, CLIPModel, SiglipConfig, SiglipModel
    for name, (vision, text, top) in SMALL.items():
        config = dict(embed_dim=48, vision_cfg=vision, text_cfg=text, **top)
        against_open_clip(name, jitter(open_clip.CLIP(**config)), config)
    part = dict(num_hidden_layers=2, num_attention_heads=4)
    vision = dict(part, hidden_size=64, intermediate_size=150, image_size=32, patch_size=8)
    text = dict(part, hidden_size=48, intermediate_size=100, vocab_size=96, max_position_embeddings=12)
    against_transformers("transformers SiglipModel, 33 px in patches of 8", jitter(SiglipModel(SiglipConfig(
        vision_config=dict(vision, image_size=33), text_config=dict(text, projection_size=64)))), True)
    against_transformers("transformers CLIPModel, layer_norm_eps 1e-3 and 1e-4, gelu, eos_token_id 7", jitter(CLIPModel(CLIPConfig(
        vision_config=dict(vision, layer_norm_eps=1e-3, hidden_act="gelu"), text_config=dict(text, layer_norm_eps=1e-4, eos_token_id=7),
        projection_dim=40))), True)


def full_size(name):
    from transformers import ChineseCLIPConfig, ChineseCLIPModel, CLIPConfig, CLIPModel, Siglip2Config, Siglip2Model, SiglipConfig, SiglipModel
    so = dict(hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16)
    HF = {
        "hf:clip": ("transformers CLIPModel, its own sizes (B/32)", CLIPModel, CLIPConfig, {}, {}, {}),
        "hf:chinese-clip": ("transformers ChineseCLIPModel, B/16", ChineseCLIPModel, ChineseCLIPConfig, dict(patch_size=16), dict(vocab_size=21128), {}),
        "hf:naflex": ("transformers Siglip2Model, its own sizes (NaFlex B/16)", Siglip2Model, Siglip2Config, {}, {}, {}),
        "hf:siglip": ("transformers SiglipModel, its own sizes (B/16)", SiglipModel, SiglipConfig, {}, {}, {}),
        "hf:siglip-so400m": ("transformers SiglipModel, So400m/14", SiglipModel, SiglipConfig, dict(so, image_size=224, patch_size=14), so, {}),
        "hf:clip-h": ("transformers CLIPModel, H/14", CLIPModel, CLIPConfig,
                      dict(hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=16, patch_size=14, hidden_act="gelu"),
                      dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, hidden_act="gelu"),
                      dict(projection_dim=1024)),
    }
    if name == "crowson":
        return against_crowson()
    if name.startswith("hf:"):
        label, kind, config, vision, text, more = HF[name]
        return against_transformers(label, jitter(kind(config(vision_config=vision, text_config=text, **more))), False)
    large_against_open_clip(name)


torch.manual_seed(0)
CONFIGURATIONS = known_configurations()
if args.count:
    count_configurations()
    sys.exit()
if args.markdown:
    print("| model | image, fp32 | text, fp32 | image, bf16 | text, bf16 | converted back |\n|---|---:|---:|---:|---:|---|")
if not args.names:
    small_models()
for n in args.names:
    compare_speed(n) if args.speed else full_size(n)
shutil.rmtree(work)
sys.exit(failures > 0)
