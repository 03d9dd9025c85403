/* cloob average: between two models, or the mean of several. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/json_out.h"

static struct {
    const char *out;
    double alpha;
} o;

static const opt_row rows[] = { { "out", OPT_STRING, &o.out, NULL, "M", "output file", OPT_REQUIRED },
                                { "alpha", OPT_DOUBLE, &o.alpha, "-1", "X",
                                  "total weight of all models but the first, 0 to 1; -1: equal weights", 0 },
                                OPT_END };

static int check(const command *self)
{
    if (opt_words.count < 2) return cli_usage(self, "needs two models or more");
    if (opt_given("alpha") && (o.alpha < 0 || o.alpha > 1))
        return cli_usage(self, "--alpha %g: must be between 0 and 1", o.alpha);
    return -1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    cloob_status status = cloob_average(ctx, opt_words.item, opt_words.count, opt_given("alpha") ? o.alpha : -1, o.out);
    if (status == CLOOB_OK && common.json) {
        json_out_open(NULL, '{');
        json_out_text("out", o.out);
        json_out_int("models", opt_words.count);
        json_out_close();
    } else if (status == CLOOB_OK) printf("%s: average of %d models\n", o.out, opt_words.count);
    return cli_exit(self, ctx, status);
}

const command cmd_average = {
    .name = "average",
    .run = run,
    .check = check,
    .help = "average weights of models: WiSE-FT and model soups",
    .options = rows,
    .usage = "A B... [--alpha X] --out M",
    .details = "Writes (1 - alpha) A + alpha mean(B...), tensor by tensor; all models must have the same shapes. "
               "Interpolating between a model and its fine-tuned version (WiSE-FT) often preserves the abilities of "
               "both. Metadata, tokenizer and configuration come from A.\n"
               "\n"
               "  cloob average clip.safetensors tuned.safetensors --alpha 0.5 --out both.safetensors\n"
               "  cloob average seed0.safetensors seed1.safetensors seed2.safetensors --out soup.safetensors",
};
