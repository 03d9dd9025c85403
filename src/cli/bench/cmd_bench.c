/* cloob bench NAME: one table of benchmarks, each a command of its own. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"

#define BENCH(name) extern const command bench_##name;
#include "cli/bench/benches.def"
#undef BENCH

static const command *const benches[] = {
#define BENCH(name) &bench_##name,
#include "cli/bench/benches.def"
#undef BENCH
    NULL,
};

static void list(void)
{
    printf("benchmarks:\n");
    for (int i = 0; benches[i]; i++) printf("  %-17s %s\n", benches[i]->name, benches[i]->help);
    printf("\ncloob bench NAME --help explains one of them.\n");
}

static int run(const command *self, int argc, char **argv)
{
    opt_list rest;
    for (int i = 0; argc > 1 && benches[i]; i++)
        if (strcmp(benches[i]->name + strlen("bench "), argv[1]) == 0)
            return benches[i]->run(benches[i], argc - 1, argv + 1);
    int code = opt_parse(self, argc, argv, &rest); /* for --help */
    if (code == 0) list();
    if (code >= 0) return code;
    if (rest.count) return cli_usage(self, "there is no benchmark %s", rest.item[0]);
    return cli_usage(self, "needs the name of a benchmark");
}

static const opt_row rows[] = { OPT_END };

const command cmd_bench = {
    .name = "bench",
    .run = run,
    .help = "measure the speed of a part",
    .parts = benches,
    .options = rows,
    .usage = "NAME [OPTIONS]",
    .details = "Runs one part alone and prints the median time, the rate and the peak memory.\n"
               "\n"
               "  cloob bench data --data 'shards/{000..009}.tar' --workers 8 --json",
};
