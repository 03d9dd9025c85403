#include "jpeg_planes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "core/rng.h"

static uint8_t sample(uint64_t key, int x, int y, int c)
{
    double wave = 128 + 70 * sin(x * (0.05 + 0.03 * c) + c) * cos(y * 0.07 - c) + 30 * sin((x + 2 * y) * 0.9);
    double v = wave + 40 * (rng_uniform(key, (uint64_t)((y * 4096 + x) * 4 + c)) - 0.5);
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void say_orientation(struct jpeg_compress_struct *j, int orientation)
{
    uint8_t app1[] = "Exif\0\0II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0?\0\0\0\0\0\0";
    for (size_t i = 0; i < sizeof app1; i++)
        if (app1[i] == '?') app1[i] = (uint8_t)orientation;
    jpeg_write_marker(j, JPEG_APP0 + 1, app1, sizeof app1 - 1);
}

uint8_t *jpeg_make(const jpeg_case *c, uint64_t seed, size_t *bytes)
{
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr error;
    unsigned char *out = NULL;
    unsigned long size = 0;
    uint64_t key = rng_key(seed, "jpeg");
    j.err = jpeg_std_error(&error);
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, &out, &size);
    j.image_width = (JDIMENSION)c->width;
    j.image_height = (JDIMENSION)c->height;
    j.input_components = c->components;
    j.in_color_space = c->components == 1 ? JCS_GRAYSCALE : c->components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&j);
    if (c->rgb) jpeg_set_colorspace(&j, JCS_RGB);
    jpeg_set_quality(&j, 85, TRUE);
    j.comp_info[0].h_samp_factor = c->across;
    j.comp_info[0].v_samp_factor = c->down;
    j.restart_interval = (unsigned)c->restart;
    if (c->progressive) jpeg_simple_progression(&j);
    jpeg_start_compress(&j, TRUE);
    if (c->exif) say_orientation(&j, c->exif);
    uint8_t *row = malloc((size_t)(c->width * c->components));
    for (int y = 0; y < c->height; y++) {
        for (int x = 0; x < c->width * c->components; x++)
            row[x] = sample(key, x / c->components, y, x % c->components);
        JSAMPROW rows = row;
        jpeg_write_scanlines(&j, &rows, 1);
    }
    free(row);
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    *bytes = size;
    return out;
}

/* Rows of whole blocks, one group at a time. */
static void read_planes(struct jpeg_decompress_struct *j, uint8_t *const plane[3], const int32_t pitch[3])
{
    JSAMPROW rows[3][16];
    JSAMPARRAY planes[3] = { rows[0], rows[1], rows[2] };
    while (j->output_scanline < j->output_height) {
        int lines = 8 * j->max_v_samp_factor, top = (int)j->output_scanline;
        for (int c = 0; c < j->num_components; c++) {
            int n = 8 * j->comp_info[c].v_samp_factor;
            for (int i = 0; i < n; i++) rows[c][i] = plane[c] + (size_t)(top * n / lines + i) * (size_t)pitch[c];
        }
        jpeg_read_raw_data(j, planes, (JDIMENSION)lines);
    }
}

uint8_t *jpeg_decode_planes(const uint8_t *bytes, size_t size, ycc_planes *out)
{
    jpeg_layout l;
    struct jpeg_decompress_struct j;
    struct jpeg_error_mgr error;
    uint8_t *plane[3] = { NULL, NULL, NULL };
    if (!jpeg_layout_read(bytes, size, &l)) return NULL;
    *out = (ycc_planes){ .width = l.width, .height = l.height, .components = l.components };
    out->across = l.across, out->down = l.down;
    size_t each = (size_t)(l.width + 32) * (size_t)(l.height + 32);
    uint8_t *memory = calloc(3, each);
    for (int c = 0; c < l.components; c++) {
        out->pitch[c] = ((c ? (l.width + l.across - 1) / l.across : l.width) + 31) / 16 * 16;
        out->plane[c] = plane[c] = memory + (size_t)c * each;
    }
    j.err = jpeg_std_error(&error);
    jpeg_create_decompress(&j);
    jpeg_mem_src(&j, bytes, size);
    jpeg_read_header(&j, TRUE);
    j.raw_data_out = TRUE;
    j.out_color_space = j.jpeg_color_space;
    jpeg_start_decompress(&j);
    read_planes(&j, plane, out->pitch);
    jpeg_finish_decompress(&j);
    jpeg_destroy_decompress(&j);
    return memory;
}
