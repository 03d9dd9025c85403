/* cloob pull: downloads a model by name into Hugging Face's cache; without a name, lists models. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "core/file.h"
#include "hub/hub.h"

static void print_models(void)
{
    int64_t n;
    const hub_model *m = hub_models(&n);
    if (common.json) {
        json_out_open(NULL, '[');
        for (int64_t i = 0; i < n; i++)
            json_out_object(NULL, J_TEXT("name", m[i].name), J_TEXT("repository", m[i].repo),
                            J_INT("megabytes", m[i].megabytes), J_TEXT("good_at", m[i].good_at),
                            J_TEXT("licence", m[i].licence));
        json_out_close();
        return;
    }
    printf("%-18s %5s  %-36s  %s\n", "model", "MB", "good at", "licence");
    for (int64_t i = 0; i < n; i++)
        printf("%-18s %5d  %-36s  %s\n", m[i].name, m[i].megabytes, m[i].good_at, m[i].licence);
    printf("\ncloob pull NAME downloads one of these. open_clip's names, such as\n"
           "ViT-B-32/laion2b_s34b_b79k, and hf:ORG/NAME work as well.\n");
}

/* Also checks for a newer version of a model that is in the cache. */
static cloob_status pull(cloob_ctx *ctx, const char *name)
{
    char path[HUB_PATH];
    hub_name n;
    cloob_status status = hub_name_parse(name, &n) ? hub_resolve(ctx, name, true, true, path)
                                                   : cloob_hub_path(ctx, name, true, path, sizeof path);
    if (status != CLOOB_OK) return status;
    if (common.json) json_out_object(NULL, J_TEXT("name", name), J_TEXT("path", path));
    else printf("%s\n", path);
    return CLOOB_OK;
}

static int run(const command *self, cloob_ctx *ctx)
{
    cloob_status status = CLOOB_OK;
    if (!opt_words.count) print_models();
    cli_stop_on_signals();
    for (int i = 0; i < opt_words.count && status == CLOOB_OK; i++) status = pull(ctx, opt_words.item[i]);
    return cli_exit(self, ctx, status);
}

const command cmd_pull = {
    .name = "pull",
    .run = run,
    .help = "fetch a model by name, or list models",
    .usage = "[NAME...]",
    .details =
        "Downloads the files of a model into the cache of huggingface_hub and prints their folder. An interrupted "
        "download continues where it stopped. Without a name it lists models.\n"
        "\n"
        "NAME is a name from that list, open_clip's ARCHITECTURE/TAG, immich's ARCHITECTURE__TAG, or "
        "hf:ORG/NAME[@REVISION]. Every --checkpoint accepts these names and downloads missing models.\n"
        "\n"
        "HF_ENDPOINT, HF_HUB_CACHE, HF_HOME, HF_TOKEN, HF_HUB_OFFLINE and the proxy variables have their usual "
        "meaning.\n"
        "\n"
        "  cloob pull\n"
        "  cloob pull ViT-B-32/laion2b_s34b_b79k\n"
        "  cloob search index photos --checkpoint ViT-B-32/laion2b_s34b_b79k",
};
