/* Embeddings into a file as they come, or into memory; rows may retrieve from stored ones first. */
#include <stdlib.h>
#include <string.h>

#include "infer/embed_source.h"
#include "infer/embeddings_file.h"
#include "core/json.h"
#include "core/text.h"
#include "io/rows_file.h"
#include "core/needs.h"
#include "infer/model_file.h"

/* ---- files --------------------------------------------------------------------------------------- */

typedef struct out_file {
    rows_file f;
    int part[EMBED_PARTS];     /* place in the file; -1: not there */
    const stored_rows *memory; /* rows pass through it; NULL: they stay as they are */
} out_file;

typedef struct lists { /* the metadata */
    sbuf names, captions, classes;
    st_meta meta[3];
    int64_t count;
} lists;

static void add_list(lists *l, const char *key, sbuf *s, char *const *item, int64_t n)
{
    json_out w = { .spaced = true };
    json_begin(&w, NULL, '[');
    for (int64_t i = 0; i < n; i++) json_put_text(&w, NULL, item[i]);
    json_end(&w);
    json_out_back(&w, s);
    l->meta[l->count++] = (st_meta){ key, s->data };
}

static cloob_status lists_make(cloob_ctx *ctx, const embed_result *e, lists *l)
{
    *l = (lists){ 0 };
    if (e->name) add_list(l, "names", &l->names, e->name, e->rows);
    if (e->caption) add_list(l, "captions", &l->captions, e->caption, e->text_rows);
    if (e->classes) add_list(l, "classes", &l->classes, e->class_name, e->classes);
    if (!l->names.failed && !l->captions.failed && !l->classes.failed) return CLOOB_OK;
    return ctx_no_memory(ctx, l->names.len + l->captions.len + l->classes.len, "names");
}

static void lists_release(lists *l) { sbuf_release(&l->names), sbuf_release(&l->captions), sbuf_release(&l->classes); }

static cloob_status out_begin(cloob_ctx *ctx, const char *path, const int64_t max_rows[EMBED_PARTS],
                              const int64_t width[EMBED_PARTS], const lists *l, out_file *o)
{
    static const char *const name[EMBED_PARTS] = { "label", "row", "text_image", "image", "text" };
    rows_part part[EMBED_PARTS];
    int parts = 0;
    for (int i = 0; i < EMBED_PARTS; i++) {
        bool whole = i < EMBED_IMAGE, there = whole ? max_rows[i] > 0 : width[i] > 0;
        if (i == EMBED_ROW && text_ends_with(path, ".npy")) there = false; /* one matrix: the names tell */
        o->part[i] = there ? parts : -1;
        if (there) part[parts++] = (rows_part){ name[i], whole ? CLOOB_I64 : CLOOB_F32, max_rows[i], width[i] };
    }
    if (!parts) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: nothing to write", path);
    return rows_file_begin(ctx, path, part, parts, l->meta, l->count, &o->f);
}

static cloob_status out_put(cloob_ctx *ctx, void *user, embed_part part, void *rows, int64_t n)
{
    out_file *o = user;
    if (o->part[part] < 0) return CLOOB_OK;
    if (o->memory && part >= EMBED_IMAGE) CLOOB_TRY(stored_rows_retrieve(ctx, o->memory, rows, n));
    return rows_file_put(ctx, &o->f, o->part[part], rows, n);
}

/* A .npy file has no room for names: they stand in E.npy.txt, one per row. */
static cloob_status write_beside(cloob_ctx *ctx, const char *path, const embed_result *e)
{
    char *const *item = e->name ? e->name : e->caption;
    int64_t n = e->name ? e->rows : e->text_rows;
    sbuf text = { 0 }, beside = { 0 };
    if (!item || !text_ends_with(path, ".npy")) return CLOOB_OK;
    for (int64_t i = 0; i < n; i++) sbuf_printf(&text, "%s\n", item[i]);
    sbuf_printf(&beside, "%s.txt", path);
    text.failed = text.failed || beside.failed;
    cloob_status status = file_write_text(ctx, beside.failed ? path : beside.data, &text);
    sbuf_release(&beside);
    return status;
}

/* ---- as they come -------------------------------------------------------------------------------- */

/* The metadata if every image can be read. */
static cloob_status lists_expect(cloob_ctx *ctx, const embed_source *s, lists *l)
{
    const cloob_dataset *set = s->job.data;
    int64_t names = s->files.count, classes = set ? cloob_dataset_class_count(set) : 0;
    char **list = calloc((size_t)(names + classes + 1), sizeof *list);
    if (!list) return ctx_no_memory(ctx, (size_t)(names + classes) * sizeof *list, "names");
    for (int64_t i = 0; i < names; i++) list[i] = (char *)(uintptr_t)s->files.item[i].path; /* only read */
    for (int64_t i = 0; i < classes; i++) list[names + i] = (char *)(uintptr_t)cloob_dataset_class_name(set, i);
    embed_result all = { .class_name = list + names, .classes = classes };
    if (s->names.name) all.name = s->names.name, all.rows = s->names.samples;
    if (s->names.caption) all.caption = s->names.caption, all.text_rows = s->names.first[s->names.samples];
    if (s->job.images_count) all.name = list, all.rows = names;
    if (s->line && s->text.size < SAMPLE_NAMES_LIMIT)
        all.caption = (char **)(uintptr_t)s->line, all.text_rows = s->max_rows[EMBED_TEXT];
    cloob_status status = lists_make(ctx, &all, l);
    free(list);
    return status;
}

static cloob_status open_memory(cloob_ctx *ctx, const model *m, const embed_source *s, stored_rows *stored, out_file *o)
{
    const embed_job *job = &s->job;
    if (!job->eval.retrieve) return CLOOB_OK;
    CLOOB_TRY(stored_rows_open(ctx, &job->eval, m->scale_hopfield, job->what == CLOOB_UNIT, stored));
    CLOOB_TRY(stored_rows_check(ctx, stored, s->width[EMBED_IMAGE]));
    CLOOB_TRY(stored_rows_check(ctx, stored, s->width[EMBED_TEXT]));
    o->memory = stored;
    return CLOOB_OK;
}

static cloob_status write_end(cloob_ctx *ctx, out_file *o, const char *path, const embed_result *e)
{
    lists l;
    cloob_status status = lists_make(ctx, e, &l);
    if (status == CLOOB_OK) status = rows_file_end(ctx, &o->f, l.meta, l.count);
    if (status == CLOOB_OK) status = write_beside(ctx, path, e);
    lists_release(&l);
    return status;
}

cloob_status embed_to_file(cloob_ctx *ctx, cloob_model *m, const embed_job *job, const char *path, embed_result *e)
{
    API_NEEDS(ctx, m && job && path && e);
    embed_source s;
    out_file o = { 0 };
    stored_rows stored = { 0 };
    lists expected = { 0 };
    *e = (embed_result){ 0 };
    CLOOB_TRY(embed_source_open(ctx, m, job, &s));
    cloob_status status = open_memory(ctx, m, &s, &stored, &o);
    if (status == CLOOB_OK) status = lists_expect(ctx, &s, &expected);
    if (status == CLOOB_OK) status = out_begin(ctx, path, s.max_rows, s.width, &expected, &o);
    lists_release(&expected); /* only their size counted */
    if (status == CLOOB_OK) status = embed_source_run(ctx, &s, out_put, &o, e);
    if (status == CLOOB_OK) status = write_end(ctx, &o, path, e);
    rows_file_abort(&o.f);
    stored_rows_release(&stored);
    embed_source_close(&s);
    if (status != CLOOB_OK) embed_result_release(e);
    return status;
}

/* ---- in memory -------------------------------------------------------------------------------------- */

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
