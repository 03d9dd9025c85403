/* The cache of timed choices: a small text file, one line per choice: KEY HEX CHECKSUM. */
#include "tensor/cuda/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"

enum { TUNE_FORMAT = 1 }; /* raise when the meaning of a value changes */

typedef struct entry {
    char key[TUNE_KEY];
    unsigned char value[TUNE_VALUE];
    size_t bytes;
    bool used; /* by this process */
} entry;

struct tune_cache {
    char header[256];
    char *path; /* NULL: not kept on disk */
    entry *entry;
    int count;
    int64_t room;
    bool changed;
};

static uint64_t hash(const char *text, uint64_t h)
{
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u; /* FNV-1a */
    return h;
}

static uint64_t line_hash(const tune_cache *t, const char *key, const char *hex)
{
    return hash(hex, hash(key, hash(t->header, 14695981039346656037u)));
}

static void to_hex(const entry *e, char text[2 * TUNE_VALUE + 1])
{
    for (size_t i = 0; i < e->bytes; i++) snprintf(text + 2 * i, 3, "%02x", e->value[i]);
    text[2 * e->bytes] = '\0';
}

static bool from_hex(const char *text, entry *e)
{
    size_t n = strlen(text);
    if (n % 2 || n / 2 > TUNE_VALUE) return false;
    e->bytes = n / 2;
    for (size_t i = 0; i < e->bytes; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1) return false;
        e->value[i] = (unsigned char)byte;
    }
    return true;
}

static char *cache_path(cloob_ctx *ctx, const char *header)
{
    const char *own = getenv("CLOOB_TUNE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char dir[1024], name[64];
    if (own && strcmp(own, "off") == 0) return NULL;
    if (own && *own) snprintf(dir, sizeof dir, "%s", own);
    else if (xdg && *xdg) snprintf(dir, sizeof dir, "%s/cloob", xdg);
    else if (home && *home) snprintf(dir, sizeof dir, "%s/.cache/cloob", home);
    else return NULL;
    snprintf(name, sizeof name, "tune-%016llx.txt", (unsigned long long)hash(header, 14695981039346656037u));
    if (!file_is_dir(dir) && file_make_dirs(ctx, dir) != CLOOB_OK) return NULL;
    return file_join(dir, name);
}

static int find(const tune_cache *t, const char *key)
{
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->entry[i].key, key) == 0) return i;
    return -1;
}

static void keep(tune_cache *t, const char *key, const void *value, size_t bytes)
{
    int i = find(t, key);
    if (i < 0 && !heap_grow(&t->entry, t->count, &t->room, sizeof *t->entry)) return; /* timed again next time */
    if (i < 0) i = t->count++;
    entry *e = &t->entry[i];
    snprintf(e->key, sizeof e->key, "%s", key);
    memcpy(e->value, value, bytes);
    e->bytes = bytes;
    e->used = false;
    t->changed = true;
}

static void read_line(tune_cache *t, char *line)
{
    entry e = { .bytes = 0 };
    char *rest = NULL, *key = strtok_r(line, " ", &rest), *hex = strtok_r(NULL, " ", &rest),
         *sum = strtok_r(NULL, " ", &rest);
    if (!sum || strlen(key) >= TUNE_KEY || strtoull(sum, NULL, 16) != line_hash(t, key, hex) || !from_hex(hex, &e))
        return;
    keep(t, key, e.value, e.bytes);
}

static void read_all(tune_cache *t, char *text)
{
    char *rest = NULL, *line = strtok_r(text, "\n", &rest);
    if (!line || strcmp(line, t->header) != 0) return;
    while ((line = strtok_r(NULL, "\n", &rest))) read_line(t, line);
}

cloob_status tune_open(cloob_ctx *ctx, const char *device, const char *versions, tune_cache **out)
{
    tune_cache *t = calloc(1, sizeof *t);
    file_bytes file = { 0 };
    if (!t) return ctx_no_memory(ctx, sizeof *t, "the tuning cache");
    snprintf(t->header, sizeof t->header, "cloob-tune %d %s %s", TUNE_FORMAT, device, versions);
    t->path = cache_path(ctx, t->header);
    if (t->path && file_exists(t->path) && file_read(ctx, t->path, (size_t)1 << 24, &file) == CLOOB_OK) {
        read_all(t, file.data);
        file_bytes_release(&file);
    }
    t->changed = false;
    *out = t;
    return CLOOB_OK;
}

static void write_line(const tune_cache *t, const entry *e, FILE *f)
{
    char hex[2 * TUNE_VALUE + 1];
    to_hex(e, hex);
    fprintf(f, "%s %s %016llx\n", e->key, hex, (unsigned long long)line_hash(t, e->key, hex));
}

/* At once, so that a run that is killed goes on with the choices it made, and so ends with the same bytes. */
static void append(const tune_cache *t, const entry *e)
{
    FILE *f = fopen(t->path, "a");
    if (!f) return; /* the choice is timed again next time */
    if (fseek(f, 0, SEEK_END) == 0 && ftell(f) == 0) fprintf(f, "%s\n", t->header);
    write_line(t, e, f);
    fclose(f);
}

bool tune_get(const tune_cache *t, const char *key, void *value, size_t bytes)
{
    int i = find(t, key);
    if (i < 0 || t->entry[i].bytes != bytes) return false;
    memcpy(value, t->entry[i].value, bytes);
    t->entry[i].used = true;
    return true;
}

void tune_put(tune_cache *t, const char *key, const void *value, size_t bytes)
{
    keep(t, key, value, bytes);
    int i = find(t, key);
    if (i >= 0) t->entry[i].used = true;
    if (t->path && i >= 0) append(t, &t->entry[i]);
}

uint64_t tune_choices_hash(const tune_cache *t)
{
    uint64_t sum = 0;
    char hex[2 * TUNE_VALUE + 1];
    for (int i = 0; i < t->count; i++) {
        if (!t->entry[i].used) continue;
        to_hex(&t->entry[i], hex);
        sum += line_hash(t, t->entry[i].key, hex);
    }
    return sum;
}

static void write_all(const tune_cache *t, cloob_ctx *ctx)
{
    file_writer w;
    if (file_writer_begin(ctx, t->path, &w) != CLOOB_OK) return;
    fprintf(w.stream, "%s\n", t->header);
    for (int i = 0; i < t->count; i++) write_line(t, &t->entry[i], w.stream);
    file_writer_commit(ctx, &w);
}

void tune_close(tune_cache *t)
{
    if (!t) return;
    cloob_ctx *ctx = t->changed && t->path ? cloob_ctx_create(NULL) : NULL; /* a failure here is nobody's error */
    if (ctx) write_all(t, ctx);
    cloob_ctx_destroy(ctx);
    free(t->path);
    free(t->entry);
    free(t);
}
