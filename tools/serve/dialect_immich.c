/* immich's machine-learning service: /predict with multipart entries. CLIP is answered here. Faces and text recognition
 * are forwarded to --immich-upstream; without it they get empty results, because immich stops using a server that
 * answers any request with an error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/image/exif.h"
#include "serve/handlers.h"
#include "serve/state.h"
#include "serve/text.h"
#include "core/ctx.h"

typedef struct prediction {
    const form_part *entries, *image, *text;
} prediction;

static cloob_status read_form(cloob_ctx *ctx, const http_request *q, form_part part[PART_MAX], prediction *p)
{
    int n = http_type_is(q, "multipart/form-data") ? multipart_parse(q->content_type, q->body, q->bytes, part) : -1;
    if (n < 0) return refuse(ctx, "the body must be well-formed multipart/form-data");
    for (int i = 0; i < n; i++) {
        if (strcmp(part[i].name, "entries") == 0) p->entries = &part[i];
        if (strcmp(part[i].name, "image") == 0) p->image = &part[i];
        if (strcmp(part[i].name, "text") == 0) p->text = &part[i];
    }
    return p->entries ? CLOOB_OK : refuse(ctx, "entries is missing");
}

/* {"visual" or "textual": {"modelName": .., "options": {"language": ..}}}. Only immich's nllb models use the language,
 * and none of them is served. */
static cloob_status read_clip(cloob_ctx *ctx, embed_call *e, const prediction *p, const json *clip)
{
    const json *visual = json_get(clip, "visual"), *textual = json_get(clip, "textual");
    const json *entry = visual ? visual : textual;
    const char *language = NULL;
    if (!visual == !textual) return refuse(ctx, "clip must be {\"visual\" or \"textual\": {\"modelName\": ..}}");
    CLOOB_TRY(field_text(ctx, entry, "modelName", &e->model));
    CLOOB_TRY(field_text(ctx, json_get(entry, "options"), "language", &language));
    e->images = visual != NULL;
    if (visual)
        return p->image ? inputs_bytes(ctx, &e->in, p->image->data, p->image->bytes)
                        : refuse(ctx, "the image is missing");
    return p->text ? inputs_own_text(ctx, &e->in, strndup(p->text->data, p->text->bytes))
                   : refuse(ctx, "the text is missing");
}

/* ---- other tasks --------------------------------------------------------------------------------- */

static cloob_status forward(cloob_ctx *ctx, embed_call *e)
{
    serve *s = e->s;
    unsigned char *data;
    size_t bytes;
    int code;
    if (!gate_enter(&s->images, e->r)) return CLOOB_OK;
    cloob_status status = fetch_forward(ctx, s->o, e->q, &code, &data, &bytes);
    gate_leave(&s->images);
    if (status == CLOOB_OK)
        *e->r =
            (http_reply){ .code = code, .type = "application/json", .data = (char *)data, .bytes = bytes, .fd = -1 };
    return status;
}

static cloob_status answer_empty(cloob_ctx *ctx, embed_call *e, const prediction *p, const char *task)
{
    static const char no_text[] = "{\"text\":[],\"box\":[],\"boxScore\":[],\"textScore\":[]}";
    bool faces = strcmp(task, "facial-recognition") == 0;
    int64_t width, height;
    json_out w = { 0 };
    if (!faces && strcmp(task, "ocr") != 0)
        return refuse(ctx, "unknown task %.100s; known are clip, facial-recognition and ocr", task);
    if (!p->image) return refuse(ctx, "the image is missing");
    cloob_status status = image_upright_size(ctx, p->image->data, p->image->bytes, "the image", &width, &height);
    if (status != CLOOB_OK) return status;
    if (!atomic_exchange(&e->s->warned_immich, true))
        serve_log(e->s, "immich asked for %s: answered with none; give --immich-upstream URL to have it computed",
                  task);
    json_begin(&w, NULL, '{');
    json_put_raw(&w, task, faces ? "[]" : no_text, faces ? 2 : sizeof no_text - 1);
    json_members(&w, J_INT("imageHeight", height), J_INT("imageWidth", width));
    json_end(&w);
    http_json(e->r, 200, &w);
    return CLOOB_OK;
}

/* ---- the dialect --------------------------------------------------------------------------------- */

static cloob_status read_entries(cloob_ctx *ctx, embed_call *e, const prediction *p)
{
    CLOOB_TRY(json_doc_parse(ctx, p->entries->data, p->entries->bytes, "entries", 1000, &e->doc));
    e->root = json_doc_root(e->doc);
    const json *clip = json_get(e->root, "clip"), *task = json_first(e->root);
    if (json_kind_of(e->root) != JSON_OBJECT || json_count(e->root) != 1)
        return refuse(ctx, "entries must be an object with one task, such as {\"clip\": {\"visual\": ..}}");
    if (clip) return read_clip(ctx, e, p, clip);
    return e->s->o->immich_upstream ? forward(ctx, e) : answer_empty(ctx, e, p, json_key(task));
}

static cloob_status immich_read(cloob_ctx *ctx, embed_call *e)
{
    prediction p = { 0 };
    form_part *part = calloc(PART_MAX, sizeof *part);
    CLOOB_TRY(inputs_own(ctx, &e->in, part));
    CLOOB_TRY(read_form(ctx, e->q, part, &p));
    return read_entries(ctx, e, &p);
}

/* immich expects the embedding as JSON inside a string, and the image's size. */
static cloob_status immich_write(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                                 json_out *w)
{
    json_out row = { 0 };
    (void)ctx, (void)m;
    json_put_floats(&row, NULL, rows->data, rows->width);
    json_begin(w, NULL, '{');
    json_put_text(w, "clip", row.data);
    if (e->images) json_put_int(w, "imageHeight", rows->image_h);
    if (e->images) json_put_int(w, "imageWidth", rows->image_w);
    json_end(w);
    w->failed = w->failed || row.failed;
    free(row.data);
    return CLOOB_OK;
}

const dialect dialect_immich = { immich_read, immich_write };

void handle_ping(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    (void)s, (void)ctx, (void)q;
    http_text(r, 200, "pong");
}
