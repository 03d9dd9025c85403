/* Cleaning against frozen values of open_clip and ftfy (tests/ref/text_clean.json), and what no text may do
 * to it. */
#include <time.h>

#include "check.h"
#include "core/json.h"
#include "data/text/clean.h"
#include "data/text/unicode.h"
#include "data/text/tokenizer.h"

static cloob_ctx *ctx;

static char *cleaned(clean_mode mode, const char *text, size_t bytes)
{
    sbuf out = { 0 };
    sbuf_puts(&out, "");
    CHECK_OK(ctx, text_clean(ctx, mode, text, bytes, &out));
    char *result = sbuf_detach(&out);
    return result;
}

static void check_clean(clean_mode mode, const char *text, const char *expected)
{
    char *got = cleaned(mode, text, strlen(text));
    CHECK_STR(got, expected);
    free(got);
}

static void equal_to_frozen(void)
{
    arena a = { 0 };
    json *root;
    if (!uni_complete()) SKIP("built without utf8proc");
    CHECK_OK(ctx, json_read_file(ctx, &a, TESTS_DIR "/ref/text_clean.json", &root));
    CHECK(root->count > 30);
    for (const json *c = root->child; c; c = c->next) {
        check_clean(CLEAN_FULL, json_string(json_get(c, "text")), json_string(json_get(c, "full")));
        check_clean(CLEAN_BASIC, json_string(json_get(c, "text")), json_string(json_get(c, "basic")));
    }
    arena_release(&a);
}

static void ascii_needs_no_library(void)
{
    check_clean(CLEAN_FULL, "  A  Photo\tof &amp;amp; \n CATS ", "a photo of & cats");
    check_clean(CLEAN_FULL, "bell\a \x1b[1mbold\x1b[0m", "bell bold");
    check_clean(CLEAN_BASIC, " \t\r\n ", "");
    check_clean(CLEAN_FULL, "Z \r\n", "z");
}

static void invalid_bytes_become_replacement(void)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        { "a\xff"
          "b",
          "a\xef\xbf\xbd"
          "b" },
        { "\xe2\x82", "\xef\xbf\xbd" }, /* broken off */
        { "\xe2\x82z", "\xef\xbf\xbdz" },
        { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* a surrogate */
        { "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd" },                 /* overlong */
        { "\xf0\x9f\x98", "\xef\xbf\xbd" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_clean(CLEAN_BASIC, cases[i].text, cases[i].expected);
}

static void zero_bytes_are_characters(void)
{
    sbuf out = { 0 };
    CHECK_OK(ctx, text_clean(ctx, CLEAN_BASIC, "a\0b", 3, &out));
    CHECK(out.len == 3 && memcmp(out.data, "a\0b", 3) == 0);
    out.len = 0;
    CHECK_OK(ctx, text_clean(ctx, CLEAN_FULL, "a\0b", 3, &out));
    CHECK(out.len == 2 && memcmp(out.data, "ab", 2) == 0);
    sbuf_release(&out);
}

/* A text of many repetitions; cleaning must stay linear. The bound is ten times what a slow machine needs. */
static void check_linear(const char *piece, size_t bytes)
{
    size_t n = strlen(piece), total = bytes / n * n;
    char *text = malloc(total);
    for (size_t i = 0; i < total; i++) text[i] = piece[i % n];
    clock_t begin = clock();
    free(cleaned(CLEAN_FULL, text, total));
    CHECK((double)(clock() - begin) / CLOCKS_PER_SEC < 20);
    free(text);
}

static void long_texts_take_linear_time(void)
{
    static const char *const pieces[] = { "amp;",      "&amp;",     "\xc3\x83", "\xcc\x81\xcc\xa3", "\xc3\xa9",
                                          "&#38;#38;", "\xce\xa3'", "\x1b[",    "&aaaaaaaa" };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) check_linear(pieces[i], 400000);
}

/* transformers' tokenizers normalize by Unicode 9: U+1AC3 is a mark since Unicode 14 and stays behind U+08DF, where
 * U+0316 goes before U+0345. */
static void recent_marks_stay_in_place(void)
{
    if (!uni_complete()) SKIP("built without utf8proc");
    check_clean(CLEAN_HF, "a\xe0\xa3\x9f\xe1\xab\x83", "a\xe0\xa3\x9f\xe1\xab\x83");
    check_clean(CLEAN_HF, "a\xcd\x85\xcc\x96", "a\xcc\x96\xcd\x85");
    check_clean(CLEAN_HF, "e\xcc\x81\xe1\xab\x83", "\xc3\xa9\xe1\xab\x83");
    check_clean(CLEAN_HF, "e\xe1\xab\x83\xcc\x81", "e\xe1\xab\x83\xcc\x81");
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(equal_to_frozen);
    RUN(recent_marks_stay_in_place);
    RUN(ascii_needs_no_library);
    RUN(invalid_bytes_become_replacement);
    RUN(zero_bytes_are_characters);
    RUN(long_texts_take_linear_time);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
