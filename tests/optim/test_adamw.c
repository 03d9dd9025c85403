/* AdamW and the average of the weights against the formula in double, on every device: ranges with and
 * without decay, with rates of their own, sizes that do not divide, gaps between ranges that stay untouched; on a GPU
 * also the update that decides by itself. */
#include "check.h"

#include "optim/adamw.h"

enum { N = 4096 + 192, STEPS = 3 };

static cloob_ctx *ctx;

static const adamw_range ranges[] = {
    { 0, 1021, true, 1 }, { 1088, 7, false, 1 }, { 1152, 640, true, 0.25f }, { 1792, N - 1792 - 61, false, 0.5f }
};
enum { RANGES = sizeof ranges / sizeof *ranges };

typedef struct state {
    float p[N], m[N], v[N], g[N], e[N];
    uint16_t shadow[N];
} state;

static void begin(state *s)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < N; i++) s->p[i] = sinf((float)i * 0.37f), s->g[i] = 0.01f * cosf((float)i * 0.11f);
}

static adamw_settings settings_of(int step, double scale)
{
    return (adamw_settings){ 1e-2, 0.9, 0.98, 1e-6, 0.2, scale, step, 0.75 };
}

/* The definition, element by element. */
static void expect_one(state *s, const adamw_settings *a, const adamw_range *r, int64_t i, double out[2])
{
    double g = (double)s->g[i] * a->grad_scale, m = a->beta1 * (double)s->m[i] + (1 - a->beta1) * g,
           v = a->beta2 * (double)s->v[i] + (1 - a->beta2) * g * g;
    double mh = m / (1 - pow(a->beta1, (double)a->step)), vh = v / (1 - pow(a->beta2, (double)a->step));
    double lr = a->lr * (double)r->rate;
    out[0] = (double)s->p[i] * (1 - (r->decay ? lr * a->wd : 0)) - lr * mh / (sqrt(vh) + a->eps);
    out[1] = a->step == 1 ? out[0] : (double)s->e[i] + (1 - a->ema_decay) * (out[0] - (double)s->e[i]);
}

static void check_step(state *before, const state *after, const adamw_settings *a)
{
    int64_t next = 0;
    double worst_p = 0, worst_e = 0, out[2];
    for (int r = 0; r < RANGES; r++) {
        for (int64_t i = next; i < ranges[r].offset; i++)
            CHECK(after->p[i] == before->p[i] && after->e[i] == before->e[i]);
        for (int64_t i = ranges[r].offset; i < ranges[r].offset + ranges[r].count; i++) {
            expect_one(before, a, &ranges[r], i, out);
            worst_p = fmax(worst_p, fabs((double)after->p[i] - out[0]));
            worst_e = fmax(worst_e, fabs((double)after->e[i] - out[1]));
            if (after->shadow[i] != bf16_from_float(after->p[i]))
                CHECK(after->shadow[i] == bf16_from_float(after->p[i]));
        }
        next = ranges[r].offset + ranges[r].count;
    }
    for (int64_t i = next; i < N; i++) CHECK(after->p[i] == before->p[i] && after->shadow[i] == 0);
    CHECK(worst_p < 3e-7 && worst_e < 3e-7); /* a few roundings of numbers near 1 */
}

typedef struct on_device {
    device *dev;
    void *block[7]; /* p, m, v, g, e, shadow, table */
    adamw_blocks b;
} on_device;

static size_t block_bytes(int k) { return k == 5 ? N * sizeof(uint16_t) : k == 6 ? sizeof ranges : N * sizeof(float); }

static void upload(on_device *d, const state *s)
{
    const void *from[] = { s->p, s->m, s->v, s->g, s->e, s->shadow, ranges };
    for (int k = 0; k < 7; k++) CHECK_OK(ctx, d->dev->to_device(ctx, d->dev, d->block[k], from[k], block_bytes(k)));
}

static void download(on_device *d, state *s)
{
    void *to[] = { s->p, s->m, s->v, s->g, s->e, s->shadow };
    for (int k = 0; k < 6; k++) CHECK_OK(ctx, d->dev->to_host(ctx, d->dev, to[k], d->block[k], block_bytes(k)));
}

static void open_on(on_device *d, const char *where, const state *s)
{
    CHECK_OK(ctx, device_open(ctx, where, &d->dev));
    for (int k = 0; k < 7; k++) CHECK_OK(ctx, d->dev->alloc(ctx, d->dev, block_bytes(k), "a block", &d->block[k]));
    d->b = (adamw_blocks){ .param = d->block[0],
                           .m = d->block[1],
                           .v = d->block[2],
                           .grad = d->block[3],
                           .ema = d->block[4],
                           .shadow = d->block[5],
                           .range = ranges,
                           .range_device = d->block[6],
                           .ranges = RANGES };
    upload(d, s);
}

static void close_on(on_device *d)
{
    for (int k = 0; k < 7; k++) d->dev->free(d->dev, d->block[k]);
    device_close(d->dev);
}

static void steps_on(const char *where)
{
    static state before, after;
    on_device d;
    begin(&before);
    open_on(&d, where, &before);
    for (int t = 1; t <= STEPS; t++) {
        adamw_settings a = settings_of(t, 0.5);
        CHECK_OK(ctx, adamw_step(ctx, d.dev, NULL, &d.b, &a));
        download(&d, &after);
        check_step(&before, &after, &a);
        before = after;
    }
    close_on(&d);
}

static void host_follows_the_formula(void) { steps_on("cpu"); }

static void gpu_follows_the_formula(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    steps_on("cuda");
}

/* Clipping and skipping without the host. */
static void live_step(on_device *d, adamw_live *live)
{
    void *at;
    CHECK_OK(ctx, d->dev->alloc(ctx, d->dev, sizeof *live, "settings", &at));
    CHECK_OK(ctx, d->dev->to_device(ctx, d->dev, at, live, sizeof *live));
    CHECK_OK(ctx, adamw_step_live(ctx, d->dev, NULL, &d->b, N, at));
    CHECK_OK(ctx, d->dev->to_host(ctx, d->dev, live, at, sizeof *live));
    d->dev->free(d->dev, at);
}

static void gpu_clips_and_skips_by_itself(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    static state before, after;
    double square = 0;
    on_device d;
    begin(&before);
    for (int i = 0; i < N; i++) square += (double)before.g[i] * (double)before.g[i];
    open_on(&d, "cuda", &before);
    adamw_settings a = settings_of(1, 1.0);
    adamw_live live = { .u = adamw_update_of(&a), .clip = 0.25 * sqrt(square) };
    live_step(&d, &live);
    CHECK(live.skipped == 0);
    CHECK_NEAR(live.square / square, 1, 1e-12);
    download(&d, &after);
    a.grad_scale = 0.25;
    check_step(&before, &after, &a);

    before = after;
    before.g[5] = NAN;
    upload(&d, &before);
    live.u = adamw_update_of(&a);
    live_step(&d, &live);
    CHECK(live.skipped == 1);
    download(&d, &after);
    CHECK(memcmp(before.p, after.p, sizeof after.p) == 0 && memcmp(before.m, after.m, sizeof after.m) == 0 &&
          memcmp(before.e, after.e, sizeof after.e) == 0);
    close_on(&d);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(host_follows_the_formula);
    RUN(gpu_follows_the_formula);
    RUN(gpu_clips_and_skips_by_itself);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
