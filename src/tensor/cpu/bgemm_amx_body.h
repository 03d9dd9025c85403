/* The inner part on tiles, written against six operations that the includer defines: TILE_CONFIGURE(config),
 * TILE_RELEASE(), TILE_ZERO(t), TILE_LOAD(t, from, bytes between rows), TILE_STORE(t, to, bytes), TILE_DOT(c, a, b).
 * bgemm_amx.c gives the instructions; the tests give an emulation, so that everything but the instructions is tested on
 * any machine.
 *
 * C: tiles 0 to 3 as 2 x 2; A: tiles 4, 5; B: tiles 6, 7. */
enum { ROW_BYTES = 64 };

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

TILE_TARGET static void configure(void)
{
    tile_config config = { .palette = 1 };
    for (int t = 0; t < 8; t++) config.row_bytes[t] = ROW_BYTES, config.rows[t] = BGEMM_EDGE;
    TILE_CONFIGURE(&config);
}

TILE_TARGET static void release(void) { TILE_RELEASE(); }

/* Where C tiles of a 2 x 2 block are; those beyond the edge are not there. */
typedef struct corner {
    float *c00, *c01, *c10, *c11;
} corner;

static corner corner_of(const bgemm_block *x, int64_t i, int64_t j)
{
    float *c = x->c + (i * x->cols + j) * BGEMM_TILE_C, *below = i + 1 < x->rows ? c + x->cols * BGEMM_TILE_C : NULL;
    bool right = j + 1 < x->cols;
    return (corner){ c, right ? c + BGEMM_TILE_C : NULL, below, right && below ? below + BGEMM_TILE_C : NULL };
}

TILE_TARGET static void start(const corner *c, bool fresh)
{
    if (fresh) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
        return;
    }
    TILE_LOAD(0, c->c00, ROW_BYTES);
    if (c->c01) TILE_LOAD(1, c->c01, ROW_BYTES);
    if (c->c10) TILE_LOAD(2, c->c10, ROW_BYTES);
    if (c->c11) TILE_LOAD(3, c->c11, ROW_BYTES);
}

TILE_TARGET static void finish(const corner *c)
{
    TILE_STORE(0, c->c00, ROW_BYTES);
    if (c->c01) TILE_STORE(1, c->c01, ROW_BYTES);
    if (c->c10) TILE_STORE(2, c->c10, ROW_BYTES);
    if (c->c11) TILE_STORE(3, c->c11, ROW_BYTES);
}

TILE_TARGET static void corner_block(const bgemm_block *x, int64_t i, int64_t j)
{
    corner c = corner_of(x, i, j);
    const uint16_t *a0 = x->a + i * x->steps * BGEMM_TILE, *a1 = a0 + x->steps * BGEMM_TILE;
    const uint16_t *b0 = x->b + j * x->b_next, *b1 = b0 + x->b_next;
    start(&c, x->fresh);
    for (int64_t s = 0; s < x->steps; s++) {
        TILE_LOAD(4, a0 + s * BGEMM_TILE, ROW_BYTES);
        TILE_LOAD(6, b0 + s * BGEMM_TILE, ROW_BYTES);
        TILE_DOT(0, 4, 6);
        if (c.c01) {
            TILE_LOAD(7, b1 + s * BGEMM_TILE, ROW_BYTES);
            TILE_DOT(1, 4, 7);
        }
        if (c.c10) {
            TILE_LOAD(5, a1 + s * BGEMM_TILE, ROW_BYTES);
            TILE_DOT(2, 5, 6);
        }
        if (c.c11) TILE_DOT(3, 5, 7);
    }
    finish(&c);
}

TILE_TARGET static void multiply(const bgemm_block *x)
{
    for (int64_t j = 0; j < x->cols; j += 2)
        for (int64_t i = 0; i < x->rows; i += 2) corner_block(x, i, j);
}
