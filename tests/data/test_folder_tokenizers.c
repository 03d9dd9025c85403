/* Tokenizers of model folders against transformers and open_clip (tests/ref/tokenizers), what checkpoints store of
 * them, and the files that are written for transformers. */
#include "check.h"

#include "core/arena.h"
#include "core/file.h"
#include "core/json.h"
#include "data/text/tokenizer_impl.h"

#define REF TESTS_DIR "/ref/tokenizers/"

static cloob_ctx *ctx;

static int64_t check_rows(const tokenizer *t, const json *texts, const json *rows, int64_t length, const char *name)
{
    int64_t wrong = 0;
    int32_t *row = malloc((size_t)length * sizeof *row);
    for (const json *x = json_first(texts), *want = json_first(rows); x; x = json_next(x), want = json_next(want)) {
        const char *text = json_string(x);
        CHECK_OK(ctx, tokenizer_encode_row(ctx, t, text, strlen(text), length, row));
        const json *id = json_first(want);
        bool same = json_count(want) == length;
        for (int64_t i = 0; same && i < length; i++, id = json_next(id)) same = id->number == row[i];
        if (!same && ++wrong < 12) {
            printf("  %s: \"%s\":", name, text);
            for (int64_t i = 0; i < length; i++) printf(" %d", row[i]);
            printf("\n   wanted");
            for (id = json_first(want); id; id = json_next(id)) printf(" %g", id->number);
            printf("\n");
        }
    }
    free(row);
    return wrong;
}

static void check_folder(const json *root, const json *e)
{
    char path[512];
    const char *name = json_string(json_get(e, "folder"));
    const json *texts = json_get(root, "texts"), *rows = json_get(e, "rows");
    int64_t length = 0;
    tokenizer *t, *again;
    sbuf saved = { 0 };
    json_int(json_get(root, "length"), &length);
    snprintf(path, sizeof path, REF "%s", name);
    cloob_status s = cloob_tokenizer_open(ctx, path, &t);
    CHECK_OK(ctx, s);
    if (s != CLOOB_OK) return;
    CHECK(check_rows(t, texts, rows, length, name) == 0);
    tokenizer_save(t, &saved);
    CHECK_OK(ctx, tokenizer_open_text(ctx, saved.data, saved.len, "saved", &again));
    CHECK(check_rows(again, texts, rows, length, name) == 0);
    CHECK(tokenizer_fits(t, cloob_tokenizer_vocab_size(t) + 5) &&
          !tokenizer_fits(t, cloob_tokenizer_vocab_size(t) - 1));
    sbuf_release(&saved);
    cloob_tokenizer_close(t);
    cloob_tokenizer_close(again);
}

static void rows_are_those_of_the_folders_library(void)
{
    arena a = { 0 };
    json *root;
    if (!uni_complete()) SKIP("without utf8proc ids beyond ASCII differ");
    CHECK_OK(ctx, json_read_file(ctx, &a, REF "rows.json", &root));
    CHECK(json_count(json_get(root, "cases")) == 13);
    for (const json *e = json_first(json_get(root, "cases")); e; e = json_next(e)) check_folder(root, e);
    arena_release(&a);
}

/* What is written for transformers reads back to the same rows. */
static void written_files_read_back(void)
{
    static const char *const folders[] = { "bert", "roberta", "siglip2", "xlm_roberta", "siglip", "clip", "rinna" };
    static const char text[] = "A red dog's cafe, near the 12 rivers";
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[512], folder[] = "/tmp/cloob_tokenizer_XXXXXX", command[640];
        tokenizer *t, *again;
        int32_t a[20], b[20];
        snprintf(path, sizeof path, REF "%s", folders[i]);
        CHECK(mkdtemp(folder));
        CHECK_OK(ctx, cloob_tokenizer_open(ctx, path, &t));
        CHECK_OK(ctx, tokenizer_export(ctx, t, folder, 20));
        if (strcmp(folders[i], "rinna") == 0) { /* its rows follow from the model's configuration */
            snprintf(command, sizeof command, "cp '%s/config.json' %s", path, folder);
            CHECK(system(command) == 0);
        }
        CHECK_OK(ctx, cloob_tokenizer_open(ctx, folder, &again));
        CHECK_OK(ctx, tokenizer_encode_row(ctx, t, text, strlen(text), 20, a));
        CHECK_OK(ctx, tokenizer_encode_row(ctx, again, text, strlen(text), 20, b));
        CHECK(memcmp(a, b, sizeof a) == 0);
        cloob_tokenizer_close(t);
        cloob_tokenizer_close(again);
        snprintf(command, sizeof command, "rm -r %s", folder);
        CHECK(system(command) == 0);
    }
}

static cloob_status try_json(const char *normalizer, const char *splitter, const char *more)
{
    sbuf s = { 0 };
    tokenizer *t;
    sbuf_printf(&s,
                "{\"added_tokens\":[],\"normalizer\":%s,\"pre_tokenizer\":%s,\"model\":{\"type\":\"WordPiece\","
                "\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\"##b\":2,\"c\":3}}%s}",
                normalizer, splitter, more);
    cloob_status status = tokenizer_read_json(ctx, s.data, s.len, "tokenizer.json", NULL, &t);
    sbuf_release(&s);
    cloob_tokenizer_close(t);
    return status;
}

static void unknown_parts_are_refused_by_name(void)
{
    CHECK_OK(ctx, try_json("null", "null", ""));
    CHECK(try_json("{\"type\":\"Nmt\"}", "null", "") == CLOOB_ERR_UNSUPPORTED && strstr(cloob_error(ctx), "Nmt"));
    CHECK(try_json("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[a-z]\"},\"content\":\"\"}", "null", "") ==
              CLOOB_ERR_UNSUPPORTED &&
          strstr(cloob_error(ctx), "[a-z]"));
    CHECK(try_json("null", "{\"type\":\"Digits\"}", "") == CLOOB_ERR_UNSUPPORTED && strstr(cloob_error(ctx), "Digits"));
    CHECK(try_json("null", "null", ",\"post_processor\":{\"type\":\"Other\"}") == CLOOB_ERR_UNSUPPORTED);
    CHECK(try_json("null", "null", ",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"x\",99],\"sep\":[]}") ==
          CLOOB_ERR_FORMAT);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(rows_are_those_of_the_folders_library);
    RUN(written_files_read_back);
    RUN(unknown_parts_are_refused_by_name);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
