/* cloob loss: computes the objective of stored embeddings. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "loss/loss.h"
#include "infer/embeddings_file.h"

static struct {
    const char *input, *method, *grad, *report;
    double inv_tau, scale, bias;
} o;

static const opt_row rows[] = {
    { "input", OPT_STRING, &o.input, NULL, "FILE",
      "safetensors with unit rows x, y (or image, text) (N, d); U, V: stored patterns", OPT_REQUIRED },
    { "method", OPT_STRING, &o.method, "cloob", "cloob|clip|infoloob|infonce-hopfield|siglip|cloob-uv",
      "objective; cloob-uv, which the paper rejects, needs --device ref", 0 },
    { "init-inv-tau", OPT_DOUBLE, &o.inv_tau, CLOOB_TEXT(CLOOB_DEFAULT_INV_TAU), "T", "inverse temperature", 0 },
    { "scale-hopfield", OPT_DOUBLE, &o.scale, CLOOB_TEXT(CLOOB_DEFAULT_SCALE_HOPFIELD), "B",
      "beta of the Hopfield networks", 0 },
    { "init-logit-bias", OPT_DOUBLE, &o.bias, CLOOB_TEXT(CLOOB_DEFAULT_LOGIT_BIAS), "X", "siglip: bias of the logits",
      0 },
    { "report-loss", OPT_STRING, &o.report, "ours", "ours|open_clip",
      "scale of the printed loss; for clip, open_clip's is inv_tau / 2 times cloob's (ours); for siglip they are equal",
      0 },
    { "grad", OPT_STRING, &o.grad, NULL, "FILE", "write the gradients dx, dy (and dU, dV) here", 0 },
    CLI_TRAIN_PRECISION_ROW,
    OPT_END
};

/* The loss in open_clip's scale: its ClipLoss is the mean of the two terms; its SigLipLoss equals cloob's. */
static double reported(const cloob_objective_result *r)
{
    bool theirs = strcmp(o.report, "open_clip") == 0 && strcmp(o.method, "clip") == 0;
    return theirs ? (r->image_term + r->text_term) / 2 : r->loss;
}

static int check(const command *self)
{
    if (strcmp(o.report, "open_clip") == 0 && strcmp(o.method, "clip") != 0 && strcmp(o.method, "siglip") != 0)
        return cli_usage(self, "--report-loss open_clip: open_clip has clip and siglip, not %s", o.method);
    return -1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    cloob_objective_options l;
    cloob_objective_result r;
    cloob_objective_options_init(&l);
    loss_method_from_name(o.method, &l.method); /* cannot fail: the option table lists the choices */
    l.inv_tau = o.inv_tau;
    l.scale_hopfield = o.scale;
    l.logit_bias = o.bias;
    l.device = common.device;
    l.compute = cli_loss_precision();
    cloob_status status = objective_file(ctx, &l, o.input, o.grad, &r);
    if (status == CLOOB_OK)
        cli_result(J_NUMBER("loss", reported(&r), 17), J_NUMBER("image_term", r.image_term, 17),
                   J_NUMBER("text_term", r.text_term, 17), J_NUMBER("dsum_dinv_tau", r.dsum_dinv_tau, 17),
                   J_NUMBER("dsum_dscale", r.dsum_dscale, 17), J_OF(&o, method), J_OF(&r, n), J_INT("dim", r.d));
    return cli_exit(self, ctx, status);
}

const command cmd_loss = {
    .name = "loss",
    .run = run,
    .check = check,
    .stray = "--input",
    .help = "compute the objective of stored embeddings, with gradients",
    .options = rows,
    .usage = "--input E [--method M] [--grad G]",
    .details =
        "Computes in fp32, or in bf16 with --precision bf16. loss is (image_term + text_term) / inv-tau, for siglip "
        "it is their sum. The gradients are gradients of loss; rows are not normalised again. Without U and V the "
        "Hopfield networks store the batch.\n"
        "\n"
        "  cloob embed --checkpoint M --data val.tsv --out pairs.safetensors\n"
        "  cloob loss --input pairs.safetensors --method cloob --init-inv-tau 30 --scale-hopfield 8 --json",
};
