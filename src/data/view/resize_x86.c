/* The kernels of an x86-64 build, fastest first. */
#include "data/view/resize_axis.h"

const resize_kernels *const resize_all_kernels[] = { &resize_vnni, &resize_avx2, &resize_plain, NULL };
