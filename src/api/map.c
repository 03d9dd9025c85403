/* Thin bodies of cloob/map.h. */
#include "cloob/map.h"

#include "eval/map/map.h"
#include "core/needs.h"

void cloob_map_options_init(cloob_map_options *o)
{
    if (!o) return;
    *o = (cloob_map_options){ .components = 48, .neighbors = 15, .negatives = 5 };
}

cloob_status cloob_map(cloob_ctx *ctx, float *xy, const cloob_matrix *m, const cloob_map_options *o)
{
    API_NEEDS(ctx, xy && m);
    cloob_map_options defaults;
    rows r;
    tensor t = TENSOR(m->dtype, (void *)(uintptr_t)m->data, m->rows, m->columns);
    cloob_map_options_init(&defaults);
    CLOOB_TRY(rows_of(ctx, &r, &t, m->name ? m->name : "matrix"));
    return map_run(ctx, xy, &r, o ? o : &defaults);
}
