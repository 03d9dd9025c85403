/* Schedules of image sizes: what a list means, runs whose images grow, and that such runs can be interrupted
 * anywhere. */
#include "small_run.h"

#include <unistd.h>

#include "train/settings.h"

static cloob_ctx *ctx;

static void lists_are_read(void)
{
    static const char *const bad[] = { "",          "16,",    "16,32",   "16@2,32@3", "16,32@1", "16,32@3,48@3",
                                       "16,32@3,x", "0,32@2", "-16,8@2", "16 32@2",   "16,32@",  "70000,16@2" };
    image_stage s[IMAGE_STAGES];
    CHECK(settings_image_stages("112,160@11,224@25", s) == 3);
    CHECK(s[0].size == 112 && s[0].epoch == 0 && s[1].size == 160 && s[1].epoch == 10 && s[2].epoch == 24);
    CHECK(settings_image_stages("64@1,32@2", s) == 2 && s[1].size == 32); /* smaller ones may follow */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(settings_image_stages(bad[i], s) == 0);
    CHECK(settings_image_stages(NULL, s) == 0);
    cloob_train_options o = { .image_size_schedule = "16,48@3,32@5" };
    static const int64_t sizes[] = { 16, 16, 48, 48, 32, 32 };
    for (int e = 0; e < 6; e++) CHECK(settings_image_size(&o, e) == sizes[e]);
    CHECK(settings_largest_image(&o) == 48);
}

typedef struct asked {
    const char *name, *resume, *model, *sizes, *pretrained;
    int64_t epochs, steps, size;
    double ema;
} asked;

static cloob_status train(const asked *a)
{
    cloob_train_options o;
    cloob_train_summary s;
    small_run_options(&o, a->name, a->resume);
    if (a->model) o.model = a->model;
    o.train_num_samples = 16, o.batch_size = 4, o.epochs = a->epochs, o.max_steps = a->steps;
    o.pretrained = a->pretrained;
    o.image_size_schedule = a->sizes, o.force_image_size = a->size, o.ema = a->ema;
    return cloob_train(ctx, &o, &s);
}

static void path_of(char path[512], const char *name, const char *file)
{
    snprintf(path, 512, "%s/%s/checkpoints/%s.safetensors", logs, name, file);
}

/* Steps of an epoch: 4. */
static void images_grow(void)
{
    char path[512];
    weights w;
    CHECK_OK(ctx, train(&(asked){ .name = "whole", .sizes = "16,32@3", .epochs = 4, .ema = 0.9 }));
    CHECK_OK(ctx, train(&(asked){ .name = "small", .size = 16, .epochs = 2, .ema = 0.9 }));
    CHECK(same_checkpoints(ctx, "whole", "small", "epoch_2", "train.m.")); /* the first stage is an ordinary run */
    path_of(path, "whole", "latest");
    CHECK_OK(ctx, weights_read_native(ctx, path, &w));
    CHECK(w.config.image_size == 32);
    CHECK(weights_find(&w, "visual.positional_embedding")->dim[0] == 1 + 4 * 4);
    CHECK(tensor_count(weights_find(&w, "train.v.visual.positional_embedding")) == 17 * 128);
    CHECK_STR(weights_get_meta(&w, "train.updates"), "16");
    CHECK_STR(weights_get_meta(&w, "train.count"), "16");
    weights_release(&w);
}

static void interrupted_runs_end_alike(void)
{
    static const int64_t stops[] = { 8, 9 }; /* between the stages, and in the second */
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        char name[32];
        snprintf(name, sizeof name, "stop-%lld", (long long)stops[i]);
        asked a = { .name = name, .sizes = "16,32@3", .epochs = 4, .steps = stops[i], .ema = 0.9 };
        CHECK_OK(ctx, train(&a));
        a.resume = "latest", a.steps = 0;
        CHECK_OK(ctx, train(&a));
        CHECK(same_checkpoints(ctx, "whole", name, "latest", "train.m."));
    }
}

/* A stage begins with the weights, moments and averages of the one before, all but the positions' as they are. */
static void the_state_is_copied(void)
{
    char path[512];
    weights before, after;
    path_of(path, "whole", "epoch_2");
    CHECK_OK(ctx, weights_read_native(ctx, path, &before));
    CHECK_OK(ctx, weights_read_native(ctx, path, &after));
    CHECK_OK(ctx, weights_resize_images(ctx, &after, 32));
    int changed = 0;
    for (int64_t i = 0; i < before.count; i++) {
        const tensor *t = &before.entry[i].t, *u = &after.entry[i].t;
        bool position = strstr(before.entry[i].name, "visual.positional_embedding") != NULL;
        changed += position;
        if (position) CHECK(tensor_count(u) == tensor_count(t) / 5 * 17);
        else CHECK(tensor_bytes(u) == tensor_bytes(t) && memcmp(u->data, t->data, tensor_bytes(t)) == 0);
        bool squares = strncmp(before.entry[i].name, "train.v.", 8) == 0;
        for (int64_t k = 0; position && squares && k < tensor_count(u); k++) CHECK(((const float *)u->data)[k] >= 0);
    }
    CHECK(changed == 4); /* themselves, m, v, ema */
    weights_release(&before), weights_release(&after);
}

static void a_resnet_and_given_weights(void)
{
    char path[512];
    weights w;
    CHECK_OK(ctx, train(&(asked){ .name = "rn", .model = "tiny-rn", .sizes = "32,64@2", .epochs = 2 }));
    path_of(path, "whole", "epoch_2");
    CHECK_OK(ctx, train(&(asked){ .name = "given", .pretrained = path, .sizes = "24,32@2", .epochs = 2 }));
    path_of(path, "given", "epoch_1");
    CHECK_OK(ctx, weights_read_native(ctx, path, &w));
    CHECK(w.config.image_size == 24);
    weights_release(&w);
}

static void invalid_values_are_refused_at_once(void)
{
    CHECK(train(&(asked){ .name = "odd", .sizes = "16,20@2", .epochs = 2 }) != CLOOB_OK); /* patches of 8 */
    CHECK(strstr(cloob_error(ctx), "20") != NULL);
    CHECK(train(&(asked){ .name = "list", .sizes = "16,32", .epochs = 2 }) == CLOOB_ERR_ARGUMENT);
    CHECK(strstr(cloob_error(ctx), "112,160@11,224@25") != NULL);
    CHECK(train(&(asked){ .name = "both", .sizes = "16,32@2", .size = 16, .epochs = 2 }) == CLOOB_ERR_ARGUMENT);
    char path[512];
    snprintf(path, sizeof path, "%s/odd", logs);
    CHECK(access(path, F_OK) != 0); /* no run was begun */
}

int main(void)
{
    ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 2 });
    scratch_folder(logs, sizeof logs);
    RUN(lists_are_read);
    RUN(images_grow);
    RUN(interrupted_runs_end_alike);
    RUN(the_state_is_copied);
    RUN(a_resnet_and_given_weights);
    RUN(invalid_values_are_refused_at_once);
    check_remove(logs);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
