/* Groups from names. */
#include "model/tuning/groups.h"

#include <stdlib.h>
#include <string.h>

bool model_is_image(const char *name) { return strncmp(name, "visual.", 7) == 0; }

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

enum { STEM, ATTENTION_POOL = 5, RESNET_GROUPS };

static int resnet_group(const char *rest)
{
    if (begins(rest, "layer")) return atoi(rest + strlen("layer"));
    return begins(rest, "attnpool") ? ATTENTION_POOL : STEM;
}

/* rest: behind "visual." of an image tower. */
static int transformer_group(const char *rest, int layers, int count)
{
    static const char blocks[] = "transformer.resblocks.";
    if (begins(rest, blocks)) return 1 + atoi(rest + strlen(blocks));
    if (begins(rest, "ln_post") || begins(rest, "ln_final")) return layers;
    return begins(rest, "proj") || begins(rest, "text_projection") || begins(rest, "attn_pool") ? count - 1 : 0;
}

int model_group(const model_config *c, const char *name, int *count)
{
    bool image = model_is_image(name);
    *count = RESNET_GROUPS;
    if (image && c->family == MODEL_RESNET) return resnet_group(name + strlen("visual."));
    int layers = (int)(image ? c->layers[0] : c->text_layers);
    bool projects = image ? !c->no_image_projection || c->image_pool == IMAGE_POOL_MAP : !c->no_text_projection;
    *count = 1 + layers + projects;
    return transformer_group(image ? name + strlen("visual.") : name, layers, *count);
}
