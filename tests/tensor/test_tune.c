/* The cache of timed choices: kept between runs, and never trusted when stale or damaged. */
#include "check.h"

#include "core/file.h"
#include "tensor/cuda/tune.h"

#include <unistd.h>

static cloob_ctx *ctx;
static char folder[64], file[512];

static void find_file(void)
{
    char command[160];
    snprintf(command, sizeof command, "ls %s/tune-*.txt", folder);
    FILE *list = popen(command, "r");
    if (!list || !fgets(file, sizeof file, list)) file[0] = '\0';
    file[strcspn(file, "\n")] = '\0';
    if (list) pclose(list);
}

static bool known(const char *device, const char *versions, int *value)
{
    tune_cache *t = NULL;
    CHECK_OK(ctx, tune_open(ctx, device, versions, &t));
    bool hit = tune_get(t, "conv-1x1", value, sizeof *value);
    tune_close(t);
    return hit;
}

static void store(int value)
{
    tune_cache *t = NULL;
    CHECK_OK(ctx, tune_open(ctx, "GPU A", "1.0", &t));
    tune_put(t, "conv-1x1", &value, sizeof value);
    tune_close(t);
    find_file();
}

static void choices_come_back(void)
{
    int value = 0;
    store(42);
    CHECK(known("GPU A", "1.0", &value) && value == 42);
    store(43);
    CHECK(known("GPU A", "1.0", &value) && value == 43);
}

/* As after a kill: what was chosen is on disk before anybody closes anything. */
static void choices_are_loaded(void)
{
    tune_cache *t = NULL;
    int value = 7, other = 8, found = 0;
    CHECK_OK(ctx, tune_open(ctx, "GPU C", "1.0", &t));
    tune_put(t, "first", &other, sizeof other);
    tune_put(t, "conv-1x1", &value, sizeof value);
    CHECK(known("GPU C", "1.0", &found) && found == 7);
    tune_close(t);
    CHECK(known("GPU C", "1.0", &found) && found == 7);
}

static void another_device_or_version_has_no_choices(void)
{
    int value = 0;
    store(42);
    CHECK(!known("GPU B", "1.0", &value));
    CHECK(!known("GPU A", "1.1", &value));
}

static void damaged_choices_are_ignored(void)
{
    int value = 0;
    file_bytes bytes;
    unlink(file); /* of a choice that was replaced, the file has both */
    store(42);
    CHECK_OK(ctx, file_read(ctx, file, 1 << 20, &bytes));
    size_t size = bytes.size;
    for (size_t i = 0; i + 1 < size; i++) { /* every byte but the last newline */
        char kept = bytes.data[i];
        bytes.data[i] = kept == '7' ? '8' : '7';
        CHECK_OK(ctx, file_write(ctx, file, bytes.data, size));
        CHECK(!known("GPU A", "1.0", &value) || value == 42);
        bytes.data[i] = kept;
    }
    for (size_t cut = 0; cut < size; cut++) {
        CHECK_OK(ctx, file_write(ctx, file, bytes.data, cut));
        CHECK(!known("GPU A", "1.0", &value) || value == 42);
    }
    file_bytes_release(&bytes);
}

/* As two processes at a time: whoever adds a choice first decides, and nobody's choices are lost. */
static void processes_agree(void)
{
    tune_cache *t = NULL, *u = NULL;
    int one = 1, two = 2, other = 3, found = 0;
    CHECK_OK(ctx, tune_open(ctx, "GPU E", "1.0", &t));
    CHECK_OK(ctx, tune_open(ctx, "GPU E", "1.0", &u));
    tune_put(t, "conv-1x1", &one, sizeof one);
    tune_put(u, "conv-1x1", &two, sizeof two);
    CHECK(two == 1 && tune_get(u, "conv-1x1", &found, sizeof found) && found == 1);
    CHECK(tune_choices_hash(t) == tune_choices_hash(u));
    tune_put(u, "of-u", &other, sizeof other);
    tune_put(t, "of-t", &other, sizeof other);
    tune_close(u);
    tune_close(t);
    CHECK(known("GPU E", "1.0", &found) && found == 1);
    CHECK_OK(ctx, tune_open(ctx, "GPU E", "1.0", &t));
    CHECK(tune_get(t, "of-u", &found, sizeof found) && tune_get(t, "of-t", &found, sizeof found));
    other = 9; /* a choice that no longer works is replaced */
    tune_put(t, "conv-1x1", &other, sizeof other);
    tune_close(t);
    CHECK(known("GPU E", "1.0", &found) && found == 9);
}

/* A line that was cut off, or a file of somebody else, does not swallow the next choice. */
static void a_damaged_file_takes_new_choices(void)
{
    int value = 0;
    file_bytes bytes;
    store(42);
    CHECK_OK(ctx, file_read(ctx, file, 1 << 20, &bytes));
    for (size_t cut = 0; cut < bytes.size; cut++) {
        CHECK_OK(ctx, file_write(ctx, file, bytes.data, cut));
        store(43);
        CHECK(known("GPU A", "1.0", &value) && value == 43);
    }
    file_bytes_release(&bytes);
}

/* Only what this process asked for or chose counts, and the order does not. */
static void the_hash_is_over_used_choices(void)
{
    tune_cache *t = NULL, *u = NULL;
    int a = 1, b = 2, other = 3, found;
    CHECK_OK(ctx, tune_open(ctx, "GPU D", "1.0", &t));
    uint64_t none = tune_choices_hash(t);
    tune_put(t, "a", &a, sizeof a);
    uint64_t one = tune_choices_hash(t);
    tune_put(t, "b", &b, sizeof b);
    uint64_t both = tune_choices_hash(t);
    CHECK(none == 0 && one != none && both != one);
    CHECK_OK(ctx, tune_open(ctx, "GPU D", "1.0", &u)); /* as the next run */
    CHECK(tune_choices_hash(u) == none);
    CHECK(tune_get(u, "b", &found, sizeof found) && tune_get(u, "a", &found, sizeof found));
    CHECK(tune_choices_hash(u) == both);
    tune_put(u, "b", &other, sizeof other);
    CHECK(tune_choices_hash(u) != both);
    tune_close(t);
    tune_close(u);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    scratch_folder(folder, sizeof folder);
    setenv("CLOOB_TUNE_CACHE", folder, 1);
    RUN(choices_come_back);
    RUN(another_device_or_version_has_no_choices);
    RUN(damaged_choices_are_ignored);
    RUN(choices_are_loaded);
    RUN(processes_agree);
    RUN(a_damaged_file_takes_new_choices);
    RUN(the_hash_is_over_used_choices);
    check_remove(folder);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
