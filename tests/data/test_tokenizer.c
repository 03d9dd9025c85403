/* The tokenizer: words, merges worked out by hand, small vocabularies, damaged files, and the ids that an
 * independent program gives texts of many kinds (tests/ref/tokenizer.json, tests/ref/make/make_tokenizer_ref.py). */
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "core/file.h"
#include "core/json.h"
#include "core/sbuf.h"
#include "data/text/unicode.h"
#include "data/text/tokenizer.h"
#include "data/text/tokenizer_impl.h"

static cloob_ctx *ctx;

/* Merges: "th", "the", "the" at a word's end, "in", "'s". Ids from 512 on. */
static const char tiny[] = "#version: 0.2\nt h\nth e\nth e</w>\ni n\n' s</w>\n";

static tokenizer *open_tiny(void)
{
    tokenizer *t = NULL;
    CHECK_OK(ctx, tokenizer_open_text(ctx, tiny, strlen(tiny), "tiny", &t));
    return t;
}

static void check_ids(const tokenizer *t, const char *text, const int32_t *expected, int64_t n)
{
    int32_t *ids;
    int64_t count;
    CHECK_OK(ctx, cloob_tokenizer_encode(ctx, t, text, strlen(text), &ids, &count));
    CHECK(count == n);
    if (count != n) printf("  \"%.60s\": %lld ids, expected %lld\n", text, (long long)count, (long long)n);
    for (int64_t i = 0; i < n && i < count; i++) {
        CHECK(ids[i] == expected[i]);
        if (ids[i] != expected[i])
            printf("  \"%.60s\": id %lld is %d, expected %d\n", text, (long long)i, ids[i], expected[i]);
    }
    free(ids);
}

#define CHECK_IDS(t, text, ...)                                                                                        \
    check_ids(t, text, (const int32_t[]){ __VA_ARGS__ }, sizeof((const int32_t[]){ __VA_ARGS__ }) / sizeof(int32_t))

/* '!' is byte 33 and id 0, so a printable ASCII character c has id c - 33, and c - 33 + 256 at a word's end.
 */
static void merges_by_hand(void)
{
    tokenizer *t = open_tiny();
    CHECK(cloob_tokenizer_vocab_size(t) == 512 + 5 + 2);
    CHECK_IDS(t, "the", 514);
    CHECK_IDS(t, "The THE", 514, 514);
    CHECK_IDS(t, "then", 513, 'n' - 33 + 256);
    CHECK_IDS(t, "inthe", 515, 514);
    CHECK_IDS(t, "it's", 'i' - 33, 't' - 33 + 256, 516);
    CHECK_IDS(t, "12", '1' - 33 + 256, '2' - 33 + 256);
    CHECK_IDS(t, "a!?b", 'a' - 33 + 256, '!' - 33, '?' - 33 + 256, 'b' - 33 + 256);
    CHECK_IDS(t, "<start_of_text>the<end_of_text>", 517, 514, 518);
    check_ids(t, "", NULL, 0);
    check_ids(t, " \t\n ", NULL, 0);
    cloob_tokenizer_close(t);
}

static void rows_are_padded_and_cut(void)
{
    tokenizer *t = open_tiny();
    int32_t row[6];
    static const int32_t padded[6] = { 517, 514, 514, 518, 0, 0 }, cut[4] = { 517, 514, 514, 518 };
    CHECK_OK(ctx, tokenizer_encode_row(ctx, t, "the the", 7, 6, row));
    CHECK(memcmp(row, padded, sizeof padded) == 0);
    row[4] = 77; /* a guard past the row */
    CHECK_OK(ctx, tokenizer_encode_row(ctx, t, "the the the the", 15, 4, row));
    CHECK(memcmp(row, cut, sizeof cut) == 0 && row[4] == 77);
    CHECK_OK(ctx, tokenizer_encode_row(ctx, t, "the", 3, 1, row));
    CHECK(row[0] == 518);
    CHECK(tokenizer_encode_row(ctx, t, "the", 3, 0, row) == CLOOB_ERR_ARGUMENT);
    cloob_tokenizer_close(t);
}

static void rows_on_threads_equal_rows_alone(void)
{
    enum { N = 3000, L = 12 };
    static const char *const some[] = { "the thin man's hat", "", "in the 21st century!", "caf\xc3\xa9 &amp; bar",
                                        "anything else" };
    tokenizer *t = open_tiny();
    cloob_ctx_options o;
    cloob_ctx_options_init(&o);
    o.threads = 4;
    cloob_ctx *many = cloob_ctx_create(&o);
    const char **text = malloc(N * sizeof *text);
    int32_t *rows = malloc(N * L * sizeof *rows), row[L];
    for (int i = 0; i < N; i++) text[i] = some[i % 5];
    CHECK_OK(many, cloob_tokenizer_encode_rows(many, t, text, N, L, rows));
    for (int i = 0; i < N; i++) {
        CHECK_OK(ctx, tokenizer_encode_row(ctx, t, text[i], strlen(text[i]), L, row));
        CHECK(memcmp(row, rows + i * L, sizeof row) == 0);
    }
    CHECK_OK(many, cloob_tokenizer_encode_rows(many, t, text, 0, L, rows));
    free(text);
    free(rows);
    cloob_ctx_destroy(many);
    cloob_tokenizer_close(t);
}

static void check_round_trip(const tokenizer *t, const char *text)
{
    int32_t *ids, *again;
    int64_t n, m;
    char *out;
    CHECK_OK(ctx, cloob_tokenizer_encode(ctx, t, text, strlen(text), &ids, &n));
    CHECK_OK(ctx, cloob_tokenizer_decode(ctx, t, ids, n, &out));
    CHECK_OK(ctx, cloob_tokenizer_encode(ctx, t, out, strlen(out), &again, &m));
    CHECK(n == m && memcmp(ids, again, (size_t)n * sizeof *ids) == 0);
    free(out);
    free(ids);
    free(again);
}

static void decoding_gives_the_text_back(void)
{
    static const char *const texts[] = { "the thin man's hat!", "caf\xc3\xa9 \xf0\x9f\x98\x80 1234",
                                         "a\xe2\x80\x99s \"b\" ...", "\xff\xfe broken", "" };
    tokenizer *t = open_tiny();
    char *out;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check_round_trip(t, texts[i]);
    CHECK_OK(ctx, cloob_tokenizer_decode(ctx, t, (const int32_t[]){ 517, 514, 515, 514, 518 }, 5, &out));
    CHECK_STR(out, "the inthe");
    free(out);
    CHECK(cloob_tokenizer_decode(ctx, t, (const int32_t[]){ 519 }, 1, &out) == CLOOB_ERR_ARGUMENT && !out);
    CHECK(cloob_tokenizer_decode(ctx, t, (const int32_t[]){ -1 }, 1, &out) == CLOOB_ERR_ARGUMENT && !out);
    cloob_tokenizer_close(t);
}

/* ---- merges files ---------------------------------------------------------------------------------- */

static void check_refused(const char *text, size_t size, const char *why)
{
    tokenizer *t = NULL;
    CHECK(tokenizer_open_text(ctx, text, size, "file", &t) == CLOOB_ERR_FORMAT);
    CHECK(t == NULL);
    CHECK(strstr(cloob_error(ctx), why) != NULL);
    if (!strstr(cloob_error(ctx), why)) printf("  said: %s\n", cloob_error(ctx));
}

static void damaged_merges_are_refused(void)
{
    static const char *const cases[][2] = {
        { "", "empty" },
        { "a b\n", "#version" },
        { "#version\nab\n", "two symbols" },
        { "#version\na  b\n", "two symbols" },
        { "#version\na b c\n", "two symbols" },
        { "#version\nqu x\n", "no earlier line" },
        { "#version\na b\na b\n", "already makes this token" },
        { "#version\na</w> b\n", "ends a word" },
        { "#version\n\xff b\n", "invalid character" },
        { "#version\n\xe2\x82\xac b\n", "invalid character" },
        { "#version\na b\n\nc d\n", "two symbols" },
        { "#version: 0.2 cloob merges=2 clean=full\na b\n", "cut short" },
        { "#version: 0.2 cloob merges=1 clean=full\na b\nc d\n", "after the last" },
        { "#version: 0.2 cloob merges=-5 clean=full\na b\n", "out of range" },
        { "\"bpe_simple_vocab_16e6.txt#version: 0.2\ni n\n", "cut short" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(cases[i][0], strlen(cases[i][0]), cases[i][1]);
    check_refused("#version\na \0b\n", 14, "invalid character");
}

/* Each line doubles the token: 2^20 lines would be as many bytes. */
static void tokens_cannot_explode(void)
{
    sbuf s = { 0 }, token = { 0 };
    sbuf_puts(&s, "#version\n");
    sbuf_puts(&token, "a");
    for (int i = 0; i < 14; i++) {
        sbuf_printf(&s, "%s %s\n", token.data, token.data);
        sbuf twice = { 0 };
        sbuf_printf(&twice, "%s%s", token.data, token.data);
        sbuf_release(&token);
        token = twice;
    }
    tokenizer *t;
    CHECK(tokenizer_open_text(ctx, s.data, s.len, "bomb", &t) == CLOOB_ERR_FORMAT);
    sbuf_release(&s);
    sbuf_release(&token);
}

static void files_are_refused_by_name(void)
{
    tokenizer *t = NULL;
    char path[] = "/tmp/cloob_test_XXXXXX";
    int fd = mkstemp(path);
    CHECK(cloob_tokenizer_open(ctx, "/nowhere/merges.txt", &t) == CLOOB_ERR_IO && t == NULL);
    CHECK(write(fd, "\x1f\x8b\x08\0\0\0\0\0\0\3broken", 16) == 16);
    cloob_status s = cloob_tokenizer_open(ctx, path, &t);
    CHECK((s == CLOOB_ERR_FORMAT || s == CLOOB_ERR_UNSUPPORTED) && t == NULL);
    CHECK(strstr(cloob_error(ctx), path) != NULL);
    close(fd);
    unlink(path);
}

static void saving_and_reading_back_is_the_same(void)
{
    tokenizer *t = open_tiny(), *again = NULL;
    sbuf text = { 0 }, second = { 0 };
    tokenizer_set_clean(t, CLEAN_BASIC);
    tokenizer_save(t, &text);
    CHECK_OK(ctx, tokenizer_open_text(ctx, text.data, text.len, "saved", &again));
    CHECK(tokenizer_clean(again) == CLEAN_BASIC);
    CHECK(cloob_tokenizer_vocab_size(again) == cloob_tokenizer_vocab_size(t));
    tokenizer_save(again, &second);
    CHECK_STR(second.data, text.data);
    check_refused(text.data, text.len - 4, "cut short"); /* "' s" for "' s</w>": two symbols all the same */
    sbuf_release(&text);
    sbuf_release(&second);
    cloob_tokenizer_close(t);
    cloob_tokenizer_close(again);
}

/* ---- learning -------------------------------------------------------------------------------------- */

/* "low" 5 times, "lower" 2, "newest" 6, "widest" 3 (the example of the paper that brought byte pairs to
 * words): (e, s) and (es, t at the end) come first, with 9 each; ties fall to the smaller ids. */
static void learning_by_hand(void)
{
    const char *text[16];
    int n = 0;
    for (int i = 0; i < 5; i++) text[n++] = "Low";
    for (int i = 0; i < 2; i++) text[n++] = "lower";
    for (int i = 0; i < 6; i++) text[n++] = "newest";
    for (int i = 0; i < 3; i++) text[n++] = "widest";
    tokenizer *t = NULL;
    sbuf out = { 0 };
    CHECK_OK(ctx, tokenizer_train_texts(ctx, text, n, 514 + 4, &t));
    tokenizer_save(t, &out);
    CHECK(strncmp(out.data, "#version: 0.2 cloob merges=4 clean=full hash=", 45) == 0);
    CHECK_STR(strchr(out.data, '\n') ? strchr(out.data, '\n') : "", "\ne s\nes t</w>\nl o\ne w");
    CHECK(cloob_tokenizer_vocab_size(t) == 518);
    sbuf_release(&out);
    cloob_tokenizer_close(t);
}

static void learning_refuses_what_cannot_be(void)
{
    const char *text[] = { "a b c" }, *blank[] = { " ", "" };
    tokenizer *t = NULL;
    CHECK(tokenizer_train_texts(ctx, text, 1, 513, &t) == CLOOB_ERR_ARGUMENT && t == NULL);
    CHECK(strstr(cloob_error(ctx), "514") != NULL);
    CHECK(tokenizer_train_texts(ctx, text, 1, 1 << 30, &t) == CLOOB_ERR_ARGUMENT && t == NULL);
    CHECK(tokenizer_train_texts(ctx, blank, 2, 600, &t) == CLOOB_ERR_FORMAT && t == NULL);
    CHECK(cloob_tokenizer_train(ctx, "/nowhere/captions.txt", 600, &t) == CLOOB_ERR_IO && t == NULL);
    CHECK_OK(ctx, tokenizer_train_texts(ctx, text, 1, 600, &t)); /* nothing occurs twice: bytes alone */
    CHECK(cloob_tokenizer_vocab_size(t) == 514);
    cloob_tokenizer_close(t);
}

static tokenizer *learned_from(const char *content, int threads)
{
    char path[] = "/tmp/cloob_test_XXXXXX";
    close(mkstemp(path));
    tokenizer *t = NULL;
    cloob_ctx_options o;
    cloob_ctx_options_init(&o);
    o.threads = threads;
    cloob_ctx *c = cloob_ctx_create(&o);
    CHECK_OK(ctx, file_write(ctx, path, content, strlen(content)));
    CHECK_OK(c, cloob_tokenizer_train(c, path, 700, &t));
    cloob_ctx_destroy(c);
    unlink(path);
    return t;
}

static void lines_and_tables_learn_the_same(void)
{
    sbuf lines = { 0 }, table = { 0 }, a = { 0 }, b = { 0 }, c = { 0 };
    sbuf_puts(&table, "filepath\ttitle\n");
    for (int i = 0; i < 5000; i++) {
        sbuf_printf(&lines, "a photo of %d cats and dog number %d\n", i % 7, i % 11);
        sbuf_printf(&table,
                    i % 2 ? "x/%d.jpg\ta photo of %d cats and dog number %d\r\n"
                          : "\"y\t%d\"\t\"a photo of %d cats and dog number %d\"\n",
                    i, i % 7, i % 11);
    }
    tokenizer *one = learned_from(lines.data, 1), *four = learned_from(lines.data, 4),
              *tab = learned_from(table.data, 2);
    tokenizer_save(one, &a);
    tokenizer_save(four, &b);
    tokenizer_save(tab, &c);
    CHECK_STR(b.data, a.data);
    CHECK_STR(c.data, a.data);
    check_round_trip(one, "seven cats and a dog's photo, number 9");
    cloob_tokenizer_close(one);
    cloob_tokenizer_close(four);
    cloob_tokenizer_close(tab);
    sbuf_release(&lines), sbuf_release(&table), sbuf_release(&a), sbuf_release(&b), sbuf_release(&c);
}

/* ---- transformers' file ---------------------------------------------------------------------------- */

static void put_quoted(sbuf *s, const char *text, size_t n)
{
    char symbol[64];
    snprintf(symbol, sizeof symbol, "%.*s", (int)n, text);
    json_print_string(s, symbol);
}

/* The tiny vocabulary as a tokenizer.json. */
static tokenizer *open_tiny_json(const tokenizer *t)
{
    sbuf s = { 0 };
    tokenizer *out = NULL;
    const char *line = strchr(tiny, '\n') + 1;
    sbuf_puts(&s, "{\"model\":{\"type\":\"BPE\",\"merges\":[");
    for (const char *end, *gap; *line; line = end + 1) {
        end = strchr(line, '\n'), gap = strchr(line, ' ');
        sbuf_puts(&s, s.data[s.len - 1] == ']' ? ",[" : "[");
        put_quoted(&s, line, (size_t)(gap - line)), sbuf_putc(&s, ',');
        put_quoted(&s, gap + 1, (size_t)(end - gap - 1)), sbuf_putc(&s, ']');
    }
    sbuf_puts(&s, "],\"vocab\":{");
    for (int32_t id = 0; id < t->p.count; id++) {
        const piece_row *e = &t->p.piece[id];
        sbuf_puts(&s, id ? "," : "");
        put_quoted(&s, t->p.text.data + e->at, e->bytes), sbuf_printf(&s, ":%d", id);
    }
    sbuf_puts(&s, "}}}");
    CHECK_OK(ctx, tokenizer_read_json(ctx, s.data, s.len, "tokenizer.json", NULL, &out));
    sbuf_release(&s);
    return out;
}

static int64_t count_of(const tokenizer *t, const char *text, int32_t id)
{
    int32_t *ids;
    int64_t n, count = 0;
    CHECK_OK(ctx, cloob_tokenizer_encode(ctx, t, text, strlen(text), &ids, &n));
    for (int64_t i = 0; i < n; i++) count += ids[i] == id;
    free(ids);
    return count;
}

/* A special name in a text is the special token where the program that the vocabulary comes from takes it for one. */
static void special_names_follow_their_program(void)
{
    tokenizer *merges = open_tiny(), *hf = open_tiny_json(merges);
    int32_t start = cloob_tokenizer_start_id(merges), end = cloob_tokenizer_end_id(merges);
    if (!hf) return;
    CHECK(count_of(merges, "a <start_of_text> b <END_OF_TEXT>", start) == 1);
    CHECK(count_of(merges, "a <start_of_text> b <END_OF_TEXT>", end) == 1);
    CHECK(count_of(merges, "<|startoftext|> <|endoftext|>", start) == 0);
    CHECK(count_of(merges, "<|startoftext|> <|endoftext|>", end) == 0);
    CHECK(count_of(hf, "<|startoftext|>a<|endoftext|><|endoftext|>", start) == 1);
    CHECK(count_of(hf, "<|startoftext|>a<|endoftext|><|endoftext|>", end) == 2);
    CHECK(count_of(hf, "<|STARTOFTEXT|> <|endoftext", start) == 0 && count_of(hf, "<|endoftext", end) == 0);
    CHECK(count_of(hf, "<start_of_text>", start) == 0);
    CHECK(count_of(hf, "&amp;", ';' - '!' + BYTES) == 1 && count_of(merges, "&amp;", ';' - '!' + BYTES) == 0);
    cloob_tokenizer_close(merges), cloob_tokenizer_close(hf);
}

static void the_cleaning_mode_is_saved(void)
{
    tokenizer *t = open_tiny(), *again;
    sbuf s = { 0 };
    tokenizer_set_clean(t, CLEAN_HF);
    tokenizer_save(t, &s);
    CHECK_OK(ctx, tokenizer_open_text(ctx, s.data, s.len, "saved", &again));
    CHECK(tokenizer_clean(again) == CLEAN_HF);
    cloob_tokenizer_close(t), cloob_tokenizer_close(again);
    sbuf_release(&s);
}

/* ---- size ------------------------------------------------------------------------------------------ */

static void one_word_of_ten_megabytes(void)
{
    size_t n = 10 << 20;
    char *text = malloc(n);
    tokenizer *t = open_tiny();
    int32_t *ids;
    int64_t count;
    for (size_t i = 0; i < n; i++) text[i] = "theinthet"[i % 9];
    clock_t begin = clock();
    CHECK_OK(ctx, cloob_tokenizer_encode(ctx, t, text, n, &ids, &count));
    CHECK((double)(clock() - begin) / CLOCKS_PER_SEC <
          30); /* seconds even under a sanitizer; quadratic would be hours */
    CHECK(count > 0 && count < (int64_t)n);
    CHECK(ids[0] == 513 && ids[1] == 515 && ids[2] == 513);
    free(ids);
    free(text);
    cloob_tokenizer_close(t);
}

/* ---- CLIP's algorithm ------------------------------------------------------------------------------ */

static tokenizer *open_frozen(const json *merges)
{
    sbuf text = { 0 };
    tokenizer *t = NULL;
    sbuf_puts(&text, "#version: 0.2\n");
    for (const json *m = merges ? merges->child : NULL; m; m = m->next) sbuf_printf(&text, "%s\n", json_string(m));
    CHECK_OK(ctx, tokenizer_open_text(ctx, text.data, text.len, "tokenizer.json", &t));
    sbuf_release(&text);
    return t;
}

static void check_case(const tokenizer *t, const json *c)
{
    int32_t expected[512];
    int64_t n = 0, value;
    for (const json *id = json_get(c, "ids")->child; id && n < 512; id = id->next)
        if (json_int(id, &value)) expected[n++] = (int32_t)value;
    check_ids(t, json_string(json_get(c, "text")), expected, n);
}

static void equal_to_an_independent_program(void)
{
    arena a = { 0 };
    json *root = NULL;
    int64_t cases = 0;
    CHECK_OK(ctx, json_read_file(ctx, &a, TESTS_DIR "/ref/tokenizer.json", &root));
    const json *merges = json_get(root, "merges");
    tokenizer *t = open_frozen(merges);
    CHECK(t && cloob_tokenizer_vocab_size(t) == 512 + merges->count + 2);
    CHECK(cloob_tokenizer_start_id(t) == 512 + merges->count && cloob_tokenizer_end_id(t) == 513 + merges->count);
    tokenizer_set_clean(t, CLEAN_BASIC);
    for (const json *c = json_get(root, "cases")->child; c && uni_complete(); c = c->next, cases++) check_case(t, c);
    CHECK(cases > 20 || !uni_complete());
    arena_release(&a);
    cloob_tokenizer_close(t);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(merges_by_hand);
    RUN(rows_are_padded_and_cut);
    RUN(rows_on_threads_equal_rows_alone);
    RUN(decoding_gives_the_text_back);
    RUN(damaged_merges_are_refused);
    RUN(tokens_cannot_explode);
    RUN(files_are_refused_by_name);
    RUN(saving_and_reading_back_is_the_same);
    RUN(learning_by_hand);
    RUN(learning_refuses_what_cannot_be);
    RUN(lines_and_tables_learn_the_same);
    RUN(special_names_follow_their_program);
    RUN(the_cleaning_mode_is_saved);
    RUN(one_word_of_ten_megabytes);
    RUN(equal_to_an_independent_program);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
