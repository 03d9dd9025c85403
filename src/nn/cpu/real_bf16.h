/* Loops over bf16 elements that compute in float: read before a file of loops that is written for REAL. No guard: it is
 * read again. */
#undef REAL
#undef NAME
#undef GET
#undef PUT
#define REAL       uint16_t
#define NAME(base) base##_bf16
#define GET(x)     bf16_up(x)
#define PUT(v)     bf16_down(v)
