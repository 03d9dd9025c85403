/* Low-rank adapters (LoRA): W x becomes W x + scale B (A x), with W as it was given, A (r, in) and B (out, r) trained.
 *
 * Every matrix of a transformer's blocks that is not locked has a pair: attn.in_proj (one pair for queries, keys and
 * values), attn.out_proj, mlp.c_fc, mlp.c_proj. A begins as normal numbers of variance 1 / in, B as 0, so that the
 * model begins as it was given. Adapters are rows of the parameter table (model/params.h) named NAME.lora_A and
 * NAME.lora_B; files hold W + scale B A under W's own name. */
#ifndef MODEL_LORA_H
#define MODEL_LORA_H

#include "model/params.h"

/* The name of the row that holds the scale r times, as a vector; it is there where the scale is not 1. */
#define LORA_SCALE "lora.scale"

typedef enum lora_part { LORA_NONE, LORA_A, LORA_B, LORA_SCALES } lora_part;
lora_part lora_part_of(const char *name);

/* A row of model/shapes.h that gets a pair of adapters when `t` asks for them. */
bool lora_adapts(const params_training *t, const model_config *c, const st_entry *row);

/* rows with the adapters behind them, in the arena; without adapters they stay as they are. Refused when t asks for
 * adapters and there is nothing to adapt, or the rank is above a matrix's own. */
cloob_status lora_append(cloob_ctx *ctx, arena *a, const model_config *c, const params_training *t, st_entry **rows,
                         int64_t *count);

/* Adds scale B A to `row`'s value in host memory, file shape; does nothing to a row without adapters. Sums in
 * double. */
cloob_status lora_merge(cloob_ctx *ctx, const params *p, int row, float *value);

#endif
