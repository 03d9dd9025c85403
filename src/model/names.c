/* Canonical names in the spelling of others. */
#include "model/names.h"

#include <stdio.h>
#include <string.h>

static bool begins(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* Everything that is neither image tower nor a scalar of the objective. */
static bool is_text(const char *canonical) { return !begins(canonical, "visual.") && !begins(canonical, "logit_"); }

/* ---- Hugging Face -------------------------------------------------------------------------------- */

typedef struct rename_row {
    const char *from, *to; /* beginnings; what follows is kept */
    bool transposed;
} rename_row;

/* Inside a block. in_proj_ is the one that falls into three. */
static const rename_row block_rows[] = {
    { "attn.out_proj.", "self_attn.out_proj.", false },
    { "ln_1.", "layer_norm1.", false },
    { "ln_2.", "layer_norm2.", false },
    { "mlp.c_fc.", "mlp.fc1.", false },
    { "mlp.c_proj.", "mlp.fc2.", false },
    { NULL, NULL, false },
};

static const rename_row hf_rows[] = {
    { "visual.class_embedding", "vision_model.embeddings.class_embedding", false },
    { "visual.positional_embedding", "vision_model.embeddings.position_embedding.weight", false },
    { "visual.conv1.", "vision_model.embeddings.patch_embedding.", false },
    { "visual.ln_pre.", "vision_model.pre_layrnorm.", false }, /* spelled so by its authors */
    { "visual.ln_post.", "vision_model.post_layernorm.", false },
    { "visual.proj", "visual_projection.weight", true },
    { "token_embedding.", "text_model.embeddings.token_embedding.", false },
    { "positional_embedding", "text_model.embeddings.position_embedding.weight", false },
    { "ln_final.", "text_model.final_layer_norm.", false },
    { "text_projection", "text_projection.weight", true },
    { NULL, NULL, false },
};

static const rename_row *find_row(const rename_row *row, const char *name)
{
    for (; row->from; row++)
        if (begins(name, row->from)) return row;
    return NULL;
}

static void hf_block(const char *layers, const char *rest, foreign *out)
{
    static const char letter[] = "qkv";
    int digits = (int)strspn(rest, "0123456789");
    const char *leaf = rest + digits + (rest[digits] == '.');
    const rename_row *row = find_row(block_rows, leaf);
    if (begins(leaf, "attn.in_proj_")) {
        out->parts = 3;
        for (int i = 0; i < 3; i++)
            snprintf(out->name[i], NAME_BYTES, "%s%.*s.self_attn.%c_proj.%s", layers, digits, rest, letter[i],
                     leaf + strlen("attn.in_proj_"));
    } else
        snprintf(out->name[0], NAME_BYTES, "%s%.*s.%s%s", layers, digits, rest, row ? row->to : "",
                 row ? leaf + strlen(row->from) : leaf);
}

static void hf(const char *canonical, foreign *out)
{
    static const char image[] = "visual.transformer.resblocks.", text[] = "transformer.resblocks.";
    const rename_row *row = find_row(hf_rows, canonical);
    if (begins(canonical, image)) hf_block("vision_model.encoder.layers.", canonical + strlen(image), out);
    else if (begins(canonical, text)) hf_block("text_model.encoder.layers.", canonical + strlen(text), out);
    else if (row) {
        snprintf(out->name[0], NAME_BYTES, "%s%s", row->to, canonical + strlen(row->from));
        out->transposed = row->transposed;
    } else snprintf(out->name[0], NAME_BYTES, "%s", canonical);
}

/* ---- all ----------------------------------------------------------------------------------------- */

void names_foreign(weight_names n, const char *canonical, foreign *out)
{
    const char *prefix = n == NAMES_JKU ? "transformer." : n == NAMES_CUSTOM_TEXT ? "text." : "";
    *out = (foreign){ .parts = 1 };
    if (n == NAMES_HF) hf(canonical, out);
    else if (n == NAMES_JKU && strcmp(canonical, "logit_scale") == 0)
        snprintf(out->name[0], NAME_BYTES, "logit_inv_tau");
    else snprintf(out->name[0], NAME_BYTES, "%s%s", is_text(canonical) ? prefix : "", canonical);
}
