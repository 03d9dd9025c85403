/* JSON: text to a tree that is read, and text that is written value by value.
 *
 *     cloob_json_doc *doc;
 *     if (cloob_json_parse(ctx, text, bytes, "request", 0, &doc) != CLOOB_OK) puts(cloob_error(ctx));
 *     const char *model = cloob_json_text(cloob_json_get(cloob_json_root(doc), "model"));
 *     cloob_json_close(doc);
 *
 *     cloob_json_out w = { 0 };
 *     cloob_json_begin(&w, NULL, '{');
 *     cloob_json_put_text(&w, "name", "cat");
 *     cloob_json_end(&w);                                   w.data: {"name":"cat"}
 *     free(w.data);
 *
 * Reading is strict (RFC 8259), at most 64 levels deep, and refuses duplicate keys. */
#ifndef CLOOB_JSON_H
#define CLOOB_JSON_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading ------------------------------------------------------------------------------------- */

typedef struct cloob_json_doc cloob_json_doc;
typedef struct cloob_json cloob_json; /* a value of the tree; belongs to the document */

typedef enum cloob_json_kind {
    CLOOB_JSON_NULL = 0,
    CLOOB_JSON_BOOL,
    CLOOB_JSON_NUMBER,
    CLOOB_JSON_STRING,
    CLOOB_JSON_ARRAY,
    CLOOB_JSON_OBJECT
} cloob_json_kind;

/* name is for messages, which give line and column. max_values bounds the values of the tree, and so its memory; 0: no
 * bound. On failure *out is NULL. */
CLOOB_API cloob_status cloob_json_parse(cloob_ctx *ctx, const char *text, size_t bytes, const char *name,
                                        int64_t max_values, cloob_json_doc **out);
CLOOB_API void cloob_json_close(cloob_json_doc *doc);
CLOOB_API const cloob_json *cloob_json_root(const cloob_json_doc *doc);

/* All take NULL, which counts as absent. */
CLOOB_API cloob_json_kind cloob_json_kind_of(const cloob_json *v);                     /* NULL: CLOOB_JSON_NULL */
CLOOB_API const cloob_json *cloob_json_get(const cloob_json *object, const char *key); /* NULL: absent */
CLOOB_API int64_t cloob_json_count(const cloob_json *v);                               /* elements or members */
CLOOB_API const cloob_json *cloob_json_first(const cloob_json *v);                     /* first element or member */
CLOOB_API const cloob_json *cloob_json_next(const cloob_json *v);                      /* its next sibling */
CLOOB_API const char *cloob_json_key(const cloob_json *v);                             /* of a member; else NULL */
CLOOB_API const char *cloob_json_text(const cloob_json *v);                            /* NULL unless a string */
CLOOB_API bool cloob_json_number(const cloob_json *v, double *out); /* false unless a number; *out is kept */
CLOOB_API bool cloob_json_int(const cloob_json *v, int64_t *out);   /* false unless an exact integer */
CLOOB_API bool cloob_json_bool(const cloob_json *v, bool *out);     /* false unless true or false */

/* ---- writing ------------------------------------------------------------------------------------- */

/* Zero-initialised is empty. Commas come by themselves; the caller frees data, which is zero-terminated. When memory is
 * out `failed` is set and the rest is dropped: check it once at the end. */
typedef struct cloob_json_out {
    char *data;
    size_t len, cap;
    bool failed, more; /* more: a comma is due before the next value */
    bool spaced;       /* set it for blanks behind commas and colons */
    int lines;         /* set it for members on lines of their own, down to this depth */
    int depth;
    char close[64]; /* closing brackets of what is open */
} cloob_json_out;

/* key is NULL inside an array and for the root. open is '{' or '['. */
CLOOB_API void cloob_json_begin(cloob_json_out *w, const char *key, char open);
CLOOB_API void cloob_json_end(cloob_json_out *w);
/* text NULL writes null; bytes that are not UTF-8 become U+FFFD. */
CLOOB_API void cloob_json_put_text(cloob_json_out *w, const char *key, const char *text);
CLOOB_API void cloob_json_put_number(cloob_json_out *w, const char *key, double value); /* not finite: null */
CLOOB_API void cloob_json_put_digits(cloob_json_out *w, const char *key, double value,
                                     int digits); /* significant ones */
CLOOB_API void cloob_json_put_int(cloob_json_out *w, const char *key, int64_t value);
CLOOB_API void cloob_json_put_bool(cloob_json_out *w, const char *key, bool value);
CLOOB_API void cloob_json_put_null(cloob_json_out *w, const char *key);
/* A list of n numbers, each with the 9 digits that give the same float back. */
CLOOB_API void cloob_json_put_floats(cloob_json_out *w, const char *key, const float *row, int64_t n);
/* JSON text that is ready. */
CLOOB_API void cloob_json_put_raw(cloob_json_out *w, const char *key, const char *json, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
