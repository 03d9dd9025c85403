/* How kernels are evaluated at the points, and where tiles are. */
#include "tensor/cpu/winograd/tile.h"

#include <string.h>

winograd_grid winograd_grid_of(int size, int64_t H, int64_t W)
{
    int64_t across = (W + size - 1) / size;
    return (winograd_grid){ H, W, size, across, (H + size - 1) / size * across };
}

winograd_place winograd_grid_place(const winograd_grid *g, int64_t channels, int64_t tile, int64_t *n)
{
    int64_t t = tile % g->per_image;
    *n = tile / g->per_image;
    return (winograd_place){ g->H, g->W, channels, t / g->across * g->size, t % g->across * g->size };
}

void winograd_kernel_points(int size, float G[WINOGRAD_EDGE][3])
{
    static const double small[] = { 0, 1, -1 }, large[] = { 0, 0.625, -0.625, 1.5, -1.5 };
    const double *p = size == 2 ? small : large;
    int finite = size + 1;
    memset(G, 0, WINOGRAD_EDGE * sizeof *G);
    for (int i = 0; i < finite; i++) {
        double f = 1;
        for (int k = 0; k < finite; k++)
            if (k != i) f *= p[i] - p[k];
        if (size == 2 && i == 0) f = -f;
        G[i][0] = (float)(1 / f), G[i][1] = (float)(p[i] / f), G[i][2] = (float)(p[i] * p[i] / f);
    }
    G[finite][2] = 1;
}

#ifndef __x86_64__
const winograd_tile *winograd_tile_of(int size)
{
    (void)size;
    return NULL;
}
#endif
