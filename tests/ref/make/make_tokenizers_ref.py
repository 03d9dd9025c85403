#!/usr/bin/env python3
"""Makes tests/ref/tokenizers: small tokenizers of every kind as transformers writes them, and the rows it makes of hard texts (rows.json).

    python3 tests/ref/make/make_tokenizers_ref.py tests/ref     (transformers 5, tokenizers, sentencepiece, open_clip)
"""
import json, os, pathlib, re, shutil, sys
import sentencepiece
import sentencepiece.sentencepiece_model_pb2 as sp_pb
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, BertTokenizer, CLIPTokenizer, RobertaTokenizer, SiglipTokenizer, XLMRobertaTokenizer
from transformers.models.siglip2.tokenization_siglip2 import Siglip2Tokenizer
from open_clip.tokenizer import HFTokenizer

ref = pathlib.Path(sys.argv[1])
out = ref / "tokenizers"
shutil.rmtree(out, ignore_errors=True)
LENGTH = 24
colours, things = "red blue green dark bright pale golden".split(), "dog cat house street mountain river boat child runner painting".split()
lines = [f"a {c} {t} {v} the {d} {u}, near a {e}'s 12 windows!" for c in colours for t in things for v in ("beside", "Behind", "under")
         for d, u, e in (("old", "bridge", "window"), ("small", "garden", "caf\u00e9"), ("wide", "field", "stairway"))]
texts = ["a red dog", "", " ", "two  cats   sit ", "  A Red DOG, near the river!  ", "unbelievable skyscrapers", "caf\u00e9 na\u00efve Stra\u00dfe \u0130stanbul",
         "\uff46\uff55\uff4c\uff4c width \ufb01ne \u2460 \u00b2", "\u65e5\u672c\u8a9e text \u4e2d\u6587", "\U0001f600 face \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
         "a\u0301 combining e\u0323\u0302", "<table> \u2581\u2581 x", "\u2581leading\u2581", "x" * 120, "ab" * 60, "\u03a3\u03a3 \u03a3\u039f\u03a6\u039f\u03a3", "zero\u200bwidth\u00adsoft", "a\tb\nc\r\nd\x0be\x0cf",
         "0123456789 3.14 1,000", "it's they're I'LL don't", "tabs\t\ttwo", "\u00a0nbsp\u3000wide\u2009thin", "under_score #tag @you $5 50% a/b c\\d [x] {y}", "\x01\x07\x1b control \x7f\x85 \x1c\x1d",
         "\ufffd replaced \ufeff bom", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05d1\u05e8\u05d9\u05ea \u0e44\u0e17\u0e22", "</s> <s> <unk> <pad> [SEP] <eos>", "a <mask> b[MASK]c", "<|startoftext|>a<|endoftext|>", "\u2018curly\u2019 \u201cquotes\u201d \u2014 dash\u2026", "&amp; &lt;b&gt;",
         *lines[::83]]
rows = {"length": LENGTH, "texts": texts, "cases": []}


def add(name, tok, **how):
    """how: what open_clip adds."""
    tok.save_pretrained(out / name)
    back = AutoTokenizer.from_pretrained(out / name)
    ids = back(texts, padding="max_length", max_length=LENGTH, truncation=True)["input_ids"]
    rows["cases"].append({"folder": name, "rows": ids})


def trained(model, trainer, pre=None, norm=None, source=lines):
    t = Tokenizer(model)
    if pre: t.pre_tokenizer = pre
    if norm: t.normalizer = norm
    t.train_from_iterator(source, trainer)
    return json.loads(t.to_str())["model"]


# WordPiece
m = trained(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=260, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False),
            pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer(lowercase=True))
for c in "\u65e5\u672c\u4e2d\u6587 \u00df".replace(" ", ""):
    m["vocab"][c] = len(m["vocab"])
add("bert", BertTokenizer(vocab=m["vocab"]))
add("bert_cased", BertTokenizer(vocab=m["vocab"], do_lower_case=False))
os.makedirs(out / "bert_txt")
(out / "bert_txt" / "vocab.txt").write_text("\n".join(sorted(m["vocab"], key=m["vocab"].get)) + "\n")
(out / "bert_txt" / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True, "pad_token": "[PAD]"}))
rows["cases"].append({"folder": "bert_txt", "rows": rows["cases"][0]["rows"]})
# RoBERTa
m = trained(models.BPE(), trainers.BpeTrainer(vocab_size=420, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False))
merges = [tuple(x) if isinstance(x, list) else tuple(x.split(" ")) for x in m["merges"]]
m["vocab"]["<mask>"] = len(m["vocab"])
add("roberta", RobertaTokenizer(vocab=m["vocab"], merges=merges))
# Gemma for SigLIP 2
special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"] + [f"<0x{b:02X}>" for b in range(256)]
m = trained(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True), trainers.BpeTrainer(vocab_size=480, special_tokens=special, show_progress=False), None,
            normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "\u2581")]))
merges = [tuple(x) if isinstance(x, list) else tuple(x.split(" ")) for x in m["merges"]]
add("siglip2", Siglip2Tokenizer(vocab=m["vocab"], merges=merges, add_bos_token=False, add_eos_token=True, padding_side="right"))
# XLM-R and XLM-V: unigram with a character map
proto = sp_pb.ModelProto()
proto.ParseFromString((ref / "pieces_unigram.model").read_bytes())
charsmap = proto.normalizer_spec.precompiled_charsmap
vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + [(p.piece, p.score) for p in proto.pieces if p.type == 1] + [("<mask>", 0.0)]
add("xlm_roberta", XLMRobertaTokenizer(vocab=vocab, _spm_precompiled_charsmap=charsmap))
# SigLIP: sentencepiece itself
os.makedirs(out / "siglip")
shutil.copy(ref / "pieces_unigram.model", out / "siglip" / "spiece.model")
add("siglip", SiglipTokenizer(str(out / "siglip" / "spiece.model")))
# CLIP
m = trained(models.BPE(end_of_word_suffix="</w>"), trainers.BpeTrainer(vocab_size=560, end_of_word_suffix="</w>", initial_alphabet=[], show_progress=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), normalizers.Lowercase()) if False else None
printable = [b for b in range(256) if 33 <= b < 127 or (161 <= b and b != 173)]
order = printable + [b for b in range(256) if b not in printable]
chars = {b: chr(b) if b in printable else chr(256 + order.index(b) - len(printable)) for b in range(256)}
base = [chars[b] for b in order]
merges = [("r", "e"), ("re", "d</w>"), ("d", "o"), ("do", "g</w>"), ("t", "h"), ("th", "e</w>"), ("i", "n"), ("w", "in")]
vocab = base + [c + "</w>" for c in base] + ["".join(x) for x in merges] + ["<|startoftext|>", "<|endoftext|>"]
vocab = {v: i for i, v in enumerate(vocab)}
add("clip", CLIPTokenizer(vocab=vocab, merges=merges))
os.makedirs(out / "clip_4")
(out / "clip_4" / "vocab.json").write_text(json.dumps(vocab))
(out / "clip_4" / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
(out / "clip_4" / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CLIPTokenizer", "pad_token": "!", "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}))
ids = AutoTokenizer.from_pretrained(out / "clip_4")(texts, padding="max_length", max_length=LENGTH, truncation=True)["input_ids"]
rows["cases"].append({"folder": "clip_4", "rows": ids})
# open_clip's cleaning in front of the same files
for name, folder, clean, strip in (("open_clip_bert", "bert", "lower", True), ("open_clip_xlm", "xlm_roberta", "whitespace", False), ("open_clip_siglip2", "siglip2", "canonicalize", False)):
    shutil.copytree(out / folder, out / name)
    (out / name / "open_clip_config.json").write_text(json.dumps({"model_cfg": {"embed_dim": 4, "vision_cfg": {}, "text_cfg": {
        "hf_tokenizer_name": "here", "tokenizer_kwargs": {"clean": clean, **({"strip_sep_token": True} if strip else {})}}}}))
    tok = HFTokenizer(str(out / name), context_length=LENGTH, clean=clean, strip_sep_token=strip)
    rows["cases"].append({"folder": name, "rows": tok(texts).tolist()})
# rinna: sentencepiece itself; T5Tokenizer of transformers 4 with do_lower_case changes the case letter by letter, and not in special tokens
os.makedirs(out / "rinna")
special = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
for piece in ["<s>"] + special:
    proto.pieces.add(piece=piece, score=0.0, type=3)
(out / "rinna" / "spiece.model").write_bytes(proto.SerializeToString())
(out / "rinna" / "config.json").write_text(json.dumps({"model_type": "cloob", "text_config": {"model_type": "roberta"}, "vision_config": {"model_type": "vit"}}))
sp = sentencepiece.SentencePieceProcessor(model_file=str(out / "rinna" / "spiece.model"))
special = {t: sp.piece_to_id(t) for t in ["<s>", "</s>", "<unk>"] + special}


def rinna_row(text):
    ids = [special["[CLS]"]]
    for part in re.split("(" + "|".join(map(re.escape, special)) + ")", text):
        ids += [special[part]] if part in special else sp.encode("".join(c.lower() for c in part))
    return (ids + LENGTH * [special["[PAD]"]])[:LENGTH]


rows["cases"].append({"folder": "rinna", "rows": [rinna_row(t) for t in texts]})
(out / "rows.json").write_text(json.dumps(rows))
print([c["folder"] for c in rows["cases"]])
