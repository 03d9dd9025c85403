/* The tar index over arbitrary bytes, and the grouping of what it finds into samples. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/sets/dataset_web.h"
#include "fuzz.h"

typedef struct memory {
    const uint8_t *data;
    size_t size;
} memory;

static cloob_status read_memory(void *arg, int64_t offset, void *out, size_t n)
{
    const memory *m = arg;
    if (offset < 0 || (size_t)offset > m->size || n > m->size - (size_t)offset) abort(); /* a promise of tar_scan */
    memcpy(out, m->data + offset, n);
    return CLOOB_OK;
}

static void scan(cloob_ctx *ctx, const uint8_t *data, size_t size)
{
    memory m = { data, size };
    tar_index t;
    web_keys keys = { (char *)(uintptr_t) "jpg;png", (char *)(uintptr_t) "txt;json" };
    web_shard shard = { 0 };
    if (tar_scan(ctx, read_memory, &m, (int64_t)size, "fuzz", &t) != CLOOB_OK) return;
    for (int64_t i = 0; i < t.count; i++) {
        const tar_member *e = &t.member[i];
        if (e->offset < 0 || e->size < 0 || (uint64_t)e->offset + (uint64_t)e->size > size) abort();
        if (tar_name(&t, i)[0] == '/' || strncmp(tar_name(&t, i), "../", 3) == 0) abort();
    }
    web_group(ctx, &t, &keys, &shard);
    free(shard.sample);
    tar_release(&t);
}

/* Random bytes hardly ever have a sound checksum: the same input again with every block's set right. */
static void repair(uint8_t *data, size_t size)
{
    enum { BLOCK = 512, AT_SUM = 148, SUM_BYTES = 8 };
    for (size_t at = 0; at + BLOCK <= size; at += BLOCK) {
        unsigned sum = 0;
        char text[SUM_BYTES + 8];
        memset(data + at + AT_SUM, ' ', SUM_BYTES);
        for (size_t i = 0; i < BLOCK; i++) sum += data[at + i];
        snprintf(text, sizeof text, "%06o", sum);
        memcpy(data + at + AT_SUM, text, 6);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    if (!ctx) ctx = cloob_ctx_create(NULL);
    scan(ctx, data, size);
    uint8_t *copy = malloc(size + 1);
    if (!copy) return 0;
    if (size) memcpy(copy, data, size);
    repair(copy, size);
    scan(ctx, copy, size);
    free(copy);
    return 0;
}
