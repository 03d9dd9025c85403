/* The inner part by AMX tiles (tdpbf16ps), and asking Linux for the permission to use them. */
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tensor/cpu/bgemm_kernel.h"

#define TILE_TARGET __attribute__((target("amx-tile,amx-bf16")))

/* gcc's intrinsics name only a part of the memory they read, or none: what was stored there must be out before. */
static inline const void *settled(const void *p)
{
    __asm__ volatile("" : : "r"(p) : "memory");
    return p;
}

#define TILE_CONFIGURE(config)        _tile_loadconfig(settled(config))
#define TILE_RELEASE()                _tile_release()
#define TILE_ZERO(t)                  _tile_zero(t)
#define TILE_LOAD(t, from, row_bytes) _tile_loadd(t, settled(from), row_bytes)
#define TILE_STORE(t, to, row_bytes)  _tile_stored(t, to, row_bytes)
#define TILE_DOT(c, a, b)             _tile_dpbf16ps(c, a, b)

#include "tensor/cpu/bgemm_amx_body.h"

/* Every machine with AMX has AVX512-BF16. */
static void transpose(bgemm_pair *to, const bgemm_pair *from) { bgemm_avx512.transpose(to, from); }

static void finish_tile(const bgemm_finish *f) { bgemm_avx512.finish(f); }

/* 32 steps: C tiles are loaded and stored once per 32 x 4 products; 2 blocks of rows of A are 64 KiB, within the second
 * cache. */
const bgemm_kernel bgemm_amx = { "amx_bf16", 32, configure, release, multiply, transpose, finish_tile };

#if defined(__linux__) && !defined(__clang__)
/* A process must ask before its threads may use the 8 KiB of tile data (state component 18). Where the system does not
 * know the question there are no tiles. CPUID leaf 0x1D is not asked: some virtual machines leave it empty and have
 * working tiles. */
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
    if (kernel == &bgemm_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return true;
}

const bgemm_kernel *bgemm_best(void)
{
    static const bgemm_kernel *const fastest_first[] = { &bgemm_amx, &bgemm_avx512, &bgemm_avx2 };
    for (size_t i = 0; i < sizeof fastest_first / sizeof *fastest_first; i++)
        if (bgemm_usable(fastest_first[i])) return fastest_first[i];
    return &bgemm_plain;
}
