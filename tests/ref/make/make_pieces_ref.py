#!/usr/bin/env python3
"""Makes tests/ref/pieces_*.model and tests/ref/pieces.json: two small SentencePiece models, and what libsentencepiece makes of a few
dozen texts with them.

    python3 tests/ref/make/make_pieces_ref.py          needs sentencepiece"""
import json, pathlib, tempfile

import sentencepiece as spm

ref = pathlib.Path(__file__).resolve().parents[1]
colours, things = "red blue green dark bright pale golden".split(), "dog cat house street mountain river boat child runner painting".split()
lines = [f"a {c} {t} {v} the {d} {u} near a {e}" for c in colours for t in things for v in ("beside", "behind", "under")
         for d, u, e in (("old", "bridge", "window"), ("small", "garden", "fountain"), ("wide", "field", "stairway"))]
texts = ["a red dog", "", " ", "two  cats   sit", "unbelievable skyscrapers", "caf\u00e9 na\u00efve", "\uff46\uff55\uff4c\uff4c width \ufb01ne \u2460",
         "\u65e5\u672c\u8a9e text", "\U0001f600 face", "a\u0301 combining", "<table> \u2581\u2581 x", "\u2581leading", "trailing ", "x" * 70, "ab" * 40, "\u00df\u0130",
         "\u200bzero\u00adwidth", "painting paintings repainting", "a\tb", "0123456789", *lines[::97]]
out = {"texts": texts}
# a few rules of NFKC: the whole map would be a quarter of a megabyte
rules = {c: chr(c - 0xFEE0) for c in range(0xFF01, 0xFF5F)} | {0xFB01: "fi", 0x2460: "1", 0x3000: " ", 9: " ", 0xA0: " ", 0x200B: "", 0xAD: ""}
for kind, extra in ("unigram", dict(vocab_size=180, hard_vocab_limit=False)), ("bpe", dict(
        normalization_rule_name="identity", byte_fallback=True, vocab_size=340, user_defined_symbols=["\u2581\u2581", "<table>"])):
    with tempfile.TemporaryDirectory() as d:
        (pathlib.Path(d) / "in.txt").write_text("\n".join(lines))
        (pathlib.Path(d) / "rules.tsv").write_text("".join(f"{c:X}\t{' '.join(f'{ord(x):X}' for x in to)}\n" for c, to in rules.items()))
        if kind == "unigram":
            extra["normalization_rule_tsv"] = f"{d}/rules.tsv"
        spm.SentencePieceTrainer.train(input=f"{d}/in.txt", model_prefix=f"{d}/m", model_type=kind, pad_id=0, eos_id=1, unk_id=2,
                                       bos_id=-1, minloglevel=2, **extra)
        data = (pathlib.Path(d) / "m.model").read_bytes()
    (ref / f"pieces_{kind}.model").write_bytes(data)
    out[kind] = spm.SentencePieceProcessor(model_proto=data).encode(texts)
(ref / "pieces.json").write_text(json.dumps(out) + "\n")
