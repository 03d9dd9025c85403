/* What kind a source is, from its name and a look inside. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "data/sets/dataset_web.h"

static bool is_tar_name(const char *path)
{
    const char *base = name_base(path);
    return name_has_suffix(base, "tar;tgz") || strstr(base, ".tar.gz");
}

/* "list.tsv.gz" counts as "list.tsv". */
static bool is_table_name(const char *path)
{
    const char *base = name_base(path);
    return name_has_suffix(base, "csv;tsv") || strstr(base, ".csv.gz") || strstr(base, ".tsv.gz");
}

/* Sets known by the names of their files. */
static const dataset_ops *known_file(const char *name)
{
    static const char *const cifar[] = { "data_batch_1.bin", "test_batch.bin", "train.bin", "test.bin" };
    static const char *const stl10[] = { "train_X.bin", "test_X.bin", "unlabeled_X.bin" };
    for (size_t i = 0; i < sizeof cifar / sizeof *cifar; i++)
        if (strcmp(name, cifar[i]) == 0) return &dataset_cifar;
    if (strncmp(name, "data_batch_", 11) == 0 && name_has_suffix(name, "bin")) return &dataset_cifar;
    for (size_t i = 0; i < sizeof stl10 / sizeof *stl10; i++)
        if (strcmp(name, stl10[i]) == 0) return &dataset_stl10;
    return strstr(name, "-idx3-ubyte") ? &dataset_mnist : NULL;
}

static cloob_status detect_folder(cloob_ctx *ctx, const char *path, const char *split, const dataset_ops **ops)
{
    bool tars = false, dirs = false;
    if (web_is_benchmark(path, split)) return *ops = &dataset_web, CLOOB_OK;
    DIR *d = opendir(path);
    if (!d) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    *ops = NULL;
    for (struct dirent *e; !*ops && (e = readdir(d));) {
        *ops = known_file(e->d_name);
        if (is_tar_name(e->d_name)) tars = true;
        if (e->d_type == DT_DIR && e->d_name[0] != '.') dirs = true;
    }
    closedir(d);
    if (!*ops) *ops = tars && !dirs ? &dataset_web : &dataset_folder;
    return CLOOB_OK;
}

/* A tar with texts and images is a shard; one with a known file is that set; else class folders. */
static cloob_status look_inside(cloob_ctx *ctx, const tar_index *t, const dataset_options *o, const dataset_ops **ops)
{
    web_keys keys = { (char *)(uintptr_t)o->image_key, (char *)(uintptr_t)o->text_key }; /* only read */
    web_shard s = { 0 };
    *ops = NULL;
    for (int64_t i = 0; i < t->count && !*ops; i++) *ops = known_file(name_base(tar_name(t, i)));
    if (*ops) return CLOOB_OK;
    cloob_status status = web_group(ctx, t, &keys, &s);
    *ops = s.with_text > 0 || t->count == 0 ? &dataset_web : &dataset_tarfolder;
    free(s.sample);
    return status;
}

static cloob_status detect_tar(cloob_ctx *ctx, const char *path, const dataset_options *o, const dataset_ops **ops)
{
    fileset *files = NULL;
    tar_index t = { 0 };
    cloob_status status = open_single(ctx, path, o->cache, &files);
    if (status == CLOOB_OK) status = tar_open(ctx, files, 0, &t);
    if (status == CLOOB_OK) status = look_inside(ctx, &t, o, ops);
    tar_release(&t);
    fileset_destroy(files);
    return status;
}

cloob_status dataset_detect(cloob_ctx *ctx, const char *source, const dataset_options *o, const dataset_ops **ops)
{
    *ops = NULL;
    if (strcmp(source, "synthetic") == 0) *ops = &dataset_random;
    else if (strncmp(source, "pipe:", 5) == 0) *ops = &dataset_web;
    else if (file_is_dir(source)) return detect_folder(ctx, source, o->split, ops);
    else if (!file_exists(source) && strchr(source, '{')) *ops = &dataset_web;
    else if (!file_exists(source)) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot open: %s", source, strerror(errno));
    else if (is_table_name(source)) *ops = &dataset_csv;
    else if (is_tar_name(source)) return detect_tar(ctx, source, o, ops);
    else *ops = known_file(name_base(source));
    if (*ops) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                    "%s: unknown kind of data set (csv, tsv, tar, a folder, CIFAR, STL-10, "
                    "MNIST); set it with `type`",
                    source);
}
