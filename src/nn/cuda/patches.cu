/* Windows of images copied out as rows of a matrix. */
#include "nn/cuda/common.cuh"

/* Each row of a window is K c neighbours where c is all channels: then in packs, which 32-bit numbers index. */
extern "C" cloob_status patches_cuda(const op_env *env, void *out, const tensor *in, int64_t K, int64_t c)
{
    int64_t H = in->dim[1], W = in->dim[2], C = in->dim[3], Ho = H / K, Wo = W / K;
    int64_t n = in->dim[0] * Ho * Wo * K * K * c;
    int width = pack_width(in->dtype, K * c);
    if (c == C && width > 1 && W * C % width == 0 && n / width < (int64_t)1 << 31)
        WITH_PACK(in->dtype, K * c, {
            T *to = (T *)out;
            const T *x = data_of<T>(in);
            unsigned packs = (unsigned)(K * c / V), k = (unsigned)K, across = (unsigned)Wo, down = (unsigned)Ho;
            return for_each(env, "conv2d", n / V, [=] __device__(int64_t i) {
                unsigned at = (unsigned)i, p = at % packs, line = at / packs, u = line % k, r = line / k,
                         j = r % across, q = r / across, h = q % down, b = q / down;
                const T *from = x + (((int64_t)b * H + h * k + u) * W + (int64_t)j * k) * C;
                store<T, V>(to + (int64_t)at * V, load<T, V>(from + p * V));
            });
        });
    WITH_TYPE(in->dtype, {
        T *to = (T *)out;
        const T *x = data_of<T>(in);
        return for_each(env, "conv2d", n, [=] __device__(int64_t at) {
            int64_t k = at % c, v = at / c % K, u = at / c / K % K, r = at / c / K / K;
            int64_t j = r % Wo, i = r / Wo % Ho, b = r / Wo / Ho;
            to[at] = x[((b * H + i * K + u) * W + j * K + v) * C + k];
        });
    });
}
