/* Which kernels compute a group's members. */
#include "nn/group.h"

typedef struct claims {
    op_group of[GROUP_MEMBERS];
    unsigned covers[GROUP_MEMBERS]; /* bit i: member i */
    int count;
} claims;

bool group_reads(const op_args *a, const tensor *t)
{
    for (int k = 0; k < OP_INPUTS; k++)
        if (op_has(&a->in[k]) && a->in[k].data == t->data && !op_lends_shape(a->op, k)) return true;
    return false;
}

/* The members that a pattern names, found from the last to the first; 0: one is missing. */
static unsigned match(const group_kernel *k, const op_args *member, int members)
{
    unsigned found = 0;
    for (int p = k->length - 1, before = members; p >= 0; p--) {
        bool optional = k->pattern[p] < 0;
        op_id op = (op_id)(optional ? GROUP_MAYBE(k->pattern[p]) : k->pattern[p]);
        int i = before - 1;
        while (i >= 0 && member[i].op != op) i--;
        if (i >= 0) found |= 1u << i, before = i;
        else if (!optional) return 0;
    }
    return found;
}

static void cover(op_group *g, op_args *member, int members, unsigned covers, const unsigned *read_outside)
{
    for (int i = 0; i < members; i++) {
        if (!(covers & 1u << i)) continue;
        unsigned inner = 0, outer = read_outside[i];
        for (int k = 0; k < OP_OUTPUTS; k++)
            for (int j = 0; j < members && op_has(&member[i].out[k]); j++)
                if (group_reads(&member[j], &member[i].out[k])) *(covers & 1u << j ? &inner : &outer) |= 1u << k;
        g->inner[g->members] = inner & ~outer;
        g->member[g->members++] = &member[i];
    }
}

/* Of these members as claimed so far. */
static float time_of(const claims *c, const group_table *t, const op_args *member, int members, unsigned covers)
{
    float ms = 0;
    for (int i = 0; i < c->count; i++)
        if (c->covers[i] & covers) ms += c->of[i].ms, covers &= ~c->covers[i];
    for (int i = 0; i < members; i++)
        if (covers & 1u << i) ms += t->ms(&member[i]);
    return ms;
}

/* A claim is replaced whole or not at all. */
static bool overlaps(const claims *c, unsigned covers)
{
    for (int i = 0; i < c->count; i++)
        if (c->covers[i] & covers && c->covers[i] & ~covers) return true;
    return false;
}

static void drop(const op_env *env, claims *c, unsigned covers)
{
    int kept = 0;
    for (int i = 0; i < c->count; i++) {
        if (!(c->covers[i] & covers)) {
            c->of[kept] = c->of[i], c->covers[kept++] = c->covers[i];
            continue;
        }
        if (c->of[i].kernel->release) c->of[i].kernel->release(env, &c->of[i]);
    }
    c->count = kept;
}

static cloob_status ask(const op_env *env, const group_table *t, const group_kernel *k, op_args *member, int members,
                        const unsigned *read_outside, claims *c)
{
    unsigned covers = match(k, member, members);
    bool claimed = false;
    op_group g = { .kernel = k };
    if (!covers || overlaps(c, covers)) return CLOOB_OK;
    cover(&g, member, members, covers, read_outside);
    g.ms = time_of(c, t, member, members, covers);
    cloob_status status = k->prepare(env, &g, &claimed);
    if (status != CLOOB_OK || !claimed) {
        if (k->release) k->release(env, &g);
        return status;
    }
    drop(env, c, covers);
    c->of[c->count] = g;
    c->covers[c->count++] = covers;
    return CLOOB_OK;
}

const group_table *group_table_of(backend_kind b)
{
    static const group_table none = { 0 };
    return b == BACKEND_CUDA ? &group_kernels_cuda : &none;
}

static void mark_operands(op_args *a, const void *data, void *mark)
{
    for (int k = 0; k < OP_INPUTS; k++)
        if (op_has(&a->in[k]) && a->in[k].data == data) a->in[k].data = mark;
    for (int k = 0; k < OP_OUTPUTS; k++)
        if (op_has(&a->out[k]) && a->out[k].data == data) a->out[k].data = mark;
}

void group_mark_inner(op_group *g, void *mark)
{
    for (int i = 0; i < g->members * OP_OUTPUTS; i++) {
        const tensor inner = g->member[i / OP_OUTPUTS]->out[i % OP_OUTPUTS];
        if (!(g->inner[i / OP_OUTPUTS] & 1u << i % OP_OUTPUTS)) continue;
        for (int k = 0; k < g->members; k++) mark_operands(g->member[k], inner.data, mark);
    }
}

cloob_status group_plan(const op_env *env, const group_table *t, op_args *member, int members,
                        const unsigned *read_outside, op_group part[GROUP_MEMBERS], int *parts)
{
    claims c = { .count = 0 };
    unsigned placed = 0;
    *parts = 0;
    for (int i = 0; i < t->count; i++) {
        cloob_status status = ask(env, t, &t->kernel[i], member, members, read_outside, &c);
        if (status == CLOOB_OK) continue;
        drop(env, &c, ~0u);
        return status;
    }
    for (int i = 0; i < members; i++) {
        if (placed & 1u << i) continue;
        op_group g = { .member = { &member[i] }, .members = 1 };
        unsigned covers = 1u << i;
        for (int k = 0; k < c.count; k++)
            if (c.covers[k] & covers) g = c.of[k], covers = c.covers[k];
        part[(*parts)++] = g;
        placed |= covers;
    }
    return CLOOB_OK;
}
