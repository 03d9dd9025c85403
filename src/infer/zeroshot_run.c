/* Class weights from prompts, classifiers from class weights, and zero-shot accuracy on a data set
 * (cloob/zeroshot.h). */
#include "infer/zeroshot_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/needs.h"
#include "infer/embed_data.h"
#include "infer/model_file.h"
#include "tensor/cpu/gemm.h"

/* ---- class weights ------------------------------------------------------------------------------- */

/* Sets class c of z from every template filled with every name of the class. */
static cloob_status class_weight(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const prompt_set *set, int64_t c,
                                 const zeroshot_run_options *o, zeroshot *z)
{
    const prompt_list *names = &set->classes[c], *templates = &set->templates;
    int64_t n = names->count * templates->count;
    arena a = { 0 };
    const char **text = arena_push(&a, (size_t)n * sizeof *text);
    float *rows = arena_push(&a, (size_t)(n * z->D) * sizeof *rows);
    cloob_status status = text && rows ? CLOOB_OK : ctx_no_memory(ctx, (size_t)(n * z->D) * sizeof *rows, "prompts");
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) {
        sbuf s = { 0 };
        prompt_fill(templates->item[i % templates->count], names->item[i / templates->count], &s);
        if (s.failed || !(text[i] = arena_string(&a, s.data))) status = ctx_no_memory(ctx, s.len, "a prompt");
        sbuf_release(&s);
    }
    if (status == CLOOB_OK) status = encode_texts(ctx, enc, tok, text, n, CLOOB_UNIT, rows);
    if (status == CLOOB_OK && o->stored) status = stored_rows_retrieve(ctx, o->stored, rows, n);
    if (status == CLOOB_OK) status = zeroshot_prompts(ctx, z, c, rows, n);
    arena_release(&a);
    return status;
}

cloob_status zeroshot_weights(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const prompt_set *set,
                              const zeroshot_run_options *o, zeroshot *z)
{
    static const zeroshot_run_options plain = { .workers = 0 };
    if (!o) o = &plain;
    CLOOB_TRY(zeroshot_init(ctx, z, set->class_count, encoder_config(enc)->embed, o->confusion));
    cloob_status status = CLOOB_OK;
    for (int64_t c = 0; c < set->class_count && status == CLOOB_OK; c++) {
        ctx_progress(ctx, "embed prompts", c, set->class_count, "classes");
        status = class_weight(ctx, enc, tok, set, c, o, z);
    }
    ctx_progress(ctx, "embed prompts", set->class_count, set->class_count, "classes");
    if (status == CLOOB_OK && o->map) status = zeroshot_group(ctx, z, o->map->group, o->map->answers);
    if (status != CLOOB_OK) zeroshot_release(z);
    return status;
}

/* ---- images ------------------------------------------------------------------------------------ */

typedef struct counting {
    const dataset *d;
    const zeroshot_run_options *o;
    const int64_t *class_of; /* (classes of the data) */
    zeroshot *z;
    stored_sample sample; /* for names */
} counting;

/* The prediction for one image: the class of the largest score (the first of equal ones, as in the accuracies) and its
 * probability. */
static cloob_status add_prediction(cloob_ctx *ctx, counting *c, const float *score, int64_t at, int64_t label)
{
    zeroshot_predictions *l = c->o->predictions;
    int64_t best = 0, rank = 1, answers = c->z->answers;
    double sum = 0;
    for (int64_t k = 1; k < answers; k++)
        if (score[k] > score[best]) best = k;
    for (int64_t k = 0; k < answers; k++) { /* on ties the first class ranks higher */
        rank += score[k] > score[label] || (score[k] == score[label] && k < label);
        sum += exp(c->o->inv_tau * ((double)score[k] - score[best]));
    }
    if (!heap_grow(&l->item, l->n, &l->room, sizeof *l->item))
        return ctx_no_memory(ctx, (size_t)l->n * sizeof *l->item, "predictions");
    CLOOB_TRY(dataset_fetch(ctx, c->d, at, 0, 0, &c->sample));
    char *name = strdup(c->sample.name.len ? c->sample.name.data : "");
    if (!name) return ctx_no_memory(ctx, 64, "predictions");
    l->item[l->n++] = (cloob_zeroshot_prediction){ name, label, best, 1 / sum, rank };
    return CLOOB_OK;
}

static cloob_status count_batch(cloob_ctx *ctx, void *user, const embedded *b)
{
    counting *c = user;
    zeroshot *z = c->z;
    if (c->o->stored) CLOOB_TRY(stored_rows_retrieve(ctx, c->o->stored, b->image, b->rows));
    for (int64_t i = 0; i < b->rows; i++) {
        if (b->label[i] < 0) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "sample %lld has no class", (long long)b->index[i]);
        b->label[i] = c->class_of[b->label[i]];
    }
    CLOOB_TRY(zeroshot_add(ctx, z, b->image, b->label, b->rows, z->count.N));
    for (int64_t i = 0; i < b->rows && c->o->predictions; i++)
        CLOOB_TRY(add_prediction(ctx, c, z->score + i * z->answers, b->index[i], b->label[i]));
    return CLOOB_OK;
}

/* class_of (classes of the data): the answer of each folder, by the map, or by its name, number or order. */
static cloob_status find_classes(cloob_ctx *ctx, const dataset *d, const prompt_set *set, const class_map *map,
                                 int64_t *class_of)
{
    static const char *const how[] = { "name", "order", "number" };
    class_match_by by = MATCH_NAMES;
    if (map) memcpy(class_of, map->class_of, (size_t)dataset_class_count(d) * sizeof *class_of);
    else CLOOB_TRY(class_match(ctx, d, set, class_of, &by));
    if (by != MATCH_NAMES)
        ctx_log(ctx, CLOOB_LOG_INFO, "classes go to prompts by %s: \"%s\" is \"%s\"", how[by], dataset_class_name(d, 0),
                set->classes[class_of[0]].item[0]);
    return CLOOB_OK;
}

/* Match classes first: embedding the prompts of a thousand classes takes minutes. */
cloob_status zeroshot_run(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const dataset *d, const prompt_set *set,
                          const zeroshot_run_options *o, zeroshot *z, int64_t *bad)
{
    int64_t classes = dataset_class_count(d);
    embed_options eo;
    embed_options_init(&eo);
    eo.workers = o->workers;
    *bad = 0;
    if (!classes) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "the data has no classes; zero-shot accuracy needs them");
    int64_t *class_of = malloc((size_t)classes * sizeof *class_of);
    if (!class_of) return ctx_no_memory(ctx, (size_t)classes * sizeof *class_of, "classes");
    counting c = { .d = d, .o = o, .class_of = class_of, .z = z };
    cloob_status status = find_classes(ctx, d, set, o->map, class_of);
    if (status == CLOOB_OK) status = zeroshot_weights(ctx, enc, tok, set, o, z);
    if (status == CLOOB_OK) {
        status = embed_data_each(ctx, enc, NULL, d, &eo, count_batch, &c, bad);
        if (status != CLOOB_OK) zeroshot_release(z);
    }
    stored_sample_release(&c.sample);
    free(class_of);
    return status;
}

/* ---- a classifier -------------------------------------------------------------------------------- */

struct cloob_classifier {
    zeroshot z;
    double inv_tau;
};

cloob_status cloob_classifier_create(cloob_ctx *ctx, cloob_model *m, const char *const *label, int64_t labels,
                                     const char *const *templates, int64_t template_count, cloob_classifier **out)
{
    API_NEEDS(ctx, m && label && out && labels >= 0);
    arena a = { 0 };
    prompt_set set;
    *out = NULL;
    if (labels < 2)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld labels: at least two are required", (long long)labels);
    cloob_classifier *c = calloc(1, sizeof *c);
    if (!c) return ctx_no_memory(ctx, sizeof *c, "a classifier");
    c->inv_tau = m->inv_tau > 0 ? m->inv_tau : CLOOB_DEFAULT_INV_TAU;
    cloob_status status = names_as_prompts(ctx, &a, "labels", label, labels, templates, template_count, &set);
    if (status == CLOOB_OK) status = zeroshot_weights(ctx, m->enc, m->tok, &set, NULL, &c->z);
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
        zeroshot_softmax(p + i * C, C, c->inv_tau / sqrt(square));
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

/* Counts, names and the confusion table, which moves from z. */
static cloob_status fill(cloob_ctx *ctx, zeroshot *z, const prompt_set *set, const class_map *map, int64_t bad,
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
        if (!r->row[c].name) return ctx_no_memory(ctx, 64, "a table of classes");
    }
    if (!r->row) return ctx_no_memory(ctx, (size_t)z->answers * sizeof *r->row, "a table of classes");
    r->confusion = z->count.confusion, z->count.confusion = NULL;
    return CLOOB_OK;
}

static cloob_status choose_prompts(cloob_ctx *ctx, arena *a, const cloob_dataset *d, const cloob_zeroshot_options *o,
                                   prompt_set *set, class_map *map)
{
    if (o->prompts && (o->set < 0 || o->set >= o->prompts->count))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "prompt set %lld: the file has only %lld", (long long)o->set,
                        (long long)o->prompts->count);
    if (o->prompts) *set = o->prompts->set[o->set];
    else CLOOB_TRY(class_names_as_prompts(ctx, d, a, set));
    if (!o->class_map) return CLOOB_OK;
    CLOOB_TRY(class_map_read(ctx, a, o->class_map, d, set, map));
    *set = map->set;
    return CLOOB_OK;
}

cloob_status cloob_zeroshot(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d, const cloob_zeroshot_options *o,
                            cloob_zeroshot_result *out)
{
    API_NEEDS(ctx, m && d && out);
    *out = (cloob_zeroshot_result){ 0 };
    OPTIONS_READ(ctx, cloob_zeroshot_options, o);
    OPTIONS_ROOM(ctx, cloob_zeroshot_options, o, eval);
    stored_rows stored = { 0 };
    arena a = { 0 };
    prompt_set set;
    class_map map = { 0 };
    zeroshot z;
    int64_t bad;
    zeroshot_predictions predictions = { 0 };
    zeroshot_run_options run = { .workers = (int)o->eval.workers,
                                 .stored = o->eval.retrieve ? &stored : NULL,
                                 .map = o->class_map ? &map : NULL,
                                 .confusion = o->confusion,
                                 .predictions = o->predictions ? &predictions : NULL,
                                 .inv_tau = m->inv_tau > 0 ? m->inv_tau : CLOOB_DEFAULT_INV_TAU };
    cloob_status status = CLOOB_OK;
    if (run.stored) status = stored_rows_open(ctx, &o->eval, m->scale_hopfield, true, &stored);
    if (status == CLOOB_OK && run.stored) status = stored_rows_check(ctx, &stored, encoder_config(m->enc)->embed);
    if (status == CLOOB_OK) status = choose_prompts(ctx, &a, d, o, &set, &map);
    if (status == CLOOB_OK) status = zeroshot_run(ctx, m->enc, m->tok, d, &set, &run, &z, &bad);
    if (status == CLOOB_OK) {
        status = fill(ctx, &z, &set, run.map, bad, out);
        zeroshot_release(&z);
    }
    out->prediction = predictions.item;
    if (status != CLOOB_OK) out->n = predictions.n, cloob_zeroshot_release(out);
    arena_release(&a);
    stored_rows_release(&stored);
    return status;
}
