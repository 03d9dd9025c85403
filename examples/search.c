/* Search a folder of images by a text. The first run writes an index, later runs update it.
 *
 *     cc search.c $(pkg-config --cflags --libs cloob) -o search
 *     ./search model.safetensors photos "a dog in the snow"
 */
#include <stdio.h>

#include <cloob/cloob.h>

static int fail(const cloob_ctx *ctx)
{
    fprintf(stderr, "%s\n", cloob_error(ctx));
    return 1;
}

int main(int argc, char **argv)
{
    enum { MAX_HITS = 10 };
    static const char *const index = "search.index.safetensors";
    if (argc != 4) {
        fprintf(stderr, "usage: %s MODEL FOLDER TEXT\n", argv[0]);
        return 2;
    }
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    cloob_model *m = NULL;
    cloob_search *s = NULL;
    cloob_search_update u;
    cloob_search_hit hit[MAX_HITS];
    int64_t found;

    if (cloob_model_open(ctx, argv[1], NULL, &m) != CLOOB_OK) return fail(ctx);
    if (cloob_search_index(ctx, m, argv[2], index, argv[1], NULL, &u) != CLOOB_OK) return fail(ctx);
    printf("%lld images, %lld of them new\n", (long long)u.images, (long long)u.embedded);
    if (cloob_search_open(ctx, index, &s) != CLOOB_OK) return fail(ctx);
    if (cloob_search_text(ctx, s, m, argv[3], MAX_HITS, hit, &found) != CLOOB_OK) return fail(ctx);
    for (int64_t i = 0; i < found; i++) printf("%.3f  %s\n", (double)hit[i].score, hit[i].path);

    cloob_search_hits_release(hit, found);
    cloob_search_close(s);
    cloob_model_close(m);
    cloob_ctx_destroy(ctx);
    return 0;
}
