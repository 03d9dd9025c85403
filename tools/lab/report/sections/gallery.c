/* Images first: what the model says of single images, and what it finds for sentences. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/report/page.h"

/* ---- one image ----------------------------------------------------------------------------------- */

void page_image(page *p, const json *image)
{
    const char *src = json_string(json_get(image, "src")), *caption = json_string(json_get(image, "caption"));
    if (!src || strncmp(src, "data:image/", 11) != 0) {
        sbuf_puts(&p->html, "<span class=\"gone\"></span>");
        return;
    }
    sbuf_puts(&p->html, "<img loading=\"lazy\" alt=\"");
    html_text(&p->html, caption ? caption : "image");
    sbuf_puts(&p->html, "\" src=\"");
    html_text(&p->html, src);
    sbuf_puts(&p->html, "\">");
}

static void put_badge(page *p, const json *image)
{
    const json *new = json_get(image, "never_seen");
    if (new &&new->boolean) sbuf_puts(&p->html, "<span class=\"badge new\">never seen in training</span>");
}

/* ---- the gallery --------------------------------------------------------------------------------- */

static void put_bar(page *p, const char *name, const char *label, double share, const char *text, const char *kind)
{
    sbuf_printf(&p->html, "<div class=\"bar %s\"><span title=\"", kind);
    html_text(&p->html, name ? name : label);
    sbuf_puts(&p->html, "\">");
    html_text(&p->html, label);
    sbuf_printf(&p->html, "</span><div><i style=\"width:%.1f%%\"></i></div><b>%s</b></div>\n",
                100 * fmin(fmax(share, 0), 1), text);
}

/* Every factor: what the model says, and where that is wrong, what it is. */
static void put_says(page *p, const json *says)
{
    int64_t right = 0, count = 0;
    for (const json *s = says->child; s; s = s->next) {
        const char *label = json_string(json_get(s, "label")), *truth = json_string(json_get(s, "truth"));
        right += label && truth && strcmp(label, truth) == 0;
        count++;
    }
    sbuf_printf(&p->html, "<span class=\"badge %s\">%lld of %lld right</span></p>\n", right == count ? "ok" : "",
                (long long)right, (long long)count);
    for (const json *s = says->child; s; s = s->next) {
        const char *label = json_string(json_get(s, "label")), *truth = json_string(json_get(s, "truth"));
        double share = json_get_number(s, "p");
        char text[32], both[200];
        if (!label || !truth || !isfinite(share)) continue;
        bool good = strcmp(label, truth) == 0;
        snprintf(text, sizeof text, "%.0f&nbsp;%%", 100 * share);
        snprintf(both, sizeof both, good ? "%s" : "%s, not %s", label, truth);
        put_bar(p, json_string(json_get(s, "factor")), both, share, text, good ? "right" : "wrong");
    }
}

/* The captions of the set that fit best. */
static void put_captions(page *p, const json *entry)
{
    double rank = json_get_number(entry, "rank");
    if (rank == 1) sbuf_puts(&p->html, "<span class=\"badge ok\">own caption first</span></p>\n");
    else sbuf_printf(&p->html, "<span class=\"badge warm\">own caption at place %.0f</span></p>\n", rank);
    page_texts(p, samples_list(entry, "captions"));
}

static void put_entry(page *p, const samples_file *f, const json *entry)
{
    const json *image = samples_image(f, json_get(entry, "image")), *says = samples_list(entry, "says");
    const char *caption = image ? json_string(json_get(image, "caption")) : NULL;
    if (!image) return;
    sbuf_puts(&p->html, "<div class=\"say\">");
    page_image(p, image);
    sbuf_puts(&p->html, "<div><p class=\"name\">");
    html_text(&p->html, caption ? caption : "");
    sbuf_puts(&p->html, "</p><p class=\"badges\">");
    put_badge(p, image);
    if (says) put_says(p, says);
    else put_captions(p, entry);
    sbuf_puts(&p->html, "</div></div>\n");
}

/* The first run that has samples represents all. */
const samples_file *page_samples(const page *p)
{
    for (int64_t i = 0; i < p->runs; i++)
        if (p->run[i].samples.root) return &p->run[i].samples;
    return NULL;
}

/* Several runs: which of them the images and answers on the page come from. */
static void put_whose(page *p)
{
    int64_t i = 0;
    while (i < p->runs && !p->run[i].samples.root) i++;
    if (p->runs < 2 || i == p->runs) return;
    sbuf_puts(&p->html, "<p class=\"lead\">Images and answers are those of the run ");
    html_text(&p->html, p->run[i].name);
    sbuf_puts(&p->html, ".</p>\n");
}

void page_gallery(page *p)
{
    const samples_file *f = page_samples(p);
    const json *list = f ? samples_list(f->root, "gallery") : NULL;
    if (!list) return;
    bool factors = samples_list(list->child, "says") != NULL;
    page_heading(p, "gallery", "What the model says",
                 factors
                     ? "Validation images, evenly spread over the set, each with what the model reads off it by words "
                       "alone. Green is right; orange names the prediction and the true class."
                     : "Validation images, evenly spread over the set, each with the captions of the whole set that "
                       "fit it best. Green is its own.");
    put_whose(p);
    sbuf_puts(&p->html, "<div class=\"says\">\n");
    for (const json *e = list->child; e; e = e->next) put_entry(p, f, e);
    sbuf_puts(&p->html, "</div>\n");
}

/* ---- strips of images ---------------------------------------------------------------------------- */

void page_hits(page *p, const samples_file *f, const json *hits)
{
    sbuf_puts(&p->html, "<div class=\"strip\">");
    for (const json *h = hits ? hits->child : NULL; h; h = h->next) {
        const json *image = samples_image(f, json_get(h, "image")), *own = json_get(h, "own");
        if (!image) continue;
        sbuf_printf(&p->html, "<figure%s>", own && own->boolean ? " class=\"own\"" : "");
        page_image(p, image);
        sbuf_printf(&p->html, "<figcaption>%.2f</figcaption></figure>", json_get_number(h, "score"));
    }
    sbuf_puts(&p->html, "</div>\n");
}

void page_searches(page *p)
{
    const samples_file *f = page_samples(p);
    const json *list = f ? samples_list(f->root, "searches") : NULL;
    if (!list) return;
    page_heading(p, "searches", "Search",
                 "A sentence each, and the validation images that fit it best, with their cosine similarity.");
    for (const json *s = list->child; s; s = s->next) {
        const char *text = json_string(json_get(s, "text"));
        sbuf_puts(&p->html, "<div class=\"sheet\"><h3>&ldquo;");
        html_text(&p->html, text ? text : "");
        sbuf_puts(&p->html, "&rdquo;</h3>");
        page_hits(p, f, samples_list(s, "hits"));
        sbuf_puts(&p->html, "</div>\n");
    }
}
