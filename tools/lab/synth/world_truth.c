/* Reading factors.tsv against prompts.json, and scoring embeddings by factor. */
#include "lab/synth/world_truth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "eval/labels.h"
#include "eval/probe/probe.h"
#include "infer/embed_data.h"
#include "infer/model_file.h"
#include "infer/zeroshot_run.h"
#include "tensor/cpu/gemm.h"

static cloob_status read_header(cloob_ctx *ctx, world_truth *w, char *line, const char *path)
{
    char *field = strsep(&line, "\t");
    if (!field || strcmp(field, "filepath") != 0 || !(field = strsep(&line, "\t")) || strcmp(field, "split") != 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: begins with no header of cloob synth (filepath, split, ...)", path);
    while ((field = strsep(&line, "\t"))) {
        if (w->F == WORLD_FACTORS)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: more than %d factors", path, WORLD_FACTORS);
        if (!(w->name[w->F] = arena_string(&w->memory, field))) return ctx_no_memory(ctx, 64, path);
        CLOOB_TRY(prompts_find(ctx, &w->prompts, field, &w->set[w->F]));
        w->F++;
    }
    return w->F ? CLOOB_OK : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: names no factor", path);
}

static int64_t class_of(const prompt_set *s, const char *value)
{
    for (int64_t c = 0; c < s->class_count; c++)
        if (strcmp(s->classes[c].item[0], value) == 0) return c;
    return -1;
}

static cloob_status read_row(cloob_ctx *ctx, world_truth *w, char *line, int64_t number, const char *path)
{
    char *field = (strsep(&line, "\t"), strsep(&line, "\t"));
    if (!field || strcmp(field, "val") != 0) return CLOOB_OK;
    for (int64_t k = 0; k < w->F; k++) {
        field = strsep(&line, "\t");
        int64_t c = field ? class_of(w->set[k], field) : -1;
        if (c < 0)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                            "%s: line %lld: %s \"%.40s\" is none of the classes in "
                            "prompts.json",
                            path, (long long)number, w->name[k], field ? field : "");
        w->label[k][w->N] = c;
    }
    w->N++;
    return CLOOB_OK;
}

static cloob_status read_lines(cloob_ctx *ctx, world_truth *w, char *text, const char *path)
{
    int64_t lines = 1, number = 1;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    CLOOB_TRY(read_header(ctx, w, strsep(&text, "\n"), path));
    for (int64_t k = 0; k < w->F; k++) {
        w->label[k] = arena_push(&w->memory, (size_t)lines * sizeof **w->label);
        if (!w->label[k]) return ctx_no_memory(ctx, (size_t)lines * sizeof **w->label, path);
    }
    for (char *line; (line = strsep(&text, "\n"));) CLOOB_TRY(read_row(ctx, w, line, ++number, path));
    return CLOOB_OK;
}

cloob_status world_truth_find(cloob_ctx *ctx, const char *dir, bool *out)
{
    char *names = file_join(dir, "prompts.json"), *factors = file_join(dir, "factors.tsv");
    cloob_status status = names && factors ? CLOOB_OK : ctx_no_memory(ctx, strlen(dir), dir);
    *out = status == CLOOB_OK && file_exists(names) && file_exists(factors);
    free(names), free(factors);
    return status;
}

cloob_status world_truth_read(cloob_ctx *ctx, const char *dir, world_truth *w)
{
    file_bytes bytes;
    memset(w, 0, sizeof *w);
    char *path = file_join(dir, "prompts.json");
    if (!path) return ctx_no_memory(ctx, 64, dir);
    cloob_status status = prompts_open(ctx, path, &w->prompts);
    free(path);
    CLOOB_TRY(status);
    if (!(path = file_join(dir, "factors.tsv"))) return ctx_no_memory(ctx, 64, dir);
    status = file_read(ctx, path, FILE_TEXT_LIMIT, &bytes);
    if (status == CLOOB_OK) {
        status = read_lines(ctx, w, bytes.data, path);
        file_bytes_release(&bytes);
    }
    free(path);
    return status;
}

void world_truth_release(world_truth *w)
{
    prompts_release(&w->prompts);
    arena_release(&w->memory);
}

/* ---- every factor on its own, from the same rows --------------------------------------------------- */

enum { BLOCK_BYTES = 1 << 20 };

typedef struct halves {
    probe_data train, test;
    int64_t *y; /* owned: labels of the training rows, then of the test rows */
} halves;

static cloob_status split(cloob_ctx *ctx, halves *h, const rows *x, const factor *f)
{
    h->train.x = rows_every(x, 2, 0), h->test.x = rows_every(x, 2, 1);
    h->y = malloc((size_t)x->N * sizeof *h->y);
    if (!h->y) return ctx_no_memory(ctx, (size_t)x->N * sizeof *h->y, "labels");
    h->train.y = h->y, h->test.y = h->y + h->train.x.N;
    for (int64_t i = 0; i < x->N; i++) {
        if (f->label[i] < 0 || f->label[i] >= f->C)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "factor %s: image %lld has value %lld of 0 to %lld", f->name,
                            (long long)i, (long long)f->label[i], (long long)f->C - 1);
        h->y[i % 2 ? h->train.x.N + i / 2 : i / 2] = f->label[i];
    }
    return CLOOB_OK;
}

static cloob_status chance(cloob_ctx *ctx, double *share, const probe_data *d, int64_t C)
{
    int64_t *count = calloc((size_t)C, sizeof *count), largest = 0;
    if (!count) return ctx_no_memory(ctx, (size_t)C * sizeof *count, "counts");
    for (int64_t i = 0; i < d->x.N; i++) count[d->y[i]]++;
    for (int64_t c = 0; c < C; c++) largest = count[c] > largest ? count[c] : largest;
    free(count);
    *share = (double)largest / (double)d->x.N;
    return CLOOB_OK;
}

static cloob_status run_zeroshot(cloob_ctx *ctx, double *accuracy, const probe_data *d, const factor *f)
{
    int64_t D = d->x.D, block = rows_block(&d->x, BLOCK_BYTES);
    float *x = malloc((size_t)(block * D) * sizeof *x), *z = malloc((size_t)(block * f->C) * sizeof *z);
    accuracy_counts t = { 0 };
    cloob_status status = x && z ? accuracy_init(ctx, &t, f->C, false) : ctx_no_memory(ctx, BLOCK_BYTES, "scores");
    for (int64_t at = 0, n; at < d->x.N && status == CLOOB_OK; at += n) {
        n = d->x.N - at < block ? d->x.N - at : block;
        cpu_sgemm(ctx, false, true, n, f->C, D, 1, rows_read(&d->x, at, n, x), D, f->weight, D, 0, z, f->C);
        accuracy_add(&t, z, d->y + at, n);
    }
    if (status == CLOOB_OK) *accuracy = accuracy_finish(&t).top1;
    accuracy_release(&t);
    free(x), free(z);
    return status;
}

static cloob_status run_probe(cloob_ctx *ctx, double *accuracy, const halves *h, double lambda)
{
    probe_options o;
    probe_model m;
    probe_fit fit;
    accuracy_counts t;
    probe_options_init(&o);
    CLOOB_TRY(probe_train(ctx, &m, &fit, &h->train, 1, lambda, NULL, &o));
    cloob_status status = accuracy_init(ctx, &t, m.C, false);
    if (status == CLOOB_OK) {
        status = probe_score(ctx, &t, &m, &h->test, NULL);
        *accuracy = accuracy_finish(&t).top1;
        accuracy_release(&t);
    }
    probe_model_release(&m);
    return status;
}

static cloob_status run_factor(cloob_ctx *ctx, factor_result *r, const rows *x, const factor *f, double lambda)
{
    halves h = { 0 };
    *r = (factor_result){ .values = f->C, .zeroshot = -1 };
    snprintf(r->name, sizeof r->name, "%s", f->name);
    cloob_status status = split(ctx, &h, x, f);
    if (status == CLOOB_OK) status = chance(ctx, &r->chance, &h.test, f->C);
    if (status == CLOOB_OK && f->weight) status = run_zeroshot(ctx, &r->zeroshot, &h.test, f);
    if (status == CLOOB_OK) status = run_probe(ctx, &r->probe, &h, lambda);
    free(h.y);
    if (status != CLOOB_OK) return ctx_wrap(ctx, status, "factor %s", f->name);
    r->kept = r->chance < 1 ? fmax(0, (r->probe - r->chance) / (1 - r->chance)) : 0;
    return CLOOB_OK;
}

cloob_status factors_run(cloob_ctx *ctx, factors_result *out, const rows *x, const factor *f, int64_t F, double lambda)
{
    int64_t shown = 0;
    *out = (factors_result){ .count = F, .trained = x->N / 2, .tested = x->N / 2 };
    if (x->N < 4)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: %lld images are too few to train and test on", x->name,
                        (long long)x->N);
    CLOOB_TRY(rows_check(ctx, x));
    for (int64_t k = 0; k < F; k++) {
        const factor_result *r = &out->row[k];
        CLOOB_TRY(run_factor(ctx, &out->row[k], x, &f[k], lambda));
        out->kept += r->kept;
        out->probe += r->probe / (double)F;
        if (f[k].weight) out->zeroshot += r->zeroshot, shown++;
    }
    if (shown) out->zeroshot /= (double)shown;
    return CLOOB_OK;
}

/* ---- what embeddings keep of the factors ----------------------------------------------------------- */

typedef struct world {
    const char *dir;
    world_truth truth;
    zeroshot z[WORLD_FACTORS];
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
    for (int64_t k = 0; k < w->truth.F; k++) CLOOB_TRY(zeroshot_weights(ctx, enc, tok, w->truth.set[k], NULL, &w->z[k]));
    return CLOOB_OK;
}

static cloob_status measure(cloob_ctx *ctx, world *w, double lambda, factors_result *out)
{
    factor f[WORLD_FACTORS];
    int64_t n = keep_whole_pairs(w);
    rows x = { .data = w->e.image, .dtype = CLOOB_F32, .N = n, .D = w->e.image_width, .step = 1, .name = w->dir };
    for (int64_t k = 0; k < w->truth.F; k++)
        f[k] = (factor){ w->truth.name[k], w->truth.label[k], w->truth.set[k]->class_count, w->z[k].weight };
    CLOOB_TRY(factors_run(ctx, out, &x, f, w->truth.F, lambda));
    out->bad = w->e.bad;
    return CLOOB_OK;
}

static cloob_status measure_world(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const char *dir, double lambda,
                                  factors_result *out)
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

cloob_status factors_measure(cloob_ctx *ctx, cloob_model *m, const char *folder, double lambda, factors_result *out)
{
    *out = (factors_result){ 0 };
    if (!(lambda > 0))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a probe's lambda of %g: give a number above 0", lambda);
    return measure_world(ctx, m->enc, m->tok, folder, lambda, out);
}

char *factors_json(const factors_result *f)
{
    if (!f) return NULL;
    json_out w = { .spaced = true };
    json_begin(&w, NULL, '{');
    json_members(&w, J_INT("factors", f->count), J_OF(f, trained), J_OF(f, tested), J_OF(f, bad),
                 J_NUMBER("kept", f->kept, 0), J_NUMBER("zeroshot", f->zeroshot, 0), J_NUMBER("probe", f->probe, 0));
    json_begin(&w, "rows", '[');
    for (int64_t i = 0; i < f->count; i++) {
        const factor_result *r = &f->row[i];
        json_object(&w, NULL, J_OF(r, name), J_OF(r, values), J_NUMBER("chance", r->chance, 0),
                    J_NUMBER("zeroshot", r->zeroshot, 0), J_NUMBER("probe", r->probe, 0), J_NUMBER("kept", r->kept, 0));
    }
    json_end(&w);
    json_end(&w);
    return json_out_line(&w);
}

cloob_status factors_write(cloob_ctx *ctx, const factors_result *f, const char *folder)
{
    char *text = factors_json(f), *path = file_join(folder, "factors.json");
    cloob_status status = text && path ? file_make_dirs(ctx, folder) : ctx_no_memory(ctx, 4096, "factors.json");
    if (status == CLOOB_OK) status = file_write(ctx, path, text, strlen(text));
    free(text), free(path);
    return status;
}
