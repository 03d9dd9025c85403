/* The page from top to bottom, after the samples of its runs. */
#include "lab/report/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/file.h"
#include "lab/memory.h"
#include "lab/report/page.h"
#include "train/checkpoint.h"
#include "core/option.h"
#include "data/sets/dataset.h"
#include "infer/model_file.h"

/* ---- gathering ----------------------------------------------------------------------------------- */

static char *parent_of(arena *a, const char *path)
{
    char *folder = must(file_folder(path)), *kept = must(arena_string(a, folder));
    free(folder);
    return kept;
}

/* Searches inside each run, next to the runs, next to the page, and in the given folders. */
static cloob_status find_scores(page *p, const char *out, const report_options *o)
{
    for (int64_t i = 0; i < p->runs; i++)
        score_files_scan(p->ctx, p->memory, p->run[i].dir, &p->run[i], p->run, p->runs, &p->scores);
    for (int64_t i = -1; i < p->runs; i++) {
        const char *folder = parent_of(p->memory, i < 0 ? out : p->run[i].dir);
        score_files_scan(p->ctx, p->memory, folder, NULL, p->run, p->runs, &p->scores);
    }
    for (int64_t i = 0; i < o->score_folders; i++) {
        if (!file_is_dir(o->score_folder[i]))
            return ctx_fail(p->ctx, CLOOB_ERR_IO, "%s: no such folder of zero-shot results", o->score_folder[i]);
        score_files_scan(p->ctx, p->memory, o->score_folder[i], NULL, p->run, p->runs, &p->scores);
    }
    return CLOOB_OK;
}

/* A file next to the page; NULL: none that can be read. */
static const json *read_sibling(page *p, const char *out, const char *name)
{
    char path[FILE_PATH];
    json *root = NULL;
    if (file_in(p->ctx, parent_of(p->memory, out), name, path) != CLOOB_OK || !file_exists(path)) return NULL;
    if (json_read_file(p->ctx, p->memory, path, &root) == CLOOB_OK) return root;
    ctx_log(p->ctx, CLOOB_LOG_WARN, "%s; left out", cloob_error(p->ctx));
    p->scores.damaged++;
    return NULL;
}

/* The table of cloob sweep, if the page is in its folder. */
static void find_table(page *p, const char *out)
{
    p->ablation = read_sibling(p, out, "ablation.json");
    if (!p->ablation) p->ablation = read_sibling(p, out, "sweep.json");
}

static cloob_status read_runs(page *p, const char *const *run, int64_t runs)
{
    p->run = must(arena_push(p->memory, (size_t)(runs + 1) * sizeof *p->run));
    for (; p->runs < runs; p->runs++) {
        run_files *r = &p->run[p->runs];
        CLOOB_TRY(run_files_read(p->ctx, p->memory, run[p->runs], r));
        if (!r->results)
            ctx_log(p->ctx, CLOOB_LOG_WARN, "%s: no validation results; train with validation data to have them",
                    run[p->runs]);
    }
    return CLOOB_OK;
}

/* ---- writing ------------------------------------------------------------------------------------- */

/* Links to the existing sections in `body`. */
static void put_nav(page *p, const char *body)
{
    static const char *const section[][2] = {
        { "zeroshot", "Zero-shot" }, { "summary", "Summary" },       { "ablation", "Ablation" },
        { "training", "Training" },  { "validation", "Validation" }, { "embeddings", "Embeddings" },
        { "settings", "Settings" },
    };
    sbuf_puts(&p->html, "<nav aria-label=\"Sections\">");
    for (size_t i = 0; i < sizeof section / sizeof *section; i++) {
        char id[48];
        snprintf(id, sizeof id, "<h2 id=\"%s\"", section[i][0]);
        if (strstr(body, id)) sbuf_printf(&p->html, "<a href=\"#%s\">%s</a>", section[i][0], section[i][1]);
    }
    sbuf_puts(&p->html, "</nav>\n");
}

static int64_t damaged_lines(const page *p)
{
    int64_t n = p->scores.damaged;
    for (int64_t i = 0; i < p->runs; i++) n += p->run[i].damaged;
    return n;
}

static void put_foot(page *p)
{
    if (damaged_lines(p))
        sbuf_printf(&p->html, "<p class=\"note\">%lld damaged lines or files were left out.</p>\n",
                    (long long)damaged_lines(p));
    char when[40];
    time_t now = time(NULL);
    struct tm tm;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime_r(&now, &tm));
    html_put(&p->html, "<footer>Written %s by cloob %s.</footer>\n</main>\n</body>\n</html>\n", when, cloob_version());
}

static void put_sections(page *p)
{
    page_zeroshot(p); /* images first */
    page_summary(p);
    page_ablation(p);
    page_training(p);
    page_validation(p);
    page_embeddings(p);
    page_settings(p);
}

static void put_page(page *p, const char *title)
{
    sbuf body;
    put_sections(p); /* first, because the links above depend on the sections */
    body = p->html;
    p->html = (sbuf){ 0 };
    html_page_begin(&p->html, title, asset_page_css, asset_page_css_bytes);
    put_nav(p, body.data ? body.data : "");
    sbuf_add(&p->html, body.data, body.len);
    p->html.failed |= body.failed;
    sbuf_release(&body);
    put_foot(p);
}

static const char *title_of(const page *p, const report_options *o)
{
    sbuf s = { 0 };
    if (o->title) return o->title;
    for (int64_t i = 0; i < p->runs && i < 4; i++) sbuf_printf(&s, "%s%s", i ? ", " : "", p->run[i].name);
    if (p->runs > 4) sbuf_printf(&s, " and %lld more", (long long)(p->runs - 4));
    const char *kept = must(arena_string(p->memory, must(s.data)));
    sbuf_release(&s);
    return kept;
}

/* ---- examples of the validation data ------------------------------------------------------------- */

/* The data options that the run's params.txt holds. */
static void data_options_of(const run_files *r, dataset_options *o)
{
    int64_t n;
    const option_desc *option = data_option_table(&n);
    dataset_options_init(o);
    for (int64_t i = 0; i < n; i++) {
        const char *text = run_param_get(r, option[i].name);
        if (*text && strcmp(text, "None") != 0) option_set(&option[i], o, text);
    }
    o->resampled = false, o->upsampling = NULL; /* of training data only */
}

static cloob_status write_samples(cloob_ctx *ctx, const run_files *r, const char *checkpoint, const char *out,
                                  const char *device_name)
{
    const char *data = run_param_get(r, "val_data");
    cloob_model_options mo;
    dataset_options d_options;
    dataset *d = NULL;
    model *m = NULL;
    sbuf text = { 0 };
    cloob_model_options_init(&mo);
    mo.device = device_name;
    mo.invariant = false, mo.batch = 64;
    data_options_of(r, &d_options);
    cloob_status status = dataset_open(ctx, data, &d_options, &d);
    if (status == CLOOB_OK) status = cloob_model_open(ctx, checkpoint, &mo, &m);
    if (status == CLOOB_OK) status = samples_json(ctx, m, d, checkpoint, &text);
    if (status == CLOOB_OK) status = file_write(ctx, out, text.data, text.len);
    cloob_model_close(m);
    if (d) dataset_close(d);
    sbuf_release(&text);
    return status;
}

static bool is_newer(const char *path, const char *than)
{
    struct stat a, b;
    return stat(path, &a) == 0 && stat(than, &b) == 0 && a.st_mtime >= b.st_mtime;
}

static cloob_status refresh(cloob_ctx *ctx, arena *a, const char *dir, const char *device_name)
{
    run_files r;
    char checkpoint[RESUME_PATH], out[FILE_PATH], folder[FILE_PATH];
    CLOOB_TRY(file_in(ctx, dir, "examples-validation.json", out));
    CLOOB_TRY(file_in(ctx, dir, "checkpoints", folder));
    if (run_files_read(ctx, a, dir, &r) != CLOOB_OK) return CLOOB_OK; /* the page reports the error */
    const char *data = run_param_get(&r, "val_data");
    if (!*data || strcmp(data, "None") == 0) return CLOOB_OK;
    if (dataset_runs_commands(ctx, data))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "its val_data is a command (pipe:), which is not run from a file");
    CLOOB_TRY(resume_find(ctx, folder, checkpoint));
    return is_newer(out, checkpoint) ? CLOOB_OK : write_samples(ctx, &r, checkpoint, out, device_name);
}

/* A run whose weights or images no longer exist keeps its old samples, if any. */
static void refresh_samples(cloob_ctx *ctx, const char *dir, const char *device_name)
{
    arena a = { 0 };
    if (refresh(ctx, &a, dir, device_name) != CLOOB_OK)
        ctx_log(ctx, CLOOB_LOG_WARN, "%s: no new images: %s", dir, cloob_error(ctx));
    arena_release(&a);
}

/* ---- the page ------------------------------------------------------------------------------------ */

static cloob_status write_page(cloob_ctx *ctx, const char *const *run, int64_t runs, const char *out,
                               const report_options *o, report_summary *summary)
{
    arena memory = { 0 };
    page p = { .ctx = ctx, .memory = &memory, .export_dir = o->export_dir };
    if (runs < 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "a report needs a run; give the folder LOGS/NAME that cloob train wrote");
    cloob_status status = o->export_dir ? file_make_dirs(ctx, o->export_dir) : CLOOB_OK;
    if (status == CLOOB_OK) status = read_runs(&p, run, runs);
    if (status == CLOOB_OK) status = find_scores(&p, out, o);
    if (status == CLOOB_OK) {
        page_find_repeats(&p);
        if (runs > 1) find_table(&p, out);
        put_page(&p, title_of(&p, o));
        if (p.html.failed) must(NULL);
        status = p.status == CLOOB_OK ? file_write(ctx, out, p.html.data, p.html.len) : p.status;
    }
    if (status == CLOOB_OK && summary)
        *summary = (report_summary){
            .runs = runs, .charts = p.charts, .damaged = damaged_lines(&p), .bytes = (int64_t)p.html.len
        };
    sbuf_release(&p.html);
    arena_release(&memory);
    return status;
}

void report_options_init(report_options *o) { *o = (report_options){ .samples = true }; }

cloob_status report_write(cloob_ctx *ctx, const char *const *run, int64_t runs, const char *out,
                          const report_options *o, report_summary *summary)
{
    report_options defaults;
    report_options_init(&defaults);
    if (!o) o = &defaults;
    for (int64_t i = 0; o->samples && i < runs && i < REPORT_SAMPLED; i++) refresh_samples(ctx, run[i], o->device);
    return write_page(ctx, run, runs, out, o, summary);
}
