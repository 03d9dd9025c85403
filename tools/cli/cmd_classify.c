/* cloob classify: which of the given words fits an image. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/opt.h"
#include "core/text.h"
#include "cli/json_out.h"
#include "cli/shared_opts.h"
#include "io/image/image_list.h"

static struct {
    cli_model model;
    const char *labels, *labels_file, *templates, *sort_into;
    int64_t top;
    bool csv, copy, clear, dry_run;
} o;

static const opt_row rows[] = {
    { "labels", OPT_STRING, &o.labels, NULL, "A,B,C", "labels to choose from, separated by commas", 0 },
    { "labels-file", OPT_STRING, &o.labels_file, NULL, "FILE", "file with one label per line", 0 },
    { "templates", OPT_STRING, &o.templates, NULL, "FILE",
      "prompts with {} for the label, one per line; default: \"a photo of a {}.\"", 0 },
    { "top", OPT_INT, &o.top, "5", "N", "labels to show per image", OPT_POSITIVE },
    { "csv", OPT_FLAG, &o.csv, NULL, NULL, "print a CSV table: image, best label, probability", 0 },
    { "sort-into", OPT_STRING, &o.sort_into, NULL, "DIR", "link each image into DIR/LABEL", 0 },
    { "copy", OPT_FLAG, &o.copy, NULL, NULL, "with --sort-into: copy images instead of linking them", 0 },
    { "clear", OPT_FLAG, &o.clear, NULL, NULL,
      "with --sort-into: first remove the links that earlier runs left in the folders of DIR", 0 },
    { "dry-run", OPT_FLAG, &o.dry_run, NULL, NULL, "with --sort-into: only print what would happen", 0 },
    CLI_MAX_PIXELS_ROW(o.model),
    OPT_END
};
static const opt_set sets[] = {
    { .table = cli_model_table, .into = &o.model, .required = "checkpoint", .shown = CLI_PHOTO_OPTIONS }, OPT_SETS_END
};

/* ---- words --------------------------------------------------------------------------------------- */

typedef struct words {
    char *text; /* what the items point into */
    const char **item;
    int64_t count;
} words;

static void words_release(words *w) { free(w->text), free(w->item); }

static char *trim(char *s)
{
    while (isspace((unsigned char)*s)) s++;
    for (char *end = s + strlen(s); end > s && isspace((unsigned char)end[-1]);) *--end = '\0';
    return s;
}

/* Splits text, which it frees later, at the separator; blanks around words and empty words are dropped. */
static bool split(char *text, char separator, words *w)
{
    size_t count = 1;
    *w = (words){ .text = text };
    if (!text) return false;
    for (const char *c = text; *c; c++) count += *c == separator;
    w->item = malloc(count * sizeof *w->item);
    if (!w->item) return false;
    for (char *at = text; at;) {
        char *next = strchr(at, separator);
        if (next) *next++ = '\0';
        at = trim(at);
        if (*at) w->item[w->count++] = at;
        at = next;
    }
    return true;
}

static int read_words(const command *self, const char *path, words *w)
{
    errno = 0;
    if (!split(cli_read_file(path, NULL), '\n', w))
        return cli_error(self, "%s: cannot open: %s", path, strerror(errno ? errno : ENOMEM));
    return w->count ? -1 : cli_usage(self, "%s: holds no lines", path);
}

/* ---- results ------------------------------------------------------------------------------------- */

typedef struct results {
    const words *labels;
    int *order; /* (labels): of the current image, best first */
    int64_t shown, bad;
    bool sorting_failed;
} results;

static const float *sort_by;
static int by_share(const void *a, const void *b)
{
    float x = sort_by[*(const int *)a], y = sort_by[*(const int *)b];
    return x > y ? -1 : x < y ? 1 : *(const int *)a - *(const int *)b;
}

static void print_bar(double share)
{
    enum { CELLS = 40 };
    int full = (int)(share * CELLS + 0.5);
    const char *mark = progress_utf8() ? "\u2588" : "#", *rest = progress_utf8() ? "\u00b7" : ".";
    for (int i = 0; i < CELLS; i++) fputs(i < full ? mark : rest, stdout);
}

/* The place in the order, from 1, of the label that the image's folder is called like; 0: none is. */
static int rank_of_folder(const char *path, const results *r)
{
    const char *slash = strrchr(path, '/'), *from = slash;
    if (!slash) return 0;
    while (from > path && from[-1] != '/') from--;
    for (int i = 0; i < (int)r->labels->count; i++) {
        const char *label = r->labels->item[r->order[i]];
        if (strlen(label) == (size_t)(slash - from) && strncmp(label, from, strlen(label)) == 0) return i + 1;
    }
    return 0;
}

static void print_json(const char *path, const results *r, const float *p, int shown)
{
    int rank = rank_of_folder(path, r);
    json_out_open(NULL, '{');
    json_out_text("image", path);
    if (rank) json_out_members(J_TEXT("truth", r->labels->item[r->order[rank - 1]]), J_INT("rank", rank));
    json_out_open("top", '[');
    for (int i = 0; i < shown; i++) {
        json_out_object(NULL, J_TEXT("label", r->labels->item[r->order[i]]), J_NUMBER("p", (double)p[r->order[i]], 9));
    }
    json_out_close();
    json_out_close();
}

static void print_text(const char *path, const results *r, const float *p, int shown)
{
    printf("%s%s\n", r->shown ? "\n" : "", path);
    for (int i = 0; i < shown; i++) {
        printf("  %-24s ", r->labels->item[r->order[i]]);
        print_bar((double)p[r->order[i]]);
        printf(" %5.1f %%\n", 100 * (double)p[r->order[i]]);
    }
}

static void print_csv(const char *path, const results *r, const float *p)
{
    if (!r->shown) printf("image,label,p\n");
    csv_write(stdout, path);
    putchar(',');
    csv_write(stdout, r->labels->item[r->order[0]]);
    printf(",%.6f\n", (double)p[r->order[0]]);
}

/* One image: its labels in order, then the requested output. */
static void take_image(const char *path, results *r, const float *p)
{
    int n = (int)r->labels->count, shown = (int)(o.top < n ? o.top : n);
    for (int i = 0; i < n; i++) r->order[i] = i;
    sort_by = p;
    qsort(r->order, (size_t)n, sizeof *r->order, by_share);
    const char *best = r->labels->item[r->order[0]];
    if (common.json) print_json(path, r, p, shown);
    else if (o.csv) print_csv(path, r, p);
    else if (o.sort_into) printf("%s -> %s/%s (%.1f %%)\n", path, o.sort_into, best, 100 * (double)p[r->order[0]]);
    else print_text(path, r, p, shown);
    r->shown++;
    if (o.sort_into && !o.dry_run && !r->sorting_failed) /* stop sorting after the first failure */
        r->sorting_failed = !sort_into(path, o.sort_into, best, o.copy);
}

enum { IMAGES_AT_ONCE = 64 };

/* scratch: (n, D + labels). Removes the rows of images that cannot be read first. */
static cloob_status classify_block(cloob_ctx *ctx, cloob_model *m, const cloob_classifier *c, const char *const *path,
                                   int64_t n, float *scratch, results *r)
{
    bool bad[IMAGES_AT_ONCE];
    const char *good[IMAGES_AT_ONCE];
    int64_t D = cloob_model_width(m, CLOOB_UNIT, CLOOB_IMAGE), left = 0;
    float *p = scratch + n * D;
    cloob_status status = cloob_encode_files(ctx, m, path, n, CLOOB_UNIT, scratch, bad);
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) {
        if (bad[i]) continue;
        memmove(scratch + left * D, scratch + i * D, (size_t)D * sizeof *scratch);
        good[left++] = path[i];
    }
    if (status == CLOOB_OK && left) status = cloob_classify(ctx, c, scratch, left, p);
    for (int64_t i = 0; i < left && status == CLOOB_OK; i++) take_image(good[i], r, p + i * r->labels->count);
    r->bad += n - left;
    return status;
}

static cloob_status classify(cloob_ctx *ctx, cloob_model *m, const words *labels, const words *templates,
                             const image_paths *images, results *r)
{
    cloob_classifier *c = NULL;
    int64_t D = cloob_model_width(m, CLOOB_UNIT, CLOOB_IMAGE), C = labels->count;
    float *scratch = calloc((size_t)(IMAGES_AT_ONCE * (D + C)), sizeof *scratch);
    *r = (results){ .labels = labels, .order = calloc((size_t)C, sizeof *r->order) };
    cloob_status status = scratch && r->order ? CLOOB_OK : CLOOB_ERR_MEMORY;
    if (status == CLOOB_OK)
        status = cloob_classifier_create(ctx, m, labels->item, C, templates->item, templates->count, &c);
    bool listed = status == CLOOB_OK && common.json;
    if (listed) json_out_open(NULL, '[');
    for (int64_t i = 0; i < images->count && status == CLOOB_OK; i += IMAGES_AT_ONCE) {
        int64_t n = images->count - i < IMAGES_AT_ONCE ? images->count - i : IMAGES_AT_ONCE;
        cloob_progress p = { "classify", "images", i, images->count, 1, NULL, NULL };
        progress_show(NULL, &p);
        status = classify_block(ctx, m, c, images->path + i, n, scratch, r);
    }
    progress_end();
    if (listed) json_out_close();
    cloob_classifier_destroy(c);
    free(scratch), free(r->order);
    return status;
}

/* Links of earlier runs, with other labels or results, would be taken for links of this one. */
static void treat_earlier(const words *labels)
{
    int64_t n = sort_earlier(o.sort_into, labels->item, o.clear ? 0 : labels->count, o.clear && !o.dry_run);
    if (!n || common.quiet) return;
    if (o.clear) cli_print("", "%lld earlier links %s", (long long)n, o.dry_run ? "would be removed" : "removed");
    else
        cli_print("", "%s has %lld links in folders of other labels; --clear removes earlier links", o.sort_into,
                  (long long)n);
}

/* Prints how many images were skipped; returns the exit code. */
static int conclude(const command *self, const results *r, int64_t images)
{
    if (r->sorting_failed) return 1;
    if (!images)
        return cli_error(self, "%s: holds no images", opt_words.count == 1 ? opt_words.item[0] : "these folders");
    if (!r->shown) return cli_error(self, "none of the %lld images could be read", (long long)images);
    if (r->bad)
        cli_print("", "%lld of %lld images could not be read and were left out", (long long)r->bad, (long long)images);
    if (o.sort_into && o.dry_run)
        cli_print("", "nothing was written; without --dry-run the images are %s", o.copy ? "copied" : "linked");
    return 0;
}

static int read_labels(const command *self, words *labels, words *templates)
{
    int code = -1;
    if (!o.labels == !o.labels_file) return cli_usage(self, "needs either --labels or --labels-file");
    if (o.labels_file) code = read_words(self, o.labels_file, labels);
    else split(strdup(o.labels), ',', labels);
    if (code < 0 && labels->count < 2)
        code = cli_usage(self, "%s: give two labels or more%s", o.labels ? o.labels : o.labels_file,
                         o.labels ? ", separated by commas" : ", one per line");
    if (code < 0 && o.templates) code = read_words(self, o.templates, templates);
    return code;
}

static int check(const command *self)
{
    if (!opt_words.count) return cli_usage(self, "needs images: files, folders or patterns");
    if ((o.copy || o.clear || o.dry_run) && !o.sort_into)
        return cli_usage(self, "--copy, --clear and --dry-run need --sort-into");
    return -1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    words labels = { 0 }, templates = { 0 };
    cloob_model *m = NULL;
    image_paths images = { 0 };
    results r = { 0 };
    int code = read_labels(self, &labels, &templates);
    o.model.open.photos = true;
    if (code < 0) {
        cloob_status status = image_paths_find(ctx, opt_words.item, opt_words.count, &images);
        if (status == CLOOB_OK) status = cli_model_open(ctx, &o.model, &m);
        if (status == CLOOB_OK && o.sort_into) treat_earlier(&labels);
        if (status == CLOOB_OK) status = classify(ctx, m, &labels, &templates, &images, &r);
        code = status == CLOOB_OK ? conclude(self, &r, images.count) : cli_fail(self, ctx, status);
        cloob_model_close(m);
        image_paths_release(&images);
    }
    words_release(&labels), words_release(&templates);
    return code;
}

const command cmd_classify = {
    .name = "classify",
    .run = run,
    .check = check,
    .help = "label images with your own words, or sort them into folders",
    .options = rows,
    .sets = sets,
    .uses = USES_PRECISION,
    .usage = "--checkpoint M --labels \"a,b,c\"|--labels-file F [OPTIONS] PATH...",
    .details =
        "PATH is an image, a folder (with the folders in it) or a pattern such as 'photos/*.jpg'. Photos are turned\n"
        "upright by their EXIF orientation. Unreadable images are skipped and counted. Probabilities are\n"
        "the softmax over your labels; they sum to 1, so add a label such as \"something else\" if it fits.\n"
        "JSON: [{\"image\": ..., \"top\": [{\"label\": ..., \"p\": ...}]}]. An image in a folder named like a label "
        "also\n"
        "has \"truth\", that label, and \"rank\", its position among all labels.\n"
        "\n"
        "  cloob classify --checkpoint M --labels \"dog,cat,snow\" holiday.jpg\n"
        "  cloob classify --checkpoint M --labels-file labels.txt photos --csv > labels.csv\n"
        "  cloob classify --checkpoint M --labels-file labels.txt photos --sort-into sorted --dry-run",
};
