/* Many embeddings at once: from data sets, files and tensors, through a Hopfield network, into a file. */
#include <stdlib.h>
#include <string.h>

#include "api/model_handle.h"
#include "core/file.h"
#include "eval/embed_data.h"
#include "io/picture_list.h"
#include "io/safetensors.h"

static void free_list(char **list, int64_t n)
{
    for (int64_t i = 0; list && i < n; i++) free(list[i]);
    free(list);
}

void cloob_embedded_release(cloob_embedded *e)
{
    free(e->image), free(e->text), free(e->label);
    free_list(e->name, e->rows);
    free_list(e->class_name, e->classes);
    *e = (cloob_embedded){ 0 };
}

static cloob_status check_free(cloob_ctx *ctx, const void *taken, const char *what)
{
    if (!taken) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "there are embeddings of %s already; give one source of them",
                    what);
}

static float *room(cloob_ctx *ctx, int64_t n, int64_t width, cloob_status *status)
{
    size_t bytes = (size_t)(n * width) * sizeof(float);
    float *p = malloc(bytes ? bytes : 1);
    *status = p ? CLOOB_OK : ctx_no_memory(ctx, bytes, "embeddings");
    return p;
}

/* ---- data sets ----------------------------------------------------------------------------------- */

static cloob_status copy_classes(cloob_ctx *ctx, const dataset *d, cloob_embedded *e)
{
    int64_t n = dataset_class_count(d);
    if (!n) return CLOOB_OK;
    e->class_name = calloc((size_t)n, sizeof *e->class_name);
    if (!e->class_name) return ctx_no_memory(ctx, (size_t)n * sizeof *e->class_name, "class names");
    for (e->classes = 0; e->classes < n; e->classes++)
        if (!(e->class_name[e->classes] = strdup(dataset_class_name(d, e->classes))))
            return ctx_no_memory(ctx, 64, "class names");
    return CLOOB_OK;
}

cloob_status cloob_embed_data(cloob_ctx *ctx, cloob_model *handle, const cloob_dataset *d, cloob_output what,
                              int workers, cloob_embedded *e)
{
    const dataset *set = (const dataset *)(const void *)d;
    model *m = model_of(handle);
    embed_options o;
    embedded got;
    CLOOB_TRY(check_free(ctx, e->image, "pictures"));
    CLOOB_TRY(check_free(ctx, e->text, "texts"));
    embed_options_init(&o);
    o.what = (encoder_output)what, o.workers = workers;
    if (dataset_has_captions(set) && !m->tok)
        ctx_log(ctx, CLOOB_LOG_WARN,
                "the weights hold no tokenizer: pictures alone; --vocab FILE adds the captions");
    CLOOB_TRY(embed_data(ctx, m->enc, m->tok, set, &o, &got));
    *e = (cloob_embedded){ .rows = got.rows,
                           .text_rows = got.text ? got.rows : 0,
                           .bad = got.bad,
                           .image_width = got.image_width,
                           .text_width = got.text_width,
                           .image = got.image,
                           .text = got.text,
                           .label = got.label };
    free(got.index);
    return copy_classes(ctx, set, e);
}

/* ---- pictures in files --------------------------------------------------------------------------- */

static cloob_status encode_list(cloob_ctx *ctx, model *m, const picture_list *l, cloob_output what,
                                float *out, bool *bad)
{
    const char **path = malloc((size_t)(l->count + 1) * sizeof *path);
    cloob_status status = path ? CLOOB_OK : ctx_no_memory(ctx, (size_t)l->count * sizeof *path, "paths");
    for (int64_t i = 0; i < l->count && path; i++) path[i] = l->item[i].path;
    if (status == CLOOB_OK)
        status = model_picture_files(ctx, m, path, l->count, (encoder_output)what, out, bad);
    for (int64_t i = 0; i < l->count && status == CLOOB_OK; i++)
        if (bad[i] && l->item[i].named) /* its message has gone to the log */
            status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: cannot be read as a picture", path[i]);
    free(path);
    return status;
}

/* Moves the readable rows together and notes their names. */
static cloob_status keep_readable(cloob_ctx *ctx, const picture_list *l, const bool *bad, cloob_embedded *e)
{
    int64_t width = e->image_width;
    e->name = calloc((size_t)(l->count + 1), sizeof *e->name);
    if (!e->name) return ctx_no_memory(ctx, (size_t)l->count * sizeof *e->name, "names");
    for (int64_t i = 0; i < l->count; i++) {
        if (bad[i]) {
            e->bad++;
            continue;
        }
        if (!(e->name[e->rows] = strdup(l->item[i].path))) return ctx_no_memory(ctx, 64, "names");
        memmove(e->image + e->rows * width, e->image + i * width, (size_t)width * sizeof *e->image);
        e->rows++;
    }
    if (e->rows) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "there is no readable picture among the %lld files",
                    (long long)l->count);
}

cloob_status cloob_embed_pictures(cloob_ctx *ctx, cloob_model *handle, const char *const *path, int64_t n,
                                  cloob_output what, cloob_embedded *e)
{
    model *m = model_of(handle);
    picture_list l = { 0 };
    bool *bad = NULL;
    cloob_status status = check_free(ctx, e->image, "pictures");
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) status = picture_list_add(ctx, &l, path[i]);
    if (status == CLOOB_OK) {
        e->image_width = encoder_width(m->enc, (encoder_output)what, false);
        e->image = room(ctx, l.count, e->image_width, &status);
        bad = calloc((size_t)(l.count + 1), sizeof *bad);
        if (!bad) status = ctx_no_memory(ctx, (size_t)l.count, "a list");
    }
    if (status == CLOOB_OK) status = encode_list(ctx, m, &l, what, e->image, bad);
    if (status == CLOOB_OK) status = keep_readable(ctx, &l, bad, e);
    free(bad);
    picture_list_release(&l);
    return status;
}

/* ---- texts --------------------------------------------------------------------------------------- */

/* Cuts the text into lines in place; a last line without an end counts, an empty one is refused. */
static cloob_status split_lines(cloob_ctx *ctx, const char *path, char *text, const char ***out, int64_t *n)
{
    int64_t capacity = 0;
    *out = NULL, *n = 0;
    for (char *at = text; *at;) {
        char *end = at + strcspn(at, "\n"), *next = *end ? end + 1 : end;
        *end = '\0';
        if (end > at && end[-1] == '\r') end[-1] = '\0';
        if (!*at) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: line %lld is empty", path, (long long)*n + 1);
        if (*n == capacity) {
            capacity = capacity ? 2 * capacity : 256;
            const char **more = realloc(*out, (size_t)capacity * sizeof *more);
            if (!more) return ctx_no_memory(ctx, (size_t)capacity * sizeof *more, path);
            *out = more;
        }
        (*out)[(*n)++] = at;
        at = next;
    }
    return *n ? CLOOB_OK : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: holds no texts", path);
}

cloob_status cloob_embed_text_file(cloob_ctx *ctx, cloob_model *handle, const char *path, cloob_output what,
                                   cloob_embedded *e)
{
    model *m = model_of(handle);
    file_bytes bytes;
    const char **line = NULL;
    int64_t n = 0;
    CLOOB_TRY(check_free(ctx, e->text, "texts"));
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &bytes));
    cloob_status status = split_lines(ctx, path, bytes.data, &line, &n);
    e->text_width = encoder_width(m->enc, (encoder_output)what, true);
    if (status == CLOOB_OK) e->text = room(ctx, n, e->text_width, &status);
    if (status == CLOOB_OK) status = model_texts(ctx, m, line, n, (encoder_output)what, e->text);
    if (status == CLOOB_OK) e->text_rows = n;
    free(line);
    file_bytes_release(&bytes);
    return status;
}

/* ---- tensors ------------------------------------------------------------------------------------- */

static cloob_status embed_images(cloob_ctx *ctx, model *m, const tensor *t, const char *path,
                                 cloob_output what, cloob_embedded *e)
{
    int64_t S = m->view.size;
    char shape[SHAPE_TEXT];
    cloob_status status;
    if (t->dtype != CLOOB_F32 || t->ndim != 4 || t->dim[1] != 3 || t->dim[2] != S || t->dim[3] != S)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: images is %s %s, the model wants F32 (N, 3, %lld, %lld)",
                        path, dtype_name(t->dtype), tensor_shape_text(t, shape), (long long)S, (long long)S);
    CLOOB_TRY(check_free(ctx, e->image, "pictures"));
    e->rows = t->dim[0];
    e->image_width = encoder_width(m->enc, (encoder_output)what, false);
    e->image = room(ctx, e->rows, e->image_width, &status);
    CLOOB_TRY(status);
    return encoder_float_images(ctx, m->enc, t->data, e->rows, (encoder_output)what, e->image);
}

static cloob_status narrow_tokens(cloob_ctx *ctx, const tensor *t, const char *path, int32_t *out)
{
    int64_t n = tensor_count(t);
    if (t->dtype == CLOOB_I32) memcpy(out, t->data, (size_t)n * sizeof *out);
    for (int64_t i = 0; i < n && t->dtype == CLOOB_I64; i++) {
        int64_t id;
        memcpy(&id, (const char *)t->data + 8 * i, 8);
        if (id < 0 || id > INT32_MAX)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: tokens holds %lld", path, (long long)id);
        out[i] = (int32_t)id;
    }
    return CLOOB_OK;
}

static cloob_status embed_tokens(cloob_ctx *ctx, model *m, const tensor *t, const char *path,
                                 cloob_output what, cloob_embedded *e)
{
    int64_t T = encoder_config(m->enc)->context;
    char shape[SHAPE_TEXT];
    cloob_status status;
    if ((t->dtype != CLOOB_I32 && t->dtype != CLOOB_I64) || t->ndim != 2 || t->dim[1] != T)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: tokens is %s %s, the model wants I32 or I64 (N, %lld)",
                        path, dtype_name(t->dtype), tensor_shape_text(t, shape), (long long)T);
    CLOOB_TRY(check_free(ctx, e->text, "texts"));
    e->text_rows = t->dim[0];
    e->text_width = encoder_width(m->enc, (encoder_output)what, true);
    e->text = room(ctx, e->text_rows, e->text_width, &status);
    int32_t *row = malloc((size_t)(tensor_count(t) + 1) * sizeof *row);
    if (status == CLOOB_OK && !row) status = ctx_no_memory(ctx, tensor_bytes(t), "tokens");
    if (status == CLOOB_OK) status = narrow_tokens(ctx, t, path, row);
    if (status == CLOOB_OK)
        status = encoder_texts(ctx, m->enc, row, e->text_rows, (encoder_output)what, e->text);
    free(row);
    return status;
}

cloob_status cloob_embed_tensors(cloob_ctx *ctx, cloob_model *handle, const char *path, cloob_output what,
                                 cloob_embedded *e)
{
    st_file f;
    CLOOB_TRY(st_open(ctx, path, &f));
    const st_entry *images = st_find(&f, "images"), *tokens = st_find(&f, "tokens");
    cloob_status status = CLOOB_OK;
    if (!images && !tokens)
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has neither images nor tokens", path);
    if (status == CLOOB_OK && images) status = embed_images(ctx, model_of(handle), &images->t, path, what, e);
    if (status == CLOOB_OK && tokens) status = embed_tokens(ctx, model_of(handle), &tokens->t, path, what, e);
    st_close(&f);
    return status;
}
