/* What this build and this machine have. The table of parts is written when the build is configured
 * (cmake/parts.cmake). */
#include "core/system.h"

static const build_part parts[] = {
#define PART(name, present, use) { name, present, use },
#include "cloob_parts.inc"
#undef PART
};

const build_part *build_parts(int64_t *count)
{
    if (count) *count = (int64_t)(sizeof parts / sizeof *parts);
    return parts;
}

const char *instruction_sets(void)
{
#if defined(__x86_64__)
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16"), vnni = avx512 && __builtin_cpu_supports("avx512vnni");
#    if defined(__clang__) && __clang_major__ < 16
    bool amx = false; /* it does not know the names */
#    else
    bool amx = __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16");
#    endif
    if (amx) return "avx2 avx512 vnni bf16 amx";
    if (bf16) return vnni ? "avx2 avx512 vnni bf16" : "avx2 avx512 bf16";
    if (avx512) return vnni ? "avx2 avx512 vnni" : "avx2 avx512";
    return __builtin_cpu_supports("avx2") ? "avx2" : "x86-64 baseline";
#else
    return "portable C";
#endif
}
