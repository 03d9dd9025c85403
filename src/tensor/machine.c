/* The processor's name, and libraries asked for their versions. */
#include "tensor/machine.h"

#include <dlfcn.h>
#include <stdio.h>
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

/* The first member of oneDNN's own struct. */
typedef struct dnnl_numbers {
    int major, minor, patch;
} dnnl_numbers;

void machine_describe(sbuf *s)
{
    const char *(*blas)(void);
    const dnnl_numbers *(*dnnl)(void);
    put_processor(s);
#ifdef __GLIBC__
    sbuf_printf(s, "libc: glibc %s\n", gnu_get_libc_version());
#endif
    *(void **)&blas = dlsym(RTLD_DEFAULT, "openblas_get_config");
    *(void **)&dnnl = dlsym(RTLD_DEFAULT, "dnnl_version");
    if (blas) sbuf_printf(s, "blas: %s\n", blas());
    if (dnnl) sbuf_printf(s, "onednn: %d.%d.%d\n", dnnl()->major, dnnl()->minor, dnnl()->patch);
}
