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

/* How many of `wanted` threads, the caller among them, can run at the same time; found by starting them. At least 1. */
int limits_threads_possible(int wanted);

/* Whether ulimit -v or -d limits the memory of the process. */
bool limits_memory(void);

/* Bytes that can still be mapped under those limits; SIZE_MAX without one. */
size_t limits_memory_left(void);

/* The largest resident size of this process, for benchmarks and tests of memory. */

/* Bytes, since the process began or since peak_reset. Not getrusage's: that one starts with the size of the process
 * that started this one. 0 when the system does not report it. */
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
