/* The options of data sets, out of their table. */
#include "core/option_row.h"
#include "data/sets/dataset.h"

static const cloob_option table[] = {
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(cloob_data_options, , __VA_ARGS__)
#include "cloob/data_options.def"
};

const cloob_option *cloob_data_option_table(int64_t *count) { return OPTION_TABLE(table, count); }

void dataset_options_init(dataset_options *o)
{
    *o = (dataset_options){ .num_samples = 0 };
    OPTION_DEFAULTS(table, o);
}
