/* The cpu backend. An op without a row here runs as ref defines it. */
#include "nn/cpu/cpu.h"

/* oneDNN's kernels for AVX-512 take blocks of 16, those for less take 8: with other blocks every convolution begins and
 * ends with a reorder. */
int64_t op_image_block(void)
{
#ifdef __x86_64__
    if (!__builtin_cpu_supports("avx512f")) return 8;
#endif
    return 16;
}

/* CPU_CONV_BLOCKED comes from the build: only oneDNN takes blocks of channels. */

const op_kernel op_kernels_cpu[OP_COUNT] = {
    [OP_IMAGE_INPUT] = { .run = image_input_cpu },
    [OP_EMBED] = { .run = embed_cpu },
    [OP_EMBED_BWD] = { .run = embed_bwd_cpu },
    [OP_TAKE_ROWS] = { .run = take_rows_cpu },
    [OP_TAKE_ROWS_BWD] = { .run = take_rows_bwd_cpu, .adds_in_place = true },
    [OP_CLASS_TOKENS] = { .run = class_tokens_cpu },
    [OP_CLASS_TOKENS_BWD] = { .run = class_tokens_bwd_cpu },
    [OP_MEAN_TOKENS] = { .run = mean_tokens_cpu, .blocked = true },
    [OP_MEAN_TOKENS_BWD] = { .run = mean_tokens_bwd_cpu, .blocked = true },
    [OP_GRID_TOKENS] = { .run = grid_tokens_cpu },
    [OP_GRID_TOKENS_BWD] = { .run = grid_tokens_bwd_cpu },
    [OP_MEAN_ROWS] = { .run = mean_rows_cpu },
    [OP_MEAN_ROWS_BWD] = { .run = mean_rows_bwd_cpu },
    [OP_REPEAT_ROW] = { .run = repeat_row_cpu },
    [OP_REPEAT_ROW_BWD] = { .run = repeat_row_bwd_cpu },
    [OP_SCALE] = { .run = scale_cpu },
    [OP_SCALE_BWD] = { .run = scale_bwd_cpu },
    [OP_BN_STATS] = { .run = bn_stats_cpu, .prepare = bn_sums_prepare, .blocked = true },
    [OP_BN_APPLY] = { .run = bn_apply_cpu, .prepare = bn_apply_prepare, .blocked = true },
    [OP_BN_BWD_REDUCE] = { .run = bn_bwd_reduce_cpu, .prepare = bn_bwd_sums_prepare, .blocked = true },
    [OP_BN_BWD_APPLY] = { .run = bn_bwd_apply_cpu, .prepare = bn_bwd_apply_prepare, .blocked = true },
    [OP_FOLD_BN] = { .run = fold_bn_cpu },
    [OP_RELU] = { .run = relu_cpu, .blocked = true },
    [OP_ADD] = { .run = add_cpu, .blocked = true },
    [OP_AVGPOOL2] = { .run = avgpool2_cpu, .blocked = true },
    [OP_AVGPOOL2_BWD] = { .run = avgpool2_bwd_cpu, .blocked = true },
    [OP_LINEAR] = { .run = linear_cpu, .prepare = linear_prepare, .release = linear_release },
    [OP_LINEAR_DX] = { .run = linear_dx_cpu, .prepare = linear_dx_prepare, .release = linear_release },
    [OP_LINEAR_DW] = { .run = linear_dw_cpu, .prepare = linear_dw_prepare, .release = linear_release },
    [OP_ACT] = { .run = act_cpu },
    [OP_ACT_BWD] = { .run = act_bwd_cpu },
    [OP_LAYERNORM] = { .run = layernorm_cpu },
    [OP_LAYERNORM_BWD] = { .run = layernorm_bwd_cpu, .prepare = layernorm_bwd_prepare },
    [OP_ATTENTION] = { .run = attention_cpu, .prepare = attention_prepare },
    [OP_ATTENTION_BWD] = { .run = attention_bwd_cpu, .prepare = attention_bwd_prepare },
    [OP_ATTENTION_ONE] = { .run = attention_one_cpu, .prepare = attention_one_prepare },
    [OP_ATTENTION_ONE_BWD] = { .run = attention_one_bwd_cpu, .prepare = attention_one_bwd_prepare },
    [OP_HEADS_PROJECT] = { .run = heads_project_cpu, .prepare = heads_project_prepare },
    [OP_HEADS_COLLECT] = { .run = heads_collect_cpu, .prepare = heads_collect_prepare },
    [OP_HEADS_DW] = { .run = heads_dw_cpu, .prepare = heads_dw_prepare },
    [OP_POOL_ATTENTION] = { .run = pool_attention_cpu, .prepare = pool_attention_prepare },
    [OP_POOL_ATTENTION_BWD] = { .run = pool_attention_bwd_cpu, .prepare = pool_attention_bwd_prepare },
    [OP_CONV2D] = { .run = conv2d_cpu,
                    .prepare = conv2d_prepare,
                    .release = conv2d_release,
                    .adds_in_place = true,
                    .blocked = CPU_CONV_BLOCKED,
                    .mixes = true },
    [OP_CONV2D_DX] = { .run = conv2d_dx_cpu,
                       .prepare = conv2d_dx_prepare,
                       .release = conv2d_release,
                       .blocked = CPU_CONV_BLOCKED,
                       .mixes = true },
    [OP_CONV2D_DW] = { .run = conv2d_dw_cpu,
                       .prepare = conv2d_dw_prepare,
                       .release = conv2d_release,
                       .blocked = CPU_CONV_BLOCKED,
                       .mixes = true },
};
