/* From the words of a command line to the options of a data set. */
#include "cli/data_opts.h"

#include <string.h>

static bool parse_separator(const char *text, char *out)
{
    if (strcmp(text, "\\t") == 0 || strcmp(text, "tab") == 0) *out = '\t';
    else if (strlen(text) == 1) *out = text[0];
    else return false;
    return true;
}

int cli_data_fill(const command *self, const cli_data *from, cloob_data_options *to)
{
    cloob_data_options_init(to);
    to->type = from->type;
    to->path_data = from->path_data;
    to->csv_image_key = from->csv_image_key;
    to->csv_caption_key = from->csv_caption_key;
    to->image_key = from->image_key;
    to->text_key = from->text_key;
    to->one_caption = from->one_caption;
    to->split = from->split;
    to->max_pixels = from->max_pixels;
    to->shuffle_window = from->shuffle_window;
    to->cache = from->cache && strcmp(from->cache, "none") == 0 ? "" : from->cache;
    to->seed = (uint64_t)common.seed;
    if (!parse_separator(from->separator, &to->csv_separator))
        return cli_usage(self, "--csv-separator %s: one character, or \\t", from->separator);
    return -1;
}
