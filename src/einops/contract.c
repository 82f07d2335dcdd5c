/* contract.c: contracts about shapes: names that are bound to sizes by the first tensor that shows them, and hold for
 * all later ones; and parse_shape, which binds the names of one tensor. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "einops/pattern_cache.h"
#include "einops/pattern.h"

/* ---- Names and their sizes ---- */

enum { BY_HAND = 0xffff }; /* instead of the name of a tensor */
enum { DIMS_WAITING = 4, DIMS_FACTORS = 4 };

static int dims_find(const tl_dims *d, const char *name, int bytes) {
    for (int i = 0; i < d->n; i++) {
        const char *text = d->text + d->name[i];
        if (strncmp(text, name, (size_t)bytes) == 0 && text[bytes] == 0) return i;
    }
    return -1;
}

/* Where a copy of the text is; -1 when there is no room. */
static int dims_write(tl_dims *d, const char *text, int bytes) {
    int at = d->used;
    if (bytes >= (int)sizeof d->text - at) return -1;
    memcpy(d->text + at, text, (size_t)bytes);
    d->text[at + bytes] = 0;
    d->used = (uint16_t)(at + bytes + 1);
    return at;
}

static bool dims_bind(tl_dims *d, const char *name, int bytes, int64_t size, int by) {
    int at = d->n < TL_MAX_RANK ? dims_write(d, name, bytes) : -1;
    if (at < 0)
        return error_set(TL_ERROR_USE, "no room for the name \"%.*s\": %d names with %d characters are there already",
                         PART(name, 0, bytes), d->n, d->used);
    d->size[d->n] = size;
    d->name[d->n] = (uint16_t)at;
    d->by[d->n++] = (uint16_t)by;
    return true;
}

/* Who bound a name, for a message. */
static const char *bound_by(const tl_dims *d, int by) { return by == BY_HAND ? "tl_dims_set" : d->text + by; }

/* "heads x d" of a product that waits; with the sizes that are known, "heads x d=3". */
static const char *waiting_print(const tl_dims *d, int w, bool with_sizes, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < d->n_factors[w] && used < size; i++) {
        int name = d->factor[w * DIMS_FACTORS + i];
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " x " : "", d->text + d->name[name]);
        if (with_sizes && d->size[name] >= 0 && used < size)
            used += (size_t)snprintf(text + used, size - used, "=%lld", (long long)d->size[name]);
    }
    return text;
}

int64_t tl_dim(const tl_dims *dims, const char *name) {
    if (!error_given(dims, "dim", "dims")) return -1;
    int i = name ? dims_find(dims, name, (int)strlen(name)) : -1;
    char text[100];
    if (i >= 0 && dims->size[i] >= 0) return dims->size[i];
    for (int w = 0; i >= 0 && w < dims->n_waiting; w++)
        for (int k = 0; k < dims->n_factors[w]; k++)
            if (dims->factor[w * DIMS_FACTORS + k] == i)
                error_set(TL_ERROR_USE,
                          "dim: \"%.60s\" is not known yet, only %s = %lld (need another tensor, or tl_dims_set)", name,
                          waiting_print(dims, w, false, text, sizeof text), (long long)dims->product[w]);
    error_set(TL_ERROR_USE, "dim: no axis is called \"%.60s\"", name ? name : "NULL");
    return -1;
}

const char *tl_dims_name(const tl_dims *dims, int i) {
    return dims && i >= 0 && i < dims->n ? dims->text + dims->name[i] : NULL;
}

static void dims_learn(tl_dims *d, int i, int64_t size, int by) {
    d->size[i] = size;
    d->by[i] = (uint16_t)by;
}

/* A product with one unknown factor binds it; products without one are checked. Returns a product that does not fit,
 * or -1. */
static int waiting_settle(tl_dims *d) {
    for (bool is_new = true; is_new;) {
        is_new = false;
        for (int w = 0; w < d->n_waiting; w++) {
            int64_t known = 1;
            int n_open = 0, open = -1;
            const uint8_t *factor = d->factor + w * DIMS_FACTORS;
            bool fits = true;
            for (int k = 0; k < d->n_factors[w]; k++) {
                if (d->size[factor[k]] >= 0) fits = fits && size_mul(known, d->size[factor[k]], &known);
                else open = factor[k], n_open++;
            }
            if (n_open > 1) continue;
            if (!fits || (n_open ? known == 0 || d->product[w] % known : known != d->product[w])) return w;
            if (!n_open) continue;
            dims_learn(d, open, d->product[w] / known, d->product_by[w]);
            is_new = true;
        }
    }
    return -1;
}

/* The state that a rejected tensor must not change. Names are only added and sizes only bound, so this is little. */
struct undo {
    int n, n_waiting;
    uint16_t used;
    uint32_t unknown;
};

static struct undo undo_begin(const tl_dims *d) {
    struct undo u = {d->n, d->n_waiting, d->used, 0};
    for (int i = 0; i < d->n && d->n_waiting; i++) u.unknown |= (uint32_t)(d->size[i] < 0) << i;
    return u;
}

static void undo_all(tl_dims *d, const struct undo *u) {
    d->n = u->n;
    d->n_waiting = u->n_waiting;
    d->used = u->used;
    for (int i = 0; i < d->n; i++)
        if (u->unknown >> i & 1) d->size[i] = -1;
}

bool tl_dims_set(tl_dims *dims, const char *name, int64_t size) {
    const char *problem = name ? name_problem(name, (int)strlen(name)) : "it is NULL";
    if (problem) return error_set(TL_ERROR_USE, "dims_set: \"%.60s\" is no name: %s", name ? name : "", problem);
    if (size < 0) return error_set(TL_ERROR_USE, "dims_set: %.60s = %lld (need 0 or more)", name, (long long)size);
    int i = dims_find(dims, name, (int)strlen(name));
    if (i >= 0 && dims->size[i] >= 0)
        return dims->size[i] == size || error_set(TL_ERROR_USE, "dims_set: %.60s is %lld already, not %lld", name,
                                                  (long long)dims->size[i], (long long)size);
    struct undo undo = undo_begin(dims);
    if (i >= 0) dims_learn(dims, i, size, BY_HAND);
    else if (!dims_bind(dims, name, (int)strlen(name), size, BY_HAND)) return false;
    int w = waiting_settle(dims);
    if (w < 0) return true;
    char text[100];
    error_set(TL_ERROR_USE, "dims_set: %.60s = %lld does not fit %s = %lld, from %s", name, (long long)size,
              waiting_print(dims, w, false, text, sizeof text), (long long)dims->product[w],
              bound_by(dims, dims->product_by[w]));
    undo_all(dims, &undo);
    return false;
}

/* ---- Reading a contract ---- */

struct contract {
    struct cached cached;
    struct side side;
    uint32_t dtypes; /* the set of those allowed; 0: any */
    int dtypes_at;
    int device_at, device_bytes; /* 0 bytes: any */
};

static uint32_t dtype_set(const char *name, int bytes) {
    char text[16];
    uint32_t set = 0;
    if (bytes >= (int)sizeof text) return 0;
    memcpy(text, name, (size_t)bytes);
    text[bytes] = 0;
    tl_dtype one = dtype_from_name(text);
    if (one != TL_DTYPE_COUNT) return 1u << one;
    for (int i = 0; i < TL_DTYPE_COUNT; i++) {
        enum dtype_kind kind = dtype_info((tl_dtype)i)->kind;
        bool is_integer = kind == DTYPE_SIGNED || kind == DTYPE_UNSIGNED;
        if (strcmp(text, "float") == 0 ? kind == DTYPE_FLOAT : strcmp(text, "integer") == 0 && is_integer)
            set |= 1u << i;
    }
    return set;
}

/* "f32|bf16 @cpu", from byte `at` on. */
static bool properties_parse(const struct subject *s, int at, struct contract *c) {
    const char *p = s->pattern;
    for (int i = at, end; p[i]; i = end) {
        if (p[i] == ' ' || p[i] == '|') {
            end = i + 1;
            continue;
        }
        for (end = i + 1; p[end] && p[end] != ' ' && p[end] != '|';) end++;
        if (p[i] == '@') {
            c->device_at = i + 1;
            c->device_bytes = end - i - 1;
            continue;
        }
        uint32_t set = dtype_set(p + i, end - i);
        if (!set)
            return pattern_fail(s, i,
                                "\"%.*s\" is no dtype (need f32, bf16|f16, float, integer, ..., and a device as @cpu)",
                                PART(p, i, end - i));
        if (!c->dtypes) c->dtypes_at = i;
        c->dtypes |= set;
    }
    return true;
}

static bool contract_parse(const struct subject *s, struct contract *c) {
    const char *colon = strchr(s->pattern, ':');
    int end = colon ? (int)(colon - s->pattern) : (int)strlen(s->pattern);
    if (!side_parse(s, 0, end, SIDE_UNDERSCORE | SIDE_REPEATS, &c->side)) return false;
    if (c->side.ellipsis >= 0 && c->side.ellipsis_is_grouped)
        return pattern_fail(s, c->side.axis[c->side.ellipsis].at, "an ellipsis in parentheses");
    return !colon || properties_parse(s, end + 1, c);
}

/* The parsed contract, with a reference. NULL: recorded. */
static struct contract *contract_find(const struct subject *s) {
    struct cache_key key;
    key_begin(&key, 'x');
    key_add(&key, s->pattern, strlen(s->pattern));
    key_end(&key);
    struct contract *c = cache_find(&key);
    if (c) return c;
    c = cached_new(&key, sizeof *c);
    if (c && !contract_parse(s, c)) {
        cached_drop(c);
        return NULL;
    }
    if (c) cache_keep(c, &key);
    return c;
}

/* ---- Holding a tensor to it ---- */

struct check {
    const struct subject *s;
    const struct contract *c;
    const char *name; /* of the tensor */
    const tl_tensor *x;
    tl_dims *dims;
    int by; /* the tensor's name in dims, -1 as long as it is not written */
};

static bool is_underscore(const struct subject *s, const struct pattern_axis *a) {
    return a->bytes == 1 && s->pattern[a->at] == '_';
}

static int writer(struct check *k) {
    if (k->by < 0) k->by = dims_write(k->dims, k->name, (int)strlen(k->name));
    return k->by < 0 ? BY_HAND : k->by;
}

/* Binds a name that has no size yet. */
static bool bind(struct check *k, const struct pattern_axis *a, int64_t size) {
    if (is_underscore(k->s, a)) return true;
    int i = dims_find(k->dims, k->s->pattern + a->at, a->bytes), by = writer(k);
    if (i < 0) return dims_bind(k->dims, k->s->pattern + a->at, a->bytes, size, by);
    dims_learn(k->dims, i, size, by);
    return true;
}

/* One axis of the tensor that is one axis of the pattern. */
static bool check_axis(struct check *k, int axis, const struct pattern_axis *a) {
    int64_t size = k->x->shape[axis];
    const char *p = k->s->pattern;
    if (a->kind == AXIS_NUMBER)
        return size == a->length || pattern_fail(k->s, a->at, "%s: axis %d has size %lld (need %lld)", k->name, axis,
                                                 (long long)size, (long long)a->length);
    int i = dims_find(k->dims, p + a->at, a->bytes);
    if (i < 0 || k->dims->size[i] < 0) return bind(k, a, size);
    return size == k->dims->size[i] ||
           pattern_fail(k->s, a->at, "%s: axis %d, \"%.*s\", has size %lld (need %lld, from %s)", k->name, axis,
                        PART(p, a->at, a->bytes), (long long)size, (long long)k->dims->size[i],
                        bound_by(k->dims, k->dims->by[i]));
}

/* A product whose factors are not known yet is kept, with those that are. */
static bool wait(struct check *k, const struct pattern_group *g, int64_t rest) {
    tl_dims *d = k->dims;
    int w = d->n_waiting, n = 0, by = writer(k);
    for (int i = g->first; i < g->first + g->n_axes; i++) {
        const struct pattern_axis *a = &k->c->side.axis[i];
        if (a->kind == AXIS_NUMBER) continue;
        int at = dims_find(d, k->s->pattern + a->at, a->bytes);
        if (at >= 0 && d->size[at] >= 0) continue;
        if (w == DIMS_WAITING || n == DIMS_FACTORS)
            return pattern_fail(k->s, g->at, "%s: too much of this group is unknown (need tl_dims_set)", k->name);
        if (at < 0 && !dims_bind(d, k->s->pattern + a->at, a->bytes, -1, by)) return false;
        d->factor[w * DIMS_FACTORS + n++] = (uint8_t)(at < 0 ? d->n - 1 : at);
    }
    d->product[w] = rest;
    d->product_by[w] = (uint16_t)by;
    d->n_factors[w] = (uint8_t)n;
    d->n_waiting++;
    return true;
}

/* A group: the product of the known sizes, and one that may be inferred. *n_open counts groups where more is unknown,
 * which wait only when nothing else can be learnt from this tensor (`may_wait`). */
static bool check_group(struct check *k, int axis, const struct pattern_group *g, bool may_wait, int *n_open) {
    const struct pattern_axis *unknown = NULL;
    int64_t size = k->x->shape[axis], known = 1;
    int n_unknown = 0;
    bool fits = true, has_any = false;
    for (int i = g->first; i < g->first + g->n_axes; i++) {
        const struct pattern_axis *a = &k->c->side.axis[i];
        int at = a->kind == AXIS_NUMBER ? -1 : dims_find(k->dims, k->s->pattern + a->at, a->bytes);
        if (a->kind == AXIS_NUMBER || (at >= 0 && k->dims->size[at] >= 0)) {
            fits = fits && size_mul(known, at < 0 ? a->length : k->dims->size[at], &known);
            continue;
        }
        has_any = has_any || is_underscore(k->s, a);
        unknown = a;
        n_unknown++;
    }
    if (!fits || (n_unknown ? known == 0 || size % known : size != known))
        return pattern_fail(k->s, g->at, "%s: axis %d has size %lld, and %.*s needs %s%lld", k->name, axis,
                            (long long)size, PART(k->s->pattern, g->at, g->bytes), n_unknown ? "a multiple of " : "",
                            (long long)known);
    if (n_unknown == 0 || has_any) return true; /* _ takes whatever is left */
    if (n_unknown == 1) return bind(k, unknown, size / known);
    ++*n_open;
    return !may_wait || wait(k, g, size / known);
}

enum round { PLAIN, GROUPS, GROUPS_THAT_WAIT };

/* All groups of one axis, or all others. Counts those of which too much is unknown yet. */
static bool check_groups(struct check *k, enum round round, int *n_open) {
    const struct side *side = &k->c->side;
    int n_dots = k->x->rank - (side->n_groups - 1);
    *n_open = 0;
    for (int g = 0, axis = 0; g < side->n_groups; g++, axis++) {
        const struct pattern_group *group = &side->group[g];
        const struct pattern_axis *a = &side->axis[group->first];
        if (group->n_axes == 1 && a->kind == AXIS_ELLIPSIS) axis += n_dots - 1;
        else if ((group->n_axes == 1) != (round == PLAIN)) continue;
        else if (!(round == PLAIN ? check_axis(k, axis, a)
                                  : check_group(k, axis, group, round == GROUPS_THAT_WAIT, n_open)))
            return false;
    }
    return true;
}

/* Plain axes first: they may bind what a group needs. Then groups, as long as they bind something. */
static bool check_shape(struct check *k) {
    const struct side *side = &k->c->side;
    int n_others = side->n_groups - (side->ellipsis >= 0), n_open = side->n_groups + 1, before;
    if (side->ellipsis >= 0 ? k->x->rank < n_others : k->x->rank != n_others)
        return pattern_fail(k->s, side->n_groups ? side->group[side->n_groups - 1].at : 0, "%s has %d axes (need %s%d)",
                            k->name, k->x->rank, side->ellipsis >= 0 ? "at least " : "", n_others);
    if (!check_groups(k, PLAIN, &before)) return false;
    do {
        before = n_open;
        if (!check_groups(k, GROUPS, &n_open)) return false;
    } while (n_open && n_open < before);
    if (n_open && !check_groups(k, GROUPS_THAT_WAIT, &n_open)) return false;
    int w = waiting_settle(k->dims);
    char text[100];
    return w < 0 || pattern_fail(k->s, -1, "%s: %s does not fit: the product is %lld, from %s", k->name,
                                 waiting_print(k->dims, w, true, text, sizeof text), (long long)k->dims->product[w],
                                 bound_by(k->dims, k->dims->product_by[w]));
}

/* The text before a colon, or all of it: "cuda" is any GPU. Meta stands in for every device. */
static bool check_device(const struct check *k) {
    const tl_device *device = k->x->storage->device;
    const char *wanted = k->s->pattern + k->c->device_at, *found = tl_device_name(device);
    size_t bytes = (size_t)k->c->device_bytes;
    bool same = strncmp(found, wanted, bytes) == 0 && (found[bytes] == 0 || found[bytes] == ':');
    return !bytes || same || !device_has_data(device) ||
           pattern_fail(k->s, k->c->device_at, "%s is on %s (need %.*s)", k->name, found, (int)bytes, wanted);
}

static bool check_all(struct check *k) {
    if (!check_shape(k) || !check_device(k)) return false;
    return !k->c->dtypes || k->c->dtypes >> k->x->dtype & 1 ||
           pattern_fail(k->s, k->c->dtypes_at, "%s is %s (need %.*s)", k->name, tl_dtype_name(k->x->dtype),
                        (int)strcspn(k->s->pattern + k->c->dtypes_at, " "), k->s->pattern + k->c->dtypes_at);
}

bool tl_expect(tl_dims *dims, tl_tensor *x, const char *name, const char *pattern) {
    if (!tensor_check(x, "expect")) return false;
    if (!dims || !pattern)
        return error_set(TL_ERROR_USE, "expect: got NULL instead of %s", dims ? "a pattern" : "dims");
    struct subject s = {.op = "expect", .pattern = pattern, .tensors = &x, .n_tensors = 1};
    struct contract *c = contract_find(&s);
    if (!c) return false;
    struct check check = {&s, c, name ? name : "the tensor", x, dims, -1};
    struct undo undo = undo_begin(dims);
    bool ok = check_all(&check);
    if (!ok) undo_all(dims, &undo); /* a refused tensor binds nothing */
    cached_drop(c);
    return ok;
}

/* ---- parse_shape ---- */

bool tl_parse_shape(tl_tensor *x, const char *pattern, tl_dims *dims) {
    struct subject s = {.op = "parse_shape", .pattern = pattern, .tensors = &x, .n_tensors = 1};
    struct contract c = {.dtypes = 0};
    if (!tensor_check(x, "parse_shape")) return false;
    if (!dims || !pattern) return error_set(TL_ERROR_USE, "parse_shape: got NULL");
    if (!side_parse(&s, 0, (int)strlen(pattern), SIDE_UNDERSCORE, &c.side)) return false;
    for (int g = 0; g < c.side.n_groups; g++)
        if (c.side.group[g].n_axes > 1 || (c.side.ellipsis >= 0 && c.side.ellipsis_is_grouped))
            return pattern_fail(&s, c.side.group[g].at, "several axes in parentheses (need one name for each axis)");
    *dims = (tl_dims){.n = 0};
    struct check check = {&s, &c, "the input", x, dims, -1};
    bool ok = check_shape(&check);
    if (!ok) dims->n = 0;
    return ok;
}
