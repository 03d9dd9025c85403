/* safetensors files: named tensors behind a JSON header, read by mapping.
 *
 * Every claim of a file is checked before it is used: header length and JSON, known types, shapes that multiply to the
 * byte range they name, ranges inside the file, without overlap or holes. Damaged or malicious files are refused with
 * one line.
 *
 *     st_file f;
 *     CLOOB_TRY(st_open(ctx, path, &f));
 *     const st_entry *e = st_find(&f, "visual.conv1.weight");      NULL when absent
 *     ... e->t.data points into the mapping, valid until st_close ...
 *     st_close(&f); */
#ifndef IO_SAFETENSORS_H
#define IO_SAFETENSORS_H

#include "core/arena.h"
#include "core/file.h"
#include "core/sbuf.h"
#include "tensor/tensor.h"

typedef struct st_entry {
    const char *name;
    tensor t; /* read-only data */
} st_entry;

typedef struct st_meta {
    const char *key, *value;
} st_meta;

typedef struct st_file {
    file_map map;
    arena names;
    st_entry *entry;
    int64_t count;
    st_meta *meta;
    int64_t meta_count;
} st_file;

cloob_status st_open(cloob_ctx *ctx, const char *path, st_file *f);
/* The same over bytes that the caller keeps; name is for messages. Used by tests and fuzzers. */
cloob_status st_open_bytes(cloob_ctx *ctx, const void *data, size_t size, const char *name, st_file *f);
void st_close(st_file *f);

const st_entry *st_find(const st_file *f, const char *name);
const char *st_meta_get(const st_file *f, const char *key);

/* Like st_find, but absence or another number of dimensions is an error naming the file and the tensor. */
cloob_status st_need(cloob_ctx *ctx, const st_file *f, const char *path, const char *name, int ndim, const tensor **t);

/* Writes entries in the given order, each aligned to its element size as the format requires, atomically. Data must be
 * in host memory. */
cloob_status st_write(cloob_ctx *ctx, const char *path, const st_entry *entry, int64_t count, const st_meta *meta,
                      int64_t meta_count);

/* The same; done is called after each tensor, whose pages the caller may drop then. */
cloob_status st_write_dropping(cloob_ctx *ctx, const char *path, const st_entry *entry, int64_t count,
                               const st_meta *meta, int64_t meta_count, void (*done)(void *user, const st_entry *e),
                               void *user);

/* The beginning of a safetensors file, up to the first tensor's data: the 8-byte length and the header, filled up
 * with spaces to at least `min_bytes` in all. Data of the entries is not read. */
void st_put_beginning(sbuf *s, const st_entry *entry, int64_t count, const st_meta *meta, int64_t meta_count,
                      size_t min_bytes);

#endif
