/* A run's settings back out of its params.txt. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/text.h"
#include "core/needs.h"
#include "data/sets/dataset.h"
#include "train/resume.h"
#include "train/settings.h"
#include "core/option.h"

enum { MAX_ITEMS = 64 }; /* of a list */

struct run_settings {
    cloob_train_options o;
    arena a; /* strings and lists */
};

/* "scale=(0.5, 1.0) flip_prob=0.5": an item begins where a word with an equals sign does. */
static bool begins_item(const char *at)
{
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
    return n > 0 && at[n] == '=';
}

static cloob_status set_list(cloob_ctx *ctx, const option_desc *o, run_settings *s, char *value)
{
    int64_t count = 0;
    const char **item = arena_push(&s->a, MAX_ITEMS * sizeof *item);
    if (!item) return ctx_no_memory(ctx, MAX_ITEMS * sizeof *item, o->name);
    for (char *at = value; *at && count < MAX_ITEMS; at++)
        if (at == value || (at[-1] == ' ' && begins_item(at))) {
            if (at > value) at[-1] = '\0';
            item[count++] = at;
        }
    struct {
        const char *const *item;
        int64_t count;
    } list = { item, count };
    memcpy((char *)&s->o + o->offset, &list, sizeof list);
    return CLOOB_OK;
}

static cloob_status set_line(cloob_ctx *ctx, const char *path, char *line, run_settings *s)
{
    int64_t n;
    const option_desc *table = train_option_table(&n);
    char *colon = strstr(line, ": ");
    if (!colon) return CLOOB_OK;
    *colon = '\0';
    char *value = colon + 2;
    /* Before schedule_steps there was, max_steps was both. */
    const char *key = strcmp(line, "max_steps") == 0 ? "schedule_steps" : line;
    const option_desc *option = option_find(table, n, key);
    if (!option || strcmp(value, "None") == 0) return CLOOB_OK; /* a fact about the run; or nothing was set */
    if (option->type == OPTION_LIST) return set_list(ctx, option, s, value);
    if (option->type == OPTION_STRING && dataset_runs_commands(ctx, value)) value = SETTINGS_COMMAND;
    if (option_set(option, &s->o, value)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s cannot be %s", path, line, value);
}

/* Every option as its default, but strings as none: what says None in the file must not be the default. */
static void begin(cloob_train_options *o)
{
    int64_t n;
    const option_desc *table = train_option_table(&n);
    cloob_train_options_init(o);
    for (int64_t i = 0; i < n; i++)
        if (table[i].type == OPTION_STRING) *(const char **)(void *)((char *)o + table[i].offset) = NULL;
}

static cloob_status fill(cloob_ctx *ctx, const char *path, run_settings *s)
{
    file_bytes bytes;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &bytes));
    char *rest = arena_string(&s->a, bytes.data); /* files end with a zero */
    file_bytes_release(&bytes);
    if (!rest) return ctx_no_memory(ctx, 1, path);
    begin(&s->o);
    for (char *line; (line = strsep(&rest, "\n"));) CLOOB_TRY(set_line(ctx, path, line, s));
    return CLOOB_OK;
}

cloob_status settings_read(cloob_ctx *ctx, const char *path, run_settings **out)
{
    run_settings *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, path);
    cloob_status status = fill(ctx, path, s);
    if (status == CLOOB_OK) *out = s;
    else run_settings_close(s);
    return status;
}

const cloob_train_options *run_settings_options(const run_settings *s) { return s ? &s->o : NULL; }

void run_settings_close(run_settings *s)
{
    if (!s) return;
    arena_release(&s->a);
    free(s);
}

/* ---- a run by its name --------------------------------------------------------------------------- */

/* The folder that `resume` names, as LOGS/NAME or itself. */
static bool find_run(const char *logs, const char *resume, char folder[RESUME_PATH])
{
    snprintf(folder, RESUME_PATH, "%s%s%s", logs, text_ends_with(logs, "/") ? "" : "/", resume);
    if (!strchr(resume, '/') && file_is_dir(folder)) return true;
    snprintf(folder, RESUME_PATH, "%s", resume);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/';) folder[--n] = '\0';
    return file_is_dir(folder);
}

static cloob_status no_run(cloob_ctx *ctx, const char *logs, const char *resume)
{
    if (strchr(resume, '/') || file_exists(resume)) return CLOOB_OK; /* a checkpoint */
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s%s%s: no such run to resume; check `logs`, or give a checkpoint's path", logs,
                    text_ends_with(logs, "/") ? "" : "/", resume);
}

static bool ends_in_dots(const char *folder)
{
    const char *slash = strrchr(folder, '/'), *last = slash ? slash + 1 : folder;
    return strcmp(last, ".") == 0 || strcmp(last, "..") == 0;
}

/* Ready to go on with: the checkpoint has the weights and knows its model; the device may be another. */
static cloob_status go_on(cloob_ctx *ctx, const char *folder, run_settings *s)
{
    char real[PATH_MAX];
    if (ends_in_dots(folder) && realpath(folder, real)) folder = real; /* its name is its own, not . or .. */
    char *logs = arena_string(&s->a, folder), *slash = logs ? strrchr(logs, '/') : NULL;
    if (!logs) return ctx_no_memory(ctx, strlen(folder), folder);
    if (slash) *slash = '\0';
    s->o.logs = slash ? logs : ".";
    s->o.name = slash ? slash + 1 : logs;
    s->o.resume = "latest";
    s->o.pretrained = NULL;
    s->o.model = "auto";
    if (s->o.device && strncmp(s->o.device, "cuda", 4) == 0) s->o.device = "auto";
    return CLOOB_OK;
}

cloob_status run_settings_open(cloob_ctx *ctx, const char *logs, const char *resume, run_settings **out)
{
    char folder[RESUME_PATH], path[RESUME_PATH + 16];
    API_NEEDS(ctx, logs && resume && out);
    *out = NULL;
    if (strcmp(resume, "latest") == 0) return CLOOB_OK;
    if (!find_run(logs, resume, folder)) return no_run(ctx, logs, resume);
    snprintf(path, sizeof path, "%s/params.txt", folder);
    if (!file_exists(path))
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: no such file, so %s is no run that could be resumed", path, folder);
    CLOOB_TRY(settings_read(ctx, path, out));
    return go_on(ctx, folder, *out);
}
