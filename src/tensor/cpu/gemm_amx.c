/* GEMMs with AMX tiles: bf16 by bf16 (tdpbf16ps) and bytes by bytes (tdpbusd), and the request to Linux for the
 * permission to use them. */
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tensor/cpu/gemm_kernels.h"

#define TILE_TARGET __attribute__((target("amx-tile,amx-bf16,amx-int8,avx512f,avx512bw,avx512vl,avx512dq,fma")))

/* gcc's intrinsics name only a part of the memory they read, or none: stores to it must be complete before. */
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
#define TILE_DOT_U8(c, a, b)          _tile_dpbusd(c, a, b)

#include "tensor/cpu/gemm_amx_body.h"

#if defined(__linux__) && !defined(__clang__)
/* A process must ask before its threads may use the 8 KiB of tile data (state component 18). A system that
 * does not have this call has no tiles. CPUID leaf 0x1D is not read: some virtual machines leave it empty and have
 * working tiles. */
static bool usable(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    if (!__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-bf16") ||
        !__builtin_cpu_supports("amx-int8"))
        return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#else
static bool usable(void) { return false; } /* clang 14 has no test for it */
#endif

/* Every machine with AMX has AVX512-BF16 and VNNI. */
static void transpose(uint32_t *to, const uint32_t *from) { gemm_bf16_avx512.transpose_pairs(to, from); }

static void round_u8(const uint16_t *x, int64_t groups, u8_group *to) { gemm_u8_avx512_vnni.round_u8(x, groups, to); }

const gemm_kernel gemm_bf16_amx = { AMX_KERNEL("bf16_amx", transpose), .usable = usable, .finish = gemm_finish_avx512 };
const gemm_kernel gemm_u8_amx = { AMX_U8_KERNEL("u8_amx", round_u8), .usable = usable, .finish = gemm_finish_avx512 };
