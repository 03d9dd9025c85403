/* The towers against frozen values: outputs in evaluation and training mode (tests/ref/model.json; RN50 and ViT-B-32,
 * which take their time, with the argument "large": tests/ref/foreign); fused ops against single ones; the last
 * block. */
#include "check.h"
#include "procedural.h"

#include "core/json.h"
#include "core/rng.h"
#include "graph/exec.h"
#include "io/safetensors.h"
#include "model/tower.h"

static cloob_ctx *ctx;

typedef struct model {
    device *dev;
    params *p;
    exec *image, *text;
} model;

static bool make_tower(model *m, bool image, const tower_options *o, exec **e)
{
    graph g;
    exec_bindings bind = { .param = m->p->compute_view, .master = m->p->master_view, .grad = m->p->grad_view };
    cloob_status s = image ? tower_image(ctx, m->p, o, &g) : tower_text(ctx, m->p, o, &g);
    if (s == CLOOB_OK) s = exec_create(ctx, &g, m->dev, &bind, e);
    graph_release(&g);
    CHECK_OK(ctx, s);
    return s == CLOOB_OK;
}

static bool fill_inputs(model *m, int64_t n)
{
    const model_config *c = &m->p->config;
    const tensor *images = exec_tensor(m->image, "images"), *tokens = exec_tensor(m->text, "tokens");
    float *x = malloc(tensor_bytes(images));
    int32_t *t = malloc(tensor_bytes(tokens));
    procedural_images(x, n, c->image_size);
    procedural_tokens(t, n, c);
    CHECK_OK(ctx, m->dev->to_device(ctx, m->dev, images->data, x, tensor_bytes(images)));
    CHECK_OK(ctx, m->dev->to_device(ctx, m->dev, tokens->data, t, tensor_bytes(tokens)));
    free(x);
    free(t);
    return true;
}

static bool open_model(model *m, const char *name, const char *where, cloob_dtype compute, int64_t n, bool train)
{
    model_config c;
    tower_options o = { .batch = n, .train = train, .float_images = true, .gpu_input = strncmp(where, "cuda", 4) == 0 };
    *m = (model){ 0 };
    CHECK_OK(ctx, model_config_by_name(ctx, name, &c));
    CHECK_OK(ctx, device_open(ctx, where, &m->dev));
    CHECK_OK(ctx, params_create(ctx, &c, m->dev, compute, PARAMS_INFER, &m->p));
    CHECK_OK(ctx, procedural_params(ctx, m->p));
    return make_tower(m, true, &o, &m->image) && make_tower(m, false, &o, &m->text) && fill_inputs(m, n);
}

static void close_model(model *m)
{
    exec_destroy(m->image);
    exec_destroy(m->text);
    params_destroy(m->p);
    device_close(m->dev);
}

/* The frozen values of an output: a list of the JSON file (small models), or a tensor of a safetensors file. */
static bool frozen_output(const char *name, bool large, const char *what, float *out, int64_t n)
{
    char path[512];
    if (large) {
        st_file f;
        snprintf(path, sizeof path, TESTS_DIR "/ref/foreign/%s.safetensors", name);
        CHECK_OK(ctx, st_open(ctx, path, &f));
        const st_entry *e = st_find(&f, strstr(what, "image") ? "eval.image" : "eval.text");
        bool there = e && tensor_count(&e->t) == n;
        if (there) memcpy(out, e->t.data, (size_t)n * sizeof *out);
        st_close(&f);
        return there;
    }
    arena a = { 0 };
    json *root = NULL;
    int64_t i = 0;
    CHECK_OK(ctx, json_read_file(ctx, &a, TESTS_DIR "/ref/model.json", &root));
    const json *list = json_get(json_get(root, name), what);
    for (const json *v = list ? list->child : NULL; v && i < n; v = v->next) out[i++] = (float)v->number;
    arena_release(&a);
    return list && i == n;
}

static double output_error(model *m, exec *e, const char *name, bool large, const char *what)
{
    const tensor *got = exec_tensor(e, "raw");
    int64_t n = tensor_count(got);
    float *a = malloc((size_t)n * 4), *b = calloc((size_t)n, 4);
    void *host = malloc(tensor_bytes(got));
    CHECK_OK(ctx, m->dev->to_host(ctx, m->dev, host, got->data, tensor_bytes(got)));
    CHECK(frozen_output(name, large, what, b, n));
    dtype_convert(CLOOB_F32, a, got->dtype, host, n);
    double error = relative_error(a, b, n, 1e-6);
    free(a), free(b), free(host);
    return error;
}

static void check_outputs(const char *name, bool large, const char *where, cloob_dtype compute, bool train,
                          double tolerance)
{
    model m;
    if (open_model(&m, name, where, compute, large ? 4 : 6, train)) {
        CHECK_OK(ctx, exec_forward(m.image));
        CHECK_OK(ctx, exec_forward(m.text));
        double image = output_error(&m, m.image, name, large, train ? "train_image" : "eval_image");
        double text = output_error(&m, m.text, name, large, "eval_text"); /* it has no batch norm */
        printf("  %s on %s (%s, %s): image %.2e, text %.2e\n", name, where, dtype_name(compute),
               train ? "train" : "eval", image, text);
        CHECK(image < tolerance && text < tolerance);
    }
    close_model(&m);
}

/* ---- fused ops ----------------------------------------------------------------------------------- */

typedef struct slopes {
    float *output, *grad;
    int64_t outputs, grads;
    int fused; /* count_fused */
} slopes;

/* Groups, and sums of gradients that another op takes along. */
static int count_fused(const model *m, const tower_options *o)
{
    graph g;
    CHECK_OK(ctx, tower_image(ctx, m->p, o, &g));
    int n = g.groups;
    for (int i = 0; i < g.nodes; i++) n += g.node[i].op != OP_COUNT && g.node[i].attr.sums;
    graph_release(&g);
    return n;
}

/* Output and all gradients of an image tower, forward and backward, with or without fused ops. */
static slopes run_tower(const char *name, bool fuse, bool bytes)
{
    model m = { 0 };
    model_config c;
    slopes s = { 0 };
    exec *e = NULL;
    tower_options o = { .batch = 3,
                        .train = true,
                        .backward = true,
                        .float_images = !bytes,
                        .fuse_gemm = fuse,
                        .grad = { .recompute = true } };
    CHECK_OK(ctx, model_config_by_name(ctx, name, &c));
    CHECK_OK(ctx, device_open(ctx, "cpu", &m.dev));
    CHECK_OK(ctx, params_create(ctx, &c, m.dev, CLOOB_F32, PARAMS_TRAIN, &m.p));
    CHECK_OK(ctx, procedural_params(ctx, m.p));
    if (!make_tower(&m, true, &o, &e)) return s;
    const tensor *images = exec_tensor(e, "images");
    if (!bytes) procedural_images(images->data, 3, c.image_size);
    for (int64_t i = 0; bytes && i < tensor_count(images); i++) ((uint8_t *)images->data)[i] = (uint8_t)(i * i % 251);
    s.fused = count_fused(&m, &o);
    CHECK_OK(ctx, exec_forward(e));
    const tensor *y = exec_tensor(e, "output"), *dy = exec_tensor(e, "doutput");
    s.outputs = tensor_count(y);
    for (int64_t i = 0; i < s.outputs; i++) ((float *)dy->data)[i] = (float)rng_normal(9, (uint64_t)i);
    CHECK_OK(ctx, exec_backward(e));
    s.output = malloc((size_t)s.outputs * sizeof(float));
    memcpy(s.output, y->data, (size_t)s.outputs * sizeof(float));
    s.grads = m.p->trainable;
    s.grad = malloc((size_t)s.grads * sizeof(float));
    memcpy(s.grad, m.p->grad, (size_t)s.grads * sizeof(float));
    exec_destroy(e);
    params_destroy(m.p);
    device_close(m.dev);
    return s;
}

static void fused_ops_change_nothing(void)
{
    static const char *const names[] = { "tiny-rn", "tiny-vit", "tiny-rn" };
    for (int i = 0; i < 3; i++) {
        bool bytes = i == 2; /* a stem that reads its images itself */
        slopes separate = run_tower(names[i], false, bytes), fused = run_tower(names[i], true, bytes);
        CHECK(separate.fused == 0 && fused.fused > 0);
        CHECK(relative_error(fused.output, separate.output, separate.outputs, 1e-6) < 1e-5);
        CHECK(relative_error(fused.grad, separate.grad, separate.grads, 1e-6) < 1e-5);
        free(separate.output), free(separate.grad), free(fused.output), free(fused.grad);
    }
}

static void tiny_models_match(void)
{
    static const char *const where[] = { "ref", "cpu" };
    for (int w = 0; w < 2; w++)
        for (int train = 0; train < 2; train++) {
            check_outputs("tiny-rn", false, where[w], CLOOB_F32, train, 1e-5);
            check_outputs("tiny-vit", false, where[w], CLOOB_F32, train, 1e-5);
        }
}

/* bf16 has 8 bits: two dozen layers of rounding stay within 2 %. */
static void tiny_models_match_in_bf16(void)
{
    check_outputs("tiny-rn", false, "cpu", CLOOB_BF16, false, 2e-2);
    check_outputs("tiny-vit", false, "cpu", CLOOB_BF16, false, 2e-2);
}

static void large_models_match(void)
{
    check_outputs("RN50", true, "cpu", CLOOB_F32, false, 1e-4);
    check_outputs("ViT-B-32", true, "cpu", CLOOB_F32, false, 1e-4);
    check_outputs("RN50", true, "cpu", CLOOB_BF16, false, 2e-2);
    check_outputs("ViT-B-32", true, "cpu", CLOOB_BF16, false, 2e-2);
}

/* ---- one query per sequence ---------------------------------------------------------------------- */

/* The last block forms neither keys nor values. The gradient of the key bias is 0, and no op writes it; the biases of
 * queries and values have gradients. */
static void key_bias_of_the_last_block_has_gradient_0(void)
{
    model m = { 0 };
    model_config c;
    exec *e = NULL;
    tower_options o = { .batch = 3, .train = true, .backward = true };
    CHECK_OK(ctx, model_config_by_name(ctx, "tiny-vit", &c));
    CHECK_OK(ctx, device_open(ctx, "cpu", &m.dev));
    CHECK_OK(ctx, params_create(ctx, &c, m.dev, CLOOB_F32, PARAMS_TRAIN, &m.p));
    CHECK_OK(ctx, procedural_params(ctx, m.p));
    if (make_tower(&m, false, &o, &e)) {
        char name[64];
        int64_t C = c.text_width;
        snprintf(name, sizeof name, "transformer.resblocks.%d.attn.in_proj_bias", (int)c.text_layers - 1);
        const float *grad = m.p->grad_view[params_find(m.p, name)].data;
        procedural_tokens(exec_tensor(e, "tokens")->data, o.batch, &c);
        for (int pass = 0; pass < 2; pass++) {
            CHECK_OK(ctx, exec_forward(e));
            const tensor *dy = exec_tensor(e, "doutput");
            for (int64_t i = 0; i < tensor_count(dy); i++) ((float *)dy->data)[i] = (float)rng_normal(9, (uint64_t)i);
            CHECK_OK(ctx, exec_backward(e));
            double sum[3] = { 0 };
            for (int64_t i = 0; i < 3 * C; i++) sum[i / C] += fabs((double)grad[i]);
            CHECK(sum[0] > 0 && sum[1] == 0 && sum[2] > 0);
        }
        exec_destroy(e);
    }
    params_destroy(m.p);
    device_close(m.dev);
}

typedef struct uses {
    int folded, keys; /* pool_attention and attention_one */
} uses;

static uses count_uses(const graph *g)
{
    uses u = { 0 };
    for (int i = 0; i < g->nodes; i++) {
        u.folded += g->node[i].op == OP_POOL_ATTENTION;
        u.keys += g->node[i].op == OP_ATTENTION_ONE;
    }
    return u;
}

/* Training, and inference on a GPU, go without keys and values; inference on the CPU forms them. The same holds with
 * adapters. A GPU's biases are in bf16. */
static void last_blocks_are_folded_where_they_can_be(void)
{
    model_config c;
    CHECK_OK(ctx, model_config_by_name(ctx, "tiny-vit", &c));
    for (int i = 0; i < 16; i++) {
        bool gpu = i & 1, train = i & 2, text = i & 4, lora = i & 8;
        device dev = { .backend = gpu ? BACKEND_CUDA : BACKEND_CPU };
        params_training part = { .lora = lora ? 2 : 0, .lora_scale = 0.5 };
        tower_options o = { .batch = 3, .train = train, .backward = train, .rows = text && train ? 32 : 0 };
        params *p = NULL;
        graph g;
        CHECK_OK(ctx, params_create_training(ctx, &c, &dev, CLOOB_BF16, PARAMS_TABLE, &part, &p));
        CHECK_OK(ctx, text ? tower_text(ctx, p, &o, &g) : tower_image(ctx, p, &o, &g));
        uses u = count_uses(&g);
        CHECK(u.folded == (gpu || train) && u.keys == !(gpu || train));
        graph_release(&g);
        params_destroy(p);
    }
}

/* In bf16 a GPU's GEMMs add biases in bf16, from the copies that the optimizer writes; norms and the attention pool's
 * collected heads keep theirs in F32. On the CPU all stay in F32. */
static void biases_of_gemms_are_in_compute_precision_on_a_gpu(void)
{
    static const struct {
        const char *name;
        bool half;
    } row[] = { { "transformer.resblocks.0.attn.in_proj_bias", true },
                { "transformer.resblocks.0.attn.out_proj.bias", true },
                { "transformer.resblocks.0.mlp.c_fc.bias", true },
                { "transformer.resblocks.0.mlp.c_proj.bias", true },
                { "transformer.resblocks.0.ln_1.bias", false },
                { "ln_final.bias", false },
                { "visual.attnpool.v_proj.bias", false },
                { "visual.bn1.bias", false } };
    model_config c;
    CHECK_OK(ctx, model_config_by_name(ctx, "tiny-rn", &c));
    for (int gpu = 0; gpu < 2; gpu++) {
        device dev = { .backend = gpu ? BACKEND_CUDA : BACKEND_CPU };
        params *p = NULL;
        CHECK_OK(ctx, params_create(ctx, &c, &dev, CLOOB_BF16, PARAMS_TABLE, &p));
        for (size_t i = 0; p && i < sizeof row / sizeof *row; i++) {
            int at = params_find(p, row[i].name);
            CHECK(at >= 0 && p->compute_view[at].dtype == (gpu && row[i].half ? CLOOB_BF16 : CLOOB_F32));
        }
        params_destroy(p);
    }
}

int main(int argc, char **argv)
{
    ctx = cloob_ctx_create(NULL);
    RUN(biases_of_gemms_are_in_compute_precision_on_a_gpu);
    RUN(key_bias_of_the_last_block_has_gradient_0);
    RUN(last_blocks_are_folded_where_they_can_be);
    RUN(fused_ops_change_nothing);
    RUN(tiny_models_match);
    RUN(tiny_models_match_in_bf16);
    if (argc > 1 && strcmp(argv[1], "large") == 0) RUN(large_models_match);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
