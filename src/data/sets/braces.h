/* Names with braces, as shells and webdataset write them: "shard-{00000..01242}.tar", "{a,b}/{1..9..2}".
 *
 * A range keeps the zeros and the width its ends are written with, may run backwards and may have a step;
 * "{a..e}" runs over letters. Lists and ranges nest. "{x}" without a comma or range stays as it is. */
#ifndef DATA_SETS_BRACES_H
#define DATA_SETS_BRACES_H

#include "core/ctx.h"

enum { BRACES_LIMIT = 1 << 20 }; /* names one pattern may stand for */

typedef struct name_list {
    char **name;
    int64_t count, capacity;
} name_list;

/* Appends every name the pattern stands for, in order. A brace without its partner, or more names than the
 * limit, is CLOOB_ERR_ARGUMENT. */
cloob_status braces_expand(cloob_ctx *ctx, const char *pattern, name_list *out);

cloob_status name_list_add(cloob_ctx *ctx, name_list *list, const char *name, size_t bytes);
void name_list_release(name_list *list);

#endif
