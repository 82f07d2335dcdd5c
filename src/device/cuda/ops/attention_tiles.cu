/* attention_tiles.cu: attention on tensor cores, for every call of 16 bits that neither cuDNN nor the kernels for
 * Hopper (attention_hopper*.cu) take, and of f32: masks, soft caps, dropout, first keys, windows, fewer queries than
 * keys, heads of any size up to 256, rows that are not aligned.
 */
#include "device/cuda/ops/attention_tiles.cuh"

/* By the head size, rounded up. */
template <class T, bool BACKWARD> static bool launch_sized(const tl_kernel_args *args, const attention_call &a) {
    if (a.D <= 32) return launch<T, BACKWARD, 32>(args, a);
    if (a.D <= 64) return launch<T, BACKWARD, 64>(args, a);
    if (a.D <= 96) return launch<T, BACKWARD, 96>(args, a);
    if (a.D <= 128) return launch<T, BACKWARD, 128>(args, a);
    if (a.D <= 192) return launch<T, BACKWARD, 192>(args, a);
    return launch<T, BACKWARD, 256>(args, a);
}

extern "C" {

bool attention_tiles_fit(const attention_call *a, int capability) {
    const bool is_empty = a->B == 0 || a->T == 0 || a->S == 0 || a->H == 0 || a->D == 0;
    const bool fits_dtype = a->dtype == TL_BF16 || a->dtype == TL_F16 || a->dtype == TL_F32;
    const bool fits_mask = !a->mask || a->mask_dtype == TL_BOOL || a->mask_dtype == TL_BF16 ||
                           a->mask_dtype == TL_F16 || a->mask_dtype == TL_F32;
    if (capability < 80 || !fits_dtype || is_empty || a->D > WIDEST || !fits_mask) return false;
    if (a->dtype == TL_F32 && !attention_fma_fits(a)) return false; /* which do what is too small or too large */
    if (a->mask && a->soft_cap > 0) return false; /* a score behind a mask no longer tells the slope of its cap */
    const int64_t n = tiles_of(a->T > a->S ? a->T : a->S);
    const bool fits_int = a->T < INT32_MAX - 2 * TILE && a->S < INT32_MAX - 2 * TILE;
    /* tiles of one key head's queries are counted in an int */
    return fits_int && a->B * a->H <= INT32_MAX / n && a->H / a->H_kv <= INT32_MAX / (4 * n);
}

bool attention_tiles_forward(const tl_kernel_args *args, const attention_call *call) {
    if (call->dtype == TL_F32) return attention_tiles_forward_f32(args, call);
    return call->dtype == TL_BF16 ? launch_sized<bf16, false>(args, *call) : launch_sized<f16, false>(args, *call);
}

bool attention_tiles_backward(const tl_kernel_args *args, const attention_call *call) {
    if (call->dtype == TL_F32) return attention_tiles_backward_f32(args, call);
    return call->dtype == TL_BF16 ? launch_sized<bf16, true>(args, *call) : launch_sized<f16, true>(args, *call);
}

} /* extern "C" */
