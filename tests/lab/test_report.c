/* The page about a run: what it carries, what it leaves out, and what it says about bad input. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "cloob/eval.h"
#include "core/arena.h"
#include "core/file.h"
#include "core/text.h"
#include "eval/metrics.h"
#include "lab/report/chart.h"
#include "lab/run_files.h"
#include "lab/report/report.h"

static cloob_ctx *ctx;
static char root[512], said[8192];

static void hear(void *user, cloob_log_level level, const char *line)
{
    (void)user, (void)level;
    strncat(said, line, sizeof said - strlen(said) - 1);
    strncat(said, "\n", sizeof said - strlen(said) - 1);
}

static const char *at(const char *name)
{
    static char path[8][1024];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", root, name);
    return path[turn];
}

static void put(const char *name, const char *text)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", at(name));
    *strrchr(folder, '/') = '\0';
    CHECK_OK(ctx, file_make_dirs(ctx, folder));
    CHECK_OK(ctx, file_write(ctx, at(name), text, strlen(text)));
}

static const char *metrics = "step\tepoch\tloss\timage_term\ttext_term\tlr\tgrad_norm\tpairs_per_s\twait\tinv_tau\n"
                             "1\t1\t0.5\t1\t2\t0.001\t1\t100\t0\t30\n"
                             "2\t1\t0.4\t1\t2\t0.002\t1\t100\t0\t30\n"
                             "3\t1\t0.3\t1\t2\t0.002\t1\t100\t0\t30\n";

static void make_run(const char *name)
{
    char path[256];
#define FILE_OF(file) (snprintf(path, sizeof path, "%s/%s", name, file), path)
    put(FILE_OF("params.txt"), "lr: 0.001\nmethod: cloob\nnote: <b>&\"</script>\n");
    put(FILE_OF("metrics.tsv"), metrics);
    put(FILE_OF("checkpoints/results.jsonl"),
        "{\"val_loss\": 0.75, \"image_to_text_R@1\": 0.25, \"epoch\": 1}\n"
        "{\"val_loss\": 0.625, \"image_to_text_R@1\": 0.5, \"image_ajne\": 3.5, \"epoch\": 2}\n");
    put(FILE_OF("analysis/epoch_1/eigenvalues.tsv"), "index\tx\ty\n1\t0.5\t0.25\n2\t0.125\t1e-17\n");
    put(FILE_OF("analysis/epoch_2/eigenvalues.tsv"), "index\tx\ty\n1\t0.4\t0.2\n2\t0.1\t0.1\n");
    put(FILE_OF("analysis/epoch_2/similarities.tsv"),
        "from\tto\tmatched\ttop10_unmatched\ttop100_unmatched\ttop1000_unmatched\n-0.01\t0\t0\t2\t2\t2\n0\t0."
        "01\t4\t2\t2\t2\n");
    put(FILE_OF("zeroshot-object.json"), "{\"top1\": 0.5, \"top5\": 0.9, \"mean_per_class\": 0.4, \"n\": 20}\n");
#undef FILE_OF
}

static char *page_of(const char *const *runs, int64_t n, report_summary *s)
{
    file_bytes page;
    CHECK_OK(ctx, report_write(ctx, runs, n, at("page.html"), NULL, s));
    CHECK_OK(ctx, file_read(ctx, at("page.html"), FILE_TEXT_LIMIT, &page));
    return page.data;
}

static char *exported(const char *name)
{
    file_bytes b = { 0 };
    CHECK_OK(ctx, file_read(ctx, at(name), FILE_TEXT_LIMIT, &b));
    return b.data ? b.data : calloc(1, 1);
}

/* ---- what is there ------------------------------------------------------------------------------- */

static void one_run_makes_a_page(void)
{
    report_summary s;
    make_run("one");
    const char *runs[] = { at("one/") };
    char *page = page_of(runs, 1, &s);
    CHECK(s.runs == 1 && s.damaged == 0);
    CHECK(s.charts >= 12);
    CHECK(s.bytes == (int64_t)strlen(page));
    CHECK(strstr(page, "<title>one</title>"));
    CHECK(strstr(page, "<b>0.625</b><span>validation loss</span>")); /* of the last validation */
    CHECK(strstr(page, "<b>0.3</b><span>training loss</span>"));
    CHECK(strstr(page, "Spectrum, images") && strstr(page, "Similarities after epoch 2"));
    CHECK(strstr(page, "<td>object</td><td>20</td>") && strstr(page, "50.0&nbsp;%"));
    free(page);
}

/* No address outside the page is fetched, nothing a run says can end a script or open an element. */
static void the_page_stands_alone(void)
{
    const char *runs[] = { at("one") };
    char *page = page_of(runs, 1, NULL);
    CHECK(!strstr(page, "src=\"http") && !strstr(page, "href=\"http") && !strstr(page, "@import"));
    CHECK(strstr(page, "&lt;b&gt;&amp;&quot;&lt;/script&gt;"));
    CHECK(strstr(page, "prefers-color-scheme: dark") && strstr(page, "width=device-width"));
    free(page);
}

static void several_runs_share_charts(void)
{
    report_summary s;
    make_run("two");
    const char *runs[] = { at("one"), at("two") };
    char *page = page_of(runs, 2, &s);
    CHECK(s.runs == 2);
    CHECK(strstr(page, "<td>one</td><td class=\"text\">cloob</td>") && strstr(page, "<td>two</td>"));
    CHECK(strstr(page, "The same in all runs") && !strstr(page, "Spectra by method"));
    free(page);
    put("two/params.txt", "lr: 0.001\nmethod: clip\n");
    page = page_of(runs, 2, &s);
    CHECK(strstr(page, "Spectra by method and epoch, images") && strstr(page, "clip, epoch 2"));
    free(page);
}

static void resumed_steps_count_once(void)
{
    arena a = { 0 };
    run_files r;
    char text[1024];
    snprintf(text, sizeof text, "%s2\t1\t0.45\t1\t2\t0.002\t1\t100\t0\t30\n3\t1\tnan\t1\t2\t0.002\t1\t100\t0\t30\n",
             metrics);
    make_run("resumed");
    put("resumed/metrics.tsv", text);
    CHECK_OK(ctx, run_files_read(ctx, &a, at("resumed"), &r));
    CHECK(r.metrics.rows == 3);
    CHECK_NEAR(tsv_at(&r.metrics, 1, tsv_find(&r.metrics, "loss")), 0.45, 1e-12);
    CHECK(isnan(tsv_at(&r.metrics, 2, 2)));
    arena_release(&a);
}

/* An image that is there is carried; the folder's name tells the right label; one that is gone keeps its
 * bars. */
static void examples_have_bars(void)
{
    char text[2048];
    make_run("shown");
    put("shown/red/a.png", "\x89PNG\r\n\x1a\n0123456789");
    snprintf(text, sizeof text,
             "[{\"image\": \"%s\", \"top\": [{\"label\": \"<blue>\", \"p\": 0.75}, {\"label\": \"red\", "
             "\"p\": 0.25}]},"
             " {\"image\": \"gone.jpg\", \"top\": [{\"label\": \"green\", \"p\": 1}, 7]}, {\"image\": 3},"
             " {\"image\": \"far.jpg\", \"truth\": \"grey\", \"rank\": 9, \"top\": [{\"label\": \"pink\", \"p\": 1}]}]",
             at("shown/red/a.png"));
    put("shown/classify-colour.json", text);
    const char *runs[] = { at("shown") };
    char *page = page_of(runs, 1, NULL);
    CHECK(strstr(page, "src=\"data:image/png;base64,iVBORw0KGgow"));
    CHECK(strstr(page, "<div class=\"guess top\"><span>&lt;blue&gt;</span><span>75.0&nbsp;%</span>"));
    CHECK(strstr(page, "<div class=\"guess right\"><span>red</span><span>25.0&nbsp;%</span>"));
    CHECK(strstr(page, "red, rank 2</p>") && strstr(page, "grey, rank 9</p>") && strstr(page, "gone.jpg</p>"));
    CHECK(strstr(page, "gone.jpg") && strstr(page, "<span>green</span>"));
    free(page);
}

/* ---- images -------------------------------------------------------------------------------------- */

static const char *samples =
    "{\"examples\": [{\"image\": \"data:image/jpeg;base64,AAAA\", \"truth\": \"a <red> ball\", \"rank\": 2, \"top\": "
    "[{\"label\": \"a fish\", \"p\": 0.75}, {\"label\": \"a <red> ball\", \"p\": 0.25}]},"
    "{\"image\": \"javascript:alert(1)\", \"truth\": \"a fish\", \"top\": []},"
    "{\"image\": \"data:image/jpeg;base64,\\\" onload=\\\"\", \"truth\": \"b\", \"top\": []}, {\"image\": 7}]}";

static void images_come_first(void)
{
    make_run("seen");
    put("seen/examples-validation.json", samples);
    const char *runs[] = { at("seen") };
    char *page = page_of(runs, 1, NULL);
    CHECK(strstr(page, "id=\"zeroshot\"") && strstr(page, "id=\"zeroshot\"") < strstr(page, "id=\"summary\""));
    CHECK(strstr(page, "src=\"data:image/jpeg;base64,AAAA\"") && strstr(page, "a &lt;red&gt; ball, rank 2"));
    CHECK(!strstr(page, "javascript:alert") && !strstr(page, "\" onload="));
    CHECK(strstr(page, "<div class=\"guess right\"><span>a &lt;red&gt; ball</span>"));
    free(page);
    put("seen/examples-validation.json", "{\"examples\": [");
    report_summary s;
    runs[0] = at("seen");
    free(page_of(runs, 1, &s));
    CHECK(s.damaged == 1 && strstr(said, "examples-validation.json"));
}

static void one_point_is_a_number(void)
{
    make_run("short");
    put("short/checkpoints/results.jsonl", "{\"val_loss\": 0.75, \"epoch\": 1}\n");
    const char *runs[] = { at("short") };
    char *page = page_of(runs, 1, NULL);
    CHECK(strstr(page, "class=\"chart single\"><figcaption>Validation loss</figcaption><div "
                       "class=\"numbers\"><div><b>0.75</b>"));
    free(page);
}

static void charts_can_be_exported(void)
{
    report_options o;
    make_run("out_run");
    const char *runs[1] = { at("out_run") };
    report_options_init(&o);
    o.export_dir = at("figures");
    CHECK_OK(ctx, report_write(ctx, runs, 1, at("page.html"), &o, NULL));
    char *csv = exported("figures/training-loss.csv"), *svg = exported("figures/training-loss.svg");
    CHECK_STR(csv, "series,step,loss\nout_run,1,0.5\nout_run,2,0.4\nout_run,3,0.3\n");
    CHECK(strncmp(svg, "<svg xmlns=", 11) == 0 && strstr(svg, ">Training loss</text>") && strstr(svg, "</svg>"));
    free(csv), free(svg);
}

/* What a run is called does not end an attribute or an element of the image, and a long name stays within it. */
static void names_fit_into_charts(void)
{
    arena a = { 0 };
    sbuf svg = { 0 };
    char longest[200];
    memset(longest, 'W', sizeof longest - 1), longest[sizeof longest - 1] = '\0';
    chart c = { .title = "a <b> & \"c\"", .x_label = "x", .y_label = "y", .log_y = true };
    chart_series *s = chart_add(&a, &c, "<script>", 9, 2), *t = chart_add(&a, &c, longest, 1, 3);
    chart_point(&c, s, 0, 1), chart_point(&c, s, 1, 100), chart_point(&c, t, 0, 10);
    chart_point(&c, t, 1, 0), chart_point(&c, t, NAN, 1); /* neither can be drawn */
    CHECK(chart_points(&c) == 2 && t->n == 1);
    chart_svg(&svg, &c, true);
    CHECK(strstr(svg.data, "aria-label=\"a &lt;b&gt; &amp; &quot;c&quot;\"") && !strstr(svg.data, "<script>"));
    CHECK(strstr(svg.data, "text-anchor=\"start\" textLength=\"458\""));
    CHECK(strstr(svg.data, "points=\"66.0,254.0 546.0,10.0 \"")); /* from corner to corner */
    sbuf_release(&svg);
    arena_release(&a);
}

static void make_repeat(const char *name, const char *settings, const char *losses, const char *results)
{
    char path[256];
    snprintf(path, sizeof path, "%s/params.txt", name);
    put(path, settings);
    snprintf(path, sizeof path, "%s/metrics.tsv", name);
    put(path, losses);
    snprintf(path, sizeof path, "%s/checkpoints/results.jsonl", name);
    put(path, results);
}

/* Two seeds of one method are a line with a band of one standard deviation. */
static void seeds_are_a_mean_and_a_band(void)
{
    report_options o;
    make_repeat("many/a", "method: cloob\nname: a\nseed: 0\nresume: None\n", "step\tloss\n1\t2\n2\t1\n", "");
    make_repeat("many/b", "method: cloob\nname: b\nseed: 1\nresume: latest\n", "step\tloss\n1\t4\n2\t1\n3\t9\n", "");
    make_repeat("many/c", "method: clip\nname: c\nseed: 0\n", "step\tloss\n1\t5\n2\t5\n", "");
    const char *runs[] = { at("many/a"), at("many/b"), at("many/c") };
    report_options_init(&o);
    o.export_dir = at("band");
    CHECK_OK(ctx, report_write(ctx, runs, 3, at("many/page.html"), &o, NULL));
    char *loss = exported("band/training-loss.csv");
    CHECK_STR(loss, "series,step,loss,low,high\n\"cloob, mean of 2\",1,3,1.58578644,4.41421356\n"
                    "\"cloob, mean of 2\",2,1,1,1\nc,1,5,,\nc,2,5,,\n");
    free(loss);
}

static void base64_as_in_the_standard(void)
{
    static const char *const pairs[][2] = {
        { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foobar", "Zm9vYmFy" }
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        sbuf s = { 0 };
        base64_put(&s, pairs[i][0], strlen(pairs[i][0]));
        CHECK_STR(s.data ? s.data : "", pairs[i][1]);
        sbuf_release(&s);
    }
}

/* ---- what is wrong ------------------------------------------------------------------------------- */

static void damaged_lines_are_left_out_and_reported(void)
{
    report_summary s;
    make_run("bad");
    put("bad/checkpoints/results.jsonl", "{\"val_loss\": 0.75, \"epoch\": 1}\n{\"val_loss\": 0.6, "
                                         "\"epo\n[1]\n{\"val_loss\": 0.5, \"epoch\": 3}\n");
    put("bad/metrics.tsv", "step\tloss\n1\t0.5\n2\tx\n3\n4\t0.25\n");
    put("bad/analysis/epoch_2/eigenvalues.tsv", "");
    put("bad/zeroshot-x.json", "{\"top1\": ");
    const char *runs[] = { at("bad") };
    said[0] = '\0';
    char *page = page_of(runs, 1, &s);
    CHECK(s.damaged == 6);
    CHECK(strstr(said, "results.jsonl, line 2") && strstr(said, "results.jsonl, line 3") &&
          strstr(said, "zeroshot-x.json"));
    CHECK(strstr(page, "6 damaged lines or files were left out"));
    CHECK(strstr(page, "<b>0.5</b><span>validation loss</span>"));
    free(page);
}

static void empty_results_still_make_a_page(void)
{
    make_run("empty");
    put("empty/checkpoints/results.jsonl", "");
    const char *runs[] = { at("empty") };
    said[0] = '\0';
    char *page = page_of(runs, 1, NULL);
    CHECK(strstr(said, "no validation results"));
    CHECK(strstr(page, "Training loss") && !strstr(page, "id=\"validation\""));
    free(page);
}

static void other_folders_are_refused(void)
{
    char missing[600], bare[600];
    snprintf(missing, sizeof missing, "%s/nothing", root);
    snprintf(bare, sizeof bare, "%s/bare", root);
    mkdir(bare, 0777);
    const char *none[] = { missing }, *folder[] = { bare }, *good[] = { at("one") };
    CHECK(report_write(ctx, none, 1, at("x.html"), NULL, NULL) == CLOOB_ERR_IO);
    CHECK(strstr(cloob_error(ctx), "nothing") && strstr(cloob_error(ctx), "LOGS/NAME"));
    CHECK(report_write(ctx, folder, 1, at("x.html"), NULL, NULL) == CLOOB_ERR_FORMAT);
    CHECK(report_write(ctx, good, 0, at("x.html"), NULL, NULL) == CLOOB_ERR_ARGUMENT);
    CHECK(!file_exists(at("x.html")));
    CHECK(report_write(ctx, good, 1, at("no/such/folder/x.html"), NULL, NULL) == CLOOB_ERR_IO);
}

/* Two clouds of four points each. */
static void plots_of_an_analysis(void)
{
    float x[8] = { 1, 0, 0, 1, -1, 0, 0, -1 };
    cloob_matrix m = { x, CLOOB_F32, 4, 2, "x" };
    embedding_analysis a = { 0 };
    CHECK_OK(ctx, analyze_matrices(ctx, &a, &m, &m, 0.99));
    CHECK_OK(ctx, analysis_write(ctx, &a, NULL, at("plots")));
    CHECK_OK(ctx, analysis_plots(ctx, at("plots")));
    char *svg = exported("plots/spectrum.svg");
    CHECK(strstr(svg, ">images</text>") && strstr(svg, ">texts</text>"));
    free(svg);
    CHECK(file_exists(at("plots/similarities.svg")));
    analysis_release(&a);
    CHECK_OK(ctx, analyze_matrices(ctx, &a, &m, NULL, 0.99));
    CHECK_OK(ctx, analysis_write(ctx, &a, NULL, at("single")));
    CHECK_OK(ctx, analysis_plots(ctx, at("single")));
    CHECK(file_exists(at("single/spectrum.svg")) && !file_exists(at("single/similarities.svg"))); /* no pairs */
    CHECK_OK(ctx, analysis_plots(ctx, at("absent")));                                             /* nothing to draw */
    analysis_release(&a);
}

int main(void)
{
    cloob_ctx_options o;
    cloob_ctx_options_init(&o);
    o.log = hear;
    ctx = cloob_ctx_create(&o);
    if (!ctx) return 1;
    scratch_folder(root, sizeof root);
    RUN(one_run_makes_a_page);
    RUN(the_page_stands_alone);
    RUN(several_runs_share_charts);
    RUN(resumed_steps_count_once);
    RUN(examples_have_bars);
    RUN(images_come_first);
    RUN(one_point_is_a_number);
    RUN(charts_can_be_exported);
    RUN(names_fit_into_charts);
    RUN(seeds_are_a_mean_and_a_band);
    RUN(base64_as_in_the_standard);
    RUN(damaged_lines_are_left_out_and_reported);
    RUN(empty_results_still_make_a_page);
    RUN(other_folders_are_refused);
    RUN(plots_of_an_analysis);
    check_remove(root);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
