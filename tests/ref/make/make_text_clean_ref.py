#!/usr/bin/env python3
"""Writes tests/ref/text_clean.json: texts, and the output of open_clip's clean-up (ftfy included) for them.

Needs open_clip and ftfy. Each entry: text, full (as open_clip), basic (without ftfy).
"""
import html
import json
import os

import ftfy
import ftfy.bad_codecs  # noqa: F401  the sloppy encodings

TEXTS = [
    "A Photo  of\ta\nCAT ", "", "   ", "don’t “quote” ‘me’ ‚low‘ „base“", "ﬁsh ﬂies oﬀ the eﬃcient baﬄe ﬅ ﬆ", "Ĳsselmeer ŉ Ǆ ǅ ǆ ǈ ǳ",
    "ＦＵＬＬ　ｗｉｄｔｈ ！（１２３）", "ｶﾀｶﾅ ﾊﾞﾅﾅ ￡５ ￣", "cafe\u0301 A\u030a n\u0303 \u1100\u1161\u11a8", "a\u0323\u0307 a\u0307\u0323", "İstanbul ISPARTA ıstanbul",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ Σ ΑΣ. ΑΣ’ ΑΣΑ", "&lt;b&gt; &amp;amp; &quot;x&quot; &copy 2020 &notit; &#39;s", "caf&eacute; CAF&EACUTE; STRA&SZLIG;E &nTILDE; &MICRO;",
    "&#8217; &#x1F600; &#128; &#0; &#xD800; &#12ab; &#59; &;", "a < b &amp;lt; c", "line one &eacute;\nline <b> two &eacute;\nthree &amp;eacute;",
    "schÃ¶n itâ€™s Ã¼ber naÃ¯ve", "voilÃ le travail, Ã la carte", "twice: ÃƒÂ© and itÃ¢â‚¬â„¢s", "ÐŸÑ€Ð¸Ð²ÐµÑ‚ Ð¼Ð¸Ñ€", "emoji ðŸ˜€ and ðŸŽ‰ 😀🎉",
    "CAFÉ” É™ voilà… “DÉJÀ VU” Ä, Å and Â", "a C1 \x93quote\x94 \x96 dash\x85", "na\u00efve fa\u00e7ade \u00e9 \u00c9 \u00df", "bell\x07 nul esc\x1b[31mred\x1b[0m \x0bvt \x7fdel",
    "\ufeffbom zero\u200bwidth soft\u00adhyphen \u206anothing \ufff9\ufffc", "nbsp\u00a0here\u2003em\u3000wide\u2028line\u0085nel", "l·l µm Ω ½ ² ³ ① ﷺ",
    "lost: â€œquoteâ€� and Ã?", "spaces Â here Â , 2Â km", "日本語 中文 한국어 العربية हिन्दी ไทย", "<start_of_text> & <end_of_text>", "MAÇÃ” Ã¡ Ã ", "x²+y² Ø§Ù„Ø¹Ø±Ø¨ÙŠØ©",
    "í ½í¸€ surrogates as characters", "ŠŽšž Œœ Ÿ “œuvre”", "&amp;amp;amp;amp;lt;",
]
# whole texts and single words read in each of the encodings that ftfy turns back
for e in ["sloppy-windows-125%d" % i for i in (0, 1, 2, 3, 4, 7)] + ["iso-8859-2", "macroman", "cp437"]:
    for t in "l’été “à Köln” – 5 €", "Żółta łódź, Привет мир", "İstanbul'da güneşli bir gün ağaçlar", "Ο σκύλος τρέχει":
        TEXTS.append(t.encode().decode(e, "replace"))
        TEXTS.append("a dog and " + t.split()[0].encode().decode(e, "replace") + " ran, ½ š")
TEXTS += ["Â\x93 ‚Äì √© вЂ” РџС‚ β€™ ā€", "│╣ ÉÀ ░ ╚ box", "ГўВЂВњx", "Ã\ufffd\x1a? ï¿½", "\xc0\x80 Ã€ ÃŸ"]


def fold(text):
    return " ".join(html.unescape(html.unescape(text)).strip().split()).strip().lower()


here = os.path.dirname(os.path.abspath(__file__))
cases = [{"text": t, "full": fold(ftfy.fix_text(t)), "basic": fold(t)} for t in TEXTS]
with open(os.path.join(here, "..", "text_clean.json"), "w") as out:
    out.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=True) for c in cases) + "\n]\n")
