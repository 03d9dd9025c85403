/* What a linear layer's GEMM takes in bf16, by what cuBLASLt does on the way out: nothing, a bias (bf16 or F32), a
 * residual, both; with the weight as it is stored (out, in) and transposed; by the number of candidates timed.
 *
 *     bench_linear ROWS WIDTH        the four layers of a transformer's block
 */
#include <stdio.h>
#include <stdlib.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/libraries.h"

enum { MOST = 64, QUEUED = 2, WORKSPACE = 32 << 20 };

static cloob_ctx *ctx;
static device *dev;

typedef enum bias_kind { NO_BIAS, BIAS_BF16, BIAS_F32, BIAS_KINDS } bias_kind;
static const char *const bias_name[BIAS_KINDS] = { "", " + bias", " + bias F32" };

typedef struct product {
    int64_t m, n, k;
    bool tb, add;
    bias_kind bias;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d; /* of our x, w, y; the library is column-major, so its A is our w */
    cublasLtMatmulHeuristicResult_t algo;
    void *x, *w, *y, *res, *bias_at, *workspace;
} product;

static void fail(const char *what)
{
    fprintf(stderr, "bench_linear: %s: %s\n", what, cloob_error(ctx));
    exit(1);
}

static void *noise(cloob_dtype type, int64_t n)
{
    void *p = NULL;
    if (dev->alloc(ctx, dev, (size_t)n * dtype_size(type), "a tensor", &p) != CLOOB_OK ||
        cuda_fill_noise(ctx, dev->stream, p, type, n) != CLOOB_OK)
        fail("memory");
    return p;
}

static cloob_status run(void *user)
{
    product *p = user;
    float one = 1.0f, beta = p->add ? 1.0f : 0.0f;
    for (int i = 0; i < QUEUED; i++)
        if (cuda_lib.cublasLtMatmul(cuda_use(dev)->lt, p->op, &one, p->w, p->b, p->x, p->a, &beta,
                                    p->add ? p->res : p->y, p->d, p->y, p->d, &p->algo.algo, p->workspace,
                                    p->algo.workspaceSize, dev->stream) != CUBLAS_STATUS_SUCCESS)
            return CLOOB_ERR_DEVICE;
    return CLOOB_OK;
}

static void describe(product *p)
{
    cublasOperation_t ta = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N, tb = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    cudaDataType_t type = p->bias == BIAS_F32 ? CUDA_R_32F : CUDA_R_16BF;
    uint64_t n = (uint64_t)p->n, k = (uint64_t)p->k, m = (uint64_t)p->m;
    cuda_lib.cublasLtMatmulDescCreate(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (p->bias) {
        cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
        cuda_lib.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias_at,
                                                sizeof p->bias_at);
    }
    cuda_lib.cublasLtMatrixLayoutCreate(&p->b, CUDA_R_16BF, p->tb ? k : n, p->tb ? n : k, p->tb ? p->k : p->n);
    cuda_lib.cublasLtMatrixLayoutCreate(&p->a, CUDA_R_16BF, k, m, p->k);
    cuda_lib.cublasLtMatrixLayoutCreate(&p->d, CUDA_R_16BF, n, m, p->n);
}

static int candidates(const product *p, cublasLtMatmulHeuristicResult_t found[MOST])
{
    cublasLtMatmulPreference_t pref;
    uint64_t workspace = WORKSPACE;
    int count = 0;
    cuda_lib.cublasLtMatmulPreferenceCreate(&pref);
    cuda_lib.cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                  sizeof workspace);
    if (cuda_lib.cublasLtMatmulAlgoGetHeuristic(cuda_use(dev)->lt, p->op, p->b, p->a, p->d, p->d, pref, MOST, found,
                                                &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    cuda_lib.cublasLtMatmulPreferenceDestroy(pref);
    return count;
}

/* The best of the first 8, 32 and 64 candidates. */
static void measure(product p)
{
    static const int most[] = { 8, 32, MOST };
    cublasLtMatmulHeuristicResult_t found[MOST];
    float best = 1e9f;
    int which = -1, level = 0;
    describe(&p);
    int count = candidates(&p, found);
    printf("%6lld: %4lld -> %-4lld %-10s%-11s%-6s", (long long)p.m, (long long)p.k, (long long)p.n,
           p.tb ? "stored" : "transposed", bias_name[p.bias], p.add ? " + res" : "");
    for (int i = 0; i < MOST; i++) {
        float ms = 1e9f;
        if (i < count && found[i].state == CUBLAS_STATUS_SUCCESS) {
            p.algo = found[i];
            if (cuda_time(ctx, dev, run, &p, &ms) == CLOOB_OK && ms / QUEUED < best) best = ms / QUEUED, which = i;
        }
        if (i + 1 == most[level]) printf(" %8.4f", (double)best), level++;
    }
    printf(" ms, candidate %2d of %2d, %4.0f TFLOP/s\n", which, count,
           2.0 * (double)p.m * (double)p.n * (double)p.k / (double)best / 1e9);
    fflush(stdout);
    cuda_lib.cublasLtMatmulDescDestroy(p.op);
    cuda_lib.cublasLtMatrixLayoutDestroy(p.a);
    cuda_lib.cublasLtMatrixLayoutDestroy(p.b);
    cuda_lib.cublasLtMatrixLayoutDestroy(p.d);
}

static void layer(int64_t rows, int64_t in, int64_t out)
{
    product p = { .m = rows, .n = out, .k = in };
    void *bias[BIAS_KINDS] = { NULL, noise(CLOOB_BF16, out), noise(CLOOB_F32, out) };
    p.x = noise(CLOOB_BF16, rows * in), p.w = noise(CLOOB_BF16, in * out), p.y = noise(CLOOB_BF16, rows * out);
    p.res = noise(CLOOB_BF16, rows * out), p.workspace = noise(CLOOB_F32, WORKSPACE / 4);
    for (int i = 0; i < 2 * BIAS_KINDS; i++)
        for (int transposed = 0; transposed < 2; transposed++) {
            p.tb = !transposed, p.add = i >= BIAS_KINDS, p.bias = (bias_kind)(i % BIAS_KINDS);
            p.bias_at = bias[p.bias];
            measure(p);
        }
    void *all[] = { bias[1], bias[2], p.x, p.w, p.y, p.res, p.workspace };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) dev->free(dev, all[i]);
}

int main(int argc, char **argv)
{
    cloob_ctx_options o;
    int64_t rows = argc > 2 ? atoll(argv[1]) : 39424, width = argc > 2 ? atoll(argv[2]) : 512;
    cloob_ctx_options_init(&o);
    ctx = cloob_ctx_create(&o);
    if (device_open(ctx, "cuda", &dev) != CLOOB_OK) fail("device");
    printf("%-52s %8s %8s %8s\n", "rows: in -> out, weight, ending; candidates:", "8", "32", "64");
    layer(rows, width, 3 * width);
    layer(rows, width, width);
    layer(rows, width, 4 * width);
    layer(rows, 4 * width, width);
    device_close(dev);
    cloob_ctx_destroy(ctx);
    return 0;
}
