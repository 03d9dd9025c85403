/* Class weights from prompts, counts, and factors of a made-up world. */
#include "ref_values.h"

#include "core/rng.h"
#include "eval/zeroshot.h"

static cloob_ctx *ctx;

static void weights_are_unit_means_of_unit_prompts(void)
{
    zeroshot z;
    float prompt[6] = { 3, 0, 0, 0, 0, 0.5f }, other[3] = { 0, -2, 0 };
    CHECK_OK(ctx, zeroshot_init(ctx, &z, 2, 3, true));
    CHECK_OK(ctx, zeroshot_prompts(ctx, &z, 0, prompt, 2));
    CHECK_OK(ctx, zeroshot_prompts(ctx, &z, 1, other, 1));
    CHECK_NEAR(z.weight[0], sqrt(0.5), 1e-7);
    CHECK_NEAR(z.weight[2], sqrt(0.5), 1e-7);
    CHECK_NEAR(z.weight[4], -1, 1e-7);
    float image[12] = { 1, 0, 1, 0, -1, 0, 0, -5, 0, 0, 1, 0 };
    int64_t label[4] = { 0, 1, 0, 0 };
    CHECK_OK(ctx, zeroshot_add(ctx, &z, image, label, 2, 0));
    CHECK_OK(ctx, zeroshot_add(ctx, &z, image + 6, label + 2, 2, 2));
    accuracy_result r = accuracy_finish(&z.count);
    CHECK(r.n == 4 && r.top5 == 1 && r.empty == 0);
    CHECK_NEAR(r.top1, 0.75, 0);
    CHECK_NEAR(r.mean_per_class, (2.0 / 3 + 1) / 2, 1e-15);
    CHECK(z.count.confusion[0 * 2 + 1] == 1 && z.count.confusion[0] == 2);
    zeroshot_release(&z);
}

static void equal_scores_are_not_right(void)
{
    accuracy_counts t;
    float score[14] = { 0 };
    int64_t label[2] = { 6, 0 };
    CHECK_OK(ctx, accuracy_init(ctx, &t, 7, false));
    accuracy_add(&t, score, label, 2);
    accuracy_result r = accuracy_finish(&t);
    CHECK(r.top1 == 0.5 && r.top5 == 0.5 && r.empty == 5);
    CHECK_NEAR(r.mean_per_class, 0.5, 0);
    accuracy_release(&t);
}

static void bad_input_is_refused(void)
{
    zeroshot z;
    float prompt[4] = { 1, 0, -1, 0 }, bad[2] = { NAN, 0 }, image[2] = { 0, 1 };
    int64_t label = 0, beyond = 2;
    CHECK(zeroshot_init(ctx, &z, 1, 2, false) == CLOOB_ERR_ARGUMENT);
    CHECK_OK(ctx, zeroshot_init(ctx, &z, 2, 2, false));
    CHECK(zeroshot_prompts(ctx, &z, 0, prompt, 2) == CLOOB_ERR_NUMERIC && strstr(cloob_error(ctx), "cancel"));
    CHECK(zeroshot_prompts(ctx, &z, 0, bad, 1) == CLOOB_ERR_NUMERIC);
    CHECK(zeroshot_prompts(ctx, &z, 0, prompt, 0) == CLOOB_ERR_ARGUMENT);
    CHECK(zeroshot_prompts(ctx, &z, 2, prompt, 1) == CLOOB_ERR_ARGUMENT);
    CHECK_OK(ctx, zeroshot_prompts(ctx, &z, 0, prompt, 1));
    CHECK(zeroshot_add(ctx, &z, image, &label, 1, 0) == CLOOB_ERR_ARGUMENT &&
          strstr(cloob_error(ctx), "class 1 has no prompts"));
    CHECK_OK(ctx, zeroshot_prompts(ctx, &z, 1, prompt + 2, 1));
    CHECK(zeroshot_add(ctx, &z, image, &beyond, 1, 40) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "image 40"));
    CHECK(zeroshot_add(ctx, &z, bad, &label, 1, 7) == CLOOB_ERR_NUMERIC && strstr(cloob_error(ctx), "image 7"));
    CHECK(z.count.N == 0);
    zeroshot_release(&z);
}

/* Some of the classes, several of them one answer, against NumPy. */
static void a_subset_is_scored_among_its_classes(void)
{
    char path[1024];
    arena a = { 0 };
    json *ref;
    st_file f;
    zeroshot z;
    CHECK_OK(ctx, json_read_file(ctx, &a, ref_path("eval_subset.json", path), &ref));
    CHECK_OK(ctx, st_open(ctx, ref_path("eval_subset.safetensors", path), &f));
    rows weight = rows_named(ctx, &f, "weight"), image = rows_named(ctx, &f, "image");
    CHECK_OK(ctx, zeroshot_init(ctx, &z, weight.N, weight.D, true));
    CHECK_OK(ctx, zeroshot_group(ctx, &z, st_find(&f, "group")->t.data, 7));
    for (int64_t c = 0; c < weight.N; c++)
        CHECK_OK(ctx, zeroshot_prompts(ctx, &z, c, (const float *)weight.data + c * weight.D, 1));
    CHECK_OK(ctx, zeroshot_add(ctx, &z, image.data, st_find(&f, "label")->t.data, image.N, 0));
    accuracy_result r = accuracy_finish(&z.count);
    CHECK_NEAR(r.top1, want(ref, "top1"), 1e-12);
    CHECK_NEAR(r.top5, want(ref, "top5"), 1e-12);
    CHECK_NEAR(r.mean_per_class, want(ref, "mean_per_class"), 1e-12);
    CHECK(r.classes == 7);
    zeroshot_release(&z);
    st_close(&f);
    arena_release(&a);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(weights_are_unit_means_of_unit_prompts);
    RUN(equal_scores_are_not_right);
    RUN(bad_input_is_refused);
    RUN(a_subset_is_scored_among_its_classes);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
