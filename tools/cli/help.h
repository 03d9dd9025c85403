/* Help, man pages and shell completion, from the option tables. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include <stdio.h>

#include "cli/opt.h"

/* Prints the help of a command; argv: --all lists all options where the help lists some, --match WORD only those that
 * match. Returns the exit code. */
int help_command(const command *c, int argc, char **argv);

/* cloob-NAME(1) in roff. */
void man_write(FILE *out, const command *c);
/* cloob-NAME.1 of every command, and cloob.1, into a folder, which is created. Returns the exit code. */
int man_write_all(const char *folder);

/* A script that completes commands, flags and their choices, for bash, zsh or fish. False: no such shell. */
bool completion_write(FILE *out, const char *shell);

/* The presets of cloob train as a page of Markdown. */
void presets_write(FILE *out);

#endif
