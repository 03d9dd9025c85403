#define JPEG_INTERNALS /* for struct jpeg_entropy_decoder, whose decode_mcu we replace */
#include "io/image/jpeg_huffman.h"

#include <stdlib.h>
#include <string.h>

#include <jerror.h>

/* Zeros after a segment: more than the longest unit can eat (10 blocks of 64 codes of 16 + 15 bits). */
enum { PAD = 4096 };

/* An entry, from the lowest bit on: 4 bits length of all it tells, 2 what it is, 5 steps to the first
 * coefficient, 5 from there to the second (0: none), 8 and 8 the coefficients; for DC, 16 the difference. An
 * entry with one coefficient repeats it, so that two can be stored without asking. END0 and END1 end the
 * block after no or one coefficient. SLOW is unfinished: the first coefficient is the number of extra bits,
 * or, when the length is 0, the code is longer than the look-up. */
enum { WHOLE = 0, SLOW = 1, END0 = 2, END1 = 3 };

/* Zigzag to natural order. Two runs may lead 32 places past the end; such a block is refused. */
static const uint8_t natural[64 + 32] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34,
    27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
};

/* --- tables ------------------------------------------------------------------------------------------ */

static uint32_t entry(int length, int what, int steps, int value)
{
    return (uint32_t)length | (uint32_t)what << 4 | (uint32_t)steps << 6 | (uint32_t)(value & 255) << 16 |
           (uint32_t)(value & 255) << 24;
}

static uint32_t entry_dc(int length, int what, int value)
{
    return (uint32_t)length | (uint32_t)what << 4 | (uint32_t)(value & 65535) << 16;
}

static int entry_length(uint32_t e) { return (int)(e & 15); }
static int entry_what(uint32_t e) { return (int)(e >> 4 & 3); }
static unsigned entry_steps(uint32_t e) { return e >> 6 & 31; }
static unsigned entry_steps2(uint32_t e) { return e >> 11 & 31; }
static JCOEF entry_value(uint32_t e) { return (JCOEF)(int8_t)(e >> 16); }
static JCOEF entry_value2(uint32_t e) { return (JCOEF)(int8_t)(e >> 24); }

/* The coefficient whose `size` extra bits are given: a leading 0 means negative. */
static int extend(int extra, int size) { return extra < 1 << (size - 1) ? extra - (1 << size) + 1 : extra; }

/* What JPEG_PEEK bits that begin with a code of `length` bits for `symbol` tell. rest: the bits after the
 * code. */
static uint32_t entry_for(bool ac, int symbol, int length, int rest)
{
    int size = ac ? symbol & 15 : symbol, steps = (symbol >> 4) + 1, left = JPEG_PEEK - length;
    int value = size && size <= left ? extend(rest >> (left - size), size) : 0;
    if (!ac) return size > left ? entry_dc(length, SLOW, size) : entry_dc(length + size, WHOLE, value);
    if (size == 0) return steps == 16 ? entry(length, SLOW, 16, 0) : entry(length, END0, 0, 0);
    if (size > left || size > 7) return entry(length, SLOW, steps, size); /* 7 bits and a sign fit a byte */
    return entry(length + size, WHOLE, steps, value);
}

/* Puts a second coefficient, or the end of the block, behind the first where the bits suffice. */
static uint32_t entry_pair(uint32_t first, uint32_t second)
{
    uint32_t length = (uint32_t)(entry_length(first) + entry_length(second));
    uint32_t with = (first & ~15u) | length;
    if (entry_what(first) != WHOLE || length > JPEG_PEEK) return first;
    if (entry_what(second) == END0) return with | END1 << 4;
    if (entry_what(second) != WHOLE) return first;
    return (with & 0xFFFFFF) | entry_steps(second) << 11 | (second & 0xFF000000);
}

static void pair_up(jpeg_codes *c)
{
    uint32_t single[1 << JPEG_PEEK];
    memcpy(single, c->entry, sizeof single);
    for (int i = 0; i < 1 << JPEG_PEEK; i++) {
        int behind = i << entry_length(single[i]) & ((1 << JPEG_PEEK) - 1);
        c->first[i] = (uint8_t)entry_length(single[i]);
        c->entry[i] = entry_pair(single[i], single[behind]);
    }
}

static void fill(jpeg_codes *c, bool ac, int code, int length, int symbol)
{
    int left = JPEG_PEEK - length;
    for (int rest = 0; rest < 1 << left; rest++) c->entry[code << left | rest] = entry_for(ac, symbol, length, rest);
}

/* Codes are numbered in order of length. False when the counts do not make a code, or a symbol cannot be. */
static bool codes_make(jpeg_codes *c, const JHUFF_TBL *t, bool ac)
{
    int code = 0, at = 0;
    for (int i = 0; i < 1 << JPEG_PEEK; i++) c->entry[i] = entry(0, SLOW, 0, 0);
    for (int length = 1; length <= 16; length++, code <<= 1) {
        c->offset[length] = at - code;
        for (int n = t->bits[length]; n > 0; n--, code++, at++) {
            if (code >= 1 << length || at > 255 || (!ac && t->huffval[at] > 11)) return false;
            if (length <= JPEG_PEEK) fill(c, ac, code, length, t->huffval[at]);
        }
        c->limit[length] = code << (16 - length);
    }
    if (ac) pair_up(c);
    return true;
}

static bool codes_need(jpeg_codes *c, const JHUFF_TBL *t, bool ac)
{
    if (!t) return false;
    bool same = c->valid && !memcmp(c->made_of.bits, t->bits, sizeof t->bits) &&
                !memcmp(c->made_of.huffval, t->huffval, sizeof t->huffval);
    if (same) return true;
    c->made_of = *t;
    c->valid = codes_make(c, t, ac);
    return c->valid;
}

/* --- bits -------------------------------------------------------------------------------------------- */

/* Copies what lies before the next marker without the zero after each FF and leaves the source at the marker,
 * where libjpeg goes on when the scan is done. False when there is no marker before the end. */
static bool segment_clean(jpeg_huffman *h, struct jpeg_source_mgr *source)
{
    uint8_t *to = h->clean;
    const uint8_t *from = source->next_input_byte, *end = from + source->bytes_in_buffer;
    for (;;) {
        const uint8_t *ff = memchr(from, 0xFF, (size_t)(end - from));
        if (!ff || ff + 1 >= end) return false;
        size_t n = (size_t)(ff - from);
        memcpy(to, from, n);
        to += n;
        from = ff + 2;
        if (ff[1] != 0) {
            source->next_input_byte = ff;
            source->bytes_in_buffer = (size_t)(end - ff);
            break;
        }
        *to++ = 0xFF;
    }
    memset(to, 0, PAD);
    h->next = h->clean;
    h->end = to;
    h->bits = 0;
    h->count = 0;
    memset(h->dc, 0, sizeof h->dc);
    return true;
}

static uint64_t load_be64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}

/* The reader's registers, kept out of memory inside a unit. */
typedef struct bit_reader {
    uint64_t bits;
    const uint8_t *next;
    int count;
} bit_reader;

/* At least 56 bits afterwards. */
static inline void refill(bit_reader *b)
{
    b->bits |= load_be64(b->next) >> b->count;
    b->next += (63 - b->count) >> 3;
    b->count |= 56;
}

static inline void drop(bit_reader *b, int n)
{
    b->bits <<= n;
    b->count -= n;
}

/* A code longer than JPEG_PEEK bits; -1 when there is none such. */
static int long_symbol(const jpeg_codes *c, bit_reader *b)
{
    int32_t code = (int32_t)(b->bits >> 48);
    int length = JPEG_PEEK + 1;
    while (length <= 16 && code >= c->limit[length]) length++;
    if (length > 16) return -1;
    drop(b, length);
    return c->made_of.huffval[((code >> (16 - length)) + c->offset[length]) & 255];
}

static int extra_bits(bit_reader *b, int size)
{
    int v = (int)(b->bits >> (64 - size));
    drop(b, size);
    return extend(v, size);
}

/* --- blocks ------------------------------------------------------------------------------------------ */

static bool read_dc(const jpeg_codes *c, bit_reader *b, int *dc)
{
    refill(b);
    uint32_t e = c->entry[b->bits >> (64 - JPEG_PEEK)];
    int value = (int16_t)(e >> 16);
    drop(b, entry_length(e));
    if (entry_what(e) != WHOLE) {
        int size = entry_length(e) ? value : long_symbol(c, b);
        if (size < 0) return false;
        value = size ? extra_bits(b, size) : 0;
    }
    *dc += value;
    return *dc >= -32768 && *dc <= 32767;
}

/* An entry that reaches place 63 or beyond: fine when one of its coefficients lies exactly there. When it is
 * the first, what follows belongs to the next block. */
static bool last_ac(const jpeg_codes *c, bit_reader *b, uint32_t e, unsigned k1, unsigned k2, JCOEF *block)
{
    if (k1 != 63 && k2 != 63) return false;
    block[natural[k1]] = entry_value(e);
    if (k1 < 63) block[63] = entry_value2(e);
    drop(b, k1 == 63 ? c->first[b->bits >> (64 - JPEG_PEEK)] : entry_length(e));
    return true;
}

/* A symbol that the look-up did not settle; *k moves on. Returns 0 to go on, 1 at the end of the block, -1
 * when the data is not right. */
static int slow_ac(const jpeg_codes *c, bit_reader *b, uint32_t e, unsigned *k, JCOEF *block)
{
    unsigned steps = entry_steps(e);
    int size = entry_value(e);
    drop(b, entry_length(e));
    if (entry_length(e) == 0) {
        int symbol = long_symbol(c, b);
        if (symbol < 0) return -1;
        steps = (unsigned)(symbol >> 4) + 1;
        size = symbol & 15;
        if (size == 0 && steps < 16) return 1;
    }
    *k += steps;
    if (*k > 63) return -1;
    refill(b);
    if (size) block[natural[*k]] = (JCOEF)extra_bits(b, size);
    return *k == 63;
}

/* Coefficients 1 to 63 into block, whose other places are 0. False at an unknown code or a run past the end.
 */
static bool read_ac(const jpeg_codes *c, bit_reader *b, JCOEF *block)
{
    for (unsigned k = 0;;) {
        refill(b);
        for (int i = 0; i < 4; i++) { /* three entries of 12 bits leave 20: enough for a code of 16 */
            uint32_t e = c->entry[b->bits >> (64 - JPEG_PEEK)];
            unsigned k1 = k + entry_steps(e), k2 = k1 + entry_steps2(e);
            if (__builtin_expect(entry_what(e) == WHOLE, 1)) {
                if (__builtin_expect(k2 >= 63, 0)) return last_ac(c, b, e, k1, k2, block);
                block[natural[k1]] = entry_value(e);
                block[natural[k2]] = entry_value2(e);
                drop(b, entry_length(e));
                k = k2;
            } else if (entry_what(e) == SLOW) {
                int end = slow_ac(c, b, e, &k, block);
                if (end) return end > 0;
                break;
            } else {
                if (entry_what(e) == END1 && k1 >= 63) return last_ac(c, b, e, k1, k1, block);
                if (entry_what(e) == END1) block[natural[k1]] = entry_value(e);
                drop(b, entry_length(e));
                return true;
            }
        }
    }
}

/* --- units ------------------------------------------------------------------------------------------- */

static boolean refuse(j_decompress_ptr d, jpeg_huffman *h)
{
    h->refused = true;
    ERREXIT(d, JERR_BAD_STATE);
    return FALSE;
}

static bool segment_next(jpeg_huffman *h, j_decompress_ptr d)
{
    if (d->src->next_input_byte[1] != 0xD0 + h->next_restart) return false;
    h->next_restart = (h->next_restart + 1) & 7;
    h->restarts_left = d->restart_interval;
    d->src->next_input_byte += 2;
    d->src->bytes_in_buffer -= 2;
    return segment_clean(h, d->src);
}

/* Where a skipped block's coefficients go when libjpeg wants none. */
static bool read_block(jpeg_huffman *h, j_decompress_ptr d, bit_reader *b, int i, JCOEF *block)
{
    int ci = d->MCU_membership[i];
    const jpeg_component_info *comp = d->cur_comp_info[ci];
    if (!read_dc(&h->codes[0][comp->dc_tbl_no], b, &h->dc[ci])) return false;
    block[0] = (JCOEF)h->dc[ci];
    return read_ac(&h->codes[1][comp->ac_tbl_no], b, block);
}

static boolean decode_unit(j_decompress_ptr d, JBLOCKROW *blocks)
{
    jpeg_huffman *h = d->client_data;
    JBLOCK nowhere;
    if (d->restart_interval) {
        if (h->restarts_left == 0 && !segment_next(h, d)) return refuse(d, h);
        h->restarts_left--;
    }
    bit_reader b = { h->bits, h->next, h->count };
    for (int i = 0; i < d->blocks_in_MCU; i++)
        if (!read_block(h, d, &b, i, blocks ? blocks[i][0] : nowhere)) return refuse(d, h);
    h->bits = b.bits;
    h->next = b.next;
    h->count = b.count;
    if ((b.next - h->clean) * 8 - b.count > (h->end - h->clean) * 8) return refuse(d, h); /* bits that were not there */
    return TRUE;
}

static bool suits(j_decompress_ptr d)
{
    return !d->progressive_mode && !d->arith_code && !jpeg_has_multiple_scans(d) && d->data_precision == 8 &&
           d->Ss == 0 && d->Se == DCTSIZE2 - 1 && d->unread_marker == 0;
}

static bool reserve(jpeg_huffman *h, size_t bytes)
{
    if (bytes <= h->clean_cap) return true;
    free(h->clean);
    h->clean = malloc(bytes);
    h->clean_cap = h->clean ? bytes : 0;
    return h->clean != NULL;
}

bool jpeg_huffman_install(jpeg_huffman *h, j_decompress_ptr d)
{
    h->refused = false;
    if (!suits(d) || !reserve(h, d->src->bytes_in_buffer + PAD)) return false;
    for (int i = 0; i < d->comps_in_scan; i++) {
        int dc = d->cur_comp_info[i]->dc_tbl_no, ac = d->cur_comp_info[i]->ac_tbl_no;
        if (dc < 0 || dc >= NUM_HUFF_TBLS || ac < 0 || ac >= NUM_HUFF_TBLS) return false;
        if (!codes_need(&h->codes[0][dc], d->dc_huff_tbl_ptrs[dc], false)) return false;
        if (!codes_need(&h->codes[1][ac], d->ac_huff_tbl_ptrs[ac], true)) return false;
    }
    struct jpeg_source_mgr before = *d->src;
    if (!segment_clean(h, d->src)) {
        *d->src = before;
        return false;
    }
    h->restarts_left = d->restart_interval;
    h->next_restart = 0;
    d->entropy->decode_mcu = decode_unit;
    return true;
}

void jpeg_huffman_release(jpeg_huffman *h)
{
    free(h->clean);
    h->clean = NULL;
    h->clean_cap = 0;
}
