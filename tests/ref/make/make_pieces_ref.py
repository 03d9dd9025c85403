#!/usr/bin/env python3
"""Makes tests/ref/pieces_*.model and tests/ref/pieces.json: three small SentencePiece models, and what libsentencepiece makes of a few
dozen texts with them. The third has paths of equal scores, between which rounding decides, and a user-defined piece; its rows are also those of
transformers' SiglipTokenizer. Delete a model to train it again: versions of sentencepiece differ.

    python3 tests/ref/make/make_pieces_ref.py          needs sentencepiece 0.2.2 or newer and transformers 5"""
import json, pathlib, tempfile

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb
from transformers import SiglipTokenizer

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
    path = ref / f"pieces_{kind}.model"
    if not path.exists():
        with tempfile.TemporaryDirectory() as d:
            (pathlib.Path(d) / "in.txt").write_text("\n".join(lines))
            (pathlib.Path(d) / "rules.tsv").write_text("".join(f"{c:X}\t{' '.join(f'{ord(x):X}' for x in to)}\n" for c, to in rules.items()))
            if kind == "unigram":
                extra["normalization_rule_tsv"] = f"{d}/rules.tsv"
            spm.SentencePieceTrainer.train(input=f"{d}/in.txt", model_prefix=f"{d}/m", model_type=kind, pad_id=0, eos_id=1, unk_id=2,
                                           bos_id=-1, minloglevel=2, **extra)
            path.write_bytes((pathlib.Path(d) / "m.model").read_bytes())
    out[kind] = spm.SentencePieceProcessor(model_file=str(path)).encode(texts)
model = pb.ModelProto(normalizer_spec=pb.NormalizerSpec(name="identity"), trainer_spec=pb.TrainerSpec(model_type=1, pad_id=0, eos_id=1, unk_id=2, bos_id=-1))
for piece, score, type in [("<pad>", 0, 3), ("</s>", 0, 3), ("<unk>", 0, 2), ("\u2581", -3.1, 1), *((c, -6.7, 1) for c in "abdg"), ("dogg", -9.3, 1), ("og", 0, 4),
                           *(("ab" * k, -3.1 - 0.7 * k, 1) for k in range(2, 9))]:
    model.pieces.add(piece=piece, score=score, type=type)
(ref / "pieces_ties.model").write_bytes(model.SerializeToString())
out["tie_texts"] = ["dog", "dogg", "a dogg abdogg", *("ab" * n for n in range(15, 90, 3)), *("ba" * n + " dog" for n in range(15, 60, 9))]
out["ties"] = spm.SentencePieceProcessor(model_proto=model.SerializeToString()).encode(out["tie_texts"])
tokenizer = SiglipTokenizer(str(ref / "pieces_ties.model"))
out["ties_siglip"] = [tokenizer(t, add_special_tokens=False)["input_ids"] for t in out["tie_texts"]]
(ref / "pieces.json").write_text(json.dumps(out) + "\n")
