/* pattern.h: the language of patterns: "b (h w) -> b w h", and the messages for mistakes in them.
 *
 *   pattern  side "->" side
 *   side     axes, separated by spaces (parentheses need none): name, number, "...", or a group "(" axes ")"
 *   name     as in Python: letters, digits and underscores, none of these at an end
 *   number   1 is an axis of size 1, the same as "()"; n > 1 is an axis without a name, of that size
 *
 * Positions are byte offsets into the pattern, so that an error can point at its cause.
 */
#ifndef EINOPS_PATTERN_H
#define EINOPS_PATTERN_H

#include "tensor/tensor.h"

enum axis_kind { AXIS_NAME, AXIS_NUMBER, AXIS_ELLIPSIS };

struct pattern_axis {
    enum axis_kind kind;
    int at, bytes;  /* its text */
    int64_t length; /* of a number */
};

/* An axis of a tensor: one axis of the pattern, several in parentheses, or none (size 1). */
struct pattern_group {
    int at, bytes;
    int first, n_axes;
};

#define SIDE_MAX (TL_MAX_RANK + 1) /* an ellipsis may stand for no axis at all */

struct side {
    int n_groups, n_axes;
    int ellipsis;             /* the axis that is "...", -1 for none */
    bool ellipsis_is_grouped; /* and it is in parentheses */
    bool has_numbers;         /* other than 1 */
    int at;                   /* where the side begins */
    struct pattern_group group[SIDE_MAX];
    struct pattern_axis axis[SIDE_MAX];
};

/* Sizes of axes that the caller gives, by name. */
struct lengths {
    int n;
    struct {
        const char *name;
        int bytes;
        int64_t size;
    } item[TL_MAX_RANK];
};

/* The subject of a message: the call that parses a pattern. */
struct subject {
    const char *op, *pattern;
    tl_tensor *const *tensors; /* NULL: there are none to show */
    int n_tensors;
    const struct lengths *lengths; /* NULL: the call takes none */
};

/* Records "op: message", then the pattern with a caret under byte `at` (-1: no caret), the tensors and the given
 * lengths. Always false. */
bool pattern_fail(const struct subject *s, int at, const char *format, ...) TL_PRINTF(3, 4);

/* Where the only arrow is; -1, recorded, when there is none or a second one. */
int pattern_arrow(const struct subject *s);

/* Reads bytes from .. to-1. `flags` widen what is allowed. */
enum side_flags {
    SIDE_UNDERSCORE = 1, /* "_" is a name, and may come twice */
    SIDE_REPEATS = 2     /* so may any other */
};
bool side_parse(const struct subject *s, int from, int to, unsigned flags, struct side *side);

/* The axis of a side with this name, -1 when there is none. */
int side_find(const struct side *side, const char *pattern, const char *name, int bytes);

/* Why text is no name of an axis, NULL when it is one. */
const char *name_problem(const char *text, int bytes);

/* Names are not checked here, but when they are first met with a pattern.
 * "h=8 w=4" or "h=8, w=4"; NULL for none. `s` names the call; its pattern is shown, and the text's own mistake is
 * quoted. */
bool lengths_parse(const struct subject *s, const char *text, struct lengths *lengths);

/* For a message: `bytes` of the text at `at`, as printf's "%.*s" takes them; of a very long name the beginning, whole
 * characters. */
#define PART(text, at, bytes) part_bytes((text) + (at), bytes), (text) + (at)
int part_bytes(const char *text, int bytes);

#endif
