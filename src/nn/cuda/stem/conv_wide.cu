/* Convolutions 3 x 3 with stride 1 by warpgroups, forward and the gradient of x: rows of the product are positions, its
 * depth 32 channels of a tap at a time.
 *
 * An image's rows lie in shared memory one after the other with the column before and the column after them, so that a
 * tap is the same lines moved by u rows and v columns; products are made for the two columns between the rows, too, and
 * left out when the result is written. A team has 128 such lines, two products of 64 x 160, in its registers; the
 * weights of a tap come by for both teams of a block. Where lines are left for half the teams, each has 64 of them. */
#include "nn/cuda/stem/conv_small.cuh"
#include "tensor/cuda/ring.cuh"

namespace {

enum {
    WIDE = 160, /* channels of the result that a block makes */
    TEAM_LINES = 128,
    ALL_THREADS = 128 + 256,
    X_STAGES = 2,
    MAX_W_STAGES = 10,
    W_STAGE = WIDE * LINE,
    OUT_LINE = WIDE * 2 + 16, /* of a warp's results on their way; an odd number of 16 bytes */
    OUT_BYTES = 8 * 16 * OUT_LINE,
    OUT_LANES = WIDE / 8,
    MOST_SHARED = 226 << 10
};

struct wide_job {
    int H, W, pitch;      /* pitch: lines of a row */
    int units, per_image; /* of TEAM_LINES lines */
    int chunks, columns;  /* of what is read; channels of what is written */
    int box, copied;      /* bytes of a team's box in a stage, and those that are copied */
    int w_stages, strips;
    bf16 *out;
    const float *pivot; /* for statistics: (columns), and partial (parts, 2, columns) */
    float *partial;
};

/* Where the lines of a team begin in its image, and in its box. */
struct unit_place {
    int image, line, row, offset;
};

__device__ __forceinline__ unit_place place_of_unit(const wide_job &j, int unit, int further)
{
    unit_place p;
    p.image = unit / j.per_image, p.line = unit % j.per_image * TEAM_LINES + further;
    p.row = p.line / j.pitch, p.offset = p.line % j.pitch;
    return p;
}

/* A block's units; two in a round, and the last of an odd number shared by the teams. */
struct unit_range {
    int begin, end;
    __device__ __forceinline__ bool shared(int first) const { return first + 1 == end; }
    __device__ __forceinline__ unit_place place(const wide_job &j, int first, int team) const
    {
        return shared(first) ? place_of_unit(j, first, team * TEAM_LINES / 2) : place_of_unit(j, first + team, 0);
    }
};

/* ---- products ------------------------------------------------------------------------------------ */

/* acc = the team's lines of the result, COUNT times 64. A stage is given back once the products after it have begun. */
template <int TURNED, int COUNT>
__device__ __forceinline__ void multiply_lines(float (&acc)[2][WIDE / 2], ring &x, ring &w, const wide_job &j, int team,
                                               int offset)
{
    int w_before = -1, x_before = -1;
    bool leader = elected();
#pragma unroll
    for (int m = 0; m < COUNT; m++) settle(acc[m]);
    for (int chunk = 0; chunk < j.chunks; chunk++) {
        barrier_wait(&x.full[x.at], x.parity);
        uint32_t lines = shared_address(x.here() + team * j.box) + offset * LINE;
        for (int tap = 0; tap < TAPS; tap++) {
            barrier_wait(&w.full[w.at], w.parity);
            uint64_t a = descriptor_32(lines + (tap / 3 * j.pitch + tap % 3) * LINE),
                     b = descriptor_32(shared_address(w.here()), TURNED ? CHUNK * LINE : 16);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < CHUNK / 16; k++)
#pragma unroll
                for (int m = 0; m < COUNT; m++)
                    wgmma_rows_k16<TURNED>(acc[m], a + m * (64 * LINE >> 4) + 2 * k,
                                           b + k * (TURNED ? 16 * LINE >> 4 : 2), chunk + tap + k > 0);
            wgmma_commit();
            if (w_before >= 0) {
                wgmma_wait<1>();
                if (leader) barrier_arrive(&w.empty[w_before]);
                if (leader && tap == 0) barrier_arrive(&x.empty[x_before]);
            }
            w_before = w.at;
            w.next();
        }
        x_before = x.at;
        x.next();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int m = 0; m < COUNT; m++) settle(acc[m]);
    if (leader) barrier_arrive(&w.empty[w_before]), barrier_arrive(&x.empty[x_before]);
}

/* A warp's 16 lines of the result, by way of its own shared memory, a lane always the same eight channels; lines
 * between the rows are left out. */
template <class SUMS>
__device__ __forceinline__ void write_lines(const float (&c)[WIDE / 2], const wide_job &j, char *place, unit_place p,
                                            int strip, SUMS &sums)
{
    int lane = threadIdx.x % 32, row = p.line / j.pitch, column = p.line % j.pitch;
    unsigned to = shared_address(place);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < WIDE / 16; k++)
        stmatrix(to + (lane & 15) * OUT_LINE + (2 * k + (lane >> 4)) * 16, pack2(c[8 * k], c[8 * k + 1]),
                 pack2(c[8 * k + 2], c[8 * k + 3]), pack2(c[8 * k + 4], c[8 * k + 5]),
                 pack2(c[8 * k + 6], c[8 * k + 7]));
    __syncwarp();
    if (lane >= OUT_LANES) return;
    for (int line = 0; line < 16 && row < j.H; line++) {
        if (column < j.W) {
            uint4 v = load_shared(to + line * OUT_LINE + lane * 16);
            *reinterpret_cast<uint4 *>(j.out + ((int64_t)(p.image * j.H + row) * j.W + column) * j.columns + strip +
                                       lane * 8) = v;
            sums.add(v);
        }
        if (++column == j.pitch) column = 0, row++;
    }
}

/* A block's sums to partial (2, columns), its warps in order, by way of their shared memory. */
__device__ __forceinline__ void write_sums(float *partial, int columns, char *places, int warp, const kept_sums &sums)
{
    const int lane = threadIdx.x % 32, worker = threadIdx.x - 128, floats = 16 * OUT_LINE / (int)sizeof(float);
    float *all = reinterpret_cast<float *>(places);
    __syncwarp();
    if (lane < OUT_LANES)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            all[warp * floats + lane * 8 + i] = sums.s1[i];
            all[warp * floats + WIDE + lane * 8 + i] = sums.s2[i];
        }
    asm volatile("bar.sync 1, 256;" ::: "memory");
    for (int k = worker; k < 2 * WIDE; k += 256) {
        float sum = 0.0f;
        for (int w = 0; w < 8; w++) sum += all[w * floats + k];
        partial[k / WIDE * columns + k % WIDE] = sum;
    }
}
__device__ __forceinline__ void write_sums(float *, int, char *, int, const no_sums &) {}

template <int TURNED, class SUMS>
__device__ void work_lines(ring x, ring w, const wide_job &j, unit_range u, int part, int strip, char *places)
{
    float acc[2][WIDE / 2];
    int warp = warp_number() - 4, team = warp / 4, lane = threadIdx.x % 32;
    char *place = places + warp * 16 * OUT_LINE;
    SUMS sums(j.pivot + strip, lane < OUT_LANES ? lane : 0);
    for (int first = u.begin; first < u.end; first += 2) {
        unit_place p = u.place(j, first, team);
        bool both = !u.shared(first);
        if (both) multiply_lines<TURNED, 2>(acc, x, w, j, team, p.offset);
        else multiply_lines<TURNED, 1>(acc, x, w, j, team, p.offset);
        p.line += warp % 4 * 16;
        write_lines(acc[0], j, place, p, strip, sums);
        p.line += 64;
        if (both) write_lines(acc[1], j, place, p, strip, sums);
        __syncwarp(); /* products want whole warps */
    }
    write_sums(j.partial + (int64_t)part * 2 * j.columns + strip, j.columns, places, warp, sums);
}

/* ---- copying ------------------------------------------------------------------------------------- */

__device__ void copy_lines(ring r, const wide_job &j, unit_range u, const CUtensorMap *map)
{
    for (int first = u.begin; first < u.end; first += 2)
        for (int chunk = 0; chunk < j.chunks; chunk++) {
            r.begin_fill(2 * j.copied);
            for (int team = 0; team < 2; team++) {
                unit_place p = u.place(j, first, team);
                copy_box4(r.here() + team * j.box, map, chunk * CHUNK, -1, p.row - 1, p.image, &r.full[r.at]);
            }
            r.next();
        }
}

/* The weights of a tap: (WIDE, 32) as they are, or 32 lines of each 32 columns, taps from the last on. */
template <int TURNED>
__device__ void copy_weights(ring r, const wide_job &j, unit_range u, const CUtensorMap *map, int strip)
{
    for (int first = u.begin; first < u.end; first += 2)
        for (int chunk = 0; chunk < j.chunks; chunk++)
            for (int tap = 0; tap < TAPS; tap++) {
                r.begin_fill();
                if (!TURNED) copy_box3(r.here(), map, chunk * CHUNK, tap, strip, &r.full[r.at]);
                for (int i = 0; TURNED && i < WIDE / CHUNK; i++)
                    copy_box3(r.here() + i * CHUNK * LINE, map, strip + i * CHUNK, TAPS - 1 - tap, chunk * CHUNK,
                              &r.full[r.at]);
                r.next();
            }
}

/* ---- the kernel ---------------------------------------------------------------------------------- */

template <int TURNED, class SUMS>
__global__ void __launch_bounds__(ALL_THREADS, 1)
    conv_wide_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap w_map,
                     const __grid_constant__ wide_job j)
{
    extern __shared__ char raw[];
    __shared__ uint64_t x_full[X_STAGES], x_empty[X_STAGES], w_full[MAX_W_STAGES], w_empty[MAX_W_STAGES];
    char *w_at = shared_begin(raw), *x_at = w_at + j.w_stages * W_STAGE, *places = x_at + X_STAGES * 2 * j.box;
    int strip = (int)blockIdx.x % j.strips * WIDE, part = (int)blockIdx.x / j.strips, parts = (int)gridDim.x / j.strips;
    unit_range u = { (int)((int64_t)j.units * part / parts), (int)((int64_t)j.units * (part + 1) / parts) };
    if (threadIdx.x == 0) {
        for (int s = 0; s < X_STAGES; s++) barrier_init(&x_full[s], 1), barrier_init(&x_empty[s], 8);
        for (int s = 0; s < j.w_stages; s++) barrier_init(&w_full[s], 1), barrier_init(&w_empty[s], 8);
        barrier_publish();
    }
    __syncthreads();
    ring x = { x_at, x_full, x_empty, 2 * j.box, X_STAGES, 0, 0 },
         w = { w_at, w_full, w_empty, W_STAGE, j.w_stages, 0, 0 };
    int warp = warp_number();
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (!elected()) return;
        if (warp == 0) copy_lines(x, j, u, &x_map);
        else if (warp == 1) copy_weights<TURNED>(w, j, u, &w_map, strip);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        work_lines<TURNED, SUMS>(x, w, j, u, part, strip, places);
    }
}

/* ---- launching ----------------------------------------------------------------------------------- */

/* w (O,3,3,C), channels of y in boxes of `rows`. */
cudaError_t weight_map(CUtensorMap *m, const void *w, int64_t O, int64_t C, int rows)
{
    cuuint64_t size[3] = { (cuuint64_t)C, TAPS, (cuuint64_t)O },
               stride[2] = { (cuuint64_t)C * 2, (cuuint64_t)C * 2 * TAPS };
    cuuint32_t part[3] = { CHUNK, 1, (cuuint32_t)rows };
    return tensor_map_encode(m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, w, 3, size, stride, part, CU_TENSOR_MAP_SWIZZLE_64B);
}

int multiple(int n, int of) { return (n + of - 1) / of * of; }

template <int TURNED, class SUMS>
cudaError_t conv_wide_ready(int *blocks_per_sm)
{
    return kernel_ready(conv_wide_kernel<TURNED, SUMS>, ALL_THREADS, MOST_SHARED, blocks_per_sm);
}

template <int TURNED, class SUMS>
cudaError_t conv_wide_run(const small_call *c)
{
    const dnn_shape *s = &c->shape;
    int in = (int)(TURNED ? s->O : s->C), out = (int)(TURNED ? s->C : s->O);
    int pitch = (int)s->W + 2, rows = (pitch - 1 + TEAM_LINES - 1) / pitch + 3;
    wide_job j = { (int)s->H, (int)s->W, pitch };
    j.per_image = (j.H * pitch + TEAM_LINES - 1) / TEAM_LINES, j.units = (int)s->N * j.per_image;
    j.chunks = in / CHUNK, j.columns = out, j.strips = out / WIDE;
    j.copied = rows * pitch * LINE, j.box = multiple(j.copied, SMEM_ALIGN);
    j.w_stages = (MOST_SHARED - SMEM_ALIGN - OUT_BYTES - 2 * X_STAGES * j.box) / W_STAGE;
    if (j.w_stages > MAX_W_STAGES) j.w_stages = MAX_W_STAGES;
    j.out = (bf16 *)(TURNED ? c->data.x : c->data.y);
    j.pivot = c->data.pivot, j.partial = (float *)c->data.workspace;
    int parts = c->blocks / j.strips;
    if (j.w_stages < 2 || pitch > 256 || parts == 0) return cudaErrorInvalidConfiguration;
    CUtensorMap x, w;
    cudaError_t e = chunk_map(&x, TURNED ? c->data.y : c->data.x, s->N, s->H, s->W, in, rows, pitch);
    if (e == cudaSuccess) e = weight_map(&w, c->data.w, s->O, s->C, TURNED ? (int)CHUNK : (int)WIDE);
    if (e != cudaSuccess) return e;
    int shared = SMEM_ALIGN + j.w_stages * W_STAGE + 2 * X_STAGES * j.box + OUT_BYTES;
    conv_wide_kernel<TURNED, SUMS><<<parts * j.strips, ALL_THREADS, shared, c->stream>>>(x, w, j);
    return cudaGetLastError();
}

template <int C, int O, int TURNED, class SUMS>
constexpr small_kernel row(const char *name)
{
    constexpr int strips = (TURNED ? C : O) / WIDE;
    static_assert(C % CHUNK == 0 && O % CHUNK == 0 && (TURNED ? C : O) % WIDE == 0, "whole strips");
    return { name,
             TURNED ? DNN_DX : DNN_FORWARD,
             SUMS::WITH,
             C,
             O,
             1,
             1,
             conv_wide_ready<TURNED, SUMS>,
             SUMS::WITH ? 2 * WIDE * sizeof(float) : 0,
             conv_wide_run<TURNED, SUMS>,
             strips };
}

} // namespace

extern "C" const small_kernel small_wide_kernels[] = {
    row<160, 160, 0, no_sums>("warpgroups"),
    row<160, 160, 1, no_sums>("warpgroups"),
    row<160, 160, 0, kept_sums>("warpgroups, statistics"),
    row<320, 320, 0, no_sums>("warpgroups"),
    row<320, 320, 1, no_sums>("warpgroups"),
    row<320, 320, 0, kept_sums>("warpgroups, statistics"),
    { NULL },
};
