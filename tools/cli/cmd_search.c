/* cloob search: indexes a folder of images, and searches it by words or by an image. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "core/file.h"
#include "infer/model_file.h"
#include "infer/search_index.h"
#include "lab/report/report.h"

static struct {
    cli_model model;
    const char *out, *index, *html, *image;
    int64_t n;
} o;

static const opt_row rows[] = {
    { "out", OPT_STRING, &o.out, NULL, "INDEX", "index: output file; default: a hidden file in the folder", 0 },
    { "index", OPT_STRING, &o.index, NULL, "INDEX", "query: an index file, or an indexed folder", 0 },
    { "image", OPT_STRING, &o.image, NULL, "FILE", "query: find images similar to this one", 0 },
    { "n", OPT_INT, &o.n, "10", "N", "query: number of results", OPT_POSITIVE },
    { "html", OPT_STRING, &o.html, NULL, "FILE", "query: write the results to a page with thumbnails", 0 },
    CLI_MAX_PIXELS_ROW(o.model),
    OPT_END
};
static const opt_set sets[] = { { .table = cli_model_table, .into = &o.model, .shown = CLI_PHOTO_OPTIONS },
                                OPT_SETS_END };

/* ---- index --------------------------------------------------------------------------------------- */

static void print_update(const char *path, const cloob_search_update *u)
{
    if (common.json) {
        json_out_object(NULL, J_TEXT("index", path), J_OF(u, images), J_OF(u, kept), J_OF(u, embedded), J_OF(u, bad),
                        J_OF(u, bad_before), J_OF(u, removed));
        return;
    }
    printf("%s: %lld images\n", path, (long long)u->images);
    printf("  %lld new or changed, %lld unchanged, %lld removed, %lld unreadable\n", (long long)u->embedded,
           (long long)u->kept, (long long)u->removed, (long long)u->bad);
    if (u->bad_before) printf("  %lld of the unreadable were known and not tried again\n", (long long)u->bad_before);
}

/* An index of a model with both towers but no tokenizer could not be searched by words. */
static cloob_status check_tokenizer(cloob_ctx *ctx, const cloob_model *m)
{
    cloob_model_facts facts;
    cloob_model_get_facts(m, &facts);
    if (!facts.context || !facts.image_size || facts.has_tokenizer) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                    "%s contains no tokenizer, so the index cannot be searched by words; set `vocab` FILE%s",
                    o.model.checkpoint, tokenizer_remedy(facts.vocab));
}

static int run_index(const command *self, cloob_ctx *ctx, const char *folder)
{
    cloob_model *m = NULL;
    cloob_search_update u;
    if (!o.model.checkpoint) return cli_usage(self, "index needs --checkpoint");
    char *path = must(search_index_file(o.out ? o.out : folder));
    cloob_status status = cli_model_open(ctx, &o.model, &m);
    if (status == CLOOB_OK) status = check_tokenizer(ctx, m);
    cli_stop_on_signals();
    if (status == CLOOB_OK)
        status = cloob_search_index(ctx, m, folder, path, o.model.checkpoint, o.model.open.vocab, &u);
    if (status == CLOOB_OK) print_update(path, &u);
    cloob_model_close(m);
    free(path);
    return cli_exit(self, ctx, status);
}

/* ---- query --------------------------------------------------------------------------------------- */

static void print_hits(const cloob_search_hit *hit, int64_t n)
{
    if (!common.json) {
        for (int64_t i = 0; i < n; i++) printf("%.4f  %s\n", (double)hit[i].score, progress_name(hit[i].path));
        return;
    }
    json_out_open(NULL, '[');
    for (int64_t i = 0; i < n; i++)
        json_out_object(NULL, J_TEXT("path", hit[i].path), J_NUMBER("score", (double)hit[i].score, 9));
    json_out_close();
}

/* Warns about results whose files were moved or deleted since indexing. */
static void warn_about_missing(const cloob_search *s, const cloob_search_hit *hit, int64_t n)
{
    const char *root = cloob_search_root(s);
    struct stat st;
    int64_t missing = 0;
    for (int64_t i = 0; i < n; i++) missing += stat(hit[i].path, &st) != 0;
    if (!missing) return;
    if (file_is_dir(root))
        cli_print("warning: ", "%lld of these %lld images no longer exist; update the index with cloob search index %s",
                  (long long)missing, (long long)n, root);
    else
        cli_print("warning: ",
                  "the indexed folder %s no longer exists; if it was moved, correct its path with cloob search index "
                  "NEW_FOLDER --out %s (no image is embedded again)",
                  root, o.index);
}

static cloob_status ask(cloob_ctx *ctx, const cloob_search *s, const char *text)
{
    cloob_model *m;
    int64_t found = 0;
    cli_model from = o.model;
    if (!from.checkpoint) {
        from.checkpoint = cloob_search_checkpoint(s);
        if (!file_exists(from.checkpoint)) /* it may have been moved */
            return ctx_fail(ctx, CLOOB_ERR_IO,
                            "the index was made with %s, which no longer exists; give its new path with `checkpoint` M",
                            from.checkpoint);
    }
    if (!from.open.vocab && *cloob_search_vocab(s)) from.open.vocab = cloob_search_vocab(s);
    CLOOB_TRY(cli_model_open(ctx, &from, &m));
    cloob_search_hit *hit = must(calloc((size_t)o.n, sizeof *hit));
    cloob_status status = o.image ? cloob_search_image(ctx, s, m, o.image, o.n, hit, &found)
                                  : cloob_search_text(ctx, s, m, text, o.n, hit, &found);
    if (status == CLOOB_OK) {
        warn_about_missing(s, hit, found);
        print_hits(hit, found);
    }
    if (status == CLOOB_OK && o.html) {
        status = search_sheet(ctx, o.html, text, hit, found);
        if (status == CLOOB_OK && !common.quiet) cli_print("", "%s: open it in a browser", o.html);
    }
    cloob_search_hits_release(hit, found);
    free(hit);
    cloob_model_close(m);
    return status;
}

static int run_query(const command *self, cloob_ctx *ctx, const char *text)
{
    cloob_search *s = NULL;
    if (!o.index) return cli_usage(self, "query needs --index");
    char *path = must(search_index_file(o.index));
    cloob_status status =
        file_exists(path)
            ? cloob_search_open(ctx, path, &s)
            : ctx_fail(ctx, CLOOB_ERR_IO,
                       "%s: no index found; create one with cloob search index FOLDER `checkpoint` M", path);
    if (status == CLOOB_OK) status = ask(ctx, s, text);
    cloob_search_close(s);
    free(path);
    return cli_exit(self, ctx, status);
}

static int run(const command *self, cloob_ctx *ctx)
{
    const char *const *word = opt_words.item;
    bool index = opt_words.count && strcmp(word[0], "index") == 0;
    bool query = opt_words.count && strcmp(word[0], "query") == 0;
    o.model.open.photos = true;
    if (query && o.image && opt_words.count == 1) return run_query(self, ctx, o.image);
    if (opt_words.count != 2) return cli_usage(self, "needs index FOLDER, query \"some words\", or query --image FILE");
    if (index) return run_index(self, ctx, word[1]);
    if (query && o.image) return cli_usage(self, "give words or --image, not both");
    if (query) return run_query(self, ctx, word[1]);
    return cli_usage(self, "%s: unknown; choose index or query", word[0]);
}

const command cmd_search = {
    .name = "search",
    .run = run,
    .help = "find images in a folder by words or by example",
    .options = rows,
    .sets = sets,
    .uses = USES_PRECISION,
    .usage = "index FOLDER --checkpoint M [--out INDEX] | query \"words\"|--image FILE --index INDEX "
             "[--html FILE] [--n N]",
    .details = "index embeds the images in a folder and its subfolders. Run it again to add new and changed images "
               "only. query lists the images nearest to your words or to an example.\n"
               "\n"
               "  cloob search index photos --checkpoint M\n"
               "  cloob search query \"a dog in the snow\" --index photos --html sheet.html",
};
