/* cloob classify: which of the given words fits an image. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/shared_opts.h"

static struct {
    cli_model model;
    const char *labels, *labels_file, *templates;
    int64_t top;
} o;

static const opt_row rows[] = {
    CLI_MODEL_ROWS(o.model, OPT_REQUIRED),
    { "labels", OPT_STRING, &o.labels, NULL, "A,B,C", "words to choose from, separated by commas", 0 },
    { "labels-file", OPT_STRING, &o.labels_file, NULL, "FILE", "the same from a file, one per line", 0 },
    { "templates", OPT_STRING, &o.templates, NULL, "FILE",
      "prompts with {} for the label, one per line; without it \"a photo of a {}.\"", 0 },
    { "top", OPT_INT, &o.top, "5", "N", "labels to show per image", OPT_POSITIVE },
    OPT_END
};
static const opt_set sets[] = { { cloob_data_option_table, &o.model.how }, OPT_SETS_END };

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

/* Cuts text, which it takes over, at the separator; blanks around words and empty words are dropped. */
static bool split(char *text, char separator, words *w)
{
    size_t most = 1;
    *w = (words){ .text = text };
    if (!text) return false;
    for (const char *c = text; *c; c++) most += *c == separator;
    w->item = malloc(most * sizeof *w->item);
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

static char *read_text(const char *path)
{
    enum { MOST = 16 << 20 };
    FILE *f = fopen(path, "rb");
    char *text = f ? malloc(MOST + 1) : NULL;
    size_t n = text ? fread(text, 1, MOST, f) : 0;
    if (f) fclose(f);
    if (text) text[n] = '\0';
    return text;
}

static int read_words(const command *self, const char *path, words *w)
{
    if (!split(read_text(path), '\n', w)) return cli_usage(self, "%s: cannot be read", path);
    return w->count ? -1 : cli_usage(self, "%s: holds no lines", path);
}

/* ---- results ------------------------------------------------------------------------------------- */

/* The N best of p (n), best first; order (n) is scratch and result. */
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
    for (int i = 0; i < CELLS; i++) fputs(i < full ? "\u2588" : "\u00b7", stdout);
}

static void print_image(const char *path, const words *labels, const float *p, int *order, bool first)
{
    int n = (int)labels->count, shown = (int)(o.top < n ? o.top : n);
    for (int i = 0; i < n; i++) order[i] = i;
    sort_by = p;
    qsort(order, (size_t)n, sizeof *order, by_share);
    if (common.json) {
        printf("%s{\"image\": ", first ? "" : ", ");
        json_out_string(path);
        printf(", \"top\": [");
    } else printf("%s%s\n", first ? "" : "\n", path);
    for (int i = 0; i < shown; i++) {
        const char *label = labels->item[order[i]];
        double share = (double)p[order[i]];
        if (common.json) {
            printf("%s{\"label\": ", i ? ", " : "");
            json_out_string(label);
            printf(", \"p\": %.9g}", share);
        } else {
            printf("  %-24s ", label);
            print_bar(share);
            printf(" %5.1f %%\n", 100 * share);
        }
    }
    if (common.json) printf("]}");
}

static cloob_status classify(cloob_ctx *ctx, cloob_model *m, const words *labels, const words *templates,
                             const opt_list *images)
{
    cloob_classifier *c = NULL;
    int64_t D = cloob_model_width(m, CLOOB_UNIT, CLOOB_IMAGE), n = images->count, C = labels->count;
    float *image = calloc((size_t)(n * D), sizeof *image), *p = calloc((size_t)(n * C), sizeof *p);
    int *order = calloc((size_t)C, sizeof *order);
    cloob_status status = image && p && order ? CLOOB_OK : CLOOB_ERR_MEMORY;
    if (status == CLOOB_OK)
        status = cloob_classifier_create(ctx, m, labels->item, C, templates->item, templates->count, &c);
    if (status == CLOOB_OK) status = cloob_encode_files(ctx, m, images->item, n, CLOOB_UNIT, image, NULL);
    if (status == CLOOB_OK) status = cloob_classify(ctx, c, image, n, p);
    if (status == CLOOB_OK) {
        if (common.json) printf("[");
        for (int64_t i = 0; i < n; i++) print_image(images->item[i], labels, p + i * C, order, i == 0);
        if (common.json) printf("]\n");
    }
    cloob_classifier_destroy(c);
    free(image), free(p), free(order);
    return status;
}

static int run(const command *self, int argc, char **argv)
{
    opt_list rest;
    words labels = { 0 }, templates = { 0 };
    cloob_model *m = NULL;
    int code = opt_parse(self, argc, argv, &rest);
    if (code >= 0) return code;
    if (!rest.count) return cli_usage(self, "needs images");
    if (!o.labels == !o.labels_file) return cli_usage(self, "needs either --labels or --labels-file");
    if (o.labels_file) code = read_words(self, o.labels_file, &labels);
    else split(strdup(o.labels), ',', &labels);
    if (code < 0 && labels.count < 2)
        code = cli_usage(self, "%s: give two labels or more%s", o.labels ? o.labels : o.labels_file,
                         o.labels ? ", separated by commas" : ", one per line");
    if (code < 0 && o.templates) code = read_words(self, o.templates, &templates);
    if (code < 0) {
        cloob_ctx *ctx = cli_context();
        cloob_status status = cli_model_open(ctx, &o.model, true, &m);
        if (status == CLOOB_OK) status = classify(ctx, m, &labels, &templates, &rest);
        code = status == CLOOB_OK ? 0 : cli_fail(self, ctx, status);
        cloob_model_close(m);
        cloob_ctx_destroy(ctx);
    }
    words_release(&labels), words_release(&templates);
    return code;
}

const command cmd_classify = {
    .name = "classify",
    .run = run,
    .help = "say which of some words fits an image",
    .options = rows,
    .sets = sets,
    .uses = USES_PRECISION,
    .usage = "--checkpoint M --labels \"a,b,c\"|--labels-file F [--templates F] IMAGE...",
    .details =
        "The shares are the softmax of the model's inverse temperature times the cosines between the image and the\n"
        "labels' prompts. JSON: [{\"image\": ..., \"top\": [{\"label\": ..., \"p\": ...}]}].\n"
        "\n"
        "  cloob classify --checkpoint M --labels \"dog,cat,snow\" holiday.jpg",
};
