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
 * When none does, it takes root_from_index, or without it root: the images are gone. */
#ifndef INFER_SEARCH_INDEX_H
#define INFER_SEARCH_INDEX_H

#include "cloob/search.h"
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
 * NULL when memory is out. */
#define SEARCH_INDEX_NAME ".cloob-index.safetensors"
char *search_index_file(const char *path);

cloob_status search_index_open(cloob_ctx *ctx, const char *path, search_index *ix);
void search_index_close(search_index *ix);

/* The path of entry i: root/name, in a new string. NULL when memory is out. */
char *search_index_path(const search_index *ix, int64_t i);
/* The same for a list of files below some folder. */
char *search_files_path(const char *root, const search_files *f, int64_t i);

/* Brings the index of a folder up to date, or makes it. checkpoint and vocab are stored for queries. An index of a
 * missing folder is used for this folder when some of its files are here. When the context's should_stop
 * returns true, what was embedded is written and CLOOB_ERR_STOPPED returned; the next call continues. */
cloob_status search_index_update(cloob_ctx *ctx, cloob_model *m, const char *folder, const char *path,
                                 const char *checkpoint, const char *vocab, cloob_search_update *out);

typedef struct search_hit {
    int64_t entry;
    float score; /* cosine */
} search_hit;

typedef struct search_query {
    const float *row; /* unit embedding (D); NULL: every score is 0, so entries come in the order of the index */
    int64_t D, max_hits;
    const float *min_score; /* lower scores are left out; NULL: none. Without it the 8-bit rows are scanned first */
    bool (*accept)(const search_index *ix, int64_t entry, const void *user); /* NULL: all; runs on several threads */
    const void *user;
} search_query;

/* The best `max_hits` of the entries that pass, best first, equal scores in the order of the index: *found of them in
 * hit (max_hits, or N if that is less). *total: how many entries pass. Refuses another D than the index has. Takes at
 * most N * sizeof(search_hit) bytes of memory, and D numbers. */
cloob_status search_index_query(cloob_ctx *ctx, const search_index *ix, const search_query *q, search_hit *hit,
                                int64_t *found, int64_t *total);

/* The fixed image whose embedding identifies a model, rgb (S, S, 3), and whether two embeddings of it are of one
 * model. */
void search_probe_image(int64_t S, uint8_t *rgb);
cloob_status search_probe_embed(cloob_ctx *ctx, cloob_model *m, float *out);
bool search_same_direction(const float *a, const float *b, int64_t D);

/* Whether a model with this digest is known to have made the index; false: compare the probe. */
bool search_index_has_digest(const search_index *ix, const char *digest);
/* Refuses a model that did not make the index. */
cloob_status search_index_check(cloob_ctx *ctx, const search_index *ix, cloob_model *m);

/* Files to write: n strings with size and time. */
typedef struct search_names {
    int64_t n;
    const char *const *name;
    const int64_t *size, *mtime;
} search_names;

/* The metadata of the same names. */
typedef struct search_origin {
    const char *root, *checkpoint, *vocab, *digest;
} search_origin;

/* Writes an index of rows (good->n, D). bad may be NULL. */
cloob_status search_index_write(cloob_ctx *ctx, const char *path, const search_origin *from, const float *rows,
                                const float *probe, int64_t D, const search_names *good, const search_names *bad);

/* ---- an open index, beyond cloob/search.h --------------------------------------------------------- */

/* The path of an entry below that folder: *bytes of it, without a zero, in the mapped file. */
const char *search_index_name(const cloob_search *s, int64_t i, size_t *bytes);

/* Whether `row` (D), a model's unit embedding of search_probe_image, is that of the model that made the index. */
bool search_index_made_by(const cloob_search *s, const float *row, int64_t D);

#endif
