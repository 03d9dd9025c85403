/* cloob/report.h: samples of the runs first, then the page out of their folders. */
#include "cloob/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/needs.h"
#include "lab/report/samples.h"
#include "lab/synth/world_truth.h"
#include "lab/report/figures/figure_file.h"
#include "lab/report/report.h"
#include "lab/report/run_files.h"
#include "train/resume.h"
#include "core/option.h"
#include "data/sets/dataset.h"

/* ---- samples ------------------------------------------------------------------------------------- */

static const char *folder_of(arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? arena_string_n(a, path, (size_t)(slash - path)) : ".";
}

/* The data options that the run's params.txt holds. */
static void data_options_of(const run_files *r, dataset_options *o)
{
    int64_t n;
    const option_desc *option = data_option_table(&n);
    dataset_options_init(o);
    for (int64_t i = 0; i < n; i++) {
        const char *value = run_param_get(r, option[i].name);
        if (*value && strcmp(value, "None") != 0) option_set(&option[i], o, value);
    }
    o->resampled = false, o->upsampling = NULL; /* of training data alone */
}

static cloob_status write_samples(cloob_ctx *ctx, const run_files *r, const char *checkpoint, const char *out,
                                  const cloob_report_options *o, arena *a)
{
    const char *data = run_param_get(r, "val_data"), *world = folder_of(a, data);
    cloob_model_options mo;
    dataset_options d_options;
    dataset *d = NULL;
    model *m = NULL;
    sbuf text = { 0 };
    cloob_model_options_init(&mo);
    mo.device = o->device;
    mo.invariant = false, mo.batch = 64;
    data_options_of(r, &d_options);
    bool truth = false;
    cloob_status status = world ? world_truth_find(ctx, world, &truth) : ctx_no_memory(ctx, strlen(data), data);
    samples_options so = { o->search, o->searches, truth ? world : NULL, checkpoint, data };
    if (status == CLOOB_OK) status = dataset_open(ctx, data, &d_options, &d);
    if (status == CLOOB_OK) status = model_open(ctx, checkpoint, &mo, &m);
    if (status == CLOOB_OK) status = samples_json(ctx, m, d, &so, &text);
    if (status == CLOOB_OK) status = file_write(ctx, out, text.data, text.len);
    model_close(m);
    if (d) dataset_close(d);
    sbuf_release(&text);
    return status;
}

static bool is_newer(const char *path, const char *than)
{
    struct stat a, b;
    return stat(path, &a) == 0 && stat(than, &b) == 0 && a.st_mtime >= b.st_mtime;
}

static cloob_status refresh(cloob_ctx *ctx, arena *a, const char *dir, const cloob_report_options *o)
{
    run_files r;
    char checkpoint[RESUME_PATH], *out = file_join(dir, "samples.json"), *folder = file_join(dir, "checkpoints");
    cloob_status status = out && folder ? run_files_read(ctx, a, dir, &r) : ctx_no_memory(ctx, 64, dir);
    const char *data = status == CLOOB_OK ? run_param_get(&r, "val_data") : "";
    if (status != CLOOB_ERR_MEMORY) status = CLOOB_OK; /* a folder that is no run: the page says so */
    bool stored = *data && strcmp(data, "None") != 0;
    if (stored && dataset_runs_commands(ctx, data))
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "its val_data is a command (pipe:), which is not run out of a file");
    else if (stored) {
        status = resume_find(ctx, folder, checkpoint);
        bool fresh = status == CLOOB_OK && !o->searches && is_newer(out, checkpoint);
        if (status == CLOOB_OK && !fresh) status = write_samples(ctx, &r, checkpoint, out, o, a);
    }
    free(out), free(folder);
    return status;
}

/* A run whose weights or images are gone keeps the samples it has; the page is made without where it has none. */
static void refresh_samples(cloob_ctx *ctx, const char *dir, const cloob_report_options *o)
{
    arena a = { 0 };
    if (refresh(ctx, &a, dir, o) != CLOOB_OK)
        ctx_log(ctx, CLOOB_LOG_WARN, "%s: no new images: %s", dir, cloob_error(ctx));
    arena_release(&a);
}

/* ---- the page ------------------------------------------------------------------------------------ */

void cloob_report_options_init(cloob_report_options *o)
{
    if (o) *o = (cloob_report_options){ .samples = true };
}

cloob_status cloob_report(cloob_ctx *ctx, const char *const *run, int64_t runs, const char *out,
                          const cloob_report_options *o, cloob_report_summary *summary)
{
    cloob_report_options defaults;
    API_NEEDS(ctx, run && out && runs >= 0);
    cloob_report_options_init(&defaults);
    if (!o) o = &defaults;
    for (int64_t i = 0; o->samples && i < runs && i < CLOOB_REPORT_SAMPLED; i++) refresh_samples(ctx, run[i], o);
    return report_write(ctx, run, runs, out, o, summary);
}

cloob_status cloob_figure(cloob_ctx *ctx, const char *path, const char *dir)
{
    export_files e;
    API_NEEDS(ctx, path && dir);
    export_begin(&e, ctx, dir, dir);
    cloob_status status = e.status == CLOOB_OK ? figure_file_draw(ctx, path, &e) : e.status;
    export_end(&e);
    return status;
}
