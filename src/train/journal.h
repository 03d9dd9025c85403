/* The files of a run: out.log, params.txt, settings.json, provenance.jsonl, metrics.tsv, layers.tsv, checkpoints/,
 * results.jsonl, TensorBoard events. Only rank 0 writes. */
#ifndef TRAIN_JOURNAL_H
#define TRAIN_JOURNAL_H

#include <pthread.h>
#include <stdio.h>

#include "core/ctx.h"
#include "core/json.h"
#include "core/sbuf.h"
#include "model/params.h"

typedef struct journal journal;

typedef enum journal_mode { JOURNAL_NEW, JOURNAL_RESUME } journal_mode;

/* Creates <logs>/<name> and its files. A new run with an existing name is refused, unless that run ended before its
 * first checkpoint: then its files are removed. A folder in which another process trains is refused: the open journal
 * holds a lock on <dir>/.lock, which ends with the process. writes false: every call does nothing. board: write
 * TensorBoard events. */
cloob_status journal_open(cloob_ctx *ctx, const char *logs, const char *name, journal_mode mode, bool writes,
                          bool board, journal **out);
void journal_close(journal *j);
/* Fails when journal_open would refuse the name of a new run; creates nothing. */
cloob_status journal_check_name(cloob_ctx *ctx, const char *logs, const char *name);

const char *journal_dir(const journal *j);         /* <logs>/<name> */
const char *journal_checkpoints(const journal *j); /* <logs>/<name>/checkpoints */

const char *journal_results(const journal *j); /* <logs>/<name>/checkpoints/results.jsonl; NULL: it writes nothing */

/* Between begin and end, every line of the context's log is also a line of out.log, with the time, whatever the
 * context's level. Lines before journal_open are kept until journal_tee_open. */
typedef struct journal_tee {
    cloob_log_fn *log; /* the caller's */
    void *user;
    cloob_log_level level;
    sbuf early;
    FILE *file; /* NULL: not open yet */
    pthread_mutex_t lock;
} journal_tee;

void journal_tee_begin(cloob_ctx *ctx, journal_tee *t);
void journal_tee_open(journal *j, journal_tee *t);
void journal_tee_end(cloob_ctx *ctx, journal_tee *t); /* does nothing before begin */

/* One line to the context's log, and by journal_tee to out.log; ctx NULL: only to out.log, for text that the caller
 * prints itself. */
void journal_put_line(cloob_ctx *ctx, journal *j, cloob_log_level level, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define journal_line(ctx, j, ...) journal_put_line(ctx, j, CLOOB_LOG_INFO, __VA_ARGS__)
#define journal_warn(ctx, j, ...) journal_put_line(ctx, j, CLOOB_LOG_WARN, __VA_ARGS__)
#define journal_note(j, ...)      journal_put_line(NULL, j, CLOOB_LOG_INFO, __VA_ARGS__)

/* params.txt: sorted "key: value" lines; text holds them unsorted. */
cloob_status journal_params(cloob_ctx *ctx, journal *j, const char *text);

/* settings.json: the settings of the run as `cloob train --settings` reads them. */
cloob_status journal_settings(cloob_ctx *ctx, journal *j, const char *text);

/* Appends a line to provenance.jsonl: one for every start of the run. */
cloob_status journal_provenance(cloob_ctx *ctx, journal *j, const char *line);

/* Appends one JSON object as a line to checkpoints/results.jsonl. */
cloob_status journal_result(cloob_ctx *ctx, journal *j, const char *line);

/* Bytes of results.jsonl; 0 when there is none. */
int64_t journal_result_bytes(const journal *j);

/* *out: results.jsonl has a complete line of this epoch that begins at byte `behind` or later. */
cloob_status journal_has_result(cloob_ctx *ctx, const journal *j, int64_t epoch, int64_t behind, bool *out);

/* Removes the lines that begin at byte `behind` or later and are of epochs after `last`: a run that resumes a
 * checkpoint writes them again. */
cloob_status journal_drop_results(cloob_ctx *ctx, journal *j, int64_t last, int64_t behind);

/* One row of metrics.tsv, at full precision. wait: share of the time spent waiting for data. */
enum { ROW_LOSS, ROW_IMAGE, ROW_TEXT, ROW_LR, ROW_NORM, ROW_RATE, ROW_WAIT, ROW_INV_TAU, JOURNAL_NUMBERS };
extern const char *const journal_number_names[JOURNAL_NUMBERS];
typedef struct journal_row {
    int64_t step, epoch;
    double number[JOURNAL_NUMBERS];
} journal_row;

void journal_metrics(journal *j, const journal_row *row);

/* A number for TensorBoard: "train/loss" at a step. */
void journal_scalar(journal *j, const char *tag, int64_t step, double value);

/* A number of an epoch's result: NAME in its line, and "val/NAME" for TensorBoard. */
void journal_put(journal *j, json_out *line, int64_t epoch, const char *name, double value);

/* TensorBoard event files: records of length, masked CRC-32C and a small protocol buffer with one number each.
 *
 * The three messages that carry a number (Event, Summary, Summary.Value) have nine fields together, so they are written
 * directly. */

/* Starts a new event file in the folder; fclose ends it. */
cloob_status tensorboard_open(cloob_ctx *ctx, const char *dir, FILE **out);
void tensorboard_scalar(FILE *f, const char *tag, int64_t step, double value);

/* `log_layers`: norms of every parameter's weights, gradient and update at the logged steps, in layers.tsv.
 *
 *     CLOOB_TRY(layer_norms_create(ctx, journal, step_params(s), &l));
 *     CLOOB_TRY(layer_norms_before(ctx, l));
 *     CLOOB_TRY(step_run(...));
 *     CLOOB_TRY(layer_norms_after(ctx, l, step, factor));
 *
 * The blocks are copied to the host, so a logged step takes longer; other steps do not. */

typedef struct layer_norms layer_norms;

/* p outlives it. */
cloob_status layer_norms_create(cloob_ctx *ctx, journal *j, params *p, layer_norms **out);
void layer_norms_destroy(layer_norms *l); /* NULL is valid */

cloob_status layer_norms_before(cloob_ctx *ctx, layer_norms *l);
/* Appends a line for every trained parameter: step, name, norms of weights, gradient (times factor) and update. */
cloob_status layer_norms_after(cloob_ctx *ctx, layer_norms *l, int64_t number, double factor);

#endif
