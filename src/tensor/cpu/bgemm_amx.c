/* The inner part by AMX tiles (tdpbf16ps), and asking Linux for the permission to use them. */
#include <sys/syscall.h>
#include <unistd.h>

#include "tensor/cpu/bgemm_kernel.h"

/* The six instructions. Not by GCC's intrinsics: those of GCC 12 tell the compiler of the first 8 bytes of a configuration only,
 * and it then leaves out the rest. */
#define TILE_TARGET
#define TILE_CONFIGURE(config)        __asm__ volatile("ldtilecfg %0" ::"m"(*(config)))
#define TILE_RELEASE()                __asm__ volatile("tilerelease")
#define TILE_ZERO(t)                  __asm__ volatile("tilezero %%tmm" #t ::)
#define TILE_LOAD(t, from, row_bytes) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"((int64_t)(row_bytes)) : "memory")
#define TILE_STORE(t, to, row_bytes)  __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(to), "r"((int64_t)(row_bytes)) : "memory")
#define TILE_DOT(c, a, b)             __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

#include "tensor/cpu/bgemm_amx_body.h"

/* Every machine with AMX has AVX512-BF16. */
static void transpose(bgemm_pair *to, const bgemm_pair *from) { bgemm_avx512.transpose(to, from); }

static void finish_tile(const bgemm_finish *f) { bgemm_avx512.finish(f); }

/* 32 steps: C tiles are loaded and stored once per 32 x 4 products; 2 blocks of rows of A are 64 KiB, within the second cache. */
const bgemm_kernel bgemm_amx = { "amx_bf16", 32, configure, release, multiply, transpose, finish_tile };

#if defined(__linux__) && !defined(__clang__)
/* A process must ask before its threads may use the 8 KiB of tile data (state component 18). Where the system does not know
 * the question there are no tiles. CPUID leaf 0x1D is not asked: some virtual machines leave it empty and have working tiles. */
static bool amx_is_usable(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    if (!__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-bf16")) return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#else
static bool amx_is_usable(void) { return false; } /* clang 14 cannot ask the processor */
#endif

bool bgemm_usable(const bgemm_kernel *kernel)
{
    if (kernel == &bgemm_amx) return amx_is_usable();
    if (kernel == &bgemm_avx512) return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw");
    return true;
}

const bgemm_kernel *bgemm_best(void)
{
    if (bgemm_usable(&bgemm_amx)) return &bgemm_amx;
    return bgemm_usable(&bgemm_avx512) ? &bgemm_avx512 : &bgemm_plain;
}
