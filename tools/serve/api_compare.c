/* Zero-shot classification, and the similarity of images and texts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"
#include "serve/text.h"
#include "infer/search_index.h"
#include "core/ctx.h"

/* ---- classification ------------------------------------------------------------------------------ */

/* The template with the label for each {}. */
static char *fill_template(const char *template, const char *label)
{
    size_t max = strlen(template) * (strlen(label) + 1) + 1, n = 0;
    char *out = malloc(max);
    for (const char *c = template; out && *c;) {
        if (c[0] == '{' && c[1] == '}') {
            memcpy(out + n, label, strlen(label));
            n += strlen(label), c += 2;
        } else out[n++] = *c++;
    }
    if (out) out[n] = 0;
    return out;
}

/* Labels times templates, label by label. Returns how many templates there are. */
static cloob_status add_prompts(cloob_ctx *ctx, const json *labels, const json *templates, inputs *in,
                                int64_t *per_label)
{
    static const char *const usual = "a photo of a {}.";
    cloob_status status = CLOOB_OK;
    bool own = json_kind_of(templates) == JSON_ARRAY && json_count(templates) > 0;
    *per_label = own ? json_count(templates) : 1;
    if (json_kind_of(labels) != JSON_ARRAY || json_count(labels) < 2)
        return refuse(ctx, "labels: a list of two strings or more");
    for (const json *l = json_first(labels); l && status == CLOOB_OK; l = json_next(l)) {
        const json *t = own ? json_first(templates) : NULL;
        for (int64_t k = 0; k < *per_label && status == CLOOB_OK; k++, t = json_next(t)) {
            const char *text = own ? json_string(t) : usual, *label = json_string(l);
            if (!text || !label) return refuse(ctx, "labels and templates are strings");
            if (!strstr(text, "{}")) return refuse(ctx, "template \"%.100s\" has no {} for the label", text);
            if (strlen(text) > 1000 || strlen(label) > 1000)
                return refuse(ctx, "labels and templates have at most 1000 bytes");
            status = account_reserve(ctx, in->memory, (int64_t)(strlen(text) * (strlen(label) + 1)));
            if (status != CLOOB_OK) return status;
            char *prompt = fill_template(text, label);
            status = prompt ? inputs_own_text(ctx, in, prompt) : ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
        }
    }
    return status;
}

/* Class c = the mean of its prompts at unit length, in place: rows (classes * per, D) become (classes, D). */
static void average_prompts(float *row, int64_t classes, int64_t per, int64_t D)
{
    for (int64_t c = 0; c < classes; c++) {
        for (int64_t k = 0; k < D; k++) {
            double sum = 0;
            for (int64_t t = 0; t < per; t++) sum += row[(c * per + t) * D + k];
            row[c * D + k] = (float)(sum / (double)per);
        }
        unit_row(row + c * D, D);
    }
}

static void softmax(const float *image, const float *class_row, int64_t classes, int64_t D, double scale, double *p)
{
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < classes; c++) {
        p[c] = scale * dot_rows(image, class_row + c * D, D);
        if (p[c] > max) max = p[c];
    }
    for (int64_t c = 0; c < classes; c++) sum += p[c] = exp(p[c] - max);
    for (int64_t c = 0; c < classes; c++) p[c] /= sum;
}

typedef struct ranked {
    double p;
    int64_t label;
} ranked;

static int likeliest_first(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->p != y->p) return x->p > y->p ? -1 : 1;
    return x->label < y->label ? -1 : x->label > y->label;
}

static const char *label_at(const json *labels, int64_t i)
{
    const json *l = json_first(labels);
    while (i-- > 0) l = json_next(l);
    return json_string(l);
}

static void put_top(json_out *w, const json *labels, const double *p, int64_t classes, int64_t top)
{
    ranked *list = malloc((size_t)classes * sizeof *list);
    if (!list) {
        w->failed = true;
        return;
    }
    for (int64_t c = 0; c < classes; c++) list[c] = (ranked){ p[c], c };
    qsort(list, (size_t)classes, sizeof *list, likeliest_first);
    json_begin(w, NULL, '{');
    json_begin(w, "top", '[');
    for (int64_t c = 0; c < classes && c < top; c++) {
        json_object(w, NULL, J_TEXT("label", label_at(labels, list[c].label)), J_NUMBER("p", list[c].p, 0));
    }
    json_end(w);
    json_end(w);
    free(list);
}

/* Bytes of an answer with `top` labels for every image; a byte of a label may become six in JSON. */
static int64_t classes_bytes(const json *root, int64_t images)
{
    const json *labels = json_get(root, "labels");
    int64_t classes = json_count(labels), top = classes;
    size_t longest = 0;
    for (const json *l = json_first(labels); l; l = json_next(l))
        if (strlen(json_string(l)) > longest) longest = strlen(json_string(l));
    json_int(json_get(root, "top"), &top);
    if (top < 1) top = 1;
    return images * (top < classes ? top : classes) * (int64_t)(6 * longest + 64);
}

static cloob_status classify_read(cloob_ctx *ctx, embed_call *e)
{
    CLOOB_TRY(call_body(ctx, e));
    CLOOB_TRY(known_keys(ctx, e->root, "images labels templates top model errors"));
    CLOOB_TRY(field_text(ctx, e->root, "model", &e->model));
    CLOOB_TRY(call_errors(ctx, e));
    CLOOB_TRY(inputs_list(ctx, &e->in, e->root, "images", true));
    e->images = e->in.n;
    if (!e->images) return refuse(ctx, "images: one or more");
    return add_prompts(ctx, json_get(e->root, "labels"), json_get(e->root, "templates"), &e->in, &e->per_label);
}

static cloob_status classify_write(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                                   json_out *w)
{
    const json *labels = json_get(e->root, "labels");
    int64_t classes = json_count(labels), D = rows->width, top = classes;
    float *class_row = rows->data + e->images * D;
    cloob_model_facts f;
    cloob_batcher_get_facts(m->batcher, &f);
    cloob_status status = account_reserve(ctx, e->q->memory, classes_bytes(e->root, e->images));
    double *p = status == CLOOB_OK ? malloc((size_t)classes * sizeof *p) : NULL;
    if (!p) return status == CLOOB_OK ? ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory") : status;
    average_prompts(class_row, classes, e->per_label, D);
    json_int(json_get(e->root, "top"), &top);
    json_begin(w, NULL, '{');
    json_begin(w, "results", '[');
    for (int64_t i = 0; i < e->images; i++) {
        softmax(rows->data + i * D, class_row, classes, D, f.inv_tau > 0 ? f.inv_tau : 100, p);
        put_top(w, labels, p, classes, e->error && e->error[i] ? 0 : top < 1 ? 1 : top);
    }
    json_end(w);
    put_errors(w, e);
    json_end(w);
    free(p);
    return CLOOB_OK;
}

const dialect dialect_classify = { classify_read, classify_write };

/* ---- similarity ---------------------------------------------------------------------------------- */

/* Cosines of every image with every text; null for an image that cannot be read. */
static void put_matrix(json_out *w, const char *key, const embed_call *e, const cloob_batch_rows *rows)
{
    int64_t D = rows->width, texts = rows->n - e->images;
    float *row = malloc((size_t)(texts + 1) * sizeof *row);
    json_begin(w, key, '[');
    for (int64_t i = 0; i < e->images && row; i++) {
        for (int64_t j = 0; j < texts; j++)
            row[j] = (float)dot_rows(rows->data + i * D, rows->data + (e->images + j) * D, D);
        if (e->error && e->error[i]) json_put_null(w, NULL);
        else json_put_floats(w, NULL, row, texts);
    }
    json_end(w);
    w->failed = w->failed || !row;
    free(row);
}

/* Replaces both sides by their Hopfield retrieval from the rows of an index, as in the paper. */
static cloob_status retrieve(cloob_ctx *ctx, serve *s, const json *hopfield, cloob_batch_rows *rows)
{
    double beta = 8;
    const char *name = json_string(json_get(hopfield, "index"));
    served_index *x = serve_index(s, name);
    index_view *v = NULL;
    cloob_hopfield_options o;
    if (!x)
        return refuse(ctx, "hopfield: there is no index%s%.100s to retrieve from", name ? " " : "", name ? name : "");
    cloob_status status = index_need(s, ctx, x, &v);
    if (status != CLOOB_OK) return status;
    json_number(json_get(hopfield, "scale"), &beta);
    cloob_hopfield_options_init(&o);
    o.unit = true;
    cloob_hopfield h = { v->search->row, cloob_search_count(v->search), cloob_search_width(v->search), beta };
    if (!(beta > 0 && beta <= 1e4)) status = refuse(ctx, "hopfield: a scale above 0, at most 10000");
    else if (h.dim != rows->width) status = refuse(ctx, "hopfield: the index is of another model");
    if (status == CLOOB_OK) status = cloob_hopfield_retrieve(ctx, &h, &o, rows->data, rows->n, rows->data, NULL);
    index_release(v);
    return status;
}

static cloob_status compare_read(cloob_ctx *ctx, embed_call *e)
{
    CLOOB_TRY(call_body(ctx, e));
    CLOOB_TRY(known_keys(ctx, e->root, "images texts model hopfield errors"));
    CLOOB_TRY(known_keys(ctx, json_get(e->root, "hopfield"), "scale index"));
    CLOOB_TRY(field_text(ctx, e->root, "model", &e->model));
    CLOOB_TRY(call_errors(ctx, e));
    CLOOB_TRY(inputs_list(ctx, &e->in, e->root, "images", true));
    e->images = e->in.n;
    CLOOB_TRY(inputs_list(ctx, &e->in, e->root, "texts", false));
    if (!e->images || e->in.n == e->images) return refuse(ctx, "images and texts: one or more of each");
    return CLOOB_OK;
}

static cloob_status compare_write(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                                  json_out *w)
{
    enum { NUMBER_BYTES = 16 };
    const json *hopfield = json_get(e->root, "hopfield");
    int64_t images = e->images, texts = rows->n - images;
    (void)m;
    cloob_status status = account_reserve(ctx, e->q->memory, 2 * NUMBER_BYTES * images * texts);
    if (status != CLOOB_OK) return status;
    json_begin(w, NULL, '{');
    put_matrix(w, "similarity", e, rows);
    json_members(w, J_INT("images", images), J_INT("texts", texts));
    put_errors(w, e);
    if (json_kind_of(hopfield) == JSON_OBJECT) {
        status = retrieve(ctx, e->s, hopfield, rows);
        if (status == CLOOB_OK) put_matrix(w, "retrieved", e, rows);
    } else json_put_null(w, "retrieved");
    json_end(w);
    return status;
}

const dialect dialect_compare = { compare_read, compare_write };
