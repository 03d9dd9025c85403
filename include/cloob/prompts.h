/* Prompt sets for zero-shot classification: class names and templates such as "a photo of a {}." by data set.
 *
 *     cloob_prompts *p;
 *     cloob_prompts_open(ctx, "prompts.json", &p);
 *     int64_t set;
 *     cloob_prompts_find(ctx, p, "cifar-10", &set);
 *     printf("%lld classes\n", (long long)cloob_prompts_classes(p, set));
 *
 * The file: {"NAME": {"classes": [...], "templates": [...], "metric": "accuracy" | "mean_per_class"}}. A
 * class may be a list of names that mean the same. */
#ifndef CLOOB_PROMPTS_H
#define CLOOB_PROMPTS_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_prompts cloob_prompts; /* read-only once made */

/* Reads a prompt file; what cannot be used in it is refused by name. */
CLOOB_API cloob_status cloob_prompts_open(cloob_ctx *ctx, const char *path, cloob_prompts **out);
/* Reads files as people publish them: Markdown with code blocks (CLIP's prompts.md), notebooks (its ImageNet
 * prompts), Python. */
CLOOB_API cloob_status cloob_prompts_import(cloob_ctx *ctx, const char *const *path, int64_t n, cloob_prompts **out);
CLOOB_API cloob_status cloob_prompts_save(cloob_ctx *ctx, const cloob_prompts *p, const char *path);
CLOOB_API void cloob_prompts_close(cloob_prompts *p);

/* Sets are numbered from 0; strings belong to p. */
CLOOB_API int64_t cloob_prompts_count(const cloob_prompts *p);
CLOOB_API cloob_status cloob_prompts_find(cloob_ctx *ctx, const cloob_prompts *p, const char *name, int64_t *set);
CLOOB_API const char *cloob_prompts_name(const cloob_prompts *p, int64_t set);
CLOOB_API bool cloob_prompts_mean_per_class(const cloob_prompts *p, int64_t set); /* else plain accuracy */
CLOOB_API int64_t cloob_prompts_classes(const cloob_prompts *p, int64_t set);
CLOOB_API int64_t cloob_prompts_templates(const cloob_prompts *p, int64_t set);

#ifdef __cplusplus
}
#endif
#endif
