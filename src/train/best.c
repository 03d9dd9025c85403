/* The best evaluation of a run: `keep_best` keeps its checkpoint, `early_stop` ends the run some evaluations after it.
 *
 * Both read results.jsonl, so a resumed run continues where it was and checkpoints need no further state. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "train/run_loop.h"

/* ---- metrics ------------------------------------------------------------------------------------- */

bool metric_is_evaluated(const cloob_train_options *o, const char *name)
{
    static const char *const of_pairs[] = { "mean_rank", "median_rank", "R@1", "R@5", "R@10" };
    static const char *const of_analysis[] = { "ajne", "effective_eigenvalues" };
    const struct {
        const char *data, *prefix, *const *names;
        int count;
    } group[] = {
        { o->val_data, "image_to_text_", of_pairs, 5 },
        { o->val_data, "text_to_image_", of_pairs, 5 },
        { o->val_data, "", (const char *const[]){ "val_loss", "clip_val_loss" }, 2 },
        { o->analyze ? o->val_data : NULL, "image_", of_analysis, 2 },
        { o->analyze ? o->val_data : NULL, "text_", of_analysis, 2 },
        { o->zeroshot_data, "zeroshot-val-", (const char *const[]){ "top1", "top5" }, 2 },
        { o->imagenet_val, "imagenet-zeroshot-val-", (const char *const[]){ "top1", "top5" }, 2 },
        { o->imagenet_v2, "imagenetv2-zeroshot-val-", (const char *const[]){ "top1", "top5" }, 2 },
    };
    for (size_t g = 0; g < sizeof group / sizeof *group; g++) {
        size_t n = strlen(group[g].prefix);
        if (!group[g].data || strncmp(name, group[g].prefix, n) != 0) continue;
        for (int i = 0; i < group[g].count; i++)
            if (strcmp(name + n, group[g].names[i]) == 0) return true;
    }
    return false;
}

bool early_stop_parse(const char *text, char metric[EARLY_STOP_METRIC], int64_t *patience)
{
    char *end;
    const char *colon = text ? strrchr(text, ':') : NULL;
    if (!colon || colon == text || colon - text >= EARLY_STOP_METRIC) return false;
    *patience = strtoll(colon + 1, &end, 10);
    snprintf(metric, EARLY_STOP_METRIC, "%.*s", (int)(colon - text), text);
    return end > colon + 1 && !*end && *patience > 0;
}

/* Losses and ranks fall as a model gets better; the others rise. */
static bool is_better(const char *metric, double a, double b)
{
    bool falls = strstr(metric, "loss") || strstr(metric, "rank");
    return falls ? a < b : a > b;
}

/* The best value of a metric among the lines of results. */
typedef struct best_metric {
    double value;
    int64_t epoch, evaluations;
    int64_t since; /* evaluations after the best */
} best_metric;

/* Calls visit for every complete line of a results.jsonl, until it returns false. Without the file there is none. */
typedef bool result_visitor(const json *line, const char *metric, void *user);

static cloob_status each_result(cloob_ctx *ctx, const char *results, result_visitor *visit, const char *metric,
                                void *user)
{
    file_bytes all;
    bool more = true;
    if (!results || !file_exists(results)) return CLOOB_OK;
    CLOOB_TRY(file_read(ctx, results, FILE_TEXT_LIMIT, &all));
    char *rest = all.data;
    for (char *line; more && (line = strsep(&rest, "\n"));) {
        arena a = { 0 };
        json *root;
        if (*line && json_parse(ctx, &a, line, strlen(line), results, &root) == CLOOB_OK)
            more = visit(root, metric, user);
        arena_release(&a);
    }
    file_bytes_release(&all);
    return CLOOB_OK;
}

static bool count_line(const json *line, const char *metric, void *user)
{
    best_metric *best = user;
    double now, epoch = 0;
    if (!json_number(json_get(line, metric), &now)) return true;
    json_number(json_get(line, "epoch"), &epoch);
    bool first = best->evaluations++ == 0;
    best->since++;
    if (first || is_better(metric, now, best->value)) best->value = now, best->epoch = (int64_t)epoch, best->since = 0;
    return true;
}

static cloob_status best_metric_find(cloob_ctx *ctx, const char *results, const char *metric, best_metric *out)
{
    *out = (best_metric){ 0 };
    return each_result(ctx, results, count_line, metric, out);
}

typedef struct cycle_end {
    double value;
    bool found;
} cycle_end;

static bool find_cycle_end(const json *line, const char *metric, void *user)
{
    cycle_end *c = user;
    bool ends = false;
    c->found = json_bool(json_get(line, "cycle_end"), &ends) && ends && json_number(json_get(line, metric), &c->value);
    return !c->found;
}

bool first_cycle_end(cloob_ctx *ctx, const char *results, const char *metric, double *out)
{
    cycle_end c = { 0 };
    bool found = each_result(ctx, results, find_cycle_end, metric, &c) == CLOOB_OK && c.found;
    if (found) *out = c.value;
    return found;
}

/* ---- during a run -------------------------------------------------------------------------------- */

static cloob_status keep(cloob_ctx *ctx, run *r, const best_metric *best)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/best.safetensors", journal_checkpoints(r->log));
    if (r->saved.updates == r->at.updates && r->saved.path[0]) CLOOB_TRY(run_link(ctx, r->saved.path, path));
    else {
        checkpoint_meta meta = run_meta(r);
        r->at.results_bytes = journal_result_bytes(r->log);
        CLOOB_TRY(checkpoint_write(ctx, path, r->s, &r->at, &meta));
    }
    journal_line(ctx, r->log, "epoch %lld is the best so far: %s %.6g; kept as %s", (long long)best->epoch,
                 r->o->keep_best, best->value, path);
    return CLOOB_OK;
}

cloob_status run_keep_best(cloob_ctx *ctx, run *r, int64_t epoch)
{
    best_metric best;
    cloob_status status = CLOOB_OK;
    if (!r->o->keep_best || !r->metrics_due) return CLOOB_OK;
    if (comm_rank(r->c) == 0) {
        status = best_metric_find(ctx, journal_results(r->log), r->o->keep_best, &best);
        if (status == CLOOB_OK && best.evaluations && best.epoch == epoch && best.since == 0)
            status = keep(ctx, r, &best);
    }
    return comm_agree(ctx, r->c, status);
}

cloob_status run_check_early_stop(cloob_ctx *ctx, run *r)
{
    char metric[EARLY_STOP_METRIC];
    best_metric best;
    int64_t patience, stop = 0;
    cloob_status status = CLOOB_OK;
    if (!early_stop_parse(r->o->early_stop, metric, &patience)) return CLOOB_OK;
    if (comm_rank(r->c) == 0) {
        status = best_metric_find(ctx, journal_results(r->log), metric, &best);
        stop = status == CLOOB_OK && best.since >= patience;
    }
    CLOOB_TRY(comm_agree(ctx, r->c, status));
    if (comm_size(r->c) > 1) CLOOB_TRY(comm_host_sum(ctx, r->c, &stop, 1));
    r->stopped_early = stop != 0;
    if (stop && comm_rank(r->c) == 0)
        journal_line(ctx, r->log, "%s has not improved in %lld evaluations; its best is %.6g, of epoch %lld", metric,
                     (long long)best.since, best.value, (long long)best.epoch);
    return CLOOB_OK;
}
