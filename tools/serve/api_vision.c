/* Zero-shot classification, and the similarity of images and texts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"
#include "serve/text.h"
#include "infer/search.h"
#include "core/ctx.h"

/* ---- lists of a request -------------------------------------------------------------------------- */

static cloob_status add_images(cloob_ctx *ctx, serve *s, const json *list, inputs *in)
{
    cloob_status status = CLOOB_OK;
    if (json_string(list)) return inputs_image(ctx, s, in, json_string(list));
    if (json_kind_of(list) != JSON_ARRAY) return refuse(ctx, "images: a list of data URLs");
    for (const json *v = json_first(list); v && status == CLOOB_OK; v = json_next(v))
        status = json_string(v) ? inputs_image(ctx, s, in, json_string(v)) : refuse(ctx, "images: strings");
    return status;
}

static cloob_status add_texts(cloob_ctx *ctx, const json *list, const char *what, inputs *in)
{
    cloob_status status = CLOOB_OK;
    if (json_kind_of(list) != JSON_ARRAY) return refuse(ctx, "%s: a list of strings", what);
    for (const json *v = json_first(list); v && status == CLOOB_OK; v = json_next(v))
        status = json_string(v) ? inputs_text(ctx, in, json_string(v)) : refuse(ctx, "%s: strings", what);
    return status;
}

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
static void class_rows(float *row, int64_t classes, int64_t per, int64_t D)
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

static double dot(const float *a, const float *b, int64_t D)
{
    double sum = 0;
    for (int64_t k = 0; k < D; k++) sum += (double)a[k] * b[k];
    return sum;
}

static void softmax(const float *image, const float *class_row, int64_t classes, int64_t D, double scale, double *p)
{
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < classes; c++) {
        p[c] = scale * dot(image, class_row + c * D, D);
        if (p[c] > max) max = p[c];
    }
    for (int64_t c = 0; c < classes; c++) sum += p[c] = exp(p[c] - max);
    for (int64_t c = 0; c < classes; c++) p[c] /= sum;
}

typedef struct ranked {
    double p;
    int64_t label;
} ranked;

static int best_first(const void *a, const void *b)
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
    qsort(list, (size_t)classes, sizeof *list, best_first);
    json_begin(w, NULL, '{');
    json_begin(w, "top", '[');
    for (int64_t c = 0; c < classes && c < top; c++) {
        json_begin(w, NULL, '{');
        json_put_text(w, "label", label_at(labels, list[c].label));
        json_put_number(w, "p", list[c].p);
        json_end(w);
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

static void put_classes(http_reply *r, const cloob_batch_rows *images, const cloob_batch_rows *prompts, int64_t per,
                        const json *root, double scale)
{
    json_out w = { 0 };
    const json *labels = json_get(root, "labels");
    int64_t classes = json_count(labels), D = images->width, top = classes;
    double *p = malloc((size_t)classes * sizeof *p);
    class_rows(prompts->data, classes, per, D);
    json_int(json_get(root, "top"), &top);
    json_begin(&w, NULL, '{');
    json_begin(&w, "results", '[');
    for (int64_t i = 0; i < images->n && p; i++) {
        softmax(images->data + i * D, prompts->data, classes, D, scale, p);
        put_top(&w, labels, p, classes, top < 1 ? 1 : top);
    }
    json_end(&w);
    json_end(&w);
    w.failed = w.failed || !p;
    free(p);
    http_json(r, 200, &w);
}

void handle_classify(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_doc *doc = NULL;
    inputs images, prompts;
    int64_t per = 1;
    cloob_batch_rows pixels = { 0 }, words = { 0 };
    inputs_init(&images, s, q), inputs_init(&prompts, s, q);
    cloob_status status = body_object(ctx, q, &doc);
    const json *root = json_doc_root(doc);
    if (status == CLOOB_OK) status = known_keys(ctx, root, "images labels templates top model");
    if (status == CLOOB_OK)
        status = add_prompts(ctx, json_get(root, "labels"), json_get(root, "templates"), &prompts, &per);
    if (status == CLOOB_OK) status = add_images(ctx, s, json_get(root, "images"), &images);
    if (status == CLOOB_OK && !images.n) status = refuse(ctx, "images: one or more");
    served_model *m = status == CLOOB_OK ? model_of(s, q, r, json_string(json_get(root, "model"))) : NULL;
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    else if (m && embed_inputs(s, ctx, q, r, m, &images, CLOOB_UNIT, false, &pixels) &&
             embed_inputs(s, ctx, q, r, m, &prompts, CLOOB_UNIT, false, &words)) {
        cloob_model_facts f;
        cloob_batcher_get_facts(m->batcher, &f);
        if (words.width != pixels.width) http_error(r, q, 429, "the model was replaced meanwhile; try again");
        else if (http_reserve(r, q, ctx, classes_bytes(root, pixels.n)))
            put_classes(r, &pixels, &words, per, root, f.inv_tau > 0 ? f.inv_tau : 100);
    }
    cloob_batch_rows_release(&pixels), cloob_batch_rows_release(&words);
    inputs_release(&images), inputs_release(&prompts);
    json_doc_close(doc);
}

/* ---- similarity ---------------------------------------------------------------------------------- */

static void put_matrix(json_out *w, const char *key, const float *image, const float *text, int64_t n, int64_t m,
                       int64_t D)
{
    float *row = malloc((size_t)(m + 1) * sizeof *row);
    json_begin(w, key, '[');
    for (int64_t i = 0; i < n && row; i++) {
        for (int64_t j = 0; j < m; j++) row[j] = (float)dot(image + i * D, text + j * D, D);
        json_put_floats(w, NULL, row, m);
    }
    json_end(w);
    w->failed = w->failed || !row;
    free(row);
}

/* Both sides retrieve from the rows of an index, as in the paper; their similarity is then taken again. */
static cloob_status put_retrieved(cloob_ctx *ctx, serve *s, const json *hopfield, cloob_batch_rows *image,
                                  cloob_batch_rows *text, json_out *w)
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
    cloob_hopfield h = { search_index_rows(v->search), cloob_search_count(v->search), cloob_search_width(v->search),
                         beta };
    if (!(beta > 0 && beta <= 1e4)) status = refuse(ctx, "hopfield: a scale above 0, at most 10000");
    else if (h.dim != image->width || h.dim != text->width)
        status = refuse(ctx, "hopfield: the index is of another model");
    if (status == CLOOB_OK) status = cloob_hopfield_retrieve(ctx, &h, &o, image->data, image->n, image->data, NULL);
    if (status == CLOOB_OK) status = cloob_hopfield_retrieve(ctx, &h, &o, text->data, text->n, text->data, NULL);
    if (status == CLOOB_OK) put_matrix(w, "retrieved", image->data, text->data, image->n, text->n, image->width);
    index_release(v);
    return status;
}

static void put_similarity(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r, const json *hopfield,
                           cloob_batch_rows *image, cloob_batch_rows *text)
{
    json_out w = { 0 };
    cloob_status status = CLOOB_OK;
    if (!http_reserve(r, q, ctx, 2 * 16 * image->n * text->n)) return;
    json_begin(&w, NULL, '{');
    put_matrix(&w, "similarity", image->data, text->data, image->n, text->n, image->width);
    json_put_int(&w, "images", image->n);
    json_put_int(&w, "texts", text->n);
    if (json_kind_of(hopfield) == JSON_OBJECT) status = put_retrieved(ctx, s, hopfield, image, text, &w);
    else json_put_null(&w, "retrieved");
    json_end(&w);
    if (status == CLOOB_OK) {
        http_json(r, 200, &w);
        return;
    }
    free(w.data);
    http_fail(r, q, ctx, status);
}

void handle_similarity(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_doc *doc = NULL;
    inputs images, texts;
    cloob_batch_rows pixels = { 0 }, words = { 0 };
    inputs_init(&images, s, q), inputs_init(&texts, s, q);
    cloob_status status = body_object(ctx, q, &doc);
    const json *root = json_doc_root(doc);
    if (status == CLOOB_OK) status = known_keys(ctx, root, "images texts model hopfield");
    if (status == CLOOB_OK) status = known_keys(ctx, json_get(root, "hopfield"), "scale index");
    if (status == CLOOB_OK) status = add_texts(ctx, json_get(root, "texts"), "texts", &texts);
    if (status == CLOOB_OK) status = add_images(ctx, s, json_get(root, "images"), &images);
    if (status == CLOOB_OK && (!images.n || !texts.n)) status = refuse(ctx, "images and texts: one or more of each");
    served_model *m = status == CLOOB_OK ? model_of(s, q, r, json_string(json_get(root, "model"))) : NULL;
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    else if (m && embed_inputs(s, ctx, q, r, m, &images, CLOOB_UNIT, false, &pixels) &&
             embed_inputs(s, ctx, q, r, m, &texts, CLOOB_UNIT, false, &words)) {
        if (words.width != pixels.width) http_error(r, q, 429, "the model was replaced meanwhile; try again");
        else put_similarity(s, ctx, q, r, json_get(root, "hopfield"), &pixels, &words);
    }
    cloob_batch_rows_release(&pixels), cloob_batch_rows_release(&words);
    inputs_release(&images), inputs_release(&texts);
    json_doc_close(doc);
}
