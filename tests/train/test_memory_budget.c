/* Memory planned without taking it: equal to what a step then takes, refused with numbers when it is too
 * much, and the largest batch that fits does fit while one more does not. */
#include "check.h"

#include <unistd.h>

#include "tensor/device.h"
#include "train/memory_budget.h"

static cloob_ctx *ctx;
static device *dev;

static void options(step_options *o, const char *model, int64_t batch)
{
    step_options_init(o);
    CHECK_OK(ctx, model_config_by_name(ctx, model, &o->model));
    o->batch = batch;
}

static void compare(const step_options *o)
{
    memory_case c = { o, dev, 1, 0, 0 };
    memory_need n;
    step *s = NULL;
    CHECK_OK(ctx, memory_plan(ctx, &c, &n));
    CHECK_OK(ctx, step_create(ctx, o, dev, NULL, &s));
    if (!s) return;
    step_memory m = step_memory_of(s);
    CHECK(m.params_bytes == n.step.params_bytes);
    CHECK(m.optimizer_bytes == n.step.optimizer_bytes);
    CHECK(m.image_bytes == n.step.image_bytes);
    CHECK(m.text_bytes == n.step.text_bytes);
    CHECK(m.loss_bytes == n.step.loss_bytes);
    CHECK(m.total_bytes == n.step.total_bytes);
    step_destroy(s);
}

/* Every choice that changes what a step takes. */
static void plan_equals_step(void)
{
    static const char *const models[] = { "tiny-rn", "tiny-vit" };
    step_options o;
    for (int i = 0; i < 2; i++) {
        options(&o, models[i], 12);
        compare(&o);
        o.compute = CLOOB_BF16;
        compare(&o);
        options(&o, models[i], 5);
        o.accum = 3, o.ema = 0.99;
        compare(&o);
        options(&o, models[i], 64);
        o.part.lock_image = true, o.grad.checkpoint = true, o.hopfield_warmup = 10;
        compare(&o);
        options(&o, models[i], 16);
        o.part.lock_text = true, o.memory = "queue:100", o.float_images = true, o.grad.recompute = false;
        compare(&o);
        options(&o, models[i], 24);
        o.part.lora = 4, o.part.lora_scale = 2, o.compute = CLOOB_BF16;
        compare(&o);
        options(&o, models[i], 33);
        o.method = CLOOB_METHOD_CLIP, o.pack_texts = true;
        compare(&o);
    }
}

static cloob_status check_with(const step_options *o, size_t limit, memory_need *n)
{
    char text[32];
    memory_case c = { o, dev, 1, 8, 0 };
    snprintf(text, sizeof text, "%zu", limit);
    setenv("CLOOB_MEMORY_LIMIT", text, 1);
    cloob_status status = memory_check(ctx, &c, n);
    unsetenv("CLOOB_MEMORY_LIMIT");
    return status;
}

static void refusal_names_the_largest_batch(void)
{
    step_options o;
    memory_need n;
    options(&o, "tiny-rn", 500);
    CHECK_OK(ctx, check_with(&o, (size_t)1 << 40, &n));
    size_t room = n.total_bytes / 2;
    CHECK(check_with(&o, room, &n) == CLOOB_ERR_MEMORY);
    const char *found = strstr(cloob_error(ctx), "the largest batch that fits is ");
    CHECK(found && strstr(cloob_error(ctx), "image tower") && strstr(cloob_error(ctx), "free"));
    if (!found) return;
    long long most = atoll(found + strlen("the largest batch that fits is "));
    CHECK(most > 0 && most < 500);
    o.batch = most;
    CHECK_OK(ctx, check_with(&o, room, &n));
    o.batch = most + 1;
    CHECK(check_with(&o, room, &n) == CLOOB_ERR_MEMORY);
}

static void deep(step_options *o)
{
    options(o, "tiny-vit", 32);
    o->model.layers[0] = o->model.text_layers = 10;
    o->grad.recompute = false;
}

/* Limits between all blocks recomputed and none: each is kept, and the wider it is, the less is recomputed. */
static void limits_choose_what_is_recomputed(void)
{
    step_options all, none, o;
    memory_need most, least, n;
    memory_case c = { &none, dev, 1, 0, 0 };
    deep(&none), deep(&all);
    all.grad.checkpoint = all.grad.recompute = true;
    CHECK_OK(ctx, memory_plan(ctx, &c, &most));
    c.o = &all;
    CHECK_OK(ctx, memory_plan(ctx, &c, &least));
    CHECK(least.total_bytes < most.total_bytes);
    int before = 101, shares = 0;
    for (size_t k = 0; k <= 8; k++) {
        size_t limit = least.total_bytes + (most.total_bytes - least.total_bytes) * k / 8;
        o = none, c.o = &o;
        CHECK_OK(ctx, memory_fit(ctx, &c, &o, limit, &n));
        CHECK(n.total_bytes <= limit);
        int share = o.grad.checkpoint ? o.grad.checkpoint_share : 0;
        CHECK(share <= before);
        shares += share < before;
        before = share;
        if (k % 3 == 1) compare(&o);
    }
    CHECK(before == 0 && !o.save_memory && shares >= 4);
    o = none;
    CHECK(memory_fit(ctx, &c, &o, least.total_bytes / 4, &n) == CLOOB_ERR_MEMORY);
}

static void impossible_limits_are_reported(void)
{
    step_options o;
    memory_need n;
    options(&o, "tiny-rn", 4);
    CHECK(check_with(&o, 1000, &n) == CLOOB_ERR_MEMORY);
    CHECK(strstr(cloob_error(ctx), "even the smallest batch") != NULL);
    o.batch = 1000000000; /* planning a batch that could never exist is quick */
    CHECK(check_with(&o, 1000, &n) == CLOOB_ERR_MEMORY);
}

static void limit_is_a_size(void)
{
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = { { "4096", 4096 },  { "1K", 1024 },      { "1.5K", 1536 },
                 { "2M", 2 << 20 }, { "2MiB", 2 << 20 }, { "2MB", 2 << 20 } };
    static const char *const bad[] = { "x", "-1", "1Q", "1Gi", "0", "1e30", "G" };
    size_t got;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        setenv("CLOOB_MEMORY_LIMIT", good[i].text, 1);
        CHECK_OK(ctx, memory_available(ctx, dev, &got));
        CHECK(got == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("CLOOB_MEMORY_LIMIT", bad[i], 1);
        CHECK(memory_available(ctx, dev, &got) == CLOOB_ERR_ARGUMENT);
    }
    unsetenv("CLOOB_MEMORY_LIMIT");
    CHECK_OK(ctx, memory_available(ctx, dev, &got));
    CHECK(got > 1 << 20);
}

/* ---- a simulated host ------------------------------------------------------------------------- */

static char root[256];

static void put(const char *path, const char *text)
{
    char full[400], command[500];
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s%s')\"", root, path);
    CHECK(system(command) == 0);
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = fopen(full, "w");
    CHECK(f != NULL);
    if (f) fputs(text, f), fclose(f);
}

static void expect_host(size_t total, size_t available)
{
    size_t t, a;
    host_memory_read(root, &t, &a);
    CHECK(t == total && a == available);
}

static void groups_limit_the_host(void)
{
    scratch_folder(root, sizeof root);
    expect_host(0, 0);
    put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable:   800 kB\n");
    expect_host(1024000, 819200);
    put("/proc/self/cgroup", "0::/job/step\n");
    put("/sys/fs/cgroup/job/step/memory.max", "max\n");
    put("/sys/fs/cgroup/job/step/memory.current", "300000\n");
    expect_host(1024000, 819200);
    put("/sys/fs/cgroup/job/memory.max", "500000\n");
    put("/sys/fs/cgroup/job/memory.current", "300000\n");
    put("/sys/fs/cgroup/job/memory.stat", "anon 200000\ninactive_file 50000\n");
    expect_host(500000, 250000);
    put("/proc/self/cgroup", "4:memory:/old\n0::/\n");
    put("/sys/fs/cgroup/memory/old/memory.limit_in_bytes", "400000\n");
    put("/sys/fs/cgroup/memory/old/memory.usage_in_bytes", "500000\n");
    expect_host(400000, 0);
    check_remove(root);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    CHECK_OK(ctx, device_open(ctx, "cpu", &dev));
    RUN(plan_equals_step);
    RUN(refusal_names_the_largest_batch);
    RUN(limits_choose_what_is_recomputed);
    RUN(impossible_limits_are_reported);
    RUN(limit_is_a_size);
    RUN(groups_limit_the_host);
    device_close(dev);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
