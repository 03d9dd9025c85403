/* One copy of a loop for each generation of vector units, chosen when the program starts. */
#ifndef TENSOR_CPU_CLONES_H
#define TENSOR_CPU_CLONES_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&               \
    !defined(__SANITIZE_THREAD__) /* the choice is made before a sanitizer is ready */
#    define CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#    define CPU_CLONES
#endif

/* For what such a loop calls: a copy of its own would be compiled for the oldest generation. */
#define CPU_INLINE static inline __attribute__((always_inline))

#endif
