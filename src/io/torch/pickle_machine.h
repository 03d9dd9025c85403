/* What the stack machine (pickle.c) and the meaning of names (pickle_globals.c) share. Only these files include it. */
#ifndef IO_TORCH_PICKLE_MACHINE_H
#define IO_TORCH_PICKLE_MACHINE_H

#include "io/torch/pickle.h"

typedef struct pk_machine {
    cloob_ctx *ctx;
    arena *a;
    const char *name;
    const unsigned char *begin, *at, *end;
    pk_value **stack, **memo;
    int64_t depth, stack_capacity, memo_count, memo_capacity;
    int64_t *mark;
    int64_t marks, mark_capacity;
    pk_value *slab; /* values are cut from slabs: the arena's own grain is 64 bytes */
    int64_t slab_left, values, appended;
    const pk_storage *storages;
    bool views; /* bytes are views of the pickle */
} pk_machine;

cloob_status pk_fail(pk_machine *m, const char *what); /* "NAME: damaged pickle at byte N: WHAT" */
/* NULL when memory or the bound on values is out; pk_no_memory then reports which. */
pk_value *pk_new(pk_machine *m, pk_kind kind);
cloob_status pk_no_memory(pk_machine *m);
bool pk_append(pk_machine *m, pk_value *container, pk_value *item); /* list, tuple; dict: key, then value */

/* Looks the name up. An unknown name is an error. */
cloob_status pk_global(pk_machine *m, const char *module, size_t module_bytes, const char *name, size_t name_bytes,
                       pk_value **out);
/* The result of calling `callee` with `args` (a tuple); REDUCE, NEWOBJ, INST and OBJ all end here. */
cloob_status pk_call(pk_machine *m, const pk_value *callee, const pk_value *args, pk_value **out);
/* obj.__setstate__(state). Containers and tensors ignore the attributes set on them. */
cloob_status pk_build(pk_machine *m, pk_value *obj, pk_value *state);
/* The storage of a persistent id. */
cloob_status pk_persistent(pk_machine *m, const pk_value *id, pk_value **out);

#endif
