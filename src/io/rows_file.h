/* A file of matrices whose rows arrive in batches: safetensors, or .npy for one matrix. Memory does not grow
 * with the rows, and the file has the bytes that st_write would give it.
 *
 *     rows_file f;
 *     CLOOB_TRY(rows_file_begin(ctx, path, part, parts, meta, metas, &f));
 *     ... rows_file_put(ctx, &f, 0, rows, n), in any order of the parts ...
 *     CLOOB_TRY(rows_file_end(ctx, &f, meta, metas));         or rows_file_abort(&f)
 *
 * The file gets its name at the end; a kill leaves nothing. All of its space is reserved at the beginning, so that a
 * full disk is detected before the first row is computed. */
#ifndef IO_ROWS_FILE_H
#define IO_ROWS_FILE_H

#include "core/file.h"
#include "io/safetensors.h"
#include "core/sbuf.h"

enum { ROWS_PARTS = 5 };

typedef struct rows_part {
    const char *name; /* kept by the caller */
    cloob_dtype dtype;
    int64_t max_rows; /* rows that may come */
    int64_t width;    /* 0: a vector of numbers, not a matrix */
} rows_part;

typedef struct rows_file {
    file_writer w;
    bool npy;
    rows_part part[ROWS_PARTS];
    int64_t rows[ROWS_PARTS];  /* that have come */
    int64_t begin[ROWS_PARTS]; /* byte of the file where each begins */
    int parts;
    int64_t header; /* bytes before the first */
} rows_file;

/* meta: the most that end will be given; its space is reserved. More than one part does not go into
 * .npy, and meta is left out there. */
cloob_status rows_file_begin(cloob_ctx *ctx, const char *path, const rows_part *part, int parts, const st_meta *meta,
                             int64_t metas, rows_file *f);
/* The next n rows of a part. */
cloob_status rows_file_put(cloob_ctx *ctx, rows_file *f, int part, const void *rows, int64_t n);
/* Writes the beginning, moves parts together where fewer rows came than might have, and renames. f is empty
 * afterwards, whatever the outcome. */
cloob_status rows_file_end(cloob_ctx *ctx, rows_file *f, const st_meta *meta, int64_t metas);
void rows_file_abort(rows_file *f); /* leaves no file; f may be empty */

/* NumPy's .npy: the beginning of a file of one matrix, and small arrays read from memory. */

/* Version 1.0, little-endian float32, C order. The matrix's numbers follow. Its length does not depend on the shape. */
void npy_put_beginning(sbuf *s, int64_t rows, int64_t columns);

/* The numbers of an array of one dimension or none, of booleans, integers or floats (versions 1 to 3, little-endian),
 * into out (room). *n: how many there are; more than room, other shapes and types, and damaged files are refused. name
 * is for messages. */
cloob_status npy_numbers(cloob_ctx *ctx, const void *data, size_t size, const char *name, double *out, int64_t room,
                         int64_t *n);

#endif
