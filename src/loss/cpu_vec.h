/* Loops over one row of scores, compiled for several instruction sets and chosen at start. */
#ifndef LOSS_CPU_VEC_H
#define LOSS_CPU_VEC_H

#include <stdint.h>

/* x[i] = factor exp(x[i] - shift) */
void vec_exp(float *x, int64_t n, float shift, float factor);
/* e[i] = exp(factor s[i] - shift), the argument in double */
void vec_exp_wide(float *e, const double *s, int64_t n, double factor, double shift);
/* e[i] = factor s[i] + bias[i] - shift, in double until it is rounded */
void vec_narrow(float *e, const double *s, const double *bias, int64_t n, double factor, double shift);
void vec_add(float *e, const double *bias, int64_t n); /* e[i] += bias[i] */
/* t[i] *= factor e[i] */
void vec_scale_by(float *t, const float *e, int64_t n, float factor);
float vec_max(const float *x, int64_t n);                   /* -infinity for n = 0 */
double vec_sum_exp(const float *x, int64_t n, float shift); /* sum exp(x[i] - shift) */
double vec_dot(const float *a, const float *b, int64_t n);  /* products and sums in double */
void vec_widen(float *to, const uint16_t *from, int64_t n); /* bf16 to f32 */

#endif
