/* OpenAPI 3.1 of the table of routes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/route.h"
#include "serve/schemas.h"

static void put_schema(cloob_json_out *w, const char *json) { cloob_json_put_raw(w, "schema", json, strlen(json)); }

/* "content": {TYPE: {"schema": ...}}, several types with the same one. */
static void put_content(cloob_json_out *w, const char *const *type, const char *schema)
{
    cloob_json_begin(w, "content", '{');
    for (int i = 0; type[i]; i++) {
        cloob_json_begin(w, type[i], '{');
        put_schema(w, schema);
        cloob_json_end(w);
    }
    cloob_json_end(w);
}

static void put_parameter(cloob_json_out *w, const char *name, size_t bytes, const char *where, const char *type,
                          bool needed)
{
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)bytes, name);
    cloob_json_begin(w, NULL, '{');
    cloob_json_put_text(w, "name", text);
    cloob_json_put_text(w, "in", where);
    cloob_json_put_bool(w, "required", needed);
    cloob_json_begin(w, "schema", '{');
    cloob_json_put_text(w, "type", type);
    cloob_json_end(w);
    cloob_json_end(w);
}

/* query is "index:string path:string! size:integer". */
static void put_parameters(cloob_json_out *w, const route *r)
{
    const char *brace = strchr(r->path, '{');
    if (!r->query && !brace) return;
    cloob_json_begin(w, "parameters", '[');
    if (brace) put_parameter(w, brace + 1, strcspn(brace + 1, "}"), "path", "string", true);
    for (const char *c = r->query; c && *c;) {
        size_t name = strcspn(c, ":"), word = strcspn(c, " ");
        char type[16];
        bool needed = c[word - 1] == '!';
        snprintf(type, sizeof type, "%.*s", (int)(word - name - 1 - needed), c + name + 1);
        put_parameter(w, c, name, "query", type, needed);
        c += word + (c[word] == ' ');
    }
    cloob_json_end(w);
}

static void put_request(cloob_json_out *w, const route *r)
{
    static const char *const json[] = { "application/json", NULL }, *const form[] = { "multipart/form-data", NULL };
    if (!r->request) return;
    cloob_json_begin(w, "requestBody", '{');
    cloob_json_put_bool(w, "required", true);
    put_content(w, r->flags & ROUTE_FORM ? form : json, r->request);
    cloob_json_end(w);
}

static void put_answer(cloob_json_out *w, const char *code, const char *what, const char *type, const char *schema)
{
    const char *const types[] = { type, NULL };
    cloob_json_begin(w, code, '{');
    cloob_json_put_text(w, "description", what);
    put_content(w, types, schema);
    cloob_json_end(w);
}

static void put_answers(cloob_json_out *w, const route *r)
{
    static const char *const errors[] = { REF("Error"), REF("TeiError"), REF("Detail") };
    static const char *const codes[][2] = { { "400", "The request cannot be used." },
                                            { "401", "The API key is missing or wrong." },
                                            { "403", "A request of another site." },
                                            { "404", "There is no such thing." },
                                            { "405", "The path takes another method." },
                                            { "408", "The request took too long to arrive." },
                                            { "413", "The body is too large." },
                                            { "422", "The values cannot be used." },
                                            { "429", "The queue is full; see Retry-After." },
                                            { "503", "Starting, ending, or out of memory; see Retry-After." } };
    bool json = *r->response == '{';
    cloob_json_begin(w, "responses", '{');
    put_answer(w, "200", "Done.", json ? "application/json" : r->response,
               json ? r->response : "{\"type\":\"string\"}");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        put_answer(w, codes[i][0], codes[i][1], "application/json", errors[r->errors]);
    cloob_json_end(w);
}

static void put_operation(cloob_json_out *w, const route *r)
{
    char id[96], method[8] = { 0 };
    int n = 0;
    for (const char *c = r->path; *c && n < 90; c++)
        if ((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9')) id[n++] = *c;
        else if (n && id[n - 1] != '_') id[n++] = '_';
    while (n && id[n - 1] == '_') n--;
    id[n] = 0;
    for (int i = 0; r->method[i] && i < 7; i++) method[i] = (char)(r->method[i] + ('a' - 'A'));
    cloob_json_begin(w, method, '{');
    cloob_json_put_text(w, "operationId", id);
    cloob_json_put_text(w, "summary", r->doc);
    put_parameters(w, r);
    put_request(w, r);
    put_answers(w, r);
    if (r->flags & ROUTE_OPEN) cloob_json_put_raw(w, "security", "[]", 2);
    cloob_json_end(w);
}

char *route_openapi(size_t *bytes)
{
    static const char security[] = "{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"}}";
    cloob_json_out w = { 0 };
    cloob_json_begin(&w, NULL, '{');
    cloob_json_put_text(&w, "openapi", "3.1.0");
    cloob_json_begin(&w, "info", '{');
    cloob_json_put_text(&w, "title", "cloob serve");
    cloob_json_put_text(&w, "version", cloob_version());
    cloob_json_end(&w);
    cloob_json_begin(&w, "paths", '{');
    for (const route *r = routes; r->method; r++) {
        if (r->flags & ROUTE_HIDDEN) continue;
        cloob_json_begin(&w, r->path, '{');
        put_operation(&w, r);
        cloob_json_end(&w);
    }
    cloob_json_end(&w);
    cloob_json_begin(&w, "components", '{');
    cloob_json_begin(&w, "schemas", '{');
    for (const route_schema *s = route_schemas; s->name; s++) cloob_json_put_raw(&w, s->name, s->json, strlen(s->json));
    cloob_json_end(&w);
    cloob_json_put_raw(&w, "securitySchemes", security, sizeof security - 1);
    cloob_json_end(&w);
    cloob_json_end(&w);
    if (w.failed) free(w.data), w.data = NULL;
    *bytes = w.len;
    return w.data;
}
