/* What the files of the command line share: every command and part of commands.def, help, and what single commands
 * keep in files of their own. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/opt.h"

#define COMMAND(name, group) extern const command cmd_##name;
#define EVAL(name)           extern const command eval_##name;
#define BENCH(name)          extern const command bench_##name;
#include "cli/commands.def"

/* startup.c: settings that libraries read when they are loaded; before the first thread. */
void startup_set_environment(void);
/* Under a memory limit, a crash inside a library that ran out of memory becomes one line and exit code 1. */
void startup_catch_crashes(void);

/* Help, man pages and shell completion, from the option tables. */

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

/* cloob classify --sort-into: links or copies of images in DIR/LABEL. */

/* Puts a symbolic link to the file (or a copy) into DIR/LABEL, which is made when absent. Slashes in a label become
 * dashes. If another file has the name, a number is added; an identical link is kept. False: the reason is on
 * stderr. */
bool sort_into(const char *path, const char *dir, const char *label, bool copy);

/* The number of links in DIR's folders that are not named after one of the labels; with `clear` they are removed, and
 * the folders that are then empty. Other files stay. No labels: all folders. */
int64_t sort_earlier(const char *dir, const char *const *label, int64_t labels, bool clear);

/* The data sets of `--datasets`: folders, folders of data sets, and text files that list them. */

typedef struct suite_sets {
    char **folder; /* (n); owned */
    int64_t n, capacity;
    int64_t missing; /* missing data sets of the lists; the first few have been printed */
    bool failed;     /* out of memory; reported */
} suite_sets;

/* Adds the data sets of an item. False, with a line printed: there are none. */
bool suite_sets_add(suite_sets *s, const char *item, const char *split);
void suite_sets_release(suite_sets *s);

#endif
