/* How much memory a process on this host may still take: what the kernel calls available, or less where a
 * control group limits it. */
#ifndef TENSOR_HOST_MEMORY_H
#define TENSOR_HOST_MEMORY_H

#include <stddef.h>

/* Both in bytes; 0 when the system does not say. root: where /proc and /sys are looked for, "" for the real
 * ones. */
void host_memory_read(const char *root, size_t *total, size_t *available);

/* Gives the whole pages of [data, data + bytes) back to the system if they lie inside the block, which was allocated as
 * one large piece; their content is lost. */
void host_memory_drop(const void *data, size_t bytes, const void *block, size_t block_bytes);

#endif
