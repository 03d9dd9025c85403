/* A line per run, the search as a table, what each setting does, and the chosen settings side by side. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/sweep/runs.h"
#include "core/file.h"
#include "lab/compare/groups.h"
#include "lab/grid.h"

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
    char *path = file_join(r->dir, name);
    if (!path) return ctx_no_memory(ctx, 64, name);
    bool there = file_exists(path);
    cloob_status status = there ? file_read(ctx, path, FILE_TEXT_LIMIT, &b) : CLOOB_OK;
    if (!there) json_put_null(out, key);
    if (there && status == CLOOB_OK) {
        while (b.size && b.data[b.size - 1] == '\n') b.size--;
        for (size_t i = 0; i < b.size; i++)
            if (b.data[i] == '\n') b.data[i] = ' ';
        json_put_raw(out, key, b.data, b.size);
        file_bytes_release(&b);
    }
    free(path);
    return status;
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
    cloob_status status = CLOOB_OK;
    for (int k = 0; k < s->rounds && status == CLOOB_OK; k++) status = put_stage(ctx, s, &s->search[k], "search", &out);
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
        else grid_printf(&g, "%.5g%s", p->score, p->alive ? "" : " (left out early)");
        grid_bold(&g, p->chosen);
    }
    put_grid(&g, out);
}

typedef struct margin { /* of the points with one value of an axis */
    int64_t n;
    double mean, best, lowest, highest;
} margin;

static bool counts(const point *p) { return p->alive && !isnan(p->score); }

/* group NULL: of all. */
static margin margin_in(const sweep *s, int64_t axis, const char *value, const char *group)
{
    margin m = { .best = NAN, .lowest = INFINITY, .highest = -INFINITY };
    for (int64_t i = 0; i < s->points.count; i++) {
        const point *p = &s->points.item[i];
        if (!counts(p) || (value && strcmp(p->setting[axis].value, value) != 0)) continue;
        if (group && strcmp(p->group, group) != 0) continue;
        m.mean += p->score;
        m.lowest = fmin(m.lowest, p->score), m.highest = fmax(m.highest, p->score);
        m.n++;
    }
    m.mean = m.n ? m.mean / (double)m.n : NAN;
    if (m.n) m.best = group_aim_of(s->o->select) == AIM_LOW ? m.lowest : m.highest;
    return m;
}

static margin margin_of(const sweep *s, int64_t axis, const char *value) { return margin_in(s, axis, value, NULL); }

/* The share of the scores' variance between the values of one axis. */
static double importance(const sweep *s, int64_t axis)
{
    double between = 0, all = 0;
    margin total = margin_of(s, axis, NULL);
    for (int64_t i = 0; i < s->points.count; i++) {
        const point *p = &s->points.item[i];
        if (!counts(p)) continue;
        double own = margin_of(s, axis, p->setting[axis].value).mean - total.mean, x = p->score - total.mean;
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

/* ---- search.json, which the page draws ----------------------------------------------------------- */

static void put_group(const sweep *s, int64_t axis, const char *value, const char *group, json_out *out)
{
    margin m = margin_in(s, axis, value, group);
    json_begin(out, group ? group : "", '{');
    json_put_int(out, "n", m.n);
    if (m.n) json_put_number(out, "mean", m.mean);
    if (m.n) json_put_number(out, "lowest", m.lowest);
    if (m.n) json_put_number(out, "highest", m.highest);
    json_end(out);
}

static void put_axis(const sweep *s, int64_t k, json_out *out)
{
    const sweep_axis *axis = &s->o->axis[k];
    const sweep_axis *by = s->points.by >= 0 && s->points.by != k ? &s->o->axis[s->points.by] : NULL;
    json_begin(out, NULL, '{');
    json_members(out, J_OF(axis, name), J_NUMBER("importance", importance(s, k), 0));
    json_begin(out, "values", '[');
    for (int64_t v = 0; v < axis->values; v++) {
        json_begin(out, NULL, '{');
        json_put_text(out, "value", axis->value[v]);
        json_begin(out, "groups", '{');
        for (int64_t g = 0; by && g < by->values; g++) put_group(s, k, axis->value[v], by->value[g], out);
        if (!by) put_group(s, k, axis->value[v], NULL, out);
        json_end(out);
        json_end(out);
    }
    json_end(out);
    json_end(out);
}

static cloob_status write_search(cloob_ctx *ctx, const sweep *s)
{
    sbuf text = { 0 };
    json_out out = { .spaced = true };
    json_begin(&out, NULL, '{');
    json_put_text(&out, "select", s->o->select);
    json_begin(&out, "axes", '[');
    for (int64_t k = 0; k < s->o->axes; k++)
        if (s->o->axis[k].values > 1) put_axis(s, k, &out);
    json_end(&out);
    json_end(&out);
    json_out_append(&out, &text);
    return write_in(ctx, s, "search.json", &text);
}

/* ---- the chosen ones ----------------------------------------------------------------------------- */

static cloob_status write_both(cloob_ctx *ctx, const sweep *s, const groups_result *g, int64_t seeds, const char *name,
                               sbuf *markdown)
{
    sbuf numbers = { 0 };
    ablation_markdown(g, seeds, markdown);
    ablation_json(g, seeds, &numbers);
    return write_in(ctx, s, name, &numbers);
}

static cloob_status put_chosen(cloob_ctx *ctx, sweep *s, sbuf *out)
{
    groups g = { .memory = s->memory };
    groups_result found;
    const sweep_axis *by = s->points.by >= 0 ? &s->o->axis[s->points.by] : NULL;
    bool test = s->o->test_data || s->o->test_zeroshot_count;
    for (int64_t k = 0; by && k < by->values; k++) /* columns in the order of the axis, whoever was chosen first */
        if (groups_at(&g, by->value[k]) < 0) return ctx_no_memory(ctx, 64, "a metric");
    for (int64_t i = 0; i < s->final.runs; i++) {
        json *object;
        CLOOB_TRY(run_read(ctx, s->memory, &s->final.run[i], test ? "test.json" : "summary.json", &object));
        CLOOB_TRY(groups_add(ctx, &g, s->points.item[s->final.point[i]].group, object));
    }
    CLOOB_TRY(groups_finish(ctx, &g, &(compare_options){ .alpha = s->o->alpha }, &found));
    sbuf_printf(out, "\n## The chosen settings on fresh seeds, %s\n\n", test ? "test data" : "validation data");
    return write_both(ctx, s, &found, s->o->final_seeds, "sweep.json", out);
}

static void put_head(const sweep *s, sbuf *out)
{
    const sweep_options *o = s->o;
    sbuf_printf(out, "# %s\n\n%lld settings, %lld seed%s each%s. Chosen by `%s` on validation data, ",
                o->train.name ? o->train.name : "sweep", (long long)s->points.count, (long long)o->seeds,
                o->seeds == 1 ? "" : "s", o->halving ? ", successive halving" : "", o->select);
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
    CLOOB_TRY(write_search(ctx, s));
    put_head(s, &out);
    put_search(s, &out);
    put_margins(s, &out);
    cloob_status status = s->final.runs ? put_chosen(ctx, s, &out) : CLOOB_OK;
    if (status == CLOOB_OK) return write_in(ctx, s, "sweep.md", &out);
    sbuf_release(&out);
    return status;
}

cloob_status ablation_write_tables(cloob_ctx *ctx, sweep *s)
{
    const sweep_stage *stage = &s->search[0];
    groups g = { .memory = s->memory };
    groups_result found;
    sbuf markdown = { 0 };
    for (int64_t k = 0; k < s->o->methods_count; k++)
        if (groups_at(&g, s->o->methods[k]) < 0) return ctx_no_memory(ctx, 64, "a metric");
    for (int64_t i = 0; i < stage->runs; i++) {
        json *summary;
        CLOOB_TRY(run_read(ctx, s->memory, &stage->run[i], "summary.json", &summary));
        CLOOB_TRY(groups_add(ctx, &g, s->o->methods[stage->point[i]], summary));
    }
    CLOOB_TRY(groups_finish(ctx, &g, &(compare_options){ .alpha = s->o->alpha }, &found));
    s->summary.metrics = found.metrics;
    for (int64_t i = 0; i < found.metrics; i++) s->summary.significant += found.metric[i].won;
    cloob_status status = write_both(ctx, s, &found, s->o->seeds, "ablation.json", &markdown);
    if (status == CLOOB_OK) return write_in(ctx, s, "ablation.md", &markdown);
    sbuf_release(&markdown);
    return status;
}
