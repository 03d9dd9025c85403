/* A GEMM with an activation in its epilogue; both operands are staged in shared memory. Persistent blocks, one per
 * multiprocessor, process tiles of 128 rows and 256 columns. Two kinds of warps run concurrently:
 *
 *   consumers    two warpgroups of 64 rows each and all 256 columns, 128 accumulators per thread. A finished tile is
 *                rounded to bf16 into four boxes of 64 columns, and the next one begins. The second consumer runs a
 *                little behind the first, so that one of them always multiplies; one of its threads issues the bulk
 *                copies of a and b.
 *   epilogue     four warps, one per box: they read it to registers, apply the activation, and write rows of 128 bytes
 *                to global memory. Backward, x is loaded to their registers half a box ahead. They have as much time as
 *                the multiplication of a tile takes.
 *
 * The protocol for stage s of the ring (full: 1 arrival and its bytes; empty: every consumer warp):
 *   consumer:  wait full[s]; wgmma; when it has completed, arrive at empty[s]
 *   producer:  wait empty[s]; expect 48 KB at full[s]; copy, which counts at full[s]
 * and for the box of strip j, which the consumers fill alternately (filled: 4 warps; read_done: 1 warp):
 *   consumer 0, tile t:   wait read_done[1][j] of tile t - 1; write; arrive at filled[0][j]
 *   consumer 1, tile t:   wait read_done[0][j] of tile t; write; arrive at filled[1][j]
 *   epilogue, for each tile and consumer c: wait filled[c][j]; read to registers; arrive at read_done[c][j]
 * No wait is two phases behind: each follows a wait for the previous phase of the same barrier. */
#include "nn/cuda/linear/act_epilogue.cuh"

namespace {

template <bool BACKWARD, class A>
__global__ void __launch_bounds__(THREADS, 1)
    act_gemm_kernel(const __grid_constant__ maps t, const __grid_constant__ act_gemm g)
{
    extern __shared__ char memory[];
    __shared__ barriers s;
    char *stages = shared_begin(memory), *boxes = stages + STAGES * STAGE_BYTES;
    tile_iterator w = tile_iterator_of(g);
    int warp = warp_number();
    if (threadIdx.x == 0) s.make();
    __syncthreads();
    if (warp < CONSUMERS * 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 160;");
        ring r = { stages, s.full, s.empty, STAGE_BYTES, STAGES, 0, 0 };
        multiply_tiles<BACKWARD>(r, w, &t, (int)g.k / DEPTH, warp, boxes, &s);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 184;"); /* the registers that the consumers released */
        int strip = warp - CONSUMERS * 4;
        if constexpr (!BACKWARD) apply_forward<A>(w, g, strip, boxes + strip * BOX, &s);
        else if (g.recomputed) apply_backward<A, true>(w, g, strip, boxes + strip * BOX, &s);
        else apply_backward<A, false>(w, g, strip, boxes + strip * BOX, &s);
    }
}

/* ---- launching ----------------------------------------------------------------------------------- */

int tiles_of(const act_gemm *g) { return (int)((g->m + ROWS - 1) / ROWS * (g->n / COLUMNS)); }

template <bool BACKWARD, class A>
cudaError_t launch(cudaStream_t stream, const act_gemm *g, int sms)
{
    maps t = {};
    auto kernel = act_gemm_kernel<BACKWARD, A>;
    int blocks = act_gemm_parts(g, sms);
    cudaError_t e = tensor_map_rows(&t.a, g->a, g->m, g->k, DEPTH, ROWS);
    if (e == cudaSuccess)
        e = BACKWARD ? tensor_map_rows(&t.b, g->b, g->k, g->n, 64, DEPTH)
                     : tensor_map_rows(&t.b, g->b, g->n, g->k, DEPTH, COLUMNS);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    if (e != cudaSuccess) return e;
    kernel<<<(unsigned)blocks, THREADS, SHARED_BYTES, stream>>>(t, *g);
    return cudaGetLastError();
}

template <class A>
cudaError_t launch_way(cudaStream_t stream, const act_gemm *g, int sms)
{
    return g->backward ? launch<true, A>(stream, g, sms) : launch<false, A>(stream, g, sms);
}

} // namespace

extern "C" {

int act_gemm_parts(const act_gemm *g, int sms)
{
    if (g->m < 1 || g->n % COLUMNS || g->k % DEPTH) return 0;
    return sms < tiles_of(g) ? sms : tiles_of(g);
}

int act_gemm_run(void *stream, const act_gemm *g, int sms)
{
    if (!act_gemm_parts(g, sms)) return cudaErrorInvalidValue;
    cudaStream_t s = (cudaStream_t)stream;
    switch (g->act) {
    case OP_ACT_GELU: return launch_way<gelu_act>(s, g, sms);
    case OP_ACT_GELU_TANH: return launch_way<gelu_tanh_act>(s, g, sms);
    default: return launch_way<quickgelu_act>(s, g, sms);
    }
}

} // extern "C"
