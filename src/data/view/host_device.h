/* VIEW_BOTH: a function of a header that the host and kernels share. */
#ifndef DATA_VIEW_HOST_DEVICE_H
#define DATA_VIEW_HOST_DEVICE_H

#include <stdint.h>

#ifdef __CUDACC__
#    define VIEW_BOTH __host__ __device__ static inline
#else
#    define VIEW_BOTH static inline
#endif

#endif
