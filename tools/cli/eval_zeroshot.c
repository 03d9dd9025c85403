/* cloob eval zeroshot: measures accuracy on images whose classes are given by names. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "cli/cli.h"
#include "infer/model_file.h"
#include "lab/compare/groups.h"
#include "core/file.h"
#include "data/text/prompts.h"

static struct {
    cli_model model;
    opt_list data;
    cloob_eval_options eval;
    const char *prompts, *set, *class_map, *predictions, *confusion;
    bool per_class;
} o;

static const opt_row rows[] = {
    { "data", OPT_LIST, &o.data, NULL, "SOURCE", "class folders, a tar of them, CIFAR and others; several are averaged",
      0 },
    { "prompts", OPT_STRING, &o.prompts, NULL, "P.json", "class names and templates; see cloob prompts", 0 },
    { "set", OPT_STRING, &o.set, NULL, "NAME",
      "prompt set to use; default: the only one, or the one named like the data", 0 },
    { "per-class", OPT_FLAG, &o.per_class, NULL, NULL, "print the accuracy of each class", 0 },
    { "classes-map", OPT_STRING, &o.class_map, NULL, "FILE",
      "lines of FOLDER, tab or comma, CLASS of the prompts; only those classes compete", 0 },
    { "predictions", OPT_STRING, &o.predictions, NULL, "FILE",
      "prediction for each image: .csv, or .jsonl with the keys image, label, predicted, p, correct, rank", 0 },
    { "confusion", OPT_STRING, &o.confusion, NULL, "FILE.csv", "confusion matrix: true class by predicted class", 0 },
    CLI_BATCHED_ROWS(o.model),
    OPT_END
};
static const opt_set sets[] = { { .table = cli_model_table, .into = &o.model, .required = "checkpoint" },
                                { .table = eval_option_table, .into = &o.eval },
                                OPT_SETS_END };

typedef struct session {
    cloob_ctx *ctx;
    cloob_model *model;
    prompts prompts; /* empty if --prompts is not given */
    cloob_zeroshot_options z;
    cloob_zeroshot_result *result; /* (sources) */
} session;

/* "dir/classes/object/" -> "object" */
static const char *last_part(const char *path, char out[256])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/') from--;
    snprintf(out, 256, "%.*s", (int)(n - from < 255 ? n - from : 255), path + from);
    out[strcspn(out, ".")] = '\0';
    return out;
}

static cloob_status run_source(session *s, const char *source, cloob_zeroshot_result *r)
{
    char name[256];
    const prompt_set *found = s->prompts.set;
    cloob_dataset *d;
    if (o.set || s->prompts.count > 1)
        CLOOB_TRY(prompts_find(s->ctx, &s->prompts, o.set ? o.set : last_part(source, name), &found));
    s->z.set = found - s->prompts.set;
    CLOOB_TRY(cloob_dataset_open(s->ctx, source, cli_data_ready(&o.model.data), &d));
    cloob_status status = cloob_zeroshot(s->ctx, s->model, d, &s->z, r);
    cloob_dataset_close(d);
    return status;
}

/* ---- known sets ---------------------------------------------------------------------------------- */

/* Warns if the number of classes or images differs from the published data set of this name, because accuracies are
 * then not comparable. ImageNet's prompts are also used for other sets, so ImageNet is only recognised by its
 * folder. */
static void compare_counts(const session *s, const char *source, const cloob_zeroshot_result *r)
{
    const data_set *k = data_set_find(source);
    if (!k && s->prompts.count) k = data_set_find(s->prompts.set[s->z.set].name);
    if (!k || common.quiet || o.class_map || (strcmp(k->name, "imagenet") == 0 && data_set_find(source) != k)) return;
    int64_t images = r->n + r->bad;
    if (r->classes != k->classes)
        cli_print("warning: ", "%s: %lld classes; the published set %s has %lld", source, (long long)r->classes,
                  k->title, (long long)k->classes);
    if (k->same && images != k->test && !o.model.data.num_samples)
        cli_print("warning: ", "%s: %lld images; the test split of %s has %lld", source, (long long)images, k->title,
                  (long long)k->test);
}

/* ---- averages ------------------------------------------------------------------------------------ */

/* The unweighted mean over data sets, as in the paper; counts are added. */
static cloob_zeroshot_result average(const cloob_zeroshot_result *r, int64_t count)
{
    cloob_zeroshot_result mean = { 0 };
    double n = (double)count;
    for (int64_t i = 0; i < count; i++) {
        mean.top1 += r[i].top1 / n, mean.top5 += r[i].top5 / n, mean.mean_per_class += r[i].mean_per_class / n;
        mean.n += r[i].n, mean.bad += r[i].bad;
    }
    return mean;
}

/* ---- files --------------------------------------------------------------------------------------- */

static void put_prediction(sbuf *s, const cloob_zeroshot_result *r, const cloob_zeroshot_prediction *p, bool lines)
{
    const char *label = r->row[p->label].name, *predicted = r->row[p->predicted].name;
    if (lines) {
        json_out w = { .spaced = true };
        json_object(&w, NULL, J_OF(p, image), J_TEXT("label", label), J_TEXT("predicted", predicted),
                    J_NUMBER("p", p->p, 6), J_BOOL("correct", p->label == p->predicted), J_OF(p, rank));
        json_out_append(&w, s);
        return;
    }
    csv_put(s, p->image), sbuf_putc(s, ',');
    csv_put(s, label), sbuf_putc(s, ',');
    csv_put(s, predicted);
    sbuf_printf(s, ",%.6g,%d,%lld\n", p->p, p->label == p->predicted, (long long)p->rank);
}

static cloob_status write_predictions(const session *s)
{
    bool lines = text_ends_with(o.predictions, ".jsonl");
    sbuf out = { 0 };
    if (!lines) sbuf_puts(&out, "image,label,predicted,p,correct,rank\n");
    for (int i = 0; i < o.data.count; i++)
        for (int64_t k = 0; k < s->result[i].n; k++)
            put_prediction(&out, &s->result[i], &s->result[i].prediction[k], lines);
    return file_write_text(s->ctx, o.predictions, &out);
}

static cloob_status write_confusion(const session *s)
{
    const cloob_zeroshot_result *r = &s->result[0];
    sbuf out = { 0 };
    sbuf_puts(&out, "label");
    for (int64_t c = 0; c < r->classes; c++) sbuf_putc(&out, ','), csv_put(&out, r->row[c].name);
    sbuf_putc(&out, '\n');
    for (int64_t c = 0; c < r->classes; c++) {
        csv_put(&out, r->row[c].name);
        for (int64_t k = 0; k < r->classes; k++)
            sbuf_printf(&out, ",%lld", (long long)r->confusion[c * r->classes + k]);
        sbuf_putc(&out, '\n');
    }
    return file_write_text(s->ctx, o.confusion, &out);
}

/* ---- output -------------------------------------------------------------------------------------- */

static void print_line(const char *name, const cloob_zeroshot_result *r)
{
    printf("%-15s top1 %6.2f %%  top5 %6.2f %%  mean per class %6.2f %%  n %lld", name, 100 * r->top1, 100 * r->top5,
           100 * r->mean_per_class, (long long)r->n);
    if (r->bad) printf("  (%lld could not be read)", (long long)r->bad);
    if (r->empty) printf("  (%lld classes without images)", (long long)r->empty);
    printf("\n");
}

static void print_classes(const cloob_zeroshot_result *r)
{
    for (int64_t c = 0; c < r->classes; c++) {
        const cloob_zeroshot_class *k = &r->row[c];
        double n = k->n ? (double)k->n : 1;
        printf("  %-30s top1 %6.2f %%  top5 %6.2f %%  n %lld\n", k->name, 100 * (double)k->hit1 / n,
               100 * (double)k->hit5 / n, (long long)k->n);
    }
}

static void print_text(const session *s)
{
    for (int i = 0; i < o.data.count; i++) {
        print_line(o.data.item[i], &s->result[i]);
        if (o.per_class) print_classes(&s->result[i]);
    }
    if (o.data.count < 2) return;
    cloob_zeroshot_result mean = average(s->result, o.data.count);
    print_line("average", &mean);
}

/* Writes the JSON members for one data set. */
static void put_source(const session *s, int i)
{
    const cloob_zeroshot_result *r = &s->result[i];
    json_out_text("data", o.data.item[i]);
    json_out_members(J_TEXT("metric", r->wants_mean_per_class ? "mean_per_class" : "accuracy"),
                     J_INT("empty_classes", r->empty));
    json_out_open("classes", '[');
    for (int64_t k = 0; k < r->classes; k++) {
        const cloob_zeroshot_class *row = &r->row[k];
        double n = row->n ? (double)row->n : NAN; /* NaN becomes null: a class without images has no accuracy */
        json_out_object(NULL, J_OF(row, name), J_OF(row, n), J_NUMBER("top1", (double)row->hit1 / n, 10),
                        J_NUMBER("top5", (double)row->hit5 / n, 10));
    }
    json_out_close();
}

static void put_scores(const cloob_zeroshot_result *r)
{
    json_out_members(J_NUMBER("top1", r->top1, 10), J_NUMBER("top5", r->top5, 10),
                     J_NUMBER("mean_per_class", r->mean_per_class, 10), J_OF(r, n), J_OF(r, bad));
}

static void print_json(const session *s)
{
    cloob_zeroshot_result mean = average(s->result, o.data.count);
    json_out_open(NULL, '{');
    put_scores(&mean);
    if (o.data.count == 1) put_source(s, 0);
    else json_out_open("sets", '[');
    for (int i = 0; o.data.count > 1 && i < o.data.count; i++) {
        json_out_open(NULL, '{');
        put_scores(&s->result[i]);
        put_source(s, i);
        json_out_close();
    }
    if (o.data.count > 1) json_out_close();
    json_out_close();
}

static int check(const command *self)
{
    if (!o.data.count) return cli_usage(self, "needs --data");
    if (o.set && !o.prompts) return cli_usage(self, "--set needs --prompts");
    if (o.confusion && o.data.count > 1) return cli_usage(self, "--confusion needs a single --data");
    if (o.class_map && !o.prompts) return cli_usage(self, "--classes-map needs --prompts");
    return -1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    session s = { .ctx = ctx, .result = must(calloc((size_t)o.data.count, sizeof *s.result)) };
    cloob_zeroshot_options_init(&s.z);
    s.z.class_map = o.class_map;
    s.z.predictions = o.predictions != NULL, s.z.confusion = o.confusion != NULL;
    s.z.eval = o.eval;
    cloob_status status = cli_model_open(ctx, &o.model, &s.model);
    if (status == CLOOB_OK && o.prompts) status = prompts_open(ctx, o.prompts, &s.prompts);
    s.z.prompts = s.prompts.count ? &s.prompts : NULL;
    for (int i = 0; i < o.data.count && status == CLOOB_OK; i++) {
        status = run_source(&s, o.data.item[i], &s.result[i]);
        if (status == CLOOB_OK) compare_counts(&s, o.data.item[i], &s.result[i]);
    }
    if (status == CLOOB_OK) (common.json ? print_json : print_text)(&s);
    if (status == CLOOB_OK && o.predictions) status = write_predictions(&s);
    if (status == CLOOB_OK && o.confusion) status = write_confusion(&s);
    for (int i = 0; i < o.data.count; i++) cloob_zeroshot_release(&s.result[i]);
    free(s.result);
    prompts_release(&s.prompts);
    cloob_model_close(s.model);
    return cli_exit(self, ctx, status);
}

const command eval_zeroshot = {
    .name = "eval zeroshot",
    .run = run,
    .check = check,
    .stray = "--data",
    .help = "measure zero-shot accuracy on images with classes",
    .options = rows,
    .sets = sets,
    .uses = USES_PRECISION,
    .usage = "--checkpoint M --data SOURCE... [--prompts P.json --set NAME]",
    .details =
        "Prompt embeddings are normalised, averaged per class and normalised again. Without --prompts class names are "
        "the folder names and the template is \"a photo of a {}.\". Folders match prompt classes by name, or by order "
        "if no name matches and the counts are equal. Images that cannot be read are counted.\n"
        "\n"
        "--classes-map FILE restricts the scores to some of the classes, as for ImageNet-R, -A, -Sketch, -V2 and "
        "ObjectNet. Each line has a FOLDER and its CLASS: a name or number of the prompts, or several separated by |, "
        "any of which is correct. A file with one column lists the folders of all classes in order.\n"
        "\n"
        "If a set has the name of a published data set (GTSRB, CIFAR-10 and others) but other numbers of classes or "
        "images, a warning is printed.\n"
        "\n"
        "JSON: top1, top5, mean_per_class, n, bad, data, metric, classes. With several sources these are means, and "
        "sets has the values of each source.\n"
        "\n"
        "  cloob eval zeroshot --checkpoint M --data world/classes/object --prompts world/prompts.json --set object\n"
        "  cloob eval zeroshot --checkpoint M --data cifar-10-batches-bin --prompts P.json --set CIFAR10 --per-class",
};
