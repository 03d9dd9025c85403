/* Small parsers of what clients send: hosts, data URLs, multipart bodies, names of files. */
#ifndef SERVE_TEXT_H
#define SERVE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The last part of a path without its ending, in a new string; NULL when out of memory. */
char *text_stem(const char *path);

/* Whether two names mean one model, which every project spells in its own way: letters and digits count, case and what
 * separates them does not. ViT-B-32__laion2b-s34b-b79k (immich) is ViT-B-32/laion2b_s34b_b79k (open_clip). Ollama's tag
 * :latest is ignored. */
bool model_name_same(const char *a, const char *b);

/* A host and its port, as the Host header and the part of an Origin after "://" have them: NAME, NAME:PORT, [ADDRESS]
 * or [ADDRESS]:PORT. */
enum { HOST_NAME = 256 };

typedef struct host_port {
    char name[HOST_NAME]; /* lower case; an IPv6 address without its brackets */
    int port;             /* -1: none is given */
} host_port;

/* Also reads a bare IPv6 address, as --host takes it. false: not a host, or more than a host and its port. */
bool host_parse(const char *text, host_port *out);
/* localhost, 127.0.0.0/8 or ::1, the whole name. */
bool host_is_loopback(const host_port *h);

/* "data:image/png;base64,AAAA": where the base64 begins, or NULL when it is no such URL of an image. */
const char *data_url_image(const char *text);

/* One part of a multipart/form-data body; name, filename and type are zero-terminated copies, "" when absent. */
enum { PART_NAME = 64, PART_MAX = 64 };

typedef struct form_part {
    char name[PART_NAME], filename[PART_NAME], type[PART_NAME];
    const char *data; /* inside the body */
    size_t bytes;
} form_part;

/* The parts of a body with this Content-Type. Returns how many, at most PART_MAX; -1: not well formed. */
int multipart_parse(const char *content_type, const char *body, size_t bytes, form_part part[PART_MAX]);

/* "2020-01-31", with or without a time as in RFC 3339, as nanoseconds since 1970 (UTC). false: not a date. */
bool date_parse(const char *text, int64_t *ns);
/* The reverse, as 2020-01-31T12:00:00Z. */
void date_print(int64_t ns, char out[32]);

#endif
