/* Image search: builds and updates the index of a folder of images, and searches it by text or image.
 *
 *     cloob_search_update u;
 *     cloob_search *s;
 *     cloob_search_hit hit[10];
 *     int64_t found;
 *     cloob_search_index(ctx, m, "photos", "photos.index", "RN50.safetensors", NULL, &u);
 *     cloob_search_open(ctx, "photos.index", &s);
 *     cloob_search_text(ctx, s, m, "a dog in the snow", 10, hit, &found);
 *     for (int64_t i = 0; i < found; i++) printf("%.3f %s\n", hit[i].score, hit[i].path);
 *     cloob_search_close(s);
 *
 * An open index is memory-mapped unless the context has copy_files. docs/reference/library.md describes the file. */
#ifndef CLOOB_SEARCH_H
#define CLOOB_SEARCH_H

#include "cloob/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_search_update {
    int64_t images, kept, embedded, bad, removed; /* bad: unreadable, not in the index */
    int64_t bad_before; /* of bad: found by an earlier call and unchanged since; not read again */
} cloob_search_update;

/* Builds the index of a folder, or updates it: the row of an image with the same name, size and modification time is
 * kept, also after the folder was moved. checkpoint and vocab (NULL: none) are stored for queries. The index is
 * written atomically every half minute, so a kill loses at most half a minute of work. If the context's should_stop
 * returns true, the images embedded so far are written and the call returns CLOOB_ERR_STOPPED; the next call
 * continues. */
CLOOB_API cloob_status cloob_search_index(cloob_ctx *ctx, cloob_model *m, const char *folder, const char *path,
                                          const char *checkpoint, const char *vocab, cloob_search_update *out);

typedef struct cloob_search cloob_search; /* read-only: any number of threads may search it */

/* Opens an index file. The caller closes *out. Fails with CLOOB_ERR_FORMAT if the file is not an index. */
CLOOB_API cloob_status cloob_search_open(cloob_ctx *ctx, const char *path, cloob_search **out);
CLOOB_API void cloob_search_close(cloob_search *s);          /* s may be NULL */
CLOOB_API int64_t cloob_search_count(const cloob_search *s); /* images in the index */
CLOOB_API int64_t cloob_search_width(const cloob_search *s); /* D */
/* Returns the checkpoint that was stored with the index. Strings here and below are owned by s. */
CLOOB_API const char *cloob_search_checkpoint(const cloob_search *s);
/* Returns the vocabulary of its model; "" if it is stored with the weights. */
CLOOB_API const char *cloob_search_vocab(const cloob_search *s);
/* Returns the indexed folder: its current path if it was moved together with the index inside it. It may not exist. */
CLOOB_API const char *cloob_search_root(const cloob_search *s);

/* Entries that the caller embedded. name: a path below root, or any other text that is unique in the index; row:
 * (n, D) of unit length. model, root (a folder), checkpoint and vocab (NULL: none) are stored in a new index; an
 * existing index keeps its values. */
typedef struct cloob_search_entries {
    const char *const *name;
    const float *row;
    int64_t n, D;
    cloob_model *model;
    const char *root, *checkpoint, *vocab;
} cloob_search_entries;

/* Writes an index, atomically: the entries of s (NULL: a new index), except entries that `more` replaces by name, then
 * `more`. path may be the file of s; s itself does not change. */
CLOOB_API cloob_status cloob_search_save(cloob_ctx *ctx, const cloob_search *s, const cloob_search_entries *more,
                                         const char *path);

/* Fails with CLOOB_ERR_ARGUMENT if the index was built with another model. */
CLOOB_API cloob_status cloob_search_check(cloob_ctx *ctx, const cloob_search *s, cloob_model *m);

/* ---- queries ------------------------------------------------------------------------------------- */

typedef struct cloob_search_hit {
    char *path;  /* freed by cloob_search_hits_release */
    float score; /* cosine */
} cloob_search_hit;

/* Finds the `max_hits` nearest images, best first. query: (D) of unit length; hit: (max_hits), of which *found are
 * filled and released by the caller. Fails with CLOOB_ERR_ARGUMENT if D is not the width of the index. */
CLOOB_API cloob_status cloob_search_query(cloob_ctx *ctx, const cloob_search *s, const float *query, int64_t D,
                                          int64_t max_hits, cloob_search_hit *hit, int64_t *found);
/* The same for a text. Fails with CLOOB_ERR_ARGUMENT if m is not the model that built the index. */
CLOOB_API cloob_status cloob_search_text(cloob_ctx *ctx, const cloob_search *s, cloob_model *m, const char *text,
                                         int64_t max_hits, cloob_search_hit *hit, int64_t *found);
/* The same for an image file. Fails if it cannot be read. */
CLOOB_API cloob_status cloob_search_image(cloob_ctx *ctx, const cloob_search *s, cloob_model *m, const char *path,
                                          int64_t max_hits, cloob_search_hit *hit, int64_t *found);
/* Frees the paths of n hits; the array belongs to the caller. */
CLOOB_API void cloob_search_hits_release(cloob_search_hit *hit, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
