/* Folding of MobileCLIP's image towers: layers that timm trains as parallel branches, each with a batch norm, become
 * one convolution with a bias. Equal to the branches up to rounding; sums run in double. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "model/interchange.h"

typedef struct fold {
    cloob_ctx *ctx;
    arena a;
    source *s;
    fold_result *result;
    int64_t O, I, k; /* shape (O, I, k, k) of the folded kernel */
    double *w, *b;   /* (O, I, k, k), (O) */
    bool biased;     /* the source layer has a bias */
} fold;

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
        (*gain)[c] = (double)g[c] / sqrt((double)var[c] + 1e-5);
        (*shift)[c] = (double)b[c] - (double)mean[c] * (*gain)[c];
    }
    return true;
}

/* Adds sign * gain[o] (gain NULL: 1) to the centre of the kernel from channel o to itself. */
static void add_identity(fold *f, const double *gain, double sign)
{
    int64_t K = f->k * f->k, middle = f->k / 2 * f->k + f->k / 2;
    for (int64_t o = 0; o < f->O; o++) f->w[(o * f->I + o % f->I) * K + middle] += sign * (gain ? gain[o] : 1.0);
}

/* Adds a branch: the kernel PREFIX CONV, of side k or smaller (NULL: identity), followed by the batch norm PREFIX
 * BN. */
static void add_branch(fold *f, const char *prefix, const char *conv, const char *bn, double sign)
{
    char name[2 * NAME_BYTES];
    double *gain, *shift;
    snprintf(name, sizeof name, "%s%s", prefix, bn);
    if (!batch_norm(f, name, f->O, &gain, &shift)) return;
    for (int64_t o = 0; o < f->O; o++) f->b[o] += sign * shift[o];
    if (!conv) {
        add_identity(f, gain, sign);
        return;
    }
    snprintf(name, sizeof name, "%s%s", prefix, conv);
    int64_t at = source_find(f->s, name),
            side = at < 0 || f->s->entry[at].t.ndim != 4 ? f->k : f->s->entry[at].t.dim[2];
    if (side > f->k || side < 1) side = f->k;
    const float *w = numbers(f, f->O * f->I * side * side, name, "");
    for (int64_t i = 0, S = side * side, off = (f->k - side) / 2; w && i < f->O * f->I * S; i++) {
        int64_t to = (i / S * f->k + i % S / side + off) * f->k + i % side + off;
        f->w[to] += sign * gain[i / S / f->I] * (double)w[i];
    }
}

static void add_plain(fold *f, const char *prefix)
{
    const float *w = numbers(f, f->O * f->I * f->k * f->k, prefix, ".weight"),
                *b = f->biased ? numbers(f, f->O, prefix, ".bias") : NULL;
    for (int64_t i = 0; w && i < f->O * f->I * f->k * f->k; i++) f->w[i] += (double)w[i];
    for (int64_t o = 0; b && o < f->O; o++) f->b[o] += (double)b[o];
}

/* Multiplies each output channel by its layer scale gain. */
static void scale_rows(fold *f, const char *prefix, const char *name)
{
    const float *gain = numbers(f, f->O, prefix, name);
    int64_t row = f->I * f->k * f->k;
    for (int64_t i = 0; gain && i < f->O * row; i++) f->w[i] *= (double)gain[i / row];
    for (int64_t o = 0; gain && o < f->O; o++) f->b[o] *= (double)gain[o];
}

/* Folds a batch norm that precedes a matrix into the matrix and its bias. */
static void fold_input_norm(fold *f, const char *prefix)
{
    double *gain, *shift;
    if (!batch_norm(f, prefix, f->I, &gain, &shift)) return;
    for (int64_t i = 0; i < f->O * f->I; i++) {
        f->b[i / f->I] += f->w[i] * shift[i % f->I];
        f->w[i] *= gain[i % f->I];
    }
}

/* ---- which branches a layer has ------------------------------------------------------------------ */

/* Letters of `branches`:
 *   k conv_kxk   s conv_scale   i identity   l large_conv   m small_conv   c conv and bn
 *   x RepMixer   p pos_enc with a residual   = plain layer   b a batch norm before it instead of a bias */
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
    { "token_mixer.proj", "=", "layer_scale_1.gamma" },
    { "mlp.conv", "c", NULL },
    { "mlp.fc2", "=", "layer_scale.gamma" },
    { "final_conv", "ks", NULL },
    { "", "=", NULL }, /* any other layer */
};

/* Recipes of the convolutions before a ViT's patch embedding. */
static const recipe stem_recipes[] = { { "stem.0", "c", NULL }, { "stem.1", "c", NULL }, { "conv1", "=", NULL } };

static void add_letter(fold *f, char letter, const char *p, const model_config *c)
{
    char inner[2 * NAME_BYTES];
    bool scale = !(fastvit_layer_norms(c) && strstr(p, ".stem.")); /* the stems of MCi3 and MCi4 have no conv_scale */
    switch (letter) {
    case 'k': add_branch(f, p, ".conv_kxk.0.conv.weight", ".conv_kxk.0.bn", 1); break;
    case 's':
        if (scale) add_branch(f, p, ".conv_scale.conv.weight", ".conv_scale.bn", 1);
        break;
    case 'i': add_branch(f, p, NULL, ".identity", 1); break;
    case 'l': add_branch(f, p, ".large_conv.conv.weight", ".large_conv.bn", 1); break;
    case 'm': add_branch(f, p, ".small_conv.conv.weight", ".small_conv.bn", 1); break;
    case 'c': add_branch(f, p, ".conv.weight", ".bn", 1); break;
    case 'x': /* x + gain (mixer(x) - norm(x)) */
        snprintf(inner, sizeof inner, "%s.mixer", p);
        for (const char *l = "ksi"; *l; l++) add_letter(f, *l, inner, c);
        add_branch(f, p, NULL, ".norm.identity", -1);
        scale_rows(f, p, ".layer_scale.gamma");
        add_identity(f, NULL, 1);
        break;
    case 'p':
        snprintf(inner, sizeof inner, "%s.pos_enc", p);
        add_plain(f, inner);
        add_identity(f, NULL, 1);
        break;
    default: add_plain(f, p);
    }
}

static bool has(const fold *f, const char *prefix, const char *name)
{
    char full[2 * NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return source_find(f->s, full) >= 0;
}

/* Folds one layer. p: its name in timm, which ends in r->leaf. */
static void fold_layer(fold *f, const recipe *r, const char *p, const model_config *c)
{
    char block[2 * NAME_BYTES], inner[2 * NAME_BYTES];
    bool norm = strchr(r->branches, 'b') != NULL;
    snprintf(block, sizeof block, "%.*s", (int)(strlen(p) - strlen(r->leaf)), p);
    snprintf(inner, sizeof inner, "%s.reparam_conv", p);
    f->biased = !norm;
    if (has(f, inner, ".weight")) add_plain(f, inner); /* the checkpoint was saved after timm's reparameterize_model */
    else
        for (const char *l = r->branches; *l && *l != 'b'; l++) add_letter(f, *l, p, c);
    snprintf(inner, sizeof inner, "%snorm", block);
    if (norm && !fastvit_layer_norms(c)) fold_input_norm(f, inner);
    if (!r->gain) return;
    bool second = strcmp(r->leaf, "mlp.fc2") == 0 && has(f, block, "layer_scale_2.gamma");
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
