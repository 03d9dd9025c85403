/* Views against Pillow (the frozen images of tests/ref), and the fast paths against the plain ones. */
#include "check.h"

#include "core/arena.h"
#include "core/file.h"
#include "core/json.h"
#include "core/rng.h"
#include "data/view/transform.h"

#define REF TESTS_DIR "/ref/images/"

static cloob_ctx *ctx;

/* --- against frozen pixels --------------------------------------------------------------------------- */

static int64_t number(const json *e, const char *key)
{
    int64_t v = 0;
    json_int(json_get(e, key), &v);
    return v;
}

static const char *text(const json *e, const char *key)
{
    const char *s = json_string(json_get(e, key));
    return s ? s : "";
}

/* Without the library of a format its images cannot be read, and that is said. */
static bool read_image(const char *folder, const char *name, image *im)
{
    char *path = file_join(folder, name);
    cloob_status s = image_read(ctx, path, NULL, im);
    free(path);
    if (s == CLOOB_ERR_UNSUPPORTED) return false;
    CHECK_OK(ctx, s);
    return s == CLOOB_OK;
}

static void box_of(const json *e, const char *key, int64_t box[4])
{
    const json *list = json_get(e, key), *v = list ? list->child : NULL;
    for (int i = 0; i < 4; i++, v = v ? v->next : NULL)
        if (!json_int(v, &box[i])) box[i] = 0;
}

static void make(const json *e, const image *im, uint8_t *out)
{
    const char *what = text(e, "what");
    int64_t n = im->width * im->height, box[4];
    double factor = json_get(e, "factor") ? json_get(e, "factor")->number : 0;
    transform_options o;
    transform_options_init(&o, number(e, "size"));
    if (json_get(e, "filter")) CHECK_OK(ctx, transform_options_set(ctx, &o, "interpolation", text(e, "filter")));
    if (json_get(e, "mode")) CHECK_OK(ctx, transform_options_set(ctx, &o, "resize_mode", text(e, "mode")));
    o.how.fill = (uint8_t)number(e, "fill");
    box_of(e, "box", box);
    if (!strcmp(what, "eval")) {
        CHECK_OK(ctx, view_of_image(ctx, NULL, im, &o, NULL, out));
        return;
    }
    if (!strcmp(what, "crop")) {
        CHECK_OK(ctx,
                 transform_crop_resize(ctx, im, box[0], box[1], box[2], box[3], o.size, o.size, o.how.filter, out));
        return;
    }
    memcpy(out, im->rgb, (size_t)n * 3);
    if (!strcmp(what, "brightness")) augment_brightness(out, n, (float)factor);
    if (!strcmp(what, "contrast")) augment_contrast(out, n, (float)factor);
    if (!strcmp(what, "saturation")) augment_saturation(out, n, (float)factor);
    if (!strcmp(what, "hue")) augment_hue(out, n, factor);
    if (!strcmp(what, "gray")) augment_gray(out, n);
}

/* PNG and WebP must be equal. JPEG is equal with libjpeg-turbo; another decoder may round differently, so
 * that the mean difference is what counts, and half a level of it is what the project promises. */
static bool close_enough(const char *file, const uint8_t *a, const uint8_t *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += abs(a[i] - b[i]);
    size_t len = strlen(file);
    return sum / (double)n < (len > 4 && !strcmp(file + len - 4, ".jpg") ? 0.5 : 1e-9);
}

static void frozen_images_equal_pillow(void)
{
    static uint8_t out[256 * 256 * 3];
    arena a = { 0 };
    json *root = NULL;
    file_bytes want = { 0 };
    int cases = 0, exact = 0;
    CHECK_OK(ctx, json_read_file(ctx, &a, REF "index.json", &root));
    CHECK_OK(ctx, file_read(ctx, REF "expected.bin", FILE_TEXT_LIMIT, &want));
    for (const json *e = root ? root->child : NULL; e; e = e->next) {
        image im;
        if (!read_image(REF, text(e, "file"), &im)) continue;
        int64_t n = number(e, "width") * number(e, "height") * 3;
        const uint8_t *expected = (const uint8_t *)want.data + number(e, "offset");
        make(e, &im, out);
        bool same = close_enough(text(e, "file"), out, expected, n);
        if (!same)
            printf("  %s %s %lld %s\n", text(e, "file"), text(e, "what"), (long long)number(e, "size"),
                   text(e, "mode"));
        CHECK(same);
        cases++;
        exact += memcmp(out, expected, (size_t)n) == 0;
        image_release(&im);
    }
    printf("  %d of %d cases equal to the bit\n", exact, cases);
    arena_release(&a);
    file_bytes_release(&want);
}

/* --- fast kernels against the plain ones ------------------------------------------------------------- */

static void noise(uint8_t *p, size_t n, uint64_t key)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t u = rng_u64(key, i);
        p[i] = (uint8_t)(u & 1 ? u >> 8 : (u >> 4 & 1) * 255); /* half of them extreme: clipping is part of it */
    }
}

/* One random resize with every kernel; the source ends where its allocation ends, so that sanitizers see a
 * step too far, and guard bytes stand behind the output. */
static void one_resize(uint64_t key)
{
    int channels = rng_below(key, 0, 4) ? 3 : 4;
    int64_t limit = rng_below(key, 9, 4) ? 40 : 300;
    int64_t w = 1 + (int64_t)rng_below(key, 1, (uint64_t)limit), h = 1 + (int64_t)rng_below(key, 2, (uint64_t)limit);
    int64_t ow = 1 + (int64_t)rng_below(key, 3, 70), oh = 1 + (int64_t)rng_below(key, 4, 70);
    if (!rng_below(key, 10, 8)) oh = h; /* a JPEG that was shrunk while decoding may have the height already */
    resize_plan p = resize_plan_whole(ow, oh, rng_below(key, 5, 2) ? RESIZE_BICUBIC : RESIZE_BILINEAR);
    p.down_first = rng_below(key, 11, 2);
    p.left = (int64_t)rng_below(key, 6, (uint64_t)ow);
    p.top = (int64_t)rng_below(key, 7, (uint64_t)oh);
    p.width = ow - p.left;
    p.height = oh - p.top;
    size_t in = (size_t)(w * h * channels), out = (size_t)(p.width * p.height * channels);
    uint8_t *src = malloc(in), *want = malloc(out + 8), *got = malloc(out + 8);
    resize_source s = { src, w * channels, w, h, channels };
    resize_scratch scratch = { 0 };
    noise(src, in, key);
    CHECK_OK(ctx, resize_run_with(ctx, &resize_plain, &scratch, &s, &p, want));
    memset(want + out, 0xAB, 8);
    for (const resize_kernels *const *k = resize_all_kernels; *k; k++) {
        if (!(*k)->usable()) continue;
        memset(got, 0xAB, out + 8);
        CHECK_OK(ctx, resize_run_with(ctx, *k, &scratch, &s, &p, got));
        bool same = memcmp(want, got, out + 8) == 0;
        if (!same)
            printf("  %s: %lldx%lldx%d -> %lldx%lld%s\n", (*k)->name, (long long)w, (long long)h, channels,
                   (long long)ow, (long long)oh, p.down_first ? ", down first" : "");
        CHECK(same);
    }
    resize_scratch_release(&scratch);
    free(src);
    free(want);
    free(got);
}

static void kernels_agree(void)
{
    for (const resize_kernels *const *k = resize_all_kernels; *k; k++)
        if (!(*k)->usable()) printf("  %s is not for this processor\n", (*k)->name);
    for (uint64_t i = 0; i < 400; i++) one_resize(rng_subkey(7, i));
}

static void constant_stays_constant(void)
{
    uint8_t src[31 * 17 * 3], out[23 * 41 * 3];
    resize_source s = { src, 31 * 3, 31, 17, 3 };
    resize_plan p = resize_plan_whole(23, 41, RESIZE_BICUBIC);
    resize_scratch scratch = { 0 };
    memset(src, 201, sizeof src);
    CHECK_OK(ctx, resize_run(ctx, &scratch, &s, &p, out));
    int bad = 0;
    for (size_t i = 0; i < sizeof out; i++) bad += out[i] != 201;
    CHECK(bad == 0);
    resize_scratch_release(&scratch);
}

/* --- views from bytes -------------------------------------------------------------------------------- */

/* The training and evaluation view from bytes, which may decode a part only, against those of the whole
 * image. */
static void check_bytes(view_scratch *s, const char *name)
{
    static uint8_t a[64 * 64 * 3], b[64 * 64 * 3];
    transform_options o;
    image im;
    file_bytes f;
    char *path = file_join(REF, name);
    CHECK_OK(ctx, file_read(ctx, path, FILE_TEXT_LIMIT, &f));
    free(path);
    transform_options_init(&o, 24);
    if (read_image(REF, name, &im)) {
        for (uint64_t key = 0; key < 40; key++) {
            o.scale_min = key % 2 ? 0.05 : 0.9;
            CHECK_OK(ctx, view_of_image(ctx, NULL, &im, &o, &key, a));
            CHECK_OK(ctx, view_of_bytes(ctx, s, f.data, f.size, name, NULL, &o, &key, b));
            CHECK(memcmp(a, b, 24 * 24 * 3) == 0);
        }
        CHECK_OK(ctx, view_of_image(ctx, NULL, &im, &o, NULL, a));
        CHECK_OK(ctx, view_of_bytes(ctx, s, f.data, f.size, name, NULL, &o, NULL, b));
        CHECK(memcmp(a, b, 24 * 24 * 3) == 0);
        image_release(&im);
    }
    file_bytes_release(&f);
}

static void bytes_and_images_agree(void)
{
    static const char *const names[] = {
        "rgb_444.jpg", "rgb_422.jpg",  "rgb_420.jpg", "rgb_411.jpg", "progressive.jpg",
        "cmyk.jpg",    "restarts.jpg", "gray.jpg",    "one.jpg",     "column.jpg",
        "row.jpg",     "rgba.png",     "palette.png", "lossy.webp",  "lossy_alpha.webp"
    };
    view_scratch *s;
    CHECK_OK(ctx, view_scratch_create(ctx, &s));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check_bytes(s, names[i]);
    view_scratch_destroy(s);
}

/* --- random crops ------------------------------------------------------------------------------------ */

static void crops_follow_the_rule(void)
{
    transform_options o;
    double area = 0, ratio = 0;
    int64_t w = 500, h = 375, n = 4000;
    transform_options_init(&o, 224);
    o.scale_min = 0.2;
    o.scale_max = 0.6;
    for (uint64_t key = 0; key < (uint64_t)n; key++) {
        image_box b = transform_draw_crop(&o, key, w, h);
        CHECK(b.top >= 0 && b.left >= 0 && b.top + b.height <= h && b.left + b.width <= w && b.height > 0 &&
              b.width > 0);
        area += (double)(b.width * b.height) / (double)(w * h);
        ratio += log((double)b.width / (double)b.height);
    }
    CHECK_NEAR(area / (double)n, 0.4, 0.01);  /* uniform on 0.2 .. 0.6: standard error 0.002 */
    CHECK_NEAR(ratio / (double)n, 0.0, 0.02); /* log-uniform around 1: standard error 0.003; few tries fail */
    image_box a = transform_draw_crop(&o, 11, w, h), b = transform_draw_crop(&o, 11, w, h);
    CHECK(memcmp(&a, &b, sizeof a) == 0);
}

/* An image so narrow that no try can succeed: the centre, by hand. */
static void crop_falls_back_to_the_centre(void)
{
    transform_options o;
    transform_options_init(&o, 224);
    image_box b = transform_draw_crop(&o, 3, 10, 1000); /* ratio 0.01 < 3/4: all columns, round(10 / 0.75) = 13 rows */
    CHECK(b.width == 10 && b.height == 13 && b.left == 0 && b.top == 493);
    b = transform_draw_crop(&o, 3, 1000, 10); /* 4/3 * 10 = 13.33: 13 columns */
    CHECK(b.width == 13 && b.height == 10 && b.left == 493 && b.top == 0);
}

static void flip_and_gray_happen_as_often_as_asked(void)
{
    uint8_t rgb[2 * 3] = { 200, 10, 30, 0, 90, 255 }, out[6];
    image im = { .rgb = rgb, .width = 2, .height = 1 };
    transform_options o;
    int flips = 0;
    transform_options_init(&o, 1);
    o.flip_prob = 0.25;
    o.size = 2;
    o.scale_min = o.scale_max = 1;
    o.ratio_min = o.ratio_max = 2;
    uint8_t big[2 * 2 * 3];
    for (uint64_t key = 0; key < 2000; key++) {
        CHECK_OK(ctx, view_of_image(ctx, NULL, &im, &o, &key, big));
        flips += big[0] < 100;
    }
    CHECK_NEAR(flips / 2000.0, 0.25, 0.04); /* four standard errors */
    memcpy(out, rgb, 6);
    augment_flip(out, 2, 1);
    CHECK(out[0] == 0 && out[2] == 255 && out[3] == 200);
}

static void options_are_checked(void)
{
    static const char *const bad[] = { "scale=2",
                                       "scale=a,b",
                                       "color_jitter=1,2",
                                       "gray_scale_prob=1.5",
                                       "nonsense",
                                       "use_timm=True",
                                       "=3",
                                       "interpolation=spline",
                                       "scale=",
                                       "color_jitter=0.1x" };
    transform_options o;
    transform_options_init(&o, 224);
    CHECK_OK(ctx, transform_options_parse(ctx, &o, "scale=(0.4, 1.0)"));
    CHECK(o.scale_min == 0.4 && o.scale_max == 1.0);
    CHECK_OK(ctx, transform_options_parse(ctx, &o, "color_jitter=0.4,0.3,0.2,0.1"));
    CHECK(o.jitter[3] == 0.1);
    CHECK_OK(ctx, transform_options_check(ctx, &o));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(transform_options_parse(ctx, &o, bad[i]) == CLOOB_ERR_ARGUMENT);
    o.jitter[3] = 0.7;
    CHECK(transform_options_check(ctx, &o) == CLOOB_ERR_ARGUMENT);
    transform_options_init(&o, 0);
    CHECK(transform_options_check(ctx, &o) == CLOOB_ERR_ARGUMENT);
}

static void crops_outside_are_refused(void)
{
    uint8_t rgb[4 * 3 * 3] = { 0 }, out[12];
    image im = { .rgb = rgb, .width = 4, .height = 3 };
    static const int64_t bad[][4] = {
        { 0, 0, 4, 4 }, { -1, 0, 2, 2 }, { 0, 3, 1, 2 }, { INT64_MAX, 0, 1, 1 }, { 0, 0, -1, 2 }
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(transform_crop_resize(ctx, &im, bad[i][0], bad[i][1], bad[i][2], bad[i][3], 2, 2, RESIZE_BICUBIC, out) ==
              CLOOB_ERR_ARGUMENT);
    memset(out, 9, sizeof out);
    CHECK(transform_crop_resize(ctx, &im, 0, 0, 0, 0, 2, 2, RESIZE_BICUBIC, out) == CLOOB_ERR_ARGUMENT);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(frozen_images_equal_pillow);
    RUN(kernels_agree);
    RUN(constant_stays_constant);
    RUN(bytes_and_images_agree);
    RUN(crops_follow_the_rule);
    RUN(crop_falls_back_to_the_centre);
    RUN(flip_and_gray_happen_as_often_as_asked);
    RUN(options_are_checked);
    RUN(crops_outside_are_refused);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
