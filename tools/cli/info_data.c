/* cloob info DATASET. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "core/file.h"
#include "core/text.h"
#include "data/sets/dataset.h"
#include "io/image/image_list.h"

/* Tried last: anything else is opened as a data set, whose error gives the reason. */
static bool matches(const char *what)
{
    (void)what;
    return true;
}

static const cloob_dataset *shown_set;
static const data_info *shown;

static void put_spread(const char *name, const data_spread *s)
{
    int digits = s->max < 1000 ? 1 : 0;
    if (common.json)
        json_out_object(name, J_NUMBER("min", s->min, 10), J_NUMBER("median", s->median, 10),
                        J_NUMBER("mean", s->mean, 10), J_NUMBER("max", s->max, 10));
    else if (s->max > 0)
        printf("%-14s  %.0f to %.0f, median %.*f, mean %.*f\n", name, s->min, s->max, digits, s->median, digits,
               s->mean);
}

static void put_details(void)
{
    enum { SHOWN = 12 };
    const data_info *i = shown;
    if (common.json) json_out_open("reasons", '[');
    for (int k = 0; k < INFO_REASONS && i->reason[k][0]; k++)
        if (common.json) json_out_text(NULL, i->reason[k]);
        else printf("bad: %s\n", i->reason[k]);
    if (common.json) json_out_close(), json_out_open("classes", '[');
    for (int64_t c = 0; c < i->classes && common.json; c++) json_out_text(NULL, dataset_class_name(shown_set, c));
    if (common.json) json_out_close();
    else if (i->classes) {
        printf("%lld classes:", (long long)i->classes);
        for (int64_t c = 0; c < i->classes && c < SHOWN; c++)
            printf("%s %s", c ? "," : "", dataset_class_name(shown_set, c));
        printf("%s\n", i->classes > SHOWN ? ", ..." : "");
    }
    put_spread("width", &i->width);
    put_spread("height", &i->height);
    put_spread("image_bytes", &i->image_bytes);
    put_spread("caption_words", &i->caption_words);
    put_spread("caption_chars", &i->caption_chars);
    put_spread("class_size", &i->class_size);
}

/* ---- a folder with nothing to describe -------------------------------------------------------------------- */

static bool is_foreign(cloob_ctx *ctx, const char *what)
{
    char why[4096];
    image_list images = { 0 };
    if (!file_is_dir(what)) return false;
    snprintf(why, sizeof why, "%s", cloob_error(ctx));
    bool foreign = image_list_find(ctx, &images, &what, 1) == CLOOB_OK && images.count == 0;
    image_list_release(&images);
    if (!foreign) ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s", why); /* the data set's reason */
    return foreign;
}

/* A file or a run inside the folder that can be described. */
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
    if (status == CLOOB_OK) {
        const json_member members[] = { J_TEXT("source", what), J_OF(info, kind),     J_OF(info, samples),
                                        J_OF(info, files),      J_OF(info, examined), J_INT("left_out", info->skipped),
                                        J_OF(info, bad),        J_OF(info, captions), J_OF(info, distinct_captions) };
        shown = info, shown_set = set;
        cli_show(members, sizeof members / sizeof *members, put_details);
    }
    cloob_dataset_close(set);
    free(info);
    return status != CLOOB_OK && is_foreign(ctx, what) ? refuse_foreign(self, what) : cli_exit(self, ctx, status);
}

const info_kind info_data = { matches, describe };
