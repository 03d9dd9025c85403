/* The left factor of tiles that are parts of images, and the factor behind a 2 x 2 average pool: a thread makes the
 * four rows that a pooled one is the average of. */
#ifndef NN_CUDA_FUSED_POOLED_FACTOR_CUH
#define NN_CUDA_FUSED_POOLED_FACTOR_CUH

#include "nn/cuda/fused/prologues.cuh"

namespace {

enum { POOLED_PLACES = 3 }; /* one is written while the copy engine may still read the other two */

/* 16 bytes of a row in a stage, swizzled by the row's last three bits. */
__device__ __forceinline__ int stage_place(int row, int chunk) { return row * ROW + ((chunk ^ (row % 8)) << 4); }

/* The averages of four rows, eight channels each. */
__device__ __forceinline__ uint4 average(const uint4 (&v)[4])
{
    uint4 out;
    uint32_t *o = &out.x;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 f = unpack_pair((&v[i].x)[k]);
            sum.x += f.x, sum.y += f.y;
        }
        o[k] = pack_pair(0.25f * sum.x, 0.25f * sum.y);
    }
    return out;
}

/* Four rows in place of x, and their average. at: the rows. */
template <class P>
__device__ __forceinline__ void make_four(char *x, const char *other, const int (&at)[4], char *pooled,
                                          const channel_numbers &n)
{
    uint4 a[4], b[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = *reinterpret_cast<const uint4 *>(x + at[i]);
        b[i] = *reinterpret_cast<const uint4 *>(other + at[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = transformed<P>(n, a[i], b[i]);
        *reinterpret_cast<uint4 *>(x + at[i]) = a[i];
    }
    *reinterpret_cast<uint4 *>(pooled) = average(a);
}

/* As make_factor. places: room for what is pooled, POOLED_PLACES stages of a fourth of the rows. A stage's two copies
 * leave together; before the makers meet in the next one, those of the stage before it have left. */
template <class P, int HEIGHT>
__device__ void make_pooled_factor(ring x, ring other, const share &w, const layout &l, const float *channels,
                                   uint64_t *ready, const maps &t, char *places, bool writes)
{
    int thread = threadIdx.x % 128, chunk = thread % 8, position = thread / 8, half = l.tile_width / 2, before = -1;
    int row = position / half * 2 * l.tile_width + position % half * 2, at[4], turn = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) at[i] = stage_place(row + i % 2 + i / 2 * l.tile_width, chunk);
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            channel_numbers n;
            char *pooled = places + turn * (HEIGHT / 4 * ROW);
            n.read(channels + s * DEPTH + chunk * 8, w.depth * DEPTH);
            barrier_wait(&x.full[x.at], x.parity);
            barrier_wait(&other.full[other.at], other.parity);
#pragma unroll
            for (int y = 0; y < HEIGHT; y += 64) /* whole lines, and 16 pooled rows */
                make_four<P>(x.here() + y * ROW, other.here() + y * ROW, at,
                             pooled + stage_place(y / 4 + position, chunk), n);
            shared_publish();
            makers_barrier();
            if (thread == 0) {
                barrier_arrive(&ready[x.at]);
                barrier_arrive(&other.empty[other.at]);
                if (writes) {
                    tile_place to = place_of(l, tile, w.height);
                    store_tile(&t.side, x.here(), s * DEPTH, to.x, to.line);
                    store_tile(&t.pooled, pooled, s * DEPTH, to.x / 2, to.line / 2);
                    if (before >= 0) {
                        asm volatile("cp.async.bulk.wait_group.read 2;" ::: "memory");
                        barrier_arrive(&x.empty[before]);
                    }
                    before = x.at;
                }
            }
            turn = turn + 1 < POOLED_PLACES ? turn + 1 : 0;
            x.next();
            other.next();
        }
    if (thread == 0 && writes) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

} // namespace

#endif
