/* The kernels of a build for any processor. */
#include "data/view/resize_axis.h"

const resize_kernels *const resize_all_kernels[] = { &resize_plain, NULL };
