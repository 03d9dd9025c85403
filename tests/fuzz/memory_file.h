/* Bytes as a file with a path, for readers that take one. */
#ifndef TESTS_FUZZ_MEMORY_FILE_H
#define TESTS_FUZZ_MEMORY_FILE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* The path of the same file every time, with new content. False: the system has no such files. */
static inline bool memory_file(const uint8_t *data, size_t size, char path[64])
{
    static int fd = -1;
    if (fd < 0) fd = memfd_create("fuzz", 0);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size) return false;
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return true;
}

#endif
