/* A small sweep end to end: it stops and resumes, chooses the best validation number for each method, trains what it
 * chose with fresh seeds and tests only that; random draws give every method the same settings. */
#include "world.h"

static const char *const methods[] = { "clip", "cloob" }, *const rates[] = { "1e-2", "1e-3", "1e-4" },
                         *const decays[] = { "0.1", "0.2" };
static const sweep_axis axis[] = { { "method", methods, 2 }, { "lr", rates, 3 }, { "wd", decays, 2 } };

static void options(sweep_options *o, const char *name)
{
    sweep_options_init(o);
    o->axis = axis, o->axes = 2;
    o->select = "clip_val_loss";
    o->train.name = name;
    world_options(&o->train);
    o->train.schedule_steps = 2;
}

/* Lines of results.jsonl, one after the other; -1: none left. */
typedef struct lines {
    file_bytes text;
    size_t at;
    arena memory;
} lines;

static void lines_open(lines *l, const char *name)
{
    char path[700];
    *l = (lines){ 0 };
    snprintf(path, sizeof path, "%s/%s/results.jsonl", root, name);
    CHECK_OK(ctx, file_read(ctx, path, FILE_TEXT_LIMIT, &l->text));
}

static json *lines_next(lines *l)
{
    json *root_object = NULL;
    if (l->at >= l->text.size) return NULL;
    size_t n = strcspn(l->text.data + l->at, "\n");
    CHECK_OK(ctx, json_parse(ctx, &l->memory, l->text.data + l->at, n, "results.jsonl", &root_object));
    l->at += n + 1;
    return root_object;
}

static void lines_close(lines *l) { file_bytes_release(&l->text), arena_release(&l->memory); }

static const char *text_of(const json *j, const char *key)
{
    const json *v = json_get(j, key);
    return v && v->kind == JSON_STRING ? v->text : "";
}

static bool is(const json *j, const char *key, const char *value) { return strcmp(text_of(j, key), value) == 0; }

/* The lowest loss of a method's search, and its learning rate. */
static double best_of(const char *name, const char *method, char rate[16])
{
    lines l;
    double best = INFINITY;
    lines_open(&l, name);
    for (json *j; (j = lines_next(&l));) {
        const json *v = json_get(json_get(j, "validation"), "clip_val_loss");
        if (!is(j, "stage", "search") || !is(j, "group", method) || !v || v->number >= best) continue;
        best = v->number;
        snprintf(rate, 16, "%s", text_of(json_get(j, "settings"), "lr"));
    }
    lines_close(&l);
    return best;
}

static void it_stops_resumes_and_chooses(void)
{
    static const char *folder[1];
    sweep_options o;
    sweep_summary s;
    char rate[2][16] = { "", "" };
    int final[2] = { 0, 0 };
    lines l;
    folder[0] = classes;
    options(&o, "search");
    o.final_seeds = 2, o.test_data = val_data, o.test_zeroshot = folder, o.test_zeroshot_count = 1;
    o.train.should_stop = stop;
    steps_allowed = 3;
    CHECK(run_sweep(ctx, &o, &s) == CLOOB_ERR_STOPPED &&
          strstr(cloob_error(ctx), "run the same command again to continue"));
    o.train.should_stop = NULL;
    CHECK_OK(ctx, run_sweep(ctx, &o, &s));
    CHECK(s.complete && s.settings == 6 && s.runs == 10 && s.found >= 1 && s.resumed == 1);
    CHECK_OK(ctx, run_sweep(ctx, &o, &s));
    CHECK(s.found == 10 && s.trained == 0);
    for (int k = 0; k < 2; k++) CHECK(isfinite(best_of("search", methods[k], rate[k])));
    lines_open(&l, "search");
    for (json *j; (j = lines_next(&l));) {
        bool last = is(j, "stage", "final");
        int k = is(j, "group", "cloob");
        const json *test = json_get(j, "test"), *seed = json_get(j, "seed");
        CHECK(last == (test && test->kind == JSON_OBJECT)); /* nothing but the chosen settings sees test data */
        if (!last) continue;
        final[k]++;
        CHECK_STR(text_of(json_get(j, "settings"), "lr"), rate[k]);
        CHECK(seed->number >= 1); /* 0 was the search's */
        CHECK(json_get(test, "zeroshot/size") && json_get(test, "image_to_text_R@1") &&
              json_get(test, "text_to_image_R@10") && json_get(test, "image_ajne"));
    }
    CHECK(final[0] == 2 && final[1] == 2);
    lines_close(&l);
}

static void random_settings_are_the_same_for_every_method(void)
{
    sweep_options o;
    sweep_summary s;
    lines l;
    char seen[2][256] = { "", "" };
    options(&o, "random");
    o.axes = 3, o.random = 2, o.jobs = 2;
    CHECK_OK(ctx, run_sweep(ctx, &o, &s));
    CHECK(s.settings == 4 && s.runs == 4);
    lines_open(&l, "random");
    for (json *j; (j = lines_next(&l));) {
        char *to = seen[is(j, "group", "cloob")];
        const json *set = json_get(j, "settings");
        snprintf(to + strlen(to), 64, "%s %s;", text_of(set, "lr"), text_of(set, "wd"));
    }
    lines_close(&l);
    CHECK(*seen[0]);
    CHECK_STR(seen[0], seen[1]);
}

static void parts_are_put_together(void)
{
    sweep_options o;
    sweep_summary s;
    options(&o, "parts");
    o.axes = 1, o.parts = 2, o.part = 1;
    CHECK_OK(ctx, run_sweep(ctx, &o, &s));
    CHECK(!s.complete && s.trained == 1);
    o.part = 0;
    CHECK_OK(ctx, run_sweep(ctx, &o, &s));
    CHECK(s.complete && s.trained == 1);
}

static void refused(const sweep_options *o, const char *words)
{
    CHECK(run_sweep(ctx, o, NULL) == CLOOB_ERR_ARGUMENT);
    CHECK(strstr(cloob_error(ctx), words) != NULL);
}

static void invalid_values_are_refused(void)
{
    static const char *const words[] = { "much" };
    const sweep_axis unknown[] = { { "lerning_rate", rates, 3 } }, wrong[] = { { "lr", words, 1 } },
                     twice[] = { { "lr", rates, 3 }, { "lr", rates, 2 } };
    sweep_options o;
    options(&o, "refused");
    o.axis = unknown, o.axes = 1;
    refused(&o, "lerning_rate");
    o.axis = wrong;
    refused(&o, "much");
    o.axis = twice, o.axes = 2;
    refused(&o, "twice");
    options(&o, "refused");
    o.test_data = val_data;
    refused(&o, "final_seeds");
    options(&o, "search");
    o.select = "beauty";
    refused(&o, "they have");
    o.select = "clip_val_loss", o.train.batch_size = 16;
    refused(&o, "other settings");
}

static void tests(void)
{
    RUN(it_stops_resumes_and_chooses);
    RUN(random_settings_are_the_same_for_every_method);
    RUN(parts_are_put_together);
    RUN(invalid_values_are_refused);
}

int main(void) { return world_run(64, tests); }
