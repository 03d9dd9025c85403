/* What the server reads of an open index beyond cloob/search.h. */
#ifndef INFER_SEARCH_H
#define INFER_SEARCH_H

#include "cloob/search.h"

/* Entry by entry: i is 0 to N - 1. */

/* The unit embeddings (count, D), in the mapped file. */
const float *search_index_rows(const cloob_search *s);
/* The path of an entry below that folder: *bytes of it, without a zero, in the mapped file. */
const char *search_index_name(const cloob_search *s, int64_t i, size_t *bytes);
/* When its file was changed last, in nanoseconds since 1970. */
int64_t search_index_mtime_ns(const cloob_search *s, int64_t i);

/* Whether `row` (D), a model's unit embedding of search_probe_image, is that of the model that made the index. */
bool search_index_made_by(const cloob_search *s, const float *row, int64_t D);
/* The vocabulary of its model; "" when stored with the weights. */
const char *search_index_vocab(const cloob_search *s);

/* rgb (S, S, 3) becomes the fixed image whose embedding tells models apart. */
void search_probe_image(int64_t S, uint8_t *rgb);

#endif
