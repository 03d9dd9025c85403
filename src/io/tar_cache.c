/* The index of a tar on disk: believed only when every claim in it holds. */
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "io/tar.h"

typedef struct head {
    char magic[8];
    int64_t source_bytes, size, mtime_ns; /* whose index this is */
    int64_t count, names_bytes, skipped;
    uint64_t hash; /* of everything behind the head */
} head;

static const char magic[8] = { 'c', 'l', 'o', 'o', 'b', 't', 'i', '1' };

static uint64_t hash_add(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001B3u;
    return h;
}

static uint64_t hash_all(const char *source, const tar_index *t)
{
    uint64_t h = hash_add(0xCBF29CE484222325u, source, strlen(source));
    h = hash_add(h, t->member, (size_t)t->count * sizeof *t->member);
    return hash_add(h, t->names.data, t->names.len);
}

/* ---- reading ------------------------------------------------------------------------------------------ */

static bool head_holds(const head *h, size_t file_size, const char *source, int64_t size, int64_t mtime_ns)
{
    if (memcmp(h->magic, magic, sizeof magic) != 0 || h->size != size || h->mtime_ns != mtime_ns) return false;
    if (h->source_bytes != (int64_t)strlen(source) || h->count < 0 || h->names_bytes < 0) return false;
    if (h->count > (int64_t)file_size || h->names_bytes > (int64_t)file_size) return false;
    return file_size ==
           sizeof *h + (size_t)h->source_bytes + (size_t)h->count * sizeof(tar_member) + (size_t)h->names_bytes;
}

static bool members_hold(const tar_index *t, int64_t size)
{
    if (t->names.len && t->names.data[t->names.len - 1] != '\0') return false;
    for (int64_t i = 0; i < t->count; i++) {
        const tar_member *m = &t->member[i];
        if (m->offset < 0 || m->size < 0 || m->offset > size || m->size > size - m->offset) return false;
        if (m->name < 0 || m->name >= (int64_t)t->names.len) return false;
    }
    return true;
}

static bool take(const char *data, const head *h, const char *source, tar_index *out)
{
    if (memcmp(data, source, (size_t)h->source_bytes) != 0) return false;
    data += h->source_bytes;
    size_t bytes = (size_t)h->count * sizeof *out->member;
    out->member = malloc(bytes ? bytes : 1);
    if (!out->member) return false;
    memcpy(out->member, data, bytes);
    out->count = out->capacity = h->count;
    sbuf_add(&out->names, data + bytes, (size_t)h->names_bytes);
    out->skipped = h->skipped;
    return !out->names.failed && hash_all(source, out) == h->hash && members_hold(out, h->size);
}

bool tar_cache_load(cloob_ctx *ctx, const char *path, const char *source, int64_t size, int64_t mtime_ns,
                    tar_index *out)
{
    file_bytes b;
    head h;
    *out = (tar_index){ 0 };
    if (!file_exists(path) || file_read(ctx, path, FILE_TEXT_LIMIT, &b) != CLOOB_OK) return false;
    bool ok = b.size >= sizeof h;
    if (ok) memcpy(&h, b.data, sizeof h);
    ok = ok && head_holds(&h, b.size, source, size, mtime_ns) && take(b.data + sizeof h, &h, source, out);
    if (!ok) tar_release(out);
    file_bytes_release(&b);
    return ok;
}

/* ---- writing ------------------------------------------------------------------------------------------ */

cloob_status tar_cache_save(cloob_ctx *ctx, const char *path, const char *source, int64_t size, int64_t mtime_ns,
                            const tar_index *t)
{
    head h = { .source_bytes = (int64_t)strlen(source),
               .size = size,
               .mtime_ns = mtime_ns,
               .count = t->count,
               .names_bytes = (int64_t)t->names.len,
               .skipped = t->skipped,
               .hash = hash_all(source, t) };
    file_writer w;
    memcpy(h.magic, magic, sizeof magic);
    CLOOB_TRY(file_writer_begin(ctx, path, &w));
    fwrite(&h, sizeof h, 1, w.stream); /* a short write sets the stream's error, seen by commit */
    fwrite(source, 1, strlen(source), w.stream);
    if (t->count) fwrite(t->member, sizeof *t->member, (size_t)t->count, w.stream);
    if (t->names.len) fwrite(t->names.data, 1, t->names.len, w.stream);
    return file_writer_commit(ctx, &w);
}

/* ---- through the cache ----------------------------------------------------------------------------------
 */

typedef struct source {
    cloob_ctx *ctx;
    const fileset *files;
    int file;
} source;

static cloob_status read_source(void *arg, int64_t offset, void *out, size_t n)
{
    source *s = arg;
    return fileset_read(s->ctx, s->files, s->file, offset, out, n);
}

cloob_status tar_open(cloob_ctx *ctx, const fileset *files, int file, tar_index *out)
{
    source s = { ctx, files, file };
    const char *path = fileset_path(files, file), *dir = fileset_cache(files);
    int64_t size = fileset_size(files, file), mtime = fileset_mtime_ns(files, file);
    char *cached = path && dir ? cache_path(dir, path, "index") : NULL;
    char *full = cached ? realpath(path, NULL) : NULL;
    cloob_status status = CLOOB_OK;
    if (!full || !tar_cache_load(ctx, cached, full, size, mtime, out)) {
        status = tar_scan(ctx, read_source, &s, size, fileset_name(files, file), out);
        /* Best effort: without the cached index the next run scans again. */
        if (status == CLOOB_OK && full && file_make_dirs(ctx, dir) == CLOOB_OK)
            (void)tar_cache_save(ctx, cached, full, size, mtime, out);
    }
    free(cached);
    free(full);
    return status;
}
