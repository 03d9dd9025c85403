/* oneDNN's engine. It computes in F32, where AMX has nothing to give, and is not allowed to use AMX: some virtual
 * machines claim AMX but leave CPUID leaf 0x1D empty, from which oneDNN reads tile sizes, and its kernels then end in
 * an illegal instruction. */
#include "tensor/cpu/onednn.h"

#include <stdlib.h>

#include "core/pool.h"
#include "core/shared_object.h"

dnnl_functions dnnl;

#define ROW(name) { "dnnl_" #name, (void **)&dnnl.name },
static const shared_function functions[] = { DNNL_FUNCTIONS(ROW){ NULL, NULL } };
static shared_object library = { .file = { "libdnnl.so.2" },
                                 .functions = functions,
                                 .install = "libdnnl2 (convolutions on the CPU)" };
SHARED_LISTED(library)

bool onednn_is_there(void) { return shared_object_is_there(&library); }

static void destroy(void *p)
{
    onednn *o = p;
    dnnl.stream_destroy(o->stream);
    dnnl.engine_destroy(o->engine);
    free(o);
}

cloob_status onednn_status(cloob_ctx *ctx, dnnl_status_t s, const char *what)
{
    if (s == dnnl_success) return CLOOB_OK;
    return ctx_fail(ctx, s == dnnl_out_of_memory ? CLOOB_ERR_MEMORY : CLOOB_ERR_DEVICE, "oneDNN: %s failed (status %d)",
                    what, (int)s);
}

cloob_status onednn_get(cloob_ctx *ctx, onednn **out)
{
    if (!ctx->slot[CTX_SLOT_CPU]) {
        CLOOB_TRY(shared_object_use(ctx, &library));
        onednn *o = calloc(1, sizeof *o);
        if (!o) return ctx_no_memory(ctx, sizeof *o, "oneDNN");
        dnnl.set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16); /* refused after first use: then it is set */
        dnnl_status_t s = dnnl.engine_create(&o->engine, dnnl_cpu, 0);
        if (s == dnnl_success) s = dnnl.stream_create(&o->stream, o->engine, dnnl_stream_default_flags);
        if (s != dnnl_success) {
            free(o);
            return onednn_status(ctx, s, "creating an engine");
        }
        ctx->slot[CTX_SLOT_CPU] = o;
        ctx->slot_destroy[CTX_SLOT_CPU] = destroy;
    }
    /* A primitive's cut of the work, and with it the order of sums, is made for the number of threads at its creation:
     * that must be the context's from the first primitive on, not OMP_NUM_THREADS. */
    pool_use_threads(ctx);
    *out = ctx->slot[CTX_SLOT_CPU];
    return CLOOB_OK;
}

static dnnl_status_t image(const tensor *t, dnnl_format_tag_t tag, dnnl_memory_desc_t *md)
{
    dnnl_dims_t dims = { t->dim[0], t->dim[3], t->dim[1], t->dim[2] };
    return dnnl.memory_desc_init_by_tag(md, 4, dims, dnnl_f32, tag);
}

dnnl_status_t onednn_image(const tensor *t, dnnl_memory_desc_t *md)
{
    return image(t, t->block == 16 ? dnnl_nChw16c : t->block == 8 ? dnnl_nChw8c : dnnl_nhwc, md);
}

dnnl_status_t onednn_image_any(const tensor *t, dnnl_memory_desc_t *md) { return image(t, dnnl_format_tag_any, md); }
