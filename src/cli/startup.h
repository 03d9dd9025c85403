/* What the program does before main and around it: settings of libraries, memory limits, the last look at stdout. */
#ifndef CLI_STARTUP_H
#define CLI_STARTUP_H

#include <stdbool.h>

/* Under a memory limit, a crash inside a library that ran out of memory becomes one line and exit code 1. */
void startup_catch_crashes(void);

#endif
