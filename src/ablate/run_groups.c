/* Groups of runs from their folders, or from a file with a line per run (cloob/eval.h). */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloob/eval.h"
#include "core/arena.h"
#include "core/file.h"
#include "core/needs.h"
#include "eval/groups.h"

typedef struct reader {
    groups g;
    const cloob_compare_options *o;
    int64_t runs, left_out; /* left_out: by `where` */
    char by[64];
} reader;

void cloob_compare_options_init(cloob_compare_options *o)
{
    if (!o) return;
    *o = (cloob_compare_options){ .by = "method", .alpha = 0.05, .resamples = 10000 };
}

/* "scale-hopfield" -> "scale_hopfield" */
static void plain_name(const char *name, size_t n, char *out, size_t size)
{
    snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), name);
    for (char *c = out; *c; c++)
        if (*c == '-') *c = '_';
}

/* A run: its metrics, and a way to ask for its settings. */
typedef struct run_seen {
    const json *metrics;
    const json *line; /* of a file with a line per run; NULL: a folder */
    char *params;     /* text of params.txt; NULL: none */
} run_seen;

/* "key: value" of params.txt, or a key of the line or of its "settings"; false: it says nothing of it. */
static bool setting_of(const run_seen *r, const char *key, char *out, size_t size)
{
    const json *v = r->line ? json_get(json_get(r->line, "settings"), key) : NULL;
    if (r->line && !v) v = json_get(r->line, key);
    if (v && (v->kind == JSON_STRING || v->kind == JSON_NUMBER)) {
        snprintf(out, size, "%s", v->text);
        return true;
    }
    size_t n = strlen(key);
    for (const char *at = r->params; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        if (strncmp(at, key, n) != 0 || at[n] != ':') continue;
        at += n + 1 + strspn(at + n + 1, " ");
        snprintf(out, size, "%.*s", (int)strcspn(at, "\r\n"), at);
        return true;
    }
    return false;
}

static bool is_wanted(const reader *r, const run_seen *run)
{
    for (int64_t i = 0; i < r->o->wheres; i++) {
        const char *text = r->o->where[i], *mark = strchr(text, '=');
        char key[64], value[256];
        if (!mark) return false;
        plain_name(text, (size_t)(mark - text), key, sizeof key);
        if (!setting_of(run, key, value, sizeof value) || strcmp(value, mark + 1) != 0) return false;
    }
    return true;
}

static cloob_status add_run(cloob_ctx *ctx, reader *r, const run_seen *run, const char *name)
{
    char group[256];
    if (!is_wanted(r, run)) {
        r->left_out++;
        return CLOOB_OK;
    }
    if (!setting_of(run, r->by, group, sizeof group))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: does not say its `%s`; group by another setting", name, r->by);
    r->runs++;
    return groups_add(ctx, &r->g, group, run->metrics);
}

/* ---- folders ------------------------------------------------------------------------------------- */

/* The last line of a text. */
static size_t last_line(const file_bytes *b, size_t *n)
{
    size_t end = b->size, from;
    while (end > 0 && strchr("\r\n ", b->data[end - 1])) end--;
    for (from = end; from > 0 && b->data[from - 1] != '\n';) from--;
    *n = end - from;
    return from;
}

/* summary.json, with test.json as "test/..."; else the last line of checkpoints/results.jsonl. */
static cloob_status add_folder(cloob_ctx *ctx, reader *r, const char *dir)
{
    char path[1200];
    file_bytes params = { 0 }, results = { 0 };
    json *metrics = NULL;
    size_t n;
    snprintf(path, sizeof path, "%.1100s/params.txt", dir);
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &params));
    snprintf(path, sizeof path, "%.1100s/summary.json", dir);
    cloob_status status;
    if (file_exists(path)) status = json_read_file(ctx, r->g.memory, path, &metrics);
    else {
        snprintf(path, sizeof path, "%.1100s/checkpoints/results.jsonl", dir);
        status = file_read(ctx, path, FILE_TEXT_LIMIT, &results);
        if (status == CLOOB_OK) {
            size_t from = last_line(&results, &n);
            status = json_parse(ctx, r->g.memory, results.data + from, n, path, &metrics);
        }
    }
    if (status == CLOOB_OK) status = add_run(ctx, r, &(run_seen){ metrics, NULL, params.data }, dir);
    file_bytes_release(&params), file_bytes_release(&results);
    return status;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The runs inside a folder, say of an ablation or a sweep, in the order of their names. */
static cloob_status add_inside(cloob_ctx *ctx, reader *r, const char *dir)
{
    char **inside = NULL, path[1200];
    int64_t count = 0, room = 0, before = r->runs + r->left_out;
    cloob_status status = CLOOB_OK;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && status == CLOOB_OK && (e = readdir(d));) {
        snprintf(path, sizeof path, "%.900s/%.255s/params.txt", dir, e->d_name);
        if (e->d_name[0] == '.' || strstr(e->d_name, ".unfinished") || !file_exists(path)) continue;
        char *name = heap_grow(&inside, count, &room, sizeof *inside) ? strdup(e->d_name) : NULL;
        if (name) inside[count++] = name;
        else status = ctx_no_memory(ctx, strlen(e->d_name), dir);
    }
    if (d) closedir(d);
    if (count) qsort(inside, (size_t)count, sizeof *inside, by_name);
    for (int64_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%.900s/%.255s", dir, inside[i]);
        if (status == CLOOB_OK) status = add_folder(ctx, r, path);
        free(inside[i]);
    }
    free(inside);
    if (status == CLOOB_OK && r->runs + r->left_out == before)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: is no run and holds none (no params.txt)", dir);
    return status;
}

/* ---- files --------------------------------------------------------------------------------------- */

static cloob_status add_lines(cloob_ctx *ctx, reader *r, const char *path)
{
    file_bytes b;
    cloob_status status = CLOOB_OK;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &b));
    int64_t number = 1;
    for (size_t at = 0; at < b.size && status == CLOOB_OK; number++) {
        char name[1200];
        json *line;
        size_t n = strcspn(b.data + at, "\n");
        snprintf(name, sizeof name, "%.1000s, line %lld", path, (long long)number);
        if (strspn(b.data + at, " \t\r") < n) {
            status = json_parse(ctx, r->g.memory, b.data + at, n, name, &line);
            if (status == CLOOB_OK) status = add_run(ctx, r, &(run_seen){ line, line, NULL }, name);
        }
        at += n + 1;
    }
    file_bytes_release(&b);
    return status;
}

static cloob_status add_path(cloob_ctx *ctx, reader *r, const char *path)
{
    char params[1200];
    snprintf(params, sizeof params, "%.1100s/params.txt", path);
    if (!file_is_dir(path)) return add_lines(ctx, r, path);
    return file_exists(params) ? add_folder(ctx, r, path) : add_inside(ctx, r, path);
}

cloob_status cloob_compare_runs(cloob_ctx *ctx, cloob_groups *out, const char *const *path, int64_t paths,
                                const cloob_compare_options *o)
{
    API_NEEDS(ctx, out && path && o && paths >= 0);
    arena *memory = calloc(1, sizeof *memory);
    reader r = { .g = { .memory = memory }, .o = o };
    *out = (cloob_groups){ 0 };
    if (!memory) return ctx_no_memory(ctx, sizeof *memory, "a comparison");
    plain_name(o->by ? o->by : "method", strlen(o->by ? o->by : "method"), r.by, sizeof r.by);
    cloob_status status = CLOOB_OK;
    if (o->resamples < 1 || !(o->alpha > 0 && o->alpha < 1))
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`resamples` is 1 or more, `alpha` between 0 and 1");
    for (int64_t i = 0; i < paths && status == CLOOB_OK; i++) status = add_path(ctx, &r, path[i]);
    if (status == CLOOB_OK && r.g.count < 2)
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld runs, all with one `%s`: there is nothing to compare",
                          (long long)r.runs, r.by);
    if (status == CLOOB_OK) status = groups_finish(ctx, &r.g, o, out);
    out->memory = memory;
    if (status != CLOOB_OK) cloob_groups_release(out);
    return status;
}

void cloob_groups_release(cloob_groups *g)
{
    if (!g) return;
    if (g->memory) arena_release(g->memory);
    free(g->memory);
    *g = (cloob_groups){ 0 };
}

char *cloob_groups_text(const cloob_groups *g, const char *format)
{
    if (!g) return NULL;
    return groups_text(g, format ? format : "text");
}
