/* Typed values of a configuration. */
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
