/* The hub's list of files: whatever it says, names stay in their folder and hashes are hashes. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "hub/hub.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    hub_listing l = { 0 };
    hub_name n;
    char text[300] = "";
    if (!ctx) ctx = cloob_ctx_create(NULL);
    (void)hub_listing_add(ctx, &l, (const char *)data, size);
    for (int64_t i = 0; i < l.count; i++)
        if (!hub_path_is_safe(l.file[i].name) || strchr(l.file[i].name, '/') || l.file[i].bytes < 0) abort();
    (void)hub_only_weights(&l);
    hub_listing_release(&l);
    memcpy(text, data, size < sizeof text ? size : sizeof text - 1);
    if (hub_name_parse(text, &n) &&
        (strstr(n.repo, "..") || !hub_path_is_safe(n.repo) || !hub_path_is_safe(n.revision)))
        abort();
    return 0;
}
