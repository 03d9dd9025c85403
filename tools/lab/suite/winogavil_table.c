#include "lab/suite/suite.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "data/sets/csv.h"

enum { TABLE_BYTES = 1 << 28 };

typedef struct reader {
    cloob_ctx *ctx;
    const char *path;
    char *const *image;
    int64_t images;
    winogavil_table *t;
} reader;

/* "cat" is images/cat.jpg, whatever the ending; -1: not among the images. */
static int64_t find_image(const reader *r, const char *name)
{
    size_t n = strlen(name);
    for (int64_t i = 0; i < r->images; i++) {
        const char *slash = strrchr(r->image[i], '/'), *file = slash ? slash + 1 : r->image[i];
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
    if (!to->text) return ctx_no_memory(r->ctx, strlen(cell[0]), r->path);
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
    if (!heap_grow(&t->row, t->n, &t->capacity, sizeof *t->row))
        return ctx_no_memory(r->ctx, (size_t)t->n * sizeof *t->row, r->path);
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

cloob_status winogavil_read(cloob_ctx *ctx, const char *path, char *const *name, int64_t images, winogavil_table *t)
{
    const reader r = { ctx, path, name, images, t };
    file_bytes f;
    csv_row row = { 0 };
    csv_reader *in = malloc(sizeof *in);
    if (!in) return ctx_no_memory(ctx, sizeof *in, path);
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
    free(t->row);
    arena_release(&t->memory);
    *t = (winogavil_table){ 0 };
}
