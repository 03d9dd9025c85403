/* The pickle stack machine: one function per opcode, one table. Opcodes that only protocol 0 uses are refused. */
#include "io/torch/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "io/torch/pickle_machine.h"

enum { SLAB_VALUES = 512, VALUE_LIMIT = 4 << 20 };

/* ---- memory and messages ------------------------------------------------------------------------- */

cloob_status pk_fail(pk_machine *m, const char *what)
{
    return ctx_fail(m->ctx, CLOOB_ERR_FORMAT, "%s: damaged pickle at byte %lld: %s", m->name,
                    (long long)(m->at - m->begin), what);
}

/* Every item of a container took a byte to make; only dicts made from lists of pairs copy items once more. */
static int64_t append_limit(const pk_machine *m) { return 4 * (m->end - m->begin) + 64; }

cloob_status pk_no_memory(pk_machine *m)
{
    if (m->values < VALUE_LIMIT && m->appended < append_limit(m))
        return ctx_no_memory(m->ctx, sizeof(pk_value) * SLAB_VALUES, m->name);
    return ctx_fail(m->ctx, CLOOB_ERR_FORMAT, "%s: its pickle has more than %d values; not a file of weights", m->name,
                    VALUE_LIMIT);
}

pk_value *pk_new(pk_machine *m, pk_kind kind)
{
    if (m->values >= VALUE_LIMIT) return NULL;
    if (!m->slab_left) {
        m->slab = arena_push(m->a, SLAB_VALUES * sizeof *m->slab);
        m->slab_left = m->slab ? SLAB_VALUES : 0;
        if (!m->slab) return NULL;
    }
    pk_value *v = &m->slab[SLAB_VALUES - m->slab_left--];
    v->kind = kind;
    m->values++;
    return v;
}

/* Arrays inside values double in the arena: what is left behind is less than what is kept. */
bool pk_append(pk_machine *m, pk_value *c, pk_value *item)
{
    int64_t used = c->kind == PK_DICT ? c->integer : c->count; /* a dict counts single items in `integer` */
    if (m->appended++ >= append_limit(m)) return false;
    if (used == c->capacity) {
        int64_t capacity = c->capacity ? 2 * c->capacity : 8;
        pk_value **bigger = arena_push(m->a, (size_t)capacity * sizeof *bigger);
        if (!bigger) return false;
        if (used) memcpy(bigger, c->item, (size_t)used * sizeof *bigger);
        c->item = bigger;
        c->capacity = capacity;
    }
    c->item[used] = item;
    if (c->kind == PK_DICT) c->count = ++c->integer / 2;
    else c->count++;
    return true;
}

/* ---- the stack ----------------------------------------------------------------------------------- */

static cloob_status push(pk_machine *m, pk_value *v)
{
    if (!v) return pk_no_memory(m);
    if (!heap_grow(&m->stack, m->depth, &m->stack_capacity, sizeof *m->stack)) return pk_no_memory(m);
    m->stack[m->depth++] = v;
    return CLOOB_OK;
}

/* Only values above the newest mark may be taken. */
static int64_t above_mark(const pk_machine *m) { return m->depth - (m->marks ? m->mark[m->marks - 1] : 0); }

static pk_value *pop(pk_machine *m) { return above_mark(m) > 0 ? m->stack[--m->depth] : NULL; }

static pk_value *top(pk_machine *m) { return above_mark(m) > 0 ? m->stack[m->depth - 1] : NULL; }

/* Everything above the mark; removes the mark. *from stays valid until the next push. */
static cloob_status pop_to_mark(pk_machine *m, pk_value ***from, int64_t *count)
{
    *from = NULL;
    *count = 0;
    if (!m->marks) return pk_fail(m, "no mark");
    int64_t base = m->mark[--m->marks];
    *from = m->stack ? m->stack + base : NULL; /* nothing was ever pushed: no stack yet */
    *count = m->depth - base;
    m->depth = base;
    return CLOOB_OK;
}

static pk_value *gather_tuple(pk_machine *m, pk_value **from, int64_t count)
{
    pk_value *v = pk_new(m, PK_TUPLE);
    for (int64_t i = 0; v && i < count; i++)
        if (!pk_append(m, v, from[i])) return NULL;
    return v;
}

/* ---- arguments in the byte stream ---------------------------------------------------------------- */

static bool take(pk_machine *m, size_t n, const unsigned char **bytes)
{
    if ((size_t)(m->end - m->at) < n) return false;
    *bytes = m->at;
    m->at += n;
    return true;
}

/* Little-endian, up to 8 bytes. */
static bool take_uint(pk_machine *m, int n, uint64_t *out)
{
    const unsigned char *p = NULL;
    if (!take(m, (size_t)n, &p)) return false;
    *out = load_le(p, n);
    return true;
}

/* A count of n bytes, then that many. */
static cloob_status take_counted(pk_machine *m, int n, const unsigned char **bytes, size_t *count)
{
    uint64_t length;
    if (!take_uint(m, n, &length) || length > (uint64_t)(m->end - m->at) || !take(m, (size_t)length, bytes))
        return pk_fail(m, "cut short");
    *count = (size_t)length;
    return CLOOB_OK;
}

/* Up to the newline, which is taken and not counted. */
static cloob_status take_line(pk_machine *m, const char **line, size_t *bytes)
{
    const unsigned char *nl = memchr(m->at, '\n', (size_t)(m->end - m->at));
    if (!nl) return pk_fail(m, "line without an end");
    *line = (const char *)m->at;
    *bytes = (size_t)(nl - m->at);
    m->at = nl + 1;
    return CLOOB_OK;
}

/* ---- pushing ------------------------------------------------------------------------------------- */

static cloob_status push_text(pk_machine *m, pk_kind kind, const void *text, size_t bytes)
{
    pk_value *v = pk_new(m, kind);
    bool view = m->views && kind == PK_BYTES && bytes > 64;
    const char *own = !v ? NULL : view ? text : arena_string_n(m->a, text, bytes);
    if (!own) return pk_no_memory(m);
    v->text = own;
    v->integer = (int64_t)bytes;
    return push(m, v);
}

static cloob_status push_int(pk_machine *m, pk_kind kind, int64_t n)
{
    pk_value *v = pk_new(m, kind);
    if (v) v->integer = n;
    return push(m, v);
}

/* Two's complement, little-endian; what does not fit 64 bits is kept as bytes. */
static cloob_status push_long(pk_machine *m, const unsigned char *p, size_t n)
{
    if (n > 8) return push_text(m, PK_BYTES, p, n);
    uint64_t v = n && p[n - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = n; i-- > 0;) v = v << 8 | p[i];
    return push_int(m, PK_INT, (int64_t)v);
}

static cloob_status push_binary_float(pk_machine *m)
{
    uint64_t bits;
    pk_value *v = pk_new(m, PK_FLOAT);
    if (!take_uint(m, 8, &bits)) return pk_fail(m, "cut short");
    bits = __builtin_bswap64(bits); /* the one big-endian number of the format */
    if (v) memcpy(&v->real, &bits, sizeof v->real);
    return push(m, v);
}

static cloob_status push_binary_int(pk_machine *m, int bytes)
{
    uint64_t v;
    if (!take_uint(m, bytes, &v)) return pk_fail(m, "cut short");
    return push_int(m, PK_INT, bytes == 4 ? (int32_t)(uint32_t)v : (int64_t)v);
}

/* A text, bytes, or with PK_INT the bytes of a number. */
static cloob_status push_counted(pk_machine *m, pk_kind kind, int count_bytes)
{
    const unsigned char *p = NULL;
    size_t n = 0;
    CLOOB_TRY(take_counted(m, count_bytes, &p, &n));
    return kind == PK_INT ? push_long(m, p, n) : push_text(m, kind, p, n);
}

/* ---- memo ---------------------------------------------------------------------------------------- */

static cloob_status memo_put(pk_machine *m, uint64_t index)
{
    pk_value *v = top(m);
    if (!v) return pk_fail(m, "nothing to remember");
    if (index > (uint64_t)(m->end - m->begin)) return pk_fail(m, "memo index beyond all that could be remembered");
    while ((int64_t)index >= m->memo_capacity) {
        int64_t before = m->memo_capacity;
        if (!heap_grow(&m->memo, before, &m->memo_capacity, sizeof *m->memo)) return pk_no_memory(m);
        memset(m->memo + before, 0, (size_t)(m->memo_capacity - before) * sizeof *m->memo);
    }
    m->memo[index] = v;
    m->memo_count++;
    return CLOOB_OK;
}

static cloob_status memo_get(pk_machine *m, uint64_t index)
{
    if (index >= (uint64_t)m->memo_capacity || !m->memo[index]) return pk_fail(m, "nothing remembered there");
    return push(m, m->memo[index]);
}

static cloob_status memo_binary(pk_machine *m, int bytes, bool put)
{
    uint64_t index;
    if (!take_uint(m, bytes, &index)) return pk_fail(m, "cut short");
    return put ? memo_put(m, index) : memo_get(m, index);
}

/* ---- containers ---------------------------------------------------------------------------------- */

static cloob_status push_marked(pk_machine *m)
{
    pk_value **from;
    int64_t n;
    CLOOB_TRY(pop_to_mark(m, &from, &n));
    return push(m, gather_tuple(m, from, n));
}

static cloob_status push_tuple(pk_machine *m, int64_t n)
{
    if (above_mark(m) < n) return pk_fail(m, "stack too short for a tuple");
    m->depth -= n;
    return push(m, gather_tuple(m, m->stack + m->depth, n));
}

static cloob_status append_to_top(pk_machine *m, pk_kind kind, pk_value **from, int64_t n)
{
    pk_value *c = top(m);
    if (!c || c->kind != kind) return pk_fail(m, kind == PK_DICT ? "no dict to add to" : "no list to add to");
    if (kind == PK_DICT && n % 2) return pk_fail(m, "key without a value");
    for (int64_t i = 0; i < n; i++)
        if (!pk_append(m, c, from[i])) return pk_no_memory(m);
    return CLOOB_OK;
}

static cloob_status append_marked(pk_machine *m, pk_kind kind)
{
    pk_value **from;
    int64_t n;
    CLOOB_TRY(pop_to_mark(m, &from, &n));
    return append_to_top(m, kind, from, n);
}

static cloob_status append_some(pk_machine *m, pk_kind kind, int64_t n)
{
    if (above_mark(m) < n + 1) return pk_fail(m, "stack too short");
    m->depth -= n;
    return append_to_top(m, kind, m->stack + m->depth, n);
}

static cloob_status push_mark(pk_machine *m)
{
    if (!heap_grow(&m->mark, m->marks, &m->mark_capacity, sizeof *m->mark)) return pk_no_memory(m);
    m->mark[m->marks++] = m->depth;
    return CLOOB_OK;
}

/* ---- names and calls ----------------------------------------------------------------------------- */

static cloob_status op_global(pk_machine *m)
{
    const char *module = NULL, *name = NULL;
    size_t module_bytes = 0, name_bytes = 0;
    pk_value *v;
    CLOOB_TRY(take_line(m, &module, &module_bytes));
    CLOOB_TRY(take_line(m, &name, &name_bytes));
    CLOOB_TRY(pk_global(m, module, module_bytes, name, name_bytes, &v));
    return push(m, v);
}

static cloob_status op_stack_global(pk_machine *m)
{
    pk_value *name = pop(m), *module = pop(m), *v;
    if (!name || !module || name->kind != PK_STRING || module->kind != PK_STRING)
        return pk_fail(m, "a name that is no text");
    CLOOB_TRY(pk_global(m, module->text, (size_t)module->integer, name->text, (size_t)name->integer, &v));
    return push(m, v);
}

static cloob_status op_reduce(pk_machine *m)
{
    pk_value *args = pop(m), *callee = pop(m), *v;
    if (!args || !callee || args->kind != PK_TUPLE) return pk_fail(m, "a call without its arguments");
    CLOOB_TRY(pk_call(m, callee, args, &v));
    return push(m, v);
}

static cloob_status op_newobj_ex(pk_machine *m)
{
    pk_value *named = pop(m);
    if (!named || named->kind != PK_DICT || named->count) return pk_fail(m, "a constructor with named arguments");
    return op_reduce(m);
}

static cloob_status op_build(pk_machine *m)
{
    pk_value *state = pop(m), *obj = top(m);
    if (!state || !obj) return pk_fail(m, "a state without its object");
    return pk_build(m, obj, state);
}

static cloob_status op_persistent(pk_machine *m)
{
    pk_value *id = pop(m), *v;
    if (!id) return pk_fail(m, "nothing on the stack");
    CLOOB_TRY(pk_persistent(m, id, &v));
    return push(m, v);
}

/* ---- dispatch ------------------------------------------------------------------------------------ */

static cloob_status op_protocol(pk_machine *m)
{
    uint64_t v;
    if (!take_uint(m, 1, &v)) return pk_fail(m, "cut short");
    return v <= 5 ? CLOOB_OK : pk_fail(m, "protocol above 5");
}

static cloob_status op_frame(pk_machine *m)
{
    uint64_t bytes; /* frames only help readers of streams; the whole pickle is in memory */
    return take_uint(m, 8, &bytes) ? CLOOB_OK : pk_fail(m, "cut short");
}

static cloob_status step(pk_machine *m, unsigned char op)
{
    switch (op) {
    /* numbers and texts */
    case 'N': return push(m, pk_new(m, PK_NONE));
    case 0x88: return push_int(m, PK_BOOL, 1);
    case 0x89: return push_int(m, PK_BOOL, 0);
    case 'J': return push_binary_int(m, 4);
    case 'K': return push_binary_int(m, 1);
    case 'M': return push_binary_int(m, 2);
    case 0x8a: return push_counted(m, PK_INT, 1);
    case 0x8b: return push_counted(m, PK_INT, 4);
    case 'G': return push_binary_float(m);
    case 'T':
    case 'X': return push_counted(m, PK_STRING, 4);
    case 'U':
    case 0x8c: return push_counted(m, PK_STRING, 1);
    case 0x8d: return push_counted(m, PK_STRING, 8);
    case 'B': return push_counted(m, PK_BYTES, 4);
    case 'C': return push_counted(m, PK_BYTES, 1);
    case 0x8e:
    case 0x96: return push_counted(m, PK_BYTES, 8);
    /* the stack and containers */
    case '(': return push_mark(m);
    case ']': return push(m, pk_new(m, PK_LIST));
    case '}': return push(m, pk_new(m, PK_DICT));
    case ')':
    case 0x8f: return push(m, pk_new(m, PK_TUPLE));
    case 't':
    case 0x91: return push_marked(m);
    case 0x85:
    case 0x86:
    case 0x87: return push_tuple(m, op - 0x84);
    case 'a': return append_some(m, PK_LIST, 1);
    case 'e': return append_marked(m, PK_LIST);
    case 0x90: return append_marked(m, PK_TUPLE);
    case 's': return append_some(m, PK_DICT, 2);
    case 'u': return append_marked(m, PK_DICT);
    /* the memo, names and calls */
    case 0x80: return op_protocol(m);
    case 0x95: return op_frame(m);
    case 'q': return memo_binary(m, 1, true);
    case 'r': return memo_binary(m, 4, true);
    case 0x94: return memo_put(m, (uint64_t)m->memo_count);
    case 'h': return memo_binary(m, 1, false);
    case 'j': return memo_binary(m, 4, false);
    case 'c': return op_global(m);
    case 0x93: return op_stack_global(m);
    case 'R':
    case 0x81: return op_reduce(m);
    case 0x92: return op_newobj_ex(m);
    case 'b': return op_build(m);
    case 'Q': return op_persistent(m);
    default: return pk_fail(m, "not an instruction that files of weights have");
    }
}

static cloob_status run(pk_machine *m, pk_value **root)
{
    while (m->at < m->end) {
        unsigned char op = *m->at++;
        if (op != '.') {
            CLOOB_TRY(step(m, op));
            continue;
        }
        if (m->depth != 1 || m->marks) return pk_fail(m, "it ends with something else than one value");
        *root = m->stack[0];
        return CLOOB_OK;
    }
    return pk_fail(m, "cut short");
}

cloob_status pickle_read(cloob_ctx *ctx, arena *a, const unsigned char *data, size_t size, const char *name, bool views,
                         pk_result *out)
{
    pk_machine m = { .ctx = ctx, .a = a, .name = name, .begin = data, .at = data, .views = views };
    m.end = data + (size < PICKLE_LIMIT || views ? size : PICKLE_LIMIT);
    *out = (pk_result){ 0 };
    cloob_status status = size ? run(&m, &out->root) : pk_fail(&m, "empty");
    out->used = (size_t)(m.at - m.begin);
    out->storages = m.storages;
    free(m.stack);
    free(m.memo);
    free(m.mark);
    return status;
}

/* ---- queries ------------------------------------------------------------------------------------- */

const char *pk_text(const pk_value *v)
{
    return v && v->kind == PK_STRING && strlen(v->text) == (size_t)v->integer ? v->text : NULL;
}

const pk_value *pk_get(const pk_value *dict, const char *key)
{
    if (!dict || dict->kind != PK_DICT) return NULL;
    for (int64_t i = dict->count; i-- > 0;) {
        const char *k = pk_text(dict->item[2 * i]);
        if (k && strcmp(k, key) == 0) return dict->item[2 * i + 1];
    }
    return NULL;
}

bool pk_int(const pk_value *v, int64_t *out)
{
    if (!v || (v->kind != PK_INT && v->kind != PK_BOOL)) return false;
    *out = v->integer;
    return true;
}
