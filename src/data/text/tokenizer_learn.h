/* Where the file of captions and the learning of merges meet. */
#ifndef DATA_TEXT_TOKENIZER_LEARN_H
#define DATA_TEXT_TOKENIZER_LEARN_H

#include "data/text/tokenizer.h"
#include "data/text/tokenizer_count.h"

/* A vocabulary of `size` ids. name is for messages. */
cloob_status tokenizer_learn(cloob_ctx *ctx, const caption *captions, int64_t n, int32_t size, const char *name,
                             tokenizer **out);

#endif
