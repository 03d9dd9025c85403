/* Samples are examined in parallel, one row each; the statistics are computed from the rows. */
#include "core/arith.h"
#include "data/sets/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/needs.h"
#include "core/pool.h"
#include "core/text.h"

enum { MOST_CAPTIONS = 16 }; /* of one sample */

/* The measured quantities: of an image, then of a caption. */
typedef enum figure { WIDTH, HEIGHT, IMAGE_BYTES, WORDS, CHARS } figure;

typedef struct caption_facts {
    uint64_t hash;
    int32_t figure[CHARS - WORDS + 1];
} caption_facts;

typedef struct row {
    bool good;
    double figure[WORDS];
    int captions;
    caption_facts caption[MOST_CAPTIONS];
    char *reason;
} row;

typedef struct look {
    const dataset *d;
    int64_t count, examine;
    row *rows;
} look;

/* ---- one sample --------------------------------------------------------------------------------- */

static caption_facts caption_look(const char *text, size_t n)
{
    caption_facts f = { .hash = FNV_START };
    bool inside = false;
    for (size_t at = 0; at < n;) {
        uint32_t code;
        int bytes = utf8_decode(text + at, n - at, &code);
        bool space = code == ' ' || (code >= '\t' && code <= '\r');
        f.figure[0] += !space && !inside;
        inside = !space;
        f.figure[CHARS - WORDS]++;
        f.hash = fnv_add(f.hash, text + at, (size_t)bytes);
        at += (size_t)(bytes > 0 ? bytes : 1);
    }
    return f;
}

static cloob_status examine_image(cloob_ctx *ctx, const dataset *d, const stored_sample *s, row *r)
{
    image im = { .width = s->width, .height = s->height };
    image_limits limits = dataset_image_limits(d);
    if (!s->width) CLOOB_TRY(image_decode(ctx, s->data, s->size, s->name.data, &limits, &im));
    r->figure[WIDTH] = (double)im.width;
    r->figure[HEIGHT] = (double)im.height;
    r->figure[IMAGE_BYTES] = (double)s->size;
    image_release(&im);
    return CLOOB_OK;
}

static cloob_status examine_sample(cloob_ctx *ctx, const dataset *d, int64_t i, stored_sample *s, row *r)
{
    CLOOB_TRY(dataset_fetch(ctx, d, i, 0, FETCH_IMAGE | FETCH_CAPTION, s));
    CLOOB_TRY(examine_image(ctx, d, s, r));
    for (int64_t k = 0; k < s->captions && r->captions < MOST_CAPTIONS; k++) {
        if (k > 0) CLOOB_TRY(dataset_fetch(ctx, d, i, (uint64_t)k, FETCH_CAPTION, s));
        r->caption[r->captions++] = caption_look(s->caption.data, s->caption.len);
    }
    r->good = true;
    return CLOOB_OK;
}

static cloob_status examine_range(cloob_ctx *ctx, void *arg, int64_t begin, int64_t end, int thread)
{
    look *l = arg;
    stored_sample s = { 0 };
    cloob_status status = CLOOB_OK;
    (void)thread;
    for (int64_t k = begin; status == CLOOB_OK && k < end; k++) {
        int64_t i = (int64_t)((double)k * (double)l->count / (double)l->examine);
        status = examine_sample(ctx, l->d, i, &s, &l->rows[k]);
        if (status != CLOOB_ERR_FORMAT && status != CLOOB_ERR_IO) continue; /* strings belong to the sample */
        l->rows[k].reason = strdup(cloob_error(ctx));
        status = CLOOB_OK;
    }
    stored_sample_release(&s);
    return status;
}

/* ---- figures ------------------------------------------------------------------------------------ */

static data_spread spread(double *value, int64_t n)
{
    data_spread s = { 0 };
    if (!n) return s;
    qsort(value, (size_t)n, sizeof *value, order_double);
    for (int64_t i = 0; i < n; i++) s.mean += value[i] / (double)n;
    s.min = value[0];
    s.max = value[n - 1];
    s.median = (value[(n - 1) / 2] + value[n / 2]) / 2;
    return s;
}

static data_spread gather(const look *l, figure f, double *value)
{
    int64_t n = 0;
    for (const row *r = l->rows; r < l->rows + l->examine; r++) {
        if (r->good && f < WORDS) value[n++] = r->figure[f];
        for (int k = 0; r->good && f >= WORDS && k < r->captions; k++) value[n++] = r->caption[k].figure[f - WORDS];
    }
    return spread(value, n);
}

static int64_t count_distinct(const look *l, uint64_t *hash)
{
    int64_t n = 0, distinct = 0;
    for (int64_t i = 0; i < l->examine; i++)
        for (int k = 0; l->rows[i].good && k < l->rows[i].captions; k++) hash[n++] = l->rows[i].caption[k].hash;
    if (n) qsort(hash, (size_t)n, sizeof *hash, order_int64);
    for (int64_t i = 0; i < n; i++) distinct += i == 0 || hash[i] != hash[i - 1];
    return distinct;
}

static cloob_status summarise(cloob_ctx *ctx, const look *l, data_info *out)
{
    out->examined = l->examine;
    for (int64_t i = 0; i < l->examine; i++) {
        const row *r = &l->rows[i];
        if (r->good) out->captions += r->captions;
        else if (out->bad++ < INFO_REASONS && r->reason)
            strncpy(out->reason[out->bad - 1], r->reason, sizeof out->reason[0] - 1);
    }
    size_t n = (size_t)(out->captions > l->examine ? out->captions : l->examine);
    double *value = malloc((n + 1) * sizeof *value);
    if (!value) return ctx_no_memory(ctx, n * sizeof *value, "the figures of a data set");
    out->width = gather(l, WIDTH, value);
    out->height = gather(l, HEIGHT, value);
    out->image_bytes = gather(l, IMAGE_BYTES, value);
    out->caption_words = gather(l, WORDS, value);
    out->caption_chars = gather(l, CHARS, value);
    out->distinct_captions = count_distinct(l, (uint64_t *)(void *)value);
    free(value);
    return CLOOB_OK;
}

/* Labels are known without the images. */
static cloob_status count_classes(cloob_ctx *ctx, const dataset *d, data_info *out)
{
    int64_t n = out->classes;
    stored_sample s = { 0 };
    if (!n) return CLOOB_OK;
    double *size = calloc((size_t)n, sizeof *size);
    if (!size) return ctx_no_memory(ctx, (size_t)n * sizeof *size, "the sizes of the classes");
    for (int64_t i = 0; i < dataset_count(d); i++)
        if (dataset_fetch(ctx, d, i, 0, 0, &s) == CLOOB_OK && s.label >= 0 && s.label < n) size[s.label]++;
    out->class_size = spread(size, n);
    stored_sample_release(&s);
    free(size);
    return CLOOB_OK;
}

cloob_status dataset_info(cloob_ctx *ctx, const dataset *d, int64_t examine, data_info *out)
{
    int64_t count = dataset_count(d);
    if (examine <= 0 || examine > count) examine = count;
    *out = (data_info){ .kind = dataset_kind(d),
                        .samples = count,
                        .files = dataset_file_count(d),
                        .classes = dataset_class_count(d),
                        .skipped = dataset_skipped(d) };
    look l = { .d = d, .count = count, .examine = examine, .rows = calloc((size_t)examine, sizeof(row)) };
    if (!l.rows) return ctx_no_memory(ctx, (size_t)examine * sizeof(row), "the figures of a data set");
    cloob_status status = pool_try(ctx, examine, 16, examine_range, &l);
    if (status == CLOOB_OK) status = summarise(ctx, &l, out);
    if (status == CLOOB_OK) status = count_classes(ctx, d, out);
    for (int64_t i = 0; i < examine; i++) free(l.rows[i].reason);
    free(l.rows);
    return status;
}
