/* Entries of an index by their score, filtered; shared by the protocols that search. */
#ifndef SERVE_FIND_H
#define SERVE_FIND_H

#include "serve/state.h"

typedef struct found {
    int64_t entry;
    float score; /* cosine */
} found;

typedef struct find_filter {
    float threshold;    /* scores below it are left out */
    const char *folder; /* beginning of the path; NULL: any */
    size_t folder_bytes;
    const char *name;      /* a pattern with * and ?; NULL: any */
    int64_t after, before; /* nanoseconds since 1970; 0: any */
} find_filter;

float find_dot(const float *a, const float *b, int64_t D);

/* All that pass, best first; query (D) NULL: in the index's order. The caller frees *out. */
cloob_status find_all(cloob_ctx *ctx, const cloob_search *s, const float *query, const find_filter *f, found **out,
                      int64_t *count);

/* An entry's path in a new string; NULL when memory is out. */
char *entry_name(const cloob_search *s, int64_t i);

#endif
