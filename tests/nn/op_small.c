/* The cases of test_gpu_ops at sizes that end quickly under a tool which slows every access down. Channels, widths and
 * tokens stay, since they choose kernels and tiles; images become 10 or 11 rows high and few, rows of matrices 137:
 * some tiles and the rest of one. Where no kernel looks at neighbours, images are at most 26 or 27 wide, too. Attention
 * keeps its batch and has 321 tokens instead of more: from there on, queries and keys go by in passes. */
#include "op_harness.h"

#include <string.h>

enum { SMALL_HEIGHT = 10, SMALL_WIDTH = 26, SMALL_IMAGES = 2, SMALL_ROWS = 137, SMALL_TEXTS = 9, SMALL_TOKENS = 321 };

/* Whether an input has the batch in front. Statistics of rows and of channels differ by their number. */
static bool has_batch(const op_case *c, int k)
{
    input_kind kind = c->in[k].kind;
    int64_t first = c->in[0].dim[0];
    return c->in[k].dim[0] == first && (kind == INPUT_VALUES || kind == INPUT_BYTES || kind == INPUT_TOKENS ||
                                        ((kind == INPUT_VECTOR || kind == INPUT_POSITIVE) && first > 1000));
}

/* The largest dimension d of all images. */
static int64_t largest(const op_case *c, int d)
{
    int64_t most = 0;
    for (int k = 0; k < OP_INPUTS; k++)
        if (c->in[k].kind && has_batch(c, k) && c->in[k].dim[3] && c->in[k].dim[d] > most) most = c->in[k].dim[d];
    return most;
}

/* Whether some weight is larger than 1 x 1. */
static bool has_neighbours(const op_case *c)
{
    for (int k = 0; k < OP_INPUTS; k++)
        if (c->in[k].kind && !has_batch(c, k) && c->in[k].dim[3] && c->in[k].dim[1] > 1) return true;
    return false;
}

/* Dimension d of image k, where `most` becomes `less`: the others have half as many. */
static int64_t in_step(const op_case *c, int k, int d, int64_t most, int64_t less)
{
    return c->in[k].dim[d] == most ? less : (less + 1) / 2;
}

static op_case fewer_tokens(const op_case *c)
{
    op_case small = *c;
    if (small.attr.tokens > SMALL_TOKENS) small.attr.tokens = SMALL_TOKENS;
    for (int k = 0; k < OP_INPUTS && !c->attr.tokens; k++)
        for (int d = 1; d < 3; d++) /* of rows, and of the log-sum-exp */
            if (c->in[k].dim[d] == c->in[0].dim[1] && c->in[0].dim[1] > SMALL_TOKENS) small.in[k].dim[d] = SMALL_TOKENS;
    return small;
}

op_case op_case_small(const op_case *c)
{
    op_case small = *c;
    int64_t high = largest(c, 1), wide = largest(c, 2), images = high > 16 ? 1 : SMALL_IMAGES;
    int64_t height = high <= 16 || c->attr.stride > 2 ? high : SMALL_HEIGHT + high % 2; /* patches stay */
    int64_t width = wide <= SMALL_WIDTH || has_neighbours(c) ? wide : SMALL_WIDTH + wide % 2;
    if (c->op == OP_ATTENTION || c->op == OP_ATTENTION_BWD) return fewer_tokens(c);
    if (c->op == OP_POOL_ATTENTION || c->attr.patch) return small;
    for (int k = 0; k < OP_INPUTS; k++) {
        int64_t *dim = small.in[k].dim, limit = c->in[k].kind == INPUT_TOKENS ? SMALL_TEXTS
                                                : dim[3]                      ? images
                                                                              : SMALL_ROWS;
        if (!c->in[k].kind || !has_batch(c, k)) continue;
        if (dim[0] > limit) dim[0] = limit;
        if (dim[3]) dim[1] = in_step(c, k, 1, high, height), dim[2] = in_step(c, k, 2, wide, width);
    }
    return small;
}
