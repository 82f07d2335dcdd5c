/* create.c: tensors out of nothing: full, arange, random. Outputs are dense; threads take flat ranges of them.
 *
 * An element of a random tensor depends on (seed, stream, index) alone (base/rng_math.h), so ranges may be cut
 * anywhere. f64 outputs are drawn in f64; every other float is drawn in f32 and rounded once to its dtype. Scaling
 * uses fma, so that each device rounds alike.
 */
#include "base/rng.h"
#include "device/cpu/ops/copy.h"
#include "device/cpu/ops/create.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <math.h>

enum { CHUNK = 512 };

struct task {
    char *out;
    tl_dtype dtype;
    int64_t element_bytes;
    const void *attr;
    /* Writes elements first .. first+n-1; n is at most CHUNK. */
    void (*make)(const struct task *task, char *to, int64_t first, int64_t n);
};

static void make_range(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    for (int64_t i = first; i < last; i += CHUNK)
        task->make(task, task->out + i * task->element_bytes, i, last - i < CHUNK ? last - i : CHUNK);
}

static bool run(const tl_kernel_args *args, void (*make)(const struct task *, char *, int64_t, int64_t)) {
    const tl_operand *out = &args->out[0];
    struct task task = {out->data, out->dtype, iterate_element_bytes(out->dtype), args->attr, make};
    parallel_for(iterate_numel(out), parallel_grain(4), args->n_threads, make_range, &task);
    return true;
}

bool cpu_full(const tl_kernel_args *args) {
    const struct attr_full *attr = args->attr;
    copy_fill(&args->out[0], attr->value, args->n_threads);
    return true;
}

/* ---- arange --------------------------------------------------------------------------------------------- */

/* Positions are doubles, which are exact up to 2^53: converting a 64-bit integer takes as long as everything else. */
static void arange_f32(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    const struct attr_arange *attr = task->attr;
    const double start = attr->start, step = attr->step;
    float *out = (float *)(void *)task->out;
    double place[CHUNK];
    for (int k = 0; k < CHUNK; k++) place[k] = k;
    for (int64_t i = first; i < last; i += CHUNK) {
        const int64_t n = last - i < CHUNK ? last - i : CHUNK;
        const double at = (double)i;
        VECTOR_LOOP
        for (int64_t k = 0; k < n; k++) out[i + k] = (float)(start + (at + place[k]) * step);
    }
}

static void make_arange_float(const struct task *task, char *to, int64_t first, int64_t n) {
    const struct attr_arange *attr = task->attr;
    double values[CHUNK];
    for (int64_t i = 0; i < n; i++) values[i] = attr->start + (double)(first + i) * attr->step;
    convert_from_f64(to, task->dtype, 1, values, n);
}

static void make_arange_integer(const struct task *task, char *to, int64_t first, int64_t n) {
    const struct attr_arange *attr = task->attr;
    int64_t start, step, values[CHUNK];
    convert_to_i64(&start, &attr->start, TL_F64, 1, 1);
    convert_to_i64(&step, &attr->step, TL_F64, 1, 1);
    for (int64_t i = 0; i < n; i++) values[i] = (int64_t)((uint64_t)start + (uint64_t)(first + i) * (uint64_t)step);
    convert_from_i64(to, task->dtype, 1, values, n);
}

bool cpu_arange(const tl_kernel_args *args) {
    const tl_operand *out = &args->out[0];
    if (out->dtype != TL_F32) return run(args, dtype_is_float(out->dtype) ? make_arange_float : make_arange_integer);
    struct task task = {.out = out->data, .attr = args->attr};
    parallel_for(iterate_numel(out), parallel_stream_grain(iterate_numel(out), args->n_threads), args->n_threads,
                 arange_f32, &task);
    return true;
}

/* ---- random --------------------------------------------------------------------------------------------- */

static struct rng_key key_of(const struct attr_random *attr) {
    return (struct rng_key){attr->generator.seed, attr->generator.stream};
}

static uint64_t index_of(const struct attr_random *attr, int64_t first) {
    return attr->generator.index + (uint64_t)first;
}

static void make_uniform_f32(const struct task *task, char *to, int64_t first, int64_t n) {
    const struct attr_random *attr = task->attr;
    const float low = (float)attr->a, width = (float)(attr->b - attr->a), limit = (float)attr->limit;
    float values[CHUNK];
    rng_fill_uniform_f32(values, n, key_of(attr), index_of(attr, first));
    for (int64_t i = 0; i < n; i++) values[i] = rng_between_f32(values[i], low, width, limit);
    convert_from_f32(to, task->dtype, 1, values, n);
}

static void make_uniform_f64(const struct task *task, char *to, int64_t first, int64_t n) {
    const struct attr_random *attr = task->attr;
    double values[CHUNK];
    rng_fill_uniform_f64(values, n, key_of(attr), index_of(attr, first));
    for (int64_t i = 0; i < n; i++) values[i] = rng_between_f64(values[i], attr->a, attr->b - attr->a, attr->limit);
    convert_from_f64(to, task->dtype, 1, values, n);
}

static void make_normal_f32(const struct task *task, char *to, int64_t first, int64_t n) {
    const struct attr_random *attr = task->attr;
    const float mean = (float)attr->a, std = (float)attr->b;
    float values[CHUNK];
    rng_fill_normal_f32(values, n, key_of(attr), index_of(attr, first));
    for (int64_t i = 0; i < n; i++) values[i] = fmaf(values[i], std, mean);
    convert_from_f32(to, task->dtype, 1, values, n);
}

static void make_normal_f64(const struct task *task, char *to, int64_t first, int64_t n) {
    const struct attr_random *attr = task->attr;
    double values[CHUNK];
    rng_fill_normal_f64(values, n, key_of(attr), index_of(attr, first));
    for (int64_t i = 0; i < n; i++) values[i] = fma(values[i], attr->b, attr->a);
    convert_from_f64(to, task->dtype, 1, values, n);
}

static void make_bernoulli(const struct task *task, char *to, int64_t first, int64_t n) {
    const struct attr_random *attr = task->attr;
    uint8_t values[CHUNK];
    rng_fill_bernoulli(values, n, key_of(attr), index_of(attr, first), attr->a);
    convert(to, task->dtype, 1, values, TL_U8, 1, n, CONVERT_NEAREST, NULL);
}

static void make_integers(const struct task *task, char *to, int64_t first, int64_t n) {
    const struct attr_random *attr = task->attr;
    int64_t values[CHUNK];
    rng_fill_integers(values, n, key_of(attr), index_of(attr, first), attr->low, attr->high);
    convert_from_i64(to, task->dtype, 1, values, n);
}

typedef void (*random_maker)(const struct task *, char *, int64_t, int64_t);

static random_maker maker_of(const struct attr_random *attr, tl_dtype dtype) {
    static const random_maker make[][2] = {
        [RANDOM_UNIFORM] = {make_uniform_f32, make_uniform_f64},
        [RANDOM_NORMAL] = {make_normal_f32, make_normal_f64},
        [RANDOM_BERNOULLI] = {make_bernoulli, make_bernoulli},
        [RANDOM_INTEGERS] = {make_integers, make_integers},
    };
    return make[attr->kind][dtype == TL_F64];
}

bool cpu_random(const tl_kernel_args *args) { return run(args, maker_of(args->attr, args->out[0].dtype)); }

void create_random(const struct attr_random *attr, tl_dtype dtype, void *to, int64_t first, int64_t n) {
    const struct task task = {.dtype = dtype, .attr = attr};
    const random_maker make = maker_of(attr, dtype);
    const int64_t element_bytes = iterate_element_bytes(dtype);
    for (int64_t i = 0; i < n; i += CHUNK)
        make(&task, (char *)to + i * element_bytes, first + i, n - i < CHUNK ? n - i : CHUNK);
}
