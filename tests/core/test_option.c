/* Options as texts: every row of the public tables can be set, told and refused. */
#include "check.h"
#include "cloob/cloob.h"
#include "core/option.h"
#include "train/settings.h"

static const option_desc *row(const char *name)
{
    int64_t n;
    const option_desc *table = train_option_table(&n);
    return option_find(table, n, name);
}

/* What a default is printed as sets it again, bit for bit. */
static void texts_come_back(void)
{
    int64_t n;
    const option_desc *table = train_option_table(&n);
    cloob_train_options o, p;
    cloob_train_options_init(&o);
    CHECK(n > 80);
    o.wd = 0.1 + 0.2, o.lr = 1.0 / 3;
    for (int64_t i = 0; i < n; i++) {
        char *text = option_get(&table[i], &o), *again;
        CHECK(option_valid(&table[i], &o));
        CHECK(table[i].help && table[i].group && table[i].name);
        cloob_train_options_init(&p);
        if (strcmp(text, "None") != 0 && table[i].type != OPTION_LIST) {
            CHECK(option_set(&table[i], &p, text));
            again = option_get(&table[i], &p);
            CHECK_STR(again, text);
            free(again);
        }
        free(text);
    }
    char *text = option_get(row("wd"), &o);
    CHECK(option_set(row("wd"), &p, text) && p.wd == o.wd);
    free(text);
}

static void names_find_members(void)
{
    cloob_train_options o;
    cloob_train_options_init(&o);
    CHECK(row("batch-size") && row("batch-size") == row("batch_size"));
    CHECK(row("one-caption") && row("one-caption") == row("one_caption_per_image"));
    CHECK(row("max_pixels") == row("max-image-pixels"));
    CHECK(!row("batchsize") && !row("batch"));
    CHECK(option_set(row("max-image-pixels"), &o, "77") && o.data.max_pixels == 77);
    CHECK(option_set(row("csv-separator"), &o, ",") && o.data.csv_separator == ',');
    CHECK(option_set(row("csv-separator"), &o, "\\t") && o.data.csv_separator == '\t');
    CHECK(option_set(row("image_mean"), &o, "0.1, 0.2 0.3") && o.image_mean[2] == 0.3);
    CHECK(option_set(row("lr"), &o, "auto") && o.lr == -1);
    CHECK(option_set(row("use_bn_sync"), &o, "True") && o.use_bn_sync);
}

static void values_out_of_range_are_refused(void)
{
    static const char *const bad[][2] = {
        { "batch_size", "0" },
        { "batch_size", "9223372036854775807" },
        { "batch_size", "1e3" },
        { "batch_size", "" },
        { "wd", "-0.1" },
        { "wd", "nan" },
        { "wd", "inf" },
        { "ema", "1" },
        { "init_inv_tau", "0" },
        { "lr", "-1" },
        { "beta1", "1" },
        { "method", "hopfield" },
        { "precision", "fp16" },
        { "csv_separator", "ab" },
        { "csv_separator", "" },
        { "image_mean", "1 2" },
        { "image_mean", "1 2 3 4" },
        { "workers", "1025" },
        { "use_bn_sync", "maybe" },
        { "aug_gray_prob", "1.5" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cloob_train_options o;
        cloob_train_options_init(&o);
        if (option_set(row(bad[i][0]), &o, bad[i][1])) printf("  %s %s is accepted\n", bad[i][0], bad[i][1]);
        CHECK(!option_set(row(bad[i][0]), &o, bad[i][1]));
    }
}

static void rules_are_sentences(void)
{
    char text[256];
    option_rule(row("workers"), text, sizeof text);
    CHECK_STR(text, "must be a whole number between 0 and 1024");
    option_rule(row("seed"), text, sizeof text);
    CHECK_STR(text, "must be a whole number of 0 or more");
    option_rule(row("ema"), text, sizeof text);
    CHECK_STR(text, "must be a number of at least 0 and below 1");
    option_rule(row("init_inv_tau"), text, sizeof text);
    CHECK_STR(text, "must be auto, or a number above 0");
    option_rule(row("epochs"), text, sizeof text);
    CHECK_STR(text, "must be auto, or a whole number between 1 and 1000000000");
    option_rule(row("image_resize_mode"), text, sizeof text);
    CHECK_STR(text, "must be one of shortest|longest|squash");
}

/* A constant has one home: the trainer on one's own arrays begins with what cloob train begins with. */
static void defaults_agree(void)
{
    cloob_train_options o;
    cloob_trainer_options t;
    cloob_objective_options l;
    cloob_train_options_init(&o);
    cloob_trainer_options_init(&t);
    cloob_objective_options_init(&l);
    CHECK(o.wd == t.wd && t.scale_hopfield == CLOOB_DEFAULT_SCALE_HOPFIELD);
    CHECK(o.init_inv_tau < 0 && o.scale_hopfield < 0 && o.batch_size < 0 &&
          o.warmup < 0); /* auto: chosen when data and model are known */
    CHECK(t.inv_tau == CLOOB_DEFAULT_INV_TAU);
    CHECK(l.inv_tau == t.inv_tau && l.scale_hopfield == t.scale_hopfield);
}

/* Every row of every recipe is a setting, and flags that the paper's tables name have its values. */
static void recipes_are_settings(void)
{
    int64_t n;
    const train_preset *preset = preset_table(&n);
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    cloob_train_options o;
    for (int64_t i = 0; i < n; i++) {
        cloob_train_options_init(&o);
        CHECK_OK(ctx, preset_apply(ctx, preset[i].name, &o));
    }
    CHECK(n >= 7);
    cloob_train_options_init(&o);
    CHECK_OK(ctx, preset_apply(ctx, "yfcc", &o));
    CHECK(o.global_batch_size == 1024 && o.lr == 5e-4 && o.wd == 0.1 && o.warmup == 10000 && o.epochs == 28);
    CHECK(o.scale_hopfield == 14.3 && o.init_inv_tau == 30 && o.restart_epochs == 7);
    CHECK_STR(o.lr_scheduler, "cosine-restarts");
    cloob_train_options_init(&o);
    CHECK_OK(ctx, preset_apply(ctx, "clip-cc", &o));
    CHECK(o.learnable_inv_tau && o.init_inv_tau == 14.3 && o.global_batch_size == 512 && o.restart_epochs == 7);
    CHECK(preset_apply(ctx, "laion", &o) == CLOOB_ERR_ARGUMENT);
    cloob_ctx_destroy(ctx);
}

int main(void)
{
    RUN(texts_come_back);
    RUN(names_find_members);
    RUN(values_out_of_range_are_refused);
    RUN(rules_are_sentences);
    RUN(defaults_agree);
    RUN(recipes_are_settings);
    return check_summary();
}
