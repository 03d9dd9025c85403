/* Thin bodies of include/cloob/factors.h. */
#include "cloob/factors.h"

#include <stdlib.h>
#include <string.h>

#include "infer/model_file.h"
#include "core/file.h"
#include "core/json.h"
#include "core/sbuf.h"
#include "infer/factors_world.h"
#include "core/needs.h"

cloob_status cloob_factors_measure(cloob_ctx *ctx, cloob_model *m, const char *world, double lambda, cloob_factors *out)
{
    API_NEEDS(ctx, m && world && out);
    *out = (cloob_factors){ 0 };
    if (!(lambda > 0))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a probe's lambda of %g: give a number above 0", lambda);
    return factors_world(ctx, m->enc, m->tok, world, lambda, out);
}

static void put(sbuf *s, const char *key, double value)
{
    sbuf_printf(s, ", \"%s\": ", key);
    json_put_number(s, value);
}

char *cloob_factors_json(const cloob_factors *f)
{
    if (!f) return NULL;
    sbuf s = { 0 };
    sbuf_printf(&s, "{\"factors\": %lld, \"trained\": %lld, \"tested\": %lld, \"bad\": %lld", (long long)f->count,
                (long long)f->trained, (long long)f->tested, (long long)f->bad);
    put(&s, "kept", f->kept), put(&s, "zeroshot", f->zeroshot), put(&s, "probe", f->probe);
    sbuf_puts(&s, ", \"rows\": [");
    for (int64_t i = 0; i < f->count; i++) {
        const cloob_factor *r = &f->row[i];
        sbuf_puts(&s, i ? ", {\"name\": " : "{\"name\": ");
        json_put_string(&s, r->name);
        sbuf_printf(&s, ", \"values\": %lld", (long long)r->values);
        put(&s, "chance", r->chance), put(&s, "zeroshot", r->zeroshot);
        put(&s, "probe", r->probe), put(&s, "kept", r->kept);
        sbuf_puts(&s, "}");
    }
    sbuf_puts(&s, "]}\n");
    if (!s.failed) return s.data;
    sbuf_release(&s);
    return NULL;
}

cloob_status cloob_factors_write(cloob_ctx *ctx, const cloob_factors *f, const char *folder)
{
    API_NEEDS(ctx, f && folder);
    char *text = cloob_factors_json(f), *path = file_join(folder, "factors.json");
    cloob_status status = text && path ? file_make_dirs(ctx, folder) : ctx_no_memory(ctx, 4096, "factors.json");
    if (status == CLOOB_OK) status = file_write(ctx, path, text, strlen(text));
    free(text), free(path);
    return status;
}
