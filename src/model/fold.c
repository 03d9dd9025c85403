/* Folding of MobileCLIP's image towers: layers that timm trains as parallel branches, each with a batch norm, become
 * one convolution with a bias. Equal to the branches up to rounding; sums run in double.
 *
 * Unfolding walks the same branches and writes weights of timm's layers that fold to the same convolution: the first
 * branch has its kernel and bias, the gains of other branches are 0, and batch norms and layer scales are identities.
 * The statistics of the original branches are lost. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "model/interchange.h"

#define BN_EPS 1e-5

/* A layer being unfolded. */
typedef struct unfold {
    const weights *model;
    arena *a; /* memory of new tensors */
    unfold_put put;
    void *user;
    tensor weight, bias; /* of the folded layer; data NULL: no bias */
    bool written;        /* a branch has the kernel */
    cloob_status status;
} unfold;

typedef struct fold {
    cloob_ctx *ctx;
    arena a;
    source *s;
    fold_result *result;
    int64_t O, I, k; /* shape (O, I, k, k) of the folded kernel */
    double *w, *b;   /* (O, I, k, k), (O) */
    bool biased;     /* the source layer has a bias */
    unfold *to;      /* NULL: folding */
} fold;

/* ---- writing branches ---------------------------------------------------------------------------- */

/* Passes on the tensor PREFIX NAME. Without data it gets new memory, filled with `value`, which is returned. */
static float *put(fold *f, tensor t, float value, const char *prefix, const char *name)
{
    unfold *u = f->to;
    char full[2 * NAME_BYTES];
    float *fill = NULL;
    if (!t.data) fill = t.data = arena_push(u->a, tensor_bytes(&t));
    if (!t.data) u->status = ctx_no_memory(f->ctx, tensor_bytes(&t), prefix);
    if (u->status != CLOOB_OK) return NULL;
    for (int64_t i = 0; fill && t.dtype == CLOOB_F32 && i < tensor_count(&t); i++) fill[i] = value;
    snprintf(full, sizeof full, "%s%s", prefix, name);
    u->status = u->put(u->user, full, &t);
    return fill;
}

/* A batch norm that multiplies by `gain`, and adds `shift` if it is not NULL. The variance makes it exact: 1 / sqrt(var
 * + eps) differs from 1 by less than half of a float's last bit. */
static void put_batch_norm(fold *f, const char *prefix, int64_t C, float gain, const tensor *shift)
{
    int64_t *count = arena_push(f->to->a, sizeof *count);
    tensor row = TENSOR(CLOOB_F32, NULL, C);
    put(f, row, gain, prefix, ".weight");
    put(f, shift ? *shift : row, 0, prefix, ".bias");
    put(f, row, 0, prefix, ".running_mean");
    put(f, row, (float)(1 - BN_EPS), prefix, ".running_var");
    if (count) *count = 0, put(f, tensor_make(CLOOB_I64, 0, NULL, count), 0, prefix, ".num_batches_tracked");
    else f->to->status = ctx_no_memory(f->ctx, sizeof *count, prefix);
}

/* The first convolution gets the kernel and the bias. Subtracted branches keep their gain of 1: the residual connection
 * adds what they subtract. */
static void put_branch(fold *f, const char *conv, int64_t side, const char *bn, double sign)
{
    bool first = conv && !f->to->written;
    tensor kernel = TENSOR(CLOOB_F32, NULL, f->O, f->I, side, side);
    if (first) kernel.data = f->to->weight.data, kernel.dtype = f->to->weight.dtype;
    if (conv) put(f, kernel, 0, conv, "");
    put_batch_norm(f, bn, f->O, first || sign < 0, first ? &f->to->bias : NULL);
    f->to->written |= first;
}

/* Copies the values of a tensor as floats. */
static float *put_copy(fold *f, tensor *t)
{
    float *copy = arena_push(f->to->a, (size_t)tensor_count(t) * sizeof *copy);
    if (copy && dtype_convert(CLOOB_F32, copy, t->dtype, t->data, tensor_count(t))) {
        t->dtype = CLOOB_F32, t->data = copy;
        return copy;
    }
    f->to->status = ctx_no_memory(f->ctx, (size_t)tensor_count(t) * sizeof *copy, "a layer to be unfolded");
    return NULL;
}

/* `count` numbers of the tensor PREFIX NAME, in the arena. NULL if it is missing or has another size; its name is then
 * written to the result. */
static float *numbers(fold *f, int64_t count, const char *prefix, const char *name)
{
    char full[2 * NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    int64_t at = source_find(f->s, full);
    const tensor *t = at >= 0 ? &f->s->entry[at].t : NULL;
    float *to = t && tensor_count(t) == count ? arena_push(&f->a, (size_t)count * sizeof *to) : NULL;
    if (at >= 0) f->s->used[at] = true;
    if (to && dtype_convert(CLOOB_F32, to, t->dtype, t->data, count)) return to;
    if (!f->result->missing[0]) snprintf(f->result->missing, sizeof f->result->missing, "%s", full);
    return NULL;
}

/* Reads a batch norm as gain[c] x + shift[c]; false if a tensor is missing. */
static bool batch_norm(fold *f, const char *prefix, int64_t C, double **gain, double **shift)
{
    char count[2 * NAME_BYTES];
    float *g = numbers(f, C, prefix, ".weight"), *b = numbers(f, C, prefix, ".bias"),
          *mean = numbers(f, C, prefix, ".running_mean"), *var = numbers(f, C, prefix, ".running_var");
    snprintf(count, sizeof count, "%s.num_batches_tracked", prefix);
    int64_t at = source_find(f->s, count);
    if (at >= 0) f->s->used[at] = true;
    *gain = arena_push(&f->a, (size_t)C * sizeof **gain);
    *shift = arena_push(&f->a, (size_t)C * sizeof **shift);
    if (!g || !b || !mean || !var || !*gain || !*shift) return false;
    for (int64_t c = 0; c < C; c++) {
        (*gain)[c] = (double)g[c] / sqrt((double)var[c] + BN_EPS);
        (*shift)[c] = (double)b[c] - (double)mean[c] * (*gain)[c];
    }
    return true;
}

/* Adds sign * gain[o] (gain NULL: 1) to the centre of the kernel from channel o to itself. */
static void add_identity(fold *f, const double *gain, double sign)
{
    int64_t K = f->k * f->k, middle = f->k / 2 * f->k + f->k / 2;
    for (int64_t o = 0; o < f->O && !f->to; o++)
        f->w[(o * f->I + o % f->I) * K + middle] += sign * (gain ? gain[o] : 1.0);
}

/* Adds a branch: the kernel PREFIX CONV, `side` wide (conv NULL: identity), followed by the batch norm PREFIX BN. */
static void add_branch(fold *f, const char *prefix, const char *conv, int64_t side, const char *bn, double sign)
{
    char kernel[2 * NAME_BYTES], norm[2 * NAME_BYTES];
    double *gain, *shift;
    snprintf(kernel, sizeof kernel, "%s%s", prefix, conv ? conv : "");
    snprintf(norm, sizeof norm, "%s%s", prefix, bn);
    if (f->to) {
        put_branch(f, conv ? kernel : NULL, side, norm, sign);
        return;
    }
    if (!batch_norm(f, norm, f->O, &gain, &shift)) return;
    for (int64_t o = 0; o < f->O; o++) f->b[o] += sign * shift[o];
    if (!conv) {
        add_identity(f, gain, sign);
        return;
    }
    const float *w = numbers(f, f->O * f->I * side * side, kernel, "");
    for (int64_t i = 0, S = side * side, off = (f->k - side) / 2; w && i < f->O * f->I * S; i++) {
        int64_t to = (i / S * f->k + i % S / side + off) * f->k + i % side + off;
        f->w[to] += sign * gain[i / S / f->I] * (double)w[i];
    }
}

/* convolution: timm's layer is one, although cloob's is a matrix. */
static void add_plain(fold *f, const char *prefix, bool convolution)
{
    if (f->to) {
        tensor w = f->to->weight;
        if (convolution) w = TENSOR(w.dtype, w.data, f->O, f->I, f->k, f->k);
        put(f, w, 0, prefix, ".weight");
        if (f->biased && f->to->bias.data) put(f, f->to->bias, 0, prefix, ".bias");
        return;
    }
    const float *w = numbers(f, f->O * f->I * f->k * f->k, prefix, ".weight"),
                *b = f->biased ? numbers(f, f->O, prefix, ".bias") : NULL;
    for (int64_t i = 0; w && i < f->O * f->I * f->k * f->k; i++) f->w[i] += (double)w[i];
    for (int64_t o = 0; b && o < f->O; o++) f->b[o] += (double)b[o];
}

/* Multiplies each output channel by its layer scale gain. */
static void scale_rows(fold *f, const char *prefix, const char *name)
{
    if (f->to) put(f, TENSOR(CLOOB_F32, NULL, f->O, 1, 1), 1, prefix, name);
    if (f->to) return;
    const float *gain = numbers(f, f->O, prefix, name);
    int64_t row = f->I * f->k * f->k;
    for (int64_t i = 0; gain && i < f->O * row; i++) f->w[i] *= (double)gain[i / row];
    for (int64_t o = 0; gain && o < f->O; o++) f->b[o] *= (double)gain[o];
}

/* Solves A x = b in place by elimination with pivoting: x replaces b (n), A (n, n) is overwritten. False: A is
 * singular. */
static bool solve(double *A, double *b, int64_t n)
{
    for (int64_t c = 0; c < n; c++) {
        int64_t best = c;
        for (int64_t r = c + 1; r < n; r++)
            if (fabs(A[r * n + c]) > fabs(A[best * n + c])) best = r;
        if (!(fabs(A[best * n + c]) > 1e-12)) return false;
        for (int64_t k = c; k < n && best != c; k++) {
            double t = A[c * n + k];
            A[c * n + k] = A[best * n + k], A[best * n + k] = t;
        }
        double t = b[c];
        b[c] = b[best], b[best] = t;
        for (int64_t r = c + 1; r < n; r++) {
            double factor = A[r * n + c] / A[c * n + c];
            for (int64_t k = c + 1; k < n && factor != 0; k++) A[r * n + k] -= factor * A[c * n + k];
            b[r] -= factor * b[c];
        }
    }
    for (int64_t r = n - 1; r >= 0; r--) {
        for (int64_t k = r + 1; k < n; k++) b[r] -= A[r * n + k] * b[k];
        b[r] /= A[r * n + r];
    }
    return true;
}

/* timm's attention has no biases: a batch norm before it adds `shift` to the input of W = (Wq; Wk; Wv), (3C, C). The
 * shift that gives the queries their bias is Wq^-1 bq. A bias of the keys adds the same to all scores of a query, which
 * the softmax ignores; for the values' see move_value_bias. NULL: a failure. */
static double *attention_shift(fold *f, const tensor *W, const tensor *bias)
{
    int64_t C = W->dim[1];
    tensor w = *W, b = *bias;
    float *fw = put_copy(f, &w), *fb = put_copy(f, &b);
    double *A = arena_push(&f->a, (size_t)(C * C) * sizeof *A), *x = arena_push(&f->a, (size_t)C * sizeof *x);
    if (!A || !x) f->to->status = ctx_no_memory(f->ctx, (size_t)(C * C) * sizeof *A, "an attention to be unfolded");
    if (!fw || !fb || !A || !x) return NULL;
    for (int64_t i = 0; i < C * C; i++) A[i] = (double)fw[i];
    for (int64_t i = 0; i < C; i++) x[i] = (double)fb[i];
    if (solve(A, x, C)) return x;
    f->to->status = ctx_fail(f->ctx, CLOOB_ERR_UNSUPPORTED,
                             "the matrix of the queries of an attention is singular, so that their bias cannot be "
                             "moved into timm's batch norm; write it as cloob");
    return NULL;
}

/* Attention weights sum to 1, so that a bias of the values adds proj.weight bv to the output: what the shift does not
 * add to the values is moved into the bias of proj. */
static void move_value_bias(fold *f, const char *block)
{
    static const char trunk[] = "visual.trunk.";
    char name[2 * NAME_BYTES];
    const tensor *t[2];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "visual.%stoken_mixer.qkv.%s", block + strlen(trunk), i ? "bias" : "weight");
        t[i] = weights_find(f->to->model, name);
    }
    if (!t[0] || !t[1]) return;
    int64_t C = f->I;
    tensor w = *t[0], b = *t[1], proj = f->to->weight;
    double *shift = attention_shift(f, &w, &b);
    float *fw = put_copy(f, &w), *fb = put_copy(f, &b), *P = put_copy(f, &proj), *out = put_copy(f, &f->to->bias);
    if (!shift || !fw || !fb || !P || !out) return;
    for (int64_t c = 0; c < C; c++) {
        double rest = (double)fb[2 * C + c];
        for (int64_t k = 0; k < C; k++) rest -= (double)fw[(2 * C + c) * C + k] * (double)(float)shift[k];
        for (int64_t o = 0; o < f->O; o++) out[o] += (float)((double)P[o * C + c] * rest);
    }
}

/* Writes the batch norm before an attention, which stands for the bias of the matrix (attention_shift). */
static void put_input_norm(fold *f, const char *prefix)
{
    tensor shift = TENSOR(CLOOB_F32, arena_push(f->to->a, (size_t)f->I * sizeof(float)), f->I);
    double *x = attention_shift(f, &f->to->weight, &f->to->bias);
    if (!x) return;
    for (int64_t i = 0; shift.data && i < f->I; i++) ((float *)shift.data)[i] = (float)x[i];
    if (!shift.data) f->to->status = ctx_no_memory(f->ctx, tensor_bytes(&shift), prefix);
    else put_batch_norm(f, prefix, f->I, 1, &shift);
}

/* Folds a batch norm that precedes a matrix into the matrix and its bias. */
static void fold_input_norm(fold *f, const char *prefix)
{
    double *gain, *shift;
    if (f->to) put_input_norm(f, prefix);
    if (f->to || !batch_norm(f, prefix, f->I, &gain, &shift)) return;
    for (int64_t i = 0; i < f->O * f->I; i++) {
        f->b[i / f->I] += f->w[i] * shift[i % f->I];
        f->w[i] *= gain[i % f->I];
    }
}

/* ---- which branches a layer has ------------------------------------------------------------------ */

/* Letters of `branches`:
 *   k conv_kxk   s conv_scale   i identity   l large_conv   m small_conv   c conv and bn
 *   x RepMixer   p pos_enc with a residual   = plain layer   * plain 1x1 convolution
 *   b a batch norm before it instead of a bias   a follows an attention with b */
typedef struct recipe {
    const char *leaf, *branches; /* leaf: the end of the layer's name */
    const char *gain;            /* the layer scale applied to the output, relative to the block; NULL: none */
} recipe;

static const recipe recipes[] = {
    { "stem.0", "ks", NULL },
    { "stem.1", "ks", NULL },
    { "stem.2", "ki", NULL },
    { "downsample.proj.0", "lm", NULL },
    { "downsample.proj.1", "ki", NULL },
    { "pos_emb", "p", NULL },
    { "token_mixer", "x", NULL },
    { "token_mixer.qkv", "=b", NULL },
    { "token_mixer.proj", "=a", "layer_scale_1.gamma" },
    { "mlp.conv", "c", NULL },
    { "mlp.fc2", "*", "layer_scale.gamma" },
    { "fc1", "*", NULL },
    { "fc2", "*", NULL },
    { "final_conv", "ks", NULL },
    { "", "=", NULL }, /* any other layer */
};

/* Recipes of the convolutions before a ViT's patch embedding. */
static const recipe stem_recipes[] = { { "stem.0", "c", NULL }, { "stem.1", "c", NULL }, { "conv1", "=", NULL } };

static void subtract_identity(fold *f)
{
    int64_t K = f->k * f->k;
    float *w = put_copy(f, &f->to->weight);
    for (int64_t o = 0; w && o < f->O; o++) w[o * K + K / 2] -= 1;
}

static void add_letter(fold *f, char letter, const char *p, const model_config *c)
{
    char inner[2 * NAME_BYTES];
    bool scale = !(fastvit_layer_norms(c) && strstr(p, ".stem.")); /* the stems of MCi3 and MCi4 have no conv_scale */
    switch (letter) {
    case 'k': add_branch(f, p, ".conv_kxk.0.conv.weight", f->k, ".conv_kxk.0.bn", 1); break;
    case 's':
        if (scale) add_branch(f, p, ".conv_scale.conv.weight", 1, ".conv_scale.bn", 1);
        break;
    case 'i': add_branch(f, p, NULL, 0, ".identity", 1); break;
    case 'l': add_branch(f, p, ".large_conv.conv.weight", f->k, ".large_conv.bn", 1); break;
    case 'm': add_branch(f, p, ".small_conv.conv.weight", 3, ".small_conv.bn", 1); break;
    case 'c': add_branch(f, p, ".conv.weight", f->k, ".bn", 1); break;
    case 'x': /* x + gain (mixer(x) - norm(x)) */
        snprintf(inner, sizeof inner, "%s.mixer", p);
        for (const char *l = "ksi"; *l; l++) add_letter(f, *l, inner, c);
        add_branch(f, p, NULL, 0, ".norm.identity", -1);
        scale_rows(f, p, ".layer_scale.gamma");
        add_identity(f, NULL, 1);
        break;
    case 'p':
        snprintf(inner, sizeof inner, "%s.pos_enc", p);
        if (f->to) subtract_identity(f);
        add_plain(f, inner, true);
        add_identity(f, NULL, 1);
        break;
    case 'a': break;
    default: add_plain(f, p, letter == '*');
    }
}

static bool has(const fold *f, const char *prefix, const char *name)
{
    char full[2 * NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return source_find(f->s, full) >= 0;
}

/* Folds or unfolds one layer. p: its name in timm, which ends in r->leaf. */
static void fold_layer(fold *f, const recipe *r, const char *p, const model_config *c)
{
    char block[2 * NAME_BYTES], inner[2 * NAME_BYTES];
    bool norm = strchr(r->branches, 'b') != NULL && !fastvit_layer_norms(c);
    snprintf(block, sizeof block, "%.*s", (int)(strlen(p) - strlen(r->leaf)), p);
    snprintf(inner, sizeof inner, "%s.reparam_conv", p);
    f->biased = !strchr(r->branches, 'b');
    if (f->to && strchr(r->branches, 'a') && !fastvit_layer_norms(c)) move_value_bias(f, block);
    /* a checkpoint saved after timm's reparameterize_model has no branches */
    if (!f->to && has(f, inner, ".weight")) add_plain(f, inner, true);
    else
        for (const char *l = r->branches; *l && *l != 'b'; l++) add_letter(f, *l, p, c);
    snprintf(inner, sizeof inner, "%snorm", block);
    if (norm) fold_input_norm(f, inner);
    if (!r->gain) return;
    const char *stage = strstr(block, "stages.");
    bool second = strcmp(r->leaf, "mlp.fc2") == 0 && stage && fastvit_attends(atoi(stage + strlen("stages.")));
    scale_rows(f, block, second ? "layer_scale_2.gamma" : r->gain);
}

/* The recipe of a row and the layer's name in timm; NULL: the row is not folded. name: canonical, without ".weight". */
static const recipe *find_recipe(const model_config *c, const char *name, char p[NAME_BYTES])
{
    static const char visual[] = "visual.";
    if (strncmp(name, visual, strlen(visual)) != 0) return NULL;
    const char *rest = name + strlen(visual);
    if (c->family == MODEL_FASTVIT) {
        const recipe *r = recipes;
        bool head = strcmp(rest, "proj") == 0;
        if (head && !c->image_projection_bias) return NULL;
        snprintf(p, NAME_BYTES, "visual.trunk.%.150s", head ? "head.fc" : rest);
        while (!text_ends_with(rest, r->leaf)) r++;
        return r;
    }
    for (int i = 0; c->patch_stem && i < 3; i++) {
        if (strcmp(rest, stem_recipes[i].leaf) != 0) continue;
        snprintf(p, NAME_BYTES, "visual.trunk.patch_embed.backbone.%d%s", i, i < 2 ? "" : ".conv");
        return &stem_recipes[i];
    }
    return NULL;
}

/* timm adds no position to the class token of a ViT with a convolutional stem: row 0 is set to 0. */
static cloob_status take_positions(fold *f, const tensor *row, float *out)
{
    int64_t C = row->dim[1], n = tensor_count(row) - C;
    const float *pos = numbers(f, n, "visual.trunk.pos_embed", "");
    memset(out, 0, (size_t)C * sizeof *out);
    if (pos) memcpy(out + C, pos, (size_t)n * sizeof *out);
    return CLOOB_OK;
}

static cloob_status take_layer(fold *f, const recipe *r, const char *p, const model_config *c, const tensor *row,
                               bool bias, float *out)
{
    int64_t n = f->O * f->I * f->k * f->k;
    f->w = arena_push(&f->a, (size_t)n * sizeof *f->w);
    f->b = arena_push(&f->a, (size_t)f->O * sizeof *f->b);
    if (!f->w || !f->b) return ctx_no_memory(f->ctx, (size_t)n * sizeof *f->w, p);
    memset(f->w, 0, (size_t)n * sizeof *f->w), memset(f->b, 0, (size_t)f->O * sizeof *f->b);
    fold_layer(f, r, p, c);
    for (int64_t i = 0; i < tensor_count(row); i++) out[i] = (float)(bias ? f->b[i] : f->w[i]);
    return CLOOB_OK;
}

cloob_status fold_row(cloob_ctx *ctx, source *s, weights *w, const st_entry *rows, int64_t i, fold_result *result)
{
    const st_entry *row = &rows[i];
    char name[NAME_BYTES], p[NAME_BYTES];
    bool bias = text_ends_with(row->name, ".bias"),
         positions = w->config.patch_stem && strcmp(row->name, "visual.positional_embedding") == 0;
    const tensor *t = bias ? &rows[i - 1].t : &row->t; /* a bias follows its weight in the table */
    snprintf(name, sizeof name, "%.*s", (int)(strlen(row->name) - (bias ? 5 : 7)), row->name);
    const recipe *r = positions ? NULL : find_recipe(&w->config, name, p);
    *result = (fold_result){ .folded = r || positions };
    if (!result->folded) return CLOOB_OK;
    fold f = { .ctx = ctx, .s = s, .result = result, .O = t->dim[0], .I = t->ndim > 1 ? t->dim[1] : 1, .k = 1 };
    if (t->ndim == 4) f.k = t->dim[2];
    tensor to = row->t;
    to.data = arena_push(&w->a, tensor_bytes(&to));
    if (!to.data) return ctx_no_memory(ctx, tensor_bytes(&to), row->name);
    cloob_status status =
        positions ? take_positions(&f, t, to.data) : take_layer(&f, r, p, &w->config, &row->t, bias, to.data);
    arena_release(&f.a);
    if (status != CLOOB_OK || result->missing[0]) return status;
    return weights_add(ctx, w, row->name, &to);
}

/* ---- unfolding ----------------------------------------------------------------------------------- */

/* timm adds no position to the class token: cloob's first position becomes a part of it. */
static void put_class_token(fold *f, tensor token, const tensor *positions)
{
    tensor row = *positions;
    row.dim[0] = 1;
    float *to = put_copy(f, &token), *first = put_copy(f, &row);
    for (int64_t i = 0; to && first && i < row.dim[1]; i++) to[i] += first[i];
    put(f, TENSOR(CLOOB_F32, to, 1, 1, row.dim[1]), 0, "visual.trunk.cls_token", "");
}

static void put_positions(fold *f, const tensor *positions)
{
    int64_t C = positions->dim[1];
    tensor rest = TENSOR(positions->dtype, NULL, 1, positions->dim[0] - 1, C);
    rest.data = (char *)positions->data + (size_t)C * dtype_size(positions->dtype);
    put(f, rest, 0, "visual.trunk.pos_embed", "");
}

/* The stem's class token and positions; false: another row. */
static bool unfold_embedding(fold *f, const weights *w, const st_entry *row)
{
    const tensor *positions = weights_find(w, "visual.positional_embedding");
    if (!w->config.patch_stem || !positions) return false;
    if (strcmp(row->name, "visual.positional_embedding") == 0) put_positions(f, positions);
    else if (strcmp(row->name, "visual.class_embedding") == 0) put_class_token(f, row->t, positions);
    else return false;
    return true;
}

cloob_status unfold_row(cloob_ctx *ctx, const weights *w, int64_t i, arena *a, unfold_put put_tensor, void *user,
                        bool *unfolded)
{
    const st_entry *row = &w->entry[i];
    char name[NAME_BYTES], p[NAME_BYTES], other[NAME_BYTES + 8];
    unfold u = { .model = w, .a = a, .put = put_tensor, .user = user, .weight = row->t };
    fold f = { .ctx = ctx, .to = &u };
    *unfolded = unfold_embedding(&f, w, row);
    bool bias = text_ends_with(row->name, ".bias");
    if (*unfolded || (!bias && !text_ends_with(row->name, ".weight"))) return u.status;
    snprintf(name, sizeof name, "%.*s", (int)(strlen(row->name) - (bias ? 5 : 7)), row->name);
    const recipe *r = find_recipe(&w->config, name, p);
    *unfolded = r != NULL;
    if (!r || bias) return CLOOB_OK; /* a bias is written with its weight */
    snprintf(other, sizeof other, "%s.bias", name);
    const tensor *b = weights_find(w, other);
    if (b) u.bias = *b;
    f.O = row->t.dim[0], f.I = row->t.ndim > 1 ? row->t.dim[1] : 1, f.k = row->t.ndim == 4 ? row->t.dim[2] : 1;
    fold_layer(&f, r, p, &w->config);
    arena_release(&f.a);
    return u.status;
}
