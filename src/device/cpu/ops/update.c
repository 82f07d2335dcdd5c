/* update.c: one step of SGD with momentum, Adagrad, RMSprop, Adam, Lion or schedule-free AdamW, or of Muon's
 * momentum, on each parameter of a call, in place; and one of an average of each.
 *
 * The formulas are torch.optim's, in its order of operations, in f32 (f64 for f64 parameters); factors that depend
 * on the step alone are computed once, in f64. One pass: the step is bound by memory, and every further pass would
 * cost as much again. The parameter is read from its master copy where there is one. If the gradient's scale is not
 * finite, nothing changes.
 */
#include "base/rng.h"
#include "base/scratch.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/dtype.h"

#include <math.h>

enum { UPDATE_OPERANDS = 6 }; /* p, g, up to three states, master */

/* Constants of a step; each optimizer reads its own. */
struct factors {
    double lr, weight_decay, keep;          /* keep: decoupled decay's factor of p */
    double momentum, take;                  /* buffer = momentum buffer + take g; of an average, the weight of x */
    double beta1, beta2, eps, inverse_root; /* beta2 is RMSprop's alpha */
    double share, along, decay, correction; /* schedule_free: of z in p; of the step, for p; of p in the step; of v */
    double scale;                           /* of the gradient; 1 without one */
    bool is_first, nesterov, centered;      /* is_first: the buffer starts as g */
};

struct optimizer {
    struct iterate walk;
    int n_operands, master; /* master: which operand; -1 for none */
    tl_dtype dtype[UPDATE_OPERANDS];
    int64_t stride[UPDATE_OPERANDS]; /* along the innermost axis, in elements */
    const struct attr_update *attr;
    uint64_t index; /* of the parameter's first random word */
    struct factors factors;
    void (*run)(struct optimizer *o, const tl_operand *in, int n_threads); /* of one parameter */
    void (*step_f32)(const struct factors *f, float *const *x, int64_t n);
    void (*step_f64)(const struct factors *f, double *const *x, int64_t n);
};

#define REAL float
#define REAL_DTYPE TL_F32
#define NAME(name) name##_f32
#include "device/cpu/ops/update_template.h"

#define REAL double
#define REAL_DTYPE TL_F64
#define NAME(name) name##_f64
#include "device/cpu/ops/update_template.h"

#include "device/cpu/ops/update_8bit.h"

/* One parameter; its operands are o->n_operands of `in`. */
static void run_one(struct optimizer *o, const tl_operand *in, int n_threads) {
    const tl_operand *operands[UPDATE_OPERANDS];
    o->master = o->attr->has_master ? o->n_operands - 1 : -1;
    for (int i = 0; i < o->n_operands; i++) operands[i] = &in[i];
    /* Random words belong to positions in row-major order. */
    iterate_begin(&o->walk, operands[0]->rank, operands[0]->shape, operands, o->n_operands,
                  o->attr->is_stochastic ? ITERATE_ROW_MAJOR : ITERATE_ANY_ORDER);
    for (int i = 0; i < o->n_operands; i++) {
        o->dtype[i] = in[i].dtype;
        o->stride[i] = o->walk.step[i] / iterate_element_bytes(in[i].dtype);
    }
    parallel_for(o->walk.n, parallel_stream_grain(o->walk.n, n_threads), n_threads,
                 dtype_compute(operands[0]->dtype) == TL_F64 ? update_range_f64 : update_range_f32, o);
}

static bool run(const tl_kernel_args *args, struct optimizer *o) {
    o->attr = args->attr;
    if (!o->run) o->run = run_one;
    o->n_operands = (args->n_in - o->attr->has_scale) / o->attr->n_parameters; /* the scale is the last */
    o->factors.scale = o->attr->has_scale ? (double)*(const float *)args->in[args->n_in - 1].data : 1;
    o->index = o->attr->generator.index;
    if (!isfinite(o->factors.scale)) return true;
    for (int t = 0; t < o->attr->n_parameters; t++) {
        o->run(o, args->in + t * o->n_operands, args->n_threads);
        o->index += update_words(o->walk.n);
    }
    return true;
}

bool cpu_sgd_momentum(const tl_kernel_args *args) {
    const tl_sgd_options *options = &((const struct attr_sgd_momentum *)args->attr)->options;
    struct optimizer o = {
        .factors = {.lr = options->lr,
                    .weight_decay = options->weight_decay,
                    .momentum = options->momentum,
                    .take = 1 - options->dampening,
                    .is_first = options->step == 1,
                    .nesterov = options->nesterov},
        .step_f32 = options->momentum != 0 ? momentum_step_f32 : sgd_step_f32,
        .step_f64 = options->momentum != 0 ? momentum_step_f64 : sgd_step_f64,
    };
    return run(args, &o);
}

bool cpu_adagrad(const tl_kernel_args *args) {
    const tl_adagrad_options *options = &((const struct attr_adagrad *)args->attr)->options;
    struct optimizer o = {
        .factors = {.lr = options->lr / (1 + (double)(options->step - 1) * options->lr_decay),
                    .weight_decay = options->weight_decay,
                    .eps = options->eps},
        .step_f32 = adagrad_step_f32,
        .step_f64 = adagrad_step_f64,
    };
    return run(args, &o);
}

bool cpu_rmsprop(const tl_kernel_args *args) {
    const tl_rmsprop_options *options = &((const struct attr_rmsprop *)args->attr)->options;
    struct optimizer o = {
        .factors = {.lr = options->lr,
                    .weight_decay = options->weight_decay,
                    .beta2 = options->alpha,
                    .eps = options->eps,
                    .momentum = options->momentum,
                    .centered = options->centered},
        .step_f32 = rmsprop_step_f32,
        .step_f64 = rmsprop_step_f64,
    };
    return run(args, &o);
}

static struct factors adam_factors(const tl_adam_options *options) {
    return (struct factors){.lr = options->lr / (1 - pow(options->beta1, (double)options->step)),
                            .weight_decay = options->decoupled ? 0 : options->weight_decay,
                            .keep = options->decoupled ? 1 - options->lr * options->weight_decay : 1,
                            .beta1 = options->beta1,
                            .beta2 = options->beta2,
                            .eps = options->eps,
                            .inverse_root = 1 / sqrt(1 - pow(options->beta2, (double)options->step))};
}

bool cpu_adam(const tl_kernel_args *args) {
    const struct attr_adam *attr = args->attr;
    struct optimizer o = {
        .factors = adam_factors(&attr->options),
        .step_f32 = attr->has_max ? amsgrad_step_f32 : adam_step_f32,
        .step_f64 = attr->has_max ? amsgrad_step_f64 : adam_step_f64,
    };
    return run(args, &o);
}

bool cpu_adam_8bit(const tl_kernel_args *args) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, maps_make);
    struct optimizer o = {.factors = adam_factors(&((const struct attr_adam *)args->attr)->options), .run = run_8bit};
    return run(args, &o);
}

bool cpu_lion(const tl_kernel_args *args) {
    const tl_lion_options *options = &((const struct attr_lion *)args->attr)->options;
    struct optimizer o = {
        .factors = {.lr = options->lr,
                    .keep = 1 - options->lr * options->weight_decay,
                    .beta1 = options->beta1,
                    .beta2 = options->beta2},
        .step_f32 = lion_step_f32,
        .step_f64 = lion_step_f64,
    };
    return run(args, &o);
}

bool cpu_muon_momentum(const tl_kernel_args *args) {
    const tl_muon_options *options = &((const struct attr_muon_momentum *)args->attr)->options;
    struct optimizer o = {
        .factors = {.momentum = options->momentum, .nesterov = options->nesterov},
        .step_f32 = muon_momentum_step_f32,
        .step_f64 = muon_momentum_step_f64,
    };
    return run(args, &o);
}

bool cpu_ema(const tl_kernel_args *args) {
    const struct attr_ema *attr = args->attr;
    struct optimizer o = {
        .factors = {.take = attr->weight},
        .step_f32 = ema_step_f32,
        .step_f64 = ema_step_f64,
    };
    return run(args, &o);
}

bool cpu_schedule_free(const tl_kernel_args *args) {
    const tl_schedule_free_options *options = &((const struct attr_schedule_free *)args->attr)->options;
    struct optimizer o = {
        .factors = {.lr = options->lr,
                    .beta2 = options->beta2,
                    .eps = options->eps,
                    .share = options->share,
                    .along = options->lr * (options->beta1 * (1 - options->share) - 1),
                    .decay = options->weight_decay,
                    .correction = 1 - pow(options->beta2, (double)options->step)},
        .step_f32 = schedule_free_step_f32,
        .step_f64 = schedule_free_step_f64,
    };
    return run(args, &o);
}
