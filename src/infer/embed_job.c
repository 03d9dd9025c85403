/* Sources of embeddings, and the file or memory that their rows go to. */
#include "infer/embed_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/file.h"
#include "core/json.h"
#include "core/needs.h"
#include "core/text.h"
#include "infer/embed_data.h"
#include "infer/embeddings_file.h"
#include "io/image/image_list.h"
#include "io/rows_file.h"

enum {
    AT_ONCE = 256,         /* rows computed at a time */
    NAMES_LIMIT = 64 << 20 /* bytes of names and captions: they go into a file's header, limited to 100 MB */
};

/* In the order of a file: the widest elements first, because the format has no padding and readers map it. */
typedef enum embed_part {
    EMBED_LABEL,
    EMBED_ROW,   /* sample of the data set */
    EMBED_OWNER, /* of a text: its image row */
    EMBED_IMAGE,
    EMBED_TEXT,
    EMBED_PARTS
} embed_part;

typedef struct embed_run {
    model *m;
    const embed_job *job;
    embed_result *e;
    int64_t max_rows[EMBED_PARTS]; /* 0: none of this part */
    int64_t width[EMBED_PARTS];    /* 0 for integers, and without the part */

    const char **name, **caption; /* assuming that every input is readable; NULL: unknown, or above the limit */
    int64_t names, captions;
    int64_t *first; /* (samples + 1) sample i of the data set has captions first[i] to first[i + 1] - 1 */
    st_file tensors;
    const st_entry *images, *tokens; /* in tensors; NULL: not there */
    image_list files;
    file_bytes text;

    arena memory;
    int64_t at_once;
    float *rows; /* (at_once, the larger width) */
    bool *bad;   /* (at_once) */

    rows_file *file;           /* NULL: to memory */
    int place[EMBED_PARTS];    /* in the file; -1: not there */
    void *to[EMBED_PARTS];     /* in memory */
    int64_t done[EMBED_PARTS]; /* rows in memory */
    stored_rows stored;        /* rows retrieve from it; without rows: nothing does */
} embed_run;

/* ---- names and captions of a data set: one pass without its images ----------------------------------- */

typedef struct names_pass {
    stored_sample s;
    int64_t room;  /* of captions */
    int64_t bytes; /* of all texts so far */
    bool keep;     /* false: beyond the limit; captions are only counted */
} names_pass;

static bool is_unreadable(cloob_status status) { return status == CLOOB_ERR_FORMAT || status == CLOOB_ERR_IO; }

/* Stores a text in *to unless the limit is exceeded, which drops all texts. */
static cloob_status keep_text(cloob_ctx *ctx, embed_run *r, names_pass *p, const sbuf *text, const char **to)
{
    p->bytes += (int64_t)text->len + 8; /* quotes, and a few characters escaped */
    if (!p->keep) return CLOOB_OK;
    if (p->bytes > NAMES_LIMIT) {
        ctx_log(ctx, CLOOB_LOG_WARN, "names and captions exceed %d MiB and are left out; `row` has the sample of a row",
                NAMES_LIMIT >> 20);
        arena_release(&r->e->strings);
        r->name = r->caption = NULL, p->keep = false;
        return CLOOB_OK;
    }
    *to = arena_string(&r->e->strings, text->len ? text->data : "");
    return *to ? CLOOB_OK : ctx_no_memory(ctx, text->len, "names");
}

static cloob_status take_caption(cloob_ctx *ctx, embed_run *r, names_pass *p)
{
    const char *text = NULL;
    CLOOB_TRY(keep_text(ctx, r, p, &p->s.caption, &text));
    if (text) {
        r->caption = arena_grow(&r->e->strings, r->caption, r->captions, &p->room, 1024, sizeof *r->caption);
        if (!r->caption) return ctx_no_memory(ctx, (size_t)r->captions * sizeof *r->caption, "captions");
        r->caption[r->captions] = text;
    }
    r->captions++;
    return CLOOB_OK;
}

/* A sample that cannot be read has an empty name and no caption. */
static cloob_status take_sample(cloob_ctx *ctx, embed_run *r, names_pass *p, int64_t i, bool texts)
{
    const dataset *d = r->job->data;
    int what = texts ? FETCH_CAPTION : 0;
    const char *name = NULL;
    cloob_status status = dataset_fetch(ctx, d, i, 0, what, &p->s);
    if (status != CLOOB_OK && !is_unreadable(status)) return status;
    CLOOB_TRY(keep_text(ctx, r, p, &p->s.name, &name));
    if (name) r->name[i] = name;
    int64_t captions = !texts ? 0 : r->job->all_captions ? p->s.captions : 1;
    for (int64_t k = 0; k < captions; k++) {
        if (k) status = dataset_fetch(ctx, d, i, (uint64_t)k, what, &p->s);
        if (status == CLOOB_OK && p->s.caption.len) CLOOB_TRY(take_caption(ctx, r, p));
        else if (status != CLOOB_OK && !is_unreadable(status)) return status;
    }
    r->first[i + 1] = r->captions;
    return CLOOB_OK;
}

static cloob_status read_names(cloob_ctx *ctx, embed_run *r, int64_t samples, bool texts)
{
    names_pass p = { .keep = true };
    cloob_status status = CLOOB_OK;
    r->names = samples;
    r->first = arena_push(&r->memory, (size_t)(samples + 1) * sizeof *r->first);
    r->name = arena_push(&r->e->strings, (size_t)(samples + 1) * sizeof *r->name);
    if (!r->first || !r->name) return ctx_no_memory(ctx, (size_t)samples * sizeof *r->name, "names");
    for (int64_t i = 0; i < samples && status == CLOOB_OK; i++) status = take_sample(ctx, r, &p, i, texts);
    stored_sample_release(&p.s);
    return status;
}

/* ---- opening: finds all errors of a job except unreadable images ----------------------------------------- */

static cloob_status declare_part(cloob_ctx *ctx, embed_run *r, embed_part part, int64_t rows)
{
    if (r->width[part])
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s come from two sources; give one of them",
                        part == EMBED_TEXT ? "texts" : "images");
    r->max_rows[part] = rows;
    r->width[part] = encoder_width(r->m->enc, r->job->what, part == EMBED_TEXT);
    return CLOOB_OK;
}

static cloob_status copy_classes(cloob_ctx *ctx, embed_run *r)
{
    embed_result *e = r->e;
    int64_t n = dataset_class_count(r->job->data);
    if (!n) return CLOOB_OK;
    r->max_rows[EMBED_LABEL] = r->names;
    e->class_name = arena_push(&e->strings, (size_t)n * sizeof *e->class_name);
    for (; e->class_name && e->classes < n; e->classes++)
        if (!(e->class_name[e->classes] = arena_string(&e->strings, dataset_class_name(r->job->data, e->classes))))
            break;
    return e->classes == n ? CLOOB_OK : ctx_no_memory(ctx, (size_t)n * sizeof *e->class_name, "class names");
}

static cloob_status open_data(cloob_ctx *ctx, embed_run *r)
{
    const dataset *set = r->job->data;
    int64_t n = dataset_epoch_samples(set);
    if (dataset_has_captions(set) && !r->m->tok)
        ctx_log(ctx, CLOOB_LOG_WARN, "the weights hold no tokenizer: images alone; `vocab` FILE adds the captions");
    bool texts = dataset_has_captions(set) && r->m->tok;
    CLOOB_TRY(declare_part(ctx, r, EMBED_IMAGE, n));
    CLOOB_TRY(read_names(ctx, r, n, texts));
    CLOOB_TRY(copy_classes(ctx, r));
    r->max_rows[EMBED_ROW] = n;
    if (!texts) return CLOOB_OK;
    if (r->job->all_captions) r->max_rows[EMBED_OWNER] = r->captions;
    return declare_part(ctx, r, EMBED_TEXT, r->job->all_captions ? r->captions : n);
}

/* `images` F32 (N, 3, S, S), `tokens` I32 or I64 (N, context): announces them, or refuses another type or shape. */
static cloob_status open_tensor(cloob_ctx *ctx, embed_run *r, embed_part part, const st_entry *e)
{
    const tensor *t = &e->t;
    int64_t S = r->m->view.size, T = encoder_config(r->m->enc)->context;
    char shape[SHAPE_TEXT], wanted[80];
    bool text = part == EMBED_TEXT,
         fits = text ? (t->dtype == CLOOB_I32 || t->dtype == CLOOB_I64) && t->ndim == 2 && t->dim[1] == T
                     : t->dtype == CLOOB_F32 && t->ndim == 4 && t->dim[1] == 3 && t->dim[2] == S && t->dim[3] == S;
    if (fits) return declare_part(ctx, r, part, t->dim[0]);
    if (text) snprintf(wanted, sizeof wanted, "I32 or I64 (N, %lld)", (long long)T);
    else snprintf(wanted, sizeof wanted, "F32 (N, 3, %lld, %lld)", (long long)S, (long long)S);
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s is %s %s, the model wants %s", r->job->tensors, e->name,
                    dtype_name(t->dtype), tensor_shape_text(t, shape), wanted);
}

static cloob_status open_tensors(cloob_ctx *ctx, embed_run *r)
{
    CLOOB_TRY(st_open(ctx, r->job->tensors, &r->tensors));
    r->images = st_find(&r->tensors, "images");
    r->tokens = st_find(&r->tensors, "tokens");
    if (!r->images && !r->tokens)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has neither images nor tokens", r->job->tensors);
    if (r->images) CLOOB_TRY(open_tensor(ctx, r, EMBED_IMAGE, r->images));
    return r->tokens ? open_tensor(ctx, r, EMBED_TEXT, r->tokens) : CLOOB_OK;
}

static cloob_status open_image_files(cloob_ctx *ctx, embed_run *r)
{
    const embed_job *job = r->job;
    CLOOB_TRY(image_list_find(ctx, &r->files, job->images, job->images_count));
    if (!r->files.count)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: holds no images",
                        job->images_count == 1 ? job->images[0] : "these folders");
    CLOOB_TRY(declare_part(ctx, r, EMBED_IMAGE, r->files.count));
    r->name = arena_push(&r->memory, (size_t)r->files.count * sizeof *r->name);
    if (!r->name) return ctx_no_memory(ctx, (size_t)r->files.count * sizeof *r->name, "names");
    for (; r->names < r->files.count; r->names++) r->name[r->names] = r->files.item[r->names].path;
    return CLOOB_OK;
}

/* Cuts the file into lines in place; a last line without an end counts, an empty one is refused. */
static cloob_status open_texts(cloob_ctx *ctx, embed_run *r)
{
    const char *path = r->job->texts;
    int64_t room = 0, n = 0;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &r->text));
    for (char *at = r->text.data; *at;) {
        char *end = at + strcspn(at, "\n"), *next = *end ? end + 1 : end;
        *end = '\0';
        if (end > at && end[-1] == '\r') end[-1] = '\0';
        if (!*at) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: line %lld is empty", path, (long long)n + 1);
        r->caption = arena_grow(&r->memory, r->caption, n, &room, 1024, sizeof *r->caption);
        if (!r->caption) return ctx_no_memory(ctx, (size_t)n * sizeof *r->caption, path);
        r->caption[n++] = at;
        at = next;
    }
    r->captions = n;
    return n ? declare_part(ctx, r, EMBED_TEXT, n) : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: holds no texts", path);
}

/* One batch of rows; names of all rows. */
static cloob_status allocate(cloob_ctx *ctx, embed_run *r)
{
    embed_result *e = r->e;
    e->image_width = r->width[EMBED_IMAGE], e->text_width = r->width[EMBED_TEXT];
    r->at_once = embed_rows_at_once(r->m->enc, AT_ONCE);
    r->rows = arena_push(&r->memory, (size_t)(r->at_once * max64(e->image_width, e->text_width) + 1) * sizeof *r->rows);
    r->bad = arena_push(&r->memory, (size_t)r->at_once);
    if (r->text.size >= NAMES_LIMIT) r->captions = 0;
    if (r->name) e->name = arena_push(&e->strings, (size_t)(r->names + 1) * sizeof *e->name);
    if (r->caption && r->captions)
        e->caption = arena_push(&e->strings, (size_t)(r->max_rows[EMBED_TEXT] + 1) * sizeof *e->caption);
    if (r->rows && r->bad && (!r->name || e->name) && (!r->caption || !r->captions || e->caption)) return CLOOB_OK;
    return ctx_no_memory(ctx, (size_t)(r->names + r->captions) * sizeof(char *), "a batch of embeddings");
}

static cloob_status open_sources(cloob_ctx *ctx, embed_run *r)
{
    if (r->job->data) CLOOB_TRY(open_data(ctx, r));
    if (r->job->tensors) CLOOB_TRY(open_tensors(ctx, r));
    if (r->job->images_count) CLOOB_TRY(open_image_files(ctx, r));
    if (r->job->texts) CLOOB_TRY(open_texts(ctx, r));
    if (r->job->eval.retrieve) {
        bool unit = r->job->what == CLOOB_UNIT;
        CLOOB_TRY(stored_rows_open(ctx, &r->job->eval, r->m->scale_hopfield, unit, &r->stored));
        CLOOB_TRY(stored_rows_check(ctx, &r->stored, r->width[EMBED_IMAGE]));
        CLOOB_TRY(stored_rows_check(ctx, &r->stored, r->width[EMBED_TEXT]));
    }
    return allocate(ctx, r);
}

static void close_sources(embed_run *r)
{
    st_close(&r->tensors);
    image_list_release(&r->files);
    file_bytes_release(&r->text);
    stored_rows_release(&r->stored);
    arena_release(&r->memory);
}

/* ---- where rows go ----------------------------------------------------------------------------------- */

static size_t row_bytes(const embed_run *r, embed_part part)
{
    bool integers = part != EMBED_IMAGE && part != EMBED_TEXT;
    return integers ? sizeof(int64_t) : (size_t)r->width[part] * sizeof(float);
}

/* The next n rows of a part. Retrieval changes them in place. */
static cloob_status append_rows(cloob_ctx *ctx, embed_run *r, embed_part part, void *rows, int64_t n)
{
    size_t bytes = row_bytes(r, part);
    if (r->stored.rows && part >= EMBED_IMAGE) CLOOB_TRY(stored_rows_retrieve(ctx, &r->stored, rows, n));
    if (r->file) return r->place[part] < 0 ? CLOOB_OK : rows_file_put(ctx, r->file, r->place[part], rows, n);
    memcpy((char *)r->to[part] + (size_t)r->done[part] * bytes, rows, (size_t)n * bytes);
    r->done[part] += n;
    return CLOOB_OK;
}

/* ---- running ------------------------------------------------------------------------------------- */

/* Embeds texts and stores their rows and captions. */
static cloob_status put_texts(cloob_ctx *ctx, embed_run *r, const char *const *text, int64_t n)
{
    embed_result *e = r->e;
    for (int64_t i = 0; i < n; i += r->at_once) {
        int64_t count = min64(r->at_once, n - i);
        CLOOB_TRY(cloob_encode_texts(ctx, r->m, text + i, count, r->job->what, r->rows));
        CLOOB_TRY(append_rows(ctx, r, EMBED_TEXT, r->rows, count));
        for (int64_t k = 0; k < count; k++, e->text_rows++)
            if (e->caption && !(e->caption[e->text_rows] = arena_string(&e->strings, text[i + k])))
                return ctx_no_memory(ctx, 64, "captions");
        if (r->job->texts) ctx_progress(ctx, "embed texts", i + count, n, "texts");
    }
    return CLOOB_OK;
}

/* Every caption of a batch's images. They are read again, because long ones were only counted before. */
static cloob_status put_captions(cloob_ctx *ctx, embed_run *r, const embedded *b)
{
    arena a = { 0 };
    stored_sample s = { 0 };
    int64_t n = 0, most = 0;
    for (int64_t i = 0; i < b->rows; i++) most += r->first[b->index[i] + 1] - r->first[b->index[i]];
    const char **text = arena_push(&a, (size_t)(most + 1) * sizeof *text);
    int64_t *owner = arena_push(&a, (size_t)(most + 1) * sizeof *owner);
    cloob_status status = text && owner ? CLOOB_OK : ctx_no_memory(ctx, (size_t)most * sizeof *text, "captions");
    for (int64_t i = 0; i < b->rows; i++) {
        int64_t captions = 1;
        for (int64_t k = 0; k < captions && n < most && status == CLOOB_OK; k++) {
            status = dataset_fetch(ctx, r->job->data, b->index[i], (uint64_t)k, FETCH_CAPTION, &s);
            captions = s.captions;
            bool usable = status == CLOOB_OK && s.caption.len;
            if (is_unreadable(status)) status = CLOOB_OK;
            if (!usable) continue;
            owner[n] = r->e->rows + i;
            if (!(text[n++] = arena_string(&a, s.caption.data)))
                status = ctx_no_memory(ctx, s.caption.len, "a caption");
        }
    }
    if (status == CLOOB_OK) status = put_texts(ctx, r, text, n);
    if (status == CLOOB_OK) status = append_rows(ctx, r, EMBED_OWNER, owner, n);
    stored_sample_release(&s);
    arena_release(&a);
    return status;
}

static cloob_status put_batch(cloob_ctx *ctx, void *user, const embedded *b)
{
    embed_run *r = user;
    embed_result *e = r->e;
    CLOOB_TRY(append_rows(ctx, r, EMBED_ROW, b->index, b->rows));
    CLOOB_TRY(append_rows(ctx, r, EMBED_IMAGE, b->image, b->rows));
    if (b->text) CLOOB_TRY(append_rows(ctx, r, EMBED_TEXT, b->text, b->rows));
    if (b->label) CLOOB_TRY(append_rows(ctx, r, EMBED_LABEL, b->label, b->rows));
    if (r->max_rows[EMBED_OWNER]) CLOOB_TRY(put_captions(ctx, r, b));
    for (int64_t i = 0; i < b->rows; i++, e->rows++) {
        int64_t at = b->index[i];
        if (e->name) e->name[e->rows] = r->name[at];
        if (!b->text) continue;
        if (e->caption) e->caption[e->text_rows] = r->first[at + 1] > r->first[at] ? r->caption[r->first[at]] : "";
        e->text_rows++;
    }
    return CLOOB_OK;
}

/* Tokens [first, first + n) as the encoder takes them. */
static cloob_status narrow_tokens(cloob_ctx *ctx, const embed_run *r, int64_t first, int64_t n, int32_t *out)
{
    const tensor *t = &r->tokens->t;
    int64_t T = t->dim[1];
    if (t->dtype == CLOOB_I32) memcpy(out, (const int32_t *)t->data + first * T, (size_t)(n * T) * sizeof *out);
    for (int64_t i = 0; i < n * T && t->dtype == CLOOB_I64; i++) {
        int64_t id;
        memcpy(&id, (const char *)t->data + 8 * (first * T + i), 8);
        if (id < 0 || id > INT32_MAX)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: tokens holds %lld", r->job->tensors, (long long)id);
        out[i] = (int32_t)id;
    }
    return CLOOB_OK;
}

static cloob_status run_tokens(cloob_ctx *ctx, embed_run *r)
{
    int64_t N = r->tokens->t.dim[0];
    int32_t *ids = arena_push(&r->memory, (size_t)(r->at_once * r->tokens->t.dim[1]) * sizeof *ids);
    if (!ids) return ctx_no_memory(ctx, (size_t)(r->at_once * r->tokens->t.dim[1]) * sizeof *ids, "tokens");
    for (int64_t i = 0; i < N; i += r->at_once) {
        int64_t n = min64(r->at_once, N - i);
        CLOOB_TRY(narrow_tokens(ctx, r, i, n, ids));
        CLOOB_TRY(encoder_texts(ctx, r->m->enc, ids, n, r->job->what, r->rows));
        CLOOB_TRY(append_rows(ctx, r, EMBED_TEXT, r->rows, n));
        r->e->text_rows += n;
    }
    return CLOOB_OK;
}

/* Copies images that are not aligned for floats in the file. */
static cloob_status run_images(cloob_ctx *ctx, embed_run *r)
{
    const tensor *t = &r->images->t;
    int64_t at_once = min64(r->at_once, t->dim[0]);
    size_t row = (size_t)(t->dim[1] * t->dim[2] * t->dim[3]) * sizeof(float), bytes = (size_t)at_once * row;
    bool aligned = (uintptr_t)t->data % sizeof(float) == 0;
    void *copy = aligned ? NULL : arena_push(&r->memory, bytes);
    if (!aligned && !copy) return ctx_no_memory(ctx, bytes, "images");
    for (int64_t i = 0; i < t->dim[0]; i += at_once) {
        int64_t n = min64(at_once, t->dim[0] - i);
        const void *images = (const char *)t->data + (size_t)i * row;
        if (copy) images = memcpy(copy, images, (size_t)n * row);
        CLOOB_TRY(encoder_float_images(ctx, r->m->enc, images, n, r->job->what, r->rows));
        CLOOB_TRY(append_rows(ctx, r, EMBED_IMAGE, r->rows, n));
        r->e->rows += n;
    }
    return CLOOB_OK;
}

static cloob_status run_image_files(cloob_ctx *ctx, embed_run *r)
{
    embed_result *e = r->e;
    int64_t width = r->width[EMBED_IMAGE];
    for (int64_t i = 0; i < r->names; i += AT_ONCE) {
        int64_t n = min64(AT_ONCE, r->names - i), kept = 0;
        ctx_progress(ctx, "embed", i, r->names, "images");
        CLOOB_TRY(cloob_encode_files(ctx, r->m, r->name + i, n, r->job->what, r->rows, r->bad));
        for (int64_t k = 0; k < n; k++) {
            e->bad += r->bad[k]; /* already logged */
            if (r->bad[k]) continue;
            if (!(e->name[e->rows++] = arena_string(&e->strings, r->name[i + k])))
                return ctx_no_memory(ctx, 64, "names");
            memmove(r->rows + kept++ * width, r->rows + k * width, (size_t)width * sizeof *r->rows);
        }
        CLOOB_TRY(append_rows(ctx, r, EMBED_IMAGE, r->rows, kept));
        ctx_progress(ctx, "embed", i + n, r->names, "images");
    }
    if (e->rows) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "none of the %lld images can be read", (long long)r->names);
}

static cloob_status run_sources(cloob_ctx *ctx, embed_run *r)
{
    embed_options o;
    embed_options_init(&o);
    o.what = r->job->what, o.workers = (int)r->job->eval.workers;
    const tokenizer *tok = r->max_rows[EMBED_OWNER] ? NULL : r->m->tok; /* put_captions embeds the texts */
    if (r->job->data) CLOOB_TRY(embed_data_each(ctx, r->m->enc, tok, r->job->data, &o, put_batch, r, &r->e->bad));
    if (r->images) CLOOB_TRY(run_images(ctx, r));
    if (r->tokens) CLOOB_TRY(run_tokens(ctx, r));
    if (r->job->images_count) CLOOB_TRY(run_image_files(ctx, r));
    return r->job->texts ? put_texts(ctx, r, r->caption, r->max_rows[EMBED_TEXT]) : CLOOB_OK;
}

/* ---- into a file ----------------------------------------------------------------------------------- */

typedef struct lists { /* the metadata */
    sbuf text[3];
    st_meta meta[3];
    int64_t count;
} lists;

static void add_list(lists *l, const char *key, const char *const *item, int64_t n)
{
    sbuf *s = &l->text[l->count];
    json_out w = { .spaced = true };
    if (!item || !n) return;
    json_begin(&w, NULL, '[');
    for (int64_t i = 0; i < n; i++) json_put_text(&w, NULL, item[i]);
    json_end(&w);
    json_out_back(&w, s);
    l->meta[l->count++] = (st_meta){ key, s->data };
}

static cloob_status lists_make(cloob_ctx *ctx, lists *l, const char **name, int64_t names, const char **caption,
                               int64_t captions, const embed_result *e)
{
    *l = (lists){ 0 };
    add_list(l, "names", name, names);
    add_list(l, "captions", caption, captions);
    add_list(l, "classes", e->class_name, e->classes);
    for (int i = 0; i < 3; i++)
        if (l->text[i].failed) return ctx_no_memory(ctx, l->text[i].len, "names");
    return CLOOB_OK;
}

static void lists_release(lists *l)
{
    for (int i = 0; i < 3; i++) sbuf_release(&l->text[i]);
}

/* Reserves space for all rows and their metadata, assuming that every input is readable. */
static cloob_status file_begin(cloob_ctx *ctx, embed_run *r, const char *path)
{
    static const char *const name[EMBED_PARTS] = { "label", "row", "text_image", "image", "text" };
    rows_part part[EMBED_PARTS];
    lists l;
    int parts = 0;
    for (int i = 0; i < EMBED_PARTS; i++) {
        bool integers = i < EMBED_IMAGE, there = integers ? r->max_rows[i] > 0 : r->width[i] > 0;
        if (i == EMBED_ROW && text_ends_with(path, ".npy")) there = false; /* it holds one matrix */
        r->place[i] = there ? parts : -1;
        if (there)
            part[parts++] = (rows_part){ name[i], integers ? CLOOB_I64 : CLOOB_F32, r->max_rows[i], r->width[i] };
    }
    if (!parts) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: nothing to write", path);
    cloob_status status = lists_make(ctx, &l, r->name, r->names, r->caption, r->captions, r->e);
    if (status == CLOOB_OK) status = rows_file_begin(ctx, path, part, parts, l.meta, l.count, r->file);
    lists_release(&l);
    return status;
}

/* A .npy file has no metadata: names are in PATH.txt, one per row. */
static cloob_status write_npy_names(cloob_ctx *ctx, const char *path, const embed_result *e)
{
    const char **item = e->name ? e->name : e->caption;
    int64_t n = e->name ? e->rows : e->text_rows;
    sbuf text = { 0 }, names_path = { 0 };
    if (!item || !text_ends_with(path, ".npy")) return CLOOB_OK;
    for (int64_t i = 0; i < n; i++) sbuf_printf(&text, "%s\n", item[i]);
    sbuf_printf(&names_path, "%s.txt", path);
    text.failed = text.failed || names_path.failed;
    cloob_status status = file_write_text(ctx, names_path.failed ? path : names_path.data, &text);
    sbuf_release(&names_path);
    return status;
}

static cloob_status file_end(cloob_ctx *ctx, embed_run *r, const char *path)
{
    const embed_result *e = r->e;
    lists l;
    cloob_status status = lists_make(ctx, &l, e->name, e->rows, e->caption, e->text_rows, e);
    if (status == CLOOB_OK) status = rows_file_end(ctx, r->file, l.meta, l.count);
    if (status == CLOOB_OK) status = write_npy_names(ctx, path, e);
    lists_release(&l);
    return status;
}

cloob_status embed_to_file(cloob_ctx *ctx, cloob_model *m, const embed_job *job, const char *path, embed_result *e)
{
    API_NEEDS(ctx, m && job && path && e);
    rows_file file = { 0 };
    embed_run r = { .m = m, .job = job, .e = e, .file = &file };
    *e = (embed_result){ 0 };
    cloob_status status = open_sources(ctx, &r);
    if (status == CLOOB_OK) status = file_begin(ctx, &r, path);
    if (status == CLOOB_OK) status = run_sources(ctx, &r);
    if (status == CLOOB_OK) status = file_end(ctx, &r, path);
    rows_file_abort(&file);
    close_sources(&r);
    if (status != CLOOB_OK) embed_result_release(e);
    return status;
}

/* ---- into memory ------------------------------------------------------------------------------------- */

void embed_result_release(embed_result *e)
{
    if (!e) return;
    free(e->image), free(e->text), free(e->label), free(e->row), free(e->text_image);
    arena_release(&e->strings);
    *e = (embed_result){ 0 };
}

void embed_job_init(embed_job *job)
{
    if (!job) return;
    *job = (embed_job){ .what = CLOOB_UNIT };
    eval_options_init(&job->eval);
}

cloob_status embed_to_memory(cloob_ctx *ctx, cloob_model *m, const embed_job *job, embed_result *e)
{
    API_NEEDS(ctx, m && job && e);
    embed_run r = { .m = m, .job = job, .e = e };
    *e = (embed_result){ 0 };
    cloob_status status = open_sources(ctx, &r);
    for (int i = 0; i < EMBED_PARTS && status == CLOOB_OK; i++) {
        size_t bytes = (size_t)r.max_rows[i] * row_bytes(&r, i);
        if (bytes && !(r.to[i] = malloc(bytes))) status = ctx_no_memory(ctx, bytes, "embeddings");
    }
    e->label = r.to[EMBED_LABEL], e->row = r.to[EMBED_ROW], e->text_image = r.to[EMBED_OWNER];
    e->image = r.to[EMBED_IMAGE], e->text = r.to[EMBED_TEXT];
    if (status == CLOOB_OK) status = run_sources(ctx, &r);
    close_sources(&r);
    if (status != CLOOB_OK) embed_result_release(e);
    return status;
}

cloob_status embed_dataset(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d, cloob_output what, int workers,
                           embed_result *e)
{
    return embed_to_memory(ctx, m, &(embed_job){ .what = what, .data = d, .eval = { .workers = workers } }, e);
}
