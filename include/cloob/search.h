/* Searching a folder of images by a text: an index that is made once, brought up to date, and asked often.
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
 * The index is mapped, not read; docs/reference/library.md describes the file. */
#ifndef CLOOB_SEARCH_H
#define CLOOB_SEARCH_H

#include "cloob/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_search_update {
    int64_t images, kept, embedded, bad, removed; /* bad: cannot be read, left out */
    int64_t bad_before;                           /* of these: known from before, unchanged, and not tried again */
} cloob_search_update;

/* Makes the index of a folder, or brings it up to date: an image with the same name, size and time is kept, also after
 * the folder was moved. checkpoint and vocab (NULL: none) are stored for queries. Written atomically, every half
 * minute while indexing: a kill loses at most half a minute of work. When the context's should_stop says so, what was
 * embedded is written and CLOOB_ERR_STOPPED returned; the next call continues. */
CLOOB_API cloob_status cloob_search_index(cloob_ctx *ctx, cloob_model *m, const char *folder, const char *path,
                                          const char *checkpoint, const char *vocab, cloob_search_update *out);

typedef struct cloob_search cloob_search; /* read-only: any number of threads may ask */

CLOOB_API cloob_status cloob_search_open(cloob_ctx *ctx, const char *path, cloob_search **out);
CLOOB_API void cloob_search_close(cloob_search *s);
CLOOB_API int64_t cloob_search_count(const cloob_search *s);
CLOOB_API int64_t cloob_search_width(const cloob_search *s);
/* The weights the index was made with. */
CLOOB_API const char *cloob_search_checkpoint(const cloob_search *s);
/* The folder that was indexed: where it is now, when it was moved together with the index in it. It may be gone. */
CLOOB_API const char *cloob_search_root(const cloob_search *s);

/* ---- asking -------------------------------------------------------------------------------------- */

typedef struct cloob_search_hit {
    char *path;  /* freed by cloob_search_hits_release */
    float score; /* cosine */
} cloob_search_hit;

/* The `max_hits` nearest images, best first; query: (D) of unit length. CLOOB_ERR_ARGUMENT when D is not the width of
 * the index. */
CLOOB_API cloob_status cloob_search_query(cloob_ctx *ctx, const cloob_search *s, const float *query, int64_t D,
                                          int64_t max_hits, cloob_search_hit *hit, int64_t *found);
/* The same for a text, with the model that made the index; another one is refused. */
CLOOB_API cloob_status cloob_search_text(cloob_ctx *ctx, const cloob_search *s, cloob_model *m, const char *text,
                                         int64_t max_hits, cloob_search_hit *hit, int64_t *found);
/* The same for an image file. */
CLOOB_API cloob_status cloob_search_image(cloob_ctx *ctx, const cloob_search *s, cloob_model *m, const char *path,
                                          int64_t max_hits, cloob_search_hit *hit, int64_t *found);
CLOOB_API void cloob_search_hits_release(cloob_search_hit *hit, int64_t n);
#ifdef __cplusplus
}
#endif
#endif
