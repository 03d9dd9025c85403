/* torch .pt files as named tensors: zip archives, TorchScript archives and the stream format before 1.6.
 *
 * The pickle inside is read by io/torch/pickle.h, so no code ever runs. Every tensor is checked against its storage
 * and every storage against the file before anything points at it. Contiguous tensors are views of the
 * mapping; others are copied.
 *
 *     torch_file f;
 *     CLOOB_TRY(torch_open(ctx, path, &f));
 *     for (i < f.count) f.entry[i].name, f.entry[i].t                 the state dict, in its order
 *     torch_close(&f);
 */
#ifndef IO_TORCH_TORCHFILE_H
#define IO_TORCH_TORCHFILE_H

#include "core/arena.h"
#include "core/file.h"
#include "io/torch/pickle.h"
#include "io/safetensors.h"

typedef enum torch_layout { TORCH_ZIP, TORCH_SCRIPT, TORCH_LEGACY, TORCH_ARRAYS } torch_layout;

typedef struct torch_file {
    file_map map;
    arena a;
    torch_layout layout;
    const pk_value *root; /* all that was saved: epoch, name, optimizer ... */
    st_entry *entry;      /* the state dict */
    int64_t count;
} torch_file;

/* The state dict is root["state_dict"] (a training checkpoint), root["model"] or root["model_state_dict"]
 * where these are dicts, else root itself; of a TorchScript archive, every tensor below the module, with
 * dotted names. A name twice, a name with control characters, or a file without any tensor is refused. */
cloob_status torch_open(cloob_ctx *ctx, const char *path, torch_file *f); /* of arrays, too */
/* The same over bytes that the caller keeps; name is for messages. */
cloob_status torch_open_bytes(cloob_ctx *ctx, const void *data, size_t size, const char *name, torch_file *f);
void torch_close(torch_file *f);

/* True when the first bytes are those of a torch file (a zip, or the magic number of the stream format). */
bool torch_looks_like(const unsigned char *data, size_t size);

/* A pickle of numpy's or JAX's arrays as haiku nests them: root["params"], a tuple of dicts {module: {name: array}}.
 * Entries are called MODULE.NAME. It has no magic number: any pickle that is not torch's looks like one. */
bool arrays_looks_like(const unsigned char *data, size_t size);
cloob_status arrays_open_bytes(cloob_ctx *ctx, const void *data, size_t size, const char *name, torch_file *f);

/* Entries next to the state dict in a training checkpoint of CLOOB's original code. */
typedef struct torch_wrapper {
    int64_t epoch;
    const char *name;
} torch_wrapper;

/* Writes a zip file that torch.load(path, weights_only=True) reads: an OrderedDict of tensors, or, with a
 * wrapper, {"epoch", "name", "state_dict"}. Written atomically. */
cloob_status torch_write(cloob_ctx *ctx, const char *path, const st_entry *entry, int64_t count,
                         const torch_wrapper *wrapper);

#endif
