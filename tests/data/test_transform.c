/* Views against Pillow: the shared fixtures where they are. */
#include "check.h"

#include "core/arena.h"
#include "core/file.h"
#include "core/json.h"
#include "core/rng.h"
#include "data/transform.h"

static cloob_ctx *ctx;

/* --- the shared fixtures -----------------------------------------------------------------------------------
 */

static char *fixture(const char *name)
{
    const char *shared = getenv("CLOOB_SHARED");
    char *root = shared ? file_join("", shared) : file_join(TESTS_DIR, "../../shared");
    char *folder = file_join(root, "fixtures/images"), *path = file_join(folder, name);
    free(root);
    free(folder);
    return path;
}

static image read_fixture(const char *name)
{
    image im = { 0 };
    char *path = fixture(name);
    CHECK_OK(ctx, image_read(ctx, path, NULL, &im));
    free(path);
    return im;
}

static void check_equal(const json *entry, const char *key, const uint8_t *out)
{
    const char *name = json_string(json_get(entry, key));
    if (!name) return;
    image want = read_fixture(name);
    bool same = want.rgb && memcmp(want.rgb, out, (size_t)(want.width * want.height * 3)) == 0;
    if (!same) printf("  %s differs\n", name);
    CHECK(same);
    image_release(&want);
}

static void check_crop(const json *entry, const image *im, uint8_t *out)
{
    int64_t box[4] = { 0 };
    const json *b = json_get(entry, "crop_box_tlhw");
    if (!b) return;
    const json *v = b->child;
    for (int i = 0; i < 4 && v; i++, v = v->next) json_int(v, &box[i]);
    CHECK_OK(ctx,
             transform_crop_resize(ctx, im, box[0], box[1], box[2], box[3], 96, 96, RESIZE_BICUBIC, out));
    check_equal(entry, "crop96", out);
}

static void fixtures_equal_pillow(void)
{
    static uint8_t out[224 * 224 * 3];
    arena a = { 0 };
    json *root = NULL;
    transform_options o;
    char *index = fixture("index.json");
    bool there = file_exists(index);
    if (there) CHECK_OK(ctx, json_read_file(ctx, &a, index, &root));
    free(index);
    if (!there) SKIP("no shared fixtures here");
    for (const json *e = root ? root->child : NULL; e; e = e->next) {
        image im = read_fixture(json_string(json_get(e, "file")));
        transform_options_init(&o, 64);
        CHECK_OK(ctx, transform_eval(ctx, &im, &o, out));
        check_equal(e, "eval64", out);
        transform_options_init(&o, 224);
        CHECK_OK(ctx, transform_eval(ctx, &im, &o, out));
        check_equal(e, "eval224", out);
        check_crop(e, &im, out);
        image_release(&im);
    }
    arena_release(&a);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(fixtures_equal_pillow);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
