/* Lists of strings out of Python source: the literals that published prompts are written in. */
#ifndef DATA_TEXT_PROMPTS_PYTHON_H
#define DATA_TEXT_PROMPTS_PYTHON_H

#include "data/text/prompts.h"

/* One assignment `name = [...]` or `(...)`. A string inside stands for itself, a list or tuple for its
 * strings, a function `lambda c: f'a photo of a {c}.'` for 'a photo of a {}.'. */
typedef struct python_list {
    const char *name;   /* in the arena */
    prompt_list *entry; /* (count) */
    int64_t count;
} python_list;

typedef struct python_source {
    cloob_ctx *ctx;
    arena *memory;
    const char *where; /* for messages */
    const char *at, *end;
    int64_t line; /* of at, counted from 1 */
} python_source;

/* The next assignment whose name ends in classes, classnames or templates (in any case) and whose value is
 * such a list. found->name is NULL at the end. Anything else is passed over; a list that breaks off or holds
 * something else is an error with its line. */
cloob_status python_next(python_source *s, python_list *found);

#endif
