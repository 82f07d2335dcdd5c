/* random.c: random numbers in place, permutations, categories.
 *
 * Orders come from sorting: a permutation is the order that sorts its draws, and a sample without replacement is the
 * order of arrival of exponential times -log(u)/p (the first arrival is category k with probability p_k / sum p;
 * given that, the next one is distributed over the rest in the same way). Every device can do that and get the same
 * bits. The sort is by digits, least significant first, and stable, so ties go by index.
 */
#include "base/rng.h"
#include "base/scratch.h"
#include "device/cpu/ops/create.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/pairs.h"
#include "device/cpu/shared/parallel.h"
#include "spec/attr.h"
#include "spec/dropout.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 512, ERROR_BYTES = 200 };

static struct rng_key key_of(tl_generator g) { return (struct rng_key){g.seed, g.stream}; }

/* ---- random_fill -------------------------------------------------------------------------------------------- */

/* The quantile is written for the lower half. Ranges reach at least as far down as up, so where p comes near 1 it
 * started near 0, and its largest value is 1 - 2^-53. */
static double quantile(double p) { return p <= 0.5 ? rng_quantile_f64(p) : -rng_quantile_f64(1 - p); }

static void make_truncated(const struct attr_random_fill *attr, tl_dtype dtype, char *to, int64_t first, int64_t n) {
    const tl_generator g = attr->random.generator;
    const uint64_t index = g.index + (uint64_t)first;
    const bool is_wide = dtype == TL_F64; /* draw i is words 2i and 2i+1 */
    uint32_t words[2 * CHUNK];
    double values[CHUNK];
    rng_fill_u32(words, is_wide ? 2 * n : n, key_of(g), is_wide ? 2 * index : index);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t wide = is_wide ? (uint64_t)words[2 * i + 1] << 32 | words[2 * i] : 0;
        /* The middle of the draw's interval: neither 0 nor 1. */
        const double u = is_wide ? fma((double)(wide >> 12), 0x1p-52, 0x1p-53) : fma(words[i], 0x1p-32, 0x1p-33);
        const double z = quantile(fma(u, attr->p_high - attr->p_low, attr->p_low));
        const double x = fma(attr->is_mirrored ? -z : z, attr->random.b, attr->random.a);
        values[i] = fmax(attr->low, fmin(attr->high, x));
    }
    convert_from_f64(to, dtype, 1, values, n);
}

struct fill {
    const struct attr_random_fill *attr;
    tl_dtype dtype;
    struct iterate walk;
};

static void fill_range(void *context, int64_t first, int64_t last) {
    const struct fill *fill = context;
    _Alignas(8) char values[CHUNK * 8];
    const int64_t stride = fill->walk.step[0] / iterate_element_bytes(fill->dtype);
    struct iterate_run run;
    iterate_seek(&fill->walk, &run, first, last);
    while (iterate_next(&fill->walk, &run, CHUNK)) {
        if (fill->attr->is_truncated) make_truncated(fill->attr, fill->dtype, values, run.position, run.length);
        else create_random(&fill->attr->random, fill->dtype, values, run.position, run.length);
        convert(run.data[0], fill->dtype, stride, values, fill->dtype, 1, run.length, CONVERT_NEAREST, NULL);
    }
}

bool cpu_random_fill(const tl_kernel_args *args) {
    const tl_operand *x = &args->out[0];
    struct fill fill = {.attr = args->attr, .dtype = x->dtype};
    iterate_begin(&fill.walk, x->rank, x->shape, &x, 1, ITERATE_ROW_MAJOR);
    parallel_for(fill.walk.n, parallel_grain(4), args->n_threads, fill_range, &fill);
    return true;
}

/* ---- dropout ------------------------------------------------------------------------------------------------ */

struct dropout {
    const struct attr_dropout *attr;
    tl_dtype dtype;
    struct iterate walk; /* out, x */
};

static void dropout_range(void *context, int64_t first, int64_t last) {
    const struct dropout *d = context;
    const double growth = 1 / (1 - d->attr->p);
    const int64_t bytes = iterate_element_bytes(d->dtype);
    const int64_t to = d->walk.step[0] / bytes, from = d->walk.step[1] / bytes;
    const bool is_wide = d->dtype == TL_F64;
    uint8_t keep[CHUNK];
    float narrow[CHUNK];
    double wide[CHUNK];
    struct iterate_run run;
    iterate_seek(&d->walk, &run, first, last);
    while (iterate_next(&d->walk, &run, CHUNK)) {
        rng_fill_mask(keep, run.length, dropout_key(d->attr->generator),
                      dropout_first(d->attr->generator) + (uint64_t)run.position, d->attr->p);
        if (is_wide) {
            convert_to_f64(wide, run.data[1], d->dtype, from, run.length);
            for (int64_t i = 0; i < run.length; i++) wide[i] = keep[i] ? wide[i] * growth : 0;
            convert_from_f64(run.data[0], d->dtype, to, wide, run.length);
        } else {
            convert_to_f32(narrow, run.data[1], d->dtype, from, run.length);
            for (int64_t i = 0; i < run.length; i++) narrow[i] = keep[i] ? narrow[i] * (float)growth : 0;
            convert_from_f32(run.data[0], d->dtype, to, narrow, run.length);
        }
    }
}

bool cpu_dropout(const tl_kernel_args *args) {
    const tl_operand *operands[2] = {&args->out[0], &args->in[0]};
    struct dropout d = {.attr = args->attr, .dtype = args->out[0].dtype};
    iterate_begin(&d.walk, args->out[0].rank, args->out[0].shape, operands, 2, ITERATE_ROW_MAJOR);
    parallel_for(d.walk.n, parallel_grain(4), args->n_threads, dropout_range, &d);
    return true;
}

/* ---- Sorting ------------------------------------------------------------------------------------------------ */

/* Sorts pairs[0..n) by key, with room for as many behind them; returns where the result is. Three passes of 11 bits
 * order the upper 33; keys are draws or made of draws, so few agree in those, and insertion sort orders the rest. Few
 * pairs are sorted by insertion alone. */
static const struct pair *sort_pairs(struct pair *pairs, int64_t n) {
    enum { BITS = 11, DIGITS = 1 << BITS, FEW = 64 };
    struct pair *from = pairs, *to = pairs + n;
    SCRATCH_ARRAY(int64_t, start, DIGITS);
    for (int shift = 64 - 3 * BITS; n > FEW && shift < 64; shift += BITS) {
        memset(start, 0, DIGITS * sizeof *start);
        for (int64_t i = 0; i < n; i++) start[from[i].key >> shift & (DIGITS - 1)]++;
        exclusive_sums(start, DIGITS);
        for (int64_t i = 0; i < n; i++) to[start[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
        struct pair *swap = from;
        from = to;
        to = swap;
    }
    sort_short(from, n);
    return from;
}

/* Draws first .. first+n-1 of 64 bits, n <= CHUNK: draw i is words 2i and 2i+1. */
static void draw_wide(tl_generator g, int64_t first, int64_t n, uint64_t *to) {
    uint32_t words[2 * CHUNK];
    rng_fill_u32(words, 2 * n, key_of(g), 2 * (g.index + (uint64_t)first));
    for (int64_t i = 0; i < n; i++) to[i] = (uint64_t)words[2 * i + 1] << 32 | words[2 * i];
}

/* ---- permutation ---------------------------------------------------------------------------------------------
 *
 * The places, sorted by their draws. A *word* is the upper half of a draw and its place, which are enough: where two
 * upper halves are the same, the lower ones are drawn again.
 */

struct permutation {
    tl_generator generator;
    uint64_t *words; /* n, and room for as many */
};

static void draw_words(void *context, int64_t first, int64_t last) {
    const struct permutation *p = context;
    uint64_t draw[CHUNK];
    for (int64_t at = first; at < last; at += CHUNK) {
        const int64_t n = last - at < CHUNK ? last - at : CHUNK;
        draw_wide(p->generator, at, n, draw);
        for (int64_t i = 0; i < n; i++) p->words[at + i] = (draw[i] & ~(uint64_t)UINT32_MAX) | (uint64_t)(at + i);
    }
}

/* Whether a comes after b by the whole of their draws. */
static bool is_after(const struct permutation *p, uint64_t a, uint64_t b) {
    uint64_t draw[2];
    if (a >> 32 != b >> 32) return a > b;
    draw_wide(p->generator, (int64_t)(a & UINT32_MAX), 1, &draw[0]);
    draw_wide(p->generator, (int64_t)(b & UINT32_MAX), 1, &draw[1]);
    return draw[0] != draw[1] ? draw[0] > draw[1] : a > b;
}

/* As sort_pairs, with as many digits, of 11 bits from the top, as leave few words that agree in all of them. */
static const uint64_t *sort_words(const struct permutation *p, int64_t n) {
    enum { BITS = 11, DIGITS = 1 << BITS, FEW = 64 };
    uint64_t *from = p->words, *to = p->words + n;
    SCRATCH_ARRAY(int64_t, start, DIGITS);
    int n_digits = n > FEW;
    while (n_digits > 0 && n_digits < 3 && n >> (n_digits * BITS - 2)) n_digits++;
    for (int shift = 64 - n_digits * BITS; shift < 64; shift += BITS) {
        memset(start, 0, DIGITS * sizeof *start);
        for (int64_t i = 0; i < n; i++) start[from[i] >> shift & (DIGITS - 1)]++;
        exclusive_sums(start, DIGITS);
        for (int64_t i = 0; i < n; i++) to[start[from[i] >> shift & (DIGITS - 1)]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    for (int64_t i = 1; i < n; i++) {
        const uint64_t word = from[i];
        int64_t j = i;
        for (; j > 0 && is_after(p, from[j - 1], word); j--) from[j] = from[j - 1];
        from[j] = word;
    }
    return from;
}

/* Beyond 32 bits of places: whole draws. */
static void permute_pairs(tl_generator generator, struct pair *pairs, int64_t n, int64_t *out) {
    uint64_t draw[CHUNK];
    for (int64_t first = 0; first < n; first += CHUNK) {
        const int64_t m = n - first < CHUNK ? n - first : CHUNK;
        draw_wide(generator, first, m, draw);
        for (int64_t i = 0; i < m; i++) pairs[first + i] = (struct pair){draw[i], first + i};
    }
    const struct pair *sorted = sort_pairs(pairs, n);
    for (int64_t i = 0; i < n; i++) out[i] = sorted[i].index;
}

bool cpu_permutation(const tl_kernel_args *args) {
    const struct attr_permutation *attr = args->attr;
    const int64_t n = args->out[0].shape[0];
    int64_t *out = args->out[0].data;
    if (n > UINT32_MAX) {
        permute_pairs(attr->generator, args->workspace, n, out);
        return true;
    }
    struct permutation p = {attr->generator, args->workspace};
    parallel_for(n, parallel_grain(8), args->n_threads, draw_words, &p);
    const uint64_t *sorted = sort_words(&p, n);
    for (int64_t i = 0; i < n; i++) out[i] = (int64_t)(sorted[i] & UINT32_MAX);
    return true;
}

/* ---- multinomial -------------------------------------------------------------------------------------------- */

static bool refuse(const tl_kernel_args *args, const char *why) {
    snprintf(args->error, ERROR_BYTES, "%s", why);
    return false;
}

struct weights {
    const char *data;
    tl_dtype dtype;
    int64_t stride, K;
};

static struct weights weights_of(const tl_operand *p, int64_t row) {
    const int last = p->rank - 1;
    const int64_t offset = last ? row * p->stride[0] : 0;
    return (struct weights){(const char *)p->data + offset * iterate_element_bytes(p->dtype), p->dtype, p->stride[last],
                            p->shape[last]};
}

/* Weights first .. of a row, as many as fit into a chunk; returns how many. */
static int64_t read_weights(const struct weights *w, int64_t first, double *to) {
    const int64_t n = w->K - first < CHUNK ? w->K - first : CHUNK;
    convert_to_f64(to, w->data + first * w->stride * iterate_element_bytes(w->dtype), w->dtype, w->stride, n);
    return n;
}

/* The problem with a row, or NULL. */
static const char *fault_of(const struct attr_multinomial *attr, const struct weights *w) {
    enum { LANES = 8 };
    int64_t n_positive = 0, n_wrong = 0;
    double lane[LANES] = {0}, weight[CHUNK], sum = 0;
    for (int64_t first = 0; first < w->K; first += CHUNK) {
        const int64_t n = read_weights(w, first, weight);
        for (int64_t i = 0; i < n; i++) {
            n_wrong += !((weight[i] >= 0) & (weight[i] < (double)INFINITY));
            n_positive += weight[i] > 0;
        }
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES)
            for (int k = 0; k < LANES; k++) lane[k] += weight[i + k];
        for (; i < n; i++) lane[0] += weight[i];
    }
    for (int k = 0; k < LANES; k++) sum += lane[k];
    if (n_wrong) return "probability tensor contains either `inf`, `nan` or element < 0";
    if (!isfinite(sum)) return "the sum of probabilities is infinite";
    if (n_positive == 0) return "invalid multinomial distribution (sum of probabilities <= 0)";
    if (!attr->has_replacement && n_positive < attr->n_samples)
        return "invalid multinomial distribution (with replacement=False, not enough non-negative category to sample)";
    return NULL;
}

static void sample_with_replacement(const struct attr_multinomial *attr, const struct weights *w, double *below,
                                    int64_t row, int64_t *out) {
    _Static_assert(CHUNK % MULTINOMIAL_PART == 0, "a chunk has whole parts");
    double sum = 0;
    int64_t last = 0; /* however sums round, nothing of weight 0 is chosen */
    for (int64_t first = 0; first < w->K; first += CHUNK) {
        const int64_t end = first + read_weights(w, first, below + first);
        for (int64_t part = first; part < end; part += MULTINOMIAL_PART) {
            double within = 0;
            for (int64_t k = part; k < part + MULTINOMIAL_PART && k < end; k++) {
                last = below[k] > 0 ? k : last;
                within += below[k];
                below[k] = sum + within;
            }
            sum += within;
        }
    }
    for (int64_t j = 0; j < attr->n_samples; j++) {
        const uint64_t index = attr->generator.index + (uint64_t)(row * attr->n_samples + j);
        const double target = rng_uniform_f64(rng_wide_draw_at(key_of(attr->generator), index)) * sum;
        int64_t low = 0, high = last;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (below[middle] > target) high = middle;
            else low = middle + 1;
        }
        out[j] = low;
    }
}

static void sample_without_replacement(const struct attr_multinomial *attr, const struct weights *w, struct pair *pairs,
                                       int64_t row, int64_t *out) {
    double weight[CHUNK];
    uint64_t draw[CHUNK];
    int64_t n = 0;
    for (int64_t first = 0; first < w->K; first += CHUNK) {
        const int64_t read = read_weights(w, first, weight);
        draw_wide(attr->generator, row * w->K + first, read, draw);
        for (int64_t i = 0; i < read; i++) {
            const double u = fma((double)(draw[i] >> 12), 0x1p-52, 0x1p-53);
            /* Positive doubles sort as their bits do. */
            if (weight[i] > 0) pairs[n++] = (struct pair){f64_bits(-rng_log_f64(u) / weight[i]), first + i};
        }
    }
    const struct pair *sorted = sort_pairs(pairs, n);
    for (int64_t j = 0; j < attr->n_samples; j++) out[j] = sorted[j].index;
}

struct multinomial {
    const struct attr_multinomial *attr;
    const tl_operand *p;
    int64_t n_rows, n_slots, *out;
    char *workspace; /* a part for each slot */
    atomic_bool is_wrong;
};

static void check_rows(void *context, int64_t first, int64_t last) {
    struct multinomial *m = context;
    for (int64_t row = first; row < last; row++) {
        const struct weights w = weights_of(m->p, row);
        if (fault_of(m->attr, &w)) atomic_store_explicit(&m->is_wrong, true, memory_order_relaxed);
    }
}

/* Slot k draws for rows k, k + n_slots, ... */
static void sample_slots(void *context, int64_t first, int64_t last) {
    const struct multinomial *m = context;
    const int64_t n = m->attr->n_samples;
    for (int64_t slot = first; slot < last; slot++)
        for (int64_t row = slot; row < m->n_rows; row += m->n_slots) {
            const struct weights w = weights_of(m->p, row);
            char *room = m->workspace + slot * w.K * MULTINOMIAL_BYTES(m->attr->has_replacement);
            if (m->attr->has_replacement)
                sample_with_replacement(m->attr, &w, (double *)(void *)room, row, m->out + row * n);
            else sample_without_replacement(m->attr, &w, (struct pair *)(void *)room, row, m->out + row * n);
        }
}

/* Checks every row before anything is drawn; the error names the first invalid one. */
bool cpu_multinomial(const tl_kernel_args *args) {
    const tl_operand *p = &args->in[0];
    const int64_t K = p->shape[p->rank - 1];
    struct multinomial m = {.attr = args->attr,
                            .p = p,
                            .n_rows = p->rank == 2 ? p->shape[0] : 1,
                            .out = args->out[0].data,
                            .workspace = args->workspace};
    m.n_slots = m.n_rows < SORT_SLOTS ? m.n_rows : SORT_SLOTS;
    parallel_for(m.n_rows, parallel_grain(K), args->n_threads, check_rows, &m);
    for (int64_t row = 0; row < m.n_rows && atomic_load(&m.is_wrong); row++) {
        const struct weights w = weights_of(p, row);
        const char *fault = fault_of(m.attr, &w);
        if (fault) return refuse(args, fault);
    }
    const int64_t work = m.n_slots ? (m.n_rows / m.n_slots + 1) * K : 1;
    parallel_for(m.n_slots, parallel_grain((m.attr->has_replacement ? 2 : 64) * work), args->n_threads, sample_slots,
                 &m);
    return true;
}
