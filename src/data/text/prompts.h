/* Prompt sets for zero-shot classification: class names, templates and the score to report, by name.
 *
 *     {"NAME": {"classes": ["cat", ["happy", "smiling"]],
 *               "templates": ["a photo of a {}."],
 *               "metric": "accuracy"}}
 *
 * A class is a name or a list of names that mean the same; metric is accuracy (the default) or
 * mean_per_class. Sets are found by name whatever the case, spaces, dashes and underscores: "cifar-10" is
 * CIFAR10. Refused, with the set's name in the message: no classes, no templates, a template without {},
 * empty names, two sets that would be found by one name. Two classes may share a name, since ImageNet has
 * that. */
#ifndef DATA_TEXT_PROMPTS_H
#define DATA_TEXT_PROMPTS_H

#include "core/arena.h"
#include "core/ctx.h"
#include "core/sbuf.h"

typedef enum prompt_metric { PROMPT_ACCURACY, PROMPT_MEAN_PER_CLASS } prompt_metric;

typedef struct prompt_list {
    const char **item;
    int64_t count;
} prompt_list;

typedef struct prompt_set {
    const char *name;
    prompt_list *classes; /* (class_count): the names of each class, the first to be shown */
    int64_t class_count;
    prompt_list templates;
    prompt_metric metric;
} prompt_set;

typedef struct cloob_prompts { /* cloob_zeroshot takes it, too */
    prompt_set *set;
    int64_t count, room;
    arena memory; /* what everything above points into */
} prompts;

/* From a JSON file, or its text. On failure *out is empty and needs no release. */
cloob_status prompts_open(cloob_ctx *ctx, const char *path, prompts *out);
cloob_status prompts_parse(cloob_ctx *ctx, const char *text, size_t size, const char *name, prompts *out);

/* From files as people publish them: Markdown with a heading per set and Python lists `classes` and
 * `templates` in a code block, notebooks and Python files with `NAME_classes` and `NAME_templates`, and
 * folders of CLIP_benchmark (classnames.txt, zeroshot_classification_templates.txt). Several
 * files make one collection. */
cloob_status prompts_import(cloob_ctx *ctx, const char *const *path, int64_t n, prompts *out);
/* One file's text; name is for messages and decides nothing. Adds to out, which may be zero-initialised. */
cloob_status prompts_import_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, prompts *out);

void prompts_release(prompts *p);

void prompts_put(const prompts *p, sbuf *out); /* as prompts_parse reads it */
cloob_status prompts_save(cloob_ctx *ctx, const prompts *p, const char *path);

/* The set of that name; where there is none the error names those there are. */
cloob_status prompts_find(cloob_ctx *ctx, const prompts *p, const char *name, const prompt_set **out);

/* Appends the template with every {} replaced. */
void prompt_fill(const char *template, const char *class_name, sbuf *out);

/* ---- for the files that make sets ------------------------------------------------------------------ */

/* Adds a checked set; the strings must live in out->memory. where is for messages. */
cloob_status prompts_add(cloob_ctx *ctx, prompts *out, const char *where, const prompt_set *set);
/* Adds a string to a list whose array grows in the arena. False: out of memory. */
bool prompt_list_add(arena *a, prompt_list *l, const char *text);

#endif
