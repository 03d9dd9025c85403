/* 512-byte headers, content padded to 512, two empty blocks at the end. */
#include "lab/synth/write.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cloob_status synth_tar_open(cloob_ctx *ctx, const char *path, synth_tar *t)
{
    t->path = strdup(path);
    t->stream = t->path ? fopen(path, "wb") : NULL;
    if (t->stream) return CLOOB_OK;
    cloob_status status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    free(t->path);
    *t = (synth_tar){ 0 };
    return status;
}

void synth_tar_add(synth_tar *t, const char *name, const void *data, size_t bytes)
{
    static const char zeros[512];
    char header[512] = { 0 };
    assert(strlen(name) < 100);
    memcpy(header, name, strlen(name));
    memcpy(header + 100, "0000644", 8);
    memcpy(header + 108, "0000000", 8);
    memcpy(header + 116, "0000000", 8);
    snprintf(header + 124, 12, "%011zo", bytes);
    snprintf(header + 136, 12, "%011o", 0u);
    memset(header + 148, ' ', 8); /* the sum is taken with blanks in its own place */
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++) sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    fwrite(header, 1, sizeof header, t->stream);
    fwrite(data, 1, bytes, t->stream);
    fwrite(zeros, 1, (512 - bytes % 512) % 512, t->stream);
}

cloob_status synth_tar_close(cloob_ctx *ctx, synth_tar *t)
{
    static const char zeros[1024];
    if (!t->stream) return CLOOB_OK;
    fwrite(zeros, 1, sizeof zeros, t->stream);
    bool bad = fflush(t->stream) != 0 || ferror(t->stream);
    int cause = errno;
    if (fclose(t->stream) != 0 && !bad) bad = true, cause = errno;
    cloob_status status =
        bad ? ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot write: %s", t->path, strerror(cause)) : CLOOB_OK;
    free(t->path);
    *t = (synth_tar){ 0 };
    return status;
}
