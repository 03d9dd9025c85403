/* OpenAPI 3.1 of the table of routes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/route.h"
#include "serve/schemas.h"
#include "core/json.h"

static void put_schema(json_out *w, const char *schema) { json_put_raw(w, "schema", schema, strlen(schema)); }

/* "content": {TYPE: {"schema": ...}}, several types with the same one. */
static void put_content(json_out *w, const char *const *type, const char *schema)
{
    json_begin(w, "content", '{');
    for (int i = 0; type[i]; i++) {
        json_begin(w, type[i], '{');
        put_schema(w, schema);
        json_end(w);
    }
    json_end(w);
}

static void put_parameter(json_out *w, const char *name, size_t bytes, const char *where, const char *type, bool needed)
{
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)bytes, name);
    json_begin(w, NULL, '{');
    json_put_text(w, "name", text);
    json_put_text(w, "in", where);
    json_put_bool(w, "required", needed);
    json_begin(w, "schema", '{');
    json_put_text(w, "type", type);
    json_end(w);
    json_end(w);
}

/* query is "index:string path:string! size:integer". */
static void put_parameters(json_out *w, const route *r)
{
    const char *brace = strchr(r->path, '{');
    if (!r->query && !brace) return;
    json_begin(w, "parameters", '[');
    if (brace) put_parameter(w, brace + 1, strcspn(brace + 1, "}"), "path", "string", true);
    for (const char *c = r->query; c && *c;) {
        size_t name = strcspn(c, ":"), word = strcspn(c, " ");
        char type[16];
        bool needed = c[word - 1] == '!';
        snprintf(type, sizeof type, "%.*s", (int)(word - name - 1 - needed), c + name + 1);
        put_parameter(w, c, name, "query", type, needed);
        c += word + (c[word] == ' ');
    }
    json_end(w);
}

static void put_request(json_out *w, const route *r)
{
    static const char *const json_type[] = { "application/json", NULL }, *const form[] = { "multipart/form-data",
                                                                                           NULL };
    if (!r->request) return;
    json_begin(w, "requestBody", '{');
    json_put_bool(w, "required", true);
    put_content(w, r->flags & ROUTE_FORM ? form : json_type, r->request);
    json_end(w);
}

static void put_answer(json_out *w, const char *code, const char *what, const char *type, const char *schema)
{
    const char *const types[] = { type, NULL };
    json_begin(w, code, '{');
    json_put_text(w, "description", what);
    put_content(w, types, schema);
    json_end(w);
}

static void put_answers(json_out *w, const route *r)
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
    bool is_json = *r->response == '{';
    json_begin(w, "responses", '{');
    put_answer(w, "200", "Done.", is_json ? "application/json" : r->response,
               is_json ? r->response : "{\"type\":\"string\"}");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        put_answer(w, codes[i][0], codes[i][1], "application/json", errors[r->errors]);
    json_end(w);
}

static void put_operation(json_out *w, const route *r)
{
    char id[96], method[8] = { 0 };
    int n = 0;
    for (const char *c = r->path; *c && n < 90; c++)
        if ((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9')) id[n++] = *c;
        else if (n && id[n - 1] != '_') id[n++] = '_';
    while (n && id[n - 1] == '_') n--;
    id[n] = 0;
    for (int i = 0; r->method[i] && i < 7; i++) method[i] = (char)(r->method[i] + ('a' - 'A'));
    json_begin(w, method, '{');
    json_put_text(w, "operationId", id);
    json_put_text(w, "summary", r->doc);
    put_parameters(w, r);
    put_request(w, r);
    put_answers(w, r);
    if (r->flags & ROUTE_OPEN) json_put_raw(w, "security", "[]", 2);
    json_end(w);
}

char *route_openapi(size_t *bytes)
{
    static const char security[] = "{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"}}";
    json_out w = { 0 };
    json_begin(&w, NULL, '{');
    json_put_text(&w, "openapi", "3.1.0");
    json_begin(&w, "info", '{');
    json_put_text(&w, "title", "cloob serve");
    json_put_text(&w, "version", cloob_version());
    json_end(&w);
    json_begin(&w, "paths", '{');
    for (const route *r = routes; r->method; r++) {
        if (r->flags & ROUTE_HIDDEN) continue;
        json_begin(&w, r->path, '{');
        put_operation(&w, r);
        json_end(&w);
    }
    json_end(&w);
    json_begin(&w, "components", '{');
    json_begin(&w, "schemas", '{');
    for (const route_schema *s = route_schemas; s->name; s++) json_put_raw(&w, s->name, s->json, strlen(s->json));
    json_end(&w);
    json_put_raw(&w, "securitySchemes", security, sizeof security - 1);
    json_end(&w);
    json_end(&w);
    if (w.failed) free(w.data), w.data = NULL;
    *bytes = w.len;
    return w.data;
}
