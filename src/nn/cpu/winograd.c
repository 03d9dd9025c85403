/* G w G^T: the 3 x 3 kernel evaluated at the points of the minimal filtering algorithm, in both directions. The points
 * and their signs are oneDNN's and cloob's (tensor/cpu/winograd/tile.h). */
#include "nn/cpu/conv_winograd.h"

#include <string.h>

#include "nn/cpu/cpu.h"
#include "tensor/cpu/winograd/tile.h"

enum { V = 16, MAX_POINTS = WINOGRAD_EDGE }; /* channels in a block; the larger tile's points in one dimension */

typedef struct job {
    const float *w;
    float *out;
    int64_t O, C;
    int alpha; /* points: 4 or 6 */
    float G[MAX_POINTS][3];
    dnnl_wino_memory_format_t format;
    int64_t group_o, group_c; /* blocks of channels that are contiguous */
} job;

/* Where the V outputs of block `ob` are for input channel c at point (a, b). The layouts' names list their axes,
 * outermost first: a a points, O and I blocks, B groups of them, i and o channels inside a block. */
static int64_t offset_of(const job *j, int64_t ob, int64_t c, int64_t point)
{
    int64_t points = j->alpha * j->alpha, go = j->group_o, gc = j->group_c, cb = c / V;
    if (j->format == dnnl_wino_wei_aaOio) return ((point * (j->O / V) + ob) * j->C + c) * V;
    if (j->format == dnnl_wino_wei_aaOBiOo)
        return (((point * (j->O / V / go) + ob / go) * j->C + c) * go + ob % go) * V;
    return (((((ob / go * points + point) * (j->C / V / gc) + cb / gc) * go + ob % go) * gc + cb % gc) * V + c % V) * V;
}

/* u = G w G^T for one input channel and V output channels; w: (9, V). */
static inline void transform(const job *j, const float w[9][V], float u[MAX_POINTS * MAX_POINTS][V])
{
    float half[MAX_POINTS][3][V];
    for (int a = 0; a < j->alpha; a++)
        for (int x = 0; x < 3; x++)
            for (int o = 0; o < V; o++)
                half[a][x][o] = j->G[a][0] * w[x][o] + j->G[a][1] * w[3 + x][o] + j->G[a][2] * w[6 + x][o];
    for (int a = 0; a < j->alpha; a++)
        for (int b = 0; b < j->alpha; b++)
            for (int o = 0; o < V; o++)
                u[a * j->alpha + b][o] =
                    half[a][0][o] * j->G[b][0] + half[a][1][o] * j->G[b][1] + half[a][2][o] * j->G[b][2];
}

CPU_CLONES static void weights_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    float w[V][9][V], u[MAX_POINTS * MAX_POINTS][V];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t ob = i / (j->C / V), c0 = i % (j->C / V) * V;
        for (int o = 0; o < V; o++)
            for (int k = 0; k < 9; k++) {
                const float *from = j->w + ((ob * V + o) * 9 + k) * j->C + c0;
                for (int c = 0; c < V; c++) w[c][k][o] = from[c];
            }
        for (int c = 0; c < V; c++) {
            transform(j, (const float(*)[V])w[c], u);
            for (int64_t point = 0; point < j->alpha * j->alpha; point++)
                memcpy(j->out + offset_of(j, ob, c0 + c, point), u[point], sizeof u[point]);
        }
    }
}

bool winograd_weights(cloob_ctx *ctx, const dnnl_memory_desc_t *md, const float *w, float *out)
{
    const dnnl_wino_desc_t *d = &md->format_desc.wino_desc;
    job j = { .w = w,
              .out = out,
              .O = md->dims[0],
              .C = md->dims[1],
              .alpha = d->alpha,
              .format = d->wino_format,
              .group_o = d->oc2_block,
              .group_c = d->ic2_block };
    bool known = d->wino_format == dnnl_wino_wei_aaOio || d->wino_format == dnnl_wino_wei_aaOBiOo ||
                 d->wino_format == dnnl_wino_wei_OBaaIBOIio;
    if (!known || d->r != 3 || (d->alpha != 4 && d->alpha != 6) || d->ic != j.C || d->oc != j.O || d->ic_block != V ||
        d->oc_block != V || j.O % V || j.C % V || j.group_o < 1 || j.group_c < 1 || d->adj_scale != 1.0f ||
        md->data_type != dnnl_f32)
        return false;
    winograd_kernel_points(j.alpha - 2, j.G);
    pool_for(ctx, j.O / V * (j.C / V), 4, weights_range, &j);
    return true;
}
