/* Numbers with images: accuracy by factor, confusion, the similarity matrix, the best and worst of retrieval. */
#include <math.h>
#include <stdio.h>

#include "lab/report/page.h"

/* ---- accuracy by factor -------------------------------------------------------------------------- */

static void put_accuracy(page *p, const json *sets)
{
    export_table t;
    export_table_begin(&t, "accuracy-by-factor");
    export_table_row(&t, (const char *[]){ "factor", "values", "images", "right", "chance" }, 5);
    sbuf_puts(&p->html, "<div class=\"card factors\">\n");
    for (const json *s = sets->child; s; s = s->next) {
        const char *name = json_string(json_get(s, "name"));
        double top1 = json_get_number(s, "top1"), chance = json_get_number(s, "chance");
        const json *labels = samples_list(s, "labels");
        if (!name || !isfinite(top1) || !isfinite(chance)) continue;
        sbuf_puts(&p->html, "<div class=\"bar win\"><span>");
        html_text(&p->html, name);
        sbuf_printf(
            &p->html,
            "</span><div><i style=\"width:%.1f%%\"></i><u style=\"left:%.1f%%\" title=\"chance: %.0f %%\"></u></div>"
            "<b>%.0f&nbsp;%%</b></div>\n",
            100 * top1, 100 * chance, 100 * chance, 100 * top1);
        char cell[4][32];
        snprintf(cell[0], sizeof cell[0], "%lld", (long long)(labels ? labels->count : 0));
        snprintf(cell[1], sizeof cell[1], "%.0f", json_get_number(s, "n"));
        snprintf(cell[2], sizeof cell[2], "%.3f", top1);
        snprintf(cell[3], sizeof cell[3], "%.3f", chance);
        export_table_row(&t, (const char *[]){ name, cell[0], cell[1], cell[2], cell[3] }, 5);
    }
    sbuf_puts(&p->html, "</div>\n");
    export_table_end(&p->files, &t);
}

/* ---- confusion ----------------------------------------------------------------------------------- */

static void put_confusion(page *p, const json *set)
{
    const char *name = json_string(json_get(set, "name"));
    const json *labels = samples_list(set, "labels"), *rows = samples_list(set, "confusion");
    if (!name || !labels || !rows || rows->count != labels->count) return;
    sbuf_puts(&p->html, "<figure class=\"chart\"><figcaption>");
    html_text(&p->html, name);
    sbuf_puts(&p->html, "</figcaption><div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"confusion of ");
    html_text(&p->html, name);
    sbuf_puts(&p->html, "\"><table class=\"confusion\"><tr><th scope=\"col\">true \\ predicted</th>");
    for (const json *l = labels->child; l; l = l->next) {
        sbuf_puts(&p->html, "<th scope=\"col\"><span>");
        html_text(&p->html, json_string(l) ? json_string(l) : "");
        sbuf_puts(&p->html, "</span></th>");
    }
    sbuf_puts(&p->html, "</tr>\n");
    int64_t i = 0;
    for (const json *r = rows->child, *l = labels->child; r && l; r = r->next, l = l->next, i++) {
        double total = 0;
        int64_t j = 0;
        for (const json *v = r->child; v; v = v->next) total += v->number;
        sbuf_puts(&p->html, "<tr><th scope=\"row\">");
        html_text(&p->html, json_string(l) ? json_string(l) : "");
        sbuf_puts(&p->html, "</th>");
        for (const json *v = r->child; v; v = v->next, j++)
            sbuf_printf(&p->html, "<td class=\"%s\" style=\"--v:%.0f\">%.0f</td>", i == j ? "hit" : "miss",
                        total > 0 ? 40 * v->number / total : 0, v->number);
        sbuf_puts(&p->html, "</tr>\n");
    }
    sbuf_puts(&p->html, "</table></div></figure>\n");
}

void page_factors(page *p)
{
    const samples_file *f = page_samples(p);
    const json *sets = f ? samples_list(f->root, "sets") : NULL;
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
        sbuf_printf(&p->html, "<td class=\"%s%s\" style=\"--v:%.0f\">%.2f</td>", j == own ? "own" : "",
                    v->number == best ? " best" : "", 4 + 46 * (v->number - low) / (high > low ? high - low : 1),
                    v->number);
}

void page_matrix(page *p)
{
    const samples_file *f = page_samples(p);
    const json *m = f ? json_get(f->root, "matrix") : NULL, *images = samples_list(m, "images"),
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
    for (const json *t = texts->child; t; t = t->next) {
        sbuf_puts(&p->html, "<th scope=\"col\">");
        html_text(&p->html, json_string(t) ? json_string(t) : "");
        sbuf_puts(&p->html, "</th>");
    }
    sbuf_puts(&p->html, "</tr>\n");
    for (const json *r = rows->child, *k = images->child; r && k; r = r->next, k = k->next, i++) {
        sbuf_puts(&p->html, "<tr><th scope=\"row\">");
        page_image(p, samples_image(f, k));
        sbuf_puts(&p->html, "</th>");
        put_cells(p, r, i, low, high);
        sbuf_puts(&p->html, "</tr>\n");
    }
    sbuf_puts(&p->html, "</table></div>\n");
}

/* ---- retrieval and neighbours -------------------------------------------------------------------- */

void page_texts(page *p, const json *hits)
{
    sbuf_puts(&p->html, "<ol class=\"texts\">");
    for (const json *h = hits ? hits->child : NULL; h; h = h->next) {
        const json *own = json_get(h, "own");
        const char *text = json_string(json_get(h, "text"));
        sbuf_printf(&p->html, "<li%s><b>%.2f</b> ", own && own->boolean ? " class=\"own\"" : "",
                    json_get_number(h, "score"));
        html_text(&p->html, text ? text : "");
        sbuf_puts(&p->html, "</li>");
    }
    sbuf_puts(&p->html, "</ol>");
}

static void put_queries(page *p, const samples_file *f, const json *list, bool texts, const char *title)
{
    if (!list) return;
    sbuf_printf(&p->html, "<h3>%s</h3><div class=\"queries\">\n", title);
    for (const json *q = list->child; q; q = q->next) {
        const json *image = samples_image(f, json_get(q, "image"));
        const char *caption = image ? json_string(json_get(image, "caption")) : NULL;
        double rank = json_get_number(q, "rank");
        if (!image) continue;
        sbuf_puts(&p->html, "<div class=\"query\">");
        if (texts) page_image(p, image);
        sbuf_puts(&p->html, "<div><p class=\"name\">");
        html_text(&p->html, caption ? caption : "");
        sbuf_printf(&p->html, "</p><p class=\"badges\"><span class=\"badge %s\">place %.0f, cosine %.2f</span></p>",
                    rank == 1 ? "ok" : "warm", rank, json_get_number(q, "score"));
        if (texts) page_texts(p, samples_list(q, "hits"));
        else page_hits(p, f, samples_list(q, "hits"));
        sbuf_puts(&p->html, "</div></div>\n");
    }
    sbuf_puts(&p->html, "</div>\n");
}

void page_retrieval(page *p)
{
    const samples_file *f = page_samples(p);
    const json *r = f ? json_get(f->root, "retrieval") : NULL, *near = f ? samples_list(f->root, "neighbors") : NULL;
    const json *texts = r ? json_get(r, "image_to_text") : NULL, *images = r ? json_get(r, "text_to_image") : NULL;
    if (!texts || !images || (!samples_list(texts, "best") && !near)) return;
    page_heading(
        p, "retrieval", "Best and worst",
        "Pairs with the largest margin between their own partner and the best other, and those with the smallest.");
    put_queries(p, f, samples_list(images, "best"), false, "Sentence to image: best");
    put_queries(p, f, samples_list(images, "worst"), false, "Sentence to image: worst");
    put_queries(p, f, samples_list(texts, "best"), true, "Image to sentence: best");
    put_queries(p, f, samples_list(texts, "worst"), true, "Image to sentence: worst");
    if (!near) return;
    sbuf_puts(&p->html, "<h3>Nearest neighbours among the images</h3>\n");
    for (const json *n = near->child; n; n = n->next) {
        sbuf_puts(&p->html, "<div class=\"near\">");
        page_image(p, samples_image(f, json_get(n, "image")));
        page_hits(p, f, samples_list(n, "near"));
        sbuf_puts(&p->html, "</div>\n");
    }
}
