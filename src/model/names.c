/* Canonical names in the spelling of others. */
#include "model/names.h"

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

static const rename_row timm_block[] = {
    { "attn.in_proj_", "attn.qkv.", false, 0 },
    { "attn.out_proj.", "attn.proj.", false, 0 },
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

static void rename_hf_block(const char *layers, const char *rest, foreign *out)
{
    static const char letter[] = "qkv";
    int digits = (int)strspn(rest, "0123456789");
    const char *leaf = rest + digits + (rest[digits] == '.');
    if (!begins(leaf, "attn.in_proj_")) {
        rename_block(hf_block, layers, rest, out);
        return;
    }
    out->parts = 3;
    for (int i = 0; i < 3; i++) {
        out->share[i] = 1;
        snprintf(out->name[i], NAME_BYTES, "%s%.*s.self_attn.%c_proj.%s", layers, digits, rest, letter[i],
                 leaf + strlen("attn.in_proj_"));
    }
}

static void hf(const rename_row *rows, const char *canonical, foreign *out)
{
    if (begins(canonical, image_blocks))
        rename_hf_block("vision_model.encoder.layers.", canonical + strlen(image_blocks), out);
    else if (begins(canonical, text_blocks))
        rename_hf_block("text_model.encoder.layers.", canonical + strlen(text_blocks), out);
    else if (!apply(rows, canonical, out)) snprintf(out->name[0], NAME_BYTES, "%s", canonical);
}

/* timm keeps the query's projection of the pool apart from keys and values. */
static void timm(const char *canonical, foreign *out)
{
    if (begins(canonical, image_blocks))
        rename_block(timm_block, "visual.trunk.blocks.", canonical + strlen(image_blocks), out);
    else if (begins(canonical, map_in)) {
        out->parts = 2, out->share[0] = 1, out->share[1] = 2;
        for (int i = 0; i < 2; i++)
            snprintf(out->name[i], NAME_BYTES, "visual.trunk.attn_pool.%s.%s", i ? "kv" : "q",
                     canonical + strlen(map_in));
    } else if (!apply(timm_rows, canonical, out))
        snprintf(out->name[0], NAME_BYTES, "%s%s", is_text(canonical) ? "text." : "", canonical);
}

const char *names_whose(weight_names n)
{
    static const char *const whose[] = {
        "OpenAI", "JKU", "open_clip custom text", "Hugging Face", "Hugging Face SigLIP", "open_clip SigLIP"
    };
    return whose[n];
}

void names_foreign(weight_names n, const char *canonical, foreign *out)
{
    const char *prefix = n == NAMES_JKU ? "transformer." : n == NAMES_CUSTOM_TEXT ? "text." : "";
    *out = (foreign){ .parts = 1, .share = { 3 } };
    if (n == NAMES_HF || n == NAMES_HF_SIGLIP) hf(n == NAMES_HF ? hf_rows : hf_siglip_rows, canonical, out);
    else if (n == NAMES_TIMM) timm(canonical, out);
    else if (n == NAMES_JKU && strcmp(canonical, "logit_scale") == 0)
        snprintf(out->name[0], NAME_BYTES, "logit_inv_tau");
    else snprintf(out->name[0], NAME_BYTES, "%s%s", is_text(canonical) ? prefix : "", canonical);
}
