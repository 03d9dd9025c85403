/* JSON by hand: keys are ours, numbers go through json_put_number. */
#include "eval/eval_json.h"

#include <stdio.h>

#include "core/json.h"
#include "core/sbuf.h"

static void key(sbuf *s, const char *name, const char *suffix)
{
    sbuf_printf(s, "%s\"%s%s\": ", s->len && s->data[s->len - 1] != '{' ? ", " : "", name, suffix);
}

static void number(sbuf *s, const char *name, double x)
{
    key(s, name, "");
    json_put_number(s, x);
}

static void whole(sbuf *s, const char *name, int64_t x)
{
    key(s, name, "");
    sbuf_printf(s, "%lld", (long long)x);
}

static void truth(sbuf *s, const char *name, bool x)
{
    key(s, name, "");
    sbuf_puts(s, x ? "true" : "false");
}

/* "name_suffix" */
static void named(sbuf *s, const char *name, const char *suffix, double x)
{
    key(s, name, suffix);
    json_put_number(s, x);
}

static char *finish(sbuf *s)
{
    sbuf_puts(s, "}\n");
    return sbuf_detach(s);
}

/* ---- retrieval ----------------------------------------------------------------------------------- */

static void put_side(sbuf *s, const char *name, const cloob_retrieval_side *r)
{
    named(s, name, "_R@1", r->recall1);
    named(s, name, "_R@5", r->recall5);
    named(s, name, "_R@10", r->recall10);
    named(s, name, "_mean_rank", r->mean_rank);
    named(s, name, "_median_rank", r->median_rank);
    named(s, name, "_tied", (double)r->tied);
}

char *retrieval_json(const cloob_retrieval *r)
{
    sbuf s = { 0 };
    sbuf_putc(&s, '{');
    whole(&s, "num_samples", r->pairs);
    whole(&s, "queries", r->queries);
    if (r->images != r->texts) whole(&s, "images", r->images), whole(&s, "texts", r->texts);
    put_side(&s, "image_to_text", &r->image_to_text);
    put_side(&s, "text_to_image", &r->text_to_image);
    whole(&s, "rows_scaled", r->scaled);
    return finish(&s);
}

/* ---- analysis ------------------------------------------------------------------------------------ */

static void put_spread(sbuf *s, const char *suffix, const cloob_coverage *x)
{
    named(s, "ajne", suffix, x->ajne);
    named(s, "uniformity", suffix, x->uniformity);
    named(s, "effective", suffix, (double)x->effective);
    named(s, "variance", suffix, x->variance);
    key(s, "eigenvalues", suffix);
    for (int64_t i = 0; i < x->dimensions; i++) {
        sbuf_puts(s, i ? ", " : "[");
        json_put_number(s, x->eigenvalue[i]);
    }
    sbuf_putc(s, ']');
}

static void put_set(sbuf *s, const char *name, const cloob_similarity_set *m)
{
    named(s, name, "_mean", m->mean);
    named(s, name, "_deviation", m->deviation);
    named(s, name, "_count", (double)m->count);
    key(s, name, "_histogram");
    for (int b = 0; b < CLOOB_SIMILARITY_BINS; b++) sbuf_printf(s, "%s%lld", b ? ", " : "[", (long long)m->bin[b]);
    sbuf_putc(s, ']');
}

static void put_similarity(sbuf *s, const cloob_similarity *m)
{
    number(s, "alignment", m->alignment);
    put_set(s, "matched", &m->matched);
    for (int k = 0; k < CLOOB_UNMATCHED_SETS; k++) {
        char name[32];
        snprintf(name, sizeof name, "top%d_unmatched", (int)m->unmatched[k].asked);
        put_set(s, name, &m->unmatched[k]);
    }
}

static double change(double now, double then) { return now / then - 1; }

static void put_change(sbuf *s, const cloob_analysis *a, const cloob_analysis *r)
{
    key(s, "relative_change", "");
    sbuf_putc(s, '{');
    number(s, "ajne_x", change(a->x.ajne, r->x.ajne));
    number(s, "effective_x", change((double)a->x.effective, (double)r->x.effective));
    if (a->paired && r->paired) {
        number(s, "ajne_y", change(a->y.ajne, r->y.ajne));
        number(s, "effective_y", change((double)a->y.effective, (double)r->y.effective));
        number(s, "matched_mean", change(a->similarity.matched.mean, r->similarity.matched.mean));
        number(s, "alignment", change(a->similarity.alignment, r->similarity.alignment));
    }
    sbuf_putc(s, '}');
}

char *analysis_json(const cloob_analysis *a, const cloob_analysis *reference)
{
    sbuf s = { 0 };
    sbuf_putc(&s, '{');
    whole(&s, "num_samples", a->rows);
    whole(&s, "dimensions", a->x.dimensions);
    number(&s, "share", a->share);
    whole(&s, "rows_scaled", a->scaled);
    put_spread(&s, "_x", &a->x);
    if (a->paired) {
        put_spread(&s, "_y", &a->y);
        put_similarity(&s, &a->similarity);
    }
    if (reference) put_change(&s, a, reference);
    return finish(&s);
}

/* ---- probe --------------------------------------------------------------------------------------- */

static void put_trials(sbuf *s, const cloob_probe_result *r)
{
    key(s, "search", "");
    sbuf_putc(s, '[');
    for (int i = 0; i < r->trials; i++) {
        const cloob_probe_trial *t = &r->trial[i];
        sbuf_puts(s, i ? ", {" : "{");
        number(s, "lambda", t->lambda);
        number(s, "val_acc", t->val_acc);
        number(s, "objective", t->objective);
        whole(s, "iterations", t->iterations);
        truth(s, "converged", t->converged);
        sbuf_putc(s, '}');
    }
    sbuf_putc(s, ']');
}

char *probe_json(const cloob_probe_result *r)
{
    sbuf s = { 0 };
    sbuf_putc(&s, '{');
    number(&s, "lambda", r->lambda);
    number(&s, "objective", r->objective);
    number(&s, "coef_norm", r->coef_norm);
    number(&s, "train_acc", r->train_acc);
    if (r->has_val) number(&s, "val_acc", r->val_acc);
    number(&s, "test_acc", r->test_acc);
    number(&s, "test_mean_per_class", r->test_mean_per_class);
    whole(&s, "classes", r->classes);
    whole(&s, "dimensions", r->dimensions);
    whole(&s, "trained_rows", r->trained_rows);
    whole(&s, "test_rows", r->test_rows);
    whole(&s, "unknown_labels", r->unknown_labels);
    whole(&s, "class_gaps", r->class_gaps);
    whole(&s, "iterations", r->iterations);
    whole(&s, "evaluations", r->evaluations);
    truth(&s, "converged", r->converged);
    if (r->trials) {
        number(&s, "test_acc_without_val", r->searched_test_acc);
        put_trials(&s, r);
    }
    return finish(&s);
}

/* ---- comparison ---------------------------------------------------------------------------------- */

static void put_group(sbuf *s, const char *name, const cloob_group *g)
{
    key(s, name, "");
    sbuf_putc(s, '{');
    whole(s, "n", g->n);
    if (g->n) number(s, "mean", g->mean);
    if (g->n) number(s, "spread", g->deviation);
    sbuf_putc(s, '}');
}

static void put_metric(sbuf *s, const cloob_compared *m)
{
    sbuf_puts(s, s->data[s->len - 1] == '{' ? "" : ", ");
    json_put_string(s, m->metric);
    sbuf_puts(s, ": {");
    put_group(s, "a", &m->a);
    put_group(s, "b", &m->b);
    if (m->tested) {
        number(s, "U", m->test.U);
        number(s, "p", m->test.two_sided);
        number(s, "p_less", m->test.less);
        number(s, "p_greater", m->test.greater);
        key(s, "method", "");
        sbuf_puts(s, m->test.exact ? "\"exact\"" : "\"normal\"");
        truth(s, "significant", m->significant);
    }
    sbuf_putc(s, '}');
}

char *comparison_json(const cloob_comparison *c)
{
    sbuf s = { 0 };
    sbuf_putc(&s, '{');
    whole(&s, "runs_a", c->runs_a);
    whole(&s, "runs_b", c->runs_b);
    number(&s, "alpha", c->alpha);
    whole(&s, "skipped", c->skipped);
    key(&s, "metrics", "");
    sbuf_putc(&s, '{');
    for (int64_t i = 0; i < c->metrics && !s.failed; i++) put_metric(&s, &c->row[i]);
    sbuf_putc(&s, '}');
    return finish(&s);
}
