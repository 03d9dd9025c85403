/* Options shared by several commands: data sets, models, training. */
#include "cli/cli.h"
#include "train/settings.h"
#include "data/sets/dataset.h"
#include "data/text/tokenizer.h"
#include "infer/model_file.h"
#include "core/arith.h"
#include "core/ctx.h"
#include "core/file.h"

#include <string.h>
#include <sys/stat.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/text.h"

/* Appends the rows of a table whose struct is at offset `base`. */
static int64_t append(option_desc *to, const option_desc *from, int64_t n, size_t base)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = from[i];
        to[i].offset += base;
    }
    return n;
}

const option_desc *cli_model_table(int64_t *count)
{
    static option_desc table[64] = {
        { .name = "checkpoint",
          .field = "checkpoint",
          .type = OPTION_STRING,
          .offset = offsetof(cli_model, checkpoint),
          .values = "M",
          .group = "model",
          .help = "weights in any format, the folder of a run, or a model's name (cloob pull lists some)" }
    };
    int64_t n;
    const option_desc *rows = model_option_table(&n);
    *count = 1 + append(table + 1, rows, n, offsetof(cli_model, open));
    rows = data_option_table(&n);
    *count += append(table + *count, rows, n, offsetof(cli_model, data));
    return table;
}

const cloob_data_options *cli_data_ready(cloob_data_options *o)
{
    o->size = sizeof *o;
    o->seed = (uint64_t)common.seed;
    return o;
}

cloob_status cli_read_file(cloob_ctx *ctx, const char *path, char **out, size_t *size)
{
    file_bytes b;
    CLOOB_TRY(file_read(ctx, strcmp(path, "-") == 0 ? "/dev/stdin" : path, FILE_TEXT_LIMIT, &b));
    *out = b.data;
    if (size) *size = b.size;
    return CLOOB_OK;
}

cloob_status cli_put_text(char *text)
{
    fputs(must(text), stdout);
    free(text);
    return CLOOB_OK;
}

cloob_dtype cli_loss_precision(void) { return strcmp(common.precision, "fp32") == 0 ? CLOOB_F32 : CLOOB_BF16; }

cloob_status cli_model_open(cloob_ctx *ctx, const cli_model *from, cloob_model **out)
{
    cloob_model_options o = from->open;
    o.size = sizeof o;
    o.device = common.device;
    o.precision = common.precision;
    o.max_pixels = from->data.max_pixels;
    o.photos = from->open.photos || from->data.exif_orientation;
    return cloob_model_open(ctx, from->checkpoint, &o, out);
}

/* ---- stopping a training run --------------------------------------------------------------------- */

static atomic_bool asked; /* set by the thread that receives the signal */

static void on_signal(int number)
{
    if (atomic_exchange(&asked, true)) { /* a second signal exits immediately; files are written atomically */
        signal(number, SIG_DFL);
        raise(number);
    }
}

bool cli_should_stop(void *user)
{
    (void)user;
    return asked;
}

void cli_stop_on_signals(void)
{
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
}

/* ---- presets and settings ---------------------------------------------------------------------------- */

/* Flags override the file of settings, which overrides the preset, which overrides defaults. */
static cloob_status apply_preset(cloob_ctx *ctx, cloob_train_options *o, const char *preset, const char *settings)
{
    static run_settings *file; /* its strings are kept until the process ends */
    int64_t n;
    const option_desc *table = train_option_table(&n);
    cloob_train_options typed = *o;
    cloob_status status = preset ? preset_apply(ctx, preset, o) : CLOOB_OK;
    if (status == CLOOB_OK && settings) status = settings_load(ctx, settings, o, &file);
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++)
        if (opt_given(table[i].name)) option_copy(&table[i], &typed, o);
    if (opt_given("batch-size") && !opt_given("global-batch-size")) o->global_batch_size = 0;
    if (opt_given("restart-cycles") && !opt_given("restart-epochs")) o->restart_epochs = 0;
    if (opt_given("lr-scheduler")) settings_drop_restarts(o, opt_given("restart-epochs"), opt_given("restart-cycles"));
    return status;
}

/* `--resume NAME`: reads the run's settings, then applies flags. The settings are kept until the process ends. */
static cloob_status apply_resume(cloob_ctx *ctx, cloob_train_options *o)
{
    static run_settings *run;
    int64_t n;
    const option_desc *table = train_option_table(&n);
    cloob_train_options typed = *o;
    cloob_status status = run_settings_open(ctx, o->logs, o->resume, &run);
    if (status != CLOOB_OK || !run) return status;
    *o = *run_settings_options(run);
    for (int64_t i = 0; i < n; i++)
        if (opt_given(table[i].name) && strcmp(table[i].name, "resume") != 0) option_copy(&table[i], &typed, o);
    if (opt_given("batch-size")) o->global_batch_size = 0;
    return CLOOB_OK;
}

/* CUDA maps all streams of a process to 8 hardware queues, in which the short copies of a decoder wait behind the
 * training step's kernels. The setting is read when the GPU is opened; 32 is the maximum, and makes opening a third of
 * a second slower. */
static void request_gpu_queues(const cloob_train_options *o)
{
    if (strcmp(o->image_decoder, "cpu") != 0) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

/* Whether a preset has the paper's settings; `small` and `finetune` are cloob's own. */
static bool is_of_paper(const char *preset) { return strcmp(preset, "small") != 0 && strcmp(preset, "finetune") != 0; }

/* The paper's presets use CLIP's vocabulary if it is on this machine, but not with a settings file, which is applied
 * unchanged, or --vocab-size, which trains a vocabulary. */
static cloob_status find_vocab(cloob_ctx *ctx, bool search, cloob_train_options *o)
{
    static char path[1024]; /* referenced by the options */
    tokenizer *found = NULL;
    if (search) CLOOB_TRY(tokenizer_find_clip(ctx, &found, path, sizeof path));
    if (found) o->vocab = path;
    cloob_tokenizer_close(found);
    if (common.quiet) return CLOOB_OK;
    if (o->vocab) fprintf(stderr, "note: using CLIP's vocabulary from %s\n", path);
    else
        fprintf(
            stderr,
            "note: a vocabulary of up to %lld tokens is trained on the captions; the paper uses CLIP's 49,408: --vocab "
            "bpe_simple_vocab_16e6.txt.gz\n",
            (long long)o->vocab_size);
    return CLOOB_OK;
}

int cli_train_fill(const command *self, cloob_ctx *ctx, const char *preset, const char *settings,
                   cloob_train_options *o)
{
    if (settings && opt_given("resume"))
        return cli_usage(self, "--resume uses the settings of the run; leave --settings out");
    if (preset && opt_given("resume") && strcmp(o->resume, "latest") != 0)
        return cli_usage(self, "--resume uses the settings of the run; leave --preset out");
    cloob_status status = preset || settings ? apply_preset(ctx, o, preset, settings) : CLOOB_OK;
    if (status == CLOOB_OK && opt_given("resume")) status = apply_resume(ctx, o);
    if (status != CLOOB_OK) return cli_fail(self, ctx, status);
    if (preset && strcmp(preset, "finetune") == 0 && !o->pretrained && !o->resume)
        return cli_usage(self, "--preset finetune needs weights to start from: --pretrained FILE");
    if (opt_given("batch-size") && o->global_batch_size > 0)
        return cli_usage(self, "--batch-size is per device, --global-batch-size over all of them; give one");
    if (opt_given("image-mean") != opt_given("image-std"))
        return cli_usage(self, "--image-mean and --image-std must be given together");
    /* done after the checks, because a model may have to be downloaded; the library refuses --resume with
     * --pretrained */
    if (o->pretrained && !o->resume && opt_model_path(ctx, &o->pretrained) != CLOOB_OK)
        return cli_fail(self, ctx, CLOOB_ERR_IO);
    if (preset && is_of_paper(preset) && !o->vocab && !o->pretrained && !o->resume)
        status = find_vocab(ctx, !settings && !opt_given("vocab-size"), o);
    if (status != CLOOB_OK) return cli_fail(self, ctx, status);
    request_gpu_queues(o);
    o->should_stop = cli_should_stop;
    cli_stop_on_signals();
    return -1;
}

/* ---- JSON on stdout: file names and messages are escaped -------------------------------------------- */

json_out cli_json = { .spaced = true };

void json_out_flush(void)
{
    if (cli_json.failed) must(NULL);
    if (cli_json.len) fwrite(cli_json.data, 1, cli_json.len, stdout);
    cli_json.len = 0;
    if (cli_json.depth || !cli_json.data) return;
    putchar('\n');
    free(cli_json.data);
    cli_json = (json_out){ .spaced = true };
}

void json_out_raw(const char *key, const char *text)
{
    json_put_raw(&cli_json, key, text ? text : "null", strlen(text ? text : "null"));
}

static void show_text(const json_member *m, int width)
{
    for (int i = 0; i < width; i++) putchar(i >= (int)strlen(m->key) ? ' ' : m->key[i] == '_' ? ' ' : m->key[i]);
    if (m->kind == JSON_MEMBER_TEXT) printf("  %s\n", m->text ? m->text : "none");
    else if (m->kind == JSON_MEMBER_BOOL) printf("  %s\n", m->whole ? "yes" : "no");
    else if (m->kind == JSON_MEMBER_NUMBER)
        printf("  %.*g\n", m->digits > 9 ? 9 : m->digits ? m->digits : 6, m->number);
    else if (text_ends_with(m->key, "bytes")) printf("  %.1f MiB\n", (double)m->whole / 1048576);
    else printf("  %lld\n", (long long)m->whole);
}

void cli_show(const json_member *member, size_t count, void (*more)(void))
{
    int64_t width = 0;
    if (common.json) json_begin(&cli_json, NULL, '{'), json_put_members(&cli_json, member, count);
    for (size_t i = 0; i < count; i++) width = max64(width, (int64_t)strlen(member[i].key));
    for (size_t i = 0; i < count && !common.json; i++) show_text(&member[i], (int)width);
    if (more) more();
    if (common.json) json_end(&cli_json);
}
