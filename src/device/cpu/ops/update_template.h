/* update_template.h: the steps of update.c for one compute type. The includer sets REAL, REAL_DTYPE and NAME.
 *
 * x[0] is the parameter, x[1] the gradient (of the same view, at most, as the parameter), the others are the states. */

/* g scale + weight_decay p, in a buffer that is g's copy. */
static void NAME(decay)(const struct factors *f, const REAL *p, REAL *g, int64_t n) {
    const REAL scale = (REAL)f->scale, weight_decay = (REAL)f->weight_decay;
    for (int64_t i = 0; i < n; i++) g[i] = g[i] * scale + weight_decay * p[i];
}

static void NAME(sgd_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0];
    const REAL *g = x[1], scale = (REAL)f->scale, lr = (REAL)f->lr;
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) p[i] -= lr * (g[i] * scale);
}

static void NAME(momentum_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0], *buffer = x[2];
    const REAL *g = x[1], scale = (REAL)f->scale, lr = (REAL)f->lr;
    const REAL momentum = (REAL)f->momentum, take = (REAL)f->take;
    if (f->is_first)
        for (int64_t i = 0; i < n; i++) buffer[i] = g[i] * scale;
    else
        for (int64_t i = 0; i < n; i++) buffer[i] = momentum * buffer[i] + take * (g[i] * scale);
    if (f->nesterov)
        for (int64_t i = 0; i < n; i++) p[i] -= lr * (g[i] * scale + momentum * buffer[i]);
    else
        for (int64_t i = 0; i < n; i++) p[i] -= lr * buffer[i];
}

static void NAME(adagrad_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0], *sum = x[2];
    const REAL *g = x[1], scale = (REAL)f->scale, lr = (REAL)f->lr, eps = (REAL)f->eps;
    for (int64_t i = 0; i < n; i++) {
        const REAL d = g[i] * scale, total = sum[i] + d * d;
        sum[i] = total;
        p[i] -= lr * (d / (NAME(vector_sqrt)(total) + eps));
    }
}

/* Loops over one block instead of branches in one loop, which compilers would not vectorise. */
static void NAME(rmsprop_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0], *square = x[2], *mean = x[3], *buffer = x[f->centered ? 4 : 3];
    SCRATCH_ARRAY(REAL, d, BLOCK);
    SCRATCH_ARRAY(REAL, variance, BLOCK);
    const REAL *g = x[1], scale = (REAL)f->scale, lr = (REAL)f->lr, eps = (REAL)f->eps, momentum = (REAL)f->momentum;
    const REAL alpha = (REAL)f->beta2, rest = (REAL)(1 - f->beta2);
    for (int64_t i = 0; i < n; i++) {
        d[i] = g[i] * scale;
        variance[i] = square[i] = alpha * square[i] + rest * (d[i] * d[i]);
    }
    if (f->centered)
        for (int64_t i = 0; i < n; i++) {
            mean[i] += rest * (d[i] - mean[i]);
            variance[i] -= mean[i] * mean[i];
        }
    for (int64_t i = 0; i < n; i++) d[i] /= NAME(vector_sqrt)(variance[i]) + eps;
    if (f->momentum != 0)
        for (int64_t i = 0; i < n; i++) d[i] = buffer[i] = momentum * buffer[i] + d[i];
    for (int64_t i = 0; i < n; i++) p[i] -= lr * d[i];
}

/* is_scaled is a constant where this is inlined: beside division and root, a multiplication by 1 would cost time. */
static inline __attribute__((always_inline)) void NAME(adam_loop)(const struct factors *f, REAL *const *x, int64_t n,
                                                                  const bool is_scaled) {
    REAL *p = x[0], *m = x[2], *v = x[3];
    const REAL *g = x[1], scale = (REAL)f->scale, lr = (REAL)f->lr, keep = (REAL)f->keep, eps = (REAL)f->eps;
    const REAL inverse_root = (REAL)f->inverse_root;
    const REAL beta2 = (REAL)f->beta2, rest1 = (REAL)(1 - f->beta1), rest2 = (REAL)(1 - f->beta2);
    for (int64_t i = 0; i < n; i++) {
        const REAL d = is_scaled ? g[i] * scale : g[i], first = m[i] + rest1 * (d - m[i]),
                   second = beta2 * v[i] + rest2 * (d * d);
        m[i] = first;
        v[i] = second;
        p[i] = p[i] * keep - lr * (first / (NAME(vector_sqrt)(second) * inverse_root + eps));
    }
}

static void NAME(adam_step)(const struct factors *f, REAL *const *x, int64_t n) {
    if (f->scale == 1) NAME(adam_loop)(f, x, n, false);
    else NAME(adam_loop)(f, x, n, true);
}

static void NAME(amsgrad_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0], *m = x[2], *v = x[3], *max = x[4];
    const REAL *g = x[1], scale = (REAL)f->scale, lr = (REAL)f->lr, keep = (REAL)f->keep, eps = (REAL)f->eps;
    const REAL inverse_root = (REAL)f->inverse_root;
    const REAL beta2 = (REAL)f->beta2, rest1 = (REAL)(1 - f->beta1), rest2 = (REAL)(1 - f->beta2);
    for (int64_t i = 0; i < n; i++) {
        const REAL d = g[i] * scale, first = m[i] + rest1 * (d - m[i]), second = beta2 * v[i] + rest2 * (d * d);
        const REAL largest = max[i] > second || max[i] != max[i] ? max[i] : second; /* NaN stays */
        m[i] = first;
        v[i] = second;
        max[i] = largest;
        p[i] = p[i] * keep - lr * (first / (NAME(vector_sqrt)(largest) * inverse_root + eps));
    }
}

static void NAME(lion_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0], *m = x[2];
    const REAL *g = x[1], scale = (REAL)f->scale, lr = (REAL)f->lr, keep = (REAL)f->keep;
    const REAL beta1 = (REAL)f->beta1, rest1 = (REAL)(1 - f->beta1);
    const REAL beta2 = (REAL)f->beta2, rest2 = (REAL)(1 - f->beta2);
    for (int64_t i = 0; i < n; i++) {
        const REAL d = g[i] * scale, c = beta1 * m[i] + rest1 * d;
        p[i] = p[i] * keep - lr * (REAL)((c > 0) - (c < 0));
        m[i] = beta2 * m[i] + rest2 * d;
    }
}

/* x[0] is overwritten. */
static void NAME(muon_momentum_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *u = x[0], *buffer = x[2];
    const REAL *g = x[1], scale = (REAL)f->scale, rest = (REAL)(1 - f->momentum);
    const REAL momentum = f->nesterov ? (REAL)f->momentum : 1;
    for (int64_t i = 0; i < n; i++) {
        const REAL d = g[i] * scale, mean = buffer[i] + rest * (d - buffer[i]);
        buffer[i] = mean;
        u[i] = d + momentum * (mean - d);
    }
}

static void NAME(schedule_free_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0], *z = x[2], *v = x[3];
    const REAL *g = x[1], scale = (REAL)f->scale, lr = (REAL)f->lr, eps = (REAL)f->eps, decay = (REAL)f->decay;
    const REAL beta2 = (REAL)f->beta2, rest2 = (REAL)(1 - f->beta2), correction = (REAL)f->correction;
    const REAL share = (REAL)f->share, rest = (REAL)(1 - f->share), along = (REAL)f->along;
    const bool is_small = f->share < 0.5;
    for (int64_t i = 0; i < n; i++) {
        const REAL d = g[i] * scale, second = beta2 * v[i] + rest2 * (d * d);
        const REAL step = d / (NAME(vector_sqrt)(second / correction) + eps) + decay * p[i];
        const REAL apart = z[i] - p[i], mean = is_small ? p[i] + share * apart : z[i] - apart * rest;
        v[i] = second;
        p[i] = mean + along * step;
        z[i] -= lr * step;
    }
}

/* x[0] is the average, x[1] what it follows: as torch.lerp, exact at both ends. */
static void NAME(ema_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0];
    const REAL *g = x[1], scale = (REAL)f->scale, weight = (REAL)f->take, rest = (REAL)(1 - f->take);
    if (f->take < 0.5)
        for (int64_t i = 0; i < n; i++) p[i] += weight * (g[i] * scale - p[i]);
    else
        for (int64_t i = 0; i < n; i++) p[i] = g[i] * scale - (g[i] * scale - p[i]) * rest;
}

/* Rounds values into the parameter, which is narrower. */
static void NAME(write_rounded)(const struct optimizer *o, const struct iterate_run *run, const REAL *values) {
    uint32_t words[BLOCK];
    if (!o->attr->is_stochastic) {
        NAME(convert_from)(run->data[0], o->dtype[0], o->stride[0], values, run->length);
        return;
    }
    const tl_generator *generator = &o->attr->generator;
    rng_fill_u32(words, run->length, (struct rng_key){generator->seed, generator->stream},
                 o->index + (uint64_t)run->position);
    convert(run->data[0], o->dtype[0], o->stride[0], values, REAL_DTYPE, 1, run->length, CONVERT_STOCHASTIC, words);
}

typedef REAL NAME(block)[BLOCK];

/* Operands that are gapless arrays of the compute type are updated in place, others through a buffer. A gradient that
 * decay is added to is a copy. */
static void NAME(update_range)(void *context, int64_t first, int64_t last) {
    const struct optimizer *o = context;
    const bool decays = o->factors.weight_decay != 0;
    struct factors factors = o->factors;
    if (decays) factors.scale = 1; /* decay has applied it */
    bool is_direct[UPDATE_OPERANDS] = {false};
    for (int i = 0; i < o->n_operands; i++)
        is_direct[i] = o->dtype[i] == REAL_DTYPE && o->stride[i] == 1 && !(i == 1 && decays);
    SCRATCH_ARRAY(NAME(block), buffer, UPDATE_OPERANDS);
    struct iterate_run run;
    iterate_seek(&o->walk, &run, first, last);
    while (iterate_next(&o->walk, &run, BLOCK)) {
        REAL *x[UPDATE_OPERANDS] = {0};
        for (int i = 0; i < o->n_operands; i++) {
            x[i] = is_direct[i] ? (REAL *)(void *)run.data[i] : buffer[i];
            if (is_direct[i] || (i == 0 && o->master >= 0)) continue;
            NAME(convert_to)(x[i], run.data[i], o->dtype[i], o->stride[i], run.length);
        }
        if (o->master >= 0) x[0] = x[o->master];
        if (decays) NAME(decay)(&o->factors, x[0], x[1], run.length);
        o->NAME(step)(&factors, x, run.length);
        if (!is_direct[0]) NAME(write_rounded)(o, &run, x[0]);
        for (int i = 2; i < o->n_operands; i++)
            if (!is_direct[i]) NAME(convert_from)(run.data[i], o->dtype[i], o->stride[i], x[i], run.length);
    }
}

#undef REAL
#undef REAL_DTYPE
#undef NAME
