/* Reading matrices and labels of embeddings from safetensors (cloob/eval.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloob/eval.h"
#include "core/json.h"
#include "core/needs.h"
#include "eval/metrics.h"
#include "eval/rows.h"
#include "io/safetensors.h"
#include "infer/embeddings_file.h"
#include "core/ctx.h"

struct embeddings_file {
    st_file file;
    const char *path;
    arena memory; /* names for messages, labels */
};

cloob_status embeddings_open(cloob_ctx *ctx, const char *path, embeddings_file **out)
{
    API_NEEDS(ctx, path && out);
    embeddings_file *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) return ctx_no_memory(ctx, sizeof *e, path);
    e->path = arena_string(&e->memory, path);
    cloob_status status = e->path ? st_open(ctx, path, &e->file) : ctx_no_memory(ctx, strlen(path), path);
    if (status != CLOOB_OK) {
        arena_release(&e->memory);
        free(e);
        return status;
    }
    *out = e;
    return CLOOB_OK;
}

void embeddings_close(embeddings_file *e)
{
    if (!e) return;
    st_close(&e->file);
    arena_release(&e->memory);
    free(e);
}

/* Converts the matrix to floats; the caller frees *out. */
static cloob_status matrix_floats(cloob_ctx *ctx, const cloob_matrix *m, float **out)
{
    size_t bytes = (size_t)(m->rows * m->columns) * sizeof **out;
    *out = malloc(bytes ? bytes : 1);
    if (!*out) return ctx_no_memory(ctx, bytes, m->name);
    dtype_convert(CLOOB_F32, *out, m->dtype, m->data, m->rows * m->columns);
    return CLOOB_OK;
}

/* The first of "a|b|c" that the file has. */
static const st_entry *find(const embeddings_file *e, const char *names)
{
    for (const char *at = names; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        size_t n = strcspn(at, "|");
        for (int64_t i = 0; i < e->file.count; i++)
            if (strlen(e->file.entry[i].name) == n && strncmp(e->file.entry[i].name, at, n) == 0)
                return &e->file.entry[i];
    }
    return NULL;
}

bool embeddings_has(const embeddings_file *e, const char *names) { return e && find(e, names); }

static cloob_status need(cloob_ctx *ctx, embeddings_file *e, const char *names, const st_entry **out, const char **name)
{
    char text[512], others[200] = "";
    *out = find(e, names);
    for (int64_t i = 0; !*out && i < e->file.count && i < 4; i++) {
        size_t used = strlen(others);
        snprintf(others + used, sizeof others - used, "%s%.40s", i ? ", " : "", e->file.entry[i].name);
    }
    if (!*out)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has no tensor %s (it has %s%s)", e->path, names,
                        e->file.count ? others : "none", e->file.count > 4 ? ", ..." : "");
    snprintf(text, sizeof text, "%.400s: %.80s", e->path, (*out)->name);
    *name = arena_string(&e->memory, text);
    return *name ? CLOOB_OK : ctx_no_memory(ctx, sizeof text, "a name");
}

cloob_status embeddings_matrix(cloob_ctx *ctx, embeddings_file *e, const char *names, cloob_matrix *out)
{
    API_NEEDS(ctx, e && names && out);
    const st_entry *entry;
    const char *name;
    rows r;
    CLOOB_TRY(need(ctx, e, names, &entry, &name));
    CLOOB_TRY(rows_of(ctx, &r, &entry->t, name));
    *out = (cloob_matrix){ r.data, r.dtype, r.N, r.D, r.name };
    return CLOOB_OK;
}

cloob_status embeddings_labels(cloob_ctx *ctx, embeddings_file *e, const char *names, int64_t count,
                               const int64_t **out)
{
    API_NEEDS(ctx, e && names && out && count >= 0);
    const st_entry *entry;
    const char *name;
    CLOOB_TRY(need(ctx, e, names, &entry, &name));
    int64_t *label = arena_push(&e->memory, (size_t)count * sizeof *label);
    if (!label) return ctx_no_memory(ctx, (size_t)count * sizeof *label, name);
    CLOOB_TRY(labels_read(ctx, label, &entry->t, count, name));
    *out = label;
    return CLOOB_OK;
}

cloob_status embeddings_classes(cloob_ctx *ctx, embeddings_file *e, const char *const **name, int64_t *count)
{
    API_NEEDS(ctx, e && name && count);
    const char *text = st_meta_get(&e->file, "classes");
    json *root;
    *name = NULL, *count = 0;
    if (!text) return CLOOB_OK;
    CLOOB_TRY(json_parse(ctx, &e->memory, text, strlen(text), e->path, &root));
    const char **list = arena_push(&e->memory, (size_t)(root->count + 1) * sizeof *list);
    if (!list) return ctx_no_memory(ctx, (size_t)root->count * sizeof *list, e->path);
    for (const json *c = root->child; c; c = c->next)
        if (!(list[(*count)++] = json_string(c)) || root->kind != JSON_ARRAY)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: classes is not a list of names", e->path);
    if (*count) *name = list;
    return CLOOB_OK;
}

cloob_status probe_save(cloob_ctx *ctx, const cloob_probe_result *r, const char *path)
{
    API_NEEDS(ctx, r && path);
    int64_t C = r->classes, D = r->dimensions;
    float *w = malloc((size_t)(C * (D + 1)) * sizeof *w), *b = w + C * D;
    if (!w) return ctx_no_memory(ctx, (size_t)(C * (D + 1)) * sizeof *w, path);
    for (int64_t c = 0; c < C; c++) {
        for (int64_t i = 0; i < D; i++) w[c * D + i] = (float)r->weight[c * (D + 1) + i];
        b[c] = (float)r->weight[c * (D + 1) + D];
    }
    st_entry entry[] = { { "weight", TENSOR(CLOOB_F32, w, C, D) },
                         { "bias", TENSOR(CLOOB_F32, b, C) },
                         { "label", TENSOR(CLOOB_I64, r->label, C) } };
    cloob_status status = st_write(ctx, path, entry, 3, NULL, 0);
    free(w);
    return status;
}

/* ---- the objective of a file ---------------------------------------------------------------------- */

enum { X, Y, U, V, MATRICES };

typedef struct pair_sets {
    float *rows[MATRICES], *g[MATRICES]; /* NULL: not in the file */
    int64_t n[MATRICES], d;
} pair_sets;

static cloob_status read_set(cloob_ctx *ctx, embeddings_file *f, int which, pair_sets *p)
{
    static const char *const names[MATRICES] = { "x|image", "y|text", "U", "V" };
    cloob_matrix m;
    if ((which == U || which == V) && !embeddings_has(f, names[which])) return CLOOB_OK;
    CLOOB_TRY(embeddings_matrix(ctx, f, names[which], &m));
    if (which == X) p->d = m.columns;
    if (m.columns != p->d)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s has rows of %lld, but x has width %lld", m.name,
                        (long long)m.columns, (long long)p->d);
    p->n[which] = m.rows;
    p->g[which] = malloc((size_t)(m.rows * m.columns) * sizeof(float));
    if (!p->g[which]) return ctx_no_memory(ctx, (size_t)(m.rows * m.columns) * sizeof(float), m.name);
    return matrix_floats(ctx, &m, &p->rows[which]);
}

static cloob_status read_sets(cloob_ctx *ctx, const char *path, pair_sets *p)
{
    embeddings_file *f;
    CLOOB_TRY(embeddings_open(ctx, path, &f));
    cloob_status status = CLOOB_OK;
    for (int i = 0; i < MATRICES && status == CLOOB_OK; i++) status = read_set(ctx, f, i, p);
    if (status == CLOOB_OK && p->n[Y] != p->n[X])
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: x has %lld rows and y %lld; pairs need equal numbers", path,
                          (long long)p->n[X], (long long)p->n[Y]);
    embeddings_close(f);
    return status;
}

static cloob_status write_gradients(cloob_ctx *ctx, const char *path, const pair_sets *p)
{
    static const char *const names[MATRICES] = { "dx", "dy", "dU", "dV" };
    st_entry entry[MATRICES];
    int64_t count = 0;
    for (int i = 0; i < MATRICES; i++)
        if (p->rows[i]) entry[count++] = (st_entry){ names[i], TENSOR(CLOOB_F32, p->g[i], p->n[i], p->d) };
    return st_write(ctx, path, entry, count, NULL, 0);
}

cloob_status objective_file(cloob_ctx *ctx, const cloob_objective_options *o, const char *input, const char *gradients,
                            cloob_objective_result *r)
{
    API_NEEDS(ctx, o && input && r);
    pair_sets p = { 0 };
    cloob_status status = read_sets(ctx, input, &p);
    if (status == CLOOB_OK) {
        cloob_pairs e = { p.rows[X], p.rows[Y], p.n[X], p.d, p.rows[U], p.rows[V], p.n[U], p.n[V] };
        cloob_gradients g = { p.g[X], p.g[Y], p.g[U], p.g[V] };
        status = cloob_objective(ctx, o, &e, &g, r);
        if (status != CLOOB_OK) ctx_wrap(ctx, status, "%s", input);
    }
    if (status == CLOOB_OK && gradients) status = write_gradients(ctx, gradients, &p);
    for (int i = 0; i < MATRICES; i++) free(p.rows[i]), free(p.g[i]);
    return status;
}

/* ---- Hopfield retrieval from the rows of a file --------------------------------------------------- */

cloob_status stored_rows_open(cloob_ctx *ctx, const cloob_eval_options *o, double scale, bool unit, stored_rows *s)
{
    embeddings_file *file;
    cloob_matrix stored;
    bool text = o->retrieve_from && strcmp(o->retrieve_from, "text") == 0;
    double beta = o->scale_hopfield >= 0 ? o->scale_hopfield : scale > 0 ? scale : CLOOB_DEFAULT_SCALE_HOPFIELD;
    *s = (stored_rows){ .path = o->retrieve, .unit = unit };
    CLOOB_TRY(embeddings_open(ctx, o->retrieve, &file));
    cloob_status status = embeddings_matrix(ctx, file, text ? "text|y|V" : "image|x|U", &stored);
    if (status == CLOOB_OK) status = matrix_floats(ctx, &stored, &s->rows);
    if (status == CLOOB_OK) s->h = (cloob_hopfield){ s->rows, stored.rows, stored.columns, beta };
    embeddings_close(file);
    return status;
}

void stored_rows_release(stored_rows *s)
{
    free(s->rows);
    *s = (stored_rows){ 0 };
}

cloob_status stored_rows_check(cloob_ctx *ctx, const stored_rows *s, int64_t width)
{
    if (!width || width == s->h.dim) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: rows have %lld elements, the embeddings %lld", s->path,
                    (long long)s->h.dim, (long long)width);
}

cloob_status stored_rows_retrieve(cloob_ctx *ctx, const stored_rows *s, float *row, int64_t n)
{
    cloob_hopfield_options o;
    if (!row || n == 0) return CLOOB_OK;
    cloob_hopfield_options_init(&o);
    o.unit = s->unit;
    return cloob_hopfield_retrieve(ctx, &s->h, &o, row, n, row, NULL);
}
