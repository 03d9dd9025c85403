/* A folder of files for readers that take one. It lies in memory where the system has such a place. */
#ifndef TESTS_FUZZ_SCRATCH_FOLDER_H
#define TESTS_FUZZ_SCRATCH_FOLDER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch_path[64];

static inline void scratch_remove(void)
{
    char remove_it[96];
    snprintf(remove_it, sizeof remove_it, "rm -rf '%s'", scratch_path);
    if (system(remove_it) != 0) perror(remove_it);
}

/* The same folder every time. NULL: there is none. */
static inline const char *scratch_folder(void)
{
    if (scratch_path[0]) return scratch_path;
    snprintf(scratch_path, sizeof scratch_path, "%s/cloob-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(scratch_path)) {
        scratch_path[0] = '\0';
        return NULL;
    }
    atexit(scratch_remove);
    return scratch_path;
}

static inline bool scratch_write(const char *name, const void *data, size_t size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch_path, name);
    FILE *f = fopen(path, "wb");
    bool ok = f && (size == 0 || fwrite(data, 1, size, f) == size);
    return f && fclose(f) == 0 && ok;
}

#endif
