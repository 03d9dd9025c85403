/* Makes one call of the GPU's driver fail: loaded before the C library (LD_PRELOAD), it stands between the CUDA
 * runtime, which is linked into the program and its libraries, and the driver, which the runtime looks up by name.
 *
 *     CLOOB_GPU_FAULT=memory:17    the 17th allocation of device or page-locked memory: out of memory
 *     CLOOB_GPU_FAULT=kernel:17    the 17th launch of a kernel or a graph: launch failed
 *     CLOOB_GPU_FAULT=lost:17      from the 17th launch on launches, copies and waits: an unknown error, as of a GPU that is gone
 *     ...:0                        nothing fails; CLOOB_GPU_FAULT_COUNT names a file for the count
 *
 * CLOOB_GPU_FAULT_NAMES names a file to which the names of all functions that are looked up are appended.
 *
 * Nothing is asked of the program under test, which is the normal one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int result; /* CUresult */
enum { OUT_OF_MEMORY = 2, LAUNCH_FAILED = 719, UNKNOWN = 999 };
typedef enum kind { MEMORY, KERNEL, LOST, KINDS } kind;

static const char *const names[KINDS] = { "memory", "kernel", "lost" };
static int wanted = -1;
static long fail_at;
static atomic_long calls;
static atomic_bool lost;

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("CLOOB_GPU_FAULT"), *colon = text ? strchr(text, ':') : NULL;
    for (int k = 0; colon && k < KINDS; k++)
        if (strncmp(text, names[k], (size_t)(colon - text)) == 0) wanted = k;
    if (colon) fail_at = atol(colon + 1);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("CLOOB_GPU_FAULT_COUNT");
    FILE *f = path && atomic_load(&calls) > 0 ? fopen(path, "w") : NULL; /* not by `timeout` around the program */
    if (!f) return;
    fprintf(f, "%ld\n", atomic_load(&calls));
    fclose(f);
}

static result allocates(void)
{
    if (atomic_load(&lost)) return UNKNOWN;
    return wanted == MEMORY && atomic_fetch_add(&calls, 1) + 1 == fail_at ? OUT_OF_MEMORY : 0;
}

static result launches(void)
{
    if (atomic_load(&lost)) return UNKNOWN;
    if (wanted != KERNEL && wanted != LOST) return 0;
    if (atomic_fetch_add(&calls, 1) + 1 != fail_at) return 0;
    if (wanted == LOST) atomic_store(&lost, true);
    return wanted == LOST ? UNKNOWN : LAUNCH_FAILED;
}

static result waits(void) { return atomic_load(&lost) ? UNKNOWN : 0; }

/* ---- calls that are intercepted: name, what they count as, parameters ------------------------------------- */

#define CALLS(X)                                                                                                       \
    X(cuMemAlloc, allocates, (void *a, size_t b), (a, b))                                                              \
    X(cuMemAllocHost, allocates, (void *a, size_t b), (a, b))                                                          \
    X(cuMemHostAlloc, allocates, (void *a, size_t b, unsigned c), (a, b, c))                                           \
    X(cuMemAllocAsync, allocates, (void *a, size_t b, void *c), (a, b, c))                                             \
    X(cuLaunchKernel, launches,                                                                                        \
      (void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, void *s, void **p, \
       void **x),                                                                                                      \
      (f, a, b, c, d, e, g, h, s, p, x))                                                                               \
    X(cuLaunchKernelEx, launches, (const void *a, void *f, void **p, void **x), (a, f, p, x))                          \
    X(cuGraphLaunch, launches, (void *a, void *b), (a, b))                                                             \
    X(cuStreamSynchronize, waits, (void *a), (a))                                                                      \
    X(cuEventSynchronize, waits, (void *a), (a))                                                                       \
    X(cuCtxSynchronize, waits, (void), ())                                                                             \
    X(cuMemcpyAsync, waits, (uintptr_t a, uintptr_t b, size_t n, void *s), (a, b, n, s))                               \
    X(cuMemcpyHtoDAsync, waits, (uintptr_t a, const void *b, size_t n, void *s), (a, b, n, s))                         \
    X(cuMemcpyDtoHAsync, waits, (void *a, uintptr_t b, size_t n, void *s), (a, b, n, s))

#define DEFINE(name, check, parameters, arguments)                                                                     \
    static result(*real_##name) parameters;                                                                            \
    static result own_##name parameters                                                                                \
    {                                                                                                                  \
        result r = check();                                                                                            \
        return r ? r : real_##name arguments;                                                                          \
    }
CALLS(DEFINE)

/* found: the driver's function of this name; returns what the runtime is to call. */
static void *stand_in(const char *name, void *found)
{
#define SWAP(call, check, parameters, arguments)                                                                       \
    if (strcmp(name, #call) == 0) {                                                                                    \
        memcpy(&real_##call, &found, sizeof found);                                                                    \
        result(*own) parameters = own_##call;                                                                          \
        memcpy(&found, &own, sizeof found);                                                                            \
    }
    if (found) CALLS(SWAP);
    return found;
}

typedef result find_fn(const char *name, void **found, int version, uint64_t flags, int *status);
static find_fn *real_find;

static void note_name(const char *name)
{
    const char *path = getenv("CLOOB_GPU_FAULT_NAMES");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f) return;
    fprintf(f, "%s\n", name);
    fclose(f);
}

static result own_find(const char *name, void **found, int version, uint64_t flags, int *status)
{
    result r = real_find(name, found, version, flags, status);
    note_name(name);
    find_fn *own = own_find;
    if (r != 0 || !found) return r;
    if (strcmp(name, "cuGetProcAddress") == 0)
        memcpy(found, &own, sizeof own); /* the runtime uses this one from now on */
    else *found = stand_in(name, *found);
    return r;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    static void *(*real)(void *, const char *);
    if (!real) {
        void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!found) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        memcpy(&real, &found, sizeof found);
    }
    void *found = real(handle, name);
    if (wanted < 0 || !found || strcmp(name, "cuGetProcAddress_v2") != 0) return found;
    find_fn *own = own_find;
    memcpy(&real_find, &found, sizeof found);
    memcpy(&found, &own, sizeof found);
    return found;
}
