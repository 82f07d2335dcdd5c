/* dynamic.c: item, the value that goes to the host. It waits for the device. */
#include "device/cuda/shared/kernels.h"
#include "device/cuda/shared/state.h"
#include "spec/attr.h"
#include "tensor/convert_round.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Five bits of exponent, ten of mantissa. */
static double f16_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                        : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                       : ldexp(mantissa, -24);
    return bits >> 15 ? -size : size;
}

union element {
    double f64;
    uint32_t u32;
    uint16_t u16;
    uint8_t u8;
    int64_t i64;
    int32_t i32;
    int16_t i16;
    int8_t i8;
};

/* The value both ways; false for f4, of which there is no single element. */
static bool element_value(union element x, tl_dtype dtype, double *f64, int64_t *i64) {
    bool is_float = true;
    switch (dtype) {
    case TL_F64:
        *f64 = x.f64;
        break;
    case TL_F32:
        *f64 = (double)f32_of_bits(x.u32);
        break;
    case TL_BF16:
        *f64 = (double)f32_of_bits((uint32_t)x.u16 << 16);
        break;
    case TL_F16:
        *f64 = f16_value(x.u16);
        break;
    case TL_F8E4M3:
        *f64 = (double)decode(f8e4m3_format(), x.u8);
        break;
    case TL_F8E5M2:
        *f64 = (double)decode(f8e5m2_format(), x.u8);
        break;
    case TL_F8E8M0:
        *f64 = (double)f8e8m0_to_f32(x.u8);
        break;
    case TL_I64:
        *i64 = x.i64;
        is_float = false;
        break;
    case TL_I32:
        *i64 = x.i32;
        is_float = false;
        break;
    case TL_I16:
        *i64 = x.i16;
        is_float = false;
        break;
    case TL_U16:
        *i64 = x.u16;
        is_float = false;
        break;
    case TL_I8:
        *i64 = x.i8;
        is_float = false;
        break;
    case TL_U8:
        *i64 = x.u8;
        is_float = false;
        break;
    case TL_BOOL:
        *i64 = x.u8 != 0;
        is_float = false;
        break;
    default:
        return false;
    }
    if (is_float) *i64 = truncate_i64(*f64);
    else *f64 = (double)*i64;
    return true;
}

bool cuda_item(const tl_kernel_args *args) {
    const struct attr_item *attr = args->attr;
    const tl_operand *x = &args->in[0];
    union element element = {0};
    double f64 = 0;
    int64_t i64 = 0;
    cudaStream_t stream = args->stream;
    if (!cuda_check(cudaMemcpyAsync(&element, x->data, (size_t)dtype_bytes(x->dtype), cudaMemcpyDeviceToHost, stream),
                    "item", args->error) ||
        !cuda_check(cudaStreamSynchronize(stream), "item", args->error) ||
        !cuda_fault_report(cuda_state_of(args->stream), args->error))
        return false;
    if (!element_value(element, x->dtype, &f64, &i64)) return cuda_refuse_dtype(args, x->dtype);
    if (attr->f64) *attr->f64 = f64;
    if (attr->i64) *attr->i64 = i64;
    return true;
}
