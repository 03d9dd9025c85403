/* How fast this machine trains and embeds: random inputs, freshly initialised weights, medians. */
#ifndef LAB_BENCH_BENCH_H
#define LAB_BENCH_BENCH_H

#include "cloob/objective.h"
#include "cloob/types.h"
#include "cloob/data.h"
#include "train/step.h"

/* The time of a training step or of an embedding, op by op. */
enum { PROFILE_ROWS = 256, PROFILE_NAME = 80 };

typedef struct profile_row {
    char name[PROFILE_NAME]; /* of an op, or of the kernel that computes several; with `shapes` also its sizes */
    int64_t calls;           /* of one run */
    double ms;               /* of all calls of a run together, as the next two */
    double flops;            /* of matrix multiplications and convolutions by their definition; 0: the op has none */
    double bytes;            /* of all operands, each counted once per call */
} profile_row;

typedef struct profile {
    profile_row row[PROFILE_ROWS]; /* the slowest first, after profile_finish */
    int rows;
    bool shapes;            /* matrix multiplications and convolutions have a row for each size */
    double run_ms, rest_ms; /* rest: time outside ops, such as the objective, the optimizer and copies */
    /* while it runs */
    cloob_ctx *ctx;
    device *dev;
    profile_row *now;
    double since;
    cloob_status status;
} profile;

typedef struct bench_options {
    const char *model;              /* a name, or a .json file */
    const char *device, *precision; /* NULL: auto, fp32 */
    int64_t batch, accum;           /* accum: micro-batches of a training step */
    int64_t repeats;                /* timed runs, after one untimed run */
    uint64_t seed;
    cloob_method method;     /* training */
    bool grad_checkpointing; /* training */
    const char *fit_memory;  /* training: recompute to stay within this size, such as 80G; NULL: no limit */
    bool pack_texts;         /* training: the text tower computes only the tokens up to the end token */
    int64_t text_length; /* mean tokens of a text, uniform from half to three halves of it; 0: from 4 to the context */
    profile *profile;    /* filled with the time of every op; NULL: no profile */
    bool text;           /* embedding: texts instead of images */
    bool invariant;      /* embedding: a row has the same bytes in any batch */
} bench_options;

void bench_options_init(bench_options *o); /* RN50, batch 32, 5 repeats, CLOOB */

typedef struct bench_result {
    double ms;             /* median of a step, or of a batch */
    double items_per_s;    /* pairs, images or texts */
    double cpu_ms;         /* processor time of a timed run, all threads together: hardly affected by other programs */
    double first_ms;       /* of the untimed first run: planning and warm-up included */
    int64_t planned_bytes; /* training: what the plan takes on the device */
    int64_t peak_bytes;    /* of the process; on a GPU, of its memory in use */
    double loss;           /* training: of the last step */
    const char *precision; /* the precision used: the choice of "auto" */
    char device[128];
} bench_result;

/* One full training step: both towers, the objective, backward, AdamW. */
cloob_status step_timing(cloob_ctx *ctx, const bench_options *o, bench_result *out);

typedef struct loss_bench {
    int64_t n, d;    /* random unit rows */
    int64_t repeats; /* timed runs after an untimed one; 0: time the first run, for slow ones */
    bool forward_only;
    uint64_t seed;
} loss_bench;

/* Loss and gradients; peak_bytes is the memory of the process, or on the GPU, in addition to the embeddings; it
 * includes the gradients. */
cloob_status loss_timing(cloob_ctx *ctx, const cloob_objective_options *o, const loss_bench *b, bench_result *out);
/* One batch of embeddings, from bytes or tokens in host memory to unit rows in host memory. */
cloob_status embed_timing(cloob_ctx *ctx, const bench_options *o, bench_result *out);

/* ---- what there is to run on --------------------------------------------------------------------- */

typedef struct device_facts {
    char name[128];
    int64_t total_bytes, free_bytes; /* 0: unknown */
    char runs[160]; /* a GPU: its compute capability, and which kernels run on it; empty for the processor */
    const char *automatic, *why; /* the meaning of precision "auto" on it, and the reason */
    char decoder[256];           /* a GPU: what decodes images on it, or why nothing does */
} device_facts;

/* The processor is number 0, GPUs follow. */
int device_count(void);
cloob_status device_describe(cloob_ctx *ctx, int index, device_facts *out);

/* ---- reading data ----------------------------------------------------------------------------- */

typedef struct data_bench_options {
    int64_t batch, size, context; /* 64 images of 224 px, 77 tokens */
    int64_t workers, ahead;       /* 0 workers: in the calling thread */
    int64_t batches;              /* to time, after one uncounted batch; 0: whole epochs */
    int64_t epochs;               /* with batches 0; 1 */
    uint64_t seed;
    bool eval;                 /* evaluation views in order instead of training crops */
    const char *vocab;         /* merges file to tokenize captions with; NULL: images only */
    const char *image_decoder; /* "gpu": the first GPU makes the training crops of JPEGs; NULL: the CPU */
} data_bench_options;

typedef struct data_bench_result {
    double items_per_s, ms; /* ms: median per batch */
    double wait_share;      /* of the time spent waiting for the loader: near 1, as nothing else is done */
    int64_t items, bad, batches;
    int64_t peak_bytes;          /* of the process */
    int64_t buffer_bytes;        /* of the loader's batches */
    int64_t cpu_views;           /* with "gpu": views that the CPU had to make */
    char decoder[96];            /* what made the others: "CPU", "nvJPEG 13.2, hardware decoders" */
    int64_t rss_first, rss_last; /* resident bytes after the first and the last epoch (or batch, without epochs) */
} data_bench_result;

void data_bench_options_init(data_bench_options *o);
cloob_status data_bench(cloob_ctx *ctx, const cloob_dataset *d, const data_bench_options *o, data_bench_result *out);

/* A random row (D) of unit length, the same for the same key. */
void random_unit(float *row, int64_t D, uint64_t key);

/* Sorts the values and returns the median; 0 without values. */
double median(double *x, int64_t n);

#endif
