/* WinoGAViL as DataComp scores it: of five to twelve candidate images those are chosen that are most similar to a cue,
 * as many as belong to it, and compared with the ones that people chose by the Jaccard index. SPLIT/winogavil.csv is
 * the published table, images/ the published images. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/suite/suite.h"
#include "core/file.h"
#include "lab/memory.h"
#include "core/json.h"
#include "data/sets/csv.h"
#include "model/encoder.h"
#include "infer/embed_job.h"

static void table_path(const char *folder, const char *split, char path[FILE_PATH])
{
    snprintf(path, FILE_PATH, "%s/%s/winogavil.csv", folder, split);
}

bool winogavil_is(const char *folder, const char *split)
{
    char path[FILE_PATH];
    table_path(folder, split, path);
    return file_exists(path);
}

/* ---- the table -------------------------------------------------------------------------------------- */

enum { TABLE_BYTES = 1 << 28 };

typedef struct reader {
    cloob_ctx *ctx;
    const char *path;
    const char *const *image;
    int64_t images;
    winogavil_table *t;
} reader;

/* "cat" is images/cat.jpg, whatever the ending; -1: not among the images. */
static int64_t find_image(const reader *r, const char *name)
{
    size_t n = strlen(name);
    for (int64_t i = 0; i < r->images; i++) {
        const char *file = file_base(r->image[i]);
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
    char *text = must(arena_push(a, n + 4));
    bool vowel = n && strchr("aeiou", tolower((unsigned char)cue[0]));
    int k = snprintf(text, n + 4, "%s ", vowel ? "An" : "A");
    for (size_t i = 0; i <= n; i++) text[k + (int)i] = (char)tolower((unsigned char)cue[i]);
    return text;
}

static cloob_status read_candidates(const reader *r, int64_t line, const json *all, const json *some, winogavil_row *to)
{
    for (const json *v = all->child; v; v = v->next) {
        const char *name = v->kind == JSON_STRING ? v->text : "";
        int64_t at = find_image(r, name);
        if (at < 0)
            return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: line %lld: no readable image of \"%s\" in images/", r->path,
                            (long long)line, name);
        to->image[to->candidates] = at;
        to->right[to->candidates] = in_list(some, name);
        to->belong += to->right[to->candidates++];
    }
    if (!to->belong)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: line %lld: none of the associations is a candidate", r->path,
                        (long long)line);
    return CLOOB_OK;
}

/* cell: cue, candidates, associations */
static cloob_status read_row(const reader *r, int64_t line, const char *const cell[3], winogavil_row *to)
{
    json *all, *some;
    arena *a = &r->t->memory;
    CLOOB_TRY(json_parse(r->ctx, a, cell[1], strlen(cell[1]), r->path, &all));
    CLOOB_TRY(json_parse(r->ctx, a, cell[2], strlen(cell[2]), r->path, &some));
    *to = (winogavil_row){ .text = prompt_of(a, cell[0]) };
    if (all->kind != JSON_ARRAY || some->kind != JSON_ARRAY || all->count > WINOGAVIL_CANDIDATES || !*cell[0])
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: line %lld has no cue, or no JSON lists of up to %d candidates",
                        r->path, (long long)line, WINOGAVIL_CANDIDATES);
    return read_candidates(r, line, all, some, to);
}

static cloob_status add_row(const reader *r, const csv_row *row, const int column[3])
{
    winogavil_table *t = r->t;
    const char *cell[3];
    for (int i = 0; i < 3; i++)
        if (!(cell[i] = csv_field(row, column[i])))
            return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: line %lld has too few columns", r->path,
                            (long long)row->line);
    t->row = must(arena_grow(&t->memory, t->row, t->n, &t->capacity, 64, sizeof *t->row));
    CLOOB_TRY(read_row(r, row->line, cell, &t->row[t->n]));
    t->n++;
    return CLOOB_OK;
}

static cloob_status read_rows(const reader *r, csv_reader *in, csv_row *row)
{
    CLOOB_TRY(csv_next(r->ctx, in, row));
    const int column[3] = { csv_find(row, "cue"), csv_find(row, "candidates"), csv_find(row, "associations") };
    if (column[0] < 0 || column[1] < 0 || column[2] < 0)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: needs the columns cue, candidates and associations", r->path);
    for (;;) {
        CLOOB_TRY(csv_next(r->ctx, in, row));
        if (!row->count) break;
        CLOOB_TRY(add_row(r, row, column));
    }
    return r->t->n ? CLOOB_OK : ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: has no rows", r->path);
}

cloob_status winogavil_read(cloob_ctx *ctx, const char *path, const char *const *name, int64_t images,
                            winogavil_table *t)
{
    const reader r = { ctx, path, name, images, t };
    file_bytes f;
    csv_row row = { 0 };
    csv_reader *in = must(malloc(sizeof *in));
    cloob_status status = file_read(ctx, path, TABLE_BYTES, &f);
    if (status == CLOOB_OK) {
        csv_bytes bytes = { f.data, f.size };
        csv_init(in, ',', csv_read_bytes, &bytes, path);
        status = read_rows(&r, in, &row);
        csv_row_release(&row);
        file_bytes_release(&f);
    }
    free(in);
    return status;
}

void winogavil_release(winogavil_table *t)
{
    arena_release(&t->memory);
    *t = (winogavil_table){ 0 };
}

/* ---- scores -------------------------------------------------------------------------------------- */

/* Of two sets of the same size: what both have, by what either has. */
static double jaccard(const winogavil_row *r, const double *similarity)
{
    bool chosen[WINOGAVIL_CANDIDATES] = { false };
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

static void put_scores(bench *b, const winogavil_table *t, const double *score)
{
    static const struct {
        const char *name;
        int min, max;
    } group[] = { { "avg_jaccard_score", 0, WINOGAVIL_CANDIDATES },
                  { "jaccard_score_5", 5, 5 },
                  { "jaccard_score_6", 6, 6 },
                  { "jaccard_score_10", 10, 10 },
                  { "jaccard_score_12", 12, 12 },
                  { "jaccard_score_5-6", 0, 6 },
                  { "jaccard_score_10-12", 10, WINOGAVIL_CANDIDATES } };
    for (size_t g = 0; g < sizeof group / sizeof *group; g++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t i = 0; i < t->n; i++) {
            if (t->row[i].candidates < group[g].min || t->row[i].candidates > group[g].max) continue;
            sum += score[i], n++;
        }
        if (n) bench_score(b, group[g].name, sum / (double)n);
    }
}

static cloob_status score_all(cloob_ctx *ctx, bench *b, const winogavil_table *t, const embed_result *e)
{
    int64_t length = encoder_config(b->m->enc)->context, width = e->image_width;
    const char **text = must(malloc((size_t)t->n * sizeof *text));
    int32_t *tokens = must(malloc((size_t)(t->n * length) * sizeof *tokens));
    float *rows = must(malloc((size_t)(t->n * width) * sizeof *rows));
    double *score = must(malloc((size_t)t->n * sizeof *score)), similarity[WINOGAVIL_CANDIDATES];
    for (int64_t i = 0; i < t->n; i++) text[i] = t->row[i].text;
    cloob_status status = cloob_tokenizer_encode_rows(ctx, b->m->tok, text, t->n, length, tokens);
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
    embed_result e = { 0 };
    winogavil_table t = { 0 };
    char images[FILE_PATH], path[FILE_PATH];
    const char *folder = images;
    table_path(b->folder, b->o.split, path);
    cloob_status status = file_in(ctx, b->folder, "images", images);
    if (status == CLOOB_OK && !b->m->tok)
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: the model has no tokenizer, and the cues are texts", b->folder);
    if (status == CLOOB_OK)
        status =
            embed_to_memory(ctx, b->m, &(embed_job){ .what = CLOOB_UNIT, .images = &folder, .images_count = 1 }, &e);
    if (status == CLOOB_OK) status = winogavil_read(ctx, path, e.name, e.rows, &t);
    if (status == CLOOB_OK) status = score_all(ctx, b, &t, &e);
    b->out->n = t.n, b->out->bad = e.bad;
    winogavil_release(&t);
    embed_result_release(&e);
    return status;
}
