/* CLIP's initialisation. The last batch norm gain of every residual block starts at 0, so that blocks start as
 * identities. The stem's third batch norm (visual.bn3) starts at 1; with 0, all images would have the same
 * embedding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "core/rng.h"
#include "core/text.h"
#include "model/params.h"

typedef enum kind { ZERO, ONE, CONSTANT, NORMAL, UNIFORM } kind;

typedef struct rule {
    kind kind;
    double scale; /* the constant, the standard deviation, or half the width of the interval */
} rule;

static bool has(const char *name, const char *part) { return strstr(name, part) != NULL; }

static int64_t fan_in(const param *r) { return r->file.ndim < 2 ? 1 : r->count / r->file.dim[0]; }

/* nn.Linear's and nn.Conv2d's default: uniform in +-1/sqrt(fan in). */
static rule torch_default(int64_t fan) { return (rule){ UNIFORM, 1.0 / sqrt((double)fan) }; }

static rule text_matrix(const model_config *c, const char *name)
{
    double w = (double)c->text_width, proj = 1.0 / sqrt(w) / sqrt(2.0 * (double)c->text_layers);
    if (has(name, "in_proj")) return (rule){ NORMAL, 1.0 / sqrt(w) };
    if (has(name, "c_fc")) return (rule){ NORMAL, 1.0 / sqrt(2.0 * w) };
    return (rule){ NORMAL, proj }; /* out_proj and c_proj */
}

static rule vit_matrix(const param *r, const char *name)
{
    if (has(name, "in_proj"))
        return (rule){ UNIFORM, sqrt(6.0 / (double)(r->file.dim[0] + r->file.dim[1])) }; /* Xavier */
    return torch_default(fan_in(r));
}

static rule embedding_rule(const model_config *c, const char *name)
{
    if (has(name, "token_embedding") || has(name, "token_type_embedding")) return (rule){ NORMAL, 0.02 };
    if (strcmp(name, "positional_embedding") == 0) return (rule){ NORMAL, 0.01 };
    int64_t width = model_config_image_attention_width(c);
    return (rule){ NORMAL, 1.0 / sqrt((double)width) };
}

/* Fan-in of the weight that a bias belongs to. */
static int64_t bias_fan(const model_config *c, const char *name)
{
    int64_t w = has(name, "attnpool") ? 32 * c->width : strncmp(name, "visual", 6) == 0 ? c->width : c->text_width;
    const model_blocks *b = strncmp(name, "visual", 6) == 0 ? &c->image : &c->text;
    return has(name, "c_proj") && has(name, "mlp") ? model_blocks_inner(b, w) : w;
}

static rule vector_rule(const model_config *c, const char *name)
{
    bool image = strncmp(name, "visual", 6) == 0;
    if (text_ends_with(name, "running_var")) return (rule){ ONE, 0 };
    if (text_ends_with(name, ".gamma")) return (rule){ CONSTANT, image ? c->image.layer_scale : c->text.layer_scale };
    if (text_ends_with(name, ".latent")) return (rule){ NORMAL, 1.0 / sqrt((double)c->width) };
    if (text_ends_with(name, "weight")) { /* gain */
        bool last_of_block = text_ends_with(name, "bn3.weight") && has(name, ".layer");
        return (rule){ last_of_block ? ZERO : ONE, 0 };
    }
    bool linear = has(name, "mlp.") || has(name, "attnpool.");
    if (!image && c->bert.positions) return (rule){ ZERO, 0 };
    return linear ? torch_default(bias_fan(c, name)) : (rule){ ZERO, 0 };
}

static rule adapter_rule(const params *p, const param *r, lora_part part)
{
    if (part == LORA_A) return (rule){ NORMAL, 1.0 / sqrt((double)r->file.dim[1]) };
    return part == LORA_B ? (rule){ ZERO, 0 } : (rule){ CONSTANT, p->training.lora_scale };
}

/* timm's ConvNeXt: normal numbers of standard deviation 0.02 for matrices, 0 for biases, small gains for layer
 * scale. */
static rule convnext_rule(const model_config *c, const param *r)
{
    if (text_ends_with(r->name, "gamma")) return (rule){ CONSTANT, c->image.layer_scale };
    if (r->file.ndim > 1) return (rule){ NORMAL, 0.02 };
    return (rule){ text_ends_with(r->name, "weight") ? ONE : ZERO, 0 };
}

static rule rule_of(const params *p, const param *r)
{
    const model_config *c = &p->config;
    const char *name = r->name;
    lora_part part = lora_part_of(name);
    if (part != LORA_NONE) return adapter_rule(p, r, part);
    if ((c->family == MODEL_CONVNEXT || c->family == MODEL_FASTVIT) && strncmp(name, "visual.", 7) == 0)
        return convnext_rule(c, r);
    if (has(name, "embedding")) return embedding_rule(c, name);
    if (r->file.ndim == 1) return vector_rule(c, name);
    if (has(name, "attnpool")) return (rule){ NORMAL, 1.0 / sqrt(32.0 * (double)c->width) };
    if (c->bert.positions && !has(name, "visual.")) return (rule){ NORMAL, 0.02 }; /* all matrices of a BERT */
    if (text_ends_with(name, "text_projection.weight")) return (rule){ NORMAL, 1.0 / sqrt((double)r->file.dim[1]) };
    if (text_ends_with(name, "proj") || text_ends_with(name, "text_projection"))
        return (rule){ NORMAL, 1.0 / sqrt((double)r->file.dim[0]) };
    if (strncmp(name, "transformer", 11) == 0) return text_matrix(c, name);
    if (strncmp(name, "visual.transformer", 18) == 0 || has(name, "attn_pool")) return vit_matrix(r, name);
    return torch_default(fan_in(r)); /* convolutions */
}

typedef struct drawing {
    const param *row;
    rule rule;
    uint64_t key;
    float *to; /* the row's first element, in memory order */
} drawing;

/* Index in memory, (O, k, k, C), of element i of a file, (O, C, k, k). */
static int64_t engine_place(const param *r, int64_t i)
{
    if (r->file.ndim != 4) return i;
    int64_t C = r->file.dim[1], K = r->file.dim[2] * r->file.dim[3], o = i / (C * K), c = i / K % C, k = i % K;
    return (o * K + k) * C + c;
}

/* Every number is a function of its index, so the result does not depend on the number of threads. */
static void draw_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const drawing *d = arg;
    rule u = d->rule;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        double v = u.kind == ONE ? 1.0 : 0.0;
        if (u.kind == CONSTANT) v = u.scale;
        if (u.kind == NORMAL) v = u.scale * rng_normal(d->key, (uint64_t)i);
        if (u.kind == UNIFORM) v = u.scale * (2.0 * rng_uniform(d->key, (uint64_t)i) - 1.0);
        d->to[engine_place(d->row, i)] = (float)v;
    }
}

static void draw_row(cloob_ctx *ctx, const params *p, const param *r, uint64_t seed, float *to)
{
    drawing d = { r, rule_of(p, r), rng_key(seed, r->name), to };
    pool_for(ctx, r->count, 1 << 14, draw_range, &d);
}

cloob_status params_init(cloob_ctx *ctx, params *p, uint64_t seed)
{
    size_t bytes = (size_t)p->total * sizeof(float);
    bool gpu = p->dev->backend == BACKEND_CUDA;
    float *block = gpu ? calloc(1, bytes) : p->master;
    if (!block) return ctx_no_memory(ctx, bytes, "initial weights");
    for (int i = 0; i < p->count; i++) draw_row(ctx, p, &p->row[i], seed, block + p->row[i].offset);
    cloob_status status = CLOOB_OK;
    if (gpu) {
        status = p->dev->to_device(ctx, p->dev, p->master, block, bytes);
        if (status == CLOOB_OK)
            status = p->dev->sync(ctx, p->dev); /* the copy is asynchronous and may read host memory
                                                                     * after the call returns */
        free(block);
    }
    return status == CLOOB_OK ? params_refresh(ctx, p) : status;
}

cloob_status params_init_adapters(cloob_ctx *ctx, params *p, uint64_t seed)
{
    if (p->training.lora < 1) return CLOOB_OK;
    for (int i = 0; i < p->count; i++) {
        const param *r = &p->row[i];
        if (lora_part_of(r->name) == LORA_NONE) continue;
        float *host = malloc((size_t)r->count * sizeof *host);
        if (!host) return ctx_no_memory(ctx, (size_t)r->count * sizeof *host, r->name);
        draw_row(ctx, p, r, seed, host);
        cloob_status status = params_set(ctx, p, i, host); /* matrices and vectors have the same order in files and
                                                            * memory */
        free(host);
        CLOOB_TRY(status);
    }
    return params_refresh(ctx, p);
}
