/* Thin bodies of include/cloob/json.h over core/json.h. */
#include "cloob/json.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/json.h"
#include "core/needs.h"

/* ---- reading ------------------------------------------------------------------------------------- */

struct cloob_json_doc {
    arena a;
    json *root;
};

cloob_status cloob_json_parse(cloob_ctx *ctx, const char *text, size_t bytes, const char *name, int64_t max_values,
                              cloob_json_doc **out)
{
    API_NEEDS(ctx, text && name && out);
    *out = NULL;
    cloob_json_doc *doc = calloc(1, sizeof *doc);
    if (!doc) return ctx_no_memory(ctx, sizeof *doc, name);
    cloob_status status = json_parse_bounded(ctx, &doc->a, text, bytes, name, max_values, &doc->root);
    if (status == CLOOB_OK) *out = doc;
    else cloob_json_close(doc);
    return status;
}

void cloob_json_close(cloob_json_doc *doc)
{
    if (!doc) return;
    arena_release(&doc->a);
    free(doc);
}

const cloob_json *cloob_json_root(const cloob_json_doc *doc) { return doc ? doc->root : NULL; }

/* The public kinds are numbered like the inner ones. */
_Static_assert((int)CLOOB_JSON_OBJECT == (int)JSON_OBJECT && (int)CLOOB_JSON_STRING == (int)JSON_STRING, "json kinds");

cloob_json_kind cloob_json_kind_of(const cloob_json *v) { return v ? (cloob_json_kind)v->kind : CLOOB_JSON_NULL; }

const cloob_json *cloob_json_get(const cloob_json *object, const char *key)
{
    return object && key ? json_get(object, key) : NULL;
}

int64_t cloob_json_count(const cloob_json *v) { return v ? v->count : 0; }
const cloob_json *cloob_json_first(const cloob_json *v) { return v ? v->child : NULL; }
const cloob_json *cloob_json_next(const cloob_json *v) { return v ? v->next : NULL; }
const char *cloob_json_key(const cloob_json *v) { return v ? v->key : NULL; }
const char *cloob_json_text(const cloob_json *v) { return v ? json_string(v) : NULL; }
bool cloob_json_int(const cloob_json *v, int64_t *out) { return v && out && json_int(v, out); }

bool cloob_json_number(const cloob_json *v, double *out)
{
    if (!out || cloob_json_kind_of(v) != CLOOB_JSON_NUMBER) return false;
    *out = v->number;
    return true;
}

bool cloob_json_bool(const cloob_json *v, bool *out)
{
    if (!out || cloob_json_kind_of(v) != CLOOB_JSON_BOOL) return false;
    *out = v->boolean;
    return true;
}
