/* cloob benchmark: a model on data sets in CLIP_benchmark's layout, one JSON object and one table row each. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/shared_opts.h"

static struct {
    cli_model model;
    opt_list datasets;
    const char *out;
    int64_t workers;
} o;

static const opt_row rows[] = { CLI_MODEL_ROWS(o.model, OPT_REQUIRED),
                                { "datasets", OPT_LIST, &o.datasets, NULL, "DIR|LIST",
                                  "folders of data sets, or a text file that lists them", OPT_REQUIRED },
                                { "out", OPT_STRING, &o.out, "benchmark", "DIR",
                                  "folder for DATASET.json; finished data sets are taken from it", 0 },
                                { "workers", OPT_INT, &o.workers, "2", "N", "threads that decode images",
                                  OPT_NOT_NEGATIVE },
                                CLI_INVARIANT_ROWS(o.model),
                                OPT_END };
static const opt_set sets[] = { { cloob_data_option_table, &o.model.how }, OPT_SETS_END };

typedef struct score {
    const char *task;
    const char *metric[5];
    double value[5];
    int metrics;
    int64_t n;
} score;

static void add(score *s, const char *metric, double value)
{
    s->metric[s->metrics] = metric;
    s->value[s->metrics++] = value;
}

/* ---- the two tasks --------------------------------------------------------------------------------- */

static cloob_status classification(cloob_ctx *ctx, cloob_model *m, const char *folder, const cloob_dataset *d, score *s)
{
    cloob_prompts *p = NULL;
    cloob_zeroshot_options z;
    cloob_zeroshot_result r = { 0 };
    cloob_zeroshot_options_init(&z);
    z.workers = (int)o.workers;
    cloob_status status = cloob_prompts_import(ctx, &folder, 1, &p);
    z.prompts = p;
    if (status == CLOOB_OK) status = cloob_zeroshot(ctx, m, d, &z, &r);
    if (status == CLOOB_OK) {
        *s = (score){ .task = "zeroshot_classification", .n = r.n };
        add(s, "acc1", r.top1);
        add(s, "acc5", r.top5);
        add(s, "mean_per_class_recall", r.mean_per_class);
    }
    cloob_zeroshot_release(&r);
    cloob_prompts_close(p);
    return status;
}

static cloob_status rank(cloob_ctx *ctx, const char *file, score *s)
{
    cloob_embeddings *e = NULL;
    cloob_matrix image = { 0 }, text = { 0 };
    cloob_retrieval r;
    cloob_retrieve_options how = { .device = common.device };
    cloob_status status = cloob_embeddings_open(ctx, file, &e);
    if (status == CLOOB_OK) status = cloob_embeddings_matrix(ctx, e, "image", &image);
    if (status == CLOOB_OK) status = cloob_embeddings_matrix(ctx, e, "text", &text);
    if (status == CLOOB_OK && cloob_embeddings_has(e, "text_image"))
        status = cloob_embeddings_labels(ctx, e, "text_image", text.rows, &how.text_image);
    if (status == CLOOB_OK) status = cloob_retrieve(ctx, &r, &image, &text, &how);
    if (status == CLOOB_OK) {
        *s = (score){ .task = "zeroshot_retrieval", .n = image.rows };
        add(s, "image_retrieval_recall@5", r.text_to_image.recall5);
        add(s, "text_retrieval_recall@5", r.image_to_text.recall5);
        add(s, "image_retrieval_recall@1", r.text_to_image.recall1);
        add(s, "text_retrieval_recall@1", r.image_to_text.recall1);
    }
    cloob_embeddings_close(e);
    return status;
}

/* Embeddings of all captions go to a file of the output folder, which is removed afterwards. */
static cloob_status retrieval(cloob_ctx *ctx, cloob_model *m, const char *name, const cloob_dataset *d, score *s)
{
    char file[PATH_MAX];
    cloob_embed_job job;
    cloob_embedded e = { 0 };
    cloob_embed_job_init(&job);
    job.data = d;
    job.all_captions = true;
    job.workers = (int)o.workers;
    snprintf(file, sizeof file, "%s/%s.embeddings.safetensors", o.out, name);
    cloob_status status = cloob_embed_to_file(ctx, m, &job, file, &e);
    cloob_embedded_release(&e);
    if (status == CLOOB_OK) status = rank(ctx, file, s);
    unlink(file);
    return status;
}

static cloob_status evaluate(cloob_ctx *ctx, cloob_model *m, const char *folder, const char *name, score *s)
{
    cloob_dataset *d = NULL;
    cloob_status status = cloob_dataset_open(ctx, folder, cli_data_ready(&o.model.how), &d);
    if (status == CLOOB_OK)
        status =
            cloob_dataset_class_count(d) > 0 ? classification(ctx, m, folder, d, s) : retrieval(ctx, m, name, d, s);
    cloob_dataset_close(d);
    return status;
}

/* ---- results --------------------------------------------------------------------------------------- */

static bool write_json(const char *path, const char *name, const score *s)
{
    FILE *f = fopen(path, "w");
    if (!f) return false;
    fprintf(f,
            "{\"dataset\": \"%s\", \"model\": \"cloob\", \"task\": \"%s\", \"n\": %lld, \"language\": \"en\", "
            "\"metrics\": {",
            name, s->task, (long long)s->n);
    for (int i = 0; i < s->metrics; i++) fprintf(f, "%s\"%s\": %.17g", i ? ", " : "", s->metric[i], s->value[i]);
    fprintf(f, "}}\n");
    return fclose(f) == 0;
}

static void print_row(const char *name, const score *s)
{
    if (common.json) {
        json_out_open(NULL, '{');
        json_out_text("dataset", name);
        json_out_text("task", s->task);
        json_out_int("n", s->n);
        json_out_open("metrics", '{');
        for (int i = 0; i < s->metrics; i++) json_out_number(s->metric[i], s->value[i], 17);
        json_out_close();
        json_out_close();
        return;
    }
    printf("%-28s %-24s %7lld", name, s->task, (long long)s->n);
    for (int i = 0; i < s->metrics; i++) printf("  %s %.4f", s->metric[i], s->value[i]);
    printf("\n");
}

/* ---- the list of data sets --------------------------------------------------------------------------- */

static char *clean_name(const char *folder, char out[256])
{
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') n--;
    size_t begin = n;
    while (begin > 0 && folder[begin - 1] != '/') begin--;
    snprintf(out, 256, "%.*s", (int)(n - begin), folder + begin);
    for (char *c = out; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = '_';
    return out;
}

static int one(const command *self, cloob_ctx *ctx, cloob_model *m, const char *folder)
{
    char name[256], path[PATH_MAX];
    score s = { 0 };
    snprintf(path, sizeof path, "%s/%s.json", o.out, clean_name(folder, name));
    if (access(path, F_OK) == 0) {
        fprintf(stderr, "%s: taken from %s\n", name, path);
        return 0;
    }
    cloob_status status = evaluate(ctx, m, folder, name, &s);
    if (status != CLOOB_OK) return cli_fail(self, ctx, status);
    if (!write_json(path, name, &s)) return fprintf(stderr, "cloob benchmark: %s cannot be written\n", path), 1;
    print_row(name, &s);
    return 0;
}

/* A folder stands for itself, a text file for the folders on its lines. */
static int each(const command *self, cloob_ctx *ctx, cloob_model *m, const char *item)
{
    struct stat st;
    char line[PATH_MAX];
    int code = 0;
    if (stat(item, &st) == 0 && S_ISDIR(st.st_mode)) return one(self, ctx, m, item);
    FILE *f = fopen(item, "r");
    if (!f) return fprintf(stderr, "cloob benchmark: %s: neither a folder nor a list of folders\n", item), 1;
    while (!code && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] && line[0] != '#') code = one(self, ctx, m, line);
    }
    fclose(f);
    return code;
}

static int run(const command *self, int argc, char **argv)
{
    opt_list rest;
    cloob_model *m = NULL;
    int code = opt_parse(self, argc, argv, &rest);
    if (code >= 0) return code;
    if (rest.count) return cli_usage(self, "%s: data sets come after --datasets", rest.item[0]);
    if (mkdir(o.out, 0777) != 0 && access(o.out, W_OK) != 0)
        return cli_usage(self, "--out %s: cannot be written", o.out);
    cloob_ctx *ctx = cli_context();
    cloob_status status = cli_model_open(ctx, &o.model, true, &m);
    code = status == CLOOB_OK ? 0 : cli_fail(self, ctx, status);
    for (int i = 0; i < o.datasets.count && code == 0; i++) code = each(self, ctx, m, o.datasets.item[i]);
    cloob_model_close(m);
    cloob_ctx_destroy(ctx);
    return code;
}

const command cmd_benchmark = {
    .name = "benchmark",
    .run = run,
    .help = "evaluate on data sets in the layout of CLIP_benchmark",
    .options = rows,
    .sets = sets,
    .uses = USES_PRECISION,
    .usage = "--checkpoint M --datasets DIR|LIST... [--out DIR]",
    .details =
        "A data set is a folder with test/0.tar, test/1.tar, ...; classnames.txt and\n"
        "zeroshot_classification_templates.txt make it a classification task (acc1, acc5, mean_per_class_recall),\n"
        "captions in .txt members a retrieval task (image_retrieval_recall@k, text_retrieval_recall@k). Results have\n"
        "CLIP_benchmark's names. Run the same command again to continue with unfinished data sets.\n"
        "\n"
        "  cloob benchmark --checkpoint M --datasets wds/cifar10 wds/flickr8k --out results\n"
        "  cloob benchmark --checkpoint M --datasets webdatasets.txt --json",
};
