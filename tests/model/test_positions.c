/* Positional embeddings for images of another size. */
#include "check.h"
#include "model/weights.h"

enum { D = 3 };

/* A ViT with a class token and a grid of `grid` x `grid` patches of 16 px. */
static void make(cloob_ctx *ctx, weights *w, int64_t grid, float *data)
{
    tensor t = TENSOR(CLOOB_F32, data, grid * grid + 1, D);
    weights_init(w);
    CHECK_OK(ctx, model_config_by_name(ctx, "ViT-B-16", &w->config));
    w->config.image_size = 16 * grid;
    CHECK_OK(ctx, weights_add(ctx, w, "visual.positional_embedding", &t));
}

/* A plane stays a plane, and a constant a constant; the class token's row is left alone. */
static void planes_stay_planes(void)
{
    static float data[1 + 64][D];
    const int64_t sizes[] = { 64, 128, 192, 320 };
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        weights w;
        int64_t to = sizes[s] / 16;
        data[0][0] = 7, data[0][1] = 8, data[0][2] = 9;
        for (int y = 0; y < 8; y++)
            for (int x = 0; x < 8; x++) {
                float *row = data[1 + 8 * y + x];
                row[0] = 2, row[1] = (float)(x + 0.5) / 8, row[2] = (float)(y + 0.5) / 8;
            }
        make(ctx, &w, 8, &data[0][0]);
        CHECK_OK(ctx, weights_resize_images(ctx, &w, sizes[s]));
        const tensor *t = weights_find(&w, "visual.positional_embedding");
        CHECK(t->dim[0] == to * to + 1 && t->dim[1] == D && w.config.image_size == sizes[s]);
        const float *out = t->data;
        CHECK(out[0] == 7 && out[1] == 8 && out[2] == 9);
        for (int64_t y = 0; y < to; y++)
            for (int64_t x = 0; x < to; x++) {
                const float *row = out + (1 + y * to + x) * D;
                CHECK_NEAR(row[0], 2, 1e-6);
                bool inside =
                    to >= 8 && x * 4 >= to && x * 4 < 3 * to && y * 4 >= to && y * 4 < 3 * to; /* edges bend */
                if (!inside) continue;
                CHECK_NEAR(row[1], ((double)x + 0.5) / (double)to, 2e-3);
                CHECK_NEAR(row[2], ((double)y + 0.5) / (double)to, 2e-3);
            }
        weights_release(&w);
    }
    cloob_ctx_destroy(ctx);
}

/* torch.nn.functional.interpolate(x, mode="bicubic", antialias=True), larger: 0..3 as 2 x 2 to 3 x 3; smaller: the
 * squares of 0..15 as 4 x 4 to 3 x 3. */
static void values_are_pytorchs(void)
{
    static const double larger[9] = { -0.197368, 0.368421, 0.934210, 0.934210, 1.5,
                                      2.065790,  2.065790, 2.631579, 3.197368 };
    static const double smaller[9] = { 1.572344,  5.846609,   13.413925,  40.101818, 58.106312,
                                       79.403877, 131.320114, 163.054855, 198.082672 };
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    for (int64_t from = 2; from <= 4; from += 2) {
        float data[17][D] = { { 0 } };
        weights w;
        for (int64_t i = 0; i < from * from; i++) data[1 + i][0] = (float)(from == 2 ? i : i * i);
        make(ctx, &w, from, &data[0][0]);
        CHECK_OK(ctx, weights_resize_images(ctx, &w, 48));
        const float *out = weights_find(&w, "visual.positional_embedding")->data;
        for (int i = 0; i < 9; i++) CHECK_NEAR(out[(1 + i) * D], from == 2 ? larger[i] : smaller[i], 2e-6);
        weights_release(&w);
    }
    cloob_ctx_destroy(ctx);
}

static void sizes_that_cannot_be_are_refused(void)
{
    float data[5][D] = { { 0 } };
    weights w;
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    make(ctx, &w, 2, &data[0][0]);
    CHECK(weights_resize_images(ctx, &w, 50) == CLOOB_ERR_ARGUMENT);
    CHECK(w.config.image_size == 32);
    weights_release(&w);
    cloob_ctx_destroy(ctx);
}

int main(void)
{
    RUN(planes_stay_planes);
    RUN(values_are_pytorchs);
    RUN(sizes_that_cannot_be_are_refused);
    return check_summary();
}
