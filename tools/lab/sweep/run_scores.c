/* What a trained run scores on classes and on pairs. */
#include "lab/sweep/runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/evaluate.h"
#include "data/text/prompts.h"
#include "cloob/zeroshot.h"
#include "core/file.h"
#include "core/json.h"
#include "infer/embed_job.h"
#include "lab/memory.h"

/* ---- classes ------------------------------------------------------------------------------------- */

cloob_status run_write_object(cloob_ctx *ctx, cloob_status so_far, json_out *out, const char *path)
{
    json_end(out);
    char *text = must(json_out_line(out));
    cloob_status status = so_far == CLOOB_OK ? file_write(ctx, path, text, strlen(text)) : so_far;
    free(text);
    return status;
}

/* "world/classes/object/" -> "object" */
void run_set_name(const char *path, char out[128])
{
    size_t n = strlen(path), from;
    while (n > 1 && path[n - 1] == '/') n--;
    for (from = n; from > 0 && path[from - 1] != '/';) from--;
    snprintf(out, 128, "%.*s", (int)(n - from < 127 ? n - from : 127), path + from);
}

/* Writes zeroshot-SET.json into the run's folder, where the report finds it, too. */
static cloob_status put_zeroshot(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r, cloob_model *m,
                                 const prompts *p, const char *source, const char *prefix, double *sum, json_out *out)
{
    char set[128], path[SWEEP_PATH + 160], key[160];
    cloob_dataset *d;
    cloob_data_options images = dataset_options_of_images(&o->train.data);
    cloob_zeroshot_options z;
    cloob_zeroshot_result found;
    json_out text = { .spaced = true };
    cloob_zeroshot_options_init(&z);
    run_set_name(source, set);
    z.prompts = p->count ? p : NULL;
    const prompt_set *of = p->set;
    if (p->count > 1) CLOOB_TRY(prompts_find(ctx, p, set, &of));
    z.set = of - p->set;
    CLOOB_TRY(dataset_open(ctx, source, &images, &d));
    cloob_status status = cloob_zeroshot(ctx, m, d, &z, &found);
    cloob_dataset_close(d);
    CLOOB_TRY(status);
    json_begin(&text, NULL, '{');
    json_members(&text, J_NUMBER("top1", found.top1, 10), J_NUMBER("top5", found.top5, 10),
                 J_NUMBER("mean_per_class", found.mean_per_class, 10), J_OF(&found, n));
    *sum += found.top1;
    snprintf(key, sizeof key, "zeroshot/%s", set);
    json_put_number(out, key, found.top1);
    cloob_zeroshot_release(&found);
    snprintf(path, sizeof path, "%s/%szeroshot-%s.json", r->dir, prefix, set);
    return run_write_object(ctx, CLOOB_OK, &text, path);
}

cloob_status run_put_zeroshots(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r, cloob_model *m,
                               const char *prefix, json_out *out)
{
    prompts p = { 0 };
    double sum = 0;
    cloob_status status = o->prompts ? prompts_open(ctx, o->prompts, &p) : CLOOB_OK;
    for (int64_t i = 0; i < o->zeroshot_count && status == CLOOB_OK; i++)
        status = put_zeroshot(ctx, o, r, m, &p, o->zeroshot[i], prefix, &sum, out);
    if (status == CLOOB_OK && o->zeroshot_count > 1)
        json_put_number(out, "zeroshot/average", sum / (double)o->zeroshot_count);
    prompts_release(&p);
    return status;
}

cloob_status run_open_model(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r, cloob_model **m)
{
    char latest[SWEEP_PATH + 64];
    cloob_model_options mo;
    cloob_model_options_init(&mo);
    mo.device = o->train.device;
    mo.invariant = false; /* accuracies need no equal bytes, and rows one by one leave a GPU idle */
    mo.batch = 64;
    snprintf(latest, sizeof latest, "%s/checkpoints/latest.safetensors", r->dir);
    return cloob_model_open(ctx, latest, &mo, m);
}

/* ---- pairs --------------------------------------------------------------------------------------- */

static void put_side(json_out *out, const char *way, const cloob_retrieval_side *side)
{
    static const char *const name[] = { "R@1", "R@5", "R@10", "median_rank" };
    double value[] = { side->recall1, side->recall5, side->recall10, side->median_rank };
    for (int i = 0; i < 4; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s_%s", way, name[i]);
        json_put_number(out, key, value[i]);
    }
}

/* The first text of every image, in the images' order: e's own texts where each image has one. *own: free it. */
static void first_texts(const embed_result *e, float **own, cloob_matrix *y)
{
    size_t row = (size_t)e->text_width * sizeof(float);
    *y = (cloob_matrix){ e->text, CLOOB_F32, e->text_rows, e->text_width, "text" };
    *own = NULL;
    if (!e->text_image) return;
    *own = must(calloc((size_t)e->rows + 1, row));
    for (int64_t i = e->text_rows - 1; i >= 0; i--)
        memcpy((char *)*own + (size_t)e->text_image[i] * row, (const char *)e->text + (size_t)i * row, row);
    y->data = *own, y->rows = e->rows;
}

/* The paper's analysis, by the names that validation has for it. */
static cloob_status put_analysis(cloob_ctx *ctx, const embed_result *e, const cloob_matrix *x, json_out *out)
{
    enum { TOP_10 = 0 };
    embedding_analysis a;
    cloob_matrix y;
    float *own;
    first_texts(e, &own, &y);
    cloob_status status = analyze_matrices(ctx, &a, x, &y, 0.99);
    free(own);
    CLOOB_TRY(status);
    json_members(out, J_NUMBER("image_ajne", a.x.ajne, 0), J_NUMBER("text_ajne", a.y.ajne, 0),
                 J_NUMBER("image_effective_eigenvalues", (double)a.x.effective, 0),
                 J_NUMBER("text_effective_eigenvalues", (double)a.y.effective, 0),
                 J_NUMBER("matched_similarity", a.similarity.matched.mean, 0),
                 J_NUMBER("top10_unmatched_similarity", a.similarity.unmatched[TOP_10].mean, 0));
    analysis_release(&a);
    return CLOOB_OK;
}

static cloob_status put_pairs(cloob_ctx *ctx, const embed_result *e, json_out *out)
{
    cloob_retrieval r;
    cloob_matrix x = { e->image, CLOOB_F32, e->rows, e->image_width, "image" },
                 y = { e->text, CLOOB_F32, e->text_rows, e->text_width, "text" };
    CLOOB_TRY(cloob_retrieve(ctx, &r, &x, &y, &(cloob_retrieve_options){ .text_image = e->text_image }));
    put_side(out, "image_to_text", &r.image_to_text);
    put_side(out, "text_to_image", &r.text_to_image);
    return put_analysis(ctx, e, &x, out);
}

static cloob_status put_test_pairs(cloob_ctx *ctx, cloob_model *m, const sweep_options *o, const char *source,
                                   json_out *out)
{
    cloob_dataset *d;
    embed_result e = { 0 };
    CLOOB_TRY(dataset_open(ctx, source, &o->train.data, &d));
    cloob_status status = embed_dataset(ctx, m, d, CLOOB_UNIT, 2, &e);
    cloob_dataset_close(d);
    if (status == CLOOB_OK && !e.text) status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: has no captions", source);
    if (status == CLOOB_OK) status = put_pairs(ctx, &e, out);
    embed_result_release(&e);
    return status;
}

cloob_status run_test_once(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r)
{
    sweep_options on_test = *o;
    char path[SWEEP_PATH + 64];
    json_out out = { .spaced = true };
    cloob_model *m;
    snprintf(path, sizeof path, "%s/test.json", r->dir);
    if (file_exists(path)) return CLOOB_OK;
    CLOOB_TRY(run_open_model(ctx, o, r, &m));
    json_begin(&out, NULL, '{');
    json_put_int(&out, "seed", r->seed);
    on_test.zeroshot = o->test_zeroshot, on_test.zeroshot_count = o->test_zeroshot_count;
    cloob_status status = run_put_zeroshots(ctx, &on_test, r, m, "test-", &out);
    if (status == CLOOB_OK && o->test_data) status = put_test_pairs(ctx, m, o, o->test_data, &out);
    cloob_model_close(m);
    return run_write_object(ctx, status, &out, path);
}
