/* Declares every command of commands.def, each defined in its cmd_<name>.c as `const command cmd_<name>`. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/opt.h"

#define COMMAND(name, group) extern const command cmd_##name;
#include "cli/commands.def"
#undef COMMAND

#endif
