/* Image preprocessing in the configuration files of open_clip, Hugging Face and cloob, read and written. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config_reader.h"

static cloob_status refuse(const config_reader *r, const char *key, const char *why)
{
    return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED, "%s: \"%.100s\" %s", r->source, key, why);
}

static bool is_in(const char *key, const char *const *names)
{
    while (*names && strcmp(*names, key) != 0) names++;
    return *names != NULL;
}

/* ---- open_clip and cloob ------------------------------------------------------------------------- */

static cloob_status read_mode(const config_reader *r, const json *object)
{
    const json *v = reader_value(object, "resize_mode");
    const char *name = json_string(v);
    if (!v || (name && resize_mode_from_name(name, &r->c->view.mode))) return CLOOB_OK;
    return reader_bad(r, "resize_mode", "shortest, longest, squash or none");
}

static cloob_status read_fill(const config_reader *r, const json *object)
{
    int64_t fill = r->c->view.fill;
    CLOOB_TRY(reader_int(r, object, "fill_color", &fill));
    if (fill < 0 || fill > 255) return reader_bad(r, "fill_color", "0 to 255");
    r->c->view.fill = (uint8_t)fill;
    return CLOOB_OK;
}

/* Reads open_clip's preprocess_cfg. Its "random" filter means bicubic in evaluation. Its size is ignored: it is always
 * the model's. */
cloob_status preprocess_read_open_clip(const config_reader *r, const json *cfg)
{
    static const char *const filters[] = { "bicubic", "bilinear", "random", NULL };
    static const char *const known[] = { "size",          "mode",        "mean",       "std",
                                         "interpolation", "resize_mode", "fill_color", NULL };
    const char *mode = json_string(json_get(cfg, "mode"));
    int filter = (int)r->c->view.filter;
    for (const json *v = cfg ? cfg->child : NULL; v; v = v->next)
        if (!is_in(v->key, known))
            ctx_log(r->ctx, CLOOB_LOG_WARN, "%s: unknown setting \"%.100s\" in preprocess_cfg is ignored", r->source,
                    v->key);
    if (mode && strcmp(mode, "RGB") != 0) return reader_bad(r, "mode", "\"RGB\"");
    CLOOB_TRY(reader_channels(r, cfg, "mean", r->c->image_mean));
    CLOOB_TRY(reader_channels(r, cfg, "std", r->c->image_std));
    CLOOB_TRY(reader_choice(r, cfg, "interpolation", filters, &filter));
    r->c->view.filter = filter == 2 ? RESIZE_BICUBIC : (resize_filter)filter;
    CLOOB_TRY(read_fill(r, cfg));
    return read_mode(r, cfg);
}

static cloob_status read_pair(const config_reader *r, const json *root, const char *key, int64_t *height,
                              int64_t *width)
{
    const json *v = reader_value(root, key);
    if (!v) return CLOOB_OK;
    if (v->kind == JSON_ARRAY && v->count == 2 && json_int(v->child, height) && json_int(v->child->next, width))
        return CLOOB_OK;
    return reader_bad(r, key, "[height, width]");
}

cloob_status preprocess_read_own(const config_reader *r, const json *root)
{
    image_view *view = &r->c->view;
    const json *v = reader_value(root, "interpolation");
    const char *filter = json_string(v);
    static const char *const libraries[] = { "open_clip", "transformers", NULL };
    int library = view->hf;
    if (v && !(filter && resize_filter_from_name(filter, &view->filter)))
        return reader_bad(r, "interpolation", "bicubic, bilinear, lanczos, box, hamming or nearest");
    CLOOB_TRY(reader_channels(r, root, "image_mean", r->c->image_mean));
    CLOOB_TRY(reader_channels(r, root, "image_std", r->c->image_std));
    CLOOB_TRY(read_fill(r, root));
    CLOOB_TRY(read_mode(r, root));
    CLOOB_TRY(read_pair(r, root, "resize_size", &view->height, &view->width));
    CLOOB_TRY(reader_choice(r, root, "preprocess_of", libraries, &library));
    view->hf = library == 1;
    return CLOOB_OK;
}

/* ---- Hugging Face -------------------------------------------------------------------------------- */

/* Fields of an image processor, with the defaults of its class. */
typedef struct processor {
    bool do_resize, do_crop, do_rescale, do_normalize;
    int64_t shortest, height, width; /* target of the resize: the shortest edge, or height and width */
    int64_t crop_height, crop_width;
    double factor;
} processor;

typedef struct processor_class {
    const char *name; /* without the suffix ImageProcessor, FeatureExtractor or Fast */
    bool square, crop, clip_mean;
    resize_filter filter;
} processor_class;

static const processor_class classes[] = { { "CLIP", false, true, true, RESIZE_BICUBIC },
                                           { "ChineseCLIP", false, true, true, RESIZE_BICUBIC },
                                           { "Siglip2", true, false, false, RESIZE_BILINEAR },
                                           { "Siglip", true, false, false, RESIZE_BICUBIC },
                                           { "ViT", true, false, false, RESIZE_BILINEAR } };

static cloob_status find_class(const config_reader *r, const json *root, const processor_class **out)
{
    static const char *const keys[] = { "image_processor_type", "feature_extractor_type" };
    const char *name = NULL;
    for (int i = 0; i < 2 && !name; i++) name = json_string(json_get(root, keys[i]));
    *out = &classes[r->c->position_side ? 2 : model_config_is_siglip(r->c) ? 3 : 0];
    if (!name) return CLOOB_OK;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        size_t n = strlen(classes[i].name);
        if (strncmp(name, classes[i].name, n) != 0) continue;
        if (strncmp(name + n, "ImageProcessor", 14) != 0 && strcmp(name + n, "FeatureExtractor") != 0) continue;
        if ((i == 2) != (r->c->position_side > 0))
            return refuse(r, name, "is not the image processor of this type of model");
        *out = &classes[i];
        return CLOOB_OK;
    }
    return ctx_fail(
        r->ctx, CLOOB_ERR_UNSUPPORTED,
        "%s: image processor type %.80s is not supported; supported: CLIP, Chinese-CLIP, SigLIP, SigLIP 2, ViT",
        r->source, name);
}

/* clang-format off */
/* Fields that are read, and fields that do not affect the pixels of a single image. Any other field must be
 * disabled. */
static const char *const processor_keys[] = {
    "image_processor_type", "feature_extractor_type", "processor_class", "_valid_processor_keys", "do_resize", "size",
    "resample", "do_center_crop", "crop_size", "do_rescale", "rescale_factor", "do_normalize", "image_mean",
    "image_std", "do_convert_rgb", "data_format", "input_data_format", "default_to_square", "device",
    "disable_grouping", "return_tensors", "backend", "use_fast", "auto_map", "_processor_class",
    "transformers_version", NULL };
/* clang-format on */

static cloob_status check_fields(const config_reader *r, const json *root)
{
    for (const json *v = root->child; v; v = v->next) {
        bool naflex = strcmp(v->key, "patch_size") == 0 || strcmp(v->key, "max_num_patches") == 0;
        bool off = (naflex && r->c->position_side) || v->kind == JSON_NULL || (v->kind == JSON_BOOL && !v->boolean);
        if (!off && !is_in(v->key, processor_keys))
            return refuse(r, v->key, "is not supported by cloob's image preprocessing");
    }
    return CLOOB_OK;
}

/* A size: {"shortest_edge": n}, {"height": n, "width": n}, or n. */
static cloob_status read_size(const config_reader *r, const json *root, const char *key, int64_t *shortest,
                              int64_t *height, int64_t *width)
{
    const json *v = reader_value(root, key);
    if (!v) return CLOOB_OK;
    *shortest = *height = *width = 0;
    if (v->kind == JSON_NUMBER) return reader_int(r, root, key, shortest);
    if (v->kind != JSON_OBJECT) return reader_bad(r, key, "a size");
    for (const json *e = v->child; e; e = e->next) {
        int64_t *to = strcmp(e->key, "shortest_edge") == 0 ? shortest
                      : strcmp(e->key, "height") == 0      ? height
                      : strcmp(e->key, "width") == 0       ? width
                                                           : NULL;
        if (e->kind == JSON_NULL) continue;
        if (!to)
            return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                            "%s: \"%.60s\" in \"%s\" is not supported; use shortest_edge, or height and width",
                            r->source, e->key, key);
        if (!json_int(e, to)) return reader_bad(r, key, "of whole numbers");
    }
    bool good = *shortest ? !*height && !*width : *height && *width;
    return good ? CLOOB_OK : reader_bad(r, key, "a shortest_edge, or height and width");
}

static cloob_status read_fields(const config_reader *r, const json *root, const processor_class *k, processor *p)
{
    int64_t resample = resize_filter_to_pillow(k->filter), crop = 0;
    static const double clip_mean[3] = { .48145466, .4578275, .40821073 },
                        clip_std[3] = { .26862954, .26130258, .27577711 }, half[3] = { 0.5, 0.5, 0.5 };
    *p = (processor){ true, k->crop, true, true, k->square ? 0 : 224, 224, 224, 224, 224, 1.0 / 255 };
    memcpy(r->c->image_mean, k->clip_mean ? clip_mean : half, sizeof half);
    memcpy(r->c->image_std, k->clip_mean ? clip_std : half, sizeof half);
    CLOOB_TRY(reader_bool(r, root, "do_resize", &p->do_resize));
    CLOOB_TRY(reader_bool(r, root, "do_center_crop", &p->do_crop));
    CLOOB_TRY(reader_bool(r, root, "do_rescale", &p->do_rescale));
    CLOOB_TRY(reader_bool(r, root, "do_normalize", &p->do_normalize));
    CLOOB_TRY(reader_number(r, root, "rescale_factor", &p->factor));
    CLOOB_TRY(reader_channels(r, root, "image_mean", r->c->image_mean));
    CLOOB_TRY(reader_channels(r, root, "image_std", r->c->image_std));
    CLOOB_TRY(reader_int(r, root, "resample", &resample));
    if (!resize_filter_from_pillow(resample, &r->c->view.filter)) return reader_bad(r, "resample", "0 to 5");
    CLOOB_TRY(read_size(r, root, "size", &p->shortest, &p->height, &p->width));
    CLOOB_TRY(read_size(r, root, "crop_size", &crop, &p->crop_height, &p->crop_width));
    if (crop) p->crop_height = p->crop_width = crop;
    return CLOOB_OK;
}

static cloob_status wrong_size(const config_reader *r, const char *key, int64_t height, int64_t width)
{
    return ctx_fail(r->ctx, CLOOB_ERR_ARGUMENT,
                    "%s: \"%s\" gives images of %lld x %lld; the model requires %lld x %lld", r->source, key,
                    (long long)width, (long long)height, (long long)r->c->image_size, (long long)r->c->image_size);
}

static cloob_status set_view(const config_reader *r, const processor *p)
{
    int64_t size = r->c->image_size;
    image_view *v = &r->c->view;
    v->mode = !p->do_resize ? RESIZE_NONE : p->shortest ? RESIZE_SHORTEST : RESIZE_SQUASH;
    v->height = v->mode == RESIZE_NONE ? 0 : p->shortest ? p->shortest : p->height;
    v->width = v->mode == RESIZE_SQUASH ? p->width : 0;
    if (p->do_crop && (p->crop_height != size || p->crop_width != size))
        return wrong_size(r, "crop_size", p->crop_height, p->crop_width);
    if (!p->do_crop && v->mode == RESIZE_SQUASH && (v->height != size || v->width != size))
        return wrong_size(r, "size", v->height, v->width);
    if (!p->do_crop && v->mode != RESIZE_SQUASH)
        return refuse(r, "do_center_crop", "is off, so images are not square; the model requires square images");
    if (v->height == size && (v->width == size || v->mode == RESIZE_SHORTEST)) v->height = v->width = 0;
    return CLOOB_OK;
}

/* Sets NaFlex's patch-based resize. */
static cloob_status set_patches(const config_reader *r, const json *root, const processor *p)
{
    int64_t patch = 16, patches = 256;
    CLOOB_TRY(reader_int(r, root, "patch_size", &patch));
    CLOOB_TRY(reader_int(r, root, "max_num_patches", &patches));
    if (patch != r->c->patch) return reader_bad(r, "patch_size", "the model's");
    if (p->do_crop) return refuse(r, "do_center_crop", "must be false for a NaFlex model");
    if (!p->do_resize) return refuse(r, "do_resize", "must be true for a NaFlex model");
    model_config_set_naflex(r->c, r->c->position_side, patches);
    return CLOOB_OK;
}

/* Rewrites (p factor - mean) / std as (p / 255 - mean') / std'. */
static cloob_status set_scale(const config_reader *r, const processor *p)
{
    double by = 255 * (p->do_rescale ? p->factor : 1);
    if (!(by > 0 && by < 1e9)) return reader_bad(r, "rescale_factor", "above 0");
    for (int i = 0; i < 3; i++) {
        double mean = p->do_normalize ? r->c->image_mean[i] : 0, std = p->do_normalize ? r->c->image_std[i] : 1;
        r->c->image_mean[i] = fabs(by - 1) < 1e-9 ? mean : mean / by;
        r->c->image_std[i] = fabs(by - 1) < 1e-9 ? std : std / by;
    }
    return CLOOB_OK;
}

cloob_status preprocess_read_hf(const config_reader *r, const json *root)
{
    const processor_class *k;
    processor p;
    r->c->view = (image_view){ .hf = true };
    CLOOB_TRY(find_class(r, root, &k));
    CLOOB_TRY(check_fields(r, root));
    CLOOB_TRY(read_fields(r, root, k, &p));
    CLOOB_TRY(r->c->position_side ? set_patches(r, root, &p) : set_view(r, &p));
    return set_scale(r, &p);
}

/* ---- writing ------------------------------------------------------------------------------------- */

static void put_channels(json_out *w, const char *key, const double v[3])
{
    json_begin(w, key, '[');
    for (int i = 0; i < 3; i++) json_put_number(w, NULL, v[i]);
    json_end(w);
}

/* Writes only values that differ from CLIP's, which readers assume. For SigLIP they assume another mode, so it is
 * written. */
static void put_view(json_out *w, const model_config *c)
{
    if (c->view.mode != RESIZE_SHORTEST || c->no_class_token)
        json_put_text(w, "resize_mode", resize_mode_name(c->view.mode));
    if (c->view.filter != RESIZE_BICUBIC) json_put_text(w, "interpolation", resize_filter_name(c->view.filter));
    if (c->view.fill) json_put_int(w, "fill_color", c->view.fill);
}

void preprocess_put_own(json_out *w, const model_config *c)
{
    put_channels(w, "image_mean", c->image_mean);
    put_channels(w, "image_std", c->image_std);
    put_view(w, c);
    if (c->view.height) {
        json_begin(w, "resize_size", '[');
        json_put_int(w, NULL, c->view.height);
        json_put_int(w, NULL, c->view.width);
        json_end(w);
    }
    if (c->view.hf) json_put_text(w, "preprocess_of", "transformers");
}

cloob_status preprocess_put_open_clip(cloob_ctx *ctx, json_out *w, const model_config *c, const char *path)
{
    const image_view *v = &c->view;
    if (v->filter > RESIZE_BILINEAR || v->mode == RESIZE_NONE || v->height)
        return ctx_fail(
            ctx, CLOOB_ERR_UNSUPPORTED,
            "%s: open_clip only resizes to the model's size with a bicubic or bilinear filter; %s needs %s%s", path,
            c->name, resize_filter_name(v->filter), v->height || v->mode == RESIZE_NONE ? " and another size" : "");
    json_begin(w, "preprocess_cfg", '{');
    put_channels(w, "mean", c->image_mean);
    put_channels(w, "std", c->image_std);
    put_view(w, c);
    json_end(w);
    return CLOOB_OK;
}

void model_config_to_preprocess(const model_config *c, sbuf *s)
{
    json_out w = json_out_on(s);
    json_begin(&w, NULL, '{');
    json_put_int(&w, "size", c->image_size);
    put_channels(&w, "mean", c->image_mean);
    put_channels(&w, "std", c->image_std);
    json_put_text(&w, "resize", resize_mode_name(c->view.mode));
    json_put_text(&w, "interpolation", resize_filter_name(c->view.filter));
    json_end(&w);
    json_out_back(&w, s);
}

static void put_hf_size(json_out *w, const char *key, bool shortest, int64_t height, int64_t width)
{
    json_begin(w, key, '{');
    json_put_int(w, shortest ? "shortest_edge" : "height", height);
    if (!shortest) json_put_int(w, "width", width);
    json_end(w);
}

cloob_status model_config_to_hf_preprocessor(cloob_ctx *ctx, const model_config *c, const char *path, sbuf *s)
{
    json_out w = { 0 };
    const image_view *v = &c->view;
    int64_t height = v->height ? v->height : c->image_size, width = v->width ? v->width : height;
    bool siglip = model_config_is_siglip(c), crop = v->mode != RESIZE_SQUASH || v->height;
    if (v->mode == RESIZE_LONGEST)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: CLIP's image processor cannot resize by the longest edge",
                        path);
    bool naflex = c->position_side > 0;
    json_begin(&w, NULL, '{');
    json_put_text(&w, "image_processor_type",
                  naflex   ? "Siglip2ImageProcessor"
                  : siglip ? "SiglipImageProcessor"
                           : "CLIPImageProcessor");
    json_put_text(&w, "processor_class", naflex ? "Siglip2Processor" : siglip ? "SiglipProcessor" : "CLIPProcessor");
    json_put_bool(&w, "do_convert_rgb", true);
    json_put_bool(&w, "do_resize", v->mode != RESIZE_NONE);
    if (naflex) {
        json_put_int(&w, "patch_size", v->patch);
        json_put_int(&w, "max_num_patches", v->patches);
    } else put_hf_size(&w, "size", v->mode == RESIZE_SHORTEST, height, width);
    json_put_int(&w, "resample", resize_filter_to_pillow(v->filter));
    crop = crop && !naflex;
    json_put_bool(&w, "do_center_crop", crop);
    if (crop) put_hf_size(&w, "crop_size", false, c->image_size, c->image_size);
    json_put_bool(&w, "do_rescale", true);
    json_put_number(&w, "rescale_factor", 1.0 / 255);
    json_put_bool(&w, "do_normalize", true);
    put_channels(&w, "image_mean", c->image_mean);
    put_channels(&w, "image_std", c->image_std);
    json_end(&w);
    json_out_append(&w, s);
    return CLOOB_OK;
}
