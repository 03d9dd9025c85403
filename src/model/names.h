/* What a tensor with a canonical name is called in other programs' files; used for reading and for writing.
 *
 *     foreign f;
 *     names_foreign(NAMES_HF, "transformer.resblocks.0.attn.in_proj_weight", &f);
 *     f.parts == 3: f.name[0] "text_model.encoder.layers.0.self_attn.q_proj.weight", then k, then v */
#ifndef MODEL_NAMES_H
#define MODEL_NAMES_H

#include <stdbool.h>

typedef enum weight_names {
    NAMES_OPENAI,      /* the canonical ones; OpenAI, open_clip, and ours */
    NAMES_JKU,         /* the authors': text tower below "transformer.", logit_inv_tau */
    NAMES_CUSTOM_TEXT, /* open_clip's custom-text models: text tower below "text." */
    NAMES_HF           /* Hugging Face's CLIPModel */
} weight_names;

enum { NAME_BYTES = 192, NAME_PARTS = 3 };

typedef struct foreign {
    int parts;       /* 3: the canonical tensor is these, stacked along its first dimension */
    bool transposed; /* of two dimensions */
    char name[NAME_PARTS][NAME_BYTES];
} foreign;

void names_foreign(weight_names n, const char *canonical, foreign *out);

#endif
