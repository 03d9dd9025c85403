/* One model on one data set (lab/suite/benchmark.h). */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lab/suite/suite.h"
#include "core/file.h"
#include "lab/memory.h"
#include "data/sets/dataset_web.h"

/* ---- DataComp's sets --------------------------------------------------------------------------------- */

#define RECALL "mean_per_class_recall"

static const datacomp_set sets[] = {
    { "vtab/caltech101", "Caltech-101", RECALL, DATACOMP_PLAIN, DATACOMP_VTAB },
    { "cifar10", "CIFAR-10", "acc1", DATACOMP_PLAIN, 0 },
    { "vtab/cifar100", "CIFAR-100", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "vtab/clevr_count_all", "CLEVR Counts", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "vtab/clevr_closest_object_distance", "CLEVR Distance", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "country211", "Country211", "acc1", DATACOMP_PLAIN, 0 },
    { "vtab/dtd", "Describable Textures", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "vtab/eurosat", "EuroSAT", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "fgvc_aircraft", "FGVC Aircraft", RECALL, DATACOMP_PLAIN, 0 },
    { "food101", "Food-101", "acc1", DATACOMP_PLAIN, 0 },
    { "gtsrb", "GTSRB", "acc1", DATACOMP_PLAIN, 0 },
    { "imagenet1k", "ImageNet 1k", "acc1", DATACOMP_PLAIN, 0 },
    { "imagenet_sketch", "ImageNet Sketch", "acc1", DATACOMP_PLAIN, DATACOMP_SHIFT },
    { "imagenetv2", "ImageNet v2", "acc1", DATACOMP_PLAIN, DATACOMP_SHIFT },
    { "imagenet-a", "ImageNet-A", "acc1", DATACOMP_PLAIN, DATACOMP_SHIFT },
    { "imagenet-o", "ImageNet-O", "acc1", DATACOMP_PLAIN, DATACOMP_SHIFT },
    { "imagenet-r", "ImageNet-R", "acc1", DATACOMP_PLAIN, DATACOMP_SHIFT },
    { "vtab/kitti_closest_vehicle_distance", "KITTI Vehicle Distance", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "mnist", "MNIST", "acc1", DATACOMP_PLAIN, 0 },
    { "objectnet", "ObjectNet", "acc1", DATACOMP_PLAIN, DATACOMP_SHIFT },
    { "vtab/flowers", "Oxford Flowers-102", RECALL, DATACOMP_PLAIN, DATACOMP_VTAB },
    { "vtab/pets", "Oxford-IIIT Pet", RECALL, DATACOMP_PLAIN, DATACOMP_VTAB },
    { "voc2007", "Pascal VOC 2007", "acc1", DATACOMP_PLAIN, 0 },
    { "vtab/pcam", "PatchCamelyon", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "renderedsst2", "Rendered SST2", "acc1", DATACOMP_PLAIN, 0 },
    { "vtab/resisc45", "RESISC45", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "cars", "Stanford Cars", "acc1", DATACOMP_PLAIN, 0 },
    { "stl10", "STL-10", "acc1", DATACOMP_PLAIN, 0 },
    { "sun397", "SUN397", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "vtab/svhn", "SVHN", "acc1", DATACOMP_PLAIN, DATACOMP_VTAB },
    { "retrieval/flickr_1k_test_image_text_retrieval", "Flickr", "mean_recall@1", DATACOMP_PLAIN, DATACOMP_RETRIEVAL },
    { "retrieval/mscoco_2014_5k_test_image_text_retrieval", "MSCOCO", "mean_recall@1", DATACOMP_PLAIN,
      DATACOMP_RETRIEVAL },
    { "misc/winogavil", "WinoGAViL", "jaccard_score_10-12", DATACOMP_WINOGAVIL, DATACOMP_RETRIEVAL },
    { "wilds/iwildcam", "iWildCam", "F1-macro_all", DATACOMP_IWILDCAM, 0 },
    { "wilds/camelyon17", "Camelyon17", "acc1", DATACOMP_CAMELYON17, 0 },
    { "wilds/fmow", "FMoW", "acc_worst_region", DATACOMP_FMOW, 0 },
    { "fairness/dollar_street", "Dollar Street", "acc_top5_wg", DATACOMP_DOLLAR_STREET, 0 },
    { "fairness/geode", "GeoDE", "acc_wg", DATACOMP_GEODE, 0 },
};

/* Other names that the same data is published under. */
static const char *const also[][2] = {
    { "flickr30k", "retrieval/flickr_1k_test_image_text_retrieval" },
    { "mscoco_captions", "retrieval/mscoco_2014_5k_test_image_text_retrieval" },
    { "imagenet_a", "imagenet-a" },
    { "imagenet_o", "imagenet-o" },
    { "imagenet_r", "imagenet-r" },
};

const datacomp_set *datacomp_at(int i) { return i >= 0 && i < (int)(sizeof sets / sizeof *sets) ? &sets[i] : NULL; }

/* "vtab/cifar100" as a folder spells it, "vtab-cifar100", or its last part alone. */
static bool spells(const char *name, size_t n, const char *key)
{
    const char *last = file_base(key);
    if (strlen(last) == n && memcmp(name, last, n) == 0) return true;
    if (strlen(key) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (name[i] != (key[i] == '/' ? '-' : key[i])) return false;
    return true;
}

/* Finds a set by the name of a folder: "wds_vtab-cifar100_test", "vtab-cifar100", "cifar100". NULL: unknown. */
static const datacomp_set *datacomp_find(const char *name)
{
    size_t n;
    if (strncmp(name, "wds_", 4) == 0) name += 4;
    n = strlen(name);
    if (n > 5 && strcmp(name + n - 5, "_test") == 0) n -= 5;
    for (size_t i = 0; i < sizeof also / sizeof *also; i++)
        if (strlen(also[i][0]) == n && memcmp(name, also[i][0], n) == 0) name = also[i][1], n = strlen(name);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (spells(name, n, sets[i].key) || (strlen(sets[i].key) == n && memcmp(name, sets[i].key, n) == 0))
            return &sets[i];
    return NULL;
}

/* ---- options and results --------------------------------------------------------------------------- */

void benchmark_options_init(benchmark_options *o)
{
    if (o) *o = (benchmark_options){ .split = "test", .train_split = "train", .shots = -1, .workers = 2 };
}

void benchmark_release(benchmark_result *r)
{
    if (!r) return;
    free(r->dataset), free(r->model), free(r->pretrained), free(r->task), free(r->language), free(r->stamp);
    for (int64_t i = 0; i < r->scores; i++) free(r->score[i].name);
    free(r->score);
    *r = (benchmark_result){ 0 };
}

double benchmark_metric(const benchmark_result *r, const char *name)
{
    for (int64_t i = 0; r && name && i < r->scores; i++)
        if (strcmp(r->score[i].name, name) == 0) return r->score[i].value;
    return NAN;
}

/* ---- scores -------------------------------------------------------------------------------------- */

void result_score(benchmark_result *r, const char *name, double value)
{
    r->score = must(realloc(r->score, (size_t)(r->scores + 1) * sizeof *r->score));
    r->score[r->scores++] = (benchmark_score){ must(strdup(name)), value };
}

void bench_score(bench *b, const char *name, double value)
{
    for (int64_t i = 0; i < b->out->scores; i++) /* groups of two metrics share their counts */
        if (strcmp(b->out->score[i].name, name) == 0) return;
    result_score(b->out, name, value);
}

void bench_score_of(bench *b, double value, const char *format, ...)
{
    char name[256];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    bench_score(b, name, value);
}

/* ---- names --------------------------------------------------------------------------------------- */

static char *base_name(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t begin = n;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    return strndup(path + begin, n - begin);
}

/* Size and time of the weights: results of an earlier version of the file are not reused. */
static char *stamp_of(const char *path)
{
    struct stat st;
    char text[64] = "";
    if (path && stat(path, &st) == 0 && S_ISREG(st.st_mode))
        snprintf(text, sizeof text, "%lld-%lld", (long long)st.st_size, (long long)st.st_mtime);
    return strdup(text);
}

static void name_metric(benchmark_result *r, const datacomp_set *set)
{
    static const char *const by_task[][2] = { { "zeroshot_retrieval", "image_retrieval_recall@5" },
                                              { "image_association", "avg_jaccard_score" },
                                              { "linear_probe", "lp_acc1" },
                                              { "zeroshot_classification", "acc1" } };
    for (size_t i = 0; i < sizeof by_task / sizeof *by_task; i++)
        if (strcmp(r->task, by_task[i][0]) == 0) r->main_metric = by_task[i][1];
    for (int64_t i = 0; i < r->scores; i++)
        if (strcmp(r->score[i].name, "mean_average_precision") == 0) r->main_metric = r->score[i].name;
    if (!set || strcmp(r->task, "linear_probe") == 0) return;
    r->key = set->key, r->title = set->title;
    if (!r->main_metric || strcmp(r->main_metric, "mean_average_precision") != 0) r->main_metric = set->main_metric;
}

void result_know(benchmark_result *r) { name_metric(r, datacomp_find(r->dataset)); }

static cloob_status check_folder(cloob_ctx *ctx, const char *folder, const char *split)
{
    if (!file_is_dir(folder)) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: no such folder", folder);
    if (web_is_benchmark(folder, split) || winogavil_is(folder, split)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                    "%s: has no %s/0.tar; a data set in CLIP_benchmark's layout is SPLIT/0.tar, SPLIT/1.tar, ... with "
                    "classnames.txt next to them",
                    folder, split);
}

cloob_status benchmark_name(cloob_ctx *ctx, const cloob_model *m, const char *folder, const benchmark_options *given,
                            benchmark_result *out)
{
    benchmark_options o;
    cloob_model_facts facts;
    benchmark_options_init(&o);
    if (given) o = *given;
    *out = (benchmark_result){ .shots = o.task == BENCHMARK_LINEAR_PROBE ? o.shots : -1 };
    web_kind kind;
    CLOOB_TRY(check_folder(ctx, folder, o.split));
    bool riddles = winogavil_is(folder, o.split);
    if (riddles && o.task == BENCHMARK_LINEAR_PROBE)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: WinoGAViL has no classes for a linear probe", folder);
    if (!riddles) CLOOB_TRY(web_benchmark_kind(ctx, folder, &kind));
    cloob_model_get_facts(m, &facts);
    out->dataset = must(base_name(folder));
    out->model = must(strdup(facts.name[0] ? facts.name : "model"));
    out->pretrained = must(strdup(m->path ? m->path : ""));
    out->stamp = must(stamp_of(m->path));
    out->language = must(strdup("en"));
    out->task = must(strdup(o.task == BENCHMARK_LINEAR_PROBE ? "linear_probe"
                            : riddles                        ? "image_association"
                            : kind != WEB_CAPTIONS           ? "zeroshot_classification"
                                                             : "zeroshot_retrieval"));
    result_know(out);
    return CLOOB_OK;
}

/* ---- running ------------------------------------------------------------------------------------- */

static cloob_status run_task(cloob_ctx *ctx, bench *b)
{
    if (b->o.task == BENCHMARK_LINEAR_PROBE) return task_probe(ctx, b);
    if (winogavil_is(b->folder, b->o.split)) return task_winogavil(ctx, b);
    if (b->set && b->set->protocol == DATACOMP_WINOGAVIL)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: WinoGAViL is read from %s/winogavil.csv and images/, not from shards", b->folder,
                        b->o.split);
    return strcmp(b->out->task, "zeroshot_retrieval") == 0 ? task_retrieval(ctx, b) : task_classes(ctx, b);
}

cloob_status benchmark_run(cloob_ctx *ctx, cloob_model *m, const char *folder, const benchmark_options *given,
                           benchmark_result *out)
{
    bench b = { .m = m, .folder = folder, .out = out };
    benchmark_options_init(&b.o);
    if (given) b.o = *given;
    CLOOB_TRY(benchmark_name(ctx, m, folder, &b.o, out));
    b.set = datacomp_find(out->dataset);
    cloob_status status = run_task(ctx, &b);
    if (status == CLOOB_OK) result_know(out);
    else benchmark_release(out);
    return status;
}
