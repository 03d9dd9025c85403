/* The transformed operand a for tiles of image positions, and its 2 x 2 average pool: a thread transforms the four rows
 * of which a pooled row is the average. */
#ifndef NN_CUDA_FUSED_POOLED_OPERAND_CUH
#define NN_CUDA_FUSED_POOLED_OPERAND_CUH

#include "nn/cuda/fused/prologues.cuh"

namespace {

enum { POOLED_BUFFERS = 3 }; /* one is written while bulk stores may still read the other two */

/* The average of four rows, eight channels. */
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

/* Transforms four rows of x in place and writes their average. at: offsets of the rows. */
template <class P>
__device__ __forceinline__ void transform_four(char *x, const char *other, const int (&at)[4], char *pooled,
                                               const channel_coefficients &n)
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

/* As transform_stages, with pooling. buffers: POOLED_BUFFERS stages of a quarter of the rows. The two stores of a stage
 * are issued together; before the barrier of the next stage, the stores of the stage before have read their data. */
template <class P, int HEIGHT>
__device__ void transform_pooled_stages(ring x, ring other, const block_tiles &w, const layout &l,
                                        const float *channels, uint64_t *ready, const maps &t, char *out_buffers,
                                        bool writes)
{
    int thread = threadIdx.x % 128, chunk = thread % 8, position = thread / 8, half = l.tile_width / 2, before = -1;
    int row = position / half * 2 * l.tile_width + position % half * 2, at[4], turn = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) at[i] = chunk_offset(row + i % 2 + i / 2 * l.tile_width, chunk);
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            channel_coefficients n;
            char *pooled = out_buffers + turn * (HEIGHT / 4 * ROW);
            n.read(channels + s * DEPTH + chunk * 8, w.depth * DEPTH);
            barrier_wait(&x.full[x.at], x.parity);
            barrier_wait(&other.full[other.at], other.parity);
#pragma unroll
            for (int y = 0; y < HEIGHT; y += 64) /* whole lines: 64 rows, 16 pooled rows */
                transform_four<P>(x.here() + y * ROW, other.here() + y * ROW, at,
                                  pooled + chunk_offset(y / 4 + position, chunk), n);
            shared_publish();
            transform_barrier();
            if (thread == 0) {
                barrier_arrive(&ready[x.at]);
                barrier_arrive(&other.empty[other.at]);
                if (writes) {
                    tile_position to = position_of(l, tile, w.height);
                    store_tile(&t.side, x.here(), s * DEPTH, to.x, to.line);
                    store_tile(&t.pooled, pooled, s * DEPTH, to.x / 2, to.line / 2);
                    if (before >= 0) {
                        asm volatile("cp.async.bulk.wait_group.read 2;" ::: "memory");
                        barrier_arrive(&x.empty[before]);
                    }
                    before = x.at;
                }
            }
            turn = turn + 1 < POOLED_BUFFERS ? turn + 1 : 0;
            x.next();
            other.next();
        }
    if (thread == 0 && writes) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

} // namespace

#endif
