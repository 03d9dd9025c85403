/* What this build and this machine have: optional parts and instruction sets, for reports such as cloob doctor. */
#ifndef CORE_SYSTEM_H
#define CORE_SYSTEM_H

#include "cloob/types.h"

/* A library that was looked for when cloob was built. */
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
