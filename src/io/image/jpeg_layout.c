/* A walk over the markers of a JPEG file. */
#include "io/image/image.h"

#include <string.h>

enum { SOF0 = 0xC0, DHT = 0xC4, RST0 = 0xD0, RST7 = 0xD7, SOI = 0xD8, EOI = 0xD9, SOS = 0xDA, DQT = 0xDB };
enum { DRI = 0xDD, APP0 = 0xE0, APP1 = 0xE1, APP14 = 0xEE, APP15 = 0xEF, COM = 0xFE };
enum { MIN_CHROMA = 3 }; /* libjpeg repeats narrower chroma instead of smoothing it */

typedef struct walk {
    const uint8_t *at, *end;
    bool jfif, adobe, frame, huffman, quantizer;
    int transform; /* Adobe's: 1 is YCbCr */
    uint8_t id[3];
} walk;

static int two_bytes(const uint8_t *p) { return p[0] << 8 | p[1]; }

/* The marker at w->at, with its fill bytes; -1: there is none. */
static int next_marker(walk *w)
{
    if (w->end - w->at < 2 || *w->at != 0xFF) return -1;
    while (w->at < w->end && *w->at == 0xFF) w->at++;
    return w->at < w->end ? *w->at++ : -1;
}

/* A frame header: precision, height, width, components with their sampling. */
static bool read_frame(walk *w, const uint8_t *p, int n, jpeg_layout *out)
{
    if (w->frame || n < 6 || p[0] != 8) return false;
    *out =
        (jpeg_layout){ .height = two_bytes(p + 1), .width = two_bytes(p + 3), .components = p[5], .exif = out->exif };
    if (!out->width || !out->height || (out->components != 1 && out->components != 3)) return false;
    if (n != 6 + 3 * out->components) return false;
    for (int c = 0; c < out->components; c++) {
        int sampling = p[7 + 3 * c], across = sampling >> 4, down = sampling & 15;
        w->id[c] = p[6 + 3 * c];
        if (c == 0) out->across = across, out->down = down;
        else if (sampling != 0x11) return false;
    }
    w->frame = true;
    if (out->across == 1 && out->down == 1) return true;
    bool halved = out->across == 2 && (out->down == 1 || out->down == 2);
    return halved && out->components == 3 && (out->width + 1) / 2 >= MIN_CHROMA;
}

static bool read_segment(walk *w, int marker, const uint8_t *p, int n, jpeg_layout *out)
{
    switch (marker) {
    case SOF0: return read_frame(w, p, n, out);
    case DHT: return w->huffman = true;
    case DQT: return w->quantizer = true;
    case APP0: w->jfif |= n >= 5 && memcmp(p, "JFIF", 5) == 0; return true;
    case APP1: out->exif |= n >= 6 && memcmp(p, "Exif\0", 6) == 0; return true;
    case APP14:
        if (n >= 12 && memcmp(p, "Adobe", 5) == 0) w->adobe = true, w->transform = p[11];
        return true;
    default: return marker == DRI || marker == COM || (marker > APP0 && marker <= APP15);
    }
}

/* Where readers agree that three components are Y, Cb and Cr. */
static bool is_ycc(const walk *w)
{
    if (w->adobe) return w->transform == 1;
    return w->jfif || (w->id[0] == 1 && w->id[1] == 2 && w->id[2] == 3);
}

/* Everything in one baseline scan, and its coded data up to the end of the image. */
static bool read_scan(walk *w, const uint8_t *p, int n, const jpeg_layout *out)
{
    if (!w->frame || !w->huffman || !w->quantizer || n != 4 + 2 * out->components || p[0] != out->components)
        return false;
    const uint8_t *tail = p + n - 3;
    if (tail[0] != 0 || tail[1] != 63 || tail[2] != 0) return false;
    if (out->components == 3 && !is_ycc(w)) return false;
    while (w->at < w->end && (w->at = memchr(w->at, 0xFF, (size_t)(w->end - w->at)))) {
        if (w->end - w->at < 2) return false;
        int code = w->at[1];
        w->at += code == 0xFF ? 1 : 2;
        if (code == EOI) return true;
        if (code != 0 && code != 0xFF && (code < RST0 || code > RST7)) return false;
    }
    return false;
}

bool jpeg_layout_read(const uint8_t *bytes, size_t size, jpeg_layout *out)
{
    walk w = { .at = bytes, .end = bytes + size };
    *out = (jpeg_layout){ 0 };
    if (next_marker(&w) != SOI) return false;
    for (;;) {
        int marker = next_marker(&w);
        if (marker < 0 || w.end - w.at < 2) return false;
        int n = two_bytes(w.at) - 2;
        const uint8_t *p = w.at + 2;
        if (n < 0 || n > w.end - p) return false;
        w.at = p + n;
        if (marker == SOS) {
            bool whole = read_scan(&w, p, n, out);
            if (whole) out->size = (size_t)(w.at - bytes);
            return whole;
        }
        if (!read_segment(&w, marker, p, n, out)) return false;
    }
}
