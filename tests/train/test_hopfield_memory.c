/* What the Hopfield networks store while a model trains: a queue against the objective by hand with the rows
 * of the step before, micro-batches, a file, and what is refused. */
#include "setup.h"

#include <unistd.h>

#include "io/safetensors.h"

static cloob_ctx *ctx;
static char folder[256];

enum { ROWS = 6, BATCHES = 3 };

static cloob_status open_step(setup *u, const char *memory, cloob_method method, int64_t accum)
{
    step_options o;
    step_options_init(&o);
    CHECK_OK(ctx, model_config_by_name(ctx, "tiny-vit", &o.model));
    o.batch = ROWS / accum;
    o.accum = accum;
    o.float_images = true;
    o.memory = memory;
    o.method = method;
    return setup_open(ctx, u, &o, "cpu", BATCHES * ROWS);
}

static float *copy_of(const float *x, int64_t n)
{
    float *c = malloc((size_t)n * sizeof *c);
    memcpy(c, x, (size_t)n * sizeof *c);
    return c;
}

/* Nothing is learned (lr 0): only the queue moves. */
static double still(setup *u, int64_t batch)
{
    step_result r = { 0 };
    CHECK_OK(ctx,
             step_run(ctx, u->s, u->images + batch * ROWS * u->image, u->tokens + batch * ROWS * u->context, 0, &r));
    return r.loss;
}

/* ---- a queue against the objective by hand -------------------------------------------------------- */

/* The definition, stored sets U and V given, of the embeddings in the towers of s; their gradients into the
 * towers. */
static double loss_by_hand(setup *u, const float *U, const float *V, int64_t M)
{
    loss_options o;
    loss_plan *plan = NULL;
    loss_result r = { 0 };
    loss_shape shape = { .rows = ROWS, .dim = u->D, .stored_u = M, .stored_v = M, .dtype = CLOOB_F32 };
    loss_options_init(&o);
    o.backend = LOSS_REF;
    CHECK_OK(ctx, loss_plan_create(ctx, &o, &shape, NULL, &plan));
    loss_inputs in = { .x = step_embeddings(u->s, false), .y = step_embeddings(u->s, true), .u = U, .v = V };
    loss_outputs out = { .dx = exec_tensor(step_tower(u->s, false), "doutput")->data,
                         .dy = exec_tensor(step_tower(u->s, true), "doutput")->data };
    CHECK_OK(ctx, loss_run(ctx, plan, &in, &out, NULL, &r));
    loss_plan_destroy(plan);
    return r.loss;
}

/* Gradients of batch `batch` with U and V stored, through the towers of a step that stores its batch. */
static float *gradients_by_hand(const float *U, const float *V, int64_t M, int64_t batch, double *loss)
{
    setup u;
    CHECK_OK(ctx, open_step(&u, "batch", CLOOB_METHOD_CLOOB, 1));
    exec *tower[2] = { step_tower(u.s, false), step_tower(u.s, true) };
    memcpy(exec_tensor(tower[0], "images")->data, u.images + batch * ROWS * u.image,
           (size_t)(ROWS * u.image) * sizeof(float));
    memcpy(exec_tensor(tower[1], "tokens")->data, u.tokens + batch * ROWS * u.context,
           (size_t)(ROWS * u.context) * sizeof(int32_t));
    for (int t = 0; t < 2; t++) CHECK(exec_forward(tower[t]) == CLOOB_OK);
    *loss = loss_by_hand(&u, U, V, M);
    for (int t = 0; t < 2; t++) CHECK(exec_backward(tower[t]) == CLOOB_OK);
    float *g = copy_of(step_params(u.s)->grad, step_params(u.s)->trainable);
    setup_close(&u);
    return g;
}

static void a_queue_of_the_batchs_size_stores_the_batch_before(void)
{
    setup u;
    step_result r = { 0 };
    double want;
    CHECK_OK(ctx, open_step(&u, "queue:6", CLOOB_METHOD_CLOOB, 1));
    int64_t n = ROWS * u.D, weight_count = step_params(u.s)->trainable;
    double first = still(&u, 0); /* nothing is queued yet: the batch */
    float *U = copy_of(step_embeddings(u.s, false), n), *V = copy_of(step_embeddings(u.s, true), n);
    double again = still(&u, 0); /* its own rows, out of the queue: the same loss */
    CHECK_NEAR(again, first, 1e-6);
    CHECK_OK(ctx, step_gradients(ctx, u.s, u.images + ROWS * u.image, u.tokens + ROWS * u.context, &r));
    float *got = copy_of(step_params(u.s)->grad, weight_count), *g = gradients_by_hand(U, V, ROWS, 1, &want);
    CHECK_NEAR(r.loss, want, 1e-6);
    CHECK(relative_error(got, g, weight_count, 1e-6) < 1e-5);
    free(g);
    g = gradients_by_hand(NULL, NULL, 0, 1, &want); /* with the batch stored they are others */
    CHECK(relative_error(got, g, weight_count, 1e-6) > 1e-2);
    free(got), free(g), free(U), free(V);
    setup_close(&u);
}

/* Longer than a batch and no multiple of it: the last 9 pairs, whatever their order. */
static void a_longer_queue_stores_the_last_rows(void)
{
    setup u;
    step_result r = { 0 };
    double want;
    CHECK_OK(ctx, open_step(&u, "queue:9", CLOOB_METHOD_CLOOB, 1));
    int64_t D = u.D, weight_count = step_params(u.s)->trainable;
    float *U = malloc((size_t)(9 * D) * sizeof *U), *V = malloc((size_t)(9 * D) * sizeof *V);
    for (int k = 0; k < 2; k++) {
        still(&u, k);
        int64_t from = k ? 0 : 3, rows = ROWS - from, to = k ? 3 : 0;
        memcpy(U + to * D, step_embeddings(u.s, false) + from * D, (size_t)(rows * D) * sizeof *U);
        memcpy(V + to * D, step_embeddings(u.s, true) + from * D, (size_t)(rows * D) * sizeof *V);
    }
    CHECK_OK(ctx, step_gradients(ctx, u.s, u.images + 2 * ROWS * u.image, u.tokens + 2 * ROWS * u.context, &r));
    float *g = gradients_by_hand(U, V, 9, 2, &want);
    CHECK_NEAR(r.loss, want, 1e-6);
    CHECK(relative_error(step_params(u.s)->grad, g, weight_count, 1e-6) < 1e-5);
    free(g), free(U), free(V);
    setup_close(&u);
}

static void micro_batches_fill_the_queue_alike(void)
{
    setup one, micro;
    CHECK_OK(ctx, open_step(&one, "queue:9", CLOOB_METHOD_INFONCE_HOPFIELD, 1));
    CHECK_OK(ctx, open_step(&micro, "queue:9", CLOOB_METHOD_INFONCE_HOPFIELD, 3));
    for (int k = 0; k < BATCHES; k++) CHECK_NEAR(still(&one, k), still(&micro, k), 1e-6);
    setup_close(&one);
    setup_close(&micro);
}

/* ---- files ---------------------------------------------------------------------------------------- */

static const char *write_file(const char *name, const char *first, const char *second, float *rows, int64_t n,
                              int64_t D)
{
    static char memory[600];
    snprintf(memory, sizeof memory, "file:%s/%s.safetensors", folder, name);
    st_entry e[2] = { { first, TENSOR(CLOOB_F32, rows, n, D) }, { second, TENSOR(CLOOB_F32, rows + n * D, n, D) } };
    CHECK_OK(ctx, st_write(ctx, memory + 5, e, 2, NULL, 0));
    return memory;
}

static void a_file_stays_stored(void)
{
    setup u;
    step_result r = { 0 };
    double want;
    CHECK_OK(ctx, open_step(&u, "batch", CLOOB_METHOD_CLOOB, 1));
    int64_t n = ROWS * u.D, weight_count = step_params(u.s)->trainable;
    float *rows = malloc((size_t)(2 * n) * sizeof *rows);
    still(&u, 0);
    memcpy(rows, step_embeddings(u.s, false), (size_t)n * sizeof *rows);
    memcpy(rows + n, step_embeddings(u.s, true), (size_t)n * sizeof *rows);
    setup_close(&u);
    const char *names[2][2] = { { "U", "V" }, { "image", "text" } };
    for (int k = 0; k < 2; k++) {
        CHECK_OK(ctx,
                 open_step(&u, write_file("rows", names[k][0], names[k][1], rows, ROWS, u.D), CLOOB_METHOD_CLOOB, 1));
        still(&u, 2);
        CHECK_OK(ctx, step_gradients(ctx, u.s, u.images + ROWS * u.image, u.tokens + ROWS * u.context, &r));
        float *g = gradients_by_hand(rows, rows + n, ROWS, 1, &want);
        CHECK_NEAR(r.loss, want, 1e-6);
        CHECK(relative_error(step_params(u.s)->grad, g, weight_count, 1e-6) < 1e-5);
        free(g);
        setup_close(&u);
    }
    free(rows);
}

static void refused(const char *memory, cloob_status status, const char *word)
{
    setup u;
    CHECK(open_step(&u, memory, CLOOB_METHOD_CLOOB, 1) == status && strstr(cloob_error(ctx), word) != NULL);
    setup_close(&u);
}

static void bad_memory_is_refused_by_name(void)
{
    setup u;
    static float rows[2 * 4 * 64];
    CHECK_OK(ctx, open_step(&u, "batch", CLOOB_METHOD_CLOOB, 1));
    int64_t D = u.D;
    setup_close(&u);
    static const char *const bad[] = { "stack",  "queue:-3",  "queue:0",
                                       "queue:", "queue:12x", "queue:99999999999999999999" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refused(bad[i], CLOOB_ERR_ARGUMENT, "`memory` ");
    refused("queue:0", CLOOB_ERR_ARGUMENT, "queue:0");
    refused("queue:9e", CLOOB_ERR_ARGUMENT, "queue:9e");
    refused("file:", CLOOB_ERR_ARGUMENT, "file:");
    refused("file:/nowhere.safetensors", CLOOB_ERR_IO, "/nowhere.safetensors");
    CHECK(D <= 64);
    for (int64_t i = 0; i < 8; i++) rows[i * D] = 1;
    refused(write_file("narrow", "U", "V", rows, 4, D - 1), CLOOB_ERR_FORMAT, "U is (4, ");
    refused(write_file("names", "a", "b", rows, 4, D), CLOOB_ERR_FORMAT, "neither");
    rows[7 * D] = 3;
    refused(write_file("long", "U", "V", rows, 4, D), CLOOB_ERR_FORMAT, "row 3 of V has length 3");
    rows[7 * D] = NAN;
    refused(write_file("nan", "U", "V", rows, 4, D), CLOOB_ERR_FORMAT, "row 3 of V");
}

int main(void)
{
    ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    scratch_folder(folder, sizeof folder);
    RUN(a_queue_of_the_batchs_size_stores_the_batch_before);
    RUN(a_longer_queue_stores_the_last_rows);
    RUN(micro_batches_fill_the_queue_alike);
    RUN(a_file_stays_stored);
    RUN(bad_memory_is_refused_by_name);
    check_remove(folder);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
