#!/usr/bin/env python3
"""Model folders, from files and sentences: builds folders with open_clip and transformers (random small weights), embeds photos of every mode and captions with
`cloob embed` and with the library that the folder is for, and prints the largest difference of unit embeddings.

    bench/peers/folders_check.py CLOOB PHOTOS CAPTIONS [--transformers4 PYTHON] [--keep DIR] [--only PATTERN]

PHOTOS: a folder of JPEGs; CAPTIONS: a text per line, of which 1,880 are used, with 120 hard strings. Needs open_clip_torch, transformers 5, sentencepiece, safetensors and Pillow 13 or later (whose order of the
passes of a resize cloob follows). --transformers4 names a Python with transformers 4, which writes its own folders; transformers 5 reads them.
"""
import argparse, gzip, json, os, pathlib, random, re, subprocess, sys, tempfile


def clip_vocab():
    if "CLIP_MERGES" not in os.environ:  # which a Python without open_clip gets from the one with it
        import open_clip
        os.environ["CLIP_MERGES"] = str(pathlib.Path(open_clip.__file__).parent / "bpe_simple_vocab_16e6.txt.gz")
    merges = [tuple(m.split()) for m in gzip.open(os.environ["CLIP_MERGES"]).read().decode().split("\n")[1:49152 - 256 - 2 + 1]]
    shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]  # GPT-2's characters for bytes
    base = [chr(b) for b in shown] + [chr(256 + i) for i in range(256 - len(shown))]
    words = base + [b + "</w>" for b in base] + ["".join(m) for m in merges] + ["<|startoftext|>", "<|endoftext|>"]
    return {w: i for i, w in enumerate(words)}, merges


# ---- photos of every mode -------------------------------------------------------------------------------------------

def make_photos(source, out, n):
    from PIL import Image, ImageDraw
    rng = random.Random(0)
    files = sorted(p for p in pathlib.Path(source).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    made = []
    for i, path in enumerate(rng.sample(files, n)):
        im = Image.open(path).convert("RGB")
        im = im.resize((int(im.width * rng.uniform(0.8, 4)), int(im.height * rng.uniform(0.8, 4))), Image.BICUBIC)
        alpha = Image.linear_gradient("L").resize(im.size)
        kind = ("jpg", "jpg", "gray.jpg", "cmyk.jpg", "png", "gray.png", "la.png", "rgba.png", "p.png", "ptrns.png", "1.png", "trns.png", "webp", "a.webp", "gif")[i % 15]
        name, keep = f"{out}/{i:03d}.{kind}", {}
        if kind == "gray.jpg" or kind == "gray.png": im = im.convert("L")
        if kind == "cmyk.jpg": im = im.convert("CMYK")
        if kind == "la.png": im = im.convert("L"); im.putalpha(alpha)
        if kind in ("rgba.png", "a.webp"): im.putalpha(alpha)
        if kind == "p.png" or kind == "gif": im = im.convert("P", palette=Image.ADAPTIVE)
        if kind == "ptrns.png": im = im.convert("P", palette=Image.ADAPTIVE); keep["transparency"] = bytes(range(256))
        if kind == "1.png": im = im.convert("1")
        if kind == "trns.png":
            ImageDraw.Draw(im).rectangle((3, 3, im.width // 2, im.height // 3), (1, 2, 3)); keep["transparency"] = (1, 2, 3)
        if kind.endswith("webp"): keep["lossless"] = i % 2 == 0
        im.save(name, **keep)
        made.append(name)
    return made


def hard_texts(n):
    """Emoji, other scripts, control characters, names of special tokens, HTML, long words and mixtures of them, on a line each."""
    rng = random.Random(1)
    parts = ["\U0001f431\U0001f3fd", "\U0001f469\u200d\U0001f4bb", "\u0642\u0637\u0629 \u0639\u0644\u0649 \u0627\u0644\u0633\u0631\u064a\u0631", "\u732b\u304c\u5bdd\u3066\u3044\u308b", "\uff21\uff22\uff23 \uff11\uff12\uff13",
             "cafe\u0301 caf\u00e9", "\ufb01ne \u0130stanbul \u1e9eTRASSE", "\u0001\u0007\u001b[31m", "\u200b\ufeff\u00ad", "<|endoftext|>", "<|startoftext|>", "<pad>", "<s></s>", "[CLS] [SEP] [UNK]", "<unk><mask>",
             "&amp;lt;b&amp;gt; &eacute; &#x1F600;", "it's we'll I'd they've", "3.14e-10 $1,000 50%", "a_b-c/d\\e", "don\u2019t \u201cquote\u201d", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
             "\u2581under\u2581score", "x" * 300, "ab" * 150, "antidisestablishmentarianism" * 4, "\u00c3\u00a9t\u00c3\u00a9 \u00e2\u20ac\u2122", "\U00010348\U0001d54f", "   many    spaces   ", "...!?!?---", "word " * 100]
    return (parts + [rng.choice(" _").join(rng.sample(parts, rng.randint(2, 5))) for _ in range(n)])[:n]


# ---- folders --------------------------------------------------------------------------------------------------------

def shake(model):
    import torch
    torch.manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim < 2 and "logit" not in name: p.add_(0.2 * torch.randn_like(p))
            elif p.ndim >= 2: p.normal_(0, 0.7 / (p[0].numel() ** 0.5) if "embedding" not in name else 0.3)
    return model.eval()


def small_sentencepiece(out, captions):
    import sentencepiece as spm
    spm.SentencePieceTrainer.train(input=captions, model_prefix=f"{out}/spiece", model_type="unigram", vocab_size=3000, hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
                                   normalization_rule_name="nmt_nfkc", minloglevel=2)
    os.remove(f"{out}/spiece.vocab")
    return f"{out}/spiece.model"


def write_clip(out, captions, processor=None, image=64, **vision):
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer
    vocab, merges = clip_vocab()
    os.makedirs(out, exist_ok=True)
    json.dump(vocab, open(f"{out}/vocab.json", "w"))
    open(f"{out}/merges.txt", "w").write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    tok = CLIPTokenizer(vocab=vocab, merges=merges) if five() else CLIPTokenizer(f"{out}/vocab.json", f"{out}/merges.txt")
    if five(): os.remove(f"{out}/vocab.json"), os.remove(f"{out}/merges.txt")
    c = CLIPConfig(text_config=dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, vocab_size=49408, bos_token_id=49406, eos_token_id=49407, projection_dim=48),
                   vision_config=dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, image_size=image, patch_size=16, projection_dim=48), projection_dim=48)
    shake(CLIPModel(c)).save_pretrained(out)
    CLIPProcessor(CLIPImageProcessor(**(processor or dict(size={"shortest_edge": image}, crop_size={"height": image, "width": image}))), tok).save_pretrained(out)


def siglip_model(out, vocab, naflex=False):
    from transformers import SiglipConfig, SiglipModel
    part = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
    if naflex:
        from transformers import Siglip2Config, Siglip2Model
        c = Siglip2Config(text_config=dict(vocab_size=vocab, max_position_embeddings=32, projection_size=64, **part), vision_config=dict(patch_size=16, num_patches=256, **part))
        return shake(Siglip2Model(c)).save_pretrained(out)
    c = SiglipConfig(text_config=dict(vocab_size=vocab, max_position_embeddings=32, projection_size=64, **part), vision_config=dict(image_size=64, patch_size=16, **part))
    shake(SiglipModel(c)).save_pretrained(out)


def write_siglip(out, captions):
    from transformers import SiglipImageProcessor, SiglipProcessor, SiglipTokenizer
    os.makedirs(out, exist_ok=True)
    tok = SiglipTokenizer(small_sentencepiece(out, captions))
    siglip_model(out, len(tok) + 7)  # larger than the tokenizer
    SiglipProcessor(SiglipImageProcessor(size={"height": 64, "width": 64}, do_convert_rgb=True), tok).save_pretrained(out)


def train_bpe(captions):
    from tokenizers import Tokenizer, models, normalizers, trainers
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"] + [f"<0x{b:02X}>" for b in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "\u2581")])
    from tokenizers import pre_tokenizers
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    t.train(  [captions], trainers.BpeTrainer(vocab_size=3000, special_tokens=special, show_progress=False))
    m = json.loads(t.to_str())["model"]
    return m["vocab"], [tuple(x) if isinstance(x, list) else tuple(x.split(" ")) for x in m["merges"]]


def write_siglip2(out, captions, patches=0):
    from transformers import Siglip2ImageProcessor, SiglipImageProcessor
    from transformers.models.siglip2.tokenization_siglip2 import Siglip2Tokenizer
    os.makedirs(out, exist_ok=True)
    vocab, merges = train_bpe(captions)
    tok = Siglip2Tokenizer(vocab=vocab, merges=merges, add_bos_token=False, add_eos_token=True, padding_side="right")
    siglip_model(out, len(tok), patches > 0)
    if patches: Siglip2ImageProcessor(patch_size=16, max_num_patches=patches, do_convert_rgb=True).save_pretrained(out)
    else: SiglipImageProcessor(size={"height": 64, "width": 64}, resample=2).save_pretrained(out)
    tok.save_pretrained(out)


def write_metaclip2(out, captions):
    import sentencepiece.sentencepiece_model_pb2 as pb
    from transformers import CLIPImageProcessor, MetaClip2Config, MetaClip2Model, XLMRobertaTokenizer
    os.makedirs(out, exist_ok=True)
    proto = pb.ModelProto()
    proto.ParseFromString(open(small_sentencepiece(out, captions), "rb").read())
    os.remove(f"{out}/spiece.model")
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + [(p.piece, p.score) for p in proto.pieces if p.type == 1] + [("<mask>", 0.0)]
    tok = XLMRobertaTokenizer(vocab=pieces, _spm_precompiled_charsmap=proto.normalizer_spec.precompiled_charsmap)
    part = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, projection_dim=48)
    c = MetaClip2Config(text_config=dict(vocab_size=len(pieces), max_position_embeddings=40, eos_token_id=2, **part), vision_config=dict(image_size=64, patch_size=16, **part), projection_dim=48)
    shake(MetaClip2Model(c)).save_pretrained(out)
    CLIPImageProcessor(size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64}).save_pretrained(out)
    tok.save_pretrained(out)


def write_open_clip(out, captions, pre=None, layers=2, tokenizer=None, **text):
    import open_clip
    from safetensors.torch import save_file
    os.makedirs(out, exist_ok=True)
    vision = dict(image_size=64, layers=layers, width=64, head_width=32, **({"patch_size": 16} if isinstance(layers, int) else {}))
    cfg = dict(embed_dim=48, vision_cfg=vision, text_cfg=dict(context_length=32, vocab_size=49408, width=64, heads=2, layers=2, **text))
    if tokenizer: tokenizer(out, cfg)
    model = shake(open_clip.model.CLIP(**cfg) if not cfg.get("custom_text") else open_clip.model.CustomTextCLIP(**cfg))
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, f"{out}/open_clip_model.safetensors")
    json.dump({"model_cfg": cfg, "preprocess_cfg": {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711], "interpolation": "bicubic", "resize_mode": "shortest", **(pre or {})}},
              open(f"{out}/open_clip_config.json", "w"))


def xlm_in(captions):
    """open_clip with a tokenizer.json of unigram in the folder."""
    def put(out, cfg):
        write_metaclip2(out, captions)
        for f in ("config.json", "model.safetensors", "preprocessor_config.json"): os.remove(f"{out}/{f}")
        cfg["text_cfg"].update(vocab_size=5000, hf_tokenizer_name="here", tokenizer_kwargs={"clean": "canonicalize"}, pool_type="last", no_causal_mask=True)
    return put


def five():
    import transformers
    return transformers.__version__.startswith("5")


EXPORT = "cloob convert --to hf"  # of a folder that transformers 5 wrote; the peer reads the export, cloob the folder


FOLDERS = {  # name: (writer, library, function, arguments)
    "ViT, CLIP's tokenizer": ("open_clip", "open_clip", write_open_clip, {}),
    "ViT, squash, bilinear": ("open_clip", "open_clip", write_open_clip, {"pre": {"resize_mode": "squash", "interpolation": "bilinear", "mean": [0.5] * 3, "std": [0.5] * 3}}),
    "ViT, longest edge, fill 127": ("open_clip", "open_clip", write_open_clip, {"pre": {"resize_mode": "longest", "fill_color": 127}}),
    "ResNet": ("open_clip", "open_clip", write_open_clip, {"layers": [1, 1, 1, 1]}),
    "ViT, unigram tokenizer.json, canonicalize": ("open_clip", "open_clip", write_open_clip, {"tokenizer": "xlm"}),
    "CLIP": ("transformers 5", "transformers", write_clip, {}),
    "CLIP, lanczos, crop 64 of 80": ("transformers 5", "transformers", write_clip, {"processor": dict(size={"shortest_edge": 80}, crop_size={"height": 64, "width": 64}, resample=1)}),
    "CLIP, crop without resize, not normalised": ("transformers 5", "transformers", write_clip, {"processor": dict(do_resize=False, crop_size={"height": 64, "width": 64}, do_normalize=False)}),
    "SigLIP, sentencepiece": ("transformers 5", "transformers", write_siglip, {}),
    "SigLIP 2, Gemma's kind of BPE": ("transformers 5", "transformers", write_siglip2, {}),
    "SigLIP 2 NaFlex, 256 patches": ("transformers 5", "transformers", write_siglip2, {"patches": 256}),
    "SigLIP 2 NaFlex, 100 patches": ("transformers 5", "transformers", write_siglip2, {"patches": 100}),
    "MetaCLIP 2, unigram": ("transformers 5", "transformers", write_metaclip2, {}),
    "CLIP, vocab.json and merges.txt": ("transformers 4", "transformers", write_clip, {}),
    "SigLIP, spiece.model": ("transformers 4", "transformers", write_siglip, {}),
    "exported CLIP": (EXPORT, "AutoProcessor", write_clip, {}),
    "exported CLIP, lanczos, crop 64 of 80": (EXPORT, "AutoProcessor", write_clip, {"processor": dict(size={"shortest_edge": 80}, crop_size={"height": 64, "width": 64}, resample=1)}),
    "exported SigLIP, sentencepiece": (EXPORT, "AutoProcessor", write_siglip, {}),
    "exported SigLIP 2 NaFlex": (EXPORT, "AutoProcessor", write_siglip2, {"patches": 256}),
    "exported SigLIP 2, Gemma's kind of BPE": (EXPORT, "AutoProcessor", write_siglip2, {}),
}


def write(name, out, captions):
    _, _, function, arguments = FOLDERS[name]
    if arguments.get("tokenizer") == "xlm": arguments = {**arguments, "tokenizer": xlm_in(captions)}
    function(out, captions, **arguments)


# ---- embeddings of the peers ----------------------------------------------------------------------------------------

def unit(x):
    x = x if hasattr(x, "norm") else x.pooler_output
    return x / x.norm(dim=-1, keepdim=True)


def peer(folder, library, photos, texts):
    import torch
    from PIL import Image
    image, text = [], []
    with torch.no_grad():
        if library == "open_clip":
            import open_clip
            model, _, view = open_clip.create_model_and_transforms(f"local-dir:{folder}")
            tok = open_clip.get_tokenizer(f"local-dir:{folder}")
            model.eval()
            for p in photos: image.append(unit(model.encode_image(view(Image.open(p))[None])))
            for i in range(0, len(texts), 100): text.append(unit(model.encode_text(tok(texts[i:i + 100]))))
        else:
            from transformers import AutoImageProcessor, AutoModel, AutoTokenizer
            model, view, tok = AutoModel.from_pretrained(folder).eval(), AutoImageProcessor.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
            if library == "AutoProcessor":
                from transformers import AutoProcessor
                both = AutoProcessor.from_pretrained(folder)
                view, tok = both.image_processor, both.tokenizer
            length = model.config.text_config.max_position_embeddings
            for p in photos: image.append(unit(model.get_image_features(**view(Image.open(p), return_tensors="pt"))))
            for i in range(0, len(texts), 100):
                ids = tok(texts[i:i + 100], padding="max_length", max_length=length, truncation=True, return_tensors="pt")["input_ids"]
                text.append(unit(model.get_text_features(input_ids=ids)))
    return torch.cat(image), torch.cat(text)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("cloob"), a.add_argument("photos"), a.add_argument("captions"), a.add_argument("--transformers4"), a.add_argument("--keep"), a.add_argument("--only")
    a.add_argument("--write", nargs=2), a.add_argument("--count", type=int, default=200)
    o = a.parse_args()
    if o.write:
        return write(o.write[0], o.write[1], o.captions)
    from safetensors.torch import load_file
    clip_vocab()
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)  # where cloob finds the merges of open_clip's package
    root = o.keep or tempfile.mkdtemp()
    os.makedirs(f"{root}/photos", exist_ok=True)
    photos = sorted(map(str, pathlib.Path(root, "photos").iterdir())) or make_photos(o.photos, f"{root}/photos", o.count)  # of an earlier run with --keep
    texts = [t.strip() for t in open(o.captions, encoding="utf-8") if t.strip()][:1880] + [t.strip() for t in hard_texts(120)]
    texts_file = f"{root}/texts.txt"
    open(texts_file, "w", encoding="utf-8").write("\n".join(texts) + "\n")
    print(f"{len(photos)} photos, {len(texts)} texts\n\n| folder | written by | image | text |\n|---|---|---:|---:|")
    worst = 0
    for k, (name, (writer, library, _, _)) in enumerate(FOLDERS.items()):
        if o.only and not re.search(o.only, name): continue
        out, emb = f"{root}/{k}", f"{root}/{k}.safetensors"
        python = o.transformers4 if writer == "transformers 4" else sys.executable
        if not python: continue
        subprocess.run([python, __file__, o.cloob, o.photos, texts_file, "--write", name, out], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        subprocess.run([o.cloob, "embed", "--checkpoint", out, "--images", *photos, "--texts", texts_file, "--out", emb, "--device", "cpu", "--precision", "fp32", "--quiet"], check=True, stdout=subprocess.DEVNULL)
        if writer == EXPORT:
            subprocess.run([o.cloob, "convert", out, out + ".export", "--to", "hf"], check=True, stdout=subprocess.DEVNULL)
            out += ".export"
        mine = load_file(emb)
        image, text = peer(out, library, photos, texts)
        d = [(mine[s] - t).abs().max(1).values for s, t in (("image", image), ("text", text))]
        print(f"| {name} | {writer} | {d[0].max():.1e} | {d[1].max():.1e} |", flush=True)
        for s, n in ((0, photos), (1, texts)):
            for i in (d[s] > 1e-4).nonzero().flatten().tolist()[:5]: print("   differs:", n[i], float(d[s][i]), file=sys.stderr)
        worst = max(worst, d[0].max().item(), d[1].max().item())
    return int(worst >= 1e-4)


if __name__ == "__main__":
    sys.exit(main())
