/* Limits from getrlimit, the number of threads by starting them. */
#include "core/limits.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int limits_max_threads(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores * 4 > 64 ? (int)(cores * 4) : 64;
}

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;
} gate;

static void *wait_at(void *arg)
{
    gate *g = arg;
    pthread_mutex_lock(&g->lock);
    while (!g->open) pthread_cond_wait(&g->opened, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

int limits_threads_possible(int wanted)
{
    gate g = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false };
    int n = 0;
    pthread_t *thread = wanted > 1 ? malloc((size_t)wanted * sizeof *thread) : NULL;
    while (thread && n < wanted - 1 && pthread_create(&thread[n], NULL, wait_at, &g) == 0) n++;
    pthread_mutex_lock(&g.lock);
    g.open = true;
    pthread_cond_broadcast(&g.opened);
    pthread_mutex_unlock(&g.lock);
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    free(thread);
    return n + 1;
}

static rlim_t limit_of(int what)
{
    struct rlimit l;
    return getrlimit((__rlimit_resource_t)what, &l) == 0 ? l.rlim_cur : RLIM_INFINITY;
}

bool limits_memory(void) { return limit_of(RLIMIT_AS) != RLIM_INFINITY || limit_of(RLIMIT_DATA) != RLIM_INFINITY; }

size_t limits_memory_left(void)
{
    rlim_t limit = limit_of(RLIMIT_AS);
    unsigned long pages = 0;
    if (limit == RLIM_INFINITY) return SIZE_MAX;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%lu", &pages) != 1) pages = 0;
    if (f) fclose(f);
    size_t used = (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
    return limit > used ? (size_t)limit - used : 0;
}

/* ---- the largest size so far ----------------------------------------------------------------------- */

int64_t peak_bytes(void)
{
    char line[256];
    long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && kib == 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lld kB", &kib) != 1) kib = 0;
    if (f) fclose(f);
    return kib * 1024;
}

void peak_reset(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return;
    fputs("5", f);
    fclose(f);
}

double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void clock_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, double until)
{
    int64_t seconds = (int64_t)until;
    struct timespec t = { (time_t)seconds, (long)((until - (double)seconds) * 1e9) };
    return pthread_cond_timedwait(c, lock, &t) == 0;
}

/* ---- this build and this processor; the parts are listed by cmake/parts.cmake --------------------- */

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
