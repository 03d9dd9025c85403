/* The protocol of immich's machine-learning service: /predict with multipart entries. CLIP requests are answered here.
 * Face and text recognition are forwarded to --immich-upstream; without it they get empty results, because immich stops
 * using a server that answers any request with an error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/image/exif.h"
#include "serve/handlers.h"
#include "core/ctx.h"

typedef struct prediction {
    const form_part *entries, *image, *text;
} prediction;

static cloob_status read_form(call *c, prediction *p)
{
    form_part *part;
    int n;
    CLOOB_TRY(body_parts(c, &part, &n));
    for (int i = 0; i < n; i++) {
        if (strcmp(part[i].name, "entries") == 0) p->entries = &part[i];
        if (strcmp(part[i].name, "image") == 0) p->image = &part[i];
        if (strcmp(part[i].name, "text") == 0) p->text = &part[i];
    }
    return p->entries ? CLOOB_OK : refuse(c->ctx, "entries is missing");
}

/* Answers {"visual" or "textual": {"modelName": .., "options": {"language": ..}}}. The language is ignored: only
 * immich's nllb models use it, and cloob supports none of them. */
static cloob_status answer_clip(call *c, const prediction *p, const json *clip)
{
    const json *visual = json_get(clip, "visual"), *textual = json_get(clip, "textual");
    const json *entry = visual ? visual : textual;
    const char *language = NULL;
    json_out row = { 0 };
    if (!visual == !textual) return refuse(c->ctx, "clip must be {\"visual\" or \"textual\": {\"modelName\": ..}}");
    CLOOB_TRY(field_text(c->ctx, entry, "modelName", &c->model));
    CLOOB_TRY(field_text(c->ctx, json_get(entry, "options"), "language", &language));
    if (visual ? !p->image : !p->text) return refuse(c->ctx, "the %s is missing", visual ? "image" : "text");
    if (visual) CLOOB_TRY(input_bytes(c, p->image->data, p->image->bytes));
    else CLOOB_TRY(input_own_text(c, strndup(p->text->data, p->text->bytes)));
    CLOOB_TRY(embed(c));
    json_put_floats(&row, NULL, c->rows.data, c->rows.width);
    json_begin(&c->w, NULL, '{');
    json_put_text(&c->w, "clip", row.data); /* immich expects a JSON string that contains JSON */
    if (visual) json_members(&c->w, J_INT("imageHeight", c->rows.image_h), J_INT("imageWidth", c->rows.image_w));
    c->w.failed = c->w.failed || row.failed;
    free(row.data);
    return CLOOB_OK;
}

/* ---- other tasks --------------------------------------------------------------------------------- */

static cloob_status forward(call *c)
{
    unsigned char *data;
    size_t bytes;
    int code;
    if (!gate_enter(&c->s->images, c->r)) return CLOOB_ERR_BUSY;
    cloob_status status = fetch_forward(c->ctx, c->s->o, c->q, &code, &data, &bytes);
    gate_leave(&c->s->images);
    if (status != CLOOB_OK) return status;
    http_data(c->r, "application/json", (char *)data, bytes);
    c->r->code = code;
    return CLOOB_OK;
}

static cloob_status answer_empty(call *c, const prediction *p, const char *task)
{
    static const char no_text[] = "{\"text\":[],\"box\":[],\"boxScore\":[],\"textScore\":[]}";
    bool faces = strcmp(task, "facial-recognition") == 0;
    int64_t width, height;
    if (!faces && strcmp(task, "ocr") != 0)
        return refuse(c->ctx, "unknown task %.100s; supported: clip, facial-recognition, ocr", task);
    if (!p->image) return refuse(c->ctx, "the image is missing");
    CLOOB_TRY(image_upright_size(c->ctx, p->image->data, p->image->bytes, "the image", &width, &height));
    if (!atomic_exchange(&c->s->warned_immich, true))
        serve_log(c->s, "immich requested %s: sent an empty result; set --immich-upstream URL to forward such requests",
                  task);
    json_begin(&c->w, NULL, '{');
    json_put_raw(&c->w, task, faces ? "[]" : no_text, faces ? 2 : sizeof no_text - 1);
    json_members(&c->w, J_INT("imageHeight", height), J_INT("imageWidth", width));
    return CLOOB_OK;
}

cloob_status handle_predict(call *c)
{
    prediction p = { 0 };
    CLOOB_TRY(read_form(c, &p));
    CLOOB_TRY(json_doc_parse(c->ctx, p.entries->data, p.entries->bytes, "entries", 1000, &c->doc));
    const json *root = json_doc_root(c->doc), *clip = json_get(root, "clip");
    if (json_kind_of(root) != JSON_OBJECT || json_count(root) != 1)
        return refuse(c->ctx, "entries must be an object with one task, such as {\"clip\": {\"visual\": ..}}");
    if (clip) return answer_clip(c, &p, clip);
    return c->s->o->immich_upstream ? forward(c) : answer_empty(c, &p, json_key(json_first(root)));
}

cloob_status handle_ping(call *c)
{
    http_text(c->r, 200, "pong");
    return CLOOB_OK;
}
