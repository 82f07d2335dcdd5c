/* dtype.h: what each element type is. One row per dtype; everything else asks the row. */
#ifndef TALLY_TENSOR_DTYPE_H
#define TALLY_TENSOR_DTYPE_H

#include "tally.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype_kind { DTYPE_FLOAT, DTYPE_SIGNED, DTYPE_UNSIGNED, DTYPE_BOOL, DTYPE_COMPLEX };

struct dtype_info {
    const char *name;             /* ours: "f32" */
    const char *scalar_name;      /* torch's in messages: "Float" */
    const char *torch_name;       /* "float32"; f4's is torch's name of a byte that holds two */
    const char *safetensors_name; /* "F32"; NULL: the format has none */
    const char *numpy_name;       /* "float32"; for the floats NumPy lacks, the name ml_dtypes registers */
    int bits;                     /* per element: 4 for f4, so two share a byte */
    enum dtype_kind kind;
    bool is_storage_only;      /* may be cast, copied and stored, not computed with */
    int exponent_bits;         /* floats only, as are the next six */
    int mantissa_bits;         /* without the implicit one */
    double max;                /* largest finite value */
    double min;                /* lowest finite value: -max, except for the unsigned f8e8m0 */
    double eps;                /* distance from 1 to the next larger value */
    double tiny;               /* smallest positive normal value */
    double smallest_subnormal; /* smallest positive value; equals tiny where there are no subnormals */
    int64_t integer_min;       /* integers and bool only */
    int64_t integer_max;
    int dlpack_code; /* DLDataTypeCode of DLPack 1.1 */
    int dlpack_bits;
};

extern const struct dtype_info dtype_table[TL_DTYPE_COUNT];

/* The row of a dtype. NULL for TL_DTYPE_COUNT and anything else that is no dtype. */
static inline const struct dtype_info *dtype_info(tl_dtype dtype) {
    return (unsigned)dtype < TL_DTYPE_COUNT ? &dtype_table[dtype] : NULL;
}

static inline bool dtype_is_float(tl_dtype dtype) {
    return (unsigned)dtype < TL_DTYPE_COUNT && dtype_table[dtype].kind == DTYPE_FLOAT;
}

static inline bool dtype_is_complex(tl_dtype dtype) { return dtype == TL_C64 || dtype == TL_C128; }
/* Gradients flow through numbers that can change by a little. */
static inline bool dtype_has_gradient(tl_dtype dtype) { return dtype_is_float(dtype) || dtype_is_complex(dtype); }

/* Of a complex dtype, that of its two parts; any other is itself. */
static inline tl_dtype dtype_part(tl_dtype dtype) {
    return dtype == TL_C64 ? TL_F32 : dtype == TL_C128 ? TL_F64 : dtype;
}
/* The complex dtype whose parts hold this real one's values as arithmetic does: c128 for f64, else c64. A complex one
 * is itself. */
static inline tl_dtype dtype_complex(tl_dtype dtype) {
    return dtype_is_complex(dtype) ? dtype : dtype == TL_F64 ? TL_C128 : TL_C64;
}

/* The dtype with this name, ours ("f32") or torch's ("float32"); TL_DTYPE_COUNT when there is none. */
tl_dtype dtype_from_name(const char *name);

/* Bytes that `numel` elements take, rounded up to whole bytes. False, and *bytes untouched, when the number
 * is negative or does not fit. */
bool dtype_bytes(tl_dtype dtype, int64_t numel, uint64_t *bytes);

/* torch.promote_types. TL_DTYPE_COUNT where torch refuses: an 8- or 4-bit float with anything but itself, and
 * u16 with another integer or bool. */
tl_dtype dtype_promote(tl_dtype a, tl_dtype b);

/* The type whose values hold all of this dtype's exactly and in which kernels compute: f64 for f64, f32 for
 * the other floats, i64 for integers and bool, a complex dtype for itself. */
tl_dtype dtype_compute(tl_dtype dtype);

/* The type sums are kept in. Floats as they compute (f64 in f64, all others in f32);
 * integers and bool in i64. */
tl_dtype dtype_accumulate(tl_dtype dtype);

#endif
