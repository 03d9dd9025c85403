/* Training runs below --logs: the list, and the curves of one, read from the files a run writes. */
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/handlers.h"
#include "serve/text.h"

enum { MAX_COLUMNS = 32, MAX_POINTS = 4000, MAX_LINE = 4096, LAST_LINE = 64 << 10, LIVE_SECONDS = 120 };
#define MAX_FILE_BYTES ((int64_t)64 << 20)

/* A run is a folder right below the logs; its name has no slash and does not begin with a dot. */
static bool run_file(const serve *s, const char *name, const char *file, char path[PATH_MAX])
{
    if (!*name || *name == '.' || strchr(name, '/')) return false;
    int n = snprintf(path, PATH_MAX, "%s/%s/%s", s->o->logs, name, file);
    return n > 0 && n < PATH_MAX;
}

static FILE *open_run(const serve *s, const char *name, const char *file)
{
    char path[PATH_MAX];
    struct stat st;
    if (!run_file(s, name, file, path) || stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > MAX_FILE_BYTES)
        return NULL;
    return fopen(path, "r");
}

/* The last line that is complete, in a new string with its end of line; NULL: none within the last LAST_LINE bytes. */
static char *read_last_line(FILE *f)
{
    char *text = malloc(LAST_LINE + 1), *line = NULL;
    if (text && (fseek(f, -LAST_LINE, SEEK_END) == 0 || fseek(f, 0, SEEK_SET) == 0)) {
        size_t n = fread(text, 1, LAST_LINE, f);
        while (n && text[n - 1] != '\n') n--;
        size_t begin = n ? n - 1 : 0;
        while (begin && text[begin - 1] != '\n') begin--;
        if (n) line = strndup(text + begin, n - begin);
    }
    free(text);
    return line;
}

/* ---- metrics.tsv --------------------------------------------------------------------------------- */

typedef struct table {
    char *name[MAX_COLUMNS];
    int columns, step, epoch;
    double *value; /* (rows, columns) */
    int64_t rows, cap;
} table;

static void table_release(table *t)
{
    for (int i = 0; i < t->columns; i++) free(t->name[i]);
    free(t->value);
}

static void read_head(table *t, char *line)
{
    t->step = t->epoch = -1;
    for (char *save, *word = strtok_r(line, "\t\n", &save); word && t->columns < MAX_COLUMNS;
         word = strtok_r(NULL, "\t\n", &save)) {
        if (strcmp(word, "step") == 0) t->step = t->columns;
        if (strcmp(word, "epoch") == 0) t->epoch = t->columns;
        t->name[t->columns] = strdup(word);
        if (t->name[t->columns]) t->columns++;
    }
}

/* A line that a run is still writing is left for the next time. */
static bool read_row(table *t, char *line)
{
    if (!strchr(line, '\n')) return true;
    if (t->rows == t->cap) {
        int64_t cap = t->cap ? 2 * t->cap : 1024;
        double *more = realloc(t->value, (size_t)(cap * t->columns) * sizeof *more);
        if (!more) return false;
        t->value = more, t->cap = cap;
    }
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
    char line[MAX_LINE];
    FILE *f = open_run(s, name, "metrics.tsv");
    *t = (table){ .step = -1, .epoch = -1 };
    if (!f) return;
    if (fgets(line, sizeof line, f)) read_head(t, line);
    while (t->columns && fgets(line, sizeof line, f))
        if (!read_row(t, line)) break;
    fclose(f);
}

/* Reads only the header and the last row. */
static void read_last_row(const serve *s, const char *name, table *t)
{
    char head[MAX_LINE], *line = NULL;
    FILE *f = open_run(s, name, "metrics.tsv");
    *t = (table){ .step = -1, .epoch = -1 };
    if (f && fgets(head, sizeof head, f)) read_head(t, head);
    if (t->columns && (line = read_last_line(f))) read_row(t, line);
    free(line);
    if (f) fclose(f);
}

static void put_column(json_out *w, const table *t, int column)
{
    char key[96];
    int64_t stride = t->rows / MAX_POINTS + 1;
    snprintf(key, sizeof key, "train/%s", t->name[column]);
    json_begin(w, key, '[');
    for (int64_t i = 0; i < t->rows; i++) {
        if (i % stride && i + 1 < t->rows) continue;
        json_begin(w, NULL, '[');
        json_put_number(w, NULL, t->step >= 0 ? t->value[i * t->columns + t->step] : (double)i);
        json_put_number(w, NULL, t->value[i * t->columns + column]);
        json_end(w);
    }
    json_end(w);
}

/* ---- results.jsonl ------------------------------------------------------------------------------- */

typedef struct results {
    json_doc **doc;
    int64_t n, cap;
} results;

static void results_release(results *r)
{
    for (int64_t i = 0; i < r->n; i++) json_doc_close(r->doc[i]);
    free(r->doc);
}

/* The last results; NULL: none. */
static json_doc *read_last_results(cloob_ctx *ctx, const serve *s, const char *name)
{
    FILE *f = open_run(s, name, "checkpoints/results.jsonl");
    char *line = f ? read_last_line(f) : NULL;
    json_doc *doc = NULL;
    if (line) json_doc_parse(ctx, line, strlen(line), "results.jsonl", 10000, &doc);
    free(line);
    if (f) fclose(f);
    return doc;
}

static void read_results(cloob_ctx *ctx, const serve *s, const char *name, results *r)
{
    FILE *f = open_run(s, name, "checkpoints/results.jsonl");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    *r = (results){ 0 };
    while (f && (n = getline(&line, &cap, f)) > 0 && r->n < MAX_POINTS) {
        json_doc *doc;
        if (line[n - 1] != '\n' || json_doc_parse(ctx, line, (size_t)n, "results.jsonl", 10000, &doc) != CLOOB_OK)
            continue;
        if (r->n == r->cap) {
            int64_t more = r->cap ? 2 * r->cap : 64;
            json_doc **bigger = realloc(r->doc, (size_t)more * sizeof *bigger);
            if (!bigger) {
                json_doc_close(doc);
                break;
            }
            r->doc = bigger, r->cap = more;
        }
        r->doc[r->n++] = doc;
    }
    free(line);
    if (f) fclose(f);
}

/* Numbers of the results by epoch: every key of the last line that is a number becomes a series. */
static void put_series(json_out *w, const results *r, const table *t)
{
    const json *last = r->n ? json_doc_root(r->doc[r->n - 1]) : NULL;
    for (const json *m = json_first(last); m; m = json_next(m)) {
        double value, epoch, per_epoch = 1;
        char key[128];
        if (!json_number(m, &value) || strcmp(json_key(m), "epoch") == 0) continue;
        if (t->rows && t->step >= 0 && t->epoch >= 0) { /* steps of an epoch, so that all curves share their axis */
            const double *row = t->value + (t->rows - 1) * t->columns;
            per_epoch = row[t->step] / (floor(row[t->epoch]) + 1);
        }
        snprintf(key, sizeof key, "val/%s", json_key(m));
        json_begin(w, key, '[');
        for (int64_t i = 0; i < r->n; i++) {
            const json *root = json_doc_root(r->doc[i]);
            if (!json_number(json_get(root, json_key(m)), &value)) continue;
            if (!json_number(json_get(root, "epoch"), &epoch)) epoch = (double)i;
            json_begin(w, NULL, '[');
            json_put_number(w, NULL, round(epoch * per_epoch));
            json_put_number(w, NULL, value);
            json_end(w);
        }
        json_end(w);
    }
}

static void put_value(json_out *w, const char *key, const json *v)
{
    double number = 0;
    bool yes = false;
    if (json_string(v)) json_put_text(w, key, json_string(v));
    else if (json_number(v, &number)) json_put_number(w, key, number);
    else if (json_bool(v, &yes)) json_put_bool(w, key, yes);
}

static void put_results(json_out *w, const results *r)
{
    json_begin(w, "results", '[');
    for (int64_t i = 0; i < r->n; i++) {
        json_begin(w, NULL, '{');
        for (const json *m = json_first(json_doc_root(r->doc[i])); m; m = json_next(m)) put_value(w, json_key(m), m);
        json_end(w);
    }
    json_end(w);
}

static void put_params(json_out *w, const serve *s, const char *name)
{
    char line[MAX_LINE];
    FILE *f = open_run(s, name, "params.txt");
    json_begin(w, "params", '{');
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strstr(line, ": ");
        line[strcspn(line, "\n")] = 0;
        if (!colon) continue;
        *colon = 0;
        json_put_text(w, line, colon + 2);
    }
    json_end(w);
    if (f) fclose(f);
}

/* At most what reading a run takes: numbers of the table, values of the results, the answer. */
static int64_t run_memory(const serve *s, const char *name)
{
    static const char *const file[] = { "metrics.tsv", "checkpoints/results.jsonl" };
    static const int64_t times[] = { 6, 20 };
    int64_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX];
        struct stat st;
        if (run_file(s, name, file[i], path) && stat(path, &st) == 0 && st.st_size <= MAX_FILE_BYTES)
            bytes += times[i] * (int64_t)st.st_size;
    }
    return bytes;
}

void handle_run(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    table t;
    results res;
    json_out w = { 0 };
    char path[PATH_MAX];
    struct stat st;
    if (!s->o->logs || !run_file(s, q->tail, "", path) || stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        http_error(r, q, 404, "there is no such run");
        return;
    }
    if (!http_reserve(r, q, ctx, run_memory(s, q->tail))) return;
    read_table(s, q->tail, &t);
    read_results(ctx, s, q->tail, &res);
    json_begin(&w, NULL, '{');
    json_put_text(&w, "name", q->tail);
    json_begin(&w, "series", '{');
    for (int i = 0; i < t.columns; i++)
        if (i != t.step && i != t.epoch) put_column(&w, &t, i);
    put_series(&w, &res, &t);
    json_end(&w);
    put_results(&w, &res);
    put_params(&w, s, q->tail);
    json_end(&w);
    http_json(r, 200, &w);
    table_release(&t);
    results_release(&res);
}

/* ---- the list ------------------------------------------------------------------------------------ */

typedef struct listed {
    char name[NAME_MAX + 1];
    time_t updated;
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
        list[n++].updated = st.st_mtime;
    }
    if (d) closedir(d);
    qsort(list, (size_t)n, sizeof *list, newest_first);
    return n;
}

static void put_run(cloob_ctx *ctx, json_out *w, const serve *s, const listed *l)
{
    table t;
    char date[32];
    json_doc *doc = read_last_results(ctx, s, l->name);
    read_last_row(s, l->name, &t);
    date_print((int64_t)l->updated * INT64_C(1000000000), date);
    json_begin(w, NULL, '{');
    json_put_text(w, "name", l->name);
    json_put_text(w, "updated", date);
    json_put_bool(w, "live", time(NULL) - l->updated < LIVE_SECONDS);
    if (t.rows && t.epoch >= 0) json_put_int(w, "epoch", (int64_t)t.value[(t.rows - 1) * t.columns + t.epoch]);
    json_begin(w, "metrics", '{');
    for (const json *m = json_first(json_doc_root(doc)); m; m = json_next(m)) {
        double value;
        if (json_number(m, &value)) json_put_number(w, json_key(m), value);
    }
    json_end(w);
    json_end(w);
    json_doc_close(doc);
    table_release(&t);
}

void handle_runs(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    enum { MAX_RUNS = 500 };
    json_out w = { 0 };
    if (!s->o->logs) {
        http_error(r, q, 404, "the server watches no runs; start it with --logs DIR");
        return;
    }
    listed *list = malloc(MAX_RUNS * sizeof *list);
    int64_t n = list ? list_runs(s, list, MAX_RUNS) : 0;
    json_begin(&w, NULL, '{');
    json_begin(&w, "runs", '[');
    for (int64_t i = 0; i < n; i++) put_run(ctx, &w, s, &list[i]);
    json_end(&w);
    json_end(&w);
    w.failed = w.failed || !list;
    free(list);
    http_json(r, 200, &w);
}
