/* Averages of weights: interpolation between two models of one shape, and means of several (model soups). */
#include <string.h>

#include "infer/model_file.h"
#include "model/interchange.h"

enum { BLOCK = 4096 };

/* sum += scale * t, in double. */
static void add_scaled(double *sum, const tensor *t, double scale)
{
    double block[BLOCK];
    int64_t n = tensor_count(t);
    size_t bytes = (size_t)(tensor_bytes(t) / (size_t)(n ? n : 1));
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        dtype_convert(CLOOB_F64, block, t->dtype, (const char *)t->data + (size_t)i * bytes, m);
        for (int64_t k = 0; k < m; k++) sum[i + k] += scale * block[k];
    }
}

/* One tensor of all models: of the first one `1 - alpha`, of the others equal shares of alpha. */
static cloob_status average_tensor(cloob_ctx *ctx, weights *w, int64_t models, const char *const *path, double alpha,
                                   int64_t i, arena *a)
{
    tensor *t = &w[0].entry[i].t;
    const char *name = w[0].entry[i].name;
    int64_t n = tensor_count(t);
    double *sum = arena_push(a, (size_t)n * sizeof *sum);
    if (!sum) return ctx_no_memory(ctx, (size_t)n * sizeof *sum, name);
    memset(sum, 0, (size_t)n * sizeof *sum);
    add_scaled(sum, t, 1 - alpha);
    for (int64_t m = 1; m < models; m++) {
        const tensor *other = weights_find(&w[m], name);
        if (!other || !dtype_is_float(other->dtype) || tensor_count(other) != n)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: %s is missing or has another shape than in %s", path[m], name,
                            path[0]);
        add_scaled(sum, other, alpha / (double)(models - 1));
    }
    t->data = arena_push(&w[0].a, tensor_bytes(t));
    if (!t->data) return ctx_no_memory(ctx, tensor_bytes(t), name);
    dtype_convert(t->dtype, t->data, CLOOB_F64, sum, n);
    return CLOOB_OK;
}

/* Ids must mean the same words in all of them. */
static cloob_status check_tokenizers(cloob_ctx *ctx, const weights *w, int64_t models, const char *const *path)
{
    const char *first = weights_get_meta(&w[0], "tokenizer");
    for (int64_t m = 1; m < models && first; m++) {
        const char *other = weights_get_meta(&w[m], "tokenizer");
        if (other && strcmp(first, other) != 0)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                            "%s: its tokenizer differs from the tokenizer of %s; token embeddings cannot be averaged",
                            path[m], path[0]);
    }
    return CLOOB_OK;
}

static cloob_status average(cloob_ctx *ctx, weights *w, int64_t models, const char *const *path, double alpha,
                            const char *out)
{
    CLOOB_TRY(check_tokenizers(ctx, w, models, path));
    for (int64_t i = 0; i < w[0].count; i++) {
        arena a = { 0 };
        ctx_progress(ctx, "average", i, w[0].count, "tensors");
        bool skip = !dtype_is_float(w[0].entry[i].t.dtype) || strncmp(w[0].entry[i].name, "train.", 6) == 0;
        cloob_status status = skip ? CLOOB_OK : average_tensor(ctx, w, models, path, alpha, i, &a);
        arena_release(&a);
        CLOOB_TRY(status);
    }
    ctx_progress(ctx, "average", w[0].count, w[0].count, "tensors");
    return interchange_write(ctx, out, FORMAT_NATIVE, &w[0]);
}

cloob_status average_weights(cloob_ctx *ctx, const char *const *path, int64_t models, double alpha, const char *out)
{
    weights w[AVERAGE_MODELS];
    int64_t read = 0;
    cloob_status status = CLOOB_OK;
    if (models < 2 || models > AVERAGE_MODELS)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "an average needs 2 to %d models, not %lld", AVERAGE_MODELS,
                        (long long)models);
    if (alpha < 0) alpha = (double)(models - 1) / (double)models;
    if (!(alpha <= 1)) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`alpha` must be between 0 and 1");
    for (; read < models && status == CLOOB_OK; read++) {
        interchange_report report;
        status = interchange_read(ctx, path[read], &(interchange_options){ 0 }, &w[read], &report);
        interchange_report_release(&report);
    }
    if (status == CLOOB_OK) status = average(ctx, w, models, path, alpha, out);
    else read--; /* a failed read leaves nothing to release */
    for (int64_t i = 0; i < read; i++) weights_release(&w[i]);
    return status;
}
