/* Every op: id, name, shape rule, backward rule. No include guard: it is read several times with other meanings of OP.
 *
 * Notation: inputs -> outputs {attributes}; [] optional; N batch, T tokens, C width, H heads. Outputs marked ' are
 * saved for the backward pass. Running statistics are updated in place. */

/* images and tokens */
OP(IMAGE_INPUT, image_input, shape_image_input, NULL)
/* x (N,H,W,3) U8 | (N,3,H,W) F32 -> y (N,H,W,channels) {channels, patch, mean, std}: bytes become (p/255 - mean) / std;
 * floats are taken as they are. With patch P: y (N,H/P,W/P,P P channels), each window of P x P a row */
OP(EMBED, embed, shape_embed, grad_embed)
/* tokens (N,T) I32, table (V,C) F32, pos (T,C) F32, [row (R) I32] -> y (N,T,C), or with row packed, (R,C): row r is
 * token row[r] of all N T */
OP(EMBED_BWD, embed_bwd, shape_embed_bwd, NULL)
/* dy, tokens, table, pos, [row] -> dtable (V,C) F32, dpos (T,C) F32 */
OP(EOT_INDEX, eot_index, shape_eot_index, NULL)
/* tokens (N,T) I32 -> index (N) I32: position of the first largest id */
OP(TEXT_POSITION, text_position, shape_eot_index, NULL)
/* tokens (N,T) I32 -> index (N) I32 {token, tokens, unlike}: position of the first `token`, 0 where there is none;
 * without token: `tokens`; with unlike: of the last token that is not `token`, 0 where all are */
OP(PACK_TEXTS, pack_texts, shape_pack_texts, NULL)
/* index (N) I32, tokens (N,T) (for its shape) -> start (N+1) I32, row (R) I32, last (N) I32, first (N) I32 {rows}: text
 * n up to its end token takes rows start[n] = first[n] .. start[n+1] - 1 = last[n] of R = rows, and row r holds token
 * row[r] of all N T. Rows from start[N] on are padding: they hold token 0, attention writes 0, and nothing reads them.
 * Texts beyond R rows are cut off: the caller counts first */
OP(TAKE_ROWS, take_rows, shape_take_rows, grad_take_rows)
/* x (N,T,C), [index (N) I32] -> y (N,C): row index[n] of x[n], row 0 without it; of packed x (R,C): row index[n], no
 * two alike. With index (N,K), no two of a row alike: y (N,K,C), rows index[n,k] of x[n] */
OP(TAKE_ROWS_BWD, take_rows_bwd, shape_take_rows_bwd, NULL)
/* dy (N,C) or (N,K,C), [index], x (for its shape), [extra like x] -> dx like x: extra (or 0) plus dy at its rows */
OP(CLASS_TOKENS, class_tokens, shape_class_tokens, grad_class_tokens)
/* x (N,h,w,C), cls (C) F32, pos (1+hw,C) F32 -> y (N,1+hw,C) */
OP(CLASS_TOKENS_BWD, class_tokens_bwd, shape_like_three, NULL)
/* dy, x, cls, pos -> dx, dcls, dpos */
OP(GRID_TOKENS, grid_tokens, shape_grid_tokens, grad_grid_tokens)
/* x (N,h,w,C), [bias (C) F32], pos (hw,C) F32 -> y (N,hw,C): patches with a bias and their positions */
OP(GRID_TOKENS_BWD, grid_tokens_bwd, shape_like_three, NULL)
/* dy, x, bias, pos -> dx, dbias, dpos */
OP(PATCH_ROWS, patch_rows, shape_patch_rows, NULL)
/* x (N,S,S,3) U8, each a record of io/image/image_view.h -> y (N rows,3 P P), start (N+1) I32, grid (N,2) I32 {rows,
 * patch P, mean, std, dtype}: the h w <= rows patches of image n, normalised, are rows start[n] .. start[n+1] - 1, and
 * grid[n] is h, w. Rows from start[N] on are 0. A record without a possible h and w is a square of patches */
OP(GRID_POSITIONS, grid_positions, shape_grid_positions, grad_grid_positions)
/* x (R,C), pos (G G,C) F32, start (N+1) I32, grid (N,2) I32 -> y (R,C): x plus the table of a G x G grid, resampled to
 * the grid of each image, bilinear and antialiased (torch's interpolate); rows from start[N] on are x */
OP(GRID_POSITIONS_BWD, grid_positions_bwd, shape_like_one, NULL)
/* dy (R,C), pos (for its shape), start, grid -> dpos (G G,C) F32: rows from start[N] on do not count */
OP(MEAN_ROWS, mean_rows, shape_mean_rows, grad_mean_rows)
/* x (N,T,C) or (N,h,w,C) -> y (N,C) {rows}: the mean of rows `rows` .. T - 1. Packed: x (R,C), start (N+1) I32
 * {tokens} */
OP(MEAN_ROWS_BWD, mean_rows_bwd, shape_like_one, NULL)
/* dy (N,C), x (for its shape), [start] -> dx {rows, tokens} */
OP(REPEAT_ROW, repeat_row, shape_repeat_row, grad_repeat_row)
/* x (C) F32 -> y (rows,C) {rows, dtype}: the same in every row */
OP(REPEAT_ROW_BWD, repeat_row_bwd, shape_repeat_row_bwd, NULL)
/* dy (rows,C) -> dx (C) F32 */
OP(MEAN_TOKENS, mean_tokens, shape_mean_tokens, grad_mean_tokens)
/* x (N,h,w,C), pos (1+hw,C) F32 -> y (N,1+hw,C): the mean of all positions first */
OP(MEAN_TOKENS_BWD, mean_tokens_bwd, shape_like_two, NULL)
/* dy, x, pos -> dx, dpos */

/* convolution, batch norm and what follows them */
OP(CONV2D, conv2d, shape_conv2d, grad_conv2d)
/* x (N,H,W,C), w (O,k,k,c), [bias (O)], [res] -> y (N,H',W',O) {stride, pad, relu}: c <= C, further channels of x are
 * 0; bias, res and relu serve inference (batch norm folded in) and have no gradient */
OP(CONV2D_DX, conv2d_dx, shape_conv2d_dx, NULL)
/* dy, w, x (for its shape) -> dx {stride, pad} */
OP(CONV2D_DW, conv2d_dw, shape_conv2d_dw, NULL)
/* dy, x, w (for its shape) -> dw F32 {stride, pad} */
OP(DWCONV, dwconv, shape_dwconv, grad_dwconv)
/* x (N,H,W,C), w (mC,k,k,1), [bias (mC) F32] -> y (N,H',W',mC) {stride}: y's channel o is x's channel o / m by its own
 * kernel of odd k, padded by 0; H' = (H - 1) / stride + 1; ConvNeXt, FastViT */
OP(DWCONV_DX, dwconv_dx, shape_conv2d_dx, NULL)
/* dy, w, x (for its shape) -> dx {stride} */
OP(DWCONV_DW, dwconv_dw, shape_conv2d_dw, NULL)
/* dy, x, w (for its shape) -> dw F32 {stride} */
OP(BN_STATS, bn_stats, shape_bn_stats, NULL)
/* x, run_mean (C), run_var (C) -> mean' (C), rstd' (C) {eps, momentum, keep_stats}; running variance is unbiased */
OP(BN_RUNNING, bn_running, shape_bn_running, NULL)
/* run_mean, run_var -> mean, rstd {eps}: evaluation */
OP(BN_APPLY, bn_apply, shape_bn_apply, grad_bn_apply)
/* x, mean, rstd, gain, bias, [res] -> y {relu, pool}: relu((x - mean) rstd gain + bias + res), then 2 x 2 average */
OP(BN_BWD_REDUCE, bn_bwd_reduce, shape_bn_bwd_reduce, NULL)
/* dy, [dy2], x, mean, rstd, gain, bias, [y] -> dgain, dbias, sums (2,C), [g], [recomputed] {relu, pool}: g is
 * (dy + dy2) through pool and relu, the gradient before them, of x's shape; with y the relu mask is y > 0, else it is
 * recomputed from x. dbias = sum g, dgain = sum g (x - mean) rstd of this rank; sums = [dbias, dgain] over all ranks;
 * recomputed: bn_apply of x without a residual, for a reader whose copy was not stored */
OP(BN_BWD_APPLY, bn_bwd_apply, shape_bn_bwd_apply, NULL)
/* dy, x, mean, rstd, gain, bias, sums, [dy2] -> dx {relu, pool}: relu and pool as in the reduction when dy is not yet
 * g */
OP(FOLD_BN, fold_bn, shape_fold_bn, NULL)
/* w (O,k,k,c), gain, bias, run_mean, run_var -> w2, b2 (O) {eps}: conv with w2, b2 = batch norm after conv with w */
OP(RELU, relu, shape_same, grad_relu)
OP(RELU_BWD, relu_bwd, shape_same, NULL) /* dy, y -> dx */
OP(ADD, add, shape_add, grad_add)
OP(AVGPOOL2, avgpool2, shape_avgpool2, grad_avgpool2)
OP(AVGPOOL2_BWD, avgpool2_bwd, shape_like_one, NULL) /* dy, x (for its shape) -> dx */

/* GEMMs, layer norm, activations */
OP(LINEAR, linear, shape_linear, grad_linear)
/* x (...,K), w (O,K) or (K,O), [bias (O) F32, on a GPU also of x's type], [res (...,O)] -> y (...,O) {transposed, fp8}:
 * with fp8 the rows of bf16 x and w are rounded to e4m3, each under its own scale (nn/ref/linear.c); [rounded]: x in
 * 8 bits (op.h) */
OP(LINEAR_DX, linear_dx, shape_linear_dx, NULL)
/* dy, w, x (for its shape) -> dx {transposed} */
OP(LINEAR_DW, linear_dw, shape_linear_dw, NULL)
/* dy, x, w (for its shape) -> dw F32, [dbias (O) F32] {transposed} */
OP(ACT, act, shape_act, grad_act)
/* x, [bias (C) of x's type] -> y {act}: QuickGELU x sigmoid(1.702 x), GELU x Phi(x), or its tanh form
 * x sigmoid(1.5957691 (x + 0.044715 x^3)), of x + bias where there is one (fuse_gemm.c: it has no gradient here) */
OP(ACT_BWD, act_bwd, shape_act_bwd, NULL)
/* dy, x, [bias] -> dx, [recomputed], [sums (C) F32] {act, sums}: recomputed is act of x + bias; sums are those of dx
 * over its rows */
OP(SCALE, scale, shape_scale, grad_scale)
/* x (...,C), gain (C) F32 -> y = x gain: layer scale */
OP(SCALE_BWD, scale_bwd, shape_like_two, NULL)
/* dy, x, gain -> dx, dgain (C) F32 */
OP(BIAS, bias, shape_bias, grad_bias)
/* x (...,C), bias (C) F32 -> y = x + bias; with bias (2C/3) the middle third of the columns has none: queries and
 * values have a bias, keys do not */
OP(BIAS_BWD, bias_bwd, shape_like_one, NULL)
/* dy (...,C), bias (for its shape) -> dbias F32 */
OP(TANH, tanh, shape_same, grad_tanh)
OP(TANH_BWD, tanh_bwd, shape_same, NULL) /* dy, y -> dx */
OP(LAYERNORM, layernorm, shape_layernorm, grad_layernorm)
/* x (...,C), gain (C) F32, bias (C) F32 -> y, mean' (rows) F32, rstd' (rows) F32 {eps} */
OP(LAYERNORM_BWD, layernorm_bwd, shape_layernorm_bwd, NULL)
/* dy, x, mean, rstd, gain, [extra (...,C)], [bias (C) F32] -> dx (plus extra), dgain (C) F32, dbias (C) F32,
 * [recomputed], [sums (C) F32] {sums}: recomputed: with bias, what layernorm made of x; sums: of dx over its rows */
OP(L2NORM, l2norm, shape_l2norm, grad_l2norm)
/* x (N,D) -> y (N,D) F32 whatever x is, r' (N) F32: y = x r, r = 1 / |x| */
OP(L2NORM_BWD, l2norm_bwd, shape_l2norm_bwd, NULL)
/* dy F32, y F32, r, x (for its shape and type) -> dx */

OP(GATE, gate, shape_gate, grad_gate)
/* x (...,2C) -> y (...,C): a sigmoid(a) b of its halves a and b; SwiGLU */
OP(GATE_BWD, gate_bwd, shape_like_one, NULL)
/* dy (...,C), x -> dx */
OP(EXCITE, excite, shape_excite, grad_excite)
/* x (N,h,w,C), g (N,C) -> y: x sigmoid(g), the same for all positions of an image; squeeze and excitation */
OP(EXCITE_BWD, excite_bwd, shape_like_two, NULL)
/* dy, x, g -> dx, dg */
OP(ROPE, rope, shape_rope, grad_rope)
/* x (N,T,3C) queries, keys and values -> y {heads, rows, tokens, scale, offset, swapped, inverse}: queries and keys of
 * the patches, behind `rows` tokens, turned by their place in a grid of `tokens` columns. Of a head's e columns, pairs
 * 2p and 2p + 1 turn by (offset + i) scale 10000^(-4b/e), b = p mod e/4, i the row for p < e/4, then the column;
 * swapped: the column first; inverse: backwards, which is its own backward pass */
OP(MASK_QUERIES, mask_queries, shape_mask_queries, grad_mask_queries)
/* x (N,T,3C), index (N) I32 -> y: queries of the tokens behind index[n] are 0, so that they see all tokens alike */

/* attention; packed: sequence n is rows start[n] .. start[n+1] - 1, at most `tokens` of them, and padding rows are 0 */
OP(ATTENTION, attention, shape_attention, grad_attention)
/* qkv (N,T,3C) -> y (N,T,C), lse' (N,H,T) F32 {heads, causal}; scores are divided by sqrt(C / heads). Positions may be
 * a grid, T = h w: qkv (N,h,w,3C) -> y (N,h,w,C). Packed: qkv (R,3C), start (N+1) I32 -> y (R,C), lse' (H,R) F32
 * {heads, causal, tokens} */
OP(ATTENTION_BWD, attention_bwd, shape_attention_bwd, NULL)
/* dy, qkv, y, lse, [start] -> dqkv, [sums (3C) F32] {heads, causal, tokens, sums}: sums of dqkv over its rows */
OP(ATTENTION_ONE, attention_one, shape_attention_one, grad_attention_one)
/* q (N,C), kv (N,T,2C), [index (N) I32] -> y (N,C), lse' (N,H) F32 {heads}: one query per row, at position index[n],
 * which sees keys 0..index[n]; all keys without index. Packed: kv (R,2C), no index, start (N+1) I32 {heads, tokens} */
OP(ATTENTION_ONE_BWD, attention_one_bwd, shape_like_two, NULL)
/* dy, q, kv, [index], y, lse, [start] -> dq, dkv {heads, tokens} */

/* attention of one query with the key and value projections folded: scores = (Wk^T q).x, output = Wv (sum a x) */
OP(HEADS_PROJECT, heads_project, shape_heads_project, grad_heads_project)
/* a (N,He), w (He,C) -> u (N,H,C) {heads, scale}: u[n,h] = scale sum_e a[n,he] w[he]; He = H e */
OP(HEADS_COLLECT, heads_collect, shape_heads_collect, grad_heads_collect)
/* s (N,H,C), w (He,C), [bias (He) F32, on a GPU also of s's type] -> o (N,He) {heads, scale}: o[n,he] = scale
 * s[n,h].w[he] + bias[he] */
OP(HEADS_DW, heads_dw, shape_heads_dw, NULL)
/* a (N,He), u (N,H,C), w (for its shape) -> dw (He,C) F32, [dbias (He) F32] {heads, scale}: dw[he] = scale sum_n
 * a[n,he] u[n,h], dbias = sum_n a[n,he] */
OP(POOL_ATTENTION, pool_attention, shape_pool_attention, grad_pool_attention)
/* t (N,T,C), u (N,H,C), [index (N) I32] -> s (N,H,C), p' (N,H,T) F32: p = softmax over tokens 0..index[n], all of them
 * without index, of u.t, 0 for the others; s = sum p t. Packed: t (R,C), no index, start (N+1) I32, and T is `tokens`
 * {tokens} */
OP(POOL_ATTENTION_BWD, pool_attention_bwd, shape_like_two, NULL)
/* ds, t, u, p, [index], [start] -> dt, du {tokens} */
