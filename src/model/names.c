/* Names of canonical tensors in other programs' files. */
#include "model/interchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables -------------------------------------------------------------------------------------- */

/* How a foreign tensor's layout differs from the canonical one. */
typedef enum layout {
    SAME,
    TRANSPOSED,
    LEAD_1, /* one leading dimension of size 1 */
    LEAD_2, /* two leading dimensions of size 1 */
    LAST    /* a convolution (out, in, h, w) stored as (h, w, in, out) */
} layout;

/* A canonical prefix and its replacement; the rest of the name is the same in both. "{a|b:2}" in `to`: the tensor is
 * split along its first dimension into parts a and b, here one third and two thirds. */
typedef struct rename_row {
    const char *from, *to; /* from NULL ends a table */
    layout layout;
} rename_row;

/* clang-format off */
static const rename_row hf_block[] = {
    { "attn.in_proj_", "self_attn.{q|k|v}_proj.", SAME },
    { "attn.out_proj.", "self_attn.out_proj.", SAME },
    { "ln_1.", "layer_norm1.", SAME },
    { "ln_2.", "layer_norm2.", SAME },
    { "mlp.c_fc.", "mlp.fc1.", SAME },
    { "mlp.c_proj.", "mlp.fc2.", SAME },
    { "", "", SAME },
    { NULL, NULL, SAME } };

static const rename_row hf_rows[] = {
    { "visual.class_embedding", "vision_model.embeddings.class_embedding", SAME },
    { "visual.positional_embedding", "vision_model.embeddings.position_embedding.weight", SAME },
    { "visual.conv1.", "vision_model.embeddings.patch_embedding.", SAME },
    { "visual.ln_pre.", "vision_model.pre_layrnorm.", SAME }, /* sic */
    { "visual.ln_post.", "vision_model.post_layernorm.", SAME },
    { "visual.proj", "visual_projection.weight", TRANSPOSED },
    { "token_embedding.", "text_model.embeddings.token_embedding.", SAME },
    { "positional_embedding", "text_model.embeddings.position_embedding.weight", SAME },
    { "ln_final.", "text_model.final_layer_norm.", SAME },
    { "text_projection", "text_projection.weight", TRANSPOSED },
    { NULL, NULL, SAME } };

static const rename_row siglip_rows[] = {
    { "visual.attn_pool.latent", "vision_model.head.probe", LEAD_2 },
    { "visual.attn_pool.attn.", "vision_model.head.attention.", SAME },
    { "visual.attn_pool.ln_2.", "vision_model.head.layernorm.", SAME },
    { "visual.attn_pool.mlp.c_fc.", "vision_model.head.mlp.fc1.", SAME },
    { "visual.attn_pool.mlp.c_proj.", "vision_model.head.mlp.fc2.", SAME },
    { "text_projection.", "text_model.head.", SAME },
    { "logit_scale", "logit_scale", LEAD_1 },
    { "logit_bias", "logit_bias", LEAD_1 },
    { NULL, NULL, SAME } };

/* EVA-02 has separate queries, keys and values, and separate halves of the gated MLP. */
static const rename_row eva_block[] = {
    { "attn.qv_bias", "attn.{q|v}_proj.bias", SAME },
    { "attn.in_proj_", "attn.{q|k|v}_proj.", SAME },
    { "mlp.c_fc.", "mlp.{fc1_g|fc1_x}.", SAME },
    { NULL, NULL, SAME } };

static const rename_row timm_block[] = {
    { "attn.qv_bias", "attn.{q|v}_bias", SAME },
    { "attn.in_proj_", "attn.qkv.", SAME },
    { "attn.out_proj.", "attn.proj.", SAME },
    { "attn.ln_inner.", "attn.norm.", SAME },
    { "mlp.ln_inner.", "mlp.norm.", SAME },
    { "ls_1.gamma", "gamma_1", SAME },
    { "ls_2.gamma", "gamma_2", SAME },
    { "ln_1.", "norm1.", SAME },
    { "ln_2.", "norm2.", SAME },
    { "mlp.c_fc.", "mlp.fc1.", SAME },
    { "mlp.c_proj.", "mlp.fc2.", SAME },
    { "", "", SAME },
    { NULL, NULL, SAME } };

static const rename_row timm_rows[] = {
    { "visual.class_embedding", "visual.trunk.cls_token", LEAD_2 },
    { "visual.ln_pre.", "visual.trunk.norm_pre.", SAME },
    { "visual.proj.0.", "visual.head.mlp.fc1.", SAME },
    { "visual.proj.2.", "visual.head.mlp.fc2.", SAME },
    { "visual.proj.", "visual.trunk.head.", SAME },
    { "visual.proj", "visual.head.proj.weight", TRANSPOSED },
    { "visual.head.", "visual.trunk.head.", SAME },
    { "visual.stem.", "visual.trunk.stem.", SAME },
    { "visual.stages.", "visual.trunk.stages.", SAME },
    { "visual.positional_embedding", "visual.trunk.pos_embed", LEAD_1 },
    { "visual.conv1.", "visual.trunk.patch_embed.proj.", SAME },
    { "visual.ln_post.", "visual.trunk.norm.", SAME },
    { "visual.attn_pool.latent", "visual.trunk.attn_pool.latent", LEAD_2 },
    { "visual.attn_pool.attn.in_proj_", "visual.trunk.attn_pool.{q|kv:2}.", SAME },
    { "visual.attn_pool.attn.out_proj.", "visual.trunk.attn_pool.proj.", SAME },
    { "visual.attn_pool.ln_2.", "visual.trunk.attn_pool.norm.", SAME },
    { "visual.attn_pool.mlp.c_fc.", "visual.trunk.attn_pool.mlp.fc1.", SAME },
    { "visual.attn_pool.mlp.c_proj.", "visual.trunk.attn_pool.mlp.fc2.", SAME },
    { NULL, NULL, SAME } };

static const rename_row bert_block[] = {
    { "attn.in_proj_", "attention.self.{query|key|value}.", SAME },
    { "attn.out_proj.", "attention.output.dense.", SAME },
    { "ln_1.", "attention.output.LayerNorm.", SAME },
    { "ln_2.", "output.LayerNorm.", SAME },
    { "mlp.c_fc.", "intermediate.dense.", SAME },
    { "mlp.c_proj.", "output.dense.", SAME },
    { "", "", SAME },
    { NULL, NULL, SAME } };

static const rename_row bert_rows[] = {
    { "token_embedding.", "embeddings.word_embeddings.", SAME },
    { "positional_embedding", "embeddings.position_embeddings.weight", SAME },
    { "token_type_embedding", "embeddings.token_type_embeddings.weight", SAME },
    { "ln_pre.", "embeddings.LayerNorm.", SAME },
    { "pooler.", "pooler.dense.", SAME },
    { NULL, NULL, SAME } };

static const rename_row bert_projections[] = {
    { "text_projection.", "text.proj.", SAME },
    { "text_projection", "text.proj.weight", TRANSPOSED },
    { NULL, NULL, SAME } };

static const rename_row mclip_projection[] = {
    { "text_projection.", "LinearTransformation.", SAME },
    { NULL, NULL, SAME } };

static const rename_row hf_vit_block[] = {
    { "attn.in_proj_", "attention.attention.{query|key|value}.", SAME },
    { "attn.out_proj.", "attention.output.dense.", SAME },
    { "ln_1.", "layernorm_before.", SAME },
    { "ln_2.", "layernorm_after.", SAME },
    { "mlp.c_fc.", "intermediate.dense.", SAME },
    { "mlp.c_proj.", "output.dense.", SAME },
    { "", "", SAME },
    { NULL, NULL, SAME } };

static const rename_row hf_vit_rows[] = {
    { "visual.class_embedding", "vision_model.embeddings.cls_token", LEAD_2 },
    { "visual.positional_embedding", "vision_model.embeddings.position_embeddings", LEAD_1 },
    { "visual.conv1.", "vision_model.embeddings.patch_embeddings.projection.", SAME },
    { "visual.ln_post.", "vision_model.layernorm.", SAME },
    { "visual.proj", "visual_projection.weight", TRANSPOSED },
    { NULL, NULL, SAME } };

static const rename_row haiku_block[] = {
    { "ln_1.weight", "self_attention/layer_norm.scale", SAME },
    { "ln_1.bias", "self_attention/layer_norm.offset", SAME },
    { "attn.in_proj_weight", "self_attention/multi_head_attention/{query|key|value}.w", TRANSPOSED },
    { "attn.in_proj_bias", "self_attention/multi_head_attention/{query|key|value}.b", SAME },
    { "attn.out_proj.weight", "self_attention/multi_head_attention/linear.w", TRANSPOSED },
    { "attn.out_proj.bias", "self_attention/multi_head_attention/linear.b", SAME },
    { "ln_2.weight", "feed_forward/layer_norm.scale", SAME },
    { "ln_2.bias", "feed_forward/layer_norm.offset", SAME },
    { "mlp.c_fc.weight", "feed_forward/linear_0.w", TRANSPOSED },
    { "mlp.c_fc.bias", "feed_forward/linear_0.b", SAME },
    { "mlp.c_proj.weight", "feed_forward/linear_1.w", TRANSPOSED },
    { "mlp.c_proj.bias", "feed_forward/linear_1.b", SAME },
    { NULL, NULL, SAME } };

static const rename_row haiku_rows[] = {
    { "visual.class_embedding", ".class_embed", SAME },
    { "visual.conv1.weight", "/embed.w", LAST },
    { "visual.positional_embedding", "/pos_embed.w", SAME },
    { "visual.proj.weight", "/proj.w", TRANSPOSED },
    { "visual.proj.bias", "/proj.b", SAME },
    { "token_embedding.weight", "/embed.embeddings", SAME },
    { "positional_embedding", "/pos_embed.w", SAME },
    { "text_projection.weight", "/proj.w", TRANSPOSED },
    { "text_projection.bias", "/proj.b", SAME },
    { NULL, NULL, SAME } };

static const rename_row jku_rows[] = {
    { "logit_scale_hopfield", "logit_scale_hopfield", SAME },
    { "logit_scale", "logit_inv_tau", SAME },
    { "logit_", "logit_", SAME },
    { "", "transformer.", SAME },
    { NULL, NULL, SAME } };

static const rename_row custom_rows[] = {
    { "logit_", "logit_", SAME },
    { "", "text.", SAME },
    { NULL, NULL, SAME } };

/* ---- schemes ------------------------------------------------------------------------------------- */

/* The rows apply to names that start with `from`, which becomes `to`. "*" is a layer number. */
typedef struct scheme_part {
    const rename_row *rows;
    const char *from, *to;
} scheme_part;

enum { PARTS = 4 };

/* A naming scheme. The first row that matches applies; without a match the name stays canonical. */
typedef struct scheme {
    const char *whose;
    scheme_part part[PARTS];
} scheme;

#define IMAGE_BLOCKS "visual.transformer.resblocks.*."
#define TEXT_BLOCKS "transformer.resblocks.*."

static const scheme image_schemes[] = {
    [IMAGE_NAMES_HF] = { "Hugging Face", { { hf_block, IMAGE_BLOCKS, "vision_model.encoder.layers.*." },
                                           { hf_rows, "", "" } } },
    [IMAGE_NAMES_HF_SIGLIP] = { "Hugging Face SigLIP", { { hf_block, IMAGE_BLOCKS, "vision_model.encoder.layers.*." },
                                                         { siglip_rows, "", "" }, { hf_rows, "", "" } } },
    [IMAGE_NAMES_TIMM] = { "open_clip with timm", { { timm_block, IMAGE_BLOCKS, "visual.trunk.blocks.*." },
                                                    { timm_rows, "", "" } } },
    [IMAGE_NAMES_EVA] = { "open_clip with timm", { { eva_block, IMAGE_BLOCKS, "visual.trunk.blocks.*." },
                                                   { timm_block, IMAGE_BLOCKS, "visual.trunk.blocks.*." },
                                                   { timm_rows, "", "" } } },
    [IMAGE_NAMES_HAIKU] = { "crowsonkb's CLOOB", { { haiku_block, IMAGE_BLOCKS, "vi_t_image_encoder/layer_*/" },
                                                   { haiku_rows, "", "vi_t_image_encoder" } } },
    [IMAGE_NAMES_HF_VIT] = { "rinna's Japanese CLIP", { { hf_vit_block, IMAGE_BLOCKS, "vision_model.encoder.layer.*." },
                                                        { hf_vit_rows, "", "" } } },
};

static const scheme text_schemes[] = {
    [TEXT_NAMES_OPENAI] = { "OpenAI", { { NULL, NULL, NULL } } },
    [TEXT_NAMES_JKU] = { "JKU", { { jku_rows, "", "" } } },
    [TEXT_NAMES_CUSTOM] = { "open_clip custom text", { { custom_rows, "", "" } } },
    [TEXT_NAMES_HF] = { "Hugging Face", { { hf_block, TEXT_BLOCKS, "text_model.encoder.layers.*." },
                                          { hf_rows, "", "" } } },
    [TEXT_NAMES_HF_SIGLIP] = { "Hugging Face SigLIP", { { hf_block, TEXT_BLOCKS, "text_model.encoder.layers.*." },
                                                        { siglip_rows, "", "" }, { hf_rows, "", "" } } },
    [TEXT_NAMES_BERT] = { "open_clip with transformers", { { bert_block, TEXT_BLOCKS, "text.transformer.encoder.layer.*." },
                                                           { bert_rows, "", "text.transformer." },
                                                           { bert_projections, "", "" } } },
    [TEXT_NAMES_HAIKU] = { "crowsonkb's CLOOB", { { haiku_block, TEXT_BLOCKS, "text_encoder/layer_*/" },
                                                  { haiku_rows, "", "text_encoder" } } },
    [TEXT_NAMES_HF_BERT] = { "Hugging Face ChineseCLIP", { { bert_block, TEXT_BLOCKS, "text_model.encoder.layer.*." },
                                                           { bert_rows, "", "text_model." }, { hf_rows, "", "" } } },
    [TEXT_NAMES_MCLIP] = { "M-CLIP", { { bert_block, TEXT_BLOCKS, "transformer.encoder.layer.*." },
                                       { bert_rows, "", "transformer." }, { mclip_projection, "", "" } } },
};
/* clang-format on */

/* The name of the scheme; the image tower's or the text tower's, whichever is more specific. */
const char *names_whose(weight_names n)
{
    bool bert = n.text == TEXT_NAMES_BERT || n.text >= TEXT_NAMES_HF_BERT;
    bool image = n.image == IMAGE_NAMES_HF_VIT || (n.image != IMAGE_NAMES_OPENAI && !bert);
    return image ? image_schemes[n.image].whose : text_schemes[n.text].whose;
}

bool names_is_hf(weight_names n)
{
    return n.text == TEXT_NAMES_HF || n.text == TEXT_NAMES_HF_SIGLIP || n.text >= TEXT_NAMES_HF_BERT;
}

/* ---- applying them ------------------------------------------------------------------------------- */

/* The rest of `name` after `pattern`, and the digits that match the pattern's "*"; NULL: name does not start with
 * it. */
static const char *match_prefix(const char *pattern, const char *name, char number[24])
{
    for (; *pattern; pattern++) {
        int digits = *pattern == '*' ? (int)strspn(name, "0123456789") : 1;
        if (*pattern == '*' ? !digits : *name != *pattern) return NULL;
        if (*pattern == '*') snprintf(number, 24, "%.*s", digits, name);
        name += digits;
    }
    return name;
}

/* Appends a template to the name of every part: `number` for "*", and alternative i of "{...}" to part i. */
static void put_template(const char *t, const char *number, foreign *out)
{
    for (; *t; t++) {
        if (*t != '{') {
            for (int i = 0; i < NAME_PARTS; i++) {
                size_t n = strlen(out->name[i]);
                snprintf(out->name[i] + n, NAME_BYTES - n, "%.*s", *t == '*' ? 23 : 1, *t == '*' ? number : t);
            }
            continue;
        }
        int whole = 0;
        for (out->parts = 0; *t != '}'; out->parts++) {
            int bytes = (int)strcspn(++t, "|:}"), i = out->parts;
            size_t n = strlen(out->name[i]);
            snprintf(out->name[i] + n, NAME_BYTES - n, "%.*s", bytes, t);
            out->share[i] = t[bytes] == ':' ? atoi(t + bytes + 1) : 1;
            whole += out->share[i];
            t += strcspn(t, "|}");
        }
        for (int i = 0; i < out->parts; i++) out->share[i] = 6 * out->share[i] / whole;
    }
}

static bool apply(const scheme_part *p, const char *canonical, foreign *out)
{
    char number[24] = "";
    const char *rest = match_prefix(p->from, canonical, number);
    const rename_row *row = p->rows;
    while (rest && row->from && strncmp(rest, row->from, strlen(row->from)) != 0) row++;
    if (!rest || !row->from) return false;
    put_template(p->to, number, out);
    put_template(row->to, number, out);
    put_template(rest + strlen(row->from), number, out);
    out->transposed = row->layout == TRANSPOSED;
    out->last = row->layout == LAST;
    out->lead = row->layout == LEAD_2 ? 2 : row->layout == LEAD_1;
    return true;
}

void names_foreign(weight_names n, const char *canonical, foreign *out)
{
    const scheme *s = strncmp(canonical, "visual.", 7) == 0 ? &image_schemes[n.image] : &text_schemes[n.text];
    *out = (foreign){ .parts = 1, .share = { 6 } };
    for (int i = 0; i < PARTS && s->part[i].rows; i++)
        if (apply(&s->part[i], canonical, out)) return;
    snprintf(out->name[0], NAME_BYTES, "%s", canonical);
}
