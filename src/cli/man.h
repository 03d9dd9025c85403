/* Man pages out of the option tables. */
#ifndef CLI_MAN_H
#define CLI_MAN_H

#include <stdio.h>

#include "cli/opt.h"

/* cloob-NAME(1) in man's own language. */
void man_write(FILE *out, const command *c);
/* cloob-NAME.1 of every command, and cloob.1, into a folder, which is made. Returns the exit code. */
int man_write_all(const char *folder);

#endif
