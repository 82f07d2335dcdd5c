/* head_template.h: the rows of head.c for one compute type. REAL and NAME are set by the includer. */

#include "device/cpu/shared/lse_template.h"

static REAL NAME(row_max)(const REAL *x, int64_t n) {
    REAL lane[BLOCK_LANES];
    for (int j = 0; j < BLOCK_LANES; j++) lane[j] = -INFINITY;
    int64_t i = 0;
    for (; i + BLOCK_LANES <= n; i += BLOCK_LANES)
        for (int j = 0; j < BLOCK_LANES; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (int j = 0; i + j < n; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    REAL max = -INFINITY;
    for (int j = 0; j < BLOCK_LANES; j++) max = lane[j] > max ? lane[j] : max;
    return max;
}

/* Sum of exp(x - shift), shift the largest; with `keeps` the exponentials replace x. */
static REAL NAME(row_exp_sum)(REAL *x, REAL shift, int64_t n, bool keeps) {
    REAL lane[BLOCK_LANES] = {0}, buffer[BLOCK];
    for (int64_t c = 0; c < n; c += BLOCK) {
        const int64_t length = block_min(BLOCK, n - c);
        REAL *e = keeps ? x + c : buffer;
        NAME(exp_run)(e, x + c, shift, length);
        int64_t i = 0;
        for (; i + BLOCK_LANES <= length; i += BLOCK_LANES)
            for (int j = 0; j < BLOCK_LANES; j++) lane[j] += e[i + j];
        for (int j = 0; i + j < length; j++) lane[j] += e[i + j];
    }
    return NAME(block_total)(lane);
}

/* x = c tanh(x / c) */
static void NAME(row_cap)(REAL *x, REAL c, int64_t n) {
    for (int64_t j = 0; j < n; j++) x[j] = c * NAME(vector_tanh)(x[j] / c);
}

static REAL NAME(row_sum)(const REAL *x, int64_t n) {
    REAL lane[BLOCK_LANES] = {0};
    int64_t i = 0;
    for (; i + BLOCK_LANES <= n; i += BLOCK_LANES)
        for (int j = 0; j < BLOCK_LANES; j++) lane[j] += x[i + j];
    for (int j = 0; i + j < n; j++) lane[j] += x[i + j];
    return NAME(block_total)(lane);
}

/* Slopes of capped logits x before the cap: (growth e^(x - lse) - label) (1 - (x / c)^2), where a label is `hit` for
 * the target and `other` for the rest. */
static void NAME(row_capped_slopes)(REAL *x, REAL c, REAL lse, REAL growth, int64_t n, int64_t target, REAL hit,
                                    REAL other) {
    for (int64_t j = 0; j < n; j++) {
        const REAL t = x[j] / c, label = j == target ? hit : other;
        x[j] = (growth * NAME(vector_exp)(x[j] - lse) - label) * (1 - t * t);
    }
}

/* x = x * factor - less, except x[target] = slope; rounded to bf16 into `rounded` if given, which may be x's own
 * memory. */
static void NAME(row_scale)(REAL *x, REAL factor, REAL less, int64_t n, int64_t target, REAL slope, char *rounded) {
    for (int64_t j = 0; j < n; j++) x[j] = x[j] * factor - less;
    x[target] = slope;
    REAL buffer[BLOCK];
    for (int64_t c = 0; rounded && c < n; c += BLOCK) {
        const int64_t length = block_min(BLOCK, n - c);
        memcpy(buffer, x + c, (size_t)length * sizeof(REAL));
        NAME(convert_from)(rounded + 2 * c, TL_BF16, 1, buffer, length);
    }
}

/* Rows of a chunk: with e = exp(logit - max), lse = max + log(sum e), loss = lse - logit of the target, and in place of
 * the logits (e / sum e - onehot) * scale. A soft cap needs the capped logits again for the slopes. Smoothed labels,
 * which are `other` for every class and 1 - smoothing more for the target, and the weight of lse^2 are as in
 * spec/attr.h. */
static void NAME(head_rows)(void *context, int64_t first, int64_t last) {
    const struct head *head = context;
    const int64_t V = head->V;
    for (int64_t i = first; i < last; i++) {
        REAL *x = (REAL *)head->logits + i * V;
        char *rounded = head->gathered     ? (char *)head->gathered + (head->row + i) * V * 2
                        : head->is_rounded ? (char *)x
                                           : NULL;
        const int64_t target = block_integer(head->targets, head->row + i);
        if (target == head->ignore_index) {
            ((REAL *)head->losses)[head->row + i] = 0;
            if (V > 0) memset(x, 0, (size_t)V * sizeof(REAL));
            if (V > 0 && head->gathered) memset(rounded, 0, (size_t)V * 2);
            continue;
        }
        const REAL cap = (REAL)head->soft_cap;
        if (cap > 0) NAME(row_cap)(x, cap, V);
        const REAL max = NAME(row_max)(x, V), logit = x[target];
        const REAL shift = max > -INFINITY ? max : 0, smoothing = (REAL)head->smoothing, z = (REAL)head->z_weight;
        const REAL other = smoothing / (REAL)V, hit = 1 - smoothing + other;
        const REAL mean = smoothing > 0 ? NAME(row_sum)(x, V) / (REAL)V : 0;
        const REAL sum = NAME(row_exp_sum)(x, shift, V, head->has_gradients && cap == 0);
        const REAL lse = shift + NAME(vector_log)(sum), scale = (REAL)head->scale;
        REAL loss = lse - logit;
        if (smoothing > 0) loss = (1 - smoothing) * loss + smoothing * (lse - mean);
        if (z > 0) loss += z * lse * lse;
        ((REAL *)head->losses)[head->row + i] = loss;
        if (!head->has_gradients) continue;
        const REAL growth = 1 + 2 * z * lse;
        if (cap > 0) NAME(row_capped_slopes)(x, cap, lse, growth, V, target, hit, other);
        const REAL slope = cap > 0 ? x[target] * scale : (growth * NAME(vector_exp)(logit - lse) - hit) * scale;
        const REAL factor = cap > 0 ? scale : growth * scale / sum, less = cap > 0 ? 0 : other * scale;
        NAME(row_scale)(x, factor, less, V, target, slope, rounded);
    }
}

#undef REAL
#undef NAME
