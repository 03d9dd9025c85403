/* The data sets of `--datasets`: folders, folders of data sets, and text files that list them. */
#ifndef CLI_BENCHMARK_BENCHMARK_SETS_H
#define CLI_BENCHMARK_BENCHMARK_SETS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct suite_sets {
    char **folder; /* (n); owned */
    int64_t n, capacity;
    int64_t missing; /* missing data sets of the lists; the first few have been printed */
    bool failed;     /* out of memory; reported */
} suite_sets;

/* Adds the data sets of an item. False, with a line printed: there are none. */
bool suite_sets_add(suite_sets *s, const char *item, const char *split);
void suite_sets_release(suite_sets *s);

#endif
