/* What the model says of single images: the gallery, and the confusion of factors. */
#include <math.h>
#include <stdlib.h>

#include "core/arith.h"
#include "lab/report/samples.h"
#include "core/json.h"

enum { GALLERY = 24, CAPTIONS = 3 };

/* ---- the gallery --------------------------------------------------------------------------------- */

/* Softmax of the cosines at the model's inverse temperature; returns the likeliest class. */
static int64_t likeliest(const samples *s, int64_t k, int64_t row, double *p)
{
    const zeroshot *z = &s->z[k];
    double inv_tau = s->m->inv_tau > 0 ? s->m->inv_tau : CLOOB_DEFAULT_INV_TAU, best = -INFINITY, sum = 0,
           value[SAMPLES_CLASSES];
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
                    J_TEXT("truth", s->truth.set[k]->classes[truth].item[0]), J_NUMBER("p", p, SAMPLES_DIGITS));
    }
    json_end(&s->out);
}

static void put_captions(samples *s, int64_t row)
{
    samples_hit hit[CAPTIONS];
    const float *score = s->cosine + row * s->n;
    int64_t found = samples_top(score, s->n, 1, -1, hit, CAPTIONS), rank = 1;
    for (int64_t j = 0; j < s->n; j++) rank += score[j] > score[row];
    json_put_int(&s->out, "rank", rank);
    json_begin(&s->out, "captions", '[');
    for (int64_t k = 0; k < found; k++) {
        json_object(&s->out, NULL, J_TEXT("text", s->caption[hit[k].row]),
                    J_NUMBER("score", (double)hit[k].score, SAMPLES_DIGITS), J_BOOL("own", hit[k].row == row));
    }
    json_end(&s->out);
}

/* Evenly spread, whatever the model says of them. Two in three of a world's were never seen in training. */
void samples_gallery(samples *s)
{
    int64_t count = min64(GALLERY, s->n);
    json_begin(&s->out, "gallery", '[');
    for (int64_t k = 0; k < count; k++) {
        int64_t row = k * s->n / count;
        if (s->truth.F && k % 3 && row + 1 < s->n && !world_never_seen(s->index[row])) row++;
        json_begin(&s->out, NULL, '{');
        json_put_int(&s->out, "image", samples_use(s, row));
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

void samples_sets(samples *s)
{
    json_begin(&s->out, "sets", '[');
    for (int64_t k = 0; k < s->truth.F; k++) put_set(s, k);
    json_end(&s->out);
}
