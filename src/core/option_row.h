/* A row of a .def of options as an element of a table; `base` is nothing, or the member that holds the struct, with
 * its dot. */
#ifndef CORE_OPTION_ROW_H
#define CORE_OPTION_ROW_H

#include "cloob/options.h"

#define OPTION_ROW(owner, base, type, field, name, alias, fallback, range, values, learns, help)                       \
    {                                                                                                                  \
        name,     #field, alias,  CLOOB_OPTION_##type, offsetof(owner, base field),                                    \
        fallback, range,  values, CLOOB_USE_##learns,  CLOOB_OPTION_GROUP,                                             \
        help,                                                                                                          \
    },

#endif
