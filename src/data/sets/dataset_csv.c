/* CSV and TSV: a header, then rows with the path of an image and its caption.
 *
 * Only the position of each row is in memory (12 bytes per row); the row itself is read when its sample is drawn, so
 * many millions of rows fit. With one_caption, rows that name the same image are one sample. */
#include "data/sets/csv.h"
#include "data/sets/dataset_kind.h"

#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/hash.h"
#include "core/rng.h"
#include "core/text.h"

typedef struct csv_set {
    char separator;
    int image_column, caption_column, columns;
    int64_t *offset; /* of each row in the file */
    int32_t *bytes;
    uint64_t *hash; /* of each row's path, while opening */
    int64_t rows, capacity;
    int64_t *group;  /* (groups + 1): where each image's rows begin in member; NULL: every row is a sample */
    int64_t *member; /* rows, image by image */
    int64_t groups;
    char *root;         /* put before relative paths */
    fileset *tar_files; /* or the tar that holds the images */
    tar_index tar;
    hash_map by_name; /* hashes of its members' names to their numbers */
} csv_set;

/* ---- images in a tar: found by name, read with one pread --------------------------------------- */

static cloob_status csv_open_tar(cloob_ctx *ctx, csv_set *c, const char *path, const char *cache)
{
    CLOOB_TRY(open_single(ctx, path, cache, &c->tar_files));
    CLOOB_TRY(tar_open(ctx, c->tar_files, 0, &c->tar));
    for (int64_t i = 0; i < c->tar.count; i++) {
        int64_t *at = hash_map_put(&c->by_name, rng_hash(tar_name(&c->tar, i)));
        if (!at) return ctx_no_memory(ctx, (size_t)c->tar.count * sizeof *at, "the names in a tar");
        *at = i;
    }
    return CLOOB_OK;
}

/* Reads the image in the member `path`. */
static cloob_status csv_read_tar(cloob_ctx *ctx, const csv_set *c, const char *path, stored_sample *s)
{
    while (path[0] == '.' && path[1] == '/') path += 2;
    int64_t at = hash_map_get(&c->by_name, rng_hash(path));
    if (at < 0 || strcmp(tar_name(&c->tar, at), path) != 0)
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: not in %s", path, fileset_name(c->tar_files, 0));
    return stored_read(ctx, c->tar_files, 0, c->tar.member[at].offset, c->tar.member[at].size, s);
}

/* ---- reading the file in order ------------------------------------------------------------------ */

typedef struct stream {
    cloob_ctx *ctx;
    const fileset *files;
    int64_t at;
} stream;

static cloob_status read_stream(void *arg, void *out, size_t n, size_t *got)
{
    stream *s = arg;
    int64_t left = fileset_size(s->files, 0) - s->at;
    *got = left < (int64_t)n ? (size_t)left : n;
    if (*got) CLOOB_TRY(fileset_read(s->ctx, s->files, 0, s->at, out, *got));
    s->at += (int64_t)*got;
    return CLOOB_OK;
}

static cloob_status add_row(cloob_ctx *ctx, csv_set *c, const csv_row *row)
{
    if (c->rows == c->capacity) {
        int64_t capacity = c->capacity ? c->capacity * 2 : 1024;
        int64_t *offset = realloc(c->offset, (size_t)capacity * sizeof *offset);
        if (offset) c->offset = offset;
        int32_t *bytes = realloc(c->bytes, (size_t)capacity * sizeof *bytes);
        if (bytes) c->bytes = bytes;
        uint64_t *hash = c->hash || !c->rows ? realloc(c->hash, (size_t)capacity * sizeof *hash) : NULL;
        if (hash) c->hash = hash;
        if (!offset || !bytes || !hash) return ctx_no_memory(ctx, (size_t)capacity * 20, "the rows of a CSV");
        c->capacity = capacity;
    }
    c->offset[c->rows] = row->offset;
    c->bytes[c->rows] = (int32_t)row->bytes;
    c->hash[c->rows++] = rng_hash(csv_field(row, c->image_column));
    return CLOOB_OK;
}

/* ---- the header --------------------------------------------------------------------------------- */

/* Tried when the option has its default and there is no such column. */
static const char *const image_names[] = { "filepath", "image", "path", "file_name", "filename", "image_path", NULL };
static const char *const caption_names[] = { "title", "caption", "text", "sentence", NULL };
static const char *const address_names[] = { "url", "image_url", "URL", NULL };

static int find_any(const csv_row *header, const char *const *name)
{
    for (; *name; name++)
        if (csv_find(header, *name) >= 0) return csv_find(header, *name);
    return -1;
}

/* The column `key`; where that is the default (`usual`'s first), one of the usual names. -1: none. */
static int find_column(const csv_row *header, const char *key, const char *const *usual)
{
    int at = csv_find(header, key);
    return at < 0 && strcmp(key, usual[0]) == 0 ? find_any(header, usual) : at;
}

/* A column's name for a message. Without unprintable characters, because the file may not be a CSV at all. */
static void show_name(const char *name, sbuf *out)
{
    enum { SHOWN = 40 };
    size_t from = out->len;
    for (uint32_t code; *name && out->len - from < SHOWN;) {
        int n = utf8_decode(name, strlen(name), &code);
        if (n > 0 && code >= ' ' && code != 0x7F) sbuf_add(out, name, (size_t)n);
        else sbuf_putc(out, '?');
        name += n > 0 ? n : 1;
    }
}

static cloob_status missing_column(cloob_ctx *ctx, const char *source, const csv_row *header, const dataset_options *o)
{
    sbuf names = { 0 };
    for (int i = 0; i < header->count && names.len < 200; i++) {
        if (i) sbuf_puts(&names, ", ");
        show_name(csv_field(header, i), &names);
    }
    bool no_image = find_column(header, o->csv_image_key, image_names) < 0;
    if (no_image && find_any(header, address_names) >= 0) {
        sbuf_release(&names);
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s: its images are URLs (column url), but training reads files; download them first, for "
                        "example with img2dataset, and set the column of their paths with `csv_image_key`",
                        source);
    }
    if (!names.data || !names.data[0]) {
        sbuf_release(&names);
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s: the file is empty; it needs a header with the columns %s and %s, and a row per pair",
                        source, o->csv_image_key, o->csv_caption_key);
    }
    cloob_status status =
        ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no column \"%s\"; the header has: %s (see %s and `csv_separator`)", source,
                 no_image ? o->csv_image_key : o->csv_caption_key, names.data,
                 no_image ? "`csv_image_key`" : "`csv_caption_key`");
    sbuf_release(&names);
    return status;
}

static cloob_status read_header(cloob_ctx *ctx, const dataset_part *p, char separator, csv_reader *r, stream *s,
                                csv_row *row)
{
    *s = (stream){ ctx, p->files, 0 };
    csv_init(r, separator, read_stream, s, fileset_name(p->files, 0));
    return csv_next(ctx, r, row);
}

/* How many of the two columns there are; a URL counts as an image. */
static int header_fit(const csv_row *row, const dataset_options *o)
{
    return (find_column(row, o->csv_image_key, image_names) >= 0 || find_any(row, address_names) >= 0) +
           (find_column(row, o->csv_caption_key, caption_names) >= 0);
}

static bool header_fits(const csv_row *row, const dataset_options *o)
{
    return find_column(row, o->csv_image_key, image_names) >= 0 &&
           find_column(row, o->csv_caption_key, caption_names) >= 0;
}

/* Tries the given separator; if the columns are not found, other common ones. If none finds them, the error comes from
 * the separator that finds most of the header. */
static cloob_status take_header(cloob_ctx *ctx, dataset_part *p, const dataset_options *o, csv_reader *r, stream *s,
                                csv_row *row)
{
    csv_set *c = p->self;
    const char others[] = "\t,;|";
    c->separator = o->csv_separator;
    CLOOB_TRY(read_header(ctx, p, c->separator, r, s, row));
    int fit = header_fit(row, o), columns = row->count;
    for (int i = 0; others[i] && row->count && !header_fits(row, o); i++) {
        if (others[i] == o->csv_separator || read_header(ctx, p, others[i], r, s, row) != CLOOB_OK) continue;
        int now = header_fit(row, o);
        if (now < fit || (now == fit && row->count <= columns)) continue;
        fit = now, columns = row->count;
        c->separator = others[i];
    }
    if (!header_fits(row, o)) {
        CLOOB_TRY(read_header(ctx, p, c->separator, r, s, row));
        return missing_column(ctx, fileset_name(p->files, 0), row, o);
    }
    c->image_column = find_column(row, o->csv_image_key, image_names);
    c->caption_column = find_column(row, o->csv_caption_key, caption_names);
    c->columns = row->count;
    return CLOOB_OK;
}

/* ---- all rows ----------------------------------------------------------------------------------- */

/* Reports progress every few thousand rows: lists may have millions. */
static void report_rows(cloob_ctx *ctx, const dataset_part *p, const stream *s, int64_t rows)
{
    enum { EVERY = 1 << 16 };
    if (rows % EVERY == 0) ctx_progress(ctx, "read the list", s->at, fileset_size(p->files, 0), "bytes");
}

static cloob_status scan_rows(cloob_ctx *ctx, dataset_part *p, const dataset_options *o)
{
    csv_set *c = p->self;
    csv_reader *r = malloc(sizeof *r);
    csv_row row = { 0 };
    stream s;
    cloob_status status = r ? take_header(ctx, p, o, r, &s, &row) : ctx_no_memory(ctx, sizeof *r, "a CSV reader");
    while (status == CLOOB_OK) {
        status = csv_next(ctx, r, &row);
        if (status != CLOOB_OK || row.count == 0) break;
        const char *path = csv_field(&row, c->image_column), *caption = csv_field(&row, c->caption_column);
        if (row.count > c->columns || !path || !*path || !caption || !*caption) p->skipped++;
        else status = add_row(ctx, c, &row);
        report_rows(ctx, p, &s, c->rows);
    }
    csv_row_release(&row);
    free(r);
    return status;
}

/* ---- one sample per image ----------------------------------------------------------------------- */

/* Images in the order of the file, each with its rows. Paths are compared by 64-bit hashes: among n paths a collision
 * has probability n^2 / 2^65. */
static cloob_status group_rows(cloob_ctx *ctx, csv_set *c)
{
    size_t n = (size_t)c->rows;
    hash_map groups = { 0 };
    int64_t *of = malloc((n + 1) * sizeof *of), end = 0; /* of: the group of each row */
    c->group = calloc(n + 1, sizeof *c->group);
    c->member = malloc((n + 1) * sizeof *c->member);
    bool ok = of && c->group && c->member;
    for (int64_t i = 0; ok && i < c->rows; i++) {
        int64_t *g = hash_map_put(&groups, c->hash[i]);
        if (!(ok = g != NULL)) break;
        if (*g < 0) *g = c->groups++;
        c->group[of[i] = *g]++;
    }
    for (int64_t g = 0; ok && g < c->groups; g++) c->group[g] = end += c->group[g]; /* where the row ends */
    for (int64_t i = c->rows; ok && i-- > 0;) c->member[--c->group[of[i]]] = i;
    if (ok) c->group[c->groups] = end;
    hash_map_release(&groups);
    free(of);
    return ok ? CLOOB_OK : ctx_no_memory(ctx, n * sizeof *of, "the rows of a CSV");
}

/* ---- where the images are ---------------------------------------------------------------------- */

static cloob_status read_row(cloob_ctx *ctx, const dataset_part *p, int64_t row, csv_row *out)
{
    const csv_set *c = p->self;
    size_t n = (size_t)c->bytes[row];
    char *text = malloc(n + 1);
    if (!text) return ctx_no_memory(ctx, n, "a row");
    cloob_status status = fileset_read(ctx, p->files, 0, c->offset[row], text, n);
    if (status == CLOOB_OK) status = csv_parse_row(ctx, text, n, c->separator, fileset_name(p->files, 0), out);
    if (status == CLOOB_OK && out->count <= (c->image_column > c->caption_column ? c->image_column : c->caption_column))
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: changed since it was opened", fileset_name(p->files, 0));
    free(text);
    return status;
}

/* Without `path_data`: next to the CSV, or, as in other programs, below the working directory; the first row
 * decides. */
static cloob_status find_root(cloob_ctx *ctx, const dataset_part *p, const char *source)
{
    csv_set *c = p->self;
    csv_row row = { 0 };
    const char *base = file_base(source);
    c->root = strndup(source, (size_t)(base - source));
    if (!c->root) return ctx_no_memory(ctx, strlen(source), "a folder name");
    if (c->rows == 0) return CLOOB_OK;
    cloob_status status = read_row(ctx, p, 0, &row);
    if (status == CLOOB_OK) {
        const char *first = csv_field(&row, c->image_column);
        char near_csv[FILE_PATH];
        status = file_in(ctx, c->root, first, near_csv);
        if (status == CLOOB_OK && !file_exists(near_csv) && file_exists(first)) c->root[0] = '\0';
    }
    csv_row_release(&row);
    return status;
}

static cloob_status take_root(cloob_ctx *ctx, const dataset_part *p, const char *source, const dataset_options *o)
{
    csv_set *c = p->self;
    if (!o->path_data) return find_root(ctx, p, source);
    if (!file_is_dir(o->path_data) && file_exists(o->path_data)) return csv_open_tar(ctx, c, o->path_data, o->cache);
    if (!file_exists(o->path_data))
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: the folder of `path_data` does not exist", o->path_data);
    c->root = strdup(o->path_data);
    return c->root ? CLOOB_OK : ctx_no_memory(ctx, strlen(o->path_data), "a folder name");
}

/* ---- the kind ------------------------------------------------------------------------------------ */

static cloob_status open_csv(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    csv_set *c = p->self = calloc(1, sizeof *c);
    if (!c) return ctx_no_memory(ctx, sizeof *c, source);
    if (!o->csv_separator || strchr("\"\r\n", o->csv_separator))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`csv_separator`: a quote or line break cannot separate columns");
    CLOOB_TRY(open_single(ctx, source, o->cache, &p->files));
    CLOOB_TRY(scan_rows(ctx, p, o));
    if (o->one_caption) CLOOB_TRY(group_rows(ctx, c));
    free(c->hash);
    c->hash = NULL;
    p->count = c->group ? c->groups : c->rows;
    p->captions = true;
    return take_root(ctx, p, source, o);
}

static void close_csv(dataset_part *p)
{
    csv_set *c = p->self;
    if (!c) return;
    fileset_destroy(c->tar_files);
    tar_release(&c->tar);
    hash_map_release(&c->by_name);
    free(c->offset);
    free(c->bytes);
    free(c->hash);
    free(c->group);
    free(c->member);
    free(c->root);
    free(c);
}

static cloob_status fetch_image(cloob_ctx *ctx, const csv_set *c, const char *path, stored_sample *s)
{
    if (c->tar_files) return csv_read_tar(ctx, c, path, s);
    char full[FILE_PATH];
    CLOOB_TRY(file_in(ctx, c->root, path, full));
    return stored_read_path(ctx, full, s);
}

static cloob_status fetch_csv(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what,
                              stored_sample *s)
{
    const csv_set *c = p->self;
    int64_t row = i;
    csv_row r = { 0 };
    if (c->group) {
        s->captions = c->group[i + 1] - c->group[i];
        row = c->member[c->group[i] + (int64_t)(pick % (uint64_t)s->captions)];
    }
    sbuf_printf(&s->name, "%s: byte %lld", fileset_name(p->files, 0), (long long)c->offset[row]);
    cloob_status status = read_row(ctx, p, row, &r);
    if (status == CLOOB_OK) {
        const char *path = csv_field(&r, c->image_column), *caption = csv_field(&r, c->caption_column);
        s->name.len = 0;
        sbuf_puts(&s->name, path);
        if (what & FETCH_CAPTION) status = stored_caption(ctx, caption, strlen(caption), s);
        if (status == CLOOB_OK && (what & FETCH_IMAGE)) status = fetch_image(ctx, c, path, s);
    }
    csv_row_release(&r);
    return status;
}

const dataset_ops dataset_csv = { "csv", open_csv, close_csv, fetch_csv };
