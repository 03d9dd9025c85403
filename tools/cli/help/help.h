/* What the option tables tell: help, man pages, shell completion. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include <stdio.h>

#include "cli/opt.h"

void help_print(const command *c);

/* cloob-NAME(1) in man's own language. */
void man_write(FILE *out, const command *c);
/* cloob-NAME.1 of every command, and cloob.1, into a folder, which is made. Returns the exit code. */
int man_write_all(const char *folder);

/* A script that completes commands, flags and their choices, for bash, zsh or fish. False: no such shell. */
bool completion_write(FILE *out, const char *shell);

/* The recipes of training as a page of Markdown. */
void presets_write(FILE *out);

#endif
