/* Settings in files: params.txt, lines of "key: value" as open_clip writes them, and settings.json, which
 * `cloob train --settings` and `--resume` read. A file cannot name a command to run. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/json.h"
#include "core/needs.h"
#include "core/text.h"
#include "data/sets/dataset.h"
#include "train/checkpoint.h"
#include "train/settings.h"

struct run_settings {
    cloob_train_options o;
    arena a; /* strings and lists */
    bool own_loss;
};

const cloob_train_options *run_settings_options(const run_settings *s) { return s ? &s->o : NULL; }

bool run_settings_has_own_loss(const run_settings *s) { return s->own_loss; }

void run_settings_close(run_settings *s)
{
    if (!s) return;
    arena_release(&s->a);
    free(s);
}

/* ---- params.txt ---------------------------------------------------------------------------------- */

void settings_put(sbuf *out, const cloob_train_options *o, settings_part part)
{
    int64_t count;
    const option_desc *table = train_option_table(&count);
    for (int64_t i = 0; i < count; i++) {
        if (part == SETTINGS_LEARNING && !table[i].learns) continue;
        if (part == SETTINGS_ALL && table[i].offset == offsetof(cloob_train_options, max_steps)) continue;
        char *text = option_get(&table[i], o);
        sbuf_printf(out, "%s: %s\n", table[i].name, text ? text : "");
        if (!text) out->failed = true;
        free(text);
    }
}

/* ---- settings.json ------------------------------------------------------------------------------- */

static void put_words(json_out *w, const option_desc *d, const void *at)
{
    const char *const *item = *(const char *const *const *)at;
    int64_t count = *(const int64_t *)((const char *)at + sizeof item);
    json_begin(w, d->name, '[');
    for (int64_t i = 0; i < count; i++) json_put_text(w, NULL, item[i]);
    json_end(w);
}

static void put_value(json_out *w, const option_desc *d, const cloob_train_options *o)
{
    const void *at = (const char *)o + d->offset;
    bool several = d->type == OPTION_NUMBERS_3 || d->type == OPTION_NUMBERS_4;
    char *text = option_get(d, o), *rest = text;
    if (d->type == OPTION_FLAG) json_put_bool(w, d->name, *(const bool *)at);
    else if (d->type == OPTION_CHAR) json_put_text(w, d->name, (char[]){ *(const char *)at, '\0' });
    else if (d->type == OPTION_STRING) json_put_text(w, d->name, *(const char *const *)at);
    else if (d->type == OPTION_LIST) put_words(w, d, at);
    else if (!text) w->failed = true;
    else if (strcmp(text, "auto") == 0) json_put_text(w, d->name, text);
    else if (!several) json_put_raw(w, d->name, text, strlen(text));
    else {
        json_begin(w, d->name, '[');
        for (char *number; (number = strsep(&rest, " "));) json_put_raw(w, NULL, number, strlen(number));
        json_end(w);
    }
    free(text);
}

/* Settings of one session, which are not stored. */
static bool is_of_session(const option_desc *d)
{
    return d->offset == offsetof(cloob_train_options, name) || d->offset == offsetof(cloob_train_options, resume) ||
           d->offset == offsetof(cloob_train_options, max_steps);
}

void settings_put_json(json_out *w, const char *key, const cloob_train_options *o)
{
    int64_t count;
    const option_desc *table = train_option_table(&count);
    json_begin(w, key, '{');
    for (int64_t i = 0; i < count; i++)
        if (!is_of_session(&table[i])) put_value(w, &table[i], o);
    if (o->loss) json_put_bool(w, SETTINGS_OWN_LOSS, true);
    json_end(w);
}

/* The text that option_set takes; NULL: no such value, or no memory. */
static const char *text_of(run_settings *s, const json *v)
{
    sbuf joined = { 0 };
    bool flag;
    if (json_bool(v, &flag)) return flag ? "True" : "False";
    if (v->kind == JSON_NUMBER || v->kind == JSON_STRING) return arena_string(&s->a, v->text);
    bool numbers = v->kind == JSON_ARRAY;
    for (const json *e = json_first(v); e && numbers; e = json_next(e)) {
        numbers = e->kind == JSON_NUMBER;
        if (numbers) sbuf_printf(&joined, "%s%s", joined.len ? " " : "", e->text);
    }
    const char *text = numbers && joined.data && !joined.failed ? arena_string(&s->a, joined.data) : NULL;
    sbuf_release(&joined);
    return text;
}

static cloob_status set_words(cloob_ctx *ctx, const option_desc *d, run_settings *s, const json *v,
                              cloob_train_options *o)
{
    struct {
        const char *const *item;
        int64_t count;
    } list = { 0 };
    const char **item = arena_push(&s->a, (size_t)(json_count(v) + 1) * sizeof *item);
    if (!item) return ctx_no_memory(ctx, 1, d->name);
    for (const json *e = json_first(v); e; e = json_next(e)) {
        item[list.count] = json_string(e) ? arena_string(&s->a, json_string(e)) : NULL;
        if (!item[list.count++])
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "`%s` in the file of settings must be a list of texts", d->name);
    }
    list.item = item;
    memcpy((char *)o + d->offset, &list, sizeof list);
    return CLOOB_OK;
}

static cloob_status set_member(cloob_ctx *ctx, const char *path, run_settings *s, const json *v, cloob_train_options *o)
{
    char must[256];
    int64_t count;
    const option_desc *table = train_option_table(&count), *d = option_find(table, count, json_key(v));
    if (strcmp(json_key(v), SETTINGS_OWN_LOSS) == 0) {
        s->own_loss = true;
        return CLOOB_OK;
    }
    if (!d)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s is not a setting of training; `cloob help train` lists them",
                        path, json_key(v));
    if (v->kind == JSON_NULL) return CLOOB_OK;
    if (d->type == OPTION_LIST && v->kind == JSON_ARRAY) return set_words(ctx, d, s, v, o);
    const char *text = text_of(s, v);
    if (text && d->type == OPTION_STRING && dataset_runs_commands(ctx, text)) text = SETTINGS_COMMAND;
    if (text && option_set(d, o, text)) return CLOOB_OK;
    option_rule(d, must, sizeof must);
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s %s", path, d->name, must);
}

/* Defaults, except that strings are NULL: null in the file must not become a default. */
static void begin(cloob_train_options *o)
{
    int64_t count;
    const option_desc *table = train_option_table(&count);
    cloob_train_options_init(o);
    for (int64_t i = 0; i < count; i++)
        if (table[i].type == OPTION_STRING) *(const char **)(void *)((char *)o + table[i].offset) = NULL;
}

static cloob_status load(cloob_ctx *ctx, const char *path, run_settings *s, cloob_train_options *o)
{
    json *root;
    CLOOB_TRY(json_read_file(ctx, &s->a, path, &root));
    if (root->kind != JSON_OBJECT)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: must be a JSON object of settings, such as {\"lr\": 1e-3}", path);
    const char *preset = json_string(json_get(root, "preset"));
    if (preset) CLOOB_TRY(preset_apply(ctx, preset, o));
    for (const json *v = json_first(root); v; v = json_next(v))
        if (!preset || strcmp(json_key(v), "preset") != 0) CLOOB_TRY(set_member(ctx, path, s, v, o));
    return CLOOB_OK;
}

cloob_status settings_load(cloob_ctx *ctx, const char *path, cloob_train_options *o, run_settings **keep)
{
    run_settings *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, path);
    if (!o) begin(o = &s->o);
    cloob_status status = load(ctx, path, s, o);
    if (status == CLOOB_OK) *keep = s;
    else run_settings_close(s);
    return status;
}

/* ---- a run by its name --------------------------------------------------------------------------- */

/* The folder that `resume` names: LOGS/NAME, or a path. */
static bool find_run(const char *logs, const char *resume, char folder[RESUME_PATH])
{
    snprintf(folder, RESUME_PATH, "%s%s%s", logs, text_ends_with(logs, "/") ? "" : "/", resume);
    if (!strchr(resume, '/') && file_is_dir(folder)) return true;
    snprintf(folder, RESUME_PATH, "%s", resume);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/';) folder[--n] = '\0';
    return file_is_dir(folder);
}

/* Sets the options that resume the run: weights and model come from the checkpoint; the device may differ. */
static cloob_status set_resume(cloob_ctx *ctx, const char *folder, run_settings *s)
{
    char real[PATH_MAX];
    const char *last = strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder;
    bool dots = strcmp(last, ".") == 0 || strcmp(last, "..") == 0;
    if (dots && realpath(folder, real)) folder = real; /* a real name */
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
    if (!find_run(logs, resume, folder)) {
        if (strchr(resume, '/') || file_exists(resume)) return CLOOB_OK; /* a checkpoint */
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s%s%s: no such run to resume; check `logs`, or give a checkpoint's path",
                        logs, text_ends_with(logs, "/") ? "" : "/", resume);
    }
    snprintf(path, sizeof path, "%s/settings.json", folder);
    if (!file_exists(path))
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: no such file, so %s is not a run that can be resumed", path, folder);
    CLOOB_TRY(settings_load(ctx, path, NULL, out));
    return set_resume(ctx, folder, *out);
}

static bool same_value(const option_desc *d, const void *a, const void *b)
{
    char *x = option_get(d, a), *y = option_get(d, b);
    bool same = x && y && strcmp(x, y) == 0;
    free(x), free(y);
    return same;
}

cloob_status run_settings_apply(cloob_ctx *ctx, cloob_train_options *o, run_settings **run)
{
    static const char *const of_run[] = { "resume", "name", "logs" };
    cloob_train_options defaults;
    int64_t n;
    const option_desc *table = train_option_table(&n);
    *run = NULL;
    if (!o->resume) return CLOOB_OK;
    cloob_train_options_init(&defaults);
    CLOOB_TRY(run_settings_open(ctx, o->logs ? o->logs : defaults.logs, o->resume, run));
    if (!*run) return CLOOB_OK;
    for (int64_t i = 0; i < n; i++) {
        bool take = same_value(&table[i], o, &defaults);
        for (size_t k = 0; k < sizeof of_run / sizeof *of_run; k++) take |= strcmp(table[i].name, of_run[k]) == 0;
        if (take) option_copy(&table[i], run_settings_options(*run), o);
    }
    if (o->batch_size != run_settings_options(*run)->batch_size) o->global_batch_size = 0;
    return CLOOB_OK;
}
