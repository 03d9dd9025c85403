/* webdataset shards: the members of one sample are adjacent in a tar and share their name up to the first
 * dot. Every shard is indexed when the set is opened, so samples can be drawn at random and are counted
 * exactly; 32 bytes per sample stay in memory. */
#include "data/sets/dataset_web.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/json.h"
#include "core/pool.h"

/* ---- names of members ---------------------------------------------------------------------------- */

/* "a/b.seg.PNG" has the stem "a/b" and the suffix "seg.PNG". False without one, and for hidden files. */
static bool split_name(const char *name, size_t *stem, const char **suffix)
{
    const char *base = name_base(name), *dot = strchr(base, '.');
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

/* ---- one shard -------------------------------------------------------------------------------------------
 */

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
    cloob_ctx *ctx;
    fileset *files;
    const web_keys *keys;
    web_shard *shard;
    int64_t shards;
    atomic_long done;
} scan;

static void scan_shards(void *arg, int64_t begin, int64_t end, int thread)
{
    scan *job = arg;
    (void)thread;
    cloob_ctx *ctx = ctx_worker(job->ctx);
    for (int64_t i = begin; i < end; i++) {
        web_shard *s = &job->shard[i];
        tar_index t;
        if (!ctx) {
            s->status = CLOOB_ERR_MEMORY;
            continue;
        }
        s->status = fileset_open(ctx, job->files, (int)i);
        if (s->status == CLOOB_OK) s->status = tar_open(ctx, job->files, (int)i, &t);
        if (s->status == CLOOB_OK) {
            s->status = web_group(ctx, &t, job->keys, s);
            tar_release(&t);
        }
        if (s->status != CLOOB_OK) s->error = strdup(cloob_error(ctx));
        ctx_progress(job->ctx, "open shards", atomic_fetch_add(&job->done, 1) + 1, job->shards, "shards");
    }
    cloob_ctx_destroy(ctx);
}

static cloob_status first_failure(cloob_ctx *ctx, const web_shard *shard, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (shard[i].status != CLOOB_OK)
            return ctx_fail(ctx, shard[i].status, "%s", shard[i].error ? shard[i].error : "out of memory");
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

/* sizes.json has the number of samples of each shard. The samples were counted, so it is only compared. */
static void compare_sizes(cloob_ctx *ctx, const fileset *files, const web_shard *shard)
{
    const char *first = fileset_name(files, 0), *base = name_base(first);
    char *dir = strndup(first, (size_t)(base - first)), *path = dir ? file_join(dir, "sizes.json") : NULL;
    arena a = { 0 };
    json *root;
    if (path && strncmp(first, "pipe:", 5) != 0 && file_exists(path) &&
        json_read_file(ctx, &a, path, &root) == CLOOB_OK)
        for (int i = 0; i < fileset_count(files); i++) {
            int64_t promised;
            const json *size = json_get(root, name_base(fileset_name(files, i)));
            if (size && json_int(size, &promised) && promised != shard[i].count)
                ctx_log(ctx, CLOOB_LOG_WARN, "%s says %lld samples, %s has %lld", path, (long long)promised,
                        fileset_name(files, i), (long long)shard[i].count);
        }
    arena_release(&a);
    free(path);
    free(dir);
}

/* ---- opening ------------------------------------------------------------------------------------- */

static cloob_status scan_all(cloob_ctx *ctx, dataset_part *p)
{
    web_set *w = p->self;
    int n = fileset_count(p->files);
    scan job = { ctx, p->files, &w->keys, calloc((size_t)n, sizeof(web_shard)), n, 0 };
    if (!job.shard) return ctx_no_memory(ctx, (size_t)n * sizeof(web_shard), "the shards");
    ctx_progress(ctx, "open shards", 0, n, "shards");
    pool_for(ctx, n, 1, scan_shards, &job);
    cloob_status status = first_failure(ctx, job.shard, n);
    if (status == CLOOB_OK) compare_sizes(ctx, p->files, job.shard);
    if (status == CLOOB_OK) status = join(ctx, p, job.shard, n);
    for (int i = 0; i < n; i++) {
        free(job.shard[i].sample);
        free(job.shard[i].error);
    }
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

/* ---- opening one set ------------------------------------------------------------------------------ */

static cloob_status open_web(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    name_list names = { 0 };
    web_set *w = p->self = calloc(1, sizeof *w);
    if (!w) return ctx_no_memory(ctx, sizeof *w, source);
    w->keys = (web_keys){ strdup(o->image_key), strdup(o->text_key) };
    if (!w->keys.image || !w->keys.text) return ctx_no_memory(ctx, strlen(source), source);
    bool benchmark = file_is_dir(source) && web_is_benchmark(source, o->split);
    cloob_status status = benchmark ? web_benchmark(ctx, source, o, p, &names) : web_names(ctx, source, &names);
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

/* ---- reading ---------------------------------------------------------------------------------------------
 */

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
    const web_sample *w = &((const web_set *)p->self)->sample[i];
    cloob_status status = CLOOB_OK;
    name_sample(ctx, p, w, s);
    const web_set *set = p->self;
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
