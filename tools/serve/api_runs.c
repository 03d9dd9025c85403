/* Training runs in the folder --logs: the list of runs, and the curves of one, read from the files that a run
 * writes. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/arena.h"
#include "core/file.h"
#include "serve/handlers.h"

enum { MAX_COLUMNS = 32, MAX_POINTS = 4000, MAX_RESULTS = 300, LAST_LINE = 64 << 10, LIVE_SECONDS = 120 };
#define MAX_FILE_BYTES ((int64_t)64 << 20)

/* Path of a file of a run, which is a folder directly in --logs. The name must not contain a slash or start with a
 * dot. */
static bool run_file(const serve *s, const char *name, const char *file, char path[PATH_MAX])
{
    if (!*name || *name == '.' || strchr(name, '/')) return false;
    int n = snprintf(path, PATH_MAX, "%s/%s/%s", s->o->logs, name, file);
    return n > 0 && n < PATH_MAX;
}

/* Reads the complete lines of a file into a new string, or only the last line, if it is within the last LAST_LINE
 * bytes. A line that the run is still writing is skipped. NULL: none. */
static char *read_lines(const serve *s, const char *name, const char *file, bool last)
{
    char path[PATH_MAX];
    struct stat st;
    int fd = run_file(s, name, file, path) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > MAX_FILE_BYTES) {
        if (fd >= 0) close(fd);
        return NULL;
    }
    size_t from = last && st.st_size > LAST_LINE ? (size_t)st.st_size - LAST_LINE : 0, n = (size_t)st.st_size - from;
    FILE *f = fdopen(fd, "r");
    char *text = malloc(n + 1), *line = NULL;
    n = f && text && fseek(f, (long)from, SEEK_SET) == 0 ? fread(text, 1, n, f) : 0;
    if (f) fclose(f);
    else close(fd);
    while (n && text[n - 1] != '\n') n--;
    size_t begin = last && n ? n - 1 : 0;
    while (begin && text[begin - 1] != '\n') begin--;
    if (n) line = strndup(text + begin, n - begin);
    free(text);
    return line;
}

/* ---- metrics.tsv --------------------------------------------------------------------------------- */

typedef struct table {
    char *text; /* content of the file; names point into it */
    char *name[MAX_COLUMNS];
    int columns, step, epoch;
    double *value; /* (rows, columns) */
    int64_t rows, room;
} table;

static void read_head(table *t, char *line)
{
    for (char *word; (word = strsep(&line, "\t")) && t->columns < MAX_COLUMNS; t->columns++) {
        if (strcmp(word, "step") == 0) t->step = t->columns;
        if (strcmp(word, "epoch") == 0) t->epoch = t->columns;
        t->name[t->columns] = word;
    }
}

/* Lines with fewer numbers than columns are skipped. */
static bool read_row(table *t, char *line)
{
    if (!heap_grow(&t->value, t->rows, &t->room, (size_t)t->columns * sizeof *t->value)) return false;
    double *row = t->value + t->rows * t->columns;
    for (int i = 0; i < t->columns; i++) {
        char *end;
        row[i] = strtod(line, &end);
        if (end == line) return true;
        line = *end == '\t' ? end + 1 : end;
    }
    t->rows++;
    return true;
}

static void read_table(const serve *s, const char *name, table *t)
{
    *t = (table){ .step = -1, .epoch = -1, .text = read_lines(s, name, "metrics.tsv", false) };
    char *rest = t->text;
    if (rest) read_head(t, strsep(&rest, "\n"));
    for (char *line; t->columns && (line = strsep(&rest, "\n"));)
        if (!read_row(t, line)) break;
}

static void put_point(json_out *w, double x, double y)
{
    json_begin(w, NULL, '[');
    json_put_number(w, NULL, x);
    json_put_number(w, NULL, y);
    json_end(w);
}

static void put_column(json_out *w, const table *t, int column)
{
    char key[96];
    int64_t stride = t->rows / MAX_POINTS + 1;
    snprintf(key, sizeof key, "train/%s", t->name[column]);
    json_begin(w, key, '[');
    for (int64_t i = 0; i < t->rows; i++) {
        const double *row = t->value + i * t->columns;
        if (i % stride == 0 || i + 1 == t->rows) put_point(w, t->step >= 0 ? row[t->step] : (double)i, row[column]);
    }
    json_end(w);
}

/* ---- results.jsonl ------------------------------------------------------------------------------- */

typedef struct results {
    char *text; /* content of the file; `line` points to the lines that are valid JSON */
    char **line;
    json_doc **doc;
    int64_t n;
} results;

static void results_release(results *r)
{
    for (int64_t i = 0; i < r->n; i++) json_doc_close(r->doc[i]);
    free(r->doc), free(r->line), free(r->text);
}

/* Reads the lines of the run's results, or only the last one. Lines with more than MAX_RESULTS values are not written
 * by a run and are skipped. */
static void read_results(cloob_ctx *ctx, const serve *s, const char *name, bool last, results *r)
{
    *r = (results){ .text = read_lines(s, name, "checkpoints/results.jsonl", last),
                    .line = malloc(MAX_POINTS * sizeof *r->line),
                    .doc = malloc(MAX_POINTS * sizeof *r->doc) };
    char *rest = r->line && r->doc ? r->text : NULL;
    for (char *line; r->n < MAX_POINTS && (line = strsep(&rest, "\n"));)
        if (json_doc_parse(ctx, line, strlen(line), "results.jsonl", MAX_RESULTS, &r->doc[r->n]) == CLOOB_OK)
            r->line[r->n++] = line;
}

/* Writes results by epoch: every number of the last line becomes a series over all lines, or over evenly spaced lines
 * that include the last. */
static void put_series(json_out *w, const results *r, const table *t)
{
    enum { MAX_LOOKUPS = 200000 };
    const json *last = r->n ? json_doc_root(r->doc[r->n - 1]) : NULL;
    int64_t stride = r->n * json_count(last) / MAX_LOOKUPS + 1;
    for (const json *m = json_first(last); m; m = json_next(m)) {
        double value, epoch, per_epoch = 1;
        char key[128];
        if (!json_number(m, &value) || strcmp(json_key(m), "epoch") == 0) continue;
        /* convert epochs to steps, so that all curves have the same axis */
        if (t->rows && t->step >= 0 && t->epoch >= 0) {
            const double *row = t->value + (t->rows - 1) * t->columns;
            per_epoch = row[t->step] / (floor(row[t->epoch]) + 1);
        }
        snprintf(key, sizeof key, "val/%s", json_key(m));
        json_begin(w, key, '[');
        for (int64_t i = r->n - 1 - (r->n - 1) / stride * stride; i < r->n; i += stride) {
            const json *root = json_doc_root(r->doc[i]);
            if (!json_number(json_get(root, json_key(m)), &value)) continue;
            if (!json_number(json_get(root, "epoch"), &epoch)) epoch = (double)i;
            put_point(w, round(epoch * per_epoch), value);
        }
        json_end(w);
    }
}

static void put_params(json_out *w, const serve *s, const char *name)
{
    char *text = read_lines(s, name, "params.txt", false), *rest = text;
    json_begin(w, "params", '{');
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *colon = strstr(line, ": ");
        if (!colon) continue;
        *colon = 0;
        json_put_text(w, line, colon + 2);
    }
    json_end(w);
    free(text);
}

/* Upper bound of the memory needed to read a run: numbers of the table, values of the results, and the answer. */
static int64_t run_memory(const serve *s, const char *name)
{
    static const char *const file[] = { "metrics.tsv", "checkpoints/results.jsonl", "params.txt" };
    static const int64_t times[] = { 6, 20, 4 };
    int64_t bytes = 0;
    for (int i = 0; i < 3; i++) {
        char path[PATH_MAX];
        struct stat st;
        if (run_file(s, name, file[i], path) && stat(path, &st) == 0 && st.st_size <= MAX_FILE_BYTES)
            bytes += times[i] * (int64_t)st.st_size;
    }
    return bytes;
}

cloob_status handle_run(call *c)
{
    table t;
    results res;
    char path[PATH_MAX];
    const char *name = c->q->tail;
    if (!c->s->o->logs || !run_file(c->s, name, "", path) || !file_is_dir(path))
        return call_error(c, 404, "no such run; /v1/runs lists them");
    CLOOB_TRY(account_reserve(c->ctx, c->q->memory, run_memory(c->s, name)));
    read_table(c->s, name, &t);
    read_results(c->ctx, c->s, name, false, &res);
    json_begin(&c->w, NULL, '{');
    json_put_text(&c->w, "name", name);
    json_begin(&c->w, "series", '{');
    for (int i = 0; i < t.columns; i++)
        if (i != t.step && i != t.epoch) put_column(&c->w, &t, i);
    put_series(&c->w, &res, &t);
    json_end(&c->w);
    json_begin(&c->w, "results", '[');
    for (int64_t i = 0; i < res.n; i++) json_put_raw(&c->w, NULL, res.line[i], strlen(res.line[i]));
    json_end(&c->w);
    put_params(&c->w, c->s, name);
    json_end(&c->w);
    free(t.text), free(t.value);
    results_release(&res);
    return CLOOB_OK;
}

/* ---- the list ------------------------------------------------------------------------------------ */

typedef struct listed {
    char name[NAME_MAX + 1];
    int64_t updated; /* nanoseconds since 1970 */
} listed;

static int newest_first(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    if (x->updated != y->updated) return x->updated > y->updated ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int64_t list_runs(const serve *s, listed *list, int64_t limit)
{
    DIR *d = opendir(s->o->logs);
    int64_t n = 0;
    for (struct dirent *e; d && n < limit && (e = readdir(d));) {
        char path[PATH_MAX];
        struct stat st;
        if (!run_file(s, e->d_name, "metrics.tsv", path)) continue;
        if (stat(path, &st) != 0 && (!run_file(s, e->d_name, "params.txt", path) || stat(path, &st) != 0)) continue;
        snprintf(list[n].name, sizeof list[n].name, "%s", e->d_name);
        list[n++].updated = time_ns(st.st_mtim);
    }
    if (d) closedir(d);
    qsort(list, (size_t)n, sizeof *list, newest_first);
    return n;
}

static void put_run(cloob_ctx *ctx, json_out *w, const serve *s, const listed *l)
{
    results r;
    char date[32], *row = read_lines(s, l->name, "metrics.tsv", true);
    double value;
    read_results(ctx, s, l->name, true, &r);
    date_print(l->updated, date);
    json_begin(w, NULL, '{');
    json_members(w, J_OF(l, name), J_TEXT("updated", date),
                 J_BOOL("live", time(NULL) - l->updated / INT64_C(1000000000) < LIVE_SECONDS));
    if (row && sscanf(row, "%*f %lf", &value) == 1) json_put_number(w, "epoch", trunc(value)); /* the second column */
    json_begin(w, "metrics", '{');
    for (const json *m = r.n ? json_first(json_doc_root(r.doc[0])) : NULL; m; m = json_next(m))
        if (json_number(m, &value)) json_put_number(w, json_key(m), value);
    json_end(w);
    json_end(w);
    results_release(&r);
    free(row);
}

cloob_status handle_runs(call *c)
{
    enum { MAX_RUNS = 500 };
    if (!c->s->o->logs) return call_error(c, 404, "the server has no folder of runs; start it with --logs DIR");
    listed *list = malloc(MAX_RUNS * sizeof *list);
    CLOOB_TRY(call_own(c, list));
    int64_t n = list_runs(c->s, list, MAX_RUNS);
    answer_list(c, "runs");
    for (int64_t i = 0; i < n; i++) put_run(c->ctx, &c->w, c->s, &list[i]);
    return CLOOB_OK;
}
