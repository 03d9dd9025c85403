/* Photos as people have them: EXIF orientation, further formats, large JPEGs. */
#include "check.h"

#include "io/image/exif.h"
#include "io/image/image.h"

static cloob_ctx *ctx;

/* 3 x 2 pixels: red green blue / white (10,20,30) (200,100,50), written by Pillow. */
static const uint8_t expected[] = { 255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255, 10, 20, 30, 200, 100, 50 };
/* clang-format off */
static const uint8_t bmp[] = {
    66, 77, 78, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0, 3, 0,
    0, 0, 2, 0, 0, 0, 1, 0, 24, 0, 0, 0, 0, 0, 24, 0, 0, 0, 196, 14,
    0, 0, 196, 14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 30, 20, 10,
    50, 100, 200, 0, 0, 0, 0, 0, 255, 0, 255, 0, 255, 0, 0, 0, 0, 0,
};
static const uint8_t gif[] = {
    71, 73, 70, 56, 55, 97, 3, 0, 2, 0, 130, 0, 0, 255, 255, 255, 0, 255, 0, 200,
    100, 50, 10, 20, 30, 255, 0, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 44, 0, 0,
    0, 0, 3, 0, 2, 0, 0, 8, 9, 0, 9, 4, 40, 0, 96, 128, 128, 128, 0, 59,
};
static const uint8_t tiff[] = {
    73, 73, 42, 0, 8, 0, 0, 0, 10, 0, 0, 1, 4, 0, 1, 0, 0, 0, 3, 0,
    0, 0, 1, 1, 4, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 1, 3, 0, 3, 0,
    0, 0, 134, 0, 0, 0, 3, 1, 3, 0, 1, 0, 0, 0, 1, 0, 0, 0, 6, 1,
    3, 0, 1, 0, 0, 0, 2, 0, 0, 0, 17, 1, 4, 0, 1, 0, 0, 0, 140, 0,
    0, 0, 21, 1, 3, 0, 1, 0, 0, 0, 3, 0, 0, 0, 22, 1, 4, 0, 1, 0,
    0, 0, 2, 0, 0, 0, 23, 1, 4, 0, 1, 0, 0, 0, 18, 0, 0, 0, 28, 1,
    3, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 8, 0, 8, 0,
    255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255, 10, 20, 30, 200, 100, 50,
};
/* clang-format on */

static void same_pixels(const uint8_t *bytes, size_t size, const char *format)
{
    image im;
    cloob_status status = image_decode(ctx, bytes, size, format, NULL, &im);
    if (status == CLOOB_ERR_UNSUPPORTED) SKIP("its library was not found");
    CHECK_OK(ctx, status);
    CHECK(im.width == 3 && im.height == 2);
    if (im.rgb) CHECK(memcmp(im.rgb, expected, sizeof expected) == 0);
    image_release(&im);
    for (size_t n = 0; n < size; n++) { /* cut anywhere: refused or read, never beyond the bytes (sanitizers see it) */
        uint8_t *cut = malloc(n ? n : 1);
        memcpy(cut, bytes, n);
        if (image_decode(ctx, cut, n, format, NULL, &im) == CLOOB_OK) image_release(&im);
        free(cut);
    }
}

static void bmp_is_read(void) { same_pixels(bmp, sizeof bmp, "BMP"); }
static void gif_is_read(void) { same_pixels(gif, sizeof gif, "GIF"); }
static void tiff_is_read(void) { same_pixels(tiff, sizeof tiff, "TIFF"); }

/* tests/ref/images/two_colours.*: 16 x 8 pixels, (200, 40, 30) on the left, (20, 60, 190) on the right, saved by
 * Pillow. */
static void two_colours(const char *format)
{
    char path[512];
    image im;
    snprintf(path, sizeof path, TESTS_DIR "/ref/images/two_colours.%s", format);
    cloob_status status = image_read(ctx, path, NULL, &im);
    if (status == CLOOB_ERR_UNSUPPORTED) SKIP("its library was not found");
    CHECK_OK(ctx, status);
    CHECK(im.width == 16 && im.height == 8);
    if (im.rgb) {
        const uint8_t *left = im.rgb + 3 * (16 * 3 + 2), *right = im.rgb + 3 * (16 * 3 + 13);
        CHECK(abs(left[0] - 200) < 6 && abs(left[1] - 40) < 6 && abs(left[2] - 30) < 6);
        CHECK(abs(right[0] - 20) < 6 && abs(right[1] - 60) < 6 && abs(right[2] - 190) < 6);
    }
    image_release(&im);
}

static void heic_is_read(void) { two_colours("heic"); }
static void avif_is_read(void) { two_colours("avif"); }

/* "ab" over "cd" over "ef", turned by hand as a viewer would. */
static void orientations_by_hand(void)
{
    static const char *const upright[] = { "abcdef", "badcfe", "fedcba", "efcdab",
                                           "acebdf", "ecafdb", "fdbeca", "bdface" };
    for (int o = 1; o <= 8; o++) {
        char out[7] = "";
        exif_turn((uint8_t *)out, (const uint8_t *)"abcdef", 2, 3, 1, o);
        CHECK_STR(out, upright[o - 1]);
    }
}

/* A JPEG's head with one EXIF block. */
static size_t exif_head(uint8_t *out, bool little, int orientation)
{
    static const uint8_t big_endian[] = { 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0 };
    static const uint8_t little_endian[] = { 'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0 };
    const uint8_t head[] = { 0xFF, 0xD8, 0xFF, 0xE1, 0, 2 + 6 + 22, 'E', 'x', 'i', 'f', 0, 0 };
    memcpy(out, head, sizeof head);
    memcpy(out + sizeof head, little ? little_endian : big_endian, 22);
    out[sizeof head + (little ? 18 : 19)] = (uint8_t)orientation;
    return sizeof head + 22;
}

static void orientation_is_found(void)
{
    uint8_t b[64];
    for (int little = 0; little < 2; little++)
        for (int o = 0; o <= 9; o++) {
            size_t n = exif_head(b, little, o);
            CHECK(exif_orientation(b, n) == (o >= 1 && o <= 8 ? o : 1));
            for (size_t cut = 0; cut < n; cut++) CHECK(exif_orientation(b, cut) >= 1);
        }
}

/* The first segment of a JPEG with one date: the directory of EXIF behind the first one, then the text. */
static size_t dated_head(uint8_t *out, bool little, int tag, const char *date)
{
    size_t n = 0;
    const uint32_t word[] = { 8, 0x8769, 4, 1, 26, 0, (uint32_t)tag, 2, 20, 44, 0 };
    static const int bytes[] = { 4, 2, 2, 4, 4, 4, 2, 2, 4, 4, 4 };
    memcpy(out,
           "\xFF\xD8\xFF\xE1\0\x48"
           "Exif\0\0",
           12);
    memcpy(out + 12, little ? "II*\0" : "MM\0*", 4);
    n = 16;
    for (int i = 0; i < 11; i++) {
        if (i == 1 || i == 6) out[n + !little] = 1, out[n + little] = 0, n += 2; /* a directory of one entry */
        for (int k = 0; k < bytes[i]; k++) out[n++] = (uint8_t)(word[i] >> 8 * (little ? k : bytes[i] - 1 - k));
    }
    memcpy(out + n, date, 20);
    return n + 20;
}

static void capture_date_is_found(void)
{
    static const char *const bad[] = { "2019:13-01 10:00:00", "0000:00:00 00:00:00", "    :  :     :  :  " };
    uint8_t b[128];
    char date[20];
    for (int k = 0; k < 4; k++) {
        size_t n = dated_head(b, k & 1, k & 2 ? 0x9003 : 0x9004, "2019:07:01 10:20:30");
        CHECK(exif_date(b, n, date) && strcmp(date, "2019-07-01T10:20:30") == 0);
        for (size_t cut = 0; cut < n; cut++) CHECK(!exif_date(b, cut, date));
        b[60] ^= 1; /* another tag, or another place */
        exif_date(b, n, date);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!exif_date(b, dated_head(b, true, 0x9003, bad[i]), date));
    CHECK(!exif_date(b, dated_head(b, true, 0x0132, "2019:07:01 10:20:30"), date));
}

/* A JPEG of 24 x 16 pixels, a gradient, with an EXIF orientation: a photo is turned upright, an image of a data set is
 * not. */
static void a_photo_is_turned_upright(void)
{
    enum { WIDTH = 24, HEIGHT = 16 };
    static uint8_t rgb[HEIGHT * WIDTH * 3], turned[HEIGHT * WIDTH * 3];
    for (int i = 0; i < HEIGHT * WIDTH; i++) {
        rgb[3 * i] = (uint8_t)(10 * (i % WIDTH));
        rgb[3 * i + 1] = (uint8_t)(15 * (i / WIDTH));
        rgb[3 * i + 2] = 77;
    }
    if (!image_jpeg_available()) SKIP("a build without libjpeg");
    sbuf jpeg = { 0 };
    CHECK_OK(ctx, image_encode_jpeg(ctx, rgb, WIDTH, HEIGHT, 95, &jpeg));
    for (int o = 1; o <= 8; o++) {
        uint8_t b[8192];
        image plain, photo;
        size_t n = exif_head(b, true, o);
        CHECK(n + jpeg.len - 2 <= sizeof b);
        memcpy(b + n, (const uint8_t *)jpeg.data + 2, jpeg.len - 2); /* without its own start marker */
        CHECK_OK(ctx, image_decode(ctx, b, n + jpeg.len - 2, "plain", NULL, &plain));
        CHECK_OK(ctx,
                 image_decode(ctx, b, n + jpeg.len - 2, "photo", &(image_limits){ IMAGE_MAX_PIXELS, 8, true }, &photo));
        CHECK(plain.width == WIDTH && plain.height == HEIGHT);
        CHECK(photo.width == (o < 5 ? WIDTH : HEIGHT) && photo.height == (o < 5 ? HEIGHT : WIDTH));
        exif_turn(turned, plain.rgb, WIDTH, HEIGHT, 3, o);
        CHECK(memcmp(turned, photo.rgb, sizeof turned) == 0);
        image_release(&plain);
        image_release(&photo);
    }
    sbuf_release(&jpeg);
}

/* 6400 x 4000 pixels are above the limit of 25 million: refused as an image of a data set, read smaller as a photo. */
static void a_large_photo_is_read_smaller(void)
{
    enum { WIDTH = 6400, HEIGHT = 4000 };
    if (!image_jpeg_available()) SKIP("a build without libjpeg");
    uint8_t *rgb = malloc((size_t)WIDTH * HEIGHT * 3);
    sbuf jpeg = { 0 };
    image im;
    for (size_t i = 0; i < (size_t)WIDTH * HEIGHT * 3; i += 3) {
        rgb[i] = 200;
        rgb[i + 1] = 90;
        rgb[i + 2] = 20;
    }
    CHECK_OK(ctx, image_encode_jpeg(ctx, rgb, WIDTH, HEIGHT, 90, &jpeg));
    free(rgb);
    CHECK(image_decode(ctx, jpeg.data, jpeg.len, "large", NULL, &im) != CLOOB_OK);
    CHECK_OK(ctx, image_decode(ctx, jpeg.data, jpeg.len, "large", &(image_limits){ IMAGE_MAX_PIXELS, 8, true }, &im));
    CHECK(im.width * im.height <= IMAGE_MAX_PIXELS && im.width * HEIGHT == im.height * WIDTH);
    if (im.rgb) CHECK(abs(im.rgb[0] - 200) < 4 && abs(im.rgb[1] - 90) < 4 && abs(im.rgb[2] - 20) < 4);
    image_release(&im);
    sbuf_release(&jpeg);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(bmp_is_read);
    RUN(gif_is_read);
    RUN(tiff_is_read);
    RUN(heic_is_read);
    RUN(avif_is_read);
    RUN(orientations_by_hand);
    RUN(orientation_is_found);
    RUN(capture_date_is_found);
    RUN(a_photo_is_turned_upright);
    RUN(a_large_photo_is_read_smaller);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
