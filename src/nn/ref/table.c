/* The ref backend: every op's definition as a kernel. */
#include "nn/ref/ref.h"

static cloob_status run(ref_fn *definition, const op_env *env, const op_args *a)
{
    (void)env;
    definition(a);
    return CLOOB_OK;
}

static cloob_status run_with_env(ref_env_fn *definition, const op_env *env, const op_args *a)
{
    return definition(env, a);
}

#define OP(id, name, shape, grad)                                                                                      \
    static cloob_status run_##name(const op_env *env, const op_args *a)                                                \
    {                                                                                                                  \
        return _Generic(&name##_ref, ref_fn * : run, ref_env_fn * : run_with_env)(name##_ref, env, a);                 \
    }
#include "nn/op_list.h"
#undef OP

const op_kernel op_kernels_ref[OP_COUNT] = {
#define OP(id, name, shape, grad) [OP_##id] = { .run = run_##name },
#include "nn/op_list.h"
#undef OP
};
