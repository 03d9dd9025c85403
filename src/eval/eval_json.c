/* Results as one JSON object each, ending in a newline: the bodies of cloob/eval.h that give text. */
#include "eval/metrics.h"

#include <stdio.h>

#include "core/json.h"

typedef json_out writer;

/* A number under "name" and "_suffix". */
static void named(writer *w, const char *name, const char *suffix, double x)
{
    char key[96];
    snprintf(key, sizeof key, "%s%s", name, suffix);
    json_put_number(w, key, x);
}

static writer begin(void)
{
    writer w = { .spaced = true };
    json_begin(&w, NULL, '{');
    return w;
}

static char *finish(writer *w)
{
    json_end(w);
    return json_out_line(w);
}

/* ---- retrieval ----------------------------------------------------------------------------------- */

static void put_side(writer *w, const char *name, const cloob_retrieval_side *r)
{
    named(w, name, "_R@1", r->recall1);
    named(w, name, "_R@5", r->recall5);
    named(w, name, "_R@10", r->recall10);
    named(w, name, "_mean_rank", r->mean_rank);
    named(w, name, "_median_rank", r->median_rank);
    named(w, name, "_MRR", r->mrr);
    named(w, name, "_tied", (double)r->tied);
}

char *retrieval_json(const cloob_retrieval *r)
{
    if (!r) return NULL;
    writer w = begin();
    json_members(&w, J_INT("num_samples", r->pairs), J_OF(r, queries));
    if (r->images != r->texts) json_put_int(&w, "images", r->images), json_put_int(&w, "texts", r->texts);
    put_side(&w, "image_to_text", &r->image_to_text);
    put_side(&w, "text_to_image", &r->text_to_image);
    json_put_int(&w, "rows_scaled", r->scaled);
    return finish(&w);
}

/* ---- analysis ------------------------------------------------------------------------------------ */

static void put_spread(writer *w, const char *suffix, const coverage *x)
{
    named(w, "ajne", suffix, x->ajne);
    named(w, "uniformity", suffix, x->uniformity);
    named(w, "effective", suffix, (double)x->effective);
    named(w, "variance", suffix, x->variance);
    char key[32];
    snprintf(key, sizeof key, "eigenvalues%s", suffix);
    json_begin(w, key, '[');
    for (int64_t i = 0; i < x->dimensions; i++) json_put_number(w, NULL, x->eigenvalue[i]);
    json_end(w);
}

static void put_set(writer *w, const char *name, const similarity_set *m)
{
    named(w, name, "_mean", m->mean);
    named(w, name, "_deviation", m->deviation);
    named(w, name, "_count", (double)m->count);
    char key[64];
    snprintf(key, sizeof key, "%s_histogram", name);
    json_begin(w, key, '[');
    for (int b = 0; b < SIMILARITY_BINS; b++) json_put_int(w, NULL, m->bin[b]);
    json_end(w);
}

static void put_similarity(writer *w, const pair_similarity *m)
{
    json_put_number(w, "alignment", m->alignment);
    put_set(w, "matched", &m->matched);
    for (int k = 0; k < UNMATCHED_SETS; k++) {
        char name[32];
        snprintf(name, sizeof name, "top%d_unmatched", (int)m->unmatched[k].asked);
        put_set(w, name, &m->unmatched[k]);
    }
}

static double change(double now, double then) { return now / then - 1; }

static void put_change(writer *w, const embedding_analysis *a, const embedding_analysis *r)
{
    json_begin(w, "relative_change", '{');
    json_members(w, J_NUMBER("ajne_x", change(a->x.ajne, r->x.ajne), 0),
                 J_NUMBER("effective_x", change((double)a->x.effective, (double)r->x.effective), 0));
    if (a->paired && r->paired) {
        json_members(w, J_NUMBER("ajne_y", change(a->y.ajne, r->y.ajne), 0),
                     J_NUMBER("effective_y", change((double)a->y.effective, (double)r->y.effective), 0),
                     J_NUMBER("matched_mean", change(a->similarity.matched.mean, r->similarity.matched.mean), 0),
                     J_NUMBER("alignment", change(a->similarity.alignment, r->similarity.alignment), 0));
    }
    json_end(w);
}

char *analysis_json(const embedding_analysis *a, const embedding_analysis *reference)
{
    if (!a) return NULL;
    writer w = begin();
    json_members(&w, J_INT("num_samples", a->rows), J_OF(&a->x, dimensions), J_NUMBER("share", a->share, 0),
                 J_INT("rows_scaled", a->scaled));
    put_spread(&w, "_x", &a->x);
    if (a->paired) {
        put_spread(&w, "_y", &a->y);
        put_similarity(&w, &a->similarity);
    }
    if (reference) put_change(&w, a, reference);
    return finish(&w);
}

/* ---- probe --------------------------------------------------------------------------------------- */

static void put_trials(writer *w, const cloob_probe_result *r)
{
    json_begin(w, "search", '[');
    for (int i = 0; i < r->trials; i++) {
        const cloob_probe_trial *t = &r->trial[i];
        json_object(w, NULL, J_NUMBER("lambda", t->lambda, 0), J_NUMBER("val_acc", t->val_acc, 0),
                    J_NUMBER("objective", t->objective, 0), J_OF(t, iterations), J_OF(t, converged));
    }
    json_end(w);
}

char *probe_json(const cloob_probe_result *r)
{
    if (!r) return NULL;
    writer w = begin();
    json_members(&w, J_NUMBER("lambda", r->lambda, 0), J_NUMBER("objective", r->objective, 0),
                 J_NUMBER("coef_norm", r->coef_norm, 0), J_NUMBER("train_acc", r->train_acc, 0));
    if (r->has_val) json_put_number(&w, "val_acc", r->val_acc);
    json_members(&w, J_NUMBER("test_acc", r->test_acc, 0), J_NUMBER("test_mean_per_class", r->test_mean_per_class, 0),
                 J_OF(r, classes), J_OF(r, dimensions), J_OF(r, trained_rows), J_OF(r, test_rows),
                 J_OF(r, unknown_labels), J_OF(r, class_gaps), J_OF(r, iterations), J_OF(r, evaluations),
                 J_OF(r, converged));
    if (r->trials) {
        json_put_number(&w, "test_acc_without_val", r->searched_test_acc);
        put_trials(&w, r);
    }
    return finish(&w);
}
