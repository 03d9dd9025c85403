/* The list of data sets of `cloob benchmark`: the input is the file, next to three data sets. What is found is there
 * and has been named once, and a warning has no control characters, whatever the file holds. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "fuzz.h"
#include "scratch_folder.h"

/* As in tools/cli/opt.c: lines on stderr. */
const command eval_suite = { .name = "eval suite" };

int cli_error(const command *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "cloob %s: ", c->name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return 1;
}

void cli_print(const char *prefix, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs(prefix, stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

static const char *make_sets(void)
{
    static const char *const folder[] = {
        "b", "b/test", "wds_a_test", "wds_a_test/test", "wds_vtab-c_test", "wds_vtab-c_test/test"
    };
    static const char *const file[] = { "b/test/0.tar", "wds_a_test/test/winogavil.csv", "wds_vtab-c_test/test/0.tar" };
    const char *root = scratch_folder();
    char path[128];
    for (size_t i = 0; root && i < sizeof folder / sizeof *folder; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folder[i]);
        if (mkdir(path, 0700) != 0) return NULL;
    }
    for (size_t i = 0; root && i < sizeof file / sizeof *file; i++)
        if (!scratch_write(file[i], "", 0)) return NULL;
    return root;
}

/* stderr goes into `log` until it is given back. Returns what stands for the old one; -1: it cannot be moved. */
static int silence(const char *log)
{
    fflush(stderr);
    int kept = dup(2), to = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (kept >= 0 && to >= 0) dup2(to, 2);
    if (to >= 0) close(to);
    return kept;
}

static void give_back(int kept)
{
    fflush(stderr);
    if (kept < 0) return;
    dup2(kept, 2);
    close(kept);
}

static void check_lines(const char *log)
{
    FILE *f = fopen(log, "rb");
    for (int c; f && (c = getc(f)) != EOF;)
        if ((c < 0x20 && c != '\n') || c == 0x7f) abort();
    if (f) fclose(f);
}

static void check_sets(const suite_sets *s, bool found)
{
    struct stat st;
    if (found != (s->n > 0)) abort();
    for (int64_t i = 0; i < s->n; i++) {
        if (stat(s->folder[i], &st) != 0 || !S_ISDIR(st.st_mode)) abort();
        for (int64_t k = 0; k < i; k++)
            if (strcmp(s->folder[i], s->folder[k]) == 0) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *root;
    static char list[128], log[128];
    if (!root) root = make_sets();
    if (!root || size > 1 << 16 || !scratch_write("list.txt", data, size)) return 0;
    snprintf(list, sizeof list, "%s/list.txt", root);
    snprintf(log, sizeof log, "%s/log.txt", root);
    suite_sets s = { 0 };
    int kept = silence(log);
    bool found = suite_sets_add(&s, list, "test");
    give_back(kept);
    check_lines(log);
    check_sets(&s, found);
    suite_sets_release(&s);
    return 0;
}
