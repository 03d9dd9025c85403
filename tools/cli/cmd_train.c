/* cloob train: trains a model. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cli/cli.h"
#include "dist/comm.h"
#include "train/settings.h"

static cloob_train_options o;
static const char *preset, *settings, *log_to;
static char *metrics; /* metrics of the last evaluation, as JSON */

static const opt_row rows[] = {
    CLI_PRESET_ROW(preset),
    { "settings", OPT_STRING, &settings, NULL, "FILE.json",
      "settings from a file, such as settings.json of another run; flags override it", 0 },
    { "log-to", OPT_STRING, &log_to, NULL, "pipe:COMMAND|FILE|-",
      "stream one JSON object per logged step and evaluation to a command's input, a file or stdout", 0 },
    OPT_END,
};
static const opt_set sets[] = { { .table = train_option_table, .into = &o }, OPT_SETS_END };

static void print_json(const cloob_train_summary *s)
{
    json_out_open(NULL, '{');
    json_out_members(J_TEXT("run", s->run_dir), J_OF(s, checkpoint), J_OF(s, steps), J_NUMBER("loss", s->loss, 9),
                     J_NUMBER("seconds", s->seconds, 6), J_NUMBER("pairs_per_s", s->pairs_per_s, 6),
                     J_OF(s, skipped_steps), J_OF(s, bad_samples), J_NUMBER("wait_share", s->wait_share, 4),
                     J_NUMBER("other_share", s->other_share, 4));
    if (metrics) json_out_raw("metrics", metrics);
    json_out_close();
}

/* ---- --log-to ------------------------------------------------------------------------------------ */

static FILE *sink;
static bool sink_is_command;

/* Closes the destination of --log-to. A failing command or a full disk does not stop the run; it is reported once.
 * Ctrl-C also interrupts the shell of a command, which is not reported. */
static void close_sink(void)
{
    if (!sink || sink == stdout) return;
    int status = sink_is_command ? pclose(sink) : fclose(sink);
    bool interrupted =
        sink_is_command && (WIFSIGNALED(status) ? WTERMSIG(status) == SIGINT : WEXITSTATUS(status) == 128 + SIGINT);
    if (status && !interrupted) fprintf(stderr, "warning: --log-to %s: the command failed; see its messages\n", log_to);
    sink = NULL;
}

static void on_log(void *user, const char *line)
{
    (void)user;
    const char *at = strstr(line, "\"event\": \"evaluation\"") ? strstr(line, "\"metrics\": ") : NULL;
    if (at) {
        free(metrics);
        metrics = strdup(at + strlen("\"metrics\": "));
        if (metrics) metrics[strlen(metrics) - 1] = '\0'; /* remove the closing bracket of the event */
    }
    if (sink == stdout) progress_end(); /* it may be the same terminal */
    if (!sink || (fprintf(sink, "%s\n", line) > 0 && fflush(sink) == 0)) return;
    fprintf(stderr, "warning: --log-to %s: cannot write (%s); logging to it stops\n", log_to, strerror(errno));
    close_sink();
    sink = NULL;
}

/* Opens the destination of --log-to, on rank 0 only. */
static int open_sink(const command *self, cloob_ctx *ctx)
{
    comm_env env;
    o.on_log = on_log;
    if (!log_to || (comm_env_read(ctx, &env) == CLOOB_OK && env.rank != 0)) return -1;
    sink_is_command = strncmp(log_to, "pipe:", 5) == 0;
    if (strcmp(log_to, "-") == 0) sink = stdout;
    else sink = sink_is_command ? popen(log_to + 5, "w") : fopen(log_to, "a");
    if (sink_is_command) signal(SIGPIPE, SIG_IGN); /* on_log reports a command that exits early */
    return sink ? -1 : cli_usage(self, "--log-to %s: %s", log_to, strerror(errno));
}

static int run(const command *self, cloob_ctx *ctx)
{
    cloob_train_summary s = { .rank = 0 };
    int code = cli_train_fill(self, ctx, preset, settings, &o);
    if (code < 0) code = open_sink(self, ctx);
    if (code >= 0) return code;
    o.size = sizeof o;
    cloob_status status = cloob_train(ctx, &o, &s);
    close_sink();
    progress_end();
    bool report = status == CLOOB_OK && s.rank == 0; /* only rank 0 reports */
    if (report && common.json) print_json(&s);
    else if (report) printf("%s\n", s.checkpoint);
    return cli_exit(self, ctx, status);
}

const command cmd_train = {
    .name = "train",
    .run = run,
    .stray = "--train-data",
    .help = "train image and text encoders on image-text pairs",
    .options = rows,
    .sets = sets,
    .brief = "preset train-data val-data workers name logs batch-size epochs max-steps seed resume device precision "
             "zeroshot-data lr warmup model pretrained method json",
    .usage = "--train-data SOURCE [OPTIONS]",
    .details =
        "Trains a model and writes everything to LOGS/NAME: out.log, params.txt, checkpoints, results, TensorBoard "
        "events. Ctrl-C saves and stops; a second Ctrl-C stops at once. Memory is planned first: a batch that does not "
        "fit is refused, and the message names the largest that does. Set CLOOB_MEMORY_LIMIT=24G in the environment to "
        "limit the memory used.\n"
        "\n"
        "  cloob train --train-data pairs.tsv --model tiny --batch-size 128 --epochs 10 --warmup 200 --name first\n"
        "  mpirun -np 4 cloob train --preset cc --train-data 'cc/{00000..00331}.tar' --name cloob-cc",
};
