/* The page about a run: what it carries, what it leaves out, and what it says about bad input. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "cloob/eval.h"
#include "core/arena.h"
#include "core/file.h"
#include "core/text.h"
#include "lab/report/chart.h"
#include "lab/report/run_files.h"
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
    CHECK(strstr(page, "The same in all runs"));
    free(page);
}

/* A run with a method, a seed and one number. */
static void make_scored(const char *method, int seed, double recall)
{
    char name[64], text[200];
    snprintf(name, sizeof name, "%s-%d/params.txt", method, seed);
    snprintf(text, sizeof text, "method: %s\nseed: %d\nname: %s-%d\n", method, seed, method, seed);
    put(name, text);
    snprintf(name, sizeof name, "%s-%d/checkpoints/results.jsonl", method, seed);
    snprintf(text, sizeof text, "{\"image_to_text_R@1\": %g, \"epoch\": 1}\n", recall);
    put(name, text);
}

/* Groups by what differs besides the seed; means, differences and the corrected test: four runs a side that do not
 * overlap have p = 2 / 70. */
static void runs_stand_side_by_side(void)
{
    char path[8][1024];
    const char *runs[8];
    report_options o;
    for (int i = 0; i < 8; i++) {
        const char *method = i < 4 ? "clip" : "cloob";
        make_scored(method, i % 4, (i < 4 ? 0.1 : 0.2) + 0.01 * (i % 4));
        snprintf(path[i], sizeof path[i], "%s/%s-%d", root, method, i % 4);
        runs[i] = path[i];
    }
    char *page = page_of(runs, 8, NULL);
    CHECK(strstr(page, "Side by side") && strstr(page, "minus clip"));
    CHECK(strstr(page, "0.115 ± 0.013"));
    CHECK(strstr(page, "<strong>+0.1 (p 0.029, significant)</strong>"));
    free(page);
    const char *two[] = { path[4], path[0] };
    page = page_of(two, 2, NULL);
    CHECK(strstr(page, "minus cloob") && strstr(page, "<td class=\"text\">−0.1</td>") &&
          strstr(page, "train several seeds"));
    CHECK(!strstr(page, "significant"));
    free(page);
    page = page_of(runs, 4, NULL);
    CHECK(strstr(page, "4 runs") && !strstr(page, "minus"));
    free(page);
    report_options_init(&o);
    o.samples = false;
    o.export_dir = at("out/differences");
    CHECK_OK(ctx, report_write(ctx, runs, 8, at("page.html"), &o, NULL));
    char *csv = exported("out/differences/differences.csv");
    CHECK(strstr(csv, "image_to_text_R@1,cloob,4,0.215,0.0129099,0.1,0.0285714,0.0285714,1,clip\n"));
    free(csv);
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
    CHECK_NEAR(table_at(&r.metrics, 1, table_find(&r.metrics, "loss")), 0.45, 1e-12);
    CHECK(isnan(table_at(&r.metrics, 2, 2)));
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
    report_options o;
    report_options_init(&o);
    o.export_dir = at("examples");
    CHECK_OK(ctx, report_write(ctx, runs, 1, at("page.html"), &o, NULL));
    char *csv = exported("examples/zero-shot-examples.csv");
    CHECK_STR(csv, "image,label,probability,rank\nred,<blue>,0.7500,2\nred,red,0.2500,2\ngone.jpg,green,1.0000,\n"
                   "grey,pink,1.0000,9\n");
    free(csv);
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

static void figures_and_tables_can_be_taken_out(void)
{
    report_options o;
    report_summary s;
    make_run("out_run");
    put("out_run/zeroshot-object.json", "{\"top1\": 0.75, \"n\": 4}");
    put("out_run/examples-validation.json", samples);
    put("out_run/params.txt", "method: 50%_of & |x|\n");
    const char *runs[1] = { at("out_run") };
    report_options_init(&o);
    o.export_dir = at("figures");
    CHECK_OK(ctx, report_write(ctx, runs, 1, at("page.html"), &o, &s));
    CHECK(s.exported > 10);
    char *csv = exported("figures/training-loss.csv"), *scores = exported("figures/zero-shot.csv"),
         *tex = exported("figures/summary.tex"), *md = exported("figures/summary.md");
    CHECK_STR(csv, "series,step,loss\nout_run,1,0.5\nout_run,2,0.4\nout_run,3,0.3\n");
    CHECK(strstr(scores, "object,out_run,4,0.75,"));
    CHECK(strstr(tex, "\\begin{tabular}{lr") && strstr(tex, "out\\_run & 50\\%\\_of \\& |x|"));
    CHECK(strstr(md, "| run | method |") && strstr(md, "\\|x\\|"));
    free(csv), free(scores), free(tex), free(md);
    char *page = exported("page.html"); /* every figure links to its files, seen from the page */
    CHECK(strstr(page, "<a href=\"figures/training-loss.csv\">CSV</a>"));
    free(page);
    runs[0] = at("out_run"), o.export_dir = at("figures");
    CHECK_OK(ctx, file_make_dirs(ctx, at("out")));
    CHECK_OK(ctx, report_write(ctx, runs, 1, at("out/page.html"), &o, NULL));
    page = exported("out/page.html");
    CHECK(strstr(page, "<a href=\"../figures/training-loss.csv\">CSV</a>"));
    free(page);
#ifdef CLOOB_HAVE_CAIRO
    CHECK(file_exists(at("figures/training-loss.svg")));
    char *pdf = exported("figures/training-loss.pdf");
    CHECK(strncmp(pdf, "%PDF-", 5) == 0);
    free(pdf);
#endif
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

/* Two seeds of one method are a line with a band of one standard deviation; bars have their mean. */
static void seeds_are_a_mean_and_a_band(void)
{
    report_options o;
    report_summary s;
    make_repeat("many/a", "method: cloob\nname: a\nseed: 0\nresume: None\n", "step\tloss\n1\t2\n2\t1\n",
                "{\"image_effective_eigenvalues\": 10, \"image_ajne\": 8, \"epoch\": 1}\n"
                "{\"image_effective_eigenvalues\": 12, \"image_ajne\": 4, \"epoch\": 5}\n");
    make_repeat("many/b", "method: cloob\nname: b\nseed: 1\nresume: latest\n", "step\tloss\n1\t4\n2\t1\n3\t9\n",
                "{\"image_effective_eigenvalues\": 10, \"image_ajne\": 6, \"epoch\": 1}\n"
                "{\"image_effective_eigenvalues\": 16, \"image_ajne\": 2, \"epoch\": 5}\n");
    make_repeat("many/c", "method: clip\nname: c\nseed: 0\n", "step\tloss\n1\t5\n2\t5\n", "");
    put("many/search.json", "{\"select\": \"R\", \"axes\": [{\"name\": \"lr\", \"importance\": 0.5, \"values\": ["
                            "{\"value\": \"1e-3\", \"groups\": {\"\": {\"n\": 2, \"mean\": 3, \"lowest\": 1, "
                            "\"highest\": 5}}}, {\"value\": \"1e-4\", \"groups\": {\"\": {\"n\": 0}}}]}]}");
    const char *runs[] = { at("many/a"), at("many/b"), at("many/c") };
    report_options_init(&o);
    o.export_dir = at("band");
    CHECK_OK(ctx, report_write(ctx, runs, 3, at("many/page.html"), &o, &s));
    char *loss = exported("band/training-loss.csv"),
         *change = exported("band/effective-eigenvalues-relative-change.csv"),
         *ajne = exported("band/uniformity-at-two-epochs-images.csv"), *lr = exported("band/response-to-lr.csv");
    CHECK_STR(loss, "series,step,loss,low,high\n\"cloob, mean of 2\",1,3,1.58578644,4.41421356\n"
                    "\"cloob, mean of 2\",2,1,1,1\n\"clip, mean of 1\",1,5,5,5\n\"clip, mean of 1\",2,5,5,5\n");
    CHECK(strstr(change, "images,cloob,40,11.7157288,68.2842712\n") != NULL);
    CHECK(strstr(ajne, "epoch 1,cloob,7,") && strstr(ajne, "epoch 5,cloob,3,"));
    CHECK_STR(lr, "series,lr,R,low,high\nall,1e-3,3,1,5\n");
    free(loss), free(change), free(ajne), free(lr);
}

/* Several methods: one figure of spectra has the first run of each at its first and last epochs. */
static void spectra_of_methods_and_epochs(void)
{
    report_options o;
    make_run("spectra/a"), make_run("spectra/b"), make_run("spectra/c");
    put("spectra/b/params.txt", "method: clip\n");
    put("spectra/b/analysis/epoch_1/eigenvalues.tsv", "index\tx\ty\n1\t0.75\t0.25\n");
    put("spectra/b/analysis/epoch_7/eigenvalues.tsv", "index\tx\ty\n1\t0.625\t0.5\n");
    const char *runs[] = { at("spectra/a"), at("spectra/b"), at("spectra/c") }; /* c: cloob again */
    report_options_init(&o);
    o.export_dir = at("spectra/out");
    CHECK_OK(ctx, report_write(ctx, runs, 3, at("spectra/page.html"), &o, NULL));
    char *x = exported("spectra/out/spectra-by-method-and-epoch-images.csv"),
         *y = exported("spectra/out/spectra-by-method-and-epoch-texts.csv");
    CHECK_STR(x, "series,rank,eigenvalue\n\"cloob, epoch 1\",1,0.5\n\"cloob, epoch 1\",2,0.125\n"
                 "\"cloob, epoch 2\",1,0.4\n\"cloob, epoch 2\",2,0.1\n\"clip, epoch 1\",1,0.75\n"
                 "\"clip, epoch 2\",1,0.4\n\"clip, epoch 2\",2,0.1\n\"clip, epoch 7\",1,0.625\n");
    CHECK(strstr(y, "\"clip, epoch 7\",1,0.5\n") != NULL);
    free(x), free(y);
    char *page = page_of(runs, 1, NULL); /* one method: no such figure */
    CHECK(!strstr(page, "Spectra by method"));
    free(page);
}

#ifdef CLOOB_HAVE_CAIRO
/* A bar that begins above 0 exaggerates a difference; lines may. */
static void bars_begin_at_zero(void)
{
    arena a = { 0 };
    chart_axis x, y;
    const char *names[] = { "a", "b" };
    for (int sign = -1; sign <= 1; sign += 2) {
        chart c = { .bars = true, .category = names, .categories = 2 };
        chart_series *s = chart_add(&a, &c, "all", 0, 2);
        chart_point(&c, s, 0, sign * 8.0), chart_point(&c, s, 1, sign * 9.0);
        chart_range(&c, &x, &y);
        CHECK((sign > 0 ? y.low : y.high) == 0);
        c.bars = false;
        chart_range(&c, &x, &y);
        CHECK((sign > 0 ? y.low : y.high) != 0);
    }
    arena_release(&a);
}
#endif

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

static void damaged_lines_are_left_out_and_said(void)
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

static void what_is_no_run_is_refused(void)
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

/* Two clouds of four points each; in a build without cairo the files are absent and the call says why. */
static void plots_of_an_analysis(void)
{
    float x[8] = { 1, 0, 0, 1, -1, 0, 0, -1 };
    cloob_matrix m = { x, CLOOB_F32, 4, 2, "x" };
    embedding_analysis a = { 0 };
    CHECK_OK(ctx, file_make_dirs(ctx, at("plots")));
    CHECK_OK(ctx, analyze_matrices(ctx, &a, &m, &m, 0.99));
    cloob_status status = analysis_plots(ctx, &a, NULL, at("plots"));
    if (status == CLOOB_ERR_UNSUPPORTED) {
        CHECK(strstr(cloob_error(ctx), "cairo") && !file_exists(at("plots/spectrum.svg")));
    } else {
        file_bytes b;
        CHECK_OK(ctx, status);
        CHECK_OK(ctx, file_read(ctx, at("plots/spectrum.svg"), 1 << 20, &b));
        CHECK(strstr(b.data, "<svg") && strstr(b.data, "</svg>"));
        file_bytes_release(&b);
        CHECK(remove(at("plots/similarities.svg")) == 0);
        analysis_release(&a);
        CHECK_OK(ctx, analyze_matrices(ctx, &a, &m, NULL, 0.99));
        CHECK_OK(ctx, analysis_plots(ctx, &a, &a, at("plots")));
        CHECK(!file_exists(at("plots/similarities.svg"))); /* one modality has no pairs */
        CHECK(analysis_plots(ctx, &a, NULL, at("absent")) == CLOOB_ERR_IO);
    }
    analysis_release(&a);
}

int main(void)
{
    cloob_ctx_options o;
    cloob_ctx_options_init(&o);
    o.log = hear;
    ctx = cloob_ctx_create(&o);
    snprintf(root, sizeof root, "%.400s/cloob-test-report-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!ctx || !mkdtemp(root)) return 1;
    RUN(one_run_makes_a_page);
    RUN(the_page_stands_alone);
    RUN(several_runs_share_charts);
    RUN(runs_stand_side_by_side);
    RUN(resumed_steps_count_once);
    RUN(examples_have_bars);
#ifdef CLOOB_HAVE_CAIRO
    RUN(bars_begin_at_zero);
#endif
    RUN(images_come_first);
    RUN(one_point_is_a_number);
    RUN(figures_and_tables_can_be_taken_out);
    RUN(seeds_are_a_mean_and_a_band);
    RUN(spectra_of_methods_and_epochs);
    RUN(base64_as_in_the_standard);
    RUN(damaged_lines_are_left_out_and_said);
    RUN(empty_results_still_make_a_page);
    RUN(what_is_no_run_is_refused);
    RUN(plots_of_an_analysis);
    check_remove(root);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
