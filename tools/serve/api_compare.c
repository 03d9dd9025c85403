/* Zero-shot classification, and the similarity of images and texts. */
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"
#include "data/text/prompts.h"
#include "eval/zeroshot.h"
#include "infer/search_index.h"
#include "core/ctx.h"

/* ---- classification ------------------------------------------------------------------------------ */

static cloob_status add_prompt(call *c, const char *template, const char *label)
{
    enum { MOST = 1000 };
    sbuf prompt = { 0 };
    if (!template || !label) return refuse(c->ctx, "labels and templates must be strings");
    if (!strstr(template, "{}")) return refuse(c->ctx, "template \"%.100s\" has no {} for the label", template);
    if (strlen(template) > MOST || strlen(label) > MOST)
        return refuse(c->ctx, "labels and templates are limited to %d bytes each", MOST);
    CLOOB_TRY(account_reserve(c->ctx, c->q->memory, (int64_t)(strlen(template) * (strlen(label) + 1))));
    prompt_fill(template, label, &prompt);
    if (prompt.failed) sbuf_release(&prompt);
    return input_own_text(c, prompt.data);
}

/* Adds labels times templates as texts, label by label. *per_label: the number of templates. */
static cloob_status add_prompts(call *c, const json *labels, const json *templates, int64_t *per_label)
{
    bool own = json_count(templates) > 0;
    *per_label = own ? json_count(templates) : 1;
    if (!field_absent(c->root, "templates") && json_kind_of(templates) != JSON_ARRAY)
        return refuse(c->ctx, "templates must be a list of strings");
    if (json_kind_of(labels) != JSON_ARRAY || json_count(labels) < 2)
        return refuse(c->ctx, "labels must be a list of at least two strings");
    for (const json *l = json_first(labels); l; l = json_next(l)) {
        if (!own) CLOOB_TRY(add_prompt(c, "a photo of a {}.", json_string(l)));
        for (const json *t = own ? json_first(templates) : NULL; t; t = json_next(t))
            CLOOB_TRY(add_prompt(c, json_string(t), json_string(l)));
    }
    return CLOOB_OK;
}

/* Cosines of all images with the classes; the class prompts follow the images among the rows. score: (images,
 * classes). */
static cloob_status score_classes(call *c, int64_t classes, int64_t per_label, float *score)
{
    zeroshot z;
    cloob_status status = zeroshot_init(c->ctx, &z, classes, c->rows.width, false);
    for (int64_t k = 0; k < classes && status == CLOOB_OK; k++)
        status = zeroshot_prompts(c->ctx, &z, k, row_at(c, c->images + k * per_label), per_label);
    if (status == CLOOB_OK) zeroshot_scores(c->ctx, &z, c->rows.data, c->images, score);
    zeroshot_release(&z);
    return status;
}

static const char *label_at(const json *labels, int64_t i)
{
    const json *l = json_first(labels);
    while (i-- > 0) l = json_next(l);
    return json_string(l);
}

static void put_top(json_out *w, const json *labels, const float *p, int64_t classes, int64_t top)
{
    int64_t n = 0;
    near_row *best = malloc((size_t)(top + 1) * sizeof *best);
    for (int64_t c = 0; c < classes && best && top; c++) best_offer(best, &n, top, c, p[c]);
    if (best) qsort(best, (size_t)n, sizeof *best, best_first);
    json_begin(w, NULL, '{');
    json_begin(w, "top", '[');
    for (int64_t i = 0; i < n; i++)
        json_object(w, NULL, J_TEXT("label", label_at(labels, best[i].entry)), J_NUMBER("p", (double)best[i].score, 9));
    json_end(w);
    json_end(w);
    w->failed = w->failed || !best;
    free(best);
}

/* Upper bound of an answer's bytes, with `top` labels for each image; JSON may escape a byte as six. */
static int64_t answer_bytes(const json *labels, int64_t images, int64_t top)
{
    size_t longest = 0;
    for (const json *l = json_first(labels); l; l = json_next(l))
        if (strlen(json_string(l)) > longest) longest = strlen(json_string(l));
    return images * top * (int64_t)(6 * longest + 64);
}

cloob_status handle_classify(call *c)
{
    const json *labels = json_get(c->root, "labels");
    int64_t classes = json_count(labels), top = classes, per_label;
    cloob_model_facts f;
    CLOOB_TRY(known_keys(c->ctx, c->root, "images labels templates top model errors"));
    CLOOB_TRY(field_text(c->ctx, c->root, "model", &c->model));
    CLOOB_TRY(read_errors(c));
    CLOOB_TRY(field_int(c->ctx, c->root, "top", 1, INT64_MAX, &top));
    CLOOB_TRY(input_list(c, c->root, "images", true));
    c->images = c->inputs;
    if (!c->images) return refuse(c->ctx, "images must contain at least one image");
    CLOOB_TRY(add_prompts(c, labels, json_get(c->root, "templates"), &per_label));
    CLOOB_TRY(embed(c));
    if (top > classes) top = classes;
    int64_t scores = c->images * classes, bytes = answer_bytes(labels, c->images, top);
    CLOOB_TRY(account_reserve(c->ctx, c->q->memory, bytes + scores * (int64_t)sizeof(float)));
    float *score = malloc((size_t)scores * sizeof *score);
    CLOOB_TRY(call_own(c, score));
    CLOOB_TRY(score_classes(c, classes, per_label, score));
    batcher_get_facts(c->m->batcher, &f);
    answer_list(c, "results");
    for (int64_t i = 0; i < c->images; i++) {
        zeroshot_softmax(score + i * classes, classes, f.inv_tau > 0 ? f.inv_tau : 100);
        put_top(&c->w, labels, score + i * classes, classes, c->error && c->error[i] ? 0 : top);
    }
    json_end(&c->w);
    put_errors(c);
    return CLOOB_OK;
}

/* ---- similarity ---------------------------------------------------------------------------------- */

/* Writes the cosines of every image with every text; null for an unreadable image. */
static void put_matrix(call *c, const char *key)
{
    int64_t texts = c->rows.n - c->images;
    float *row = malloc((size_t)(texts + 1) * sizeof *row);
    json_begin(&c->w, key, '[');
    for (int64_t i = 0; i < c->images && row; i++) {
        for (int64_t j = 0; j < texts; j++)
            row[j] = (float)dot_rows(row_at(c, i), row_at(c, c->images + j), c->rows.width);
        if (c->error && c->error[i]) json_put_null(&c->w, NULL);
        else json_put_floats(&c->w, NULL, row, texts);
    }
    json_end(&c->w);
    c->w.failed = c->w.failed || !row;
    free(row);
}

/* Replaces both sides by their Hopfield retrieval from the rows of an index, as in the paper. */
static cloob_status retrieve(call *c, const json *hopfield)
{
    double beta = 8;
    const char *name = NULL;
    cloob_hopfield_options o;
    CLOOB_TRY(field_number(c->ctx, hopfield, "scale", &beta));
    CLOOB_TRY(field_text(c->ctx, hopfield, "index", &name));
    c->x = serve_index(c->s, name);
    if (!c->x)
        return refuse(c->ctx, "hopfield: no index%s%.100s to retrieve from; start the server with --index",
                      name ? " " : "", name ? name : "");
    CLOOB_TRY(index_need(c->s, c->ctx, c->x, &c->v));
    cloob_hopfield_options_init(&o);
    o.unit = true;
    const cloob_search *s = c->v->search;
    cloob_hopfield h = { s->row, cloob_search_count(s), cloob_search_width(s), beta };
    if (!(beta > 0 && beta <= 1e4)) return refuse(c->ctx, "hopfield: scale must be above 0 and at most 10000");
    if (h.dim != c->rows.width) return refuse(c->ctx, "hopfield: the index was made with another model");
    return cloob_hopfield_retrieve(c->ctx, &h, &o, c->rows.data, c->rows.n, c->rows.data, NULL);
}

cloob_status handle_compare(call *c)
{
    enum { NUMBER_BYTES = 16 };
    const json *hopfield = json_get(c->root, "hopfield");
    CLOOB_TRY(known_keys(c->ctx, c->root, "images texts model hopfield errors"));
    if (!field_absent(c->root, "hopfield") && json_kind_of(hopfield) != JSON_OBJECT)
        return refuse(c->ctx, "hopfield must be an object with scale and index");
    CLOOB_TRY(known_keys(c->ctx, hopfield, "scale index"));
    CLOOB_TRY(field_text(c->ctx, c->root, "model", &c->model));
    CLOOB_TRY(read_errors(c));
    CLOOB_TRY(input_images_and_texts(c));
    int64_t texts = c->inputs - c->images;
    if (!c->images || !texts) return refuse(c->ctx, "images and texts must each contain at least one entry");
    CLOOB_TRY(embed(c));
    CLOOB_TRY(account_reserve(c->ctx, c->q->memory, 2 * NUMBER_BYTES * c->images * texts));
    json_begin(&c->w, NULL, '{');
    put_matrix(c, "similarity");
    json_members(&c->w, J_OF(c, images), J_INT("texts", texts));
    put_errors(c);
    if (field_absent(c->root, "hopfield")) json_put_null(&c->w, "retrieved");
    else {
        CLOOB_TRY(retrieve(c, hopfield));
        put_matrix(c, "retrieved");
    }
    return CLOOB_OK;
}
