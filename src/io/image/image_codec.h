/* What an image format offers to src/io/image/image.c, and the reader they share. One codec per file; where a
 * library is missing at configure time, image_absent.c refuses the format. */
#ifndef IO_IMAGE_IMAGE_CODEC_H
#define IO_IMAGE_IMAGE_CODEC_H

#include "io/image/image.h"

typedef struct image_codec {
    const char *format; /* for messages: "JPEG" */
    bool (*match)(const uint8_t *bytes, size_t size);
    /* Reads the header of r->bytes and sets r->width and r->height. */
    cloob_status (*open)(cloob_ctx *ctx, image_reader *r);
    /* Decodes at least r->want (which is inside), fills r->rgb, r->have, r->kind and r->extra. */
    cloob_status (*load)(cloob_ctx *ctx, image_reader *r);
    /* Frees r->state[slot]; r may be used again. NULL: there is none. */
    void (*close)(image_reader *r);
} image_codec;

extern const image_codec image_jpeg, image_png, image_webp, image_gif, image_bmp, image_tiff, image_heif;

enum { IMAGE_STATE_JPEG, IMAGE_STATE_PNG, IMAGE_STATES };

typedef struct image_buffer {
    uint8_t *data;
    size_t cap;
} image_buffer;

struct image_reader {
    const uint8_t *bytes;
    size_t size;
    const char *name;
    image_limits limits;
    const image_codec *codec;
    int64_t width, height; /* of the image as it will be decoded, before it is turned */
    image_box want, have;  /* have contains want */
    image_kind kind;
    image_palette palette; /* of IMAGE_INDEXED */
    bool keyed;            /* extra has the alpha of a palette or a key colour: kind is IMAGE_INDEXED or IMAGE_RGB */
    image_buffer rgb, extra, row; /* (have.height, have.width, 3), as kind says, and a codec's scratch row */
    int orientation;              /* how the decoded image is turned before it is returned; 1: not at all */
    image_buffer turned;
    void *state[IMAGE_STATES]; /* a codec's own, reused between images */
};

/* Grows to at least `bytes`; the content is lost. Buffers end in IMAGE_SLACK readable bytes that do not count. */
enum { IMAGE_SLACK = 64 };
cloob_status image_buffer_reserve(cloob_ctx *ctx, image_buffer *b, size_t bytes);
void image_buffer_release(image_buffer *b);

/* Checks the limits on width and height; called by every codec as soon as it has read them. */
cloob_status image_check_size(cloob_ctx *ctx, const image_reader *r, int64_t width, int64_t height);

/* "NAME: FORMAT image cannot be read: WHY" */
cloob_status image_damaged(cloob_ctx *ctx, const image_reader *r, const char *why);

/* Sets r->kind, and completes r->palette, whose first `colours` entries are set. As in Pillow, entry i = (i, i, i) for
 * all i is a grey image. */
void image_set_palette(image_reader *r, int colours);
void image_set_bilevel(image_reader *r); /* black and white */

/* Sets have to the whole image and reserves r->rgb for it. */
cloob_status image_reserve_whole(cloob_ctx *ctx, image_reader *r);

#endif
