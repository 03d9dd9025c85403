/* WinoGAViL as DataComp scores it: of five to twelve candidate images those are chosen that are most similar to a cue,
 * as many as belong to it, and compared with the ones that people chose by the Jaccard index. SPLIT/winogavil.csv is
 * the published table (columns cue, candidates, associations; the last two hold JSON lists), images/ the published
 * images. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmark/impl.h"
#include "core/arena.h"
#include "core/file.h"
#include "core/json.h"
#include "data/sets/csv.h"
#include "model/encoder.h"

enum { MAX_CANDIDATES = 64, TABLE_BYTES = 1 << 28 };

typedef struct instance {
    char *text; /* "A cue" */
    int candidates, belong;
    int64_t image[MAX_CANDIDATES]; /* row of the images */
    bool right[MAX_CANDIDATES];
} instance;

typedef struct table {
    instance *row;
    int64_t n, capacity;
    arena memory;
} table;

static char *winogavil_table(const char *folder, const char *split)
{
    char *inside = file_join(folder, split), *path = inside ? file_join(inside, "winogavil.csv") : NULL;
    free(inside);
    return path;
}

bool winogavil_is(const char *folder, const char *split)
{
    char *path = winogavil_table(folder, split);
    bool there = path && file_exists(path);
    free(path);
    return there;
}

/* ---- one row ------------------------------------------------------------------------------------- */

/* "cat" is images/cat.jpg, whatever the ending; -1: not among the images. */
static int64_t find_image(const cloob_embedded *e, const char *name)
{
    size_t n = strlen(name);
    for (int64_t i = 0; i < e->rows; i++) {
        const char *slash = strrchr(e->name[i], '/'), *file = slash ? slash + 1 : e->name[i];
        if (strncmp(file, name, n) == 0 && (file[n] == '\0' || (file[n] == '.' && !strchr(file + n + 1, '.'))))
            return i;
    }
    return -1;
}

static bool in_list(const json *list, const char *name)
{
    for (const json *v = list->child; v; v = v->next)
        if (v->kind == JSON_STRING && strcmp(v->text, name) == 0) return true;
    return false;
}

static char *prompt_of(arena *a, const char *cue)
{
    size_t n = strlen(cue);
    char *text = arena_push(a, n + 4);
    if (!text) return NULL;
    bool vowel = n && strchr("aeiou", tolower((unsigned char)cue[0]));
    int k = snprintf(text, n + 4, "%s ", vowel ? "An" : "A");
    for (size_t i = 0; i <= n; i++) text[k + (int)i] = (char)tolower((unsigned char)cue[i]);
    return text;
}

static cloob_status read_instance(cloob_ctx *ctx, table *t, const cloob_embedded *e, const char *path, int64_t line,
                                  const char *cue, const char *candidates, const char *associations, instance *r)
{
    json *all, *some;
    CLOOB_TRY(json_parse(ctx, &t->memory, candidates, strlen(candidates), path, &all));
    CLOOB_TRY(json_parse(ctx, &t->memory, associations, strlen(associations), path, &some));
    *r = (instance){ .text = prompt_of(&t->memory, cue) };
    if (!r->text) return ctx_no_memory(ctx, strlen(cue), path);
    if (all->kind != JSON_ARRAY || some->kind != JSON_ARRAY || all->count > MAX_CANDIDATES || !*cue)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: line %lld has no cue, or no JSON lists of up to %d candidates",
                        path, (long long)line, MAX_CANDIDATES);
    for (const json *v = all->child; v; v = v->next) {
        const char *name = v->kind == JSON_STRING ? v->text : "";
        r->image[r->candidates] = find_image(e, name);
        if (r->image[r->candidates] < 0)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: line %lld: no readable image of \"%s\" in images/", path,
                            (long long)line, name);
        r->right[r->candidates] = in_list(some, name);
        r->belong += r->right[r->candidates++];
    }
    if (!r->belong)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: line %lld: none of the associations is a candidate", path,
                        (long long)line);
    return CLOOB_OK;
}

static cloob_status add_row(cloob_ctx *ctx, table *t, const cloob_embedded *e, const char *path, const csv_row *row,
                            const int column[3])
{
    const char *cell[3];
    for (int i = 0; i < 3; i++)
        if (!(cell[i] = csv_field(row, column[i])))
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: line %lld has too few columns", path, (long long)row->line);
    if (!heap_grow(&t->row, t->n, &t->capacity, sizeof *t->row))
        return ctx_no_memory(ctx, (size_t)t->n * sizeof *t->row, path);
    CLOOB_TRY(read_instance(ctx, t, e, path, row->line, cell[0], cell[1], cell[2], &t->row[t->n]));
    t->n++;
    return CLOOB_OK;
}

static cloob_status read_table(cloob_ctx *ctx, const char *path, const cloob_embedded *e, table *t)
{
    file_bytes f;
    csv_row row = { 0 };
    csv_reader *r = malloc(sizeof *r);
    if (!r) return ctx_no_memory(ctx, sizeof *r, path);
    cloob_status status = file_read(ctx, path, TABLE_BYTES, &f);
    if (status != CLOOB_OK) {
        free(r);
        return status;
    }
    csv_bytes bytes = { f.data, f.size };
    csv_init(r, ',', csv_read_bytes, &bytes, path);
    status = csv_next(ctx, r, &row);
    if (status != CLOOB_OK) row.count = 0;
    int column[3] = { csv_find(&row, "cue"), csv_find(&row, "candidates"), csv_find(&row, "associations") };
    if (status == CLOOB_OK && (column[0] < 0 || column[1] < 0 || column[2] < 0))
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: needs the columns cue, candidates and associations", path);
    while (status == CLOOB_OK && (status = csv_next(ctx, r, &row)) == CLOOB_OK && row.count)
        status = add_row(ctx, t, e, path, &row, column);
    if (status == CLOOB_OK && t->n == 0) status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has no rows", path);
    csv_row_release(&row);
    file_bytes_release(&f);
    free(r);
    return status;
}

/* ---- scores -------------------------------------------------------------------------------------- */

/* Of two sets of the same size: what both have, by what either has. */
static double jaccard(const instance *r, const double *similarity)
{
    bool chosen[MAX_CANDIDATES] = { false };
    int both = 0;
    for (int k = 0; k < r->belong; k++) {
        int best = -1;
        for (int i = 0; i < r->candidates; i++)
            if (!chosen[i] && (best < 0 || similarity[i] >= similarity[best])) best = i;
        if (best < 0) break; /* cannot be: fewer belong than there are candidates */
        chosen[best] = true;
        both += r->right[best];
    }
    return (double)both / (2 * r->belong - both);
}

static void put_scores(bench *b, const table *t, const double *score)
{
    static const struct {
        const char *name;
        int least, most;
    } group[] = { { "avg_jaccard_score", 0, MAX_CANDIDATES },
                  { "jaccard_score_5", 5, 5 },
                  { "jaccard_score_6", 6, 6 },
                  { "jaccard_score_10", 10, 10 },
                  { "jaccard_score_12", 12, 12 },
                  { "jaccard_score_5-6", 0, 6 },
                  { "jaccard_score_10-12", 10, MAX_CANDIDATES } };
    for (size_t g = 0; g < sizeof group / sizeof *group; g++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t i = 0; i < t->n; i++) {
            if (t->row[i].candidates < group[g].least || t->row[i].candidates > group[g].most) continue;
            sum += score[i], n++;
        }
        if (n) bench_score(b, group[g].name, sum / (double)n);
    }
}

static cloob_status score_all(cloob_ctx *ctx, bench *b, const table *t, const cloob_embedded *e)
{
    int64_t length = encoder_config(b->m->enc)->context, width = e->image_width;
    const char **text = malloc((size_t)t->n * sizeof *text);
    int32_t *tokens = malloc((size_t)(t->n * length) * sizeof *tokens);
    float *rows = malloc((size_t)(t->n * width) * sizeof *rows);
    double *score = malloc((size_t)t->n * sizeof *score), similarity[MAX_CANDIDATES];
    cloob_status status = CLOOB_OK;
    if (!text || !tokens || !rows || !score) status = ctx_no_memory(ctx, (size_t)(t->n * width) * 4, b->folder);
    for (int64_t i = 0; i < t->n && status == CLOOB_OK; i++) text[i] = t->row[i].text;
    if (status == CLOOB_OK) status = tokenizer_encode_rows(ctx, b->m->tok, text, t->n, length, tokens);
    if (status == CLOOB_OK) status = encoder_texts(ctx, b->m->enc, tokens, t->n, CLOOB_UNIT, rows);
    for (int64_t i = 0; i < t->n && status == CLOOB_OK; i++) {
        for (int k = 0; k < t->row[i].candidates; k++) {
            const float *x = e->image + t->row[i].image[k] * width, *y = rows + i * width;
            similarity[k] = 0;
            for (int64_t d = 0; d < width; d++) similarity[k] += (double)x[d] * y[d];
        }
        score[i] = jaccard(&t->row[i], similarity);
    }
    if (status == CLOOB_OK) put_scores(b, t, score);
    free(text), free(tokens), free(rows), free(score);
    return status;
}

cloob_status task_winogavil(cloob_ctx *ctx, bench *b)
{
    cloob_embedded e = { 0 };
    table t = { 0 };
    char *images = file_join(b->folder, "images"), *path = winogavil_table(b->folder, b->o.split);
    const char *folder = images;
    cloob_status status = images && path ? CLOOB_OK : ctx_no_memory(ctx, 256, b->folder);
    if (status == CLOOB_OK && !b->m->tok)
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: the model has no tokenizer, and the cues are texts", b->folder);
    if (status == CLOOB_OK) status = cloob_embed_images(ctx, b->m, &folder, 1, CLOOB_UNIT, &e);
    if (status == CLOOB_OK) status = read_table(ctx, path, &e, &t);
    if (status == CLOOB_OK) status = score_all(ctx, b, &t, &e);
    b->out->n = t.n, b->out->bad = e.bad;
    free(images), free(path), free(t.row);
    arena_release(&t.memory);
    cloob_embedded_release(&e);
    return status;
}
