/* Replaces download.c in a build without libcurl: models in the cache are found, but nothing is downloaded. */
#include "hub/hub.h"

cloob_status hub_download(cloob_ctx *ctx, const hub_repo *r, char commit[HUB_COMMIT])
{
    commit[0] = '\0';
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "%s: not in the cache, and this build cannot download it because libcurl is missing; build cloob "
                    "with libcurl's headers, or download the model with another program and give its path",
                    r->name.repo);
}
