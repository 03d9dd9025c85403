/* The public prompt sets. */
#include "cloob/prompts.h"

#include <stdlib.h>

#include "core/file.h"
#include "data/text/prompts.h"
#include "core/needs.h"

static cloob_status keep(cloob_ctx *ctx, prompts *p, cloob_prompts **out)
{
    *out = malloc(sizeof **out);
    if (*out) {
        **out = *p;
        return CLOOB_OK;
    }
    prompts_release(p);
    return ctx_no_memory(ctx, sizeof **out, "prompt sets");
}

cloob_status cloob_prompts_open(cloob_ctx *ctx, const char *path, cloob_prompts **out)
{
    API_NEEDS(ctx, path && out);
    prompts p;
    *out = NULL;
    CLOOB_TRY(prompts_open(ctx, path, &p));
    return keep(ctx, &p, out);
}

cloob_status cloob_prompts_import(cloob_ctx *ctx, const char *const *path, int64_t n, cloob_prompts **out)
{
    API_NEEDS(ctx, path && out && n >= 0);
    prompts p;
    *out = NULL;
    CLOOB_TRY(prompts_import(ctx, path, n, &p));
    return keep(ctx, &p, out);
}

cloob_status cloob_prompts_save(cloob_ctx *ctx, const cloob_prompts *p, const char *path)
{
    API_NEEDS(ctx, p && path);
    sbuf text = { 0 };
    prompts_save(p, &text);
    return file_write_text(ctx, path, &text);
}

void cloob_prompts_close(cloob_prompts *p)
{
    if (!p) return;
    prompts_release(p);
    free(p);
}

cloob_status cloob_prompts_find(cloob_ctx *ctx, const cloob_prompts *p, const char *name, int64_t *set)
{
    API_NEEDS(ctx, p && set);
    const prompt_set *found;
    CLOOB_TRY(prompts_find(ctx, p, name, &found));
    *set = found - p->set;
    return CLOOB_OK;
}

int64_t cloob_prompts_count(const cloob_prompts *p) { return p ? p->count : 0; }

/* NULL beyond the end: the getters below give nothing then. */
static const prompt_set *set_at(const cloob_prompts *p, int64_t set)
{
    return p && set >= 0 && set < p->count ? &p->set[set] : NULL;
}

const char *cloob_prompts_name(const cloob_prompts *p, int64_t set)
{
    const prompt_set *s = set_at(p, set);
    return s ? s->name : NULL;
}

bool cloob_prompts_mean_per_class(const cloob_prompts *p, int64_t set)
{
    const prompt_set *s = set_at(p, set);
    return s && s->metric == PROMPT_MEAN_PER_CLASS;
}

int64_t cloob_prompts_classes(const cloob_prompts *p, int64_t set)
{
    const prompt_set *s = set_at(p, set);
    return s ? s->class_count : 0;
}

int64_t cloob_prompts_templates(const cloob_prompts *p, int64_t set)
{
    const prompt_set *s = set_at(p, set);
    return s ? s->templates.count : 0;
}
