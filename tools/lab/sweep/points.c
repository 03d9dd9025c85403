/* Combinations of values. */
#include "lab/sweep/runs.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/arith.h"
#include "core/hash.h"
#include "core/rng.h"
#include "core/option.h"
#include "lab/memory.h"
#include "train/settings.h"

enum { MAX_POINTS = 1000000 };

#define NAME_HASH_START UINT64_C(1469598103934665603) /* names of folders depend on it */

static cloob_status check_axis(cloob_ctx *ctx, const sweep_options *o, int64_t i)
{
    int64_t n;
    const option_desc *table = train_option_table(&n), *option = option_find(table, n, o->axis[i].name);
    cloob_train_options scratch = o->train;
    if (!option || option->type == OPTION_LIST)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`axis` %s: training has no such option", o->axis[i].name);
    for (int64_t k = 0; k < i; k++)
        if (option_find(table, n, o->axis[k].name) == option)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`axis` %s: is listed twice", o->axis[i].name);
    if (o->axis[i].values < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`axis` %s: has no value", o->axis[i].name);
    for (int64_t k = 0; k < o->axis[i].values; k++) {
        char rule[160];
        for (int64_t m = 0; m < k; m++)
            if (strcmp(o->axis[i].value[m], o->axis[i].value[k]) == 0)
                return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`axis` %s: %s is listed twice", o->axis[i].name,
                                o->axis[i].value[k]);
        option_rule(option, rule, sizeof rule);
        if (!option_set(option, &scratch, o->axis[i].value[k]))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`axis` %s %s: %s", o->axis[i].name, o->axis[i].value[k], rule);
    }
    return CLOOB_OK;
}

static cloob_status find_by(cloob_ctx *ctx, const sweep_options *o, int64_t *by)
{
    const char *name = o->by ? o->by : "method";
    *by = -1;
    for (int64_t i = 0; i < o->axes; i++)
        if (strcmp(o->axis[i].name, name) == 0) *by = i;
    if (*by < 0 && o->by) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`by` %s: not an axis of the sweep", o->by);
    return CLOOB_OK;
}

/* order (n) becomes a permutation of 0 to n - 1, the same for the same seed. */
static void shuffle(int64_t *order, int64_t n, int64_t seed)
{
    uint64_t key = rng_key((uint64_t)seed, "sweep/points");
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k = (int64_t)rng_below(key, (uint64_t)i, (uint64_t)i + 1), kept = order[i];
        order[i] = order[k], order[k] = kept;
    }
}

/* Combination c of the axes other than `by`, the first one outermost, with value g of `by`. */
static void fill_point(arena *a, const points *p, int64_t c, int64_t g, point *out)
{
    const sweep_options *o = p->o;
    run_setting *set = must(arena_push(a, (size_t)(o->axes + 1) * sizeof *set));
    for (int64_t i = o->axes - 1; i >= 0; i--) {
        int64_t value = g;
        if (i != p->by) value = c % o->axis[i].values, c /= o->axis[i].values;
        set[i] = (run_setting){ o->axis[i].name, o->axis[i].value[value] };
    }
    *out = (point){ .setting = set, .group = p->by < 0 ? "" : set[p->by].value, .score = NAN };
}

cloob_status points_make(cloob_ctx *ctx, arena *a, const sweep_options *o, points *p)
{
    int64_t others = 1, groups = 1;
    *p = (points){ .o = o };
    for (int64_t i = 0; i < o->axes; i++) CLOOB_TRY(check_axis(ctx, o, i));
    CLOOB_TRY(find_by(ctx, o, &p->by));
    for (int64_t i = 0; i < o->axes; i++) {
        *(i == p->by ? &groups : &others) *= o->axis[i].values;
        if (groups * others > MAX_POINTS)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`axis`: more than %d combinations", MAX_POINTS);
    }
    int64_t *order = must(arena_push(a, (size_t)others * sizeof *order)),
            each = o->random > 0 ? min64(o->random, others) : others;
    p->item = must(arena_push(a, (size_t)(each * groups) * sizeof *p->item));
    for (int64_t i = 0; i < others; i++) order[i] = i;
    if (each < others) shuffle(order, others, o->train.seed);
    for (int64_t c = 0; c < each; c++)
        for (int64_t g = 0; g < groups; g++) fill_point(a, p, order[c], g, &p->item[p->count++]);
    return CLOOB_OK;
}

/* ---- runs ---------------------------------------------------------------------------------------- */

/* "lr" "1e-3" -> "lr-1e-3", of letters that any file system takes. */
static void add_part(char *name, size_t size, const char *key, const char *value)
{
    size_t used = strlen(name);
    snprintf(name + used, size - used, "%s%s%s%s", used ? "_" : "", key, *key ? "-" : "", value);
    for (char *c = name + used; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-+", *c)) *c = '-';
}

cloob_status point_run(cloob_ctx *ctx, const points *p, const point *at, int64_t seed, const char *folder, sweep_run *r)
{
    char name[512] = "";
    int64_t axes = p->o->axes;
    const run_setting *set = at->setting;
    bool alone = axes == 1 && !p->o->select; /* a comparison of values of one option: the value is the name */
    for (int64_t i = 0; i < axes; i++) add_part(name, sizeof name - 64, alone ? "" : set[i].name, set[i].value);
    *r = (sweep_run){ .setting = set, .settings = axes, .seed = seed, .may_fail = p->o->select };
    uint64_t hash = fnv_add(NAME_HASH_START, name, strlen(name));
    if (strlen(name) > 150) snprintf(name + 130, 20, "_%016llx", (unsigned long long)hash);
    snprintf(r->name, sizeof r->name, "%s-seed%lld", *name ? name : "run", (long long)seed);
    if (snprintf(r->dir, sizeof r->dir, "%s/%s", folder, r->name) >= (int)sizeof r->dir)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: path too long", folder);
    return CLOOB_OK;
}
