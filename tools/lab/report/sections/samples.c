/* Images with what the model says: the gallery, searches, accuracy by factor, the similarity matrix, the best and worst
 * of retrieval. All of it is in samples.json (run_files.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/report/page.h"

/* The first run that has samples represents all; NULL: none has. */
static const run_files *run_with_samples(const page *p)
{
    for (int64_t i = 0; i < p->runs; i++)
        if (p->run[i].samples.root) return &p->run[i];
    return NULL;
}

/* A member of its samples; *f: the file. */
static const json *find(const page *p, const char *key, const samples_file **f)
{
    const run_files *r = run_with_samples(p);
    *f = r ? &r->samples : NULL;
    return r ? samples_list(r->samples.root, key) : NULL;
}

static bool is_true(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    return v && v->boolean;
}

/* ---- one image, rows of images and of sentences ----------------------------------------------------- */

/* An empty frame where the image was gone. */
static void put_image(page *p, const json *im)
{
    const char *src = json_text(im, "src"), *caption = json_text(im, "caption");
    if (!src || strncmp(src, "data:image/", 11) != 0) sbuf_puts(&p->html, "<span class=\"gone\"></span>");
    else html_put(&p->html, "<img loading=\"lazy\" alt=\"%s\" src=\"%s\">", caption ? caption : "image", src);
}

/* Sentences with their scores, best first; hits: an array of {"text", "score", "own"}, or NULL. */
static void put_texts(page *p, const json *hits)
{
    sbuf_puts(&p->html, "<ol class=\"texts\">");
    for (const json *h = json_first(hits); h; h = h->next)
        html_put(&p->html, is_true(h, "own") ? "<li class=\"own\"><b>%.2f</b> %s</li>" : "<li><b>%.2f</b> %s</li>",
                 json_get_number(h, "score"), json_text(h, "text"));
    sbuf_puts(&p->html, "</ol>");
}

/* Images in a row with their scores; hits: an array of {"image", "score", "own"}, or NULL. */
static void put_hits(page *p, const samples_file *f, const json *hits)
{
    sbuf_puts(&p->html, "<div class=\"strip\">");
    for (const json *h = json_first(hits); h; h = h->next) {
        const json *im = samples_image(f, json_get(h, "image"));
        if (!im) continue;
        sbuf_puts(&p->html, is_true(h, "own") ? "<figure class=\"own\">" : "<figure>");
        put_image(p, im);
        html_put(&p->html, "<figcaption>%.2f</figcaption></figure>", json_get_number(h, "score"));
    }
    sbuf_puts(&p->html, "</div>\n");
}

/* ---- the gallery --------------------------------------------------------------------------------- */

static bool is_right(const json *answer)
{
    const char *label = json_text(answer, "label"), *truth = json_text(answer, "truth");
    return label && truth && strcmp(label, truth) == 0;
}

/* Every factor: what the model says, and where that is wrong, what it is. */
static void put_says(page *p, const json *says)
{
    int64_t right = 0, count = 0;
    for (const json *s = says->child; s; s = s->next) right += is_right(s), count++;
    html_put(&p->html, "<span class=\"badge %s\">%lld of %lld right</span></p>\n", right == count ? "ok" : "",
             (long long)right, (long long)count);
    for (const json *s = says->child; s; s = s->next) {
        const char *label = json_text(s, "label"), *truth = json_text(s, "truth"), *name = json_text(s, "factor");
        double share = json_get_number(s, "p");
        char both[200];
        if (!label || !truth || !isfinite(share)) continue;
        snprintf(both, sizeof both, is_right(s) ? "%s" : "%s, not %s", label, truth);
        html_put(&p->html,
                 "<div class=\"bar %s\"><span title=\"%s\">%s</span><div><i style=\"width:%.1f%%\"></i></div>"
                 "<b>%.0f&nbsp;%%</b></div>\n",
                 is_right(s) ? "right" : "wrong", name ? name : both, both, 100 * fmin(fmax(share, 0), 1), 100 * share);
    }
}

/* The captions of the set that fit best. */
static void put_captions(page *p, const json *entry)
{
    double rank = json_get_number(entry, "rank");
    if (rank == 1) sbuf_puts(&p->html, "<span class=\"badge ok\">own caption first</span></p>\n");
    else html_put(&p->html, "<span class=\"badge warm\">own caption at place %.0f</span></p>\n", rank);
    put_texts(p, samples_list(entry, "captions"));
}

static void put_entry(page *p, const samples_file *f, const json *entry)
{
    const json *im = samples_image(f, json_get(entry, "image")), *says = samples_list(entry, "says");
    if (!im) return;
    sbuf_puts(&p->html, "<div class=\"say\">");
    put_image(p, im);
    html_put(&p->html, "<div><p class=\"name\">%s</p><p class=\"badges\">", json_text(im, "caption"));
    if (is_true(im, "never_seen")) sbuf_puts(&p->html, "<span class=\"badge new\">never seen in training</span>");
    if (says) put_says(p, says);
    else put_captions(p, entry);
    sbuf_puts(&p->html, "</div></div>\n");
}

void page_gallery(page *p)
{
    const samples_file *f;
    const json *list = find(p, "gallery", &f);
    if (!list) return;
    bool factors = samples_list(list->child, "says") != NULL;
    page_heading(p, "gallery", "What the model says",
                 factors
                     ? "Validation images, evenly spread over the set, each with what the model reads off it by words "
                       "alone. Green is right; orange names the prediction and the true class."
                     : "Validation images, evenly spread over the set, each with the captions of the whole set that "
                       "fit it best. Green is its own.");
    if (p->runs > 1)
        html_put(&p->html, "<p class=\"lead\">Images and answers are those of the run %s.</p>\n",
                 run_with_samples(p)->name);
    sbuf_puts(&p->html, "<div class=\"says\">\n");
    for (const json *e = list->child; e; e = e->next) put_entry(p, f, e);
    sbuf_puts(&p->html, "</div>\n");
}

void page_searches(page *p)
{
    const samples_file *f;
    const json *list = find(p, "searches", &f);
    if (!list) return;
    page_heading(p, "searches", "Search",
                 "A sentence each, and the validation images that fit it best, with their cosine similarity.");
    for (const json *s = list->child; s; s = s->next) {
        html_put(&p->html, "<div class=\"sheet\"><h3>&ldquo;%s&rdquo;</h3>", json_text(s, "text"));
        put_hits(p, f, samples_list(s, "hits"));
        sbuf_puts(&p->html, "</div>\n");
    }
}

/* ---- accuracy by factor, and confusion -------------------------------------------------------------- */

static void put_accuracy(page *p, const json *sets)
{
    grid g = { .columns = 5 };
    grid_texts(&g, "factor", "values", "images", "right", "chance");
    sbuf_puts(&p->html, "<div class=\"card factors\">\n");
    for (const json *s = sets->child; s; s = s->next) {
        const char *name = json_text(s, "name");
        double top1 = json_get_number(s, "top1"), chance = json_get_number(s, "chance");
        if (!name || !isfinite(top1) || !isfinite(chance)) continue;
        html_put(&p->html,
                 "<div class=\"bar win\"><span>%s</span><div><i style=\"width:%.1f%%\"></i><u style=\"left:%.1f%%\" "
                 "title=\"chance: %.0f %%\"></u></div><b>%.0f&nbsp;%%</b></div>\n",
                 name, 100 * top1, 100 * chance, 100 * chance, 100 * top1);
        grid_text(&g, name);
        grid_number(&g, (double)json_count(samples_list(s, "labels")));
        grid_number(&g, json_get_number(s, "n"));
        grid_printf(&g, "%.3f", top1), grid_printf(&g, "%.3f", chance);
    }
    sbuf_puts(&p->html, "</div>\n");
    export_grid(&p->files, "accuracy-by-factor", &g);
    grid_release(&g);
}

static void put_confusion(page *p, const json *set)
{
    const char *name = json_text(set, "name");
    const json *labels = samples_list(set, "labels"), *rows = samples_list(set, "confusion");
    int64_t i = 0;
    if (!name || !labels || !rows || rows->count != labels->count) return;
    html_put(&p->html,
             "<figure class=\"chart\"><figcaption>%s</figcaption><div class=\"wide\" tabindex=\"0\" role=\"region\" "
             "aria-label=\"confusion of %s\"><table class=\"confusion\"><tr><th scope=\"col\">true \\ predicted</th>",
             name, name);
    for (const json *l = labels->child; l; l = l->next)
        html_put(&p->html, "<th scope=\"col\"><span>%s</span></th>", json_string(l));
    sbuf_puts(&p->html, "</tr>\n");
    for (const json *r = rows->child, *l = labels->child; r && l; r = r->next, l = l->next, i++) {
        double total = 0;
        int64_t j = 0;
        for (const json *v = r->child; v; v = v->next) total += v->number;
        html_put(&p->html, "<tr><th scope=\"row\">%s</th>", json_string(l));
        for (const json *v = r->child; v; v = v->next, j++)
            html_put(&p->html, "<td class=\"%s\" style=\"--v:%.0f\">%.0f</td>", i == j ? "hit" : "miss",
                     total > 0 ? 40 * v->number / total : 0, v->number);
        sbuf_puts(&p->html, "</tr>\n");
    }
    sbuf_puts(&p->html, "</table></div></figure>\n");
}

void page_factors(page *p)
{
    const samples_file *f;
    const json *sets = find(p, "sets", &f);
    if (!sets) return;
    page_heading(
        p, "factors", "By factor",
        "How often the likeliest word is the right one, over images of combinations that training never showed. "
        "The mark is chance: always the commonest value.");
    put_accuracy(p, sets);
    sbuf_puts(&p->html, "<details><summary>Confusion: what each value is taken for</summary><div class=\"charts\">\n");
    for (const json *s = sets->child; s; s = s->next) put_confusion(p, s);
    sbuf_puts(&p->html, "</div></details>\n");
}

/* ---- the similarity matrix ----------------------------------------------------------------------- */

static void put_cells(page *p, const json *row, int64_t own, double low, double high)
{
    double best = -INFINITY;
    int64_t j = 0;
    for (const json *v = row->child; v; v = v->next) best = fmax(best, v->number);
    for (const json *v = row->child; v; v = v->next, j++)
        html_put(&p->html, "<td class=\"%s%s\" style=\"--v:%.0f\">%.2f</td>", j == own ? "own" : "",
                 v->number == best ? " best" : "", 4 + 46 * (v->number - low) / (high > low ? high - low : 1),
                 v->number);
}

void page_matrix(page *p)
{
    const run_files *run = run_with_samples(p);
    const json *m = run ? json_get(run->samples.root, "matrix") : NULL, *images = samples_list(m, "images"),
               *texts = samples_list(m, "texts"), *rows = samples_list(m, "cosine");
    double low = INFINITY, high = -INFINITY;
    int64_t i = 0;
    if (!images || !texts || !rows) return;
    for (const json *r = rows->child; r; r = r->next)
        for (const json *v = r->child; v; v = v->next) low = fmin(low, v->number), high = fmax(high, v->number);
    page_heading(
        p, "matrix", "Images and sentences",
        "The cosine of every image with every caption. The diagonal belongs together; a frame marks the caption that "
        "fits an image best.");
    sbuf_puts(&p->html, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"similarity matrix\"><table "
                        "class=\"sim\"><tr><td></td>");
    for (const json *t = texts->child; t; t = t->next) html_put(&p->html, "<th scope=\"col\">%s</th>", json_string(t));
    sbuf_puts(&p->html, "</tr>\n");
    for (const json *r = rows->child, *k = images->child; r && k; r = r->next, k = k->next, i++) {
        sbuf_puts(&p->html, "<tr><th scope=\"row\">");
        put_image(p, samples_image(&run->samples, k));
        sbuf_puts(&p->html, "</th>");
        put_cells(p, r, i, low, high);
        sbuf_puts(&p->html, "</tr>\n");
    }
    sbuf_puts(&p->html, "</table></div>\n");
}

/* ---- retrieval and neighbours -------------------------------------------------------------------- */

static void put_queries(page *p, const samples_file *f, const json *list, bool texts, const char *title)
{
    if (!list) return;
    html_put(&p->html, "<h3>%s</h3><div class=\"queries\">\n", title);
    for (const json *q = list->child; q; q = q->next) {
        const json *im = samples_image(f, json_get(q, "image")), *hits = samples_list(q, "hits");
        double rank = json_get_number(q, "rank");
        if (!im) continue;
        sbuf_puts(&p->html, "<div class=\"query\">");
        if (texts) put_image(p, im);
        html_put(&p->html,
                 "<div><p class=\"name\">%s</p><p class=\"badges\"><span class=\"badge %s\">place %.0f, cosine "
                 "%.2f</span></p>",
                 json_text(im, "caption"), rank == 1 ? "ok" : "warm", rank, json_get_number(q, "score"));
        if (texts) put_texts(p, hits);
        else put_hits(p, f, hits);
        sbuf_puts(&p->html, "</div></div>\n");
    }
    sbuf_puts(&p->html, "</div>\n");
}

void page_retrieval(page *p)
{
    const samples_file *f;
    const json *near = find(p, "neighbors", &f), *r = f ? json_get(f->root, "retrieval") : NULL;
    const json *texts = json_get(r, "image_to_text"), *images = json_get(r, "text_to_image");
    if (!texts || !images || (!samples_list(texts, "best") && !near)) return;
    page_heading(
        p, "retrieval", "Best and worst",
        "Pairs with the largest margin between their own partner and the best other, and those with the smallest.");
    put_queries(p, f, samples_list(images, "best"), false, "Sentence to image: best");
    put_queries(p, f, samples_list(images, "worst"), false, "Sentence to image: worst");
    put_queries(p, f, samples_list(texts, "best"), true, "Image to sentence: best");
    put_queries(p, f, samples_list(texts, "worst"), true, "Image to sentence: worst");
    if (near) sbuf_puts(&p->html, "<h3>Nearest neighbours among the images</h3>\n");
    for (const json *n = json_first(near); n; n = n->next) {
        sbuf_puts(&p->html, "<div class=\"near\">");
        put_image(p, samples_image(f, json_get(n, "image")));
        put_hits(p, f, samples_list(n, "near"));
        sbuf_puts(&p->html, "</div>\n");
    }
}
