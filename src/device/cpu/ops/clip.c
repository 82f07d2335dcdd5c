/* clip.c: sums of squares over many tensors, and the factor that clips them. */
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "spec/attr.h"

#include <math.h>

struct squares {
    struct iterate walk;
    tl_dtype dtype;
    double *sums; /* one per chunk */
};

#define REAL float
#define REAL_DTYPE TL_F32
#define NAME(name) name##_f32
#include "device/cpu/ops/clip_template.h"

#define REAL double
#define REAL_DTYPE TL_F64
#define NAME(name) name##_f64
#include "device/cpu/ops/clip_template.h"

bool cpu_sum_squares(const tl_kernel_args *args) {
    const struct attr_sum_squares *attr = args->attr;
    double total = attr->has_start ? convert_get_f64(args->in[0].data, attr->dtype, 0) : 0;
    double *sums = args->workspace;
    for (int i = attr->has_start; i < args->n_in; i++) {
        const tl_operand *x = &args->in[i];
        struct squares s = {.dtype = x->dtype, .sums = sums};
        iterate_begin(&s.walk, x->rank, x->shape, &x, 1, ITERATE_ROW_MAJOR);
        const int64_t n_chunks = (s.walk.n + REDUCE_CHUNK - 1) / REDUCE_CHUNK;
        parallel_for(n_chunks, parallel_grain(REDUCE_CHUNK), args->n_threads,
                     attr->dtype == TL_F64 ? squares_f64 : squares_f32, &s);
        for (int64_t k = 0; k < n_chunks; k++) total += sums[k];
        sums += n_chunks;
    }
    convert_set_f64(args->out[0].data, attr->dtype, 0, total);
    return true;
}

bool cpu_clip_scale(const tl_kernel_args *args) {
    const struct attr_clip_scale *attr = args->attr;
    const double norm = convert_get_f64(args->in[0].data, args->in[0].dtype, 0);
    const double ratio = attr->max_norm / (norm / attr->divisor + 1e-6);
    *(float *)args->out[0].data = isfinite(norm) ? (float)((ratio < 1 ? ratio : 1) / attr->divisor) : NAN;
    return true;
}
