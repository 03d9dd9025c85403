/* GEMMs on AMX tiles, written against seven operations that the includer defines: TILE_CONFIGURE(config),
 * TILE_RELEASE(), TILE_ZERO(t), TILE_LOAD(t, from, bytes between rows), TILE_STORE(t, to, bytes), TILE_DOT(c, a, b) of
 * bf16 and TILE_DOT_U8(c, a, b) of unsigned by signed bytes. gemm_amx.c defines them as the instructions; the tests
 * define an emulation, so that everything but the instructions is tested on any machine.
 *
 * Sums: tiles 0 to 3 as 2 x 2; A: tiles 4, 5; B: tiles 6, 7. */
enum { ROW_BYTES = 64 };

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

TILE_TARGET static void configure(void)
{
    tile_config config = { .palette = 1 };
    for (int t = 0; t < 8; t++) config.row_bytes[t] = ROW_BYTES, config.rows[t] = BF16_EDGE;
    TILE_CONFIGURE(&config);
}

TILE_TARGET static void release(void) { TILE_RELEASE(); }

/* Sums of 32 rows by 32 columns; tiles that are not needed are NULL. */
typedef struct corner {
    float *c00, *c01, *c10, *c11;
    size_t row_bytes;
} corner;

static corner corner_of(const gemm_block *x)
{
    float *c = x->sum, *below = x->rows > BF16_EDGE ? c + BF16_EDGE * x->ld : NULL;
    bool right = x->cols > BF16_EDGE;
    return (corner){ c, right ? c + BF16_EDGE : NULL, below, right && below ? below + BF16_EDGE : NULL,
                     (size_t)x->ld * sizeof(float) };
}

TILE_TARGET static void start(const corner *c, bool first)
{
    if (first) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
        return;
    }
    TILE_LOAD(0, c->c00, c->row_bytes);
    if (c->c01) TILE_LOAD(1, c->c01, c->row_bytes);
    if (c->c10) TILE_LOAD(2, c->c10, c->row_bytes);
    if (c->c11) TILE_LOAD(3, c->c11, c->row_bytes);
}

TILE_TARGET static void multiply(const gemm_block *x)
{
    corner c = corner_of(x);
    const uint16_t *a = x->a, *b = x->b;
    start(&c, x->first);
    for (int64_t s = 0; s < x->steps; s++, a += 2 * BF16_TILE, b += 2 * BF16_TILE) {
        gemm_fetch(x, s, ROW_BYTES * 2 * BF16_EDGE);
        TILE_LOAD(4, a, ROW_BYTES);
        TILE_LOAD(6, b, ROW_BYTES);
        TILE_DOT(0, 4, 6);
        if (c.c01) {
            TILE_LOAD(7, b + BF16_TILE, ROW_BYTES);
            TILE_DOT(1, 4, 7);
        }
        if (c.c10) {
            TILE_LOAD(5, a + BF16_TILE, ROW_BYTES);
            TILE_DOT(2, 5, 6);
        }
        if (c.c11) TILE_DOT(3, 5, 7);
    }
    TILE_STORE(0, c.c00, c.row_bytes);
    if (c.c01) TILE_STORE(1, c.c01, c.row_bytes);
    if (c.c10) TILE_STORE(2, c.c10, c.row_bytes);
    if (c.c11) TILE_STORE(3, c.c11, c.row_bytes);
}

/* 32 steps: sums are loaded and stored once per 32 x 4 multiplications of tiles; A of a block and B of a panel are 64
 * KiB each, within the second cache. */
#define AMX_KERNEL(name_, transpose_)                                                                                  \
    GEMM_BF16_KERNEL(name_, 2 * BF16_EDGE, 32, transpose_), .begin = configure, .end = release, .multiply = multiply

/* ---- bytes by bytes -------------------------------------------------------------------------------- */

/* sums (32, 32) of one group, exact: as many rows of tiles as are needed. */
TILE_TARGET static void dot_group(const u8_rows *a, const u8_panel *b, int rows, int32_t *sums)
{
    enum { HALF = U8_COLS / 2, ROW = U8_COLS * (int)sizeof(int32_t) };
    int32_t *below = sums + BF16_EDGE * U8_COLS;
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_LOAD(4, a->x[0], ROW_BYTES);
    TILE_LOAD(6, b->w[0][0], ROW);
    TILE_DOT_U8(0, 4, 6);
    TILE_LOAD(7, b->w[0][HALF], ROW);
    TILE_DOT_U8(1, 4, 7);
    if (rows > BF16_EDGE) {
        TILE_ZERO(2);
        TILE_ZERO(3);
        TILE_LOAD(5, a->x[BF16_EDGE], ROW_BYTES);
        TILE_DOT_U8(2, 5, 6);
        TILE_DOT_U8(3, 5, 7);
        TILE_STORE(2, below, ROW);
        TILE_STORE(3, below + HALF, ROW);
    }
    TILE_STORE(0, sums, ROW);
    TILE_STORE(1, sums + HALF, ROW);
}

/* The group's sums, times the rows' scales, to those in float. */
TILE_TARGET static void add_group(const u8_rows *a, const u8_panel *b, int rows, const int32_t *restrict sums,
                                  float *restrict to, int64_t ld)
{
    static const int32_t none[U8_COLS] __attribute__((aligned(64)));
    for (int r = 0; r < rows; r++, sums += U8_COLS, to += ld) {
        const int32_t *shift = a->zero[r] ? b->shift : none;
        float scale = a->scale[r];
        for (int n = 0; n < U8_COLS; n++) to[n] = __builtin_fmaf((float)(sums[n] + shift[n]), scale, to[n]);
    }
}

TILE_TARGET static void multiply_u8(const gemm_block *x)
{
    const u8_rows *a = x->a;
    const u8_panel *b = x->b;
    int32_t sums[U8_TALL * U8_COLS] __attribute__((aligned(64)));
    for (int r = 0; x->first && r < x->rows; r++) memset((float *)x->sum + r * x->ld, 0, U8_COLS * sizeof(float));
    for (int64_t g = 0; g < x->steps; g++, a++, b++) {
        gemm_fetch(x, g, (int)sizeof *b);
        dot_group(a, b, x->rows, sums);
        add_group(a, b, x->rows, sums, x->sum, x->ld);
    }
}

#define AMX_U8_KERNEL(name_, round_)                                                                                   \
    .name = name_, .kind = GEMM_U8, .rows = U8_TALL, .cols = U8_COLS, .step = U8_GROUP,                                \
    .a_step = (int)sizeof(u8_rows), .b_step = (int)sizeof(u8_panel), .b_head = U8_COLS * (int)sizeof(float),           \
    .chunk = 128, .panels = 16, .pack_a = gemm_u8_pack_rows, .pack_b = gemm_u8_pack_b, .round_u8 = round_,             \
    .begin = configure, .end = release, .multiply = multiply_u8
