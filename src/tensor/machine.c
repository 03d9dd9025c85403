/* The processor's name, and the versions of libraries. */
#include "tensor/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#    include <gnu/libc-version.h>
#endif

static void put_processor(sbuf *s)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *at = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !at) continue;
        sbuf_printf(s, "processor: %.*s\n", (int)strcspn(at + 2, "\n"), at + 2);
        break;
    }
    if (f) fclose(f);
}

/* What compilers and libraries choose loops by: the level of x86-64, and extensions beyond it. */
static void put_instructions(sbuf *s)
{
#if defined(__x86_64__) && defined(__GNUC__)
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    sbuf_printf(s, "instructions: x86-64-%s%s\n",
                v4   ? "v4"
                : v3 ? "v3"
                     : "v2",
                __builtin_cpu_supports("avx512vnni") ? " avx512vnni" : "");
#else
    sbuf_printf(s, "instructions: the compiler's\n");
#endif
}

/* file: NULL for a library that is linked. A library that is loaded on first use is loaded now: the description of a
 * machine does not depend on what was run before. */
static void *find_symbol(const char *file, const char *name)
{
    void *library = file ? dlopen(file, RTLD_LAZY | RTLD_LOCAL) : RTLD_DEFAULT;
    return file && !library ? NULL : dlsym(library, name);
}

/* Libraries that turn files into numbers, by the names of their files, which hold their versions: pixels and tokens
 * may depend on them. */
static void put_readers(sbuf *s)
{
    static const struct {
        const char *name, *symbol, *file; /* file: of a library that is loaded on first use */
    } row[] = { { "jpeg", "jpeg_read_scanlines", NULL },
                { "png", "png_read_row", NULL },
                { "webp", "WebPDecodeRGB", NULL },
                { "tiff", "TIFFReadRGBAImage", "libtiff.so.6" },
                { "heif", "heif_decode_image", "libheif.so.1" },
                { "utf8proc", "utf8proc_map", NULL } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Dl_info at;
        char path[PATH_MAX];
        void *symbol = find_symbol(row[i].file, row[i].symbol);
        if (!symbol || !dladdr(symbol, &at) || !at.dli_fname || !realpath(at.dli_fname, path)) continue;
        const char *slash = strrchr(path, '/');
        sbuf_printf(s, "%s: %s\n", row[i].name, slash ? slash + 1 : path);
    }
}

void machine_describe(sbuf *s, device *d)
{
    put_processor(s);
    put_instructions(s);
#ifdef __clang__
    sbuf_printf(s, "compiler: clang %s\n", __clang_version__);
#elif defined(__VERSION__)
    sbuf_printf(s, "compiler: gcc %s\n", __VERSION__);
#endif
#ifdef __GLIBC__
    sbuf_printf(s, "libc: glibc %s\n", gnu_get_libc_version());
#endif
    put_readers(s);
    if (d->backend == BACKEND_CUDA) machine_describe_cuda(s, d);
}
