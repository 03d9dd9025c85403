/* What the samples of a data set are called and say, read before their images: so that every row of a file of
 * embeddings can be traced to its image and caption.
 *
 *     sample_names n;
 *     CLOOB_TRY(sample_names_read(ctx, set, samples, true, false, &n));
 *     ... n.name[i], n.caption[n.first[i]] ...
 *     sample_names_release(&n);
 */
#ifndef INFER_EMBED_NAMES_H
#define INFER_EMBED_NAMES_H

#include "data/sets/dataset.h"

/* Names and captions stand in the header of a file, which the format limits to 100 MB. */
enum { SAMPLE_NAMES_LIMIT = 64 << 20 };

typedef struct sample_names {
    int64_t samples;
    char **name;    /* (samples); NULL: left out, because all together are longer than the limit */
    char **caption; /* (first[samples]); NULL as well, or without captions */
    int64_t *first; /* (samples + 1) sample i has captions first[i] to first[i + 1] - 1 */
} sample_names;

/* captions: the first of each sample; with all, every one. A sample that cannot be read has an empty name and no
 * caption. On failure out is empty. */
cloob_status sample_names_read(cloob_ctx *ctx, const dataset *d, int64_t samples, bool captions, bool all,
                               sample_names *out);
void sample_names_release(sample_names *n);

#endif
