/* Whatever a file name or a message holds, what is printed is valid JSON. */
#include "cli/json_out.h"

#include <math.h>
#include <stdio.h>

/* Bytes of the well-formed sequence at c (overlong forms and surrogates are not), or 0. */
static int sequence(const unsigned char *c)
{
    int n = c[0] < 0x80                   ? 1
            : c[0] >= 0xC2 && c[0] < 0xE0 ? 2
            : (c[0] & 0xF0) == 0xE0       ? 3
            : c[0] >= 0xF0 && c[0] < 0xF5 ? 4
                                          : 0;
    for (int i = 1; i < n; i++)
        if ((c[i] & 0xC0) != 0x80) return 0; /* the terminator too */
    if (n == 3 && ((c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xED && c[1] >= 0xA0))) return 0;
    if (n == 4 && ((c[0] == 0xF0 && c[1] < 0x90) || (c[0] == 0xF4 && c[1] >= 0x90))) return 0;
    return n;
}

static FILE *file; /* NULL: stdout */

static FILE *out(void) { return file ? file : stdout; }

void json_out_to(FILE *f) { file = f; }

void json_out_string(const char *text)
{
    fputc('"', out());
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        int n = sequence(c);
        if (n == 0) fputs("\\ufffd", out());
        else if (*c == '"' || *c == '\\') fprintf(out(), "\\%c", *c);
        else if (*c < 0x20) fprintf(out(), "\\u%04x", *c);
        else fwrite(c, 1, (size_t)n, out());
        c += n ? n : 1;
    }
    fputc('"', out());
}

/* ---- structure ----------------------------------------------------------------------------------- */

enum { DEEPEST = 16 };
static char closing[DEEPEST];
static bool filled[DEEPEST]; /* something stands there already */
static int depth;

static void begin_value(const char *key)
{
    if (depth > 0 && filled[depth - 1]) fputs(", ", out());
    if (depth > 0) filled[depth - 1] = true;
    if (!key) return;
    json_out_string(key);
    fputs(": ", out());
}

void json_out_open(const char *key, char bracket)
{
    begin_value(key);
    fputc(bracket, out());
    closing[depth] = bracket == '{' ? '}' : ']';
    filled[depth++] = false;
}

void json_out_close(void)
{
    fputc(closing[--depth], out());
    if (depth == 0) fputc('\n', out());
}

void json_out_text(const char *key, const char *value)
{
    begin_value(key);
    if (value) json_out_string(value);
    else fputs("null", out());
}

void json_out_int(const char *key, int64_t value)
{
    begin_value(key);
    fprintf(out(), "%lld", (long long)value);
}

void json_out_number(const char *key, double value, int digits)
{
    begin_value(key);
    if (isfinite(value)) fprintf(out(), "%.*g", digits, value);
    else fputs("null", out());
}

void json_out_bool(const char *key, bool value)
{
    begin_value(key);
    fputs(value ? "true" : "false", out());
}

void json_out_null(const char *key) { json_out_text(key, NULL); }

void json_out_raw(const char *key, const char *json)
{
    begin_value(key);
    fputs(json ? json : "null", out());
}
