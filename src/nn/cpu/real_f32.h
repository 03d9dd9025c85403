/* Loops over F32 elements: read before a file of loops that is written for REAL. No guard: it is read again. */
#undef REAL
#undef NAME
#undef GET
#undef PUT
#define REAL       float
#define NAME(base) base##_f32
#define GET(x)     (x)
#define PUT(v)     (v)
