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

/* The best value of a metric among the lines of results, and the first that ends a cycle of the learning rate. */
typedef struct best_metric {
    double value, cycle_end;
    int64_t epoch, evaluations;
    int64_t since; /* evaluations after the best */
    bool has_cycle_end;
} best_metric;

static void count_line(const json *line, const char *metric, best_metric *best)
{
    double now, epoch = 0;
    bool ends = false;
    if (!json_number(json_get(line, metric), &now)) return;
    json_number(json_get(line, "epoch"), &epoch);
    json_bool(json_get(line, "cycle_end"), &ends);
    bool first = best->evaluations++ == 0;
    best->since++;
    if (first || is_better(metric, now, best->value)) best->value = now, best->epoch = (int64_t)epoch, best->since = 0;
    if (ends && !best->has_cycle_end) best->cycle_end = now, best->has_cycle_end = true;
}

/* Over every complete line of results.jsonl; without the file there is none. */
static cloob_status best_metric_find(cloob_ctx *ctx, const run *r, const char *metric, best_metric *out)
{
    const char *results = journal_results(r->log);
    file_bytes all;
    *out = (best_metric){ 0 };
    if (!results || !file_exists(results)) return CLOOB_OK;
    CLOOB_TRY(file_read(ctx, results, FILE_TEXT_LIMIT, &all));
    char *rest = all.data;
    for (char *line; (line = strsep(&rest, "\n"));) {
        arena a = { 0 };
        json *root;
        if (*line && json_parse(ctx, &a, line, strlen(line), results, &root) == CLOOB_OK) count_line(root, metric, out);
        arena_release(&a);
    }
    file_bytes_release(&all);
    return CLOOB_OK;
}

bool first_cycle_end(cloob_ctx *ctx, const run *r, const char *metric, double *out)
{
    best_metric best;
    bool found = best_metric_find(ctx, r, metric, &best) == CLOOB_OK && best.has_cycle_end;
    if (found) *out = best.cycle_end;
    return found;
}

/* ---- during a run -------------------------------------------------------------------------------- */

static cloob_status keep_checkpoint(cloob_ctx *ctx, run *r, const best_metric *best)
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
        status = best_metric_find(ctx, r, r->o->keep_best, &best);
        if (status == CLOOB_OK && best.evaluations && best.epoch == epoch && best.since == 0)
            status = keep_checkpoint(ctx, r, &best);
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
        status = best_metric_find(ctx, r, metric, &best);
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
