/* Convolutions on the cpu backend, where 3 x 3 kernels may go through Winograd's algorithm: the same images as the
 * definition gives, alone and in a batch, with frozen weights; in training, where weights change between runs, forward
 * and backward. */
#include "check.h"

#include "core/rng.h"
#include "nn/op.h"

static cloob_ctx *ctx;
static device *cpu;

static bool invariant, training;

static float *random_floats(int64_t n, uint64_t key, float scale)
{
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = scale * (float)(2 * rng_uniform(key, (uint64_t)i) - 1);
    return x;
}

static void run_ref(op_id op, op_args a)
{
    op_env env = { .ctx = ctx, .ranks = 1 };
    CHECK_OK(ctx, op_find_kernel(BACKEND_REF, op)->run(&env, &a));
}

/* The cpu kernel, twice: frozen weights are taken in by the first run; in training it has other ones. */
static void run_cpu(op_id op, op_args a, float *out)
{
    op_env env = { .ctx = ctx, .dev = cpu, .ranks = 1, .frozen_weights = !training, .invariant = invariant };
    const op_kernel *k = op_find_kernel(BACKEND_CPU, op);
    float *other = random_floats(tensor_count(&a.in[1]), 9, 1);
    op_args bare = a;
    for (int i = 0; i < OP_INPUTS; i++) bare.in[i].data = NULL;
    bare.out[0].data = NULL;
    if (k->prepare) CHECK_OK(ctx, k->prepare(&env, &bare));
    bare.scratch = aligned_alloc(256, (bare.scratch_bytes + 511) / 256 * 256);
    for (int i = 0; i < OP_INPUTS; i++) bare.in[i].data = a.in[i].data;
    bare.out[0].data = out;
    for (int round = 0; round < 2; round++) {
        if (training && round == 0) bare.in[1].data = other;
        CHECK_OK(ctx, k->run(&env, &bare));
        bare.in[1].data = a.in[1].data;
    }
    if (k->release) k->release(&env, &bare);
    free(bare.scratch), free(other);
}

static double worst(const float *a, const float *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void compare(int64_t N, int64_t H, int64_t C, int64_t O, bool bias)
{
    int64_t in = N * H * H * C, out = N * H * H * O;
    op_args a = { .attr = { .stride = 1, .pad = 1, .relu = bias } };
    float *x = random_floats(in, 1, 1), *w = random_floats(O * 9 * C, 2, sqrtf(1.0f / (float)(9 * C))),
          *b = random_floats(O, 3, 1);
    float *want = malloc((size_t)out * sizeof *want), *got = malloc((size_t)out * sizeof *got);
    for (int i = 0; i < OP_INPUTS; i++) a.in[i].ndim = -1;
    for (int i = 0; i < OP_OUTPUTS; i++) a.out[i].ndim = -1;
    a.in[0] = TENSOR(CLOOB_F32, x, N, H, H, C);
    a.in[1] = TENSOR(CLOOB_F32, w, O, 3, 3, C);
    if (bias) a.in[2] = TENSOR(CLOOB_F32, b, O);
    a.out[0] = TENSOR(CLOOB_F32, want, N, H, H, O);
    run_ref(OP_CONV2D, a);
    run_cpu(OP_CONV2D, a, got);
    CHECK(worst(got, want, out) < 2e-5); /* values up to about 3; tiles of 4 x 4 lose some three bits */
    free(x), free(w), free(b), free(want), free(got);
}

static void images_are_those_of_the_definition(void)
{
    compare(1, 14, 32, 32, true);
    compare(1, 28, 32, 64, true);
    compare(1, 28, 64, 64, false);
    compare(1, 28, 128, 128, true);
    compare(1, 14, 256, 64, true);
    compare(1, 7, 128, 128, true);
    compare(3, 13, 64, 128, true);
    compare(8, 9, 16, 48, false);
    compare(5, 3, 32, 32, true); /* an image is smaller than a tile */
    compare(2, 8, 48, 16, false);
}

/* dx of a convolution from C to O channels. */
static void compare_gradient(int64_t N, int64_t H, int64_t C, int64_t O)
{
    int64_t in = N * H * H * C, out = N * H * H * O;
    op_args a = { .attr = { .stride = 1, .pad = 1 } };
    float *dy = random_floats(out, 1, 1), *w = random_floats(O * 9 * C, 2, sqrtf(1.0f / (float)(9 * O)));
    float *want = malloc((size_t)in * sizeof *want), *got = malloc((size_t)in * sizeof *got);
    for (int i = 0; i < OP_INPUTS; i++) a.in[i].ndim = -1;
    for (int i = 0; i < OP_OUTPUTS; i++) a.out[i].ndim = -1;
    a.in[0] = TENSOR(CLOOB_F32, dy, N, H, H, O);
    a.in[1] = TENSOR(CLOOB_F32, w, O, 3, 3, C);
    a.out[0] = TENSOR(CLOOB_F32, want, N, H, H, C);
    run_ref(OP_CONV2D_DX, a);
    run_cpu(OP_CONV2D_DX, a, got);
    CHECK(worst(got, want, in) < 2e-5); /* as above */
    free(dy), free(w), free(want), free(got);
}

/* dw of a convolution from C to O channels. */
static void compare_weight_gradient(int64_t N, int64_t H, int64_t C, int64_t O)
{
    op_env env = { .ctx = ctx, .dev = cpu, .ranks = 1 };
    int64_t in = N * H * H * C, out = N * H * H * O, all = O * 9 * C;
    op_args a = { .attr = { .stride = 1, .pad = 1 } };
    float *x = random_floats(in, 1, 1), *dy = random_floats(out, 2, sqrtf(1.0f / (float)(N * H * H)));
    float *want = malloc((size_t)all * sizeof *want), *got = malloc((size_t)all * sizeof *got);
    for (int i = 0; i < OP_INPUTS; i++) a.in[i].ndim = -1;
    for (int i = 0; i < OP_OUTPUTS; i++) a.out[i].ndim = -1;
    a.in[0] = TENSOR(CLOOB_F32, dy, N, H, H, O);
    a.in[1] = TENSOR(CLOOB_F32, x, N, H, H, C);
    a.out[0] = TENSOR(CLOOB_F32, want, O, 3, 3, C);
    run_ref(OP_CONV2D_DW, a);
    const op_kernel *k = op_find_kernel(BACKEND_CPU, OP_CONV2D_DW);
    CHECK_OK(ctx, k->prepare(&env, &a));
    a.scratch = aligned_alloc(256, (a.scratch_bytes + 511) / 256 * 256);
    a.out[0].data = got;
    for (int round = 0; round < 2; round++) CHECK_OK(ctx, k->run(&env, &a));
    CHECK(worst(got, want, all) < 2e-5); /* as above */
    k->release(&env, &a);
    free(x), free(dy), free(want), free(got), free(a.scratch);
}

static void training_follows_weights_and_gradients(void)
{
    training = true;
    compare(2, 14, 32, 48, false);
    compare(1, 7, 64, 32, false);
    compare_gradient(2, 14, 32, 48);
    compare_gradient(1, 7, 48, 64);
    compare_gradient(8, 28, 16, 32);
    compare_gradient(3, 5, 64, 16);
    compare_weight_gradient(2, 14, 32, 48);
    compare_weight_gradient(1, 7, 48, 64);
    compare_weight_gradient(9, 56, 16, 32); /* several chunks of tiles */
    compare_weight_gradient(3, 5, 64, 16);
    training = false;
}

/* got: the last of N images. */
static void last_image(int64_t N, int64_t H, int64_t C, int64_t O, float *got)
{
    int64_t in = H * H * C, out = H * H * O;
    op_args a = { .attr = { .stride = 1, .pad = 1, .relu = true } };
    float *x = malloc((size_t)(N * in) * sizeof *x), *y = malloc((size_t)(N * out) * sizeof *y),
          *one = random_floats(in, 4, 1), *w = random_floats(O * 9 * C, 5, 0.1f), *b = random_floats(O, 6, 1);
    for (int64_t i = 0; i < N * in; i++) x[i] = i < (N - 1) * in ? (float)(i % 7) : one[i - (N - 1) * in];
    for (int i = 0; i < OP_INPUTS; i++) a.in[i].ndim = -1;
    for (int i = 0; i < OP_OUTPUTS; i++) a.out[i].ndim = -1;
    a.in[0] = TENSOR(CLOOB_F32, x, N, H, H, C);
    a.in[1] = TENSOR(CLOOB_F32, w, O, 3, 3, C);
    a.in[2] = TENSOR(CLOOB_F32, b, O);
    a.out[0] = TENSOR(CLOOB_F32, NULL, N, H, H, O);
    run_cpu(OP_CONV2D, a, y);
    memcpy(got, y + (N - 1) * out, (size_t)out * sizeof *got);
    free(x), free(y), free(one), free(w), free(b);
}

static void an_image_has_the_same_bytes_in_any_batch(void)
{
    static const int64_t sides[] = { 56, 14, 7 }; /* chunks of tiles, tiles of 4 x 4, tiles of 2 x 2 */
    invariant = true;
    for (int i = 0; i < 3; i++) {
        int64_t H = sides[i], C = 32, O = 32, out = H * H * O;
        float *alone = malloc((size_t)out * sizeof *alone), *among = malloc((size_t)out * sizeof *among);
        last_image(1, H, C, O, alone);
        last_image(7, H, C, O, among);
        CHECK(memcmp(alone, among, (size_t)out * sizeof *alone) == 0);
        free(alone), free(among);
    }
    invariant = false;
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    CHECK_OK(ctx, device_open(ctx, "cpu", &cpu));
    RUN(images_are_those_of_the_definition);
    RUN(training_follows_weights_and_gradients);
    RUN(an_image_has_the_same_bytes_in_any_batch);
    device_close(cpu);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
