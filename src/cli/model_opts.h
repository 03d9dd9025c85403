/* The options that say which model is used and how, the same in every command that uses one. */
#ifndef CLI_MODEL_OPTS_H
#define CLI_MODEL_OPTS_H

#include "cli/opt.h"

typedef struct cli_model {
    const char *checkpoint, *vocab, *config;
    bool no_invariant;
    int64_t batch;
} cli_model;

/* clang-format off */
#define CLI_MODEL_ROWS(m)                                                                                    \
    { "checkpoint", OPT_STRING, &(m).checkpoint, NULL, "M",                                                  \
      "weights: ours, or any format cloob convert reads", OPT_REQUIRED },                                    \
    { "vocab", OPT_STRING, &(m).vocab, NULL, "FILE", "merges, where the weights hold no tokenizer", 0 },     \
    { "config", OPT_STRING, &(m).config, NULL, "MODEL",                                                      \
      "a model's name or a .json file, where shapes do not tell everything", 0 }

#define CLI_INVARIANT_ROWS(m)                                                                                \
    { "no-invariant", OPT_FLAG, &(m).no_invariant, NULL, NULL,                                               \
      "work rows out in batches: faster, and the last bits depend on the batch", 0 },                        \
    { "batch", OPT_INT, &(m).batch, "32", "N", "rows at a time with --no-invariant", OPT_POSITIVE }
/* clang-format on */

/* Opens the model with the common options. invariant: what holds unless --no-invariant is given. */
cloob_status cli_model_open(cloob_ctx *ctx, const cli_model *o, bool invariant, cloob_model **out);

#endif
