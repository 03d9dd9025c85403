/* OpenAPI 3.1 of the table of routes, and the schemas that it refers to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/http.h"

#define OBJECT(required, properties) "{\"type\":\"object\",\"required\":[" required "],\"properties\":{" properties "}}"
#define STRICT(required, properties)                                                                                   \
    "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[" required "],\"properties\":{" properties "}}"
#define LIST(item)  "{\"type\":\"array\",\"items\":" item "}"
#define TEXT        "{\"type\":\"string\"}"
#define TEXTS       LIST(TEXT)
#define INT         "{\"type\":\"integer\"}"
#define NUM         "{\"type\":\"number\"}"
#define BOOL        "{\"type\":[\"boolean\",\"null\"]}"
#define MAYBE_TEXT  "{\"type\":[\"string\",\"null\"]}"
#define MAYBE_TEXTS "{\"type\":[\"array\",\"null\"],\"items\":" TEXT "}"
#define MAYBE_NUM   "{\"type\":[\"number\",\"null\"]}"
#define SKIP        "{\"enum\":[\"fail\",\"skip\",null]}"
#define ERRORS      LIST(MAYBE_TEXT)
#define COUNT       "{\"type\":[\"integer\",\"null\"],\"minimum\":1}"

/* clang-format off */
static const struct {
    const char *name, *json;
} schemas[] = {
    { "Row", LIST(NUM) },
    { "Image", "{\"type\":\"string\",\"description\":\"A data:image/...;base64, URL, bare base64, or an http(s) URL whose host is allowed.\"}" },
    { "Input", "{\"anyOf\":[" TEXT "," OBJECT("\"text\"", "\"text\":" TEXT) "," OBJECT("\"image\"", "\"image\":" REF("Image")) ","
               "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0},\"minItems\":1}]}" },
    { "EmbeddingsRequest",
      OBJECT("", "\"input\":{\"anyOf\":[" REF("Input") ",{\"type\":\"array\",\"minItems\":1,\"items\":" REF("Input") "}]},"
             "\"model\":" MAYBE_TEXT ",\"encoding_format\":{\"enum\":[\"float\",\"base64\",null]},\"dimensions\":" COUNT ","
             "\"user\":" MAYBE_TEXT ",\"modality\":{\"enum\":[\"text\",\"image\",null]},\"normalized\":" BOOL ","
             "\"embedding_type\":{\"enum\":[\"float\",\"base64\",null]},"
             "\"messages\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}}") },
    { "EmbeddingsResponse",
      OBJECT("\"object\",\"data\",\"model\",\"usage\"", "\"object\":{\"const\":\"list\"},"
             "\"data\":" LIST(OBJECT("\"object\",\"index\",\"embedding\"", "\"object\":{\"const\":\"embedding\"},\"index\":" INT ","
             "\"embedding\":{\"anyOf\":[" REF("Row") "," TEXT "]}")) ","
             "\"model\":" TEXT ",\"usage\":" OBJECT("\"prompt_tokens\",\"total_tokens\"", "\"prompt_tokens\":" INT ",\"total_tokens\":" INT)) },
    { "Models", OBJECT("\"object\",\"data\"", "\"object\":{\"const\":\"list\"},\"data\":" LIST(OBJECT("\"id\",\"object\"",
             "\"id\":" TEXT ",\"object\":{\"const\":\"model\"},\"dimensions\":" INT ",\"image\":" BOOL ",\"text\":" BOOL ",\"state\":{\"enum\":[\"ready\",\"failed\"]},\"error\":" TEXT))) },
    { "EmbedRequest", OBJECT("\"inputs\"", "\"inputs\":{\"anyOf\":[" REF("Input") ",{\"type\":\"array\",\"minItems\":1,\"items\":" REF("Input") "}]},"
             "\"normalize\":" BOOL ",\"truncate\":" BOOL ",\"dimensions\":" COUNT) },
    { "Predict", OBJECT("\"entries\"", "\"entries\":" TEXT ",\"image\":{\"type\":\"string\",\"format\":\"binary\"},\"text\":" TEXT) },
    { "Prediction", OBJECT("", "\"clip\":" TEXT ",\"facial-recognition\":{\"type\":\"array\"},\"ocr\":{\"type\":\"object\"},\"imageHeight\":" INT ",\"imageWidth\":" INT) },
    { "SentencePairs", OBJECT("\"inputs\"", "\"inputs\":" OBJECT("\"source_sentence\",\"sentences\"", "\"source_sentence\":" TEXT ",\"sentences\":" TEXTS) ","
             "\"parameters\":{\"type\":[\"object\",\"null\"],\"properties\":{\"truncate\":" BOOL "}}") },
    { "TokenizeRequest", OBJECT("\"inputs\"", "\"inputs\":{\"anyOf\":[" TEXT "," TEXTS "]},\"add_special_tokens\":" BOOL) },
    { "Tokens", LIST(LIST(OBJECT("\"id\",\"text\",\"special\"", "\"id\":" INT ",\"text\":" TEXT ",\"special\":{\"type\":\"boolean\"},\"start\":{\"type\":[\"integer\",\"null\"]},"
             "\"stop\":{\"type\":[\"integer\",\"null\"]}"))) },
    { "DecodeRequest", OBJECT("\"ids\"", "\"ids\":{\"anyOf\":[" LIST(INT) "," LIST(LIST(INT)) "]}") },
    { "OllamaRequest", OBJECT("", "\"model\":" MAYBE_TEXT ",\"input\":{\"anyOf\":[" TEXT "," TEXTS ",{\"type\":\"null\"}]},\"images\":" MAYBE_TEXTS ","
             "\"truncate\":" BOOL ",\"dimensions\":{\"type\":[\"integer\",\"null\"],\"minimum\":0}") },
    { "OllamaResponse", OBJECT("\"model\",\"embeddings\"", "\"model\":" TEXT ",\"embeddings\":" LIST(REF("Row")) ",\"total_duration\":" INT ",\"load_duration\":" INT ","
             "\"prompt_eval_count\":" INT) },
    { "OllamaPrompt", OBJECT("", "\"model\":" MAYBE_TEXT ",\"prompt\":" MAYBE_TEXT ",\"images\":" MAYBE_TEXTS) },
    { "OllamaModels", OBJECT("\"models\"", "\"models\":" LIST(OBJECT("\"name\",\"model\"", "\"name\":" TEXT ",\"model\":" TEXT ",\"modified_at\":" TEXT ",\"size\":" INT ","
             "\"digest\":" TEXT ",\"details\":{\"type\":\"object\"}"))) },
    { "CohereRequest", OBJECT("", "\"model\":" MAYBE_TEXT ",\"input_type\":" MAYBE_TEXT ",\"texts\":" MAYBE_TEXTS ",\"images\":" MAYBE_TEXTS ","
             "\"inputs\":{\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"object\"}},\"embedding_types\":{\"type\":[\"array\",\"null\"],\"items\":"
             "{\"enum\":[\"float\",\"base64\",\"binary\",\"ubinary\"]}},\"output_dimension\":" COUNT ",\"truncate\":{\"enum\":[\"END\",\"NONE\",null]}") },
    { "CohereResponse", OBJECT("\"id\",\"embeddings\"", "\"id\":" TEXT ",\"embeddings\":{\"type\":\"object\"},\"texts\":" TEXTS ",\"meta\":{\"type\":\"object\"}") },
    { "VectorizeRequest", OBJECT("", "\"texts\":" MAYBE_TEXTS ",\"images\":" MAYBE_TEXTS) },
    { "VectorizeResponse", OBJECT("\"textVectors\",\"imageVectors\"", "\"textVectors\":" LIST(REF("Row")) ",\"imageVectors\":" LIST(REF("Row"))) },
    { "VectorsRequest", OBJECT("\"text\"", "\"text\":" TEXT ",\"config\":{\"type\":[\"object\",\"null\"]}") },
    { "VectorsResponse", OBJECT("\"text\",\"vector\",\"dim\"", "\"text\":" TEXT ",\"vector\":" REF("Row") ",\"dim\":" INT) },
    { "KnnRequest", OBJECT("", "\"text\":" MAYBE_TEXT ",\"image\":" MAYBE_TEXT ",\"image_url\":" MAYBE_TEXT ",\"embedding_input\":{\"anyOf\":[" REF("Row") ",{\"type\":\"null\"}]},"
             "\"modality\":{\"enum\":[\"image\",\"text\",null]},\"num_images\":" COUNT ",\"num_result_ids\":" COUNT ",\"indice_name\":" MAYBE_TEXT) },
    { "MetadataRequest", OBJECT("\"ids\"", "\"ids\":{\"type\":\"array\",\"maxItems\":10000,\"items\":" INT "},\"indice_name\":" MAYBE_TEXT) },
    { "ClassifyRequest", STRICT("\"images\",\"labels\"", "\"images\":{\"type\":\"array\",\"minItems\":1,\"items\":" REF("Image") "},"
             "\"labels\":{\"type\":\"array\",\"minItems\":2,\"items\":" TEXT "},\"templates\":{\"type\":[\"array\",\"null\"],\"items\":" TEXT "},"
             "\"top\":" COUNT ",\"model\":" MAYBE_TEXT ",\"errors\":" SKIP) },
    { "ClassifyResponse", OBJECT("\"results\"", "\"results\":" LIST(OBJECT("\"top\"", "\"top\":" LIST(OBJECT("\"label\",\"p\"", "\"label\":" TEXT ",\"p\":" NUM)))) ",\"errors\":" ERRORS) },
    { "SimilarityRequest", STRICT("\"images\",\"texts\"", "\"images\":{\"type\":\"array\",\"minItems\":1,\"items\":" REF("Image") "},"
             "\"texts\":{\"type\":\"array\",\"minItems\":1,\"items\":" TEXT "},\"model\":" MAYBE_TEXT ",\"errors\":" SKIP ","
             "\"hopfield\":{\"anyOf\":[{\"type\":\"null\"}," STRICT("", "\"scale\":{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":10000},\"index\":" MAYBE_TEXT) "]}") },
    { "SimilarityResponse", OBJECT("\"similarity\",\"images\",\"texts\"", "\"errors\":" ERRORS ",\"similarity\":" LIST(REF("Row")) ",\"images\":" INT ",\"texts\":" INT ","
             "\"retrieved\":{\"anyOf\":[" LIST(REF("Row")) ",{\"type\":\"null\"}]}") },
    { "Term", STRICT("", "\"text\":" TEXT ",\"image\":" REF("Image") ",\"like\":" TEXT ",\"weight\":" NUM) },
    { "SearchRequest", STRICT("", "\"text\":" MAYBE_TEXT ",\"image\":" MAYBE_TEXT ",\"terms\":{\"type\":[\"array\",\"null\"],\"items\":" REF("Term") "},"
             "\"index\":" MAYBE_TEXT ",\"limit\":{\"type\":[\"integer\",\"null\"],\"minimum\":1,\"maximum\":1000},\"offset\":{\"type\":[\"integer\",\"null\"],\"minimum\":0},"
             "\"threshold\":" MAYBE_NUM ",\"folder\":" MAYBE_TEXT ",\"name\":" MAYBE_TEXT ",\"after\":" MAYBE_TEXT ",\"before\":" MAYBE_TEXT) },
    { "SearchResponse", OBJECT("\"index\",\"total\",\"results\"", "\"index\":" TEXT ",\"total\":" INT ",\"took_ms\":" NUM ",\"results\":"
             LIST(OBJECT("\"path\",\"score\"", "\"path\":" TEXT ",\"score\":" NUM ",\"width\":" INT ",\"height\":" INT ",\"taken\":" TEXT ",\"date\":" TEXT ",\"thumb\":" TEXT ",\"image\":" TEXT))) },
    { "Indexes", OBJECT("\"indexes\"", "\"indexes\":" LIST(OBJECT("\"name\",\"images\"", "\"name\":" TEXT ",\"state\":{\"enum\":[\"ready\",\"indexing\",\"failed\"]},\"error\":" TEXT ","
             "\"images\":" INT ",\"folders\":" LIST(TEXT) ",\"model\":" TEXT))) },
    { "Map", OBJECT("\"state\"", "\"state\":{\"enum\":[\"ready\",\"computing\",\"failed\"]},\"progress\":" NUM ",\"points\":" LIST(REF("Row")) ",\"paths\":" LIST(TEXT)) },
    { "Error", OBJECT("\"error\"", "\"error\":" OBJECT("\"message\"", "\"message\":" TEXT ",\"type\":" TEXT ",\"param\":{},\"code\":{}")) },
    { "TeiError", OBJECT("\"error\",\"error_type\"", "\"error\":" TEXT ",\"error_type\":" TEXT) },
    { "PlainError", OBJECT("\"error\"", "\"error\":" TEXT) },
    { "Message", OBJECT("\"message\"", "\"message\":" TEXT) },
    { "Detail", OBJECT("\"detail\"", "\"detail\":" TEXT) },
    { NULL, NULL },
};
/* clang-format on */

/* "content": {TYPE: {"schema": ...}} */
static void put_content(json_out *w, const char *type, const char *schema)
{
    json_begin(w, "content", '{');
    json_begin(w, type, '{');
    json_put_raw(w, "schema", schema, strlen(schema));
    json_end(w);
    json_end(w);
}

static void put_parameter(json_out *w, const char *name, size_t bytes, const char *where, const char *type, bool needed)
{
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)bytes, name);
    json_begin(w, NULL, '{');
    json_members(w, J_TEXT("name", text), J_TEXT("in", where), J_BOOL("required", needed));
    json_object(w, "schema", J_TEXT("type", type));
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
    if (!r->request) return;
    json_begin(w, "requestBody", '{');
    json_put_bool(w, "required", true);
    put_content(w, r->flags & ROUTE_FORM ? "multipart/form-data" : "application/json", r->request);
    json_end(w);
}

static void put_answer(json_out *w, const char *code, const char *what, const char *type, const char *schema)
{
    json_begin(w, code, '{');
    json_put_text(w, "description", what);
    put_content(w, type, schema);
    json_end(w);
}

static void put_answers(json_out *w, const route *r)
{
    static const char *const errors[] = { REF("Error"), REF("TeiError"), REF("Detail"), REF("PlainError"),
                                          REF("Message") };
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
    bool is_json = r->response && *r->response == '{';
    json_begin(w, "responses", '{');
    if (!r->response) json_put_raw(w, "204", "{\"description\":\"Done.\"}", 23);
    else
        put_answer(w, "200", "Done.", is_json ? "application/json" : r->response,
                   is_json ? r->response : "{\"type\":\"string\"}");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        put_answer(w, codes[i][0], codes[i][1], "application/json", errors[r->errors]);
    json_end(w);
}

static void put_operation(json_out *w, const route *r)
{
    char id[96] = "root", method[8] = { 0 };
    int n = 0;
    for (const char *c = r->path; *c && n < 90; c++)
        if ((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9')) id[n++] = *c;
        else if (n && id[n - 1] != '_') id[n++] = '_';
    while (n && id[n - 1] == '_') n--;
    if (n) id[n] = 0;
    for (int i = 0; r->method[i] && i < 7; i++) method[i] = (char)(r->method[i] + ('a' - 'A'));
    json_begin(w, method, '{');
    json_members(w, J_TEXT("operationId", id), J_TEXT("summary", r->doc));
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
    json_object(&w, "info", J_TEXT("title", "cloob serve"), J_TEXT("version", cloob_version()));
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
    for (int i = 0; schemas[i].name; i++) json_put_raw(&w, schemas[i].name, schemas[i].json, strlen(schemas[i].json));
    json_end(&w);
    json_put_raw(&w, "securitySchemes", security, sizeof security - 1);
    json_end(&w);
    json_end(&w);
    if (w.failed) free(w.data), w.data = NULL;
    *bytes = w.len;
    return w.data;
}
