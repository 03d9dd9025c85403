/* From the words of a command line to data sets and models. */
#include "cli/shared_opts.h"

const cloob_data_options *cli_data_ready(cloob_data_options *o)
{
    o->seed = (uint64_t)common.seed;
    return o;
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
