/* cloob classify: chooses the best label for each image. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/file.h"
#include "core/text.h"
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
    char *text; /* memory of the items */
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

/* Splits text at the separator, and takes ownership of it; drops empty words and surrounding spaces. */
static void split(char *text, const char *separator, words *w)
{
    *w = (words){ .text = text, .item = must(malloc((strlen(text) + 1) * sizeof *w->item)) };
    for (char *word; (word = strsep(&text, separator));)
        if (*(word = trim(word))) w->item[w->count++] = word;
}

static int read_words(const command *self, cloob_ctx *ctx, const char *path, words *w)
{
    char *text;
    cloob_status status = cli_read_file(ctx, path, &text, NULL);
    if (status != CLOOB_OK) return cli_fail(self, ctx, status);
    split(text, "\n", w);
    return w->count ? -1 : cli_usage(self, "%s: holds no lines", path);
}

/* ---- links to images, or copies of them, in folders named after labels ------------------------------ */

enum { MAX_NAMES = 10000 };

static bool report_error(const char *path)
{
    cli_error(&cmd_classify, "%s: %s", path, strerror(errno));
    return false;
}

static bool make_folder(const char *path) { return mkdir(path, 0777) == 0 || errno == EEXIST; }

/* NAME.jpg, then NAME-2.jpg, NAME-3.jpg, ... */
static void numbered(char out[PATH_MAX], const char *folder, const char *name, int number)
{
    const char *dot = strrchr(name, '.');
    int stem = dot && dot != name ? (int)(dot - name) : (int)strlen(name);
    if (number == 1) snprintf(out, PATH_MAX, "%s/%s", folder, name);
    else snprintf(out, PATH_MAX, "%s/%.*s-%d%s", folder, stem, name, number, name + stem);
}

/* Copies atomically. Returns 1: done; 0: another file has the name; -1: failed. */
static int copy_to(cloob_ctx *ctx, const char *source, const char *target)
{
    struct stat st;
    file_map from;
    if (lstat(target, &st) == 0) return 0;
    if (file_map_open(ctx, source, &from) != CLOOB_OK) return -1;
    cloob_status status = file_write(ctx, target, from.data, from.size);
    file_map_close(&from);
    return status == CLOOB_OK ? 1 : -1;
}

static int link_to(const char *source, const char *target)
{
    char there[PATH_MAX];
    if (symlink(source, target) == 0) return 1;
    if (errno != EEXIST) return -1;
    ssize_t n = readlink(target, there, sizeof there - 1);
    if (n < 0) return 0;
    there[n] = '\0';
    return strcmp(there, source) == 0;
}

/* Folder name for a label: not hidden, not "." or "..". */
static const char *folder_name(const char *label, char out[256])
{
    const char *shown = label + strspn(label, ".");
    snprintf(out, 256, "%s", *shown ? shown : "-");
    for (char *c = out; *c; c++)
        if (*c == '/') *c = '-';
    return out;
}

/* Links (or copies) the file into DIR/LABEL, which is created if necessary. Slashes in a label become dashes. If
 * another file has the name, a number is appended; an identical link is kept. Returns false after reporting an
 * error. */
static bool sort_into(cloob_ctx *ctx, const char *path, const char *dir, const char *label, bool copy)
{
    char folder[PATH_MAX], source[PATH_MAX], target[PATH_MAX], clean[256];
    snprintf(folder, sizeof folder, "%s/%s", dir, folder_name(label, clean));
    if (!realpath(path, source)) return report_error(path);
    if (!make_folder(dir) || !make_folder(folder)) return report_error(folder);
    const char *slash = strrchr(path, '/');
    for (int i = 1; i <= MAX_NAMES; i++) {
        numbered(target, folder, slash ? slash + 1 : path, i);
        int made = copy ? copy_to(ctx, source, target) : link_to(source, target);
        if (made > 0) return true;
        if (made < 0 && copy) return cli_error(&cmd_classify, "%s", cloob_error(ctx)), false;
        if (made < 0) return report_error(target);
    }
    errno = EEXIST;
    return report_error(target);
}

/* ---- links of earlier runs -------------------------------------------------------------------- */

/* Counts the links in a folder; with `clear`, removes them, and the folder if it is then empty. */
static int64_t count_links(const char *folder, bool clear)
{
    char path[PATH_MAX];
    struct stat st;
    int64_t n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
        n += link && (!clear || unlink(path) == 0);
    }
    if (d) closedir(d);
    if (clear) rmdir(folder); /* fails if the folder is not empty */
    return n;
}

static bool is_label(const char *name, const char *const *label, int64_t labels)
{
    char clean[256];
    for (int64_t i = 0; i < labels; i++)
        if (strcmp(folder_name(label[i], clean), name) == 0) return true;
    return false;
}

/* Counts the links in DIR's folders that are not named after one of the labels; with `clear`, removes them, and folders
 * that become empty. Other files are kept. Without labels: all folders. */
static int64_t sort_earlier(const char *dir, const char *const *label, int64_t labels, bool clear)
{
    char folder[PATH_MAX];
    int64_t n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(folder, sizeof folder, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.' && file_is_dir(folder) && !is_label(e->d_name, label, labels))
            n += count_links(folder, clear);
    }
    if (d) closedir(d);
    return n;
}

/* ---- results ------------------------------------------------------------------------------------- */

typedef struct results {
    const words *labels;
    int *order; /* (labels): order of the labels for the current image, best first */
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

/* Rank, from 1, of the label that names the image's folder; 0: none does. */
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
    for (int i = 0; i < shown; i++)
        json_out_object(NULL, J_TEXT("label", r->labels->item[r->order[i]]), J_NUMBER("p", (double)p[r->order[i]], 9));
    json_out_close();
    json_out_close();
    json_out_flush();
}

static void print_text(const char *path, const results *r, const float *p, int shown)
{
    printf("%s%s\n", r->shown ? "\n" : "", progress_name(path));
    for (int i = 0; i < shown; i++) {
        printf("  %-24s ", r->labels->item[r->order[i]]);
        print_bar((double)p[r->order[i]]);
        printf(" %5.1f %%\n", 100 * (double)p[r->order[i]]);
    }
}

static void print_csv(const char *path, const results *r, const float *p)
{
    sbuf line = { 0 };
    csv_put(&line, path);
    sbuf_putc(&line, ',');
    csv_put(&line, r->labels->item[r->order[0]]);
    printf("%s%s,%.6f\n", r->shown ? "" : "image,label,p\n", (char *)must(line.data), (double)p[r->order[0]]);
    sbuf_release(&line);
}

/* Ranks the labels for one image and writes the requested output. */
static void take_image(cloob_ctx *ctx, const char *path, results *r, const float *p)
{
    int n = (int)r->labels->count, shown = (int)(o.top < n ? o.top : n);
    for (int i = 0; i < n; i++) r->order[i] = i;
    sort_by = p;
    qsort(r->order, (size_t)n, sizeof *r->order, by_share);
    const char *best = r->labels->item[r->order[0]];
    if (common.json) print_json(path, r, p, shown);
    else if (o.csv) print_csv(path, r, p);
    else if (o.sort_into)
        printf("%s -> %s/%s (%.1f %%)\n", progress_name(path), o.sort_into, best, 100 * (double)p[r->order[0]]);
    else print_text(path, r, p, shown);
    r->shown++;
    if (o.sort_into && !o.dry_run && !r->sorting_failed) /* stop sorting after the first failure */
        r->sorting_failed = !sort_into(ctx, path, o.sort_into, best, o.copy);
}

enum { IMAGES_AT_ONCE = 64 };

/* Embeds and classifies a block of images; unreadable images are skipped. scratch: (n, D + labels). */
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
    progress_end(); /* stdout may be the same terminal */
    for (int64_t i = 0; i < left && status == CLOOB_OK; i++) take_image(ctx, good[i], r, p + i * r->labels->count);
    r->bad += n - left;
    return status;
}

static cloob_status classify(cloob_ctx *ctx, cloob_model *m, const words *labels, const words *templates,
                             const image_list *images, results *r)
{
    cloob_classifier *c = NULL;
    int64_t D = cloob_model_width(m, CLOOB_UNIT, CLOOB_IMAGE), C = labels->count;
    float *scratch = must(calloc((size_t)(IMAGES_AT_ONCE * (D + C)), sizeof *scratch));
    *r = (results){ .labels = labels, .order = must(calloc((size_t)C, sizeof *r->order)) };
    cloob_status status = cloob_classifier_create(ctx, m, labels->item, C, templates->item, templates->count, &c);
    bool listed = status == CLOOB_OK && common.json;
    if (listed) json_out_open(NULL, '[');
    for (int64_t i = 0; i < images->count && status == CLOOB_OK; i += IMAGES_AT_ONCE) {
        int64_t n = images->count - i < IMAGES_AT_ONCE ? images->count - i : IMAGES_AT_ONCE;
        cloob_progress p = { "classify", "images", i, images->count, 1, NULL, NULL };
        progress_show(NULL, &p);
        const char *path[IMAGES_AT_ONCE];
        for (int64_t k = 0; k < n; k++) path[k] = images->item[i + k].path;
        status = classify_block(ctx, m, c, path, n, scratch, r);
    }
    progress_end();
    if (listed) json_out_close();
    cloob_classifier_destroy(c);
    free(scratch), free(r->order);
    return status;
}

/* Links of earlier runs, with other labels or results, could be mistaken for results of this run. */
static void handle_earlier_links(const words *labels)
{
    int64_t n = sort_earlier(o.sort_into, labels->item, o.clear ? 0 : labels->count, o.clear && !o.dry_run);
    if (!n || common.quiet) return;
    if (o.clear) cli_print("", "%lld earlier links %s", (long long)n, o.dry_run ? "would be removed" : "removed");
    else
        cli_print("", "%s has %lld links in folders of other labels; --clear removes earlier links", o.sort_into,
                  (long long)n);
}

/* Prints how many images were skipped; returns the exit code. */
static int report_skipped(const command *self, const results *r, int64_t images)
{
    if (r->sorting_failed) return 1;
    if (!images)
        return cli_error(self, "%s: holds no images", opt_words.count == 1 ? opt_words.item[0] : "these folders");
    if (!r->shown) return cli_error(self, "none of the %lld images could be read", (long long)images);
    if (r->bad)
        cli_print("", "skipped %lld of %lld images that could not be read", (long long)r->bad, (long long)images);
    if (o.sort_into && o.dry_run)
        cli_print("", "nothing was written; without --dry-run the images are %s", o.copy ? "copied" : "linked");
    return 0;
}

static int read_labels(const command *self, cloob_ctx *ctx, words *labels, words *templates)
{
    int code = -1;
    if (!o.labels == !o.labels_file) return cli_usage(self, "needs either --labels or --labels-file");
    if (o.labels_file) code = read_words(self, ctx, o.labels_file, labels);
    else split(must(strdup(o.labels)), ",", labels);
    if (code < 0 && labels->count < 2)
        code = cli_usage(self, "%s: give at least two labels%s", o.labels ? o.labels : o.labels_file,
                         o.labels ? ", separated by commas" : ", one per line");
    if (code < 0 && o.templates) code = read_words(self, ctx, o.templates, templates);
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
    image_list images = { 0 };
    results r = { 0 };
    int code = read_labels(self, ctx, &labels, &templates);
    o.model.open.photos = true;
    if (code < 0) {
        cloob_status status = image_list_find(ctx, &images, opt_words.item, opt_words.count);
        if (status == CLOOB_OK) status = cli_model_open(ctx, &o.model, &m);
        if (status == CLOOB_OK && o.sort_into) handle_earlier_links(&labels);
        if (status == CLOOB_OK) status = classify(ctx, m, &labels, &templates, &images, &r);
        code = status == CLOOB_OK ? report_skipped(self, &r, images.count) : cli_fail(self, ctx, status);
        cloob_model_close(m);
        image_list_release(&images);
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
        "PATH is an image, a folder (including its subfolders) or a pattern such as 'photos/*.jpg'. Photos are turned "
        "upright by their EXIF orientation. Unreadable images are skipped and counted. Probabilities are the softmax "
        "over your labels; they sum to 1, so add a label such as \"something else\" if none may apply.\n"
        "\n"
        "JSON: [{\"image\": ..., \"top\": [{\"label\": ..., \"p\": ...}]}]. An image in a folder named like a label "
        "also has \"truth\", that label, and \"rank\", its position among all labels.\n"
        "\n"
        "  cloob classify --checkpoint M --labels \"dog,cat,snow\" holiday.jpg\n"
        "  cloob classify --checkpoint M --labels-file labels.txt photos --csv > labels.csv\n"
        "  cloob classify --checkpoint M --labels-file labels.txt photos --sort-into sorted --dry-run",
};
