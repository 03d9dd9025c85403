/* Models by name, in the cache of huggingface_hub.
 *
 *     ROOT/models--ORG--NAME/blobs/ETAG                    content; the name is its SHA-256 or its Git blob SHA-1
 *     ROOT/models--ORG--NAME/snapshots/COMMIT/FILE         a relative link to a blob, or the file itself
 *     ROOT/models--ORG--NAME/refs/REVISION                 the commit, without a newline
 *     ROOT/models--ORG--NAME/.no_exist/COMMIT/FILE         empty: the commit has no such file
 *     ROOT/.locks/models--ORG--NAME/ETAG.lock              held (flock) while a blob is created
 *
 * names.c maps a name to a repository, files.c selects the files that a model needs, cache.c manages the folders,
 * http.c sends requests, download.c downloads missing files, and resolve.c combines them. */
#ifndef HUB_HUB_H
#define HUB_HUB_H

#include <stdatomic.h>

#include "cloob/hub.h"
#include "core/ctx.h"
#include "core/hash.h"

enum { HUB_PATH = 4096, HUB_COMMIT = 41, HUB_MAX_FILES = 256 };

/* ---- names --------------------------------------------------------------------------------------- */

typedef struct hub_name {
    char repo[200];     /* ORG/NAME */
    char revision[128]; /* a branch, a tag or a commit */
    char clip_file[40]; /* name of the model's file in ~/.cache/clip, where OpenAI's package stores it; "": none */
} hub_name;

/* Parses the name of a model; false if the text is not one. Uses neither the network nor the cache. */
bool hub_name_parse(const char *text, hub_name *out);
/* Suggests what a text that is not a model name may mean: writes a clause for an error message. */
void hub_name_hint(const char *text, char *out, size_t size);
/* Whether the text starts with hf: or hf-hub:, so that it is a model name even if it does not parse. */
bool hub_name_is_meant(const char *text);

/* The models that `cloob pull` lists, sorted by size. */
typedef struct hub_model {
    const char *name, *repo;
    int megabytes;
    const char *good_at, *licence;
} hub_model;
const hub_model *hub_models(int64_t *count);

bool hub_is_hex(const char *text, size_t digits); /* whether text is exactly this number of lower-case hexadecimal
                                                   * digits */
/* Whether a relative path stays in its folder: no "..", no empty component, no backslash, no control character. */
bool hub_path_is_safe(const char *path);

/* ---- the files of a repository ------------------------------------------------------------------- */

typedef struct hub_file {
    char name[256];
    char etag[SHA_HEX]; /* hash of the content: SHA-256, or the Git blob's SHA-1 */
    int64_t bytes;
} hub_file;

typedef struct hub_listing {
    hub_file *file;
    int64_t count, cap;
} hub_listing;

/* Adds one page of the tree API (untrusted JSON) to the list: files in the root with a safe name, a size and a hash.
 * Files in subfolders are skipped; no model needs them. */
cloob_status hub_listing_add(cloob_ctx *ctx, hub_listing *l, const char *text, size_t len);
bool hub_listing_put(hub_listing *l, const hub_file *f); /* false: out of memory */
const hub_file *hub_listing_find(const hub_listing *l, const char *name);
void hub_listing_release(hub_listing *l);

/* File names, in the order of use. */
typedef struct hub_names {
    char (*name)[256];
    int64_t count;
} hub_names;

void hub_names_release(hub_names *n);

/* Files other than weights that a model may need; NULL ends the list. */
extern const char *const hub_small_files[];

/* Whether a folder, given as a hub_listing or a snapshot, has a file. */
typedef bool hub_has_fn(const void *folder, const char *name);

/* Chooses the best file of weights in the folder, safetensors first: the name of the file or of an index of shards; ""
 * if there is none. */
void hub_choose_weights(hub_has_fn *has, const void *folder, char name[256]);
bool hub_is_index(const char *name);
/* Lists the shards of an index file: file names in its own folder. The caller releases *out. */
cloob_status hub_index_shards(cloob_ctx *ctx, const char *path, hub_names *out);
/* The file of the root that may contain weights under an unusual name, such as PE-Core-B16.pt; NULL if there is none or
 * more than one. */
const hub_file *hub_only_weights(const hub_listing *l);

/* ---- the cache ----------------------------------------------------------------------------------- */

typedef struct hub_repo {
    hub_name name;
    char folder[HUB_PATH]; /* ROOT/models--ORG--NAME */
    char locks[HUB_PATH];  /* ROOT/.locks/models--ORG--NAME */
} hub_repo;

/* snprintf into a path; fails if the result is too long. */
cloob_status hub_put(cloob_ctx *ctx, char path[HUB_PATH], const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether an environment variable is set to a true value ("1", "on", "yes", "true"), as in huggingface_hub. */
bool hub_is_set(const char *variable);
/* $HF_HOME or its default. */
cloob_status hub_home(cloob_ctx *ctx, char path[HUB_PATH]);
cloob_status hub_repo_init(cloob_ctx *ctx, const hub_name *name, hub_repo *out);

/* Reads the commit of the revision from the cache; false if it is not there. */
bool hub_ref_read(const hub_repo *r, char commit[HUB_COMMIT]);
cloob_status hub_ref_write(cloob_ctx *ctx, const hub_repo *r, const char *commit);

/* Finds a model in a snapshot: `path` is its folder, or its file of weights if that has an unusual name. Returns false
 * if weights are missing. *whole: whether it has all other files that the repository has. */
bool hub_snapshot_find(cloob_ctx *ctx, const hub_repo *r, const char *commit, char path[HUB_PATH], bool *whole);
/* Whether a snapshot has the file, with the expected size. */
bool hub_snapshot_has(const hub_repo *r, const char *commit, const hub_file *f);
/* Records in the cache that the commit has no such file. */
void hub_note_absent(cloob_ctx *ctx, const hub_repo *r, const char *commit, const char *name);

/* Locks a blob; waits until the lock is free or `stop` is set. *fd is -1 if the file system does not support locks:
 * then two processes may download the same file, and either result is complete. */
cloob_status hub_lock(cloob_ctx *ctx, const hub_repo *r, const char *etag, const atomic_bool *stop, int *fd);
void hub_unlock(int fd);
cloob_status hub_blob_path(cloob_ctx *ctx, const hub_repo *r, const char *etag, const char *ending,
                           char path[HUB_PATH]);
/* Links a blob into a snapshot. */
cloob_status hub_link(cloob_ctx *ctx, const hub_repo *r, const char *commit, const hub_file *f);

/* ---- downloads ----------------------------------------------------------------------------------- */

/* Gets the commit of the revision from the hub and downloads the files that its snapshot lacks. */
cloob_status hub_download(cloob_ctx *ctx, const hub_repo *r, char commit[HUB_COMMIT]);

/* Like cloob_hub_path, for names only. refresh: checks the hub for a newer commit of the revision, even if the model is
 * in the cache. */
cloob_status hub_resolve(cloob_ctx *ctx, const char *name, bool download, bool refresh, char path[HUB_PATH]);

#endif
