/* Torch files made out of the input: every byte chooses a fragment of a pickle program, so that programs get far before
 * one of them is refused. The program stands in a zip with two storages. What opens must be readable to the last
 * byte. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "io/torch/torchfile.h"
#include "io/torch/zip.h"

typedef struct fragment {
    const char *bytes;
    size_t size;
} fragment;

#define F(text)                                                                                                        \
    {                                                                                                                  \
        text, sizeof text - 1                                                                                          \
    }

static const fragment fragments[] = {
    F("("),
    F(")"),
    F("]"),
    F("}"),
    F("t"),
    F("l"),
    F("d"),
    F("\x85"),
    F("\x86"),
    F("\x87"),
    F("a"),
    F("e"),
    F("s"),
    F("u"),
    F("0"),
    F("1"),
    F("2"),
    F("R"),
    F("b"),
    F("Q"),
    F("o"),
    F("\x81"),
    F("\x92"),
    F("\x93"),
    F("\x94"),
    F("\x8f"),
    F("\x90"),
    F("N"),
    F("\x88"),
    F("\x89"),
    F("K\x00"),
    F("K\x01"),
    F("K\x02"),
    F("K\x10"),
    F("M\xff\xff"),
    F("J\xff\xff\xff\xff"),
    F("J\xff\xff\xff\x7f"),
    F("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"),
    F("G\x3f\xf0\x00\x00\x00\x00\x00\x00"),
    F("X\x01\x00\x00\x00"
      "0"),
    F("X\x01\x00\x00\x00"
      "1"),
    F("X\x07\x00\x00\x00"
      "storage"),
    F("X\x03\x00\x00\x00"
      "cpu"),
    F("X\x01\x00\x00\x00w"),
    F("X\x0a\x00\x00\x00state_dict"),
    F("q\x00"),
    F("q\x01"),
    F("q\x02"),
    F("h\x00"),
    F("h\x01"),
    F("h\x02"),
    F("h\x09"),
    F("p0\n"),
    F("g0\n"),
    F("I7\n"),
    F("L-9L\n"),
    F("F1e9\n"),
    F("S'w'\n"),
    F("Vw\n"),
    F("ctorch._utils\n_rebuild_tensor_v2\n"),
    F("ctorch\nFloatStorage\n"),
    F("ctorch\nLongStorage\n"),
    F("ccollections\nOrderedDict\n"),
    F("ctorch._tensor\n_rebuild_from_type_v2\n"),
    F("ctorch._utils\n_rebuild_parameter\n"),
    F("ctorch\nSize\n"),
    F("cargparse\nNamespace\n"),
    F("ctorch\nTensor\n"),
    /* a whole storage, and a whole tensor of it: (storage, 0, (2, 2), (2, 1), False, OrderedDict()) */
    F("(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00"
      "0X\x03\x00\x00\x00"
      "cpuK\x10tQ"),
    F("(X\x07\x00\x00\x00storagectorch\nLongStorage\nX\x01\x00\x00\x00"
      "1X\x03\x00\x00\x00"
      "cpuK\x08tQ"),
    F("K\x00(K\x02K\x02t(K\x02K\x01t\x89"
      "ccollections\nOrderedDict\n)R"),
    F("ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00"
      "0X\x03\x00\x00\x00"
      "cpuK\x10tQK\x00(K\x02K\x02t(K\x02K\x01t\x89"
      "ccollections\nOrderedDict\n)RtR"),
};

enum { FRAGMENTS = sizeof fragments / sizeof *fragments };

static void try_file(cloob_ctx *ctx, const void *pickle, size_t size)
{
    static const unsigned char storage[64];
    char *file = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&file, &bytes);
    zip_writer z;
    torch_file t;
    if (!f) return;
    zip_writer_begin(&z, f);
    bool ok = zip_writer_add(ctx, &z, "archive/data.pkl", pickle, size) == CLOOB_OK &&
              zip_writer_add(ctx, &z, "archive/data/0", storage, 64) == CLOOB_OK &&
              zip_writer_add(ctx, &z, "archive/data/1", storage, 64) == CLOOB_OK && zip_writer_end(ctx, &z) == CLOOB_OK;
    zip_writer_release(&z);
    fclose(f);
    if (ok && torch_open_bytes(ctx, (unsigned char *)file, bytes, "fuzz", &t) == CLOOB_OK) {
        volatile unsigned char sum = 0;
        for (int64_t i = 0; i < t.count; i++)
            for (size_t b = 0; b < tensor_bytes(&t.entry[i].t); b++) sum ^= ((unsigned char *)t.entry[i].t.data)[b];
        torch_close(&t);
    }
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    static unsigned char program[1 << 17];
    size_t n = 2;
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    memcpy(program, "\x80\x02", 2);
    for (size_t i = 0; i < size && n + 256 < sizeof program; i++) {
        const fragment *f = &fragments[data[i] % FRAGMENTS];
        memcpy(program + n, f->bytes, f->size);
        n += f->size;
    }
    program[n++] = '.';
    try_file(ctx, program, n);
    return 0;
}
