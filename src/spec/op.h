/* op.h: what an op is, and what is known about one call of it.
 *
 * An op is a record of rules: which shapes it takes and gives (`shape`), what it costs (`cost`), how much scratch
 * its kernels get (`workspace`, unless devices differ in it), what its gradient is (`backward`) and what that
 * gradient needs (`saves`). Rules touch no data. The data is touched by a kernel, one per device, which sees raw
 * pointers, shapes and strides (tl_kernel_args).
 */
#ifndef SPEC_OP_H
#define SPEC_OP_H

#include "spec/cost.h"
#include "tensor/tensor.h"

enum op_kind {
    OP_VIEW,    /* another geometry of input 0's storage: no kernel */
    OP_KERNEL,  /* results of known shape, computed by a kernel */
    OP_DYNAMIC, /* depends on data: an error on meta */
    OP_TRANSFER /* input and output are on different devices, or in different processes */
};

struct tl_call {
    const tl_op *op;
    const void *attr; /* the op's attributes: plain data, copied by the graph */
    size_t attr_bytes;
    tl_tensor **input;
    int n_inputs, n_outputs;
    bool in_place;     /* output 0 overwrites input 0 (only where the op's record allows it) */
    bool has_complex;  /* an operand is complex */
    bool is_replayed;  /* the results are known from a selective checkpoint: nothing runs */
    tl_device *device; /* of the inputs; given by the caller when there are none */
    tl_device *out_device;
    tl_tensor *output[TL_MAX_OUTPUTS];
    struct layout out[TL_MAX_OUTPUTS]; /* filled by the shape rule */
};

#define OVERWRITES(input) ((input) + 1)
#define SUMS_INTO(input) ((input) + 1)

/* What a gradient reads: a set of inputs and outputs, with a bit for each that a call can have. TL_INPUT and TL_OUTPUT
 * take constants, and one that no call has does not compile. */
__extension__ typedef unsigned __int128 saved_set;
#define INDEX_BELOW(limit, i) ((i) + 0 * sizeof(char[(i) < (limit) ? 1 : -1]))
#define TL_INPUT(i) ((saved_set)1 << INDEX_BELOW(TL_MAX_INPUTS, i))
#define TL_OUTPUT(j) ((saved_set)1 << (TL_MAX_INPUTS + INDEX_BELOW(TL_MAX_OUTPUTS, j)))
#define TL_INPUTS(first, last) (TL_INPUT(last) - TL_INPUT(first) + TL_INPUT(last)) /* from first to last */
_Static_assert(TL_MAX_INPUTS == 64 && TL_MAX_OUTPUTS <= 64,
               "the low half has a bit for each input, the high half for each output");

static inline bool saves_input(saved_set set, int i) { return (uint64_t)set >> i & 1; }
static inline bool saves_output(saved_set set, int j) { return (uint64_t)(set >> TL_MAX_INPUTS) >> j & 1; }
/* One past the last input in it; 0 when there is none. */
static inline int saves_inputs_to(saved_set set) { return (uint64_t)set ? 64 - __builtin_clzll((uint64_t)set) : 0; }
/* The first n inputs. */
static inline saved_set saved_inputs(int n) { return ((saved_set)1 << n) - 1; }

struct tl_op {
    const char *name;
    enum op_kind kind;
    int id;        /* its row in op_list.h, the index of its kernels; -1 for ops added from outside */
    int n_outputs; /* the shape rule may lower it for one call */
    const char *shapes, *dtypes, *flops; /* in words, for `tally ops` */

    bool (*shape)(tl_call *call);                         /* checks inputs, fills out[]; false: call_fail */
    void (*cost)(const tl_call *call, struct cost *cost); /* mandatory: cost_free for what is free */
    uint64_t (*workspace)(const tl_call *call); /* bytes, on devices without a rule of their own (device_rules) */
    void (*backward)(tl_gradient *g);           /* NULL: no gradient flows through it */

    uint8_t overwrites[TL_MAX_OUTPUTS]; /* OVERWRITES(i): output j is input i, changed; 0: it is fresh */
    bool (*changes)(const tl_call *call,
                    int input); /* which inputs are changed in place and are no results; NULL: none */
    bool may_overwrite;         /* has an in-place form: tl_NAME_ */
    bool is_wide;               /* runs in f32 under autocast */
    bool is_costly;             /* a selective checkpoint keeps its results */
    bool passes_on;             /* the gradient of its results, side by side, is that of input 0, unchanged */
    uint8_t bias;               /* SUMS_INTO(i): input i's gradient is output 0's, summed over all rows; 0: no such */
    bool (*run)(const tl_call *call, char *error);  /* instead of a kernel: transfers, which are no device's own */
    tl_dtype (*compute_dtype)(const tl_call *call); /* for the ledger; NULL: input 0's */

    void (*forget)(void *attr); /* frees what attributes hold; NULL: plain data */
    const void *user;           /* ops from outside: their definition, a tl_op_def */

    /* saves[i]: which inputs and outputs the gradient of input i reads (TL_INPUT, TL_OUTPUT); saves_any: which are read
     * whichever gradient is asked for. Only what a wanted gradient needs is kept. */
    saved_set saves_any, saves[TL_MAX_INPUTS];
};

/* Starts a call without clearing the large arrays. */
static inline void call_begin(tl_call *c, const tl_op *op, tl_tensor **input, int n_inputs, const void *attr,
                              size_t attr_bytes) {
    c->op = op;
    c->attr = attr;
    c->attr_bytes = attr_bytes;
    c->input = input;
    c->n_inputs = n_inputs;
    c->n_outputs = op->n_outputs;
    c->in_place = c->is_replayed = c->has_complex = false;
    c->device = c->out_device = NULL;
}

/* Which input output j overwrites; -1 when it is fresh. */
static inline int overwritten(const tl_call *c, int j) { return c->in_place && j == 0 ? 0 : c->op->overwrites[j] - 1; }

#endif
