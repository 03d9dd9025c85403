/* Texts that evaluations read: groups of runs as JSON lines (two readers), and lists of classes. The first byte
 * chooses. */
#include "cloob/eval.h"
#include "fuzz.h"
#include "infer/zeroshot_run.h"
#include "scratch_folder.h"
#include "lab/compare/groups.h"

static void compare(cloob_ctx *ctx, const char *path)
{
    groups_result g;
    if (compare_files(ctx, &g, path, path, -1, 0.05) != CLOOB_OK) return;
    free(groups_two_json(&g));
    groups_release(&g);
}

static void runs(cloob_ctx *ctx, const char *path)
{
    compare_options o;
    groups_result g;
    compare_options_init(&o);
    o.resamples = 10;
    if (compare_runs(ctx, &g, &path, 1, &o) != CLOOB_OK) return;
    free(groups_text(&g, "markdown"));
    free(groups_text(&g, "json"));
    groups_release(&g);
}

/* The folders of a CIFAR set with two classes, matched with a prompt set of three. */
static void classes(cloob_ctx *ctx, const char *path)
{
    static const char sets[] = "{\"s\":{\"classes\":[\"red\",\"blue\",\"green\"],\"templates\":[\"a {}.\"]}}";
    static dataset *d;
    static prompts p;
    arena a = { 0 };
    class_map m;
    if (!d) {
        static uint8_t records[2 * 3073];
        dataset_options o;
        char source[256];
        records[3073] = 1;
        dataset_options_init(&o);
        o.type = (char *)(uintptr_t) "cifar";
        (void)scratch_write("test_batch.bin", records, sizeof records);
        (void)scratch_write("batches.meta.txt", "red\nblue\n", 9);
        snprintf(source, sizeof source, "%s", scratch_folder());
        if (dataset_open(ctx, source, &o, &d) != CLOOB_OK) abort();
        if (prompts_parse(ctx, sets, sizeof sets - 1, "fuzz", &p) != CLOOB_OK) abort();
    }
    if (class_map_read(ctx, &a, path, d, &p.set[0], &m) == CLOOB_OK)
        for (int64_t i = 0; i < m.set.class_count; i++)
            if (m.group[i] < 0 || m.group[i] >= m.answers) abort();
    arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    const char *folder = scratch_folder();
    char path[256];
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (!folder || size < 1) return 0;
    if (!scratch_write("input.jsonl", data + 1, size - 1)) return 0;
    snprintf(path, sizeof path, "%s/input.jsonl", folder);
    switch (data[0] % 4) {
    case 0: compare(ctx, path); break;
    case 1: runs(ctx, path); break;
    default: classes(ctx, path);
    }
    unlink(path);
    return 0;
}
