/* cloob convert: converts weights between formats, and averages weights. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "infer/model_file.h"

static struct {
    cloob_convert_options how;
    const char *to;
    bool average;
    double alpha;
    const char *out; /* of an average */
    cloob_model_options model;
} o;

static const char *const format_names[] = { "auto", "native", "openai", "jku", "hf", "open_clip" };
static const char *const fate_names[] = { "missing", "misshaped", "unexpected", "ignored" };

static cloob_weight_format parse_format(const char *name)
{
    for (int i = CLOOB_WEIGHTS_NATIVE; i <= CLOOB_WEIGHTS_OPEN_CLIP; i++)
        if (name && strcmp(name, format_names[i]) == 0) return (cloob_weight_format)i;
    return CLOOB_WEIGHTS_AUTO;
}

static cloob_convert_report report; /* of the last conversion */

/* The tensors that were not converted, by reason. */
static void print_keys(void)
{
    for (int f = 0; f < CLOOB_KEY_FATES; f++) {
        if (common.json) json_out_open(fate_names[f], '[');
        for (int64_t i = 0; i < report.count[f]; i++)
            if (common.json) json_out_text(NULL, report.key[f][i]);
            else printf("%-11s  %s\n", fate_names[f], report.key[f][i]);
        if (common.json) json_out_close();
    }
}

/* ---- averages -------------------------------------------------------------------------------------- */

/* The last word is the output, unless --out is given. */
static int check_average(const command *self)
{
    static const char *const other[] = { "to",    "activation",      "dtype",  "context-length",
                                         "vocab", "drop-unexpected", "config", "auto-precision" };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (opt_given(other[i])) return cli_usage(self, "--%s does not apply to --average", other[i]);
    if (o.out && !*o.out) return cli_usage(self, "--out M is required: the output file");
    if (!o.out && opt_words.count) o.out = opt_words.item[--opt_words.count];
    if (opt_words.count < 2) return cli_usage(self, "--average needs two models or more, and an output");
    if (opt_given("alpha") && (o.alpha < 0 || o.alpha > 1))
        return cli_usage(self, "--alpha %g: must be between 0 and 1", o.alpha);
    return -1;
}

static int run_average(const command *self, cloob_ctx *ctx)
{
    cloob_status status = CLOOB_OK;
    for (int i = 0; i < opt_words.count && status == CLOOB_OK; i++) status = opt_model_path(ctx, &opt_words.item[i]);
    if (status == CLOOB_OK)
        status = average_weights(ctx, opt_words.item, opt_words.count, opt_given("alpha") ? o.alpha : -1, o.out);
    if (status == CLOOB_OK) cli_result(J_OF(&o, out), J_INT("models", opt_words.count));
    return cli_exit(self, ctx, status);
}

static int check(const command *self)
{
    if (o.average) return check_average(self);
    if (opt_given("alpha") || o.out) return cli_usage(self, "--alpha and --out need --average");
    if (opt_words.count == 2) return -1;
    return cli_usage(self, "needs an input and an output, got %lld", (long long)opt_words.count);
}

static int run(const command *self, cloob_ctx *ctx)
{
    if (o.average) return run_average(self, ctx);
    const char *in = opt_words.item[0], *out = opt_words.item[1];
    const cloob_convert_report *r = &report;
    o.how.size = sizeof o.how, o.how.to = parse_format(o.to), o.how.config = o.model.config;
    cloob_status status = opt_model_path(ctx, &in);
    if (status == CLOOB_OK) status = cloob_convert(ctx, in, out, &o.how, &report);
    const char *error = status == CLOOB_OK ? NULL : cloob_error(ctx);
    const json_member shown[] = { J_TEXT("input", in),  J_TEXT("output", out), J_TEXT("to", format_names[r->to]),
                                  J_OF(r, model),       J_OF(r, container),    J_OF(r, names),
                                  J_OF(r, config_from), J_OF(r, tensors),      J_OF(r, parameters),
                                  J_OF(r, bytes),       J_TEXT("error", error) };
    size_t count = sizeof shown / sizeof *shown;
    if (common.json || !error) cli_show(shown, error ? count : count - 1, print_keys);
    cloob_convert_report_release(&report);
    return cli_exit(self, ctx, status);
}

static const opt_row rows[] = {
    { "to", OPT_STRING, &o.to, NULL, "native|openai|jku|hf|open_clip",
      "format to write; default: openai if OUT ends in .pt, .pth or .bin, otherwise native", 0 },
    { "activation", OPT_STRING, &o.how.activation, NULL, "quickgelu|gelu", "activation, if the file does not name it",
      0 },
    { "dtype", OPT_STRING, &o.how.dtype, NULL, "f32|bf16|f16", "data type of the matrices; bf16 halves the file", 0 },
    { "context-length", OPT_INT, &o.how.context, "0", "N",
      "stretch the position embeddings to N tokens, except the first 20 (Long-CLIP uses 248); 0: keep them",
      OPT_NOT_NEGATIVE },
    { "vocab", OPT_STRING, &o.how.vocab, NULL, "FILE",
      "tokenizer to store with the weights: BPE merges, tokenizer.json, a .model, or a folder", 0 },
    { "auto-precision", OPT_STRING, &o.how.auto_precision, NULL, "fp32|bf16|int8",
      "precision that --precision auto selects for these weights; default: the fastest on each machine", 0 },
    { "drop-unexpected", OPT_FLAG, &o.how.drop_unexpected, NULL, NULL,
      "ignore unexpected tensors instead of refusing the file", 0 },
    { "average", OPT_FLAG, &o.average, NULL, NULL, "average the weights of all files but the last, which is written",
      0 },
    { "alpha", OPT_DOUBLE, &o.alpha, NULL, "X",
      "with --average: total weight of all models but the first, 0 to 1; default: equal weights", 0 },
    { "out", OPT_STRING, &o.out, NULL, "FILE", "with --average: the output, instead of the last file", OPT_HIDDEN },
    OPT_END
};
static const opt_set sets[] = { { .table = model_option_table, .into = &o.model, .only = "config" }, OPT_SETS_END };

const command cmd_convert = {
    .name = "convert",
    .run = run,
    .check = check,
    .help = "convert weights between formats, or average them",
    .options = rows,
    .sets = sets,
    .usage = "IN OUT [--to FORMAT] [--config MODEL] | --average A B... OUT [--alpha X]",
    .details =
        "IN is a torch .pt file (zip, the stream format before 1.6, TorchScript), a safetensors file, a folder of "
        "open_clip or Hugging Face, or a model's name (cloob pull lists some). Code inside a .pt file is never "
        "executed. The architecture is inferred from the shapes; heads are 64 wide unless the sizes match a built-in "
        "model or --config sets another width. hf and open_clip write OUT as a folder.\n"
        "\n"
        "--average writes (1 - alpha) A + alpha mean(B...), tensor by tensor; all models must have the same shapes. "
        "Interpolating between a model and its fine-tuned version (WiSE-FT) often preserves the abilities of both. "
        "Metadata, tokenizer and configuration come from A.\n"
        "\n"
        "  cloob convert epoch_31.pt RN50.safetensors\n"
        "  cloob convert RN50.safetensors for_open_clip --to open_clip\n"
        "  cloob convert ViT-B-32.pt for_transformers --to hf\n"
        "  cloob convert --average clip.safetensors tuned.safetensors --alpha 0.5 both.safetensors\n"
        "  cloob convert --average seed0.safetensors seed1.safetensors seed2.safetensors soup.safetensors",
};
