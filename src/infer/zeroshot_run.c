/* Prompts and images through the towers into the counts of eval/zeroshot.h. */
#include "infer/zeroshot_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "infer/embed_data.h"
#include "infer/model_file.h"

void zeroshot_run_options_init(zeroshot_run_options *o) { *o = (zeroshot_run_options){ .batch = 64, .workers = 2 }; }

/* ---- class weights ------------------------------------------------------------------------------- */

/* Every template filled with every name: the prompts of one class, n of them; freed with free_prompts. */
static void free_prompts(char **text, int64_t n)
{
    for (int64_t i = 0; text && i < n; i++) free(text[i]);
    free(text);
}

static cloob_status fill_prompts(cloob_ctx *ctx, const prompt_set *set, int64_t c, char ***out, int64_t *n)
{
    const prompt_list *names = &set->classes[c];
    *n = names->count * set->templates.count;
    char **text = calloc((size_t)*n, sizeof *text);
    *out = text;
    if (!text) return ctx_no_memory(ctx, (size_t)*n * sizeof *text, "prompts");
    for (int64_t i = 0; i < *n; i++) {
        sbuf s = { 0 };
        prompt_fill(set->templates.item[i % set->templates.count], names->item[i / set->templates.count], &s);
        if (!(text[i] = sbuf_detach(&s))) return ctx_no_memory(ctx, 64, "a prompt");
    }
    return CLOOB_OK;
}

static cloob_status class_weight(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const prompt_set *set, int64_t c,
                                 const zeroshot_run_options *o, zeroshot *z)
{
    char **text;
    int64_t n;
    float *rows = NULL;
    cloob_status status = fill_prompts(ctx, set, c, &text, &n);
    if (status == CLOOB_OK && !(rows = malloc((size_t)(n * z->D) * sizeof *rows)))
        status = ctx_no_memory(ctx, (size_t)(n * z->D) * sizeof *rows, "prompts");
    if (status == CLOOB_OK) status = encode_texts(ctx, enc, tok, (const char *const *)text, n, CLOOB_UNIT, rows);
    if (status == CLOOB_OK && o->hook) status = o->hook(ctx, o->hook_user, rows, n, z->D);
    if (status == CLOOB_OK) status = zeroshot_prompts(ctx, z, c, rows, n);
    free(rows);
    free_prompts(text, n);
    return status;
}

cloob_status zeroshot_weights(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const prompt_set *set,
                              const zeroshot_run_options *o, zeroshot *z)
{
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

/* The largest score, the first of equal ones as accuracies count it, and its share of the softmax. */
static cloob_status visit_predictions(cloob_ctx *ctx, const zeroshot_run_options *o, const zeroshot *z, const batch *b,
                                      const int64_t *label)
{
    for (int64_t i = 0; i < b->rows; i++) {
        const float *score = z->score + i * z->answers;
        int64_t best = 0, rank = 1;
        double sum = 0;
        for (int64_t k = 1; k < z->answers; k++)
            if (score[k] > score[best]) best = k;
        for (int64_t k = 0; k < z->answers; k++) /* of equal scores the first counts as higher */
            rank += score[k] > score[label[i]] || (score[k] == score[label[i]] && k < label[i]);
        for (int64_t k = 0; k < z->answers; k++) sum += exp(o->inv_tau * ((double)score[k] - score[best]));
        CLOOB_TRY(o->predicted(ctx, o->predicted_user, b->index[i], label[i], best, rank, 1 / sum));
    }
    return CLOOB_OK;
}

static cloob_status count_batch(cloob_ctx *ctx, encoder *enc, const batch *b, const int64_t *class_of,
                                const zeroshot_run_options *o, float *rows, int64_t *label, zeroshot *z)
{
    CLOOB_TRY(encoder_images(ctx, enc, b->images, b->rows, CLOOB_UNIT, rows));
    if (o->hook) CLOOB_TRY(o->hook(ctx, o->hook_user, rows, b->rows, z->D));
    for (int64_t i = 0; i < b->rows; i++) {
        if (b->label[i] < 0) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "sample %lld has no class", (long long)b->index[i]);
        label[i] = class_of[b->label[i]];
    }
    CLOOB_TRY(zeroshot_add(ctx, z, rows, label, b->rows, z->count.N));
    return o->predicted ? visit_predictions(ctx, o, z, b, label) : CLOOB_OK;
}

static cloob_status count_all(cloob_ctx *ctx, encoder *enc, loader *l, const int64_t *class_of, int64_t images,
                              const zeroshot_run_options *o, zeroshot *z)
{
    float *rows = malloc((size_t)(o->batch * z->D) * sizeof *rows);
    int64_t *label = malloc((size_t)o->batch * sizeof *label);
    cloob_status status = rows && label ? CLOOB_OK : ctx_no_memory(ctx, (size_t)(o->batch * z->D) * 4, "a batch");
    while (status == CLOOB_OK) {
        batch b;
        ctx_progress(ctx, "classify", z->count.N, images, "images");
        status = loader_next(ctx, l, &b);
        if (status != CLOOB_OK || b.end) break;
        status = count_batch(ctx, enc, &b, class_of, o, rows, label, z);
    }
    ctx_progress(ctx, "classify", images, images, "images");
    free(rows), free(label);
    return status;
}

static cloob_status add_images(cloob_ctx *ctx, encoder *enc, const dataset *d, const int64_t *class_of,
                               const zeroshot_run_options *o, zeroshot *z, int64_t *bad)
{
    zeroshot_run_options full = *o;
    full.batch = embed_rows_at_once(enc, o->batch);
    embed_options eo = { .what = CLOOB_UNIT, .batch = full.batch, .workers = o->workers };
    loader *l = NULL;
    CLOOB_TRY(embed_loader(ctx, enc, NULL, d, &eo, &l));
    cloob_status status = count_all(ctx, enc, l, class_of, dataset_count(d), &full, z);
    if (status == CLOOB_OK) *bad = loader_stats_take(l).bad_samples;
    if (status == CLOOB_OK && z->count.N == 0)
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "none of the %lld images can be read", (long long)*bad);
    loader_destroy(l);
    return status;
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

/* Prompts of a thousand classes take minutes: whether classes and prompts fit is found out before. */
cloob_status zeroshot_run(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const dataset *d, const prompt_set *set,
                          const zeroshot_run_options *o, zeroshot *z, int64_t *bad)
{
    int64_t classes = dataset_class_count(d);
    *bad = 0;
    if (!classes) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "the data has no classes; zero-shot accuracy needs them");
    int64_t *class_of = malloc((size_t)classes * sizeof *class_of);
    if (!class_of) return ctx_no_memory(ctx, (size_t)classes * sizeof *class_of, "classes");
    cloob_status status = find_classes(ctx, d, set, o->map, class_of);
    if (status == CLOOB_OK) status = zeroshot_weights(ctx, enc, tok, set, o, z);
    if (status == CLOOB_OK && (status = add_images(ctx, enc, d, class_of, o, z, bad)) != CLOOB_OK) zeroshot_release(z);
    free(class_of);
    return status;
}
