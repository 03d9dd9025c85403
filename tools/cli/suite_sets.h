/* Which data sets `--datasets` means: folders, folders of data sets, and text files that list them. */
#ifndef CLI_BENCHMARK_BENCHMARK_SETS_H
#define CLI_BENCHMARK_BENCHMARK_SETS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct suite_sets {
    char **folder; /* (n); owned */
    int64_t n, room;
    int64_t missing; /* lines of lists that name nothing that is there; the first few have been printed */
    bool failed;     /* no memory; told */
} suite_sets;

/* Adds what an item means. False, with a line printed: it means nothing. */
bool suite_sets_add(suite_sets *s, const char *item, const char *split);
void suite_sets_release(suite_sets *s);

#endif
