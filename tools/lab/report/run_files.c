/* Reading a run's folder, and zero-shot results next to it. */
#include "lab/report/run_files.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"

/* ---- tab-separated numbers --------------------------------------------------------------------------- */

static int64_t count_of(const char *text, char c)
{
    int64_t n = 0;
    for (; *text; text++) n += *text == c;
    return n;
}

static cloob_status read_header(cloob_ctx *ctx, arena *a, char *line, const char *path, table *t)
{
    if (!*line) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: is empty; needs a line of column names", path);
    t->columns = count_of(line, '\t') + 1;
    t->name = arena_push(a, (size_t)t->columns * sizeof *t->name);
    if (!t->name) return ctx_no_memory(ctx, 64, path);
    for (int64_t i = 0; i < t->columns; i++) {
        t->name[i] = arena_string(a, strsep(&line, "\t"));
        if (!t->name[i]) return ctx_no_memory(ctx, 64, path);
    }
    return CLOOB_OK;
}

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

static cloob_status read_lines(cloob_ctx *ctx, arena *a, char *text, const char *path, table *t)
{
    int64_t room = count_of(text, '\n') + 1;
    char *line = strsep(&text, "\n");
    CLOOB_TRY(read_header(ctx, a, line, path, t));
    size_t bytes = (size_t)(room * t->columns) * sizeof *t->value;
    t->value = arena_push(a, bytes);
    if (!t->value) return ctx_no_memory(ctx, bytes, path);
    while ((line = strsep(&text, "\n"))) {
        if (!*line) continue;
        if (read_row(line, t->value + t->rows * t->columns, t->columns)) t->rows++;
        else t->damaged++;
    }
    return CLOOB_OK;
}

/* A file without a header is an error; damaged lines are counted. */
static cloob_status table_read(cloob_ctx *ctx, arena *a, const char *path, table *out)
{
    file_bytes bytes;
    *out = (table){ 0 };
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &bytes));
    cloob_status status = read_lines(ctx, a, bytes.data, path, out);
    file_bytes_release(&bytes);
    return status;
}

int64_t table_find(const table *t, const char *name)
{
    for (int64_t i = 0; i < t->columns; i++)
        if (strcmp(t->name[i], name) == 0) return i;
    return -1;
}

static char *path_in(arena *a, const char *dir, const char *name)
{
    char *joined = file_join(dir, name), *kept = joined ? arena_string(a, joined) : NULL;
    free(joined);
    return kept;
}

/* ---- params.txt ---------------------------------------------------------------------------------- */

static cloob_status read_params(cloob_ctx *ctx, arena *a, run_files *r)
{
    file_bytes bytes;
    char *path = path_in(a, r->dir, "params.txt");
    if (!path) return ctx_no_memory(ctx, 64, "params.txt");
    if (!file_exists(path)) return CLOOB_OK;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &bytes));
    char *text = arena_string_n(a, bytes.data, bytes.size);
    r->param = arena_push(a, (bytes.size + 1) * sizeof *r->param / 2); /* a line has three characters or more */
    file_bytes_release(&bytes);
    if (!text || !r->param) return ctx_no_memory(ctx, 64, path);
    for (char *line; (line = strsep(&text, "\n"));) {
        char *colon = strstr(line, ": ");
        if (!colon) continue;
        *colon = '\0';
        r->param[r->params++] = (run_param){ line, colon + 2 };
    }
    return CLOOB_OK;
}

const char *run_param_get(const run_files *r, const char *key)
{
    for (int64_t i = 0; i < r->params; i++)
        if (strcmp(r->param[i].key, key) == 0) return r->param[i].value;
    return "";
}

/* ---- metrics ------------------------------------------------------------------------------------- */

/* A run that was resumed writes steps again that it had written before it was stopped: the later ones count.
 */
static void drop_repeated(table *t)
{
    int64_t step = table_find(t, "step"), kept = 0;
    if (step < 0) return;
    for (int64_t i = 0; i < t->rows; i++) {
        while (kept > 0 && table_at(t, kept - 1, step) >= table_at(t, i, step)) kept--;
        memmove(t->value + kept * t->columns, t->value + i * t->columns, (size_t)t->columns * sizeof *t->value);
        kept++;
    }
    t->rows = kept;
}

static cloob_status read_metrics(cloob_ctx *ctx, arena *a, run_files *r)
{
    char *path = path_in(a, r->dir, "metrics.tsv");
    if (!path) return ctx_no_memory(ctx, 64, "metrics.tsv");
    if (!file_exists(path)) return CLOOB_OK;
    cloob_status status = table_read(ctx, a, path, &r->metrics);
    if (status == CLOOB_ERR_FORMAT) { /* an empty file: a run that is just starting */
        ctx_log(ctx, CLOOB_LOG_WARN, "%s; left out", cloob_error(ctx));
        return CLOOB_OK;
    }
    if (r->metrics.damaged)
        ctx_log(ctx, CLOOB_LOG_WARN, "%s: %lld damaged lines left out", path, (long long)r->metrics.damaged);
    r->damaged += r->metrics.damaged;
    drop_repeated(&r->metrics);
    return status;
}

/* ---- results.jsonl ------------------------------------------------------------------------------- */

static void add_result(cloob_ctx *ctx, arena *a, run_files *r, const char *path, int64_t number, const char *line)
{
    char name[512];
    json *root = NULL;
    snprintf(name, sizeof name, "%.400s, line %lld", path, (long long)number);
    if (json_parse(ctx, a, line, strlen(line), name, &root) == CLOOB_OK && root->kind == JSON_OBJECT) {
        r->result[r->results++] = root;
        return;
    }
    if (root) ctx_log(ctx, CLOOB_LOG_WARN, "%s: not an object; left out", name);
    else ctx_log(ctx, CLOOB_LOG_WARN, "%s; left out", cloob_error(ctx));
    r->damaged++;
}

static cloob_status read_results(cloob_ctx *ctx, arena *a, run_files *r)
{
    file_bytes bytes;
    int64_t number = 1;
    char *path = path_in(a, r->dir, "checkpoints/results.jsonl");
    if (!path) return ctx_no_memory(ctx, 64, "results.jsonl");
    if (!file_exists(path)) return CLOOB_OK;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &bytes));
    int64_t lines = count_of(bytes.data, '\n') + 1;
    r->result = arena_push(a, (size_t)lines * sizeof *r->result);
    char *rest = bytes.data;
    for (char *line; r->result && (line = strsep(&rest, "\n")); number++)
        if (*line) add_result(ctx, a, r, path, number, line);
    file_bytes_release(&bytes);
    return r->result ? CLOOB_OK : ctx_no_memory(ctx, (size_t)lines * sizeof *r->result, path);
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

/* A table that is absent or damaged leaves its chart out, not the report. */
static cloob_status read_table(cloob_ctx *ctx, arena *a, run_files *r, const char *folder, const char *name, table *t)
{
    char *path = path_in(a, folder, name);
    if (!path) return ctx_no_memory(ctx, 64, name);
    if (!file_exists(path)) return CLOOB_OK;
    cloob_status status = table_read(ctx, a, path, t);
    if (status == CLOOB_ERR_MEMORY) return status;
    if (status != CLOOB_OK) {
        ctx_log(ctx, CLOOB_LOG_WARN, "%s; left out", cloob_error(ctx));
        *t = (table){ .damaged = 1 };
    } else if (t->damaged) {
        ctx_log(ctx, CLOOB_LOG_WARN, "%s: %lld damaged lines left out", path, (long long)t->damaged);
    }
    r->damaged += t->damaged;
    return CLOOB_OK;
}

static cloob_status read_analyses(cloob_ctx *ctx, arena *a, run_files *r)
{
    char *folder = path_in(a, r->dir, "analysis");
    DIR *d = folder ? opendir(folder) : NULL;
    int64_t room = 0;
    cloob_status status = CLOOB_OK;
    if (!folder) return ctx_no_memory(ctx, 64, "analysis");
    if (!d) return CLOOB_OK;
    while (readdir(d)) room++;
    rewinddir(d);
    r->analysis = arena_push(a, (size_t)(room + 1) * sizeof *r->analysis);
    for (struct dirent *e; status == CLOOB_OK && r->analysis && r->analyses < room && (e = readdir(d));) {
        long long epoch;
        if (sscanf(e->d_name, "epoch_%lld", &epoch) != 1) continue;
        run_analysis *it = &r->analysis[r->analyses++];
        char *inside = path_in(a, folder, e->d_name);
        it->epoch = epoch;
        status = inside ? read_table(ctx, a, r, inside, "eigenvalues.tsv", &it->eigenvalues)
                        : ctx_no_memory(ctx, 64, folder);
        if (status == CLOOB_OK) status = read_table(ctx, a, r, inside, "similarities.tsv", &it->similarities);
    }
    closedir(d);
    CLOOB_TRY(status);
    if (!r->analysis) return ctx_no_memory(ctx, (size_t)room * sizeof *r->analysis, folder);
    qsort(r->analysis, (size_t)r->analyses, sizeof *r->analysis, by_epoch);
    return CLOOB_OK;
}

/* ---- the folder ---------------------------------------------------------------------------------- */

static cloob_status name_run(cloob_ctx *ctx, arena *a, const char *dir, run_files *r)
{
    char *copy = arena_string(a, dir);
    if (!copy) return ctx_no_memory(ctx, 64, dir);
    for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/';) copy[--n] = '\0';
    const char *slash = strrchr(copy, '/');
    r->dir = copy;
    r->name = slash && slash[1] ? slash + 1 : copy;
    return CLOOB_OK;
}

cloob_status run_files_read(cloob_ctx *ctx, arena *a, const char *dir, run_files *out)
{
    *out = (run_files){ 0 };
    if (!file_exists(dir))
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: no such run; give the folder LOGS/NAME that cloob train wrote", dir);
    if (!file_is_dir(dir))
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: is a file; give the folder LOGS/NAME that cloob train wrote", dir);
    CLOOB_TRY(name_run(ctx, a, dir, out));
    CLOOB_TRY(read_params(ctx, a, out));
    CLOOB_TRY(read_metrics(ctx, a, out));
    CLOOB_TRY(read_results(ctx, a, out));
    CLOOB_TRY(read_analyses(ctx, a, out));
    out->method = run_param_get(out, "method");
    if (!out->params && !out->metrics.rows && !out->results && !out->analyses)
        return ctx_fail(
            ctx, CLOOB_ERR_FORMAT,
            "%s: holds nothing of a run (params.txt, metrics.tsv, checkpoints/results.jsonl); give LOGS/NAME", dir);
    return CLOOB_OK;
}

/* ---- zero-shot results --------------------------------------------------------------------------------- */

static bool wanted(const char *name)
{
    size_t n = strlen(name);
    bool known =
        strncmp(name, "zeroshot", 8) == 0 || strncmp(name, "examples", 8) == 0 || strncmp(name, "classify", 8) == 0;
    return known && n > 5 && strcmp(name + n - 5, ".json") == 0;
}

/* "zeroshot-shape.json" is of the set "shape". */
static const char *set_of(arena *a, const char *name)
{
    const char *from = name + strcspn(name, "-_.");
    if (*from && *from != '.') from++;
    size_t n = strlen(from) - strlen(".json");
    return n ? arena_string_n(a, from, n) : "zero-shot";
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

static bool grow(arena *a, score_files *s)
{
    score_file *all = arena_grow(a, s->file, s->count, &s->room, 16, sizeof *all);
    if (all) s->file = all;
    return all != NULL;
}

static cloob_status add(cloob_ctx *ctx, arena *a, const char *path, const char *name, const run_files *run,
                        const run_files *runs, int64_t n, score_files *s)
{
    json *root;
    if (seen(s, path)) return CLOOB_OK;
    if (json_read_file(ctx, a, path, &root) != CLOOB_OK) {
        ctx_log(ctx, CLOOB_LOG_WARN, "%s; left out", cloob_error(ctx));
        s->damaged++;
        return CLOOB_OK;
    }
    const char *kept = arena_string(a, path), *set = set_of(a, name);
    if (!kept || !set || !grow(a, s)) return ctx_no_memory(ctx, 64, path);
    s->file[s->count++] = (score_file){ kept, set, run ? run->name : run_of(root, runs, n), root };
    return CLOOB_OK;
}

static int by_set(const void *a, const void *b)
{
    const score_file *x = a, *y = b;
    int order = strcmp(x->set, y->set);
    return order ? order : strcmp(x->run, y->run);
}

cloob_status score_files_scan(cloob_ctx *ctx, arena *a, const char *folder, const run_files *run, const run_files *runs,
                              int64_t n, score_files *out)
{
    char *real = realpath(folder, NULL); /* so that one file reached in two ways is one */
    DIR *d = real ? opendir(real) : NULL;
    cloob_status status = CLOOB_OK;
    for (struct dirent *e; d && status == CLOOB_OK && (e = readdir(d));) {
        if (!wanted(e->d_name)) continue;
        char *path = file_join(real, e->d_name);
        status = path ? add(ctx, a, path, e->d_name, run, runs, n, out) : ctx_no_memory(ctx, 64, folder);
        free(path);
    }
    if (d) closedir(d);
    free(real);
    if (out->count) qsort(out->file, (size_t)out->count, sizeof *out->file, by_set);
    return status;
}
