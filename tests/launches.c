/* The names of the GPU kernels that a program launches, a line each, in the file that CHECK_LAUNCHES names. Programs
 * are linked with it by
 *
 *     cuda=$(dirname "$(dirname "$(command -v nvcc)")")
 *     flags="-Wl,--wrap=__cudaLaunchKernel -I$cuda/include $PWD/tests/launches.c"
 *     cmake -S . -B BUILD -DCMAKE_EXE_LINKER_FLAGS="$flags"
 *
 * after which tests/kernels.py says which kernels of the library no program has launched. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

extern cudaError_t __real___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                             cudaStream_t stream);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                      cudaStream_t stream);

enum { ROOM = 4096 };

/* Whether it is the kernel's first launch. Two threads that meet here may both say so. */
static int is_new(const void *kernel)
{
    static const void *seen[ROOM];
    size_t at = (size_t)kernel / 16 % ROOM, tries = 0;
    for (; tries < ROOM && seen[at] && seen[at] != kernel; tries++) at = (at + 1) % ROOM;
    if (tries == ROOM || seen[at] == kernel) return 0;
    seen[at] = kernel;
    return 1;
}

/* Written at once: a program under a tool may be cut off. */
static void note(const void *kernel)
{
    const char *path = getenv("CHECK_LAUNCHES"), *name = NULL;
    FILE *f;
    if (!path || !is_new(kernel) || cudaFuncGetName(&name, kernel) != cudaSuccess || !name) return;
    f = fopen(path, "a");
    if (!f) return;
    fprintf(f, "%s\n", name);
    fclose(f);
}

cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                      cudaStream_t stream)
{
    note((const void *)kernel);
    return __real___cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}
