/* Groups of runs from their folders, or from files with a line per run. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "lab/memory.h"
#include "lab/compare/groups.h"
#include "lab/run_files.h"
#include "io/safetensors.h"
#include "core/json.h"

typedef struct reader {
    groups g;
    const compare_options *o;
    int64_t runs, left_out; /* left_out: by `where`, unfinished, or of a sweep's search */
    int64_t searches;       /* of these, search runs of a sweep that has final runs */
    bool by_stage;          /* `where` names a stage of a sweep */
    char by[64];
    const char *group;   /* two files: the group of every line; NULL: grouped by the setting `by` */
    int64_t epoch;       /* two files: the epoch of the lines to take; -1: all */
    int64_t first_epoch; /* of the file; -1: none seen */
    bool epochs_differ;
} reader;

void compare_options_init(compare_options *o)
{
    if (!o) return;
    *o = (compare_options){ .by = "method", .alpha = 0.05, .resamples = 10000 };
}

/* "scale-hopfield" -> "scale_hopfield" */
static void plain_name(const char *name, size_t n, char *out, size_t size)
{
    snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), name);
    for (char *c = out; *c; c++)
        if (*c == '-') *c = '_';
}

/* A run: its metrics, and access to its settings. */
typedef struct run_seen {
    const json *metrics;
    const json *line; /* of a file with a line per run; NULL: unknown */
    run_param *param; /* of params.txt */
    int64_t params;
    bool has_final; /* the file has final runs of a sweep: its search runs count only on request */
} run_seen;

/* "key: value" of params.txt, or a key of the line or of its "settings"; false: it says nothing of it. */
static bool setting_of(const run_seen *r, const char *key, char *out, size_t size)
{
    const json *v = r->line ? json_get(json_get(r->line, "settings"), key) : NULL;
    if (r->line && !v) v = json_get(r->line, key);
    if (v && (v->kind == JSON_STRING || v->kind == JSON_NUMBER || v->kind == JSON_BOOL)) {
        snprintf(out, size, "%s", v->kind != JSON_BOOL ? v->text : v->boolean ? "true" : "false");
        return true;
    }
    for (int64_t i = 0; i < r->params; i++)
        if (strcmp(r->param[i].key, key) == 0) return snprintf(out, size, "%s", r->param[i].value), true;
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

/* A line of one of two files. */
static void add_line(reader *r, const json *line)
{
    int64_t epoch = -1;
    bool has = json_int(json_get(line, "epoch"), &epoch);
    if (r->epoch >= 0 && !(has && epoch == r->epoch)) return;
    if (has && r->first_epoch < 0) r->first_epoch = epoch;
    r->epochs_differ |= has && r->first_epoch != epoch;
    r->runs++;
    groups_add(&r->g, r->group, line);
}

static cloob_status add_run(cloob_ctx *ctx, reader *r, const run_seen *run, const char *name)
{
    char group[256], stage[64];
    bool searched =
        run->has_final && !r->by_stage && setting_of(run, "stage", stage, sizeof stage) && strcmp(stage, "final") != 0;
    if (searched || !is_wanted(r, run)) return r->left_out++, r->searches += searched, CLOOB_OK;
    if (r->group) return add_line(r, run->metrics), CLOOB_OK;
    if (!setting_of(run, r->by, group, sizeof group))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: has no setting `%s`; group by another one", name, r->by);
    r->runs++;
    groups_add(&r->g, group, run->metrics);
    return CLOOB_OK;
}

/* ---- lines --------------------------------------------------------------------------------------- */

static bool has_final(const json_lines *l)
{
    for (int64_t i = 0; i < l->count; i++) {
        const char *stage = json_string(json_get(l->line[i], "stage"));
        if (stage && strcmp(stage, "final") == 0) return true;
    }
    return false;
}

static cloob_status add_lines(cloob_ctx *ctx, reader *r, const char *path)
{
    json_lines lines;
    cloob_status status = CLOOB_OK;
    if (!file_exists(path)) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: no such file or folder", path);
    CLOOB_TRY(json_lines_read(ctx, r->g.memory, path, NULL, &lines));
    for (int64_t i = 0; i < lines.count && status == CLOOB_OK; i++) {
        char name[1200];
        snprintf(name, sizeof name, "%.1000s, run %lld", path, (long long)i + 1);
        status = add_run(ctx, r, &(run_seen){ lines.line[i], lines.line[i], NULL, 0, has_final(&lines) }, name);
    }
    return status;
}

/* ---- folders ------------------------------------------------------------------------------------- */

static cloob_status skip_run(cloob_ctx *ctx, reader *r, const char *dir, const char *why)
{
    r->left_out++;
    ctx_log(ctx, CLOOB_LOG_WARN, "%s: left out: %s", dir, why);
    return CLOOB_OK;
}

static int64_t number_of(const run_seen *r, const char *key)
{
    char text[64];
    return setting_of(r, key, text, sizeof text) ? atoll(text) : 0;
}

/* A run that trained for all of its epochs, or its steps (`max_steps` in runs of earlier versions). The number of steps
 * is read from the checkpoint, or else from the last validation. */
static cloob_status is_finished(cloob_ctx *ctx, const run_seen *run, const char *dir, bool *finished)
{
    int64_t epochs = number_of(run, "epochs"), steps = number_of(run, "schedule_steps"), epoch = epochs;
    char path[1200];
    st_file f;
    if (!steps) steps = number_of(run, "max_steps");
    json_int(json_get(run->metrics, "epoch"), &epoch);
    *finished = epoch >= epochs;
    snprintf(path, sizeof path, "%.1100s/checkpoints/latest.safetensors", dir);
    if (!file_exists(path)) return CLOOB_OK;
    CLOOB_TRY(st_open(ctx, path, &f));
    const char *done = st_meta_get(&f, "train.epoch"), *updates = st_meta_get(&f, "train.updates");
    if (done && updates) *finished = atoll(done) >= epochs || (steps > 0 && atoll(updates) >= steps);
    st_close(&f);
    return CLOOB_OK;
}

/* summary.json, which an ablation or a sweep writes when a run is finished; else the last validation. */
static cloob_status add_finished(cloob_ctx *ctx, reader *r, run_seen *run, const char *dir, bool of_many)
{
    char path[1200];
    json *summary = NULL;
    const json *metrics;
    bool finished = true;
    snprintf(path, sizeof path, "%.1100s/summary.json", dir);
    if (file_exists(path)) CLOOB_TRY(json_read_file(ctx, r->g.memory, path, &summary));
    else if (of_many) return skip_run(ctx, r, dir, "not finished (it has no summary.json)");
    metrics = summary;
    if (!summary) CLOOB_TRY(last_result_read(ctx, r->g.memory, dir, &metrics));
    run->metrics = metrics;
    if (!metrics) return skip_run(ctx, r, dir, "it was never validated; train with `val_data` or `zeroshot_data`");
    if (!file_exists(path)) CLOOB_TRY(is_finished(ctx, run, dir, &finished));
    if (!finished) return skip_run(ctx, r, dir, "not finished; `resume` continues it");
    if (json_get(metrics, "failed")) return skip_run(ctx, r, dir, "it failed");
    return add_run(ctx, r, run, dir);
}

/* lines: results of the sweep that the run belongs to. of_many: its folder belongs to an ablation or a sweep. */
static cloob_status add_folder(cloob_ctx *ctx, reader *r, const char *dir, const json_lines *lines, bool of_many)
{
    run_seen run = { .has_final = has_final(lines) };
    for (int64_t i = 0; i < lines->count && !run.line; i++) {
        const char *of = json_string(json_get(lines->line[i], "run"));
        if (of && strcmp(of, file_base(dir)) == 0) run.line = lines->line[i];
    }
    CLOOB_TRY(run_params_read(ctx, r->g.memory, dir, &run.param, &run.params));
    return add_finished(ctx, r, &run, dir, of_many);
}

/* Reads the files of an ablation or a sweep: settings.txt, and results.jsonl of a finished sweep. */
static cloob_status read_folder(cloob_ctx *ctx, reader *r, const char *dir, json_lines *lines, bool *of_many)
{
    char path[1200];
    snprintf(path, sizeof path, "%.1100s/settings.txt", dir);
    *of_many = file_exists(path);
    snprintf(path, sizeof path, "%.1100s/results.jsonl", dir);
    return json_lines_read(ctx, r->g.memory, path, NULL, lines);
}

/* A run that is named by its own folder. */
static cloob_status add_one(cloob_ctx *ctx, reader *r, const char *path)
{
    json_lines lines;
    bool of_many = false;
    char *dir = must(strdup(path));
    for (size_t n = strlen(dir); n > 1 && dir[n - 1] == '/';) dir[--n] = '\0';
    char *parent = must(file_folder(dir));
    cloob_status status = read_folder(ctx, r, parent, &lines, &of_many);
    if (status == CLOOB_OK) status = add_folder(ctx, r, dir, &lines, of_many);
    free(dir), free(parent);
    return status;
}

static int by_bytes(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

/* The runs inside a folder, say of an ablation or a sweep, in the order of their names. */
static cloob_status add_inside(cloob_ctx *ctx, reader *r, const char *dir)
{
    struct dirent **inside = NULL;
    int64_t before = r->runs + r->left_out;
    json_lines lines;
    bool of_many;
    CLOOB_TRY(read_folder(ctx, r, dir, &lines, &of_many));
    cloob_status status = CLOOB_OK;
    int count = scandir(dir, &inside, NULL, by_bytes);
    for (int i = 0; i < count; i++) {
        char path[1200], params[1220];
        snprintf(path, sizeof path, "%.900s/%.255s", dir, inside[i]->d_name);
        snprintf(params, sizeof params, "%s/params.txt", path);
        bool is_run = inside[i]->d_name[0] != '.' && !strstr(inside[i]->d_name, ".unfinished") && file_exists(params);
        if (status == CLOOB_OK && is_run) status = add_folder(ctx, r, path, &lines, of_many);
        free(inside[i]);
    }
    free(inside);
    if (status == CLOOB_OK && r->runs + r->left_out == before)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: is not a run and contains none (no params.txt)", dir);
    return status;
}

static cloob_status add_path(cloob_ctx *ctx, reader *r, const char *path)
{
    char params[1200];
    snprintf(params, sizeof params, "%.1100s/params.txt", path);
    if (!file_is_dir(path)) return add_lines(ctx, r, path);
    return file_exists(params) ? add_one(ctx, r, path) : add_inside(ctx, r, path);
}

static cloob_status refuse_few(cloob_ctx *ctx, const reader *r)
{
    if (!r->runs)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "nothing to compare: %lld run%s left out; give finished runs with validation results",
                        (long long)r->left_out, r->left_out == 1 ? " was" : "s were");
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "nothing to compare: %lld run%s with the same `%s` (%lld left out); `by` groups them by another "
                    "setting",
                    (long long)r->runs, r->runs == 1 ? "" : "s, all", r->by, (long long)r->left_out);
}

/* Keeps only the metrics in `names`, in that order. */
static cloob_status choose_metrics(cloob_ctx *ctx, groups_result *g, const char *names, arena *memory)
{
    group_row *chosen = must(arena_push(memory, (strlen(names) + 1) * sizeof *chosen));
    int64_t count = 0;
    for (const char *at = names; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        size_t n = strcspn(at, ",");
        int64_t i = 0;
        while (i < g->metrics && (strncmp(g->metric[i].metric, at, n) != 0 || g->metric[i].metric[n])) i++;
        if (i == g->metrics)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                            "`metrics` %.*s: no run has this metric; the first ones are %s and %s", (int)n, at,
                            g->metrics > 0 ? g->metric[0].metric : "none",
                            g->metrics > 1 ? g->metric[1].metric : "no other");
        chosen[count++] = g->metric[i];
    }
    g->metric = chosen;
    g->metrics = count;
    return CLOOB_OK;
}

static void log_searches(cloob_ctx *ctx, const reader *r)
{
    if (r->searches)
        ctx_log(
            ctx, CLOOB_LOG_INFO,
            "%lld runs of a search are left out, %lld final runs compared; `where` stage=search compares the search",
            (long long)r->searches, (long long)r->runs);
}

cloob_status compare_runs(cloob_ctx *ctx, groups_result *out, const char *const *path, int64_t paths,
                          const compare_options *o)
{
    arena *memory = must(calloc(1, sizeof *memory));
    reader r = { .g = { .memory = memory }, .o = o };
    *out = (groups_result){ 0 };
    plain_name(o->by ? o->by : "method", strlen(o->by ? o->by : "method"), r.by, sizeof r.by);
    cloob_status status = CLOOB_OK;
    if (o->resamples < 1 || !(o->alpha > 0 && o->alpha < 1))
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`resamples` must be at least 1, and `alpha` between 0 and 1");
    for (int64_t i = 0; i < o->wheres; i++) r.by_stage = r.by_stage || strncmp(o->where[i], "stage=", 6) == 0;
    for (int64_t i = 0; i < paths && status == CLOOB_OK; i++) status = add_path(ctx, &r, path[i]);
    if (status == CLOOB_OK) log_searches(ctx, &r);
    if (status == CLOOB_OK && r.g.count < 2) status = refuse_few(ctx, &r);
    if (status == CLOOB_OK) groups_finish(&r.g, o, out);
    if (status == CLOOB_OK && o->metrics) status = choose_metrics(ctx, out, o->metrics, memory);
    out->memory = memory;
    if (status != CLOOB_OK) groups_release(out);
    return status;
}

/* ---- two files with a JSON object per run --------------------------------------------------------- */

static cloob_status add_file(cloob_ctx *ctx, reader *r, const char *group, const char *path)
{
    int64_t before = r->runs;
    r->group = group, r->first_epoch = -1, r->epochs_differ = false;
    CLOOB_TRY(add_lines(ctx, r, path));
    if (r->runs == before && r->epoch >= 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no line has epoch %lld", path, (long long)r->epoch);
    if (r->runs == before)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: contains no run; needs one JSON object per line", path);
    if (r->epochs_differ)
        ctx_log(ctx, CLOOB_LOG_WARN,
                "%s: lines of different epochs: evaluations of one run are not a sample of runs; choose one epoch",
                path);
    return CLOOB_OK;
}

cloob_status compare_files(cloob_ctx *ctx, groups_result *out, const char *path_a, const char *path_b, int64_t epoch,
                           double alpha)
{
    arena *memory = must(calloc(1, sizeof *memory));
    compare_options o;
    compare_options_init(&o);
    o.alpha = alpha;
    reader r = { .g = { .memory = memory, .all = true }, .o = &o, .epoch = epoch };
    *out = (groups_result){ 0 };
    cloob_status status = add_file(ctx, &r, "a", path_a);
    if (status == CLOOB_OK) status = add_file(ctx, &r, "b", path_b);
    if (status == CLOOB_OK) groups_finish(&r.g, &o, out);
    if (status == CLOOB_OK) log_searches(ctx, &r);
    out->memory = memory;
    if (status != CLOOB_OK) groups_release(out);
    for (int64_t i = 0; i < out->metrics; i++) /* the epoch is not a metric */
        if (strcmp(out->metric[i].metric, "epoch") == 0) {
            memmove(&out->metric[i], &out->metric[i + 1], (size_t)(--out->metrics - i) * sizeof *out->metric);
            break;
        }
    return status;
}

void groups_release(groups_result *g)
{
    if (!g) return;
    if (g->memory) arena_release(g->memory);
    free(g->memory);
    *g = (groups_result){ 0 };
}
