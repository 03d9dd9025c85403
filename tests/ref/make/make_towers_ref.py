#!/usr/bin/env python3
"""Makes tests/ref/towers: for every kind of tower a small model as its own library saves it, and what PyTorch computes with it.

    python3 tests/ref/make/make_towers_ref.py [NAME ...]          needs torch, open_clip_torch, timm, transformers and safetensors

A folder NAME holds the model (configuration and weights of open_clip or transformers) and gradients.safetensors: under the weights'
names the gradients of sum(d.image * unit image row) + sum(d.text * unit text row), and the inputs and outputs: expected.images,
expected.tokens, expected.image, expected.text (raw embeddings), expected.dimage, expected.dtext; of a tower alone its side. PyTorch computes in double precision."""
import json
import os
import pathlib
import shutil
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import open_clip
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

to = pathlib.Path(__file__).resolve().parents[1] / "towers"
ROWS, EMBED = 3, 12
VIT = dict(image_size=16, layers=1, width=16, patch_size=8, head_width=8)
CLIP_TEXT = dict(context_length=8, vocab_size=40, width=16, heads=2, layers=1)
BERT = dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40, max_position_embeddings=14,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def jitter(model):
    """Random gains, biases and small matrices, so that none is hidden by a 0 or a 1."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.add_(torch.randn_like(p) * 0.2)
            elif p.std() < 0.1:
                p.mul_(0.2 / (p.std() + 1e-9)) if p.std() > 0 else p.normal_(0, 0.2)
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.normal_(0, 0.2)
            if name.endswith("running_var"):
                b.uniform_(0.5, 1.5)
    return model.eval()


def freeze(name, model, save, image, text, images, tokens, spell=lambda k: k, fold=lambda m: None):
    """save(folder) writes the model; fold(model) changes it afterwards, then gradients are those of what it left; spell: its names of parameters; image and text are functions of the inputs in double precision."""
    folder = to / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save(folder)
    model.double()
    fold(model)
    model.requires_grad_()
    model.zero_grad()
    sides = {k: f(v) for k, f, v in (("image", image, images.double()), ("text", text, tokens)) if f}
    slopes = {"d" + k: torch.randn_like(v) for k, v in sides.items()}
    sum((F.normalize(v, dim=-1) * slopes["d" + k]).sum() for k, v in sides.items()).backward()
    plain = lambda k: k.split(".", 1)[1].replace(":", ".") if ":" in k else spell(k)  # haiku's names have dots of their own
    out = {plain(k): p.grad.float().contiguous() for k, p in model.named_parameters() if p.grad is not None}
    out |= {plain(k): torch.zeros_like(p).float() for k, p in model.named_parameters() if p.grad is None and "logit" not in k}
    out |= {"expected." + k: (v if v.dtype == torch.uint8 else v.detach().float()).contiguous()
            for k, v in dict(images=images, **sides, **slopes).items() if image or k != "images"}
    if text:
        out["expected.tokens"] = tokens.to(torch.int32)
    save_file(out, folder / "gradients.safetensors")
    print(name, sum(f.stat().st_size for f in folder.iterdir()), file=sys.stderr)


def padded_tokens(context, vocab, pad):
    t = torch.randint(4, vocab, (ROWS, context))
    for i in range(ROWS):
        t[i, 2 + 2 * i:] = pad
    return t


def clip_tokens(context, vocab):
    t = torch.randint(1, vocab - 2, (ROWS, context))
    for i in range(ROWS):
        t[i, 2 + 2 * i], t[i, 3 + 2 * i:] = vocab - 1, 0
    return t


def against_open_clip(name, vision, text, tokens, own=None, **top):
    """own: what cloob's configuration has instead of a name that only transformers can look up."""
    config = dict(embed_dim=EMBED, vision_cfg=vision, text_cfg=text, **top)
    custom = "hf_model_name" in text or top.get("custom_text")
    peer = {k: v for k, v in config.items() if k != "custom_text"}
    model = jitter((open_clip.CustomTextCLIP if custom else open_clip.CLIP)(**peer))
    shown = dict(config, text_cfg=dict(text, **own)) if own else config

    def save(folder):
        save_file({k: v.contiguous().clone() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
        (folder / "open_clip_config.json").write_text(json.dumps(dict(model_cfg=shown, preprocess_cfg={}), indent=1) + "\n")

    size = vision["image_size"]
    freeze(name, model, save, model.encode_image, model.encode_text, torch.randn(ROWS, 3, size, size), tokens)


def bert_text(kind, config, pooler, projection, context, first):
    """The text_cfg for open_clip, which reads the sizes of a local folder, and for cloob, which has them in the file."""
    local = pathlib.Path(tempfile.mkdtemp())
    config.save_pretrained(local)
    text = dict(hf_model_name=str(local), hf_model_pretrained=False, hf_pooler_type=pooler, hf_proj_type=projection, context_length=context)
    own = dict(hf_model_name=kind, vocab_size=config.vocab_size, width=config.hidden_size, heads=config.num_attention_heads,
               layers=config.num_hidden_layers, intermediate_size=config.intermediate_size, norm_kwargs=dict(eps=config.layer_norm_eps),
               bert=dict(positions=config.max_position_embeddings, first_position=first, token_types=config.type_vocab_size,
                         pad_id=config.pad_token_id))
    return text, own


def roberta():
    from transformers import RobertaConfig
    text, own = bert_text("roberta-small", RobertaConfig(**BERT, type_vocab_size=1, pad_token_id=1), "mean_pooler", "mlp", 10, 2)
    against_open_clip("roberta", VIT, text, padded_tokens(10, 40, 1), own, quick_gelu=True)


def bert():
    from transformers import BertConfig
    text, own = bert_text("bert-small", BertConfig(**BERT, pad_token_id=0), "cls_pooler", "linear", 9, 0)
    against_open_clip("bert", VIT, text, padded_tokens(9, 40, 0), own)


def chinese_clip():
    from transformers import ChineseCLIPConfig, ChineseCLIPModel
    vision = dict(hidden_size=16, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
    config = ChineseCLIPConfig(text_config=dict(BERT, max_position_embeddings=9), vision_config=vision, projection_dim=EMBED)
    config._attn_implementation = "eager"
    model = jitter(ChineseCLIPModel(config))
    pooled = lambda y: getattr(y, "pooler_output", y)
    freeze("chinese_clip", model, lambda folder: model.save_pretrained(folder), lambda x: pooled(model.get_image_features(x)),
           lambda t: pooled(model.get_text_features(t, attention_mask=(t != 0).long())), torch.randn(ROWS, 3, 16, 16), padded_tokens(9, 40, 0))


def rinna():
    """rinna's CLOOBModel as its definition has it: transformers' ViT and RoBERTa without poolers, under the names of transformers 4."""
    import re
    from transformers import RobertaConfig, RobertaModel, ViTConfig, ViTModel
    vision = ViTConfig(hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8)
    text = RobertaConfig(**BERT, type_vocab_size=2, pad_token_id=3)
    model = torch.nn.ModuleDict(dict(vision_model=ViTModel(vision, add_pooling_layer=False), text_model=RobertaModel(text, add_pooling_layer=False),
                                     visual_projection=torch.nn.Linear(16, EMBED, bias=False), text_projection=torch.nn.Linear(16, EMBED, bias=False)))
    jitter(model)
    model["text_model"].embeddings.position_embeddings.padding_idx = None  # which would leave the gradient of position 3 out
    old = {"layers": "encoder.layer", "q_proj": "attention.query", "k_proj": "attention.key", "v_proj": "attention.value",
           "o_proj": "output.dense", "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense"}
    spell = lambda k: re.sub("|".join(map(re.escape, old)), lambda m: old[m[0]], k) if k.startswith("vision_model") else k

    def save(folder):
        save_file({spell(k): v.contiguous().clone() for k, v in model.state_dict().items()}, folder / "model.safetensors")
        config = dict(architectures=["CLOOBModel"], model_type="cloob", projection_dim=EMBED, init_inv_tau=30.0, scale_hopfield=15.0,
                      text_config=text.to_dict(), vision_config=vision.to_dict())
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")

    places = torch.arange(14).expand(ROWS, -1)
    freeze("rinna", model, save, lambda x: model["visual_projection"](model["vision_model"](x).last_hidden_state[:, 0]),
           lambda t: model["text_projection"](model["text_model"](t, attention_mask=(t != 3).long(), position_ids=places).last_hidden_state[:, 0]),
           torch.randn(ROWS, 3, 16, 16), padded_tokens(14, 40, 3), spell)


def mclip():
    """M-CLIP's MultilingualCLIP: XLM-RoBERTa with its pooler, which is not used, the mean of the tokens, a linear layer."""
    from transformers import XLMRobertaConfig, XLMRobertaModel
    config = XLMRobertaConfig(**BERT, type_vocab_size=1, pad_token_id=1)
    model = jitter(torch.nn.ModuleDict(dict(transformer=XLMRobertaModel(config), LinearTransformation=torch.nn.Linear(16, EMBED))))
    own = dict(embed_dim=EMBED, vision_cfg=None, text_cfg=dict(bert_text("xlm-roberta-small", config, "mean_pooler", "linear", 10, 2)[1],
               hf_pooler_type="mean_pooler", hf_proj_type="linear", proj_bias=True, context_length=10))

    def save(folder):
        save_file({k: v.contiguous().clone() for k, v in model.state_dict().items()}, folder / "model.safetensors")
        (folder / "cloob.json").write_text(json.dumps(own, indent=1) + "\n")

    def encode(t):
        mask = (t != 1).double()
        rows = model["transformer"](t, attention_mask=(t != 1).long()).last_hidden_state
        return model["LinearTransformation"]((rows * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))

    freeze("mclip", model, save, None, encode, torch.zeros(1), padded_tokens(10, 40, 1))


def tower(name, kind, part, pool, sizes):
    """One of transformers' towers alone; pool: what it calls the embedding."""
    import transformers
    config = getattr(transformers, kind + part + "Config")(hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2, **sizes)
    model = jitter(getattr(transformers, kind + part + "Model" + ("WithProjection" if pool.endswith("embeds") else ""))(config))
    run = lambda x: getattr(model(x), pool)
    image, text = (run, None) if part == "Vision" else (None, run)
    freeze(name, model, lambda folder: model.save_pretrained(folder), image, text, torch.randn(ROWS, 3, 16, 16), clip_tokens(8, 40))


VISION_SIZES, TEXT_SIZES = dict(image_size=16, patch_size=8), dict(vocab_size=40, max_position_embeddings=8)
CLIP_END = dict(bos_token_id=38, eos_token_id=39, pad_token_id=0)
TOWERS = dict(clip_vision=("CLIP", "Vision", "pooler_output", VISION_SIZES),
              clip_vision_projection=("CLIP", "Vision", "image_embeds", dict(VISION_SIZES, projection_dim=EMBED)),
              clip_text=("CLIP", "Text", "pooler_output", dict(TEXT_SIZES, **CLIP_END)),
              clip_text_projection=("CLIP", "Text", "text_embeds", dict(TEXT_SIZES, **CLIP_END, projection_dim=EMBED)),
              siglip_vision=("Siglip", "Vision", "pooler_output", VISION_SIZES), siglip_text=("Siglip", "Text", "pooler_output", TEXT_SIZES))


def timm_model(name, kind, projection, pool, own, text=CLIP_TEXT, folded={}, **kwargs):
    """A tower of one of timm's classes with sizes of its own, under a name that is registered for this run."""
    import timm
    import timm.models as m

    def create(pretrained=False, pretrained_cfg=None, pretrained_cfg_overlay=None, cache_dir=None, **more):
        more.pop("drop_path_rate", None)
        model = kind(**dict(kwargs, **more))
        model.default_cfg = dict(pool_size=None)
        return model

    create.__name__, create.__module__ = "cloob_test_" + name, "timm.models.eva"
    timm.models.register_model(create)
    size = own["image_size"]
    vision = dict(timm_model_name="cloob_test_" + name, timm_pool=pool, timm_proj=projection, image_size=size)
    custom = dict(custom_text=True) if own.get("convnext") is None else {}
    config = dict(embed_dim=EMBED, vision_cfg=vision, text_cfg=text)
    model = jitter((open_clip.CustomTextCLIP if custom else open_clip.CLIP)(**config))
    shown = dict(embed_dim=EMBED, vision_cfg=dict(timm="cloob_test_" + name, **own), text_cfg=text, **custom)

    def save(folder):
        save_file({k: v.contiguous().clone() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
        (folder / "open_clip_config.json").write_text(json.dumps(dict(model_cfg=shown, preprocess_cfg={}), indent=1) + "\n")

    freeze(name, model, save, model.encode_image, model.encode_text, torch.randn(ROWS, 3, size, size), clip_tokens(8, 40), **folded)


def convnext(name="convnext", projection="linear", more={}):
    from timm.models.convnext import ConvNeXt
    depths = [1, 1, 2, 1] if projection == "linear" else [1, 1, 1, 1]
    own = dict(convnext=True, image_size=32, layers=depths, width=4, head_width=4, patch_size=4, ls_init_value=1e-6,
               norm_kwargs=dict(eps=1e-6), **more)
    timm_model(name, ConvNeXt, projection, "", own, depths=depths, dims=(4, 8, 16, 32))


def convnext_mlp():
    convnext("convnext_mlp", "mlp", dict(proj_hidden=2 * EMBED))


ROPE = dict(img_size=32, patch_size=8, embed_dim=16, depth=2, num_heads=2)
OWN = dict(image_size=32, layers=2, width=16, head_width=8, patch_size=8)
EPS = dict(norm_kwargs=dict(eps=1e-6))


def eva02():
    from timm.models.eva import Eva
    timm_model("eva02", Eva, None, "token", dict(OWN, **EPS, no_ln_pre=True, patch_bias=True, swiglu=True, inner_norms=True, no_key_bias=True,
               intermediate_size=24, rope_grid=6, proj_bias=True), mlp_ratio=1.5, qkv_fused=False, swiglu_mlp=True, scale_mlp=True,
               scale_attn_inner=True, use_rot_pos_emb=True, ref_feat_shape=(6, 6), global_pool="token", **{k: v for k, v in ROPE.items()})


def eva_giant():
    from timm.models.eva import Eva
    timm_model("eva_giant", Eva, None, "token", dict(OWN, **EPS, no_ln_pre=True, patch_bias=True, no_key_bias=True, proj_bias=True,
               mlp_ratio=2), mlp_ratio=2, **ROPE)


def eva_enormous():
    from timm.models.eva import Eva
    timm_model("eva_enormous", Eva, None, "token", dict(OWN, **EPS, no_ln_pre=True, patch_bias=True, no_key_bias=True, proj_bias=True,
               block_norm="branch", mlp_ratio=2), mlp_ratio=2, use_post_norm=True, **ROPE)


def pe_core():
    from functools import partial
    from timm.layers import LayerNorm
    from timm.models.eva import Eva
    timm_model("pe_core", Eva, None, "map", dict(OWN, patch_bias=False, pool_type="map", rope_grid=4, rope_offset=1, rope_swapped=True,
               proj_bias=True, pool_heads=4, pool_intermediate_size=32, mlp_ratio=3), mlp_ratio=3, attn_type="rope",
               use_pre_transformer_norm=True, use_rot_pos_emb=True, ref_feat_shape=(4, 4), rope_grid_offset=1., rope_grid_indexing="xy",
               attn_pool_num_heads=4, attn_pool_mlp_ratio=2., norm_layer=partial(LayerNorm, eps=1e-5), **ROPE)


def pe_core_bare():
    from functools import partial
    from timm.layers import LayerNorm
    from timm.models.eva import Eva
    timm_model("pe_core_bare", Eva, None, "map", dict(OWN, class_token=False, patch_bias=False, pool_type="map", rope_grid=6,
               rope_swapped=True, proj_bias=True, pool_heads=2, mlp_ratio=2), mlp_ratio=2, attn_type="rope", class_token=False,
               use_pre_transformer_norm=True, use_rot_pos_emb=True, ref_feat_shape=(6, 6), rope_grid_indexing="xy",
               attn_pool_num_heads=2, attn_pool_mlp_ratio=2., norm_layer=partial(LayerNorm, eps=1e-5), **ROPE)


def timm_vit():
    from timm.models.vision_transformer import VisionTransformer
    timm_model("timm_vit", VisionTransformer, "linear", "", dict(OWN, **EPS, no_ln_pre=True, patch_bias=True, mlp_ratio=2), mlp_ratio=2, **ROPE)


def fused(conv, bn):
    """A convolution with a bias instead of one and its batch norm."""
    gain = bn.weight / (bn.running_var + bn.eps).sqrt()
    to = torch.nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, groups=conv.groups).double()
    to.weight.data = (conv.weight * gain[:, None, None, None]).detach()
    to.bias.data = (bn.bias - bn.running_mean * gain).detach()
    return to


def fold_fastvit(model):
    """What cloob trains: no branches, batch norms or layer scale. timm folds the branches; the rest is done here."""
    from timm.models.fastvit import AttentionBlock, RepMixerBlock
    for m in model.modules():
        if hasattr(m, "reparameterize"):
            m.reparameterize()
    none = torch.nn.Identity()
    for m in model.modules():
        if not isinstance(m, (AttentionBlock, RepMixerBlock)):
            continue
        m.mlp.conv = fused(m.mlp.conv.conv, m.mlp.conv.bn)
        ends = [("layer_scale", m.mlp.fc2)] if isinstance(m, RepMixerBlock) else [("layer_scale_1", m.token_mixer.proj), ("layer_scale_2", m.mlp.fc2)]
        for scale, layer in ends:
            gain = getattr(m, scale).gamma.detach().flatten()
            layer.weight.data *= gain.reshape(-1, *[1] * (layer.weight.ndim - 1))
            layer.bias.data *= gain
            setattr(m, scale, none)
        if isinstance(m, AttentionBlock) and isinstance(m.norm, torch.nn.BatchNorm2d):
            gain = (m.norm.weight / (m.norm.running_var + m.norm.eps).sqrt()).detach()
            qkv = torch.nn.Linear(gain.numel(), 3 * gain.numel()).double()
            qkv.weight.data = m.token_mixer.qkv.weight.detach() * gain
            qkv.bias.data = m.token_mixer.qkv.weight.detach() @ (m.norm.bias - m.norm.running_mean * gain).detach()
            m.token_mixer.qkv, m.norm = qkv, none


def own_name(k):
    """cloob's name of a folded parameter."""
    for old, new in ("visual.trunk.", "visual."), (".reparam_conv", ""), ("visual.head.fc", "visual.proj"), ("text.", ""):
        k = k.replace(old, new, 1) if old != "text." or k.startswith(old) else k
    return k


def fastvit(name="fastvit", layers=(1, 2, 1, 1), width=8, **kwargs):
    from timm.models.fastvit import FastVit, RepConditionalPosEnc
    n = len(layers)
    timm_model(name, FastVit, None, "avg", dict(fastvit=True, image_size=64, layers=layers, width=width, mlp_ratio=1, proj_bias=True), layers=layers,
               embed_dims=[width << i for i in range(n)], mlp_ratios=[1] * n, pos_embs=[None] * 3 + [RepConditionalPosEnc] * (n - 3),
               token_mixers=["repmixer"] * 3 + ["attention"] * (n - 3), downsamples=[False] + [True] * (n - 1), lkc_use_act=True,
               folded=dict(fold=fold_fastvit, spell=own_name), **kwargs)


def fastvit_four():
    fastvit(se_downsamples=(False, False, True, True))


def fastvit_five():
    from functools import partial
    from timm.layers import LayerNorm2d
    fastvit("fastvit_five", (1, 1, 1, 1, 1), 4, se_downsamples=[False] * 5, norm_layer=partial(LayerNorm2d, eps=1e-5), stem_use_scale_branch=False)


def vit_stem():
    from functools import partial
    from timm.models.vision_transformer import VisionTransformer
    from timm.models.vision_transformer_hybrid import ConvStem, HybridEmbed
    stem = ConvStem(channels=(4, 4, 16), stride=(4, 2, 2), kernel_size=(4, 2, 2), padding=0, act_layer=torch.nn.GELU)

    def fold(model):
        embed = model.visual.trunk.patch_embed.backbone
        for i in range(2):
            setattr(embed, str(i), torch.nn.Sequential(fused(embed[i].conv, embed[i].bn), torch.nn.GELU()))
        old = model.visual.trunk.pos_embed
        model.visual.trunk.no_embed_class = False
        model.visual.trunk.pos_embed = torch.nn.Parameter(torch.cat([torch.zeros_like(old[:, :1]), old], 1).detach())

    import re
    rows = {"cls_token": "class_embedding", "pos_embed": "positional_embedding", r"patch_embed\.backbone\.2\.conv": "conv1",
            r"patch_embed\.backbone\.(\d)\.0": r"stem.\1", r"^visual\.norm": "visual.ln_post", r"^visual\.head": "visual.proj",
            r"^visual\.blocks": "visual.transformer.resblocks", r"\.norm(\d)": r".ln_\1", r"attn\.qkv\.": "attn.in_proj_", r"attn\.proj": "attn.out_proj",
            "fc1": "c_fc", "fc2": "c_proj"}

    def spell(k):
        k = own_name(k)
        for old, new in rows.items() if k.startswith("visual.") else ():
            k = re.sub(old, new, k)
        return k

    timm_model("vit_stem", VisionTransformer, None, "token", dict(OWN, **EPS, patch_size=16, patch_stem=True, no_ln_pre=True, patch_bias=True, mlp_ratio=2,
               proj_bias=True), mlp_ratio=2, no_embed_class=True, embed_layer=partial(HybridEmbed, backbone=stem, proj=False),
               folded=dict(fold=fold, spell=spell), **dict(ROPE, patch_size=1))


def naflex():
    """Images are records (src/io/image/image_view.h): the pixels of whole patches, zeros, and the grid in the last four bytes."""
    from transformers import Siglip2Config, Siglip2ImageProcessor, Siglip2Model
    part = dict(hidden_size=EMBED, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2)
    config = Siglip2Config(text_config=dict(vocab_size=40, max_position_embeddings=8, projection_size=EMBED, **part),
                           vision_config=dict(patch_size=4, num_patches=9, **part))
    config._attn_implementation = "eager"
    model = jitter(Siglip2Model(config))
    P, most, side = 4, 12, 16
    grids = [(2, 5), (4, 3), (2, 2)]
    records = torch.zeros(ROWS, side * side * 3, dtype=torch.uint8)
    for row, (h, w) in zip(records, grids):
        row[:h * w * P * P * 3] = torch.randint(0, 256, (h * w * P * P * 3,))
        row[-4:] = torch.tensor([h, 0, w, 0])

    def image(_):
        pixels, mask = torch.zeros(ROWS, most, P * P * 3, dtype=torch.double), torch.zeros(ROWS, most, dtype=torch.long)
        for i, (h, w) in enumerate(grids):
            x = records[i, :h * w * P * P * 3].double().reshape(h, P, w, P, 3) / 255
            pixels[i, :h * w] = (x.transpose(1, 2).reshape(h * w, -1) - 0.5) / 0.5
            mask[i, :h * w] = 1
        return model.get_image_features(pixel_values=pixels, pixel_attention_mask=mask, spatial_shapes=torch.tensor(grids)).pooler_output

    def save(folder):
        model.save_pretrained(folder)
        Siglip2ImageProcessor(patch_size=P, max_num_patches=most).save_pretrained(folder)

    freeze("naflex", model, save, image, lambda t: model.get_text_features(input_ids=t).pooler_output, records.reshape(ROWS, side, side, 3),
           torch.randint(1, 40, (ROWS, 8)))


def jax_pickle(path, params):
    """{"params": params} with every array as JAX of 2022 pickles it; JAX itself is not needed."""
    import pickle
    import types
    module = types.ModuleType("jax._src.device_array")

    def reconstruct_device_array(*args):
        raise NotImplementedError

    reconstruct_device_array.__module__, reconstruct_device_array.__qualname__ = module.__name__, "reconstruct_device_array"
    module.reconstruct_device_array = reconstruct_device_array
    for name in "jax", "jax._src", module.__name__:
        sys.modules.setdefault(name, module)

    class Array:
        def __init__(self, tensor):
            self.value = tensor.detach().numpy()

        def __reduce__(self):
            fun, args, state = self.value.__reduce__()
            return reconstruct_device_array, (fun, args, state, dict(weak_type=False))

    nested = tuple({m: {k: Array(v) for k, v in leaves.items()} for m, leaves in tower.items()} for tower in params)
    path.write_bytes(pickle.dumps(dict(params=nested, epoch=1), protocol=4))


class Haiku(torch.nn.Module):
    """crowsonkb's two towers over parameters in haiku's names and layouts, written down from their definition: pre-norm blocks, tanh
    GELU, no norm at the end, the first token through a matrix with a bias. Queries behind the end of a text see all tokens alike."""

    def __init__(self, base, width, layers, embed, rows, heads, **more):
        super().__init__()
        self.base, self.heads, self.layers, self.own = base, heads, layers, {}
        attention = {f"multi_head_attention/{n}": dict(w=(width, width), b=(width,)) for n in ("query", "key", "value", "linear")}
        shapes = {"/pos_embed": dict(w=(rows, width)), "/proj": dict(w=(width, embed), b=(embed,)), **more}
        norm = dict(scale=(width,), offset=(width,))
        for i in range(layers):
            block = {"self_attention/layer_norm": norm, **{f"self_attention/{k}": v for k, v in attention.items()},
                     "feed_forward/layer_norm": norm, "feed_forward/linear_0": dict(w=(width, 4 * width), b=(4 * width,)),
                     "feed_forward/linear_1": dict(w=(4 * width, width), b=(width,))}
            shapes |= {f"/layer_{i}/{k}": v for k, v in block.items()}
        for module, leaves in shapes.items():
            for leaf, shape in leaves.items():
                p = torch.nn.Parameter((leaf == "scale") + torch.randn(shape) * 0.25)
                self.own.setdefault(base + module, {})[leaf] = p
                self.register_parameter((base + module + ":" + leaf).replace(".", ":"), p)

    def at(self, module, leaf):
        return self.own[self.base + module][leaf]

    def linear(self, x, module):
        return x @ self.at(module, "w") + self.at(module, "b")

    def norm(self, x, module):
        return F.layer_norm(x, x.shape[-1:], self.at(module, "scale"), self.at(module, "offset"), 1e-5)

    def attend(self, x, i, live):
        m = f"/layer_{i}/self_attention/"
        h = self.norm(x, m + "layer_norm")
        heads = lambda v: v.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q, k, v = (heads(self.linear(h, m + "multi_head_attention/" + n)) for n in ("query", "key", "value"))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if live is not None:
            scores = scores.masked_fill(~live[:, None, :, None], -1e30)
        return self.linear((scores.softmax(-1) @ v).transpose(1, 2).flatten(2), m + "multi_head_attention/linear")

    def forward(self, x, live=None):
        x = x + self.at("/pos_embed", "w")
        for i in range(self.layers):
            x = x + self.attend(x, i, live)
            h = self.linear(self.norm(x, f"/layer_{i}/feed_forward/layer_norm"), f"/layer_{i}/feed_forward/linear_0")
            x = x + self.linear(F.gelu(h, approximate="tanh"), f"/layer_{i}/feed_forward/linear_1")
        return self.linear(x[:, 0], "/proj")


def crowson_model(width, layers, heads, image, patch, text_width, text_layers, text_heads, context, vocab, embed):
    """crowsonkb's CLOOB: the module, its two functions, and what writes it as a pickle."""
    tokens = (image // patch) ** 2 + 1
    images = Haiku("vi_t_image_encoder", width, layers, embed, tokens, heads, **{"": dict(class_embed=(width,)), "/embed": dict(w=(patch, patch, 3, width))})
    texts = Haiku("text_encoder", text_width, text_layers, embed, context, text_heads, **{"/embed": dict(embeddings=(vocab, text_width))})

    def encode_image(x):
        h = F.conv2d(x, images.at("/embed", "w").permute(3, 2, 0, 1), stride=patch).flatten(2).transpose(1, 2)
        return images(torch.cat([images.at("", "class_embed").expand(len(h), 1, -1), h], 1))

    def encode_text(t):
        end = (t == vocab - 1).float().argmax(1, keepdim=True)
        return texts(texts.at("/embed", "embeddings")[t], torch.arange(context)[None] <= end)

    return torch.nn.ModuleList([images, texts]), encode_image, encode_text, lambda path: jax_pickle(path, (images.own, texts.own))


def crowson():
    vision, text = dict(OWN, image_size=16, no_ln_pre=True, no_ln_post=True, proj_bias=True), dict(CLIP_TEXT, layers=2)
    model, encode_image, encode_text, write = crowson_model(16, 2, 2, 16, 8, 16, 2, 2, 8, 40, EMBED)
    tanh = dict(act_kwargs=dict(approximate="tanh"))
    own = dict(embed_dim=EMBED, vision_cfg=dict(vision, **tanh),
               text_cfg=dict(text, **tanh, no_causal_mask=True, no_ln_final=True, mask_queries=True, proj_bias=True, pool_type="first"))

    def save(folder):
        write(folder / "model.pkl")
        (folder / "cloob.json").write_text(json.dumps(own, indent=1) + "\n")

    freeze("crowson", model, save, encode_image, encode_text, torch.randn(ROWS, 3, 16, 16), clip_tokens(8, 40))


MODELS = dict(roberta=roberta, bert=bert, chinese_clip=chinese_clip, convnext=convnext, convnext_mlp=convnext_mlp, eva02=eva02,
              eva_giant=eva_giant, eva_enormous=eva_enormous, pe_core=pe_core, pe_core_bare=pe_core_bare, timm_vit=timm_vit,
              crowson=crowson, rinna=rinna, **{name: (lambda name=name: tower(name, *TOWERS[name])) for name in TOWERS},
              fastvit=fastvit_four, fastvit_five=fastvit_five, vit_stem=vit_stem, mclip=mclip, naflex=naflex)
if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        torch.manual_seed(list(MODELS).index(name))
        MODELS[name]()
