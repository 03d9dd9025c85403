/* Embeds, asks, writes. */
#include "lab/report/samples.h"

#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/text.h"
#include "core/json.h"
#include "infer/embed_data.h"
#include "infer/zeroshot_run.h"
#include "io/image/image.h"
#include "tensor/cpu/gemm.h"

enum { THUMB = 160, THUMB_QUALITY = 85, HITS = 6, SEARCHES = 5, NEIGHBORS = 4, NEAR = 5, MATRIX = 8, TEMPLATES = 12 };

/* ---- images -------------------------------------------------------------------------------------- */

static cloob_status put_thumb(samples *s, int64_t row, sbuf *jpeg)
{
    sample one;
    transform_options view;
    CLOOB_TRY(dataset_read(s->ctx, s->d, s->index[row], 0, NULL, &one));
    int64_t side = min64(THUMB, min64(one.im.width, one.im.height));
    uint8_t *rgb = malloc((size_t)(side * side * 3));
    cloob_status status = rgb ? CLOOB_OK : ctx_no_memory(s->ctx, (size_t)(side * side * 3), "a thumbnail");
    transform_options_init(&view, side);
    if (status == CLOOB_OK) status = transform_eval(s->ctx, &one.im, &view, rgb);
    if (status == CLOOB_OK) status = image_encode_jpeg(s->ctx, rgb, side, side, THUMB_QUALITY, jpeg);
    free(rgb);
    sample_release(&one);
    return status;
}

int64_t samples_use(samples *s, int64_t row)
{
    sbuf jpeg = { 0 }, url = { 0 };
    if (s->number[row] >= 0) return s->number[row];
    cloob_status status = put_thumb(s, row, &jpeg);
    if (status == CLOOB_OK) { /* an image that is gone leaves an empty frame */
        sbuf_puts(&url, "data:image/jpeg;base64,");
        base64_put(&url, jpeg.data, jpeg.len);
    }
    json_begin(&s->thumbs, NULL, '{');
    json_members(&s->thumbs, J_TEXT("src", url.data ? url.data : ""), J_TEXT("caption", s->caption[row]));
    if (s->truth.F && world_never_seen(s->index[row])) json_put_bool(&s->thumbs, "never_seen", true);
    json_end(&s->thumbs);
    s->thumbs.failed |= url.failed || status == CLOOB_ERR_MEMORY;
    sbuf_release(&jpeg), sbuf_release(&url);
    return s->number[row] = s->images++;
}

int64_t samples_top(const float *score, int64_t n, int64_t stride, int64_t without, samples_hit *hit, int64_t k)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        float v = score[i * stride];
        if (i == without || (found == k && v <= hit[k - 1].score)) continue;
        int64_t at = found < k ? found++ : k - 1;
        for (; at > 0 && hit[at - 1].score < v; at--) hit[at] = hit[at - 1];
        hit[at] = (samples_hit){ i, v };
    }
    return found;
}

static void put_hits(samples *s, const char *key, const samples_hit *hit, int64_t n)
{
    json_begin(&s->out, key, '[');
    for (int64_t k = 0; k < n; k++) {
        json_object(&s->out, NULL, J_INT("image", samples_use(s, hit[k].row)),
                    J_NUMBER("score", (double)hit[k].score, SAMPLES_DIGITS));
    }
    json_end(&s->out);
}

/* ---- embeddings ---------------------------------------------------------------------------------- */

typedef struct gathering {
    samples *s;
    int64_t every; /* of the set's samples one in so many */
} gathering;

static cloob_status gather(cloob_ctx *ctx, void *user, const embedded *b)
{
    gathering *g = user;
    samples *s = g->s;
    (void)ctx;
    for (int64_t i = 0; i < b->rows && s->n < MAX_SAMPLES; i++) {
        if (b->index[i] / 2 % g->every) continue; /* pairs stay together: in a world the odd ones are never seen */
        memcpy(s->image + s->n * s->D, b->image + i * s->D, (size_t)s->D * sizeof *s->image);
        s->index[s->n++] = b->index[i];
    }
    return CLOOB_OK;
}

static cloob_status embed_images(samples *s)
{
    embed_options o;
    int64_t bad;
    gathering g = { s, (dataset_count(s->d) + MAX_SAMPLES - 1) / MAX_SAMPLES };
    embed_options_init(&o);
    o.texts = false;
    return embed_data_each(s->ctx, s->m->enc, NULL, s->d, &o, gather, &g, &bad);
}

static cloob_status embed_captions(samples *s)
{
    for (int64_t i = 0; i < s->n; i++) CLOOB_TRY(dataset_caption(s->ctx, s->d, s->index[i], 0, &s->caption[i]));
    CLOOB_TRY(model_texts(s->ctx, s->m, (const char *const *)s->caption, s->n, CLOOB_UNIT, s->text));
    cpu_sgemm(s->ctx, false, true, s->n, s->n, s->D, 1, s->image, s->D, s->text, s->D, 0, s->cosine, s->n);
    return CLOOB_OK;
}

/* A world has many templates a factor; some of them, evenly spread, say nearly the same. */
static prompt_set fewer_templates(const prompt_set *set, const char **item)
{
    prompt_set few = *set;
    few.templates.count = min64(TEMPLATES, set->templates.count);
    few.templates.item = item;
    for (int64_t i = 0; i < few.templates.count; i++)
        item[i] = set->templates.item[i * set->templates.count / few.templates.count];
    return few;
}

static cloob_status read_world(samples *s)
{
    zeroshot_run_options o;
    zeroshot_run_options_init(&o);
    if (!s->o->world) return CLOOB_OK;
    CLOOB_TRY(world_truth_read(s->ctx, s->o->world, &s->truth));
    if (s->truth.N != dataset_count(s->d)) {
        ctx_log(s->ctx, CLOOB_LOG_WARN, "%s: its factors.tsv belongs to other images; factors are left out",
                s->o->world);
        s->truth.F = 0;
    }
    for (int64_t k = 0; k < s->truth.F; k++)
        if (s->truth.set[k]->class_count > SAMPLES_CLASSES)
            return ctx_fail(s->ctx, CLOOB_ERR_FORMAT, "%s: %s has more than %d values", s->o->world, s->truth.name[k],
                            SAMPLES_CLASSES);
    for (int64_t k = 0; k < s->truth.F; k++) {
        const char *item[TEMPLATES];
        prompt_set few = fewer_templates(s->truth.set[k], item);
        CLOOB_TRY(zeroshot_weights(s->ctx, s->m->enc, s->m->tok, &few, &o, &s->z[k]));
    }
    return CLOOB_OK;
}

/* ---- the smaller members ------------------------------------------------------------------------- */

static cloob_status put_searches(samples *s)
{
    int64_t count = s->o->searches ? s->o->searches : min64(SEARCHES, s->n);
    float *query = malloc((size_t)(s->D + s->n) * sizeof *query), *score = query + s->D;
    cloob_status status = query ? CLOOB_OK : ctx_no_memory(s->ctx, (size_t)(s->D + s->n) * 4, "a search");
    json_begin(&s->out, "searches", '[');
    for (int64_t q = 0; q < count && status == CLOOB_OK; q++) {
        samples_hit hit[HITS];
        const char *text = s->o->searches ? s->o->search[q] : s->caption[q * s->n / count];
        status = model_texts(s->ctx, s->m, &text, 1, CLOOB_UNIT, query);
        if (status != CLOOB_OK) break;
        cpu_sgemm(s->ctx, false, true, s->n, 1, s->D, 1, s->image, s->D, query, s->D, 0, score, 1);
        json_begin(&s->out, NULL, '{');
        json_put_text(&s->out, "text", text);
        put_hits(s, "hits", hit, samples_top(score, s->n, 1, -1, hit, HITS));
        json_end(&s->out);
    }
    json_end(&s->out);
    free(query);
    return status;
}

static cloob_status put_neighbors(samples *s)
{
    float *score = malloc((size_t)s->n * sizeof *score);
    if (!score) return ctx_no_memory(s->ctx, (size_t)s->n * sizeof *score, "neighbours");
    json_begin(&s->out, "neighbors", '[');
    for (int64_t k = 0; k < min64(NEIGHBORS, s->n); k++) {
        int64_t row = (2 * k + 1) * s->n / (2 * min64(NEIGHBORS, s->n));
        samples_hit hit[NEAR];
        cpu_sgemm(s->ctx, false, true, s->n, 1, s->D, 1, s->image, s->D, s->image + row * s->D, s->D, 0, score, 1);
        json_begin(&s->out, NULL, '{');
        json_put_int(&s->out, "image", samples_use(s, row));
        put_hits(s, "near", hit, samples_top(score, s->n, 1, row, hit, NEAR));
        json_end(&s->out);
    }
    json_end(&s->out);
    free(score);
    return CLOOB_OK;
}

/* Pairs spread over the set, none with a caption that another has. */
static int64_t pick_distinct(const samples *s, int64_t *row, int64_t limit)
{
    int64_t found = 0;
    for (int64_t k = 0; k < s->n && found < limit; k++) {
        int64_t i = (int64_t)((uint64_t)(k * 2 + 1) * 40503u % (uint64_t)s->n); /* a fixed walk over the set */
        bool repeated = false;
        for (int64_t j = 0; j < found; j++) repeated |= strcmp(s->caption[row[j]], s->caption[i]) == 0;
        if (!repeated) row[found++] = i;
    }
    return found;
}

static void put_matrix(samples *s)
{
    int64_t row[MATRIX], n = pick_distinct(s, row, MATRIX);
    json_begin(&s->out, "matrix", '{');
    json_begin(&s->out, "images", '[');
    for (int64_t i = 0; i < n; i++) json_put_int(&s->out, NULL, samples_use(s, row[i]));
    json_end(&s->out);
    json_begin(&s->out, "texts", '[');
    for (int64_t i = 0; i < n; i++) json_put_text(&s->out, NULL, s->caption[row[i]]);
    json_end(&s->out);
    json_begin(&s->out, "cosine", '[');
    for (int64_t i = 0; i < n; i++) {
        json_begin(&s->out, NULL, '[');
        for (int64_t j = 0; j < n; j++)
            json_put_digits(&s->out, NULL, (double)s->cosine[row[i] * s->n + row[j]], SAMPLES_DIGITS);
        json_end(&s->out);
    }
    json_end(&s->out);
    json_end(&s->out);
}

/* ---- all of it ----------------------------------------------------------------------------------- */

static cloob_status samples_init(samples *s)
{
    size_t limit = (size_t)min64(MAX_SAMPLES, dataset_count(s->d)), D = (size_t)s->D;
    s->image = malloc(limit * D * sizeof *s->image);
    s->text = malloc(limit * D * sizeof *s->text);
    s->cosine = malloc(limit * limit * sizeof *s->cosine);
    s->index = malloc(limit * sizeof *s->index);
    s->number = malloc(limit * sizeof *s->number);
    s->caption = calloc(limit, sizeof *s->caption);
    if (!s->image || !s->text || !s->cosine || !s->index || !s->number || !s->caption)
        return ctx_no_memory(s->ctx, limit * (limit + 2 * D) * sizeof(float), "samples");
    for (size_t i = 0; i < limit; i++) s->number[i] = -1;
    return CLOOB_OK;
}

static void samples_release(samples *s)
{
    for (int64_t i = 0; s->caption && i < s->n; i++) free(s->caption[i]);
    for (int64_t k = 0; k < WORLD_FACTORS; k++) zeroshot_release(&s->z[k]);
    free(s->image), free(s->text), free(s->cosine), free(s->index), free(s->number), free(s->caption);
    free(s->thumbs.data), free(s->out.data);
    world_truth_release(&s->truth);
}

static cloob_status put_members(samples *s)
{
    samples_gallery(s);
    CLOOB_TRY(put_searches(s));
    samples_retrieval(s);
    CLOOB_TRY(put_neighbors(s));
    put_matrix(s);
    samples_sets(s);
    json_end(&s->thumbs);
    if (!s->thumbs.failed) json_put_raw(&s->out, "images", s->thumbs.data, s->thumbs.len);
    return s->out.failed || s->thumbs.failed ? ctx_no_memory(s->ctx, s->out.len, "samples") : CLOOB_OK;
}

cloob_status samples_json(cloob_ctx *ctx, model *m, const dataset *d, const samples_options *o, sbuf *out)
{
    if (!m->tok) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: has no tokenizer", m->path);
    if (!dataset_has_captions(d)) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: has no captions", o->data);
    samples *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, "samples");
    *s = (samples){ .ctx = ctx, .m = m, .d = d, .o = o, .D = encoder_width(m->enc, CLOOB_UNIT, false) };
    s->out.spaced = s->thumbs.spaced = true;
    cloob_status status = samples_init(s);
    if (status == CLOOB_OK) status = embed_images(s);
    if (status == CLOOB_OK && s->n < 2) status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: fewer than two images", o->data);
    if (status == CLOOB_OK) status = embed_captions(s);
    if (status == CLOOB_OK) status = read_world(s);
    if (status == CLOOB_OK) {
        json_begin(&s->thumbs, NULL, '[');
        json_begin(&s->out, NULL, '{');
        json_members(&s->out, J_OF(o, checkpoint), J_OF(o, data), J_INT("pairs", s->n));
        status = put_members(s);
        json_end(&s->out);
        json_out_append(&s->out, out);
    }
    samples_release(s);
    free(s);
    return status;
}
