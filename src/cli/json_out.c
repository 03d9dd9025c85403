/* Whatever a file name or a message holds, what is printed is valid JSON. */
#include "cli/json_out.h"

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

void json_out_string(const char *text)
{
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        int n = sequence(c);
        if (n == 0) fputs("\\ufffd", stdout);
        else if (*c == '"' || *c == '\\') printf("\\%c", *c);
        else if (*c < 0x20) printf("\\u%04x", *c);
        else fwrite(c, 1, (size_t)n, stdout);
        c += n ? n : 1;
    }
    putchar('"');
}
