/* From a folder of cloob synth to factors_run: ground truth, images, prompts. */
#include "cloob/factors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "core/needs.h"
#include "infer/embed_data.h"
#include "infer/model_file.h"
#include "eval/factors.h"
#include "infer/world_truth.h"
#include "infer/zeroshot_run.h"

typedef struct world {
    const char *dir;
    world_truth truth;
    zeroshot z[CLOOB_FACTORS];
    embedded e;
} world;

/* ---- images ------------------------------------------------------------------------------------ */

/* val.tsv, or the shards val-00000.tar to the last. */
static char *source_of(const world *w)
{
    char name[64];
    char *path = file_join(w->dir, "val.tsv");
    int last = -1;
    for (bool there = path && !file_exists(path); there;) {
        free(path);
        snprintf(name, sizeof name, "val-%05d.tar", last + 1);
        path = file_join(w->dir, name);
        if ((there = path && file_exists(path))) last++;
    }
    if (last < 0) return path;
    free(path);
    snprintf(name, sizeof name, "val-{00000..%05d}.tar", last);
    return file_join(w->dir, name);
}

static cloob_status embed_images(cloob_ctx *ctx, world *w, encoder *enc)
{
    dataset_options options;
    dataset *d = NULL;
    embed_options o;
    dataset_options_init(&options);
    embed_options_init(&o);
    o.texts = false;
    char *source = source_of(w);
    if (!source) return ctx_no_memory(ctx, 64, w->dir);
    cloob_status status = dataset_open(ctx, source, &options, &d);
    if (status == CLOOB_OK && dataset_count(d) != w->truth.N)
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has %lld images, factors.tsv has %lld of split val", source,
                          (long long)dataset_count(d), (long long)w->truth.N);
    if (status == CLOOB_OK) status = embed_data(ctx, enc, NULL, d, &o, &w->e);
    if (d) dataset_close(d);
    free(source);
    return status;
}

/* Even images train and odd ones test, so an image that could not be read takes its neighbour along. Rows
 * and labels are moved up; returns how many are left. */
static int64_t keep_whole_pairs(world *w)
{
    embedded *e = &w->e;
    int64_t n = 0, D = e->image_width;
    for (int64_t i = 0; i + 1 < e->rows; i++) {
        if (e->index[i] % 2 || e->index[i + 1] != e->index[i] + 1) continue;
        for (int64_t r = i; r < i + 2; r++, n++) {
            memmove(e->image + n * D, e->image + r * D, (size_t)D * sizeof *e->image);
            for (int64_t k = 0; k < w->truth.F; k++) w->truth.label[k][n] = w->truth.label[k][e->index[r]];
        }
    }
    return n;
}

/* ---- all of it ----------------------------------------------------------------------------------- */

static cloob_status make_weights(cloob_ctx *ctx, world *w, encoder *enc, const tokenizer *tok)
{
    zeroshot_run_options o;
    zeroshot_run_options_init(&o);
    for (int64_t k = 0; k < w->truth.F; k++) CLOOB_TRY(zeroshot_weights(ctx, enc, tok, w->truth.set[k], &o, &w->z[k]));
    return CLOOB_OK;
}

static cloob_status measure(cloob_ctx *ctx, world *w, double lambda, cloob_factors *out)
{
    factor f[CLOOB_FACTORS];
    factor_score score[CLOOB_FACTORS];
    factor_summary sum;
    int64_t n = keep_whole_pairs(w);
    rows x = { .data = w->e.image, .dtype = CLOOB_F32, .N = n, .D = w->e.image_width, .step = 1, .name = w->dir };
    for (int64_t k = 0; k < w->truth.F; k++)
        f[k] = (factor){ w->truth.name[k], w->truth.label[k], w->truth.set[k]->class_count, w->z[k].weight };
    CLOOB_TRY(factors_run(ctx, score, &sum, &x, f, w->truth.F, lambda));
    *out = (cloob_factors){ .count = w->truth.F,
                            .trained = n / 2,
                            .tested = n / 2,
                            .bad = w->e.bad,
                            .kept = sum.kept,
                            .zeroshot = sum.zeroshot,
                            .probe = sum.probe };
    for (int64_t k = 0; k < w->truth.F; k++) {
        cloob_factor *row = &out->row[k];
        snprintf(row->name, sizeof row->name, "%s", w->truth.name[k]);
        row->values = f[k].C;
        row->chance = score[k].chance, row->kept = score[k].kept;
        row->zeroshot = score[k].zeroshot, row->probe = score[k].probe;
    }
    return CLOOB_OK;
}

static cloob_status measure_world(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const char *dir, double lambda,
                            cloob_factors *out)
{
    world *w = calloc(1, sizeof *w);
    if (!w) return ctx_no_memory(ctx, sizeof *w, dir);
    w->dir = dir;
    cloob_status status = world_truth_read(ctx, dir, &w->truth);
    if (status == CLOOB_OK) status = make_weights(ctx, w, enc, tok);
    if (status == CLOOB_OK) status = embed_images(ctx, w, enc);
    if (status == CLOOB_OK) status = measure(ctx, w, lambda, out);
    for (int64_t k = 0; k < w->truth.F; k++) zeroshot_release(&w->z[k]);
    embedded_release(&w->e);
    world_truth_release(&w->truth);
    free(w);
    return status;
}

/* ---- the public functions ------------------------------------------------------------------------ */

cloob_status cloob_factors_measure(cloob_ctx *ctx, cloob_model *m, const char *folder, double lambda, cloob_factors *out)
{
    API_NEEDS(ctx, m && folder && out);
    *out = (cloob_factors){ 0 };
    if (!(lambda > 0))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a probe's lambda of %g: give a number above 0", lambda);
    return measure_world(ctx, m->enc, m->tok, folder, lambda, out);
}

char *cloob_factors_json(const cloob_factors *f)
{
    if (!f) return NULL;
    cloob_json_out w = { .spaced = true };
    cloob_json_begin(&w, NULL, '{');
    cloob_json_put_int(&w, "factors", f->count);
    cloob_json_put_int(&w, "trained", f->trained);
    cloob_json_put_int(&w, "tested", f->tested);
    cloob_json_put_int(&w, "bad", f->bad);
    cloob_json_put_number(&w, "kept", f->kept);
    cloob_json_put_number(&w, "zeroshot", f->zeroshot);
    cloob_json_put_number(&w, "probe", f->probe);
    cloob_json_begin(&w, "rows", '[');
    for (int64_t i = 0; i < f->count; i++) {
        const cloob_factor *r = &f->row[i];
        cloob_json_begin(&w, NULL, '{');
        cloob_json_put_text(&w, "name", r->name);
        cloob_json_put_int(&w, "values", r->values);
        cloob_json_put_number(&w, "chance", r->chance);
        cloob_json_put_number(&w, "zeroshot", r->zeroshot);
        cloob_json_put_number(&w, "probe", r->probe);
        cloob_json_put_number(&w, "kept", r->kept);
        cloob_json_end(&w);
    }
    cloob_json_end(&w);
    cloob_json_end(&w);
    return json_out_line(&w);
}

cloob_status cloob_factors_write(cloob_ctx *ctx, const cloob_factors *f, const char *folder)
{
    API_NEEDS(ctx, f && folder);
    char *text = cloob_factors_json(f), *path = file_join(folder, "factors.json");
    cloob_status status = text && path ? file_make_dirs(ctx, folder) : ctx_no_memory(ctx, 4096, "factors.json");
    if (status == CLOOB_OK) status = file_write(ctx, path, text, strlen(text));
    free(text), free(path);
    return status;
}
