/* Weights through every format and back, every key accounted for, and the native file. */
#include "check.h"

#include "model/encoder.h"
#include "model/interchange.h"
#include "model/params.h"
#include "model/procedural_weights.h"

static cloob_ctx *ctx;

/* ---- helpers ------------------------------------------------------------------------------------- */

/* name: a built-in model, or a configuration's file. */
static weights make(const char *name)
{
    model_config c;
    weights w;
    float *scale;
    CHECK_OK(ctx, model_config_load(ctx, name, &c));
    CHECK_OK(ctx, procedural_weights(ctx, &c, &w));
    scale = arena_push(&w.a, sizeof *scale);
    *scale = logf(30);
    tensor t = tensor_make(CLOOB_F32, 0, NULL, scale);
    CHECK_OK(ctx, weights_add(ctx, &w, "logit_scale", &t));
    return w;
}

static bool same_weights(const weights *a, const weights *b)
{
    if (a->count != b->count) return false;
    for (int64_t i = 0; i < a->count; i++) {
        const tensor *x = &a->entry[i].t, *y = weights_find(b, a->entry[i].name);
        if (!y || x->dtype != y->dtype || !tensor_same_shape(x, y) || memcmp(x->data, y->data, tensor_bytes(x)) != 0)
            return false;
    }
    return a->config.text_heads == b->config.text_heads && a->config.image_heads == b->config.image_heads &&
           a->config.text.act == b->config.text.act && strcmp(a->config.name, b->config.name) == 0;
}

static cloob_status read_as(const char *path, const interchange_options *o, weights *w)
{
    interchange_report report;
    cloob_status status = interchange_read(ctx, path, o, w, &report);
    interchange_report_release(&report);
    return status;
}

/* Fails, and the line names the thing. */
static void refuses(const char *path, const interchange_options *o, const char *word)
{
    weights w;
    CHECK(read_as(path, o, &w) != CLOOB_OK);
    if (!strstr(cloob_error(ctx), word)) printf("  wanted \"%s\": %s\n", word, cloob_error(ctx));
    CHECK(strstr(cloob_error(ctx), word) != NULL && w.count == 0);
}

static void clean(const char *path)
{
    static const char *const inside[] = { "model.safetensors", "config.json", "preprocessor_config.json",
                                          "open_clip_model.safetensors", "open_clip_config.json" };
    for (size_t i = 0; file_is_dir(path) && i < sizeof inside / sizeof inside[0]; i++) {
        char *p = file_join(path, inside[i]);
        remove(p);
        free(p);
    }
    remove(path);
}

/* ---- shards -------------------------------------------------------------------------------------- */

static void write_index(const st_file *f, const char *second)
{
    FILE *out = fopen("shards.tmp/model.safetensors.index.json", "w");
    fputs("{\"metadata\":{},\"weight_map\":{", out);
    for (int64_t i = 0; i < f->count; i++)
        fprintf(out, "%s\"%s\":\"%s\"", i ? "," : "", f->entry[i].name, i % 3 ? "a.safetensors" : second);
    fputs("}}", out);
    fclose(out);
}

/* Every third tensor of a Hugging Face folder in a file of its own. */
static void shards_are_joined(void)
{
    weights w = make("tiny-vit"), back;
    st_file f;
    CHECK_OK(ctx, interchange_write(ctx, "shards.tmp", FORMAT_HF, &w));
    CHECK_OK(ctx, st_open(ctx, "shards.tmp/model.safetensors", &f));
    st_entry part[2][400];
    int64_t n[2] = { 0, 0 };
    for (int64_t i = 0; i < f.count; i++) part[i % 3 == 0][n[i % 3 == 0]++] = f.entry[i];
    CHECK_OK(ctx, st_write(ctx, "shards.tmp/a.safetensors", part[0], n[0], NULL, 0));
    CHECK_OK(ctx, st_write(ctx, "shards.tmp/b.safetensors", part[1], n[1], NULL, 0));
    remove("shards.tmp/model.safetensors");
    write_index(&f, "b.safetensors");
    CHECK_OK(ctx, read_as("shards.tmp", NULL, &back));
    CHECK(same_weights(&w, &back));
    for (int64_t i = 0; i < back.count; i++) weights_drop_pages(&back, &back.entry[i].t); /* they come again */
    CHECK(same_weights(&w, &back));
    weights_release(&back);
    write_index(&f, "a.safetensors");
    refuses("shards.tmp", NULL, "where the index places it");
    write_index(&f, "c.safetensors");
    refuses("shards.tmp", NULL, "c.safetensors");
    write_index(&f, "../b.safetensors");
    refuses("shards.tmp", NULL, "is not a file name");
    st_close(&f);
    weights_release(&w);
    remove("shards.tmp/a.safetensors"), remove("shards.tmp/b.safetensors");
    remove("shards.tmp/model.safetensors.index.json");
    clean("shards.tmp");
}

/* Names of a Hugging Face folder below "model.", as classes around a model save them; "module." may be outside. */
static void prefixes_are_dropped(void)
{
    static const char *const prefixes[] = { "model.", "module.model." };
    weights w = make("tiny-vit"), back;
    st_file f;
    CHECK_OK(ctx, interchange_write(ctx, "prefix.tmp", FORMAT_HF, &w));
    CHECK_OK(ctx, st_open(ctx, "prefix.tmp/model.safetensors", &f));
    for (int p = 0; p < 2; p++) {
        st_entry part[400];
        char name[400][160];
        CHECK(f.count < 400);
        for (int64_t i = 0; i < f.count && i < 400; i++) {
            snprintf(name[i], sizeof name[i], "%s%s", prefixes[p], f.entry[i].name);
            part[i] = (st_entry){ name[i], f.entry[i].t };
        }
        CHECK_OK(ctx, st_write(ctx, "prefix.tmp/other.safetensors", part, f.count, NULL, 0));
        CHECK_OK(ctx, read_as("prefix.tmp/other.safetensors", NULL, &back));
        CHECK(same_weights(&w, &back));
        weights_release(&back);
    }
    st_close(&f);
    weights_release(&w);
    remove("prefix.tmp/other.safetensors");
    clean("prefix.tmp");
}

/* ---- families ------------------------------------------------------------------------------------ */

/* Through every format that has a place for it and back, and into graphs. */
static void families_survive(void)
{
    static const char *const text =
        ",\"text_cfg\":{\"context_length\":12,\"vocab_size\":96,\"width\":32,\"heads\":2,\"layers\":2";
    static const char *const family[][2] = {
        { "\"pool_type\":\"avg\",\"no_ln_pre\":true,\"final_ln_after_pool\":true",
          ",\"pool_type\":\"last\",\"no_causal_mask\":true" },
        { "\"ls_init_value\":0.1,\"mlp_ratio\":4.9", ",\"pool_type\":\"eos\",\"eos_id\":3,\"proj_bias\":true" },
        { "\"pool_type\":\"map\",\"class_token\":false,\"no_ln_pre\":true,\"proj_type\":\"none\"",
          ",\"pool_type\":\"last\",\"no_causal_mask\":true,\"proj_bias\":true" },
    };
    for (size_t i = 0; i < sizeof family / sizeof *family; i++) {
        weights back;
        FILE *out = fopen("family.tmp.json", "w");
        fprintf(
            out,
            "{\"embed_dim\":64,\"vision_cfg\":{\"image_size\":32,\"layers\":2,\"width\":64,\"patch_size\":8,%s}%s%s}}",
            family[i][0], text, family[i][1]);
        fclose(out);
        weights w = make("family.tmp.json");
        CHECK_OK(ctx, interchange_write(ctx, "family.tmp.safetensors", FORMAT_NATIVE, &w));
        CHECK_OK(ctx, read_as("family.tmp.safetensors", NULL, &back));
        CHECK(same_weights(&w, &back));
        weights_release(&back);
        if (i == 2) {
            CHECK_OK(ctx, interchange_write(ctx, "family.tmp", FORMAT_HF, &w));
            CHECK_OK(ctx, read_as("family.tmp", NULL, &back));
            CHECK(back.count == w.count + 1 && model_config_is_siglip(&back.config)); /* and a logit_bias */
            weights_release(&back);
            CHECK(interchange_write(ctx, "family.tmp", FORMAT_OPEN_CLIP, &w) == CLOOB_ERR_UNSUPPORTED);
        } else {
            CHECK_OK(ctx, interchange_write(ctx, "family.tmp", FORMAT_OPEN_CLIP, &w));
            CHECK_OK(ctx, read_as("family.tmp", NULL, &back));
            strcpy(back.config.name, w.config.name); /* the folder's JSON does not say it */
            CHECK(same_weights(&w, &back));
            weights_release(&back);
            CHECK(interchange_write(ctx, "family.tmp", FORMAT_HF, &w) == CLOOB_ERR_UNSUPPORTED);
        }
        weights_release(&w);
        clean("family.tmp");
    }
    remove("family.tmp.json"), remove("family.tmp.safetensors");
}

/* One tensor is enough to know a stranger by. */
static void strangers_are_named(void)
{
    static const char *const known[][2] = { { "text_decoder.ln_final.weight", "a CoCa model, whose text decoder" },
                                            { "text.cls_emb", "embed_cls" },
                                            { "visual.blocks.0.norm1.weight", "EVA" },
                                            { "visual.trunk.stages.0.blocks.0.norm.weight", "ConvNeXt" },
                                            { "text.transformer.embeddings.word_embeddings.weight", "RoBERTa" } };
    float zero[4] = { 0 };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        st_entry e = { known[i][0], TENSOR(CLOOB_F32, zero, 4) };
        CHECK_OK(ctx, st_write(ctx, "stranger.tmp.safetensors", &e, 1, NULL, 0));
        refuses("stranger.tmp.safetensors", NULL, known[i][1]);
    }
    remove("stranger.tmp.safetensors");
}

/* ---- names --------------------------------------------------------------------------------------- */

static void names_by_hand(void)
{
    foreign f;
    const weight_names hf = { IMAGE_NAMES_HF, TEXT_NAMES_HF }, jku = { IMAGE_NAMES_OPENAI, TEXT_NAMES_JKU },
                       custom = { IMAGE_NAMES_OPENAI, TEXT_NAMES_CUSTOM };
    names_foreign(hf, "transformer.resblocks.11.attn.in_proj_bias", &f);
    CHECK(f.parts == 3 && !f.transposed);
    CHECK_STR(f.name[0], "text_model.encoder.layers.11.self_attn.q_proj.bias");
    CHECK_STR(f.name[2], "text_model.encoder.layers.11.self_attn.v_proj.bias");
    names_foreign(hf, "visual.transformer.resblocks.0.mlp.c_proj.weight", &f);
    CHECK_STR(f.name[0], "vision_model.encoder.layers.0.mlp.fc2.weight");
    names_foreign(hf, "visual.proj", &f);
    CHECK(f.transposed && strcmp(f.name[0], "visual_projection.weight") == 0);
    names_foreign(hf, "visual.positional_embedding", &f);
    CHECK_STR(f.name[0], "vision_model.embeddings.position_embedding.weight");
    names_foreign(jku, "transformer.resblocks.0.ln_1.weight", &f);
    CHECK_STR(f.name[0], "transformer.transformer.resblocks.0.ln_1.weight");
    names_foreign(jku, "logit_scale", &f);
    CHECK_STR(f.name[0], "logit_inv_tau");
    names_foreign(jku, "visual.bn1.weight", &f);
    CHECK_STR(f.name[0], "visual.bn1.weight");
    names_foreign(custom, "text_projection", &f);
    CHECK_STR(f.name[0], "text.text_projection");
}

static void procedural_values_are_the_agreed_ones(void)
{
    CHECK_NEAR(procedural("visual.conv1.weight", 0), 0.13717889785766602, 1e-12);
    CHECK_NEAR(procedural("text_projection", 1000), 0.8541978597640991, 1e-12);
}

/* ---- round trips --------------------------------------------------------------------------------- */

typedef struct trip {
    weight_format format;
    const char *path;
} trip;

static void round_trips_lose_nothing(void)
{
    static const char *const model[] = { "tiny-rn", "tiny-vit" };
    static const trip trips[] = {
        { FORMAT_NATIVE, "interchange.tmp.safetensors" },  { FORMAT_OPENAI, "interchange.tmp.pt" },
        { FORMAT_OPENAI, "interchange.tmp2.safetensors" }, { FORMAT_JKU, "interchange.tmp.pt" },
        { FORMAT_OPEN_CLIP, "interchange.tmp.dir" },       { FORMAT_HF, "interchange.tmp.dir" }
    };
    for (int m = 0; m < 2; m++)
        for (size_t i = 0; i < sizeof trips / sizeof trips[0] - (m == 0); i++) { /* the last: no ResNet there */
            weights w = make(model[m]), back;
            CHECK_OK(ctx, interchange_write(ctx, trips[i].path, trips[i].format, &w));
            CHECK_OK(ctx, read_as(trips[i].path, NULL, &back));
            CHECK(same_weights(&w, &back));
            CHECK_NEAR(strtod(weights_get_meta(&back, "inv_tau"), NULL), 30, 1e-6);
            weights_release(&back);
            weights_release(&w);
            clean(trips[i].path);
        }
}

static void half_precision_and_counts_are_kept(void)
{
    weights w = make("tiny-rn"), back;
    uint16_t *half = arena_push(&w.a, 8192);
    int64_t *seen = arena_push(&w.a, 8);
    for (int64_t i = 0; i < w.count; i++) {
        tensor *t = &w.entry[i].t;
        if (strcmp(w.entry[i].name, "token_embedding.weight") != 0) continue;
        CHECK(dtype_convert(CLOOB_F16, half, CLOOB_F32, t->data, tensor_count(t)));
        t->dtype = CLOOB_F16, t->data = half;
    }
    *seen = 1234;
    tensor count = tensor_make(CLOOB_I64, 0, NULL, seen);
    CHECK_OK(ctx, weights_add(ctx, &w, "visual.bn1.num_batches_tracked", &count));
    CHECK_OK(ctx, interchange_write(ctx, "interchange.tmp.pt", FORMAT_JKU, &w));
    CHECK_OK(ctx, read_as("interchange.tmp.pt", NULL, &back));
    CHECK(same_weights(&w, &back) && weights_find(&back, "token_embedding.weight")->dtype == CLOOB_F16);
    weights_release(&back);
    weights_release(&w);
    clean("interchange.tmp.pt");
}

static void a_resnet_is_refused_as_a_hugging_face_model(void)
{
    weights w = make("tiny-rn");
    CHECK(interchange_write(ctx, "interchange.tmp.dir", FORMAT_HF, &w) == CLOOB_ERR_UNSUPPORTED);
    CHECK(!file_exists("interchange.tmp.dir"));
    weights_release(&w);
}

/* ---- configurations ------------------------------------------------------------------------------ */

static void heads_follow_openai_s_rule_or_are_asked_for(void)
{
    model_config c;
    weights w, back;
    model_config_init(&c);
    c.family = MODEL_VIT, c.embed = 16, c.image_size = 8, c.layers[0] = 1, c.width = 128, c.patch = 4,
    c.image_heads = 2;
    c.context = 5, c.vocab = 11, c.text_width = 64, c.text_heads = 1, c.text_layers = 1;
    snprintf(c.name, sizeof c.name, "custom");
    CHECK_OK(ctx, procedural_weights(ctx, &c, &w));
    CHECK_OK(ctx, interchange_write(ctx, "interchange.tmp.pt", FORMAT_OPENAI, &w));
    CHECK_OK(ctx, read_as("interchange.tmp.pt", NULL, &back));
    CHECK(back.config.text_heads == 1 && back.config.image_heads == 2 && back.config.image_size == 8);
    weights_release(&back);
    weights_release(&w);
    c.text_width = 16, c.text_heads = 4; /* shapes cannot tell */
    CHECK_OK(ctx, procedural_weights(ctx, &c, &w));
    CHECK_OK(ctx, interchange_write(ctx, "interchange.tmp.pt", FORMAT_OPENAI, &w));
    refuses("interchange.tmp.pt", NULL, "`config`");
    CHECK_OK(ctx, read_as("interchange.tmp.pt", &(interchange_options){ .config = &c }, &back));
    CHECK(back.config.text_heads == 4);
    weights_release(&back);
    c.vocab = 12; /* a configuration of another model */
    refuses("interchange.tmp.pt", &(interchange_options){ .config = &c },
            "token_embedding.weight: F32 (11, 16), wanted (12, 16)");
    weights_release(&w);
    clean("interchange.tmp.pt");
}

static void activation_can_be_given(void)
{
    weights w = make("tiny-vit"), back;
    model_act gelu = ACT_GELU;
    CHECK_OK(ctx, interchange_write(ctx, "interchange.tmp.pt", FORMAT_OPENAI, &w));
    CHECK_OK(ctx, read_as("interchange.tmp.pt", &(interchange_options){ .act = &gelu }, &back));
    CHECK(back.config.text.act == ACT_GELU);
    CHECK_OK(ctx, interchange_write(ctx, "interchange.tmp.dir", FORMAT_OPEN_CLIP, &back));
    weights_release(&back);
    CHECK_OK(ctx, read_as("interchange.tmp.dir", NULL, &back));
    CHECK(back.config.text.act == ACT_GELU);
    weights_release(&back);
    weights_release(&w);
    clean("interchange.tmp.pt");
    clean("interchange.tmp.dir");
}

/* A folder as others write it: without cloob's metadata, so that the JSON next to the weights is read. */
static void neighbours_tell_the_configuration(void)
{
    static const trip trips[] = { { FORMAT_OPEN_CLIP, "open_clip_model.safetensors" },
                                  { FORMAT_HF, "model.safetensors" } };
    for (int i = 0; i < 2; i++) {
        weights w = make("tiny-vit"), back;
        st_file f;
        w.config.image_mean[0] = 0.5;
        CHECK_OK(ctx, interchange_write(ctx, "interchange.tmp.dir", trips[i].format, &w));
        char *path = file_join("interchange.tmp.dir", trips[i].path);
        CHECK_OK(ctx, st_open(ctx, path, &f));
        CHECK_OK(ctx, st_write(ctx, path, f.entry, f.count, NULL, 0));
        st_close(&f);
        CHECK_OK(ctx, read_as("interchange.tmp.dir", NULL, &back));
        CHECK(same_weights(&w, &back) && back.config.image_mean[0] == 0.5);
        weights_release(&back);
        weights_release(&w);
        free(path);
        clean("interchange.tmp.dir");
    }
}

/* ---- accounting ---------------------------------------------------------------------------------- */

/* Writes the entries of w as they are, under the names given. */
static void write_raw(const weights *w, int64_t count)
{
    CHECK_OK(ctx, torch_write(ctx, "interchange.tmp.pt", w->entry, count, NULL));
}

static void every_key_is_accounted_for(void)
{
    weights w = make("tiny-rn"), back;
    model_config c = w.config;
    interchange_options given = { .config = &c };
    float extra[2] = { 1, 2 };
    tensor t = TENSOR(CLOOB_F32, extra, 2);
    int64_t n = w.count;
    CHECK_OK(ctx, weights_add(ctx, &w, "visual.extra", &t));
    write_raw(&w, n + 1);
    refuses("interchange.tmp.pt", &given, "1 unexpected (visual.extra)");
    given.drop_unexpected = true;
    CHECK_OK(ctx, read_as("interchange.tmp.pt", &given, &back));
    CHECK(!weights_find(&back, "visual.extra"));
    weights_release(&back);
    w.entry[n].name = "visual.input_resolution"; /* published files have it; it says nothing new */
    write_raw(&w, n + 1);
    CHECK_OK(ctx, read_as("interchange.tmp.pt", NULL, &back));
    weights_release(&back);
    w.entry[n].name = "module.visual.conv1.weight"; /* a second one, hidden by its prefix */
    write_raw(&w, n + 1);
    refuses("interchange.tmp.pt", &given, "twice");
    w.entry[3].name = "somewhere.else";
    write_raw(&w, n);
    given.drop_unexpected = false;
    refuses("interchange.tmp.pt", &given, "1 missing (visual.bn1.running_mean), 1 unexpected (somewhere.else)");
    weights_release(&w);
    clean("interchange.tmp.pt");
}

static void integers_are_no_weights(void)
{
    weights w = make("tiny-rn");
    w.entry[1].t.dtype = CLOOB_I32;
    write_raw(&w, w.count);
    refuses("interchange.tmp.pt", NULL, "visual.bn1.weight: I32 (4)");
    weights_release(&w);
    clean("interchange.tmp.pt");
}

static void other_things_are_refused(void)
{
    float x = 1;
    st_entry e = { "x", TENSOR(CLOOB_F32, &x, 1) };
    CHECK_OK(ctx, torch_write(ctx, "interchange.tmp.pt", &e, 1, NULL));
    refuses("interchange.tmp.pt", NULL, "not recognised as a CLIP model");
    refuses("absent.pt", NULL, "absent.pt");
    refuses(".", NULL, "no weights in this folder");
    clean("interchange.tmp.pt");
}

/* ---- the native file ----------------------------------------------------------------------------- */

static void native_files_keep_all_metadata(void)
{
    weights w = make("tiny-vit"), back;
    const char *path = "interchange.tmp.safetensors";
    CHECK_OK(ctx, weights_set_meta(ctx, &w, "method", "cloob"));
    CHECK_OK(ctx, weights_set_meta(ctx, &w, "method", "clip"));
    CHECK_OK(ctx, weights_write_native(ctx, path, &w));
    CHECK_OK(ctx, weights_read_native(ctx, path, &back));
    CHECK(same_weights(&w, &back));
    CHECK_STR(weights_get_meta(&back, "method"), "clip");
    CHECK_STR(weights_get_meta(&back, "activation"), "quickgelu");
    CHECK(back.entry[0].t.data > (void *)back.st.map.data); /* mapped, not copied */
    weights_release(&back);
    CHECK_OK(ctx, weights_set_meta(ctx, &w, "method", NULL));
    CHECK(!weights_get_meta(&w, "method") && weights_get_meta(&w, "config"));
    w.entry[0].name = "renamed";
    CHECK_OK(ctx, weights_write_native(ctx, path, &w));
    CHECK(weights_read_native(ctx, path, &back) == CLOOB_ERR_FORMAT &&
          strstr(cloob_error(ctx), "visual.class_embedding is missing"));
    CHECK_OK(ctx, st_write(ctx, path, w.entry, w.count, NULL, 0));
    CHECK(weights_read_native(ctx, path, &back) == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "cloob convert"));
    weights_release(&w);
    clean(path);
}

static void the_state_of_a_run_stays_behind(void)
{
    weights w = make("tiny-vit"), back;
    const char *path = "interchange.tmp.safetensors";
    interchange_report report;
    tensor moments = w.entry[0].t;
    CHECK_OK(ctx, weights_add(ctx, &w, "train.m.visual.class_embedding", &moments));
    CHECK_OK(ctx, weights_set_meta(ctx, &w, "train.epoch", "5"));
    CHECK_OK(ctx, weights_set_meta(ctx, &w, "checksum", "0123"));
    CHECK_OK(ctx, weights_write_native(ctx, path, &w));
    CHECK_OK(ctx, interchange_read(ctx, path, NULL, &back, &report));
    CHECK(back.count == w.count - 1 && !weights_get_meta(&back, "checksum") && !weights_get_meta(&back, "train.epoch"));
    CHECK_STR(weights_get_meta(&back, "epoch"), "5");
    CHECK(report.count[KEY_IGNORED] == 0 && report.count[KEY_UNEXPECTED] == 0);
    interchange_report_release(&report);
    weights_release(&back);
    weights_release(&w);
    clean(path);
}

/* ---- files that PyTorch wrote (tests/ref/make/make_foreign_ref.py) --------------------------------------- */

#define FOREIGN TESTS_DIR "/ref/foreign/"
static const char *const foreign_file[] = { FOREIGN "authors_epoch_2.pt", FOREIGN "openai_state_dict.pt" };

/* Shapes alone do not tell the text tower's heads, two of 8; the configuration does. */
static cloob_status read_foreign(int i, weights *w)
{
    model_config c;
    interchange_options o = { .config = &c };
    CLOOB_TRY(model_config_load(ctx, FOREIGN "mini-rn.json", &c));
    return read_as(foreign_file[i], &o, w);
}

static void foreign_files_equal_the_procedural_weights(void)
{
    for (int i = 0; i < 2; i++) {
        weights w = make(FOREIGN "mini-rn.json"), back;
        CHECK_OK(ctx, read_foreign(i, &back));
        CHECK(back.config.text_heads == 2 && back.config.image_size == 64);
        for (int64_t k = 0; k < w.count; k++) {
            const tensor *t = weights_find(&back, w.entry[k].name);
            CHECK(t && memcmp(t->data, w.entry[k].t.data, tensor_bytes(t)) == 0);
        }
        weights_release(&back);
        weights_release(&w);
    }
}

/* A foreign file through the towers, against what the reference gave for the same weights. */
static void foreign_files_give_the_frozen_outputs(void)
{
    enum { N = 6 };
    st_file frozen;
    CHECK_OK(ctx, st_open(ctx, FOREIGN "mini-rn.safetensors", &frozen));
    for (int i = 0; i < 2; i++) {
        weights w;
        device *dev;
        encoder *e;
        encoder_options o;
        encoder_options_init(&o);
        CHECK_OK(ctx, read_foreign(i, &w));
        CHECK_OK(ctx, device_open(ctx, "cpu", &dev));
        model_config config = w.config;
        CHECK_OK(ctx, encoder_create(ctx, &w, dev, &o, &e));
        CHECK(!w.entry && !w.count); /* they are the encoder's now */
        int64_t size = config.image_size, embed = config.embed;
        float *x = malloc((size_t)(N * 3 * size * size) * sizeof *x), *y = malloc((size_t)(N * embed) * sizeof *y);
        int32_t *t = malloc((size_t)(N * config.context) * sizeof *t);
        procedural_images(x, N, size);
        procedural_tokens(t, N, &config);
        CHECK_OK(ctx, encoder_float_images(ctx, e, x, N, CLOOB_RAW, y));
        CHECK(relative_error(y, st_find(&frozen, "eval.image")->t.data, N * embed, 0.01) < 1e-5);
        CHECK_OK(ctx, encoder_texts(ctx, e, t, N, CLOOB_RAW, y));
        CHECK(relative_error(y, st_find(&frozen, "eval.text")->t.data, N * embed, 0.01) < 1e-5);
        free(x), free(y), free(t);
        encoder_destroy(e);
        device_close(dev);
    }
    st_close(&frozen);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(names_by_hand);
    RUN(procedural_values_are_the_agreed_ones);
    RUN(round_trips_lose_nothing);
    RUN(half_precision_and_counts_are_kept);
    RUN(a_resnet_is_refused_as_a_hugging_face_model);
    RUN(heads_follow_openai_s_rule_or_are_asked_for);
    RUN(activation_can_be_given);
    RUN(neighbours_tell_the_configuration);
    RUN(every_key_is_accounted_for);
    RUN(integers_are_no_weights);
    RUN(other_things_are_refused);
    RUN(shards_are_joined);
    RUN(prefixes_are_dropped);
    RUN(families_survive);
    RUN(strangers_are_named);
    RUN(native_files_keep_all_metadata);
    RUN(the_state_of_a_run_stays_behind);
    RUN(foreign_files_equal_the_procedural_weights);
    RUN(foreign_files_give_the_frozen_outputs);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
