/* libcloob: CLOOB image and text encoders, in C.
 *
 * This header includes the whole public interface; each part below can also be included alone. */
#ifndef CLOOB_CLOOB_H
#define CLOOB_CLOOB_H

#include "cloob/hopfield.h"
#include "cloob/hub.h"
#include "cloob/objective.h"
#include "cloob/types.h"
#include "cloob/options.h"
#include "cloob/tokenizer.h"
#include "cloob/convert.h"
#include "cloob/data.h"
#include "cloob/train.h"
#include "cloob/trainer.h"
#include "cloob/eval.h"
#include "cloob/model.h"
#include "cloob/search.h"
#include "cloob/zeroshot.h"

#endif
