/* A GEMM with an activation inside whose factors both come through shared memory in stages. One persistent block per
 * multiprocessor, which walks over tiles of 128 rows and 256 columns. Three kinds of warps, each at its own pace:
 *
 *   copying      one warp: a's and b's stages by the copy engine. Blocks of a cluster share rows or columns: each
 *                copies a part of the common factor to all of them.
 *   multiplying  two warpgroups (teams) of 64 rows each and all 256 columns, 128 accumulators a thread. They do nothing
 *                else: a finished tile is rounded to bf16 into four boxes of 64 columns, and the next one begins. The
 *                second team is a little behind the first, so that one of them always multiplies.
 *   finishing    three warps, every third box each: they read it to registers, apply the activation, and write to
 *                memory in whole rows of 128 bytes; backward, x comes straight to their registers, half a box ahead.
 *                They have as long as the GEMM of a tile takes.
 *
 * The protocol, for stage s of the ring (full: 1 arrival and its bytes; empty: every multiplying warp of the cluster):
 *   copying:      wait empty[s]; expect 48 KB at full[s]; copy its shares, which count at full[s] of every block served
 *   multiplying:  wait full[s]; wgmma; when it is over arrive at empty[s] of every block of the cluster
 * and for the box of strip j, which the teams fill in turns (filled: 4 warps; taken: 1 warp):
 *   team 0, tile t:   wait taken[1][j] of tile t - 1; write; arrive at filled[0][j]
 *   team 1, tile t:   wait taken[0][j] of tile t; write; arrive at filled[1][j]
 *   finishing, boxes in this order (tile, team, j): wait filled[team][j]; read to registers; arrive at taken[team][j]
 * No wait is ever two phases behind: each follows a wait for the phase before on the same barrier. A block leaves when
 * its whole cluster is done, since others copy to its memory and arrive at its barriers. */
#include "nn/cuda/linear/act_finish.cuh"

namespace {

template <bool BACKWARD, class A>
__global__ void __launch_bounds__(THREADS, 1)
    act_gemm_kernel(const __grid_constant__ maps t, const __grid_constant__ act_gemm g, cluster_shape shape, int parts)
{
    extern __shared__ char memory[];
    __shared__ barriers s;
    char *stages = (char *)(((uintptr_t)memory + 1023) & ~(uintptr_t)1023), *boxes = stages + STAGES * STAGE_BYTES;
    walk w = walk_of(g, shape);
    int depth = (int)g.k / DEPTH, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) s.make(shape.blocks());
    __syncthreads();
    cluster_sync();
    ring r = { stages, s.full, s.empty, STAGE_BYTES, STAGES, 0, 0 };
    if (warp < TEAMS * 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 160;");
        work<BACKWARD>(r, w, depth, warp / 4, boxes, &s);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 184;"); /* what the teams gave away */
        int finisher = warp - TEAMS * 4, tiles = w.first < w.count ? (w.count - w.first + w.step - 1) / w.step : 0;
        int count = tiles * TEAMS * STRIPS;
        if (finisher < FINISHERS) {
            if constexpr (!BACKWARD) finish_forward<A>(w, g, finisher, count, boxes, &s);
            else if (g.recomputed) finish_backward<A, true>(w, g, parts, finisher, count, boxes, &s);
            else finish_backward<A, false>(w, g, parts, finisher, count, boxes, &s);
        } else if (threadIdx.x % 32 == 0) copy_factors<BACKWARD>(r, w, t, depth);
    }
    __syncwarp();
    cluster_sync();
}

/* ---- launching ----------------------------------------------------------------------------------- */

const cluster_shape variants[] = { { 2, 1, 1 }, { 1, 1, 1 } }; /* four blocks were slower, others within 1 % */
enum { VARIANTS = sizeof variants / sizeof *variants };

/* Of a cluster. */
int tiles_of(const act_gemm *g, cluster_shape shape)
{
    int64_t height = shape.below * ROWS, width = shape.beside * COLUMNS;
    return (int)((g->m + height - 1) / height * (g->n / width));
}

/* A row for every finishing warp of as many blocks as there may be. */
int parts_of(const act_gemm *g, cluster_shape shape, int sms)
{
    int clusters = sms / shape.blocks(), tiles = tiles_of(g, shape);
    return (clusters < tiles ? clusters : tiles) * shape.blocks() * FINISHERS;
}

cudaError_t make_maps(maps *t, const act_gemm *g, cluster_shape shape)
{
    cudaError_t e = tensor_map_rows(&t->a, g->a, g->m, g->k, DEPTH, ROWS / shape.beside);
    if (e != cudaSuccess) return e;
    return g->backward ? tensor_map_rows(&t->b, g->b, g->k, g->n, 64, DEPTH)
                       : tensor_map_rows(&t->b, g->b, g->n, g->k, DEPTH, COLUMNS / shape.below);
}

template <bool BACKWARD, class A>
cudaError_t launch(cudaStream_t stream, const act_gemm *g, cluster_shape shape, int sms)
{
    maps t = {};
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute cluster = {};
    auto kernel = act_gemm_kernel<BACKWARD, A>;
    int blocks = shape.blocks(), resident = sms / blocks;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = (unsigned)blocks, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    c.gridDim = dim3((unsigned)(resident * blocks)), c.blockDim = dim3(THREADS);
    c.dynamicSmemBytes = SHARED_BYTES, c.stream = stream, c.attrs = &cluster, c.numAttrs = 1;
    cudaError_t e = make_maps(&t, g, shape);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    if (e == cudaSuccess && blocks > 2) e = cudaOccupancyMaxActiveClusters(&resident, kernel, &c);
    if (e != cudaSuccess) return e;
    if (resident < 1) return cudaErrorInvalidConfiguration;
    int tiles = tiles_of(g, shape), parts = parts_of(g, shape, sms);
    c.gridDim = dim3((unsigned)((resident < tiles ? resident : tiles) * blocks));
    return cudaLaunchKernelEx(&c, kernel, t, *g, shape, parts);
}

template <class A>
cudaError_t launch_way(cudaStream_t stream, const act_gemm *g, cluster_shape shape, int sms)
{
    return g->backward ? launch<true, A>(stream, g, shape, sms) : launch<false, A>(stream, g, shape, sms);
}

} // namespace

extern "C" {

int act_gemm_streamed_parts(const act_gemm *g, int variant, int sms)
{
    if (variant < 0 || variant >= VARIANTS || sms < variants[variant].blocks()) return 0;
    if (g->m < 1 || g->n % (variants[variant].beside * COLUMNS) || g->k % DEPTH || g->k < 4 * DEPTH) return 0;
    return parts_of(g, variants[variant], sms);
}

int act_gemm_streamed_run(void *stream, const act_gemm *g, int variant, int sms)
{
    if (!act_gemm_streamed_parts(g, variant, sms)) return cudaErrorInvalidValue;
    cudaStream_t s = (cudaStream_t)stream;
    switch (g->act) {
    case OP_ACT_GELU: return launch_way<gelu_act>(s, g, variants[variant], sms);
    case OP_ACT_GELU_TANH: return launch_way<sigmoid_act<gelu_tanh_u>>(s, g, variants[variant], sms);
    default: return launch_way<sigmoid_act<quickgelu_u>>(s, g, variants[variant], sms);
    }
}

} // extern "C"
