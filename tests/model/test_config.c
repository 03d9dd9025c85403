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

/* Our form says everything a model is. */
static bool same(const model_config *a, const model_config *b)
{
    sbuf s = { 0 }, t = { 0 };
    model_config_to_json(a, &s);
    model_config_to_json(b, &t);
    bool equal = strcmp(s.data, t.data) == 0;
    sbuf_release(&s);
    sbuf_release(&t);
    return equal;
}

static void built_in_models_survive_our_json(void)
{
    int count = 0;
    for (const char *name; (name = model_config_name(count)); count++) {
        model_config a, b;
        sbuf s = { 0 };
        CHECK_OK(ctx, model_config_by_name(ctx, name, &a));
        CHECK_OK(ctx, model_config_check(ctx, &a));
        model_config_to_json(&a, &s);
        CHECK(strchr(s.data, '\n') == NULL);
        CHECK_OK(ctx, parse(s.data, &b));
        CHECK(same(&a, &b));
        CHECK(model_config_match(&a, &b));
        if (strncmp(name, "MobileCLIP2-", 12) == 0) strcpy(b.name, name); /* two of them are MobileCLIP's towers */
        CHECK(same(&a, &b));
        CHECK_STR(b.name, name);
        sbuf_release(&s);
    }
    CHECK(count > 60);
}

/* What a SigLIP is, open_clip writes as a timm name; the rest as its own keys. */
static void built_in_models_survive_open_clips_json(void)
{
    for (int i = 0; model_config_name(i); i++) {
        model_config a, b;
        sbuf s = { 0 };
        CHECK_OK(ctx, model_config_by_name(ctx, model_config_name(i), &a));
        cloob_status status = model_config_to_open_clip(ctx, &a, "out", NULL, &s);
        CHECK(status == (a.mask_queries ? CLOOB_ERR_UNSUPPORTED : CLOOB_OK)); /* open_clip has no such mask */
        if (status != CLOOB_OK) continue;
        CHECK_OK(ctx, parse(s.data, &b));
        strcpy(b.name, a.name);
        CHECK(same(&a, &b));
        sbuf_release(&s);
    }
}

static void names_match_despite_their_spelling(void)
{
    model_config a, b;
    CHECK_OK(ctx, model_config_by_name(ctx, "ViT-B/32", &a));
    CHECK_OK(ctx, model_config_by_name(ctx, "vit_b_32-quickgelu", &b));
    CHECK(same(&a, &b) && a.family == MODEL_VIT && a.image_heads == 12 && a.patch == 32);
    CHECK_OK(ctx, model_config_by_name(ctx, "rn50X16", &a));
    CHECK(a.image_heads == 48 && a.text_heads == 12 && a.image_size == 384);
    CHECK(model_config_by_name(ctx, "RN51", &a) == CLOOB_ERR_ARGUMENT);
    CHECK(strstr(cloob_error(ctx), "RN51") && strstr(cloob_error(ctx), "RN50x16"));
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
    CHECK(c.image_heads == 16 && c.image_size == 336 && c.image.act == ACT_GELU && c.text.act == ACT_GELU &&
          c.image_std[2] == 1 && c.image_mean[0] == .5);
}

/* CLIP's own way is not written; the others come back from our form and from open_clip's. */
static void ways_to_make_images_square_survive(void)
{
    static const char *const way[] = { "shortest", "longest", "squash" };
    for (int i = 0; i < 3; i++) {
        model_config a, b;
        sbuf ours = { 0 }, theirs = { 0 };
        CHECK_OK(ctx, model_config_by_name(ctx, "tiny", &a));
        CHECK(resize_mode_from_name(way[i], &a.view.mode) && a.view.mode == (resize_mode)i);
        model_config_to_json(&a, &ours);
        CHECK_OK(ctx, model_config_to_open_clip(ctx, &a, "out", NULL, &theirs));
        CHECK((strstr(ours.data, "resize_mode") != NULL) == (i > 0));
        CHECK_OK(ctx, parse(ours.data, &b));
        CHECK(b.view.mode == (resize_mode)i);
        CHECK_OK(ctx, parse(theirs.data, &b));
        CHECK(b.view.mode == (resize_mode)i);
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
    CHECK_OK(ctx,
             parse("{\"text_config\":{\"hidden_act\":\"gelu\",\"layer_norm_eps\":1e-6},\"vision_config\":{}}", &c));
    CHECK(c.text.act == ACT_GELU && c.image.act == ACT_QUICKGELU && c.text.eps == 1e-6 && c.image.eps == 1e-5);
    CHECK_OK(ctx,
             parse("{\"text_config\":{},\"vision_config\":{\"hidden_size\":1024,\"num_attention_heads\":16}}", &c));
    CHECK(c.image.inner == 3072 && c.text.inner == 0);
    CHECK_OK(ctx, parse("{\"text_config\":{\"hidden_size\":128},\"text_config_dict\":{\"hidden_size\":256},"
                        "\"vision_config\":{},\"vision_config_dict\":null}",
                        &c));
    CHECK(c.text_width == 256 && c.width == 768);
    CHECK_OK(ctx, parse("{\"text_config\":{\"eos_token_id\":7},\"vision_config\":{}}", &c));
    CHECK(c.text_pool == TEXT_POOL_EOS && c.eos == 7);
    CHECK(parse("{\"text_config\":{\"hidden_act\":\"relu\"},\"vision_config\":{}}", &c) != CLOOB_OK);
    CHECK(strstr(cloob_error(ctx), "hidden_act"));
    CHECK(parse("{\"model_type\":\"blip\",\"text_config\":{},\"vision_config\":{}}", &c) == CLOOB_ERR_UNSUPPORTED);
    CHECK(strstr(cloob_error(ctx), "blip"));
}

static void siglip_forms(void)
{
    model_config c, b16;
    CHECK_OK(ctx, model_config_by_name(ctx, "ViT-B-16-SigLIP", &b16));
    CHECK(b16.no_class_token && b16.image_pool == IMAGE_POOL_MAP && b16.no_causal_mask && b16.has_logit_bias);
    CHECK(model_config_image_tokens(&b16) == 196 && b16.text_pool == TEXT_POOL_LAST && b16.view.mode == RESIZE_SQUASH);
    CHECK_OK(ctx,
             parse("{\"name\":\"ViT-B-16-SigLIP\",\"model_type\":\"siglip\",\"text_config\":{},\"vision_config\":{}}",
                   &c));
    CHECK(c.image.act == ACT_GELU_TANH && c.text.act == ACT_GELU_TANH); /* transformers' own default */
    model_config_set_act(&c, ACT_GELU);
    CHECK(same(&c, &b16));
    CHECK_OK(ctx, model_config_by_name(ctx, "ViT-SO400M-14-SigLIP-384", &c));
    CHECK(model_config_image_tokens(&c) == 27 * 27);
    CHECK_OK(ctx, parse("{\"model_type\":\"siglip2\",\"text_config\":{},\"vision_config\":{}}", &c));
    CHECK(c.position_side == 16 && c.view.mode == RESIZE_PATCHES && c.view.patches == 256 && c.view.patch == 16);
    CHECK(model_config_image_tokens(&c) == 256 && c.image_size == 17 * 16);
    CHECK(parse("{\"model_type\":\"siglip2\",\"text_config\":{},\"vision_config\":{\"num_patches\":250}}", &c) !=
          CLOOB_OK);
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
    refuses(VIT("\"layers\":[3,4,6,3],\"width\":64,\"image_size\":127"), "use 128");
    refuses(VIT("\"layers\":[3,4,6,3],\"width\":64,\"image_size\":20"), "use 32");
    refuses(VIT("\"layers\":[3,4,6,3],\"width\":64,\"image_size\":[224,256]"), "image_size");
    refuses(VIT("\"layers\":12,\"width\":768,\"patch_size\":32,\"head_width\":0"), "head width 0");
    refuses("{\"embed_dim\":512,\"vision_cfg\":{\"layers\":12,\"width\":768,\"patch_size\":32},"
            "\"text_cfg\":{\"width\":512,\"heads\":7}}",
            "text heads, 7");
    refuses("{\"embed_dim\":512,\"vision_cfg\":{\"layers\":12,\"width\":768,\"patch_size\":32},"
            "\"text_cfg\":{\"vocab_size\":2}}",
            "vocabulary");
    refuses("{\"embed_dim\":0,\"vision_cfg\":{\"layers\":12,\"width\":768,\"patch_size\":32},\"text_cfg\":{}}",
            "embed_dim");
}

/* Keys that change what transformers computes are not ignored; values that mean nothing are. */
static void keys_of_hugging_face_that_matter(void)
{
    static const char *const refused[] = { "\"position_embedding_type\":\"relative_key\"", "\"num_channels\":1",
                                           "\"is_decoder\":true", "\"add_cross_attention\":true",
                                           "\"pruned_heads\":{\"0\":[1]}" };
    static const char *const accepted[] = { "\"position_embedding_type\":\"absolute\"", "\"num_channels\":3",
                                            "\"is_decoder\":false", "\"pruned_heads\":{}", "\"num_beams\":1" };
    char text[512];
    model_config c;
    for (int i = 0; i < 10; i++) {
        const char *key = i < 5 ? refused[i] : accepted[i - 5];
        snprintf(text, sizeof text, "{\"model_type\":\"clip\",\"vision_config\":{%s},\"text_config\":{}}", key);
        CHECK(parse(text, &c) == (i < 5 ? CLOOB_ERR_FORMAT : CLOOB_OK));
        snprintf(text, sizeof text, "{\"model_type\":\"chinese_clip\",\"vision_config\":{},\"text_config\":{%s}}", key);
        CHECK(parse(text, &c) == (i < 5 ? CLOOB_ERR_FORMAT : CLOOB_OK));
    }
    CHECK(parse("{\"model_type\":\"clip\",\"vision_config\":{},\"text_config\":{},"
                "\"quantization_config\":{\"load_in_8bit\":true}}",
                &c) == CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "quantization_config"));
}

static void other_architectures_are_refused(void)
{
    refuses(VIT("\"layers\":12,\"width\":768,\"patch_size\":32,\"attentional_pool\":true"), "attentional_pool");
    refuses(VIT("\"layers\":12,\"width\":768,\"patch_size\":32,\"mlp_ratio\":-1"), "mlp_ratio");
    refuses(VIT("\"timm_model_name\":\"vitamin_base_224\""), "vitamin_base_224");
    refuses(VIT("\"timm_model_name\":\"vit_huge_patch16_siglip_224\""), "timm");
    refuses(VIT("\"layers\":12,\"width\":768,\"patch_size\":32,\"qk_norm\":true"), "qk_norm");
    refuses(VIT("\"layers\":12,\"width\":768,\"patch_size\":32,\"pool_type\":\"none\""), "pool_type");
    refuses("{\"embed_dim\":512,\"multimodal_cfg\":{},\"vision_cfg\":{},\"text_cfg\":{}}", "CoCa");
    refuses("{\"embed_dim\":512,\"vision_cfg\":{\"layers\":12,\"width\":768,\"patch_size\":32},"
            "\"text_cfg\":{\"hf_model_name\":\"google/mt5-base\"}}",
            "google/mt5-base");
    refuses("{\"embed_dim\":512,\"vision_cfg\":{\"layers\":12,\"width\":768,\"patch_size\":32},"
            "\"text_cfg\":{\"embed_cls\":true}}",
            "embed_cls");
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
    RUN(names_match_despite_their_spelling);
    RUN(open_clip_form);
    RUN(ways_to_make_images_square_survive);
    RUN(the_authors_form);
    RUN(hugging_face_form);
    RUN(siglip_forms);
    RUN(built_in_models_survive_open_clips_json);
    RUN(impossible_sizes_are_named);
    RUN(keys_of_hugging_face_that_matter);
    RUN(other_architectures_are_refused);
    RUN(files_load_by_path);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
