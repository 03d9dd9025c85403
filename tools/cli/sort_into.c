/* cloob classify --sort-into: links or copies of images in folders that are named after labels. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "core/file.h"

enum { MAX_NAMES = 10000 };

static bool complain(const char *path)
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

static bool copy_bytes(int from, int to)
{
    char block[1 << 16];
    for (ssize_t n; (n = read(from, block, sizeof block)) != 0;) {
        if (n < 0) return false;
        for (ssize_t at = 0, m; at < n; at += m)
            if ((m = write(to, block + at, (size_t)(n - at))) < 0) return false;
    }
    return true;
}

/* A file without a name in the folder of target, so that a kill leaves no part of a copy; -1 where the file system
 * does not support it: then the file has its name from the start. */
static int open_nameless(const char *target)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", target);
    *strrchr(folder, '/') = '\0';
    return open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

static bool give_name(int file, const char *target)
{
    char nameless[64];
    snprintf(nameless, sizeof nameless, "/proc/self/fd/%d", file);
    return linkat(AT_FDCWD, nameless, AT_FDCWD, target, AT_SYMLINK_FOLLOW) == 0;
}

/* 1: done; 0: another file has the name; -1: failed. */
static int copy_to(const char *source, const char *target)
{
    struct stat st;
    if (lstat(target, &st) == 0) return 0; /* before copying for nothing */
    int from = open(source, O_RDONLY | O_CLOEXEC), to = from < 0 ? -1 : open_nameless(target);
    bool nameless = to >= 0, named = false;
    if (from >= 0 && !nameless) {
        to = open(target, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        named = to >= 0;
    }
    bool whole = to >= 0 && copy_bytes(from, to);
    if (whole && nameless) whole = named = give_name(to, target);
    int why = errno;
    if (to >= 0 && close(to) != 0 && whole) whole = false, why = errno;
    if (named && !whole) unlink(target);
    if (from >= 0) close(from);
    errno = why;
    return whole ? 1 : why == EEXIST ? 0 : -1;
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

/* The name of a label's folder. */
static const char *folder_name(const char *label, char out[256])
{
    snprintf(out, 256, "%s", label[0] == '.' ? label + 1 : label);
    for (char *c = out; *c; c++)
        if (*c == '/') *c = '-';
    return out;
}

bool sort_into(const char *path, const char *dir, const char *label, bool copy)
{
    char folder[PATH_MAX], source[PATH_MAX], target[PATH_MAX], clean[256];
    snprintf(folder, sizeof folder, "%s/%s", dir, folder_name(label, clean));
    if (!realpath(path, source)) return complain(path);
    if (!make_folder(dir) || !make_folder(folder)) return complain(folder);
    const char *slash = strrchr(path, '/');
    for (int i = 1; i <= MAX_NAMES; i++) {
        numbered(target, folder, slash ? slash + 1 : path, i);
        int made = copy ? copy_to(source, target) : link_to(source, target);
        if (made > 0) return true;
        if (made < 0) return complain(target);
    }
    errno = EEXIST;
    return complain(target);
}

/* ---- what an earlier run left -------------------------------------------------------------------- */

/* Counts the links in a folder, and removes them and the empty folder if asked to. */
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
    if (clear) rmdir(folder); /* stays where it has other files */
    return n;
}

static bool is_label(const char *name, const char *const *label, int64_t labels)
{
    char clean[256];
    for (int64_t i = 0; i < labels; i++)
        if (strcmp(folder_name(label[i], clean), name) == 0) return true;
    return false;
}

int64_t sort_earlier(const char *dir, const char *const *label, int64_t labels, bool clear)
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
