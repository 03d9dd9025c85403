/* The index of a model in several files, from arbitrary JSON, next to two files with a tensor each. */
#include "fuzz.h"
#include "model/weights.h"
#include "scratch_folder.h"

static bool write_shard(const char *name, const char *holds)
{
    char file[160] = { 0 };
    int n = snprintf(file + 8, 140, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", holds);
    file[0] = (char)n;
    return scratch_write(name, file, (size_t)n + 12);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    static bool ready;
    char path[256];
    weights w;
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (!scratch_folder()) return 0;
    if (!ready && !(write_shard("a.safetensors", "one") && write_shard("b.safetensors", "two"))) return 0;
    ready = true;
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", scratch_path);
    if (!scratch_write("model.safetensors.index.json", data, size)) return 0;
    weights_init(&w);
    (void)!shards_open(ctx, path, &w);
    weights_release(&w);
    return 0;
}
