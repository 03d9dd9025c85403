/* GPU kernels at sizes that fill the chip: grids that go around several times, every tile of attention,
 * tokens that repeat often. The small odd sizes are in test_ops. */
#include "check.h"
#include "op_harness.h"

static cloob_ctx *ctx;

#define A(...)                                                                                                         \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* With an extra gradient, as on the stream of a transformer. */
#define LAYERNORM_SUMS(width)                                                                                          \
    {                                                                                                                  \
        "layernorm_bwd sums " #width, OP_LAYERNORM_BWD, A(.eps = 1e-5f, .sums = true),                                 \
        {                                                                                                              \
            { 'f', { 1501, width } }, { 'f', { 1501, width } }, { 'v', { 1501 } }, { 'p', { 1501 } },                  \
                { 'v', { width } },                                                                                    \
            {                                                                                                          \
                'f', { 1501, width }                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
    }

static const op_case cases[] = {
    { "bn_stats 64",
      OP_BN_STATS,
      A(.eps = 1e-5f, .momentum = .1f),
      { { 'f', { 16, 56, 56, 64 } }, { 'v', { 64 } }, { 'p', { 64 } } } },
    { "bn_stats 320",
      OP_BN_STATS,
      A(.eps = 1e-5f, .momentum = .1f),
      { { 'f', { 8, 28, 28, 320 } }, { 'v', { 320 } }, { 'p', { 320 } } } },
    { "bn_stats 2048",
      OP_BN_STATS,
      A(.eps = 1e-5f, .momentum = .1f),
      { { 'f', { 16, 7, 7, 2048 } }, { 'v', { 2048 } }, { 'p', { 2048 } } } },
    { "bn_apply relu",
      OP_BN_APPLY,
      A(.eps = 1e-5f, .relu = true),
      { { 'f', { 16, 56, 56, 64 } }, { 'v', { 64 } }, { 'p', { 64 } }, { 'v', { 64 } }, { 'v', { 64 } } } },
    { "bn_apply pool",
      OP_BN_APPLY,
      A(.eps = 1e-5f, .relu = true, .pool = true),
      { { 'f', { 16, 56, 56, 40 } }, { 'v', { 40 } }, { 'p', { 40 } }, { 'v', { 40 } }, { 'v', { 40 } } } },
    { "bn_apply pool odd", /* RN50 at 112 px: 7 x 7 becomes 3 x 3 */
      OP_BN_APPLY,
      A(.eps = 1e-5f, .relu = true, .pool = true),
      { { 'f', { 16, 7, 7, 512 } }, { 'v', { 512 } }, { 'p', { 512 } }, { 'v', { 512 } }, { 'v', { 512 } } } },
    { "bn_apply res",
      OP_BN_APPLY,
      A(.eps = 1e-5f, .relu = true),
      { { 'f', { 16, 14, 14, 1024 } },
        { 'v', { 1024 } },
        { 'p', { 1024 } },
        { 'v', { 1024 } },
        { 'v', { 1024 } },
        { 'f', { 16, 14, 14, 1024 } } } },
    { "relu", OP_RELU, A(0), { { 'f', { 16, 56, 56, 64 } } } },
    { "avgpool2", OP_AVGPOOL2, A(0), { { 'f', { 16, 56, 56, 64 } } } },
    { "avgpool2 odd", OP_AVGPOOL2, A(0), { { 'f', { 16, 7, 7, 1024 } } } },
    { "conv2d 3x3 on 3x3",
      OP_CONV2D,
      A(.stride = 1, .pad = 1),
      { { 'f', { 4, 3, 3, 512 } }, { 'f', { 512, 3, 3, 512 } } } },
    { "conv2d stem odd", OP_CONV2D, A(.stride = 2, .pad = 1), { { 'f', { 4, 75, 75, 8 } }, { 'f', { 32, 3, 3, 3 } } } },
    { "conv2d 3x3", OP_CONV2D, A(.stride = 1, .pad = 1), { { 'f', { 4, 14, 14, 64 } }, { 'f', { 128, 3, 3, 64 } } } },
    { "conv2d 1x1", OP_CONV2D, A(.stride = 1, .pad = 0), { { 'f', { 8, 14, 14, 256 } }, { 'f', { 64, 1, 1, 256 } } } },
    { "conv2d stem", OP_CONV2D, A(.stride = 2, .pad = 1), { { 'f', { 4, 64, 64, 8 } }, { 'f', { 32, 3, 3, 3 } } } },
    { "conv2d few channels",
      OP_CONV2D,
      A(.stride = 1, .pad = 1),
      { { 'f', { 3, 30, 33, 32 } }, { 'f', { 64, 3, 3, 32 } } } },
    { "conv2d patch",
      OP_CONV2D,
      A(.stride = 16, .pad = 0),
      { { 'f', { 4, 64, 64, 3 } }, { 'f', { 128, 16, 16, 3 } } } },
    { "conv_stats 64",
      OP_CONV_STATS,
      A(.stride = 1, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 3, 56, 56, 256 } }, { 'f', { 64, 1, 1, 256 } }, { 'v', { 64 } }, { 'p', { 64 } } } },
    { "conv_stats 256",
      OP_CONV_STATS,
      A(.stride = 1, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 3, 56, 56, 64 } }, { 'f', { 256, 1, 1, 64 } }, { 'v', { 256 } }, { 'p', { 256 } } } },
    { "conv_stats 320",
      OP_CONV_STATS,
      A(.stride = 1, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 5, 28, 28, 80 } }, { 'f', { 320, 1, 1, 80 } }, { 'v', { 320 } }, { 'p', { 320 } } } },
    { "conv_stats long",
      OP_CONV_STATS,
      A(.stride = 1, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 3, 33, 33, 32 } }, { 'f', { 2048, 1, 1, 32 } }, { 'v', { 2048 } }, { 'p', { 2048 } } } },
    { "conv_stats stem 32",
      OP_CONV_STATS,
      A(.stride = 1, .pad = 1, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 7, 112, 112, 32 } }, { 'f', { 32, 3, 3, 32 } }, { 'v', { 32 } }, { 'p', { 32 } } } },
    { "conv_stats stem 64",
      OP_CONV_STATS,
      A(.stride = 1, .pad = 1, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 5, 75, 61, 32 } }, { 'f', { 64, 3, 3, 32 } }, { 'v', { 64 } }, { 'p', { 64 } } } },
    { "conv_stats stem 80",
      OP_CONV_STATS,
      A(.stride = 1, .pad = 1, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 3, 75, 61, 40 } }, { 'f', { 80, 3, 3, 40 } }, { 'v', { 80 } }, { 'p', { 80 } } } },
    { "conv_stats stem first",
      OP_CONV_STATS,
      A(.stride = 2, .pad = 1, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 5, 150, 151, 8 } }, { 'f', { 40, 3, 3, 3 } }, { 'v', { 40 } }, { 'p', { 40 } } } },
    { "image_conv_stats 32",
      OP_IMAGE_CONV_STATS,
      A(.stride = 2, .pad = 1, .channels = 8, .mean = { .48f, .46f, .41f }, .std = { .27f, .26f, .28f }, .eps = 1e-5f,
        .momentum = .1f),
      { { 'b', { 7, 224, 224, 3 } }, { 'f', { 32, 3, 3, 3 } }, { 'v', { 32 } }, { 'p', { 32 } } } },
    { "image_conv_stats 40",
      OP_IMAGE_CONV_STATS,
      A(.stride = 2, .pad = 1, .channels = 8, .mean = { .48f, .46f, .41f }, .std = { .27f, .26f, .28f }, .eps = 1e-5f,
        .momentum = .1f),
      { { 'b', { 5, 111, 144, 3 } }, { 'f', { 40, 3, 3, 3 } }, { 'v', { 40 } }, { 'p', { 40 } } } },
    { "apply_stem_stats 32",
      OP_APPLY_STEM_STATS,
      A(.stride = 1, .pad = 1, .relu = true, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 7, 112, 112, 32 } },
        { 'v', { 32 } },
        { 'p', { 32 } },
        { 'v', { 32 } },
        { 'v', { 32 } },
        { 'f', { 32, 3, 3, 32 } },
        { 'v', { 32 } },
        { 'p', { 32 } } } },
    { "apply_stem_stats 64",
      OP_APPLY_STEM_STATS,
      A(.stride = 1, .pad = 1, .relu = true, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 5, 75, 61, 32 } },
        { 'v', { 32 } },
        { 'p', { 32 } },
        { 'v', { 32 } },
        { 'v', { 32 } },
        { 'f', { 64, 3, 3, 32 } },
        { 'v', { 64 } },
        { 'p', { 64 } } } },
    { "apply_stem_stats 40",
      OP_APPLY_STEM_STATS,
      A(.stride = 1, .pad = 1, .relu = true, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 3, 75, 61, 40 } },
        { 'v', { 40 } },
        { 'p', { 40 } },
        { 'v', { 40 } },
        { 'v', { 40 } },
        { 'f', { 40, 3, 3, 40 } },
        { 'v', { 40 } },
        { 'p', { 40 } } } },
    { "apply_stem_stats 80",
      OP_APPLY_STEM_STATS,
      A(.stride = 1, .pad = 1, .relu = true, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 3, 75, 61, 40 } },
        { 'v', { 40 } },
        { 'p', { 40 } },
        { 'v', { 40 } },
        { 'v', { 40 } },
        { 'f', { 80, 3, 3, 40 } },
        { 'v', { 80 } },
        { 'p', { 80 } } } },
    { "image_conv_dw 32",
      OP_IMAGE_CONV_DW,
      A(.stride = 2, .pad = 1, .channels = 8, .mean = { .48f, .46f, .41f }, .std = { .27f, .26f, .28f }),
      { { 'f', { 7, 112, 112, 32 } }, { 'b', { 7, 224, 224, 3 } }, { 'f', { 32, 3, 3, 3 } } } },
    { "image_conv_dw 40",
      OP_IMAGE_CONV_DW,
      A(.stride = 2, .pad = 1, .channels = 8, .mean = { .48f, .46f, .41f }, .std = { .27f, .26f, .28f }),
      { { 'f', { 5, 56, 72, 40 } }, { 'b', { 5, 111, 144, 3 } }, { 'f', { 40, 3, 3, 3 } } } },
    { "conv_dx_reduce long",
      OP_CONV_DX_REDUCE,
      A(.stride = 1, .relu = true),
      { { 'f', { 3, 33, 33, 32 } },
        { 'f', { 32, 1, 1, 2048 } },
        { 'f', { 3, 33, 33, 2048 } },
        { 'f', { 3, 33, 33, 2048 } },
        { 'v', { 2048 } },
        { 'p', { 2048 } },
        { 'v', { 2048 } },
        { 'v', { 2048 } },
        { 'f', { 3, 33, 33, 2048 } } } },
    { "conv_stats deep",
      OP_CONV_STATS,
      A(.stride = 1, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 5, 7, 7, 1024 } }, { 'f', { 512, 1, 1, 1024 } }, { 'v', { 512 } }, { 'p', { 512 } } } },
    { "conv_dx_reduce 256",
      OP_CONV_DX_REDUCE,
      A(.stride = 1, .relu = true),
      { { 'f', { 3, 56, 56, 64 } },
        { 'f', { 64, 1, 1, 256 } },
        { 'f', { 3, 56, 56, 256 } },
        { 'f', { 3, 56, 56, 256 } },
        { 'v', { 256 } },
        { 'p', { 256 } },
        { 'v', { 256 } },
        { 'v', { 256 } },
        { 'f', { 3, 56, 56, 256 } } } },
    { "conv_dx_reduce deep",
      OP_CONV_DX_REDUCE,
      A(.stride = 1, .relu = true),
      { { 'f', { 5, 7, 7, 512 } },
        { 'f', { 512, 1, 1, 2048 } },
        { 'f', { 5, 7, 7, 2048 } },
        { 'f', { 5, 7, 7, 2048 } },
        { 'v', { 2048 } },
        { 'p', { 2048 } },
        { 'v', { 2048 } },
        { 'v', { 2048 } },
        { 'f', { 5, 7, 7, 2048 } } } },
    { "apply_conv_stats 64",
      OP_APPLY_CONV_STATS,
      A(.stride = 1, .relu = true, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 3, 56, 56, 256 } },
        { 'v', { 256 } },
        { 'p', { 256 } },
        { 'v', { 256 } },
        { 'v', { 256 } },
        { 'f', { 3, 56, 56, 256 } },
        { 'f', { 64, 1, 1, 256 } },
        { 'v', { 64 } },
        { 'p', { 64 } } } },
    { "apply_conv_stats 128 b streams",
      OP_APPLY_CONV_STATS,
      A(.stride = 1, .relu = true, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 3, 28, 28, 1024 } },
        { 'v', { 1024 } },
        { 'p', { 1024 } },
        { 'v', { 1024 } },
        { 'v', { 1024 } },
        { 'f', { 3, 28, 28, 1024 } },
        { 'f', { 128, 1, 1, 1024 } },
        { 'v', { 128 } },
        { 'p', { 128 } } } },
    { "apply_conv_stats wide",
      OP_APPLY_CONV_STATS,
      A(.stride = 1, .relu = true, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 2, 33, 33, 64 } },
        { 'v', { 64 } },
        { 'p', { 64 } },
        { 'v', { 64 } },
        { 'v', { 64 } },
        { 0 },
        { 'f', { 328, 1, 1, 64 } },
        { 'v', { 328 } },
        { 'p', { 328 } } } },
    { "apply_conv_stats alone",
      OP_APPLY_CONV_STATS,
      A(.stride = 1, .relu = true, .eps = 1e-5f, .momentum = .1f, .alone = true),
      { { 'f', { 3, 33, 33, 128 } },
        { 'v', { 128 } },
        { 'p', { 128 } },
        { 'v', { 128 } },
        { 'v', { 128 } },
        { 0 },
        { 'f', { 256, 1, 1, 128 } },
        { 'v', { 256 } },
        { 'p', { 256 } } } },
    { "apply_conv_stats odd",
      OP_APPLY_CONV_STATS,
      A(.stride = 1, .relu = true, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 3, 37, 37, 328 } },
        { 'v', { 328 } },
        { 'p', { 328 } },
        { 'v', { 328 } },
        { 'v', { 328 } },
        { 'f', { 3, 37, 37, 328 } },
        { 'f', { 72, 1, 1, 328 } },
        { 'v', { 72 } },
        { 'p', { 72 } } } },
    { "bn_apply_both",
      OP_BN_APPLY_BOTH,
      A(.relu = true),
      { { 'f', { 16, 14, 14, 1024 } },
        { 'v', { 1024 } },
        { 'p', { 1024 } },
        { 'v', { 1024 } },
        { 'v', { 1024 } },
        { 'f', { 16, 14, 14, 1024 } },
        { 'v', { 1024 } },
        { 'p', { 1024 } },
        { 'v', { 1024 } },
        { 'v', { 1024 } } } },
    { "apply_conv_stats both",
      OP_APPLY_CONV_STATS,
      A(.stride = 1, .relu = true, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 3, 37, 37, 320 } },
        { 'v', { 320 } },
        { 'p', { 320 } },
        { 'v', { 320 } },
        { 'v', { 320 } },
        { 'f', { 3, 37, 37, 320 } },
        { 'f', { 80, 1, 1, 320 } },
        { 'v', { 80 } },
        { 'p', { 80 } },
        { 'v', { 320 } },
        { 'p', { 320 } },
        { 'v', { 320 } },
        { 'v', { 320 } } } },
    { "apply_conv_stats both 256",
      OP_APPLY_CONV_STATS,
      A(.stride = 1, .relu = true, .eps = 1e-5f, .momentum = .1f),
      { { 'f', { 5, 14, 14, 512 } },
        { 'v', { 512 } },
        { 'p', { 512 } },
        { 'v', { 512 } },
        { 'v', { 512 } },
        { 'f', { 5, 14, 14, 512 } },
        { 'f', { 256, 1, 1, 512 } },
        { 'v', { 256 } },
        { 'p', { 256 } },
        { 'v', { 512 } },
        { 'p', { 512 } },
        { 'v', { 512 } },
        { 'v', { 512 } } } },
    { "bn_bwd_conv_dx 64",
      OP_BN_BWD_CONV_DX,
      A(.stride = 1),
      { { 'f', { 3, 56, 56, 256 } },
        { 'f', { 3, 56, 56, 256 } },
        { 'v', { 256 } },
        { 'p', { 256 } },
        { 'v', { 256 } },
        { 'v', { 256 } },
        { 'v', { 2, 256 } },
        { 'f', { 256, 1, 1, 64 } } } },
    { "bn_bwd_conv_dx 128",
      OP_BN_BWD_CONV_DX,
      A(.stride = 1),
      { { 'f', { 5, 28, 28, 512 } },
        { 'f', { 5, 28, 28, 512 } },
        { 'v', { 512 } },
        { 'p', { 512 } },
        { 'v', { 512 } },
        { 'v', { 512 } },
        { 'v', { 2, 512 } },
        { 'f', { 512, 1, 1, 128 } } } },
    { "bn_bwd_conv_dx 256",
      OP_BN_BWD_CONV_DX,
      A(.stride = 1),
      { { 'f', { 5, 14, 14, 1024 } },
        { 'f', { 5, 14, 14, 1024 } },
        { 'v', { 1024 } },
        { 'p', { 1024 } },
        { 'v', { 1024 } },
        { 'v', { 1024 } },
        { 'v', { 2, 1024 } },
        { 'f', { 1024, 1, 1, 256 } } } },
    { "bn_bwd_conv_dx odd",
      OP_BN_BWD_CONV_DX,
      A(.stride = 1),
      { { 'f', { 3, 37, 37, 72 } },
        { 'f', { 3, 37, 37, 72 } },
        { 'v', { 72 } },
        { 'p', { 72 } },
        { 'v', { 72 } },
        { 'v', { 72 } },
        { 'v', { 2, 72 } },
        { 'f', { 72, 1, 1, 200 } } } },
    { "bn_bwd_conv_dx long",
      OP_BN_BWD_CONV_DX,
      A(.stride = 1),
      { { 'f', { 3, 17, 17, 2048 } },
        { 'f', { 3, 17, 17, 2048 } },
        { 'v', { 2048 } },
        { 'p', { 2048 } },
        { 'v', { 2048 } },
        { 'v', { 2048 } },
        { 'v', { 2, 2048 } },
        { 'f', { 2048, 1, 1, 512 } } } },
    { "linear",
      OP_LINEAR,
      A(0),
      { { 'f', { 600, 256 } }, { 'f', { 384, 256 } }, { 'v', { 384 } }, { 'f', { 600, 384 } } } },
    { "linear 8 bits",
      OP_LINEAR,
      A(.fp8 = OP_FP8_ALWAYS),
      { { 'f', { 96, 128 } }, { 'f', { 160, 128 } }, { 'v', { 160 } }, { 'f', { 96, 160 } } } },
    { "linear 8 bits, ragged tiles",
      OP_LINEAR,
      A(.fp8 = OP_FP8_ALWAYS),
      { { 'f', { 16, 7, 48 } }, { 'f', { 80, 48 } } } },
    { "linear transposed",
      OP_LINEAR,
      A(.transposed = true),
      { { 'f', { 512, 256 } }, { 'f', { 256, 128 } }, { 'v', { 128 } } } },
    { "act", OP_ACT, A(.act = OP_ACT_QUICKGELU), { { 'f', { 3000, 512 } } } },
    { "layernorm 512", OP_LAYERNORM, A(.eps = 1e-5f), { { 'f', { 5000, 512 } }, { 'v', { 512 } }, { 'v', { 512 } } } },
    { "layernorm 640", OP_LAYERNORM, A(.eps = 1e-5f), { { 'f', { 700, 640 } }, { 'v', { 640 } }, { 'v', { 640 } } } },
    { "layernorm 1024",
      OP_LAYERNORM,
      A(.eps = 1e-5f),
      { { 'f', { 300, 1024 } }, { 'v', { 1024 } }, { 'v', { 1024 } } } },
    { "attention 77", OP_ATTENTION, A(.heads = 2, .causal = true), { { 'f', { 2, 77, 384 } } } },
    { "attention 50", OP_ATTENTION, A(.heads = 2), { { 'f', { 2, 50, 384 } } } },
    { "attention 32 wide", OP_ATTENTION, A(.heads = 2), { { 'f', { 2, 40, 192 } } } },
    { "attention 197", OP_ATTENTION, A(.heads = 1), { { 'f', { 1, 197, 192 } } } },
    { "attention 257", OP_ATTENTION, A(.heads = 1), { { 'f', { 1, 257, 192 } } } },
    { "attention 130 causal", OP_ATTENTION, A(.heads = 1, .causal = true), { { 'f', { 2, 130, 96 } } } },
    { "attention packed 200",
      OP_ATTENTION,
      A(.heads = 2, .causal = true, .tokens = 200),
      { { 'f', { 420, 384 } }, { 's', { 4, 0, 0, 0, 0, 0, 0, 420 } } } },
    { "act_bwd sums",
      OP_ACT_BWD,
      A(.act = OP_ACT_QUICKGELU, .sums = true),
      { { 'f', { 3001, 512 } }, { 'f', { 3001, 512 } } } },
    { "act_bwd sums odd",
      OP_ACT_BWD,
      A(.act = OP_ACT_GELU, .sums = true),
      { { 'f', { 77, 33 } }, { 'f', { 77, 33 } } } },
    LAYERNORM_SUMS(768),
    LAYERNORM_SUMS(512),
    LAYERNORM_SUMS(384),
    { "attention_bwd sums 50",
      OP_ATTENTION_BWD,
      A(.heads = 2, .sums = true),
      { { 'f', { 3, 50, 128 } }, { 'f', { 3, 50, 384 } }, { 'f', { 3, 50, 128 } }, { 'e', { 3, 2, 50 } } } },
    { "attention_bwd sums 197",
      OP_ATTENTION_BWD,
      A(.heads = 1, .sums = true),
      { { 'f', { 2, 197, 64 } }, { 'f', { 2, 197, 192 } }, { 'f', { 2, 197, 64 } }, { 'e', { 2, 1, 197 } } } },
    { "embed",
      OP_EMBED,
      A(0),
      { { 't', { 64, 77, 0, 0, 0, 0, 0, 30 } }, { 'e', { 500, 256 } }, { 'e', { 77, 256 } } } },
    { "embed spread",
      OP_EMBED,
      A(0),
      { { 't', { 64, 77, 0, 0, 0, 0, 0, 3000 } }, { 'e', { 3000, 64 } }, { 'e', { 77, 64 } } } },
    { "mean_tokens", OP_MEAN_TOKENS, A(0), { { 'f', { 32, 7, 7, 512 } }, { 'e', { 50, 512 } } } },
    { "heads_project",
      OP_HEADS_PROJECT,
      A(.heads = 8, .scale = .125f),
      { { 'f', { 32, 512 } }, { 'f', { 512, 256 } } } },
    { "heads_collect",
      OP_HEADS_COLLECT,
      A(.heads = 8, .scale = 1),
      { { 'f', { 32, 8, 256 } }, { 'f', { 512, 256 } }, { 'v', { 512 } } } },
    { "pool_attention", OP_POOL_ATTENTION, A(0), { { 'f', { 4, 50, 512 } }, { 'f', { 4, 8, 512 } } } },
};

static const char *word;        /* cases whose names hold it; NULL: all */
static int part = 0, parts = 1; /* every parts-th case, from `part` on */

static void compare_call(device *dev, const op_case *c, op_pass *p, int step, cloob_dtype type, double tolerance)
{
    op_id op = step < 0 ? c->op : p->rule[step].op;
    bool ran;
    if (op == OP_COUNT) return;
    double error = op_compare(ctx, dev, op, step < 0 ? &p->forward : &p->step[step], step < 0 ? p->before : NULL, &ran);
    if (ran && error >= 0 && error <= tolerance) return;
    printf("  %s / %s (%s): error %.3g\n", c->name, op_table[op].name, dtype_name(type), error);
    CHECK(!"agrees");
}

/* Cases of the ops from `first` to `last` of the list, with each choice of kernels in turn. */
static void compare(op_id first, op_id last, cloob_dtype type, double tolerance, const cloob_kernels *kernels,
                    int count)
{
    device *dev = NULL;
    CHECK_OK(ctx, device_open(ctx, "cuda", &dev));
    for (size_t i = 0; dev && i < sizeof cases / sizeof *cases; i++) {
        op_pass p;
        if (cases[i].op < first || cases[i].op > last || (word && !strstr(cases[i].name, word))) continue;
        if ((int)i % parts != part) continue;
        if (parts > 1) printf("  %s, %s\n", cases[i].name, dtype_name(type)); /* for the list of what a tool has seen */
        CHECK(op_pass_run(ctx, &cases[i], type, 3, &p));
        for (int w = 0; w < count; w++) {
            ctx->kernels = kernels[w];
            for (int s = -1; s < p.steps; s++) compare_call(dev, &cases[i], &p, s, type, tolerance);
        }
        op_pass_release(&p);
    }
    device_close(dev);
}

static const cloob_kernels fused[] = { { .fused_gemm = CLOOB_FUSED_GEMM_4_TEAMS },
                                       { .fused_gemm = CLOOB_FUSED_GEMM_2_TEAMS },
                                       { .fused_gemm = CLOOB_FUSED_GEMM_NEVER } };

static void large_sizes_agree(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    compare(0, OP_COUNT, CLOOB_F32, 2e-5, fused, 1);
}

static void large_sizes_agree_in_bf16(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    compare(0, OP_COUNT, CLOOB_BF16, 1e-2, fused, 1);
}

static void fused_ops_agree_in_every_way(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    compare(OP_CONV_STATS, OP_COUNT, CLOOB_BF16, 1e-2, fused, 3);
}

static void attention_agrees_in_every_way(void)
{
    static const cloob_kernels both[] = { { .attention_backward = CLOOB_ATTENTION_SEPARATE },
                                          { .attention_backward = CLOOB_ATTENTION_SHARED } };
    if (device_cuda_count() == 0) SKIP("no GPU here");
    compare(OP_ATTENTION, OP_ATTENTION_BWD, CLOOB_BF16, 1e-2, both, 2);
}

/* test_gpu_ops [fused | I/N | WORD]: the fused ops alone; the I-th of N parts (from 0), for several processes side by
 * side; cases whose names contain WORD */
int main(int argc, char **argv)
{
    bool all = argc < 2 || strcmp(argv[1], "fused") != 0;
    if (all && argc > 1 && strchr(argv[1], '/')) CHECK(sscanf(argv[1], "%d/%d", &part, &parts) == 2 && parts > 0);
    else if (all && argc > 1) word = argv[1];
    ctx = cloob_ctx_create(NULL);
    if (all) RUN(large_sizes_agree);
    if (all) RUN(large_sizes_agree_in_bf16);
    RUN(fused_ops_agree_in_every_way);
    if (all) RUN(attention_agrees_in_every_way);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
