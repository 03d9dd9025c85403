/* cloob bench NAME: one table of benchmarks, each a command of its own. */
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

static int check(const command *self)
{
    if (opt_words.count) return cli_usage(self, "there is no benchmark %s", opt_words.item[0]);
    return cli_usage(self, "needs the name of a benchmark");
}

const command cmd_bench = {
    .name = "bench",
    .check = check, /* the parts do the work */
    .help = "measure the speed of a part",
    .parts = benches,
    .usage = "NAME [OPTIONS]",
    .details = "Runs one part alone and prints the median time, the rate and the peak memory.\n"
               "\n"
               "  cloob bench data --data 'shards/{000..009}.tar' --workers 8 --json",
};
