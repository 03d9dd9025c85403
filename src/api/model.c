/* Thin bodies of include/cloob/model.h: opening and encoding. */
#include "cloob/model.h"

#include <stdio.h>
#include <stdlib.h>

#include "infer/model_file.h"
#include "core/needs.h"
#include "core/option_row.h"

static const cloob_option model_table[] = {
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(cloob_model_options, , __VA_ARGS__)
#include "cloob/model_options.def"
};

const cloob_option *cloob_model_option_table(int64_t *count) { return OPTION_TABLE(model_table, count); }

void cloob_model_options_init(cloob_model_options *o)
{
    if (!o) return;
    *o = (cloob_model_options){ .max_pixels = CLOOB_DEFAULT_MAX_PIXELS };
    OPTION_DEFAULTS(model_table, o);
}

static const cloob_option eval_table[] = {
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(cloob_eval_options, , __VA_ARGS__)
#include "cloob/eval_options.def"
};

const cloob_option *cloob_eval_option_table(int64_t *count) { return OPTION_TABLE(eval_table, count); }

void cloob_eval_options_init(cloob_eval_options *o)
{
    if (o) OPTION_DEFAULTS(eval_table, o);
}

cloob_status cloob_model_open(cloob_ctx *ctx, const char *path, const cloob_model_options *o, cloob_model **out)
{
    API_NEEDS(ctx, path && out);
    cloob_model_options defaults;
    cloob_model_options_init(&defaults);
    if (!o) o = &defaults;
    *out = NULL;
    return model_open(ctx, path, o, out);
}

void cloob_model_close(cloob_model *m)
{
    if (!m) return;
    model_close(m);
}

void cloob_model_get_facts(const cloob_model *m, cloob_model_facts *out)
{
    if (!m || !out) return;
    model_get_facts(m, out);
}

int64_t cloob_model_width(const cloob_model *m, cloob_output what, cloob_side side)
{
    if (!m) return 0;
    return encoder_width(m->enc, what, side == CLOOB_TEXT);
}

cloob_status cloob_encode_images(cloob_ctx *ctx, cloob_model *m, const uint8_t *rgb, int64_t n, cloob_output what,
                                 float *out)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (rgb && out)));
    return encoder_images(ctx, m->enc, rgb, n, what, out);
}

cloob_status cloob_encode_image(cloob_ctx *ctx, cloob_model *m, const uint8_t *rgb, int64_t width, int64_t height,
                                cloob_output what, float *out)
{
    API_NEEDS(ctx, m && rgb && out);
    if (width < 1 || height < 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "an image of %lld x %lld", (long long)width, (long long)height);
    image im = { .rgb = (uint8_t *)(uintptr_t)rgb, .width = width, .height = height }; /* only read */
    size_t bytes = (size_t)(m->view.size * m->view.size * 3);
    uint8_t *view = malloc(bytes);
    if (!view) return ctx_no_memory(ctx, bytes, "an image");
    cloob_status status = transform_eval(ctx, &im, &m->view, view);
    if (status == CLOOB_OK) status = encoder_images(ctx, m->enc, view, 1, what, out);
    free(view);
    return status;
}

cloob_status cloob_encode_files(cloob_ctx *ctx, cloob_model *m, const char *const *path, int64_t n, cloob_output what,
                                float *out, bool *bad)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (path && out)));
    return model_image_files(ctx, m, path, n, what, out, bad);
}

cloob_status cloob_encode_texts(cloob_ctx *ctx, cloob_model *m, const char *const *text, int64_t n, cloob_output what,
                                float *out)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (text && out)));
    return model_texts(ctx, m, text, n, what, out);
}

cloob_status cloob_model_tokenize(cloob_ctx *ctx, const cloob_model *m, const char *const *text, int64_t n,
                                  int32_t *rows)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (text && rows)));
    if (!m->tok) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "the weights hold no tokenizer; open them with a vocabulary");
    return tokenizer_encode_rows(ctx, m->tok, text, n, encoder_config(m->enc)->context, rows);
}

cloob_status cloob_encode_image_tensor(cloob_ctx *ctx, cloob_model *m, const float *images, int64_t n,
                                       cloob_output what, float *out)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (images && out)));
    return encoder_float_images(ctx, m->enc, images, n, what, out);
}

cloob_status cloob_encode_tokens(cloob_ctx *ctx, cloob_model *m, const int32_t *tokens, int64_t n, cloob_output what,
                                 float *out)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (tokens && out)));
    return encoder_texts(ctx, m->enc, tokens, n, what, out);
}
