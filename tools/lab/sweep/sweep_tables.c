/* A line per run, the search as a table, the effect of each setting, and the chosen settings side by side. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/sweep/runs.h"
#include "core/file.h"
#include "lab/compare/groups.h"
#include "lab/grid.h"
#include "lab/memory.h"

static cloob_status write_in(cloob_ctx *ctx, const sweep *s, const char *name, sbuf *text)
{
    cloob_status status = file_write_in(ctx, s->summary.folder, name, text);
    sbuf_release(text);
    return status;
}

/* ---- results.jsonl ------------------------------------------------------------------------------- */

/* A file of one JSON object, on one line; null where there is none. */
static cloob_status put_object(cloob_ctx *ctx, const sweep_run *r, const char *key, const char *name, json_out *out)
{
    file_bytes b;
    char path[FILE_PATH];
    CLOOB_TRY(file_in(ctx, r->dir, name, path));
    if (!file_exists(path)) return json_put_null(out, key), CLOOB_OK;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &b));
    while (b.size && b.data[b.size - 1] == '\n') b.size--;
    for (size_t i = 0; i < b.size; i++)
        if (b.data[i] == '\n') b.data[i] = ' ';
    json_put_raw(out, key, b.data, b.size);
    file_bytes_release(&b);
    return CLOOB_OK;
}

static cloob_status put_stage(cloob_ctx *ctx, const sweep *s, const sweep_stage *stage, const char *name, sbuf *out)
{
    for (int64_t i = 0; i < stage->runs; i++) {
        const sweep_run *r = &stage->run[i];
        const point *p = &s->points.item[stage->point[i]];
        json_out w = { .spaced = true };
        json_begin(&w, NULL, '{');
        json_members(&w, J_TEXT("stage", name), J_TEXT("run", r->name), J_OF(p, group), J_OF(p, chosen), J_OF(r, seed));
        json_begin(&w, "settings", '{');
        for (int64_t k = 0; k < r->settings; k++) json_put_text(&w, r->setting[k].name, r->setting[k].value);
        json_end(&w);
        cloob_status status = put_object(ctx, r, "validation", "summary.json", &w);
        if (status == CLOOB_OK) status = put_object(ctx, r, "test", "test.json", &w);
        json_end(&w);
        json_out_append(&w, out);
        CLOOB_TRY(status);
    }
    return CLOOB_OK;
}

static cloob_status write_results(cloob_ctx *ctx, const sweep *s)
{
    sbuf out = { 0 };
    cloob_status status = put_stage(ctx, s, &s->search, "search", &out);
    if (status == CLOOB_OK) status = put_stage(ctx, s, &s->final, "final", &out);
    if (status == CLOOB_OK) return write_in(ctx, s, "results.jsonl", &out);
    sbuf_release(&out);
    return status;
}

/* ---- sweep.md ------------------------------------------------------------------------------------ */

static void put_grid(grid *g, sbuf *out)
{
    grid_put(g, GRID_MARKDOWN, out);
    grid_release(g);
}

static void put_search(const sweep *s, sbuf *out)
{
    const sweep_options *o = s->o;
    grid g = { .columns = o->axes + 1 };
    for (int64_t k = 0; k < o->axes; k++) grid_text(&g, o->axis[k].name);
    grid_text(&g, o->select);
    for (const point *p = s->points.item; p < s->points.item + s->points.count; p++) {
        for (int64_t k = 0; k < o->axes; k++) grid_text(&g, p->setting[k].value);
        if (isnan(p->score)) grid_text(&g, "failed");
        else grid_printf(&g, "%.5g", p->score);
        grid_bold(&g, p->chosen);
    }
    put_grid(&g, out);
}

typedef struct margin { /* of the points with one value of an axis */
    int64_t n;
    double mean, best;
} margin;

/* value NULL: of all points. */
static margin margin_of(const sweep *s, int64_t axis, const char *value)
{
    margin m = { .best = NAN };
    bool low = group_aim_of(s->o->select) == AIM_LOW;
    for (const point *p = s->points.item; p < s->points.item + s->points.count; p++) {
        if (isnan(p->score) || (value && strcmp(p->setting[axis].value, value) != 0)) continue;
        m.mean += p->score;
        m.best = low ? fmin(m.best, p->score) : fmax(m.best, p->score); /* both skip NaN */
        m.n++;
    }
    m.mean = m.n ? m.mean / (double)m.n : NAN;
    return m;
}

/* The share of the scores' variance between the values of one axis. */
static double importance(const sweep *s, int64_t axis)
{
    double between = 0, all = 0, mean = margin_of(s, axis, NULL).mean;
    for (const point *p = s->points.item; p < s->points.item + s->points.count; p++) {
        if (isnan(p->score)) continue;
        double own = margin_of(s, axis, p->setting[axis].value).mean - mean, x = p->score - mean;
        between += own * own, all += x * x;
    }
    return all > 0 ? between / all : 0;
}

static void put_margins(const sweep *s, sbuf *out)
{
    const sweep_options *o = s->o;
    grid g = { .columns = 6, .format = "%.5g" };
    sbuf_puts(out, "\n## What each setting does\n\n");
    grid_texts(&g, "setting", "value", "settings tried", "mean", "best", "share of the variance");
    for (int64_t k = 0; k < o->axes; k++)
        for (int64_t v = 0; v < o->axis[k].values; v++) {
            margin m = margin_of(s, k, o->axis[k].value[v]);
            grid_texts(&g, o->axis[k].name, o->axis[k].value[v]);
            grid_number(&g, (double)m.n), grid_number(&g, m.mean), grid_number(&g, m.best);
            if (v == 0) grid_printf(&g, "%.0f %%", 100 * importance(s, k));
            else grid_text(&g, "");
        }
    put_grid(&g, out);
}

/* ---- groups of runs ------------------------------------------------------------------------------- */

/* The group of a run: the value of `by`; without a choice, the values of all axes. */
static const char *group_of(const sweep *s, const point *p)
{
    sbuf name = { 0 };
    if (s->o->select) return p->group;
    for (int64_t k = 0; k < s->o->axes; k++) sbuf_printf(&name, "%s%s", k ? ", " : "", p->setting[k].value);
    const char *kept = must(arena_string(s->memory, must(name.data)));
    sbuf_release(&name);
    return kept;
}

/* Compares the runs of a stage by `file` of each; *markdown gets the table, `json` in the folder the same. */
static cloob_status write_comparison(cloob_ctx *ctx, sweep *s, const sweep_stage *stage, int64_t seeds,
                                     const char *file, const char *json_name, sbuf *markdown)
{
    groups g = { .memory = s->memory };
    groups_result found;
    sbuf numbers = { 0 };
    const sweep_axis *by = s->points.by >= 0 && s->o->select ? &s->o->axis[s->points.by] : NULL;
    for (int64_t k = 0; by && k < by->values; k++) groups_at(&g, by->value[k]); /* columns in the order of the axis */
    for (int64_t k = 0; !s->o->select && k < s->points.count; k++) groups_at(&g, group_of(s, &s->points.item[k]));
    for (int64_t i = 0; i < stage->runs; i++) {
        json *object;
        CLOOB_TRY(run_read(ctx, s->memory, &stage->run[i], file, &object));
        groups_add(&g, group_of(s, &s->points.item[stage->point[i]]), object);
    }
    groups_finish(&g, &(compare_options){ .alpha = s->o->alpha }, &found);
    s->summary.metrics = found.metrics;
    for (int64_t i = 0; i < found.metrics; i++) s->summary.significant += found.metric[i].won;
    ablation_markdown(&found, seeds, markdown);
    ablation_json(&found, seeds, &numbers);
    return write_in(ctx, s, json_name, &numbers);
}

static cloob_status put_chosen(cloob_ctx *ctx, sweep *s, sbuf *out)
{
    bool test = s->o->test_data || s->o->test_zeroshot_count;
    sbuf_printf(out, "\n## The chosen settings on fresh seeds, %s\n\n", test ? "test data" : "validation data");
    return write_comparison(ctx, s, &s->final, s->o->final_seeds, test ? "test.json" : "summary.json", "sweep.json",
                            out);
}

static void put_head(const sweep *s, sbuf *out)
{
    const sweep_options *o = s->o;
    sbuf_printf(out, "# %s\n\n%lld settings, %lld seed%s each. Chosen by `%s` on validation data, ", o->train.name,
                (long long)s->points.count, (long long)o->seeds, o->seeds == 1 ? "" : "s", o->select);
    sbuf_puts(out, group_aim_of(o->select) == AIM_LOW ? "the lowest" : "the highest");
    if (s->points.by >= 0) sbuf_printf(out, " for each `%s`", o->axis[s->points.by].name);
    sbuf_printf(out, "; in bold. Seeds from %lld on", (long long)o->train.seed);
    if (o->final_seeds)
        sbuf_printf(out, "; the chosen settings are trained again with %lld seeds from %lld on",
                    (long long)o->final_seeds, (long long)(o->train.seed + o->seeds));
    sbuf_puts(out, ".\n\n");
}

cloob_status sweep_write_tables(cloob_ctx *ctx, sweep *s)
{
    sbuf out = { 0 };
    CLOOB_TRY(write_results(ctx, s));
    put_head(s, &out);
    put_search(s, &out);
    put_margins(s, &out);
    cloob_status status = s->final.runs ? put_chosen(ctx, s, &out) : CLOOB_OK;
    if (status == CLOOB_OK) return write_in(ctx, s, "sweep.md", &out);
    sbuf_release(&out);
    return status;
}

cloob_status comparison_write_tables(cloob_ctx *ctx, sweep *s)
{
    sbuf markdown = { 0 };
    cloob_status status = write_comparison(ctx, s, &s->search, s->o->seeds, "summary.json", "ablation.json", &markdown);
    if (status == CLOOB_OK) return write_in(ctx, s, "ablation.md", &markdown);
    sbuf_release(&markdown);
    return status;
}
