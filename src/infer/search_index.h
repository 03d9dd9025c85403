/* An index of a folder's images: their embeddings in one mapped file, searched by an embedding.
 *
 * The file is a safetensors file, so other programs can read it:
 *
 *     row                       F32 (N, D)   unit embeddings
 *     coarse                    I8 (N, D)    the same, each row scaled to +-127: a quarter of the bytes to scan
 *     scale                     F32 (N)      of the coarse rows
 *     size, mtime               I64 (N)      of the files, in bytes and nanoseconds: a changed file is embedded again
 *     name                      U8           paths below the folder, one after the other
 *     name_end                  I64 (N)      where each path ends
 *     bad_size, bad_mtime       I64 (M)      of the files that could not be read; tried again when they change
 *     bad_name, bad_name_end    U8, I64 (M)  their paths
 *     probe                     F32 (D)      the embedding of a fixed image: shows whether a model made this index
 *
 * Metadata: format "cloob-index", root, root_from_index, checkpoint, vocab, model_digest. model_digest is digest.model
 * (model/digest.h) of the weights, "" when their file has none; older index files have no such key. A model with the
 * same digest made the index; otherwise the probe decides, which costs a run of the image tower. The file is written
 * atomically: every half minute while indexing, and on an interruption, so that a kill costs half a minute of work and
 * never the index. A reader keeps the old file mapped.
 *
 * The indexed folder may be moved. root is its absolute path when the index was written. root_from_index is its path
 * from the folder of the index file (".", "..", "../.."), or "" when the index is outside of the indexed folder; older
 * files have no such key. A reader takes the first of these folders that holds one of the first 100 entries:
 *
 *     root_from_index, from where the index is now;  root;  the folder that the index is in.
 *
 * When none does, it uses root_from_index, or root if that is NULL: the images no longer exist. */
#ifndef INFER_SEARCH_INDEX_H
#define INFER_SEARCH_INDEX_H

#include "cloob/search.h"
#include "eval/nearest.h"
#include "io/safetensors.h"

/* Files by name, size and time. */
typedef struct search_files {
    int64_t n;
    const int64_t *size, *mtime, *name_end;
    const char *name; /* one after the other */
} search_files;

typedef struct cloob_search {
    st_file file;
    int64_t N, D;
    const float *row, *scale, *probe;
    const int8_t *coarse;
    search_files good, bad;         /* good.n is N */
    const char *checkpoint, *vocab; /* vocab "": the checkpoint's own */
    const char *digest;             /* of the model that made it; "": not stored */
    char *root;                     /* where the indexed folder is now, by the rule above */
} search_index;

/* The index file of a folder is the hidden file of this name in it; any other path is returned as it is. A new string;
 * NULL when out of memory. */
#define SEARCH_INDEX_NAME ".cloob-index.safetensors"
char *search_index_file(const char *path);

/* The path of entry i: root/name, in a new string. NULL when out of memory. */
char *search_index_path(const search_index *ix, int64_t i);
/* The same for a list of files below some folder. */
char *search_files_path(const char *root, const search_files *f, int64_t i);
/* The name of file i: *bytes of the mapped file, without a final zero. */
const char *search_files_name(const search_files *f, int64_t i, size_t *bytes);

typedef near_row search_hit; /* an entry and its cosine */

typedef struct search_query {
    const float *row; /* unit embedding (D); NULL: every score is 0, so entries come in the order of the index */
    int64_t D, max_hits;
    const float *min_score; /* lower scores are skipped; NULL: none, and 8-bit rows are scanned first */
    bool (*accept)(const search_index *ix, int64_t entry, const void *user); /* NULL: all; runs on several threads */
    const void *user;
} search_query;

/* The best `max_hits` of the entries that pass, best first, equal scores in the order of the index: *found of them in
 * hit (max_hits, or N if that is less). *total: how many entries pass. Refuses another D than the index has. Takes at
 * most N * sizeof(search_hit) bytes of memory, and D numbers. */
cloob_status search_index_query(cloob_ctx *ctx, const search_index *ix, const search_query *q, search_hit *hit,
                                int64_t *found, int64_t *total);

/* Whether a model with this digest is known to have made the index; false: compare the probe. */
bool search_index_has_digest(const search_index *ix, const char *digest);
/* The probe: a fixed image, rgb (S, S, 3). */
void search_probe_image(int64_t S, uint8_t *rgb);
/* Whether `row` (D), a model's unit embedding of the probe, is that of the model that made the index. */
bool search_index_made_by(const search_index *ix, const float *row, int64_t D);

/* A file to write. */
typedef struct search_entry {
    const char *name;
    const float *row; /* (D); NULL: the file is unreadable */
    int64_t size, mtime;
    int64_t order; /* of entries with the same name, the one with the largest order is kept */
} search_entry;

/* The metadata of the same names. */
typedef struct search_origin {
    const char *root, *checkpoint, *vocab, *digest;
} search_origin;

/* Writes an index of n entries with different names. */
cloob_status search_index_write(cloob_ctx *ctx, const char *path, const search_origin *from, const float *probe,
                                int64_t D, const search_entry *entry, int64_t n);

#endif
