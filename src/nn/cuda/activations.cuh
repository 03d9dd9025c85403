/* Activations and their backward rules, one element at a time. */
#ifndef NN_CUDA_ACTIVATIONS_CUH
#define NN_CUDA_ACTIVATIONS_CUH

#include "nn/cuda/common.cuh"

/* Uses the hardware's exponential and division: wrong by a few units in F32's last place, and fast enough that memory
 * limits the pass. */
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

struct quickgelu_fn {
    __device__ float operator()(float x, float) const { return x * sigmoid(1.702f * x); }
};
struct quickgelu_bwd_fn {
    __device__ float operator()(float dy, float x) const
    {
        float s = sigmoid(1.702f * x);
        return dy * (s + 1.702f * x * s * (1.0f - s));
    }
};
struct gelu_fn {
    __device__ float operator()(float x, float) const { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
};
struct gelu_bwd_fn {
    __device__ float operator()(float dy, float x) const
    {
        return dy * (0.5f * (1.0f + erff(x * 0.70710678f)) + x * expf(-0.5f * x * x) * 0.39894228f);
    }
};
struct gelu_tanh_fn {
    __device__ float operator()(float x, float) const { return x * sigmoid(1.59576912f * (x + 0.044715f * x * x * x)); }
};
struct gelu_tanh_bwd_fn {
    __device__ float operator()(float dy, float x) const
    {
        float s = sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
        return dy * (s + x * s * (1.0f - s) * 1.59576912f * (1.0f + 0.134145f * x * x));
    }
};

#endif
