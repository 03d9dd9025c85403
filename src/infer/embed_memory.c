/* Many embeddings at once: from data sets, files and tensors into memory. */
#include <stdlib.h>
#include <string.h>

#include "infer/embed_source.h"
#include "core/needs.h"
#include "infer/model_file.h"

static void free_list(char **list, int64_t n)
{
    for (int64_t i = 0; list && i < n; i++) free(list[i]);
    free(list);
}

void embed_result_release(embed_result *e)
{
    if (!e) return;
    free(e->image), free(e->text), free(e->label), free(e->row), free(e->text_image);
    free_list(e->name, e->rows);
    free_list(e->caption, e->text_rows);
    free_list(e->class_name, e->classes);
    *e = (embed_result){ 0 };
}

void embed_job_init(embed_job *job)
{
    if (!job) return;
    *job = (embed_job){ .what = CLOOB_UNIT };
    eval_options_init(&job->eval);
}

static void *room(cloob_ctx *ctx, int64_t n, size_t each, cloob_status *status)
{
    size_t bytes = (size_t)n * each;
    void *p = malloc(bytes ? bytes : 1);
    if (!p) *status = ctx_no_memory(ctx, bytes, "embeddings");
    return p;
}

static cloob_status make_room(cloob_ctx *ctx, const embed_source *s, embed_result *e)
{
    cloob_status status = CLOOB_OK;
    size_t image_row = (size_t)s->width[EMBED_IMAGE] * sizeof(float),
           text_row = (size_t)s->width[EMBED_TEXT] * sizeof(float);
    if (image_row) e->image = room(ctx, s->max_rows[EMBED_IMAGE], image_row, &status);
    if (text_row) e->text = room(ctx, s->max_rows[EMBED_TEXT], text_row, &status);
    if (s->max_rows[EMBED_LABEL]) e->label = room(ctx, s->max_rows[EMBED_LABEL], sizeof *e->label, &status);
    if (s->max_rows[EMBED_ROW]) e->row = room(ctx, s->max_rows[EMBED_ROW], sizeof *e->row, &status);
    if (s->max_rows[EMBED_OWNER]) e->text_image = room(ctx, s->max_rows[EMBED_OWNER], sizeof *e->text_image, &status);
    return status;
}

typedef struct shelf { /* where the next rows go */
    embed_result *e;
    int64_t rows[EMBED_PARTS];
} shelf;

static cloob_status keep(cloob_ctx *ctx, void *user, embed_part part, void *rows, int64_t n)
{
    shelf *s = user;
    embed_result *e = s->e;
    int64_t at = s->rows[part];
    (void)ctx;
    if (part == EMBED_LABEL) memcpy(e->label + at, rows, (size_t)n * sizeof *e->label);
    if (part == EMBED_ROW) memcpy(e->row + at, rows, (size_t)n * sizeof *e->row);
    if (part == EMBED_OWNER) memcpy(e->text_image + at, rows, (size_t)n * sizeof *e->text_image);
    if (part == EMBED_IMAGE)
        memcpy(e->image + at * e->image_width, rows, (size_t)(n * e->image_width) * sizeof *e->image);
    if (part == EMBED_TEXT) memcpy(e->text + at * e->text_width, rows, (size_t)(n * e->text_width) * sizeof *e->text);
    s->rows[part] += n;
    return CLOOB_OK;
}

static cloob_status check_free(cloob_ctx *ctx, const void *taken, int64_t width, const char *what)
{
    if (!taken || !width) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "there are embeddings of %s already; give one source of them", what);
}

/* What got holds goes to e, which had nothing of it. */
static void merge(embed_result *e, const embed_result *got)
{
    if (got->image) {
        e->rows = got->rows, e->image = got->image, e->image_width = got->image_width;
        e->label = got->label, e->name = got->name, e->row = got->row;
        e->class_name = got->class_name, e->classes = got->classes;
    }
    if (got->text) {
        e->text_rows = got->text_rows, e->text = got->text, e->text_width = got->text_width;
        e->caption = got->caption, e->text_image = got->text_image;
    }
    e->bad += got->bad;
}

cloob_status embed_to_memory(cloob_ctx *ctx, cloob_model *m, const embed_job *job, embed_result *e)
{
    embed_source s;
    embed_result got = { 0 };
    CLOOB_TRY(embed_source_open(ctx, m, job, &s));
    cloob_status status = check_free(ctx, e->image, s.width[EMBED_IMAGE], "images");
    if (status == CLOOB_OK) status = check_free(ctx, e->text, s.width[EMBED_TEXT], "texts");
    if (status == CLOOB_OK) status = make_room(ctx, &s, &got);
    if (status == CLOOB_OK) status = embed_source_run(ctx, &s, keep, &(shelf){ .e = &got }, &got);
    embed_source_close(&s);
    if (status == CLOOB_OK) merge(e, &got);
    else embed_result_release(&got);
    return status;
}

cloob_status embed_dataset(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d, cloob_output what, int workers,
                           embed_result *e)
{
    API_NEEDS(ctx, m && d && e);
    return embed_to_memory(ctx, m, &(embed_job){ .what = what, .data = d, .eval = { .workers = workers } }, e);
}

cloob_status embed_image_files(cloob_ctx *ctx, cloob_model *m, const char *const *path, int64_t n, cloob_output what,
                               embed_result *e)
{
    API_NEEDS(ctx, m && path && e && n >= 0);
    return embed_to_memory(ctx, m, &(embed_job){ .what = what, .images = path, .images_count = n }, e);
}
