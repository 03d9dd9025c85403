/* JSON on stdout: file names and messages are escaped. */
#include "cli/json_out.h"

#include <stdlib.h>
#include <string.h>

#include "cli/opt.h"
#include "core/json.h"

static FILE *file; /* NULL: stdout */
static json_out w = { .spaced = true };

void json_out_to(FILE *f) { file = f; }

/* Writes the text so far; a root value ends with a new line. */
static void flush(void)
{
    FILE *out = file ? file : stdout;
    if (w.failed) {
        cli_error(NULL, "out of memory");
        _Exit(1);
    }
    if (w.len) fwrite(w.data, 1, w.len, out);
    w.len = 0;
    if (w.depth) return;
    fputc('\n', out);
    free(w.data);
    w = (json_out){ .spaced = true };
}

void json_out_open(const char *key, char bracket) { json_begin(&w, key, bracket), flush(); }
void json_out_close(void) { json_end(&w), flush(); }
void json_out_text(const char *key, const char *value) { json_put_text(&w, key, value), flush(); }
void json_out_int(const char *key, int64_t value) { json_put_int(&w, key, value), flush(); }
void json_out_bool(const char *key, bool value) { json_put_bool(&w, key, value), flush(); }

void json_out_number(const char *key, double value, int digits) { json_put_digits(&w, key, value, digits), flush(); }

void json_out_put(const json_member *member, size_t count) { json_put_members(&w, member, count), flush(); }

void json_out_raw(const char *key, const char *text)
{
    json_put_raw(&w, key, text ? text : "null", strlen(text ? text : "null")), flush();
}
