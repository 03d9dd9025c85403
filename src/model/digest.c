/* Hashes of tensors and metadata, and the check of a file against them. */
#include "model/digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/file.h"
#include "core/hash.h"
#include "core/pool.h"
#include "io/fileset.h"

enum { PIECE = 1 << 20 }; /* bytes hashed by one thread; changing it changes the hash */

static bool is_train(const char *name) { return strncmp(name, "train.", 6) == 0; }

static uint64_t hash_text(uint64_t h, const char *text) { return hash64(h, text, strlen(text) + 1); }

/* ---- tensors ------------------------------------------------------------------------------------- */

typedef struct piece_job {
    const unsigned char *data;
    size_t bytes;
    uint64_t *out;
} piece_job;

static void hash_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const piece_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        size_t at = (size_t)i * PIECE, left = j->bytes - at;
        j->out[i] = hash64((uint64_t)i, j->data + at, left < PIECE ? left : PIECE);
    }
}

static cloob_status hash_data(cloob_ctx *ctx, const tensor *t, uint64_t *h)
{
    piece_job j = { t->data, tensor_bytes(t), NULL };
    int64_t n = (int64_t)((j.bytes + PIECE - 1) / PIECE);
    uint64_t one[1];
    j.out = n <= 1 ? one : malloc((size_t)n * sizeof *j.out);
    if (!j.out) return ctx_no_memory(ctx, (size_t)n * sizeof *j.out, "a checksum");
    pool_share(ctx, n, 1, hash_pieces, &j);
    *h = hash64(*h, j.out, (size_t)n * sizeof *j.out);
    if (j.out != one) free(j.out);
    return CLOOB_OK;
}

static cloob_status hash_tensor(cloob_ctx *ctx, const st_entry *e, uint64_t *h)
{
    *h = hash_text(0, e->name);
    *h = hash_text(*h, dtype_name(e->t.dtype));
    *h = hash64(*h, e->t.dim, (size_t)e->t.ndim * sizeof *e->t.dim);
    return hash_data(ctx, &e->t, h);
}

/* Sums the hashes of the tensors, so that their order does not matter. Names are unique, so equal tensors do not
 * cancel. */
static cloob_status hash_tensors(cloob_ctx *ctx, const digest_input *in, bool train, uint64_t *sum)
{
    *sum = 0;
    for (int64_t i = 0; i < in->count; i++) {
        uint64_t h;
        if (is_train(in->entry[i].name) != train) continue;
        CLOOB_TRY(hash_tensor(ctx, &in->entry[i], &h));
        if (in->done) in->done(in->user, &in->entry[i]);
        *sum += h;
    }
    return CLOOB_OK;
}

static uint64_t hash_metadata(const digest_input *in)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < in->meta_count; i++)
        if (strcmp(in->meta[i].key, "digest.model") != 0)
            sum += hash_text(hash_text(1, in->meta[i].key), in->meta[i].value);
    return sum;
}

/* ---- the two values ------------------------------------------------------------------------------ */

static void put(char text[DIGEST_TEXT], uint64_t h) { snprintf(text, DIGEST_TEXT, "%016llx", (unsigned long long)h); }

cloob_status digest_train(cloob_ctx *ctx, const digest_input *in, char text[DIGEST_TEXT])
{
    uint64_t sum;
    CLOOB_TRY(hash_tensors(ctx, in, true, &sum));
    put(text, hash64(2, &sum, sizeof sum));
    return CLOOB_OK;
}

cloob_status digest_model(cloob_ctx *ctx, const digest_input *in, char text[DIGEST_TEXT])
{
    uint64_t sum[2] = { 0, hash_metadata(in) };
    CLOOB_TRY(hash_tensors(ctx, in, false, &sum[0]));
    put(text, hash64(3, sum, sizeof sum));
    return CLOOB_OK;
}

/* ---- checking ------------------------------------------------------------------------------------ */

static const char *meta_of(const digest_input *in, const char *key)
{
    for (int64_t i = 0; i < in->meta_count; i++)
        if (strcmp(in->meta[i].key, key) == 0) return in->meta[i].value;
    return NULL;
}

static cloob_status check_version(cloob_ctx *ctx, const char *path, const digest_input *in)
{
    const char *text = meta_of(in, "file_version"), *program = meta_of(in, "version");
    char *end;
    errno = 0;
    long n = text ? strtol(text, &end, 10) : 0;
    if (text && (errno || end == text || *end || n < 0))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s: damaged (invalid file version \"%.20s\"); use an earlier checkpoint", path, text);
    if (n <= DIGEST_FILE_VERSION) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                    "%s: file version %ld (written by cloob %.20s) is not supported; cloob %s reads versions up to %d; "
                    "use a newer cloob",
                    path, n, program ? program : "?", cloob_version(), DIGEST_FILE_VERSION);
}

static cloob_status compare(cloob_ctx *ctx, const char *path, const char *what, const char *have, const char *want)
{
    if (strcmp(have, want) == 0) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                    "%s: damaged or edited (checksum of %s is %s, stored is %.16s); use an earlier checkpoint", path,
                    what, have, want);
}

cloob_status digest_check_model(cloob_ctx *ctx, const char *path, const digest_input *in)
{
    char have[DIGEST_TEXT];
    const char *want = meta_of(in, "digest.model");
    CLOOB_TRY(check_version(ctx, path, in));
    if (!want && !meta_of(in, "file_version")) return CLOOB_OK;
    if (!want)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s: damaged or edited (its checksum is missing); use an earlier checkpoint", path);
    CLOOB_TRY(digest_model(ctx, in, have));
    return compare(ctx, path, "weights and metadata", have, want);
}

/* ---- cache of files that passed the check ---------------------------------------------------------- */

enum { WORTH_BYTES = 16 << 20, SETTLED_S = 2 };

typedef struct file_state {
    int64_t device, inode, size, mtime_ns, ctime_ns;
    char digest[24]; /* sized so that the struct has no padding: states are compared as bytes */
} file_state;
_Static_assert(DIGEST_TEXT <= 24, "a digest fits");

/* Reads the identity of a file. Returns false if the result of the check is not to be cached: the file is small, or it
 * changed so recently that another change might not alter its times. */
static bool read_state(const char *path, const char *digest, file_state *s)
{
    struct stat st;
    memset(s, 0, sizeof *s);
    if (stat(path, &st) != 0 || st.st_size < WORTH_BYTES || st.st_ctime > time(NULL) - SETTLED_S) return false;
    s->device = (int64_t)st.st_dev, s->inode = (int64_t)st.st_ino, s->size = st.st_size;
    s->mtime_ns = time_ns(st.st_mtim);
    s->ctime_ns = time_ns(st.st_ctim);
    snprintf(s->digest, sizeof s->digest, "%s", digest);
    return true;
}

static bool passed_before(const char *note, const file_state *s)
{
    file_state then;
    FILE *f = fopen(note, "rb");
    bool same = f && fread(&then, sizeof then, 1, f) == 1 && memcmp(&then, s, sizeof then) == 0;
    if (f) fclose(f);
    return same;
}

cloob_status digest_check_model_once(cloob_ctx *ctx, const char *path, const digest_input *in)
{
    file_state now;
    const char *digest = meta_of(in, "digest.model");
    char *dir = digest && !ctx->copy_files && read_state(path, digest, &now) ? cache_folder() : NULL;
    char *note = dir ? cache_path(dir, path, "intact") : NULL;
    bool before = note && passed_before(note, &now);
    cloob_status status = before ? check_version(ctx, path, in) : digest_check_model(ctx, path, in);
    if (status == CLOOB_OK && note && !before && file_make_dirs(ctx, dir) == CLOOB_OK)
        (void)file_write_private(ctx, note, &now, sizeof now); /* on failure the next reader checks the whole file */
    free(note), free(dir);
    return status;
}

cloob_status digest_check_train(cloob_ctx *ctx, const char *path, const digest_input *in, bool *stored)
{
    char have[DIGEST_TEXT];
    const char *want = meta_of(in, "digest.train");
    *stored = want != NULL;
    if (!want) return CLOOB_OK;
    CLOOB_TRY(digest_train(ctx, in, have));
    return compare(ctx, path, "the training state", have, want);
}
