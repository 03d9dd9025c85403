/* JSON as a tree in an arena, and JSON text from values.
 *
 * Reading is strict (RFC 8259), bounded in depth, and refuses duplicate keys, because a file with a key twice is
 * ambiguous. Text must be UTF-8; strings are zero-terminated, and a string with an embedded zero is refused.
 *
 *     arena a = { 0 };
 *     json *root;
 *     CLOOB_TRY(json_parse(ctx, &a, text, len, "config.json", &root));
 *     const json *width = json_get(root, "width");           NULL when absent
 */
#ifndef CORE_JSON_H
#define CORE_JSON_H

#include "core/arena.h"
#include "core/ctx.h"
#include "core/sbuf.h"

/* ---- reading ------------------------------------------------------------------------------------- */

typedef enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind;

typedef struct json json;
struct json {
    json_kind kind;
    bool boolean;
    double number;
    const char *text; /* the string; for a number, its spelling */
    const char *key;  /* inside an object */
    json *child;      /* first element or member */
    json *next;       /* next sibling */
    int64_t count;    /* elements or members */
};

/* A tree takes up to 128 bytes for a value, a file two. Large vocabularies have 4 million values. */
enum { JSON_MAX_VALUES = 1 << 23 };

/* name is used in messages. The error text has line and column. Fails where there are more than JSON_MAX_VALUES. */
cloob_status json_parse(cloob_ctx *ctx, arena *a, const char *text, size_t len, const char *name, json **root);
cloob_status json_read_file(cloob_ctx *ctx, arena *a, const char *path, json **root);

/* A tree with its own arena, of at most max_values values. On failure *out is NULL. */
typedef struct json_doc {
    arena a;
    json *root;
} json_doc;

cloob_status json_doc_parse(cloob_ctx *ctx, const char *text, size_t bytes, const char *name, int64_t max_values,
                            json_doc **out);
void json_doc_close(json_doc *doc);
const json *json_doc_root(const json_doc *doc);

/* All take NULL, which counts as absent. */
json_kind json_kind_of(const json *v);                       /* NULL: JSON_NULL */
const json *json_get(const json *object, const char *key);   /* NULL when absent or not an object */
double json_get_number(const json *object, const char *key); /* NaN when it is not a number */
int64_t json_count(const json *v);                           /* elements or members */
const json *json_first(const json *v);                       /* first element or member */
const json *json_next(const json *v);                        /* its next sibling */
const char *json_key(const json *v);                         /* of a member; else NULL */
const char *json_string(const json *v);                      /* NULL unless a string */
bool json_number(const json *v, double *out);                /* false unless a number; *out is kept */
bool json_int(const json *v, int64_t *out);                  /* false unless an integer that fits exactly */
bool json_bool(const json *v, bool *out);                    /* false unless true or false */

/* ---- writing ------------------------------------------------------------------------------------- */

/* Zero-initialised is empty. Commas are added automatically; the caller frees data, which is zero-terminated. When
 * out of memory, `failed` is set and the rest is dropped: check it once at the end. */
typedef struct json_out {
    union {
        sbuf text;
        struct { /* the same, as members of the writer */
            char *data;
            size_t len, cap;
            bool failed;
        };
    };
    bool more;   /* a comma is due before the next value */
    bool spaced; /* set it for blanks behind commas and colons */
    int lines;   /* set it for members on lines of their own, down to this depth */
    int depth;
    char close[64]; /* closing brackets of what is open */
} json_out;

/* key is NULL inside an array and for the root. open is '{' or '['. */
void json_begin(json_out *w, const char *key, char open);
void json_end(json_out *w);
/* text NULL writes null; bytes that are not UTF-8 become U+FFFD. */
void json_put_text(json_out *w, const char *key, const char *text);
void json_put_number(json_out *w, const char *key, double value);             /* not finite: null */
void json_put_digits(json_out *w, const char *key, double value, int digits); /* significant ones */
void json_put_int(json_out *w, const char *key, int64_t value);
void json_put_bool(json_out *w, const char *key, bool value);
void json_put_null(json_out *w, const char *key);
/* A list of n numbers, each with the 9 digits that give the same float back. */
void json_put_floats(json_out *w, const char *key, const float *row, int64_t n);
/* JSON text that is ready. */
void json_put_raw(json_out *w, const char *key, const char *json, size_t bytes);

/* Several members in one call, and an object of them:
 *
 *     json_object(&w, NULL, J_TEXT("run", path), J_OF(s, steps), J_NUMBER("loss", s->loss, 9), J_BOOL("best", i == 0));
 *
 * J_OF(s, steps) is the member `steps` of the struct that s points to, under that key: a text, a bool or an integer.
 * The digits of J_NUMBER are significant ones; 0: as json_put_number. */
typedef struct json_member {
    const char *key;
    enum { JSON_MEMBER_TEXT, JSON_MEMBER_INT, JSON_MEMBER_BOOL, JSON_MEMBER_NUMBER } kind;
    int digits;
    const char *text;
    int64_t whole;
    double number;
} json_member;

static inline json_member json_member_text(const char *key, const char *v)
{
    return (json_member){ .key = key, .kind = JSON_MEMBER_TEXT, .text = v };
}
static inline json_member json_member_int(const char *key, int64_t v)
{
    return (json_member){ .key = key, .kind = JSON_MEMBER_INT, .whole = v };
}
static inline json_member json_member_bool(const char *key, bool v)
{
    return (json_member){ .key = key, .kind = JSON_MEMBER_BOOL, .whole = v };
}

#define J_TEXT(key, value) json_member_text(key, value)
#define J_INT(key, value)  json_member_int(key, value)
#define J_BOOL(key, value) json_member_bool(key, value)
#define J_NUMBER(key_, value, count)                                                                                   \
    ((json_member){ .key = key_, .kind = JSON_MEMBER_NUMBER, .digits = count, .number = value })
#define J_OF(s, member)                                                                                                \
    _Generic((s)->member,                                                                                              \
        bool: json_member_bool,                                                                                        \
        char *: json_member_text,                                                                                      \
        const char *: json_member_text,                                                                                \
        default: json_member_int)(#member, (s)->member)
#define JSON_MEMBERS(...)                                                                                              \
    (const json_member[]){ __VA_ARGS__ }, sizeof((const json_member[]){ __VA_ARGS__ }) / sizeof(json_member)

void json_put_members(json_out *w, const json_member *member, size_t count);
#define json_members(w, ...)     json_put_members(w, JSON_MEMBERS(__VA_ARGS__))
#define json_object(w, key, ...) (json_begin(w, key, '{'), json_members(w, __VA_ARGS__), json_end(w))

/* Ends a root with a line end and gives its text, which the caller frees; NULL: out of
 * memory. Or appends it to other text. The writer is empty then. */
char *json_out_line(json_out *w);
void json_out_append(json_out *w, sbuf *out);
/* A writer that appends to the text of s. It takes the text over; json_out_back returns all of it to s. */
json_out json_out_on(sbuf *s);
void json_out_back(json_out *w, sbuf *s);

/* Appends text as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD. */
void json_print_string(sbuf *s, const char *text);
/* Shortest decimal that reads back to the same double; NaN and infinities become null. */
void json_print_number(sbuf *s, double value);
/* The 9 significant digits that give the same float back, or null; returns the length, at most 24, without a zero. */
size_t json_print_float(float value, char *text);

#endif
