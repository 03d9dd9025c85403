/* Models by name, in the cache that huggingface_hub uses.
 *
 *     ROOT/models--ORG--NAME/blobs/ETAG                    content, named by its SHA-256 or its Git blob SHA-1
 *     ROOT/models--ORG--NAME/snapshots/COMMIT/FILE         a relative link to a blob, or the file itself
 *     ROOT/models--ORG--NAME/refs/REVISION                 the commit, without a line end
 *     ROOT/models--ORG--NAME/.no_exist/COMMIT/FILE         empty: the commit has no such file
 *     ROOT/.locks/models--ORG--NAME/ETAG.lock              held (flock) while a blob is made
 *
 * A name becomes a repository (names.c), a listing of it the files that a model needs (files.c); cache.c knows the
 * folders, http.c the protocol, download.c fetches what is missing, resolve.c is all of it behind one call. */
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
    char clip_file[40]; /* the file of OpenAI's own package in ~/.cache/clip; "": none */
} hub_name;

/* False: not a name of a model. Needs neither the network nor the cache. */
bool hub_name_parse(const char *text, hub_name *out);
/* What may have been meant by a text that is no name: a clause for an error message. */
void hub_name_hint(const char *text, char *out, size_t size);
/* A name, or a mistyped one: begins with hf: or hf-hub:. */
bool hub_name_is_meant(const char *text);

/* The models that `cloob pull` lists, the smallest first. */
typedef struct hub_model {
    const char *name, *repo;
    int megabytes;
    const char *good_at, *licence;
} hub_model;
const hub_model *hub_models(int64_t *count);

bool hub_is_hex(const char *text, size_t digits); /* in lower case, exactly that many */
/* A relative path that stays in its folder: no "..", no empty part, no backslash, no control character. */
bool hub_path_is_safe(const char *path);

/* ---- the files of a repository ------------------------------------------------------------------- */

typedef struct hub_file {
    char name[256];
    char etag[SHA_HEX]; /* of its content: SHA-256, or the Git blob's SHA-1 */
    int64_t bytes;
} hub_file;

typedef struct hub_listing {
    hub_file *file;
    int64_t count, cap;
} hub_listing;

/* Adds one page of the tree API, JSON from outside: files of the root with a safe name, a size and a hash. Folders and
 * files in folders are left out: no model needs them. */
cloob_status hub_listing_add(cloob_ctx *ctx, hub_listing *l, const char *text, size_t len);
bool hub_listing_put(hub_listing *l, const hub_file *f); /* false: out of memory */
const hub_file *hub_listing_find(const hub_listing *l, const char *name);
void hub_listing_release(hub_listing *l);

/* Names of files, in the order of use. */
typedef struct hub_names {
    char (*name)[256];
    int64_t count;
} hub_names;

void hub_names_release(hub_names *n);

/* The files other than weights that a model may need, in any repository; NULL ends the list. */
extern const char *const hub_small_files[];

/* Whether a folder has a file; a listing and a snapshot both are such folders. */
typedef bool hub_has_fn(const void *folder, const char *name);

/* The best form of the weights that the folder has, safetensors first: the name of the file, or of the index of shards.
 * "": there is none. */
void hub_choose_weights(hub_has_fn *has, const void *folder, char name[256]);
bool hub_is_index(const char *name);
/* The shards that an index file lists: names in its own folder. */
cloob_status hub_index_shards(cloob_ctx *ctx, const char *path, hub_names *out);
/* The only file of the root that may hold weights under a name of its own, such as PE-Core-B16.pt; NULL: none, or
 * several. */
const hub_file *hub_only_weights(const hub_listing *l);

/* ---- the cache ----------------------------------------------------------------------------------- */

typedef struct hub_repo {
    hub_name name;
    char folder[HUB_PATH]; /* ROOT/models--ORG--NAME */
    char locks[HUB_PATH];  /* ROOT/.locks/models--ORG--NAME */
} hub_repo;

/* snprintf into a path; fails where it does not fit. */
cloob_status hub_put(cloob_ctx *ctx, char path[HUB_PATH], const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether an environment variable says yes, as huggingface_hub reads them. */
bool hub_is_set(const char *variable);
/* $HF_HOME, or where that is by default. */
cloob_status hub_home(cloob_ctx *ctx, char path[HUB_PATH]);
cloob_status hub_repo_init(cloob_ctx *ctx, const hub_name *name, hub_repo *out);

/* The commit of the revision, as the cache knows it; false: it does not. */
bool hub_ref_read(const hub_repo *r, char commit[HUB_COMMIT]);
cloob_status hub_ref_write(cloob_ctx *ctx, const hub_repo *r, const char *commit);

/* A model in a snapshot: its folder, or its file of weights where that has a name of its own. False: the weights are
 * not (all) there. *whole: no small file is missing that the repository has. */
bool hub_snapshot_find(cloob_ctx *ctx, const hub_repo *r, const char *commit, char path[HUB_PATH], bool *whole);
/* Whether a snapshot has the file, with its size. */
bool hub_snapshot_has(const hub_repo *r, const char *commit, const hub_file *f);
/* Remembers that the commit has no such file. */
void hub_note_absent(cloob_ctx *ctx, const hub_repo *r, const char *commit, const char *name);

/* The lock of a blob, waited for until `stop`. *fd is -1 where the file system has no locks: then two processes may
 * download the same file, and either result is whole. */
cloob_status hub_lock(cloob_ctx *ctx, const hub_repo *r, const char *etag, const atomic_bool *stop, int *fd);
void hub_unlock(int fd);
cloob_status hub_blob_path(cloob_ctx *ctx, const hub_repo *r, const char *etag, const char *ending,
                           char path[HUB_PATH]);
/* Puts a blob into a snapshot. */
cloob_status hub_link(cloob_ctx *ctx, const hub_repo *r, const char *commit, const hub_file *f);

/* ---- downloads ----------------------------------------------------------------------------------- */

/* Asks the hub for the revision and fetches what its snapshot lacks; writes its commit. */
cloob_status hub_download(cloob_ctx *ctx, const hub_repo *r, char commit[HUB_COMMIT]);

/* cloob_hub_path for a name; `refresh`: also asks for a newer commit of the revision than the cache has. */
cloob_status hub_resolve(cloob_ctx *ctx, const char *name, bool download, bool refresh, char path[HUB_PATH]);

#endif
