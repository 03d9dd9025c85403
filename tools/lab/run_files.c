/* Reading a run's folder, and zero-shot results next to it: files that may be damaged or absent. */
#include "lab/run_files.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "lab/memory.h"

static int64_t count_of(const char *text, char c)
{
    int64_t n = 0;
    for (; *text; text++) n += *text == c;
    return n;
}

/* The text of a file in the arena; NULL: it is absent. */
static cloob_status text_of(cloob_ctx *ctx, arena *a, const char *path, char **out)
{
    file_bytes bytes;
    *out = NULL;
    if (!file_exists(path)) return CLOOB_OK;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &bytes));
    *out = must(arena_string_n(a, bytes.data, bytes.size));
    file_bytes_release(&bytes);
    return CLOOB_OK;
}

/* ---- tab-separated numbers --------------------------------------------------------------------------- */

/* "nan" and "inf" are numbers here: a loss may be one. */
static bool read_row(char *line, double *value, int64_t columns)
{
    for (int64_t i = 0; i < columns; i++) {
        char *field = strsep(&line, "\t"), *end;
        if (!field || !*field) return false;
        value[i] = strtod(field, &end);
        if (*end) return false;
    }
    return line == NULL;
}

static void read_lines(arena *a, char *text, tsv *t)
{
    int64_t room = count_of(text, '\n') + 1;
    char *line = strsep(&text, "\n");
    t->columns = count_of(line, '\t') + 1;
    t->name = must(arena_push(a, (size_t)t->columns * sizeof *t->name));
    for (int64_t i = 0; i < t->columns; i++) t->name[i] = strsep(&line, "\t");
    t->value = must(arena_push(a, (size_t)(room * t->columns) * sizeof *t->value));
    while ((line = strsep(&text, "\n"))) {
        if (!*line) continue;
        if (read_row(line, t->value + t->rows * t->columns, t->columns)) t->rows++;
        else t->damaged++;
    }
}

/* Without the file the table is empty. */
static cloob_status read_table(cloob_ctx *ctx, arena *a, const char *folder, const char *name, tsv *t)
{
    char path[FILE_PATH], *text;
    CLOOB_TRY(file_in(ctx, folder, name, path));
    CLOOB_TRY(text_of(ctx, a, path, &text));
    if (text && *text) read_lines(a, text, t);
    else t->damaged = text != NULL;
    if (t->damaged) ctx_log(ctx, CLOOB_LOG_WARN, "%s: %lld damaged lines left out", path, (long long)t->damaged);
    return CLOOB_OK;
}

int64_t tsv_find(const tsv *t, const char *name)
{
    for (int64_t i = 0; i < t->columns; i++)
        if (strcmp(t->name[i], name) == 0) return i;
    return -1;
}

/* A resumed run repeats steps after its checkpoint: keeps the later rows. */
static void drop_repeated(tsv *t)
{
    int64_t step = tsv_find(t, "step"), kept = 0;
    if (step < 0) return;
    for (int64_t i = 0; i < t->rows; i++) {
        while (kept > 0 && tsv_at(t, kept - 1, step) >= tsv_at(t, i, step)) kept--;
        memmove(t->value + kept * t->columns, t->value + i * t->columns, (size_t)t->columns * sizeof *t->value);
        kept++;
    }
    t->rows = kept;
}

/* ---- params.txt ---------------------------------------------------------------------------------- */

cloob_status run_params_read(cloob_ctx *ctx, arena *a, const char *dir, run_param **out, int64_t *count)
{
    char path[FILE_PATH], *text;
    *out = NULL, *count = 0;
    CLOOB_TRY(file_in(ctx, dir, "params.txt", path));
    CLOOB_TRY(text_of(ctx, a, path, &text));
    if (text) *out = must(arena_push(a, (size_t)(count_of(text, '\n') + 1) * sizeof **out));
    for (char *line; (line = strsep(&text, "\n"));) {
        char *colon = strstr(line, ": ");
        if (!colon) continue;
        *colon = '\0';
        colon[2 + strcspn(colon + 2, "\r")] = '\0';
        (*out)[(*count)++] = (run_param){ line, colon + 2 };
    }
    return CLOOB_OK;
}

const char *run_param_get(const run_files *r, const char *key)
{
    for (int64_t i = 0; i < r->params; i++)
        if (strcmp(r->param[i].key, key) == 0) return r->param[i].value;
    return "";
}

/* ---- results.jsonl ------------------------------------------------------------------------------- */

static cloob_status add_json_line(cloob_ctx *ctx, arena *a, const char *line, const char *name, json_lines *out)
{
    json *root;
    out->line = must(arena_grow(a, out->line, out->count, &out->room, 16, sizeof *out->line));
    CLOOB_TRY(json_parse(ctx, a, line, strlen(line), name, &root));
    if (root->kind != JSON_OBJECT)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: needs an object with the metrics of one run", name);
    out->line[out->count++] = root;
    return CLOOB_OK;
}

cloob_status json_lines_read(cloob_ctx *ctx, arena *a, const char *path, int64_t *damaged, json_lines *out)
{
    char *text;
    int64_t number = 1;
    *out = (json_lines){ 0 };
    CLOOB_TRY(text_of(ctx, a, path, &text));
    for (char *line; (line = strsep(&text, "\n")); number++) {
        char name[FILE_PATH + 32];
        if (strspn(line, " \t\r") == strlen(line)) continue;
        snprintf(name, sizeof name, "%s, line %lld", path, (long long)number);
        cloob_status status = add_json_line(ctx, a, line, name, out);
        if (status != CLOOB_OK && !damaged) return status;
        if (status == CLOOB_OK) continue;
        ctx_log(ctx, CLOOB_LOG_WARN, "%s; left out", cloob_error(ctx));
        ++*damaged;
    }
    return CLOOB_OK;
}

cloob_status last_result_read(cloob_ctx *ctx, arena *a, const char *dir, const json **out)
{
    char path[FILE_PATH];
    json_lines lines;
    CLOOB_TRY(file_in(ctx, dir, "checkpoints/results.jsonl", path));
    CLOOB_TRY(json_lines_read(ctx, a, path, NULL, &lines));
    *out = lines.count ? lines.line[lines.count - 1] : NULL;
    return CLOOB_OK;
}

bool run_last_result(const run_files *r, const char *key, double *out)
{
    for (int64_t i = r->results - 1; i >= 0; i--) {
        const json *v = json_get(r->result[i], key);
        if (v && v->kind == JSON_NUMBER && isfinite(v->number)) return *out = v->number, true;
    }
    return false;
}

/* ---- analysis/epoch_N ---------------------------------------------------------------------------- */

static int by_epoch(const void *a, const void *b)
{
    int64_t x = ((const run_analysis *)a)->epoch, y = ((const run_analysis *)b)->epoch;
    return (x > y) - (x < y);
}

cloob_status run_analysis_read(cloob_ctx *ctx, arena *a, const char *folder, run_analysis *out)
{
    CLOOB_TRY(read_table(ctx, a, folder, "eigenvalues.tsv", &out->eigenvalues));
    return read_table(ctx, a, folder, "similarities.tsv", &out->similarities);
}

static cloob_status read_analyses(cloob_ctx *ctx, arena *a, run_files *r)
{
    char folder[FILE_PATH], inside[FILE_PATH];
    int64_t room = 0;
    cloob_status status = CLOOB_OK;
    CLOOB_TRY(file_in(ctx, r->dir, "analysis", folder));
    DIR *d = opendir(folder);
    for (struct dirent *e; d && status == CLOOB_OK && (e = readdir(d));) {
        long long epoch;
        if (sscanf(e->d_name, "epoch_%lld", &epoch) != 1) continue;
        r->analysis = must(arena_grow(a, r->analysis, r->analyses, &room, 16, sizeof *r->analysis));
        run_analysis *it = &r->analysis[r->analyses++];
        *it = (run_analysis){ .epoch = epoch };
        status = file_in(ctx, folder, e->d_name, inside);
        if (status == CLOOB_OK) status = run_analysis_read(ctx, a, inside, it);
        r->damaged += it->eigenvalues.damaged + it->similarities.damaged;
    }
    if (d) closedir(d);
    if (r->analyses) qsort(r->analysis, (size_t)r->analyses, sizeof *r->analysis, by_epoch);
    return status;
}

/* ---- the folder ---------------------------------------------------------------------------------- */

cloob_status run_files_read(cloob_ctx *ctx, arena *a, const char *dir, run_files *out)
{
    *out = (run_files){ 0 };
    if (!file_exists(dir))
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: no such run; give the folder LOGS/NAME that cloob train wrote", dir);
    if (!file_is_dir(dir))
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: is a file; give the folder LOGS/NAME that cloob train wrote", dir);
    char *copy = must(arena_string(a, dir));
    for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/';) copy[--n] = '\0';
    const char *slash = strrchr(copy, '/');
    out->dir = copy;
    out->name = slash && slash[1] ? slash + 1 : copy;
    CLOOB_TRY(run_params_read(ctx, a, dir, &out->param, &out->params));
    CLOOB_TRY(read_table(ctx, a, dir, "metrics.tsv", &out->metrics));
    out->damaged = out->metrics.damaged;
    drop_repeated(&out->metrics);
    char results[FILE_PATH];
    json_lines lines;
    CLOOB_TRY(file_in(ctx, dir, "checkpoints/results.jsonl", results));
    CLOOB_TRY(json_lines_read(ctx, a, results, &out->damaged, &lines));
    out->result = lines.line, out->results = lines.count;
    CLOOB_TRY(read_analyses(ctx, a, out));
    out->method = run_param_get(out, "method");
    if (!out->params && !out->metrics.rows && !out->results && !out->analyses)
        return ctx_fail(
            ctx, CLOOB_ERR_FORMAT,
            "%s: is not the folder of a run (no params.txt, metrics.tsv, checkpoints/results.jsonl); give LOGS/NAME, "
            "or for a run of a sweep LOGS/SWEEP/NAME",
            dir);
    return CLOOB_OK;
}

/* ---- zero-shot results --------------------------------------------------------------------------------- */

static bool wanted(const char *name)
{
    bool known =
        strncmp(name, "zeroshot", 8) == 0 || strncmp(name, "examples", 8) == 0 || strncmp(name, "classify", 8) == 0;
    return known && text_ends_with(name, ".json");
}

/* "zeroshot-shape.json" is of the set "shape". */
static const char *set_of(arena *a, const char *name)
{
    const char *from = name + strcspn(name, "-_.");
    if (*from && *from != '.') from++;
    size_t n = strlen(from) - strlen(".json");
    return n ? must(arena_string_n(a, from, n)) : "zero-shot";
}

/* The run whose folder contains the checkpoint. */
static const char *run_of(const json *root, const run_files *runs, int64_t n)
{
    const char *checkpoint = json_string(json_get(root, "checkpoint"));
    for (int64_t i = 0; checkpoint && i < n; i++) {
        const char *at = strstr(checkpoint, runs[i].name);
        size_t len = strlen(runs[i].name);
        for (; at; at = strstr(at + 1, runs[i].name))
            if ((at == checkpoint || at[-1] == '/') && at[len] == '/') return runs[i].name;
    }
    return n == 1 ? runs[0].name : "";
}

static bool seen(const score_files *s, const char *path)
{
    for (int64_t i = 0; i < s->count; i++)
        if (strcmp(s->file[i].path, path) == 0) return true;
    return false;
}

static void add(cloob_ctx *ctx, arena *a, const char *path, const char *name, const run_files *run,
                const run_files *runs, int64_t n, score_files *s)
{
    json *root;
    if (seen(s, path)) return;
    if (json_read_file(ctx, a, path, &root) != CLOOB_OK) {
        ctx_log(ctx, CLOOB_LOG_WARN, "%s; left out", cloob_error(ctx));
        s->damaged++;
        return;
    }
    s->file = must(arena_grow(a, s->file, s->count, &s->room, 16, sizeof *s->file));
    s->file[s->count++] =
        (score_file){ must(arena_string(a, path)), set_of(a, name), run ? run->name : run_of(root, runs, n), root };
}

static int by_set(const void *a, const void *b)
{
    const score_file *x = a, *y = b;
    int order = strcmp(x->set, y->set);
    return order ? order : strcmp(x->run, y->run);
}

void score_files_scan(cloob_ctx *ctx, arena *a, const char *folder, const run_files *run, const run_files *runs,
                      int64_t n, score_files *out)
{
    char *real = realpath(folder, NULL); /* so that a file found by two paths is read once */
    DIR *d = real ? opendir(real) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[FILE_PATH];
        if (wanted(e->d_name) && file_in(ctx, real, e->d_name, path) == CLOOB_OK)
            add(ctx, a, path, e->d_name, run, runs, n, out);
    }
    if (d) closedir(d);
    free(real);
    if (out->count) qsort(out->file, (size_t)out->count, sizeof *out->file, by_set);
}
