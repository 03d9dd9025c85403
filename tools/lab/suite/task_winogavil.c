/* WinoGAViL as DataComp scores it: of five to twelve candidate images those are chosen that are most similar to a cue,
 * as many as belong to it, and compared with the ones that people chose by the Jaccard index. SPLIT/winogavil.csv is
 * the published table, images/ the published images. */
#include <stdlib.h>

#include "lab/suite/suite.h"
#include "core/file.h"
#include "model/encoder.h"
#include "infer/embed_source.h"

static char *table_path(const char *folder, const char *split)
{
    char *inside = file_join(folder, split), *path = inside ? file_join(inside, "winogavil.csv") : NULL;
    free(inside);
    return path;
}

bool winogavil_is(const char *folder, const char *split)
{
    char *path = table_path(folder, split);
    bool there = path && file_exists(path);
    free(path);
    return there;
}

/* ---- scores -------------------------------------------------------------------------------------- */

/* Of two sets of the same size: what both have, by what either has. */
static double jaccard(const winogavil_row *r, const double *similarity)
{
    bool chosen[WINOGAVIL_CANDIDATES] = { false };
    int both = 0;
    for (int k = 0; k < r->belong; k++) {
        int best = -1;
        for (int i = 0; i < r->candidates; i++)
            if (!chosen[i] && (best < 0 || similarity[i] >= similarity[best])) best = i;
        if (best < 0) break; /* cannot be: fewer belong than there are candidates */
        chosen[best] = true;
        both += r->right[best];
    }
    return (double)both / (2 * r->belong - both);
}

static void put_scores(bench *b, const winogavil_table *t, const double *score)
{
    static const struct {
        const char *name;
        int min, max;
    } group[] = { { "avg_jaccard_score", 0, WINOGAVIL_CANDIDATES },
                  { "jaccard_score_5", 5, 5 },
                  { "jaccard_score_6", 6, 6 },
                  { "jaccard_score_10", 10, 10 },
                  { "jaccard_score_12", 12, 12 },
                  { "jaccard_score_5-6", 0, 6 },
                  { "jaccard_score_10-12", 10, WINOGAVIL_CANDIDATES } };
    for (size_t g = 0; g < sizeof group / sizeof *group; g++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t i = 0; i < t->n; i++) {
            if (t->row[i].candidates < group[g].min || t->row[i].candidates > group[g].max) continue;
            sum += score[i], n++;
        }
        if (n) bench_score(b, group[g].name, sum / (double)n);
    }
}

static cloob_status score_all(cloob_ctx *ctx, bench *b, const winogavil_table *t, const embed_result *e)
{
    int64_t length = encoder_config(b->m->enc)->context, width = e->image_width;
    const char **text = malloc((size_t)t->n * sizeof *text);
    int32_t *tokens = malloc((size_t)(t->n * length) * sizeof *tokens);
    float *rows = malloc((size_t)(t->n * width) * sizeof *rows);
    double *score = malloc((size_t)t->n * sizeof *score), similarity[WINOGAVIL_CANDIDATES];
    cloob_status status = CLOOB_OK;
    if (!text || !tokens || !rows || !score) status = ctx_no_memory(ctx, (size_t)(t->n * width) * 4, b->folder);
    for (int64_t i = 0; i < t->n && status == CLOOB_OK; i++) text[i] = t->row[i].text;
    if (status == CLOOB_OK) status = tokenizer_encode_rows(ctx, b->m->tok, text, t->n, length, tokens);
    if (status == CLOOB_OK) status = encoder_texts(ctx, b->m->enc, tokens, t->n, CLOOB_UNIT, rows);
    for (int64_t i = 0; i < t->n && status == CLOOB_OK; i++) {
        for (int k = 0; k < t->row[i].candidates; k++) {
            const float *x = e->image + t->row[i].image[k] * width, *y = rows + i * width;
            similarity[k] = 0;
            for (int64_t d = 0; d < width; d++) similarity[k] += (double)x[d] * y[d];
        }
        score[i] = jaccard(&t->row[i], similarity);
    }
    if (status == CLOOB_OK) put_scores(b, t, score);
    free(text), free(tokens), free(rows), free(score);
    return status;
}

cloob_status task_winogavil(cloob_ctx *ctx, bench *b)
{
    embed_result e = { 0 };
    winogavil_table t = { 0 };
    char *images = file_join(b->folder, "images"), *path = table_path(b->folder, b->o.split);
    const char *folder = images;
    cloob_status status = images && path ? CLOOB_OK : ctx_no_memory(ctx, 256, b->folder);
    if (status == CLOOB_OK && !b->m->tok)
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: the model has no tokenizer, and the cues are texts", b->folder);
    if (status == CLOOB_OK) status = embed_image_files(ctx, b->m, &folder, 1, CLOOB_UNIT, &e);
    if (status == CLOOB_OK) status = winogavil_read(ctx, path, e.name, e.rows, &t);
    if (status == CLOOB_OK) status = score_all(ctx, b, &t, &e);
    b->out->n = t.n, b->out->bad = e.bad;
    free(images), free(path);
    winogavil_release(&t);
    embed_result_release(&e);
    return status;
}
