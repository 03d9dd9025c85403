/* What commands that use a model or read data have in common. Data sets: put
 *
 *     static const opt_set sets[] = { { cloob_data_option_table, &o.how }, OPT_SETS_END };
 *
 * beside the command's rows, and read o.how, a cloob_data_options, after cli_data_ready. A command with a model has
 * them as model.how: images that are named one by one have the same limits. */
#ifndef CLI_SHARED_OPTS_H
#define CLI_SHARED_OPTS_H

#include "cli/opt.h"

/* What opt_parse left, with what the common options say of it. */
const cloob_data_options *cli_data_ready(cloob_data_options *o);

typedef struct cli_model {
    const char *checkpoint, *vocab, *config;
    bool no_invariant, photos; /* photos: set by commands that read a person's photos */
    int64_t batch;
    cloob_data_options how; /* where a set of options goes: { cloob_data_option_table, &model.how } */
} cli_model;

/* required: OPT_REQUIRED, or 0 where a command can do without a model. */
/* clang-format off */
#define CLI_MODEL_ROWS(m, required)                                                                                    \
    { "checkpoint", OPT_STRING, &(m).checkpoint, NULL, "M",                                                            \
      "weights, in any format that cloob convert reads", required },                                                  \
    { "vocab", OPT_STRING, &(m).vocab, NULL, "FILE", "BPE merges file, for weights that come without a tokenizer", 0 },               \
    { "config", OPT_STRING, &(m).config, NULL, "MODEL",                                                                \
      "model name or .json file, if the shapes alone are ambiguous", 0 }

#define CLI_INVARIANT_ROWS(m)                                                                                          \
    { "no-invariant", OPT_FLAG, &(m).no_invariant, NULL, NULL,                                                         \
      "compute rows in batches: faster, but the last bits depend on the batch", 0 },                                  \
    { "batch", OPT_INT, &(m).batch, "32", "N", "batch size with --no-invariant", OPT_POSITIVE }
/* clang-format on */

/* The precision of the objective: fp32 (the default) or bf16. -1, or the exit code of a refusal. */
int cli_loss_precision(const command *self, cloob_dtype *out);

/* Opens the model with the common options. invariant: what holds unless --no-invariant is given. */
cloob_status cli_model_open(cloob_ctx *ctx, const cli_model *o, bool invariant, cloob_model **out);

#endif
