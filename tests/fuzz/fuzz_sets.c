/* Data sets out of files made from the input: MNIST, CIFAR, STL-10, shards, tars of class folders, CSV. The first byte
 * chooses the kind, the second where the input is cut in two; a record's size is filled up, so that images are
 * reached. */
#include "data/sets/dataset.h"
#include "fuzz.h"
#include "scratch_folder.h"

typedef struct kind {
    const char *type, *first, *second; /* of dataset_options; the files that the two halves become */
    const char *source;                /* inside the folder; "": the folder */
    size_t record;                     /* the first file is filled up to a multiple of it; 0: as it is */
} kind;

static const kind kinds[] = {
    { "mnist", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "", 0 },
    { "cifar", "test_batch.bin", "batches.meta.txt", "", 3073 },
    { "cifar", "test.bin", "fine_label_names.txt", "", 3074 },
    { "stl10", "test_X.bin", "test_y.bin", "", 27648 },
    { "webdataset", "a.tar", "b.tar", "a.tar", 512 },
    { "tarfolder", "a.tar", "b.tar", "a.tar", 512 },
    { "csv", "a.csv", "a.png", "a.csv", 0 },
};

/* Reads a few samples of what could be opened. */
static void look(cloob_ctx *ctx, const char *source, const char *type)
{
    dataset_options o;
    dataset *d;
    dataset_options_init(&o);
    o.type = (char *)(uintptr_t)type;
    if (dataset_open(ctx, source, &o, &d) != CLOOB_OK) return;
    for (int64_t i = 0; i < dataset_count(d) && i < 4; i++) {
        sample s = { 0 };
        stored_sample label = { 0 };
        if (dataset_fetch(ctx, d, i, 0, FETCH_CAPTION, &label) == CLOOB_OK && label.label >= dataset_class_count(d))
            abort();
        stored_sample_release(&label);
        if (dataset_read(ctx, d, i, 0, NULL, &s) == CLOOB_OK) {
            if (s.label >= dataset_class_count(d)) abort(); /* it would be an index */
            sample_release(&s);
        }
    }
    dataset_close(d);
}

static bool write_filled(const char *name, const uint8_t *data, size_t size, size_t record)
{
    size_t n = record ? (size + record - 1) / record * record : size;
    uint8_t *copy = calloc(n + 1, 1);
    if (!copy) return false;
    if (size) memcpy(copy, data, size);
    bool ok = scratch_write(name, copy, n);
    free(copy);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    const char *folder = scratch_folder();
    char path[256];
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (!folder || size < 2) return 0;
    setenv("CLOOB_CACHE", folder, 1);
    const kind *k = &kinds[data[0] % (sizeof kinds / sizeof *kinds)];
    size_t first = (size - 2) * data[1] / 255;
    if (!write_filled(k->first, data + 2, first, k->record)) return 0;
    if (!scratch_write(k->second, data + 2 + first, size - 2 - first)) return 0;
    if (strcmp(k->type, "stl10") == 0) (void)scratch_write("class_names.txt", "a\nb\n", 4);
    snprintf(path, sizeof path, "%s%s%s", folder, *k->source ? "/" : "", k->source);
    look(ctx, path, k->type);
    snprintf(path, sizeof path, "%s/%s", folder, k->first);
    unlink(path);
    snprintf(path, sizeof path, "%s/%s", folder, k->second);
    unlink(path);
    return 0;
}
