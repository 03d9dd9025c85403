/* The same table as a page, and below it every metric. */
#include <math.h>

#include "lab/suite/suite.h"
#include "core/file.h"
#include "lab/report/page.h"

static void put_cell(sbuf *s, const bench_row *row, int64_t m, double best)
{
    double v = row->value[m];
    if (!isfinite(v)) {
        sbuf_puts(s, row->there ? "<td class=\"meter\">&ndash;</td>" : "<td class=\"meter\">not there</td>");
        return;
    }
    sbuf_puts(s, "<td class=\"meter\">");
    sbuf_printf(s, v == best ? "<strong>%.4f</strong>" : "%.4f", v);
    sbuf_printf(s, "<i style=\"width:%.1f%%\"></i></td>", 100 * fmin(fmax(v, 0), 1));
}

static void put_main(sbuf *s, const bench_table *t)
{
    sbuf_puts(s, "<h2 id=\"main\">Main metrics</h2>\n<div class=\"wide\" tabindex=\"0\"><table><tr><th>data set</th>"
                 "<th class=\"text\">metric</th>");
    for (int64_t m = 0; m < t->models; m++)
        sbuf_puts(s, "<th class=\"meter\">"), html_text(s, t->model[m]), sbuf_puts(s, "</th>");
    sbuf_puts(s, "</tr>\n");
    for (int64_t i = 0; i < t->rows; i++) {
        const bench_row *row = &t->row[i];
        double best = NAN;
        for (int64_t m = 0; m < t->models && t->models > 1; m++)
            if (isfinite(row->value[m]) && !(row->value[m] <= best)) best = row->value[m];
        sbuf_puts(s, "<tr><td>");
        html_text(s, row->name);
        sbuf_puts(s, "</td><td class=\"text\">");
        html_text(s, row->metric);
        sbuf_puts(s, "</td>");
        for (int64_t m = 0; m < t->models; m++) put_cell(s, row, m, best);
        sbuf_puts(s, "</tr>\n");
    }
    sbuf_puts(s, "</table></div>\n");
    if (t->missing)
        sbuf_printf(s, "<p class=\"note\">%lld of DataComp's 38 sets are not there; means are over the others.</p>\n",
                    (long long)t->missing);
}

static void put_all(sbuf *s, const benchmark_result *r, int64_t n)
{
    sbuf_puts(s, "<h2 id=\"all\">Every metric</h2>\n<div class=\"wide\" tabindex=\"0\"><table><tr><th>data set</th>"
                 "<th class=\"text\">task</th><th class=\"text\">model</th><th class=\"text\">weights</th>"
                 "<th>images</th><th class=\"text\">metric</th><th>value</th></tr>\n");
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < r[i].scores; k++) {
            const char *text[] = { r[i].task, r[i].model, r[i].pretrained };
            sbuf_puts(s, "<tr><td>");
            html_text(s, r[i].dataset);
            for (int c = 0; c < 3; c++) sbuf_puts(s, "</td><td class=\"text\">"), html_text(s, text[c]);
            sbuf_printf(s, "</td><td>%lld</td><td class=\"text\">", (long long)r[i].n);
            html_text(s, r[i].score[k].name);
            sbuf_puts(s, "</td><td>");
            html_number(s, r[i].score[k].value);
            sbuf_puts(s, "</td></tr>\n");
        }
    sbuf_puts(s, "</table></div>\n");
}

cloob_status benchmark_page(cloob_ctx *ctx, const benchmark_result *r, int64_t n, bool datacomp, const char *path)
{
    arena a = { 0 };
    bench_table t;
    sbuf s = { 0 };
    bool ok = bench_table_make(&a, r, n, datacomp, &t);
    if (ok) {
        html_page_begin(&s, "Benchmark");
        put_main(&s, &t);
        put_all(&s, r, n);
        html_page_end(&s);
    }
    cloob_status status = ok && !s.failed ? file_write(ctx, path, s.data, s.len) : ctx_no_memory(ctx, s.len, path);
    sbuf_release(&s);
    arena_release(&a);
    return status;
}
