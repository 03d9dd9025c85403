/* The public model is the inner one under another name. */
#ifndef API_MODEL_HANDLE_H
#define API_MODEL_HANDLE_H

#include "cloob/model.h"
#include "infer/model_file.h"

static inline model *model_of(cloob_model *m) { return (model *)(void *)m; }
static inline const model *model_peek(const cloob_model *m) { return (const model *)(const void *)m; }

#endif
