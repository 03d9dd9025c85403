/* CIFAR-10/100, STL-10 and MNIST: records of raw pixels, read where they lie. */
#include "data/sets/dataset_raw.h"

#include <stdlib.h>
#include <string.h>

static cloob_status raw_create(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    raw_set *r = p->self = calloc(1, sizeof *r);
    if (!r) return ctx_no_memory(ctx, sizeof *r, source);
    return raw_files_open(ctx, source, o->cache, &r->files);
}

cloob_status raw_open(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p, raw_fill *fill)
{
    CLOOB_TRY(raw_create(ctx, source, o, p));
    raw_set *r = p->self;
    CLOOB_TRY(fill(ctx, source, o, p));
    p->files = raw_files_set(r->files);
    for (int i = 0; i < r->runs; i++) p->count += r->run[i].count;
    return CLOOB_OK;
}

void raw_close(dataset_part *p)
{
    raw_set *r = p->self;
    if (!r) return;
    for (int i = 0; i < r->runs; i++) free(r->run[i].labels);
    raw_files_close(r->files);
    p->files = NULL; /* closed with the raw_files */
    free(r);
}

cloob_status raw_add_run(cloob_ctx *ctx, dataset_part *p, raw_run run)
{
    raw_set *r = p->self;
    if (r->runs == RAW_RUNS) {
        free(run.labels);
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "more than %d parts", RAW_RUNS);
    }
    r->run[r->runs++] = run;
    return CLOOB_OK;
}

cloob_status raw_class_lines(cloob_ctx *ctx, dataset_part *p, const char *name)
{
    raw_set *r = p->self;
    char *text;
    size_t size;
    CLOOB_TRY(raw_files_text(ctx, r->files, name, 1 << 20, &text, &size));
    cloob_status status = CLOOB_OK;
    for (char *line = text; *line && status == CLOOB_OK;) {
        size_t n = strcspn(line, "\r\n");
        for (size_t i = 0; i < n; i++)
            if (line[i] == '_') line[i] = ' '; /* "aquarium_fish": a prompt wants words */
        if (n) status = name_list_add(ctx, &p->classes, line, n);
        line += n;
        line += strspn(line, "\r\n");
    }
    free(text);
    if (status == CLOOB_OK && !p->classes.count) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: names no class", name);
    return status;
}

bool raw_wants(const dataset_options *o, const char *source, const char *file, bool is_test)
{
    if (strcmp(name_base(source), file) == 0) return true; /* the path names this very file */
    if (strlen(name_base(source)) > 4 && strcmp(name_base(source) + strlen(name_base(source)) - 4, ".bin") == 0)
        return false;
    bool train = o->split && strcmp(o->split, "train") == 0;
    return train != is_test;
}

/* Planes to interleaved pixels; MNIST's one plane becomes three, STL-10's are stored by columns. */
static void unpack(const raw_run *run, const unsigned char *in, unsigned char *out)
{
    int64_t side = run->side, plane = side * side;
    for (int64_t y = 0; y < side; y++)
        for (int64_t x = 0; x < side; x++)
            for (int64_t c = 0; c < 3; c++) {
                int64_t at = run->by_columns ? x * side + y : y * side + x;
                out[(y * side + x) * 3 + c] = in[(run->planes == 3 ? c * plane : 0) + at];
            }
}

static const raw_run *find_run(const raw_set *r, int64_t *i)
{
    int k = 0;
    while (*i >= r->run[k].count) *i -= r->run[k++].count;
    return &r->run[k];
}

/* Labels are places among the classes: evaluations count by them. */
static cloob_status check_label(cloob_ctx *ctx, const dataset_part *p, const stored_sample *s)
{
    if (s->label < p->classes.count) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: class %lld of %lld", s->name.data, (long long)s->label,
                    (long long)p->classes.count);
}

cloob_status raw_fetch(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what, stored_sample *s)
{
    const raw_set *r = p->self;
    const raw_run *run = find_run(r, &i);
    (void)pick;
    sbuf_printf(&s->name, "%s: image %lld", fileset_name(p->files, run->at.file), (long long)i);
    int64_t pixels = run->side * run->side * run->planes, rgb = run->side * run->side * 3;
    if (run->labels) s->label = run->labels[i];
    if (run->labels) CLOOB_TRY(check_label(ctx, p, s));
    if (!(what & FETCH_IMAGE) && run->labels) return CLOOB_OK;
    CLOOB_TRY(stored_reserve(ctx, s, (size_t)(rgb + run->record)));
    unsigned char *record = s->data + rgb; /* behind where the pixels will stand */
    CLOOB_TRY(fileset_read(ctx, p->files, run->at.file, run->at.offset + run->header + i * run->record, record,
                           (size_t)run->record));
    if (!run->labels && run->label_at >= 0) s->label = record[run->label_at];
    CLOOB_TRY(check_label(ctx, p, s));
    unpack(run, record + run->record - pixels, s->data);
    s->size = (size_t)rgb;
    s->width = s->height = run->side;
    return CLOOB_OK;
}
