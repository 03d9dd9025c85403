/* A data set in CLIP_benchmark's layout whose files are the input: parts divided by the byte 0x1e become nshards.txt,
 * dataset_type.txt, classnames.txt, the templates, and what is next to two images. The first byte says under which
 * suffix, and whether the shard is cut short. */
#include <stdlib.h>
#include <sys/stat.h>

#include "data/sets/dataset.h"
#include "data/sets/dataset_web.h"
#include "data/text/prompts.h"
#include "fuzz.h"
#include "io/rows_file.h"
#include "scratch_folder.h"

enum { BLOCK = 512, PARTS = 6, MOST = 1 << 14 };

static const char *const names[] = { "test/nshards.txt", "dataset_type.txt", "classnames.txt",
                                     "zeroshot_classification_templates.txt" };

typedef struct part {
    const uint8_t *data;
    size_t size;
} part;

/* A member of a tar file at `at`; returns the end. */
static size_t put_member(uint8_t *tar, size_t at, const char *name, const void *data, size_t size)
{
    uint8_t *h = tar + at;
    unsigned sum = 0;
    memset(h, 0, BLOCK);
    snprintf((char *)h, 100, "%s", name);
    snprintf((char *)h + 100, 8, "%07o", 0644);
    snprintf((char *)h + 124, 12, "%011zo", size);
    h[156] = '0';
    memcpy(h + 257, "ustar\00000", 8);
    memset(h + 148, ' ', 8);
    for (int i = 0; i < BLOCK; i++) sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
    size_t room = (size + BLOCK - 1) / BLOCK * BLOCK;
    memset(h + BLOCK, 0, room);
    if (size) memcpy(h + BLOCK, data, size);
    return at + BLOCK + room;
}

static bool write_shard(const part *extra, int kind, bool cut)
{
    static const char *const suffix[] = { "cls", "npy", "txt", "jpg" };
    static uint8_t tar[16 * BLOCK + 3 * MOST];
    size_t at = 0;
    char name[32];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "s%d.png", i);
        at = put_member(tar, at, name, "\x89PNG", 4);
        snprintf(name, sizeof name, "s%d.%s", i, suffix[kind]);
        at = put_member(tar, at, name, extra[i].data, extra[i].size);
    }
    memset(tar + at, 0, (size_t)2 * BLOCK);
    return scratch_write("test/0.tar", tar, cut ? at / 2 : at + (size_t)2 * BLOCK);
}

static void read_all(cloob_ctx *ctx, const char *folder, const char *text_key)
{
    dataset_options o;
    dataset *d;
    stored_sample s = { 0 };
    double numbers[64];
    int64_t n;
    dataset_options_init(&o);
    o.type = "webdataset", o.split = "test";
    if (text_key) o.text_key = text_key;
    if (dataset_open(ctx, folder, &o, &d) != CLOOB_OK) return;
    for (int64_t i = 0; i < dataset_count(d); i++) {
        bool targets = dataset_has_targets(d);
        if (dataset_fetch(ctx, d, i, 1, targets ? FETCH_TARGETS : FETCH_IMAGE | FETCH_CAPTION, &s) != CLOOB_OK)
            continue;
        if (s.label >= dataset_class_count(d)) abort();
        if (targets) (void)!npy_numbers(ctx, s.data, s.size, "fuzz", numbers, 64, &n);
    }
    stored_sample_release(&s);
    dataset_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    const char *folder = scratch_folder();
    char path[128];
    part p[PARTS] = { 0 };
    web_kind kind;
    prompts all;
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (!folder || size < 1 || size > MOST) return 0;
    int head = data[0], k = 0;
    p[0] = (part){ data + 1, 0 };
    for (size_t i = 1; i < size; i++) {
        if (data[i] == 0x1e && k + 1 < PARTS) p[++k] = (part){ data + i + 1, 0 };
        else p[k].size++;
    }
    snprintf(path, sizeof path, "%s/test", folder);
    mkdir(path, 0700);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (p[i].size == 0) unlink(path);
        else if (!scratch_write(names[i], p[i].data, p[i].size)) return 0;
    }
    if (!write_shard(p + 4, head & 3, (head & 4) != 0)) return 0;
    (void)!web_benchmark_kind(ctx, folder, &kind);
    read_all(ctx, folder, head & 8 ? "npy" : NULL);
    if (prompts_import(ctx, &folder, 1, &all) == CLOOB_OK) prompts_release(&all);
    return 0;
}
