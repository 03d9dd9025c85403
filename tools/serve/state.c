/* Models and indexes of a running server: opening them, and reloading them when their files are replaced. */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "infer/batcher.h"
#include "serve/handlers.h"
#include "infer/search_index.h"
#include "core/ctx.h"
#include "core/file.h"

void serve_log(serve *s, const char *format, ...)
{
    char text[1024];
    va_list args;
    if (s->o->quiet) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s\n", text);
}

/* false: the file does not exist */
static bool watched_read(const char *path, watched *out)
{
    struct stat st;
    if (stat(path, &st) != 0) return false;
    *out = (watched){ st.st_ino, (int64_t)st.st_size, time_ns(st.st_mtim) };
    return true;
}

static bool watched_same(const watched *a, const watched *b)
{
    return a->inode == b->inode && a->size == b->size && a->mtime_ns == b->mtime_ns;
}

/* Splits NAME=FILE. Without NAME=, the name is the last component of FILE without its extension. Returns new
 * strings. */
static bool split_name(const char *word, char **name, char **path)
{
    const char *equal = strchr(word, '='), *slash = strchr(word, '/');
    bool named = equal && equal > word && (!slash || equal < slash);
    *path = strdup(named ? equal + 1 : word);
    if (named) *name = strndup(word, (size_t)(equal - word));
    else *name = text_stem(word);
    return *path && *name;
}

/* ---- models -------------------------------------------------------------------------------------- */

static cloob_status open_model(serve *s, const char *word, served_model *m)
{
    batcher_options o;
    batcher_options_init(&o);
    o.model = s->o->model, o.model.size = sizeof o.model;
    o.max_batch = s->o->max_batch, o.max_wait_us = s->o->max_wait_us;
    o.max_queue = s->o->max_queue;
    o.max_pixels = s->o->max_pixels;
    o.idle_unload_s = s->o->idle_unload_s;
    if (!split_name(word, &m->name, &m->path)) return CLOOB_ERR_MEMORY;
    watched_read(m->path, &m->seen);
    return batcher_create(s->ctx, m->path, &o, &m->batcher);
}

static void warn_what_is_missing(serve *s, const served_model *m)
{
    cloob_model_facts facts;
    batcher_get_facts(m->batcher, &facts);
    if (!facts.context) serve_log(s, "%s has only an image tower: images are embedded, texts refused", m->path);
    else if (!facts.image_size) serve_log(s, "%s has only a text tower: texts are embedded, images refused", m->path);
    if (facts.context && !facts.has_tokenizer)
        serve_log(s, "%s holds no tokenizer: %s, texts refused; set --vocab FILE", m->path,
                  facts.image_size ? "images are embedded" : "only rows of tokens are embedded");
}

cloob_status serve_open_models(serve *s)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int workers = (int)s->o->workers;
    s->images.limit = workers > 1 ? workers - (workers + 3) / 4 : 1;
    s->thumbnails.limit = cores >= 1 && cores < s->images.limit ? (int)cores : s->images.limit;
    s->model = calloc((size_t)s->o->checkpoints + 1, sizeof *s->model);
    if (!s->model) return CLOOB_ERR_MEMORY;
    for (; s->models < s->o->checkpoints; s->models++) {
        cloob_status status = open_model(s, s->o->checkpoint[s->models], &s->model[s->models]);
        if (status != CLOOB_OK) return status;
        warn_what_is_missing(s, &s->model[s->models]);
    }
    return CLOOB_OK;
}

bool serve_memory_limited(void)
{
    struct rlimit r;
    return getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY;
}

/* Embeds full batches of images and of texts (as tokens, so that no tokenizer is needed), for the existing towers.
 * Twice, because the second run packs weights. */
static cloob_status embed_a_batch(serve *s, const served_model *m)
{
    cloob_model_facts f;
    batch_rows rows;
    batcher_get_facts(m->batcher, &f);
    const int32_t token = 1;
    int64_t n = s->o->max_batch;
    size_t bytes = (size_t)(f.image_size * f.image_size * 3);
    uint8_t *rgb = calloc(1, bytes);
    batch_input *in = calloc((size_t)(2 * n), sizeof *in);
    cloob_status status = rgb && in ? CLOOB_OK : ctx_fail(s->ctx, CLOOB_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < 2 * n && status == CLOOB_OK; i++)
        in[i] = i < n ? (batch_input){ .kind = BATCH_TOKENS, .ids = &token, .count = 1 }
                      : (batch_input){ .kind = BATCH_IMAGE_RGB, .data = rgb, .bytes = bytes };
    for (int k = 0; k < 2 && status == CLOOB_OK; k++) {
        status = batcher_encode(s->ctx, m->batcher, f.context ? in : in + n, f.context && f.image_size ? 2 * n : n,
                                NULL, &rows);
        batch_rows_release(&rows);
    }
    free(rgb), free(in);
    return status;
}

cloob_status serve_allocate_batches(serve *s)
{
    char text[700];
    if (!serve_memory_limited()) return CLOOB_OK;
    for (int64_t i = 0; i < s->models; i++) {
        cloob_status status = embed_a_batch(s, &s->model[i]);
        if (status == CLOOB_OK) continue;
        snprintf(text, sizeof text, "%s: %s; raise the memory limit (ulimit -v), or reduce --workers or --max-batch",
                 s->model[i].path, cloob_error(s->ctx));
        return ctx_fail(s->ctx, status, "%s", text);
    }
    return CLOOB_OK;
}

served_model *serve_model(serve *s, const char *name)
{
    if (!name || !*name || s->models == 1) return &s->model[0];
    for (int64_t i = 0; i < 2 * s->models; i++) { /* exact matches first */
        served_model *m = &s->model[i % s->models];
        if (i < s->models ? strcmp(m->name, name) == 0 : model_name_same(m->name, name)) return m;
    }
    return NULL;
}

/* ---- indexes ------------------------------------------------------------------------------------- */

void index_release(index_view *v)
{
    if (!v || atomic_fetch_sub(&v->users, 1) != 1) return;
    cloob_search_close(v->search);
    free(v->map_xy);
    free(v);
}

index_view *index_acquire(serve *s, served_index *x)
{
    pthread_mutex_lock(&s->files_lock);
    index_view *v = x->view;
    if (v) atomic_fetch_add(&v->users, 1);
    pthread_mutex_unlock(&s->files_lock);
    return v;
}

served_index *serve_index(serve *s, const char *name)
{
    if (!s->indexes) return NULL;
    if (!name || !*name) return &s->index[0];
    for (int64_t i = 0; i < s->indexes; i++)
        if (strcmp(s->index[i].name, name) == 0) return &s->index[i];
    return NULL;
}

/* Finds the served model that made the index; NULL: none. */
static cloob_status find_maker(serve *s, cloob_ctx *ctx, const cloob_search *search, served_model **out)
{
    *out = NULL;
    for (int64_t i = 0; i < s->models && !*out; i++) {
        cloob_model_facts facts;
        batch_rows rows;
        char digest[DIGEST_TEXT];
        batcher_get_facts(s->model[i].batcher, &facts);
        batcher_get_digest(s->model[i].batcher, digest);
        if (!facts.image_size) continue;
        if (facts.embed == search->D && search_index_has_digest(search, digest)) {
            *out = &s->model[i];
            break;
        }
        size_t bytes = (size_t)(facts.image_size * facts.image_size * 3);
        uint8_t *rgb = malloc(bytes);
        if (!rgb) return CLOOB_ERR_MEMORY;
        search_probe_image(facts.image_size, rgb);
        batch_input in = { .kind = BATCH_IMAGE_RGB, .data = rgb, .bytes = bytes };
        cloob_status status = batcher_encode(ctx, s->model[i].batcher, &in, 1, NULL, &rows);
        free(rgb);
        if (status != CLOOB_OK) return status;
        if (search_index_made_by(search, rows.data, rows.width)) *out = &s->model[i];
        batch_rows_release(&rows);
    }
    return CLOOB_OK;
}

static cloob_status open_view(serve *s, cloob_ctx *ctx, served_index *x)
{
    cloob_search *search;
    served_model *maker = NULL;
    watched now = { 0 };
    watched_read(x->path, &now);
    cloob_status status = cloob_search_open(ctx, x->path, &search);
    if (status != CLOOB_OK) return status;
    status = find_maker(s, ctx, search, &maker);
    if (status == CLOOB_OK && !maker) {
        const char *other = cloob_search_checkpoint(search);
        status = refuse(ctx,
                        "%s was made with another model (%s) than %s; serve that model, or delete the file and index "
                        "the folder again",
                        x->path, *other ? other : "unnamed", s->model[0].path);
    }
    index_view *fresh = status == CLOOB_OK ? calloc(1, sizeof *fresh) : NULL;
    if (!fresh) {
        cloob_search_close(search);
        return status == CLOOB_OK ? ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory") : status;
    }
    fresh->s = s, fresh->search = search, fresh->model = maker;
    atomic_init(&fresh->users, 1);
    pthread_mutex_lock(&s->files_lock);
    index_view *old = x->view;
    x->view = fresh, x->seen = now, x->error[0] = 0;
    pthread_mutex_unlock(&s->files_lock);
    index_release(old);
    return CLOOB_OK;
}

static void index_failed(serve *s, served_index *x, const char *why)
{
    pthread_mutex_lock(&s->files_lock);
    snprintf(x->error, sizeof x->error, "%s", why);
    pthread_mutex_unlock(&s->files_lock);
    serve_log(s, "index %s: %s", x->name, why);
}

void index_error(serve *s, const served_index *x, char out[512])
{
    pthread_mutex_lock(&s->files_lock);
    memcpy(out, x->error, sizeof x->error);
    pthread_mutex_unlock(&s->files_lock);
}

cloob_status index_need(serve *s, cloob_ctx *ctx, served_index *x, index_view **v)
{
    char why[512];
    *v = index_acquire(s, x);
    if (*v) return CLOOB_OK;
    index_error(s, x, why);
    if (!*why) return ctx_fail(ctx, CLOOB_ERR_BUSY, "the index is being built; try again later");
    return ctx_fail(ctx, CLOOB_ERR_IO, "cannot build the index: %s", why);
}

/* ---- finding the folder of its images -------------------------------------------------------------- */

/* The folder of the index's images. The index file may come from an untrusted source, so the folder that it names is
 * only used if it is below the index's own folder. */
static char *root_of_file(const char *path, const cloob_search *search)
{
    const char *slash = strrchr(path, '/');
    char *own = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup("."),
         *base = own ? realpath(own, NULL) : NULL;
    char *named = base ? realpath(cloob_search_root(search), NULL) : NULL;
    free(own);
    if (!named || !path_is_below(named, base)) {
        free(named);
        return base;
    }
    free(base);
    return named;
}

static void warn_without_images(serve *s, const served_index *x)
{
    int64_t bytes;
    char *first = cloob_search_count(x->view->search) ? entry_name(x->view->search, 0) : NULL;
    int fd = first ? entry_open(x, x->view->search, first, &bytes) : -1;
    if (fd >= 0) close(fd);
    else if (first)
        serve_log(s, "index %s: %s is not in %s, so its images are not shown; set their folder with --root DIR",
                  x->name, first, x->root);
    free(first);
}

static cloob_status find_root(serve *s, cloob_ctx *ctx, served_index *x)
{
    const char *given = x->folder ? x->folder : s->o->root;
    x->root = given ? realpath(given, NULL) : root_of_file(x->path, x->view->search);
    if (!x->root) return refuse(ctx, "%s: %s", given ? given : x->path, strerror(errno));
    if (!x->folder) warn_without_images(s, x);
    return CLOOB_OK;
}

/* ---- building it --------------------------------------------------------------------------------- */

cloob_ctx *serve_thread_context(void)
{
    cloob_ctx_options o = { .size = sizeof o, .threads = 1, .copy_files = true };
    return cloob_ctx_create(&o);
}

bool serve_in_background(serve *s, void *(*work)(void *), void *object)
{
    pthread_t thread;
    atomic_fetch_add(&s->background, 1);
    if (pthread_create(&thread, NULL, work, object) == 0) return pthread_detach(thread) == 0;
    atomic_fetch_sub(&s->background, 1);
    return false;
}

/* Indexes a folder while the server runs. The watching thread opens the file that this writes. */
static void *index_folder(void *object)
{
    served_index *x = object;
    serve *s = x->s;
    cloob_model *m = NULL;
    cloob_search_update u;
    cloob_model_options o = s->o->model;
    o.size = sizeof o;
    cloob_ctx *ctx = serve_thread_context();
    cloob_status status = ctx ? cloob_model_open(ctx, x->model->path, &o, &m) : CLOOB_ERR_MEMORY;
    if (status == CLOOB_OK) status = cloob_search_index(ctx, m, x->folder, x->path, x->model->path, o.vocab, &u);
    if (status == CLOOB_OK)
        serve_log(s, "index %s: %lld images (%lld new or changed)", x->name, (long long)u.images,
                  (long long)u.embedded);
    else index_failed(s, x, ctx ? cloob_error(ctx) : "out of memory");
    cloob_model_close(m);
    cloob_ctx_destroy(ctx);
    atomic_fetch_sub(&s->background, 1);
    return NULL;
}

static cloob_status open_index(serve *s, cloob_ctx *ctx, const char *word, served_index *x)
{
    char *given = NULL;
    x->s = s;
    if (!split_name(word, &x->name, &given)) return ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
    bool folder = file_is_dir(given);
    x->path = search_index_file(given);
    x->folder = folder ? given : NULL;
    if (!folder) free(given);
    if (!x->path) return ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
    cloob_status status = CLOOB_OK;
    if (!folder || access(x->path, F_OK) == 0) status = open_view(s, ctx, x);
    x->model = x->view ? x->view->model : &s->model[0];
    if (status == CLOOB_OK) status = find_root(s, ctx, x);
    if (status == CLOOB_OK && folder && !serve_in_background(s, index_folder, x))
        index_failed(s, x, "cannot start a thread to build it");
    return status;
}

cloob_status serve_open_indexes(serve *s)
{
    cloob_status status = CLOOB_OK;
    if (!s->o->indexes) return CLOOB_OK;
    s->index = calloc((size_t)s->o->indexes, sizeof *s->index);
    cloob_ctx *ctx = serve_thread_context();
    if (!s->index || !ctx) status = ctx_fail(s->ctx, CLOOB_ERR_MEMORY, "out of memory");
    for (; s->indexes < s->o->indexes && status == CLOOB_OK; s->indexes++) {
        status = open_index(s, ctx, s->o->index[s->indexes], &s->index[s->indexes]);
        if (status != CLOOB_OK) ctx_fail(s->ctx, status, "%s", cloob_error(ctx));
    }
    cloob_ctx_destroy(ctx);
    return status;
}

/* ---- replaced files ------------------------------------------------------------------------------ */

/* Stores the identity of a file that was checked; returns whether it differs from the previous one. */
static bool see(serve *s, watched *seen, const watched *now)
{
    pthread_mutex_lock(&s->files_lock);
    bool other = !watched_same(now, seen);
    *seen = *now;
    pthread_mutex_unlock(&s->files_lock);
    return other;
}

watched serve_model_file(serve *s, const served_model *m)
{
    pthread_mutex_lock(&s->files_lock);
    watched seen = m->seen;
    pthread_mutex_unlock(&s->files_lock);
    return seen;
}

static void watch_model(serve *s, cloob_ctx *ctx, served_model *m)
{
    enum { ROUNDS_BETWEEN_TRIES = 10 };
    watched now;
    batcher_stats t;
    batcher_get_stats(m->batcher, &t);
    bool again = t.error[0] && ++m->failed_rounds % ROUNDS_BETWEEN_TRIES == 0;
    if (!watched_read(m->path, &now)) {
        now = serve_model_file(s, m);
        now.inode = 0; /* the file is then loaded when it reappears, even if it has not changed */
        see(s, &m->seen, &now);
        return;
    }
    if (!see(s, &m->seen, &now) && !again) return;
    if (batcher_reload(ctx, m->batcher) == CLOOB_OK) {
        serve_log(s, "model %s: reloaded", m->name);
        return;
    }
    batcher_get_stats(m->batcher, &t);
    serve_log(s, "model %s: %s; %s", m->name, cloob_error(ctx),
              t.error[0] ? "its requests are refused until the file is replaced" : "the loaded version stays in use");
}

static void watch_index(serve *s, cloob_ctx *ctx, served_index *x)
{
    watched now;
    if (!watched_read(x->path, &now) || !see(s, &x->seen, &now)) return;
    if (open_view(s, ctx, x) == CLOOB_OK) serve_log(s, "index %s: opened", x->name);
    else index_failed(s, x, cloob_error(ctx)); /* the previous view stays in use */
}

void *serve_watch(void *arg)
{
    serve *s = arg;
    cloob_ctx *ctx = serve_thread_context();
    while (ctx && !atomic_load(&s->draining)) {
        for (int i = 0; i < 10 && !atomic_load(&s->draining); i++) usleep(100000);
        for (int64_t i = 0; i < s->models && !atomic_load(&s->draining); i++) watch_model(s, ctx, &s->model[i]);
        for (int64_t i = 0; i < s->indexes && !atomic_load(&s->draining); i++) watch_index(s, ctx, &s->index[i]);
    }
    cloob_ctx_destroy(ctx);
    return NULL;
}

void serve_close_state(serve *s)
{
    for (int64_t i = 0; s->index && i < s->o->indexes; i++) {
        served_index *x = &s->index[i];
        index_release(x->view);
        free(x->name), free(x->path), free(x->folder), free(x->root);
    }
    for (int64_t i = 0; s->model && i < s->o->checkpoints; i++) {
        batcher_destroy(s->model[i].batcher);
        free(s->model[i].name), free(s->model[i].path);
    }
    free(s->index), free(s->model), free(s->key);
}
