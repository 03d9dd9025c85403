/* JSON on stdout or into a file, by core/json.h, with a new line after a root value.
 *
 *     json_out_open(NULL, '{');
 *     json_out_text("run", path);
 *     json_out_open("classes", '[');
 *     json_out_text(NULL, "dog");
 *     json_out_close();
 *     json_out_close();                     the outermost one ends the line
 *
 * A key is NULL inside a list. */
#ifndef CLI_JSON_OUT_H
#define CLI_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/json.h"

void json_out_to(FILE *f);                         /* the output from here on; NULL: stdout, the default */
void json_out_open(const char *key, char bracket); /* '{' or '[' */
void json_out_close(void);
void json_out_text(const char *key, const char *value); /* NULL: null */
void json_out_int(const char *key, int64_t value);
void json_out_number(const char *key, double value, int digits); /* significant digits; NaN and infinity: null */
void json_out_bool(const char *key, bool value);
void json_out_raw(const char *key, const char *text); /* text that is JSON already; NULL: null */

/* As json_members and json_object: json_out_object(NULL, J_TEXT("run", path), J_OF(s, steps)). */
void json_out_put(const json_member *member, size_t count);
#define json_out_members(...)     json_out_put(JSON_MEMBERS(__VA_ARGS__))
#define json_out_object(key, ...) (json_out_open(key, '{'), json_out_members(__VA_ARGS__), json_out_close())
#endif
