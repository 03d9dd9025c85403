/* From lists of neighbours to a symmetric weighted graph. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/map/map.h"

/* sigma with sum_j exp(-max(0, d_j - d_0) / sigma) = log2 k, by bisection; the sum grows with sigma. */
static double find_sigma(const float *d, int64_t k)
{
    double target = log2((double)k), low = 0, high = INFINITY, sigma = 1, mean = 0;
    for (int64_t j = 0; j < k; j++) mean += d[j] / (double)k;
    for (int step = 0; step < 64 && k > 1; step++) {
        double sum = 0;
        for (int64_t j = 0; j < k; j++) sum += exp(-(d[j] - d[0]) / sigma);
        if (fabs(sum - target) < 1e-5) break;
        if (sum > target) high = sigma;
        else low = sigma;
        sigma = isinf(high) ? sigma * 2 : (low + high) / 2;
    }
    return fmax(sigma, fmax(1e-3 * mean, 1e-12)); /* equal distances: all weights near 1 */
}

static void directed_weights(float *weight, const float *distance, int64_t N, int64_t k)
{
    for (int64_t i = 0; i < N; i++) {
        const float *d = distance + i * k;
        double sigma = find_sigma(d, k);
        for (int64_t j = 0; j < k; j++) weight[i * k + j] = (float)exp(-(d[j] - d[0]) / sigma);
    }
}

static float weight_to(const int32_t *index, const float *weight, int64_t k, int64_t from, int64_t to)
{
    for (int64_t j = 0; j < k; j++)
        if (index[from * k + j] == to) return weight[from * k + j];
    return 0;
}

/* Calls for every edge i -> j of the lists, and for j -> i where j's list does not have i. */
static void count_edges(int64_t *start, const int32_t *index, const float *weight, int64_t N, int64_t k)
{
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < k; j++) {
            int64_t other = index[i * k + j];
            start[i + 1]++;
            if (weight_to(index, weight, k, other, i) == 0) start[other + 1]++;
        }
    for (int64_t i = 0; i < N; i++) start[i + 1] += start[i];
}

static void put_edge(map_graph *g, int64_t *fill, int64_t from, int64_t to, float weight)
{
    g->other[fill[from]] = (int32_t)to;
    g->weight[fill[from]++] = weight;
}

static void fill_edges(map_graph *g, int64_t *fill, const int32_t *index, const float *weight, int64_t k)
{
    for (int64_t i = 0; i < g->N; i++)
        for (int64_t j = 0; j < k; j++) {
            int64_t other = index[i * k + j];
            float a = weight[i * k + j], b = weight_to(index, weight, k, other, i), both = a + b - a * b;
            put_edge(g, fill, i, other, both);
            if (b == 0) put_edge(g, fill, other, i, both);
        }
}

cloob_status map_graph_build(cloob_ctx *ctx, map_graph *g, const int32_t *index, const float *distance, int64_t N,
                             int64_t k)
{
    size_t n = (size_t)N, edges = 2 * n * (size_t)k;
    *g = (map_graph){ N, calloc(n + 1, sizeof *g->start), malloc(edges * sizeof *g->other),
                      malloc(edges * sizeof *g->weight) };
    float *weight = malloc(n * (size_t)k * sizeof *weight);
    int64_t *fill = malloc((n + 1) * sizeof *fill);
    bool room = g->start && g->other && g->weight && weight && fill;
    if (room) {
        directed_weights(weight, distance, N, k);
        count_edges(g->start, index, weight, N, k);
        memcpy(fill, g->start, (n + 1) * sizeof *fill);
        fill_edges(g, fill, index, weight, k);
    }
    free(weight), free(fill);
    return room ? CLOOB_OK : ctx_no_memory(ctx, edges * 8, "a graph of neighbours");
}

void map_graph_release(map_graph *g)
{
    free(g->start), free(g->other), free(g->weight);
    *g = (map_graph){ 0 };
}
