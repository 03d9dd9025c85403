/* Zero-shot examples of a run: some validation images with their most likely captions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/json.h"
#include "data/sets/dataset.h"
#include "infer/embed_data.h"
#include "infer/model_file.h"
#include "lab/memory.h"
#include "lab/report/page.h"
#include "tensor/cpu/gemm.h"

enum { THUMB = 160, EXAMPLES = 12, GUESSES = 5, DIGITS = 4 /* of probabilities */ };

typedef struct samples {
    cloob_ctx *ctx;
    model *m;
    const dataset *d;
    int64_t n, D;
    float *image, *text; /* (n, D) unit rows */
    float *cosine;       /* (n) of one image with every text */
    int64_t *index;      /* (n) which sample of the set */
    char **caption;      /* (n) */
} samples;

/* ---- embeddings ---------------------------------------------------------------------------------- */

static cloob_status gather(cloob_ctx *ctx, void *user, const embedded *b)
{
    samples *s = user;
    int64_t every = (dataset_count(s->d) + MAX_SAMPLES - 1) / MAX_SAMPLES;
    (void)ctx;
    for (int64_t i = 0; i < b->rows && s->n < MAX_SAMPLES; i++) {
        if (b->index[i] % every) continue;
        memcpy(s->image + s->n * s->D, b->image + i * s->D, (size_t)s->D * sizeof *s->image);
        s->index[s->n++] = b->index[i];
    }
    return CLOOB_OK;
}

static cloob_status embed(samples *s)
{
    embed_options o;
    int64_t bad;
    embed_options_init(&o);
    CLOOB_TRY(embed_data_each(s->ctx, s->m->enc, NULL, s->d, &o, gather, s, &bad));
    for (int64_t i = 0; i < s->n; i++) CLOOB_TRY(dataset_caption(s->ctx, s->d, s->index[i], 0, &s->caption[i]));
    return cloob_encode_texts(s->ctx, s->m, (const char *const *)s->caption, s->n, CLOOB_UNIT, s->text);
}

/* ---- one example --------------------------------------------------------------------------------- */

/* The captions with the largest cosines, best first, each with its softmax at the model's inverse temperature. A
 * caption that several images have is listed once. */
static void put_guesses(samples *s, json_out *out)
{
    double inv_tau = s->m->inv_tau > 0 ? s->m->inv_tau : CLOOB_DEFAULT_INV_TAU, sum = 0;
    json_begin(out, "top", '[');
    for (int64_t i = 0; i < s->n; i++) sum += exp(inv_tau * ((double)s->cosine[i] - 1));
    for (int64_t k = 0; k < GUESSES; k++) {
        int64_t best = -1;
        double share = 0;
        for (int64_t i = 0; i < s->n; i++)
            if (isfinite(s->cosine[i]) && (best < 0 || s->cosine[i] > s->cosine[best])) best = i;
        if (best < 0) break;
        for (int64_t i = 0; i < s->n; i++)
            if (strcmp(s->caption[i], s->caption[best]) == 0 && isfinite(s->cosine[i])) {
                share += exp(inv_tau * ((double)s->cosine[i] - 1)) / sum;
                if (i != best) s->cosine[i] = -INFINITY;
            }
        s->cosine[best] = -INFINITY;
        json_object(out, NULL, J_TEXT("label", s->caption[best]), J_NUMBER("p", share, DIGITS));
    }
    json_end(out);
}

static void put_example(samples *s, int64_t row, json_out *out)
{
    sbuf url = { 0 };
    sample one;
    int64_t rank = 1;
    cpu_sgemm(s->ctx, false, true, s->n, 1, s->D, 1, s->text, s->D, s->image + row * s->D, s->D, 0, s->cosine, 1);
    for (int64_t i = 0; i < s->n; i++) rank += s->cosine[i] > s->cosine[row];
    if (dataset_read(s->ctx, s->d, s->index[row], 0, NULL, &one) == CLOOB_OK) { /* otherwise keep the caption */
        (void)thumbnail_put(s->ctx, &one.im, min64(THUMB, min64(one.im.width, one.im.height)), &url);
        sample_release(&one);
    }
    json_begin(out, NULL, '{');
    json_members(out, J_TEXT("image", url.data ? url.data : ""), J_TEXT("truth", s->caption[row]), J_INT("rank", rank));
    put_guesses(s, out);
    json_end(out);
    out->failed |= url.failed;
    sbuf_release(&url);
}

/* ---- the file ------------------------------------------------------------------------------------ */

cloob_status samples_json(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d, const char *checkpoint, sbuf *out)
{
    if (!m->tok) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: has no tokenizer", m->path);
    if (!dataset_has_captions(d)) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "the validation data has no captions");
    size_t limit = (size_t)min64(MAX_SAMPLES, dataset_count(d)), D = (size_t)encoder_width(m->enc, CLOOB_UNIT, false);
    samples s = { .ctx = ctx,
                  .m = m,
                  .d = d,
                  .D = (int64_t)D,
                  .image = must(malloc(limit * D * sizeof *s.image)),
                  .text = must(malloc(limit * D * sizeof *s.text)),
                  .cosine = must(malloc(limit * sizeof *s.cosine)),
                  .index = must(malloc(limit * sizeof *s.index)),
                  .caption = must(calloc(limit, sizeof *s.caption)) };
    json_out w = { .spaced = true };
    cloob_status status = embed(&s);
    if (status == CLOOB_OK) {
        int64_t count = min64(EXAMPLES, s.n);
        json_begin(&w, NULL, '{');
        json_put_text(&w, "checkpoint", checkpoint);
        json_begin(&w, "examples", '[');
        for (int64_t k = 0; k < count; k++) put_example(&s, k * s.n / count, &w); /* evenly spread */
        json_end(&w), json_end(&w);
        json_out_append(&w, out);
    }
    for (int64_t i = 0; i < s.n; i++) free(s.caption[i]);
    free(s.image), free(s.text), free(s.cosine), free(s.index), free(s.caption);
    return status;
}
