/* The table of kernels, and the choice among them. */
#include "tensor/cpu/gemm_kernels.h"

/* Of each kind the fastest first; the plain one runs everywhere. */
static const gemm_kernel *const table[] = {
#ifdef __x86_64__
    &gemm_f32_avx512,     &gemm_f32_avx2,    &gemm_bf16_amx, &gemm_bf16_avx512,    &gemm_bf16_avx2,
    &gemm_i8_avx512_vnni, &gemm_i8_avx_vnni, &gemm_i8_avx2,  &gemm_i8_groups_avx2,
#endif
    &gemm_f32_plain,      &gemm_bf16_plain,  &gemm_i8_plain, &gemm_i8_groups_plain
};

enum { KERNELS = sizeof table / sizeof *table };

const gemm_kernel *gemm_kernel_at(int i) { return i < KERNELS ? table[i] : NULL; }

bool gemm_usable(const gemm_kernel *kernel) { return !kernel->usable || kernel->usable(); }

const gemm_kernel *gemm_best(gemm_kind kind)
{
    static const gemm_kernel *best[GEMM_I8_GROUPS + 1]; /* the same whoever writes it */
    const gemm_kernel *found = __atomic_load_n(&best[kind], __ATOMIC_RELAXED);
    for (int i = 0; !found && i < KERNELS; i++)
        if (table[i]->kind == kind && gemm_usable(table[i])) found = table[i];
    __atomic_store_n(&best[kind], found, __ATOMIC_RELAXED);
    return found;
}

bool gemm_is_fast(gemm_kind kind) { return gemm_best(kind)->usable != NULL; }

bool gemm_prefers_groups(void)
{
#ifdef __x86_64__
    return gemm_best(GEMM_I8) == &gemm_i8_avx2 && gemm_is_fast(GEMM_I8_GROUPS);
#else
    return false;
#endif
}
