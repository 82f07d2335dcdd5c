/* einmix.c: patterns as modules: rearrange, reduce, and einmix, the linear layer of the einops package.
 *
 * A module's texts are compiled when it is made, into one block of memory: a struct, followed by the texts that it
 * points to. An einmix becomes
 *
 *      split    "b (h c) -> b h c"             where a group of the left side has other than one axis
 *      einsum   "b h c, h c d -> b h d"
 *      + bias
 *      merge    "b h d -> b (h d)"             likewise on the right side
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "einops/einops.h"
#include "einops/pattern.h"
#include "nn/module.h"

/* ---- Texts behind a state ---- */

/* A module with `bytes` of zeroed state; NULL on error, which is recorded. */
static tl_module *module_with_state(const tl_module_kind *kind, size_t bytes) {
    tl_module *m = tl_module_new(kind);
    if (!m) return NULL;
    m->state = memory_new(bytes);
    if (m->state) memset(m->state, 0, bytes);
    return module_finish(m, m->state != NULL || error_memory(bytes, "a module"));
}

static size_t text_bytes(const char *text) { return text ? strlen(text) + 1 : 0; }

/* Copies a text to *at, which moves past it. NULL stays NULL. */
static const char *text_put(char **at, const char *text) {
    if (!text) return NULL;
    char *begin = *at;
    memcpy(begin, text, text_bytes(text));
    *at += text_bytes(text);
    return begin;
}

static int lengths_print(const char *lengths, char *text, size_t size) {
    return snprintf(text, size, "%s%s", lengths && *lengths ? ", " : "", lengths ? lengths : "");
}

/* ---- Rearrange and Reduce ---- */

struct transform {
    const char *pattern, *reduction, *lengths;
    char text[];
};

static tl_tensor *rearrange_forward(tl_module *m, tl_tensor *x) {
    const struct transform *t = m->state;
    return tl_rearrange(x, t->pattern, t->lengths);
}
static tl_tensor *reduce_forward(tl_module *m, tl_tensor *x) {
    const struct transform *t = m->state;
    return tl_reduce(x, t->pattern, t->reduction, t->lengths);
}
static void rearrange_describe(const tl_module *m, char *text, size_t size) {
    const struct transform *t = m->state;
    const int n = snprintf(text, size, "'%s'", t->pattern);
    if (n >= 0 && (size_t)n < size) lengths_print(t->lengths, text + n, size - (size_t)n);
}
static void reduce_describe(const tl_module *m, char *text, size_t size) {
    const struct transform *t = m->state;
    const int n = snprintf(text, size, "'%s', '%s'", t->pattern, t->reduction);
    if (n >= 0 && (size_t)n < size) lengths_print(t->lengths, text + n, size - (size_t)n);
}
static const tl_module_kind rearrange_kind = {"Rearrange", rearrange_forward, rearrange_describe, 0};
static const tl_module_kind reduce_kind = {"Reduce", reduce_forward, reduce_describe, 0};

static tl_module *transform_new(const tl_module_kind *kind, const char *pattern, const char *reduction,
                                const char *lengths) {
    if (!einops_check(pattern, kind == &reduce_kind, reduction, lengths)) return NULL;
    const size_t bytes = text_bytes(pattern) + text_bytes(reduction) + text_bytes(lengths);
    tl_module *m = module_with_state(kind, sizeof(struct transform) + bytes);
    if (!m) return NULL;
    struct transform *t = m->state;
    char *at = t->text;
    t->pattern = text_put(&at, pattern);
    t->reduction = text_put(&at, reduction);
    t->lengths = text_put(&at, lengths);
    return m;
}

tl_module *tl_nn_rearrange(const char *pattern, const char *lengths) {
    return transform_new(&rearrange_kind, pattern, NULL, lengths);
}
tl_module *tl_nn_reduce(const char *pattern, const char *reduction, const char *lengths) {
    return transform_new(&reduce_kind, pattern, reduction, lengths);
}

/* ---- EinMix ---- */

enum { WEIGHT, BIAS };
struct einmix {
    const char *pattern, *weight_shape, *bias_shape, *lengths; /* as they were given */
    const char *split, *einsum, *merge;                        /* NULL: nothing to do */
    const char *split_lengths;                                 /* the lengths that split takes */
    char text[];
};

static tl_tensor *einmix_forward(tl_module *m, tl_tensor *x) {
    const struct einmix *e = m->state;
    if (e->split) x = tl_rearrange(x, e->split, e->split_lengths);
    tl_tensor *pair[] = {x, tl_module_tensor(m, WEIGHT)};
    tl_tensor *y = tl_einsum(e->einsum, pair, 2);
    tl_tensor *bias = tl_module_tensor(m, BIAS);
    if (bias) y = tl_add(y, bias);
    return e->merge ? tl_rearrange(y, e->merge, NULL) : y;
}
static void einmix_describe(const tl_module *m, char *text, size_t size) {
    const struct einmix *e = m->state;
    const bool has_bias = e->bias_shape != NULL;
    const int n = snprintf(text, size, "'%s', '%s'%s%s%s", e->pattern, e->weight_shape, has_bias ? ", '" : "",
                           has_bias ? e->bias_shape : "", has_bias ? "'" : "");
    if (n >= 0 && (size_t)n < size) lengths_print(e->lengths, text + n, size - (size_t)n);
}
static const tl_module_kind einmix_kind = {"EinMix", einmix_forward, einmix_describe, 0};

/* The three parsed texts, and the subject of messages about each. */
struct mix {
    struct subject about, about_weight, about_bias;
    struct lengths lengths;
    struct side left, right, weight, bias;
    bool has_bias;
    int arrow;
};

/* Whether a side has the axis that `text` names at `a`. */
static bool has_axis(const struct side *side, const char *pattern, const char *text, const struct pattern_axis *a) {
    return a->kind == AXIS_NAME && side_find(side, pattern, text + a->at, a->bytes) >= 0;
}

/* The given size of an axis; -1: none. */
static int64_t size_of(const struct mix *mix, const char *text, const struct pattern_axis *a) {
    for (int i = 0; i < mix->lengths.n; i++)
        if (mix->lengths.item[i].bytes == a->bytes &&
            memcmp(mix->lengths.item[i].name, text + a->at, (size_t)a->bytes) == 0)
            return mix->lengths.item[i].size;
    return -1;
}

static bool no_numbers(const struct subject *s, const struct side *side) {
    for (int i = 0; i < side->n_axes; i++)
        if (side->axis[i].kind == AXIS_NUMBER)
            return pattern_fail(s, side->axis[i].at, "an axis of size %lld without a name (need names, and lengths)",
                                (long long)side->axis[i].length);
    return true;
}

static bool check_sides(const struct mix *mix) {
    const char *p = mix->about.pattern, *w = mix->about_weight.pattern;
    const struct side *left = &mix->left, *right = &mix->right;
    if (!no_numbers(&mix->about, left) || !no_numbers(&mix->about, right)) return false;
    if ((left->ellipsis >= 0) != (right->ellipsis >= 0)) {
        const struct side *side = left->ellipsis >= 0 ? left : right;
        return pattern_fail(&mix->about, side->axis[side->ellipsis].at, "an ellipsis on one side only");
    }
    if (left->ellipsis >= 0 && left->ellipsis_is_grouped)
        return pattern_fail(&mix->about, left->axis[left->ellipsis].at,
                            "an ellipsis in parentheses on the left side (need it outside, or on the right side)");
    for (int i = 0; i < right->n_axes; i++) {
        const struct pattern_axis *a = &right->axis[i];
        if (a->kind == AXIS_NAME && !has_axis(left, p, p, a) && !has_axis(&mix->weight, w, p, a))
            return pattern_fail(&mix->about, a->at, "\"%.*s\" is neither on the left side nor in the weight",
                                PART(p, a->at, a->bytes));
    }
    return true;
}

static bool check_weight(const struct mix *mix) {
    const char *p = mix->about.pattern, *w = mix->about_weight.pattern;
    const struct subject *s = &mix->about_weight;
    if (!no_numbers(s, &mix->weight)) return false;
    if (mix->weight.ellipsis >= 0)
        return pattern_fail(s, mix->weight.axis[mix->weight.ellipsis].at, "an ellipsis in the shape of the weight");
    for (int g = 0; g < mix->weight.n_groups; g++) {
        const struct pattern_group *group = &mix->weight.group[g];
        if (group->n_axes != 1 || w[group->at] == '(')
            return pattern_fail(s, group->at, "an axis of the weight without a name (need names only)");
        const struct pattern_axis *a = &mix->weight.axis[group->first];
        const int64_t size = size_of(mix, w, a);
        if (size < 0)
            return pattern_fail(s, a->at, "the weight's axis \"%.*s\" needs a length", PART(w, a->at, a->bytes));
        if (size == 0)
            return pattern_fail(s, a->at, "the weight's axis \"%.*s\" has length 0 (need 1 or more)",
                                PART(w, a->at, a->bytes));
        if (!has_axis(&mix->left, p, w, a) && !has_axis(&mix->right, p, w, a))
            return pattern_fail(s, a->at, "the weight's axis \"%.*s\" is on neither side of \"%s\"",
                                PART(w, a->at, a->bytes), p);
    }
    return true;
}

static bool check_lengths(const struct mix *mix) {
    const char *p = mix->about.pattern, *w = mix->about_weight.pattern;
    for (int i = 0; i < mix->lengths.n; i++) {
        const char *name = mix->lengths.item[i].name;
        const int bytes = mix->lengths.item[i].bytes;
        if (side_find(&mix->left, p, name, bytes) < 0 && side_find(&mix->weight, w, name, bytes) < 0)
            return pattern_fail(&mix->about, -1,
                                "a length is given for \"%.*s\", which is neither on the left side nor in the weight",
                                PART(name, 0, bytes));
    }
    return true;
}

static bool check_bias(const struct mix *mix) {
    const char *p = mix->about.pattern, *b = mix->about_bias.pattern;
    const struct subject *s = &mix->about_bias;
    if (!no_numbers(s, &mix->bias)) return false;
    if (mix->bias.ellipsis >= 0)
        return pattern_fail(s, mix->bias.axis[mix->bias.ellipsis].at, "an ellipsis in the shape of the bias");
    for (int i = 0; i < mix->bias.n_axes; i++) {
        const struct pattern_axis *a = &mix->bias.axis[i];
        const int at = side_find(&mix->right, p, b + a->at, a->bytes);
        if (at < 0)
            return pattern_fail(s, a->at, "the bias axis \"%.*s\" is not in the output of \"%s\"",
                                PART(b, a->at, a->bytes), p);
        if (size_of(mix, b, a) < 0)
            return pattern_fail(s, a->at, "the bias axis \"%.*s\" needs a length", PART(b, a->at, a->bytes));
        if (at < mix->right.ellipsis)
            return pattern_fail(s, a->at,
                                "the bias axis \"%.*s\" comes before the ellipsis of the output (need it after)",
                                PART(b, a->at, a->bytes));
    }
    return true;
}

static bool mix_read(struct mix *mix, const char *pattern, const char *weight, const char *bias, const char *lengths) {
    *mix = (struct mix){.about = {.op = "einmix", .pattern = pattern, .lengths = &mix->lengths},
                        .about_weight = {.op = "einmix: weight", .pattern = weight, .lengths = &mix->lengths},
                        .about_bias = {.op = "einmix: bias", .pattern = bias, .lengths = &mix->lengths},
                        .has_bias = bias != NULL};
    if (!pattern || !weight)
        return error_set(TL_ERROR_USE, "einmix: got NULL instead of a pattern or a weight's shape");
    return lengths_parse(&mix->about, lengths, &mix->lengths) && (mix->arrow = pattern_arrow(&mix->about)) >= 0 &&
           side_parse(&mix->about, 0, mix->arrow, 0, &mix->left) &&
           side_parse(&mix->about, mix->arrow + 2, (int)strlen(pattern), 0, &mix->right) &&
           side_parse(&mix->about_weight, 0, (int)strlen(weight), 0, &mix->weight) &&
           (!bias || side_parse(&mix->about_bias, 0, (int)strlen(bias), 0, &mix->bias)) && check_sides(mix) &&
           check_weight(mix) && check_lengths(mix) && (!bias || check_bias(mix));
}

/* The axes of a side without their groups. */
static void write_flat(char **at, const char *text, const struct side *side) {
    for (int i = 0; i < side->n_axes; i++) {
        const struct pattern_axis *a = &side->axis[i];
        *at += sprintf(*at, "%s%.*s", i ? " " : "", a->kind == AXIS_ELLIPSIS ? 3 : a->bytes,
                       a->kind == AXIS_ELLIPSIS ? "..." : text + a->at);
    }
}

static bool is_flat(const struct side *side) {
    for (int g = 0; g < side->n_groups; g++)
        if (side->group[g].n_axes != 1) return false;
    return !side->ellipsis_is_grouped;
}

static const char *write_split(char **at, const struct mix *mix) {
    if (is_flat(&mix->left)) return NULL;
    const char *begin = *at;
    *at += sprintf(*at, "%.*s -> ", mix->arrow, mix->about.pattern);
    write_flat(at, mix->about.pattern, &mix->left);
    ++*at; /* the zero that ends it */
    return begin;
}

/* The given lengths of axes on the left side: "h=8 w=4". */
static const char *write_split_lengths(char **at, const struct mix *mix) {
    const char *begin = *at;
    for (int i = 0; i < mix->lengths.n; i++) {
        const char *name = mix->lengths.item[i].name;
        const int bytes = mix->lengths.item[i].bytes;
        if (side_find(&mix->left, mix->about.pattern, name, bytes) < 0) continue;
        *at += sprintf(*at, "%.*s=%lld ", bytes, name, (long long)mix->lengths.item[i].size);
    }
    *(*at)++ = 0;
    return begin;
}

static const char *write_einsum(char **at, const struct mix *mix) {
    const char *begin = *at;
    write_flat(at, mix->about.pattern, &mix->left);
    *at += sprintf(*at, ", ");
    write_flat(at, mix->about_weight.pattern, &mix->weight);
    *at += sprintf(*at, " -> ");
    write_flat(at, mix->about.pattern, &mix->right);
    ++*at;
    return begin;
}

static const char *write_merge(char **at, const struct mix *mix) {
    if (is_flat(&mix->right)) return NULL;
    const char *begin = *at;
    write_flat(at, mix->about.pattern, &mix->right);
    *at += sprintf(*at, " -> %s", mix->about.pattern + mix->arrow + 2);
    ++*at;
    return begin;
}

/* Stores what forward needs in the module's state. */
static void einmix_write(struct einmix *e, const struct mix *mix, const char *lengths) {
    char *at = e->text;
    e->pattern = text_put(&at, mix->about.pattern);
    e->weight_shape = text_put(&at, mix->about_weight.pattern);
    e->bias_shape = text_put(&at, mix->about_bias.pattern);
    e->lengths = text_put(&at, lengths);
    e->split = write_split(&at, mix);
    e->einsum = write_einsum(&at, mix);
    e->merge = write_merge(&at, mix);
    e->split_lengths = write_split_lengths(&at, mix);
}

/* A flat text is at most twice as long as its source ("a(b)c"), and each is written at most three times. */
static size_t einmix_bytes(const struct mix *mix, const char *lengths) {
    const size_t given = text_bytes(mix->about.pattern) + text_bytes(mix->about_weight.pattern) +
                         text_bytes(mix->about_bias.pattern) + text_bytes(lengths);
    return sizeof(struct einmix) + 8 * given + 64 + 24 * TL_MAX_RANK;
}

static bool add_parameters(tl_module *m, const struct mix *mix, tl_dtype dtype, tl_device *device) {
    int64_t weight_shape[TL_MAX_RANK], bias_shape[TL_MAX_RANK];
    int rank = 0;
    double fan_in = 1;
    const char *p = mix->about.pattern, *w = mix->about_weight.pattern;
    for (int i = 0; i < mix->weight.n_axes; i++) {
        weight_shape[i] = size_of(mix, w, &mix->weight.axis[i]);
        if (!has_axis(&mix->right, p, w, &mix->weight.axis[i])) fan_in *= (double)weight_shape[i];
    }
    for (int i = 0; i < mix->right.n_axes && mix->has_bias; i++) {
        const struct pattern_axis *a = &mix->right.axis[i];
        if (a->kind == AXIS_ELLIPSIS) continue;
        bias_shape[rank++] = has_axis(&mix->bias, mix->about_bias.pattern, p, a) ? size_of(mix, p, a) : 1;
    }
    const double weight_range = sqrt(3 / fan_in), bias_range = sqrt(1 / fan_in);
    tl_tensor *weight = tl_uniform(mix->weight.n_axes, weight_shape, -weight_range, weight_range, dtype, device);
    tl_tensor *bias = mix->has_bias ? tl_uniform(rank, bias_shape, -bias_range, bias_range, dtype, device) : NULL;
    return tl_module_add_parameter(m, "weight", weight) && tl_module_add_parameter(m, "bias", bias);
}

tl_module *tl_nn_einmix(const char *pattern, const char *weight_shape, const char *bias_shape, const char *lengths,
                        tl_dtype dtype, tl_device *device) {
    struct mix mix;
    if (!mix_read(&mix, pattern, weight_shape, bias_shape, lengths)) return NULL;
    tl_module *m = module_with_state(&einmix_kind, einmix_bytes(&mix, lengths));
    if (!m) return NULL;
    einmix_write(m->state, &mix, lengths);
    tl_scope scope = tl_scope_begin();
    const bool ok = add_parameters(m, &mix, dtype, device);
    return module_finish(m, tl_scope_end(scope) && ok);
}
