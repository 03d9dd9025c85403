/* `log_layers`: norms of every parameter's weights, gradient and update at the logged steps, in layers.tsv. */
#include "train/journal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct layer_norms {
    params *p;
    float *before, *after, *grad; /* (trainable) host memory */
};

cloob_status layer_norms_create(cloob_ctx *ctx, params *p, layer_norms **out)
{
    layer_norms *l = calloc(1, sizeof *l);
    size_t bytes = (size_t)p->trainable * sizeof(float);
    if (!l) return ctx_no_memory(ctx, sizeof *l, "norms of layers");
    *l = (layer_norms){ p, malloc(bytes), malloc(bytes), malloc(bytes) };
    if (l->before && l->after && l->grad) {
        *out = l;
        return CLOOB_OK;
    }
    layer_norms_destroy(l);
    return ctx_no_memory(ctx, 3 * bytes, "norms of layers");
}

void layer_norms_destroy(layer_norms *l)
{
    if (!l) return;
    free(l->before), free(l->after), free(l->grad);
    free(l);
}

static cloob_status copy(cloob_ctx *ctx, const params *p, const float *from, float *to)
{
    return p->dev->to_host(ctx, p->dev, to, from, (size_t)p->trainable * sizeof(float));
}

cloob_status layer_norms_before(cloob_ctx *ctx, layer_norms *l) { return copy(ctx, l->p, l->p->master, l->before); }

cloob_status layer_norms_after(cloob_ctx *ctx, layer_norms *l)
{
    CLOOB_TRY(copy(ctx, l->p, l->p->master, l->after));
    return copy(ctx, l->p, l->p->grad, l->grad);
}

layer_norm layer_norm_of(const layer_norms *l, int row)
{
    const param *r = &l->p->row[row];
    double weight = 0, gradient = 0, update = 0;
    for (int64_t i = r->offset; i < r->offset + r->count; i++) {
        double moved = (double)l->after[i] - (double)l->before[i];
        weight += (double)l->after[i] * (double)l->after[i];
        gradient += (double)l->grad[i] * (double)l->grad[i];
        update += moved * moved;
    }
    return (layer_norm){ sqrt(weight), sqrt(gradient), sqrt(update) };
}

void layer_norms_put(const layer_norms *l, int64_t number, double factor, FILE *out)
{
    for (int i = 0; i < l->p->count; i++) {
        if (l->p->row[i].buffer || l->p->row[i].frozen) continue;
        layer_norm n = layer_norm_of(l, i);
        fprintf(out, "%lld\t%s\t%.9g\t%.9g\t%.9g\n", (long long)number, l->p->row[i].name, n.weight,
                factor * n.gradient, n.update);
    }
    fflush(out);
}
