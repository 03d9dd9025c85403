/* Headers of a tar, block by block. */
#include "io/tar.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/hash.h"

enum {
    BLOCK = 512,
    LONG_NAME_LIMIT = 1 << 16, /* of a GNU or pax name; longer ones are damage */
    SEARCH_BLOCKS = 2048       /* how far a first header is looked for before the file is no tar */
};

/* Byte positions inside a header block (POSIX ustar). */
enum {
    AT_NAME = 0,
    NAME_BYTES = 100,
    AT_SIZE = 124,
    SIZE_BYTES = 12,
    AT_SUM = 148,
    SUM_BYTES = 8,
    AT_TYPE = 156,
    AT_MAGIC = 257,
    AT_PREFIX = 345,
    PREFIX_BYTES = 155
};

typedef struct scanner {
    cloob_ctx *ctx;
    tar_read_fn *read;
    void *arg;
    int64_t size, at;
    const char *file;
    tar_index *out;
    unsigned char block[BLOCK];
    sbuf name;         /* from a long-name or pax member, for the next header */
    int64_t next_size; /* from a pax member; -1: none */
} scanner;

/* ---- one header ----------------------------------------------------------------------------------- */

/* Octal digits, or base 256 when the first bit is set (GNU). -1: neither. */
static int64_t number(const unsigned char *field, int n)
{
    int64_t value = 0;
    if (field[0] & 0x80) {
        if (field[0] != 0x80) return -1; /* negative, or above 2^88 */
        for (int i = 1; i < n; i++) {
            if (value >> 55) return -1;
            value = value << 8 | field[i];
        }
        return value;
    }
    int i = 0;
    while (i < n && field[i] == ' ') i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++) {
        if (value >> 59) return -1;
        value = value << 3 | (field[i] - '0');
    }
    return i == n || field[i] == ' ' || field[i] == '\0' ? value : -1;
}

/* The sum of the block's bytes with the checksum field read as spaces; some old writers summed signed. */
static bool checksum_holds(const unsigned char *b)
{
    int64_t plain = 0, with_sign = 0, stored = number(b + AT_SUM, SUM_BYTES);
    for (int i = 0; i < BLOCK; i++) {
        unsigned char c = i >= AT_SUM && i < AT_SUM + SUM_BYTES ? ' ' : b[i];
        plain += c;
        with_sign += (signed char)c;
    }
    return stored == plain || stored == with_sign;
}

static bool all_zero(const unsigned char *b)
{
    for (int i = 0; i < BLOCK; i++)
        if (b[i]) return false;
    return true;
}

static void header_name(const unsigned char *b, sbuf *out)
{
    const char *prefix = (const char *)b + AT_PREFIX, *name = (const char *)b + AT_NAME;
    bool posix = memcmp(b + AT_MAGIC, "ustar", 6) == 0; /* GNU writes "ustar " and keeps other things there */
    if (posix && *prefix) {
        sbuf_add(out, prefix, strnlen(prefix, PREFIX_BYTES));
        sbuf_putc(out, '/');
    }
    sbuf_add(out, name, strnlen(name, NAME_BYTES));
}

/* A name that could mean a place outside the archive. */
static bool unsafe(const char *name)
{
    if (name[0] == '/' || name[0] == '\0') return true;
    for (const char *part = name; part;) {
        const char *slash = strchr(part, '/');
        size_t n = slash ? (size_t)(slash - part) : strlen(part);
        if (n == 2 && part[0] == '.' && part[1] == '.') return true;
        part = slash ? slash + 1 : NULL;
    }
    return false;
}

static cloob_status add_member(scanner *s, const char *name, int64_t offset, int64_t size)
{
    tar_index *t = s->out;
    while (name[0] == '.' && name[1] == '/') name += 2;
    if (unsafe(name)) {
        t->skipped++;
        return CLOOB_OK;
    }
    if (!heap_grow(&t->member, t->count, &t->capacity, sizeof *t->member))
        return ctx_no_memory(s->ctx, (size_t)t->count * sizeof *t->member, s->file);
    t->member[t->count++] = (tar_member){ offset, size, (int64_t)t->names.len };
    sbuf_add(&t->names, name, strlen(name) + 1);
    return t->names.failed ? ctx_no_memory(s->ctx, t->names.len, s->file) : CLOOB_OK;
}

/* ---- members that describe the next one ------------------------------------------------------------ */

static cloob_status read_text(scanner *s, int64_t size, char **text)
{
    *text = malloc((size_t)size + 1);
    if (!*text) return ctx_no_memory(s->ctx, (size_t)size, s->file);
    cloob_status status = s->read(s->arg, s->at + BLOCK, *text, (size_t)size);
    (*text)[status == CLOOB_OK ? size : 0] = '\0';
    return status;
}

/* A pax record is "LENGTH KEY=VALUE\n", LENGTH counting all of itself. */
static void take_pax(scanner *s, const char *text, int64_t size)
{
    while (size > 0) {
        char *end;
        long long length = strtoll(text, &end, 10);
        if (length <= 0 || length > size || *end != ' ' || end >= text + length) return;
        const char *key = end + 1, *stop = text + length - 1;
        const char *eq = key < stop ? memchr(key, '=', (size_t)(stop - key)) : NULL;
        if (eq && eq - key == 4 && memcmp(key, "path", 4) == 0) {
            s->name.len = 0;
            sbuf_add(&s->name, eq + 1, strnlen(eq + 1, (size_t)(stop - eq - 1)));
        }
        if (eq && eq - key == 4 && memcmp(key, "size", 4) == 0) {
            long long n = strtoll(eq + 1, NULL, 10);
            if (n >= 0) s->next_size = n;
        }
        text += length;
        size -= length;
    }
}

static cloob_status take_description(scanner *s, char type, int64_t size)
{
    char *text = NULL;
    if (size > LONG_NAME_LIMIT) {
        s->out->skipped++;
        return CLOOB_OK;
    }
    cloob_status status = read_text(s, size, &text);
    if (status == CLOOB_OK && type == 'L') {
        s->name.len = 0;
        sbuf_puts(&s->name, text);
    }
    if (status == CLOOB_OK && type == 'x') take_pax(s, text, size);
    free(text);
    return status;
}

/* ---- the walk -------------------------------------------------------------------------------------- */

static int64_t round_up(int64_t n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }

/* The header in s->block, known to be sound; moves s->at behind its content. */
static cloob_status take_header(scanner *s)
{
    char type = (char)s->block[AT_TYPE];
    int64_t size = number(s->block + AT_SIZE, SIZE_BYTES), left = s->size - s->at - BLOCK;
    bool file = type == '0' || type == '\0' || type == '7', description = type == 'L' || type == 'x';
    if (file && s->next_size >= 0) size = s->next_size;
    if (type >= '1' && type <= '6')
        size = 0; /* links, devices and folders have no content, whatever their size field */
    if (size > left) {
        s->out->skipped++;
        s->at = s->size;
        return CLOOB_OK;
    }
    if (description) CLOOB_TRY(take_description(s, type, size));
    if (file) {
        if (!s->name.len) header_name(s->block, &s->name);
        if (!s->name.len) sbuf_puts(&s->name, "");                         /* so that data is there */
        bool folder = s->name.len && s->name.data[s->name.len - 1] == '/'; /* as the oldest tars write them */
        if (s->name.failed) return ctx_no_memory(s->ctx, NAME_BYTES, s->file);
        if (!folder) CLOOB_TRY(add_member(s, s->name.data ? s->name.data : "", s->at + BLOCK, size));
    }
    if (!description && type != 'g' && type != 'K') {
        s->name.len = 0;
        if (s->name.data) s->name.data[0] = '\0';
        s->next_size = -1;
    }
    s->at += BLOCK + round_up(size);
    return CLOOB_OK;
}

/* From a damaged header on to the next sound one. */
static cloob_status resync(scanner *s, bool *found)
{
    bool first = s->at == 0;
    s->out->skipped++;
    *found = false;
    for (int64_t tried = 0; s->size - s->at >= BLOCK; s->at += BLOCK, tried++) {
        if (first && tried > SEARCH_BLOCKS) return CLOOB_OK;
        CLOOB_TRY(s->read(s->arg, s->at, s->block, BLOCK));
        if (all_zero(s->block) || !checksum_holds(s->block) || number(s->block + AT_SIZE, SIZE_BYTES) < 0) continue;
        *found = true;
        return CLOOB_OK;
    }
    return CLOOB_OK;
}

static cloob_status walk(scanner *s)
{
    int zeros = 0;
    while (s->size - s->at >= BLOCK && zeros < 2) {
        bool found = true;
        CLOOB_TRY(s->read(s->arg, s->at, s->block, BLOCK));
        if (all_zero(s->block)) {
            zeros++;
            s->at += BLOCK;
            continue;
        }
        zeros = 0;
        if (!checksum_holds(s->block) || number(s->block + AT_SIZE, SIZE_BYTES) < 0) CLOOB_TRY(resync(s, &found));
        if (!found && s->out->count == 0)
            return ctx_fail(s->ctx, CLOOB_ERR_FORMAT, "%s: not a tar file (no valid header)", s->file);
        if (!found) return CLOOB_OK;
        CLOOB_TRY(take_header(s));
    }
    if (zeros == 0 && s->at < s->size) s->out->skipped++; /* ends inside a header */
    return CLOOB_OK;
}

cloob_status tar_scan(cloob_ctx *ctx, tar_read_fn *read, void *arg, int64_t size, const char *name, tar_index *out)
{
    *out = (tar_index){ 0 };
    scanner s = { .ctx = ctx, .read = read, .arg = arg, .size = size, .file = name, .out = out, .next_size = -1 };
    if (size > 0 && size < BLOCK)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not a tar file (%d bytes)", name, (int)size);
    cloob_status status = walk(&s);
    sbuf_release(&s.name);
    if (status != CLOOB_OK) tar_release(out);
    return status;
}

void tar_release(tar_index *t)
{
    free(t->member);
    sbuf_release(&t->names);
    *t = (tar_index){ 0 };
}

const char *tar_name(const tar_index *t, int64_t i) { return t->names.data + t->member[i].name; }

/* ---- the index on disk: believed only when every claim in it holds --------------------------------- */

typedef struct head {
    char magic[8];
    int64_t source_bytes, size, mtime_ns; /* whose index this is */
    int64_t count, names_bytes, skipped;
    uint64_t hash; /* of everything behind the head */
} head;

static const char magic[8] = { 'c', 'l', 'o', 'o', 'b', 't', 'i', '1' };

static uint64_t hash_all(const char *source, const tar_index *t)
{
    uint64_t h = fnv_add(FNV_START, source, strlen(source));
    h = fnv_add(h, t->member, (size_t)t->count * sizeof *t->member);
    return fnv_add(h, t->names.data, t->names.len);
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

/* ---- through the cache -------------------------------------------------------------------------- */

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
