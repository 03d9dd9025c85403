/* From the words of a command line to data sets and models. */
#include "cli/shared_opts.h"

#include <string.h>

/* The rows of another table, whose struct stands at `base`. */
static int64_t append(cloob_option *to, const cloob_option *from, int64_t n, size_t base)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = from[i];
        to[i].offset += base;
    }
    return n;
}

const cloob_option *cli_model_table(int64_t *count)
{
    static cloob_option table[64] = { { .name = "checkpoint",
                                        .field = "checkpoint",
                                        .type = CLOOB_OPTION_STRING,
                                        .offset = offsetof(cli_model, checkpoint),
                                        .values = "M",
                                        .group = "model",
                                        .help = "weights, in any format that cloob convert reads" } };
    int64_t model, data;
    const cloob_option *of_model = cloob_model_option_table(&model), *of_data = cloob_data_option_table(&data);
    *count = 1 + append(table + 1, of_model, model, offsetof(cli_model, open));
    *count += append(table + *count, of_data, data, offsetof(cli_model, data));
    return table;
}

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

cloob_status cli_model_open(cloob_ctx *ctx, const cli_model *from, cloob_model **out)
{
    cloob_model_options o = from->open;
    o.device = common.device;
    o.precision = common.precision;
    o.max_pixels = from->data.max_pixels;
    o.photos = from->open.photos || from->data.exif_orientation;
    return cloob_model_open(ctx, from->checkpoint, &o, out);
}
