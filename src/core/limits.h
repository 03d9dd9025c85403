/* Limits and measurements of this process: address space, threads, memory used so far, time. */
#ifndef CORE_LIMITS_H
#define CORE_LIMITS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cloob/types.h"

/* The largest useful number of CPU threads: four per core, at least 64. */
int limits_max_threads(void);

/* How many of `wanted` threads, including the caller, can run at the same time: starts them to find out. At least 1. */
int limits_threads_possible(int wanted);

/* Whether ulimit -v or -d limits the memory of the process. */
bool limits_memory(void);

/* Bytes that can still be mapped under those limits; SIZE_MAX without one. */
size_t limits_memory_left(void);

/* The largest resident size of this process, for benchmarks and tests of memory. */

/* Peak bytes since the start of the process or peak_reset. Unlike getrusage's, not inherited from the parent process. 0
 * if the system does not report it. */
int64_t peak_bytes(void);

/* Restarts the measurement. When the system does not support it, peak_bytes still counts from the start. */
void peak_reset(void);

/* Seconds of the monotonic clock, from an arbitrary start. */
double clock_seconds(void);
/* A condition variable on that clock. The wait returns false at `until`. */
void clock_cond_init(pthread_cond_t *c);
bool clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, double until);

/* ---- this build and this processor ---------------------------------------------------------------- */

/* An optional library that the build looked for. */
typedef struct build_part {
    const char *name; /* "JPEG" */
    bool present;
    const char *use; /* what needs it */
} build_part;

/* All of them; static memory. */
const build_part *build_parts(int64_t *count);

/* The instruction sets of this processor that kernels use, separated by blanks: "avx2 avx512 vnni". */
const char *instruction_sets(void);

#endif
