/* optimizer_template.h: the steps of optimizer.c for one compute type. REAL, REAL_DTYPE and NAME are set by the includer.
 *
 * x[0] is the parameter, x[1] the gradient (a copy: a step may change it), the others are the states. */

static void NAME(decay)(const struct factors *f, const REAL *p, REAL *g, int64_t n) {
    const REAL weight_decay = (REAL)f->weight_decay;
    if (f->weight_decay == 0) return;
    for (int64_t i = 0; i < n; i++) g[i] += weight_decay * p[i];
}

static void NAME(sgd_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0], *g = x[1];
    const REAL lr = (REAL)f->lr;
    NAME(decay)(f, p, g, n);
    for (int64_t i = 0; i < n; i++) p[i] -= lr * g[i];
}

static void NAME(momentum_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0], *g = x[1], *buffer = x[2];
    const REAL lr = (REAL)f->lr, momentum = (REAL)f->momentum, take = (REAL)f->take;
    NAME(decay)(f, p, g, n);
    for (int64_t i = 0; i < n; i++) {
        buffer[i] = f->is_first ? g[i] : momentum * buffer[i] + take * g[i];
        p[i] -= lr * (f->nesterov ? g[i] + momentum * buffer[i] : buffer[i]);
    }
}

static void NAME(adagrad_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0], *g = x[1], *sum = x[2];
    const REAL lr = (REAL)f->lr, eps = (REAL)f->eps;
    NAME(decay)(f, p, g, n);
    for (int64_t i = 0; i < n; i++) {
        sum[i] += g[i] * g[i];
        p[i] -= lr * (g[i] / (NAME(vector_sqrt)(sum[i]) + eps));
    }
}

static void NAME(rmsprop_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0], *g = x[1], *square = x[2], *mean = f->centered ? x[3] : NULL;
    REAL *buffer = f->momentum != 0 ? x[f->centered ? 4 : 3] : NULL;
    const REAL lr = (REAL)f->lr, alpha = (REAL)f->beta2, rest = (REAL)(1 - f->beta2), eps = (REAL)f->eps;
    const REAL momentum = (REAL)f->momentum;
    NAME(decay)(f, p, g, n);
    for (int64_t i = 0; i < n; i++) {
        square[i] = alpha * square[i] + rest * (g[i] * g[i]);
        REAL variance = square[i];
        if (mean) {
            mean[i] += rest * (g[i] - mean[i]);
            variance -= mean[i] * mean[i];
        }
        REAL d = g[i] / (NAME(vector_sqrt)(variance) + eps);
        if (buffer) d = buffer[i] = momentum * buffer[i] + d;
        p[i] -= lr * d;
    }
}

static void NAME(adam_step)(const struct factors *f, REAL *const *x, int64_t n) {
    REAL *p = x[0], *g = x[1], *m = x[2], *v = x[3], *max = f->has_max ? x[4] : NULL;
    const REAL lr = (REAL)f->lr, keep = (REAL)f->keep, eps = (REAL)f->eps, inverse_root = (REAL)f->inverse_root;
    const REAL beta2 = (REAL)f->beta2, rest1 = (REAL)(1 - f->beta1), rest2 = (REAL)(1 - f->beta2);
    NAME(decay)(f, p, g, n);
    for (int64_t i = 0; i < n; i++) {
        m[i] += rest1 * (g[i] - m[i]);
        v[i] = beta2 * v[i] + rest2 * (g[i] * g[i]);
        REAL second = v[i];
        if (max) second = max[i] = max[i] > second || max[i] != max[i] ? max[i] : second; /* NaN stays */
        p[i] = p[i] * keep - lr * (m[i] / (NAME(vector_sqrt)(second) * inverse_root + eps));
    }
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
                 generator->index + (uint64_t)run->position);
    convert(run->data[0], o->dtype[0], o->stride[0], values, REAL_DTYPE, 1, run->length, CONVERT_STOCHASTIC, words);
}

/* What lies in the compute type, element beside element, is stepped where it is; but for the gradient. */
static bool NAME(is_in_place)(const struct optimizer *o, int i) {
    return i != 1 && o->dtype[i] == REAL_DTYPE && o->stride[i] == 1;
}

static void NAME(update_range)(void *context, int64_t first, int64_t last) {
    const struct optimizer *o = context;
    REAL buffer[UPDATE_OPERANDS][BLOCK];
    struct iterate_run run;
    iterate_seek(&o->walk, &run, first, last);
    while (iterate_next(&o->walk, &run, BLOCK)) {
        REAL *x[UPDATE_OPERANDS];
        for (int i = 0; i < o->n_operands; i++) {
            x[i] = NAME(is_in_place)(o, i) ? (REAL *)(void *)run.data[i] : buffer[i];
            if ((i == 0 && o->master >= 0) || x[i] != buffer[i]) continue;
            NAME(convert_to)(x[i], run.data[i], o->dtype[i], o->stride[i], run.length);
        }
        if (o->master >= 0) x[0] = x[o->master];
        o->NAME(step)(&o->factors, x, run.length);
        if ((char *)x[0] != run.data[0]) NAME(write_rounded)(o, &run, x[0]);
        for (int i = 2; i < o->n_operands; i++)
            if (x[i] == buffer[i]) NAME(convert_from)(run.data[i], o->dtype[i], o->stride[i], x[i], run.length);
    }
}

#undef REAL
#undef REAL_DTYPE
#undef NAME
