/* The names a file of weights may use, and what each makes. Everything else is refused by name. */
#include <stdio.h>
#include <string.h>

#include "core/text.h"
#include "io/torch/pickle_machine.h"

/* What a name may do when it is called. */
typedef enum call_kind {
    CALL_NEVER,     /* a value only: element types, classes that are named in passing */
    CALL_STORAGE,   /* a value only: the type of a storage */
    CALL_TENSOR,    /* (storage, offset, size, stride, ...) */
    CALL_FROM_TYPE, /* (one of the above, class, its arguments, attributes) */
    CALL_FIRST,     /* its first argument, which is already what we want */
    CALL_DICT,      /* () or (pairs) or (factory) */
    CALL_LIST,      /* () or (items) */
    CALL_DTYPE,     /* (code, ...): an instance whose class is the code */
    CALL_ARRAY,     /* (function, its arguments, state, ...): what the function makes, with this state */
    CALL_OBJECT     /* an instance without behaviour */
} call_kind;

typedef struct global_row {
    const char *module, *name;
    call_kind call;
    cloob_dtype dtype; /* CALL_STORAGE */
} global_row;

static const global_row rows[] = {
    /* tensors */
    { "torch._utils", "_rebuild_tensor_v2", CALL_TENSOR, 0 },
    { "torch._utils", "_rebuild_tensor", CALL_TENSOR, 0 },
    { "torch._utils", "_rebuild_parameter", CALL_FIRST, 0 },
    { "torch._utils", "_rebuild_parameter_with_state", CALL_FIRST, 0 },
    { "torch._tensor", "_rebuild_from_type_v2", CALL_FROM_TYPE, 0 },
    { "torch.nn.parameter", "Parameter", CALL_NEVER, 0 },
    { "torch", "Tensor", CALL_NEVER, 0 },
    { "torch", "Size", CALL_FIRST, 0 },
    { "torch", "device", CALL_OBJECT, 0 },
    /* storages */
    { "torch", "FloatStorage", CALL_STORAGE, CLOOB_F32 },
    { "torch", "HalfStorage", CALL_STORAGE, CLOOB_F16 },
    { "torch", "BFloat16Storage", CALL_STORAGE, CLOOB_BF16 },
    { "torch", "DoubleStorage", CALL_STORAGE, CLOOB_F64 },
    { "torch", "LongStorage", CALL_STORAGE, CLOOB_I64 },
    { "torch", "IntStorage", CALL_STORAGE, CLOOB_I32 },
    { "torch", "ShortStorage", CALL_STORAGE, CLOOB_I16 },
    { "torch", "CharStorage", CALL_STORAGE, CLOOB_I8 },
    { "torch", "ByteStorage", CALL_STORAGE, CLOOB_U8 },
    { "torch", "BoolStorage", CALL_STORAGE, CLOOB_BOOL },
    { "torch.storage", "UntypedStorage", CALL_STORAGE, CLOOB_U8 },
    /* containers */
    { "collections", "OrderedDict", CALL_DICT, 0 },
    { "collections", "defaultdict", CALL_DICT, 0 },
    { "collections", "Counter", CALL_DICT, 0 },
    { "builtins", "dict", CALL_DICT, 0 },
    { "builtins", "list", CALL_LIST, 0 },
    { "builtins", "tuple", CALL_LIST, 0 },
    { "builtins", "set", CALL_LIST, 0 },
    { "builtins", "frozenset", CALL_LIST, 0 },
    { "builtins", "int", CALL_NEVER, 0 },
    { "builtins", "float", CALL_NEVER, 0 },
    { "builtins", "str", CALL_NEVER, 0 },
    { "builtins", "bool", CALL_NEVER, 0 },
    { "builtins", "object", CALL_NEVER, 0 },
    { "builtins", "bytearray", CALL_OBJECT, 0 },
    /* TorchScript */
    { "torch.jit._pickle", "build_intlist", CALL_FIRST, 0 },
    { "torch.jit._pickle", "build_doublelist", CALL_FIRST, 0 },
    { "torch.jit._pickle", "build_boollist", CALL_FIRST, 0 },
    { "torch.jit._pickle", "build_tensorlist", CALL_FIRST, 0 },
    { "torch.jit._pickle", "restore_type_tag", CALL_FIRST, 0 },
    /* what training checkpoints carry along: settings and best scores; kept without meaning */
    { "argparse", "Namespace", CALL_OBJECT, 0 },
    { "pathlib", "PosixPath", CALL_OBJECT, 0 },
    { "_codecs", "encode", CALL_FIRST, 0 },
    { "copyreg", "_reconstructor", CALL_OBJECT, 0 },
    { "numpy", "dtype", CALL_DTYPE, 0 },
    { "numpy", "ndarray", CALL_NEVER, 0 },
    { "numpy.core.multiarray", "scalar", CALL_OBJECT, 0 },
    { "numpy._core.multiarray", "scalar", CALL_OBJECT, 0 },
    { "numpy.core.multiarray", "_reconstruct", CALL_OBJECT, 0 },
    { "numpy._core.multiarray", "_reconstruct", CALL_OBJECT, 0 },
    /* JAX's arrays, and haiku's dicts of them */
    { "jax._src.array", "_reconstruct_array", CALL_ARRAY, 0 },
    { "jax._src.device_array", "reconstruct_device_array", CALL_ARRAY, 0 },
    { "haiku._src.data_structures", "FlatMapping", CALL_DICT, 0 },
    { "haiku._src.data_structures", "FlatMap", CALL_DICT, 0 },
};

static const char *const element_types[] = { "float32",  "float", "float64", "double", "float16", "half",
                                             "bfloat16", "int64", "long",    "int32",  "int",     "int16",
                                             "short",    "int8",  "uint8",   "bool",   "strided", "contiguous_format",
                                             NULL };

/* ---- lookup -------------------------------------------------------------------------------------- */

static bool is_element_type(const char *module, const char *name)
{
    if (strcmp(module, "torch") != 0) return false;
    for (const char *const *t = element_types; *t; t++)
        if (strcmp(*t, name) == 0) return true;
    return false;
}

static const global_row *find(const char *module, const char *name)
{
    static const global_row script = { "__torch__", "*", CALL_OBJECT, 0 }, type = { "torch", "*", CALL_NEVER, 0 };
    if (strcmp(module, "__builtin__") == 0) module = "builtins"; /* Python 2 wrote the older files */
    if (strcmp(module, "copy_reg") == 0) module = "copyreg";
    if (strcmp(module, "torch.cuda") == 0 && text_ends_with(name, "Storage")) module = "torch";
    /* classes of a TorchScript archive: their code is in other members and is not read */
    if (strncmp(module, "__torch__", 9) == 0 && (module[9] == '\0' || module[9] == '.')) return &script;
    if (is_element_type(module, name)) return &type;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].module, module) == 0 && strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

/* Names come from the file: only plain characters reach a terminal. */
static bool copy_name(char *to, size_t size, const char *from, size_t bytes)
{
    size_t n = 0;
    for (; n < bytes && n + 1 < size; n++) to[n] = from[n] > ' ' && from[n] < 127 ? from[n] : '?';
    to[n] = '\0';
    return n == bytes;
}

cloob_status pk_global(pk_machine *m, const char *module, size_t module_bytes, const char *name, size_t name_bytes,
                       pk_value **out)
{
    char module_text[160], name_text[160];
    bool whole = copy_name(module_text, sizeof module_text, module, module_bytes);
    whole = copy_name(name_text, sizeof name_text, name, name_bytes) && whole;
    const global_row *row = whole ? find(module_text, name_text) : NULL;
    if (!row)
        return ctx_fail(m->ctx, CLOOB_ERR_FORMAT,
                        "%s: it asks for %s.%s, which no file of weights needs; refused, nothing in it was run "
                        "(of a whole pickled model, save the state_dict() instead)",
                        m->name, module_text, name_text);
    pk_value *v = pk_new(m, PK_GLOBAL);
    char *text = v ? arena_push(m->a, module_bytes + name_bytes + 2) : NULL;
    if (!text) return pk_no_memory(m);
    snprintf(text, module_bytes + name_bytes + 2, "%s.%s", module_text, name_text);
    v->text = text;
    v->integer = row->call | (int64_t)row->dtype << 8;
    *out = v;
    return CLOOB_OK;
}

static call_kind call_of(const pk_value *global) { return (call_kind)(global->integer & 0xFF); }

static cloob_dtype dtype_of(const pk_value *global) { return (cloob_dtype)(global->integer >> 8); }

/* ---- storages and tensors ------------------------------------------------------------------------ */

/* ("storage", type, key, device, count, view): view is None, absent, or (key, offset, size) in old files. */
static bool storage_view(const pk_value *id, pk_storage *s)
{
    int64_t size;
    if (id->count < 6 || id->item[5]->kind == PK_NONE) return true;
    const pk_value *view = id->item[5];
    if (view->kind != PK_TUPLE || view->count != 3 || !pk_int(view->item[1], &s->offset) ||
        !pk_int(view->item[2], &size))
        return false;
    if (s->offset < 0 || size < 0 || s->offset > s->count || size > s->count - s->offset) return false;
    s->count = size;
    return true;
}

cloob_status pk_persistent(pk_machine *m, const pk_value *id, pk_value **out)
{
    if (id->kind != PK_TUPLE || id->count < 5 || !pk_text(id->item[0]) || strcmp(pk_text(id->item[0]), "storage") != 0)
        return pk_fail(m, "a persistent object that is no storage");
    const pk_value *type = id->item[1];
    if (type->kind != PK_GLOBAL || call_of(type) != CALL_STORAGE) return pk_fail(m, "a storage of no known type");
    pk_value *v = pk_new(m, PK_STORAGE);
    pk_storage *s = v ? arena_push(m->a, sizeof *s) : NULL;
    if (!s) return pk_no_memory(m);
    s->dtype = dtype_of(type);
    s->key = pk_text(id->item[2]);
    if (!s->key || !pk_int(id->item[4], &s->count) || s->count < 0 || !storage_view(id, s))
        return pk_fail(m, "a storage without a sound key and size");
    s->next = m->storages;
    m->storages = s;
    v->storage = s;
    *out = v;
    return CLOOB_OK;
}

/* Sizes and strides must be short tuples of numbers that are not negative. */
static bool read_dims(const pk_value *v, int64_t *dim, int *ndim)
{
    if ((v->kind != PK_TUPLE && v->kind != PK_LIST) || v->count > TENSOR_DIMS) return false;
    for (int64_t i = 0; i < v->count; i++)
        if (!pk_int(v->item[i], &dim[i]) || dim[i] < 0) return false;
    *ndim = (int)v->count;
    return true;
}

static cloob_status make_tensor(pk_machine *m, const pk_value *args, pk_value **out)
{
    int strides;
    if (args->count < 4 || args->item[0]->kind != PK_STORAGE) return pk_fail(m, "a tensor without a storage");
    pk_value *v = pk_new(m, PK_TENSOR);
    pk_tensor *t = v ? arena_push(m->a, sizeof *t) : NULL;
    if (!t) return pk_no_memory(m);
    t->storage = args->item[0]->storage;
    if (!pk_int(args->item[1], &t->offset) || t->offset < 0 || !read_dims(args->item[2], t->dim, &t->ndim) ||
        !read_dims(args->item[3], t->stride, &strides) || strides != t->ndim)
        return pk_fail(m, "a tensor with impossible sizes (negative, not numbers, or more than 8 dimensions)");
    v->tensor = t;
    *out = v;
    return CLOOB_OK;
}

static cloob_status make_from_type(pk_machine *m, const pk_value *args, pk_value **out)
{
    if (args->count < 3 || args->item[0]->kind != PK_GLOBAL || call_of(args->item[0]) != CALL_TENSOR ||
        args->item[2]->kind != PK_TUPLE)
        return pk_fail(m, "a tensor subclass");
    return make_tensor(m, args->item[2], out);
}

/* ---- containers ---------------------------------------------------------------------------------- */

static bool is_sequence(const pk_value *v) { return v->kind == PK_LIST || v->kind == PK_TUPLE; }

static cloob_status make_dict(pk_machine *m, const pk_value *args, pk_value **out)
{
    pk_value *v = *out = pk_new(m, PK_DICT);
    if (!v) return pk_no_memory(m);
    if (args->count && args->item[0]->kind == PK_DICT) { /* dict(d), Counter(d) */
        *out = args->item[0];
        return CLOOB_OK;
    }
    if (!args->count || !is_sequence(args->item[0])) return CLOOB_OK; /* (), (factory) */
    const pk_value *pairs = args->item[0];
    for (int64_t i = 0; i < pairs->count; i++) {
        const pk_value *p = pairs->item[i];
        if (!is_sequence(p) || p->count != 2) return pk_fail(m, "a dict of something else than pairs");
        if (!pk_append(m, v, p->item[0]) || !pk_append(m, v, p->item[1])) return pk_no_memory(m);
    }
    return CLOOB_OK;
}

static cloob_status make_first(pk_machine *m, const pk_value *args, pk_value **out)
{
    if (!args->count) return pk_fail(m, "a call without arguments");
    *out = args->item[0];
    return CLOOB_OK;
}

static cloob_status make_list(pk_machine *m, const pk_value *args, pk_value **out)
{
    if (args->count) return make_first(m, args, out);
    *out = pk_new(m, PK_LIST);
    return *out ? CLOOB_OK : pk_no_memory(m);
}

static cloob_status make_object(pk_machine *m, const pk_value *callee, pk_value **out)
{
    *out = pk_new(m, PK_OBJECT);
    if (!*out) return pk_no_memory(m);
    (*out)->class_name = callee->text;
    return CLOOB_OK;
}

static cloob_status make_dtype(pk_machine *m, const pk_value *callee, const pk_value *args, pk_value **out)
{
    CLOOB_TRY(make_object(m, callee, out));
    const char *code = args->count ? pk_text(args->item[0]) : NULL;
    if (code) (*out)->class_name = code;
    return CLOOB_OK;
}

static cloob_status make_array(pk_machine *m, const pk_value *args, pk_value **out)
{
    if (args->count < 3 || args->item[0]->kind != PK_GLOBAL || call_of(args->item[0]) != CALL_OBJECT)
        return pk_fail(m, "an array that is none of numpy's");
    CLOOB_TRY(make_object(m, args->item[0], out));
    return pk_build(m, *out, args->item[2]);
}

/* ---- entry points -------------------------------------------------------------------------------- */

cloob_status pk_call(pk_machine *m, const pk_value *callee, const pk_value *args, pk_value **out)
{
    if (callee->kind != PK_GLOBAL || args->kind != PK_TUPLE) return pk_fail(m, "a call of something that is no name");
    switch (call_of(callee)) {
    case CALL_TENSOR: return make_tensor(m, args, out);
    case CALL_FROM_TYPE: return make_from_type(m, args, out);
    case CALL_FIRST: return make_first(m, args, out);
    case CALL_DICT: return make_dict(m, args, out);
    case CALL_LIST: return make_list(m, args, out);
    case CALL_DTYPE: return make_dtype(m, callee, args, out);
    case CALL_ARRAY: return make_array(m, args, out);
    case CALL_OBJECT: return make_object(m, callee, out);
    default: break;
    }
    return ctx_fail(m->ctx, CLOOB_ERR_FORMAT,
                    "%s: it calls %s, which no file of weights needs; refused, nothing in it was run", m->name,
                    callee->text);
}

cloob_status pk_build(pk_machine *m, pk_value *obj, pk_value *state)
{
    switch (obj->kind) {
    case PK_DICT:
    case PK_LIST:
    case PK_TUPLE:
    case PK_TENSOR: return CLOOB_OK;
    case PK_OBJECT: break;
    default: return pk_fail(m, "a state for something that has none");
    }
    obj->count = obj->capacity = 0;
    return pk_append(m, obj, state) ? CLOOB_OK : pk_no_memory(m);
}
