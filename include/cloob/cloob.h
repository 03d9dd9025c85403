/* libcloob: CLOOB image and text encoders, in C.
 *
 * This header brings in all of the public interface; each part below can also be included alone. */
#ifndef CLOOB_CLOOB_H
#define CLOOB_CLOOB_H

#include "cloob/image.h"
#include "cloob/hopfield.h"
#include "cloob/objective.h"
#include "cloob/types.h"
#include "cloob/options.h"
#include "cloob/prompts.h"
#include "cloob/tokenizer.h"
#include "cloob/convert.h"
#include "cloob/data.h"
#include "cloob/sweep.h"
#include "cloob/synth.h"
#include "cloob/train.h"
#include "cloob/trainer.h"
#include "cloob/eval.h"
#include "cloob/map.h"
#include "cloob/predictions.h"
#include "cloob/benchmark.h"
#include "cloob/factors.h"
#include "cloob/ablate.h"
#include "cloob/report.h"
#include "cloob/model.h"
#include "cloob/search.h"
#include "cloob/batcher.h"
#include "cloob/bench.h"
#include "cloob/zeroshot.h"

#endif
