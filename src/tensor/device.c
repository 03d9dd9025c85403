/* Host devices, and the choice between host and GPU. */
#include "tensor/device.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 };

/* calloc knows which pages are fresh from the system and leaves them untouched, so large blocks cost nothing until they
 * are used. The block's own address is kept just before the aligned one. */
static cloob_status host_alloc(cloob_ctx *ctx, device *d, size_t bytes, const char *what, void **out)
{
    (void)d;
    char *block = bytes <= SIZE_MAX - 2 * ALIGN ? calloc(1, bytes + 2 * ALIGN) : NULL;
    if (!block) return ctx_no_memory(ctx, bytes, what);
    char *aligned = block + ALIGN - (uintptr_t)block % ALIGN;
    memcpy(aligned - sizeof block, &block, sizeof block);
    *out = aligned;
    return CLOOB_OK;
}

static void host_free(device *d, void *p)
{
    char *block = NULL;
    (void)d;
    if (p) memcpy(&block, (char *)p - sizeof block, sizeof block);
    free(block);
}

static cloob_status host_copy(cloob_ctx *ctx, device *d, void *to, const void *from, size_t bytes)
{
    (void)ctx, (void)d;
    if (bytes) memmove(to, from, bytes);
    return CLOOB_OK;
}

static cloob_status host_zero(cloob_ctx *ctx, device *d, void *p, size_t bytes)
{
    (void)ctx, (void)d;
    if (bytes) memset(p, 0, bytes);
    return CLOOB_OK;
}

static cloob_status host_sync(cloob_ctx *ctx, device *d)
{
    (void)ctx, (void)d;
    return CLOOB_OK;
}

static void host_memory(device *d, size_t *total, size_t *available)
{
    (void)d;
    host_memory_read("", total, available);
}

static void host_close(device *d) { free(d); }

static cloob_status host_open(cloob_ctx *ctx, backend_kind kind, device **out)
{
    device *d = calloc(1, sizeof *d);
    if (!d) return ctx_no_memory(ctx, sizeof *d, "a device");
    *d = (device){ .backend = kind,
                   .alloc = host_alloc,
                   .free = host_free,
                   .to_device = host_copy,
                   .to_host = host_copy,
                   .copy = host_copy,
                   .zero = host_zero,
                   .sync = host_sync,
                   .memory = host_memory,
                   .close = host_close };
    strcpy(d->name, kind == BACKEND_REF ? "ref" : "cpu");
    *out = d;
    return CLOOB_OK;
}

cloob_status device_open(cloob_ctx *ctx, const char *name, device **out)
{
    if (strcmp(name, "ref") == 0) return host_open(ctx, BACKEND_REF, out);
    if (strcmp(name, "cpu") == 0) return host_open(ctx, BACKEND_CPU, out);
    if (strcmp(name, "auto") == 0)
        return device_cuda_count() > 0 ? device_open_cuda(ctx, 0, out) : host_open(ctx, BACKEND_CPU, out);
    if (strcmp(name, "cuda") == 0) return device_open_cuda(ctx, 0, out);
    if (strncmp(name, "cuda:", 5) == 0) {
        char *end;
        long index = strtol(name + 5, &end, 10);
        if (*end == '\0' && end != name + 5 && index >= 0 && index < 1024)
            return device_open_cuda(ctx, (int)index, out);
    }
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "device %s: choose auto, cpu, cuda, cuda:N or ref", name);
}

void device_close(device *d)
{
    if (d) d->close(d);
}
