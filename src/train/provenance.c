/* Provenance of a run: program, command line, data, host, libraries, devices. A line of provenance.jsonl for every
 * start of the run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/arith.h"
#include "core/file.h"
#include "core/hash.h"
#include "source_commit.h"
#include "tensor/device.h"
#include "train/run_setup.h"

/* ---- data ---------------------------------------------------------------------------------------- */

enum { DIGEST_TEXT_BYTES = 17 };

static uint64_t add_bytes(uint64_t key, const void *data, size_t bytes)
{
    key = hash64(key, &bytes, sizeof bytes);
    return bytes ? hash64(key, data, bytes) : key;
}

/* 16 hexadecimal digits: captions of up to 1,024 samples and the stored bytes of up to 64 images, evenly spaced: other
 * data is noticed without reading all of it. A sample that cannot be read counts as empty. */
static void provenance_digest(cloob_ctx *ctx, const dataset *d, char text[DIGEST_TEXT_BYTES])
{
    enum { CAPTIONS = 1024, IMAGES = 64 };
    int64_t n = dataset_count(d), looked = min64(n, CAPTIONS), every = looked > IMAGES ? looked / IMAGES : 1;
    uint64_t key = hash64(0, &n, sizeof n);
    stored_sample s = { 0 };
    for (int64_t i = 0; i < looked; i++) {
        bool pixels = i % every == 0;
        int what = (dataset_has_captions(d) ? FETCH_CAPTION : 0) | (pixels ? FETCH_IMAGE : 0);
        int64_t at = (int64_t)((double)i * (double)n / (double)looked);
        bool read = what && dataset_fetch(ctx, d, at, 0, what, &s) == CLOOB_OK;
        key = add_bytes(key, s.caption.data, read && (what & FETCH_CAPTION) ? s.caption.len : 0);
        key = add_bytes(key, s.data, read && pixels ? s.size : 0);
    }
    stored_sample_release(&s);
    snprintf(text, DIGEST_TEXT_BYTES, "%016llx", (unsigned long long)key);
}

/* ---- program and machine ------------------------------------------------------------------------- */

static void put_command(json_out *w)
{
    char line[1 << 16];
    FILE *f = fopen("/proc/self/cmdline", "r");
    size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f) fclose(f);
    line[n] = '\0';
    json_begin(w, "command", '[');
    for (size_t at = 0; at < n; at += strlen(line + at) + 1) json_put_text(w, NULL, line + at);
    json_end(w);
}

static void put_place(json_out *w)
{
    char host[256] = "", when[32], *folder = getcwd(NULL, 0);
    time_t now = time(NULL);
    struct tm tm;
    gethostname(host, sizeof host - 1);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    json_members(w, J_TEXT("started", when), J_TEXT("host", host), J_TEXT("folder", folder));
    free(folder);
}

/* The lines of machine_describe as members. */
static void put_machine(json_out *w, device *dev)
{
    sbuf s = { 0 };
    machine_describe(&s, dev);
    char *rest = s.data;
    for (char *line; rest && (line = strsep(&rest, "\n"));) {
        char *colon = strstr(line, ": ");
        if (!colon) continue;
        *colon = '\0';
        json_put_text(w, line, colon + 2);
    }
    sbuf_release(&s);
}

void provenance_put(cloob_ctx *ctx, const run *r, json_out *w, const char *key)
{
    char digest[DIGEST_TEXT_BYTES];
    json_begin(w, key, '{');
    json_members(w, J_TEXT("version", cloob_version()), J_TEXT("commit", CLOOB_SOURCE_COMMIT));
    put_command(w);
    put_place(w);
    provenance_digest(ctx, r->train, digest);
    json_put_text(w, "train_data_digest", digest);
    if (r->val) provenance_digest(ctx, r->val, digest);
    if (r->val) json_put_text(w, "val_data_digest", digest);
    json_members(w, J_INT("ranks", comm_size(r->c)), J_OF(ctx, threads), J_TEXT("device", r->dev->name));
    put_machine(w, r->dev);
    json_end(w);
}
