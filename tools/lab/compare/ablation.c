/* Gathering values of runs and testing them. */
#include "lab/compare/ablation.h"

#include <math.h>
#include <string.h>

#include "lab/compare/groups.h"

/* Losses of different objectives are different quantities; only InfoNCE is taken of all methods. Mean
 * similarities describe. */
ablation_aim ablation_aim_of(const char *name)
{
    if (strcmp(name, "val_loss") == 0 || strcmp(name, "train_loss") == 0) return AIM_NONE;
    if (strstr(name, "similarity")) return AIM_NONE;
    if (strstr(name, "loss") || strstr(name, "rank") || strstr(name, "ajne")) return AIM_LOW;
    return AIM_HIGH;
}

bool ablation_is_metric(const char *key)
{
    static const char *const no[] = { "epoch", "num_samples", "n", "bad", "seed", "steps", "seconds" };
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (strcmp(key, no[i]) == 0) return false;
    return true;
}

static ablation_metric *find(arena *a, ablation *t, const char *name)
{
    for (int64_t i = 0; i < t->count; i++)
        if (strcmp(t->metric[i].name, name) == 0) return &t->metric[i];
    ablation_metric *all = arena_grow(a, t->metric, t->count, &t->room, 32, sizeof *all);
    if (!all) return NULL;
    t->metric = all;
    ablation_metric *m = &t->metric[t->count];
    *m = (ablation_metric){ .name = arena_string(a, name), .aim = ablation_aim_of(name), .best = -1 };
    for (int k = 0; k < t->methods; k++) {
        m->value[k] = arena_push(a, (size_t)(t->seeds + 1) * sizeof(double));
        if (!m->value[k]) return NULL;
    }
    if (!m->name) return NULL;
    t->count++;
    return m;
}

static cloob_status add_object(cloob_ctx *ctx, arena *a, ablation *t, int method, const json *object,
                               const char *prefix)
{
    for (const json *j = object->child; j; j = j->next) {
        sbuf name = { 0 };
        cloob_status status = CLOOB_OK;
        sbuf_printf(&name, "%s%s%s", prefix, *prefix ? "/" : "", j->key);
        if (name.failed) status = ctx_no_memory(ctx, 64, "a metric");
        else if (j->kind == JSON_OBJECT) status = add_object(ctx, a, t, method, j, name.data);
        else if (j->kind == JSON_NUMBER && isfinite(j->number) && ablation_is_metric(j->key)) {
            ablation_metric *m = find(a, t, name.data);
            if (!m) status = ctx_no_memory(ctx, sizeof *m, "a metric");
            else if (m->n[method] < t->seeds) m->value[method][m->n[method]++] = j->number;
        }
        sbuf_release(&name);
        CLOOB_TRY(status);
    }
    return CLOOB_OK;
}

cloob_status ablation_add(cloob_ctx *ctx, arena *a, ablation *t, int method, const json *object)
{
    return add_object(ctx, a, t, method, object, "");
}

/* ---- statistics ---------------------------------------------------------------------------------- */

static void describe(ablation_metric *m, int k)
{
    double sum = 0, square = 0, n = (double)m->n[k];
    for (int64_t i = 0; i < m->n[k]; i++) sum += m->value[k][i];
    m->mean[k] = m->n[k] ? sum / n : NAN;
    for (int64_t i = 0; i < m->n[k]; i++) square += (m->value[k][i] - m->mean[k]) * (m->value[k][i] - m->mean[k]);
    m->deviation[k] = m->n[k] > 1 ? sqrt(square / (n - 1)) : 0;
}

static cloob_status compare_pairs(cloob_ctx *ctx, const ablation *t, ablation_metric *m)
{
    for (int a = 0; a < t->methods; a++)
        for (int b = 0; b < t->methods; b++) {
            rank_sum r;
            m->p[a][b] = a == b ? 1 : NAN;
            if (a == b || !m->n[a] || !m->n[b]) continue;
            CLOOB_TRY(ranksum_test(ctx, &r, m->value[a], m->n[a], m->value[b], m->n[b], RANK_SUM_AUTO));
            m->p[a][b] = r.two_sided;
        }
    return CLOOB_OK;
}

static void find_best(const ablation *t, ablation_metric *m)
{
    double sign = m->aim == AIM_LOW ? -1 : 1;
    m->best = -1;
    m->p_best = NAN;
    m->significant = false;
    if (m->aim == AIM_NONE) return;
    for (int k = 0; k < t->methods; k++)
        if (m->n[k] && (m->best < 0 || sign * m->mean[k] > sign * m->mean[m->best])) m->best = k;
    for (int k = 0; m->best >= 0 && k < t->methods; k++)
        if (k != m->best) m->p_best = fmax(m->p_best, m->p[m->best][k]); /* fmax passes over NaN */
    m->significant = m->p_best < t->alpha;
}

cloob_status ablation_test(cloob_ctx *ctx, ablation *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        for (int k = 0; k < t->methods; k++) describe(&t->metric[i], k);
        CLOOB_TRY(compare_pairs(ctx, t, &t->metric[i]));
        find_best(t, &t->metric[i]);
    }
    return CLOOB_OK;
}
