/* Classifiers made of labels, and zero-shot accuracy on a data set (cloob/zeroshot.h). */
#include "cloob/zeroshot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "infer/model_file.h"
#include "core/arena.h"
#include "infer/zeroshot_run.h"
#include "tensor/cpu/gemm.h"
#include "core/needs.h"
#include "infer/embeddings_file.h"

/* ---- a classifier -------------------------------------------------------------------------------- */

struct cloob_classifier {
    zeroshot z;
    double inv_tau;
};

static cloob_status make_set(cloob_ctx *ctx, arena *a, const char *const *label, int64_t labels,
                             const char *const *templates, int64_t template_count, prompt_set *set)
{
    *set = (prompt_set){ .name = "labels", .class_count = labels };
    set->classes = arena_push(a, (size_t)labels * sizeof *set->classes);
    bool ok = set->classes != NULL;
    for (int64_t i = 0; i < labels && ok; i++) {
        set->classes[i] = (prompt_list){ 0 };
        ok = prompt_list_add(a, &set->classes[i], label[i]);
    }
    for (int64_t i = 0; i < template_count && ok; i++) {
        if (!strstr(templates[i], "{}"))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "template \"%s\": needs {} where the label goes", templates[i]);
        ok = prompt_list_add(a, &set->templates, templates[i]);
    }
    if (ok && !template_count) ok = prompt_list_add(a, &set->templates, "a photo of a {}.");
    return ok ? CLOOB_OK : ctx_no_memory(ctx, (size_t)labels * sizeof *set->classes, "labels");
}

cloob_status cloob_classifier_create(cloob_ctx *ctx, cloob_model *m, const char *const *label, int64_t labels,
                                     const char *const *templates, int64_t template_count, cloob_classifier **out)
{
    API_NEEDS(ctx, m && label && out && labels >= 0);
    arena a = { 0 };
    prompt_set set;
    zeroshot_run_options o;
    zeroshot_run_options_init(&o);
    *out = NULL;
    if (labels < 2) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld labels: give two or more", (long long)labels);
    cloob_classifier *c = calloc(1, sizeof *c);
    if (!c) return ctx_no_memory(ctx, sizeof *c, "a classifier");
    c->inv_tau = m->inv_tau > 0 ? m->inv_tau : CLOOB_DEFAULT_INV_TAU;
    cloob_status status = make_set(ctx, &a, label, labels, templates, template_count, &set);
    if (status == CLOOB_OK) status = zeroshot_weights(ctx, m->enc, m->tok, &set, &o, &c->z);
    if (status == CLOOB_OK) *out = c;
    else free(c);
    arena_release(&a);
    return status;
}

void cloob_classifier_destroy(cloob_classifier *c)
{
    if (!c) return;
    zeroshot_release(&c->z);
    free(c);
}

/* score (C), the dot products of a row of length `size`, becomes its softmax. */
static void to_shares(float *score, int64_t C, double scale)
{
    double max = score[0], sum = 0;
    for (int64_t i = 1; i < C; i++) max = score[i] > max ? score[i] : max;
    for (int64_t i = 0; i < C; i++) sum += exp(scale * ((double)score[i] - max));
    for (int64_t i = 0; i < C; i++) score[i] = (float)(exp(scale * ((double)score[i] - max)) / sum);
}

cloob_status cloob_classify(cloob_ctx *ctx, const cloob_classifier *c, const float *rows, int64_t n, float *p)
{
    API_NEEDS(ctx, c && n >= 0 && (n == 0 || (rows && p)));
    int64_t C = c->z.C, D = c->z.D;
    cpu_sgemm(ctx, false, true, n, C, D, 1, rows, D, c->z.weight, D, 0, p, C);
    for (int64_t i = 0; i < n; i++) {
        double square = 0;
        for (int64_t k = 0; k < D; k++) square += (double)rows[i * D + k] * rows[i * D + k];
        if (!(square > 0) || !isfinite(square))
            return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "image %lld: its embedding is zero or not finite", (long long)i);
        to_shares(p + i * C, C, c->inv_tau / sqrt(square));
    }
    return CLOOB_OK;
}

/* ---- prompts --------------------------------------------------------------------------------------- */

cloob_status cloob_prompts_parse(cloob_ctx *ctx, const char *text, size_t bytes, cloob_prompts **out)
{
    API_NEEDS(ctx, text && out);
    *out = NULL;
    cloob_prompts *p = calloc(1, sizeof *p);
    if (!p) return ctx_no_memory(ctx, sizeof *p, "prompts");
    cloob_status status = prompts_parse(ctx, text, bytes, "prompts", p);
    if (status == CLOOB_OK) *out = p;
    else free(p);
    return status;
}

void cloob_prompts_close(cloob_prompts *p)
{
    if (!p) return;
    prompts_release(p);
    free(p);
}

/* ---- accuracy ------------------------------------------------------------------------------------ */

void cloob_zeroshot_options_init_size(cloob_zeroshot_options *o, size_t size)
{
    cloob_zeroshot_options d = { .size = 0 };
    eval_options_init(&d.eval);
    options_write(o, size, &d, sizeof d);
}

void cloob_zeroshot_release(cloob_zeroshot_result *r)
{
    if (!r) return;
    for (int64_t i = 0; i < r->classes; i++) free(r->row[i].name);
    for (int64_t i = 0; r->prediction && i < r->n; i++) free(r->prediction[i].image);
    free(r->row), free(r->prediction), free(r->confusion);
    *r = (cloob_zeroshot_result){ 0 };
}

static cloob_status retrieve(cloob_ctx *ctx, void *user, float *rows, int64_t n, int64_t D)
{
    (void)D; /* checked when the file was opened */
    return stored_rows_retrieve(ctx, user, rows, n);
}

typedef struct prediction_list { /* what the model says, image by image */
    const dataset *d;
    cloob_zeroshot_prediction *item;
    int64_t n, room;
    stored_sample sample; /* for names */
} prediction_list;

static cloob_status note_prediction(cloob_ctx *ctx, void *user, int64_t at, int64_t label, int64_t predicted,
                                    int64_t rank, double p)
{
    prediction_list *l = user;
    if (!heap_grow(&l->item, l->n, &l->room, sizeof *l->item))
        return ctx_no_memory(ctx, (size_t)l->n * sizeof *l->item, "predictions");
    CLOOB_TRY(dataset_fetch(ctx, l->d, at, 0, 0, &l->sample));
    l->item[l->n] =
        (cloob_zeroshot_prediction){ strdup(l->sample.name.len ? l->sample.name.data : ""), label, predicted, p, rank };
    return l->item[l->n++].image ? CLOOB_OK : ctx_no_memory(ctx, 64, "predictions");
}

static void prediction_list_release(prediction_list *l)
{
    for (int64_t i = 0; i < l->n; i++) free(l->item[i].image);
    free(l->item);
    stored_sample_release(&l->sample);
}

static cloob_status copy_confusion(cloob_ctx *ctx, const zeroshot *z, cloob_zeroshot_result *r)
{
    size_t bytes = (size_t)(z->answers * z->answers) * sizeof *r->confusion;
    if (!z->count.confusion) return CLOOB_OK;
    r->confusion = malloc(bytes);
    if (!r->confusion) return ctx_no_memory(ctx, bytes, "confusion");
    memcpy(r->confusion, z->count.confusion, bytes);
    return CLOOB_OK;
}

static cloob_status fill(cloob_ctx *ctx, const zeroshot *z, const prompt_set *set, const class_map *map, int64_t bad,
                         cloob_zeroshot_result *r)
{
    accuracy_result t = accuracy_finish(&z->count);
    *r = (cloob_zeroshot_result){ .top1 = t.top1,
                                  .top5 = t.top5,
                                  .mean_per_class = t.mean_per_class,
                                  .n = t.n,
                                  .bad = bad,
                                  .empty = t.empty,
                                  .wants_mean_per_class = set->metric == PROMPT_MEAN_PER_CLASS };
    r->row = calloc((size_t)z->answers, sizeof *r->row);
    for (int64_t c = 0; c < z->answers && r->row; c++) {
        const prompt_list *names = &set->classes[map ? map->shown[c] : c];
        r->row[c] =
            (cloob_zeroshot_class){ strdup(names->item[0]), z->count.total[c], z->count.hit1[c], z->count.hit5[c] };
        r->classes++;
        if (r->row[c].name) continue;
        cloob_zeroshot_release(r);
        break;
    }
    return r->row ? copy_confusion(ctx, z, r)
                  : ctx_no_memory(ctx, (size_t)z->answers * sizeof *r->row, "a table of classes");
}

static cloob_status zeroshot_with(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d, cloob_zeroshot_options o,
                                  stored_rows *stored, cloob_zeroshot_result *out)
{
    zeroshot_run_options run;
    arena a = { 0 };
    prompt_set set;
    zeroshot z;
    int64_t bad;
    zeroshot_run_options_init(&run);
    run.workers = (int)o.eval.workers;
    if (stored) run.hook = retrieve, run.hook_user = stored;
    cloob_status status = CLOOB_OK;
    if (o.prompts && (o.set < 0 || o.set >= o.prompts->count))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "prompt set %lld: the file has %lld", (long long)o.set,
                        (long long)o.prompts->count);
    if (o.prompts) set = o.prompts->set[o.set];
    else status = class_names_as_prompts(ctx, d, &a, &set);
    class_map map;
    prediction_list predictions = { .d = d };
    if (status == CLOOB_OK && o.class_map) {
        status = class_map_read(ctx, &a, o.class_map, d, &set, &map);
        if (status == CLOOB_OK) run.map = &map, set = map.set;
    }
    run.confusion = o.confusion;
    run.inv_tau = m->inv_tau > 0 ? m->inv_tau : CLOOB_DEFAULT_INV_TAU;
    if (o.predictions) run.predicted = note_prediction, run.predicted_user = &predictions;
    if (status == CLOOB_OK) status = zeroshot_run(ctx, m->enc, m->tok, d, &set, &run, &z, &bad);
    if (status == CLOOB_OK) {
        status = fill(ctx, &z, &set, run.map, bad, out);
        if (status == CLOOB_OK && o.predictions)
            out->prediction = predictions.item, predictions.item = NULL, predictions.n = 0;
        if (status != CLOOB_OK) cloob_zeroshot_release(out);
        zeroshot_release(&z);
    }
    prediction_list_release(&predictions);
    arena_release(&a);
    return status;
}

cloob_status cloob_zeroshot(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d, const cloob_zeroshot_options *given,
                            cloob_zeroshot_result *out)
{
    API_NEEDS(ctx, m && d && out);
    cloob_zeroshot_options o;
    stored_rows stored = { 0 };
    cloob_zeroshot_options_init(&o);
    *out = (cloob_zeroshot_result){ 0 };
    if (given) CLOOB_TRY(options_read(ctx, "cloob_zeroshot_options", &o, sizeof o, given));
    OPTIONS_ROOM(ctx, cloob_zeroshot_options, &o, eval);
    cloob_status status = CLOOB_OK;
    if (o.eval.retrieve) {
        status = stored_rows_open(ctx, &o.eval, m->scale_hopfield, true, &stored);
        if (status == CLOOB_OK) status = stored_rows_check(ctx, &stored, encoder_config(m->enc)->embed);
    }
    if (status == CLOOB_OK) status = zeroshot_with(ctx, m, d, o, o.eval.retrieve ? &stored : NULL, out);
    stored_rows_release(&stored);
    return status;
}
