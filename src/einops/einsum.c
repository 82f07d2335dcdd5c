/* einsum.c: sums of products over named axes, as matrix products.
 *
 * A pattern and the shapes make a plan, which is cached (pattern_cache.h): which two tensors to contract first, and
 * so on. One step takes two tensors A and B. Their axes are of four kinds,
 *
 *   batch  in both, and needed later        k  in both, and not needed any more: summed over
 *   m      in A alone                       n  in B alone
 *
 * so that a step is (batch, m, k) x (batch, k, n) -> (batch, m, n): one batched matrix product, 2 batch m k n FLOPs.
 * Without k it is a product of elements, batch m n FLOPs; without m and n a product of elements and a sum. Axes that
 * only one input has and nothing else needs are summed before the first step. Axes of size 1 take no part: views drop
 * and restore them, and that is all broadcasting needs.
 *
 * The order is the one with the fewest FLOPs: exact for up to 8 inputs (over all subsets: the result of a subset does
 * not depend on its order), beyond that repeatedly the pair that shrinks most.
 *
 * Copies. m and k must each be one axis for the product. Their parts may be merged in any order, so we look for an
 * order that strides allow for both tensors; only if there is none, tl_reshape copies the tensor, once.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "spec/cost.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/number.h"
#include "einops/pattern_cache.h"
#include "einops/subscripts.h"
#include "engine/scope.h"

typedef uint64_t labels; /* a set */

struct operand {
    int rank;
    uint8_t label[TL_MAX_RANK];
    labels wide, lone; /* those of size other than 1; of these, the ones that are summed first */
    uint64_t sum_flops;
    bool is_plain; /* no axis of size 1, none repeated, none to be summed */
};

struct list {
    uint8_t n, label[TL_MAX_RANK];
};

struct step {
    int a, b;
    labels result;
    tl_count flops;
    int64_t numel;
    bool is_turned; /* B A instead of A B: then the output's last axis comes last */
    struct list batch, m, n, k, kept;
};

struct plan {
    struct cached cached;
    int n, n_labels;
    int64_t size[LABELS_MAX];
    struct {
        int at, bytes;
    } label[LABELS_MAX];
    int out_rank;
    uint8_t out[TL_MAX_RANK];
    labels out_wide;
    tl_count flops, flops_in_order;
    struct operand *operand;
    struct step *step; /* n - 1 of them */
};

static bool has(labels set, int label) { return set >> label & 1; }

/* ---- Which pair first ---- */

static count multiply(count a, count b) {
    count product;
    return __builtin_mul_overflow(a, b, &product) ? ~(count)0 : product;
}
static count plus(count a, count b) { return a > ~(count)0 - b ? ~(count)0 : a + b; }

static count volume(const struct plan *p, labels set) {
    count n = 1;
    for (; set; set &= set - 1) n = multiply(n, (count)p->size[__builtin_ctzll(set)]);
    return n;
}

/* A product per element of the joint axes, and a sum if some of them are dropped. */
static count step_flops(const struct plan *p, labels a, labels b, labels needed) {
    return multiply(volume(p, a | b), (a | b) & ~needed ? 2 : 1);
}

enum { EXACT = 8 };

struct best {
    count flops, between; /* FLOPs; then elements of results, where FLOPs are the same */
    int left;             /* one of the two halves */
};

static void step_append(struct plan *p, int *n_steps, int a, int b, labels in_a, labels in_b, labels needed) {
    struct step *s = &p->step[(*n_steps)++];
    labels result = (in_a | in_b) & needed;
    count numel = volume(p, result);
    s->a = a;
    s->b = b;
    s->result = result;
    s->flops = count_public(step_flops(p, in_a, in_b, needed));
    s->numel = numel > INT64_MAX ? INT64_MAX : (int64_t)numel;
}

/* The remaining axes of a set of inputs: those that other inputs or the output need. */
static labels subset_labels(const struct plan *p, int set) {
    labels inside = 0, outside = p->out_wide;
    for (int i = 0; i < p->n; i++) {
        labels own = p->operand[i].wide & ~p->operand[i].lone;
        if (set >> i & 1) inside |= own;
        else outside |= own;
    }
    return inside & outside;
}

static int subset_emit(struct plan *p, const struct best *best, const labels *left_over, int set, int *n_steps) {
    if ((set & (set - 1)) == 0) return __builtin_ctz((unsigned)set);
    int a_set = best[set].left, b_set = set & ~a_set;
    int a = subset_emit(p, best, left_over, a_set, n_steps), b = subset_emit(p, best, left_over, b_set, n_steps);
    step_append(p, n_steps, a, b, left_over[a_set], left_over[b_set], left_over[set]);
    return p->n + *n_steps - 1;
}

static void order_exactly(struct plan *p) {
    struct best best[1 << EXACT];
    labels left_over[1 << EXACT];
    int n_sets = 1 << p->n, n_steps = 0;
    for (int set = 1; set < n_sets; set++) left_over[set] = subset_labels(p, set);
    for (int set = 1; set < n_sets; set++) {
        best[set] = (struct best){0, 0, 0};
        if ((set & (set - 1)) == 0) continue;
        best[set].flops = ~(count)0;
        int lowest = set & -set;
        for (int a = (set - 1) & set; a; a = (a - 1) & set) {
            int b = set & ~a;
            if (!(a & lowest)) continue; /* each pair once */
            count flops =
                plus(plus(best[a].flops, best[b].flops), step_flops(p, left_over[a], left_over[b], left_over[set]));
            count between = plus(plus(best[a].between, best[b].between), volume(p, left_over[set]));
            if (best[set].left &&
                (flops > best[set].flops || (flops == best[set].flops && between >= best[set].between)))
                continue;
            best[set] = (struct best){flops, between, a};
        }
    }
    subset_emit(p, best, left_over, n_sets - 1, &n_steps);
}

/* Terms that are still there: inputs and results. */
struct pool {
    int n, id[TL_MAX_INPUTS];
    labels set[TL_MAX_INPUTS];
};

static labels needed_beside(const struct plan *p, const struct pool *t, int a, int b) {
    labels needed = p->out_wide;
    for (int i = 0; i < t->n; i++)
        if (i != a && i != b) needed |= t->set[i];
    return needed;
}

static void pool_contract(struct plan *p, struct pool *t, int a, int b, int *n_steps) {
    step_append(p, n_steps, t->id[a], t->id[b], t->set[a], t->set[b], needed_beside(p, t, a, b));
    t->set[a] = p->step[*n_steps - 1].result;
    t->id[a] = p->n + *n_steps - 1;
    t->n--;
    memmove(t->id + b, t->id + b + 1, (size_t)(t->n - b) * sizeof *t->id);
    memmove(t->set + b, t->set + b + 1, (size_t)(t->n - b) * sizeof *t->set);
}

static void pool_begin(const struct plan *p, struct pool *t) {
    t->n = p->n;
    for (int i = 0; i < p->n; i++) {
        t->id[i] = i;
        t->set[i] = p->operand[i].wide & ~p->operand[i].lone;
    }
}

/* How many more elements are held after a pair is contracted; may be negative. */
static double growth(const struct plan *p, const struct pool *t, int a, int b) {
    labels needed = needed_beside(p, t, a, b);
    return (double)volume(p, (t->set[a] | t->set[b]) & needed) - (double)volume(p, t->set[a]) -
           (double)volume(p, t->set[b]);
}

static void order_greedily(struct plan *p) {
    struct pool t;
    int n_steps = 0;
    pool_begin(p, &t);
    while (t.n > 1) {
        int best_a = 0, best_b = 1;
        double best = growth(p, &t, 0, 1);
        for (int a = 0; a < t.n; a++)
            for (int b = a + 1; b < t.n; b++) {
                double g = growth(p, &t, a, b);
                if (g < best) best = g, best_a = a, best_b = b;
            }
        pool_contract(p, &t, best_a, best_b, &n_steps);
    }
}

static count steps_flops(const struct plan *p) {
    count total = 0;
    for (int i = 0; i < p->n; i++) total = plus(total, p->operand[i].sum_flops);
    for (int i = 0; i < p->n - 1; i++) total = plus(total, (count)p->step[i].flops.high << 64 | p->step[i].flops.low);
    return total;
}

static void order_choose(struct plan *p) {
    struct pool t;
    int n_steps = 0;
    pool_begin(p, &t);
    while (t.n > 1) pool_contract(p, &t, 0, 1, &n_steps); /* left to right, to compare with */
    p->flops_in_order = count_public(steps_flops(p));
    if (p->n > 2 && p->n <= EXACT) order_exactly(p);
    else if (p->n > EXACT) order_greedily(p);
    p->flops = count_public(steps_flops(p));
}

/* ---- From a pattern to a plan ---- */

static labels term_set(const struct plan *p, int id) {
    return id < p->n ? p->operand[id].wide & ~p->operand[id].lone : p->step[id - p->n].result;
}

static void list_add(struct list *list, int label) {
    if (list->n < TL_MAX_RANK) list->label[list->n++] = (uint8_t)label; /* no tensor has more: see plan_fill */
}

/* Sorts the axes of a step into its four kinds; the last step's in the order of the output. */
static void step_sort(struct plan *p, struct step *s, bool is_last) {
    labels in_a = term_set(p, s->a), in_b = term_set(p, s->b), seen = 0;
    int want[LABELS_MAX], n = 0, last = -1;
    for (int i = 0; is_last && i < p->out_rank; i++) {
        if (!has(in_a | in_b, p->out[i])) continue;
        want[n++] = last = p->out[i];
        seen |= (labels)1 << p->out[i];
    }
    for (labels rest = (in_a | in_b) & ~seen; rest; rest &= rest - 1) want[n++] = __builtin_ctzll(rest);
    s->is_turned = last >= 0 && !has(in_b, last);
    if (s->is_turned) {
        labels swapped = in_a;
        in_a = in_b;
        in_b = swapped;
    }
    s->batch.n = s->m.n = s->n.n = s->k.n = s->kept.n = 0;
    for (int i = 0; i < n; i++) {
        bool is_kept = has(s->result, want[i]), both = has(in_a & in_b, want[i]);
        list_add(!is_kept ? &s->k : both ? &s->batch : has(in_a, want[i]) ? &s->m : &s->n, want[i]);
        if (is_kept) list_add(&s->kept, want[i]);
    }
}

static void operand_fill(struct operand *o, const struct subscripts *t, const tl_tensor *x) {
    o->rank = t->n;
    memcpy(o->label, t->label, (size_t)t->n);
    for (int i = 0; i < t->n; i++)
        if (x->shape[i] != 1) o->wide |= (labels)1 << t->label[i];
}

static bool plan_of_equation(const struct subject *s, const struct equation *e, struct plan *p) {
    p->n = e->n_inputs;
    p->n_labels = e->n_labels;
    for (int i = 0; i < e->n_labels; i++) p->label[i].at = e->label[i].at, p->label[i].bytes = e->label[i].bytes;
    p->out_rank = e->out.n;
    memcpy(p->out, e->out.label, (size_t)e->out.n);
    for (int i = 0; i < e->out.n; i++)
        if (p->size[e->out.label[i]] != 1) p->out_wide |= (labels)1 << e->out.label[i];
    for (int i = 0; i < p->n; i++) operand_fill(&p->operand[i], &e->in[i], s->tensors[i]);
    for (int i = 0; i < p->n; i++) {
        labels others = p->out_wide;
        for (int k = 0; k < p->n; k++) others |= k == i ? 0 : p->operand[k].wide;
        p->operand[i].lone = p->operand[i].wide & ~others;
        p->operand[i].is_plain = !p->operand[i].lone && __builtin_popcountll(p->operand[i].wide) == p->operand[i].rank;
        if (p->operand[i].lone) p->operand[i].sum_flops = (uint64_t)volume(p, p->operand[i].wide);
    }
    order_choose(p);
    for (int i = 0; i < p->n - 1; i++)
        if (__builtin_popcountll(p->step[i].result) > TL_MAX_RANK)
            return pattern_fail(s, -1, "a result between the steps has more than %d axes", TL_MAX_RANK);
    for (int i = 0; i < p->n - 1; i++) step_sort(p, &p->step[i], i == p->n - 2);
    return true;
}

static bool plan_fill(const struct subject *s, bool is_letters, struct plan *p) {
    struct equation *e = memory_new(sizeof *e);
    if (!e) return error_memory(sizeof *e, "an equation of einsum");
    bool ok = (is_letters ? equation_read_letters(s, e) : equation_read_names(s, e)) && equation_fit(s, e, p->size) &&
              plan_of_equation(s, e, p);
    memory_free(e);
    return ok;
}

/* The plan of a call, with a reference. NULL: recorded. */
static struct plan *plan_find(const struct subject *s, bool is_letters) {
    struct cache_key key;
    if (!s->pattern || s->n_tensors < 1 || s->n_tensors > TL_MAX_INPUTS || !s->tensors) {
        error_set(TL_ERROR_USE, "einsum: needs a pattern and 1 to %d tensors, not %d", TL_MAX_INPUTS, s->n_tensors);
        return NULL;
    }
    key_begin(&key, is_letters ? 'l' : 'e');
    const char n_shapes = (char)s->n_tensors; /* comes first, so that no text can be taken for a shape */
    key_add(&key, &n_shapes, sizeof n_shapes);
    for (int i = 0; i < s->n_tensors; i++) {
        if (!tensor_check(s->tensors[i], "einsum")) return NULL;
        key_add_shape(&key, s->tensors[i]->rank, s->tensors[i]->shape);
    }
    key_add(&key, s->pattern, strlen(s->pattern));
    key_end(&key);
    struct plan *p = cache_find(&key);
    if (p) return p;
    size_t n = (size_t)s->n_tensors;
    p = cached_new(&key, sizeof *p + n * (sizeof *p->operand + sizeof *p->step));
    if (!p) return NULL;
    p->operand = (struct operand *)(p + 1);
    p->step = (struct step *)(p->operand + n);
    if (!plan_fill(s, is_letters, p)) {
        cached_drop(p);
        return NULL;
    }
    cache_keep(p, &key);
    return p;
}

/* ---- Steps ---- */

/* A tensor whose axes are labels, each once, none of size 1. */
struct term {
    tl_tensor *x;
    int rank;
    uint8_t label[TL_MAX_RANK];
};

static int axis_of(const struct term *t, int label) {
    for (int i = 0; i < t->rank; i++)
        if (t->label[i] == label) return i;
    return -1;
}

static tl_tensor *permuted(tl_tensor *x, const int *axes) {
    bool is_identity = true;
    for (int i = 0; x && i < x->rank; i++) is_identity = is_identity && axes[i] == i;
    return !x || is_identity ? x : tl_permute(x, axes);
}

static tl_tensor *reshaped(tl_tensor *x, int rank, const int64_t *shape) {
    return !x || shape_equal(x->rank, x->shape, rank, shape) ? x : tl_reshape(x, rank, shape);
}

/* Repeated labels become one: their diagonal, which is a view. */
static tl_tensor *diagonals(struct term *t, tl_tensor *x) {
    for (int i = 0; x && i < t->rank; i++)
        for (int k = i + 1; k < t->rank; k++) {
            if (t->label[i] != t->label[k]) continue;
            uint8_t label = t->label[i];
            x = tl_diagonal(x, 0, i, k);
            memmove(t->label + k, t->label + k + 1, (size_t)(t->rank - k - 1));
            memmove(t->label + i, t->label + i + 1, (size_t)(t->rank - i - 2));
            t->rank--;
            t->label[t->rank - 1] = label;
            i = -1; /* from the start */
            break;
        }
    return x;
}

/* An input as a term: one dtype, diagonals, no axes of size 1, and axes that only it has summed. */
static bool term_begin(const struct plan *p, int input, tl_tensor *x, tl_dtype dtype, struct term *t) {
    const struct operand *o = &p->operand[input];
    int64_t shape[TL_MAX_RANK];
    int axes[TL_MAX_RANK], n_axes = 0, n = 0;
    t->rank = o->rank;
    memcpy(t->label, o->label, (size_t)o->rank);
    if (o->is_plain) {
        t->x = x->dtype == dtype ? x : tl_cast(x, dtype);
        return t->x != NULL;
    }
    x = diagonals(t, tl_cast(x, dtype));
    for (int i = 0; x && i < t->rank; i++)
        if (x->shape[i] != 1) {
            shape[n] = x->shape[i];
            t->label[n++] = t->label[i];
        }
    t->rank = n;
    x = reshaped(x, n, shape);
    for (int i = n = 0; o->lone && i < t->rank; i++)
        if (has(o->lone, t->label[i])) axes[n_axes++] = i;
        else t->label[n++] = t->label[i];
    if (o->lone) t->rank = n;
    t->x = x && n_axes ? tl_sum(x, axes, n_axes, false) : x;
    return t->x != NULL;
}

/* A term with its axes in the order of `list`, 1 where it has none. */
static tl_tensor *aligned(const struct term *t, const struct list *list) {
    int axes[TL_MAX_RANK], n = 0;
    int64_t shape[TL_MAX_RANK];
    for (int i = 0; i < list->n; i++) {
        int at = axis_of(t, list->label[i]);
        shape[i] = at < 0 ? 1 : t->x->shape[at];
        if (at >= 0) axes[n++] = at;
    }
    return reshaped(permuted(t->x, axes), list->n, shape);
}

static void list_join(struct list *to, const struct list *from) {
    for (int i = 0; i < from->n; i++) to->label[to->n++] = from->label[i]; /* a few: memcpy takes longer */
}

/* Products of elements; then the sum over k, for dtypes that have no matrix product. */
static tl_tensor *multiply_and_sum(const struct term *a, const struct term *b, const struct list *kept,
                                   const struct list *k) {
    struct list all = *kept;
    int axes[TL_MAX_RANK];
    if (kept->n + k->n > TL_MAX_RANK) {
        error_set(TL_ERROR_USE, "einsum: a product of elements has more than %d axes", TL_MAX_RANK);
        return NULL;
    }
    list_join(&all, k);
    for (int i = 0; i < k->n; i++) axes[i] = kept->n + i;
    tl_tensor *left = aligned(a, &all), *right = left ? aligned(b, &all) : NULL;
    tl_tensor *y = right ? tl_mul(left, right) : NULL;
    return y && k->n ? tl_sum(y, axes, k->n, false) : y;
}

/* May these axes be read as one? */
static bool merges(const struct term *t, const struct list *list) {
    for (int i = 0; i + 1 < list->n; i++) {
        int outer = axis_of(t, list->label[i]), inner = axis_of(t, list->label[i + 1]);
        if (t->x->stride[outer] != t->x->stride[inner] * t->x->shape[inner]) return false;
    }
    return true;
}

/* Largest stride first: the order in which axes merge, if there is one. */
static struct list by_stride(const struct term *t, const struct list *list) {
    struct list sorted = *list;
    for (int i = 1; i < sorted.n; i++)
        for (int k = i; k > 0; k--) {
            uint8_t *pair = sorted.label + k - 1, first = pair[0];
            if (t->x->stride[axis_of(t, first)] >= t->x->stride[axis_of(t, pair[1])]) break;
            pair[0] = pair[1];
            pair[1] = first;
        }
    return sorted;
}

/* Keeps the wanted order if it merges; otherwise takes the one that does. */
static bool rows_settle(const struct term *t, struct list *rows) {
    if (merges(t, rows)) return true;
    struct list sorted = by_stride(t, rows);
    if (!merges(t, &sorted)) return false;
    *rows = sorted;
    return true;
}

/* (batch, rows, columns) of a term. */
static tl_tensor *matrix(const struct term *t, const struct list *batch, const struct list *rows,
                         const struct list *columns) {
    const struct list *lists[3] = {batch, rows, columns};
    int axes[TL_MAX_RANK], n = 0, rank = batch->n + 2;
    int64_t shape[TL_MAX_RANK + 2];
    shape[rank - 2] = shape[rank - 1] = 1;
    if (t->rank == 2 && rows->n == 1 && columns->n == 1 && t->label[0] == rows->label[0]) return t->x;
    for (int j = 0; j < 3; j++)
        for (int i = 0; i < lists[j]->n; i++) {
            int at = axis_of(t, lists[j]->label[i]);
            axes[n++] = at;
            if (j == 0) shape[i] = t->x->shape[at];
            else shape[rank - 3 + j] *= t->x->shape[at];
        }
    return reshaped(permuted(t->x, axes), rank, shape);
}

/* One order of k for both, so that as few elements as possible are copied. */
static struct list columns_settle(const struct term *a, bool a_rows, const struct term *b, bool b_rows,
                                  const struct list *k) {
    if (k->n == 1) return *k;
    struct list order[2] = {by_stride(a, k), by_stride(b, k)};
    int64_t copied[2];
    for (int i = 0; i < 2; i++)
        copied[i] =
            (a_rows && merges(a, &order[i]) ? 0 : a->x->numel) + (b_rows && merges(b, &order[i]) ? 0 : b->x->numel);
    return copied[1] < copied[0] ? order[1] : order[0];
}

static tl_tensor *multiply_matrices(const struct plan *p, const struct step *s, const struct term *a,
                                    const struct term *b, struct list *kept) {
    struct list m = s->m, n = s->n;
    bool a_rows = rows_settle(a, &m), b_rows = rows_settle(b, &n);
    struct list columns = columns_settle(a, a_rows, b, b_rows, &s->k);
    tl_tensor *left = matrix(a, &s->batch, &m, &columns), *right = left ? matrix(b, &s->batch, &columns, &n) : NULL;
    tl_tensor *y = right ? tl_matmul(left, right) : NULL;
    int64_t shape[TL_MAX_RANK];
    *kept = s->batch;
    list_join(kept, &m);
    list_join(kept, &n);
    for (int i = 0; i < kept->n; i++) shape[i] = p->size[kept->label[i]];
    return reshaped(y, kept->n, shape);
}

/* Integers have no matrix product. And a batch of dot products is a batch of 1 x 1 matrices: products of elements and
 * a sum take a third to a twentieth of the time (same FLOPs, more memory). Not of narrow floats, which a product
 * would round. */
static bool is_many_dots(const struct step *s, tl_dtype dtype) {
    bool is_wide = dtype == TL_F32 || dtype == TL_F64;
    return !dtype_has_gradient(dtype) || (is_wide && s->batch.n && !s->m.n && !s->n.n);
}

/* One step: y has the axes of batch, m and n, in that order, or those of a product of elements in the wanted one. */
static tl_tensor *contract(const struct plan *p, const struct step *s, const struct term *a, const struct term *b,
                           struct term *result) {
    const struct term *left = s->is_turned ? b : a, *right = s->is_turned ? a : b;
    struct list kept;
    tl_tensor *y;
    if (s->k.n && !is_many_dots(s, a->x->dtype)) {
        y = multiply_matrices(p, s, left, right, &kept);
    } else {
        kept = s->kept;
        y = multiply_and_sum(left, right, &kept, &s->k);
    }
    result->rank = kept.n;
    memcpy(result->label, kept.label, kept.n);
    return y;
}

/* The last term in the order of the output, with its axes of size 1: views. */
static tl_tensor *finish(const struct plan *p, const struct term *t, tl_dtype dtype) {
    bool is_done = t->rank == p->out_rank;
    for (int i = 0; is_done && i < t->rank; i++) is_done = t->label[i] == p->out[i];
    if (is_done) return t->x->dtype == dtype ? t->x : tl_cast(t->x, dtype);
    struct list out = {.n = (uint8_t)p->out_rank};
    memcpy(out.label, p->out, (size_t)p->out_rank);
    tl_tensor *y = aligned(t, &out);
    return y ? tl_cast(y, dtype) : NULL;
}

/* One or two inputs: one scope for all. */
static tl_tensor *plan_run_small(const struct plan *p, tl_tensor *const *tensors, tl_dtype dtype) {
    struct term term[3];
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    bool ok = term_begin(p, 0, tensors[0], dtype, &term[0]);
    if (p->n == 2) {
        ok = ok && term_begin(p, 1, tensors[1], dtype, &term[1]);
        term[2].x = ok ? contract(p, &p->step[0], &term[0], &term[1], &term[2]) : NULL;
        ok = term[2].x != NULL;
    }
    tl_tensor *y = ok ? finish(p, &term[p->n == 2 ? 2 : 0], dtype) : NULL;
    return tl_scope_return(scope, y);
}

static void term_drop(struct term *t) {
    if (t->x) tl_drop(t->x);
    t->x = NULL;
}

/* More: every step in a separate scope, with results held by hand, so that none outlives its use. */
static tl_tensor *plan_run(const struct plan *p, tl_tensor *const *tensors, tl_dtype dtype) {
    struct term term[2 * TL_MAX_INPUTS];
    int n_terms = 2 * p->n - 1;
    bool ok = true;
    for (int i = 0; i < 2 * TL_MAX_INPUTS; i++) term[i].x = NULL;
    for (int i = 0; ok && i <= n_terms; i++) { /* inputs, steps, and the last touch */
        const struct step *s = i < p->n || i == n_terms ? NULL : &p->step[i - p->n];
        struct term *t = &term[i < n_terms ? i : n_terms - 1];
        tl_tensor *before = t->x;
        tl_scope scope = tl_scope_begin();
        ok = scope.depth != 0;
        if (!ok) break;
        if (i < p->n) term_begin(p, i, tensors[i], dtype, t);
        else t->x = s ? contract(p, s, &term[s->a], &term[s->b], t) : finish(p, t, dtype);
        ok = t->x != NULL;
        if (ok) tl_keep(t->x);
        if (before) tl_drop(before);
        if (s) term_drop(&term[s->a]), term_drop(&term[s->b]);
        tl_scope_end(scope);
    }
    tl_tensor *y = ok ? term[n_terms - 1].x : NULL;
    for (int i = 0; i < n_terms; i++)
        if (!y || i < n_terms - 1) term_drop(&term[i]);
    return scope_adopt(y);
}

static tl_tensor *einsum(const struct subject *s, bool is_letters) {
    struct plan *p = plan_find(s, is_letters);
    if (!p) return NULL;
    tl_dtype dtype = s->tensors[0]->dtype;
    for (int i = 1; i < p->n && dtype != TL_DTYPE_COUNT; i++) dtype = dtype_promote(dtype, s->tensors[i]->dtype);
    tl_tensor *y = NULL;
    if (dtype == TL_DTYPE_COUNT) pattern_fail(s, -1, "the inputs have no common dtype (need tl_cast)");
    else y = (p->n > 2 ? plan_run : plan_run_small)(p, s->tensors, dtype);
    cached_drop(p);
    return y;
}

tl_tensor *tl_einsum(const char *pattern, tl_tensor **tensors, int n) {
    return einsum(&(struct subject){.op = "einsum", .pattern = pattern, .tensors = tensors, .n_tensors = n}, false);
}

tl_tensor *tl_einsum_letters(const char *pattern, tl_tensor **tensors, int n) {
    return einsum(&(struct subject){.op = "einsum", .pattern = pattern, .tensors = tensors, .n_tensors = n}, true);
}

/* ---- The plan, for reading ---- */

/* Text that grows; after a failure it stays as it is. */
struct writing {
    char *text;
    size_t used, size;
    bool is_broken;
};

static void put(struct writing *w, const char *format, ...) TL_PRINTF(2, 3);
static void put(struct writing *w, const char *format, ...) {
    va_list arguments;
    char line[256];
    va_start(arguments, format);
    int n = number_vprint(line, sizeof line, format, arguments);
    va_end(arguments);
    if (n < 0 || w->is_broken) return;
    if ((size_t)n >= sizeof line) n = (int)sizeof line - 1;
    if (w->used + (size_t)n + 1 > w->size) {
        size_t size = w->size * 2 + sizeof line;
        char *larger = memory_resize(w->text, size);
        w->is_broken = !larger;
        if (!larger) return;
        w->text = larger;
        w->size = size;
    }
    memcpy(w->text + w->used, line, (size_t)n + 1);
    w->used += (size_t)n;
}

static void put_label(struct writing *w, const struct subject *s, const struct plan *p, int label, const char *before) {
    int first_dots = p->n_labels;
    while (first_dots > 0 && p->label[first_dots - 1].bytes == 0) first_dots--;
    if (p->label[label].bytes) put(w, "%s%.*s", before, PART(s->pattern, p->label[label].at, p->label[label].bytes));
    else put(w, "%s...%d", before, label - first_dots); /* an axis of the ellipsis */
}

/* The axes of a term: an input's in its own order, a result's in that of its step. */
static void put_term(struct writing *w, const struct subject *s, const struct plan *p, int id) {
    const struct list *kept = id < p->n ? NULL : &p->step[id - p->n].kept;
    labels set = term_set(p, id);
    const char *before = "";
    for (int i = 0; i < (kept ? kept->n : p->operand[id].rank); i++) {
        int label = kept ? kept->label[i] : p->operand[id].label[i];
        if (!has(set, label)) continue;
        set &= ~((labels)1 << label); /* a repeated name once */
        put_label(w, s, p, label, before);
        before = " ";
    }
    if (!*before) put(w, "1");
}

static void put_set(struct writing *w, const struct subject *s, const struct plan *p, labels set) {
    const char *before = "";
    for (; set; set &= set - 1, before = " ") put_label(w, s, p, __builtin_ctzll(set), before);
}

static char *plan_text(const struct subject *s, const struct plan *p, const tl_contraction *total) {
    struct writing w = {0};
    char digits[40];
    put(&w, "einsum \"%.180s\":", s->pattern);
    for (int i = 0; i < p->n_labels; i++) {
        put_label(&w, s, p, i, i ? ", " : " ");
        put(&w, " = %lld", (long long)p->size[i]);
    }
    put(&w, "\n");
    for (int i = 0; i < p->n; i++)
        if (p->operand[i].lone) {
            put(&w, "  sum   [%d] over ", i);
            put_set(&w, s, p, p->operand[i].lone);
            put(&w, ": %llu FLOPs\n", (unsigned long long)p->operand[i].sum_flops);
        }
    for (int i = 0; i < p->n - 1; i++) {
        const struct step *t = &p->step[i];
        put(&w, "  [%d] = [%d] x [%d]: ", p->n + i, t->a, t->b);
        put_term(&w, s, p, t->a);
        put(&w, ", ");
        put_term(&w, s, p, t->b);
        put(&w, " -> ");
        put_term(&w, s, p, p->n + i);
        put(&w, ": %s FLOPs, %lld elements\n", tl_count_text(t->flops, digits), (long long)t->numel);
    }
    put(&w, "  total %s FLOPs", tl_count_text(total->flops, digits));
    put(&w, " (from left to right %s)", tl_count_text(total->flops_in_order, digits));
    put(&w, ", largest result on the way %lld elements\n", (long long)total->largest);
    if (!w.is_broken) return w.text;
    memory_free(w.text);
    error_memory(w.size * 2, "the text of a plan");
    return NULL;
}

bool tl_einsum_plan(const char *pattern, bool is_letters, tl_tensor **tensors, int n, tl_einsum_step *steps,
                    tl_contraction *total, char **text) {
    struct subject s = {.op = "einsum", .pattern = pattern, .tensors = tensors, .n_tensors = n};
    struct plan *p = plan_find(&s, is_letters);
    if (!p) return false;
    tl_contraction sum = {.n_steps = p->n - 1, .flops = p->flops, .flops_in_order = p->flops_in_order};
    for (int i = 0; i < p->n - 1; i++) {
        const struct step *t = &p->step[i];
        if (i < p->n - 2 && t->numel > sum.largest) sum.largest = t->numel;
        if (steps) steps[i] = (tl_einsum_step){t->a, t->b, t->flops, t->numel};
    }
    if (total) *total = sum;
    bool ok = !text || (*text = plan_text(&s, p, &sum)) != NULL;
    cached_drop(p);
    return ok;
}
