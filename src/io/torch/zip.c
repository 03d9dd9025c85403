/* Stored zip members: the directory at the end of the file, its 64-bit form, and writing. */
#include "io/torch/zip.h"

#include <stdlib.h>
#include <string.h>

#include "core/arith.h"

enum {
    LOCAL_SIGNATURE = 0x04034b50,
    CENTRAL_SIGNATURE = 0x02014b50,
    END_SIGNATURE = 0x06054b50,
    END64_SIGNATURE = 0x06064b50,
    LOCATOR64_SIGNATURE = 0x07064b50,
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR64_BYTES = 20,
    MEMBER_LIMIT = 1 << 20,
    ALIGN = 64 /* as torch does, so that its mapped reading works */
};

typedef struct reader {
    cloob_ctx *ctx;
    arena *a;
    const char *name;
    const unsigned char *data;
    uint64_t size;
    uint64_t directory, directory_bytes, members;
} reader;

static cloob_status damaged(reader *r, const char *what)
{
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: damaged zip file: %s (cut short, or not written to its end?)",
                    r->name, what);
}

bool zip_looks_like(const unsigned char *data, size_t size) { return size >= 4 && load_le(data, 4) == LOCAL_SIGNATURE; }

/* ---- the end of the file ------------------------------------------------------------------------- */

/* A comment of up to 64 KiB may follow the end record, so it is looked for backwards. */
static bool find_end(const reader *r, uint64_t *at)
{
    if (r->size < END_BYTES) return false;
    uint64_t last = r->size - END_BYTES, first = last > 0xFFFF ? last - 0xFFFF : 0;
    for (uint64_t i = last + 1; i-- > first;)
        if (load_le(r->data + i, 4) == END_SIGNATURE && load_le(r->data + i + 20, 2) == r->size - i - END_BYTES) {
            *at = i;
            return true;
        }
    return false;
}

/* A file of 4 GiB or 65,535 members has its sizes in a second record, found through a locator before the first. */
static cloob_status read_end64(reader *r, uint64_t end)
{
    if (end < LOCATOR64_BYTES || load_le(r->data + end - LOCATOR64_BYTES, 4) != LOCATOR64_SIGNATURE) return CLOOB_OK;
    uint64_t at = load_le(r->data + end - LOCATOR64_BYTES + 8, 8);
    if (at > r->size || r->size - at < END64_BYTES || load_le(r->data + at, 4) != END64_SIGNATURE)
        return damaged(r, "its 64-bit directory is not where it should be");
    r->members = load_le(r->data + at + 32, 8);
    r->directory_bytes = load_le(r->data + at + 40, 8);
    r->directory = load_le(r->data + at + 48, 8);
    return CLOOB_OK;
}

static cloob_status read_end(reader *r)
{
    uint64_t at;
    if (!find_end(r, &at)) return damaged(r, "no directory at its end");
    r->members = load_le(r->data + at + 10, 2);
    r->directory_bytes = load_le(r->data + at + 12, 4);
    r->directory = load_le(r->data + at + 16, 4);
    CLOOB_TRY(read_end64(r, at));
    if (r->directory > r->size || r->directory_bytes > r->size - r->directory)
        return damaged(r, "its directory is outside of it");
    if (r->members > MEMBER_LIMIT || r->members > r->directory_bytes / CENTRAL_BYTES)
        return damaged(r, "its directory is too small for its members");
    return CLOOB_OK;
}

/* ---- one member ---------------------------------------------------------------------------------- */

typedef struct central {
    uint64_t flags, method, packed, size, offset;
    uint64_t name_bytes, extra_bytes, comment_bytes;
} central;

/* Fields that are all ones continue in the extra field with id 1, in this order. */
static bool read_extra64(const unsigned char *extra, uint64_t bytes, central *c)
{
    uint64_t *field[] = { &c->size, &c->packed, &c->offset };
    bool wanted = c->size == UINT32_MAX || c->packed == UINT32_MAX || c->offset == UINT32_MAX;
    while (wanted && bytes >= 4) {
        uint64_t id = load_le(extra, 2), n = load_le(extra + 2, 2), used = 0;
        if (n > bytes - 4) return false;
        for (int i = 0; id == 1 && i < 3; i++) {
            if (*field[i] != UINT32_MAX) continue;
            if (used + 8 > n) return false;
            *field[i] = load_le(extra + 4 + used, 8);
            used += 8;
        }
        if (id == 1) return true;
        extra += 4 + n;
        bytes -= 4 + n;
    }
    return true;
}

/* The local header repeats the name; only its lengths are needed to find the data. */
static cloob_status find_data(reader *r, const central *c, zip_member *out)
{
    if (c->offset > r->directory || r->directory - c->offset < LOCAL_BYTES ||
        load_le(r->data + c->offset, 4) != LOCAL_SIGNATURE)
        return damaged(r, "a member is not where its directory says");
    uint64_t skip = LOCAL_BYTES + load_le(r->data + c->offset + 26, 2) + load_le(r->data + c->offset + 28, 2);
    uint64_t left = r->directory - c->offset;
    if (skip > left || c->packed > left - skip) return damaged(r, "a member reaches beyond the end");
    out->size = c->size;
    if (c->method != 0 || c->flags & 1) return CLOOB_OK; /* compressed or encrypted: no data */
    if (c->size != c->packed) return damaged(r, "a stored member with two sizes");
    out->data = r->data + c->offset + skip;
    return CLOOB_OK;
}

static cloob_status read_name(reader *r, const unsigned char *name, const central *c, zip_member *out)
{
    if (memchr(name, '\0', c->name_bytes)) return damaged(r, "a member's name has a zero in it");
    out->name = arena_string_n(r->a, (const char *)name, c->name_bytes);
    return out->name ? CLOOB_OK : ctx_no_memory(r->ctx, c->name_bytes, r->name);
}

static cloob_status read_member(reader *r, uint64_t *at, zip_member *out)
{
    const unsigned char *p = r->data + r->directory + *at;
    uint64_t left = r->directory_bytes - *at;
    if (left < CENTRAL_BYTES || load_le(p, 4) != CENTRAL_SIGNATURE) return damaged(r, "its directory breaks off");
    central c = { .flags = load_le(p + 8, 2),
                  .method = load_le(p + 10, 2),
                  .packed = load_le(p + 20, 4),
                  .size = load_le(p + 24, 4),
                  .offset = load_le(p + 42, 4),
                  .name_bytes = load_le(p + 28, 2),
                  .extra_bytes = load_le(p + 30, 2),
                  .comment_bytes = load_le(p + 32, 2) };
    uint64_t whole = CENTRAL_BYTES + c.name_bytes + c.extra_bytes + c.comment_bytes;
    if (whole > left || !read_extra64(p + CENTRAL_BYTES + c.name_bytes, c.extra_bytes, &c))
        return damaged(r, "its directory breaks off");
    *at += whole;
    CLOOB_TRY(read_name(r, p + CENTRAL_BYTES, &c, out));
    return find_data(r, &c, out);
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const zip_member *)a)->name, ((const zip_member *)b)->name);
}

static int by_data(const void *a, const void *b)
{
    const zip_member *x = a, *y = b;
    return x->data < y->data ? -1 : x->data > y->data;
}

/* Members that share bytes are the other way to make a small file claim a lot. */
static cloob_status check_overlap(reader *r, zip_reader *z)
{
    qsort(z->member, (size_t)z->count, sizeof *z->member, by_data);
    for (int64_t i = 1; i < z->count; i++) {
        const zip_member *a = &z->member[i - 1], *b = &z->member[i];
        if (a->data && a->size > (uint64_t)(b->data - a->data)) return damaged(r, "two members share bytes");
    }
    return CLOOB_OK;
}

static cloob_status check_names(reader *r, zip_reader *z)
{
    qsort(z->member, (size_t)z->count, sizeof *z->member, by_name);
    for (int64_t i = 1; i < z->count; i++)
        if (strcmp(z->member[i - 1].name, z->member[i].name) == 0) return damaged(r, "two members of one name");
    return CLOOB_OK;
}

cloob_status zip_open_bytes(cloob_ctx *ctx, arena *a, const unsigned char *data, size_t size, const char *name,
                            zip_reader *z)
{
    reader r = { .ctx = ctx, .a = a, .name = name, .data = data, .size = size };
    uint64_t at = 0;
    *z = (zip_reader){ 0 };
    CLOOB_TRY(read_end(&r));
    z->member = arena_push(a, (size_t)(r.members + 1) * sizeof *z->member);
    if (!z->member) return ctx_no_memory(ctx, (size_t)r.members * sizeof *z->member, name);
    for (uint64_t i = 0; i < r.members; i++) CLOOB_TRY(read_member(&r, &at, &z->member[z->count++]));
    CLOOB_TRY(check_overlap(&r, z));
    return check_names(&r, z);
}

const zip_member *zip_find(const zip_reader *z, const char *name)
{
    zip_member key = { .name = name };
    return z->count ? bsearch(&key, z->member, (size_t)z->count, sizeof key, by_name) : NULL;
}

/* ---- writing ------------------------------------------------------------------------------------- */

/* The zip polynomial, one table of 256 made on the stack: the library keeps no state. */
static void crc_table(uint32_t table[4][256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
        table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++) /* table[t][i]: byte i followed by t zero bytes */
        for (int t = 1; t < 4; t++) table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 0xFF];
}

static uint32_t crc32_of(const unsigned char *p, size_t n)
{
    uint32_t table[4][256], c = UINT32_MAX;
    crc_table(table);
    for (; n >= 4; p += 4, n -= 4) {
        c ^= (uint32_t)load_le(p, 4);
        c = table[3][c & 0xFF] ^ table[2][c >> 8 & 0xFF] ^ table[1][c >> 16 & 0xFF] ^ table[0][c >> 24];
    }
    for (; n; p++, n--) c = table[0][(c ^ *p) & 0xFF] ^ c >> 8;
    return ~c;
}

static void put(sbuf *s, uint64_t v, int bytes)
{
    for (; bytes > 0; bytes--, v >>= 8) sbuf_putc(s, (char)v);
}

static void write_out(zip_writer *w, const void *data, size_t size)
{
    if (size) fwrite(data, 1, size, w->stream);
    w->at += size;
}

/* What the local and the central header have in common. */
static void put_common(sbuf *s, uint32_t crc, size_t size, size_t name_bytes, size_t extra_bytes)
{
    put(s, 0, 2); /* flags */
    put(s, 0, 2); /* stored */
    put(s, 0, 2); /* time and date: 1 January 1980, so that equal weights give equal files */
    put(s, 0x0021, 2);
    put(s, crc, 4);
    put(s, size, 4);
    put(s, size, 4);
    put(s, name_bytes, 2);
    put(s, extra_bytes, 2);
}

static void put_central(zip_writer *w, const char *name, uint32_t crc, size_t size, uint64_t offset)
{
    bool far = offset >= UINT32_MAX;
    sbuf *s = &w->directory;
    put(s, CENTRAL_SIGNATURE, 4);
    put(s, 45, 2); /* made by, needs: version 4.5 knows 64-bit records */
    put(s, 45, 2);
    put_common(s, crc, size, strlen(name), far ? 12 : 0);
    put(s, 0, 2 + 2 + 2 + 4); /* comment, disk, attributes */
    put(s, far ? UINT32_MAX : offset, 4);
    sbuf_puts(s, name);
    if (!far) return;
    put(s, 1, 2);
    put(s, 8, 2);
    put(s, offset, 8);
}

void zip_writer_begin(zip_writer *w, FILE *stream) { *w = (zip_writer){ .stream = stream }; }

cloob_status zip_writer_add(cloob_ctx *ctx, zip_writer *w, const char *name, const void *data, size_t size)
{
    if (size >= UINT32_MAX)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: %zu bytes; one tensor of a torch file may have up to 4 GiB here", name, size);
    uint64_t offset = w->at, start = offset + LOCAL_BYTES + strlen(name) + 4; /* 4: id and size of the padding */
    size_t pad = (size_t)((ALIGN - start % ALIGN) % ALIGN);
    uint32_t crc = crc32_of(data, size);
    sbuf s = { 0 };
    put(&s, LOCAL_SIGNATURE, 4);
    put(&s, 45, 2);
    put_common(&s, crc, size, strlen(name), 4 + pad);
    sbuf_puts(&s, name);
    put(&s, 0x4246, 2); /* "FB", the padding torch writes */
    put(&s, pad, 2);
    for (size_t i = 0; i < pad; i++) sbuf_putc(&s, 'Z');
    put_central(w, name, crc, size, offset);
    bool failed = s.failed || w->directory.failed;
    if (!failed) {
        write_out(w, s.data, s.len);
        write_out(w, data, size);
        w->count++;
    }
    sbuf_release(&s);
    return failed ? ctx_no_memory(ctx, strlen(name), "a zip directory") : CLOOB_OK;
}

cloob_status zip_writer_end(cloob_ctx *ctx, zip_writer *w)
{
    uint64_t directory = w->at, bytes = w->directory.len, n = (uint64_t)w->count;
    bool far = directory >= UINT32_MAX || bytes >= UINT32_MAX || n >= 0xFFFF;
    sbuf s = { 0 };
    if (far) {
        put(&s, END64_SIGNATURE, 4);
        put(&s, END64_BYTES - 12, 8);
        put(&s, 45, 2), put(&s, 45, 2), put(&s, 0, 4), put(&s, 0, 4);
        put(&s, n, 8), put(&s, n, 8), put(&s, bytes, 8), put(&s, directory, 8);
        put(&s, LOCATOR64_SIGNATURE, 4);
        put(&s, 0, 4), put(&s, directory + bytes, 8), put(&s, 1, 4);
    }
    put(&s, END_SIGNATURE, 4);
    put(&s, 0, 4);
    put(&s, far ? 0xFFFF : n, 2), put(&s, far ? 0xFFFF : n, 2);
    put(&s, far ? UINT32_MAX : bytes, 4), put(&s, far ? UINT32_MAX : directory, 4);
    put(&s, 0, 2);
    bool failed = s.failed || w->directory.failed;
    if (!failed) {
        write_out(w, w->directory.data, w->directory.len);
        write_out(w, s.data, s.len);
    }
    sbuf_release(&s);
    return failed ? ctx_no_memory(ctx, bytes, "a zip directory") : CLOOB_OK;
}

void zip_writer_release(zip_writer *w)
{
    sbuf_release(&w->directory);
    *w = (zip_writer){ 0 };
}
