/* Downloads the files that a snapshot lacks, two at a time. Downloads resume after an interruption, and files are
 * verified before they get their final name. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "core/file.h"
#include "core/sbuf.h"
#include "hub/http.h"

enum { WORKERS = 2, MAX_PAGES = 100, MAX_PAGE_BYTES = 32 << 20 };

static const char PARTIAL[] = ".cloob.incomplete"; /* suffix of an incomplete blob */

/* A download of several files of a repository. */
typedef struct download {
    const hub_repo *r;
    const hub_site *site;
    const char *commit;
    const hub_file *file[HUB_MAX_FILES];
    int64_t count;
    int64_t total; /* total bytes of the files */
    atomic_llong have;
    atomic_int next, running;
    atomic_bool stop;
    pthread_mutex_t lock; /* guards the two below, which hold the first failure */
    cloob_status status;
    char error[CTX_ERROR_BYTES];
} download;

/* ---- URLs ---------------------------------------------------------------------------------------- */

/* Appends text with URL escapes; "refs/pr/1" becomes "refs%2Fpr%2F1". */
static void put_escaped(sbuf *s, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *text; text++)
        if (strchr(plain, *text)) sbuf_putc(s, *text);
        else sbuf_printf(s, "%%%02X", (unsigned char)*text);
}

/* Builds ENDPOINT/ORG/NAME/resolve/REVISION/FILE, or with `api`
 * ENDPOINT/api/models/ORG/NAME/tree/REVISION?recursive=true. */
static cloob_status put_url(cloob_ctx *ctx, const hub_site *site, const char *repo, const char *revision,
                            const char *file, sbuf *s)
{
    *s = (sbuf){ 0 };
    sbuf_printf(s, "%s%s/%s/%s/", site->endpoint, file ? "" : "/api/models", repo, file ? "resolve" : "tree");
    put_escaped(s, revision);
    sbuf_puts(s, file ? "/" : "?recursive=true");
    if (file) put_escaped(s, file);
    if (!s->failed) return CLOOB_OK;
    sbuf_release(s);
    return ctx_no_memory(ctx, 1, "an address");
}

/* ---- listing of the repository ------------------------------------------------------------------- */

/* Gets the commit of the revision from a response header, which the hub sends even if the file does not exist. */
static cloob_status ask_commit(http_session *s, const hub_repo *r, char commit[HUB_COMMIT])
{
    sbuf url;
    http_answer a;
    int tries = 0;
    CLOOB_TRY(put_url(s->ctx, s->site, r->name.repo, r->name.revision, "config.json", &url));
    cloob_status status;
    do status = http_ask(s, url.data, 0, NULL, NULL, &a);
    while (status == CLOOB_OK && (a.result != CURLE_OK || a.code >= 400) && http_try_again(s, &a, &tries));
    sbuf_release(&url);
    if (status != CLOOB_OK) return status;
    bool missing = a.code == 404 && strcmp(a.error, "RepoNotFound") != 0 && strcmp(a.error, "RevisionNotFound") != 0;
    if (a.result != CURLE_OK || (a.code >= 400 && !(missing && a.commit[0])))
        return http_refuse(s, &r->name, "its commit", &a);
    if (!a.commit[0])
        return ctx_fail(s->ctx, CLOOB_ERR_IO,
                        "%s: %s sent no commit (X-Repo-Commit); check that HF_ENDPOINT is a model hub", r->name.repo,
                        s->site->endpoint);
    memcpy(commit, a.commit, HUB_COMMIT);
    return CLOOB_OK;
}

static bool add_to_page(void *user, const http_answer *a, const char *data, size_t bytes)
{
    sbuf *page = user;
    (void)a;
    sbuf_add(page, data, bytes);
    return !page->failed && page->len <= MAX_PAGE_BYTES;
}

/* Gets one page of the list of files. *url becomes the URL of the next page; after the last it is released and
 * empty. */
static cloob_status ask_page(http_session *s, const hub_repo *r, sbuf *url, hub_listing *l)
{
    sbuf page = { 0 };
    http_answer a;
    int tries = 0;
    cloob_status status;
    do {
        page.len = 0;
        status = http_ask(s, url->data, 0, add_to_page, &page, &a);
    } while (status == CLOOB_OK && (a.result != CURLE_OK || a.code != 200) && http_try_again(s, &a, &tries));
    sbuf_release(url);
    if (status == CLOOB_OK && page.len > MAX_PAGE_BYTES)
        status = ctx_fail(s->ctx, CLOOB_ERR_FORMAT, "%s: the list of its files is too long", r->name.repo);
    else if (status == CLOOB_OK && (a.result != CURLE_OK || a.code != 200))
        status = http_refuse(s, &r->name, "its list of files", &a);
    if (status == CLOOB_OK) status = hub_listing_add(s->ctx, l, page.data ? page.data : "", page.len);
    if (status == CLOOB_OK && a.next[0]) sbuf_printf(url, "%s%s", a.next[0] == '/' ? s->site->endpoint : "", a.next);
    if (url->failed) status = ctx_no_memory(s->ctx, 1, "an address");
    sbuf_release(&page);
    return status;
}

static cloob_status ask_listing(http_session *s, const hub_repo *r, const char *commit, hub_listing *l)
{
    sbuf url;
    cloob_status status = put_url(s->ctx, s->site, r->name.repo, commit, NULL, &url);
    for (int page = 0; status == CLOOB_OK && url.data; page++) {
        status = ask_page(s, r, &url, l);
        if (status == CLOOB_OK && url.data && page == MAX_PAGES)
            status = ctx_fail(s->ctx, CLOOB_ERR_FORMAT, "%s: the list of its files has too many pages", r->name.repo);
    }
    sbuf_release(&url);
    return status;
}

/* ---- one file ------------------------------------------------------------------------------------ */

typedef struct partial {
    download *d;
    cloob_ctx *ctx;
    const hub_file *f;
    char path[HUB_PATH];
    int fd;
    int64_t bytes; /* bytes written and hashed so far */
    sha hash;
    bool begun;          /* the response has started */
    cloob_status status; /* result of writing */
} partial;

static void restart(partial *p)
{
    char head[64];
    bool large = strlen(p->f->etag) == 64;
    atomic_fetch_sub(&p->d->have, p->bytes);
    p->bytes = 0;
    sha_begin(&p->hash, large ? SHA_256 : SHA_1);
    int n = snprintf(head, sizeof head, "blob %lld", (long long)p->f->bytes);
    if (!large)
        sha_add(&p->hash, head, (size_t)n + 1); /* Git hashes this header, including its zero, before the
                                                         * content */
}

static cloob_status cannot_write(partial *p)
{
    bool full = errno == ENOSPC || errno == EDQUOT;
    p->status = ctx_fail(p->ctx, CLOOB_ERR_IO, "%s: cannot write: %s%s", p->path, strerror(errno),
                         full ? "; free disk space, or set HF_HUB_CACHE to a folder on another disk" : "");
    return p->status;
}

/* Opens the partial file and hashes what an earlier download wrote. */
static cloob_status partial_open(partial *p)
{
    static const size_t CHUNK = 1 << 20;
    char *buffer = malloc(CHUNK);
    ssize_t n = 0;
    if (!buffer) return ctx_no_memory(p->ctx, CHUNK, p->path);
    p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (p->fd < 0) {
        free(buffer);
        return cannot_write(p);
    }
    restart(p);
    while (p->bytes <= p->f->bytes && (n = pread(p->fd, buffer, CHUNK, p->bytes)) > 0) {
        sha_add(&p->hash, buffer, (size_t)n);
        p->bytes += n;
        atomic_fetch_add(&p->d->have, n);
        if (atomic_load(&p->d->stop)) break;
    }
    free(buffer);
    if (n < 0 || p->bytes > p->f->bytes) restart(p); /* unreadable or longer than the file */
    return CLOOB_OK;
}

/* Handles the start of a response: checks that it is the expected file and range. A server without range support sends
 * the whole file. */
static bool begin_answer(partial *p, const http_answer *a)
{
    p->begun = true;
    if ((a->etag[0] && strcmp(a->etag, p->f->etag) != 0) || (a->linked_bytes >= 0 && a->linked_bytes != p->f->bytes)) {
        p->status =
            ctx_fail(p->ctx, CLOOB_ERR_FORMAT, "%s of %s: hash or size differs from the hub's list of files; try again",
                     p->f->name, p->d->r->name.repo);
        return false;
    }
    if (a->code == 200) restart(p);
    if (a->code == 200 || a->range_begin == p->bytes) return true;
    p->status = ctx_fail(p->ctx, CLOOB_ERR_IO, "%s of %s: the hub sent another byte range than requested; try again",
                         p->f->name, p->d->r->name.repo);
    return false;
}

/* Writes a piece of the response at its offset. If the file system has no locks, another process may write the same
 * bytes at the same time, which is harmless. */
static bool add_to_partial(void *user, const http_answer *a, const char *data, size_t bytes)
{
    partial *p = user;
    if (!p->begun && !begin_answer(p, a)) return false;
    if ((int64_t)bytes > p->f->bytes - p->bytes) {
        p->status =
            ctx_fail(p->ctx, CLOOB_ERR_FORMAT, "%s of %s: the hub sent more than the file's %lld bytes; try again",
                     p->f->name, p->d->r->name.repo, (long long)p->f->bytes);
        return false;
    }
    for (size_t at = 0; at < bytes;) {
        ssize_t n = pwrite(p->fd, data + at, bytes - at, p->bytes + (int64_t)at);
        if (n < 0 && errno != EINTR) return cannot_write(p) == CLOOB_OK;
        if (n > 0) at += (size_t)n;
    }
    sha_add(&p->hash, data, bytes);
    p->bytes += (int64_t)bytes;
    atomic_fetch_add(&p->d->have, (long long)bytes);
    return true;
}

/* Requests the rest of the file until it is complete, with retries. */
static cloob_status transfer_all(http_session *s, partial *p)
{
    sbuf url;
    http_answer a;
    int tries = 0;
    CLOOB_TRY(put_url(p->ctx, p->d->site, p->d->r->name.repo, p->d->commit, p->f->name, &url));
    cloob_status status = CLOOB_OK;
    while (status == CLOOB_OK && p->bytes < p->f->bytes) {
        int64_t before = p->bytes;
        p->begun = false;
        status = http_ask(s, url.data, p->bytes, add_to_partial, p, &a);
        if (status == CLOOB_OK) status = p->status;
        if (status != CLOOB_OK || p->bytes == p->f->bytes) break;
        if (p->bytes > before) tries = 0;
        if (a.code == 416) restart(p);
        bool short_answer = a.result == CURLE_OK && (a.code == 200 || a.code == 206);
        if (short_answer) a.result = CURLE_PARTIAL_FILE;
        if (!http_try_again(s, &a, &tries)) status = http_refuse(s, &p->d->r->name, p->f->name, &a);
    }
    sbuf_release(&url);
    return status;
}

static cloob_status wrong_bytes(const partial *p, const char *hex)
{
    return ctx_fail(p->ctx, CLOOB_ERR_FORMAT,
                    "%s of %s: damaged download: its hash is %.12s..., expected %.12s...; try again", p->f->name,
                    p->d->r->name.repo, hex, p->f->etag);
}

/* Downloads a file into a blob. If a resumed file has a wrong hash, its old part may be damaged, so it is downloaded
 * once more from the start. */
static cloob_status fetch_blob(http_session *s, partial *p, const char *blob)
{
    char hex[SHA_HEX];
    CLOOB_TRY(partial_open(p));
    bool continued = p->bytes > 0;
    CLOOB_TRY(transfer_all(s, p));
    sha_end(&p->hash, hex);
    if (strcmp(hex, p->f->etag) != 0 && continued) {
        restart(p);
        CLOOB_TRY(transfer_all(s, p));
        sha_end(&p->hash, hex);
    }
    if (strcmp(hex, p->f->etag) != 0) {
        (void)unlink(p->path);
        return wrong_bytes(p, hex);
    }
    if (ftruncate(p->fd, p->f->bytes) != 0 || fsync(p->fd) != 0 || rename(p->path, blob) != 0) return cannot_write(p);
    return CLOOB_OK;
}

/* Downloads a file while holding the blob's lock, unless another process has created the blob in the meantime. */
static cloob_status fetch_locked(http_session *s, download *d, const hub_file *f)
{
    char blob[HUB_PATH];
    struct stat st;
    partial p = { .d = d, .ctx = s->ctx, .f = f, .fd = -1 };
    CLOOB_TRY(hub_blob_path(s->ctx, d->r, f->etag, "", blob));
    CLOOB_TRY(hub_blob_path(s->ctx, d->r, f->etag, PARTIAL, p.path));
    if (hub_snapshot_has(d->r, d->commit, f) || (stat(blob, &st) == 0 && st.st_size == f->bytes)) {
        atomic_fetch_add(&d->have, f->bytes);
    } else {
        cloob_status status = fetch_blob(s, &p, blob);
        if (p.fd >= 0) close(p.fd);
        if (status != CLOOB_OK) return status;
    }
    return hub_link(s->ctx, d->r, d->commit, f);
}

static cloob_status fetch_file(http_session *s, download *d, const hub_file *f)
{
    int lock;
    CLOOB_TRY(hub_lock(s->ctx, d->r, f->etag, &d->stop, &lock));
    cloob_status status = fetch_locked(s, d, f);
    hub_unlock(lock);
    return status;
}

/* ---- worker threads ------------------------------------------------------------------------------ */

static void record_failure(download *d, cloob_status status, const char *text)
{
    pthread_mutex_lock(&d->lock);
    if (d->status == CLOOB_OK || d->status == CLOOB_ERR_STOPPED) {
        d->status = status;
        snprintf(d->error, sizeof d->error, "%s", text);
    }
    pthread_mutex_unlock(&d->lock);
    atomic_store(&d->stop, true);
}

typedef struct worker {
    download *d;
    cloob_ctx *ctx;
    pthread_t thread;
    bool started;
} worker;

static void *run_worker(void *arg)
{
    worker *w = arg;
    download *d = w->d;
    http_session s;
    cloob_status status = http_open(w->ctx, d->site, &d->stop, &s);
    for (int64_t i; status == CLOOB_OK && !atomic_load(&d->stop) && (i = atomic_fetch_add(&d->next, 1)) < d->count;)
        status = fetch_file(&s, d, d->file[i]);
    if (status != CLOOB_OK) record_failure(d, status, cloob_error(w->ctx));
    http_close(&s);
    atomic_fetch_sub(&d->running, 1);
    return NULL;
}

/* Waits for the workers. The context's callbacks (progress, should_stop) run here, on the caller's thread. */
static void wait_for_workers(cloob_ctx *ctx, download *d)
{
    while (atomic_load(&d->running) > 0) {
        ctx_progress(ctx, "download", atomic_load(&d->have), d->total, "bytes");
        if (ctx_should_stop(ctx)) atomic_store(&d->stop, true);
        nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
    }
    if (d->status == CLOOB_OK) ctx_progress(ctx, "download", d->total, d->total, "bytes");
}

static int64_t size_of_blob(cloob_ctx *ctx, const hub_repo *r, const hub_file *f, const char *ending)
{
    char path[HUB_PATH];
    struct stat st;
    return hub_blob_path(ctx, r, f->etag, ending, path) == CLOOB_OK && stat(path, &st) == 0 ? st.st_size : 0;
}

static cloob_status check_space(cloob_ctx *ctx, const download *d)
{
    struct statvfs fs;
    char path[HUB_PATH];
    CLOOB_TRY(hub_put(ctx, path, "%s/blobs", d->r->folder));
    CLOOB_TRY(file_make_dirs(ctx, path));
    if (statvfs(path, &fs) != 0 || fs.f_frsize == 0) return CLOOB_OK;
    double room = (double)fs.f_bavail * (double)fs.f_frsize, need = (double)d->total;
    for (int64_t i = 0; i < d->count; i++) /* another commit may have the blob, an earlier run a part of it */
        need -= (double)(size_of_blob(ctx, d->r, d->file[i], "") + size_of_blob(ctx, d->r, d->file[i], PARTIAL));
    if (need <= room) return CLOOB_OK;
    return ctx_fail(
        ctx, CLOOB_ERR_IO,
        "%s: needs %.0f MB, but %s has only %.0f; free disk space, or set HF_HUB_CACHE to a folder on another disk",
        d->r->name.repo, ceil(need / 1e6), d->r->folder, floor(room / 1e6));
}

/* Downloads all of d->file. */
static cloob_status fetch_all(cloob_ctx *ctx, download *d)
{
    worker w[WORKERS] = { 0 };
    if (d->count == 0) return CLOOB_OK;
    for (int64_t i = 0; i < d->count; i++) d->total += d->file[i]->bytes;
    CLOOB_TRY(check_space(ctx, d));
    pthread_mutex_init(&d->lock, NULL);
    atomic_store(&d->running, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        w[i] = (worker){ .d = d, .ctx = ctx_worker(ctx) };
        w[i].started = w[i].ctx && pthread_create(&w[i].thread, NULL, run_worker, &w[i]) == 0;
        if (!w[i].started) atomic_fetch_sub(&d->running, 1);
    }
    if (!w[0].started && !w[1].started) record_failure(d, CLOOB_ERR_MEMORY, "cannot start a thread for the download");
    wait_for_workers(ctx, d);
    for (int i = 0; i < WORKERS; i++) {
        if (w[i].started) pthread_join(w[i].thread, NULL);
        cloob_ctx_destroy(w[i].ctx);
    }
    pthread_mutex_destroy(&d->lock);
    return d->status == CLOOB_OK ? CLOOB_OK : ctx_fail(ctx, d->status, "%s", d->error);
}

static bool add_if_missing(download *d, const hub_file *f)
{
    if (hub_snapshot_has(d->r, d->commit, f)) return true;
    if (d->count == HUB_MAX_FILES) return false;
    d->file[d->count++] = f;
    return true;
}

/* ---- a model ------------------------------------------------------------------------------------- */

static bool listed(const void *folder, const char *name) { return hub_listing_find(folder, name) != NULL; }

/* Downloads the files other than weights, and the index of shards if there is one. */
static cloob_status fetch_small(cloob_ctx *ctx, download *d, const hub_listing *l, const hub_file *index)
{
    for (int i = 0; hub_small_files[i]; i++) {
        const hub_file *f = hub_listing_find(l, hub_small_files[i]);
        if (f) add_if_missing(d, f);
    }
    if (index) add_if_missing(d, index);
    return fetch_all(ctx, d);
}

static cloob_status fetch_weights(cloob_ctx *ctx, download *d, const hub_listing *l, const hub_file *weights)
{
    char path[HUB_PATH];
    hub_names shards = { 0 };
    if (!hub_is_index(weights->name)) {
        add_if_missing(d, weights);
        return fetch_all(ctx, d);
    }
    CLOOB_TRY(hub_put(ctx, path, "%s/snapshots/%s/%s", d->r->folder, d->commit, weights->name));
    cloob_status status = hub_index_shards(ctx, path, &shards);
    for (int64_t i = 0; i < shards.count && status == CLOOB_OK; i++) {
        const hub_file *f = hub_listing_find(l, shards.name[i]);
        if (!f || !add_if_missing(d, f))
            status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the repository lacks %s, which its %s lists", d->r->name.repo,
                              shards.name[i], weights->name);
    }
    hub_names_release(&shards);
    return status == CLOOB_OK ? fetch_all(ctx, d) : status;
}

/* Downloads a model. The weights come last, so a snapshot with weights is complete. */
static cloob_status fetch_model(cloob_ctx *ctx, const hub_repo *r, const hub_site *site, const char *commit,
                                const hub_listing *l)
{
    char name[256];
    hub_choose_weights(listed, l, name);
    const hub_file *weights = name[0] ? hub_listing_find(l, name) : hub_only_weights(l);
    if (!weights)
        return ctx_fail(ctx, CLOOB_ERR_IO,
                        "%s: no weights with a known file name, such as model.safetensors or "
                        "open_clip_model.safetensors, in this repository",
                        r->name.repo);
    download small = { .r = r, .site = site, .commit = commit }, large = { .r = r, .site = site, .commit = commit };
    CLOOB_TRY(fetch_small(ctx, &small, l, hub_is_index(weights->name) ? weights : NULL));
    CLOOB_TRY(fetch_weights(ctx, &large, l, weights));
    for (int i = 0; hub_small_files[i]; i++)
        if (!hub_listing_find(l, hub_small_files[i])) hub_note_absent(ctx, r, commit, hub_small_files[i]);
    return hub_ref_write(ctx, r, commit);
}

cloob_status hub_download(cloob_ctx *ctx, const hub_repo *r, char commit[HUB_COMMIT])
{
    hub_site site;
    http_session s;
    hub_listing l = { 0 };
    CLOOB_TRY(hub_site_init(ctx, &site));
    cloob_status status = http_open(ctx, &site, NULL, &s);
    if (status == CLOOB_OK) status = ask_commit(&s, r, commit);
    if (status == CLOOB_OK) status = ask_listing(&s, r, commit, &l);
    http_close(&s);
    if (status == CLOOB_OK) status = fetch_model(ctx, r, &site, commit, &l);
    hub_listing_release(&l);
    return status;
}
