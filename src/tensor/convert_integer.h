/* convert_integer.h: the element functions of an integer dtype of at most 32 bits, from its range alone.
 * A template, included by convert.c with the macros of convert_loops.h and CONVERT_MIN, CONVERT_MAX set; it
 * ends by including that one. */

#define NAME_PASTE(dtype, suffix) dtype##_##suffix
#define NAME_EXPAND(dtype, suffix) NAME_PASTE(dtype, suffix)
#define NAME(suffix) NAME_EXPAND(CONVERT_DTYPE, suffix)

static inline float NAME(to_f32)(CONVERT_STORED value) { return (float)value; }

static inline double NAME(to_f64)(CONVERT_STORED value) { return (double)value; }

static inline int64_t NAME(to_i64)(CONVERT_STORED value) { return value; }

static inline CONVERT_STORED NAME(from_f64)(double value) {
    return (CONVERT_STORED)clamp_f64(value, CONVERT_MIN, CONVERT_MAX);
}

static inline CONVERT_STORED NAME(from_f32)(float value) { return NAME(from_f64)((double)value); }

static inline CONVERT_STORED NAME(from_i64)(int64_t value) { return (CONVERT_STORED)value; }

#undef NAME
#undef NAME_EXPAND
#undef NAME_PASTE

#include "tensor/convert_loops.h"
#undef CONVERT_MIN
#undef CONVERT_MAX
