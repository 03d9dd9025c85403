/* Training a part of a model: adapters against the model they stand for, rates by layer, locked tensors byte for byte,
 * runs with adapters that are resumed. */
#include "setup.h"
#include "small_run.h"

#include "model/encoder.h"
#include "model/params.h"
#include "train/settings.h"

static cloob_ctx *ctx;

enum { ROWS = 6, RANK = 3 };

static void options(step_options *o, const char *model)
{
    step_options_init(o);
    CHECK_OK(ctx, model_config_by_name(ctx, model, &o->model));
    o->batch = ROWS;
    o->float_images = true;
    o->pack_texts = true;
}

static void adapters(step_options *o, const char *model, double scale)
{
    options(o, model);
    o->part.lora = RANK;
    o->part.lora_scale = scale;
}

/* Procedural weights in A and B, neither 0, and the scale. */
static void open_adapted(setup *u, const step_options *o)
{
    float scale[RANK];
    CHECK_OK(ctx, setup_open(ctx, u, o, "cpu", ROWS));
    int row = params_find(step_params(u->s), LORA_SCALE);
    for (int i = 0; i < RANK; i++) scale[i] = (float)o->part.lora_scale;
    if (row >= 0) CHECK_OK(ctx, params_set(ctx, step_params(u->s), row, scale));
}

static bool same_bytes(const void *a, const void *b, size_t n) { return memcmp(a, b, n) == 0; }

/* ---- adapters ------------------------------------------------------------------------------------ */

/* A model whose B is 0 is the model that was given, in training and in the encoder. */
static void fresh_adapters_change_no_byte(void)
{
    static const char *const models[] = { "tiny-vit", "tiny-rn" };
    for (int i = 0; i < 2; i++) {
        step_options o;
        setup plain, with;
        step_result r, q;
        options(&o, models[i]);
        o.part.lock_image = i == 1; /* a ResNet has no adapters, and stays as it is */
        CHECK_OK(ctx, setup_open(ctx, &plain, &o, "cpu", ROWS));
        adapters(&o, models[i], 2);
        CHECK_OK(ctx, setup_open(ctx, &with, &o, "cpu", ROWS));
        CHECK_OK(ctx, params_init_adapters(ctx, step_params(with.s), 7));
        CHECK_OK(ctx, step_gradients(ctx, plain.s, plain.images, plain.tokens, &r));
        CHECK_OK(ctx, step_gradients(ctx, with.s, with.images, with.tokens, &q));
        CHECK(r.loss == q.loss);
        for (int t = 0; t < 2; t++)
            CHECK(same_bytes(step_embeddings(plain.s, t), step_embeddings(with.s, t),
                             (size_t)(ROWS * plain.D) * sizeof(float)));
        setup_close(&plain), setup_close(&with);
    }
}

/* The weights a file would hold, in a step of their own that trains all of them. */
static void open_merged(setup *to, const setup *from, const char *model)
{
    step_options o;
    weights w;
    options(&o, model);
    CHECK_OK(ctx, setup_open(ctx, to, &o, "cpu", ROWS));
    weights_init(&w);
    CHECK_OK(ctx, params_store(ctx, step_params(from->s), &w));
    CHECK_OK(ctx, params_load(ctx, step_params(to->s), &w));
    weights_release(&w);
}

static void merged_weights_are_the_adapted_model(void)
{
    for (int k = 0; k < 2; k++) {
        step_options o;
        setup with, merged;
        step_result r, q;
        double worst = 0;
        adapters(&o, "tiny-vit", k ? 0.5 : 1);
        open_adapted(&with, &o);
        open_merged(&merged, &with, "tiny-vit");
        CHECK_OK(ctx, step_gradients(ctx, with.s, with.images, with.tokens, &r));
        CHECK_OK(ctx, step_gradients(ctx, merged.s, merged.images, merged.tokens, &q));
        for (int t = 0; t < 2; t++)
            for (int64_t i = 0; i < ROWS * with.D; i++)
                worst = fmax(worst, fabs((double)step_embeddings(with.s, t)[i] - step_embeddings(merged.s, t)[i]));
        printf("  scale %g: embeddings differ by %.1e\n", o.part.lora_scale, worst);
        CHECK(worst < 1e-6);
        setup_close(&with), setup_close(&merged);
    }
}

/* With G the gradient of W + s B A: that of A is s B^T G, that of B is s G A^T. */
static double adapter_error(const params *p, int row, const float *G)
{
    int at = p->row[row].adapter;
    const param *A = &p->row[at], *B = &p->row[at + 1];
    int64_t in = A->file.dim[1], r = A->file.dim[0], out = B->file.dim[0];
    const float *a = p->master + A->offset, *b = p->master + B->offset;
    double s = p->training.lora_scale;
    float *wa = calloc((size_t)A->count, sizeof *wa), *wb = calloc((size_t)B->count, sizeof *wb);
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++)
            for (int64_t k = 0; k < r; k++) {
                wa[k * in + i] += (float)(s * (double)b[o * r + k] * G[o * in + i]);
                wb[o * r + k] += (float)(s * (double)G[o * in + i] * a[k * in + i]);
            }
    double worst = fmax(relative_error(p->grad + A->offset, wa, A->count, 1e-7),
                        relative_error(p->grad + B->offset, wb, B->count, 1e-7));
    free(wa), free(wb);
    return worst;
}

static void gradients_are_those_of_the_composition(void)
{
    for (int k = 0; k < 4; k++) { /* two scales; packed texts and padded ones */
        step_options o;
        setup with, merged;
        step_result r, q;
        double worst = 0;
        int pairs = 0;
        adapters(&o, "tiny-vit", k % 2 ? 0.5 : 1);
        o.pack_texts = k < 2;
        open_adapted(&with, &o);
        open_merged(&merged, &with, "tiny-vit");
        CHECK_OK(ctx, step_gradients(ctx, with.s, with.images, with.tokens, &r));
        CHECK_OK(ctx, step_gradients(ctx, merged.s, merged.images, merged.tokens, &q));
        const params *p = step_params(with.s), *full = step_params(merged.s);
        for (int i = 0; i < p->count; i++) {
            if (p->row[i].adapter < 0) continue;
            int at = params_find(full, p->row[i].name);
            worst = fmax(worst, adapter_error(p, i, full->grad + full->row[at].offset));
            pairs++;
        }
        printf("  %d pairs, scale %g, %s texts: gradients differ by %.1e\n", pairs, o.part.lora_scale,
               o.pack_texts ? "packed" : "padded", worst);
        CHECK(pairs == 4 * (int)(o.model.layers[0] + o.model.text_layers) && worst < 2e-4);
        CHECK(p->trainable < full->trainable / 2);
        setup_close(&with), setup_close(&merged);
    }
}

/* Adapters after a few steps, on a device. */
static float *trained_adapters(const char *where, const char *model, cloob_dtype compute, int64_t *n)
{
    step_options o;
    setup u;
    step_result r;
    adapters(&o, model, 2);
    o.compute = compute;
    CHECK_OK(ctx, setup_open(ctx, &u, &o, where, ROWS));
    CHECK_OK(ctx, params_init_adapters(ctx, step_params(u.s), 7));
    for (int k = 0; k < 4; k++) CHECK_OK(ctx, step_run(ctx, u.s, u.images, u.tokens, 1e-3, &r));
    *n = step_params(u.s)->trainable;
    float *g = malloc((size_t)*n * sizeof *g);
    CHECK_OK(ctx, u.dev->to_host(ctx, u.dev, g, step_params(u.s)->master, (size_t)*n * sizeof *g));
    setup_close(&u);
    return g;
}

/* AdamW's first steps are as large for a gradient near 0, whose sign rounding may change: 1e-2 of the weights. */
static void a_gpu_trains_the_same_adapters(void)
{
    static const char *const models[] = { "tiny-vit", "tiny-rn" };
    if (!device_cuda_count()) SKIP("no GPU here");
    for (int i = 0; i < 2; i++) {
        int64_t n;
        float *cpu = trained_adapters("cpu", models[i], CLOOB_F32, &n);
        float *gpu = trained_adapters("cuda", models[i], CLOOB_F32, &n);
        float *half = trained_adapters("cuda", models[i], CLOOB_BF16, &n);
        printf("  %s: adapters differ by %.1e, in bf16 by %.1e\n", models[i], relative_error(gpu, cpu, n, 1e-6),
               relative_error(half, cpu, n, 1e-6));
        CHECK(relative_error(gpu, cpu, n, 1e-6) < 1e-2);
        for (int64_t k = 0; k < n; k++) CHECK(isfinite(half[k]));
        free(cpu), free(gpu), free(half);
    }
}

/* ---- what stays ---------------------------------------------------------------------------------- */

/* A locked row must keep its bytes; every other one with a gradient must not. */
static void train_and_compare(step_options *o, const char *what)
{
    setup u;
    step_result r;
    int stay = 0, move = 0;
    CHECK_OK(ctx, setup_open(ctx, &u, o, "cpu", ROWS));
    params *p = step_params(u.s);
    size_t bytes = (size_t)p->total * sizeof(float);
    float *before = malloc(bytes);
    memcpy(before, p->master, bytes);
    for (int k = 0; k < 3; k++) CHECK_OK(ctx, step_run(ctx, u.s, u.images, u.tokens, 1e-3, &r));
    for (int i = 0; i < p->count; i++) {
        const param *row = &p->row[i];
        bool same = same_bytes(before + row->offset, p->master + row->offset, (size_t)row->count * sizeof(float));
        /* the softmax does not see a bias of all keys: it has no gradient */
        bool stays = row->frozen || strcmp(row->name, "visual.attnpool.k_proj.bias") == 0;
        if (same != stays) printf("  %s: %s %s\n", what, row->name, same ? "did not move" : "moved");
        CHECK(same == stays);
        stay += same, move += !same;
    }
    printf("  %s: %d tensors moved, %d kept their bytes\n", what, move, stay);
    free(before);
    setup_close(&u);
}

static void locked_tensors_keep_their_bytes(void)
{
    step_options o;
    options(&o, "tiny-vit");
    o.part.lock_image = true;
    train_and_compare(&o, "ViT, image tower locked");
    options(&o, "tiny-vit");
    o.part.lock_image = true, o.part.unlocked_image = 2;
    o.part.lock_text = true, o.part.unlocked_text = 1;
    train_and_compare(&o, "ViT, two groups and one unlocked");
    options(&o, "tiny-rn");
    o.part.lock_image = true;
    train_and_compare(&o, "ResNet, locked");
    options(&o, "tiny-rn");
    o.part.lock_image = true, o.part.unlocked_image = 2;
    train_and_compare(&o, "ResNet, stage 4 and pool unlocked");
    adapters(&o, "tiny-vit", 1);
    train_and_compare(&o, "ViT, adapters");
}

/* As open_clip's lock() has them. */
static void groups_are_those_of_open_clip(void)
{
    static const struct {
        const char *model, *name;
        int group, count;
    } rows[] = {
        { "ViT-B-32", "visual.conv1.weight", 0, 14 },
        { "ViT-B-32", "visual.ln_pre.bias", 0, 14 },
        { "ViT-B-32", "visual.transformer.resblocks.0.ln_1.weight", 1, 14 },
        { "ViT-B-32", "visual.transformer.resblocks.11.mlp.c_fc.weight.lora_A", 12, 14 },
        { "ViT-B-32", "visual.ln_post.weight", 12, 14 },
        { "ViT-B-32", "visual.proj", 13, 14 },
        { "ViT-B-32", "token_embedding.weight", 0, 14 },
        { "ViT-B-32", "positional_embedding", 0, 14 },
        { "ViT-B-32", "transformer.resblocks.10.ln_2.bias", 11, 14 },
        { "ViT-B-32", "ln_final.weight", 12, 14 },
        { "ViT-B-32", "text_projection", 13, 14 },
        { "RN50", "visual.bn3.weight", 0, 6 },
        { "RN50", "visual.layer4.0.conv1.weight", 4, 6 },
        { "RN50", "visual.attnpool.c_proj.weight", 5, 6 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model_config c;
        int count;
        CHECK_OK(ctx, model_config_by_name(ctx, rows[i].model, &c));
        CHECK(model_group(&c, rows[i].name, &count) == rows[i].group && count == rows[i].count);
    }
}

/* Plain rates, and how far a tensor moves: AdamW's first step is the rate whatever the gradient, without decay. */
static void rates_decay_by_layer(void)
{
    step_options o;
    setup u;
    step_result r;
    int checked = 0;
    options(&o, "tiny-vit");
    o.layer_decay = 0.5, o.wd = 0, o.eps = 0;
    CHECK_OK(ctx, setup_open(ctx, &u, &o, "cpu", ROWS));
    params *p = step_params(u.s);
    float *before = malloc((size_t)p->total * sizeof *before);
    memcpy(before, p->master, (size_t)p->total * sizeof *before);
    CHECK_OK(ctx, step_run(ctx, u.s, u.images, u.tokens, 1e-2, &r));
    for (int i = 0; i < p->count; i++) {
        int count, group = model_group(&p->config, p->row[i].name, &count);
        double want = pow(0.5, count - 1 - group), most = 0;
        CHECK(step_rate(u.s, i) == want);
        for (int64_t k = p->row[i].offset; k < p->row[i].offset + p->row[i].count; k++)
            most = fmax(most, fabs((double)p->master[k] - before[k]));
        CHECK_NEAR(most / 1e-2, want, 1e-3 * want + 1e-4); /* weights near 1 are rounded to 1e-7 */
        checked++;
    }
    CHECK(checked == p->count);
    free(before);
    setup_close(&u);
}

/* ---- runs ---------------------------------------------------------------------------------------- */

static cloob_status train(const char *name, const char *resume, const char *lora, int64_t steps)
{
    cloob_train_options o;
    cloob_train_summary s;
    small_run_options(&o, name, resume);
    o.max_steps = steps;
    o.lora = lora, o.layer_decay = 0.9;
    return cloob_train(ctx, &o, &s);
}

static void resumed_adapters_end_alike(void)
{
    CHECK_OK(ctx, train("whole", NULL, "r=4,alpha=8", 9));
    CHECK_OK(ctx, train("parts", NULL, "r=4,alpha=8", 4));
    CHECK(train("parts", "latest", "r=4", 9) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "r=4,alpha=8"));
    CHECK(train("parts", "latest", NULL, 9) == CLOOB_ERR_ARGUMENT);
    CHECK_OK(ctx, train("parts", "latest", "r=4,alpha=8", 9));
    CHECK(same_checkpoints(ctx, "whole", "parts", "latest", "train.lora."));
    CHECK(train("none", NULL, "r=0", 4) == CLOOB_ERR_ARGUMENT);
    CHECK(train("none", NULL, "r=4000", 4) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "rank"));
}

static void ranks_are_read(void)
{
    static const struct {
        const char *text;
        int64_t rank;
        double scale;
    } rows[] = { { "r=8", 8, 1 },         { "8", 8, 1 },  { "r=8,alpha=16", 8, 2 }, { "rank=2,alpha=1", 2, 0.5 },
                 { "r=8,beta=2", 0, 0 },  { "", 0, 0 },   { "r=-1", 0, 0 },         { "r=8,", 0, 0 },
                 { "r=8,alpha=0", 0, 0 }, { "8x", 0, 0 }, { "r=8,alpha=nan", 0, 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t rank = 0;
        double scale = 0;
        CHECK(settings_lora(rows[i].text, &rank, &scale) == (rows[i].rank > 0));
        CHECK(rank == rows[i].rank && scale == rows[i].scale);
    }
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    scratch_folder(logs, sizeof logs);
    RUN(fresh_adapters_change_no_byte);
    RUN(merged_weights_are_the_adapted_model);
    RUN(gradients_are_those_of_the_composition);
    RUN(a_gpu_trains_the_same_adapters);
    RUN(locked_tensors_keep_their_bytes);
    RUN(groups_are_those_of_open_clip);
    RUN(rates_decay_by_layer);
    RUN(resumed_adapters_end_alike);
    RUN(ranks_are_read);
    check_remove(logs);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
