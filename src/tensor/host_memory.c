/* /proc/meminfo, and the files of control groups, version 1 and 2. */
#include "tensor/device.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/limits.h"

enum { PATH = 1024 };

/* The number after `key` in a file of "key number" lines, or the first one when key is ""; -1 when there is
 * none. */
static double read_number(const char *root, const char *folder, const char *file, const char *key)
{
    char path[2 * PATH], line[512];
    double value = -1;
    snprintf(path, sizeof path, "%s%s/%s", root, folder, file);
    FILE *f = fopen(path, "r");
    while (f && value < 0 && fgets(line, sizeof line, f)) {
        char *end, *number = line + strlen(key);
        if (strncmp(line, key, strlen(key)) != 0) continue;
        value = strtod(number, &end);
        if (end == number) value = -1; /* "max" */
    }
    if (f) fclose(f);
    return value;
}

static void lower(double *value, double by)
{
    if (*value < 0 || by < *value) *value = by;
}

/* What the two versions call the same things; where their trees begin. */
typedef struct version {
    const char *mark, *tree, *limit, *used, *droppable;
} version;

static const version versions[] = {
    { "0::", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file " },
    { ":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file " },
};

/* Pages of files count as used but can be dropped. */
static void apply_group(const char *root, const version *v, const char *folder, double *total, double *available)
{
    double limit = read_number(root, folder, v->limit, ""), used = read_number(root, folder, v->used, "");
    double droppable = read_number(root, folder, "memory.stat", v->droppable);
    if (limit < 0 || used < 0) return;
    if (droppable > 0) used -= droppable;
    lower(total, limit);
    lower(available, limit > used ? limit - used : 0);
}

/* The group of this process: what follows the mark in a line of /proc/self/cgroup. */
static void find_group(const char *root, const version *v, char group[PATH])
{
    char path[PATH], line[PATH];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    group[0] = '\0';
    while (f && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, v->mark);
        if (!at) continue;
        snprintf(group, PATH, "%.*s", (int)strcspn(at + strlen(v->mark), "\n"), at + strlen(v->mark));
        break;
    }
    if (f) fclose(f);
    if (group[0] != '/' || !group[1]) group[0] = '\0';
}

/* That group and every one around it, up to the tree's own. */
static void apply_groups(const char *root, const version *v, double *total, double *available)
{
    char group[PATH], folder[PATH + 64];
    find_group(root, v, group);
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s", v->tree, group);
        apply_group(root, v, folder, total, available);
        if (!group[0]) return;
        *strrchr(group, '/') = '\0';
    }
}

void host_memory_read(const char *root, size_t *total, size_t *available)
{
    double all = 1024 * read_number(root, "/proc", "meminfo", "MemTotal:"),
           open = 1024 * read_number(root, "/proc", "meminfo", "MemAvailable:");
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) apply_groups(root, &versions[i], &all, &open);
    double left = (double)limits_memory_left();
    if (!root[0] && left < open) open = left;
    *total = all > 0 ? (size_t)all : 0;
    *available = open > 0 ? (size_t)open : 0;
}

void host_memory_drop(const void *data, size_t bytes, const void *block, size_t block_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)data, to = from + bytes, begin = (uintptr_t)block;
    if (!block || from < begin || to > begin + block_bytes) return;
    from = (from + page - 1) / page * page, to = to / page * page;
    if (from < to) madvise((void *)from, to - from, MADV_DONTNEED);
}
