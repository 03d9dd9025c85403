/* Models by name: Hugging Face's cache, and downloads into it.
 *
 *     char path[4096];
 *     cloob_hub_path(ctx, "ViT-B-32/laion2b_s34b_b79k", true, path, sizeof path);
 *     cloob_model_open(ctx, path, NULL, &model); */
#ifndef CLOOB_HUB_H
#define CLOOB_HUB_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the path of a model to path (size bytes). If a file or folder `name` exists, the path is `name`; otherwise it
 * is the model's folder, or its only file, in the cache of huggingface_hub. Names: hf:ORG/NAME[@REVISION],
 * hf-hub:ORG/NAME, open_clip's ARCHITECTURE/TAG, immich's ARCHITECTURE__TAG, and the names that `cloob pull` lists.
 *
 * With `download`, a model that is not in the cache is downloaded. The context's progress callback reports it, its
 * should_stop interrupts it, and the next call resumes it. Do not pass names from untrusted input. Fails with
 *     CLOOB_ERR_IO           no such file, name or model; permission denied; disk full
 *     CLOOB_ERR_BUSY         the hub cannot be reached
 *     CLOOB_ERR_FORMAT       the content does not match its hash
 *     CLOOB_ERR_UNSUPPORTED  libcurl is missing
 *     CLOOB_ERR_ARGUMENT     the path does not fit into `size` bytes */
CLOOB_API cloob_status cloob_hub_path(cloob_ctx *ctx, const char *name, bool download, char *path, size_t size);

#ifdef __cplusplus
}
#endif
#endif
