#include "einops/subscripts.h"

#include <string.h>

static int label_find(const struct subject *s, const struct equation *e, int at, int bytes) {
    for (int i = 0; i < e->n_labels; i++)
        if (e->label[i].bytes == bytes && memcmp(s->pattern + e->label[i].at, s->pattern + at, (size_t)bytes) == 0)
            return i;
    return -1;
}

static bool label_append(const struct subject *s, struct subscripts *t, int label, int at) {
    if (t->n == SIDE_MAX) return pattern_fail(s, at, "more than %d axes", TL_MAX_RANK);
    if (label == LABEL_DOTS) t->dots = t->n;
    t->axis_at[t->n] = at;
    t->label[t->n++] = (uint8_t)label;
    return true;
}

/* An axis of an input: an existing label, or a new one. */
static bool input_append(const struct subject *s, struct equation *e, struct subscripts *t, int at, int bytes) {
    int label = label_find(s, e, at, bytes);
    if (label < 0) {
        if (e->n_labels == LABELS_NAMED) return pattern_fail(s, at, "more than %d different axes", LABELS_NAMED);
        label = e->n_labels++;
        e->label[label].at = at;
        e->label[label].bytes = bytes;
    }
    return label_append(s, t, label, at);
}

static bool output_append(const struct subject *s, struct equation *e, int at, int bytes) {
    int label = label_find(s, e, at, bytes);
    if (label < 0) return pattern_fail(s, at, "\"%.*s\" of the output is in no input", PART(s->pattern, at, bytes));
    for (int i = 0; i < e->out.n; i++)
        if (e->out.label[i] == label)
            return pattern_fail(s, at, "\"%.*s\" comes twice in the output", PART(s->pattern, at, bytes));
    return label_append(s, &e->out, label, at);
}

static struct subscripts *input_begin(const struct subject *s, struct equation *e, int at) {
    if (e->n_inputs == TL_MAX_INPUTS) {
        pattern_fail(s, at, "more than %d inputs", TL_MAX_INPUTS);
        return NULL;
    }
    struct subscripts *t = &e->in[e->n_inputs++];
    t->n = 0;
    t->dots = -1;
    t->at = at;
    return t;
}

static void equation_begin(struct equation *e) {
    e->n_inputs = e->n_labels = 0;
    e->out.n = 0;
    e->out.dots = -1;
}

/* ---- Names ---- */

/* The axes of a side, each of which must be plain. t NULL: the output. */
static bool side_append(const struct subject *s, struct equation *e, const struct side *side, struct subscripts *t) {
    for (int g = 0; g < side->n_groups; g++) {
        const struct pattern_group *group = &side->group[g];
        const struct pattern_axis *a = &side->axis[group->first];
        bool is_grouped = s->pattern[group->at] == '(';
        if (group->n_axes == 0)
            return pattern_fail(s, group->at, "an axis of size 1 has no part in einsum (need a name)");
        if (group->n_axes > 1 || (is_grouped && a->kind == AXIS_ELLIPSIS))
            return pattern_fail(s, group->at,
                                "einsum does not split or merge axes (need tl_rearrange for the parentheses)");
        if (a->kind == AXIS_NUMBER) return pattern_fail(s, a->at, "an axis without a name has no part in einsum");
        bool ok = a->kind == AXIS_ELLIPSIS ? label_append(s, t ? t : &e->out, LABEL_DOTS, a->at)
                  : t                      ? input_append(s, e, t, a->at, a->bytes)
                                           : output_append(s, e, a->at, a->bytes);
        if (!ok) return false;
    }
    return true;
}

bool equation_read_names(const struct subject *s, struct equation *e) {
    struct side side;
    int arrow = pattern_arrow(s);
    equation_begin(e);
    if (arrow < 0) return false;
    for (int from = 0, to; from <= arrow; from = to + 1) {
        for (to = from; to < arrow && s->pattern[to] != ',';) to++;
        struct subscripts *t = input_begin(s, e, from);
        if (!t || !side_parse(s, from, to, SIDE_UNDERSCORE | SIDE_REPEATS, &side) || !side_append(s, e, &side, t))
            return false;
    }
    e->out.at = arrow + 2;
    return side_parse(s, arrow + 2, (int)strlen(s->pattern), SIDE_UNDERSCORE, &side) && side_append(s, e, &side, NULL);
}

/* ---- Letters ---- */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* The letters that occur exactly once, rising. */
static bool output_infer(const struct subject *s, struct equation *e) {
    int times[128] = {0}, at[128], has_dots = 0;
    for (int i = 0; i < e->n_inputs; i++)
        for (int k = 0; k < e->in[i].n; k++) {
            if (e->in[i].label[k] == LABEL_DOTS) has_dots = 1;
            else {
                int letter = s->pattern[e->in[i].axis_at[k]] & 127;
                times[letter]++;
                at[letter] = e->in[i].axis_at[k];
            }
        }
    if (has_dots && !label_append(s, &e->out, LABEL_DOTS, 0)) return false;
    for (int c = 0; c < 128; c++)
        if (times[c] == 1 && !output_append(s, e, at[c], 1)) return false;
    return true;
}

bool equation_read_letters(const struct subject *s, struct equation *e) {
    equation_begin(e);
    bool is_out = false;
    struct subscripts *t = input_begin(s, e, 0);
    for (int i = 0; s->pattern[i]; i++) {
        char c = s->pattern[i];
        bool ok = true;
        if (c == ' ') continue;
        if (is_letter(c)) {
            ok = is_out ? output_append(s, e, i, 1) : input_append(s, e, t, i, 1);
        } else if (strncmp(s->pattern + i, "...", 3) == 0) {
            if (t->dots >= 0) return pattern_fail(s, i, "a second ellipsis (need at most one per tensor)");
            ok = label_append(s, t, LABEL_DOTS, i);
            i += 2;
        } else if (c == ',' && !is_out) {
            t = input_begin(s, e, i + 1);
        } else if (c == '-' && s->pattern[i + 1] == '>' && !is_out) {
            is_out = true;
            t = &e->out;
            t->at = i + 2;
            i++;
        } else {
            return pattern_fail(s, i,
                                "axes are letters a-z and A-Z, and ... (need \"ij,jk->ik\"; tl_einsum takes names)");
        }
        if (!ok || !t) return false;
    }
    return is_out || output_infer(s, e);
}

/* ---- Sizes ---- */

/* Puts n_dots labels, ending with the last of the ellipsis, in the place of LABEL_DOTS. */
static bool dots_expand(const struct subject *s, struct subscripts *t, int n_dots, int end) {
    if (t->dots < 0) return true;
    int at = t->axis_at[t->dots], after = t->n - t->dots - 1;
    if (t->n - 1 + n_dots > TL_MAX_RANK) return pattern_fail(s, at, "more than %d axes", TL_MAX_RANK);
    memmove(t->label + t->dots + n_dots, t->label + t->dots + 1, (size_t)after);
    memmove(t->axis_at + t->dots + n_dots, t->axis_at + t->dots + 1, (size_t)after * sizeof *t->axis_at);
    for (int k = 0; k < n_dots; k++) {
        t->label[t->dots + k] = (uint8_t)(end - n_dots + k);
        t->axis_at[t->dots + k] = at;
    }
    t->n += n_dots - 1;
    return true;
}

static bool ranks_fit(const struct subject *s, const struct equation *e, int *most_dots) {
    *most_dots = 0;
    if (e->n_inputs != s->n_tensors)
        return pattern_fail(s, -1, "the pattern has %d input%s, the call %d", e->n_inputs, e->n_inputs == 1 ? "" : "s",
                            s->n_tensors);
    for (int i = 0; i < e->n_inputs; i++) {
        const struct subscripts *t = &e->in[i];
        int rank = s->tensors[i]->rank, n_dots = rank - (t->n - 1);
        if (t->dots >= 0 ? n_dots < 0 : rank != t->n)
            return pattern_fail(s, t->n ? t->axis_at[t->n - 1] : t->at, "input %d has %d axes, the pattern %s%d", i,
                                rank, t->dots >= 0 ? "at least " : "", t->dots >= 0 ? t->n - 1 : t->n);
        if (t->dots >= 0 && n_dots > *most_dots) *most_dots = n_dots;
    }
    return true;
}

static bool size_add_axis(const struct subject *s, const struct equation *e, int input, int axis, int64_t *size) {
    const struct subscripts *t = &e->in[input];
    int label = t->label[axis];
    int64_t found = s->tensors[input]->shape[axis];
    const char *name = e->label[label].bytes ? s->pattern + e->label[label].at : "...";
    int bytes = e->label[label].bytes ? part_bytes(name, e->label[label].bytes) : 3;
    for (int k = 0; k < axis; k++)
        if (t->label[k] == label && s->tensors[input]->shape[k] != found)
            return pattern_fail(s, t->axis_at[axis],
                                "\"%.*s\" is repeated in input %d, and the sizes are %lld and %lld", bytes, name, input,
                                (long long)s->tensors[input]->shape[k], (long long)found);
    if (size[label] == 1) size[label] = found;
    return found == 1 || found == size[label] ||
           pattern_fail(s, t->axis_at[axis], "\"%.*s\" has size %lld in input %d (axis %d), and %lld before", bytes,
                        name, (long long)found, input, axis, (long long)size[label]);
}

bool equation_fit(const struct subject *s, struct equation *e, int64_t *size) {
    int n_dots;
    if (!ranks_fit(s, e, &n_dots)) return false;
    if (e->n_labels + n_dots > LABELS_MAX) return pattern_fail(s, -1, "more than %d different axes", LABELS_MAX);
    int end = e->n_labels + n_dots;
    for (int i = e->n_labels; i < end; i++) e->label[i].bytes = e->label[i].at = 0;
    for (int i = 0; i < e->n_inputs; i++)
        if (!dots_expand(s, &e->in[i], s->tensors[i]->rank - (e->in[i].n - 1), end)) return false;
    if (!dots_expand(s, &e->out, n_dots, end)) return false;
    if (e->out.n > TL_MAX_RANK) return pattern_fail(s, e->out.at, "more than %d axes", TL_MAX_RANK);
    e->n_labels = end;
    for (int i = 0; i < end; i++) size[i] = 1;
    for (int i = 0; i < e->n_inputs; i++)
        for (int k = 0; k < e->in[i].n; k++)
            if (!size_add_axis(s, e, i, k, size)) return false;
    return true;
}
