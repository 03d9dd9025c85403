/* The names of the GPU kernels that a program launches, a line each, in the file that CHECK_LAUNCHES names. With
 * -DCLOOB_LIST_LAUNCHES=ON every program that is linked with the static library holds it: the linker sends launches by
 * <<<>>> (__cudaLaunchKernel since CUDA 13) and by cudaLaunchKernelEx (cudaLaunchKernelExC) through the functions
 * below. tests/kernel_coverage.py then says which kernels of the library no program has launched. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

extern cudaError_t __real___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                             cudaStream_t stream);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                      cudaStream_t stream);
extern cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args);

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

cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args)
{
    note(kernel);
    return __real_cudaLaunchKernelExC(config, kernel, args);
}
