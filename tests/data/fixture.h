/* Small data sets, made in a temporary folder: images, tars, tables. */
#ifndef TESTS_DATA_FIXTURE_H
#define TESTS_DATA_FIXTURE_H

#include <stdio.h>

#include "core/ctx.h"

/* A fresh folder, and removing it with all it holds. */
const char *fixture_folder(void); /* made on first use; one per program */
void fixture_remove(void);
/* "FOLDER/NAME" in one of some rotating buffers. */
const char *fixture_path(const char *name);

void fixture_write(const char *name, const void *bytes, size_t n); /* makes folders on the way */
void fixture_text(const char *name, const char *text);
void fixture_gzip(const char *from, const char *to); /* names below the folder; false when this build has no zlib */

/* A PNG of size x size whose pixels tell `number` (see fixture_number). The caller frees. */
void *fixture_png(cloob_ctx *ctx, int number, int size, size_t *bytes);
/* The number back out of an image's first pixel. */
int fixture_number(const unsigned char *rgb);

/* A tar: begin, add members, end. */
FILE *fixture_tar_begin(const char *name);
void fixture_tar_add(FILE *f, const char *name, const void *bytes, size_t n);
void fixture_tar_end(FILE *f);

/* A webdataset shard with samples [begin, end): KEY.png, KEY.txt ("caption N"). */
void fixture_shard(cloob_ctx *ctx, const char *name, int begin, int end, int size);

#endif
