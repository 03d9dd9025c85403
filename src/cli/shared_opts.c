/* From the words of a command line to data sets and models. */
#include "cli/shared_opts.h"

#include <string.h>

const cloob_data_options *cli_data_ready(cloob_data_options *o)
{
    o->seed = (uint64_t)common.seed;
    return o;
}

int cli_loss_precision(const command *self, cloob_dtype *out)
{
    const char *name = opt_given("precision") ? common.precision : "fp32";
    if (strcmp(name, "int8") == 0 || strcmp(name, "amp_fp8") == 0)
        return cli_usage(self, "--precision %s: the objective is computed in fp32 or bf16", name);
    *out = strcmp(name, "fp32") == 0 ? CLOOB_F32 : CLOOB_BF16;
    return -1;
}

cloob_status cli_model_open(cloob_ctx *ctx, const cli_model *from, bool invariant, cloob_model **out)
{
    cloob_model_options o;
    cloob_model_options_init(&o);
    o.device = common.device;
    o.precision = common.precision;
    o.vocab = from->vocab;
    o.config = from->config;
    o.invariant = invariant && !from->no_invariant;
    o.max_pixels = from->how.max_pixels;
    o.photos = from->photos || from->how.exif_orientation;
    if (from->batch > 0) o.batch = from->batch;
    return cloob_model_open(ctx, from->checkpoint, &o, out);
}
