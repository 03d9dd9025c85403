/* What a model keeps of a world whose factors are known (`cloob synth`): for every factor, can it be read off
 * the images' embeddings, by prompts and by a linear probe? An encoder that explains factors away keeps the
 * few that identify a caption and loses the others.
 *
 *     cloob_factors f;
 *     cloob_factors_measure(ctx, m, "world", 1, &f);
 *     printf("%.2f of %lld factors kept\n", f.kept, (long long)f.count);
 */
#ifndef CLOOB_FACTORS_H
#define CLOOB_FACTORS_H

#include "cloob/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CLOOB_FACTORS = 32 }; /* a world has at most so many */

typedef struct cloob_factor {
    char name[64];
    int64_t values;
    double chance;   /* the share of the commonest value among the tested images */
    double zeroshot; /* accuracy by the world's prompts */
    double probe;    /* accuracy of a linear probe */
    double kept;     /* (probe - chance) / (1 - chance), cut to 0..1: how much of it is linearly there */
} cloob_factor;

typedef struct cloob_factors {
    int64_t count, trained, tested, bad; /* factors; images for the probe, for the scores, unreadable */
    double kept;                         /* sum over factors: how many of them the embedding keeps */
    double zeroshot, probe;              /* means over factors */
    cloob_factor row[CLOOB_FACTORS];     /* in the order of factors.tsv */
} cloob_factors;

/* world: a folder of cloob synth, in either layout. Of its validation images the even ones, drawn like
 * training data, train the probe; the odd ones, combinations that training never shows, are scored. lambda:
 * of the probe; 1 is a fair choice for unit rows. Nothing to release. */
CLOOB_API cloob_status cloob_factors_measure(cloob_ctx *ctx, cloob_model *m, const char *world, double lambda,
                                             cloob_factors *out);
CLOOB_API char *cloob_factors_json(const cloob_factors *f); /* free() it; NULL when memory is out */
/* factors.json in a folder that is made when absent. */
CLOOB_API cloob_status cloob_factors_write(cloob_ctx *ctx, const cloob_factors *f, const char *folder);

#ifdef __cplusplus
}
#endif
#endif
