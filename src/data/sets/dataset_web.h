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

typedef struct web_set {
    web_keys keys;
    web_sample *sample;
    bool labels;  /* a sample's text is the number of its class (`cls`), not a caption */
    bool targets; /* it is an array of numbers (`npy`), which FETCH_TARGETS reads as it is */
} web_set;

/* What scanning one shard finds. */
typedef struct web_shard {
    web_sample *sample;
    int64_t count, capacity, with_text, skipped;
    cloob_status status;
    char *error;
} web_shard;

/* Adds the samples of an index to s. */
cloob_status web_group(cloob_ctx *ctx, const tar_index *t, const web_keys *keys, web_shard *s);

/* A folder in CLIP_benchmark's form: SPLIT/0.tar, SPLIT/1.tar, ..., with classnames.txt if there are classes. */
bool web_is_benchmark(const char *folder, const char *split);
/* What images have according to dataset_type.txt and classnames.txt; an unknown type is refused. */
typedef enum web_kind { WEB_CLASSES, WEB_TARGETS, WEB_CAPTIONS } web_kind;
cloob_status web_benchmark_kind(cloob_ctx *ctx, const char *folder, web_kind *out);
/* Opens such a folder: its shards (their number is in nshards.txt), its classes, and what images have: `cls`, `npy`
 * (dataset_type.txt is multilabel, or the text key is npy) or `txt`, a caption per line. */
cloob_status web_benchmark(cloob_ctx *ctx, const char *folder, const dataset_options *o, dataset_part *p,
                           name_list *names);
/* The class that a `cls` member names by its number. */
cloob_status web_label(cloob_ctx *ctx, const dataset_part *p, const char *text, stored_sample *s);

/* The shards a source names: braces, or every .tar of a folder in order. */
cloob_status web_names(cloob_ctx *ctx, const char *source, name_list *names);

/* One of the captions in a text member, by entry `rank` of the text key: "txt" the whole text,
 * "txt:lines" one per line, "json" and "json:FIELD" a string or list of strings under "caption", "captions",
 * "text" or FIELD. */
cloob_status web_caption(cloob_ctx *ctx, const web_keys *keys, int rank, const char *text, size_t size, uint64_t pick,
                         stored_sample *s);

#endif
