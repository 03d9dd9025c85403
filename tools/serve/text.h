/* Small parsers of clients' input: hosts, data URLs, multipart bodies, file names, dates. */
#ifndef SERVE_TEXT_H
#define SERVE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the last component of a path without its extension, in a new string; NULL: out of memory. */
char *text_stem(const char *path);

/* Whether two spellings name the same model: only letters and digits are compared, without case, and Ollama's tag
 * :latest is ignored. immich writes ViT-B-32__laion2b-s34b-b79k, open_clip ViT-B-32/laion2b_s34b_b79k. */
bool model_name_same(const char *a, const char *b);

/* A host and port, as in a Host header or in an Origin after "://": NAME, NAME:PORT, [ADDRESS] or [ADDRESS]:PORT. */
enum { HOST_NAME = 256 };

typedef struct host_port {
    char name[HOST_NAME]; /* lower case; an IPv6 address without brackets */
    int port;             /* -1: not specified */
} host_port;

/* Parses a host and port; also accepts a bare IPv6 address, as in --host. false: invalid. */
bool host_parse(const char *text, host_port *out);
/* Whether the host is localhost, 127.0.0.0/8 or ::1. */
bool host_is_loopback(const host_port *h);

/* Returns the start of the base64 in "data:image/png;base64,AAAA"; NULL if text is not an image data URL. */
const char *data_url_image(const char *text);

/* One part of a multipart/form-data body. name, filename and type are copies; "" if absent. */
enum { PART_NAME = 64, PART_MAX = 64 };

typedef struct form_part {
    char name[PART_NAME], filename[PART_NAME], type[PART_NAME];
    const char *data; /* points into the body */
    size_t bytes;
} form_part;

/* Parses a multipart body with this Content-Type. Returns the number of parts, at most PART_MAX; -1: malformed. */
int multipart_parse(const char *content_type, const char *body, size_t bytes, form_part part[PART_MAX]);

/* Parses "2020-01-31", with or without a time as in RFC 3339, to nanoseconds since 1970 (UTC). false: invalid. */
bool date_parse(const char *text, int64_t *ns);
/* The inverse, formatted as 2020-01-31T12:00:00Z. */
void date_print(int64_t ns, char out[32]);

#endif
