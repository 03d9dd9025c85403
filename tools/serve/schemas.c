/* Schemas of requests and answers. */
#include "serve/schemas.h"

#include <stddef.h>

#define OBJECT(required, properties) "{\"type\":\"object\",\"required\":[" required "],\"properties\":{" properties "}}"
#define STRICT(required, properties)                                                                                   \
    "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[" required "],\"properties\":{" properties "}}"
#define LIST(item) "{\"type\":\"array\",\"items\":" item "}"
#define TEXT       "{\"type\":\"string\"}"
#define INT        "{\"type\":\"integer\"}"
#define NUM        "{\"type\":\"number\"}"
#define BOOL       "{\"type\":[\"boolean\",\"null\"]}"
#define MAYBE_TEXT "{\"type\":[\"string\",\"null\"]}"
#define MAYBE_NUM  "{\"type\":[\"number\",\"null\"]}"
#define COUNT      "{\"type\":[\"integer\",\"null\"],\"minimum\":1}"

/* clang-format off */
const route_schema route_schemas[] = {
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
             "\"id\":" TEXT ",\"object\":{\"const\":\"model\"},\"dimensions\":" INT ",\"state\":{\"enum\":[\"ready\",\"failed\"]},\"error\":" TEXT))) },
    { "EmbedRequest", OBJECT("\"inputs\"", "\"inputs\":{\"anyOf\":[" REF("Input") ",{\"type\":\"array\",\"minItems\":1,\"items\":" REF("Input") "}]},"
             "\"normalize\":" BOOL ",\"truncate\":" BOOL ",\"dimensions\":" COUNT) },
    { "Predict", OBJECT("\"entries\"", "\"entries\":" TEXT ",\"image\":{\"type\":\"string\",\"format\":\"binary\"},\"text\":" TEXT) },
    { "KnnRequest", OBJECT("", "\"text\":" MAYBE_TEXT ",\"image\":" MAYBE_TEXT ",\"image_url\":" MAYBE_TEXT ",\"embedding_input\":{\"anyOf\":[" REF("Row") ",{\"type\":\"null\"}]},"
             "\"modality\":{\"enum\":[\"image\",\"text\",null]},\"num_images\":" COUNT ",\"num_result_ids\":" COUNT ",\"indice_name\":" MAYBE_TEXT) },
    { "MetadataRequest", OBJECT("\"ids\"", "\"ids\":{\"type\":\"array\",\"maxItems\":10000,\"items\":" INT "},\"indice_name\":" MAYBE_TEXT) },
    { "ClassifyRequest", STRICT("\"images\",\"labels\"", "\"images\":{\"type\":\"array\",\"minItems\":1,\"items\":" REF("Image") "},"
             "\"labels\":{\"type\":\"array\",\"minItems\":2,\"items\":" TEXT "},\"templates\":{\"type\":[\"array\",\"null\"],\"items\":" TEXT "},"
             "\"top\":" COUNT ",\"model\":" MAYBE_TEXT) },
    { "ClassifyResponse", OBJECT("\"results\"", "\"results\":" LIST(OBJECT("\"top\"", "\"top\":" LIST(OBJECT("\"label\",\"p\"", "\"label\":" TEXT ",\"p\":" NUM))))) },
    { "SimilarityRequest", STRICT("\"images\",\"texts\"", "\"images\":{\"type\":\"array\",\"minItems\":1,\"items\":" REF("Image") "},"
             "\"texts\":{\"type\":\"array\",\"minItems\":1,\"items\":" TEXT "},\"model\":" MAYBE_TEXT ","
             "\"hopfield\":{\"anyOf\":[{\"type\":\"null\"}," STRICT("", "\"scale\":{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":10000},\"index\":" MAYBE_TEXT) "]}") },
    { "SimilarityResponse", OBJECT("\"similarity\",\"images\",\"texts\"", "\"similarity\":" LIST(REF("Row")) ",\"images\":" INT ",\"texts\":" INT ","
             "\"retrieved\":{\"anyOf\":[" LIST(REF("Row")) ",{\"type\":\"null\"}]}") },
    { "Term", STRICT("", "\"text\":" TEXT ",\"image\":" REF("Image") ",\"like\":" TEXT ",\"weight\":" NUM) },
    { "SearchRequest", STRICT("", "\"text\":" MAYBE_TEXT ",\"image\":" MAYBE_TEXT ",\"terms\":{\"type\":[\"array\",\"null\"],\"items\":" REF("Term") "},"
             "\"index\":" MAYBE_TEXT ",\"limit\":{\"type\":[\"integer\",\"null\"],\"minimum\":1,\"maximum\":1000},\"offset\":{\"type\":[\"integer\",\"null\"],\"minimum\":0},"
             "\"threshold\":" MAYBE_NUM ",\"folder\":" MAYBE_TEXT ",\"name\":" MAYBE_TEXT ",\"after\":" MAYBE_TEXT ",\"before\":" MAYBE_TEXT) },
    { "SearchResponse", OBJECT("\"index\",\"total\",\"results\"", "\"index\":" TEXT ",\"total\":" INT ",\"took_ms\":" NUM ",\"results\":"
             LIST(OBJECT("\"path\",\"score\"", "\"path\":" TEXT ",\"score\":" NUM ",\"width\":" INT ",\"height\":" INT ",\"date\":" TEXT ",\"thumb\":" TEXT ",\"image\":" TEXT))) },
    { "Indexes", OBJECT("\"indexes\"", "\"indexes\":" LIST(OBJECT("\"name\",\"images\"", "\"name\":" TEXT ",\"state\":{\"enum\":[\"ready\",\"indexing\",\"failed\"]},\"error\":" TEXT ","
             "\"images\":" INT ",\"folders\":" LIST(TEXT) ",\"model\":" TEXT))) },
    { "Map", OBJECT("\"state\"", "\"state\":{\"enum\":[\"ready\",\"computing\",\"failed\"]},\"progress\":" NUM ",\"points\":" LIST(REF("Row")) ",\"paths\":" LIST(TEXT)) },
    { "Error", OBJECT("\"error\"", "\"error\":" OBJECT("\"message\"", "\"message\":" TEXT ",\"type\":" TEXT ",\"param\":{},\"code\":{}")) },
    { "TeiError", OBJECT("\"error\",\"error_type\"", "\"error\":" TEXT ",\"error_type\":" TEXT) },
    { "Detail", OBJECT("\"detail\"", "\"detail\":" TEXT) },
    { NULL, NULL },
};
/* clang-format on */
