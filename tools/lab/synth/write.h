/* A whole data set of the synthetic world on disk, and the texts that go with it. */
#ifndef SYNTH_WRITE_H
#define SYNTH_WRITE_H

#include "cloob/synth.h"
#include "lab/synth/synth.h"
#include "core/ctx.h"

/* As cloob_synth_write. */
cloob_status synth_write(cloob_ctx *ctx, const cloob_synth_options *o, cloob_synth_result *r);

/* The defaults for negative numbers. */
int64_t synth_val_count(const cloob_synth_options *o);
int64_t synth_per_class(const cloob_synth_options *o);

/* ---- texts: each appends to s -------------------------------------------------------------------- */

/* "filepath<TAB>split<TAB>object..." and "filepath<TAB>split<TAB>held_out<TAB>object...": the columns of
 * factors.tsv (values) and naming.tsv (1 where the caption tells the factor). */
void synth_put_factor_header(sbuf *s);
void synth_put_naming_header(sbuf *s);
void synth_put_factor_row(sbuf *s, const char *file, const char *split, const synth_scene *scene);
void synth_put_naming_row(sbuf *s, const char *file, const char *split, const synth_scene *scene);

/* {"object": "ball", ..., "named": ["object", ...], "held_out": false} */
void synth_put_truth(sbuf *s, const synth_scene *scene);

/* {"object": {"classes": [...], "templates": [...]}, ...} */
void synth_put_prompts(sbuf *s);

/* What the set is: its settings, naming rates, favourites and held-out pairs. */
void synth_put_mark(sbuf *s, const cloob_synth_options *o);

/* Plain tar files, written member by member (ustar; no dates or owners, so the same content is the same
 * bytes). */

typedef struct synth_tar {
    void *stream; /* FILE */
    char *path;
} synth_tar;

cloob_status synth_tar_open(cloob_ctx *ctx, const char *path, synth_tar *t);
/* name: up to 99 bytes. A failed write is reported by close. */
void synth_tar_add(synth_tar *t, const char *name, const void *data, size_t bytes);
cloob_status synth_tar_close(cloob_ctx *ctx, synth_tar *t); /* safe to call on a closed one */

/* A folder that is filled out of sight and shown when it is complete.
 *
 * Everything is written into OUT/.cloob-synth-PID; publishing moves it into OUT, in place of an earlier set
 * of ours. A kill, a full disk or an error before that leaves OUT as it was; what a dead run left is swept up
 * by the next. */

#define SYNTH_MARK "synth.json" /* tells a set of ours; the last file to appear */

typedef struct synth_stage {
    char *out;  /* the user's folder */
    char *path; /* where to write until it is published */
    bool made_out, ours;
} synth_stage;

/* Refuses an out that is a file, cannot be written, holds foreign files (unless force), or is being written
 * by another process. */
cloob_status synth_stage_begin(cloob_ctx *ctx, const char *out, bool force, synth_stage *st);
cloob_status synth_stage_publish(cloob_ctx *ctx, synth_stage *st);
/* Removes what was not published. Also after publish, to release the memory. */
void synth_stage_end(synth_stage *st);

#endif
