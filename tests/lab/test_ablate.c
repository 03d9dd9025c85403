/* A small ablation end to end: it completes, stops and resumes, and its table holds the means of its runs. */
#include "world.h"

static void options(sweep_options *o)
{
    static const char *const two[] = { "clip", "cloob" };
    static const sweep_axis axis = { "method", two, 2 };
    static const char *folder[1];
    sweep_options_init(o);
    sweep_compare_objectives(o);
    folder[0] = classes;
    o->axis = &axis;
    o->seeds = 2;
    o->zeroshot = folder;
    o->zeroshot_count = 1;
    o->prompts = prompts;
    world_options(&o->train);
    o->train.schedule_steps = 3;
    o->train.lr = 1e-3;
    o->train.log_every_n_steps = 1;
}

/* The mean and spread of a metric, out of the runs' own files. */
static void recompute(arena *a, const char *method, const char *key, double *mean, double *deviation)
{
    double v[2];
    for (int seed = 0; seed < 2; seed++) {
        char path[700];
        json *summary;
        snprintf(path, sizeof path, "%s/ablation/%s-seed%d/summary.json", root, method, seed);
        CHECK_OK(ctx, json_read_file(ctx, a, path, &summary));
        v[seed] = json_get_number(summary, key);
    }
    *mean = (v[0] + v[1]) / 2;
    *deviation = fabs(v[0] - v[1]) / sqrt(2);
}

static void it_stops_and_resumes(void)
{
    sweep_options o;
    sweep_summary s;
    char early[700];
    options(&o);
    snprintf(early, sizeof early, "%s/ablation/clip-seed0", root); /* ended before its first checkpoint */
    CHECK_OK(ctx, file_make_dirs(ctx, early));
    o.train.should_stop = stop;
    steps_allowed = 3; /* asked after every step but a run's last: inside the second run */
    CHECK(run_sweep(ctx, &o, &s) == CLOOB_ERR_STOPPED);
    CHECK(s.trained == 1 && strstr(cloob_error(ctx), "1 of 4 runs"));
    snprintf(early, sizeof early, "%s/ablation/clip-seed0.unfinished1", root);
    CHECK(file_is_dir(early));
    o.train.should_stop = NULL;
    CHECK_OK(ctx, run_sweep(ctx, &o, &s));
    CHECK(s.found == 1 && s.resumed == 1 && s.trained == 2);
    CHECK_OK(ctx, run_sweep(ctx, &o, &s));
    CHECK(s.found == 4 && s.resumed == 0 && s.trained == 0);
}

static void the_table_has_the_means_of_its_runs(void)
{
    static const char *const key[] = { "image_ajne", "clip_val_loss", "image_to_text_mean_rank", "zeroshot/size" };
    static const char *const method[] = { "clip", "cloob" };
    arena a = { 0 };
    json *table;
    char path[700];
    snprintf(path, sizeof path, "%s/ablation/ablation.json", root);
    CHECK_OK(ctx, json_read_file(ctx, &a, path, &table));
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            double mean, deviation;
            const json *cell = json_get(json_get(json_get(json_get(table, "metrics"), key[i]), "methods"), method[k]);
            recompute(&a, method[k], key[i], &mean, &deviation);
            CHECK_NEAR(json_get_number(cell, "mean"), mean, 1e-12);
            CHECK_NEAR(json_get_number(cell, "deviation"), deviation, 1e-9);
        }
    snprintf(path, sizeof path, "%s/ablation/ablation.md", root);
    CHECK(file_exists(path));
    snprintf(path, sizeof path, "%s/ablation/report.html", root);
    CHECK(file_exists(path));
    arena_release(&a);
}

static char *table_of(const char *name)
{
    char path[700];
    file_bytes b = { 0 };
    snprintf(path, sizeof path, "%s/%s/ablation.json", root, name);
    CHECK_OK(ctx, file_read(ctx, path, FILE_TEXT_LIMIT, &b));
    return b.data;
}

/* The same numbers as one by one; stopped and gone on with side by side, too; a run that cannot be ends all.
 */
static void runs_side_by_side(void)
{
    sweep_options o;
    sweep_summary s;
    options(&o);
    o.jobs = 3;
    o.train.name = "together";
    o.train.should_stop = stop;
    steps_allowed = 5;
    CHECK(run_sweep(ctx, &o, &s) == CLOOB_ERR_STOPPED);
    o.train.should_stop = NULL;
    CHECK_OK(ctx, run_sweep(ctx, &o, &s));
    CHECK(s.found + s.resumed + s.trained == 4 && s.resumed >= 1);
    char *alone = table_of("ablation"), *together = table_of("together");
    CHECK_STR(together ? together : "", alone ? alone : "-");
    free(alone), free(together);
    options(&o);
    o.jobs = 2;
    o.train.name = "impossible";
    o.train.train_data = "nowhere.tsv";
    CHECK(run_sweep(ctx, &o, &s) != CLOOB_OK && strstr(cloob_error(ctx), "nowhere.tsv"));
    o.jobs = 65;
    CHECK(run_sweep(ctx, &o, &s) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "`jobs` 65"));
}

static void other_settings_are_refused(void)
{
    static const char *const twice[] = { "clip", "clip" };
    sweep_options o;
    options(&o);
    o.train.lr = 2e-3;
    CHECK(run_sweep(ctx, &o, NULL) == CLOOB_ERR_ARGUMENT);
    CHECK(strstr(cloob_error(ctx), "lr: 0.001, now lr: 0.002"));
    options(&o);
    o.axis = &(sweep_axis){ "method", twice, 2 };
    CHECK(run_sweep(ctx, &o, NULL) == CLOOB_ERR_ARGUMENT);
    options(&o);
    o.train.val_data = NULL;
    o.zeroshot_count = 0;
    CHECK(run_sweep(ctx, &o, NULL) == CLOOB_ERR_ARGUMENT);
    options(&o);
    o.seeds = 0;
    CHECK(run_sweep(ctx, &o, NULL) == CLOOB_ERR_ARGUMENT);
}

static void tests(void)
{
    RUN(it_stops_and_resumes);
    RUN(the_table_has_the_means_of_its_runs);
    RUN(runs_side_by_side);
    RUN(other_settings_are_refused);
}

int main(void) { return world_run(200, tests); }
