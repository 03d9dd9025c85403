/* The data sets given by `cloob eval suite --datasets`. */
#include "cli/cli.h"
#include "core/arena.h"
#include "core/arith.h"
#include "core/file.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a folder is a data set: it has a shard, or WinoGAViL's table. */
static bool is_set(const char *folder, const char *split)
{
    static const char *const file[] = { "0.tar", "winogavil.csv" };
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        int n = snprintf(path, sizeof path, "%s/%s/%s", folder, split, file[i]);
        if (n > 0 && n < (int)sizeof path && access(path, F_OK) == 0) return true;
    }
    return false;
}

/* Adds a folder; true also if it is already in the list. */
static bool add(suite_sets *s, const char *folder)
{
    for (int64_t i = 0; i < s->n; i++)
        if (strcmp(s->folder[i], folder) == 0) return true;
    s->folder = must(realloc(s->folder, (size_t)(s->n + 1) * sizeof *s->folder));
    s->folder[s->n++] = must(strdup(folder));
    return true;
}

/* Adds the data sets directly in a folder, sorted by name. */
static bool add_inside(suite_sets *s, const char *folder, const char *split)
{
    char path[PATH_MAX];
    int64_t first = s->n;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.' && n < (int)sizeof path && is_set(path, split)) add(s, path);
    }
    if (d) closedir(d);
    if (s->n > first) qsort(s->folder + first, (size_t)(s->n - first), sizeof *s->folder, order_text);
    return s->n > first;
}

/* Adds the data set of a line: a folder, relative to the current folder or to the list's, or a name as in
 * CLIP_benchmark's lists: "wds/vtab/dtd" is the folder wds_vtab-dtd_test next to the list. */
static bool add_line(suite_sets *s, const char *list, const char *line, const char *split)
{
    const char *slash = strrchr(list, '/'), *bare = strncmp(line, "wds/", 4) == 0 ? line + 4 : line;
    char path[PATH_MAX], name[NAME_MAX + 1];
    int dir = slash ? (int)(slash - list) + 1 : 0;
    if (is_set(line, split)) return add(s, line);
    int n = snprintf(path, sizeof path, "%.*s%s", dir, list, line);
    if (n < (int)sizeof path && is_set(path, split)) return add(s, path);
    snprintf(name, sizeof name, "%s", bare);
    for (char *c = name; *c; c++)
        if (*c == '/') *c = '-';
    n = snprintf(path, sizeof path, "%.*swds_%s_test", dir, list, name);
    return n < (int)sizeof path && is_set(path, split) && add(s, path);
}

/* Whether this is a regular file of limited size; devices and pipes may be endless and are not read. */
static bool is_list(const char *path)
{
    enum { LIMIT = 1 << 20 };
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= LIMIT;
}

static bool add_list(suite_sets *s, const char *list, const char *split)
{
    enum { PRINTED = 5 }; /* number of missing data sets that are printed */
    char line[PATH_MAX];
    int64_t first = s->n, missing = s->missing;
    FILE *f = is_list(list) ? fopen(list, "r") : NULL;
    if (!f) return cli_error(&eval_suite, "%s: neither a folder nor a list of folders", list), false;
    for (bool begun = false; fgets(line, sizeof line, f); begun = true) {
        static const char mark[] = "\xef\xbb\xbf"; /* byte order mark, written by Windows editors */
        if (!begun && strncmp(line, mark, 3) == 0) memmove(line, line + 3, strlen(line + 3) + 1);
        line[strcspn(line, "\r\n")] = '\0';
        size_t n = strlen(line);
        while (n && (line[n - 1] == ' ' || line[n - 1] == '/')) line[--n] = '\0';
        if (!line[0] || line[0] == '#' || add_line(s, list, line, split)) continue;
        for (char *c = line; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?'; /* the file may be binary */
        if (s->missing++ - missing < PRINTED)
            cli_print("warning: ", "%s: no such data set (line of %s); skipped", line, list);
    }
    fclose(f);
    if (s->missing - missing > PRINTED)
        cli_print("warning: ", "%s: %lld more data sets do not exist; skipped", list,
                  (long long)(s->missing - missing - PRINTED));
    if (s->n == first) cli_error(&eval_suite, "%s: none of its data sets exist", list);
    return s->n > first;
}

bool suite_sets_add(suite_sets *s, const char *item, const char *split)
{
    if (!file_is_dir(item)) return add_list(s, item, split);
    if (is_set(item, split)) return add(s, item);
    if (add_inside(s, item, split)) return true;
    cli_error(&eval_suite,
              "%s: has no %s/0.tar, and no folder in it has; CLIP_benchmark's layout is SPLIT/0.tar, "
              "SPLIT/1.tar, ... with classnames.txt next to SPLIT",
              item, split);
    return false;
}

void suite_sets_release(suite_sets *s)
{
    for (int64_t i = 0; i < s->n; i++) free(s->folder[i]);
    free(s->folder);
    *s = (suite_sets){ 0 };
}
