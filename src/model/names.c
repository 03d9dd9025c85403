/* Canonical names in the spelling of others. */
#include "model/interchange.h"

#include <stdio.h>
#include <string.h>

static bool begins(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* Everything that is neither image tower nor a scalar of the objective. */
static bool is_text(const char *canonical) { return !begins(canonical, "visual.") && !begins(canonical, "logit_"); }

/* ---- tables -------------------------------------------------------------------------------------- */

typedef struct rename_row {
    const char *from, *to; /* beginnings; what follows is kept */
    bool transposed;
    int lead; /* dimensions of 1 in front */
} rename_row;

/* Inside a block. in_proj_ is the one that falls into three. */
static const rename_row hf_block[] = {
    { "attn.out_proj.", "self_attn.out_proj.", false, 0 },
    { "ln_1.", "layer_norm1.", false, 0 },
    { "ln_2.", "layer_norm2.", false, 0 },
    { "mlp.c_fc.", "mlp.fc1.", false, 0 },
    { "mlp.c_proj.", "mlp.fc2.", false, 0 },
    { NULL, NULL, false, 0 },
};

/* Behind "visual.trunk.blocks.N."; EVA's matrices fall into parts before these rows are asked. */
static const rename_row timm_block[] = {
    { "attn.in_proj_", "attn.qkv.", false, 0 },
    { "attn.out_proj.", "attn.proj.", false, 0 },
    { "attn.ln_inner.", "attn.norm.", false, 0 },
    { "mlp.ln_inner.", "mlp.norm.", false, 0 },
    { "ls_1.gamma", "gamma_1", false, 0 },
    { "ls_2.gamma", "gamma_2", false, 0 },
    { "ln_1.", "norm1.", false, 0 },
    { "ln_2.", "norm2.", false, 0 },
    { "mlp.c_fc.", "mlp.fc1.", false, 0 },
    { "mlp.c_proj.", "mlp.fc2.", false, 0 },
    { NULL, NULL, false, 0 },
};

static const rename_row hf_rows[] = {
    { "visual.class_embedding", "vision_model.embeddings.class_embedding", false, 0 },
    { "visual.positional_embedding", "vision_model.embeddings.position_embedding.weight", false, 0 },
    { "visual.conv1.", "vision_model.embeddings.patch_embedding.", false, 0 },
    { "visual.ln_pre.", "vision_model.pre_layrnorm.", false, 0 }, /* spelled so by its authors */
    { "visual.ln_post.", "vision_model.post_layernorm.", false, 0 },
    { "visual.proj", "visual_projection.weight", true, 0 },
    { "token_embedding.", "text_model.embeddings.token_embedding.", false, 0 },
    { "positional_embedding", "text_model.embeddings.position_embedding.weight", false, 0 },
    { "ln_final.", "text_model.final_layer_norm.", false, 0 },
    { "text_projection", "text_projection.weight", true, 0 },
    { NULL, NULL, false, 0 },
};

static const rename_row hf_siglip_rows[] = {
    { "visual.positional_embedding", "vision_model.embeddings.position_embedding.weight", false, 0 },
    { "visual.conv1.", "vision_model.embeddings.patch_embedding.", false, 0 },
    { "visual.ln_post.", "vision_model.post_layernorm.", false, 0 },
    { "visual.attn_pool.latent", "vision_model.head.probe", false, 2 },
    { "visual.attn_pool.attn.", "vision_model.head.attention.", false, 0 },
    { "visual.attn_pool.ln_2.", "vision_model.head.layernorm.", false, 0 },
    { "visual.attn_pool.mlp.c_fc.", "vision_model.head.mlp.fc1.", false, 0 },
    { "visual.attn_pool.mlp.c_proj.", "vision_model.head.mlp.fc2.", false, 0 },
    { "token_embedding.", "text_model.embeddings.token_embedding.", false, 0 },
    { "positional_embedding", "text_model.embeddings.position_embedding.weight", false, 0 },
    { "ln_final.", "text_model.final_layer_norm.", false, 0 },
    { "text_projection.", "text_model.head.", false, 0 },
    { "logit_scale", "logit_scale", false, 1 },
    { "logit_bias", "logit_bias", false, 1 },
    { NULL, NULL, false, 0 },
};

static const rename_row timm_rows[] = {
    { "visual.class_embedding", "visual.trunk.cls_token", false, 2 },
    { "visual.ln_pre.", "visual.trunk.norm_pre.", false, 0 },
    { "visual.proj.0.", "visual.head.mlp.fc1.", false, 0 },
    { "visual.proj.2.", "visual.head.mlp.fc2.", false, 0 },
    { "visual.proj.", "visual.trunk.head.", false, 0 },
    { "visual.proj", "visual.head.proj.weight", true, 0 },
    { "visual.head.", "visual.trunk.head.", false, 0 },
    { "visual.stem.", "visual.trunk.stem.", false, 0 },
    { "visual.stages.", "visual.trunk.stages.", false, 0 },
    { "visual.positional_embedding", "visual.trunk.pos_embed", false, 1 },
    { "visual.conv1.", "visual.trunk.patch_embed.proj.", false, 0 },
    { "visual.ln_post.", "visual.trunk.norm.", false, 0 },
    { "visual.attn_pool.latent", "visual.trunk.attn_pool.latent", false, 2 },
    { "visual.attn_pool.attn.out_proj.", "visual.trunk.attn_pool.proj.", false, 0 },
    { "visual.attn_pool.ln_2.", "visual.trunk.attn_pool.norm.", false, 0 },
    { "visual.attn_pool.mlp.c_fc.", "visual.trunk.attn_pool.mlp.fc1.", false, 0 },
    { "visual.attn_pool.mlp.c_proj.", "visual.trunk.attn_pool.mlp.fc2.", false, 0 },
    { NULL, NULL, false, 0 },
};

/* Behind "text.transformer." or "text_model.". */
static const rename_row bert_block[] = {
    { "attn.out_proj.", "attention.output.dense.", false, 0 },
    { "ln_1.", "attention.output.LayerNorm.", false, 0 },
    { "ln_2.", "output.LayerNorm.", false, 0 },
    { "mlp.c_fc.", "intermediate.dense.", false, 0 },
    { "mlp.c_proj.", "output.dense.", false, 0 },
    { NULL, NULL, false, 0 },
};

/* Behind "vision_model.encoder.layer.N."; attention's matrices are apart, as in a BERT. */
static const rename_row hf_vit_block[] = {
    { "attn.out_proj.", "attention.output.dense.", false, 0 },
    { "ln_1.", "layernorm_before.", false, 0 },
    { "ln_2.", "layernorm_after.", false, 0 },
    { "mlp.c_fc.", "intermediate.dense.", false, 0 },
    { "mlp.c_proj.", "output.dense.", false, 0 },
    { NULL, NULL, false, 0 },
};

static const rename_row hf_vit_rows[] = {
    { "visual.class_embedding", "vision_model.embeddings.cls_token", false, 2 },
    { "visual.positional_embedding", "vision_model.embeddings.position_embeddings", false, 1 },
    { "visual.conv1.", "vision_model.embeddings.patch_embeddings.projection.", false, 0 },
    { "visual.ln_post.", "vision_model.layernorm.", false, 0 },
    { "visual.proj", "visual_projection.weight", true, 0 },
    { NULL, NULL, false, 0 },
};

static const rename_row bert_rows[] = {
    { "token_embedding.", "embeddings.word_embeddings.", false, 0 },
    { "positional_embedding", "embeddings.position_embeddings.weight", false, 0 },
    { "token_type_embedding", "embeddings.token_type_embeddings.weight", false, 0 },
    { "ln_pre.", "embeddings.LayerNorm.", false, 0 },
    { "pooler.", "pooler.dense.", false, 0 },
    { NULL, NULL, false, 0 },
};

/* Behind "vi_t_image_encoder" or "text_encoder". */
static const rename_row haiku_rows[] = {
    { "visual.class_embedding", ".class_embed", false, 0 },
    { "visual.conv1.weight", "/embed.w", false, 0 },
    { "visual.positional_embedding", "/pos_embed.w", false, 0 },
    { "visual.proj.weight", "/proj.w", true, 0 },
    { "visual.proj.bias", "/proj.b", false, 0 },
    { "token_embedding.weight", "/embed.embeddings", false, 0 },
    { "positional_embedding", "/pos_embed.w", false, 0 },
    { "text_projection.weight", "/proj.w", true, 0 },
    { "text_projection.bias", "/proj.b", false, 0 },
    { NULL, NULL, false, 0 },
};

static const rename_row haiku_block[] = {
    { "ln_1.weight", "self_attention/layer_norm.scale", false, 0 },
    { "ln_1.bias", "self_attention/layer_norm.offset", false, 0 },
    { "attn.out_proj.weight", "self_attention/multi_head_attention/linear.w", true, 0 },
    { "attn.out_proj.bias", "self_attention/multi_head_attention/linear.b", false, 0 },
    { "ln_2.weight", "feed_forward/layer_norm.scale", false, 0 },
    { "ln_2.bias", "feed_forward/layer_norm.offset", false, 0 },
    { "mlp.c_fc.weight", "feed_forward/linear_0.w", true, 0 },
    { "mlp.c_fc.bias", "feed_forward/linear_0.b", false, 0 },
    { "mlp.c_proj.weight", "feed_forward/linear_1.w", true, 0 },
    { "mlp.c_proj.bias", "feed_forward/linear_1.b", false, 0 },
    { NULL, NULL, false, 0 },
};

static const rename_row bert_projections[] = {
    { "text_projection.", "text.proj.", false, 0 },
    { "text_projection", "text.proj.weight", true, 0 },
    { NULL, NULL, false, 0 },
};

static const rename_row mclip_projection[] = {
    { "text_projection.", "LinearTransformation.", false, 0 },
    { NULL, NULL, false, 0 },
};

/* ---- applying them ------------------------------------------------------------------------------- */

static const char image_blocks[] = "visual.transformer.resblocks.", text_blocks[] = "transformer.resblocks.",
                  map_in[] = "visual.attn_pool.attn.in_proj_";

static const rename_row *find_row(const rename_row *row, const char *name)
{
    for (; row->from; row++)
        if (begins(name, row->from)) return row;
    return NULL;
}

static bool apply(const rename_row *rows, const char *canonical, foreign *out)
{
    const rename_row *row = find_row(rows, canonical);
    if (!row) return false;
    snprintf(out->name[0], NAME_BYTES, "%s%s", row->to, canonical + strlen(row->from));
    out->transposed = row->transposed;
    out->lead = row->lead;
    return true;
}

/* LAYERS and the number, then the rest by the table. */
static void rename_block(const rename_row *rows, const char *layers, const char *rest, foreign *out)
{
    int digits = (int)strspn(rest, "0123456789");
    const char *leaf = rest + digits + (rest[digits] == '.');
    const rename_row *row = find_row(rows, leaf);
    snprintf(out->name[0], NAME_BYTES, "%s%.*s.%s%s", layers, digits, rest, row ? row->to : "",
             row ? leaf + strlen(row->from) : leaf);
}

/* The same with the three matrices of attention apart, under names of their own. */
static void rename_split(const rename_row *rows, const char *const names[3], const char *layers, const char *rest,
                         foreign *out)
{
    int digits = (int)strspn(rest, "0123456789");
    const char *leaf = rest + digits + (rest[digits] == '.');
    if (!begins(leaf, "attn.in_proj_")) {
        rename_block(rows, layers, rest, out);
        return;
    }
    out->parts = 3;
    for (int i = 0; i < 3; i++) {
        out->share[i] = 2;
        snprintf(out->name[i], NAME_BYTES, "%s%.*s.%s.%s", layers, digits, rest, names[i],
                 leaf + strlen("attn.in_proj_"));
    }
}

static void rename_hf_block(const char *layers, const char *rest, foreign *out)
{
    static const char *const names[3] = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj" };
    rename_split(hf_block, names, layers, rest, out);
}

/* A BERT's tensor below `prefix`; false: it is none of its own. */
static bool bert(const char *prefix, const char *canonical, foreign *out)
{
    static const char *const names[3] = { "attention.self.query", "attention.self.key", "attention.self.value" };
    char layers[64];
    snprintf(layers, sizeof layers, "%sencoder.layer.", prefix);
    if (begins(canonical, text_blocks)) {
        rename_split(bert_block, names, layers, canonical + strlen(text_blocks), out);
        return true;
    }
    const rename_row *row = find_row(bert_rows, canonical);
    if (row) snprintf(out->name[0], NAME_BYTES, "%s%s%s", prefix, row->to, canonical + strlen(row->from));
    return row != NULL;
}

static bool hf(const rename_row *rows, const char *canonical, foreign *out)
{
    if (begins(canonical, image_blocks))
        rename_hf_block("vision_model.encoder.layers.", canonical + strlen(image_blocks), out);
    else if (begins(canonical, text_blocks))
        rename_hf_block("text_model.encoder.layers.", canonical + strlen(text_blocks), out);
    else return apply(rows, canonical, out);
    return true;
}

static bool hf_vit(const char *canonical, foreign *out)
{
    static const char *const names[3] = { "attention.attention.query", "attention.attention.key",
                                          "attention.attention.value" };
    if (!begins(canonical, image_blocks)) return apply(hf_vit_rows, canonical, out);
    rename_split(hf_vit_block, names, "vision_model.encoder.layer.", canonical + strlen(image_blocks), out);
    return true;
}

/* `parts` tensors in equal shares: PREFIX, one of the names, and TAIL. */
static void split(const char *prefix, int digits, const char *number, const char *const names[3], int parts,
                  const char *tail, foreign *out)
{
    out->parts = parts;
    for (int i = 0; i < parts; i++) {
        out->share[i] = 6 / parts;
        snprintf(out->name[i], NAME_BYTES, "%s%.*s.%s%s", prefix, digits, number, names[i], tail);
    }
}

/* EVA-02's blocks have q, k, v and both halves of the gate apart; EVA's others the biases of q and v. */
static void timm_blocks(const char *rest, bool eva, foreign *out)
{
    static const char trunk[] = "visual.trunk.blocks.";
    static const char *const qkv[3] = { "attn.q_proj.", "attn.k_proj.", "attn.v_proj." },
                             *const qv[3] = { "attn.q_proj.bias", "attn.v_proj.bias", NULL },
                             *const biases[3] = { "attn.q_bias", "attn.v_bias", NULL },
                             *const gate[3] = { "mlp.fc1_g.", "mlp.fc1_x.", NULL };
    int digits = (int)strspn(rest, "0123456789");
    const char *leaf = rest + digits + (rest[digits] == '.');
    if (begins(leaf, "attn.qv_bias")) split(trunk, digits, rest, eva ? qv : biases, 2, "", out);
    else if (eva && begins(leaf, "attn.in_proj_"))
        split(trunk, digits, rest, qkv, 3, leaf + strlen("attn.in_proj_"), out);
    else if (eva && begins(leaf, "mlp.c_fc.")) split(trunk, digits, rest, gate, 2, leaf + strlen("mlp.c_fc."), out);
    else rename_block(timm_block, trunk, rest, out);
}

/* timm keeps the query's projection of the pool apart from keys and values. */
static bool timm(const char *canonical, bool eva, foreign *out)
{
    if (begins(canonical, image_blocks)) timm_blocks(canonical + strlen(image_blocks), eva, out);
    else if (begins(canonical, map_in)) {
        out->parts = 2, out->share[0] = 2, out->share[1] = 4;
        for (int i = 0; i < 2; i++)
            snprintf(out->name[i], NAME_BYTES, "visual.trunk.attn_pool.%s.%s", i ? "kv" : "q",
                     canonical + strlen(map_in));
    } else return apply(timm_rows, canonical, out);
    return true;
}

static bool haiku(const char *module, const char *blocks, const char *canonical, foreign *out)
{
    static const char *const qkv[3] = { "query", "key", "value" };
    const rename_row *row = find_row(haiku_rows, canonical);
    if (row) snprintf(out->name[0], NAME_BYTES, "%s%s", module, row->to);
    if (row) out->transposed = row->transposed, out->last = strcmp(row->from, "visual.conv1.weight") == 0;
    if (row || !begins(canonical, blocks)) return row != NULL;
    const char *rest = canonical + strlen(blocks);
    int digits = (int)strspn(rest, "0123456789");
    const char *leaf = rest + digits + (rest[digits] == '.');
    bool matrix = begins(leaf, "attn.in_proj_weight");
    row = find_row(haiku_block, leaf);
    if (row) snprintf(out->name[0], NAME_BYTES, "%s/layer_%.*s/%s", module, digits, rest, row->to);
    if (row) out->transposed = row->transposed;
    if (row || !begins(leaf, "attn.in_proj_")) return row != NULL;
    out->parts = 3, out->transposed = matrix;
    for (int i = 0; i < 3; i++) {
        out->share[i] = 2;
        snprintf(out->name[i], NAME_BYTES, "%s/layer_%.*s/self_attention/multi_head_attention/%s.%c", module, digits,
                 rest, qkv[i], matrix ? 'w' : 'b');
    }
    return true;
}

const char *names_whose(weight_names n)
{
    static const char *const by_image[] = {
        NULL, "Hugging Face", "Hugging Face SigLIP", "open_clip with timm", "open_clip with timm", "crowsonkb's CLOOB"
    };
    if (n.image == IMAGE_NAMES_HF_VIT) return "rinna's Japanese CLIP";
    if (n.text == TEXT_NAMES_HF_BERT) return "Hugging Face ChineseCLIP";
    if (n.text == TEXT_NAMES_BERT) return "open_clip with transformers";
    if (n.text == TEXT_NAMES_MCLIP) return "M-CLIP";
    if (by_image[n.image]) return by_image[n.image];
    return n.text == TEXT_NAMES_JKU ? "JKU" : n.text == TEXT_NAMES_CUSTOM ? "open_clip custom text" : "OpenAI";
}

bool names_is_hf(weight_names n)
{
    return n.text == TEXT_NAMES_HF || n.text == TEXT_NAMES_HF_SIGLIP || n.text >= TEXT_NAMES_HF_BERT;
}

/* False: the name is the canonical one. */
static bool image_name(image_names n, const char *canonical, foreign *out)
{
    if (n == IMAGE_NAMES_OPENAI) return false;
    if (n == IMAGE_NAMES_HAIKU) return haiku("vi_t_image_encoder", image_blocks, canonical, out);
    if (n == IMAGE_NAMES_HF_VIT) return hf_vit(canonical, out);
    if (n == IMAGE_NAMES_TIMM || n == IMAGE_NAMES_EVA) return timm(canonical, n == IMAGE_NAMES_EVA, out);
    return hf(n == IMAGE_NAMES_HF ? hf_rows : hf_siglip_rows, canonical, out);
}

static bool text_name(text_names n, const char *canonical, foreign *out)
{
    if (n == TEXT_NAMES_BERT)
        return bert("text.transformer.", canonical, out) || apply(bert_projections, canonical, out);
    if (n == TEXT_NAMES_MCLIP) return bert("transformer.", canonical, out) || apply(mclip_projection, canonical, out);
    if (n == TEXT_NAMES_HAIKU) return haiku("text_encoder", text_blocks, canonical, out);
    if (n == TEXT_NAMES_HF_BERT) return bert("text_model.", canonical, out) || hf(hf_rows, canonical, out);
    if (n == TEXT_NAMES_HF || n == TEXT_NAMES_HF_SIGLIP)
        return hf(n == TEXT_NAMES_HF ? hf_rows : hf_siglip_rows, canonical, out);
    if (n == TEXT_NAMES_OPENAI || !is_text(canonical)) return false;
    snprintf(out->name[0], NAME_BYTES, "%s%s", n == TEXT_NAMES_JKU ? "transformer." : "text.", canonical);
    return true;
}

void names_foreign(weight_names n, const char *canonical, foreign *out)
{
    *out = (foreign){ .parts = 1, .share = { 6 } };
    bool image = begins(canonical, "visual.");
    if (n.text == TEXT_NAMES_JKU && strcmp(canonical, "logit_scale") == 0) canonical = "logit_inv_tau";
    if (image ? image_name(n.image, canonical, out) : text_name(n.text, canonical, out)) return;
    snprintf(out->name[0], NAME_BYTES, "%s", canonical);
}
