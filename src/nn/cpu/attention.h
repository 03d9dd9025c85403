/* What the attention kernels share: a softmax, and matrices inside a tensor of either element type as floats. */
#ifndef NN_CPU_ATTENTION_H
#define NN_CPU_ATTENTION_H

#include <string.h>

#include "nn/cpu/cpu.h"
#include "tensor/cpu/gemm.h"

/* Rows of scores become probabilities; the keys beyond `keys` get 0. Returns the log-sum-exp. */
float softmax_row(float *s, int64_t keys, int64_t T);

/* Packed rows behind the last sequence: 0. */
void zero_dead(const op_sequences *s, const tensor *x);

typedef struct floats {
    float *at;
    int64_t ld;
} floats;

/* One head of inference: y = softmax(scale q k^T) v, over the keys up to a query's own when causal. */
typedef struct attention_head {
    const void *q, *k, *v; /* (T, e) each, rows ld elements apart: floats or bf16 */
    floats y;              /* (T, e), overwritten */
    int64_t ld, T, e;
    bool bf16;
    bool causal;
    float scale;
    float *lse;  /* (T) log-sum-exp of the scores, or NULL */
    float *room; /* attention_head_room(T or more, e, bf16) floats, 64-aligned */
} attention_head;

int64_t attention_head_room(int64_t T, int64_t e, bool bf16); /* a multiple of 16 */
void attention_head_run(const attention_head *h);

/* rows x cols of t from element `first` on, rows ld apart: F32 in place, bf16 as a copy taken from *room, which moves
 * on. */
floats floats_in(const tensor *t, int64_t first, int64_t ld, int64_t rows, int64_t cols, float **room);
/* The same for a matrix that will be written: nothing is read. */
floats floats_place(const tensor *t, int64_t first, int64_t ld, int64_t rows, int64_t cols, float **room);
/* Rounds a written bf16 matrix into its tensor; F32 is there already. */
void floats_out(const tensor *t, int64_t first, int64_t ld, int64_t rows, int64_t cols, floats f);

#endif
