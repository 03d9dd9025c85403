/* The synthetic world: its statistics, its captions, its images, and what lands on disk. */
#include "check.h"

#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/json.h"
#include "data/sets/dataset.h"
#include "lab/synth/synth.h"
#include "io/image/image.h"
#include "lab/synth/write.h"

enum { N = 20000 };
static const synth_world world = { 7, SYNTH_STRENGTH };

static bool pair_in_scene(const synth_scene *s)
{
    int object = s->value[SYNTH_OBJECT];
    return synth_pair_held_out(SYNTH_COLOUR, object, s->value[SYNTH_COLOUR]) ||
           synth_pair_held_out(SYNTH_BACKGROUND, object, s->value[SYNTH_BACKGROUND]);
}

/* ---- statistics ---------------------------------------------------------------------------------- */

static void tables_are_whole_and_sorted(void)
{
    for (int f = 0; f < SYNTH_FACTORS; f++) {
        const synth_factor_row *row = &synth_factors[f];
        CHECK(row->name && row->count > 1 && row->template_[0]);
        for (int v = 0; v < row->count; v++) {
            CHECK(row->value[v].name && row->value[v].word[0]);
            if (v) CHECK(strcmp(row->value[v - 1].name, row->value[v].name) < 0);
        }
        for (int t = 0; t < SYNTH_MAX_TEMPLATES && row->template_[t]; t++) CHECK(strstr(row->template_[t], "{}"));
    }
}

static void every_value_is_held_out_somewhere(void)
{
    static const synth_factor with[] = { SYNTH_COLOUR, SYNTH_BACKGROUND };
    for (int k = 0; k < 2; k++) {
        int by_value[SYNTH_MAX_VALUES] = { 0 };
        for (int o = 0; o < SYNTH_OBJECTS; o++) {
            int pairs = 0;
            for (int v = 0; v < synth_factors[with[k]].count; v++)
                if (synth_pair_held_out(with[k], o, v)) pairs++, by_value[v]++;
            CHECK(pairs == 2);
            CHECK(!synth_pair_held_out(with[k], o, synth_favourite(with[k], o)));
        }
        for (int v = 0; v < synth_factors[with[k]].count; v++) CHECK(by_value[v] == 3 || by_value[v] == 4);
    }
}

static void training_never_shows_a_held_out_pair(void)
{
    int held_out = 0;
    for (int64_t i = 0; i < N; i++) {
        synth_scene s;
        synth_draw(&world, SYNTH_TRAIN, i, &s);
        CHECK(!pair_in_scene(&s) && !s.held_out);
        synth_draw(&world, SYNTH_VAL, i, &s);
        CHECK(pair_in_scene(&s) == s.held_out && s.held_out == (i % 2 == 1));
        held_out += s.held_out;
    }
    CHECK(held_out == N / 2);
}

/* Four standard errors of a share over N draws: 4 * sqrt(0.25 / 20000) = 0.0142 at most. */
static void captions_name_factors_at_the_stated_rates(void)
{
    int named[SYNTH_FACTORS] = { 0 }, silent = 0;
    double expect_silent = 1;
    for (int64_t i = 0; i < N; i++) {
        synth_scene s;
        bool any = false;
        synth_draw(&world, SYNTH_TRAIN, i, &s);
        for (int f = 0; f < SYNTH_FACTORS; f++) named[f] += s.named[f], any = any || s.named[f];
        silent += !any;
    }
    for (int f = 0; f < SYNTH_FACTORS; f++) {
        CHECK_NEAR((double)named[f] / N, synth_factors[f].named, 0.0142);
        expect_silent *= 1 - synth_factors[f].named / (1 - SYNTH_SILENT);
    }
    CHECK_NEAR((double)silent / N, SYNTH_SILENT + (1 - SYNTH_SILENT) * expect_silent, 0.0142);
}

/* The favourite of the scene's own cause: strength of it drawn at once, the rest uniform over what is not
 * held out. */
static double share_of_favourites(double strength, synth_factor f)
{
    synth_world w = { 3, strength };
    int hits = 0;
    for (int64_t i = 0; i < N; i++) {
        synth_scene s;
        synth_draw(&w, SYNTH_TRAIN, i, &s);
        hits += s.value[f] == synth_favourite(f, s.value[synth_cause(f)]);
    }
    return (double)hits / N;
}

static void factors_go_together_as_strongly_as_asked(void)
{
    static const double strengths[] = { 0, 0.6, 1 };
    for (int k = 0; k < 3; k++) {
        double s = strengths[k], free = 1 - s;
        CHECK_NEAR(share_of_favourites(s, SYNTH_COLOUR), (s + free / 8) / (s + free * 6 / 8), 0.0142);
        CHECK_NEAR(share_of_favourites(s, SYNTH_BACKGROUND), (s + free / 7) / (s + free * 5 / 7), 0.0142);
        CHECK_NEAR(share_of_favourites(s, SYNTH_MATERIAL), s + free / 6, 0.0142);
        CHECK_NEAR(share_of_favourites(s, SYNTH_LIGHT), s + free / 4, 0.0142);
    }
}

static void objects_and_free_factors_are_uniform(void)
{
    static const synth_factor uniform[] = { SYNTH_OBJECT, SYNTH_SIZE, SYNTH_COUNT, SYNTH_POSITION };
    for (int k = 0; k < 4; k++) {
        int seen[SYNTH_MAX_VALUES] = { 0 }, count = synth_factors[uniform[k]].count;
        for (int64_t i = 0; i < N; i++) {
            synth_scene s;
            synth_draw(&world, SYNTH_TRAIN, i, &s);
            seen[s.value[uniform[k]]]++;
        }
        for (int v = 0; v < count; v++) CHECK_NEAR((double)seen[v] / N, 1.0 / count, 0.0142);
    }
}

static void tests_are_balanced_held_out_and_silent(void)
{
    for (int f = 0; f < SYNTH_FACTORS; f++)
        for (int64_t i = 0; i < 500; i++) {
            synth_scene s;
            synth_draw_test(&world, (synth_factor)f, i, &s);
            CHECK(s.value[f] == i % synth_factors[f].count && s.held_out && pair_in_scene(&s));
            for (int g = 0; g < SYNTH_FACTORS; g++) CHECK(!s.named[g] && s.value[g] < synth_factors[g].count);
        }
}

/* ---- captions ------------------------------------------------------------------------------------ */

/* True when `text` has `words` as whole words; a plural s (or ies for y) counts. */
static bool has_words(const char *text, const char *words)
{
    size_t n = strlen(words);
    char plural[64];
    snprintf(plural, sizeof plural, "%.*sies", (int)(n ? n - 1 : 0), words);
    if (n && words[n - 1] == 'y' && strstr(text, plural)) return true;
    for (const char *at = text; (at = strstr(at, words)); at++) {
        char before = at == text ? ' ' : at[-1], after = at[n] == 's' ? at[n + 1] : at[n];
        if (!((before >= 'a' && before <= 'z') || (after >= 'a' && after <= 'z'))) return true;
    }
    return false;
}

static bool tells(const char *text, const synth_value *v)
{
    if (has_words(text, v->name)) return true;
    for (int i = 0; i < SYNTH_MAX_WORDS && v->word[i]; i++)
        if (has_words(text, v->word[i])) return true;
    return false;
}

static void captions_contain_only_named_values(void)
{
    for (int64_t i = 0; i < N; i++) {
        synth_scene s;
        sbuf text = { 0 };
        synth_draw(&world, SYNTH_TRAIN, i, &s);
        synth_caption(&s, &text);
        CHECK(text.len > 0 && text.len < 255 && !strpbrk(text.data, "\t\n\"\\{}"));
        for (int f = 0; f < SYNTH_FACTORS; f++)
            for (int v = 0; v < synth_factors[f].count; v++) {
                bool told = tells(text.data, &synth_factors[f].value[v]);
                if (told != (s.named[f] && s.value[f] == v)) {
                    printf("  \"%s\": %s\n", text.data, synth_factors[f].value[v].name);
                    CHECK(!"told what is named");
                }
            }
        sbuf_release(&text);
    }
}

static void words_vary(void)
{
    synth_scene s;
    int words[SYNTH_MAX_WORDS] = { 0 }, first_a = 0;
    synth_draw(&world, SYNTH_TRAIN, 0, &s);
    for (int f = 0; f < SYNTH_FACTORS; f++) s.named[f] = f == SYNTH_OBJECT || f == SYNTH_COLOUR;
    s.value[SYNTH_OBJECT] = SYNTH_HOUSE;
    s.value[SYNTH_COLOUR] = SYNTH_ORANGE;
    s.value[SYNTH_COUNT] = SYNTH_ONE;
    for (uint64_t k = 0; k < 1000; k++) {
        sbuf text = { 0 };
        s.key = k;
        synth_caption(&s, &text);
        for (int w = 0; w < 3; w++)
            words[w] += has_words(text.data, synth_factors[SYNTH_OBJECT].value[SYNTH_HOUSE].word[w]);
        CHECK(!strstr(text.data, "a orange"));
        first_a += strstr(text.data, "an orange") != NULL;
        sbuf_release(&text);
    }
    CHECK(words[0] > 600 && words[1] > 50 && words[2] > 50 && first_a > 200);
}

/* ---- images ------------------------------------------------------------------------------------ */

static bool can_draw(cloob_ctx *ctx)
{
    uint8_t rgb[16 * 16 * 3];
    synth_scene s;
    synth_draw(&world, SYNTH_TRAIN, 0, &s);
    return image_jpeg_available() && synth_render(ctx, &s, 16, rgb) != CLOOB_ERR_UNSUPPORTED;
}

static void every_value_changes_the_image(void)
{
    enum { SIZE = 64, BYTES = SIZE * SIZE * 3 };
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    static uint8_t plain[BYTES], other[BYTES];
    if (!can_draw(ctx)) {
        cloob_ctx_destroy(ctx);
        SKIP("no cairo");
    }
    synth_scene s;
    synth_draw(&world, SYNTH_TRAIN, 5, &s);
    for (int f = 0; f < SYNTH_FACTORS; f++)
        for (int v = 1; v < synth_factors[f].count; v++) {
            synth_scene a = s, b = s;
            a.value[f] = (uint8_t)(v - 1), b.value[f] = (uint8_t)v;
            CHECK_OK(ctx, synth_render(ctx, &a, SIZE, plain));
            CHECK_OK(ctx, synth_render(ctx, &b, SIZE, other));
            double far = 0;
            for (int i = 0; i < BYTES; i++) far += abs(plain[i] - other[i]);
            CHECK(far / BYTES > 0.8); /* levels per channel, mean; the smallest is matte against shiny, near 2 */
        }
    cloob_ctx_destroy(ctx);
}

static void drawing_is_repeatable_and_stays_inside(void)
{
    enum { SIZE = 33, BYTES = SIZE * SIZE * 3, GUARD = 64 };
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    static uint8_t a[BYTES + GUARD], b[BYTES + GUARD];
    if (!can_draw(ctx)) {
        cloob_ctx_destroy(ctx);
        SKIP("no cairo");
    }
    for (int64_t i = 0; i < 200; i++) {
        synth_scene s;
        synth_draw(&world, SYNTH_VAL, i, &s);
        memset(a, 0xA5, sizeof a);
        memset(b, 0x5A, sizeof b);
        CHECK_OK(ctx, synth_render(ctx, &s, SIZE, a));
        CHECK_OK(ctx, synth_render(ctx, &s, SIZE, b));
        CHECK(memcmp(a, b, BYTES) == 0);
        for (int g = 0; g < GUARD; g++) CHECK(a[BYTES + g] == 0xA5 && b[BYTES + g] == 0x5A);
    }
    synth_scene s;
    synth_draw(&world, SYNTH_TRAIN, 0, &s);
    CHECK(synth_render(ctx, &s, 15, a) == CLOOB_ERR_ARGUMENT && synth_render(ctx, &s, 2049, a) == CLOOB_ERR_ARGUMENT);
    cloob_ctx_destroy(ctx);
}

static void threads_do_not_change_a_byte(void)
{
    enum { ITEMS = 64 };
    static synth_item item[3][ITEMS];
    for (int t = 0; t < 3; t++) {
        cloob_ctx *ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options),
                                                                .threads = t == 0   ? 1
                                                                           : t == 1 ? 3
                                                                                    : 8 });
        for (int64_t i = 0; i < ITEMS; i++) synth_draw(&world, SYNTH_TRAIN, i, &item[t][i].scene);
        if (can_draw(ctx)) CHECK_OK(ctx, synth_batch(ctx, 48, item[t], ITEMS));
        cloob_ctx_destroy(ctx);
    }
    for (int i = 0; i < ITEMS; i++)
        for (int t = 1; t < 3; t++) {
            const sbuf *a = &item[0][i].encoded, *b = &item[t][i].encoded;
            CHECK(a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0));
        }
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < ITEMS; i++) sbuf_release(&item[t][i].encoded);
}

/* ---- on disk ------------------------------------------------------------------------------------- */

static char scratch[256];

static char *in_scratch(const char *name)
{
    char *path = file_join(scratch, name);
    if (!path) abort();
    return path;
}

static int64_t count_lines(const char *name)
{
    char *path = in_scratch(name);
    FILE *f = fopen(path, "rb");
    int64_t lines = 0;
    for (int c; f && (c = fgetc(f)) != EOF;) lines += c == '\n';
    if (f) fclose(f);
    free(path);
    return lines;
}

static bool there(const char *name)
{
    char *path = in_scratch(name);
    bool yes = file_exists(path);
    free(path);
    return yes;
}

static cloob_status write_set(cloob_ctx *ctx, synth_options o, synth_result *r)
{
    o.out = scratch;
    return synth_write(ctx, &o, r);
}

static synth_options small_options(void)
{
    return (synth_options){
        .count = 40, .val_count = 6, .per_class = 2, .size = 32, .seed = 1, .strength = 0.6, .shard_samples = 16
    };
}

static void check_files(void)
{
    CHECK(count_lines("train.tsv") == 41 && count_lines("val.tsv") == 7);
    CHECK(count_lines("factors.tsv") == 1 + 40 + 6 + 2 * 47 && count_lines("naming.tsv") == 1 + 40 + 6 + 2 * 47);
    for (int f = 0; f < SYNTH_FACTORS; f++)
        for (int v = 0; v < synth_factors[f].count; v++)
            for (int i = 0; i < 3; i++) {
                char name[128];
                snprintf(name, sizeof name, "classes/%s/%s/%05d.%s", synth_factors[f].name,
                         synth_factors[f].value[v].name, i, "jpg");
                CHECK(there(name) == (i < 2));
            }
}

static void check_prompts(cloob_ctx *ctx)
{
    arena a = { 0 };
    json *root = NULL;
    char *path = in_scratch("prompts.json");
    CHECK_OK(ctx, json_read_file(ctx, &a, path, &root));
    CHECK(root && root->count == SYNTH_FACTORS);
    for (int f = 0; root && f < SYNTH_FACTORS; f++) {
        const json *classes = json_get(json_get(root, synth_factors[f].name), "classes");
        CHECK(classes && classes->count == synth_factors[f].count);
    }
    free(path);
    arena_release(&a);
}

/* What the loaders make of it: every pair is the scene that its number says. */
static void check_pairs(cloob_ctx *ctx, const char *name, int64_t count)
{
    dataset_options o;
    dataset *d = NULL;
    char *path = in_scratch(name);
    dataset_options_init(&o);
    CHECK_OK(ctx, dataset_open(ctx, path, &o, &d));
    CHECK(d && dataset_count(d) == count);
    for (int64_t i = 0; d && i < count; i += 7) {
        synth_scene scene;
        sbuf text = { 0 };
        sample got;
        synth_draw(&(synth_world){ 1, 0.6 }, SYNTH_TRAIN, i, &scene);
        synth_caption(&scene, &text);
        CHECK_OK(ctx, dataset_read(ctx, d, i, 0, NULL, &got));
        CHECK_STR(got.caption, text.data);
        CHECK(got.im.width == 32 && got.im.height == 32);
        sample_release(&got);
        sbuf_release(&text);
    }
    dataset_close(d);
    free(path);
}

static void check_class_folders(cloob_ctx *ctx)
{
    for (int f = 0; f < SYNTH_FACTORS; f++) {
        char name[64];
        dataset_options o;
        dataset *d = NULL;
        snprintf(name, sizeof name, "classes/%s", synth_factors[f].name);
        char *path = in_scratch(name);
        dataset_options_init(&o);
        CHECK_OK(ctx, dataset_open(ctx, path, &o, &d));
        CHECK(d && dataset_class_count(d) == synth_factors[f].count && dataset_count(d) == 2 * synth_factors[f].count);
        for (int v = 0; d && v < synth_factors[f].count; v++)
            CHECK_STR(dataset_class_name(d, v), synth_factors[f].value[v].name);
        dataset_close(d);
        free(path);
    }
}

static void a_set_is_written_replaced_and_refused(void)
{
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    synth_result r;
    snprintf(scratch, sizeof scratch, "synth-test-%ld", (long)getpid());
    if (!can_draw(ctx)) {
        cloob_ctx_destroy(ctx);
        SKIP("no cairo");
    }
    synth_options o = small_options(), shards = small_options();
    CHECK_OK(ctx, write_set(ctx, o, &r));
    CHECK(r.train == 40 && r.val == 6 && r.test == 94 && r.shards == 0);
    check_files();
    check_prompts(ctx);
    check_pairs(ctx, "train.tsv", 40);
    check_class_folders(ctx);
    shards.format = SYNTH_WEBDATASET;
    CHECK_OK(ctx, write_set(ctx, shards, &r)); /* in place of the first */
    CHECK(r.shards == 4 && there("train-00002.tar") && there("val-00000.tar") && there("sizes.json"));
    check_pairs(ctx, "train-{00000..00002}.tar", 40);
    CHECK(!there("train-00003.tar") && !there("train.tsv") && !there("images"));
    o.size = 8; /* refused before anything happens */
    CHECK(write_set(ctx, o, &r) == CLOOB_ERR_ARGUMENT && there("train-00002.tar"));
    o = small_options();
    CHECK_OK(ctx, write_set(ctx, o, &r));
    CHECK(!there("train-00000.tar") && !there("sizes.json"));
    check_files();
    cloob_ctx_destroy(ctx);
}

static void foreign_folders_are_left_alone(void)
{
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    synth_options o = small_options();
    if (!can_draw(ctx)) {
        cloob_ctx_destroy(ctx);
        SKIP("no cairo");
    }
    char *mark = in_scratch("synth.json"), *file = in_scratch("prompts.json");
    CHECK(remove(mark) == 0); /* now it is somebody else's */
    CHECK(write_set(ctx, o, NULL) == CLOOB_ERR_IO && strstr(cloob_error(ctx), "`force`"));
    o.force = true;
    CHECK(write_set(ctx, o, NULL) == CLOOB_ERR_IO && strstr(cloob_error(ctx), "was not made by cloob synth"));
    check_files();
    o.out = file;
    CHECK(synth_write(ctx, &o, NULL) == CLOOB_ERR_IO);
    CHECK_OK(ctx, file_write(ctx, mark, "{\"cloob_synth\": 1}", 18)); /* ours again */
    free(mark);
    free(file);
    cloob_ctx_destroy(ctx);
}

static void wrong_options_are_refused(void)
{
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    synth_options o = small_options();
    o.count = 0;
    CHECK(write_set(ctx, o, NULL) == CLOOB_ERR_ARGUMENT);
    o.count = INT64_MAX;
    CHECK(write_set(ctx, o, NULL) == CLOOB_ERR_ARGUMENT);
    o = small_options(), o.strength = NAN;
    CHECK(write_set(ctx, o, NULL) == CLOOB_ERR_ARGUMENT);
    o = small_options(), o.shard_samples = 0;
    CHECK(write_set(ctx, o, NULL) == CLOOB_ERR_ARGUMENT);
    o = small_options(), o.size = 1 << 20;
    CHECK(write_set(ctx, o, NULL) == CLOOB_ERR_ARGUMENT);
    o = small_options(), o.out = "/proc/nowhere/set";
    CHECK(synth_write(ctx, &o, NULL) != CLOOB_OK && cloob_error(ctx)[0]);
    cloob_ctx_destroy(ctx);
}

static void clean_up(void)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    CHECK(system(command) == 0);
}

int main(void)
{
    RUN(tables_are_whole_and_sorted);
    RUN(every_value_is_held_out_somewhere);
    RUN(training_never_shows_a_held_out_pair);
    RUN(captions_name_factors_at_the_stated_rates);
    RUN(factors_go_together_as_strongly_as_asked);
    RUN(objects_and_free_factors_are_uniform);
    RUN(tests_are_balanced_held_out_and_silent);
    RUN(captions_contain_only_named_values);
    RUN(words_vary);
    RUN(every_value_changes_the_image);
    RUN(drawing_is_repeatable_and_stays_inside);
    RUN(threads_do_not_change_a_byte);
    RUN(a_set_is_written_replaced_and_refused);
    RUN(foreign_folders_are_left_alone);
    RUN(wrong_options_are_refused);
    RUN(clean_up);
    return check_summary();
}
