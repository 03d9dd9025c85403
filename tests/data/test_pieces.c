/* SentencePiece vocabularies: ids frozen from libsentencepiece, rows as SigLIP takes them, our text form,
 * tokenizer.json, and damage. */
#include "check.h"

#include "core/file.h"
#include "data/text/tokenizer_impl.h"
#include "core/json.h"

static cloob_ctx *ctx;

static tokenizer *read_model(const char *path)
{
    tokenizer *t = NULL;
    file_bytes f;
    CHECK_OK(ctx, file_read(ctx, path, 1 << 24, &f));
    CHECK(pieces_is_model(f.data, f.size));
    CHECK_OK(ctx, pieces_read_model(ctx, f.data, f.size, path, &t));
    file_bytes_release(&f);
    return t;
}

static void compare_ids(const int32_t *ids, int64_t n, const char *text, const json *want)
{
    bool same = n == want->count;
    int64_t id;
    for (const json *e = want->child; e && same; e = e->next) same = json_int(e, &id) && *ids++ == id;
    if (!same) printf("  \"%s\" differs\n", text);
    CHECK(same);
}

static void check_ids(const pieces *p, const char *text, const json *want)
{
    sbuf ids = { 0 };
    CHECK_OK(ctx, pieces_encode(ctx, p, text, strlen(text), false, &ids));
    compare_ids((const int32_t *)(const void *)ids.data, (int64_t)(ids.len / 4), text, want);
    sbuf_release(&ids);
}

static void check_siglip_ids(const tokenizer *t, const char *text, const json *want)
{
    int32_t *ids;
    int64_t n;
    CHECK_OK(ctx, cloob_tokenizer_encode(ctx, t, text, strlen(text), &ids, &n));
    compare_ids(ids, n, text, want);
    free(ids);
}

/* tests/ref/pieces.json: tests/ref/make/make_pieces_ref.py */
static void ids_are_libsentencepieces(void)
{
    arena a = { 0 };
    json *root;
    CHECK_OK(ctx, json_read_file(ctx, &a, TESTS_DIR "/ref/pieces.json", &root));
    static const char *const kinds[] = { "unigram", "bpe" };
    for (int k = 0; k < 2; k++) {
        char path[512];
        snprintf(path, sizeof path, "%s/ref/pieces_%s.model", TESTS_DIR, kinds[k]);
        tokenizer *t = read_model(path), *again = NULL;
        sbuf saved = { 0 };
        pieces_save(t, &saved);
        CHECK(pieces_is_text(saved.data, saved.len));
        CHECK_OK(ctx, pieces_read_text(ctx, saved.data, saved.len, "saved", &again));
        CHECK(again->p.count == t->p.count && again->suffix[0] == 1 && again->pad == (k ? 0 : 1));
        const json *want = json_get(root, kinds[k])->child;
        for (const json *x = json_get(root, "texts")->child; x; x = x->next, want = want->next) {
            check_ids(&t->p, json_string(x), want);
            check_ids(&again->p, json_string(x), want);
        }
        sbuf_release(&saved);
        cloob_tokenizer_close(t), cloob_tokenizer_close(again);
    }
    arena_release(&a);
}

/* Paths of equal scores, between which rounding decides, and a user-defined piece. */
static void ties_are_resolved_as_libsentencepiece_does(void)
{
    arena a = { 0 };
    json *root;
    CHECK_OK(ctx, json_read_file(ctx, &a, TESTS_DIR "/ref/pieces.json", &root));
    tokenizer *t = read_model(TESTS_DIR "/ref/pieces_ties.model");
    const json *texts = json_get(root, "tie_texts"), *want = json_first(json_get(root, "ties"));
    CHECK(json_count(texts) == 33);
    for (const json *x = json_first(texts); x; x = json_next(x), want = json_next(want))
        check_ids(&t->p, json_string(x), want);
    want = json_first(json_get(root, "ties_siglip"));
    CHECK_OK(ctx, pieces_set_siglip(ctx, t));
    for (const json *x = json_first(texts); x; x = json_next(x), want = json_next(want))
        check_siglip_ids(t, json_string(x), want);
    cloob_tokenizer_close(t);
    arena_release(&a);
}

static void rows_end_and_are_padded_as_in_siglip(void)
{
    tokenizer *t;
    int32_t row[8], cut[3];
    CHECK_OK(ctx, cloob_tokenizer_open(ctx, TESTS_DIR "/ref/pieces_unigram.model", &t));
    CHECK_OK(ctx, tokenizer_encode_row(ctx, t, "A, red_dog!", 11, 8, row));
    int32_t *ids;
    int64_t n;
    CHECK_OK(ctx, cloob_tokenizer_encode(ctx, t, "a red dog", 9, &ids, &n));
    CHECK(n > 0 && n < 7 && memcmp(ids, row, (size_t)n * sizeof *ids) == 0);
    for (int64_t i = n; i < 8; i++) CHECK(row[i] == 1);
    CHECK_OK(ctx, tokenizer_encode_row(ctx, t, "a red dog near a house", 22, 3, cut));
    CHECK(cut[2] == 1 && cut[0] == ids[0]);
    char *text;
    CHECK_OK(ctx, cloob_tokenizer_decode(ctx, t, ids, n, &text));
    CHECK_STR(text, "a red dog");
    int64_t size = cloob_tokenizer_vocab_size(t);
    CHECK(tokenizer_fits(t, size) && tokenizer_fits(t, size + 12) && !tokenizer_fits(t, size - 1));
    free(text);
    free(ids);
    cloob_tokenizer_close(t);
}

static cloob_status open_json(const char *text, tokenizer **t)
{
    return tokenizer_read_json(ctx, text, strlen(text), "t.json", NULL, t);
}

static void tokenizer_json_is_read(void)
{
    tokenizer *t;
    CHECK_OK(
        ctx,
        open_json(
            "{\"added_tokens\":[{\"id\":1,\"content\":\"</s>\",\"special\":true}],\"normalizer\":null,"
            "\"pre_tokenizer\":{\"type\":\"Metaspace\"},\"model\":{\"type\":\"Unigram\","
            "\"unk_id\":2,\"vocab\":[[\"<pad>\",0],[\"</s>\",0],[\"<unk>\",0],[\"\xe2\x96\x81\x61\",-1.5],[\"b\",-2],"
            "[\"\xe2\x96\x81\x61\x62\",-4]]}}",
            &t));
    int32_t row[5];
    CHECK_OK(ctx, tokenizer_encode_row(ctx, t, "ab a q", 6, 5, row)); /* -1.5 - 2 beats -4 */
    CHECK(row[0] == 3 && row[1] == 4 && row[2] == 3);
    cloob_tokenizer_close(t);
    CHECK(open_json("{\"model\":{\"type\":\"WordLevel\"}}", &t) == CLOOB_ERR_UNSUPPORTED);
    CHECK(strstr(cloob_error(ctx), "WordLevel"));
    CHECK(open_json("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",1]]}}", &t) == CLOOB_ERR_FORMAT);
    CHECK(open_json("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}", &t) == CLOOB_ERR_FORMAT);
    CHECK(open_json("{}", &t) == CLOOB_ERR_UNSUPPORTED);
    /* CLIP's start token in another vocabulary, as after training on captions that have it */
    CHECK_OK(ctx, open_json("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"ab\":3,"
                            "\"<|startoftext|>\":4},\"unk_token\":\"<unk>\",\"merges\":[[\"a\",\"b\"]]}}",
                            &t));
    CHECK_OK(ctx, tokenizer_encode_row(ctx, t, "aba", 3, 5, row));
    CHECK(row[0] == 3 && row[1] == 1);
    cloob_tokenizer_close(t);
}

static void damage_is_refused(void)
{
    file_bytes f;
    CHECK_OK(ctx, file_read(ctx, TESTS_DIR "/ref/pieces_unigram.model", 1 << 24, &f));
    for (size_t cut = 9; cut < f.size; cut += 97) {
        tokenizer *t = NULL;
        if (pieces_read_model(ctx, f.data, cut, "cut", &t) == CLOOB_OK) { /* between two fields: a shorter vocabulary */
            sbuf ids = { 0 };
            CHECK_OK(ctx, pieces_encode(ctx, &t->p, "a red dog", 9, false, &ids));
            sbuf_release(&ids);
        }
        cloob_tokenizer_close(t);
    }
    file_bytes_release(&f);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(ids_are_libsentencepieces);
    RUN(ties_are_resolved_as_libsentencepiece_does);
    RUN(rows_end_and_are_padded_as_in_siglip);
    RUN(tokenizer_json_is_read);
    RUN(damage_is_refused);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
