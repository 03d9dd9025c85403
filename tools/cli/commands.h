/* Declares every command of commands.def, each defined in its cmd_<name>.c as `const command cmd_<name>`. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/opt.h"

#define COMMAND(name, group) extern const command cmd_##name;
#include "cli/commands.def"
#undef COMMAND

/* startup.c: under a memory limit, a crash inside a library that ran out of memory becomes one line and exit code 1. */
void startup_catch_crashes(void);

#endif
