/* A figure of one's own numbers, from a JSON file that describes it. */
#ifndef REPORT_FIGURES_FIGURE_FILE_H
#define REPORT_FIGURES_FIGURE_FILE_H

#include "lab/report/export.h"

/* Draws NAME.svg, NAME.pdf and NAME.csv in the folder dir, which is made. The file: {"name", "title", "x_label",
 * "y_label", "series": [{"name", "x": [...], "y": [...], "low": [...], "high": [...], "color"}]}, with "categories":
 * ["4", "15"] where x counts them, and "bars", "from_zero", "log_y": true. Fails when a list has the wrong length or
 * the build has no cairo. */
cloob_status figure_file_write(cloob_ctx *ctx, const char *path, const char *dir);

#endif
