/* cloob info FILE: what a file holds. */
#include <stdio.h>

#include "cli/commands.h"

static int run(const command *self, int argc, char **argv)
{
    opt_list rest;
    int code = opt_parse(self, argc, argv, &rest);
    if (code >= 0) return code;
    if (rest.count < 1) return cli_usage(self, "needs something to describe");
    printf("cloob %s\n", cloob_version());
    return 0;
}

static const opt_row rows[] = { OPT_END };

const command cmd_info = { "info", run, "what a checkpoint, data set or device holds", rows, "FILE|DIR|device", NULL };
