/* immich's machine-learning service: /predict with multipart entries. */
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"
#include "serve/text.h"
#include "core/ctx.h"

typedef struct prediction {
    const form_part *entries, *image, *text;
    json_doc *doc;
    const char *model;
    bool visual;
} prediction;

/* {"clip": {"visual" or "textual": {"modelName": ...}}}; other tasks are not served here. */
static cloob_status read_entries(cloob_ctx *ctx, prediction *p)
{
    cloob_status status = json_doc_parse(ctx, p->entries->data, p->entries->bytes, "entries", 1000, &p->doc);
    if (status != CLOOB_OK) return status;
    const json *clip = json_get(json_doc_root(p->doc), "clip");
    const json *visual = json_get(clip, "visual"), *textual = json_get(clip, "textual");
    if (!visual == !textual || json_count(json_doc_root(p->doc)) != 1)
        return refuse(ctx, "entries must be {\"clip\": {\"visual\" or \"textual\": {\"modelName\": ...}}}; other tasks "
                           "are not served");
    p->visual = visual != NULL;
    p->model = json_string(json_get(visual ? visual : textual, "modelName"));
    if (p->visual && !p->image) return refuse(ctx, "the image is missing");
    return p->visual || p->text ? CLOOB_OK : refuse(ctx, "the text is missing");
}

static cloob_status read_form(cloob_ctx *ctx, const http_request *q, form_part part[PART_MAX], prediction *p)
{
    int n = http_type_is(q, "multipart/form-data") ? multipart_parse(q->content_type, q->body, q->bytes, part) : -1;
    if (n < 0) return refuse(ctx, "the body must be well-formed multipart/form-data");
    for (int i = 0; i < n; i++) {
        if (strcmp(part[i].name, "entries") == 0) p->entries = &part[i];
        if (strcmp(part[i].name, "image") == 0) p->image = &part[i];
        if (strcmp(part[i].name, "text") == 0) p->text = &part[i];
    }
    return p->entries ? read_entries(ctx, p) : refuse(ctx, "entries is missing");
}

static cloob_status add_input(cloob_ctx *ctx, const prediction *p, inputs *in)
{
    if (p->visual) return inputs_bytes(ctx, in, p->image->data, p->image->bytes);
    char *text = strndup(p->text->data, p->text->bytes);
    return text ? inputs_own_text(ctx, in, text) : ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
}

/* immich expects the embedding as JSON inside a string, and the image's size. */
static void put_prediction(http_reply *r, const prediction *p, const cloob_batch_rows *rows)
{
    json_out w = { 0 }, row = { 0 };
    json_put_floats(&row, NULL, rows->data, rows->width);
    json_begin(&w, NULL, '{');
    json_put_text(&w, "clip", row.data);
    if (p->visual) json_put_int(&w, "imageHeight", rows->image_h);
    if (p->visual) json_put_int(&w, "imageWidth", rows->image_w);
    json_end(&w);
    w.failed = w.failed || row.failed;
    free(row.data);
    http_json(r, 200, &w);
}

void handle_predict(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    form_part *part = calloc(PART_MAX, sizeof *part);
    prediction p = { 0 };
    inputs in;
    cloob_batch_rows rows;
    inputs_init(&in, s, q);
    cloob_status status = part ? read_form(ctx, q, part, &p) : ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
    if (status == CLOOB_OK) status = add_input(ctx, &p, &in);
    served_model *m = status == CLOOB_OK ? model_of(s, q, r, p.model) : NULL;
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    else if (m && embed_inputs(s, ctx, q, r, m, &in, CLOOB_UNIT, false, &rows)) {
        put_prediction(r, &p, &rows);
        cloob_batch_rows_release(&rows);
    }
    if (r->code == 400) r->code = 422;
    json_doc_close(p.doc);
    inputs_release(&in);
    free(part);
}
