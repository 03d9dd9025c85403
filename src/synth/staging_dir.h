/* A folder that is filled out of sight and shown when it is complete.
 *
 * Everything is written into OUT/.cloob-synth-PID; publishing moves it into OUT, in place of an earlier set
 * of ours. A kill, a full disk or an error before that leaves OUT as it was; what a dead run left is swept up
 * by the next. */
#ifndef SYNTH_STAGING_DIR_H
#define SYNTH_STAGING_DIR_H

#include "core/ctx.h"

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
