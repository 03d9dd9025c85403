/* A pickle read as data: numbers, texts, lists, dicts and tensors; nothing is ever called.
 *
 * A pickle is a program for a stack machine that may name any Python function. This reader runs the stack
 * machine (protocols 1 to 5) over values of its own, knows by name the few functions that rebuild tensors and
 * containers, and refuses every other name. Depth costs nothing (no recursion), and memory is bounded by the
 * pickle's length.
 *
 *     arena a = { 0 };
 *     pk_result r;
 *     CLOOB_TRY(pickle_read(ctx, &a, bytes, size, "model.pt", &r));
 *     const pk_value *sd = pk_get(r.root, "state_dict");
 *
 * Values live in the arena. Through the memo a value may appear in several places, even inside itself: walk
 * with a bound. */
#ifndef IO_TORCH_PICKLE_H
#define IO_TORCH_PICKLE_H

#include "core/arena.h"
#include "core/ctx.h"
#include "tensor/tensor.h"

typedef enum pk_kind {
    PK_NONE,
    PK_BOOL,    /* integer */
    PK_INT,     /* integer */
    PK_FLOAT,   /* real */
    PK_STRING,  /* text, length */
    PK_BYTES,   /* text, length; also integers beyond 64 bits, as their bytes */
    PK_LIST,    /* item[0..count) */
    PK_TUPLE,   /* item[0..count); sets too */
    PK_DICT,    /* item[2 i] the key, item[2 i + 1] the value, i < count; in order of insertion, as written */
    PK_GLOBAL,  /* text: "module name"; what it may become is in `integer` (pickle_globals.c) */
    PK_STORAGE, /* storage */
    PK_TENSOR,  /* tensor */
    PK_OBJECT   /* an instance without behaviour: text the class, item[0] its state or NULL */
} pk_kind;

/* Bytes somewhere in the file. The caller of the reader finds them by key. */
typedef struct pk_storage pk_storage;
struct pk_storage {
    const pk_storage *next; /* of all that the pickle names, newest first; a key may come up many times */
    const char *key;
    cloob_dtype dtype;
    int64_t count;  /* elements it claims to have */
    int64_t offset; /* elements into the bytes of `key`: views of legacy files */
};

typedef struct pk_tensor {
    const pk_storage *storage;
    int64_t offset; /* elements */
    int ndim;
    int64_t dim[TENSOR_DIMS], stride[TENSOR_DIMS]; /* elements; not checked against the storage yet */
} pk_tensor;

typedef struct pk_value pk_value;
struct pk_value {
    pk_kind kind;
    int64_t integer; /* also the number of bytes of text */
    union {
        double real;
        const char *text; /* zero-terminated; may hold zeros of its own */
        const pk_storage *storage;
        const pk_tensor *tensor;
        struct {
            pk_value **item;
            int64_t count, capacity;
        };
    };
    const char *class_name; /* PK_OBJECT; of a numpy.dtype its code, as "f4" */
};

enum { PICKLE_LIMIT = 64 << 20 }; /* bytes; the pickle of gigabytes of weights has kilobytes */

typedef struct pk_result {
    pk_value *root;
    const pk_storage *storages; /* NULL when there are none */
    size_t used;                /* bytes */
} pk_result;

/* Reads one pickle from the front of data. name is for messages. views: for a pickle of any length with arrays inside,
 * long bytes are views of data, and are not followed by 0. */
cloob_status pickle_read(cloob_ctx *ctx, arena *a, const unsigned char *data, size_t size, const char *name, bool views,
                         pk_result *out);

/* The value of a text key; NULL when absent or not a dict. The last of equal keys, as in Python. */
const pk_value *pk_get(const pk_value *dict, const char *key);
const char *pk_text(const pk_value *v);       /* NULL unless a string without zeros inside */
bool pk_int(const pk_value *v, int64_t *out); /* false unless an integer or a bool */

#endif
