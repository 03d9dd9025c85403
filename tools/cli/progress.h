/* The progress display: one line at the bottom of the terminal that fits its width and is redrawn, with log lines above
 * it; a plain line every ten seconds where stderr is not a terminal.
 *
 *     embed images  ━━━━━━━━━╌╌╌╌╌  62%  3,720/6,000  412 images/s  0:05 left
 *
 * The first line appears at once. All functions may be called from any thread. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>

#include "cloob/types.h"

/* Decides once how to draw: not at all when quiet, else by what stderr is. NO_COLOR and TERM=dumb are respected. */
void progress_begin(bool quiet);
/* The sink of cloob_ctx_options.progress. */
cloob_progress_fn progress_show;
/* A log line, printed above the progress line. */
void progress_log(const char *prefix, const char *line);
/* Removes the progress line from the terminal. */
void progress_end(void);
/* Removes the progress line and prints "cloob NAME: TEXT": one line, wrapped where stderr is a terminal. */
void progress_error(const char *name, const char *text);

/* Whether the locale's characters are UTF-8: bars are plain otherwise. */
bool progress_utf8(void);

#endif
