/* subscripts.h: reading the pattern of a sum of products, in one of two spellings, and the sizes it has on given
 * tensors. */
#ifndef EINOPS_SUBSCRIPTS_H
#define EINOPS_SUBSCRIPTS_H

#include "einops/pattern.h"

enum { LABELS_NAMED = 52, LABELS_MAX = 64, LABEL_DOTS = 255 }; /* labels fit a set of 64 bits */

/* The axes of one tensor, as labels. */
struct subscripts {
    int n, dots; /* axes; which one is "...", -1 for none */
    int at;      /* in the pattern */
    uint8_t label[SIDE_MAX];
    int axis_at[SIDE_MAX];
};

struct equation {
    int n_inputs, n_labels;
    struct {
        int at, bytes;
    } label[LABELS_MAX]; /* bytes 0: an axis of the ellipsis */
    struct subscripts out, in[TL_MAX_INPUTS];
};

/* "b i, b j -> b i j": names, and an arrow. */
bool equation_read_names(const struct subject *s, struct equation *e);
/* "bi,bj->bij": a letter is an axis, spaces are ignored; without an arrow the letters that occur once are the output,
 * in the order of ASCII, after the ellipsis. */
bool equation_read_letters(const struct subject *s, struct equation *e);

/* Replaces every ellipsis by labels, so that each tensor has one label per axis, and finds the size of each label;
 * sizes of 1 are broadcast to others. */
bool equation_fit(const struct subject *s, struct equation *e, int64_t *size);

#endif
