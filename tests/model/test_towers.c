/* The towers against frozen values: outputs in evaluation and training mode. */
#include "check.h"
#include "procedural.h"
#include "shared.h"

#include "core/rng.h"
#include "graph/exec.h"
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
    tower_options o = {
        .batch = n, .train = train, .float_images = true, .padded_input = strncmp(where, "cuda", 4) == 0
    };
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

static double output_error(model *m, exec *e, const st_file *f, const char *name)
{
    const st_entry *want = st_find(f, name);
    const tensor *got = exec_tensor(e, "raw");
    int64_t n = tensor_count(got);
    float *a = malloc((size_t)n * 4), *b = malloc((size_t)n * 4);
    void *host = malloc(tensor_bytes(got));
    CHECK_OK(ctx, m->dev->to_host(ctx, m->dev, host, got->data, tensor_bytes(got)));
    CHECK(want && tensor_count(&want->t) == n);
    dtype_convert(CLOOB_F32, a, got->dtype, host, n);
    dtype_convert(CLOOB_F32, b, want->t.dtype, want->t.data, n);
    double error = relative_error(a, b, n, 1e-6);
    free(a), free(b), free(host);
    return error;
}

static void check_outputs(const char *fixture, const char *name, const char *where, cloob_dtype compute, int64_t n,
                          bool train, double tolerance)
{
    char path[1024];
    st_file f;
    model m;
    if (!shared_path(fixture, path)) return;
    CHECK_OK(ctx, st_open(ctx, path, &f));
    if (open_model(&m, name, where, compute, n, train)) {
        CHECK_OK(ctx, exec_forward(m.image));
        CHECK_OK(ctx, exec_forward(m.text));
        double image = output_error(&m, m.image, &f, train ? "train.image" : "eval.image");
        double text = output_error(&m, m.text, &f, train ? "train.text" : "eval.text");
        printf("  %s on %s (%s, %s): image %.2e, text %.2e\n", name, where, dtype_name(compute),
               train ? "train" : "eval", image, text);
        CHECK(image < tolerance && text < tolerance);
    }
    close_model(&m);
    st_close(&f);
}

/* ---- joined ops ---------------------------------------------------------------------------------- */

typedef struct slopes {
    float *output, *grad;
    int64_t outputs, grads;
    int joined; /* ops that are two in one */
} slopes;

static void count_joined(void *user, op_id op, const op_args *a)
{
    (void)a;
    if (op >= OP_CONV_STATS && op < OP_COUNT) ++*(int *)user;
}

/* Output and all gradients of an image tower, forward and backward, with or without joined ops. */
static slopes run_tower(const char *name, bool join)
{
    model m = { 0 };
    model_config c;
    slopes s = { 0 };
    exec *e = NULL;
    tower_options o = {
        .batch = 3, .train = true, .backward = true, .float_images = true, .join = join, .grad = { .recompute = true }
    };
    CHECK_OK(ctx, model_config_by_name(ctx, name, &c));
    CHECK_OK(ctx, device_open(ctx, "cpu", &m.dev));
    CHECK_OK(ctx, params_create(ctx, &c, m.dev, CLOOB_F32, PARAMS_TRAIN, &m.p));
    CHECK_OK(ctx, procedural_params(ctx, m.p));
    if (!make_tower(&m, true, &o, &e)) return s;
    procedural_images(exec_tensor(e, "images")->data, 3, c.image_size);
    exec_on_call(e, count_joined, &s.joined);
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
    slopes apart = run_tower("tiny-rn", false), joined = run_tower("tiny-rn", true);
    CHECK(apart.joined == 0 && joined.joined > 0);
    CHECK(relative_error(joined.output, apart.output, apart.outputs, 1e-6) < 1e-5);
    CHECK(relative_error(joined.grad, apart.grad, apart.grads, 1e-6) < 1e-5);
    free(apart.output), free(apart.grad), free(joined.output), free(joined.grad);
}

static bool have_shared(void)
{
    char path[1024];
    return shared_path("fixtures/model_tiny-rn_cloob.safetensors", path) != NULL;
}

static void tiny_models_match(void)
{
    static const char *const where[] = { "ref", "cpu" };
    if (!have_shared()) SKIP("no shared fixtures here");
    for (int w = 0; w < 2; w++)
        for (int train = 0; train < 2; train++) {
            check_outputs("fixtures/model_tiny-rn_cloob.safetensors", "tiny-rn", where[w], CLOOB_F32, 6, train, 1e-5);
            check_outputs("fixtures/model_tiny-vit_cloob.safetensors", "tiny-vit", where[w], CLOOB_F32, 6, train, 1e-5);
        }
}

/* bf16 has 8 bits: two dozen layers of rounding stay within 2 %. */
static void tiny_models_match_in_bf16(void)
{
    if (!have_shared()) SKIP("no shared fixtures here");
    check_outputs("fixtures/model_tiny-rn_cloob.safetensors", "tiny-rn", "cpu", CLOOB_BF16, 6, false, 2e-2);
    check_outputs("fixtures/model_tiny-vit_cloob.safetensors", "tiny-vit", "cpu", CLOOB_BF16, 6, false, 2e-2);
}

static void large_models_match(void)
{
    if (!have_shared()) SKIP("no shared fixtures here");
    check_outputs("fixtures/model_RN50_eval.safetensors", "RN50", "cpu", CLOOB_F32, 4, false, 1e-4);
    check_outputs("fixtures/model_ViT-B-32_eval.safetensors", "ViT-B-32", "cpu", CLOOB_F32, 4, false, 1e-4);
    check_outputs("fixtures/model_RN50_eval.safetensors", "RN50", "cpu", CLOOB_BF16, 4, false, 2e-2);
    check_outputs("fixtures/model_ViT-B-32_eval.safetensors", "ViT-B-32", "cpu", CLOOB_BF16, 4, false, 2e-2);
}

int main(int argc, char **argv)
{
    ctx = cloob_ctx_create(NULL);
    RUN(fused_ops_change_nothing);
    RUN(tiny_models_match);
    RUN(tiny_models_match_in_bf16);
    if (argc > 1 && strcmp(argv[1], "large") == 0) RUN(large_models_match);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
