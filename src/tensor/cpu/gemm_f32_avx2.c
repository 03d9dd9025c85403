/* Float by float in AVX2: up to 6 rows by 16 columns in 12 registers, two loads and a broadcast per row for two
 * multiply-adds per row. */
#include <immintrin.h>
#include <string.h>

#include "tensor/cpu/gemm_kernels.h"

#define TARGET __attribute__((target("avx2,fma")))

enum { V = 8, ROWS = 6, COLUMNS = 16, SPARSE = 8 };

/* ---- packing ------------------------------------------------------------------------------------- */

/* Eight rows of eight, transposed in place: pairs, fours, halves. */
TARGET static inline void transpose(__m256 v[V])
{
    __m256 t[V];
    for (int i = 0; i < V; i += 2) {
        t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < V; i += 4)
        for (int h = 0; h < 2; h++) {
            v[i + 2 * h] = _mm256_shuffle_ps(t[i + h], t[i + 2 + h], 0x44);
            v[i + 2 * h + 1] = _mm256_shuffle_ps(t[i + h], t[i + 2 + h], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(v[i], v[4 + i], 0x20);
        t[4 + i] = _mm256_permute2f128_ps(v[i], v[4 + i], 0x31);
    }
    for (int i = 0; i < V; i++) v[i] = t[i];
}

/* Eight elements are stored also where ld_to is 6: the next k overwrites the rest, and the last ones are copied. */
TARGET static void transpose_rows(const float *from, int64_t ld, int rows, int64_t K, float *to, int64_t ld_to)
{
    int64_t k = 0;
    int filled = ld_to < V ? (int)ld_to : V;
    for (; k + V <= K; k += V) {
        __m256 v[V];
        for (int r = 0; r < V; r++) v[r] = r < rows ? _mm256_loadu_ps(from + r * ld + k) : _mm256_setzero_ps();
        transpose(v);
        for (int i = 0; i < V; i++) {
            float row[V], *at = to + (k + i) * ld_to;
            if (ld_to >= V || (k + i) * ld_to + V <= K * ld_to) _mm256_storeu_ps(at, v[i]);
            else {
                _mm256_storeu_ps(row, v[i]);
                memcpy(at, row, (size_t)filled * sizeof *at);
            }
        }
    }
    for (; k < K; k++)
        for (int r = 0; r < filled; r++) to[k * ld_to + r] = r < rows ? from[r * ld + k] : 0;
}

/* ---- multiplying --------------------------------------------------------------------------------- */

TARGET static inline __m256i mask_of(int columns)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(columns), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

TARGET static inline __m256 load(const float *p, int columns)
{
    return columns >= V ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, mask_of(columns));
}

TARGET static inline void store(float *p, int columns, __m256 v)
{
    if (columns >= V) _mm256_storeu_ps(p, v);
    else _mm256_maskstore_ps(p, mask_of(columns), v);
}

typedef struct sums {
    __m256 left[ROWS], right[ROWS];
} sums;

TARGET static inline __attribute__((always_inline)) void add_step(sums *s, const float *panel, const float *x,
                                                                  const int rows)
{
    __m256 l = _mm256_load_ps(panel), m = _mm256_load_ps(panel + V);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        __m256 one = _mm256_broadcast_ss(x + r);
        s->left[r] = _mm256_fmadd_ps(one, l, s->left[r]);
        s->right[r] = _mm256_fmadd_ps(one, m, s->right[r]);
    }
}

/* SPARSE steps of ROWS rows, instruction by instruction. GCC moves loads up until the twelve sums no longer fit the
 * registers, and a sum that goes through memory is late for its next step. ymm12 and ymm13 hold a line of the panel,
 * ymm14 and ymm15 in turn an element of X. */
#define ROW(step, i, t)                                                                                                \
    "vbroadcastss 24*" #step "+4*" #i "(%[x]), %%ymm" #t "\n\t"                                                        \
    "vfmadd231ps %%ymm12, %%ymm" #t ", %[l" #i "]\n\t"                                                                 \
    "vfmadd231ps %%ymm13, %%ymm" #t ", %[r" #i "]\n\t"
#define STEP(step)                                                                                                     \
    "vmovaps 64*" #step "(%[p]), %%ymm12\n\t"                                                                          \
    "vmovaps 64*" #step "+32(%[p]), %%ymm13\n\t" ROW(step, 0, 14) ROW(step, 1, 15) ROW(step, 2, 14) ROW(step, 3, 15)   \
        ROW(step, 4, 14) ROW(step, 5, 15)
#define SUM(i) [l##i] "+x"(s->left[i]), [r##i] "+x"(s->right[i])

TARGET static inline __attribute__((always_inline)) void add_steps_6(sums *s, const float *panel, const float *x)
{
    typedef float lines[SPARSE * COLUMNS], elements[SPARSE * ROWS];
    __asm__(STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
            : SUM(0), SUM(1), SUM(2), SUM(3), SUM(4), SUM(5)
            : [p] "r"(panel), [x] "r"(x), "m"(*(const lines *)panel), "m"(*(const elements *)x)
            : "xmm12", "xmm13", "xmm14", "xmm15");
}

TARGET static inline __attribute__((always_inline)) void add_steps(sums *s, const float *panel, const float *x,
                                                                   const int rows)
{
    if (rows == ROWS) add_steps_6(s, panel, x);
    else
#pragma GCC unroll 8
        for (int i = 0; i < SPARSE; i++) add_step(s, panel + i * COLUMNS, x + i * ROWS, rows);
}

/* rows and fetch (lines of the next panel for SPARSE steps of K: 0, 1 or SPARSE) are constants where it is called, so
 * that the sums stay in registers. */
TARGET static inline __attribute__((always_inline)) void rows_by_panel(const gemm_block *b, const float *next,
                                                                       const int rows, const int fetch)
{
    sums s;
    const float *panel = b->b, *x = b->a;
    float *sum = b->sum;
    int64_t k = 0;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        s.left[r] = b->first ? _mm256_setzero_ps() : load(sum + r * b->ld, b->cols);
        s.right[r] = b->first || b->cols <= V ? _mm256_setzero_ps() : load(sum + r * b->ld + V, b->cols - V);
    }
    for (; k + SPARSE <= b->steps;
         k += SPARSE, panel += SPARSE * COLUMNS, x += SPARSE * ROWS, next += fetch * COLUMNS) {
#pragma GCC unroll 8
        for (int i = 0; i < fetch; i++) _mm_prefetch((const char *)(next + i * COLUMNS), _MM_HINT_T1);
        add_steps(&s, panel, x, rows);
    }
    for (; k < b->steps; k++, panel += COLUMNS, x += ROWS) add_step(&s, panel, x, rows);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        store(sum + r * b->ld, b->cols, s.left[r]);
        if (b->cols > V) store(sum + r * b->ld + V, b->cols - V, s.right[r]);
    }
}

/* The next panel comes from memory: requested by one block of rows alone, it would come faster than memory delivers and
 * delay that block, so SPARSE blocks share it where there are so many. */
#define BY(n)                                                                                                          \
    TARGET static void rows_##n(const gemm_block *b)                                                                   \
    {                                                                                                                  \
        bool shared = b->count >= SPARSE;                                                                              \
        const float *next = b->next;                                                                                   \
        if (!next || b->index >= (shared ? SPARSE : 1)) rows_by_panel(b, b->b, n, 0);                                  \
        else if (shared) rows_by_panel(b, next + b->index * (b->steps / SPARSE) * COLUMNS, n, 1);                      \
        else rows_by_panel(b, next, n, SPARSE);                                                                        \
    }
/* clang-format off */
BY(1) BY(2) BY(3) BY(4) BY(5) BY(6)
    /* clang-format on */

    static void multiply(const gemm_block *b)
{
    static void (*const by_rows[ROWS])(const gemm_block *) = { rows_1, rows_2, rows_3, rows_4, rows_5, rows_6 };
    by_rows[b->rows - 1](b);
}

static bool usable(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

const gemm_kernel gemm_f32_avx2 = { GEMM_F32_KERNEL("f32_avx2", ROWS, COLUMNS, transpose_rows), .usable = usable,
                                    .multiply = multiply };
