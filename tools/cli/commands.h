/* Declares every command and part of commands.def. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/opt.h"

#define COMMAND(name, group) extern const command cmd_##name;
#define EVAL(name)           extern const command eval_##name;
#define BENCH(name)          extern const command bench_##name;
#include "cli/commands.def"

extern const command sweep_methods; /* cloob sweep --by method */

/* startup.c: under a memory limit, a crash inside a library that ran out of memory becomes one line and exit code 1. */
void startup_catch_crashes(void);

#endif
