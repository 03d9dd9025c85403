/* Typed access to the JSON values of a configuration, and tables of fields. */
#include "model/config_reader.h"

#include <stdio.h>
#include <string.h>

cloob_status reader_bad(const config_reader *r, const char *key, const char *wanted)
{
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: \"%.100s\" must be %s", r->source, key, wanted);
}

const json *reader_value(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    return v && v->kind != JSON_NULL ? v : NULL;
}

cloob_status reader_need_int(const config_reader *r, const json *object, const char *key, int64_t *out)
{
    const json *v = json_get(object, key);
    if (!v) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: \"%s\" is missing", r->source, key);
    return json_int(v, out) ? CLOOB_OK : reader_bad(r, key, "a whole number");
}

cloob_status reader_int(const config_reader *r, const json *object, const char *key, int64_t *out)
{
    const json *v = reader_value(object, key);
    return !v || json_int(v, out) ? CLOOB_OK : reader_bad(r, key, "a whole number");
}

cloob_status reader_number(const config_reader *r, const json *object, const char *key, double *out)
{
    const json *v = reader_value(object, key);
    if (!v) return CLOOB_OK;
    if (v->kind != JSON_NUMBER) return reader_bad(r, key, "a number");
    *out = v->number;
    return CLOOB_OK;
}

cloob_status reader_bool(const config_reader *r, const json *object, const char *key, bool *out)
{
    const json *v = reader_value(object, key);
    if (!v) return CLOOB_OK;
    if (v->kind != JSON_BOOL) return reader_bad(r, key, "true or false");
    *out = v->boolean;
    return CLOOB_OK;
}

cloob_status reader_channels(const config_reader *r, const json *object, const char *key, double out[3])
{
    const json *v = reader_value(object, key);
    if (!v) return CLOOB_OK;
    if (v->kind == JSON_NUMBER) {
        out[0] = out[1] = out[2] = v->number;
        return CLOOB_OK;
    }
    if (v->kind != JSON_ARRAY || v->count != 3) return reader_bad(r, key, "three numbers");
    int i = 0;
    for (const json *e = v->child; e; e = e->next) {
        if (e->kind != JSON_NUMBER) return reader_bad(r, key, "three numbers");
        out[i++] = e->number;
    }
    return CLOOB_OK;
}

cloob_status reader_choice(const config_reader *r, const json *object, const char *key, const char *const *names,
                           int *out)
{
    const json *v = reader_value(object, key);
    const char *name = json_string(v);
    char wanted[160] = "one of";
    if (!v) return CLOOB_OK;
    for (int i = 0; names[i]; i++) {
        if (name && strcmp(name, names[i]) == 0) {
            *out = i;
            return CLOOB_OK;
        }
        size_t n = strlen(wanted);
        snprintf(wanted + n, sizeof wanted - n, "%s \"%s\"", i ? "," : "", names[i]);
    }
    return reader_bad(r, key, wanted);
}

/* ---- fields ---------------------------------------------------------------------------------------- */

_Static_assert(sizeof(model_norm) == sizeof(int), "enums are read and written as int");

static cloob_status read_field(const config_reader *r, const json *object, const config_field *f)
{
    char *at = (char *)r->c + f->at;
    int choice = 0;
    bool flag;
    switch (f->kind) {
    case FIELD_NEED: return reader_need_int(r, object, f->key, (int64_t *)at);
    case FIELD_SIZE:
    case FIELD_INT: return reader_int(r, object, f->key, (int64_t *)at);
    case FIELD_NUMBER: return reader_number(r, object, f->key, (double *)at);
    case FIELD_BOOL: return reader_bool(r, object, f->key, (bool *)at);
    case FIELD_NOT:
        flag = !*(bool *)at;
        CLOOB_TRY(reader_bool(r, object, f->key, &flag));
        *(bool *)at = !flag;
        return CLOOB_OK;
    case FIELD_CHOICE: return reader_choice(r, object, f->key, f->names, (int *)at);
    case FIELD_SECOND:
        choice = *(bool *)at;
        CLOOB_TRY(reader_choice(r, object, f->key, f->names, &choice));
        *(bool *)at = choice;
        return CLOOB_OK;
    default: return CLOOB_OK;
    }
}

cloob_status reader_fields(const config_reader *r, const json *object, const config_field *fields)
{
    for (const config_field *f = fields; f->key; f++) CLOOB_TRY(read_field(r, object, f));
    return CLOOB_OK;
}

void fields_put(json_out *w, const model_config *c, const config_field *fields)
{
    for (const config_field *f = fields; f->key; f++) {
        const char *at = (const char *)c + f->at;
        bool number = f->kind <= FIELD_INT, flag = f->kind == FIELD_BOOL || f->kind == FIELD_NOT;
        if (number && (f->kind != FIELD_INT || *(const int64_t *)at)) json_put_int(w, f->key, *(const int64_t *)at);
        if (f->kind == FIELD_NUMBER && *(const double *)at) json_put_number(w, f->key, *(const double *)at);
        if (flag && *(const bool *)at) json_put_bool(w, f->key, f->kind == FIELD_BOOL);
        if (f->kind == FIELD_CHOICE && *(const int *)at) json_put_text(w, f->key, f->names[*(const int *)at]);
        if (f->kind == FIELD_SECOND && *(const bool *)at) json_put_text(w, f->key, f->names[1]);
    }
}

static bool is_known(const json *v, const config_field *f)
{
    while (f && f->key && strcmp(f->key, v->key) != 0) f++;
    if (!f || !f->key) return false;
    const char *text = json_string(v);
    return f->kind != FIELD_KNOWN || !f->names || (text && strcmp(text, f->names[0]) == 0);
}

cloob_status reader_refuse_unknown(const config_reader *r, const json *object, const char *where,
                                   const config_field *fields, const config_field *more)
{
    for (const json *v = object->child; v; v = v->next) {
        bool off = v->kind == JSON_NULL || (v->kind == JSON_BOOL && !v->boolean) ||
                   (v->kind == JSON_NUMBER && v->number == 0); /* an unknown feature that is disabled */
        if (off || is_known(v, fields) || is_known(v, more)) continue;
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED, "%s: %s\"%.100s\" is not supported by cloob's towers", r->source,
                        where, v->key);
    }
    return CLOOB_OK;
}
