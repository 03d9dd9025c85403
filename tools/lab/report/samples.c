/* Embeds, asks, writes. */
#include "lab/report/run_files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/text.h"
#include "core/json.h"
#include "data/sets/dataset.h"
#include "infer/model_file.h"
#include "eval/zeroshot.h"
#include "infer/embed_data.h"
#include "infer/zeroshot_run.h"
#include "io/image/image.h"
#include "lab/synth/world_truth.h"
#include "tensor/cpu/gemm.h"

enum { THUMB = 160, THUMB_QUALITY = 85, HITS = 6, SEARCHES = 5, NEIGHBORS = 4, NEAR = 5, MATRIX = 8, TEMPLATES = 12 };
enum { GALLERY = 24, CAPTIONS = 3, SHOWN = 4, QUERY_HITS = 4 };
enum { CLASSES = 64 /* of one factor */, DIGITS = 4 /* of cosines and probabilities */ };

typedef struct samples {
    cloob_ctx *ctx;
    model *m;
    const dataset *d;
    const samples_options *o;
    int64_t n, D;
    float *image, *text; /* (n, D) unit rows */
    float *cosine;       /* (n, n): image i, text j */
    int64_t *index;      /* (n) which sample of the set */
    char **caption;      /* (n) */
    int64_t *number;     /* (n) place among the images of the file, -1: not there */
    int64_t images;
    json_out thumbs, out; /* the list of images, and the object that it becomes the last member of */
    world_truth truth;    /* F 0: none */
    zeroshot z[WORLD_FACTORS];
} samples;

typedef struct samples_hit {
    int64_t row;
    float score;
} samples_hit;

/* Of the validation images, even ones are drawn like training data; odd ones are combinations that training never
 * shows. */
static bool world_never_seen(int64_t index) { return index % 2 == 1; }

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

/* The image's place in the file; writes its thumbnail on first use. */
static int64_t use_image(samples *s, int64_t row)
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

/* The k largest of score (n), best first, `without` (a row, or -1) left out. Returns how many. */
static int64_t top_of(const float *score, int64_t n, int64_t stride, int64_t without, samples_hit *hit, int64_t k)
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
        json_object(&s->out, NULL, J_INT("image", use_image(s, hit[k].row)),
                    J_NUMBER("score", (double)hit[k].score, DIGITS));
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
        if (s->truth.set[k]->class_count > CLASSES)
            return ctx_fail(s->ctx, CLOOB_ERR_FORMAT, "%s: %s has more than %d values", s->o->world, s->truth.name[k],
                            CLASSES);
    for (int64_t k = 0; k < s->truth.F; k++) {
        const char *item[TEMPLATES];
        prompt_set few = fewer_templates(s->truth.set[k], item);
        CLOOB_TRY(zeroshot_weights(s->ctx, s->m->enc, s->m->tok, &few, &o, &s->z[k]));
    }
    return CLOOB_OK;
}

/* ---- the gallery --------------------------------------------------------------------------------- */

/* Softmax of the cosines at the model's inverse temperature; returns the likeliest class. */
static int64_t likeliest(const samples *s, int64_t k, int64_t row, double *p)
{
    const zeroshot *z = &s->z[k];
    double inv_tau = s->m->inv_tau > 0 ? s->m->inv_tau : CLOOB_DEFAULT_INV_TAU, best = -INFINITY, sum = 0,
           value[CLASSES];
    int64_t at = 0;
    for (int64_t c = 0; c < z->C; c++) {
        value[c] = 0;
        for (int64_t d = 0; d < s->D; d++) value[c] += (double)s->image[row * s->D + d] * z->weight[c * s->D + d];
        if (value[c] > best) best = value[c], at = c;
    }
    for (int64_t c = 0; c < z->C; c++) sum += exp(inv_tau * (value[c] - best));
    *p = 1 / sum;
    return at;
}

static void put_factors(samples *s, int64_t row)
{
    json_begin(&s->out, "says", '[');
    for (int64_t k = 0; k < s->truth.F; k++) {
        double p;
        int64_t c = likeliest(s, k, row, &p), truth = s->truth.label[k][s->index[row]];
        json_object(&s->out, NULL, J_TEXT("factor", s->truth.name[k]),
                    J_TEXT("label", s->truth.set[k]->classes[c].item[0]),
                    J_TEXT("truth", s->truth.set[k]->classes[truth].item[0]), J_NUMBER("p", p, DIGITS));
    }
    json_end(&s->out);
}

static void put_captions(samples *s, int64_t row)
{
    samples_hit hit[CAPTIONS] = { 0 };
    const float *score = s->cosine + row * s->n;
    int64_t found = top_of(score, s->n, 1, -1, hit, CAPTIONS), rank = 1;
    for (int64_t j = 0; j < s->n; j++) rank += score[j] > score[row];
    json_put_int(&s->out, "rank", rank);
    json_begin(&s->out, "captions", '[');
    for (int64_t k = 0; k < found; k++) {
        json_object(&s->out, NULL, J_TEXT("text", s->caption[hit[k].row]),
                    J_NUMBER("score", (double)hit[k].score, DIGITS), J_BOOL("own", hit[k].row == row));
    }
    json_end(&s->out);
}

/* Evenly spread, whatever the model says of them. Two in three of a world's were never seen in training. */
static void put_gallery(samples *s)
{
    int64_t count = min64(GALLERY, s->n);
    json_begin(&s->out, "gallery", '[');
    for (int64_t k = 0; k < count; k++) {
        int64_t row = k * s->n / count;
        if (s->truth.F && k % 3 && row + 1 < s->n && !world_never_seen(s->index[row])) row++;
        json_begin(&s->out, NULL, '{');
        json_put_int(&s->out, "image", use_image(s, row));
        if (s->truth.F) put_factors(s, row);
        else put_captions(s, row);
        json_end(&s->out);
    }
    json_end(&s->out);
}

/* ---- confusion ----------------------------------------------------------------------------------- */

static void put_set(samples *s, int64_t k)
{
    const prompt_set *set = s->truth.set[k];
    int64_t C = set->class_count, n = 0, right = 0, max = 0, *confusion = calloc((size_t)(C * C), sizeof *confusion);
    for (int64_t row = 0; confusion && row < s->n; row++) {
        double p;
        if (!world_never_seen(s->index[row])) continue;
        int64_t truth = s->truth.label[k][s->index[row]], prediction = likeliest(s, k, row, &p);
        confusion[truth * C + prediction]++;
        right += truth == prediction;
        n++;
    }
    for (int64_t c = 0; confusion && c < C; c++) {
        int64_t total = 0;
        for (int64_t j = 0; j < C; j++) total += confusion[c * C + j];
        max = max64(max, total);
    }
    json_begin(&s->out, NULL, '{');
    json_members(&s->out, J_TEXT("name", s->truth.name[k]), J_INT("n", n),
                 J_NUMBER("top1", n ? (double)right / (double)n : 0, 5),
                 J_NUMBER("chance", n ? (double)max / (double)n : 0, 5));
    json_begin(&s->out, "labels", '[');
    for (int64_t c = 0; c < C; c++) json_put_text(&s->out, NULL, set->classes[c].item[0]);
    json_end(&s->out);
    json_begin(&s->out, "confusion", '[');
    for (int64_t c = 0; confusion && c < C; c++) {
        json_begin(&s->out, NULL, '[');
        for (int64_t j = 0; j < C; j++) json_put_int(&s->out, NULL, confusion[c * C + j]);
        json_end(&s->out);
    }
    json_end(&s->out);
    json_end(&s->out);
    s->out.failed |= !confusion;
    free(confusion);
}

static void put_sets(samples *s)
{
    json_begin(&s->out, "sets", '[');
    for (int64_t k = 0; k < s->truth.F; k++) put_set(s, k);
    json_end(&s->out);
}

/* ---- the best and the worst of retrieval, both ways ------------------------------------------------ */

typedef enum way { IMAGE_TO_TEXT, TEXT_TO_IMAGE } way;

typedef struct asked {
    int64_t row, rank;
    float margin; /* the partner's similarity less that of the best other */
} asked;

static const float *scores_of(const samples *s, way w, int64_t row, int64_t *stride)
{
    *stride = w == IMAGE_TO_TEXT ? 1 : s->n;
    return w == IMAGE_TO_TEXT ? s->cosine + row * s->n : s->cosine + row;
}

static asked ask(const samples *s, way w, int64_t row)
{
    int64_t stride;
    const float *score = scores_of(s, w, row, &stride);
    asked q = { row, 1, 0 };
    float own = score[row * stride], other = -2;
    for (int64_t j = 0; j < s->n; j++) {
        if (j == row) continue;
        q.rank += score[j * stride] > own;
        if (score[j * stride] > other) other = score[j * stride];
    }
    q.margin = own - other;
    return q;
}

static int by_margin(const void *a, const void *b)
{
    const asked *x = a, *y = b;
    if (x->margin != y->margin) return x->margin > y->margin ? -1 : 1;
    return x->row < y->row ? -1 : 1;
}

static void put_query(samples *s, way w, const asked *q)
{
    samples_hit hit[QUERY_HITS] = { 0 };
    int64_t stride;
    const float *score = scores_of(s, w, q->row, &stride);
    int64_t found = top_of(score, s->n, stride, -1, hit, QUERY_HITS);
    json_begin(&s->out, NULL, '{');
    json_members(&s->out, J_INT("image", use_image(s, q->row)), J_OF(q, rank),
                 J_NUMBER("score", (double)score[q->row * stride], DIGITS));
    json_begin(&s->out, "hits", '[');
    for (int64_t k = 0; k < found; k++) {
        json_begin(&s->out, NULL, '{');
        if (w == TEXT_TO_IMAGE) json_put_int(&s->out, "image", use_image(s, hit[k].row));
        else json_put_text(&s->out, "text", s->caption[hit[k].row]);
        json_members(&s->out, J_NUMBER("score", (double)hit[k].score, DIGITS), J_BOOL("own", hit[k].row == q->row));
        json_end(&s->out);
    }
    json_end(&s->out);
    json_end(&s->out);
}

static void put_way(samples *s, way w, const char *name)
{
    asked *q = malloc((size_t)s->n * sizeof *q);
    int64_t shown = min64(SHOWN, s->n / 2);
    s->out.failed |= !q;
    if (!q) return;
    for (int64_t i = 0; i < s->n; i++) q[i] = ask(s, w, i);
    qsort(q, (size_t)s->n, sizeof *q, by_margin);
    json_begin(&s->out, name, '{');
    json_begin(&s->out, "best", '[');
    for (int64_t k = 0; k < shown; k++) put_query(s, w, &q[k]);
    json_end(&s->out);
    json_begin(&s->out, "worst", '[');
    for (int64_t k = 0; k < shown; k++) put_query(s, w, &q[s->n - 1 - k]);
    json_end(&s->out);
    json_end(&s->out);
    free(q);
}

static void put_retrieval(samples *s)
{
    json_begin(&s->out, "retrieval", '{');
    put_way(s, IMAGE_TO_TEXT, "image_to_text");
    put_way(s, TEXT_TO_IMAGE, "text_to_image");
    json_end(&s->out);
}

/* ---- the smaller members ------------------------------------------------------------------------- */

static cloob_status put_searches(samples *s)
{
    int64_t count = s->o->searches ? s->o->searches : min64(SEARCHES, s->n);
    float *query = malloc((size_t)(s->D + s->n) * sizeof *query), *score = query + s->D;
    cloob_status status = query ? CLOOB_OK : ctx_no_memory(s->ctx, (size_t)(s->D + s->n) * 4, "a search");
    json_begin(&s->out, "searches", '[');
    for (int64_t q = 0; q < count && status == CLOOB_OK; q++) {
        samples_hit hit[HITS] = { 0 };
        const char *text = s->o->searches ? s->o->search[q] : s->caption[q * s->n / count];
        status = model_texts(s->ctx, s->m, &text, 1, CLOOB_UNIT, query);
        if (status != CLOOB_OK) break;
        cpu_sgemm(s->ctx, false, true, s->n, 1, s->D, 1, s->image, s->D, query, s->D, 0, score, 1);
        json_begin(&s->out, NULL, '{');
        json_put_text(&s->out, "text", text);
        put_hits(s, "hits", hit, top_of(score, s->n, 1, -1, hit, HITS));
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
        samples_hit hit[NEAR] = { 0 };
        cpu_sgemm(s->ctx, false, true, s->n, 1, s->D, 1, s->image, s->D, s->image + row * s->D, s->D, 0, score, 1);
        json_begin(&s->out, NULL, '{');
        json_put_int(&s->out, "image", use_image(s, row));
        put_hits(s, "near", hit, top_of(score, s->n, 1, row, hit, NEAR));
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
    for (int64_t i = 0; i < n; i++) json_put_int(&s->out, NULL, use_image(s, row[i]));
    json_end(&s->out);
    json_begin(&s->out, "texts", '[');
    for (int64_t i = 0; i < n; i++) json_put_text(&s->out, NULL, s->caption[row[i]]);
    json_end(&s->out);
    json_begin(&s->out, "cosine", '[');
    for (int64_t i = 0; i < n; i++) {
        json_begin(&s->out, NULL, '[');
        for (int64_t j = 0; j < n; j++)
            json_put_digits(&s->out, NULL, (double)s->cosine[row[i] * s->n + row[j]], DIGITS);
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
    put_gallery(s);
    CLOOB_TRY(put_searches(s));
    put_retrieval(s);
    CLOOB_TRY(put_neighbors(s));
    put_matrix(s);
    put_sets(s);
    json_end(&s->thumbs);
    if (!s->thumbs.failed) json_put_raw(&s->out, "images", s->thumbs.data, s->thumbs.len);
    return s->out.failed || s->thumbs.failed ? ctx_no_memory(s->ctx, s->out.len, "samples") : CLOOB_OK;
}

cloob_status samples_json(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d, const samples_options *o, sbuf *out)
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
