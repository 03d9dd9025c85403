/* Classify an image: which of some words fits it best?
 *
 *     cc classify.c $(pkg-config --cflags --libs cloob) -o classify
 *     ./classify model.safetensors image.jpg cat dog car
 */
#include <stdio.h>
#include <stdlib.h>

#include <cloob/cloob.h>

static int fail(const cloob_ctx *ctx)
{
    fprintf(stderr, "%s\n", cloob_error(ctx));
    return 1;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: %s MODEL IMAGE LABEL LABEL...\n", argv[0]);
        return 2;
    }
    const char *const *label = (const char *const *)argv + 3, *path = argv[2];
    int64_t labels = argc - 3;
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    cloob_model *m = NULL;
    cloob_classifier *c = NULL;

    if (cloob_model_open(ctx, argv[1], NULL, &m) != CLOOB_OK) return fail(ctx);
    if (cloob_classifier_create(ctx, m, label, labels, NULL, 0, &c) != CLOOB_OK) return fail(ctx);

    float *image = malloc((size_t)cloob_model_width(m, CLOOB_UNIT, CLOOB_IMAGE) * sizeof *image);
    float *p = malloc((size_t)labels * sizeof *p);
    if (cloob_encode_files(ctx, m, &path, 1, CLOOB_UNIT, image, NULL) != CLOOB_OK) return fail(ctx);
    if (cloob_classify(ctx, c, image, 1, p) != CLOOB_OK) return fail(ctx);
    for (int64_t i = 0; i < labels; i++) printf("%5.1f %%  %s\n", 100 * (double)p[i], label[i]);

    free(image), free(p);
    cloob_classifier_destroy(c);
    cloob_model_close(m);
    cloob_ctx_destroy(ctx);
    return 0;
}
