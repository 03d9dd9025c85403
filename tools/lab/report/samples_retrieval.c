/* The best and the worst of retrieval, both ways. */
#include <stdlib.h>

#include "core/arith.h"
#include "lab/report/samples.h"
#include "core/json.h"

enum { SHOWN = 4, HITS = 4 };

typedef enum way { IMAGE_TO_TEXT, TEXT_TO_IMAGE } way;

typedef struct query {
    int64_t row, rank;
    float margin; /* the partner's similarity less that of the best other */
} query;

static const float *scores_of(const samples *s, way w, int64_t row, int64_t *stride)
{
    *stride = w == IMAGE_TO_TEXT ? 1 : s->n;
    return w == IMAGE_TO_TEXT ? s->cosine + row * s->n : s->cosine + row;
}

static query ask(const samples *s, way w, int64_t row)
{
    int64_t stride;
    const float *score = scores_of(s, w, row, &stride);
    query q = { row, 1, 0 };
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
    const query *x = a, *y = b;
    if (x->margin != y->margin) return x->margin > y->margin ? -1 : 1;
    return x->row < y->row ? -1 : 1;
}

static void put_query(samples *s, way w, const query *q)
{
    samples_hit hit[HITS];
    int64_t stride;
    const float *score = scores_of(s, w, q->row, &stride);
    int64_t found = samples_top(score, s->n, stride, -1, hit, HITS);
    json_begin(&s->out, NULL, '{');
    json_members(&s->out, J_INT("image", samples_use(s, q->row)), J_OF(q, rank),
                 J_NUMBER("score", (double)score[q->row * stride], SAMPLES_DIGITS));
    json_begin(&s->out, "hits", '[');
    for (int64_t k = 0; k < found; k++) {
        json_begin(&s->out, NULL, '{');
        if (w == TEXT_TO_IMAGE) json_put_int(&s->out, "image", samples_use(s, hit[k].row));
        else json_put_text(&s->out, "text", s->caption[hit[k].row]);
        json_members(&s->out, J_NUMBER("score", (double)hit[k].score, SAMPLES_DIGITS),
                     J_BOOL("own", hit[k].row == q->row));
        json_end(&s->out);
    }
    json_end(&s->out);
    json_end(&s->out);
}

static void put_way(samples *s, way w, const char *name)
{
    query *q = malloc((size_t)s->n * sizeof *q);
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

void samples_retrieval(samples *s)
{
    json_begin(&s->out, "retrieval", '{');
    put_way(s, IMAGE_TO_TEXT, "image_to_text");
    put_way(s, TEXT_TO_IMAGE, "text_to_image");
    json_end(&s->out);
}
