/* What a tensor with a canonical name is called in other programs' files; used for reading and for writing.
 *
 *     foreign f;
 *     names_foreign(NAMES_HF, "transformer.resblocks.0.attn.in_proj_weight", &f);
 *     f.parts == 3: f.name[0] "text_model.encoder.layers.0.self_attn.q_proj.weight", then k, then v */
#ifndef MODEL_NAMES_H
#define MODEL_NAMES_H

#include <stdbool.h>

typedef enum weight_names {
    NAMES_OPENAI,      /* the canonical ones: OpenAI, open_clip and cloob */
    NAMES_JKU,         /* the authors': text tower below "transformer.", logit_inv_tau */
    NAMES_CUSTOM_TEXT, /* open_clip's custom-text models: text tower below "text." */
    NAMES_HF,          /* Hugging Face's CLIPModel and MetaClip2Model */
    NAMES_HF_SIGLIP,   /* its SiglipModel */
    NAMES_TIMM         /* open_clip's SigLIP: the image tower is timm's, the text tower is below "text." */
} weight_names;

enum { NAME_BYTES = 192, NAME_PARTS = 3 };

typedef struct foreign {
    int parts;             /* above 1: the canonical tensor is these, stacked along its first dimension */
    int share[NAME_PARTS]; /* of the rows, in thirds, where there are parts */
    int lead;              /* dimensions of 1 in front of the canonical ones */
    bool transposed;       /* of two dimensions */
    char name[NAME_PARTS][NAME_BYTES];
} foreign;

/* "OpenAI", "Hugging Face", ... for reports. */
const char *names_whose(weight_names n);

void names_foreign(weight_names n, const char *canonical, foreign *out);

#endif
