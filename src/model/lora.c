/* LoRA adapters: rows of the parameter table, and the merge into the weights they adapt. */
#include "model/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "core/text.h"

lora_part lora_part_of(const char *name)
{
    if (text_ends_with(name, ".lora_A")) return LORA_A;
    if (text_ends_with(name, ".lora_B")) return LORA_B;
    return strcmp(name, LORA_SCALE) == 0 ? LORA_SCALES : LORA_NONE;
}

bool lora_adapts(const params_training *t, const model_config *c, const st_entry *row)
{
    return t->lora > 0 && row->t.ndim == 2 && strstr(row->name, ".resblocks.") && !params_locks(t, c, row->name);
}

static bool add(arena *a, st_entry *to, const char *name, const char *suffix, int64_t rows, int64_t cols)
{
    size_t bytes = strlen(name) + strlen(suffix) + 1;
    char *own = arena_push(a, bytes);
    if (!own) return false;
    snprintf(own, bytes, "%s%s", name, suffix);
    *to = (st_entry){ own, cols ? TENSOR(CLOOB_F32, NULL, rows, cols) : TENSOR(CLOOB_F32, NULL, rows) };
    return true;
}

static cloob_status check(cloob_ctx *ctx, const st_entry *row, int64_t rank)
{
    int64_t max = row->t.dim[0] < row->t.dim[1] ? row->t.dim[0] : row->t.dim[1];
    if (rank <= max) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`lora` rank %lld is too large: %s has at most rank %lld", (long long)rank,
                    row->name, (long long)max);
}

cloob_status lora_append(cloob_ctx *ctx, arena *a, const model_config *c, const params_training *t, st_entry **rows,
                         int64_t *count)
{
    int64_t n = *count, r = t->lora, more = 1;
    if (r < 1) return CLOOB_OK;
    for (int64_t i = 0; i < n; i++) more += 2 * lora_adapts(t, c, &(*rows)[i]);
    if (more == 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "`lora`: no weight to adapt; adapters need an unlocked transformer block (ResNets have none)");
    st_entry *all = arena_push(a, (size_t)(n + more) * sizeof *all);
    if (!all) return ctx_no_memory(ctx, (size_t)(n + more) * sizeof *all, "the list of adapters");
    memcpy(all, *rows, (size_t)n * sizeof *all);
    bool room = true;
    for (int64_t i = 0; i < *count; i++) {
        const st_entry *row = &all[i];
        if (!lora_adapts(t, c, row)) continue;
        CLOOB_TRY(check(ctx, row, r));
        room = room && add(a, &all[n++], row->name, ".lora_A", r, row->t.dim[1]);
        room = room && add(a, &all[n++], row->name, ".lora_B", row->t.dim[0], r);
    }
    if (t->lora_scale != 1) room = room && add(a, &all[n++], LORA_SCALE, "", r, 0);
    if (!room) return ctx_no_memory(ctx, (size_t)more * 96, "the list of adapters");
    *rows = all;
    *count = n;
    return CLOOB_OK;
}

/* ---- merging ------------------------------------------------------------------------------------- */

typedef struct product {
    float *value;
    const float *a, *b;
    int64_t in, rank;
    double scale;
} product;

static void merge_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const product *m = arg;
    (void)thread;
    for (int64_t o = begin; o < end; o++)
        for (int64_t i = 0; i < m->in; i++) {
            double sum = 0;
            for (int64_t k = 0; k < m->rank; k++) sum += (double)m->b[o * m->rank + k] * (double)m->a[k * m->in + i];
            m->value[o * m->in + i] = (float)((double)m->value[o * m->in + i] + m->scale * sum);
        }
}

cloob_status lora_merge(cloob_ctx *ctx, const params *p, int row, float *value)
{
    int at = p->row[row].adapter;
    if (at < 0) return CLOOB_OK;
    const param *A = &p->row[at], *B = &p->row[at + 1];
    float *both = malloc((size_t)(A->count + B->count) * sizeof *both);
    if (!both) return ctx_no_memory(ctx, (size_t)(A->count + B->count) * sizeof *both, A->name);
    product m = { value, both, both + A->count, A->file.dim[1], A->file.dim[0], p->training.lora_scale };
    cloob_status status = params_get(ctx, p, at, false, both);
    if (status == CLOOB_OK) status = params_get(ctx, p, at + 1, false, both + A->count);
    if (status == CLOOB_OK) pool_for(ctx, B->file.dim[0], 1 + 65536 / (m.in * m.rank), merge_range, &m);
    free(both);
    return status;
}
