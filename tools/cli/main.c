/* The program: table of commands, version, help, signals. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/cli.h"

const command *const commands[] = {
#define COMMAND(name, group) &cmd_##name,
#include "cli/commands.def"
    NULL,
};

/* ---- commands with subcommands ---------------------------------------------------------------------- */

static const command *const evals[] = {
    &eval_zeroshot, &eval_retrieval, &eval_probe, &eval_analysis, &eval_suite, NULL
};
static const command *const benches[] = { &bench_step, &bench_embed, &bench_data, &bench_loss, NULL };

const command cmd_eval = {
    .name = "eval",
    .help = "evaluate: zero-shot, retrieval, probe, analysis, benchmark suites",
    .parts = evals,
    .usage = "NAME [OPTIONS]",
    .details = "Evaluates a model on data, or stored embeddings.\n"
               "\n"
               "  cloob eval zeroshot --checkpoint M --data world/classes/object --json\n"
               "  cloob eval retrieval --input E.safetensors",
};

const command cmd_bench = {
    .name = "bench",
    .help = "measure the speed of training, embedding, data loading or the objective",
    .parts = benches,
    .usage = "NAME [OPTIONS]",
    .details = "Runs one component on its own and prints the median time, the rate and the peak memory.\n"
               "\n"
               "  cloob bench data --data 'shards/{000..009}.tar' --workers 8 --json",
};

/* ---- version and help, as commands ------------------------------------------------------------------ */

static int print_version(const command *self, cloob_ctx *ctx)
{
    (void)self, (void)ctx;
    if (!common.json) printf("cloob %s\n", cloob_version());
    else json_out_open(NULL, '{'), json_out_text("version", cloob_version()), json_out_close();
    return 0;
}

static const command cmd_version = {
    .name = "version",
    .run = print_version,
    .stray = "unexpected argument",
    .help = "print the version",
    .details = "  cloob version\n  cloob version --json",
};

static const command cmd_help = {
    .name = "help",
    .help = "list the commands, or explain one",
    .usage = "[COMMAND] [--all] [--match WORD]",
    .details = "--all lists all options of a command, --match WORD those whose name or description contains WORD.\n"
               "cloob help --presets prints the presets of cloob train, cloob help --completion bash|zsh|fish a script "
               "for your shell, and cloob help --man COMMAND a man page.\n"
               "\n"
               "  cloob help\n"
               "  cloob help train --all\n"
               "  cloob help train --match memory\n"
               "  cloob help --completion bash > cloob.bash",
};

/* Finds a command, or a subcommand by its full name ("eval zeroshot"). */
static const command *find_command(const char *name)
{
    for (int i = 0; commands[i]; i++) {
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
        for (int p = 0; commands[i]->parts && commands[i]->parts[p]; p++)
            if (strcmp(commands[i]->parts[p]->name, name) == 0) return commands[i]->parts[p];
    }
    return strcmp(name, "version") == 0 ? &cmd_version : strcmp(name, "help") == 0 ? &cmd_help : NULL;
}

static const char *const groups[] = {
#define COMMAND(name, group) group,
#include "cli/commands.def"
};

static void print_commands(FILE *out)
{
    fprintf(out, "usage: cloob COMMAND [OPTIONS]\n");
    for (int i = 0; commands[i]; i++) {
        if (i == 0 || strcmp(groups[i], groups[i - 1]) != 0) fprintf(out, "\n%s\n", groups[i]);
        fprintf(out, "  %-11s %s\n", commands[i]->name, commands[i]->help);
    }
    fprintf(out, "\ncloob help COMMAND explains one of them; cloob version prints the version.\n");
}

static int unknown_command(const char *word)
{
    const char *best = NULL;
    int nearest = 4;
    for (int i = 0; commands[i]; i++) {
        int d = opt_distance(word, commands[i]->name);
        if (d < nearest && d < (int)strlen(word)) nearest = d, best = commands[i]->name;
    }
    if (best) cli_error(NULL, "unknown command %s; did you mean %s? (cloob help lists the commands)", word, best);
    else cli_error(NULL, "unknown command %s; cloob help lists the commands", word);
    return 2;
}

/* ---- the command line ---------------------------------------------------------------------------- */

/* The words that replace a former name of a command, after a hint on stderr; NULL if `argv[0]` is not a former name. */
static const char *former_words(int argc, char **argv)
{
    static const struct {
        const char *name, *words, *form;
    } former[] = {
#define FORMER(name, words, form) { #name, words, form },
#include "cli/commands.def"
    };
    for (size_t f = 0; f < sizeof former / sizeof *former; f++) {
        if (strcmp(former[f].name, argv[0]) != 0) continue;
        bool quiet = false;
        for (int i = 1; i < argc; i++) quiet |= strcmp(argv[i], "--quiet") == 0;
        if (!quiet) cli_error(NULL, "%s is now: cloob %s", argv[0], former[f].form);
        return former[f].words;
    }
    return NULL;
}

enum { MAX_NAME = 4 }; /* the largest number of words that replace a former name */

/* Allocates an argument vector for a modified command line. It is kept until the process ends, because options point to
 * its words. */
static char **new_line(int count)
{
    static char **made[2];
    return made[made[0] != NULL] = must(calloc((size_t)count + 1, sizeof **made));
}

static int run_line(int argc, char **argv)
{
    static char words[64];
    const char *former = former_words(argc, argv);
    if (former) {
        char **line = new_line(argc + MAX_NAME), *rest = words;
        int n = 0;
        snprintf(words, sizeof words, "%s", former);
        while (rest && n < MAX_NAME) line[n++] = strsep(&rest, " ");
        memcpy(line + n, argv + 1, (size_t)(argc - 1) * sizeof *argv);
        argc += n - 1, argv = line;
    }
    const command *c = find_command(argv[0]);
    return c ? command_run(c, argc, argv) : unknown_command(argv[0]);
}

/* Runs `help COMMAND [PART] [--all] [--match WORD]` as `COMMAND [PART] --help [--all] [--match WORD]`. */
static int help(int argc, char **argv)
{
    static char flag[] = "--help";
    int names = 0;
    if (argc == 0) {
        print_commands(stdout);
        return 0;
    }
    if (argv[0][0] == '-') {
        cli_error(&cmd_help, "%s: usage: cloob help COMMAND [--all] [--match WORD]", argv[0]);
        return 2;
    }
    while (names < argc && strcmp(argv[names], "--all") != 0 && strncmp(argv[names], "--match", 7) != 0) names++;
    char **line = new_line(argc + 1);
    memcpy(line, argv, (size_t)names * sizeof *argv);
    line[names] = flag;
    memcpy(line + names + 1, argv + names, (size_t)(argc - names) * sizeof *argv);
    return run_line(argc + 1, line);
}

/* Writes a man page (--man COMMAND), all man pages (--man-all FOLDER, for make install) or a completion script
 * (--completion SHELL). */
static int write_out(const char *which, const char *word)
{
    if (strcmp(which, "--man-all") == 0) return man_write_all(word);
    if (strcmp(which, "--completion") == 0) {
        if (completion_write(stdout, word)) return 0;
        cli_error(NULL, "--completion %s: choose bash, zsh or fish", word);
        return 2;
    }
    const command *c = find_command(word);
    if (!c) return unknown_command(word);
    man_write(stdout, c);
    return 0;
}

enum { INTERRUPTED = 130 }; /* the exit code that a shell expects after Ctrl-C */

/* Handles Ctrl-C in commands that have no work to save; the others call cli_stop_on_signals. */
static void on_interrupt(int number)
{
    static const char text[] = "\r\033[Kcloob: interrupted\n", plain[] = "cloob: interrupted\n";
    (void)number;
    ssize_t n = isatty(STDERR_FILENO) ? write(STDERR_FILENO, text, sizeof text - 1)
                                      : write(STDERR_FILENO, plain, sizeof plain - 1);
    _exit(n < 0 ? 1 : INTERRUPTED);
}

static void log_to_stderr(void *user, cloob_log_level level, const char *line)
{
    (void)user;
    char text[4096];
    opt_with_flags(line, text, sizeof text);
    progress_log(level == CLOOB_LOG_WARN ? "warning: " : "", text);
}

cloob_ctx *cli_context(cloob_log_level least)
{
    cloob_ctx_options o;
    cloob_ctx_options_init(&o);
    o.threads = common.threads < INT_MAX ? (int)common.threads : INT_MAX; /* limited by the library */
    o.log = log_to_stderr;
    o.log_level = common.quiet ? CLOOB_LOG_WARN : least;
    o.progress = progress_show;
    o.should_stop = cli_should_stop;
    progress_begin(common.quiet);
    return must(cloob_ctx_create(&o));
}

int cli_fail(const command *c, const cloob_ctx *ctx, cloob_status s)
{
    char text[4096];
    opt_with_flags(cloob_error(ctx), text, sizeof text);
    progress_error(c->name, text);
    return s == CLOOB_ERR_ARGUMENT ? 2 : s == CLOOB_ERR_STOPPED ? INTERRUPTED : 1;
}

int cli_exit(const command *c, const cloob_ctx *ctx, cloob_status s) { return s == CLOOB_OK ? 0 : cli_fail(c, ctx, s); }

/* Fails if a result could not be written (full disk, closed stdout), whatever the command returned. */
static int finish(int code)
{
    progress_end();
    json_out_flush();
    errno = 0;
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) != 0 || failed || (close(STDOUT_FILENO) != 0 && errno != EBADF)) {
        cli_error(NULL, "cannot write to stdout: %s", errno ? strerror(errno) : "an earlier write failed");
        return code ? code : 1;
    }
    return code;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_commands(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        return command_run(&cmd_version, argc - 1, argv + 1);
    if (argc == 3 && strcmp(argv[1], "help") == 0 && strcmp(argv[2], "--presets") == 0) {
        presets_write(stdout);
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "help") == 0 &&
        (strncmp(argv[2], "--man", 5) == 0 || strcmp(argv[2], "--completion") == 0))
        return write_out(argv[2], argv[3]);
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help(argc - 2, argv + 2);
    return run_line(argc - 1, argv + 1);
}

/* ---- environment for libraries, and crashes under a memory limit --------------------- */

/* OpenMP's threads busy-wait for a long time, which takes cores from image readers and other programs. The library
 * reads this setting when it is loaded, on first use. */
static void set_environment(void)
{
    if (!getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", "2000", 0);
}

static void print_line(const char *text)
{
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n;
}

static bool memory_is_limited(void)
{
    struct rlimit space, data;
    return getrlimit(RLIMIT_AS, &space) != 0 || getrlimit(RLIMIT_DATA, &data) != 0 || space.rlim_cur != RLIM_INFINITY ||
           data.rlim_cur != RLIM_INFINITY;
}

/* Reports crashes of libraries that do not check the result of malloc. Only installed under a memory limit; otherwise a
 * crash should dump core. */
static void on_crash(int number)
{
    (void)number;
    print_line(
        "cloob: out of memory: a library failed under the memory limit (ulimit -v); raise it, or use fewer --threads "
        "or a smaller batch\n");
    _exit(1);
}

static void catch_crashes(void)
{
    static char stack[16384] __attribute__((aligned(16)));
    stack_t own = { .ss_sp = stack, .ss_size = sizeof stack };
    struct sigaction action = { .sa_handler = on_crash, .sa_flags = SA_ONSTACK };
    if (!memory_is_limited()) return;
    sigaltstack(&own, NULL); /* for the main thread; other threads have enough stack left */
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
}

/* A line on stderr is written at once, so that the lines of several ranks or commands do not mix. */
static void write_whole_lines(void)
{
    static char buffer[8192];
    setvbuf(stderr, buffer, _IOLBF, sizeof buffer);
}

int main(int argc, char **argv)
{
    write_whole_lines();
    set_environment();
    catch_crashes();
    signal(SIGINT, on_interrupt);
    signal(SIGXFSZ, SIG_IGN); /* exceeding ulimit -f then gives a write error instead of killing the process */
    return finish(run(argc, argv));
}
