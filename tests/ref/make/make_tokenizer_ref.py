#!/usr/bin/env python3
"""Makes tests/ref/tokenizer.json: merges learned from a few sentences, and the ids that CLIP's algorithm gives
texts of many kinds with them, by an independent program.

    python3 tests/ref/make/make_tokenizer_ref.py             needs regex (pip install regex)

Texts are cleaned as CLIP does it without ftfy: HTML unescaped twice, white space collapsed, lower case."""
import collections
import html
import json
import pathlib

import regex

WORD = regex.compile(r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", regex.IGNORECASE)
LEARN = ["a photo of a small red ball on the beach", "two dogs run along the beach and the ball rolls away", "the dog's ball isn't red, it's blue",
         "Zwei Mädchen spielen Ball am Strand", "Собака бежит по пляжу", "犬が海辺を走っている", "a drawing of three green houses in the snow",
         "the houses, the trees and the bridge in the evening light", "reading, running, jumping, singing in the morning"]
TEXTS = LEARN + ["", "   ", "THE BEACH", "They're running!!! 123 balls... isn't it? we'd've", "&amp;amp; &lt;b&gt; &quot;dog&quot; &#39;s", "tabs\tand\nlines  too",
                 "naïve café, 20 °C, ½ cup", "emoji 😀🎉 ❤️ flags 🇩🇪", "Ο ΣΚΥΛΟΣ τρέχει στην παραλία", "一只狗在海滩上奔跑", "كلب يجري على الشاطئ", "สุนัขวิ่ง",
 "under_scores-and-dashes/slashes", "x" * 60, "ﬀﬁ Ünïcödé ẞtraße", "'s't're", "0123456789", "a.b,c;d:e"]
MERGES = 200


def byte_letters():
    """A printable letter for each byte, in the order of ids: printable Latin-1 first."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


LETTER = byte_letters()


def words(text):
    text = html.unescape(html.unescape(text)).strip()
    return WORD.findall(" ".join(text.split()).strip().lower())


def symbols(word):
    s = [LETTER[b] for b in word.encode()]
    return s[:-1] + [s[-1] + "</w>"]


def merge(s, pair):
    out, i = [], 0
    while i < len(s):
        both = i + 1 < len(s) and (s[i], s[i + 1]) == pair
        out.append(s[i] + s[i + 1] if both else s[i])
        i += 2 if both else 1
    return out


def learn():
    counts, merges = collections.Counter(w for t in LEARN for w in words(t)), []
    state = {w: symbols(w) for w in counts}
    for _ in range(MERGES):
        pairs = collections.Counter()
        for w, s in state.items():
            for pair in zip(s, s[1:]):
                pairs[pair] += counts[w]
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        state = {w: merge(s, best) for w, s in state.items()}
    return merges


def encode(text, merges):
    names = [*LETTER.values(), *(v + "</w>" for v in LETTER.values()), *(a + b for a, b in merges), "<|startoftext|>", "<|endoftext|>"]
    ids, rank, out = {n: i for i, n in enumerate(names)}, {p: i for i, p in enumerate(merges)}, []
    for w in words(text):
        if w in ("<|startoftext|>", "<|endoftext|>"):
            out.append(ids[w])
            continue
        s = symbols(w)
        while len(s) > 1:
            best = min(zip(s, s[1:]), key=lambda p: rank.get(p, len(rank)))
            if best not in rank:
                break
            s = merge(s, best)
        out += [ids[x] for x in s]
    return out


merges = learn()
cases = [dict(text=t, ids=encode(t, merges)) for t in TEXTS]
out = pathlib.Path(__file__).resolve().parents[1] / "tokenizer.json"
out.write_text(json.dumps(dict(merges=[" ".join(m) for m in merges], cases=cases), indent=None, ensure_ascii=True, separators=(",", ":")).replace("},{", "},\n{") + "\n")
