/* einops.c: rearrange, reduce and repeat, as sequences of ops.
 *
 * A pattern, an operation, a rank and the names of the given lengths make a recipe, which is cached
 * (pattern_cache.h). With a tensor's shape and the values of the lengths, it gives the steps:
 *
 *   split    every input axis into the axes of its group            a view
 *   permute  kept axes into the order of the output                 a view
 *   reduce   over the axes that the output does not name            an op; its result is dense
 *   widen    by axes that only the output names                     a view with stride 0
 *   merge    the axes of every output group                         a view where strides allow it, otherwise one copy
 *
 * Steps that do nothing are left out; if only split and merge are left, they are one reshape. So data is copied at
 * most once, in the last step.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/number.h"
#include "einops/pattern_cache.h"
#include "einops/einops.h"
#include "einops/pattern.h"
#include "engine/scope.h"

enum { LENGTHS_BYTES = 1024 };

/* An axis that is not split any further: those of the input in their order, then new ones. */
struct elementary {
    int at, bytes; /* in the pattern */
    int given;     /* which length gives its size, -1 for none */
    int64_t size;  /* of a number; 0 otherwise */
};

struct recipe {
    struct cached cached;
    int n_in, n_out;                     /* rank of input and output */
    int n_left, n_all;                   /* elementary axes of the input, and with the new ones */
    int n_kept;                          /* of the input, kept in the output */
    bool keeps_order;                    /* and they come in the order of the input */
    int order[TL_MAX_RANK], n_order;     /* elementary axes as the output has them */
    int reduced[TL_MAX_RANK], n_reduced; /* those it has not */
    int out_axes[TL_MAX_RANK];           /* how many of the order make one output axis */
    struct {
        int first, n, unknown, at; /* its elementary axes; the one to be inferred, or -1; its place in the pattern */
    } in[TL_MAX_RANK];
    struct elementary axis[TL_MAX_RANK];
};

typedef tl_tensor *(*reduction_fn)(tl_tensor *x, const int *axes, int n_axes, bool keep);
static const struct operation {
    const char *name; /* of the reduction */
    reduction_fn reduce;
} operations[] = {
    {"rearrange", NULL}, {"repeat", NULL},  {"sum", tl_sum}, {"mean", tl_mean}, {"max", tl_max},
    {"min", tl_min},     {"prod", tl_prod}, {"any", tl_any}, {"all", tl_all},   {"logsumexp", tl_logsumexp}};
enum { REARRANGE, REPEAT, FIRST_REDUCTION, N_OPERATIONS = sizeof operations / sizeof operations[0] };

/* ---- From a pattern to a recipe ---- */

static bool same_axis(const char *pattern, const struct pattern_axis *a, const struct pattern_axis *b) {
    if (a->kind != b->kind || a->kind == AXIS_NUMBER) return false; /* numbers are each on their own */
    return a->kind == AXIS_ELLIPSIS ||
           (a->bytes == b->bytes && memcmp(pattern + a->at, pattern + b->at, (size_t)a->bytes) == 0);
}

/* Which axis of a side is this one? -1: none. */
static int matching(const struct side *side, const char *pattern, const struct pattern_axis *a) {
    for (int i = 0; i < side->n_axes; i++)
        if (same_axis(pattern, &side->axis[i], a)) return i;
    return -1;
}

/* Which names may stand on one side only. */
static bool sides_agree(const struct subject *s, int operation, const struct side *left, const struct side *right) {
    const char *p = s->pattern;
    if (left->ellipsis >= 0 && left->ellipsis_is_grouped)
        return pattern_fail(s, left->axis[left->ellipsis].at,
                            "an ellipsis in parentheses on the left side (need it "
                            "outside, or on the right side)");
    for (int i = 0; i < left->n_axes; i++) {
        const struct pattern_axis *a = &left->axis[i];
        if (operation >= FIRST_REDUCTION || matching(right, p, a) >= 0) continue;
        if (a->kind == AXIS_NUMBER)
            return pattern_fail(s, a->at, "an axis of size %lld without a name on the left side of %s (need a name)",
                                (long long)a->length, s->op);
        return pattern_fail(s, a->at, "\"%.*s\" is on the left side only (need it on both; tl_reduce drops axes)",
                            PART(p, a->at, a->bytes));
    }
    for (int i = 0; i < right->n_axes; i++) {
        const struct pattern_axis *a = &right->axis[i];
        if (matching(left, p, a) >= 0) continue;
        if (a->kind == AXIS_ELLIPSIS)
            return pattern_fail(s, a->at, "an ellipsis on the right side and none on the left side");
        if (operation == REPEAT) continue;
        if (a->kind == AXIS_NUMBER)
            return pattern_fail(s, a->at, "an axis of size %lld on the right side of %s (tl_repeat adds axes)",
                                (long long)a->length, s->op);
        return pattern_fail(s, a->at, "\"%.*s\" is on the right side only (tl_repeat adds axes)",
                            PART(p, a->at, a->bytes));
    }
    return true;
}

static bool ranks_agree(const struct subject *s, const struct side *left, int rank) {
    int others = left->n_groups - (left->ellipsis >= 0);
    if (left->ellipsis >= 0 ? rank >= others : rank == others) return true;
    return pattern_fail(s, left->n_groups ? left->group[left->n_groups - 1].at : left->at,
                        "the pattern has %s%d ax%s on the left side, the input has %d",
                        left->ellipsis >= 0 ? "at least " : "", others, others == 1 ? "is" : "es", rank);
}

static bool too_many(const struct subject *s, int at) {
    return pattern_fail(s, at, "more than %d axes at once", TL_MAX_RANK);
}

static bool elementary_add(const struct subject *s, struct recipe *r, const struct pattern_axis *a) {
    if (r->n_all == TL_MAX_RANK) return too_many(s, a->at);
    r->axis[r->n_all++] = (struct elementary){a->at, a->bytes, -1, a->length};
    return true;
}

/* Input axes and their elementary axes. first[i]: where axis i of the side begins among them. */
static bool add_left(const struct subject *s, struct recipe *r, const struct side *left, int rank, int *first) {
    int n_dots = rank - (left->n_groups - 1); /* axes that the ellipsis stands for */
    for (int g = 0; g < left->n_groups; g++) {
        const struct pattern_group *group = &left->group[g];
        for (int i = group->first; i < group->first + group->n_axes; i++) first[i] = r->n_all + i - group->first;
        bool is_dots = group->n_axes == 1 && left->axis[group->first].kind == AXIS_ELLIPSIS;
        for (int k = 0; k < (is_dots ? n_dots : 1); k++) {
            r->in[r->n_in].at = group->at;
            r->in[r->n_in].first = r->n_all;
            r->in[r->n_in].n = is_dots ? 1 : group->n_axes;
            for (int i = 0; i < group->n_axes; i++)
                if (!elementary_add(s, r, &left->axis[group->first + i])) return false;
            r->n_in++;
        }
    }
    r->n_left = r->n_all;
    return true;
}

static bool order_add(const struct subject *s, struct recipe *r, int index, int at) {
    if (r->n_order == TL_MAX_RANK) return too_many(s, at);
    r->order[r->n_order++] = index;
    return true;
}

static bool out_add(const struct subject *s, struct recipe *r, int n_axes, int at) {
    if (r->n_out == TL_MAX_RANK) return too_many(s, at);
    r->out_axes[r->n_out++] = n_axes;
    return true;
}

static bool add_right(const struct subject *s, struct recipe *r, const struct side *left, const struct side *right,
                      const int *first) {
    int n_dots = r->n_in - (left->n_groups - 1);
    for (int g = 0; g < right->n_groups; g++) {
        const struct pattern_group *group = &right->group[g];
        int n_before = r->n_order, last = group->first + group->n_axes;
        bool is_dots =
            right->ellipsis >= 0 && !right->ellipsis_is_grouped && group->first == right->ellipsis && group->n_axes;
        for (int i = group->first; i < last; i++) {
            const struct pattern_axis *a = &right->axis[i];
            int at_left = matching(left, s->pattern, a), n = a->kind == AXIS_ELLIPSIS ? n_dots : 1;
            int index = at_left >= 0 ? first[at_left] : r->n_all;
            if (at_left < 0 && !elementary_add(s, r, a)) return false;
            for (int k = 0; k < n; k++) {
                if (!order_add(s, r, index + k, a->at)) return false;
                if (is_dots && !out_add(s, r, 1, a->at)) return false;
            }
        }
        if (!is_dots && !out_add(s, r, r->n_order - n_before, group->at)) return false;
    }
    return true;
}

/* Which lengths are given, and which are to be inferred. */
static bool lengths_assign(const struct subject *s, struct recipe *r) {
    const char *p = s->pattern;
    for (int k = 0; k < s->lengths->n; k++) {
        bool is_used = false;
        const char *problem = name_problem(s->lengths->item[k].name, s->lengths->item[k].bytes);
        if (problem)
            return pattern_fail(s, -1, "a length for \"%.*s\", which is no name: %s",
                                PART(s->lengths->item[k].name, 0, s->lengths->item[k].bytes), problem);
        for (int i = 0; i < r->n_all; i++) {
            struct elementary *e = &r->axis[i];
            bool same = e->bytes == s->lengths->item[k].bytes &&
                        memcmp(p + e->at, s->lengths->item[k].name, (size_t)e->bytes) == 0;
            if (same) e->given = k;
            is_used = is_used || same;
        }
        if (!is_used)
            return pattern_fail(s, -1, "a length is given for \"%.*s\", which is not in the pattern",
                                PART(s->lengths->item[k].name, 0, s->lengths->item[k].bytes));
    }
    for (int g = 0; g < r->n_in; g++) {
        int unknown = -1;
        for (int i = r->in[g].first; i < r->in[g].first + r->in[g].n; i++) {
            const struct elementary *e = &r->axis[i];
            if (e->given >= 0 || e->size) continue;
            if (unknown >= 0)
                return pattern_fail(s, e->at,
                                    "the sizes of \"%.*s\" and \"%.*s\" cannot both be inferred (need the length "
                                    "of one)",
                                    PART(p, r->axis[unknown].at, r->axis[unknown].bytes), PART(p, e->at, e->bytes));
            unknown = i;
        }
        r->in[g].unknown = unknown;
    }
    for (int i = r->n_left; i < r->n_all; i++)
        if (r->axis[i].given < 0 && !r->axis[i].size)
            return pattern_fail(s, r->axis[i].at, "the new axis \"%.*s\" needs a length",
                                PART(p, r->axis[i].at, r->axis[i].bytes));
    return true;
}

static void order_finish(struct recipe *r) {
    uint64_t kept = 0;
    int last = -1;
    r->keeps_order = true;
    for (int i = 0; i < r->n_order; i++) {
        if (r->order[i] >= r->n_left) continue;
        r->keeps_order = r->keeps_order && r->order[i] > last;
        last = r->order[i];
        kept |= (uint64_t)1 << last;
        r->n_kept++;
    }
    for (int i = 0; i < r->n_left; i++)
        if (!(kept >> i & 1)) r->reduced[r->n_reduced++] = i;
}

static bool recipe_fill(const struct subject *s, int operation, int rank, struct recipe *r) {
    struct side left, right;
    int first[SIDE_MAX], arrow = pattern_arrow(s);
    bool ok = arrow >= 0 && side_parse(s, 0, arrow, 0, &left) &&
              side_parse(s, arrow + 2, (int)strlen(s->pattern), 0, &right) &&
              sides_agree(s, operation, &left, &right) && ranks_agree(s, &left, rank) &&
              add_left(s, r, &left, rank, first) && add_right(s, r, &left, &right, first) && lengths_assign(s, r);
    if (ok) order_finish(r);
    return ok;
}

/* The recipe of a call, with a reference. NULL: recorded. */
static struct recipe *recipe_find(const struct subject *s, int operation, int rank) {
    struct cache_key key;
    char head[3] = {(char)operation, (char)rank, (char)s->lengths->n};
    key_begin(&key, 'r');
    key_add(&key, head, sizeof head);
    for (int i = 0; i < s->lengths->n; i++) {
        key_add(&key, &s->lengths->item[i].bytes, sizeof s->lengths->item[i].bytes);
        key_add(&key, s->lengths->item[i].name, (size_t)s->lengths->item[i].bytes);
    }
    key_add(&key, s->pattern, strlen(s->pattern));
    key_end(&key);
    struct recipe *r = cache_find(&key);
    if (r) return r;
    r = cached_new(&key, sizeof *r);
    if (r && !recipe_fill(s, operation, rank, r)) {
        cached_drop(r);
        return NULL;
    }
    if (r) cache_keep(r, &key);
    return r;
}

/* ---- From a recipe and a shape to sizes ---- */

/* "h=4 x 3": the known sizes of an input axis. */
static void known_print(char *text, size_t size, const struct subject *s, const struct recipe *r, int g) {
    size_t used = 0;
    text[0] = 0;
    for (int i = r->in[g].first; i < r->in[g].first + r->in[g].n && used < size; i++) {
        const struct elementary *e = &r->axis[i];
        if (i == r->in[g].unknown) continue;
        const char *by = used ? " x " : "";
        int n = e->given < 0 ? snprintf(text + used, size - used, "%s%lld", by, (long long)e->size)
                             : snprintf(text + used, size - used, "%s%.*s=%lld", by, PART(s->pattern, e->at, e->bytes),
                                        (long long)s->lengths->item[e->given].size);
        used += (size_t)n;
    }
}

static bool size_fail(const struct subject *s, const struct recipe *r, int g, int64_t length, int64_t known) {
    char text[160];
    int at = r->in[g].at, unknown = r->in[g].unknown;
    known_print(text, sizeof text, s, r, g);
    if (unknown < 0 && r->in[g].n > 1)
        return pattern_fail(s, at, "axis %d of the input has size %lld, and the pattern says %s = %lld", g,
                            (long long)length, text, (long long)known);
    if (unknown < 0)
        return pattern_fail(s, at, "axis %d of the input has size %lld, and the pattern says %s", g, (long long)length,
                            r->in[g].n ? text : "1");
    const struct elementary *e = &r->axis[unknown];
    if (known == 0)
        return pattern_fail(s, e->at, "the size of \"%.*s\" cannot be inferred beside %s",
                            PART(s->pattern, e->at, e->bytes), text);
    return pattern_fail(s, e->at,
                        "axis %d of the input has size %lld, which %s does not divide, so \"%.*s\" has no size", g,
                        (long long)length, text, PART(s->pattern, e->at, e->bytes));
}

static bool sizes_infer(const struct subject *s, const struct recipe *r, const int64_t *shape, int64_t *size) {
    for (int i = 0; i < r->n_all; i++) {
        const struct elementary *e = &r->axis[i];
        size[i] = e->given >= 0 ? s->lengths->item[e->given].size : e->size;
    }
    for (int g = 0; g < r->n_in; g++) {
        int first = r->in[g].first, unknown = r->in[g].unknown;
        if (unknown == first && r->in[g].n == 1) { /* the common case */
            size[first] = shape[g];
            continue;
        }
        int64_t known = 1;
        bool fits = true;
        for (int i = first; i < first + r->in[g].n; i++)
            if (i != unknown) fits = fits && size_mul(known, size[i], &known);
        if (!fits) return pattern_fail(s, r->axis[first].at, "the given lengths multiply to more than 2^63");
        if (unknown >= 0 ? known == 0 || shape[g] % known : shape[g] != known)
            return size_fail(s, r, g, shape[g], known);
        if (unknown >= 0) size[unknown] = shape[g] / known;
    }
    return true;
}

/* ---- Steps ---- */

static tl_tensor *reshape(tl_tensor *x, int rank, const int64_t *shape) {
    return !x || shape_equal(x->rank, x->shape, rank, shape) ? x : tl_reshape(x, rank, shape);
}

/* Kept axes in the output's order, then the reduced ones, which are dropped. */
static tl_tensor *permute_and_reduce(const struct recipe *r, tl_tensor *x, reduction_fn reduce) {
    int axes[TL_MAX_RANK], n = 0;
    if (r->keeps_order) return r->n_reduced && x ? reduce(x, r->reduced, r->n_reduced, false) : x;
    for (int i = 0; i < r->n_order; i++)
        if (r->order[i] < r->n_left) axes[n++] = r->order[i];
    for (int i = 0; i < r->n_reduced; i++) axes[n + i] = r->reduced[i];
    x = x ? tl_permute(x, axes) : NULL;
    for (int i = 0; i < r->n_reduced; i++) axes[i] = n + i;
    return r->n_reduced && x ? reduce(x, axes, r->n_reduced, false) : x;
}

/* New axes, as views of size 1 first. */
static tl_tensor *widen(const struct recipe *r, tl_tensor *x, const int64_t *size) {
    int64_t narrow[TL_MAX_RANK], wide[TL_MAX_RANK];
    for (int i = 0; i < r->n_order; i++) {
        wide[i] = size[r->order[i]];
        narrow[i] = r->order[i] < r->n_left ? wide[i] : 1;
    }
    x = reshape(x, r->n_order, narrow);
    return !x || shape_equal(r->n_order, narrow, r->n_order, wide) ? x : tl_expand(x, r->n_order, wide);
}

static bool out_sizes(const struct subject *s, const struct recipe *r, const int64_t *size, int64_t *out) {
    for (int g = 0, at = 0; g < r->n_out; g++) {
        out[g] = 1;
        for (int i = 0; i < r->out_axes[g]; i++, at++)
            if (!size_mul(out[g], size[r->order[at]], &out[g]))
                return pattern_fail(s, r->axis[r->order[at]].at, "the output has a size of more than 2^63");
    }
    return true;
}

static tl_tensor *run(const struct subject *s, const struct recipe *r, tl_tensor *x, reduction_fn reduce) {
    int64_t size[TL_MAX_RANK], out[TL_MAX_RANK];
    if (!sizes_infer(s, r, x->shape, size) || !out_sizes(s, r, size, out)) return NULL;
    if (reduce == tl_mean && r->n_reduced && !dtype_has_gradient(x->dtype)) {
        pattern_fail(s, r->axis[r->reduced[0]].at, "the mean of %s (need a float: tl_cast first)",
                     tl_dtype_name(x->dtype));
        return NULL;
    }
    if (r->keeps_order && r->n_left == r->n_order) return reshape(x, r->n_out, out); /* only split and merge */
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *y = x;
    if (!r->keeps_order || r->n_reduced) y = permute_and_reduce(r, reshape(x, r->n_left, size), reduce);
    if (r->n_all > r->n_left) y = widen(r, y, size);
    y = reshape(y, r->n_out, out);
    if (y == x) { /* there was nothing to do: x belongs to another scope */
        tl_scope_end(scope);
        return x;
    }
    return tl_scope_return(scope, y);
}

/* ---- The public functions ---- */

static tl_tensor *transform(const struct subject *s, int operation) {
    tl_tensor *x = s->tensors[0];
    struct recipe *r = recipe_find(s, operation, x->rank);
    tl_tensor *y = r ? run(s, r, x, operations[operation].reduce) : NULL;
    cached_drop(r);
    return y;
}

/* The common beginning of all six. */
static bool ready(struct subject *s, tl_tensor *const *x, const char *pattern, struct lengths *lengths) {
    if (!tensor_check(*x, s->op)) return false;
    lengths->n = 0;
    s->tensors = x;
    s->n_tensors = 1;
    s->pattern = pattern;
    s->lengths = lengths;
    return pattern || error_set(TL_ERROR_USE, "%s: got NULL instead of a pattern", s->op);
}

static int reduction_find(const struct subject *s, const char *name) {
    for (int i = FIRST_REDUCTION; name && i < N_OPERATIONS; i++)
        if (strcmp(operations[i].name, name) == 0) return i;
    pattern_fail(s, -1, "there is no reduction \"%.40s\" (need sum, mean, max, min, prod, any, all or logsumexp)",
                 name ? name : "NULL");
    return -1;
}

tl_tensor *tl_rearrange(tl_tensor *x, const char *pattern, const char *lengths) {
    struct lengths l;
    struct subject s = {.op = "rearrange"};
    return ready(&s, &x, pattern, &l) && lengths_parse(&s, lengths, &l) ? transform(&s, REARRANGE) : NULL;
}

tl_tensor *tl_repeat(tl_tensor *x, const char *pattern, const char *lengths) {
    struct lengths l;
    struct subject s = {.op = "repeat"};
    return ready(&s, &x, pattern, &l) && lengths_parse(&s, lengths, &l) ? transform(&s, REPEAT) : NULL;
}

tl_tensor *tl_reduce(tl_tensor *x, const char *pattern, const char *reduction, const char *lengths) {
    struct lengths l;
    struct subject s = {.op = "reduce"};
    if (!ready(&s, &x, pattern, &l) || !lengths_parse(&s, lengths, &l)) return NULL;
    int operation = reduction_find(&s, reduction);
    return operation < 0 ? NULL : transform(&s, operation);
}

/* An argument that was cut or not printed is no length, so the call that gets it fails as well. */
const char *tl_lengths(const char *format, ...) {
    static _Thread_local char text[LENGTHS_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int n = format ? number_vprint(text, sizeof text, format, arguments) : -1;
    va_end(arguments);
    if (n >= 0 && n < (int)sizeof text) return text;
    error_set(TL_ERROR_USE,
              n < 0 ? "lengths: the format cannot be printed" : "lengths: the text has %d bytes (need %d or fewer)", n,
              LENGTHS_BYTES - 1);
    return "?";
}

bool einops_check(const char *pattern, bool reduces, const char *reduction, const char *lengths) {
    struct lengths l = {.n = 0};
    struct side left;
    struct subject s = {.op = reduces ? "reduce" : "rearrange", .pattern = pattern, .lengths = &l};
    if (!pattern) return error_set(TL_ERROR_USE, "%s: got NULL instead of a pattern", s.op);
    if (!lengths_parse(&s, lengths, &l)) return false;
    const int operation = reduces ? reduction_find(&s, reduction) : REARRANGE;
    const int arrow = operation >= 0 ? pattern_arrow(&s) : -1;
    if (arrow < 0 || !side_parse(&s, 0, arrow, 0, &left)) return false;
    struct recipe *r = recipe_find(&s, operation, left.n_groups - (left.ellipsis >= 0));
    cached_drop(r);
    return r != NULL;
}
