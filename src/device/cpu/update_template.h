/* update_template.h: the loops of update.c for one compute type. REAL, REAL_DTYPE and NAME are set by the includer. */

static void NAME(adamw_block)(const struct update *update, REAL *p, const REAL *g, REAL *m, REAL *v, int64_t n) {
    const REAL keep = (REAL)update->keep, eps = (REAL)update->eps;
    const REAL beta1 = (REAL)update->beta1, one_minus_beta1 = (REAL)(1 - update->beta1);
    const REAL beta2 = (REAL)update->beta2, one_minus_beta2 = (REAL)(1 - update->beta2);
    const REAL step_size = (REAL)update->step_size, inverse_root = (REAL)update->inverse_root;
    for (int64_t i = 0; i < n; i++) {
        m[i] = beta1 * m[i] + one_minus_beta1 * g[i];
        v[i] = beta2 * v[i] + one_minus_beta2 * (g[i] * g[i]);
        p[i] = p[i] * keep - step_size * m[i] / (NAME(vector_sqrt)(v[i]) * inverse_root + eps);
    }
}

static void NAME(sgd_block)(const struct update *update, REAL *p, const REAL *g, int64_t n) {
    const REAL lr = (REAL)update->lr;
    for (int64_t i = 0; i < n; i++) {
        p[i] -= lr * g[i];
    }
}

/* Operands that are gapless arrays of the compute type are updated where they lie, others through a buffer. */
static void NAME(update_range)(void *context, int64_t first, int64_t last) {
    const struct update *update = context;
    const struct iterate *walk = &update->walk;
    bool is_direct[UPDATE_OPERANDS] = {false};
    for (int i = 0; i < update->n_operands; i++) {
        is_direct[i] = update->dtype[i] == REAL_DTYPE && walk->step[i] == (int64_t)sizeof(REAL);
    }
    REAL buffer[UPDATE_OPERANDS][BLOCK];
    struct iterate_run run;
    iterate_seek(walk, &run, first, last);
    while (iterate_next(walk, &run, BLOCK)) {
        REAL *x[UPDATE_OPERANDS] = {0};
        for (int i = 0; i < update->n_operands; i++) {
            x[i] = buffer[i];
            if (is_direct[i]) {
                x[i] = (REAL *)(void *)run.data[i];
            } else {
                NAME(convert_to)(x[i], run.data[i], update->dtype[i], walk->step[i] / update->bytes[i], run.length);
            }
        }
        if (update->n_operands == 4) {
            NAME(adamw_block)(update, x[0], x[1], x[2], x[3], run.length);
        } else {
            NAME(sgd_block)(update, x[0], x[1], run.length);
        }
        for (int i = 0; i < update->n_operands; i++) {
            if (i != 1 && !is_direct[i]) { /* g is read only */
                NAME(convert_from)(run.data[i], update->dtype[i], walk->step[i] / update->bytes[i], x[i], run.length);
            }
        }
    }
}

#undef REAL
#undef REAL_DTYPE
#undef NAME
