/* Configurations: the built-in sizes, every JSON form, and sizes that cannot be. */
#include "check.h"

#include "model/config.h"

static cloob_ctx *ctx;

static cloob_status parse(const char *text, model_config *c)
{
    arena a = { 0 };
    json *root;
    cloob_status status = json_parse(ctx, &a, text, strlen(text), "test.json", &root);
    if (status == CLOOB_OK) status = model_config_from_json(ctx, root, "test.json", c);
    arena_release(&a);
    return status;
}

static bool same(const model_config *a, const model_config *b)
{
    return strcmp(a->name, b->name) == 0 && a->embed == b->embed && a->family == b->family &&
           a->image_size == b->image_size && memcmp(a->layers, b->layers, sizeof a->layers) == 0 &&
           a->width == b->width && a->patch == b->patch && a->image_heads == b->image_heads &&
           a->context == b->context && a->vocab == b->vocab && a->text_width == b->text_width &&
           a->text_heads == b->text_heads && a->text_layers == b->text_layers && a->act == b->act &&
           a->resize == b->resize && memcmp(a->image_mean, b->image_mean, sizeof a->image_mean) == 0 &&
           memcmp(a->image_std, b->image_std, sizeof a->image_std) == 0;
}

static const char *const names[] = { "RN50",     "RN101", "RN50x4",  "RN50x16", "ViT-B-32",
                                     "ViT-B-16", "tiny",  "tiny-rn", "tiny-vit" };

static void built_in_models_survive_our_json(void)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        model_config a, b;
        sbuf s = { 0 };
        CHECK_OK(ctx, model_config_by_name(ctx, names[i], &a));
        CHECK_OK(ctx, model_config_check(ctx, &a));
        model_config_to_json(&a, &s);
        CHECK(strchr(s.data, '\n') == NULL);
        CHECK_OK(ctx, parse(s.data, &b));
        CHECK(same(&a, &b));
        sbuf_release(&s);
    }
}

static void names_are_forgiven_their_spelling(void)
{
    model_config a, b;
    CHECK_OK(ctx, model_config_by_name(ctx, "ViT-B/32", &a));
    CHECK_OK(ctx, model_config_by_name(ctx, "vit_b_32-quickgelu", &b));
    CHECK(same(&a, &b) && a.family == MODEL_VIT && a.image_heads == 12 && a.patch == 32);
    CHECK_OK(ctx, model_config_by_name(ctx, "rn50X16", &a));
    CHECK(a.image_heads == 48 && a.text_heads == 12 && a.image_size == 384);
    CHECK(model_config_by_name(ctx, "RN51", &a) == CLOOB_ERR_ARGUMENT);
    CHECK(strstr(cloob_error(ctx), "RN51") && strstr(cloob_error(ctx), "ViT-B-16"));
}

#define OPEN_CLIP_TEXT                                                                                                 \
    "\"text_cfg\":{\"context_length\":77,\"vocab_size\":49408,\"width\":512,\"heads\":8,\"layers\":12}"

static void open_clip_form(void)
{
    model_config c, rn50;
    CHECK_OK(ctx, model_config_by_name(ctx, "RN50", &rn50));
    CHECK_OK(ctx, parse("{\"embed_dim\":1024,\"quick_gelu\":true,\"vision_cfg\":{\"image_size\":224,"
                        "\"layers\":[3,4,6,3],\"width\":64,\"patch_size\":null}," OPEN_CLIP_TEXT "}",
                        &c));
    strcpy(c.name, "RN50");
    CHECK(same(&c, &rn50));
    CHECK_OK(ctx, parse("{\"model_cfg\":{\"embed_dim\":1024,\"vision_cfg\":{\"image_size\":[336,336],\"layers\":24,"
                        "\"width\":1408,\"head_width\":88,\"patch_size\":14,\"mlp_ratio\":4}," OPEN_CLIP_TEXT "},"
                        "\"preprocess_cfg\":{\"mean\":[0.5,0.5,0.5],\"std\":[0.25,0.5,1]}}",
                        &c));
    CHECK(c.image_heads == 16 && c.image_size == 336 && c.act == ACT_GELU && c.image_std[2] == 1 &&
          c.image_mean[0] == .5);
}

/* CLIP's own way is not written; the others come back from our form and from open_clip's. */
static void ways_to_make_pictures_square_survive(void)
{
    static const char *const way[] = { "shortest", "longest", "squash" };
    for (int i = 0; i < 3; i++) {
        model_config a, b;
        sbuf ours = { 0 }, theirs = { 0 };
        CHECK_OK(ctx, model_config_by_name(ctx, "tiny", &a));
        CHECK(model_resize_from_name(way[i], &a.resize) && a.resize == (model_resize)i);
        model_config_to_json(&a, &ours);
        model_config_to_open_clip(&a, &theirs);
        CHECK((strstr(ours.data, "resize_mode") != NULL) == (i > 0));
        CHECK_OK(ctx, parse(ours.data, &b));
        CHECK(b.resize == (model_resize)i);
        CHECK_OK(ctx, parse(theirs.data, &b));
        CHECK(b.resize == (model_resize)i);
        sbuf_release(&ours);
        sbuf_release(&theirs);
    }
}

static void the_authors_form(void)
{
    model_config c, tiny;
    CHECK_OK(ctx, model_config_by_name(ctx, "tiny-rn", &tiny));
    CHECK_OK(ctx, parse("{\"embed_dim\":24,\"image_resolution\":64,\"vision_layers\":[1,2,1,1],\"vision_width\":8,"
                        "\"vision_patch_size\":null,\"context_length\":12,\"vocab_size\":96,\"transformer_width\":16,"
                        "\"transformer_heads\":2,\"transformer_layers\":2}",
                        &c));
    CHECK_STR(c.name, "test");
    strcpy(c.name, "tiny-rn");
    CHECK(same(&c, &tiny));
}

static void hugging_face_form(void)
{
    model_config c, vit;
    CHECK_OK(ctx, model_config_by_name(ctx, "ViT-B-16", &vit));
    CHECK_OK(ctx, parse("{\"name\":\"ViT-B-16\",\"model_type\":\"clip\",\"text_config\":{},\"vision_config\":"
                        "{\"patch_size\":16}}",
                        &c));
    CHECK(same(&c, &vit));
    CHECK(parse("{\"text_config\":{\"hidden_act\":\"gelu\"},\"vision_config\":{}}", &c) != CLOOB_OK);
    CHECK(parse("{\"text_config\":{},\"vision_config\":{\"hidden_size\":1024}}", &c) == CLOOB_ERR_UNSUPPORTED);
}

/* One line that holds the offending thing. */
static void refuses(const char *text, const char *word)
{
    model_config c;
    CHECK(parse(text, &c) != CLOOB_OK);
    if (!strstr(cloob_error(ctx), word)) printf("  said: %s\n", cloob_error(ctx));
    CHECK(strstr(cloob_error(ctx), word) != NULL && strstr(cloob_error(ctx), "test.json") != NULL);
}

#define VIT(fields) "{\"embed_dim\":512,\"vision_cfg\":{" fields "}," OPEN_CLIP_TEXT "}"

static void impossible_sizes_are_named(void)
{
    refuses("{\"embed_dim\":512,\"resize_mode\":\"stretch\",\"vision_cfg\":{\"layers\":12,\"width\":768,"
            "\"patch_size\":32}," OPEN_CLIP_TEXT "}",
            "resize_mode");
    refuses(VIT("\"layers\":12,\"width\":768,\"patch_size\":30"), "30");
    refuses(VIT("\"layers\":12,\"width\":768"), "patch");
    refuses(VIT("\"layers\":12,\"width\":770,\"patch_size\":32"), "770");
    refuses(VIT("\"layers\":0,\"width\":768,\"patch_size\":32"), "layers of 0");
    refuses(VIT("\"layers\":-3,\"width\":768,\"patch_size\":32"), "-3");
    refuses(VIT("\"layers\":12,\"width\":1e18,\"patch_size\":32"), "width");
    refuses(VIT("\"layers\":12.5,\"width\":768,\"patch_size\":32"), "layers");
    refuses(VIT("\"layers\":[3,4,6],\"width\":64"), "four");
    refuses(VIT("\"layers\":[3,4,0,3],\"width\":64"), "stage 3");
    refuses(VIT("\"layers\":[3,4,6,3],\"width\":64,\"image_size\":100"), "100");
    refuses(VIT("\"layers\":[3,4,6,3],\"width\":64,\"image_size\":[224,256]"), "image_size");
    refuses(VIT("\"layers\":12,\"width\":768,\"patch_size\":32,\"head_width\":0"), "heads of 0");
    refuses("{\"embed_dim\":512,\"vision_cfg\":{\"layers\":12,\"width\":768,\"patch_size\":32},"
            "\"text_cfg\":{\"width\":512,\"heads\":7}}",
            "text heads of 7");
    refuses("{\"embed_dim\":512,\"vision_cfg\":{\"layers\":12,\"width\":768,\"patch_size\":32},"
            "\"text_cfg\":{\"vocab_size\":2}}",
            "vocabulary");
    refuses("{\"embed_dim\":0,\"vision_cfg\":{\"layers\":12,\"width\":768,\"patch_size\":32},\"text_cfg\":{}}",
            "embed_dim");
}

static void other_architectures_are_refused(void)
{
    refuses(VIT("\"layers\":12,\"width\":768,\"patch_size\":32,\"attentional_pool\":true"), "attentional_pool");
    refuses(VIT("\"layers\":12,\"width\":768,\"patch_size\":32,\"mlp_ratio\":4.3637"), "mlp_ratio");
    refuses(VIT("\"timm_model_name\":\"x\""), "timm");
    refuses("{\"embed_dim\":512,\"vision_cfg\":3,\"text_cfg\":{}}", "vision_cfg");
    refuses("{\"vision_layers\":12}", "embed_dim");
    refuses("{}", "not a model configuration");
    refuses("[1]", "not a model configuration");
}

static void files_load_by_path(void)
{
    model_config c;
    FILE *f = fopen("test_config.tmp.json", "w");
    fputs("{\"vision_config\":{},\"text_config\":{}}", f);
    fclose(f);
    CHECK_OK(ctx, model_config_load(ctx, "test_config.tmp.json", &c));
    CHECK(c.patch == 32);
    CHECK_OK(ctx, model_config_load(ctx, "RN101", &c));
    CHECK(model_config_load(ctx, "absent.json", &c) == CLOOB_ERR_IO);
    remove("test_config.tmp.json");
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(built_in_models_survive_our_json);
    RUN(names_are_forgiven_their_spelling);
    RUN(open_clip_form);
    RUN(ways_to_make_pictures_square_survive);
    RUN(the_authors_form);
    RUN(hugging_face_form);
    RUN(impossible_sizes_are_named);
    RUN(other_architectures_are_refused);
    RUN(files_load_by_path);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
