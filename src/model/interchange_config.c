/* Finds a checkpoint's configuration: given by the caller, in the file's metadata, in a JSON file next to it, or
 * inferred from tensor shapes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config_reader.h"
#include "model/interchange.h"

typedef struct finder {
    cloob_ctx *ctx;
    const interchange_options *o;
    const source *s;
    weights *w;
    const char **from; /* receives the source of the configuration, for the report */
} finder;

/* Writes "DIR/name", where DIR is the folder of the weights; "" if there is no such file. */
static cloob_status path_next_to(const finder *r, const char *name, char path[FILE_PATH])
{
    const char *slash = strrchr(r->s->path, '/');
    int n = slash ? (int)(slash + 1 - r->s->path) : 0;
    if (snprintf(path, FILE_PATH, "%.*s%s", n, r->s->path, name) >= FILE_PATH)
        return ctx_fail(r->ctx, CLOOB_ERR_IO, "%.200s...: path too long", path);
    if (!file_exists(path)) path[0] = '\0';
    return CLOOB_OK;
}

/* Reads the preprocessing from a Hugging Face file: preprocessor_config.json, or the part `part` of
 * processor_config.json (transformers 5). */
static cloob_status read_preprocessor_in(finder *r, const char *name, const char *part, bool *found)
{
    arena a = { 0 };
    json *root;
    char path[FILE_PATH];
    CLOOB_TRY(path_next_to(r, name, path));
    *found = false;
    if (!path[0]) return CLOOB_OK;
    cloob_status status = json_read_file(r->ctx, &a, path, &root);
    const json *inner = status != CLOOB_OK ? NULL : part ? json_get(root, part) : root;
    *found = inner && inner->kind == JSON_OBJECT;
    if (*found) status = preprocess_read_hf(&(config_reader){ r->ctx, path, &r->w->config }, inner);
    if (status == CLOOB_OK && *found) {
        status = model_config_check(r->ctx, &r->w->config);
        if (status != CLOOB_OK) status = ctx_wrap(r->ctx, status, "%s", path);
    }
    arena_release(&a);
    return status;
}

static cloob_status read_preprocessor(finder *r)
{
    bool found;
    r->w->config.view.hf = true;
    CLOOB_TRY(read_preprocessor_in(r, "processor_config.json", "image_processor", &found));
    return found ? CLOOB_OK : read_preprocessor_in(r, "preprocessor_config.json", NULL, &found);
}

/* Replaces the file-derived name (the same for all models) by the built-in model's, if sizes and heads are the same. */
static void rename_known(model_config *c)
{
    model_config known;
    bool same = !c->no_image_tower && !c->no_text_tower && model_config_match(c, &known) &&
                known.text_heads == c->text_heads && known.image_heads == c->image_heads;
    snprintf(c->name, sizeof c->name, "%s", same ? known.name : "custom");
}

/* Whether a single-tower model has a projection is not in config.json, only in the weights. */
static cloob_status find_projection(finder *r)
{
    model_config *c = &r->w->config;
    if (c->no_text_tower && !c->no_image_projection && source_find(r->s, "visual_projection.weight") < 0)
        c->no_image_projection = true, c->embed = c->width;
    if (c->no_image_tower && !c->text_projection_bias && source_find(r->s, "text_projection.weight") < 0)
        c->no_text_projection = true, c->embed = c->text_width;
    return model_config_check(r->ctx, c);
}

/* rinna's CLOOB has its scales in config.json; its preprocessing is torchvision's and not in any file. */
static cloob_status read_scales(finder *r, const char *path)
{
    static const char *const keys[][2] = { { "init_inv_tau", "inv_tau" }, { "scale_hopfield", "scale_hopfield" } };
    arena a = { 0 };
    json *root;
    cloob_status status = json_read_file(r->ctx, &a, path, &root);
    for (int i = 0; i < 2 && status == CLOOB_OK; i++) {
        config_reader reader = { r->ctx, path, &r->w->config };
        double value = 0;
        char text[40];
        if (!reader_value(root, keys[i][0])) continue;
        status = reader_number(&reader, root, keys[i][0], &value);
        if (status == CLOOB_OK && !(value > 0 && value < 1e30)) status = reader_bad(&reader, keys[i][0], "above 0");
        snprintf(text, sizeof text, "%.7g", value);
        if (status == CLOOB_OK) status = weights_set_meta(r->ctx, r->w, keys[i][1], text);
        if (status == CLOOB_OK) status = weights_set_meta(r->ctx, r->w, "method", "cloob");
    }
    arena_release(&a);
    return status;
}

static cloob_status config_from_neighbour(finder *r, bool *found)
{
    const char *name = names_is_hf(r->s->names) ? "config.json" : "open_clip_config.json";
    char path[FILE_PATH] = "";
    if (r->s->names.text != TEXT_NAMES_JKU) CLOOB_TRY(path_next_to(r, name, path));
    *found = path[0] != '\0';
    if (!*found) return CLOOB_OK;
    *r->from = name;
    CLOOB_TRY(model_config_load(r->ctx, path, &r->w->config));
    rename_known(&r->w->config);
    CLOOB_TRY(find_projection(r));
    if (r->s->names.image == IMAGE_NAMES_HF_VIT) return read_scales(r, path);
    return names_is_hf(r->s->names) ? read_preprocessor(r) : CLOOB_OK;
}

/* Fails if the config.json next to the weights names an unsupported model type. */
static cloob_status refuse_other_types(finder *r)
{
    arena a = { 0 };
    json *root;
    model_config ignored;
    char path[FILE_PATH];
    CLOOB_TRY(path_next_to(r, "config.json", path));
    if (!path[0]) return CLOOB_OK;
    cloob_status status = json_read_file(r->ctx, &a, path, &root);
    const char *type = status == CLOOB_OK ? json_string(json_get(root, "model_type")) : NULL;
    bool known = !type || strcmp(type, "clip") == 0 || strcmp(type, "siglip") == 0 || strcmp(type, "metaclip_2") == 0;
    if (status == CLOOB_OK && !known) {
        status = model_config_from_json(r->ctx, root, path, &ignored);
        if (status == CLOOB_ERR_FORMAT || status == CLOOB_OK)
            status = ctx_fail(
                r->ctx, CLOOB_ERR_UNSUPPORTED,
                "%s: model type %.60s is not supported; supported types of transformers: CLIP, MetaCLIP 2, SigLIP",
                path, type);
    }
    arena_release(&a);
    return status;
}

static cloob_status config_from_shapes(finder *r)
{
    *r->from = "its shapes";
    if (r->s->names.image == IMAGE_NAMES_OPENAI && r->s->names.text == TEXT_NAMES_OPENAI)
        CLOOB_TRY(refuse_other_types(r));
    CLOOB_TRY(source_infer(r->ctx, r->s, &r->w->config));
    bool sure = r->s->names.text == TEXT_NAMES_JKU || r->s->names.text == TEXT_NAMES_HAIKU ||
                r->w->torch.layout == TORCH_SCRIPT || r->o->act;
    if (!sure)
        ctx_log(r->ctx, CLOOB_LOG_INFO, "%s does not specify its activation; assuming %s (set `config` to override)",
                r->s->path, model_act_name(r->w->config.text.act));
    return CLOOB_OK;
}

cloob_status interchange_config(cloob_ctx *ctx, const interchange_options *o, const source *s, weights *w,
                                const char **from)
{
    finder r = { ctx, o, s, w, from };
    const char *own = st_meta_get(&w->st, "config");
    bool found = true;
    if (o->config) {
        *from = "the given configuration";
        w->config = *o->config;
    } else { /* files next to converted weights come first: other programs read them, and they may have been edited */
        bool mine = own && s->native;
        if (!mine) CLOOB_TRY(config_from_neighbour(&r, &found));
        if (mine || (own && !found)) {
            found = true;
            *from = "its own metadata";
            CLOOB_TRY(model_config_from_text(ctx, own, s->path, &w->config));
        }
    }
    if (!found) CLOOB_TRY(config_from_shapes(&r));
    if (o->act) model_config_set_act(&w->config, *o->act);
    return CLOOB_OK;
}
