/* Table of built-in models: open_clip's plain ResNets and ViTs, CLIPA, MetaCLIP (worldwide), SigLIP, SigLIP 2, and the
 * small models of demos and tests. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "model/config.h"

/* Differences from CLIP with GELU, as flags. */
enum {
    QUICK = 1,           /* QuickGELU, as in OpenAI's models */
    CLIPA = 2,           /* no ln_pre, mean of the patches followed by the layer norm; texts without causal mask, pooled
                          * at the last token */
    SCALED = 4,          /* layer scale in the image tower */
    EOS_1 = 8,           /* the text is pooled at the token with this id */
    EOS_2 = 16,          /**/
    SIGLIP = 32,         /* model_config_set_siglip */
    IMAGE_TANH = 64,     /* tanh GELU */
    TEXT_TANH = 128,     /**/
    NO_PROJECTION = 256, /* no text projection */
    ROBERTA = 512,       /* a RoBERTa text tower; its sizes are in `berts` */
    XLM_BASE = 1024,     /**/
    XLM_LARGE = 2048,    /**/
    CROWSON = 4096       /* model_config_set_crowson */
};

typedef struct builtin {
    const char *name;
    unsigned kind;
    int64_t embed, image_size, layers[4], width, patch, head, inner; /* inner 0: four times the width */
    int64_t context, vocab, text_width, text_heads, text_layers, text_inner;
} builtin;

/* clang-format off */
static const builtin table[] = {
    { "RN50", QUICK, 1024, 224, { 3, 4, 6, 3 }, 64, 0, 64, 0, 77, 49408, 512, 8, 12, 0 },
    { "RN101", QUICK, 512, 224, { 3, 4, 23, 3 }, 64, 0, 64, 0, 77, 49408, 512, 8, 12, 0 },
    { "RN50x4", QUICK, 640, 288, { 4, 6, 10, 6 }, 80, 0, 64, 0, 77, 49408, 640, 10, 12, 0 },
    { "RN50x16", QUICK, 768, 384, { 6, 8, 18, 8 }, 96, 0, 64, 0, 77, 49408, 768, 12, 12, 0 },
    { "RN50x64", QUICK, 1024, 448, { 3, 15, 36, 10 }, 128, 0, 64, 0, 77, 49408, 1024, 16, 12, 0 },
    { "ViT-B-32", QUICK, 512, 224, { 12 }, 768, 32, 64, 0, 77, 49408, 512, 8, 12, 0 },
    { "ViT-B-16", QUICK, 512, 224, { 12 }, 768, 16, 64, 0, 77, 49408, 512, 8, 12, 0 },
    { "ViT-L-14", QUICK, 768, 224, { 24 }, 1024, 14, 64, 0, 77, 49408, 768, 12, 12, 0 },
    { "ViT-L-14-336", QUICK, 768, 336, { 24 }, 1024, 14, 64, 0, 77, 49408, 768, 12, 12, 0 },
    { "ViT-S-16", 0, 384, 224, { 12 }, 384, 16, 64, 0, 77, 49408, 384, 6, 12, 0 },
    { "ViT-S-16-alt", 0, 256, 224, { 12 }, 384, 16, 64, 0, 77, 49408, 256, 4, 10, 0 },
    { "ViT-S-32", 0, 384, 224, { 12 }, 384, 32, 64, 0, 77, 49408, 384, 6, 12, 0 },
    { "ViT-S-32-alt", 0, 256, 224, { 12 }, 384, 32, 64, 0, 77, 49408, 256, 4, 10, 0 },
    { "ViT-M-16", 0, 512, 224, { 12 }, 512, 16, 64, 0, 77, 49408, 512, 8, 12, 0 },
    { "ViT-M-16-alt", SCALED, 384, 224, { 12 }, 512, 16, 64, 0, 77, 49408, 384, 6, 12, 0 },
    { "ViT-M-32", 0, 512, 224, { 12 }, 512, 32, 64, 0, 77, 49408, 512, 8, 12, 0 },
    { "ViT-M-32-alt", 0, 384, 224, { 12 }, 512, 32, 64, 0, 77, 49408, 384, 6, 12, 0 },
    { "ViT-B-32-256", 0, 512, 256, { 12 }, 768, 32, 64, 0, 77, 49408, 512, 8, 12, 0 },
    { "ViT-B-32-plus-256", 0, 640, 256, { 12 }, 896, 32, 64, 0, 77, 49408, 640, 10, 12, 0 },
    { "ViT-B-16-plus", 0, 640, 224, { 12 }, 896, 16, 64, 0, 77, 49408, 640, 10, 12, 0 },
    { "ViT-B-16-plus-240", 0, 640, 240, { 12 }, 896, 16, 64, 0, 77, 49408, 640, 10, 12, 0 },
    { "ViT-L-14-280", 0, 768, 280, { 24 }, 1024, 14, 64, 0, 77, 49408, 768, 12, 12, 0 },
    { "ViT-L-16", 0, 768, 224, { 24 }, 1024, 16, 64, 0, 77, 49408, 768, 12, 12, 0 },
    { "ViT-L-16-320", 0, 768, 320, { 24 }, 1024, 16, 64, 0, 77, 49408, 768, 12, 12, 0 },
    { "ViT-H-14", 0, 1024, 224, { 32 }, 1280, 14, 80, 0, 77, 49408, 1024, 16, 24, 0 },
    { "ViT-H-14-378", 0, 1024, 378, { 32 }, 1280, 14, 80, 0, 77, 49408, 1024, 16, 24, 0 },
    { "ViT-H-16", 0, 1024, 224, { 32 }, 1280, 16, 80, 0, 77, 49408, 1024, 16, 24, 0 },
    { "ViT-g-14", 0, 1024, 224, { 40 }, 1408, 14, 88, 6144, 77, 49408, 1024, 16, 24, 0 },
    { "ViT-bigG-14", 0, 1280, 224, { 48 }, 1664, 14, 104, 8192, 77, 49408, 1280, 20, 32, 0 },
    { "ViT-e-14", 0, 1280, 224, { 56 }, 1792, 14, 112, 15360, 77, 49408, 1280, 20, 36, 0 },
    { "ViT-L-14-CLIPA", CLIPA, 768, 224, { 24 }, 1024, 14, 64, 0, 32, 32000, 768, 12, 12, 0 },
    { "ViT-L-14-CLIPA-336", CLIPA, 768, 336, { 24 }, 1024, 14, 64, 0, 32, 32000, 768, 12, 12, 0 },
    { "ViT-H-14-CLIPA", CLIPA, 1024, 224, { 32 }, 1280, 14, 80, 0, 32, 32000, 1024, 16, 24, 0 },
    { "ViT-H-14-CLIPA-336", CLIPA, 1024, 336, { 32 }, 1280, 14, 80, 0, 32, 32000, 1024, 16, 24, 0 },
    { "ViT-bigG-14-CLIPA", CLIPA, 1280, 224, { 48 }, 1664, 14, 104, 8192, 32, 32000, 1280, 20, 32, 0 },
    { "ViT-bigG-14-CLIPA-336", CLIPA, 1280, 336, { 48 }, 1664, 14, 104, 8192, 32, 32000, 1280, 20, 32, 0 },
    { "ViT-L-14-worldwide", EOS_1, 768, 224, { 24 }, 1024, 14, 64, 0, 77, 250100, 768, 12, 12, 0 },
    { "ViT-H-14-worldwide", EOS_2, 1024, 224, { 32 }, 1280, 14, 80, 0, 77, 901629, 1024, 16, 24, 0 },
    { "ViT-H-14-worldwide-378", EOS_2, 1024, 378, { 32 }, 1280, 14, 80, 0, 77, 901629, 1024, 16, 24, 0 },
    { "ViT-bigG-14-worldwide", EOS_2, 1280, 224, { 48 }, 1664, 14, 104, 8192, 77, 901629, 1280, 20, 32, 0 },
    { "ViT-bigG-14-worldwide-378", EOS_2, 1280, 378, { 48 }, 1664, 14, 104, 8192, 77, 901629, 1280, 20, 32, 0 },
    { "ViT-SO400M-14-SigLIP", SIGLIP, 1152, 224, { 27 }, 1152, 14, 72, 4304, 16, 32000, 1152, 16, 27, 4304 },
    { "ViT-SO400M-14-SigLIP-378", SIGLIP, 1152, 378, { 27 }, 1152, 14, 72, 4304, 64, 32000, 1152, 16, 27, 4304 },
    { "ViT-SO400M-14-SigLIP-384", SIGLIP, 1152, 384, { 27 }, 1152, 14, 72, 4304, 64, 32000, 1152, 16, 27, 4304 },
    { "ViT-SO400M-16-SigLIP-i18n-256", SIGLIP | IMAGE_TANH | NO_PROJECTION, 1152, 256, { 27 }, 1152, 16, 72, 4304, 64, 250000, 1152, 16, 27, 4304 },
    { "ViT-B-16-SigLIP", SIGLIP, 768, 224, { 12 }, 768, 16, 64, 0, 64, 32000, 768, 12, 12, 0 },
    { "ViT-B-16-SigLIP-256", SIGLIP, 768, 256, { 12 }, 768, 16, 64, 0, 64, 32000, 768, 12, 12, 0 },
    { "ViT-B-16-SigLIP-384", SIGLIP, 768, 384, { 12 }, 768, 16, 64, 0, 64, 32000, 768, 12, 12, 0 },
    { "ViT-B-16-SigLIP-512", SIGLIP, 768, 512, { 12 }, 768, 16, 64, 0, 64, 32000, 768, 12, 12, 0 },
    { "ViT-B-16-SigLIP-i18n-256", SIGLIP, 768, 256, { 12 }, 768, 16, 64, 0, 64, 250000, 768, 12, 12, 0 },
    { "ViT-L-16-SigLIP-256", SIGLIP, 1024, 256, { 24 }, 1024, 16, 64, 0, 64, 32000, 1024, 16, 24, 0 },
    { "ViT-L-16-SigLIP-384", SIGLIP, 1024, 384, { 24 }, 1024, 16, 64, 0, 64, 32000, 1024, 16, 24, 0 },
    { "ViT-SO400M-14-SigLIP2", SIGLIP | TEXT_TANH, 1152, 224, { 27 }, 1152, 14, 72, 4304, 64, 256000, 1152, 16, 27, 4304 },
    { "ViT-SO400M-14-SigLIP2-378", SIGLIP | TEXT_TANH, 1152, 378, { 27 }, 1152, 14, 72, 4304, 64, 256000, 1152, 16, 27, 4304 },
    { "ViT-SO400M-16-SigLIP2-256", SIGLIP | IMAGE_TANH | TEXT_TANH, 1152, 256, { 27 }, 1152, 16, 72, 4304, 64, 256000, 1152, 16, 27, 4304 },
    { "ViT-SO400M-16-SigLIP2-384", SIGLIP | IMAGE_TANH | TEXT_TANH, 1152, 384, { 27 }, 1152, 16, 72, 4304, 64, 256000, 1152, 16, 27, 4304 },
    { "ViT-SO400M-16-SigLIP2-512", SIGLIP | IMAGE_TANH | TEXT_TANH, 1152, 512, { 27 }, 1152, 16, 72, 4304, 64, 256000, 1152, 16, 27, 4304 },
    { "ViT-B-32-SigLIP2-256", SIGLIP | IMAGE_TANH | TEXT_TANH, 768, 256, { 12 }, 768, 32, 64, 0, 64, 256000, 768, 12, 12, 0 },
    { "ViT-B-16-SigLIP2", SIGLIP | TEXT_TANH, 768, 224, { 12 }, 768, 16, 64, 0, 64, 256000, 768, 12, 12, 0 },
    { "ViT-B-16-SigLIP2-256", SIGLIP | TEXT_TANH, 768, 256, { 12 }, 768, 16, 64, 0, 64, 256000, 768, 12, 12, 0 },
    { "ViT-B-16-SigLIP2-384", SIGLIP | TEXT_TANH, 768, 384, { 12 }, 768, 16, 64, 0, 64, 256000, 768, 12, 12, 0 },
    { "ViT-B-16-SigLIP2-512", SIGLIP | TEXT_TANH, 768, 512, { 12 }, 768, 16, 64, 0, 64, 256000, 768, 12, 12, 0 },
    { "ViT-L-16-SigLIP2-256", SIGLIP | TEXT_TANH, 1024, 256, { 24 }, 1024, 16, 64, 0, 64, 256000, 1024, 16, 24, 0 },
    { "ViT-L-16-SigLIP2-384", SIGLIP | TEXT_TANH, 1024, 384, { 24 }, 1024, 16, 64, 0, 64, 256000, 1024, 16, 24, 0 },
    { "ViT-L-16-SigLIP2-512", SIGLIP | IMAGE_TANH | TEXT_TANH, 1024, 512, { 24 }, 1024, 16, 64, 0, 64, 256000, 1024, 16, 24, 0 },
    { "ViT-gopt-16-SigLIP2-256", SIGLIP | IMAGE_TANH | TEXT_TANH, 1536, 256, { 40 }, 1536, 16, 96, 0, 64, 256000, 1152, 16, 27, 4304 },
    { "ViT-gopt-16-SigLIP2-384", SIGLIP | IMAGE_TANH | TEXT_TANH, 1536, 384, { 40 }, 1536, 16, 96, 0, 64, 256000, 1152, 16, 27, 4304 },
    { "roberta-ViT-B-32", QUICK | ROBERTA, 512, 224, { 12 }, 768, 32, 64, 0, 77, 0, 0, 0, 0, 0 },
    { "xlm-roberta-base-ViT-B-32", XLM_BASE, 512, 224, { 12 }, 768, 32, 64, 0, 77, 0, 0, 0, 0, 0 },
    { "xlm-roberta-large-ViT-H-14", XLM_LARGE, 1024, 224, { 32 }, 1280, 14, 80, 0, 77, 0, 0, 0, 0, 0 },
    { "cloob_laion_400m_vit_b_16", CROWSON, 512, 224, { 12 }, 768, 16, 64, 0, 77, 49408, 512, 8, 12, 0 },
    /* `tiny` is the model of the demo: it trains on two cores at 64 px */
    { "tiny", QUICK, 128, 64, { 1, 3, 3, 1 }, 16, 0, 64, 0, 24, 2048, 64, 2, 2, 0 },
    { "tiny-rn", QUICK, 24, 64, { 1, 2, 1, 1 }, 8, 0, 64, 0, 12, 96, 16, 2, 2, 0 },
    { "tiny-vit", QUICK, 24, 32, { 2 }, 128, 8, 64, 0, 12, 96, 16, 2, 2, 0 },
};
/* clang-format on */
enum { TABLE_ROWS = sizeof table / sizeof table[0] };

static void set_kind(model_config *c, unsigned kind)
{
    model_config_set_act(c, kind & QUICK ? ACT_QUICKGELU : ACT_GELU);
    if (kind & SIGLIP) model_config_set_siglip(c, ACT_GELU);
    if (kind & CROWSON) model_config_set_crowson(c);
    if (kind & CLIPA) {
        c->no_ln_pre = c->norm_after_pool = c->no_causal_mask = true;
        c->image_pool = IMAGE_POOL_MEAN;
        c->text_pool = TEXT_POOL_LAST;
    }
    if (kind & (EOS_1 | EOS_2)) c->text_pool = TEXT_POOL_EOS, c->eos = kind & EOS_1 ? 1 : 2;
    if (kind & SCALED) c->image.layer_scale = 1e-4;
    if (kind & IMAGE_TANH) c->image.act = ACT_GELU_TANH;
    if (kind & TEXT_TANH) c->text.act = ACT_GELU_TANH;
    if (kind & NO_PROJECTION) c->no_text_projection = true, c->text_projection_bias = false;
}

static void from_builtin(const builtin *b, model_config *c)
{
    model_config_init(c);
    snprintf(c->name, sizeof c->name, "%s", b->name);
    c->family = b->layers[1] ? MODEL_RESNET : MODEL_VIT;
    c->embed = b->embed;
    c->image_size = b->image_size;
    memcpy(c->layers, b->layers, sizeof b->layers);
    c->width = b->width;
    c->patch = b->patch;
    c->image_heads = model_config_image_attention_width(c) / b->head;
    c->image.inner = b->inner;
    c->context = b->context;
    c->vocab = b->vocab;
    c->text_width = b->text_width;
    c->text_heads = b->text_heads;
    c->text_layers = b->text_layers;
    c->text.inner = b->text_inner;
    set_kind(c, b->kind);
    if (!(b->kind & (ROBERTA | XLM_BASE | XLM_LARGE))) return;
    model_config_bert_by_name(b->kind & ROBERTA    ? "roberta-base"
                              : b->kind & XLM_BASE ? "xlm-roberta-base"
                                                   : "xlm-roberta-large",
                              c);
    c->text_pool = TEXT_POOL_MEAN;
    c->text_projection_hidden = (c->text_width + c->embed) / 2;
}

/* ---- all built-in models: these rows, then those of config_timm.c ------------------------------------ */

static const char *row_name(int i)
{
    const char *name = NULL;
    if (i < TABLE_ROWS) return table[i].name;
    return model_config_timm_model(i - TABLE_ROWS, &name, NULL) ? name : NULL;
}

static bool row_config(int i, model_config *c)
{
    const char *name;
    if (i >= TABLE_ROWS) return model_config_timm_model(i - TABLE_ROWS, &name, c);
    from_builtin(&table[i], c);
    return true;
}

/* ---- by name ------------------------------------------------------------------------------------- */

/* Normalises a model name to lower-case letters and digits, so that "ViT-B/32", "vit_b_32" and "ViT-B-32" are equal. */
static void normalize_name(const char *name, char *out, size_t size)
{
    size_t n = 0;
    for (; *name && n + 1 < size; name++)
        if (isalnum((unsigned char)*name)) out[n++] = (char)tolower((unsigned char)*name);
    out[n] = '\0';
}

/* Index of the row with a normalised name; -1: unknown. */
static int find(const char *wanted)
{
    char have[64];
    for (int i = 0; row_name(i); i++) {
        normalize_name(row_name(i), have, sizeof have);
        if (strcmp(wanted, have) == 0) return i;
    }
    return -1;
}

/* Length of the common prefix of two names. */
static int common_prefix(const char *a, const char *b)
{
    int n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

/* Lists the names that share the longest prefix with an unknown one, in table order; nothing if only the first letter
 * is shared. */
static void list_nearest(const char *wanted, char *out, size_t size)
{
    enum { SHOWN = 12, SIMILAR = 2 };
    char have[64];
    int best = SIMILAR, shown = 0;
    size_t n = 0;
    for (int i = 0; row_name(i); i++) {
        normalize_name(row_name(i), have, sizeof have);
        if (common_prefix(wanted, have) > best) best = common_prefix(wanted, have);
    }
    for (int i = 0; row_name(i) && n < size && shown < SHOWN; i++) {
        normalize_name(row_name(i), have, sizeof have);
        if (common_prefix(wanted, have) < best) continue;
        n += (size_t)snprintf(out + n, size - n, "%s%s", shown++ ? ", " : "", row_name(i));
    }
}

/* Index of the row for a name, and whether it has the suffix "quickgelu"; -1: unknown. wanted: receives the normalised
 * name. */
static int resolve(const char *name, char wanted[64], bool *quick)
{
    normalize_name(name, wanted, 64);
    size_t n = strlen(wanted), tail = strlen("quickgelu");
    *quick = n > tail && strcmp(wanted + n - tail, "quickgelu") == 0;
    if (*quick) wanted[n - tail] = '\0';
    return find(wanted);
}

cloob_status model_config_by_name(cloob_ctx *ctx, const char *name, model_config *c)
{
    char wanted[64], near[512] = "";
    bool quick;
    int row = resolve(name, wanted, &quick);
    if (row >= 0) {
        row_config(row, c);
        if (quick) model_config_set_act(c, ACT_QUICKGELU);
        return CLOOB_OK;
    }
    list_nearest(wanted, near, sizeof near);
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "unknown model \"%.100s\"; %s%s%s (all names: docs/reference/models.md)",
                    name, *near ? "similar names: " : "", near,
                    *near ? "; use one of them or the path of a .json file"
                          : "use a name such as RN50 or ViT-B-32, or the path of a .json file");
}

bool model_config_known(const char *name)
{
    char wanted[64];
    bool quick;
    return resolve(name, wanted, &quick) >= 0;
}

const char *model_config_name(int i) { return i >= 0 ? row_name(i) : NULL; }

/* ---- text models of transformers named in open_clip's configurations -------------------------------- */

typedef struct bert_row {
    const char *name; /* the part after the last "/" */
    int64_t vocab, width, layers;
    bool roberta; /* positions start at pad + 1, one token type, padding id 1 */
} bert_row;

static const bert_row berts[] = {
    { "roberta-base", 50265, 768, 12, true },
    { "roberta-large", 50265, 1024, 24, true },
    { "xlm-roberta-base", 250002, 768, 12, true },
    { "xlm-roberta-large", 250002, 1024, 24, true },
    { "bert-base-uncased", 30522, 768, 12, false },
    { "bert-large-uncased", 30522, 1024, 24, false },
    { "bert-base-cased", 28996, 768, 12, false },
    { "bert-base-multilingual-cased", 119547, 768, 12, false },
    { "bert-base-chinese", 21128, 768, 12, false },
    { "LaBSE", 501153, 768, 12, false },
    { "BiomedNLP-BiomedBERT-base-uncased-abstract", 30522, 768, 12, false },
    { "BiomedNLP-PubMedBERT-base-uncased-abstract", 30522, 768, 12, false },
    { "BiomedNLP-BiomedBERT-base-uncased-abstract-fulltext", 30522, 768, 12, false },
    { "BiomedNLP-PubMedBERT-base-uncased-abstract-fulltext", 30522, 768, 12, false },
};

bool model_config_bert_by_name(const char *name, model_config *c)
{
    const char *slash = strrchr(name, '/');
    for (size_t i = 0; i < sizeof berts / sizeof *berts; i++) {
        const bert_row *b = &berts[i];
        if (strcmp(slash ? slash + 1 : name, b->name) != 0) continue;
        model_config_set_bert(c);
        c->vocab = b->vocab, c->text_width = b->width, c->text_layers = b->layers, c->text_heads = b->width / 64;
        c->text.eps = b->roberta ? 1e-5 : 1e-12;
        c->bert = b->roberta ? (model_bert){ .positions = 514, .first = 2, .types = 1, .pad = 1 }
                             : (model_bert){ .positions = 512, .types = 2 };
        snprintf(c->bert.name, sizeof c->bert.name, "%s", name);
        return true;
    }
    return false;
}

/* ---- by sizes ------------------------------------------------------------------------------------ */

static bool same_sizes(const model_config *c, const model_config *b)
{
    return c->family == b->family && c->embed == b->embed && c->image_size == b->image_size && c->width == b->width &&
           memcmp(c->layers, b->layers, sizeof b->layers) == 0 && c->patch == b->patch && c->context == b->context &&
           c->vocab == b->vocab && c->text_width == b->text_width && c->text_layers == b->text_layers &&
           c->image.inner == b->image.inner && c->text.inner == b->text.inner;
}

/* Compares the other properties that tensor names and shapes determine. */
static bool same_parts(const model_config *c, const model_config *b)
{
    return c->no_class_token == b->no_class_token && c->no_ln_pre == b->no_ln_pre &&
           (c->image_pool == IMAGE_POOL_MAP) == (b->image_pool == IMAGE_POOL_MAP) &&
           c->no_text_projection == b->no_text_projection && !c->image.layer_scale == !b->image.layer_scale &&
           c->bert.positions == b->bert.positions && strcmp(c->timm, b->timm) == 0 && c->patch_bias == b->patch_bias &&
           c->position_side == b->position_side && c->text_projection_hidden == b->text_projection_hidden;
}

bool model_config_match(const model_config *c, model_config *known)
{
    for (int i = 0; row_config(i, known); i++) {
        if (same_sizes(c, known) && same_parts(c, known)) return true;
    }
    return false;
}
