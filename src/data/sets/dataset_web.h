/* Inside webdataset sets: the index entries, and captions out of a sample's text member. */
#ifndef DATA_SETS_DATASET_WEB_H
#define DATA_SETS_DATASET_WEB_H

#include "data/sets/dataset_kind.h"

typedef struct web_sample {
    int64_t image, text; /* offsets in the shard; text -1: none */
    int32_t image_size, text_size;
    int32_t shard;
    int16_t text_rank; /* which entry of the text key its suffix is */
} web_sample;

typedef struct web_keys {
    char *image, *text; /* suffixes joined by ';' */
} web_keys;

/* What scanning one shard finds. */
typedef struct web_shard {
    web_sample *sample;
    int64_t count, capacity, with_text, skipped;
} web_shard;

/* Adds the samples of an index to s. */
cloob_status web_group(cloob_ctx *ctx, const tar_index *t, const web_keys *keys, web_shard *s);

/* A folder in CLIP_benchmark's form: SPLIT/0.tar, SPLIT/1.tar, ..., with classnames.txt if there are classes. */
bool web_is_benchmark(const char *folder, const char *split);
/* What images have according to dataset_type.txt and classnames.txt; an unknown type is refused. */
typedef enum web_kind { WEB_CLASSES, WEB_TARGETS, WEB_CAPTIONS } web_kind;
cloob_status web_benchmark_kind(cloob_ctx *ctx, const char *folder, web_kind *out);

#endif
