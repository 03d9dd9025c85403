/* Images of a split through the model, and the numbers stored with them. */
#include <stdlib.h>

#include "lab/suite/suite.h"
#include "data/sets/dataset.h"
#include "infer/embed_source.h"
#include "infer/zeroshot_run.h"
#include "io/rows_file.h"

enum { MAX_TARGETS = 1 << 16 }; /* numbers of one npy member: far more than any set has classes */

static cloob_status open_split(cloob_ctx *ctx, const bench *b, const char *split, const char *text_key, dataset **d)
{
    cloob_data_options o;
    cloob_data_options_init(&o);
    if (b->o.data) o = *b->o.data;
    o.type = "webdataset", o.split = split;
    if (text_key) o.text_key = text_key;
    return dataset_open(ctx, b->folder, &o, d);
}

/* The array of one sample into row; *columns is set by the first one. */
static cloob_status read_target(cloob_ctx *ctx, const dataset *d, int64_t i, stored_sample *s, double *row,
                                int64_t *columns)
{
    int64_t n;
    CLOOB_TRY(dataset_fetch(ctx, d, i, 0, FETCH_TARGETS, s));
    CLOOB_TRY(npy_numbers(ctx, s->data, s->size, s->name.data, row, *columns ? *columns : MAX_TARGETS, &n));
    if (n < 1 || (*columns && n != *columns))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has %lld numbers, others have %lld", s->name.data, (long long)n,
                        (long long)*columns);
    *columns = n;
    return CLOOB_OK;
}

static cloob_status read_targets(cloob_ctx *ctx, const dataset *d, bench_features *f)
{
    stored_sample s = { 0 };
    double *first = malloc(MAX_TARGETS * sizeof *first);
    cloob_status status = first ? CLOOB_OK : ctx_no_memory(ctx, MAX_TARGETS * sizeof *first, "targets");
    if (status == CLOOB_OK) status = read_target(ctx, d, f->e.row[0], &s, first, &f->targets);
    free(first);
    if (status == CLOOB_OK) {
        f->target = malloc((size_t)(f->e.rows * f->targets) * sizeof *f->target);
        if (!f->target) status = ctx_no_memory(ctx, (size_t)(f->e.rows * f->targets) * sizeof *f->target, "targets");
    }
    for (int64_t i = 0; i < f->e.rows && status == CLOOB_OK; i++)
        status = read_target(ctx, d, f->e.row[i], &s, f->target + i * f->targets, &f->targets);
    stored_sample_release(&s);
    return status;
}

cloob_status features_make(cloob_ctx *ctx, const bench *b, const char *split, const char *text_key, bench_features *f)
{
    dataset *d;
    *f = (bench_features){ 0 };
    CLOOB_TRY(open_split(ctx, b, split, text_key, &d));
    embed_job job;
    embed_job_init(&job);
    job.data = d, job.eval.workers = b->o.workers;
    job.all_captions = dataset_has_captions(d);
    cloob_status status = embed_to_memory(ctx, b->m, &job, &f->e);
    if (status == CLOOB_OK && dataset_has_targets(d)) status = read_targets(ctx, d, f);
    dataset_close(d);
    if (status != CLOOB_OK) features_release(f);
    return status;
}

cloob_status features_add_targets(cloob_ctx *ctx, const bench *b, const char *split, bench_features *f)
{
    dataset *classes, *d;
    CLOOB_TRY(open_split(ctx, b, split, NULL, &classes));
    int64_t n = dataset_count(classes);
    dataset_close(classes);
    cloob_status status = open_split(ctx, b, split, "npy", &d);
    if (status != CLOOB_OK)
        return ctx_wrap(ctx, status, "%s: its metrics need an npy member beside every image", b->folder);
    if (dataset_count(d) != n)
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld images have a class and %lld an npy member; all need both",
                          b->folder, (long long)n, (long long)dataset_count(d));
    if (status == CLOOB_OK) status = read_targets(ctx, d, f);
    dataset_close(d);
    return status;
}

void features_release(bench_features *f)
{
    embed_result_release(&f->e);
    free(f->target);
    *f = (bench_features){ 0 };
}

/* ---- prompts ------------------------------------------------------------------------------------- */

cloob_status bench_prompts(cloob_ctx *ctx, const bench *b, prompts *p) { return prompts_import(ctx, &b->folder, 1, p); }

cloob_status bench_weights(cloob_ctx *ctx, const bench *b, const prompt_set *set, zeroshot *z)
{
    zeroshot_run_options o;
    zeroshot_run_options_init(&o);
    return zeroshot_weights(ctx, b->m->enc, b->m->tok, set, &o, z);
}
