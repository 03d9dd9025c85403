/* One pass over a set without its images. */
#include "infer/embed_source.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"

typedef struct pass {
    const dataset *d;
    sample_names *out;
    stored_sample s;
    int64_t room;  /* of captions */
    int64_t bytes; /* of all texts so far */
    bool keep;     /* false: longer than the limit; only counted from there on */
    bool texts, all;
} pass;

static void free_list(char **list, int64_t n)
{
    for (int64_t i = 0; list && i < n; i++) free(list[i]);
    free(list);
}

void sample_names_release(sample_names *n)
{
    free_list(n->name, n->samples);
    if (n->first) free_list(n->caption, n->first[n->samples]);
    free(n->first);
    *n = (sample_names){ 0 };
}

static void drop_texts(cloob_ctx *ctx, pass *p, int64_t captions)
{
    ctx_log(ctx, CLOOB_LOG_WARN,
            "names and captions are longer than %d MiB together and are left out; `row` says which sample a row is",
            SAMPLE_NAMES_LIMIT >> 20);
    free_list(p->out->name, p->out->samples);
    free_list(p->out->caption, captions);
    p->out->name = p->out->caption = NULL;
    p->keep = false;
}

static cloob_status keep_caption(cloob_ctx *ctx, pass *p, int64_t at)
{
    if (!heap_grow(&p->out->caption, at, &p->room, sizeof *p->out->caption))
        return ctx_no_memory(ctx, (size_t)at * sizeof *p->out->caption, "captions");
    p->out->caption[at] = strdup(p->s.caption.data);
    return p->out->caption[at] ? CLOOB_OK : ctx_no_memory(ctx, p->s.caption.len, "a caption");
}

/* Texts in quotes, with a few marks escaped. */
static int64_t cost(const sbuf *text) { return (int64_t)text->len + 8; }

static cloob_status take_caption(cloob_ctx *ctx, pass *p, int64_t i)
{
    int64_t at = p->out->first[i + 1];
    p->bytes += cost(&p->s.caption);
    if (p->keep && p->bytes > SAMPLE_NAMES_LIMIT) drop_texts(ctx, p, at);
    if (p->keep) CLOOB_TRY(keep_caption(ctx, p, at));
    p->out->first[i + 1]++;
    return CLOOB_OK;
}

static bool passes_over(cloob_status status) { return status == CLOOB_ERR_FORMAT || status == CLOOB_ERR_IO; }

static cloob_status take_sample(cloob_ctx *ctx, pass *p, int64_t i)
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

cloob_status sample_names_read(cloob_ctx *ctx, const dataset *d, int64_t samples, bool captions, bool all,
                               sample_names *out)
{
    *out = (sample_names){ 0 };
    pass p = { .d = d, .out = out, .keep = true, .texts = captions, .all = all };
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
