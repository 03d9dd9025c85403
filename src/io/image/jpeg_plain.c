/* Stands in for jpeg_huffman.c and jpeg_window.c where libjpeg is not libjpeg-turbo or hides its inner
 * structures. */
#include "io/image/jpeg_huffman.h"
#include "io/image/jpeg_window.h"

bool jpeg_huffman_install(jpeg_huffman *h, j_decompress_ptr d)
{
    (void)d;
    h->refused = false;
    return false;
}

void jpeg_huffman_release(jpeg_huffman *h) { (void)h; }

void jpeg_window_begin(j_decompress_ptr d, image_box *box)
{
    *box = (image_box){ 0, 0, d->output_height, d->output_width };
}
