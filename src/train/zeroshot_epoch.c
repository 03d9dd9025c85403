/* Zero-shot during training: class folders, their prompts, and the numbers under open_clip's names. */
#include <stdio.h>

#include "infer/class_match.h"
#include "infer/zeroshot_run.h"
#include "train/run.h"

typedef struct source {
    const char *data, *key, *set; /* set: the prompts' name for it; NULL: what the flags say */
} source;

/* ImageNet's prompts are found by name; other folders take --zeroshot-set, or the only set there is. */
static cloob_status choose_prompts(cloob_ctx *ctx, const run *r, const source *s, const dataset *d, prompts *p,
                                   arena *a, prompt_set *out)
{
    const char *name = s->set ? s->set : r->o->zeroshot_set;
    const prompt_set *found = NULL;
    if (!r->o->zeroshot_prompts) return class_names_as_prompts(ctx, d, a, out);
    CLOOB_TRY(prompts_open(ctx, r->o->zeroshot_prompts, p));
    if (name) CLOOB_TRY(prompts_find(ctx, p, name, &found));
    else if (p->count == 1) found = &p->set[0];
    else
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: holds %lld sets; `zeroshot_set` says which",
                        r->o->zeroshot_prompts, (long long)p->count);
    *out = *found;
    return CLOOB_OK;
}

static cloob_status measure_accuracy(cloob_ctx *ctx, run *r, encoder *e, const source *s, const dataset *d,
                                     accuracy_result *out)
{
    zeroshot_run_options o;
    zeroshot z;
    prompts p = { 0 };
    arena a = { 0 };
    prompt_set set;
    int64_t bad;
    zeroshot_run_options_init(&o);
    o.workers = (int)r->o->workers;
    cloob_status status = choose_prompts(ctx, r, s, d, &p, &a, &set);
    if (status == CLOOB_OK) status = zeroshot_run(ctx, e, r->tok, d, &set, &o, &z, &bad);
    if (status == CLOOB_OK) {
        *out = accuracy_finish(&z.count);
        zeroshot_release(&z);
    }
    prompts_release(&p);
    arena_release(&a);
    return status;
}

static void put(run *r, json_out *line, int64_t epoch, const char *key, const char *which, double number)
{
    char name[80];
    snprintf(name, sizeof name, "%s-%s", key, which);
    journal_put(r->log, line, epoch, name, number);
}

static cloob_status one_source(cloob_ctx *ctx, run *r, encoder *e, const source *s, int64_t epoch, json_out *line)
{
    cloob_data_options o;
    dataset *d;
    accuracy_result t;
    cloob_data_options_init(&o);
    CLOOB_TRY(dataset_open(ctx, s->data, &o, &d));
    cloob_status status = measure_accuracy(ctx, r, e, s, d, &t);
    dataset_close(d);
    CLOOB_TRY(status);
    put(r, line, epoch, s->key, "top1", t.top1);
    put(r, line, epoch, s->key, "top5", t.top5);
    journal_line(ctx, r->log, "epoch %lld: %s top1 %.4f, top5 %.4f over %lld images", (long long)epoch, s->key, t.top1,
                 t.top5, (long long)t.n);
    return CLOOB_OK;
}

bool run_has_zeroshot(const run *r) { return r->o->imagenet_val || r->o->imagenet_v2 || r->o->zeroshot_data; }

static void list_sources(const run *r, source s[3])
{
    s[0] = (source){ r->o->imagenet_val, "imagenet-zeroshot-val", "imagenet" };
    s[1] = (source){ r->o->imagenet_v2, "imagenetv2-zeroshot-val", "imagenet" };
    s[2] = (source){ r->o->zeroshot_data, "zeroshot-val", NULL };
}

static cloob_status check_source(cloob_ctx *ctx, const run *r, const source *s)
{
    prompts p = { 0 };
    arena a = { 0 };
    prompt_set set;
    dataset *d;
    CLOOB_TRY(dataset_open(ctx, s->data, NULL, &d));
    cloob_status status = choose_prompts(ctx, r, s, d, &p, &a, &set);
    if (status == CLOOB_OK && dataset_class_count(d) < 2)
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: zero-shot needs folders of two classes or more", s->data);
    prompts_release(&p);
    arena_release(&a);
    dataset_close(d);
    return status;
}

cloob_status run_check_zeroshot(cloob_ctx *ctx, const run *r)
{
    source s[3];
    list_sources(r, s);
    for (int i = 0; i < 3; i++)
        if (s[i].data) CLOOB_TRY(check_source(ctx, r, &s[i]));
    return CLOOB_OK;
}

cloob_status run_zeroshot(cloob_ctx *ctx, run *r, encoder *e, int64_t epoch, json_out *line)
{
    source s[3];
    list_sources(r, s);
    for (int i = 0; i < 3; i++)
        if (s[i].data) CLOOB_TRY(one_source(ctx, r, e, &s[i], epoch, line));
    return CLOOB_OK;
}
