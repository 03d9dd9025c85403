/* A build without libcurl's headers downloads nothing; what others have downloaded is found. */
#include "hub/hub.h"

cloob_status hub_download(cloob_ctx *ctx, const hub_repo *r, char commit[HUB_COMMIT])
{
    commit[0] = '\0';
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "%s: not in the cache, and this build has no libcurl to fetch it with; build cloob with libcurl's "
                    "headers, or download the model with another program and give its path",
                    r->name.repo);
}
