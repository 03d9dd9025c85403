#include "infer/embed_source.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/arith.h"
#include "infer/embed_data.h"

/* Rows of images, texts or tensors that are made at a time, a multiple of the encoder's batch. */
enum { AT_ONCE = 256 };

/* ---- names and captions: one pass over a set without its images ------------------------------------- */

typedef struct names_pass {
    const dataset *d;
    sample_names *out;
    stored_sample s;
    int64_t room;  /* of captions */
    int64_t bytes; /* of all texts so far */
    bool keep;     /* false: longer than the limit; only counted from there on */
    bool texts, all;
} names_pass;

void free_list(char **list, int64_t n)
{
    for (int64_t i = 0; list && i < n; i++) free(list[i]);
    free(list);
}

static void sample_names_release(sample_names *n)
{
    free_list(n->name, n->samples);
    if (n->first) free_list(n->caption, n->first[n->samples]);
    free(n->first);
    *n = (sample_names){ 0 };
}

static void drop_texts(cloob_ctx *ctx, names_pass *p, int64_t captions)
{
    ctx_log(ctx, CLOOB_LOG_WARN,
            "names and captions are longer than %d MiB together and are left out; `row` says which sample a row is",
            SAMPLE_NAMES_LIMIT >> 20);
    free_list(p->out->name, p->out->samples);
    free_list(p->out->caption, captions);
    p->out->name = p->out->caption = NULL;
    p->keep = false;
}

static cloob_status keep_caption(cloob_ctx *ctx, names_pass *p, int64_t at)
{
    if (!heap_grow(&p->out->caption, at, &p->room, sizeof *p->out->caption))
        return ctx_no_memory(ctx, (size_t)at * sizeof *p->out->caption, "captions");
    p->out->caption[at] = strdup(p->s.caption.data);
    return p->out->caption[at] ? CLOOB_OK : ctx_no_memory(ctx, p->s.caption.len, "a caption");
}

/* Texts in quotes, with a few marks escaped. */
static int64_t cost(const sbuf *text) { return (int64_t)text->len + 8; }

static cloob_status take_caption(cloob_ctx *ctx, names_pass *p, int64_t i)
{
    int64_t at = p->out->first[i + 1];
    p->bytes += cost(&p->s.caption);
    if (p->keep && p->bytes > SAMPLE_NAMES_LIMIT) drop_texts(ctx, p, at);
    if (p->keep) CLOOB_TRY(keep_caption(ctx, p, at));
    p->out->first[i + 1]++;
    return CLOOB_OK;
}

static bool passes_over(cloob_status status) { return status == CLOOB_ERR_FORMAT || status == CLOOB_ERR_IO; }

static cloob_status take_sample(cloob_ctx *ctx, names_pass *p, int64_t i)
{
    int what = p->texts ? FETCH_CAPTION : 0;
    p->out->first[i + 1] = p->out->first[i];
    cloob_status status = dataset_fetch(ctx, p->d, i, 0, what, &p->s);
    if (status != CLOOB_OK && !passes_over(status)) return status;
    if (p->keep) p->out->name[i] = strdup(p->s.name.len ? p->s.name.data : "");
    if (p->keep && !p->out->name[i]) return ctx_no_memory(ctx, p->s.name.len, "names");
    p->bytes += cost(&p->s.name);
    int64_t captions = p->all ? p->s.captions : 1;
    for (int64_t k = 0; p->texts && k < captions; k++) {
        if (k) status = dataset_fetch(ctx, p->d, i, (uint64_t)k, what, &p->s);
        if (status == CLOOB_OK && p->s.caption.len) CLOOB_TRY(take_caption(ctx, p, i));
        else if (status != CLOOB_OK && !passes_over(status)) return status;
    }
    return CLOOB_OK;
}

/* captions: the first of each sample; with all, every one. A sample that cannot be read has an empty name and no
 * caption. On failure out is empty. */
static cloob_status sample_names_read(cloob_ctx *ctx, const dataset *d, int64_t samples, bool captions, bool all,
                                      sample_names *out)
{
    *out = (sample_names){ 0 };
    names_pass p = { .d = d, .out = out, .keep = true, .texts = captions, .all = all };
    out->first = calloc((size_t)samples + 1, sizeof *out->first);
    out->name = calloc((size_t)samples + 1, sizeof *out->name);
    cloob_status status = CLOOB_OK;
    if (!out->first || !out->name) status = ctx_no_memory(ctx, (size_t)samples * sizeof *out->name, "names");
    for (int64_t i = 0; i < samples && status == CLOOB_OK; i++) {
        out->samples = i + 1;
        status = take_sample(ctx, &p, i);
    }
    stored_sample_release(&p.s);
    if (status != CLOOB_OK) sample_names_release(out);
    return status;
}

/* ---- opening ------------------------------------------------------------------------------------- */

static cloob_status announce(cloob_ctx *ctx, embed_source *s, embed_part part, int64_t rows)
{
    if (s->width[part])
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s come from two sources; give one of them",
                        part == EMBED_TEXT ? "texts" : "images");
    s->max_rows[part] = rows;
    s->width[part] = encoder_width(s->m->enc, s->job.what, part == EMBED_TEXT);
    return CLOOB_OK;
}

static cloob_status open_data(cloob_ctx *ctx, embed_source *s)
{
    const dataset *set = s->job.data;
    int64_t n = dataset_epoch_samples(set);
    if (dataset_has_captions(set) && !s->m->tok)
        ctx_log(ctx, CLOOB_LOG_WARN, "the weights hold no tokenizer: images alone; `vocab` FILE adds the captions");
    bool texts = dataset_has_captions(set) && s->m->tok;
    CLOOB_TRY(announce(ctx, s, EMBED_IMAGE, n));
    CLOOB_TRY(sample_names_read(ctx, set, n, texts, s->job.all_captions, &s->names));
    s->max_rows[EMBED_ROW] = n;
    if (dataset_class_count(set)) s->max_rows[EMBED_LABEL] = n;
    if (!texts) return CLOOB_OK;
    if (s->job.all_captions) s->max_rows[EMBED_OWNER] = s->names.first[n];
    return announce(ctx, s, EMBED_TEXT, s->job.all_captions ? s->names.first[n] : n);
}

static cloob_status check_images(cloob_ctx *ctx, const embed_source *s)
{
    const tensor *t = &s->images->t;
    int64_t S = s->m->view.size;
    char shape[SHAPE_TEXT];
    if (t->dtype == CLOOB_F32 && t->ndim == 4 && t->dim[1] == 3 && t->dim[2] == S && t->dim[3] == S) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: images is %s %s, the model wants F32 (N, 3, %lld, %lld)",
                    s->job.tensors, dtype_name(t->dtype), tensor_shape_text(t, shape), (long long)S, (long long)S);
}

static cloob_status check_tokens(cloob_ctx *ctx, const embed_source *s)
{
    const tensor *t = &s->tokens->t;
    int64_t T = encoder_config(s->m->enc)->context;
    char shape[SHAPE_TEXT];
    if ((t->dtype == CLOOB_I32 || t->dtype == CLOOB_I64) && t->ndim == 2 && t->dim[1] == T) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: tokens is %s %s, the model wants I32 or I64 (N, %lld)", s->job.tensors,
                    dtype_name(t->dtype), tensor_shape_text(t, shape), (long long)T);
}

static cloob_status open_tensors(cloob_ctx *ctx, embed_source *s)
{
    CLOOB_TRY(st_open(ctx, s->job.tensors, &s->tensors));
    s->images = st_find(&s->tensors, "images");
    s->tokens = st_find(&s->tensors, "tokens");
    if (!s->images && !s->tokens)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has neither images nor tokens", s->job.tensors);
    if (s->images) {
        CLOOB_TRY(check_images(ctx, s));
        CLOOB_TRY(announce(ctx, s, EMBED_IMAGE, s->images->t.dim[0]));
    }
    if (!s->tokens) return CLOOB_OK;
    CLOOB_TRY(check_tokens(ctx, s));
    return announce(ctx, s, EMBED_TEXT, s->tokens->t.dim[0]);
}

static cloob_status open_image_files(cloob_ctx *ctx, embed_source *s)
{
    int64_t n = s->job.images_count;
    for (int64_t i = 0; i < n; i++) CLOOB_TRY(image_list_add(ctx, &s->files, s->job.images[i], n == 1));
    if (!s->files.count)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: holds no images", n == 1 ? s->job.images[0] : "these folders");
    return announce(ctx, s, EMBED_IMAGE, s->files.count);
}

/* Cuts the text into lines in place; a last line without an end counts, an empty one is refused. */
static cloob_status split_lines(cloob_ctx *ctx, const char *path, char *text, const char ***out, int64_t *n)
{
    int64_t capacity = 0;
    for (char *at = text; *at;) {
        char *end = at + strcspn(at, "\n"), *next = *end ? end + 1 : end;
        *end = '\0';
        if (end > at && end[-1] == '\r') end[-1] = '\0';
        if (!*at) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: line %lld is empty", path, (long long)*n + 1);
        if (!heap_grow(out, *n, &capacity, sizeof **out)) return ctx_no_memory(ctx, (size_t)*n * sizeof **out, path);
        (*out)[(*n)++] = at;
        at = next;
    }
    return *n ? CLOOB_OK : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: holds no texts", path);
}

static cloob_status open_texts(cloob_ctx *ctx, embed_source *s)
{
    int64_t n = 0;
    CLOOB_TRY(file_read(ctx, s->job.texts, FILE_TEXT_LIMIT, &s->text));
    CLOOB_TRY(split_lines(ctx, s->job.texts, s->text.data, &s->line, &n));
    return announce(ctx, s, EMBED_TEXT, n);
}

static cloob_status make_room(cloob_ctx *ctx, embed_source *s)
{
    int64_t width = s->width[EMBED_IMAGE] > s->width[EMBED_TEXT] ? s->width[EMBED_IMAGE] : s->width[EMBED_TEXT];
    size_t bytes = (size_t)(embed_rows_at_once(s->m->enc, AT_ONCE) * width) * sizeof *s->rows;
    s->rows = malloc(bytes ? bytes : 1);
    s->bad = calloc((size_t)embed_rows_at_once(s->m->enc, AT_ONCE), sizeof *s->bad);
    return s->rows && s->bad ? CLOOB_OK : ctx_no_memory(ctx, bytes, "a batch of embeddings");
}

cloob_status embed_source_open(cloob_ctx *ctx, cloob_model *m, const embed_job *job, embed_source *s)
{
    cloob_status status = CLOOB_OK;
    *s = (embed_source){ .m = m, .job = *job };
    if (job->data) status = open_data(ctx, s);
    if (status == CLOOB_OK && job->tensors) status = open_tensors(ctx, s);
    if (status == CLOOB_OK && job->images_count) status = open_image_files(ctx, s);
    if (status == CLOOB_OK && job->texts) status = open_texts(ctx, s);
    if (status == CLOOB_OK) status = make_room(ctx, s);
    if (status != CLOOB_OK) embed_source_close(s);
    return status;
}

void embed_source_close(embed_source *s)
{
    st_close(&s->tensors);
    sample_names_release(&s->names);
    image_list_release(&s->files);
    file_bytes_release(&s->text);
    free(s->line), free(s->rows), free(s->bad);
    *s = (embed_source){ 0 };
}

/* ---- running ------------------------------------------------------------------------------------- */

typedef struct flow { /* one run */
    embed_source *s;
    embed_put *put;
    void *user;
    embed_result *e;
    int64_t *index; /* (images) which sample each is, where every caption is embedded */
} flow;

static char *copy_text(const char *text) { return strdup(text ? text : ""); }

/* Names of a batch's images, and captions where there is one each. */
static cloob_status name_batch(cloob_ctx *ctx, flow *f, const embedded *b)
{
    const sample_names *n = &f->s->names;
    embed_result *e = f->e;
    for (int64_t i = 0; i < b->rows; i++) {
        int64_t at = b->index[i];
        if (n->name && !(e->name[e->rows] = copy_text(n->name[at]))) return ctx_no_memory(ctx, 64, "names");
        e->rows++;
        if (!b->text) continue;
        bool has = n->first[at + 1] > n->first[at];
        if (n->caption && !(e->caption[e->text_rows] = copy_text(has ? n->caption[n->first[at]] : NULL)))
            return ctx_no_memory(ctx, 64, "captions");
        e->text_rows++;
    }
    return CLOOB_OK;
}

static cloob_status put_batch(cloob_ctx *ctx, void *user, const embedded *b)
{
    flow *f = user;
    CLOOB_TRY(f->put(ctx, f->user, EMBED_ROW, b->index, b->rows));
    CLOOB_TRY(f->put(ctx, f->user, EMBED_IMAGE, b->image, b->rows));
    if (b->text) CLOOB_TRY(f->put(ctx, f->user, EMBED_TEXT, b->text, b->rows));
    if (b->label) CLOOB_TRY(f->put(ctx, f->user, EMBED_LABEL, b->label, b->rows));
    if (f->index) memcpy(f->index + f->e->rows, b->index, (size_t)b->rows * sizeof *f->index);
    return name_batch(ctx, f, b);
}

/* ---- every caption of an image ------------------------------------------------------------------- */

typedef struct caption_batch {
    char *text[AT_ONCE];
    int64_t owner[AT_ONCE];
    int64_t n;
} caption_batch;

static void drop_captions(caption_batch *b)
{
    while (b->n > 0) free(b->text[--b->n]);
}

static cloob_status put_captions(cloob_ctx *ctx, flow *f, caption_batch *b)
{
    embed_source *s = f->s;
    embed_result *e = f->e;
    CLOOB_TRY(model_texts(ctx, s->m, (const char *const *)b->text, b->n, s->job.what, s->rows));
    CLOOB_TRY(f->put(ctx, f->user, EMBED_TEXT, s->rows, b->n));
    CLOOB_TRY(f->put(ctx, f->user, EMBED_OWNER, b->owner, b->n));
    for (int64_t i = 0; i < b->n; i++, e->text_rows++)
        if (e->caption && !(e->caption[e->text_rows] = strdup(b->text[i]))) return ctx_no_memory(ctx, 64, "captions");
    drop_captions(b);
    return CLOOB_OK;
}

static cloob_status add_captions(cloob_ctx *ctx, flow *f, int64_t row, caption_batch *b)
{
    stored_sample s = { 0 };
    cloob_status status = CLOOB_OK;
    int64_t captions = 1;
    for (int64_t k = 0; k < captions && status == CLOOB_OK; k++) {
        status = dataset_fetch(ctx, f->s->job.data, f->index[row], (uint64_t)k, FETCH_CAPTION, &s);
        captions = s.captions;
        bool unreadable = status == CLOOB_ERR_FORMAT || status == CLOOB_ERR_IO;
        if (unreadable) status = CLOOB_OK; /* as when the names were read */
        if (unreadable || status != CLOOB_OK || !s.caption.len) continue;
        b->owner[b->n] = row;
        if (!(b->text[b->n] = strdup(s.caption.data))) status = ctx_no_memory(ctx, s.caption.len, "a caption");
        else b->n++;
        if (status == CLOOB_OK && b->n == AT_ONCE) status = put_captions(ctx, f, b);
    }
    stored_sample_release(&s);
    return status;
}

static cloob_status run_captions(cloob_ctx *ctx, flow *f)
{
    caption_batch *b = calloc(1, sizeof *b);
    cloob_status status = b ? CLOOB_OK : ctx_no_memory(ctx, sizeof *b, "captions");
    for (int64_t i = 0; i < f->e->rows && status == CLOOB_OK; i++) status = add_captions(ctx, f, i, b);
    if (status == CLOOB_OK && b->n) status = put_captions(ctx, f, b);
    if (b) drop_captions(b);
    free(b);
    return status;
}

/* ---- a data set ---------------------------------------------------------------------------------- */

static cloob_status copy_classes(cloob_ctx *ctx, const dataset *d, embed_result *e)
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

static cloob_status name_room(cloob_ctx *ctx, flow *f)
{
    const embed_source *s = f->s;
    size_t images = (size_t)s->max_rows[EMBED_IMAGE] + 1, texts = (size_t)s->max_rows[EMBED_TEXT] + 1;
    bool names = s->names.name != NULL, captions = s->names.caption != NULL, all = s->max_rows[EMBED_OWNER] > 0;
    if (names) f->e->name = calloc(images, sizeof *f->e->name);
    if (captions) f->e->caption = calloc(texts, sizeof *f->e->caption);
    if (all) f->index = malloc(images * sizeof *f->index);
    if ((!names || f->e->name) && (!captions || f->e->caption) && (!all || f->index)) return CLOOB_OK;
    return ctx_no_memory(ctx, (images + texts) * sizeof(char *), "names");
}

static cloob_status run_data(cloob_ctx *ctx, flow *f)
{
    const dataset *set = f->s->job.data;
    model *m = f->s->m;
    embed_options o;
    bool all = f->s->max_rows[EMBED_OWNER] > 0;
    embed_options_init(&o);
    o.what = f->s->job.what, o.workers = (int)f->s->job.eval.workers;
    CLOOB_TRY(name_room(ctx, f));
    CLOOB_TRY(embed_data_each(ctx, m->enc, all ? NULL : m->tok, set, &o, put_batch, f, &f->e->bad));
    if (all) CLOOB_TRY(run_captions(ctx, f));
    return copy_classes(ctx, set, f->e);
}

/* Tokens [first, first + n) as the encoder takes them. */
static cloob_status narrow_tokens(cloob_ctx *ctx, const embed_source *s, int64_t first, int64_t n, int32_t *out)
{
    const tensor *t = &s->tokens->t;
    int64_t T = t->dim[1];
    if (t->dtype == CLOOB_I32) memcpy(out, (const int32_t *)t->data + first * T, (size_t)(n * T) * sizeof *out);
    for (int64_t i = 0; i < n * T && t->dtype == CLOOB_I64; i++) {
        int64_t id;
        memcpy(&id, (const char *)t->data + 8 * (first * T + i), 8);
        if (id < 0 || id > INT32_MAX)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: tokens holds %lld", s->job.tensors, (long long)id);
        out[i] = (int32_t)id;
    }
    return CLOOB_OK;
}

static cloob_status run_tokens(cloob_ctx *ctx, flow *f)
{
    embed_source *s = f->s;
    int64_t at_once = embed_rows_at_once(s->m->enc, AT_ONCE), T = s->tokens->t.dim[1];
    int32_t *ids = malloc((size_t)(at_once * T) * sizeof *ids);
    cloob_status status = ids ? CLOOB_OK : ctx_no_memory(ctx, (size_t)(at_once * T) * sizeof *ids, "tokens");
    for (int64_t i = 0; i < s->tokens->t.dim[0] && status == CLOOB_OK; i += at_once) {
        int64_t n = min64(at_once, s->tokens->t.dim[0] - i);
        status = narrow_tokens(ctx, s, i, n, ids);
        if (status == CLOOB_OK) status = encoder_texts(ctx, s->m->enc, ids, n, s->job.what, s->rows);
        if (status == CLOOB_OK) status = f->put(ctx, f->user, EMBED_TEXT, s->rows, n);
        if (status == CLOOB_OK) f->e->text_rows += n;
    }
    free(ids);
    return status;
}

/* The images lie in the file, at whatever address the length of its header leaves them: a copy where floats may not. */
static cloob_status run_images(cloob_ctx *ctx, flow *f)
{
    embed_source *s = f->s;
    const tensor *t = &s->images->t;
    int64_t at_once = min64(embed_rows_at_once(s->m->enc, AT_ONCE), t->dim[0]),
            each = t->dim[1] * t->dim[2] * t->dim[3];
    size_t row = (size_t)each * sizeof(float), room = (size_t)at_once * row;
    bool aligned = (uintptr_t)t->data % sizeof(float) == 0;
    float *copy = aligned ? NULL : malloc(room + 1);
    cloob_status status = aligned || copy ? CLOOB_OK : ctx_no_memory(ctx, room, "images");
    for (int64_t i = 0; i < t->dim[0] && status == CLOOB_OK; i += at_once) {
        int64_t n = min64(at_once, t->dim[0] - i);
        const void *rows = (const char *)t->data + (size_t)i * row;
        if (copy) rows = memcpy(copy, rows, (size_t)n * row);
        status = encoder_float_images(ctx, s->m->enc, rows, n, s->job.what, s->rows);
        if (status == CLOOB_OK) status = f->put(ctx, f->user, EMBED_IMAGE, s->rows, n);
        if (status == CLOOB_OK) f->e->rows += n;
    }
    free(copy);
    return status;
}

/* Moves the readable rows of a batch together and notes their names; *kept of them. */
static cloob_status keep_readable(cloob_ctx *ctx, flow *f, const image_entry *item, int64_t n, int64_t *kept)
{
    embed_source *s = f->s;
    int64_t width = s->width[EMBED_IMAGE];
    *kept = 0;
    for (int64_t i = 0; i < n; i++) {
        f->e->bad += s->bad[i]; /* its message has gone to the log */
        if (s->bad[i]) continue;
        if (!(f->e->name[f->e->rows] = strdup(item[i].path))) return ctx_no_memory(ctx, 64, "names");
        memmove(s->rows + *kept * width, s->rows + i * width, (size_t)width * sizeof *s->rows);
        f->e->rows++, ++*kept;
    }
    return CLOOB_OK;
}

static cloob_status image_batch(cloob_ctx *ctx, flow *f, const image_entry *item, int64_t n)
{
    embed_source *s = f->s;
    const char *path[AT_ONCE];
    int64_t kept;
    for (int64_t i = 0; i < n; i++) path[i] = item[i].path;
    CLOOB_TRY(model_image_files(ctx, s->m, path, n, s->job.what, s->rows, s->bad));
    CLOOB_TRY(keep_readable(ctx, f, item, n, &kept));
    return f->put(ctx, f->user, EMBED_IMAGE, s->rows, kept);
}

static cloob_status run_image_files(cloob_ctx *ctx, flow *f)
{
    const image_list *l = &f->s->files;
    f->e->name = calloc((size_t)(l->count + 1), sizeof *f->e->name);
    if (!f->e->name) return ctx_no_memory(ctx, (size_t)l->count * sizeof *f->e->name, "names");
    for (int64_t i = 0; i < l->count; i += AT_ONCE) {
        int64_t n = min64(AT_ONCE, l->count - i);
        ctx_progress(ctx, "embed", i, l->count, "images");
        CLOOB_TRY(image_batch(ctx, f, l->item + i, n));
        ctx_progress(ctx, "embed", i + n, l->count, "images");
    }
    if (f->e->rows) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "there is no readable image among the %lld files", (long long)l->count);
}

static cloob_status run_texts(cloob_ctx *ctx, flow *f)
{
    embed_source *s = f->s;
    int64_t at_once = embed_rows_at_once(s->m->enc, AT_ONCE), all = s->max_rows[EMBED_TEXT];
    bool keep = s->text.size < SAMPLE_NAMES_LIMIT;
    if (keep && !(f->e->caption = calloc((size_t)all + 1, sizeof *f->e->caption)))
        return ctx_no_memory(ctx, (size_t)all * sizeof *f->e->caption, "captions");
    for (int64_t i = 0; i < all; i += at_once) {
        int64_t n = min64(at_once, all - i);
        CLOOB_TRY(model_texts(ctx, s->m, s->line + i, n, s->job.what, s->rows));
        CLOOB_TRY(f->put(ctx, f->user, EMBED_TEXT, s->rows, n));
        for (int64_t k = 0; k < n; k++, f->e->text_rows++)
            if (keep && !(f->e->caption[i + k] = strdup(s->line[i + k]))) return ctx_no_memory(ctx, 64, "captions");
        ctx_progress(ctx, "embed texts", i + n, all, "texts");
    }
    return CLOOB_OK;
}

static cloob_status run_all(cloob_ctx *ctx, flow *f)
{
    const embed_source *s = f->s;
    embed_result *e = f->e;
    if (s->width[EMBED_IMAGE]) e->image_width = s->width[EMBED_IMAGE];
    if (s->width[EMBED_TEXT]) e->text_width = s->width[EMBED_TEXT];
    if (s->job.data) CLOOB_TRY(run_data(ctx, f));
    if (s->images) CLOOB_TRY(run_images(ctx, f));
    if (s->tokens) CLOOB_TRY(run_tokens(ctx, f));
    if (s->job.images_count) CLOOB_TRY(run_image_files(ctx, f));
    return s->job.texts ? run_texts(ctx, f) : CLOOB_OK;
}

cloob_status embed_source_run(cloob_ctx *ctx, embed_source *s, embed_put *put, void *user, embed_result *e)
{
    flow f = { s, put, user, e, NULL };
    cloob_status status = run_all(ctx, &f);
    free(f.index);
    return status;
}
