/* Images that are not what they claim to be: one clear line each, nothing leaked, nothing written outside.
 */
#include "check.h"

#include "core/file.h"
#include "core/rng.h"
#include "io/image/image.h"

#define REF TESTS_DIR "/ref/images/"

static cloob_ctx *ctx;
static const char *const files[] = { "rgb_420.jpg",      "progressive.jpg", "restarts.jpg",       "cmyk.jpg",
                                     "gray.jpg",         "rgb.png",         "rgba.png",           "palette.png",
                                     "interlaced.png",   "rgb16.png",       "gray16.png",         "lossy.webp",
                                     "lossy_alpha.webp", "lossless.webp",   "animated_alpha.webp" };
enum { FILES = sizeof files / sizeof files[0] };

static file_bytes load(const char *name)
{
    file_bytes f = { 0 };
    char *path = file_join(REF, name);
    CHECK_OK(ctx, file_read(ctx, path, FILE_TEXT_LIMIT, &f));
    free(path);
    return f;
}

/* Decodes a copy that ends where its allocation ends, so that sanitizers and valgrind see a step too far. */
static cloob_status try_bytes(const char *data, size_t size, const image_limits *limits)
{
    image im;
    char *copy = malloc(size ? size : 1);
    if (size) memcpy(copy, data, size);
    cloob_status s = image_decode(ctx, copy, size, "test", limits, &im);
    if (s != CLOOB_OK)
        CHECK(!im.rgb && !im.extra && !strchr(cloob_error(ctx), '\n') && strstr(cloob_error(ctx), "test"));
    image_release(&im);
    free(copy);
    return s;
}

static void cut_files_are_refused(void)
{
    for (int i = 0; i < FILES; i++) {
        file_bytes f = load(files[i]);
        cloob_status whole = try_bytes(f.data, f.size, NULL);
        if (whole == CLOOB_ERR_UNSUPPORTED) printf("  %s: %s\n", files[i], cloob_error(ctx));
        else CHECK_OK(ctx, whole);
        for (size_t n = 0; n < f.size && whole == CLOOB_OK; n += 1 + f.size / 200)
            CHECK(try_bytes(f.data, n, NULL) == CLOOB_ERR_FORMAT);
        for (size_t n = 1; n < 12 && whole == CLOOB_OK; n++)
            CHECK(try_bytes(f.data, f.size - n, NULL) == CLOOB_ERR_FORMAT);
        file_bytes_release(&f);
    }
}

/* Whatever a few changed bytes do, the answer is an image or an error, and the next image is read as
 * before. */
static void damaged_files_are_harmless(void)
{
    for (int i = 0; i < FILES; i++) {
        file_bytes f = load(files[i]);
        for (uint64_t turn = 0; turn < 60; turn++) {
            char *bad = malloc(f.size);
            memcpy(bad, f.data, f.size);
            uint64_t key = rng_subkey((uint64_t)i, turn);
            for (uint64_t c = 0; c < 1 + turn % 5; c++)
                bad[rng_below(key, 2 * c, f.size)] = (char)rng_u64(key, 2 * c + 1);
            try_bytes(bad, f.size, NULL);
            free(bad);
        }
        file_bytes_release(&f);
    }
}

static void reader_survives_bad_images(void)
{
    image_reader *r;
    image want;
    file_bytes good = load("rgb_420.jpg");
    if (image_decode(ctx, good.data, good.size, "good", NULL, &want) == CLOOB_ERR_UNSUPPORTED) {
        file_bytes_release(&good);
        SKIP("no JPEG in this build");
    }
    CHECK_OK(ctx, image_reader_create(ctx, &r));
    for (int i = 0; i < FILES; i++) {
        int64_t w, h;
        image_part p;
        file_bytes f = load(files[i]);
        if (image_reader_open(ctx, r, f.data, f.size - f.size / 3, "cut", NULL, &w, &h) == CLOOB_OK)
            CHECK(image_reader_load(ctx, r, NULL, &p) != CLOOB_OK);
        CHECK_OK(ctx, image_reader_open(ctx, r, good.data, good.size, "good", NULL, &w, &h));
        CHECK_OK(ctx, image_reader_load(ctx, r, NULL, &p));
        CHECK(w == want.width && h == want.height && p.stride == 3 * w &&
              !memcmp(p.rgb, want.rgb, (size_t)(3 * w * h)));
        file_bytes_release(&f);
    }
    image_reader_destroy(r);
    image_release(&want);
    file_bytes_release(&good);
}

/* --- windows ----------------------------------------------------------------------------------------- */

/* Every window of a reader equals the same window of the whole image. */
static void check_windows(image_reader *r, const char *name)
{
    file_bytes f = load(name);
    image im;
    cloob_status s = image_decode(ctx, f.data, f.size, name, NULL, &im);
    image_part whole = image_whole(&im);
    for (uint64_t i = 0; i < 300 && s == CLOOB_OK; i++) {
        int64_t w, h;
        image_part got;
        CHECK_OK(ctx, image_reader_open(ctx, r, f.data, f.size, name, NULL, &w, &h));
        image_box b = { .height = 1 + (int64_t)rng_below(i, 0, (uint64_t)h),
                        .width = 1 + (int64_t)rng_below(i, 1, (uint64_t)w) };
        b.top = (int64_t)rng_below(i, 2, (uint64_t)(h - b.height + 1));
        b.left = (int64_t)rng_below(i, 3, (uint64_t)(w - b.width + 1));
        CHECK_OK(ctx, image_reader_load(ctx, r, &b, &got));
        image_part want = image_window(&whole, &b);
        int bad = 0;
        for (int64_t y = 0; y < b.height; y++)
            bad += memcmp(got.rgb + y * got.stride, want.rgb + y * want.stride, (size_t)(3 * b.width)) != 0;
        if (bad)
            printf("  %s: window %lld,%lld %lldx%lld\n", name, (long long)b.top, (long long)b.left, (long long)b.height,
                   (long long)b.width);
        CHECK(bad == 0);
    }
    image_release(&im);
    file_bytes_release(&f);
}

static void windows_equal_the_whole(void)
{
    static const char *const names[] = { "rgb_444.jpg",     "rgb_422.jpg",   "rgb_420.jpg",       "rgb_411.jpg",
                                         "gray.jpg",        "restarts.jpg",  "restarts_rows.jpg", "cmyk.jpg",
                                         "progressive.jpg", "coarse_q5.jpg", "column.jpg",        "row.jpg",
                                         "rgb.png",         "lossy.webp",    "tall.jpg",          "wide.jpg" };
    image_reader *r;
    CHECK_OK(ctx, image_reader_create(ctx, &r));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check_windows(r, names[i]);
    image_reader_destroy(r);
}

/* --- sizes ------------------------------------------------------------------------------------------- */

static void put32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (24 - 8 * i));
}

static uint32_t crc(const unsigned char *p, size_t n)
{
    uint32_t c = 0xFFFFFFFF;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int b = 0; b < 8; b++) c = c & 1 ? c >> 1 ^ 0xEDB88320 : c >> 1;
    }
    return ~c;
}

/* An image whose header promises more than anyone should allocate. */
static void bombs_are_refused_from_the_header(void)
{
    file_bytes f = load("rgb.png");
    unsigned char *p = (unsigned char *)f.data;
    if (try_bytes(f.data, f.size, NULL) == CLOOB_OK) {
        put32(p + 16, 1000000); /* width in IHDR, then its checksum */
        put32(p + 20, 1000000);
        put32(p + 29, crc(p + 12, 17));
        CHECK(try_bytes(f.data, f.size, NULL) == CLOOB_ERR_FORMAT);
        CHECK(strstr(cloob_error(ctx), "25000000"));
        put32(p + 16, 0);
        put32(p + 29, crc(p + 12, 17));
        CHECK(try_bytes(f.data, f.size, NULL) == CLOOB_ERR_FORMAT);
    }
    file_bytes_release(&f);
    f = load("rgb_420.jpg");
    for (size_t i = 0; i + 9 < f.size; i++) {
        unsigned char *q = (unsigned char *)f.data + i;
        if (q[0] == 0xFF && q[1] == 0xC0) memset(q + 5, 0xFF, 4); /* 65535 x 65535 */
    }
    cloob_status s = try_bytes(f.data, f.size, NULL);
    CHECK(s == CLOOB_ERR_FORMAT || s == CLOOB_ERR_UNSUPPORTED);
    file_bytes_release(&f);
}

static void limits_are_kept(void)
{
    file_bytes f = load("rgb_420.jpg"); /* 45 x 33 */
    int64_t w = 0, h = 0;
    if (image_size(ctx, f.data, f.size, "test", &w, &h) == CLOOB_OK) {
        CHECK(w == 45 && h == 33);
        CHECK(try_bytes(f.data, f.size, &(image_limits){ 45 * 33, 8, false }) == CLOOB_OK);
        CHECK(try_bytes(f.data, f.size, &(image_limits){ 45 * 33 - 1, 8, false }) == CLOOB_ERR_FORMAT);
        CHECK(try_bytes(f.data, f.size, &(image_limits){ 0, 9, false }) == CLOOB_ERR_ARGUMENT);
        image im;
        CHECK_OK(ctx, image_decode(ctx, f.data, f.size, "test", &(image_limits){ 0, 4, false }, &im));
        CHECK(im.width == 23 && im.height == 17); /* halves, rounded up */
        image_release(&im);
    }
    file_bytes_release(&f);
}

static void other_formats_are_refused(void)
{
    CHECK(try_bytes("", 0, NULL) == CLOOB_ERR_FORMAT);
    CHECK(try_bytes("GIF89a........", 14, NULL) != CLOOB_OK);
    CHECK(try_bytes("an unknown format", 17, NULL) == CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "not an image of a known format"));
    CHECK(try_bytes("\xFF\xD8\xFF", 3, NULL) != CLOOB_OK);
    CHECK(try_bytes("\x89PNG\r\n\x1a\n", 8, NULL) != CLOOB_OK);
    CHECK(try_bytes("RIFF\xFF\xFF\xFF\xFFWEBP", 12, NULL) != CLOOB_OK);
    CHECK(try_bytes("a text file that is called cat.jpg", 34, NULL) == CLOOB_ERR_FORMAT);
    image im;
    CHECK(image_read(ctx, REF "no-such-file.jpg", NULL, &im) == CLOOB_ERR_IO);
    CHECK(image_read(ctx, REF, NULL, &im) != CLOOB_OK);
}

static void png_round_trip(void)
{
    uint8_t rgb[5 * 7 * 3];
    image im;
    for (size_t i = 0; i < sizeof rgb; i++) rgb[i] = (uint8_t)rng_u64(3, i);
    cloob_status s = image_write_png(ctx, "test_image_out.png", rgb, 5, 7);
    if (s == CLOOB_ERR_UNSUPPORTED) SKIP("no PNG in this build");
    CHECK_OK(ctx, s);
    CHECK_OK(ctx, image_read(ctx, "test_image_out.png", NULL, &im));
    CHECK(im.width == 5 && im.height == 7 && !memcmp(im.rgb, rgb, sizeof rgb));
    image_release(&im);
    remove("test_image_out.png");
    CHECK(image_write_png(ctx, "no/such/folder/out.png", rgb, 5, 7) == CLOOB_ERR_IO);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(cut_files_are_refused);
    RUN(damaged_files_are_harmless);
    RUN(reader_survives_bad_images);
    RUN(windows_equal_the_whole);
    RUN(bombs_are_refused_from_the_header);
    RUN(limits_are_kept);
    RUN(other_formats_are_refused);
    RUN(png_round_trip);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
