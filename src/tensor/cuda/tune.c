/* The cache of timed choices: a small text file, one line per choice: KEY HEX CHECKSUM. Lines are only ever added, so
 * that processes that share it lose nothing; of several lines with one key the last counts. */
#include "tensor/cuda/tune.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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
    int64_t seen; /* bytes of the file that were read or written; 0: not even its header */
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
}

/* Whether it is an intact line of this key. */
static bool read_line(tune_cache *t, char *line, const char *wanted)
{
    entry e = { .bytes = 0 };
    char *rest = NULL, *key = strtok_r(line, " ", &rest), *hex = strtok_r(NULL, " ", &rest),
         *sum = strtok_r(NULL, " ", &rest);
    if (!sum || strlen(key) >= TUNE_KEY || strtoull(sum, NULL, 16) != line_hash(t, key, hex) || !from_hex(hex, &e))
        return false;
    keep(t, key, e.value, e.bytes);
    return strcmp(key, wanted) == 0;
}

/* Reads the lines after those read before; a file with another header has none. *found: one of them has this key. */
static bool read_lines(tune_cache *t, char *text, const char *wanted, bool *found)
{
    char *rest = NULL, *line = strtok_r(text, "\n", &rest);
    *found = false;
    if (t->seen == 0) {
        if (!line || strcmp(line, t->header) != 0) return false;
        line = strtok_r(NULL, "\n", &rest);
    }
    for (; line; line = strtok_r(NULL, "\n", &rest)) *found |= read_line(t, line, wanted);
    return true;
}

cloob_status tune_open(cloob_ctx *ctx, const char *device, const char *versions, tune_cache **out)
{
    tune_cache *t = calloc(1, sizeof *t);
    file_bytes file = { 0 };
    if (!t) return ctx_no_memory(ctx, sizeof *t, "the tuning cache");
    snprintf(t->header, sizeof t->header, "cloob-tune %d %s %s", TUNE_FORMAT, device, versions);
    t->path = cache_path(ctx, t->header);
    if (t->path && file_exists(t->path) && file_read(ctx, t->path, (size_t)1 << 24, &file) == CLOOB_OK) {
        bool found, ours = read_lines(t, file.data, "", &found);
        if (ours) t->seen = (int64_t)file.size;
        file_bytes_release(&file);
    }
    *out = t;
    return CLOOB_OK;
}

/* ---- adding a line ------------------------------------------------------------------------------- */

static bool write_text(int fd, const char *text)
{
    size_t n = strlen(text);
    return write(fd, text, n) == (ssize_t)n;
}

/* Reads the lines that other processes have added; true: one of them has this key. A file with another header is
 * overwritten. */
static bool read_news(tune_cache *t, int fd, const char *key)
{
    struct stat st;
    bool found = false;
    if (fstat(fd, &st) != 0) return false;
    if (st.st_size < t->seen) t->seen = 0;
    int64_t from = t->seen, n = (int64_t)st.st_size - from;
    char *text = n > 0 && n < (1 << 24) ? malloc((size_t)n + 1) : NULL;
    bool ours = from > 0, whole_lines = true;
    if (text && pread(fd, text, (size_t)n, (off_t)from) == (ssize_t)n) {
        text[n] = '\0';
        whole_lines = text[n - 1] == '\n';
        ours = read_lines(t, text, key, &found);
    }
    free(text);
    if (!ours && (ftruncate(fd, 0) != 0 || !write_text(fd, t->header) || !write_text(fd, "\n"))) return false;
    if (ours && !whole_lines) write_text(fd, "\n"); /* of a process that was killed while it wrote */
    return found;
}

static void write_line(const tune_cache *t, const char *key, const void *value, size_t bytes, int fd)
{
    char hex[2 * TUNE_VALUE + 1], line[TUNE_KEY + 2 * TUNE_VALUE + 24];
    entry e = { .bytes = bytes };
    memcpy(e.value, value, bytes);
    to_hex(&e, hex);
    snprintf(line, sizeof line, "%s %s %016llx\n", key, hex, (unsigned long long)line_hash(t, key, hex));
    write_text(fd, line);
}

/* At once, so that a killed run resumes with the choices it made and ends with the same bytes. */
static void share(tune_cache *t, const char *key, void *value, size_t bytes)
{
    int fd = t->path ? open(t->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (fd < 0) return; /* the choice is timed again next time */
    flock(fd, LOCK_EX);
    if (!read_news(t, fd, key) || !tune_get(t, key, value, bytes)) write_line(t, key, value, bytes, fd);
    off_t end = lseek(fd, 0, SEEK_END);
    t->seen = end > 0 ? (int64_t)end : 0;
    close(fd); /* with its lock */
}

bool tune_get(const tune_cache *t, const char *key, void *value, size_t bytes)
{
    int i = find(t, key);
    if (i < 0 || t->entry[i].bytes != bytes) return false;
    memcpy(value, t->entry[i].value, bytes);
    t->entry[i].used = true;
    return true;
}

void tune_put(tune_cache *t, const char *key, void *value, size_t bytes)
{
    share(t, key, value, bytes);
    keep(t, key, value, bytes);
    int i = find(t, key);
    if (i >= 0) t->entry[i].used = true;
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

void tune_close(tune_cache *t)
{
    if (!t) return;
    free(t->path);
    free(t->entry);
    free(t);
}
