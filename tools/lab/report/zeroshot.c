/* Zero-shot: a table of sets, and images with the five likeliest labels. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "core/file.h"
#include "lab/report/page.h"

/* The rank of the right label, from 1; 0: unknown. For files without a rank, the position among the listed labels. */
static int64_t rank_of(const json *one, const char *truth)
{
    int64_t rank = 0, place = 0;
    if (!truth) return 0;
    if (json_int(json_get(one, "rank"), &rank) && rank > 0) return rank;
    for (const json *g = json_get(one, "top")->child; g; g = g->next) {
        const char *label = json_text(g, "label");
        place++;
        if (label && strcmp(label, truth) == 0) return place;
    }
    return 0;
}

enum { EXAMPLES = 36, BARS = 5, IMAGE_BYTES = 512 << 10 };

/* ---- the table ----------------------------------------------------------------------------------- */

static void add_score(const page *p, grid *g, const char *set, const char *run, const json *scores)
{
    grid_text(g, set);
    if (p->runs > 1) grid_text(g, run);
    grid_number(g, json_get_number(scores, "n"));
    grid_share(g, json_get_number(scores, "top1"));
    grid_share(g, json_get_number(scores, "top5"));
    grid_share(g, json_get_number(scores, "mean_per_class"));
}

/* A file about several sources has the mean at the top level and each source under "sets". */
static void put_scores(page *p)
{
    grid g = { .columns = p->runs > 1 ? 6 : 5 };
    grid_text(&g, "set");
    if (p->runs > 1) grid_text(&g, "run");
    grid_texts(&g, "images", "top-1", "top-5", "mean per class");
    for (const score_file *f = p->scores.file; f < p->scores.file + p->scores.count; f++) {
        const json *sets = json_get(f->root, "sets");
        if (!json_get(f->root, "top1")) continue;
        for (const json *s = json_first(sets); s; s = s->next) {
            const char *data = json_text(s, "data"), *slash = data ? strrchr(data, '/') : NULL;
            add_score(p, &g, slash && slash[1] ? slash + 1 : data, f->run, s);
        }
        add_score(p, &g, sets ? "average" : f->set, f->run, f->root);
    }
    page_grid(p, &g);
}

/* ---- examples ------------------------------------------------------------------------------------ */

static const char *type_of(const file_bytes *b)
{
    const char *d = b->data;
    if (b->size > 12 && memcmp(d, "\xff\xd8\xff", 3) == 0) return "image/jpeg";
    if (b->size > 12 && memcmp(d, "\x89PNG", 4) == 0) return "image/png";
    if (b->size > 12 && memcmp(d, "RIFF", 4) == 0 && memcmp(d + 8, "WEBP", 4) == 0) return "image/webp";
    return NULL;
}

/* An image that is missing or too large for a page is replaced by its name. */
static void put_image(page *p, const char *path)
{
    file_bytes bytes;
    if (strncmp(path, JPEG_URL, sizeof JPEG_URL - 1) == 0) {
        html_put(&p->html, "<img alt=\"\" src=\"%s\">", path);
        return;
    }
    if (!file_exists(path) || file_is_dir(path) || file_read(p->ctx, path, IMAGE_BYTES, &bytes) != CLOOB_OK) return;
    const char *type = type_of(&bytes);
    if (type) {
        sbuf_printf(&p->html, "<img alt=\"\" src=\"data:%s;base64,", type);
        base64_put(&p->html, bytes.data, bytes.size);
        sbuf_puts(&p->html, "\">");
    }
    file_bytes_release(&bytes);
}

/* One without a label or a probability is left out. */
static void put_guess(page *p, const json *guess, const char *truth, bool first)
{
    const char *label = json_text(guess, "label");
    double share = json_get_number(guess, "p");
    if (!label || !isfinite(share)) return;
    html_put(&p->html,
             "<div class=\"guess%s%s\"><span>%s</span><span>%.1f&nbsp;%%</span><i style=\"width:%.1f%%\"></i></div>\n",
             first ? " top" : "", truth && strcmp(truth, label) == 0 ? " right" : "", label, 100 * share,
             100 * fmin(fmax(share, 0), 1));
}

/* The class of an image is the label with its folder's name. */
static const char *truth_of(page *p, const json *one, const char *path)
{
    const char *truth = json_text(one, "truth"), *slash = strrchr(path, '/'), *from = slash;
    if (truth || !slash) return truth;
    while (from > path && from[-1] != '/') from--;
    char *folder = arena_string_n(p->memory, from, (size_t)(slash - from));
    for (const json *g = json_get(one, "top")->child; folder && g; g = g->next) {
        const char *label = json_text(g, "label");
        if (label && strcmp(label, folder) == 0) return folder;
    }
    return NULL;
}

/* False: not an example. */
static bool put_example(page *p, const json *one)
{
    const json *top = json_get(one, "top");
    const char *path = json_text(one, "image");
    int shown = 0;
    if (!top || top->kind != JSON_ARRAY || !path) return false;
    const char *truth = truth_of(p, one, path), *title = truth ? truth : file_base(path);
    int64_t rank = rank_of(one, truth);
    sbuf_puts(&p->html, "<div class=\"example\">");
    put_image(p, path);
    html_put(&p->html, "<p class=\"name\">%s", title);
    if (rank) html_put(&p->html, ", rank %lld", (long long)rank);
    sbuf_puts(&p->html, "</p>\n");
    for (const json *g = top->child; g && shown < BARS; g = g->next, shown++) put_guess(p, g, truth, shown == 0);
    sbuf_puts(&p->html, "</div>\n");
    return true;
}

static const json *examples_in(const json *root)
{
    const json *list = root->kind == JSON_ARRAY ? root : json_get(root, "examples");
    return list && list->kind == JSON_ARRAY && list->count ? list : NULL;
}

static void put_examples(page *p)
{
    int64_t left = EXAMPLES;
    sbuf_puts(&p->html, "<h3>Examples</h3><p class=\"lead\">The five likeliest labels of an image. Green: "
                        "the right one, where it is known; its rank is its place among all labels.</p>"
                        "<div class=\"examples\">\n");
    for (int64_t i = 0; i < p->scores.count; i++)
        for (const json *e = json_first(examples_in(p->scores.file[i].root)); e && left > 0; e = e->next)
            left -= put_example(p, e);
    sbuf_puts(&p->html, "</div>\n");
}

void page_zeroshot(page *p)
{
    bool scores = false, examples = false;
    for (int64_t i = 0; i < p->scores.count; i++) {
        scores |= json_get(p->scores.file[i].root, "top1") != NULL;
        examples |= examples_in(p->scores.file[i].root) != NULL;
    }
    if (!scores && !examples) return;
    page_heading(p, "zeroshot", "Zero-shot",
                 "Images with the texts that the model finds likeliest for them: names of classes, or captions of the "
                 "validation data.");
    if (scores) put_scores(p);
    if (examples) put_examples(p);
}
