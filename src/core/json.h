/* JSON as a tree in an arena, and JSON text from values.
 *
 * Reading is strict (RFC 8259), bounded in depth, and refuses duplicate keys, because a file that says a
 * thing twice cannot be trusted to mean either. Text must be UTF-8; strings come zero-terminated, and a
 * string with an embedded zero is refused.
 *
 *     arena a = { 0 };
 *     json *root;
 *     CLOOB_TRY(json_parse(ctx, &a, text, len, "config.json", &root));
 *     const json *width = json_get(root, "width");           NULL when absent
 */
#ifndef CORE_JSON_H
#define CORE_JSON_H

#include "cloob/json.h"
#include "core/arena.h"
#include "core/ctx.h"
#include "core/sbuf.h"

typedef enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind;

/* The public handle is the value itself. */
typedef struct cloob_json json;
struct cloob_json {
    json_kind kind;
    bool boolean;
    double number;
    const char *text; /* the string; for a number, its spelling */
    const char *key;  /* inside an object */
    json *child;      /* first element or member */
    json *next;       /* next sibling */
    int64_t count;    /* elements or members */
};

/* name is used in messages. On failure the text says line and column. */
cloob_status json_parse(cloob_ctx *ctx, arena *a, const char *text, size_t len, const char *name, json **root);
/* The same with at most max_values values (0: any number): what a client sends is bounded in memory. */
cloob_status json_parse_bounded(cloob_ctx *ctx, arena *a, const char *text, size_t len, const char *name,
                                int64_t max_values, json **root);
cloob_status json_read_file(cloob_ctx *ctx, arena *a, const char *path, json **root);

const json *json_get(const json *object, const char *key); /* NULL when absent or not an object */
bool json_int(const json *value, int64_t *out);            /* false unless an integer that fits exactly */
const char *json_string(const json *value);                /* NULL unless a string */

/* Writing, beyond cloob/json.h: ends a root with a line end and gives its text, which the caller frees; NULL: out of
 * memory. Or appends it to other text. The writer is empty then. */
char *json_out_line(cloob_json_out *w);
void json_out_append(cloob_json_out *w, sbuf *out);
/* A writer that appends to the text of s. It takes the text over; json_out_back returns all of it to s. */
cloob_json_out json_out_on(sbuf *s);
void json_out_back(cloob_json_out *w, sbuf *s);

/* Appends text as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD. */
void json_put_string(sbuf *s, const char *text);
/* Shortest decimal that reads back to the same double; NaN and infinities become null. */
void json_put_number(sbuf *s, double value);
/* The 9 significant digits that give the same float back, or null; returns the length, at most 24, without a zero. */
size_t json_print_float(float value, char *text);

#endif
