/* How kernels are evaluated at the points. */
#include "tensor/cpu/winograd_tile.h"

#include <string.h>

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
