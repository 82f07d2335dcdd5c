/* samples.h: sample calls of every op, for generic checks to run over.
 *
 * A *sample* is one call: a list of inputs (shape, layout, kind of values), a function that makes the call through the
 * public interface (or through op_apply, for rows that only gradients reach), and the properties it must have. An
 * array `samples_NAME` belongs to each row NAME of op_list.h: a row without one is a link error that names it.
 *
 * Values. Floats are odd multiples of 1/64 between -2 and 2: exact in f64, f32, f16 and bf16, so that runs in different
 * dtypes start from the same numbers, and never 0, so that finite differences do not cross a kink. They come from
 * the thread's generator, so that a run on cpu and a run on meta are the same program.
 */
#ifndef TESTS_SUPPORT_SAMPLES_H
#define TESTS_SUPPORT_SAMPLES_H

#include "account/ledger.h"
#include "tally.h"

enum sample_kind {
    IN_NONE,
    IN_FLOAT,    /* of the run's dtype */
    IN_POSITIVE, /* between 0 and 4 */
    IN_DISTINCT, /* no two equal: maxima are unique */
    IN_STATE,    /* positive, f32 (f64 in an f64 run) */
    IN_CONSTANT, /* float without gradient */
    IN_I64, IN_I32, IN_I16, IN_U8, /* small integers; -3 .. 3, or 0 .. 6 for u8 */
    IN_BOOL,
    IN_INDEX, IN_INDEX32, /* 0 .. limit-1 */
    IN_RISING, IN_RISING32 /* along the last axis each is 0 .. limit-1 more than the one before it */
};

enum sample_layout {
    LAY_DENSE,
    LAY_PERMUTED, /* axes stored in reverse order */
    LAY_SLICED,   /* every second element of a longer last axis, not from its start */
    LAY_REVERSED, /* negative strides on all axes */
    LAY_EXPANDED, /* first axis has stride 0 */
    LAY_COUNT
};

struct sample_input {
    enum sample_kind kind;
    enum sample_layout layout;
    int rank;
    int64_t shape[6];
    int64_t limit; /* IN_INDEX: ids are below */
};

#define SAMPLE_INPUTS 6
#define SAMPLE_OUTPUTS 5

/* Flags. */
#define GRAD 1u       /* differentiable: gradients of its float inputs are checked */
#define LARGE 2u      /* enough elements for several threads; left out of finite differences */
#define CPU_ONLY 4u   /* its result or error depends on data, or it leaves the device: an error on meta */
#define GEOMETRY 8u   /* the inputs' strides matter to the call (view, as_strided): their layout is not changed */
#define SUM_ORDER 16u /* another layout may add in another order: see stride_invariance in test_samples.c */
#define VIA_BACKWARD 32u /* the row is reached on the way back */
#define WRITES 64u    /* changes its inputs themselves (optimizer steps) */
#define NO_DATA 128u  /* its values are undefined, or not comparable between dtypes (random numbers) */
#define ROUNDS 256u   /* the result is rounded (a cast): it has a gradient, and no finite differences */

/* Sets of dtypes, by bit. */
#define DT(dtype) (1u << (dtype))
#define DT_FLOATS (DT(TL_F64) | DT(TL_F32) | DT(TL_F16) | DT(TL_BF16))
#define DT_ARITHMETIC (DT_FLOATS | DT(TL_F8E4M3) | DT(TL_F8E5M2))

struct sample {
    const char *text;
    unsigned flags;
    unsigned dtypes; /* 0: DT_FLOATS */
    /* Makes the call; returns the number of results, 0 on error. Exactly one of the three is given. */
    int (*call)(const struct sample *s, tl_tensor **in, tl_tensor **out);
    tl_tensor *(*unary)(tl_tensor *x);
    tl_tensor *(*binary)(tl_tensor *a, tl_tensor *b);
    /* The same result by other means, bit for bit: the out-of-place form of an in-place call. */
    int (*twin)(const struct sample *s, tl_tensor **in, tl_tensor **out);
    struct sample_input in[SAMPLE_INPUTS];
    int64_t n[8]; /* attributes of the call, as it reads them */
    double d[6];
    int roundings;     /* of the result in a 16-bit dtype; 0: one */
    int flops;         /* of one call of the op per element of the result; 0: not stated (test_costs.c checks it) */
    int total_flops;   /* the same in all, where it is no multiple of the result's size */
    const char *error; /* a part of the message that this call must fail with */
};

struct sample_op {
    const char *name;
    int id;
    const struct sample *samples; /* ends with a row without text */
};

#define OP(kind, name) extern const struct sample samples_##name[];
#include "spec/op_list.h"
#undef OP

extern const struct sample_op sample_ops[]; /* in op_list.h's order; ends with a row without a name */

/* The inputs of a sample: a program of the thread's generator. Those that the sample's gradient reaches
 * require grad when `with_grad`. `layout` LAY_COUNT: as the sample says; otherwise every input is laid out
 * so (expanded ones stay as they are), with the same values. */
bool sample_inputs(const struct sample *s, tl_device *device, tl_dtype dtype, bool with_grad,
                   enum sample_layout layout, tl_tensor **in);
/* The same values as `first`, inputs on the cpu in LAY_DENSE, in new memory and another layout. Drawing the numbers again
 * takes longer than most calls. */
bool sample_inputs_again(const struct sample *s, tl_tensor **first, enum sample_layout layout, tl_tensor **in);
int sample_input_count(const struct sample *s);

/* Makes the call. */
/* The dtype of the run that sample_inputs prepared last. */
tl_dtype sample_dtype(void);

int sample_call(const struct sample *s, tl_tensor **in, tl_tensor **out);

/* A tensor of the same values in another layout, without history. */
tl_tensor *tensor_laid_out(tl_tensor *x, enum sample_layout layout);
/* Values as the inputs have them: odd multiples of 1/64. */
tl_tensor *tensor_drawn(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device);

/* Everything that must be equal between two devices: results' geometry, every row of the ledger, the peaks. */
#define RECORD_ROWS 1000
struct record {
    int n_outputs, n_rows;
    struct { tl_dtype dtype; int rank; int64_t offset, shape[TL_MAX_RANK], stride[TL_MAX_RANK]; } output[16];
    struct ledger_row row[RECORD_ROWS];
    uint64_t peak, peak_by_purpose[TL_PURPOSE_COUNT], peak_allocated, peak_reserved;
    struct tl_memory memory;
};
void record_output(struct record *r, tl_tensor *x);
void record_ledger(struct record *r, const tl_ledger *ledger, const tl_device *device);
/* NULL if equal, otherwise the first difference, with both values. */
const char *record_difference(const struct record *a, const struct record *b);

/* Fails the test when the device holds anything, naming `what`. */
void assert_nothing_held(const char *what, const tl_device *device);

/* Bits of a tensor, row-major; *bytes says how many. free() it. */
void *tensor_bits(tl_tensor *x, size_t *bytes);
/* All elements as doubles, row-major; free() it. */
double *tensor_values(tl_tensor *x);

#endif
