/* The inner parts of a 3 x 3 convolution by Winograd's algorithm, 8 channels at a time.
 *
 *     Y = A^T [(G w G^T) .* (B^T d B)] A
 *
 * A tile of `size` x `size` outputs is made from a patch d of size + 2 inputs each way; `edge` = size + 2, `points` =
 * edge^2. At every point the sum over input channels is a GEMM: rows are tiles, columns are output channels. Points of
 * the transform are 0, 1, -1 and infinity for tiles of 2 x 2, and 0, 5/8, -5/8, 3/2, -3/2 and infinity for 4 x 4, which
 * lose less to rounding than whole numbers. */
#ifndef TENSOR_CPU_WINOGRAD_TILE_H
#define TENSOR_CPU_WINOGRAD_TILE_H

#include <stdbool.h>
#include <stdint.h>

enum { WINOGRAD_LANES = 8, WINOGRAD_ROWS = 6, WINOGRAD_COLUMNS = 16, WINOGRAD_EDGE = 6 };

/* Where a tile is in an image (H, W) of pixels that are `pixel` elements apart: its first output is (h, w). */
typedef struct winograd_place {
    int64_t H, W, pixel, h, w;
} winograd_place;

/* The tiles of a batch of images, row by row, image by image. */
typedef struct winograd_grid {
    int64_t H, W, size;
    int64_t across, per_image; /* tiles of a row, of an image */
} winograd_grid;

winograd_grid winograd_grid_of(int size, int64_t H, int64_t W);
/* Where a tile is in images of so many channels; *n: in which image. */
winograd_place winograd_grid_place(const winograd_grid *g, int64_t channels, int64_t tile, int64_t *n);

/* Up to WINOGRAD_ROWS tiles by a panel of 16 outputs at one point. */
typedef struct winograd_block {
    const float *v;     /* (C / 8, rows, 8) */
    const float *panel; /* (C, 16) */
    const float *next;  /* NULL, or what is fetched meanwhile: a line of 64 bytes for every channel */
    float *m;           /* (rows, 16), overwritten; every element is one sum in the order of channels */
    int64_t C;
    int rows;
} winograd_block;

/* What some tiles add to the gradient of weights at one point: u (rows, 16) += v^T d, for up to WINOGRAD_ROWS input
 * channels and 16 outputs. */
typedef struct winograd_sum {
    const float *v; /* (tiles, rows), ldv apart */
    const float *d; /* (tiles, 16) */
    float *u;       /* begins at 0 with `first`; every element is one sum in the order of tiles */
    int64_t tiles, ldv;
    int rows;
    bool first;
} winograd_sum;

typedef struct winograd_tile {
    int size, edge, points;
    /* B^T d B of one tile and 8 channels: point p to v + p stride. Beyond the image d is 0. */
    void (*in)(const float *x, const winograd_place *at, float *v, int64_t stride);
    void (*multiply)(const winograd_block *b);
    /* A^T m A + bias, clamped at 0 with relu, of one tile and 8 channels: point p from m + p stride. bias: (8) or NULL.
     * What is beyond the image is not written. */
    void (*out)(const float *m, int64_t stride, const float *bias, bool relu, const winograd_place *at, float *y);
    /* The way back: A dy A^T of one tile and 8 channels, point p to d + p stride. Beyond the image dy is 0. */
    void (*back)(const float *dy, const winograd_place *at, float *d, int64_t stride);
    void (*sum)(const winograd_sum *s);
} winograd_tile;

/* Tiles of 2 x 2 or 4 x 4; NULL on a machine without AVX2. */
const winograd_tile *winograd_tile_of(int size);

/* G (edge, 3) for tiles of that size: row i is (1, p, p^2) / prod_{j != i} (p - p_j) for the finite points p and (0, 0,
 * 1) for infinity; of 2 x 2 the first row without its sign. */
void winograd_kernel_points(int size, float G[WINOGRAD_EDGE][3]);

#endif
