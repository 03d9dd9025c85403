/* The table of kernels, and the choice among them. */
#include "tensor/cpu/gemm_kernels.h"

#include <stdlib.h>
#include <string.h>

/* Of each kind the fastest first; the plain one runs everywhere. */
static const gemm_kernel *const table[] = {
#ifdef __x86_64__
    &gemm_f32_avx512, &gemm_f32_avx2,       &gemm_bf16_amx, &gemm_bf16_avx512,     &gemm_bf16_avx2,
    &gemm_i8_avx2,    &gemm_i8_groups_avx2, &gemm_u8_amx,   &gemm_u8_avx512_vnni,  &gemm_u8_avx_vnni,
#elif defined(__aarch64__)
    &gemm_f32_neon,
#endif
    &gemm_f32_plain,  &gemm_bf16_plain,     &gemm_i8_plain, &gemm_i8_groups_plain, &gemm_u8_plain
};

enum { KERNELS = sizeof table / sizeof *table };

const gemm_kernel *gemm_kernel_at(int i) { return i < KERNELS ? table[i] : NULL; }

/* Kernels above the instruction set that CLOOB_CPU_LIMIT names are not used: avx2, avx_vnni or avx512. For comparisons
 * on one machine. */
static bool within_limit(const char *name)
{
    static const char *const order[] = { "avx2", "avx_vnni", "avx512", "amx" };
    const char *limit = getenv("CLOOB_CPU_LIMIT");
    int most = 3, own = 0;
    for (int i = 0; i < 4; i++) {
        if (limit && strcmp(limit, order[i]) == 0) most = i;
        if (strstr(name, order[i])) own = i;
    }
    return own <= most;
}

bool gemm_usable(const gemm_kernel *kernel)
{
    return !kernel->usable || (kernel->usable() && within_limit(kernel->name));
}

const gemm_kernel *gemm_best(gemm_kind kind)
{
    static const gemm_kernel *best[GEMM_U8 + 1]; /* the same whoever writes it */
    const gemm_kernel *found = __atomic_load_n(&best[kind], __ATOMIC_RELAXED);
    if (found) return found; /* without a store, for which threads would wait */
    for (int i = 0; !found && i < KERNELS; i++)
        if (table[i]->kind == kind && gemm_usable(table[i])) found = table[i];
    __atomic_store_n(&best[kind], found, __ATOMIC_RELAXED);
    return found;
}

bool gemm_is_fast(gemm_kind kind) { return gemm_best(kind)->usable != NULL; }
