/* The rows of model_options.def and eval_options.def. */
#ifndef INFER_OPTION_TABLES_H
#define INFER_OPTION_TABLES_H

#include "cloob/model.h"
#include "core/option.h"

const option_desc *model_option_table(int64_t *count);
const option_desc *eval_option_table(int64_t *count);
void eval_options_init(cloob_eval_options *o);

#endif
