/* GEMMs of inference with 8-bit weights beside fp32, one line per shape: billions of operations a second and core, by
 * CPU time, best of seven.
 *
 *     bench_int8 [threads 1] [rows 1600] */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tensor/cpu/igemm.h"
#include "tensor/cpu/pgemm.h"
#include "tensor/cpu/qgemm.h"

static cloob_ctx *ctx;

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *room(size_t bytes) { return aligned_alloc(256, (bytes + 511) / 256 * 256); }

static float *noise(int64_t n)
{
    float *x = room((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 7919) % 1001) / 1000 - 0.5f;
    return x;
}

typedef void run_fn(void *call);
static void run_fp32(void *call) { pgemm_run(ctx, call); }
static void run_igemm(void *call) { igemm_run(ctx, call); }
static void run_qgemm(void *call) { qgemm_run(ctx, call); }

static double speed(run_fn *run, void *call, double operations)
{
    double best = 1e30;
    for (int i = 0; i < 8; i++) {
        double from = cpu_seconds();
        run(call);
        double s = cpu_seconds() - from;
        if (i && s < best) best = s;
    }
    return operations / best / 1e9;
}

static void report(int64_t M, int64_t N, int64_t K)
{
    float *x = noise(M * K), *w = noise(N * K), *bias = noise(N), *y = noise(M * N);
    pgemm_weight weight = { w, N, K, false };
    void *packed[3] = { room(pgemm_packed_bytes(N, K)), room(igemm_packed_bytes(N, K)),
                        room(qgemm_packed_bytes(N, K)) };
    void *scratch[3] = { room(pgemm_scratch(ctx, M, N, K)), room(igemm_scratch(ctx, M, K)),
                         room(qgemm_scratch(ctx, M, K)) };
    pgemm_pack(ctx, &weight, packed[0]);
    igemm_pack_floats(ctx, w, N, K, packed[1]);
    qgemm_pack_floats(ctx, w, N, K, packed[2]);
    pgemm_call f = {
        .M = M, .x = x, .weight = weight, .packed = packed[0], .scratch = scratch[0], .bias = bias, .y = y
    };
    igemm_call i = { .M = M, .N = N, .K = K, .x = x, .packed = packed[1], .scratch = scratch[1], .bias = bias, .y = y };
    igemm_call q = i;
    q.packed = packed[2], q.scratch = scratch[2];
    double operations = 2.0 * (double)M * (double)N * (double)K;
    printf("%5lld x %4lld x %4lld   fp32 %6.1f   8 by 13 bits %6.1f   8 by 7 bits %6.1f\n", (long long)M, (long long)N,
           (long long)K, speed(run_fp32, &f, operations), speed(run_igemm, &i, operations),
           speed(run_qgemm, &q, operations));
    for (int k = 0; k < 3; k++) free(packed[k]), free(scratch[k]);
    free(x), free(w), free(bias), free(y);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    int64_t M = argc > 2 ? atoll(argv[2]) : 1600;
    ctx = cloob_ctx_create(&(cloob_ctx_options){ .threads = threads });
    if (!ctx) return 1;
    printf("billions of operations a second of CPU time (threads spin while they wait: use 1 on a busy machine)\n");
    static const int64_t shapes[][2] = { { 2304, 768 }, { 768, 768 }, { 3072, 768 }, { 768, 3072 }, { 2048, 512 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) report(M, shapes[i][0], shapes[i][1]);
    report(50, 3072, 768);
    report(7, 2048, 512);
    cloob_ctx_destroy(ctx);
    return 0;
}
