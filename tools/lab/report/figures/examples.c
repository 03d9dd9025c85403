/* Reads the images of examples and writes the figure with its numbers. */
#include "lab/report/figures/examples.h"

#include <stdio.h>
#include <string.h>

#include "lab/report/page.h"

static void read_guesses(const json *top, const char *truth, example *e)
{
    for (const json *g = top->child; g && e->guesses < EXAMPLE_GUESSES; g = g->next) {
        const json *share = json_get(g, "p");
        const char *label = json_string(json_get(g, "label"));
        if (!label || !share || share->kind != JSON_NUMBER) continue;
        e->guess[e->guesses++] = (example_guess){ label, share->number, truth && strcmp(truth, label) == 0 };
    }
}

static void read_example(page *p, const json *from, const char *truth, example *e)
{
    const image_limits limits = { .max_pixels = 1 << 20, .photo = true }; /* a figure is small */
    const char *path = json_string(json_get(from, "image")), *slash = path ? strrchr(path, '/') : NULL;
    *e = (example){ .title = truth ? truth : slash ? slash + 1 : path ? path : "" };
    if (path && image_read(p->ctx, path, &limits, &e->pixels) != CLOOB_OK) e->pixels = (image){ 0 };
    read_guesses(json_get(from, "top"), truth, e);
}

static void put_rows(export_table *t, const example *e)
{
    for (int k = 0; k < e->guesses; k++) {
        char share[32];
        snprintf(share, sizeof share, "%.4f", e->guess[k].share);
        const char *cell[] = { e->title, e->guess[k].label, share };
        export_table_row(t, cell, 3);
    }
}

void page_export_examples(page *p, const json *const *list, const char *const *truth, int64_t n)
{
    static const char *const head[] = { "image", "label", "probability" }, name[] = "zero-shot-examples";
    example e[EXAMPLES_MAX];
    sbuf svg = { 0 }, pdf = { 0 };
    export_table t;
    if (!p->files.dir || !n) return;
    if (n > EXAMPLES_MAX) n = EXAMPLES_MAX;
    export_table_begin(&t, name);
    export_table_row(&t, head, 3);
    for (int64_t i = 0; i < n; i++) {
        read_example(p, list[i], truth[i], &e[i]);
        put_rows(&t, &e[i]);
    }
    if (examples_draw(&svg, e, n, false)) export_file(&p->files, name, "svg", &svg);
    if (examples_draw(&pdf, e, n, true)) export_file(&p->files, name, "pdf", &pdf);
    export_table_end(&p->files, &t);
    for (int64_t i = 0; i < n; i++) image_release(&e[i].pixels);
    sbuf_release(&svg), sbuf_release(&pdf);
}
