/* A row of an options .def as an element of a table; `base` is empty, or the member that contains the struct, with its
 * dot. */
#ifndef CORE_OPTION_ROW_H
#define CORE_OPTION_ROW_H

#include "cloob/options.h"

#define OPTION_ROW(owner, base, type, field, name, alias, fallback, range, values, learns, help)                       \
    {                                                                                                                  \
        name,     #field, alias,  CLOOB_OPTION_##type, offsetof(owner, base field),                                    \
        fallback, range,  values, CLOOB_USE_##learns,  CLOOB_OPTION_GROUP,                                             \
        help,                                                                                                          \
    },

/* A table as a public function returns it, and the defaults from it. */
#define OPTION_TABLE(table, count) option_table(table, sizeof(table) / sizeof *(table), count)
#define OPTION_DEFAULTS(table, o)  cloob_option_defaults(table, sizeof(table) / sizeof *(table), o)

static inline const cloob_option *option_table(const cloob_option *table, size_t rows, int64_t *count)
{
    if (count) *count = (int64_t)rows;
    return table;
}

#endif
