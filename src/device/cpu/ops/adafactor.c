/* adafactor.c: Adafactor's step of a parameter (the formulas are in spec/attr.h).
 *
 * Three passes, each over all threads: squares, the size of u, and p. u is not kept but made again: a root and a
 * division cost less than a pass over a tensor of the parameter's size. The scale of g is not applied to g but to sums
 * of its squares and to the factor of u.
 */
#include "base/rng.h"
#include "base/scratch.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/adafactor.h"
#include "spec/attr.h"
#include "tensor/dtype.h"

#include <math.h>

struct adafactor {
    const struct attr_adafactor *attr;
    struct adafactor_sizes sizes;
    const tl_operand *p, *g;
    void *state[2], *master;         /* row and column, or the variance; master NULL: none */
    double *p_sums, *u_sums, *means; /* of the workspace, as is */
    void *columns;                   /* sums of squares by column */
    double scale, weight, eps1;      /* of g; of a step's moments; */
    double keep, factor;             /* of p, of u */
};

#define REAL float
#define REAL_DTYPE TL_F32
#define NAME(name) name##_f32
#include "device/cpu/ops/adafactor_template.h"

#define REAL double
#define REAL_DTYPE TL_F64
#define NAME(name) name##_f64
#include "device/cpu/ops/adafactor_template.h"

/* Of all lines, in order. */
static double rms_of(const struct adafactor *a, const double *sums) {
    double total = 0;
    for (int64_t line = 0; line < a->sizes.lines; line++) total += sums[line];
    return sqrt(total / (double)a->sizes.numel);
}

/* min(lr, 1 / sqrt(step)) max(eps2, rms(p)) scale / max(1, rms(scale u) / d). NaN stays. */
static double factor_of(const struct adafactor *a) {
    const tl_adafactor_options *o = &a->attr->options;
    const double size = rms_of(a, a->p_sums), clip = a->scale * rms_of(a, a->u_sums) / o->d;
    return fmin(o->lr, 1 / sqrt((double)o->step)) * (size < o->eps2 ? o->eps2 : size) * a->scale /
           (clip < 1 ? 1 : clip);
}

static struct adafactor begin(const tl_kernel_args *args) {
    const struct attr_adafactor *attr = args->attr;
    const tl_operand *p = &args->in[0];
    struct adafactor a = {.attr = attr, .sizes = adafactor_sizes_of(p->rank, p->shape), .p = p, .g = &args->in[1]};
    const struct adafactor_room room = adafactor_room_of(&a.sizes, p->dtype == TL_F64);
    const int n_states = a.sizes.is_factored ? 2 : 1;
    char *workspace = args->workspace;
    for (int i = 0; i < n_states; i++) a.state[i] = args->in[2 + i].data;
    if (attr->update.has_master) a.master = args->in[2 + n_states].data;
    a.scale = attr->update.has_scale ? (double)*(const float *)args->in[args->n_in - 1].data : 1;
    a.weight = pow((double)attr->options.step, attr->options.beta2_decay);
    a.eps1 = attr->eps1;
    a.keep = 1 - attr->options.lr * attr->options.weight_decay;
    if (!a.sizes.numel) return a;
    a.p_sums = (double *)(void *)(workspace + room.p_sums);
    a.u_sums = (double *)(void *)(workspace + room.u_sums);
    a.means = (double *)(void *)(workspace + room.means);
    a.columns = workspace + room.columns;
    return a;
}

bool cpu_adafactor(const tl_kernel_args *args) {
    struct adafactor a = begin(args);
    const struct adafactor_sizes *s = &a.sizes;
    const bool is_f64 = a.p->dtype == TL_F64;
    const int n = args->n_threads;
    if (!s->numel || !isfinite(a.scale)) return true;
    if (s->is_factored) {
        parallel_for(s->n_matrices * s->runs, parallel_grain(s->columns * block_min(s->rows, ADAFACTOR_RUN)), n,
                     is_f64 ? squares_f64 : squares_f32, &a);
        parallel_for(s->n_matrices * s->columns, parallel_grain(s->runs), n, is_f64 ? columns_f64 : columns_f32, &a);
        (is_f64 ? means_f64 : means_f32)(&a);
    } else {
        (is_f64 ? variance_f64 : variance_f32)(&a);
    }
    const int64_t grain = parallel_grain(4 * s->columns);
    parallel_for(s->lines, grain, n, is_f64 ? update_squares_f64 : update_squares_f32, &a);
    a.factor = factor_of(&a);
    if (isfinite(a.factor)) parallel_for(s->lines, grain, n, is_f64 ? steps_f64 : steps_f32, &a);
    return true;
}
