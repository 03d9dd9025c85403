/* Train on your own arrays: images are squares of one of eight colours, captions name the colour. After
 * a few dozen steps the model distinguishes them.
 *
 *     cc train.c $(pkg-config --cflags --libs cloob) -o train
 *     ./train colours.safetensors [STEPS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cloob/cloob.h>

enum { COLOURS = 8, BATCH = 8 };

static const char *const name[COLOURS] = { "red", "green", "blue", "yellow", "pink", "cyan", "white", "black" };
static const uint8_t rgb_of[COLOURS][3] = { { 220, 30, 30 },   { 30, 180, 40 },  { 30, 60, 220 },   { 230, 220, 40 },
                                            { 240, 120, 190 }, { 40, 210, 220 }, { 245, 245, 245 }, { 10, 10, 10 } };

static int fail(const cloob_ctx *ctx)
{
    fprintf(stderr, "%s\n", cloob_error(ctx));
    return 1;
}

/* A square of the colour at a random place on grey. */
static void draw(uint8_t *rgb, int64_t S, int colour)
{
    int64_t side = S / 3 + rand() % (S / 3), top = rand() % (S - side), left = rand() % (S - side);
    memset(rgb, 128, (size_t)(S * S * 3));
    for (int64_t y = top; y < top + side; y++)
        for (int64_t x = left; x < left + side; x++) memcpy(rgb + (y * S + x) * 3, rgb_of[colour], 3);
}

/* The library's tokenizer learns from a file of captions. */
static cloob_status make_tokenizer(cloob_ctx *ctx, cloob_tokenizer **out)
{
    static const char *const path = "captions.tmp.txt";
    FILE *f = fopen(path, "w");
    if (f) {
        for (int i = 0; i < COLOURS; i++) fprintf(f, "a %s square\n", name[i]);
        fclose(f);
    }
    cloob_status status = cloob_tokenizer_train(ctx, path, 560, out);
    remove(path);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s OUT.safetensors [STEPS]\n", argv[0]);
        return 2;
    }
    int steps = argc > 2 ? atoi(argv[2]) : 60;
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    cloob_tokenizer *tok = NULL;
    cloob_trainer *t = NULL;
    cloob_trainer_options o;
    cloob_trainer_options_init(&o);
    if (make_tokenizer(ctx, &tok) != CLOOB_OK) return fail(ctx);
    o.model = "tiny", o.tokenizer = tok, o.batch = BATCH;
    if (cloob_trainer_create(ctx, &o, &t) != CLOOB_OK) return fail(ctx);

    int64_t S = cloob_trainer_image_size(t), T = cloob_trainer_context(t);
    uint8_t *rgb = malloc((size_t)(BATCH * S * S * 3));
    int32_t *tokens = malloc((size_t)(BATCH * T) * sizeof *tokens);
    char caption[BATCH][64];
    const char *text[BATCH];
    for (int step = 0; step < steps; step++) {
        cloob_trainer_result r;
        for (int i = 0; i < BATCH; i++) { /* every colour once: no caption is right for two images */
            snprintf(caption[i], sizeof caption[i], "a %s square", name[i]);
            text[i] = caption[i];
            draw(rgb + i * S * S * 3, S, i);
        }
        if (cloob_tokenizer_encode_rows(ctx, tok, text, BATCH, T, tokens) != CLOOB_OK) return fail(ctx);
        if (cloob_trainer_step(ctx, t, rgb, tokens, 1e-3, &r) != CLOOB_OK) return fail(ctx);
        if (step % 10 == 0 || step == steps - 1) printf("step %d  loss %.4f\n", step, r.loss);
    }
    if (cloob_trainer_save(ctx, t, argv[1]) != CLOOB_OK) return fail(ctx);

    free(rgb), free(tokens);
    cloob_trainer_destroy(t);
    cloob_tokenizer_close(tok);
    cloob_ctx_destroy(ctx);
    return 0;
}
