/* Names and numbers of the ways to resize. */
#include "io/image/image_view.h"

#include <string.h>

static const char *const mode_names[RESIZE_MODES] = { "shortest", "longest", "squash", "none", "patches" };
static const char *const filter_names[RESIZE_FILTERS] = {
    "bicubic", "bilinear", "lanczos", "box", "hamming", "nearest"
};
static const int pillow_numbers[RESIZE_FILTERS] = { 3, 2, 1, 4, 5, 0 };

static int find(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return i;
    return -1;
}

bool resize_mode_from_name(const char *name, resize_mode *out)
{
    int i = find(name, mode_names, RESIZE_MODES);
    if (i >= 0) *out = (resize_mode)i;
    return i >= 0;
}

bool resize_filter_from_name(const char *name, resize_filter *out)
{
    int i = find(name, filter_names, RESIZE_FILTERS);
    if (i >= 0) *out = (resize_filter)i;
    return i >= 0;
}

bool resize_filter_from_pillow(int64_t number, resize_filter *out)
{
    for (int i = 0; i < RESIZE_FILTERS; i++)
        if (pillow_numbers[i] == number) {
            *out = (resize_filter)i;
            return true;
        }
    return false;
}

const char *resize_mode_name(resize_mode m) { return mode_names[m]; }
const char *resize_filter_name(resize_filter f) { return filter_names[f]; }
int resize_filter_to_pillow(resize_filter f) { return pillow_numbers[f]; }
