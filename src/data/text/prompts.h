/* Prompt sets for zero-shot classification: class names, templates and the score to report, by name.
 *
 *     {"NAME": {"classes": ["cat", ["happy", "smiling"]],
 *               "templates": ["a photo of a {}."],
 *               "metric": "accuracy"}}
 *
 * A class is a name or a list of synonyms; metric is accuracy (the default) or mean_per_class. Names of sets are
 * compared without case, spaces, dashes and underscores: "cifar-10" is CIFAR10. Reading fails, with the set's name in
 * the message, for a set without classes or templates, a template without {}, an empty name, or two sets with equal
 * names. Two classes may have the same name, because ImageNet has such classes. */
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
    prompt_list *classes; /* (class_count): the names of each class; the first one is displayed */
    int64_t class_count;
    prompt_list templates;
    prompt_metric metric;
} prompt_set;

typedef struct cloob_prompts { /* public as an opaque type, see cloob_zeroshot */
    prompt_set *set;
    int64_t count, room;
    arena memory; /* memory of all members above */
} prompts;

/* Read prompts from a JSON file or from JSON text. On failure *out is empty and need not be released. */
cloob_status prompts_open(cloob_ctx *ctx, const char *path, prompts *out);
cloob_status prompts_parse(cloob_ctx *ctx, const char *text, size_t size, const char *name, prompts *out);

/* Imports prompts in their published forms: Markdown with a heading per set and Python lists `classes` and `templates`
 * in a code block; notebooks and Python files with `NAME_classes` and `NAME_templates`; and folders of CLIP_benchmark
 * (classnames.txt, zeroshot_classification_templates.txt). The sets of all files are combined. */
cloob_status prompts_import(cloob_ctx *ctx, const char *const *path, int64_t n, prompts *out);
/* Imports the text of one file and adds its sets to out, which may be zero-initialised. name is only used in
 * messages. */
cloob_status prompts_import_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, prompts *out);

void prompts_release(prompts *p);

void prompts_put(const prompts *p, sbuf *out); /* writes the JSON that prompts_parse reads */
cloob_status prompts_save(cloob_ctx *ctx, const prompts *p, const char *path);

/* Finds a set by name; fails with a list of the available names. */
cloob_status prompts_find(cloob_ctx *ctx, const prompts *p, const char *name, const prompt_set **out);

/* Appends the template with {} replaced by the class name. */
void prompt_fill(const char *template, const char *class_name, sbuf *out);

/* ---- for the readers of prompt sets --------------------------------------------------------------- */

/* Checks and adds a set, whose strings must be in out->memory. where: for messages. */
cloob_status prompts_add(cloob_ctx *ctx, prompts *out, const char *where, const prompt_set *set);
/* Adds a string to a list whose array grows in the arena. False: out of memory. */
bool prompt_list_add(arena *a, prompt_list *l, const char *text);

#endif
