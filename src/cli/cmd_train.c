/* cloob train. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"

static cloob_train_options o;
static const char *preset, *separator;
static opt_list aug_cfg, image_mean, image_std;

static const opt_row rows[] = {
    { "train-data", OPT_STRING, &o.train_data, NULL, "SOURCE", "pairs: a CSV or TSV, shards like 'cc/{00000..00331}.tar', or several joined by ::", 0 },
    { "val-data", OPT_STRING, &o.val_data, NULL, "SOURCE", "pairs for validation", 0 },
    { "path-data", OPT_STRING, &o.data.path_data, NULL, "DIR", "put before relative paths of a CSV", 0 },
    { "train-num-samples", OPT_INT, &o.train_num_samples, "0", "N", "samples an epoch; 0: all", OPT_NOT_NEGATIVE },
    { "val-num-samples", OPT_INT, &o.val_num_samples, "0", "N", "validation samples; 0: all", OPT_NOT_NEGATIVE },
    { "dataset-type", OPT_STRING, &o.data.type, "auto", "auto|csv|webdataset|synthetic", "how the source is read", 0 },
    { "dataset-resampled", OPT_FLAG, &o.data.resampled, NULL, NULL, "draw with replacement", 0 },
    { "train-data-upsampling-factors", OPT_STRING, &o.data.upsampling, NULL, "A::B", "weights of the sources when resampling", 0 },
    { "csv-separator", OPT_STRING, &separator, "\t", "C", "between columns", 0 },
    { "csv-img-key", OPT_STRING, &o.data.csv_image_key, "filepath", "NAME", "column of the picture's path", 0 },
    { "csv-caption-key", OPT_STRING, &o.data.csv_caption_key, "title", "NAME", "column of the caption", 0 },
    { "image-key", OPT_STRING, &o.data.image_key, "jpg;png;jpeg;webp", "ENDINGS", "members of a shard that are pictures", 0 },
    { "text-key", OPT_STRING, &o.data.text_key, "txt", "ENDING", "members of a shard that are captions", 0 },
    { "max-image-pixels", OPT_INT, &o.data.max_pixels, "25000000", "N", "larger pictures are skipped", OPT_POSITIVE },
    { "one-caption", OPT_FLAG, &o.data.one_caption, NULL, NULL, "rows of a CSV that name one picture are one sample with several captions", 0 },
    { "imagenet-val", OPT_STRING, &o.imagenet_val, NULL, "DIR", "class folders for zero-shot during training", 0 },
    { "imagenet-v2", OPT_STRING, &o.imagenet_v2, NULL, "DIR", "the same, a second set", 0 },
    { "zeroshot-data", OPT_STRING, &o.zeroshot_data, NULL, "DIR", "any class folders for zero-shot during training", 0 },
    { "zeroshot-prompts", OPT_STRING, &o.zeroshot_prompts, NULL, "P.json", "prompts for them", 0 },
    { "zeroshot-set", OPT_STRING, &o.zeroshot_set, NULL, "NAME", "which set of the prompts", 0 },
    { "vocab", OPT_STRING, &o.vocab, NULL, "FILE", "merges file, CLIP's or ours; by default one is trained from the captions", 0 },
    { "vocab-size", OPT_INT, &o.vocab_size, "8192", "N", "ids of a vocabulary trained here", OPT_POSITIVE },
    { "logs", OPT_STRING, &o.logs, "./logs/", "DIR", "where runs are kept", 0 },
    { "name", OPT_STRING, &o.name, NULL, "NAME", "of the run; by default made from the time and the settings", 0 },
    { "workers", OPT_INT, &o.workers, "4", "N", "threads that read pictures", OPT_NOT_NEGATIVE },
    { "batch-size", OPT_INT, &o.batch_size, "64", "N", "pairs per device", OPT_POSITIVE },
    { "batch-size-eval", OPT_INT, &o.batch_size_eval, "256", "N", "pairs at a time in validation", OPT_POSITIVE },
    { "epochs", OPT_INT, &o.epochs, "32", "N", "passes over the data", OPT_POSITIVE },
    { "max-steps", OPT_INT, &o.max_steps, "0", "N", "stop after this many steps; 0: by epochs", OPT_NOT_NEGATIVE },
    { "resume", OPT_STRING, &o.resume, NULL, "latest|PATH", "go on from a checkpoint, exactly", 0 },
    { "save-frequency", OPT_INT, &o.save_frequency, "1", "N", "epochs between checkpoints; 0: the last only", OPT_NOT_NEGATIVE },
    { "save-every", OPT_STRING, &o.save_every, NULL, "TIME|STEPS", "checkpoints inside an epoch: 30m, 2h, 500steps", 0 },
    { "save-most-recent", OPT_FLAG, &o.save_most_recent, NULL, NULL, "keep a checkpoint of the newest epoch besides", 0 },
    { "delete-previous-checkpoint", OPT_FLAG, &o.delete_previous_checkpoint, NULL, NULL, "keep the newest checkpoint only", 0 },
    { "zeroshot-frequency", OPT_INT, &o.zeroshot_frequency, "2", "N", "epochs between zero-shot evaluations", OPT_NOT_NEGATIVE },
    { "val-frequency", OPT_INT, &o.val_frequency, "1", "N", "epochs between validations", OPT_NOT_NEGATIVE },
    { "report-to", OPT_STRING, &o.report_to, "tensorboard", "WHERE", "tensorboard or none", 0 },
    { "log-every-n-steps", OPT_INT, &o.log_every_n_steps, "100", "N", "steps between lines in the log", OPT_POSITIVE },
    { "analyze", OPT_FLAG, &o.analyze, NULL, NULL, "embedding analysis of the validation pairs after every epoch", 0 },
    { "lr", OPT_DOUBLE, &o.lr, "-1", "X", "learning rate; by default 5e-4", 0 },
    { "beta1", OPT_DOUBLE, &o.beta1, "-1", "X", "AdamW; by default 0.9", 0 },
    { "beta2", OPT_DOUBLE, &o.beta2, "-1", "X", "AdamW; by default 0.98 for ViT, else 0.999", 0 },
    { "eps", OPT_DOUBLE, &o.eps, "-1", "X", "AdamW; by default 1e-6 for ViT, else 1e-8", 0 },
    { "wd", OPT_DOUBLE, &o.wd, "0.2", "X", "weight decay, not on gains and biases", OPT_NOT_NEGATIVE },
    { "warmup", OPT_INT, &o.warmup, "10000", "N", "steps of rising learning rate", OPT_NOT_NEGATIVE },
    { "lr-scheduler", OPT_STRING, &o.lr_scheduler, "cosine", "cosine|cosine-restarts|const|const-cooldown", "shape of the learning rate", 0 },
    { "restart-cycles", OPT_INT, &o.restart_cycles, "1", "N", "cosine-restarts: cycles over the whole run", OPT_POSITIVE },
    { "epochs-cooldown", OPT_INT, &o.epochs_cooldown, "0", "N", "const-cooldown: epochs of decay at the end", OPT_NOT_NEGATIVE },
    { "skip-scheduler", OPT_FLAG, &o.skip_scheduler, NULL, NULL, "keep the learning rate constant", 0 },
    { "grad-clip-norm", OPT_DOUBLE, &o.grad_clip_norm, "0", "X", "largest norm of the gradient; 0: no limit", OPT_NOT_NEGATIVE },
    { "accum-freq", OPT_INT, &o.accum_freq, "1", "N", "micro-batches per step, one loss over all of them", OPT_POSITIVE },
    { "ema", OPT_DOUBLE, &o.ema, "0", "D", "decay of an average of the weights; 0: none", OPT_NOT_NEGATIVE },
    { "model", OPT_STRING, &o.model, "RN50", "NAME|FILE.json", "what to train; tiny is the demo's small ResNet", 0 },
    { "pretrained", OPT_STRING, &o.pretrained, NULL, "FILE", "weights to begin with, in any format cloob convert reads", 0 },
    { "grad-checkpointing", OPT_FLAG, &o.grad_checkpointing, NULL, NULL, "keep less of the forward pass and do it again", 0 },
    { "force-quick-gelu", OPT_FLAG, &o.force_quick_gelu, NULL, NULL, "QuickGELU whatever the model's configuration says", 0 },
    { "force-image-size", OPT_INT, &o.force_image_size, "0", "N", "pixels, instead of the model's", OPT_NOT_NEGATIVE },
    { "lock-image", OPT_FLAG, &o.lock_image, NULL, NULL, "leave the image tower as it is", 0 },
    { "lock-text", OPT_FLAG, &o.lock_text, NULL, NULL, "leave the text tower as it is", 0 },
    { "use-bn-sync", OPT_FLAG, &o.use_bn_sync, NULL, NULL, "batch norm over all ranks", 0 },
    { "aug-scale-min", OPT_DOUBLE, &o.aug_scale_min, "0.9", "X", "smallest share of a picture's area that a crop takes", OPT_POSITIVE },
    { "aug-cfg", OPT_LIST, &aug_cfg, NULL, "K=V", "training views by open_clip's names: scale=(0.5,1.0), color_jitter=.., gray_scale_prob=..", 0 },
    { "image-mean", OPT_LIST, &image_mean, NULL, "R G B", "mean of the pictures' channels, instead of the model's", 0 },
    { "image-std", OPT_LIST, &image_std, NULL, "R G B", "standard deviation of the channels", 0 },
    { "method", OPT_STRING, &o.method, "cloob", "cloob|clip|infoloob|infonce-hopfield", "the objective", 0 },
    { "memory", OPT_STRING, &o.memory, "batch", "batch|queue:N|file:F", "what the Hopfield networks store", 0 },
    { "init-inv-tau", OPT_DOUBLE, &o.init_inv_tau, "30", "X", "inverse temperature", OPT_POSITIVE },
    { "scale-hopfield", OPT_DOUBLE, &o.scale_hopfield, "8", "X", "the Hopfield networks' inverse temperature", OPT_NOT_NEGATIVE },
    { "learnable-inv-tau", OPT_FLAG, &o.learnable_inv_tau, NULL, NULL, "train the inverse temperature", 0 },
    { "learnable-scale-hopfield", OPT_FLAG, &o.learnable_scale_hopfield, NULL, NULL, "train the Hopfield scale", 0 },
    { "preset", OPT_STRING, &preset, NULL, "cc|yfcc", "one of the paper's recipes; flags that are given win", 0 },
    OPT_END,
};

/* ---- stopping ------------------------------------------------------------------------------------ */

static volatile sig_atomic_t asked;

static void on_signal(int number)
{
    if (asked) { /* the second time: at once; the last checkpoint is whole */
        signal(number, SIG_DFL);
        raise(number);
    }
    asked = 1;
}

static bool should_stop(void *user)
{
    (void)user;
    return asked != 0;
}

/* ---- the line that lives ------------------------------------------------------------------------- */

static void show(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
}

/* Three numbers, as "R G B" or "R,G,B"; not given: left alone. */
static bool take_channels(const opt_list *l, double to[3])
{
    int n = 0;
    for (int i = 0; i < l->count; i++)
        for (const char *at = l->item[i]; *at;) {
            char *end;
            double v = strtod(at, &end);
            if (end == at || n == 3 || (*end && *end != ',')) return false;
            to[n++] = v;
            at = *end ? end + 1 : end;
        }
    return l->count == 0 || n == 3;
}

static int run(const command *self, int argc, char **argv)
{
    opt_list rest;
    cloob_train_summary s = { .rank = 0 };
    cloob_train_options_init(&o);
    int code = opt_parse(self, argc, argv, &rest);
    if (code >= 0) return code;
    if (rest.count) return cli_usage(self, "%s: not understood", rest.item[0]);
    cloob_ctx *ctx = cli_context();
    if (preset) {
        cloob_train_options recipe = o;
        cloob_status p = cloob_train_preset(ctx, preset, &recipe);
        if (p != CLOOB_OK) return cli_fail(self, ctx, p);
        o = recipe;
        code = opt_parse(self, argc, argv, &rest); /* what was typed wins, defaults do not */
        (void)code;
#define KEEP(flag, field)                                                                                    \
    if (!opt_given(flag)) o.field = recipe.field
        KEEP("model", model);
        KEEP("method", method);
        KEEP("lr", lr);
        KEEP("wd", wd);
        KEEP("warmup", warmup);
        KEEP("batch-size", batch_size);
        KEEP("lr-scheduler", lr_scheduler);
        KEEP("restart-cycles", restart_cycles);
        KEEP("epochs", epochs);
        KEEP("init-inv-tau", init_inv_tau);
        KEEP("scale-hopfield", scale_hopfield);
#undef KEEP
    }
    if (strcmp(separator, "\\t") == 0) separator = "\t";
    if (strlen(separator) != 1) return cli_usage(self, "--csv-separator %s: needs one character", separator);
    o.data.csv_separator = separator[0];
    o.aug_cfg = aug_cfg.item;
    o.aug_cfg_count = aug_cfg.count;
    if (!take_channels(&image_mean, o.image_mean) || !take_channels(&image_std, o.image_std)) return cli_usage(self, "--image-mean, --image-std: three numbers each");
    if ((image_mean.count > 0) != (image_std.count > 0)) return cli_usage(self, "--image-mean and --image-std go together");
    if (image_std.count && (o.image_std[0] <= 0 || o.image_std[1] <= 0 || o.image_std[2] <= 0)) return cli_usage(self, "--image-std: must be above 0");
    o.seed = common.seed;
    o.device = common.device;
    o.precision = common.precision ? common.precision : "fp32";
    o.should_stop = should_stop;
    if (isatty(2) && !common.quiet) o.progress = show;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    cloob_status status = cloob_train(ctx, &o, &s);
    if (o.progress) fprintf(stderr, "\n");
    if (status == CLOOB_OK && s.rank > 0) code = 0; /* rank 0 speaks for all */
    else if (status == CLOOB_OK && common.json)
        printf("{\"run\":\"%s\",\"checkpoint\":\"%s\",\"steps\":%lld,\"loss\":%.9g,\"seconds\":%.3f,\"pairs_per_s\":%.3f,\"skipped_steps\":%lld,\"bad_samples\":%lld}\n",
               s.run_dir, s.checkpoint, (long long)s.steps, s.loss, s.seconds, s.pairs_per_s, (long long)s.skipped_steps, (long long)s.bad_samples);
    else if (status == CLOOB_OK) printf("%s\n", s.checkpoint);
    code = status == CLOOB_OK ? 0 : cli_fail(self, ctx, status);
    cloob_ctx_destroy(ctx);
    return code;
}

const command cmd_train = { "train", run, "train image and text encoders on pairs", rows, "--train-data SOURCE [OPTIONS]",
                            "Trains a model and leaves everything in LOGS/NAME: out.log, params.txt, checkpoints, results, TensorBoard\n"
                            "events. Ctrl-C saves and stops; a second one stops at once.\n\n"
                            "  cloob train --train-data pairs.tsv --model tiny --batch-size 128 --epochs 10 --warmup 200 --name first\n"
                            "  mpirun -np 4 cloob train --preset cc --train-data 'cc/{00000..00331}.tar' --name cloob-cc" };
