#!/usr/bin/env python3
"""All kinds of tokenizers compared with the programs they come from: ids of 100,000 captions and 10,000 hostile strings.

    bench/peers/tokenizers_peer.py --vocab MERGES.gz --captions TSV|TSV.gz|SHARD.tar... [--lib build/libcloob.so] [--show N]

MERGES.gz is CLIP's vocabulary. Kinds: merges (open_clip's SimpleTokenizer), tokenizer.json of CLIP's BPE (transformers' CLIPTokenizer), SentencePiece unigram
and BPE models trained on the captions (sentencepiece), tokenizer.json of the unigram one (tokenizers); the last three after open_clip's clean-up for SigLIP. Needs
open_clip_torch, transformers, sentencepiece. Exit code 1 when an id differs."""
import argparse, gzip, json, os, pathlib, random, sys, tempfile, unicodedata, warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")
from tokenizer_speed import ENTITIES, SENTENCES, Cloob, broken, real  # noqa: E402
from open_clip.tokenizer import SimpleTokenizer, basic_clean, bytes_to_unicode, canonicalize_text  # noqa: E402

a = argparse.ArgumentParser()
a.add_argument("--vocab", required=True)
a.add_argument("--captions", nargs="+", required=True)
a.add_argument("--lib", default=str(pathlib.Path(__file__).resolve().parents[2] / "build" / "libcloob.so"))
a.add_argument("--count", type=int, default=100000)
a.add_argument("--hostile", type=int, default=10000)
a.add_argument("--show", type=int, default=0)
a.add_argument("--kinds", nargs="*", default=["merges", "json", "unigram", "bpe", "unigram-json"])
args = a.parse_args()
rng = random.Random(7)
import ftfy.bad_codecs  # noqa: E402,F401  the sloppy encodings
ENCODINGS = ["latin-1", *("sloppy-windows-125%d" % i for i in (0, 1, 2, 3, 4, 7)), "iso-8859-2", "macroman", "cp437"]
NAMES = ["<|startoftext|>", "<|endoftext|>", "<start_of_text>", "<end_of_text>", "<|STARTOFTEXT|>", "</s>", "<unk>", "<pad>", "\u2581"]
SIGNS = "".join(map(chr, [*range(0x80, 0x250), *range(0x370, 0x460), *range(0x2010, 0x2040), 0x20AC, 0x2122, 0x221A, 0x2202, 0x2248, 0x2260, 0xFFFD])) + "abc ?"


def wrong_encoding(text):
    for _ in range(3):
        try:
            return text.encode("utf-8").decode(rng.choice(ENCODINGS))
        except UnicodeError:
            pass
    return text


def assigned():
    while True:
        c = chr(rng.choice([rng.randint(0, 0x7F), rng.randint(0x80, 0x24F), rng.randint(0x250, 0x2FFF), rng.randint(0x3000, 0xFFFF), rng.randint(0x10000, 0x1FFFF)]))
        if unicodedata.category(c) not in ("Cn", "Cs", "Co"):
            return c


def hostile():
    sentence = rng.choice(SENTENCES)
    kind = rng.randrange(8)
    if kind == 0:
        return wrong_encoding(sentence)
    if kind == 1:
        return " ".join(wrong_encoding(w) if rng.random() < 0.5 else w for w in sentence.split(" "))
    if kind == 2:
        return "".join(rng.choice(SIGNS) for _ in range(rng.randint(1, 20)))
    if kind == 3:
        return "".join(assigned() for _ in range(rng.randint(1, 20)))
    words = sentence.split()
    more = {4: ENTITIES, 5: NAMES, 6: [chr(c) for c in range(0x20)] + ["\x7f", "\u200b", "\ufeff", "\u2028", "\x1b[31m", "\u0345", "\u0301", "\u00ad"]}.get(kind, ["'S", "'ſ", "Σ", "İ", "ﬁ", "ＡＢ", "½", "①", "''''", "((("])
    for _ in range(rng.randint(1, 4)):
        words.insert(rng.randint(0, len(words)), rng.choice(more))
    return rng.choice([" ", "", "  "]).join(words)


def make_captions():
    texts = real(args.captions)
    words = sorted({w for t in texts for w in t.split()})
    while len(texts) < args.count:
        texts.append(" ".join(rng.choice(words) for _ in range(rng.randint(3, 25))))
    return texts[:args.count]


def clip_json(folder):
    from transformers import CLIPTokenizer
    merges = [tuple(m.split()) for m in gzip.open(args.vocab).read().decode().split("\n")[1:49152 - 256 - 2 + 1]]
    symbols = list(bytes_to_unicode().values())
    vocab = symbols + [s + "</w>" for s in symbols] + ["".join(m) for m in merges] + ["<|startoftext|>", "<|endoftext|>"]
    t = CLIPTokenizer(vocab={v: i for i, v in enumerate(vocab)}, merges=merges)
    t.save_pretrained(folder)
    return folder + "/tokenizer.json", lambda x: t(x)["input_ids"][1:-1]


def pieces(folder, captions, kind):
    import sentencepiece as spm
    path = f"{folder}/in.txt"
    pathlib.Path(path).write_text("\n".join(captions[:30000]))
    more = dict(byte_fallback=True, normalization_rule_name="identity", user_defined_symbols=["\u2581\u2581", "<table>"]) if kind == "bpe" else dict(hard_vocab_limit=False)
    spm.SentencePieceTrainer.train(input=path, model_prefix=f"{folder}/{kind}", model_type=kind, vocab_size=3000, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2, **more)
    return f"{folder}/{kind}.model", spm.SentencePieceProcessor(model_file=f"{folder}/{kind}.model").encode


def unigram_json(folder):
    from sentencepiece import sentencepiece_model_pb2 as pb
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    proto = pb.ModelProto()
    proto.ParseFromString(pathlib.Path(f"{folder}/unigram.model").read_bytes())
    t = Tokenizer(models.Unigram([(p.piece, p.score) for p in proto.pieces], 2))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap), normalizers.Strip(left=False, right=True),
                                          normalizers.Replace(Regex(" {2,}"), "\u2581")])
    t.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "always")
    t.save(f"{folder}/unigram.json")
    return f"{folder}/unigram.json", lambda x: t.encode(x).ids


def compare(name, ours, encode, clean, sets):
    bad = []
    counts = []
    for texts in sets:
        wrong = [x for x in texts if ours.encode(x) != list(encode(clean(x)))]
        counts.append(len(wrong))
        bad += wrong[:args.show]
    print(f"| {name} | {counts[0]} | {counts[1]} |", flush=True)
    for x in bad:
        print("   ", ascii(x), "\n      ours  ", ours.encode(x), "\n      theirs", list(encode(clean(x))))
    return sum(counts)


folder = tempfile.mkdtemp(prefix="tokenizers-")
captions, strings = make_captions(), [hostile() for _ in range(args.hostile)]
sets = captions, strings
siglip = lambda x: canonicalize_text(basic_clean(x))
print(f"| tokenizer | of {len(captions)} captions different | of {len(strings)} hostile strings different |\n|---|---:|---:|")
total = 0
same = lambda x: x
if "merges" in args.kinds:
    total += compare("CLIP's merges, open_clip", Cloob(args.lib, args.vocab), SimpleTokenizer(args.vocab).encode, same, sets)
if "json" in args.kinds:
    path, encode = clip_json(folder)
    total += compare("tokenizer.json of CLIP's BPE, transformers", Cloob(args.lib, path), encode, same, sets)
for kind in "unigram", "bpe":
    if kind in args.kinds:
        path, encode = pieces(folder, captions, kind)
        total += compare(f"SentencePiece {kind}, sentencepiece", Cloob(args.lib, path), encode, siglip, sets)
if "unigram-json" in args.kinds:
    pieces(folder, captions, "unigram")
    path, encode = unigram_json(folder)
    total += compare("tokenizer.json of a unigram model, tokenizers", Cloob(args.lib, path), encode, siglip, sets)
sys.exit(total > 0)
