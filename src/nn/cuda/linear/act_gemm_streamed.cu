/* The MLP's GEMM with both factors streamed (act_gemm.h): not there yet. */
#include "nn/cuda/linear/act_gemm.h"

extern "C" {

int act_gemm_streamed_parts(const act_gemm *, int, int) { return 0; }
int act_gemm_streamed_run(void *, const act_gemm *, int, int) { return 801; }

} // extern "C"
