/* webdataset shards: the members of one sample are adjacent in a tar and share their name up to the first
 * dot. Every shard is indexed when the set is opened, so samples can be drawn at random and are counted
 * exactly; 32 bytes per sample stay in memory. */
#include "data/sets/dataset_web.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/json.h"
#include "core/pool.h"
#include "core/text.h"

typedef struct web_set {
    web_keys keys;
    web_sample *sample;
    bool labels;  /* a sample's text is the number of its class (`cls`), not a caption */
    bool targets; /* it is an array of numbers (`npy`), which FETCH_TARGETS reads as it is */
} web_set;

/* ---- names of members ---------------------------------------------------------------------------- */

/* "a/b.seg.PNG" has the stem "a/b" and the suffix "seg.PNG". False without one, and for hidden files. */
static bool split_name(const char *name, size_t *stem, const char **suffix)
{
    const char *base = file_base(name), *dot = strchr(base, '.');
    if (!dot || dot == base || !dot[1]) return false;
    *stem = (size_t)(dot - name);
    *suffix = dot + 1;
    return true;
}

/* Which of "jpg;png;..." the suffix is; earlier ones are preferred. -1: none. */
static int suffix_rank(const char *suffix, const char *keys)
{
    size_t n = strlen(suffix);
    int rank = 0;
    for (const char *key = keys; *key; rank++) {
        size_t k = strcspn(key, ";"), bare = strcspn(key, ";:");
        if (bare == n && strncasecmp(key, suffix, n) == 0) return rank;
        key += k + (key[k] == ';');
    }
    return -1;
}

/* ---- one shard ---------------------------------------------------------------------------------- */

typedef struct group {
    const tar_member *image, *text;
    int image_rank, text_rank;
} group;

static cloob_status finish_group(cloob_ctx *ctx, web_shard *s, const group *g)
{
    if (!g->image) {
        if (g->text) s->skipped++;
        return CLOOB_OK;
    }
    if (g->image->size > INT32_MAX || (g->text && g->text->size > INT32_MAX)) {
        s->skipped++;
        return CLOOB_OK;
    }
    if (!heap_grow(&s->sample, s->count, &s->capacity, sizeof *s->sample))
        return ctx_no_memory(ctx, (size_t)s->count * sizeof *s->sample, "the index of a shard");
    web_sample w = { .image = g->image->offset, .image_size = (int32_t)g->image->size, .text = -1 };
    if (g->text) {
        w.text = g->text->offset;
        w.text_size = (int32_t)g->text->size;
        w.text_rank = (int16_t)g->text_rank;
        s->with_text++;
    }
    s->sample[s->count++] = w;
    return CLOOB_OK;
}

static void add_to_group(group *g, const tar_member *m, const char *suffix, const web_keys *keys)
{
    int rank = suffix_rank(suffix, keys->image);
    if (rank >= 0 && (!g->image || rank < g->image_rank)) g->image = m, g->image_rank = rank;
    rank = suffix_rank(suffix, keys->text);
    if (rank >= 0 && (!g->text || rank < g->text_rank)) g->text = m, g->text_rank = rank;
}

cloob_status web_group(cloob_ctx *ctx, const tar_index *t, const web_keys *keys, web_shard *s)
{
    group g = { 0 };
    const char *last = NULL;
    size_t last_stem = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const char *name = tar_name(t, i), *suffix;
        size_t stem;
        if (!split_name(name, &stem, &suffix)) continue;
        if (!last || stem != last_stem || memcmp(name, last, stem) != 0) {
            CLOOB_TRY(finish_group(ctx, s, &g));
            g = (group){ 0 };
            last = name;
            last_stem = stem;
        }
        add_to_group(&g, &t->member[i], suffix, keys);
    }
    s->skipped += t->skipped;
    return finish_group(ctx, s, &g);
}

/* ---- all shards, side by side -------------------------------------------------------------------- */

typedef struct scan {
    fileset *files;
    const web_keys *keys;
    web_shard *shard;
    int64_t shards;
    atomic_long done;
} scan;

static cloob_status scan_shards(cloob_ctx *ctx, void *arg, int64_t begin, int64_t end, int thread)
{
    scan *job = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        tar_index t;
        CLOOB_TRY(fileset_open(ctx, job->files, (int)i));
        CLOOB_TRY(tar_open(ctx, job->files, (int)i, &t));
        cloob_status status = web_group(ctx, &t, job->keys, &job->shard[i]);
        tar_release(&t);
        CLOOB_TRY(status);
        ctx_progress(ctx, "open shards", atomic_fetch_add(&job->done, 1) + 1, job->shards, "shards");
    }
    return CLOOB_OK;
}

/* Puts the shards' samples one after the other. Where some have captions, those without are incomplete. */
static cloob_status join(cloob_ctx *ctx, dataset_part *p, web_shard *shard, int64_t n)
{
    web_set *w = p->self;
    int64_t total = 0, with_text = 0;
    for (int64_t i = 0; i < n; i++) {
        total += shard[i].count;
        with_text += shard[i].with_text;
        p->skipped += shard[i].skipped;
    }
    p->captions = with_text > 0;
    w->sample = malloc((size_t)(total ? total : 1) * sizeof *w->sample);
    if (!w->sample) return ctx_no_memory(ctx, (size_t)total * sizeof *w->sample, "the index of the shards");
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < shard[i].count; k++) {
            web_sample s = shard[i].sample[k];
            s.shard = (int32_t)i;
            if (p->captions && s.text < 0) p->skipped++;
            else w->sample[p->count++] = s;
        }
    return CLOOB_OK;
}

/* sizes.json has the number of samples of each shard. It is only compared with the counted numbers. */
static void compare_sizes(cloob_ctx *ctx, const fileset *files, const web_shard *shard)
{
    const char *first = fileset_name(files, 0);
    char path[FILE_PATH];
    arena a = { 0 };
    json *root;
    int n = snprintf(path, sizeof path, "%.*ssizes.json", (int)(file_base(first) - first), first);
    if (n < FILE_PATH && strncmp(first, "pipe:", 5) != 0 && file_exists(path) &&
        json_read_file(ctx, &a, path, &root) == CLOOB_OK)
        for (int i = 0; i < fileset_count(files); i++) {
            int64_t promised;
            const json *size = json_get(root, file_base(fileset_name(files, i)));
            if (size && json_int(size, &promised) && promised != shard[i].count)
                ctx_log(ctx, CLOOB_LOG_WARN, "%s lists %lld samples, %s has %lld", path, (long long)promised,
                        fileset_name(files, i), (long long)shard[i].count);
        }
    arena_release(&a);
}

/* ---- opening ------------------------------------------------------------------------------------- */

static cloob_status scan_all(cloob_ctx *ctx, dataset_part *p)
{
    web_set *w = p->self;
    int n = fileset_count(p->files);
    scan job = { p->files, &w->keys, calloc((size_t)n, sizeof(web_shard)), n, 0 };
    if (!job.shard) return ctx_no_memory(ctx, (size_t)n * sizeof(web_shard), "the shards");
    ctx_progress(ctx, "open shards", 0, n, "shards");
    cloob_status status = pool_try(ctx, n, 1, scan_shards, &job);
    if (status == CLOOB_OK) compare_sizes(ctx, p->files, job.shard);
    if (status == CLOOB_OK) status = join(ctx, p, job.shard, n);
    for (int i = 0; i < n; i++) free(job.shard[i].sample);
    free(job.shard);
    return status;
}

static cloob_status add_names(cloob_ctx *ctx, const name_list *names, const dataset_options *o, dataset_part *p)
{
    CLOOB_TRY(fileset_create(ctx, o->cache, &p->files));
    for (int64_t i = 0; i < names->count; i++) {
        int file;
        CLOOB_TRY(fileset_add(ctx, p->files, names->name[i], &file));
    }
    return CLOOB_OK;
}

/* ---- captions ------------------------------------------------------------------------------------ */

/* Entry `rank` of "txt;json:title": its suffix and the text after a colon (NULL: none). */
static void key_entry(const char *keys, int rank, const char **entry, size_t *n, const char **mode, size_t *mode_n)
{
    for (; rank > 0 && *keys; rank--) {
        keys += strcspn(keys, ";");
        keys += *keys == ';';
    }
    *entry = keys;
    *n = strcspn(keys, ";:");
    *mode = keys[*n] == ':' ? keys + *n + 1 : NULL;
    *mode_n = *mode ? strcspn(*mode, ";") : 0;
}

static bool blank_line(const char *line, size_t n)
{
    while (n && strchr(" \t\r\v\f", line[n - 1])) n--;
    return n == 0;
}

static cloob_status pick_line(cloob_ctx *ctx, const char *text, size_t size, uint64_t pick, stored_sample *s)
{
    s->captions = 0;
    for (int pass = 0; pass < 2; pass++) { /* counted first, then copied */
        int64_t wanted = s->captions ? (int64_t)(pick % (uint64_t)s->captions) : -1, seen = 0;
        const char *line;
        size_t n;
        for (const char *at = text; text_line(&at, text + size, &line, &n);)
            if (!blank_line(line, n) && seen++ == wanted) return stored_caption(ctx, line, n, s);
        s->captions = seen;
        if (!seen) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: empty caption", s->name.data);
    }
    return CLOOB_OK;
}

static const json *caption_value(const json *root, const char *field)
{
    static const char *const usual[] = { "caption", "captions", "text" };
    if (root->kind == JSON_ARRAY || root->kind == JSON_STRING) return field ? NULL : root;
    if (field) return json_get(root, field);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (json_get(root, usual[i])) return json_get(root, usual[i]);
    return NULL;
}

static cloob_status take_value(cloob_ctx *ctx, const json *value, const char *field, uint64_t pick, stored_sample *s)
{
    if (value && value->kind == JSON_ARRAY && value->count > 0) {
        s->captions = value->count;
        uint64_t at = pick % (uint64_t)value->count;
        value = value->child;
        while (at-- > 0) value = value->next;
    }
    const char *text = json_string(value);
    if (!text)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: its JSON has no text under \"%s\"", s->name.data,
                        field ? field : "caption");
    return stored_caption(ctx, text, strlen(text), s);
}

static cloob_status pick_json(cloob_ctx *ctx, const char *text, size_t size, const char *field, uint64_t pick,
                              stored_sample *s)
{
    arena a = { 0 };
    json *root;
    cloob_status status = json_parse(ctx, &a, text, size, s->name.data, &root);
    if (status == CLOOB_OK) status = take_value(ctx, caption_value(root, field), field, pick, s);
    arena_release(&a);
    return status;
}

static cloob_status web_caption(cloob_ctx *ctx, const web_keys *keys, int rank, const char *text, size_t size,
                                uint64_t pick, stored_sample *s)
{
    const char *entry, *mode;
    size_t n, mode_n;
    key_entry(keys->text, rank, &entry, &n, &mode, &mode_n);
    if (n == 4 && strncmp(entry, "json", 4) == 0) {
        char *field = mode ? strndup(mode, mode_n) : NULL;
        if (mode && !field) return ctx_no_memory(ctx, mode_n, "a field");
        cloob_status status = pick_json(ctx, text, size, field, pick, s);
        free(field);
        return status;
    }
    if (mode && mode_n == 5 && strncmp(mode, "lines", 5) == 0) return pick_line(ctx, text, size, pick, s);
    return stored_caption(ctx, text, size, s);
}

/* The shards a source names: braces, or every .tar of a folder in order. */
static cloob_status web_names(cloob_ctx *ctx, const char *source, name_list *names)
{
    char path[FILE_PATH];
    name_list inside = { 0 };
    if (!file_is_dir(source)) return braces_expand(ctx, source, names);
    cloob_status status = name_list_folder(ctx, &inside, source);
    for (int64_t i = 0; i < inside.count && status == CLOOB_OK; i++) {
        if (!name_is_tar(inside.name[i])) continue;
        status = file_in(ctx, source, inside.name[i], path);
        if (status == CLOOB_OK) status = name_list_add(ctx, names, path, strlen(path));
    }
    name_list_release(&inside);
    if (status == CLOOB_OK && !names->count) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no .tar files in it", source);
    return status;
}

/* ---- CLIP_benchmark's folders: SPLIT/nshards.txt, SPLIT/0.tar, ...; classnames.txt, dataset_type.txt ------- */

static const char *split_or_test(const char *split) { return split && *split ? split : "test"; }

bool web_is_benchmark(const char *folder, const char *split)
{
    char first[FILE_PATH];
    int n = snprintf(first, sizeof first, "%s/%s/0.tar", folder, split_or_test(split));
    return n < FILE_PATH && file_exists(first);
}

/* The first word of a small text file; empty when there is no such file. */
static cloob_status first_word(cloob_ctx *ctx, const char *folder, const char *name, char word[32])
{
    enum { LIMIT = 4096 };
    file_bytes f;
    char path[FILE_PATH];
    size_t n = 0;
    word[0] = '\0';
    CLOOB_TRY(file_in(ctx, folder, name, path));
    if (!file_exists(path)) return CLOOB_OK;
    CLOOB_TRY(file_read(ctx, path, LIMIT, &f));
    const char *at = f.data + strspn(f.data, " \t\r\n");
    for (; *at && !isspace((unsigned char)*at) && n < 31; at++) word[n++] = (char)tolower((unsigned char)*at);
    word[n] = '\0';
    file_bytes_release(&f);
    return CLOOB_OK;
}

/* 0.tar, 1.tar, ... the number in nshards.txt; without it every .tar of the folder. */
static cloob_status shard_names(cloob_ctx *ctx, const char *inside, name_list *names)
{
    char word[32], *end, name[32], path[FILE_PATH];
    CLOOB_TRY(first_word(ctx, inside, "nshards.txt", word));
    if (!word[0]) return web_names(ctx, inside, names);
    long long n = strtoll(word, &end, 10);
    if (*end || n < 1 || n > 10000000)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s/nshards.txt: \"%s\" is not a number of shards", inside, word);
    for (long long i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%lld.tar", i);
        CLOOB_TRY(file_in(ctx, inside, name, path));
        if (!file_exists(path))
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: nshards.txt lists %lld shards, but this one is missing", path,
                            n);
        CLOOB_TRY(name_list_add(ctx, names, path, strlen(path)));
    }
    return CLOOB_OK;
}

cloob_status web_benchmark_kind(cloob_ctx *ctx, const char *folder, web_kind *out)
{
    char word[32], classes[FILE_PATH];
    CLOOB_TRY(file_in(ctx, folder, "classnames.txt", classes));
    *out = file_exists(classes) ? WEB_CLASSES : WEB_CAPTIONS;
    CLOOB_TRY(first_word(ctx, folder, "dataset_type.txt", word));
    if (strcmp(word, "retrieval") == 0) *out = WEB_CAPTIONS;
    else if (strcmp(word, "multilabel") == 0) *out = WEB_TARGETS;
    else if (word[0] && strcmp(word, "classification") != 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s/dataset_type.txt: \"%s\" is not supported; use classification, multilabel or retrieval",
                        folder, word);
    return CLOOB_OK;
}

/* Opens such a folder: its shards, its classes, and what images have: `cls`, `npy` (dataset_type.txt is multilabel, or
 * the text key is npy) or `txt`, a caption per line. */
static cloob_status open_benchmark(cloob_ctx *ctx, const char *folder, const dataset_options *o, dataset_part *p,
                                   name_list *names)
{
    web_set *w = p->self;
    web_kind kind;
    char path[FILE_PATH];
    CLOOB_TRY(web_benchmark_kind(ctx, folder, &kind));
    w->targets = kind == WEB_TARGETS || strcmp(o->text_key, "npy") == 0;
    w->labels = kind == WEB_CLASSES && !w->targets;
    CLOOB_TRY(file_in(ctx, folder, "classnames.txt", path));
    if (kind != WEB_CAPTIONS) CLOOB_TRY(name_list_read(ctx, &p->classes, path));
    free(w->keys.text);
    w->keys.text = strdup(w->targets ? "npy" : w->labels ? "cls" : "txt:lines");
    if (!w->keys.text) return ctx_no_memory(ctx, 4, folder);
    CLOOB_TRY(file_in(ctx, folder, split_or_test(o->split), path));
    return shard_names(ctx, path, names);
}

/* The class that a `cls` member names by its number. */
static cloob_status web_label(cloob_ctx *ctx, const dataset_part *p, const char *text, stored_sample *s)
{
    char *end;
    long long label = strtoll(text, &end, 10);
    if (end == text || label < 0 || label >= p->classes.count)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: class %.20s of %lld", s->name.data, text,
                        (long long)p->classes.count);
    s->label = label;
    return CLOOB_OK;
}

/* ---- opening one set ------------------------------------------------------------------------------ */

static cloob_status open_web(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    name_list names = { 0 };
    web_set *w = p->self = calloc(1, sizeof *w);
    if (!w) return ctx_no_memory(ctx, sizeof *w, source);
    w->keys = (web_keys){ strdup(o->image_key), strdup(o->text_key) };
    if (!w->keys.image || !w->keys.text) return ctx_no_memory(ctx, strlen(source), source);
    bool benchmark = file_is_dir(source) && web_is_benchmark(source, o->split);
    cloob_status status = benchmark ? open_benchmark(ctx, source, o, p, &names) : web_names(ctx, source, &names);
    if (status == CLOOB_OK) status = add_names(ctx, &names, o, p);
    name_list_release(&names);
    if (status == CLOOB_OK) status = scan_all(ctx, p);
    p->targets = w->targets && p->captions;
    if (w->labels || w->targets) p->captions = false;
    return status;
}

static void close_web(dataset_part *p)
{
    web_set *w = p->self;
    if (!w) return;
    free(w->sample);
    free(w->keys.image);
    free(w->keys.text);
    free(w);
}

/* ---- reading ------------------------------------------------------------------------------------ */

/* The member's name is in its header, one block before the content. */
static void name_sample(cloob_ctx *ctx, const dataset_part *p, const web_sample *w, stored_sample *s)
{
    enum { BLOCK = 512, NAME_BYTES = 100 };
    char name[NAME_BYTES + 1] = "";
    if (w->image >= BLOCK) (void)fileset_read(ctx, p->files, w->shard, w->image - BLOCK, name, NAME_BYTES);
    for (char *c = name; *c; c++)
        if ((unsigned char)*c < ' ') *c = '?';
    s->name.len = 0;
    sbuf_printf(&s->name, "%s: %s", fileset_name(p->files, w->shard), name);
}

static cloob_status fetch_caption(cloob_ctx *ctx, const dataset_part *p, const web_sample *w, uint64_t pick,
                                  stored_sample *s)
{
    const web_set *set = p->self;
    size_t size = (size_t)w->text_size;
    s->scratch.len = 0;
    char *text = malloc(size + 1);
    if (!text) return ctx_no_memory(ctx, size, "a caption");
    cloob_status status = fileset_read(ctx, p->files, w->shard, w->text, text, size);
    text[status == CLOOB_OK ? size : 0] = '\0';
    if (status == CLOOB_OK && set->labels) status = web_label(ctx, p, text, s);
    else if (status == CLOOB_OK) status = web_caption(ctx, &set->keys, w->text_rank, text, size, pick, s);
    free(text);
    return status;
}

static cloob_status fetch_web(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what,
                              stored_sample *s)
{
    const web_set *set = p->self;
    const web_sample *w = &set->sample[i];
    cloob_status status = CLOOB_OK;
    name_sample(ctx, p, w, s);
    if (set->targets && (what & FETCH_TARGETS))
        return w->text < 0 ? ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has no npy member", s->name.data)
                           : stored_read(ctx, p->files, w->shard, w->text, w->text_size, s);
    if (((what & FETCH_CAPTION) || set->labels) && !set->targets && w->text >= 0)
        status = fetch_caption(ctx, p, w, pick, s);
    if (status == CLOOB_OK && (what & FETCH_IMAGE))
        status = stored_read(ctx, p->files, w->shard, w->image, w->image_size, s);
    return status;
}

const dataset_ops dataset_web = { "webdataset", open_web, close_web, fetch_web };
