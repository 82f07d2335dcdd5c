/* attention_tiles_f32.cu: attention in f32 on tensor cores. Their operands have 11 of the 24 bits, so each is split in
 * two, and three products make one (attention_tile.cuh); they are faster by more than that.
 */
#include "device/cuda/ops/attention_tiles.cuh"

/* By the head size, rounded up. */
template <bool BACKWARD> static bool launch_sized(const tl_kernel_args *args, const attention_call &a, int64_t D) {
    if (D <= 24) return launch<float, BACKWARD, 24>(args, a);
    if (D <= 32) return launch<float, BACKWARD, 32>(args, a);
    if (D <= 40) return launch<float, BACKWARD, 40>(args, a);
    if (D <= 64) return launch<float, BACKWARD, 64>(args, a);
    if (D <= 96) return launch<float, BACKWARD, 96>(args, a);
    if (D <= 128) return launch<float, BACKWARD, 128>(args, a);
    if (D <= 192) return launch<float, BACKWARD, 192>(args, a);
    return launch<float, BACKWARD, 256>(args, a);
}

/* Lengths and strides of rows in units of 16 bits. */
static attention_call in_units(const attention_call &a) {
    attention_call call = a;
    attention_rows *const rows[] = {&call.q, &call.k, &call.v, &call.out, &call.g, &call.dq, &call.dk, &call.dv};
    for (attention_rows *r : rows) r->stride_b *= 2, r->stride_t *= 2, r->stride_h *= 2;
    call.D *= 2;
    return call;
}

/* Fewer queries than this are less than a warp's rows. */
enum { FEW = 17 };

extern "C" {

/* Otherwise, as where the device has too little shared memory, by fused multiply-adds. */
bool attention_tiles_forward_f32(const tl_kernel_args *args, const attention_call *call) {
    return (call->T >= FEW && launch_sized<false>(args, in_units(*call), call->D)) || attention_fma_forward(args, call);
}
bool attention_tiles_backward_f32(const tl_kernel_args *args, const attention_call *call) {
    return launch_sized<true>(args, in_units(*call), call->D) || attention_fma_backward(args, call);
}

} /* extern "C" */
