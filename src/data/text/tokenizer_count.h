/* The words of many captions and how often each occurs: all that learning a vocabulary needs to see. */
#ifndef DATA_TEXT_TOKENIZER_COUNT_H
#define DATA_TEXT_TOKENIZER_COUNT_H

#include "core/ctx.h"
#include "data/text/tokenizer.h"

enum { COUNT_WORD_LIMIT = 256 }; /* longer words are skipped: they are rare and costly */

typedef struct caption {
    const char *at;
    size_t bytes;
} caption;

typedef struct word_count {
    const char *at;
    uint32_t bytes;
    int64_t count;
} word_count;

typedef struct word_counts {
    word_count *item; /* sorted by their bytes */
    int64_t n;
    char *text; /* what item points into */
} word_counts;

/* Cleans the captions in full and counts their words, on all threads; the result does not depend on how many.
 */
cloob_status words_count(cloob_ctx *ctx, const caption *captions, int64_t n, word_counts *out);
void word_counts_release(word_counts *w);

/* Where the file of captions and the learning of merges meet. */

/* A vocabulary of `size` ids. name is for messages. */
cloob_status tokenizer_learn(cloob_ctx *ctx, const caption *captions, int64_t n, int32_t size, const char *name,
                             tokenizer **out);

#endif
