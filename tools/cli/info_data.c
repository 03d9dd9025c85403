/* cloob info DATASET: describes a data set. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "core/file.h"
#include "core/text.h"
#include "data/sets/dataset.h"
#include "io/image/image_list.h"

/* Matches everything, so it is tried last: the error of opening a data set gives the reason. */
static bool matches(const char *what)
{
    (void)what;
    return true;
}

/* ---- text ---------------------------------------------------------------------------------------------- */

static void print_spread(const char *name, const data_spread *s)
{
    int digits = s->max < 1000 ? 1 : 0;
    printf("  %-16s %.0f to %.0f, median %.*f, mean %.*f\n", name, s->min, s->max, digits, s->median, digits, s->mean);
}

static void print_captions(const data_info *i)
{
    if (!i->captions) return;
    printf("captions  %lld of the examined samples, %lld distinct\n", (long long)i->captions,
           (long long)i->distinct_captions);
    print_spread("words", &i->caption_words);
    print_spread("characters", &i->caption_chars);
}

static void print_classes(const cloob_dataset *d, const data_info *i)
{
    enum { SHOWN = 12 };
    if (!i->classes) return;
    printf("classes   %lld:", (long long)i->classes);
    for (int64_t c = 0; c < i->classes && c < SHOWN; c++) printf("%s %s", c ? "," : "", dataset_class_name(d, c));
    printf("%s\n", i->classes > SHOWN ? ", ..." : "");
    print_spread("samples each", &i->class_size);
}

static void print_text(const char *what, const cloob_dataset *d, const data_info *i)
{
    printf("%s\n", what);
    printf("kind      %s, %lld sample%s", i->kind, (long long)i->samples, i->samples == 1 ? "" : "s");
    if (i->files) printf(" in %lld file%s", (long long)i->files, i->files == 1 ? "" : "s");
    if (i->skipped) printf(" (%lld damaged or incomplete entries left out)", (long long)i->skipped);
    printf("\nimages    %lld examined, %lld bad\n", (long long)i->examined, (long long)i->bad);
    for (int k = 0; k < INFO_REASONS && i->reason[k][0]; k++) printf("  bad: %s\n", i->reason[k]);
    if (i->bad == i->examined) return;
    print_spread("width", &i->width);
    print_spread("height", &i->height);
    print_spread("bytes", &i->image_bytes);
    print_captions(i);
    print_classes(d, i);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static void put_spread(const char *name, const data_spread *s)
{
    json_out_object(name, J_NUMBER("min", s->min, 10), J_NUMBER("median", s->median, 10), J_NUMBER("mean", s->mean, 10),
                    J_NUMBER("max", s->max, 10));
}

static void print_json(const char *what, const cloob_dataset *d, const data_info *i)
{
    json_out_open(NULL, '{');
    json_out_members(J_TEXT("source", what), J_OF(i, kind), J_OF(i, samples), J_OF(i, files),
                     J_INT("left_out", i->skipped), J_OF(i, examined), J_OF(i, bad));
    json_out_open("reasons", '[');
    for (int k = 0; k < INFO_REASONS && i->reason[k][0]; k++) json_out_text(NULL, i->reason[k]);
    json_out_close();
    put_spread("width", &i->width);
    put_spread("height", &i->height);
    put_spread("image_bytes", &i->image_bytes);
    json_out_members(J_OF(i, captions), J_OF(i, distinct_captions));
    put_spread("caption_words", &i->caption_words);
    put_spread("caption_chars", &i->caption_chars);
    json_out_open("classes", '[');
    for (int64_t c = 0; c < i->classes; c++) json_out_text(NULL, dataset_class_name(d, c));
    json_out_close();
    put_spread("class_size", &i->class_size);
    json_out_close();
}

/* ---- a folder that cannot be described -------------------------------------------------------------------- */

static bool is_foreign(cloob_ctx *ctx, const char *what)
{
    char why[4096];
    image_list images = { 0 };
    if (!file_is_dir(what)) return false;
    snprintf(why, sizeof why, "%s", cloob_error(ctx));
    bool foreign = image_list_find(ctx, &images, &what, 1) == CLOOB_OK && images.count == 0;
    image_list_release(&images);
    if (!foreign) ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s", why); /* restore the data set's error */
    return foreign;
}

/* Finds a file or run inside the folder that can be described. */
static bool find_inside(const char *folder, char *path, size_t size)
{
    static const char *const ends[] = { ".safetensors", ".pt", ".csv", ".tsv", ".tar" };
    bool found = false;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, size, "%s/%s/params.txt", folder, e->d_name);
        found = file_exists(path);
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) found |= text_ends_with(e->d_name, ends[i]);
        snprintf(path, size, "%s/%s", folder, e->d_name);
    }
    if (d) closedir(d);
    return found;
}

static int refuse_foreign(const command *self, const char *folder)
{
    char inside[4096];
    bool found = find_inside(folder, inside, sizeof inside);
    return cli_error(self,
                     "%s: neither a model (model.safetensors, open_clip_model.safetensors), nor a run (checkpoints), "
                     "nor images%s%s%s",
                     folder, found ? "; did you mean " : "", found ? inside : "", found ? "?" : "");
}

static int describe(const command *self, cloob_ctx *ctx, const char *what, const info_options *o)
{
    cloob_data_options d = o->data;
    cloob_dataset *set = NULL;
    data_info *info = must(malloc(sizeof *info));
    cloob_status status = cloob_dataset_open(ctx, what, cli_data_ready(&d), &set);
    if (status == CLOOB_OK) status = dataset_info(ctx, set, o->examine, info);
    if (status == CLOOB_OK) (common.json ? print_json : print_text)(what, set, info);
    cloob_dataset_close(set);
    free(info);
    return status != CLOOB_OK && is_foreign(ctx, what) ? refuse_foreign(self, what) : cli_exit(self, ctx, status);
}

const info_kind info_data = { matches, describe };
