#!/usr/bin/env python3
"""Compares cloob's tokenizer with open_clip's, text by text and in speed, in one run.

    bench/peers/tokenizer_speed.py --vocab FILE [--captions FILE...] [--lib build/libcloob.so] [--seconds 3] [--show N]

FILE is CLIP's merges file (bpe_simple_vocab_16e6.txt.gz); captions are TSV files with a column "title" (or .gz), or shards
(.tar, .tar.gz) with .txt members. Needs open_clip (which brings ftfy). Prints one line per corpus: texts, how many have equal ids, how many come back equal
from decode and encode; then captions per second of both. Exit code 1 when a corpus that must be equal is not.
"""
import argparse
import csv
import ctypes
import gzip
import json
import os
import random
import re
import sys
import tarfile
import tempfile
import time
import unicodedata
import warnings

warnings.filterwarnings("ignore")
from open_clip.tokenizer import SimpleTokenizer  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


class Cloob:
    """The public C interface through ctypes."""

    def __init__(self, lib, vocab):
        c = self.c = ctypes.CDLL(lib)
        c.cloob_ctx_create.restype = ctypes.c_void_p
        c.cloob_error.restype = ctypes.c_char_p
        self.ctx = ctypes.c_void_p(c.cloob_ctx_create(None))
        self.t = ctypes.c_void_p()
        self.check(c.cloob_tokenizer_open(self.ctx, vocab.encode(), ctypes.byref(self.t)))
        self.free = ctypes.CDLL(None).free

    def check(self, status):
        if status:
            raise RuntimeError(self.c.cloob_error(self.ctx).decode())

    def encode(self, text):
        raw, ids, n = text.encode("utf-8", "surrogatepass"), ctypes.POINTER(ctypes.c_int32)(), ctypes.c_int64()
        self.check(self.c.cloob_tokenizer_encode(self.ctx, self.t, raw, ctypes.c_size_t(len(raw)), ctypes.byref(ids), ctypes.byref(n)))
        out = ids[: n.value]
        self.free(ids)
        return out

    def decode(self, ids):
        array, text = (ctypes.c_int32 * len(ids))(*ids), ctypes.c_char_p()
        self.check(self.c.cloob_tokenizer_decode(self.ctx, self.t, array, ctypes.c_int64(len(ids)), ctypes.byref(text)))
        return text.value.decode()

    def rows(self, pointers, n, length, out):
        self.check(self.c.cloob_tokenizer_encode_rows(self.ctx, self.t, pointers, ctypes.c_int64(n), ctypes.c_int64(length), out))

    def set_clean(self, mode):
        """The tokenizer again, from a merges file whose first line names another way of cleaning."""
        name, t = ("full", "basic", "hf")[mode], ctypes.c_void_p()
        with tempfile.NamedTemporaryFile("w+", suffix=".merges") as f:
            self.check(self.c.cloob_tokenizer_save(self.ctx, self.t, f.name.encode()))
            with open(f.name, encoding="utf-8") as saved:
                text = saved.read()
            with open(f.name, "w", encoding="utf-8") as changed:
                changed.write(re.sub(r"clean=\w+", f"clean={name}", text, count=1))
            self.check(self.c.cloob_tokenizer_open(self.ctx, f.name.encode(), ctypes.byref(t)))
        self.c.cloob_tokenizer_close(self.t)
        self.t = t


# ---- corpora ---------------------------------------------------------------------------------------------

SENTENCES = [
    "a dog runs along the beach", "Zwei Mädchen grüßen den Bäcker in Köln", "Le garçon mange une crêpe à l'école où il étudie",
    "El niño pequeño sueña con un pingüino en España", "À la fête de Noël, l'œuvre du maître était très appréciée",
    "Żółta łódź płynie po rzece, świeci słońce", "Příliš žluťoučký kůň úpěl ďábelské ódy", "İstanbul'da güneşli bir gün, ağaçlar yeşil",
    "Ο ΣΚΥΛΟΣ τρέχει στην παραλία ΟΔΥΣΣΕΥΣ", "Собака бежит по пляжу, Москва", "一只狗在海滩上奔跑", "犬が海辺を走っている", "개가 해변을 달린다",
    "كلب يجري على الشاطئ", "कुत्ता समुद्र तट पर दौड़ता है", "สุนัขวิ่งบนชายหาด", "Chó chạy trên bãi biển, tiếng Việt", "Ένα μικρό σπίτι",
    "it’s “quoted” – and … dashed — ‘single’ ™ © ®", "price: £5, €10, ¥300, 20 °C, ½ cup, 3 × 4 ± 1", "naïve café, résumé, jalapeño, smörgåsbord",
    "Ünïcödé ÄÖÜ ẞtraße, façade, Ærøskøbing, Þór", "Hawaiʻi ‘okina, L·L geminada, 2²=4 µm Ω", "emoji 😀🎉👩‍👩‍👧‍👦🏳️‍🌈🇩🇪 1️⃣ ❤️",
]
ENTITIES = ["&amp;", "&lt;b&gt;", "&quot;hi&quot;", "&#39;s", "&#x27;", "&nbsp;", "&eacute;", "&EACUTE;", "&copy", "&notit;", "&not", "&hellip;", "&amp;amp;",
            "&amp;lt;", "&#8217;", "&#x1F600;", "&#128;", "&#0;", "&#xD800;", "&#x110000;", "&#12ab;", "&;", "&#;", "&#x;", "&unknown;", "&szlig;", "&SZLIG;",
            "&Auml", "&auml;", "&AUML;", "&frac12;", "&NotEqualTilde;", "&fjlig;", "&#59;", "&ampersand", "&ltimes;", "&lt", "&sup2;", "&SUP2;", "&micro;",
            "&MICRO;", "&nTILDE;", "&imath;", "&amp;#39;", "&amp;amp;amp;amp;lt;", "<br>&eacute;", "&AMP;", "&thetav;", "&THETAV;", "& copy;", "&#x2019;t"]


def broken(text, rng):
    """The text read in the wrong encoding, once or twice."""
    for _ in range(1 + (rng.random() < 0.15)):
        for encoding in rng.sample(["latin-1", "sloppy-windows-1252"], 2):
            try:
                text = text.encode("utf-8").decode(encoding)
                break
            except UnicodeError:
                pass
    return text


def words(rng):
    return rng.choice(SENTENCES).split()


def synthetic(rng, count):
    """Corpora by name; each a list of texts."""
    def many(make):
        return [make() for _ in range(count)]

    def entities():
        parts = words(rng)
        for _ in range(rng.randint(1, 3)):
            parts.insert(rng.randint(0, len(parts)), rng.choice(ENTITIES))
        return rng.choice([" ", "", " "]).join(parts)

    def emoji():
        return " ".join(rng.choice(words(rng)) + chr(rng.randint(0x1F300, 0x1FAFF)) * rng.randint(1, 3) for _ in range(5))

    def accents():
        form = rng.choice(["NFC", "NFD", "NFKC", "NFKD"])
        return rng.choice([str, str.upper, str.title])(unicodedata.normalize(form, rng.choice(SENTENCES)))

    def wide():
        text = rng.choice(SENTENCES)
        if rng.random() < 0.5:
            text = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else "\u3000" if c == " " else c for c in text)
        return text + "".join(chr(rng.randint(0xFF01, 0xFFEE)) for _ in range(rng.randint(0, 6)))

    def controls():
        parts = list(rng.choice(SENTENCES))
        for _ in range(rng.randint(1, 6)):
            c = rng.choice([chr(rng.randint(0, 0x20)), "\x7f", "\x1b[31m", "\x1b[0m", "\ufeff", "\u200b", "\u2028", "\u206a", "\ufffc", "\r\n", "\x0b", "\u00ad", "\u3000"])
            parts.insert(rng.randint(0, len(parts)), c)
        return "".join(parts)

    def c1():
        parts = list(rng.choice(SENTENCES[:1] + SENTENCES[18:21]))
        for _ in range(rng.randint(1, 3)):
            parts.insert(rng.randint(0, len(parts)), chr(rng.randint(0x80, 0x9F)))
        return "".join(parts)

    def mojibake_partly():
        parts = rng.choice(SENTENCES).split(" ")
        return " ".join(broken(p, rng) if rng.random() < 0.5 else p for p in parts)

    def ligatures():
        return " ".join(rng.choice(words(rng)) + rng.choice("ﬀﬁﬂﬃﬄﬅﬆĲĳŉǱǲǳǄǅǆǇǈǉǊǋǌ") + rng.choice(["", "x", "ness"]) for _ in range(4))

    def quotes():
        return " ".join(rng.choice("‘’‚‛“”„‟ʼ'\"´`") + rng.choice(words(rng)) + rng.choice("‘’‚‛“”„‟ʼ'\"´`") for _ in range(4))

    def ascii_noise():
        return "".join(chr(rng.randint(32, 126)) for _ in range(rng.randint(1, 60)))

    return {
        "entities": many(entities), "emoji": many(emoji), "accents": many(accents), "full width": many(wide), "control characters": many(controls),
        "C1 controls": many(c1), "ligatures": many(ligatures), "quotes": many(quotes), "ASCII noise": many(ascii_noise),
        "mojibake": many(lambda: broken(rng.choice(SENTENCES), rng)), "mojibake in part": many(mojibake_partly),
    }


def code_points():
    """Every assigned character alone, and between letters."""
    for c in range(0x110000):
        ch = chr(c)
        if unicodedata.category(ch) not in ("Cn", "Cs", "Co"):
            yield "aΣ" + ch + "b " + ch


def real(paths):
    texts = []
    for path in paths:
        if ".tar" in path:
            with tarfile.open(path) as tar:
                texts += [tar.extractfile(m).read().decode() for m in tar if m.name.endswith(".txt")]
        else:
            with (gzip.open if path.endswith(".gz") else open)(path, "rt") as f:
                texts += [row["title"] for row in csv.DictReader(f, delimiter="\t")]
    return texts


# ---- comparison ------------------------------------------------------------------------------------------


def compare(name, texts, ours, theirs, show, must):
    equal = back = 0
    wrong = []
    for text in texts:
        a, b = ours.encode(text), theirs.encode(text)
        equal += a == b
        if a != b:
            wrong.append(text)
        back += ours.encode(ours.decode(a)) == a
    print(f"{name:20s} {len(texts):8d} texts  {equal:8d} equal ({100 * equal / max(1, len(texts)):.2f} %)  {back:8d} round trips")
    for text in wrong[:show]:
        print("   ", ascii(text), "\n      ours  ", ours.decode(ours.encode(text)), "\n      theirs", theirs.decode(theirs.encode(text)))
    return equal == len(texts) or not must


def speed(texts, ours, theirs, seconds, length=77):
    many = texts * (1 + 200000 // len(texts))
    pointers = (ctypes.c_char_p * len(many))(*[t.encode() for t in many])
    out = (ctypes.c_int32 * (len(many) * length))()
    ours.rows(pointers, len(many), length, out)
    wall, cpu = [], []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        t0, c0 = time.perf_counter(), time.process_time()
        ours.rows(pointers, len(many), length, out)
        wall.append(time.perf_counter() - t0)
        cpu.append(time.process_time() - c0)
    t0, c0 = time.perf_counter(), time.process_time()
    theirs(texts)
    peer, peer_cpu = time.perf_counter() - t0, time.process_time() - c0
    rate, per_core = len(many) / sorted(wall)[len(wall) // 2], len(many) / sorted(cpu)[len(cpu) // 2]
    print(f"speed                {rate / 1e6:.2f} M captions/s on {os.cpu_count()} cores, {per_core / 1e6:.2f} M per second of one core "
          f"(medians of {len(wall)} runs of {len(many)}); open_clip {len(texts) / peer / 1e3:.1f} k and {len(texts) / peer_cpu / 1e3:.1f} k")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lib", default=os.path.join(HERE, "..", "..", "build", "libcloob.so"))
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--captions", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--count", type=int, default=3000, help="texts per synthetic corpus")
    parser.add_argument("--show", type=int, default=0, help="unequal texts to show per corpus")
    parser.add_argument("--all-code-points", action="store_true")
    a = parser.parse_args()
    ours, theirs = Cloob(a.lib, a.vocab), SimpleTokenizer(a.vocab)
    with open(os.path.join(HERE, "..", "..", "tests", "ref", "tokenizer.json")) as f:
        cases = [c["text"] for c in json.load(f)["cases"]]
    captions = real(a.captions) or cases
    good = compare("tests/ref", cases, ours, theirs, a.show, True)
    good &= compare("captions", captions, ours, theirs, a.show, True)
    for name, texts in synthetic(random.Random(1), a.count).items():
        good &= compare(name, texts, ours, theirs, a.show, "mojibake" not in name and name != "C1 controls")
    if a.all_code_points:
        compare("every character", list(code_points()), ours, theirs, a.show, False)
    speed(captions, ours, theirs, a.seconds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
