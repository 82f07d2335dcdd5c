/* tally.h: the whole public interface of Tally.
 *
 * Tally is a language-model training system whose price (what a run will cost, counted on a shape-only
 * device before it starts) and receipt (what it did cost, counted while it ran) agree to the last byte and
 * FLOP. Both come from the same code: a program written with the functions below runs on `cpu`, on `cuda`,
 * or on `meta`, which has shapes and no data, and each run keeps the same ledger.
 *
 * Five ideas carry the interface:
 *
 * 1. A tensor is a view: a storage, a dtype, a shape, strides (in elements) and an offset. Views share
 *    storage and cost nothing. Results are always dense and row-major.
 * 2. Scopes own. A function that returns a tensor gives it to the innermost open scope of the calling
 *    thread; when that scope ends, the tensor goes. tl_scope_return() hands one result outwards,
 *    tl_keep()/tl_drop() hold one across scopes. Nobody writes retain and release.
 * 3. The first error wins. A failing call records an error and returns NULL (or false); NULL in gives NULL
 *    out, so a nested expression needs one check. The default policy aborts on the guilty line instead.
 * 4. Every op call passes one function, which checks, prices, allocates, runs and records it. The ledger
 *    therefore cannot miss one.
 * 5. Gradients are recorded while running and hang off the tensors they belong to.
 *
 *      tl_scope scope = tl_scope_begin();
 *      tl_tensor *h = tl_gelu(tl_matmul(x, w1));      // temporaries need no names
 *      tl_tensor *y = tl_add(tl_matmul(h, w2), x);    // (B,T,C)
 *      return tl_scope_return(scope, y);
 *
 * Order. C does not say in which order the arguments of a call are evaluated, and compilers differ. Where two arguments are
 * op calls themselves, name one of the results first: the order decides who draws which random numbers, and what is
 * held at the peak.
 *
 * Threads. Scopes, errors, gradient mode, phase and path belong to the calling thread. Tensors may be handed
 * to another thread (tl_keep first), and used by one thread at a time. Exact accounting is promised
 * for one compute thread, in program order. A graph is backpropagated by one thread at a time. What is the process's own
 * (error policy, log hook, pool limits, brackets of the ledger, number of threads) is set while no other thread runs ops.
 *
 * Fork. Fork while no other thread runs ops. A child made by fork() may go on using `cpu` and `meta`; kernels then run on one thread there, with
 * the same results. Once a GPU has been used, its tensors are refused in the child by name.
 *
 * Axes are counted from 0, or from the end when negative. Sizes and strides are int64_t. Rank is at most 32.
 */
#ifndef TALLY_H
#define TALLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TL_VERSION "0.1.0"
#define TL_MAX_RANK 32

#if defined(__GNUC__)
#define TL_API __attribute__((visibility("default")))
#define TL_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define TL_API
#define TL_PRINTF(text, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is loaded, as "major.minor.patch". */
TL_API const char *tl_version(void);

/* ---- Types ------------------------------------------------------------------------------------------- */

typedef struct tl_tensor tl_tensor; /* a view of a storage; see above */
typedef struct tl_device tl_device; /* cpu, meta with a target, cuda; never freed */
typedef struct tl_ledger tl_ledger; /* what a stretch of code cost */
typedef struct tl_op tl_op;         /* an operation: its rules and kernels */
typedef struct tl_call tl_call;     /* one call of an operation, as its rules see it */
typedef struct tl_gradient tl_gradient; /* one step of backward, as an operation's rule sees it */

/* Element types. Sizes are in bits: two f4 share a byte. f8e8m0 and f4e2m1 are for storage (cast, copy), not
 * arithmetic. Arithmetic on 16-bit and 8-bit floats is done in f32 and rounded once. */
typedef enum tl_dtype {
    TL_F64, TL_F32, TL_F16, TL_BF16, TL_F8E4M3, TL_F8E5M2, TL_F8E8M0, TL_F4E2M1,
    TL_I64, TL_I32, TL_I16, TL_U16, TL_I8, TL_U8, TL_BOOL,
    TL_DTYPE_COUNT
} tl_dtype;

/* A shape argument in one word: tl_zeros(TL_SHAPE(2, 3), TL_F32, NULL). A scalar is TL_SCALAR. */
#define TL_SHAPE(...) ((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))), ((int64_t[]){__VA_ARGS__})
#define TL_SCALAR 0, ((const int64_t *)NULL)

/* A count that may exceed 64 bits (405e9 parameters on 16e6 tokens do). */
typedef struct tl_count { uint64_t low, high; } tl_count;

/* What an allocation is for. A result starts as a temporary, becomes an activation when the graph saves it,
 * and a gradient when it becomes some tensor's .grad; the rest is said by the program (tl_set_purpose). */
typedef enum tl_purpose {
    TL_TEMPORARY, TL_PARAMETER, TL_GRADIENT, TL_OPTIMIZER, TL_ACTIVATION, TL_WORKSPACE, TL_DATA,
    TL_COMMUNICATION,
    TL_PURPOSE_COUNT
} tl_purpose;

/* Which part of a training step an op call belongs to. */
typedef enum tl_phase {
    TL_FORWARD, TL_BACKWARD, TL_RECOMPUTE, TL_UPDATE, TL_OTHER,
    TL_PHASE_COUNT
} tl_phase;

TL_API const char *tl_dtype_name(tl_dtype dtype);     /* "f32"; "?" for no dtype */
TL_API int tl_dtype_bits(tl_dtype dtype);             /* 32 */
TL_API const char *tl_purpose_name(tl_purpose purpose); /* "activation" */
TL_API const char *tl_phase_name(tl_phase phase);       /* "forward" */

/* ---- Errors ------------------------------------------------------------------------------------------ */

typedef enum tl_status {
    TL_OK,
    TL_ERROR_USE,    /* shapes, dtypes, arguments, misuse of scopes or graphs */
    TL_ERROR_MEMORY, /* an allocation failed; the message has the amount asked and the amount live */
    TL_ERROR_IO,     /* a file could not be read or written */
    TL_ERROR_DEVICE, /* a device or its library failed, or is not there */
    TL_ERROR_SYSTEM  /* the system refused something that is neither memory nor a file: a thread */
} tl_status;

typedef enum tl_policy {
    TL_ABORT, /* the default in C: say the message on stderr and abort() on the guilty line */
    TL_RETURN /* record it and return NULL or false; for bindings and long-running programs */
} tl_policy;

/* The calling thread's first error since the last clear, and its message ("" when TL_OK). The message stays
 * valid until the next clear. While an error is pending, later errors do not replace it. */
TL_API tl_status tl_error(void);
TL_API const char *tl_error_message(void);
TL_API void tl_error_clear(void);

/* Sets the policy of the whole process, returns the old one. */
TL_API tl_policy tl_error_policy(tl_policy policy);

/* The library prints nothing. Notes (a fallback taken, a segment returned) go to this hook, if set; it may be called
 * from any thread. NULL switches it off. */
TL_API void tl_log_hook(void (*hook)(const char *line, void *context), void *context);

/* ---- Scopes ------------------------------------------------------------------------------------------ */

/* A token. Scopes close in the reverse order of their opening; anything else is TL_ERROR_USE and closes
 * nothing. Outside all scopes, results belong to the thread's outermost scope, which ends with the thread
 * or with tl_scope_reset(). */
typedef struct tl_scope { uint32_t depth, serial; } tl_scope;

TL_API tl_scope tl_scope_begin(void);

/* Opens a scope that also names: its ops and allocations are billed to the path so far plus `name`
 * ("blocks.3" inside "model" is "model.blocks.3"). Names are UTF-8 without control characters. */
TL_API tl_scope tl_scope_enter(const char *name);

/* Ends a scope: every tensor it owns goes, unless something else holds it. */
TL_API bool tl_scope_end(tl_scope scope);

/* Ends a scope and gives `result` (NULL allowed) to the scope around it. Returns `result`. */
TL_API tl_tensor *tl_scope_return(tl_scope scope, tl_tensor *result);

/* Closes every scope of this thread and drops what the outermost one holds. */
TL_API void tl_scope_reset(void);

/* Holds a tensor beyond its scope, until tl_drop. Each keep needs one drop. tl_keep returns its argument. */
TL_API tl_tensor *tl_keep(tl_tensor *tensor);
TL_API void tl_drop(tl_tensor *tensor);
/* Gives one keep to the innermost scope, instead of a tl_drop: for callbacks whose results were kept. Returns its argument,
 * or NULL when memory is short, and the tensor has then been dropped. */
TL_API tl_tensor *tl_scope_give(tl_tensor *tensor);

/* The path of the calling thread ("" outside named scopes); valid until the thread's next call. */
TL_API const char *tl_path(void);

/* ---- Devices ----------------------------------------------------------------------------------------- */

/* A device by name: "cpu"; "meta" (shapes only, standing in for this machine's cpu); "meta:NAME" for a
 * target from the table ("meta:h200"); "cuda" or "cuda:N". Unknown or absent: NULL and an error that says why. */
TL_API tl_device *tl_device_find(const char *name);
TL_API const char *tl_device_name(const tl_device *device);

/* The names of the targets that `meta` can stand in for, one per index, NULL after the last. */
TL_API const char *tl_target_name(int index);

/* The device that creation functions of this thread use when given NULL; cpu at first. Returns the old one. */
TL_API tl_device *tl_default_device(tl_device *device);

/* Waits until everything asked of the device is done; reports errors that occurred meanwhile. */
TL_API bool tl_device_sync(tl_device *device);
/* The stream on which all ops of a GPU run, a cudaStream_t, for those who share memory with it; NULL elsewhere. */
TL_API void *tl_device_stream(const tl_device *device);

/* Threads used by cpu kernels; 0 asks for the machine's number. Returns the old number. */
TL_API int tl_set_threads(int n_threads);

/* How exactly tl_matmul, tl_linear and tl_linear_cross_entropy multiply f32 matrices, for the whole process, as
 * torch.set_float32_matmul_precision. HIGHEST, as at first: in f32. HIGH: each number may be taken as the sum of two bf16
 * numbers, which on chips that multiply bf16 is faster (1.2 times on Arm with BFMMLA, more with AMX) and leaves a
 * relative error of about 4e-6 of the largest terms, and NaN where an infinity is met; other chips and cuda multiply in f32
 * still. Costs are the same. Returns the old one. */
typedef enum tl_matmul_precision { TL_MATMUL_HIGHEST, TL_MATMUL_HIGH } tl_matmul_precision;
TL_API tl_matmul_precision tl_set_matmul_precision(tl_matmul_precision precision);

/* Whether kernels may be taken that are faster and give other last bits each time, for the whole process; false at first.
 * On cuda: the gradient of attention in 16 bits, which then may want more workspace; and products, whose algorithm is then the fastest of up to 8
 * that the library proposes, by a clock at the first call of each shape, in place of the first. Returns the old one. */
TL_API bool tl_set_fast(bool is_fast);

/* Memory of a device. `limit_bytes` caps what its pool may reserve (0: no cap beyond the target's memory).
 * tl_pool_trim returns unused segments to the device; so does any allocation that would otherwise fail. */
TL_API void tl_pool_limit(tl_device *device, size_t limit_bytes);
TL_API void tl_pool_trim(tl_device *device);

typedef struct tl_memory {
    uint64_t live_bytes;      /* numel x element size of what is held now */
    uint64_t peak_bytes;      /* the most that was ever held at once (since tl_memory_reset_peak) */
    uint64_t allocated_bytes; /* the same as live_bytes, each request rounded up to the pool's alignment */
    uint64_t reserved_bytes;  /* segments taken from the device */
    uint64_t peak_reserved_bytes;
    uint64_t live_tensors;    /* storages held now; empty and external ones are not counted */
    uint64_t device_used_bytes, device_total_bytes; /* by the driver, everything on the device; 0: unknown */
} tl_memory;
TL_API tl_memory tl_device_memory(const tl_device *device);
TL_API void tl_memory_reset_peak(tl_device *device);

/* ---- Creation ---------------------------------------------------------------------------------------- */

/* Fresh tensors, owned by the innermost scope. `device` NULL means the thread's default. tl_empty has
 * no defined content. All may fail for memory or for sizes that overflow. */
TL_API tl_tensor *tl_empty(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_zeros(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_ones(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_full(int rank, const int64_t *shape, double value, tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_empty_like(tl_tensor *x);
TL_API tl_tensor *tl_zeros_like(tl_tensor *x);
TL_API tl_tensor *tl_ones_like(tl_tensor *x);
/* start, start + step, ... (n values) */
TL_API tl_tensor *tl_arange(double start, double step, int64_t n, tl_dtype dtype, tl_device *device);

/* A copy of host values, billed as a transfer when the device is not the cpu: `data` holds numel elements of `dtype`, row-major. On meta the data is ignored and may be NULL. */
TL_API tl_tensor *tl_from_data(const void *data, int rank, const int64_t *shape, tl_dtype dtype, tl_device *device);

/* A tensor over memory of somebody else on the cpu, not copied. `stride` in elements, NULL for row-major.
 * `bytes` bounds every element that strides can reach. When the last view of it goes, deleter(context) is
 * called once, on whichever thread that happens (NULL: nothing is called). It is also called when
 * the function fails, so the memory is never orphaned. External bytes are not the pool's and not in the ledger. */
TL_API tl_tensor *tl_from_external(void *data, size_t bytes, int rank, const int64_t *shape, const int64_t *stride,
                                   tl_dtype dtype, void (*deleter)(void *context), void *context);
/* The same over memory of any device that has data (NULL: the cpu). What lies there must be ready when this is called; before the
 * deleter is called, the device has done all that was asked of it. */
TL_API tl_tensor *tl_from_external_on(tl_device *device, void *data, size_t bytes, int rank, const int64_t *shape,
                                      const int64_t *stride, tl_dtype dtype, void (*deleter)(void *context), void *context);

/* Random numbers: counter-based (Philox 4x32-10). A value depends on (seed, stream, index) alone, so all
 * devices and thread counts give the same bits. The generator counts 32-bit words: a call takes one per element, two for
 * f64 and for integers, rounded up to a multiple of four. */
typedef struct tl_generator { uint64_t seed, stream, index; } tl_generator;
TL_API void tl_seed(uint64_t seed);            /* stream 0, index 0 */
TL_API tl_generator tl_generator_get(void);    /* the calling thread's state, to keep ... */
TL_API void tl_generator_set(tl_generator generator); /* ... and to put back */
/* In [low, high): what would be rounded up to high becomes the largest number of the dtype below it (where there is one that is
 * not below low). */
TL_API tl_tensor *tl_uniform(int rank, const int64_t *shape, double low, double high, tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_normal(int rank, const int64_t *shape, double mean, double std, tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_bernoulli(int rank, const int64_t *shape, double p, tl_device *device); /* bool */
TL_API tl_tensor *tl_integers(int rank, const int64_t *shape, int64_t low, int64_t high, tl_dtype dtype, tl_device *device);

/* ---- Reading a tensor --------------------------------------------------------------------------------- */

TL_API int tl_rank(const tl_tensor *x);
TL_API int64_t tl_size(const tl_tensor *x, int axis);   /* size of an axis */
TL_API int64_t tl_stride(const tl_tensor *x, int axis); /* in elements */
TL_API const int64_t *tl_shape(const tl_tensor *x);     /* rank sizes, valid as long as x */
TL_API int64_t tl_offset(const tl_tensor *x);
TL_API int64_t tl_numel(const tl_tensor *x);
TL_API size_t tl_bytes(const tl_tensor *x);             /* numel x element size */
TL_API size_t tl_storage_bytes(const tl_tensor *x);     /* of the whole storage that x is a view of */
TL_API tl_dtype tl_dtype_of(const tl_tensor *x);
TL_API tl_device *tl_device_of(const tl_tensor *x);
TL_API tl_purpose tl_purpose_of(const tl_tensor *x);
TL_API bool tl_is_contiguous(const tl_tensor *x);
TL_API bool tl_shares_storage(const tl_tensor *a, const tl_tensor *b);
TL_API uint64_t tl_version_of(const tl_tensor *x); /* counts in-place changes of the storage */

/* Address of the first element, NULL on meta. cuda: a device address. */
TL_API void *tl_data(const tl_tensor *x);

/* One element of any tensor as a double or an int64 (index: rank numbers). Waits for the device. Refused on meta by name. */
TL_API double tl_at(tl_tensor *x, const int64_t *index);
TL_API double tl_item(tl_tensor *x);      /* of a one-element tensor */
TL_API int64_t tl_item_int(tl_tensor *x);

/* Copies all elements, row-major, to host memory of `bytes` bytes (must equal tl_bytes). */
TL_API bool tl_to_data(tl_tensor *x, void *data, size_t bytes);

/* Prints as PyTorch does ("tensor([1., 2.])"), into a buffer; at most `size` bytes with the final 0. Returns
 * the length the whole text has. tl_describe gives one line: f32[4,6]@cpu. */
TL_API size_t tl_print(tl_tensor *x, char *buffer, size_t size);
TL_API size_t tl_describe(const tl_tensor *x, char *buffer, size_t size);

/* Says what a tensor's storage is for, in the ledger. Returns x. */
TL_API tl_tensor *tl_set_purpose(tl_tensor *x, tl_purpose purpose);

/* ---- Views: no bytes move, gradients flow ------------------------------------------------------------- */

TL_API tl_tensor *tl_select(tl_tensor *x, int axis, int64_t index);
/* Elements start, start+step, ... before stop. As in Python: negative numbers count from the end, out-of-range
 * ends are clipped, step may be negative. TL_END as stop means "to the end in the direction of step". */
#define TL_END INT64_MAX
TL_API tl_tensor *tl_slice(tl_tensor *x, int axis, int64_t start, int64_t stop, int64_t step);
/* One size may be -1. tl_view refuses what strides cannot express; tl_reshape then copies. */
TL_API tl_tensor *tl_view(tl_tensor *x, int rank, const int64_t *shape);
TL_API tl_tensor *tl_reshape(tl_tensor *x, int rank, const int64_t *shape);
TL_API tl_tensor *tl_transpose(tl_tensor *x, int axis0, int axis1); /* a scalar has axis 0, as in tl_squeeze */
TL_API tl_tensor *tl_permute(tl_tensor *x, const int *axes); /* rank numbers */
TL_API tl_tensor *tl_expand(tl_tensor *x, int rank, const int64_t *shape); /* -1 keeps a size */
TL_API tl_tensor *tl_broadcast_to(tl_tensor *x, int rank, const int64_t *shape);
TL_API tl_tensor *tl_squeeze(tl_tensor *x, int axis);   /* an axis of size 1; others are left alone */
TL_API tl_tensor *tl_unsqueeze(tl_tensor *x, int axis);
TL_API tl_tensor *tl_flatten(tl_tensor *x, int first, int last); /* view or copy, as reshape */
TL_API tl_tensor *tl_unflatten(tl_tensor *x, int axis, int rank, const int64_t *shape);
TL_API tl_tensor *tl_diagonal(tl_tensor *x, int64_t offset, int axis0, int axis1);
/* Any geometry inside the storage, in elements from the storage's start. */
TL_API tl_tensor *tl_as_strided(tl_tensor *x, int rank, const int64_t *shape, const int64_t *stride, int64_t offset);
TL_API tl_tensor *tl_detach(tl_tensor *x); /* same storage, no history */

/* ---- Copies ------------------------------------------------------------------------------------------- */

TL_API tl_tensor *tl_clone(tl_tensor *x);
TL_API tl_tensor *tl_contiguous(tl_tensor *x);               /* x itself when it is dense and row-major */
TL_API tl_tensor *tl_cast(tl_tensor *x, tl_dtype dtype);     /* x itself when it has that dtype */
TL_API tl_tensor *tl_to(tl_tensor *x, tl_device *device);    /* x itself when it is there */
TL_API tl_tensor *tl_copy_(tl_tensor *x, tl_tensor *source); /* x = source, broadcast and cast; returns x */
TL_API tl_tensor *tl_fill_(tl_tensor *x, double value); /* x may be expanded; the value is converted as tl_cast does */

/* ---- Ops ---------------------------------------------------------------------------------------------- */

/* Elementwise, with broadcasting; dtypes promote as in PyTorch. A name that ends in _ changes its first
 * argument in place and returns it. */
TL_API tl_tensor *tl_add(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_sub(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_mul(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_div(tl_tensor *a, tl_tensor *b); /* true division: integers give f32 */
TL_API tl_tensor *tl_add_(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_sub_(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_mul_(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_div_(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_affine(tl_tensor *x, double scale, double shift); /* x * scale + shift */
TL_API tl_tensor *tl_affine_(tl_tensor *x, double scale, double shift);
TL_API tl_tensor *tl_scale(tl_tensor *x, double scale);
TL_API tl_tensor *tl_neg(tl_tensor *x);
TL_API tl_tensor *tl_exp(tl_tensor *x); /* of integers and bool f32, as all functions of real numbers below */
TL_API tl_tensor *tl_log(tl_tensor *x);
TL_API tl_tensor *tl_sqrt(tl_tensor *x);
TL_API tl_tensor *tl_tanh(tl_tensor *x);
TL_API tl_tensor *tl_sigmoid(tl_tensor *x);
TL_API tl_tensor *tl_relu(tl_tensor *x); /* floats and integers keep their dtype */
TL_API tl_tensor *tl_gelu(tl_tensor *x); /* the tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
TL_API tl_tensor *tl_silu(tl_tensor *x); /* x sigmoid(x) */
TL_API tl_tensor *tl_exp_(tl_tensor *x);
TL_API tl_tensor *tl_relu_(tl_tensor *x);

typedef enum tl_compare { TL_EQ, TL_NE, TL_LT, TL_LE, TL_GT, TL_GE } tl_compare;
TL_API tl_tensor *tl_cmp(tl_tensor *a, tl_compare relation, tl_tensor *b);          /* bool */
TL_API tl_tensor *tl_where(tl_tensor *condition, tl_tensor *a, tl_tensor *b);       /* condition: bool */

/* ---- Elementwise functions and numbers ---- */

/* Functions of real numbers. Floats keep their dtype, integers and bool give f32. */
TL_API tl_tensor *tl_exp2(tl_tensor *x);  /* 2^x */
TL_API tl_tensor *tl_expm1(tl_tensor *x); /* e^x - 1, with all its digits near 0 */
TL_API tl_tensor *tl_log1p(tl_tensor *x); /* log(1 + x), likewise */
TL_API tl_tensor *tl_log2(tl_tensor *x);
TL_API tl_tensor *tl_rsqrt(tl_tensor *x); /* 1 / sqrt(x) */
TL_API tl_tensor *tl_sin(tl_tensor *x);
TL_API tl_tensor *tl_cos(tl_tensor *x);
TL_API tl_tensor *tl_erf(tl_tensor *x);
TL_API tl_tensor *tl_reciprocal(tl_tensor *x); /* 1 / x */
TL_API tl_tensor *tl_square(tl_tensor *x);     /* x x; bool gives i64 */

/* Floats and integers (sign: bool too) keep their dtype. Steps have no gradient. */
TL_API tl_tensor *tl_abs(tl_tensor *x);
TL_API tl_tensor *tl_sign(tl_tensor *x); /* -1, 0, 1; of NaN 0 */
TL_API tl_tensor *tl_floor(tl_tensor *x);
TL_API tl_tensor *tl_ceil(tl_tensor *x);
TL_API tl_tensor *tl_round(tl_tensor *x); /* halves to even */
TL_API tl_tensor *tl_trunc(tl_tensor *x);

/* Activations, of floats. tl_gelu_erf is the exact gelu, x Phi(x). softplus: log(1 + e^(beta x)) / beta, and x itself where
 * beta x > threshold. */
TL_API tl_tensor *tl_leaky_relu(tl_tensor *x, double slope);
TL_API tl_tensor *tl_gelu_erf(tl_tensor *x);
TL_API tl_tensor *tl_softplus(tl_tensor *x, double beta, double threshold);

/* In place; integers are refused where the result would be a float. */
TL_API tl_tensor *tl_neg_(tl_tensor *x);
TL_API tl_tensor *tl_log_(tl_tensor *x);
TL_API tl_tensor *tl_sqrt_(tl_tensor *x);
TL_API tl_tensor *tl_tanh_(tl_tensor *x);
TL_API tl_tensor *tl_sigmoid_(tl_tensor *x);
TL_API tl_tensor *tl_gelu_(tl_tensor *x);
TL_API tl_tensor *tl_silu_(tl_tensor *x);
TL_API tl_tensor *tl_exp2_(tl_tensor *x);
TL_API tl_tensor *tl_expm1_(tl_tensor *x);
TL_API tl_tensor *tl_log1p_(tl_tensor *x);
TL_API tl_tensor *tl_log2_(tl_tensor *x);
TL_API tl_tensor *tl_rsqrt_(tl_tensor *x);
TL_API tl_tensor *tl_sin_(tl_tensor *x);
TL_API tl_tensor *tl_cos_(tl_tensor *x);
TL_API tl_tensor *tl_erf_(tl_tensor *x);
TL_API tl_tensor *tl_abs_(tl_tensor *x);
TL_API tl_tensor *tl_sign_(tl_tensor *x);
TL_API tl_tensor *tl_floor_(tl_tensor *x);
TL_API tl_tensor *tl_ceil_(tl_tensor *x);
TL_API tl_tensor *tl_round_(tl_tensor *x);
TL_API tl_tensor *tl_trunc_(tl_tensor *x);
TL_API tl_tensor *tl_gelu_erf_(tl_tensor *x);
TL_API tl_tensor *tl_leaky_relu_(tl_tensor *x, double slope);

/* Two operands, which broadcast and promote. Integer powers are integers; those with a negative exponent are truncated.
 * remainder has the divisor's sign; of integers by 0 it is an error. minimum and maximum give NaN where either is
 * NaN, and equal operands share the gradient. No bool in pow and remainder. */
TL_API tl_tensor *tl_pow(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_remainder(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_minimum(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_maximum(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_pow_(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_remainder_(tl_tensor *a, tl_tensor *b);

/* Truth of any dtype: what is not 0 is true, NaN included. bool results, without gradient. */
TL_API tl_tensor *tl_logical_and(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_logical_or(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_logical_xor(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_logical_not(tl_tensor *x);
TL_API tl_tensor *tl_isnan(tl_tensor *x);
TL_API tl_tensor *tl_isfinite(tl_tensor *x); /* neither infinite nor NaN */

/* Several steps in one name. */
/* a + weight (b - a), floats of one dtype; rounded once */
TL_API tl_tensor *tl_lerp(tl_tensor *a, tl_tensor *b, tl_tensor *weight);
TL_API tl_tensor *tl_lerp_scalar(tl_tensor *a, tl_tensor *b, double weight);
TL_API tl_tensor *tl_addcmul(tl_tensor *x, tl_tensor *a, tl_tensor *b, double value); /* x + (value a) b */
TL_API tl_tensor *tl_addcdiv(tl_tensor *x, tl_tensor *a, tl_tensor *b, double value); /* x + (value a) / b; floats */

/* A number with its kind. Beside a tensor it promotes as a Python number does in PyTorch: a float tensor keeps its dtype
 * beside any number, an integer tensor beside an integer or bool, a bool tensor beside a bool; an integer beside bool
 * tensors gives i64, a float beside integers or bool f32. Integers wrap to the tensor's dtype. */
typedef enum tl_scalar_kind { TL_SCALAR_BOOL, TL_SCALAR_INT, TL_SCALAR_FLOAT } tl_scalar_kind;
typedef struct tl_scalar {
    tl_scalar_kind kind;
    int64_t i; /* bool (0 or 1) and int */
    double f;  /* float */
} tl_scalar;
TL_API tl_scalar tl_scalar_bool(bool value);
TL_API tl_scalar tl_scalar_int(int64_t value);
TL_API tl_scalar tl_scalar_float(double value);

TL_API tl_tensor *tl_add_scalar(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_sub_scalar(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_rsub_scalar(tl_tensor *x, tl_scalar value); /* value - x */
TL_API tl_tensor *tl_mul_scalar(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_div_scalar(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_rdiv_scalar(tl_tensor *x, tl_scalar value); /* value / x */
TL_API tl_tensor *tl_pow_scalar(tl_tensor *x, tl_scalar value);  /* integers: value not negative */
TL_API tl_tensor *tl_rpow_scalar(tl_tensor *x, tl_scalar value); /* value^x */
TL_API tl_tensor *tl_remainder_scalar(tl_tensor *x, tl_scalar value);
/* bool. Beside a float tensor the number is rounded to its dtype, so that what was set to 0.1 equals 0.1. */
TL_API tl_tensor *tl_cmp_scalar(tl_tensor *x, tl_compare relation, tl_scalar value);
/* min(max(x, min), max); NULL for no bound, not both. No bool results. Elements at a bound or beyond it have no gradient. */
TL_API tl_tensor *tl_clamp(tl_tensor *x, const tl_scalar *min, const tl_scalar *max);
TL_API tl_tensor *tl_minimum_scalar(tl_tensor *x, tl_scalar value); /* as clamp with max */
TL_API tl_tensor *tl_maximum_scalar(tl_tensor *x, tl_scalar value); /* as clamp with min */
/* a where it holds, b (as tl_fill_scalar_ takes it) elsewhere */
TL_API tl_tensor *tl_where_scalar(tl_tensor *condition, tl_tensor *a, tl_scalar b);
TL_API tl_tensor *tl_add_scalar_(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_sub_scalar_(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_mul_scalar_(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_div_scalar_(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_pow_scalar_(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_remainder_scalar_(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_clamp_(tl_tensor *x, const tl_scalar *min, const tl_scalar *max);
/* A finite number beyond the dtype's range is refused; but a negative integer wraps in u8 and u16 (-1 is 255). */
TL_API tl_tensor *tl_fill_scalar_(tl_tensor *x, tl_scalar value);

/* Reductions over a list of axes (n_axes 0: over all; a scalar has axis 0). keep leaves the axes with size 1. Extremes over
 * an axis without elements are refused, even where the result is empty. */
TL_API tl_tensor *tl_sum(tl_tensor *x, const int *axes, int n_axes, bool keep);
TL_API tl_tensor *tl_mean(tl_tensor *x, const int *axes, int n_axes, bool keep);
TL_API tl_tensor *tl_max(tl_tensor *x, const int *axes, int n_axes, bool keep);
TL_API tl_tensor *tl_sum_all(tl_tensor *x);
TL_API tl_tensor *tl_mean_all(tl_tensor *x);

/* a (...,m,k) x b (...,k,n) -> (...,m,n); batch axes broadcast; 16-bit inputs accumulate in f32. */
TL_API tl_tensor *tl_matmul(tl_tensor *a, tl_tensor *b);
/* x (...,k), weight (n,k), bias (n) or NULL -> (...,n): x weight^T + bias. */
TL_API tl_tensor *tl_linear(tl_tensor *x, tl_tensor *weight, tl_tensor *bias);

TL_API tl_tensor *tl_softmax(tl_tensor *x);     /* over the last axis */
/* Over the last axis C; weight, bias (C) or NULL for both. */
TL_API tl_tensor *tl_layer_norm(tl_tensor *x, tl_tensor *weight, tl_tensor *bias, double eps);
TL_API tl_tensor *tl_rms_norm(tl_tensor *x, tl_tensor *weight, double eps);
/* Rows of weight (V,C) by ids (...): (...,C). ids i64 or i32, each in [0, V). */
TL_API tl_tensor *tl_embedding(tl_tensor *weight, tl_tensor *ids);
/* Mean over rows of -log softmax(logits)[target]: logits (V), (N,V) or (N,V,d1,...), targets (), (N) or (N,d1,...), i64 or
 * i32, or probabilities of the logits' shape -> a scalar, f32 (f64 for f64 logits). Classes that are not the last axis cost
 * a copy. Every id counts: for an ignore_index see tl_cross_entropy_with. */
TL_API tl_tensor *tl_cross_entropy(tl_tensor *logits, tl_tensor *targets);
TL_API tl_tensor *tl_mse_loss(tl_tensor *prediction, tl_tensor *target);
/* Zeroes each element with probability p and scales the rest by 1/(1-p). */
TL_API tl_tensor *tl_dropout(tl_tensor *x, double p);
/* Rotary positions on x (B,T,H,D), D even, halves rotated (GPT-NeoX, Llama): position = first_position + t. */
TL_API tl_tensor *tl_rope(tl_tensor *x, double base, int64_t first_position);
/* Longer contexts by slower rotation. original_context 0: every frequency is divided by factor. Otherwise Llama 3's rule: pairs
 * that turn more than high_frequency times within the original context stay, those that turn less than low_frequency times are
 * divided by factor, and between the two it is blended. factor 0 or 1, or NULL: none. */
typedef struct tl_rope_scaling {
    double factor, low_frequency, high_frequency;
    int64_t original_context;
} tl_rope_scaling;
TL_API tl_tensor *tl_rope_scaled(tl_tensor *x, double base, int64_t first_position, const tl_rope_scaling *scaling);
/* Attention of q (B,T,H,D) on k, v (B,S,Hkv,D), H a multiple of Hkv -> (B,T,H,D). scale 0 means 1/sqrt(D).
 * Causal: query t sees keys 0 .. S-T+t. No T x S buffer is ever made. Any strides with the last axis dense. */
TL_API tl_tensor *tl_attention(tl_tensor *q, tl_tensor *k, tl_tensor *v, bool causal, double scale);
TL_API tl_tensor *tl_swiglu(tl_tensor *gate, tl_tensor *up); /* silu(gate) * up */

/* Shapes that depend on data: refused by name on meta. */
TL_API tl_tensor *tl_nonzero(tl_tensor *x); /* (n, rank) i64: the indices of what is not zero */

/* Gathering, scattering, advanced indexing. Indices are i64 or i32 tensors. One that is out of range fails and names value and
 * range; tl_index and tl_index_put count negative ones from the end, the others refuse them. Where several
 * values go to one place, the last in row-major order stays (its gradient flows, that of the others is zero), and sums are
 * added in that order: the same bits for any number of threads. Sums of 16-bit and 8-bit floats are rounded once. */
TL_API tl_tensor *tl_gather(tl_tensor *x, int axis, tl_tensor *index); /* out[i][j] = x[index[i][j]][j] for axis 0 */
TL_API tl_tensor *tl_take_along(tl_tensor *x, int axis, tl_tensor *index); /* gather, the other axes broadcast */
/* x with x[index[i][j]][j] = source[i][j] for axis 0; source at least of index's sizes, of x's dtype. */
TL_API tl_tensor *tl_scatter(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source);
TL_API tl_tensor *tl_scatter_(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source);
TL_API tl_tensor *tl_scatter_value(tl_tensor *x, int axis, tl_tensor *index, double value);
TL_API tl_tensor *tl_scatter_value_(tl_tensor *x, int axis, tl_tensor *index, double value);
TL_API tl_tensor *tl_scatter_add(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source); /* += instead of = */
TL_API tl_tensor *tl_scatter_add_(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source);
/* x[i, j]: index tensors on n chosen axes (at most 14), broadcast to one shape, which takes the place of these axes: where they
 * are neighbours, otherwise it comes first, as in NumPy (where, too, a scalar is an index like others). Other axes are whole:
 * slice x before. A bool tensor of rank r among them is a mask: it stands for r axes from its own on, whose sizes it has, and
 * is the same as the r columns of its tl_nonzero, so it depends on data and is refused on meta. */
TL_API tl_tensor *tl_index(tl_tensor *x, const int *axes, tl_tensor **indices, int n);
/* x[i, j] = values, or += values; values broadcast to what tl_index would give. One mask and one value are tl_where: these
 * work on meta, and in place cost a pass over x. */
TL_API tl_tensor *tl_index_put(tl_tensor *x, const int *axes, tl_tensor **indices, int n, tl_tensor *values, bool accumulate);
TL_API tl_tensor *tl_index_put_(tl_tensor *x, const int *axes, tl_tensor **indices, int n, tl_tensor *values, bool accumulate);
TL_API tl_tensor *tl_index_select(tl_tensor *x, int axis, tl_tensor *index); /* index: a vector */
/* x with alpha * source added: slice k of source goes to slice index[k] of x. */
TL_API tl_tensor *tl_index_add(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source, double alpha);
TL_API tl_tensor *tl_index_add_(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source, double alpha);
TL_API tl_tensor *tl_masked_fill(tl_tensor *x, tl_tensor *mask, double value); /* value where the mask holds */
TL_API tl_tensor *tl_masked_fill_(tl_tensor *x, tl_tensor *mask, double value);
TL_API tl_tensor *tl_masked_select(tl_tensor *x, tl_tensor *mask); /* a vector; depends on data: refused on meta */
TL_API tl_tensor *tl_one_hot(tl_tensor *index, int64_t n_classes); /* (..., n_classes) i64 */
/* How often each of 0 .. n_bins-1 occurs in the vector x, i64; or the sums of its weights (NULL for none), of their dtype. A value
 * outside [0, n_bins) fails: the size does not depend on data. */
TL_API tl_tensor *tl_bincount(tl_tensor *x, int64_t n_bins, tl_tensor *weights);

/* Joining and splitting. tl_concat promotes dtypes and, as PyTorch, passes over vectors without elements. */
TL_API tl_tensor *tl_concat(tl_tensor **inputs, int n, int axis);
TL_API tl_tensor *tl_stack(tl_tensor **inputs, int n, int axis); /* along a new axis */
/* Views: n parts of these sizes, which sum to the axis. Nothing is cut into more than 2^20 parts. */
TL_API bool tl_split(tl_tensor *x, int axis, const int64_t *sizes, int n, tl_tensor **parts);
/* Views: up to n parts of ceil(size / n), the last of which may be smaller. Returns how many there are; 0 on error. */
TL_API int tl_chunk(tl_tensor *x, int axis, int n, tl_tensor **parts);
typedef enum tl_pad_mode { TL_PAD_CONSTANT, TL_PAD_REFLECT, TL_PAD_REPLICATE, TL_PAD_CIRCULAR } tl_pad_mode;
/* before[i] and after[i] elements more along each axis (rank numbers); negative ones cut off. `value` for TL_PAD_CONSTANT. */
TL_API tl_tensor *tl_pad(tl_tensor *x, const int64_t *before, const int64_t *after, tl_pad_mode mode, double value);

/* Reordering and repeating. tl_flip is a view with negative strides, where PyTorch copies: clone it to change it alone. */
TL_API tl_tensor *tl_flip(tl_tensor *x, const int *axes, int n_axes);
/* Element i goes to i + shift, around the end; axes NULL (and n 1): as if x were flat. */
TL_API tl_tensor *tl_roll(tl_tensor *x, const int64_t *shifts, const int *axes, int n);
/* x counts[i] times along axis i: torch's repeat and tile. The counts are lined up with the axes at the end; the shorter of
 * the two is filled with ones. tl_repeat is another thing: see Einops. */
TL_API tl_tensor *tl_tile(tl_tensor *x, int n, const int64_t *counts);
TL_API tl_tensor *tl_repeat_interleave(tl_tensor *x, int axis, int64_t count); /* each slice count times */
/* Slice i counts[i] times; depends on data: refused on meta. */
TL_API tl_tensor *tl_repeat_interleave_by(tl_tensor *x, int axis, tl_tensor *counts);
TL_API tl_tensor *tl_triu(tl_tensor *x, int64_t k); /* zero below diagonal k of the last two axes */
TL_API tl_tensor *tl_tril(tl_tensor *x, int64_t k); /* zero above it */

/* Order. Sorting is stable in both directions; NaN is above all numbers, as in PyTorch. Indices are i64. */
TL_API bool tl_sort(tl_tensor *x, int axis, bool descending, tl_tensor **values, tl_tensor **indices);
TL_API tl_tensor *tl_argsort(tl_tensor *x, int axis, bool descending);
/* The k largest (or smallest), in order; of equal ones those that come first. */
TL_API bool tl_topk(tl_tensor *x, int64_t k, int axis, bool largest, tl_tensor **values, tl_tensor **indices);
/* For each value, how many of the sorted numbers of its row are below it (right: or equal to it). sorted (n), values any
 * shape; or both with the same leading axes; dtypes promote. i64. */
TL_API tl_tensor *tl_searchsorted(tl_tensor *sorted, tl_tensor *values, bool right);
/* The distinct values of x, rising; for each element the number of its value (x's shape); how often each occurs. Any of the
 * three may be NULL. Depends on data: refused on meta. */
TL_API bool tl_unique(tl_tensor *x, tl_tensor **values, tl_tensor **inverse, tl_tensor **counts);

TL_API tl_tensor *tl_eye(int64_t n_rows, int64_t n_columns, tl_dtype dtype, tl_device *device);
/* n numbers, both ends among them; no bool */
TL_API tl_tensor *tl_linspace(double start, double stop, int64_t n, tl_dtype dtype, tl_device *device);
/* Views: n vectors as n grids of their sizes; is_xy swaps the first two axes. */
TL_API bool tl_meshgrid(tl_tensor **inputs, int n, bool is_xy, tl_tensor **grids);

/* Mixed precision without casts in the program, per thread: from here on products (tl_matmul, tl_linear, tl_attention and its
 * like, tl_linear_cross_entropy) cast f32, f16 and bf16 operands to `dtype`, and these cast f16 and bf16 ones to f32:
 * softmax, log_softmax, layer_norm, rms_norm, losses, sum, prod, cumsum, cumprod, norm, logsumexp, exp, expm1, log,
 * log1p, log2, rsqrt, softplus. In-place forms and all other ops run as they are given. The casts are ordinary ones, recorded
 * and billed. Backward runs without it, and a checkpoint runs again as it ran. dtype: TL_BF16, TL_F16, TL_F32, or
 * TL_DTYPE_COUNT for off, as at first. Returns the old one. */
TL_API tl_dtype tl_autocast(tl_dtype dtype);

/* ---- Dtypes, block-scaled formats, more random numbers ----------------------------------------------- */

/* What torch.finfo and torch.iinfo answer. Another kind of dtype is an error, and the answer is all zero. docs/dtypes.md has
 * the table. */
typedef struct tl_float_info {
    const char *name; /* torch's: "float32" */
    int bits;
    double eps;                   /* from 1 to the next larger value */
    double max, min;              /* the largest and the lowest finite value */
    double tiny, smallest_normal; /* the smallest positive normal value, under both names */
    double smallest_subnormal;    /* the smallest positive value */
    double resolution;            /* 10^-digits, for the whole decimal digits that survive */
} tl_float_info;
typedef struct tl_integer_info {
    const char *name;
    int bits;
    int64_t min, max;
} tl_integer_info;
TL_API tl_float_info tl_finfo(tl_dtype dtype);
TL_API tl_integer_info tl_iinfo(tl_dtype dtype);
/* torch.promote_types. Where torch refuses (an 8- or 4-bit float with another dtype, u16 with another integer): an
 * error and TL_DTYPE_COUNT. */
TL_API tl_dtype tl_promote(tl_dtype a, tl_dtype b);

/* How a value becomes one of a narrower dtype. */
typedef enum tl_rounding {
    TL_NEAREST,   /* ties to even; what overflows becomes infinity, NaN in f8e4m3, the largest value in f4e2m1 */
    TL_SATURATE,  /* nearest, but what overflows (an infinity too, except in f64) becomes the largest finite value */
    TL_STOCHASTIC /* up or down with probabilities that make the mean exact; overflow as in TL_NEAREST */
} tl_rounding;
/* tl_cast with a mode: x itself when it has that dtype. TL_STOCHASTIC takes one word of the thread's generator per element;
 * targets that are no floats, and f64, are rounded as in TL_NEAREST. The gradient passes straight through. */
TL_API tl_tensor *tl_cast_mode(tl_tensor *x, tl_dtype dtype, tl_rounding mode);

/* Block-scaled formats: narrow values, and a scale for each block of consecutive elements of the last axis. */
typedef enum tl_format {
    TL_MXFP8_E4M3, TL_MXFP8_E5M2, /* f8 values, one f8e8m0 scale per 32: 8.25 bits an element */
    TL_MXFP4,                     /* f4e2m1 values, one f8e8m0 scale per 32: 4.25 bits */
    TL_NVFP4,                     /* f4e2m1 values, one f8e4m3 scale per 16, one f32 per tensor: 4.5 bits */
    TL_FORMAT_COUNT
} tl_format;
typedef struct tl_quantized {
    tl_format format;
    tl_tensor *values, *scales, *tensor_scale; /* (...,C), (...,C/block), () or NULL; each owned by the scope like any result */
} tl_quantized;
TL_API const char *tl_format_name(tl_format format); /* "mxfp4"; "?" for no format */
TL_API int tl_format_block(tl_format format);        /* 32, or 16 */
/* x (...,C), a float; C a multiple of the block. Scales are powers of two by the OCP MX rule, 2^(floor(log2 amax) - emax);
 * in NVFP4 the tensor's is amax / (448 x 6) and a block's its amax / 6, divided by that. Values saturate in every mode;
 * TL_STOCHASTIC takes one word of the generator per element. A block with an infinity or a NaN becomes all NaN (its scale
 * is NaN) and spoils no other. No gradient flows. Error bounds: docs/dtypes.md. False on error. */
TL_API bool tl_quantize(tl_tensor *x, tl_format format, tl_rounding mode, tl_quantized *quantized);
/* value x scale, rounded once to dtype (a float that is not for storage only). */
TL_API tl_tensor *tl_dequantize(const tl_quantized *quantized, tl_dtype dtype);
/* What tl_quantize and tl_dequantize make of x, in x's dtype, bit for bit and with the same random words, in one pass; for
 * training with narrow weights and activations. The gradient passes straight through, that of held-back values too. */
TL_API tl_tensor *tl_fake_quantize(tl_tensor *x, tl_format format, tl_rounding mode);

/* Creation, of x's shape, dtype and device. */
TL_API tl_tensor *tl_full_like(tl_tensor *x, double value);
TL_API tl_tensor *tl_uniform_like(tl_tensor *x, double low, double high);
TL_API tl_tensor *tl_normal_like(tl_tensor *x, double mean, double std);
TL_API tl_tensor *tl_integers_like(tl_tensor *x, int64_t low, int64_t high);

/* Fills in place, x of any strides: the numbers that the creation function would put into a tensor of x's shape and
 * dtype, taken from the generator alike. Return x. */
TL_API tl_tensor *tl_uniform_(tl_tensor *x, double low, double high);
TL_API tl_tensor *tl_normal_(tl_tensor *x, double mean, double std);
TL_API tl_tensor *tl_bernoulli_(tl_tensor *x, double p); /* 1 with probability p, else 0; any dtype that computes */

/* Normal numbers conditioned on [low, high] (values, not deviations), by the inverse of the distribution function: one
 * draw per element (a word, two for f64), however narrow the range. Computed in f64, held to the range, rounded once: in a
 * narrow dtype an end may round outwards. A range that lies beyond 37 deviations on one side is refused. */
TL_API tl_tensor *tl_trunc_normal(int rank, const int64_t *shape, double mean, double std, double low, double high,
                                  tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_trunc_normal_(tl_tensor *x, double mean, double std, double low, double high);

/* 0 .. n-1 in random order, i64: what sorts n 64-bit draws. */
TL_API tl_tensor *tl_permutation(int64_t n, tl_device *device);

/* Categories drawn with the given weights: p (K) -> (n_samples) or p (N,K) -> (N,n_samples), i64. Weights need not sum to
 * 1; negative, infinite or NaN ones fail, as does a row of zeros. Two words of the generator per sample, or per weight
 * without replacement. Samples come in the order in which they would be drawn. */
TL_API tl_tensor *tl_multinomial(tl_tensor *p, int64_t n_samples, bool replacement);

/* Sends the calling thread to the beginning of another stream of its seed: streams never meet. Returns the state
 * before, for tl_generator_set. */
TL_API tl_generator tl_stream(uint64_t stream);

/* ---- Reductions, scans, losses ------------------------------------------------------------------------ */

/* As tl_sum: over a list of axes (n_axes 0: over all), keep leaves them with size 1. Gradients of ties: tl_min and
 * tl_max share evenly. */
TL_API tl_tensor *tl_sum_dtype(tl_tensor *x, const int *axes, int n_axes, bool keep, tl_dtype dtype); /* cast first */
TL_API tl_tensor *tl_nansum(tl_tensor *x, const int *axes, int n_axes, bool keep); /* NaN counts as 0 */
TL_API tl_tensor *tl_prod(tl_tensor *x, const int *axes, int n_axes, bool keep);   /* integers and bool: i64 */
TL_API tl_tensor *tl_prod_all(tl_tensor *x);
TL_API tl_tensor *tl_min(tl_tensor *x, const int *axes, int n_axes, bool keep);
/* Where the extreme is (i64): its place among the reduced elements in row-major order, so for one axis the index along it. Of equal
 * elements the first; the first NaN beats all. */
TL_API tl_tensor *tl_argmax(tl_tensor *x, const int *axes, int n_axes, bool keep);
TL_API tl_tensor *tl_argmin(tl_tensor *x, const int *axes, int n_axes, bool keep);
TL_API tl_tensor *tl_any(tl_tensor *x, const int *axes, int n_axes, bool keep); /* is one not 0? bool; u8 for u8 */
TL_API tl_tensor *tl_all(tl_tensor *x, const int *axes, int n_axes, bool keep); /* is none 0? */
TL_API tl_tensor *tl_count_nonzero(tl_tensor *x, const int *axes, int n_axes, bool keep); /* i64 */
/* sum (x - mean)^2 / (n - correction): correction 1 for a sample, 0 for a whole population. Floats. */
TL_API tl_tensor *tl_var(tl_tensor *x, const int *axes, int n_axes, double correction, bool keep);
TL_API tl_tensor *tl_std(tl_tensor *x, const int *axes, int n_axes, double correction, bool keep); /* gradient 0 at 0 */
/* Integers and bool are cast to f32 first. */
TL_API tl_tensor *tl_logsumexp(tl_tensor *x, const int *axes, int n_axes, bool keep);
/* (sum |x|^p)^(1/p). p 0 counts what is not 0; INFINITY and -INFINITY are the largest and smallest |x|. The gradient at norm 0
 * is 0. */
TL_API tl_tensor *tl_norm(tl_tensor *x, double p, const int *axes, int n_axes, bool keep);

/* Running sums and products along one axis; of integers and bool in i64 (in place: not of bool). */
TL_API tl_tensor *tl_cumsum(tl_tensor *x, int axis);
TL_API tl_tensor *tl_cumprod(tl_tensor *x, int axis); /* its second derivative makes n x n elements for each n along the axis */
TL_API tl_tensor *tl_cumsum_(tl_tensor *x, int axis);
TL_API tl_tensor *tl_cumprod_(tl_tensor *x, int axis);

/* Along any axis; one that is not the last costs two copies. A scalar has axis 0. */
TL_API tl_tensor *tl_softmax_axis(tl_tensor *x, int axis);
TL_API tl_tensor *tl_log_softmax(tl_tensor *x, int axis);

/* What becomes of the losses of single elements or rows. */
typedef enum tl_reduction { TL_REDUCE_NONE, TL_REDUCE_MEAN, TL_REDUCE_SUM } tl_reduction;

/* weight: one per class (V), or NULL for 1. Rows with target ignore_index are left out, of the mean too, which is
 * weighted: sum of w[target] loss / sum of w[target]. label_smoothing e: the target is 1 - e, plus e/V for every class. */
typedef struct tl_cross_entropy_options {
    tl_tensor *weight;
    int64_t ignore_index;
    double label_smoothing;
    tl_reduction reduction;
} tl_cross_entropy_options;
TL_API tl_cross_entropy_options tl_cross_entropy_default(void); /* NULL, -100, 0, mean */
/* logits (V), (N,V) or (N,V,d1,...); targets are ids (), (N) or (N,d1,...), i64 or i32, or probabilities of the logits' shape,
 * floats, for which ignore_index has no meaning and the mean is over rows. TL_REDUCE_NONE gives the shape of the ids. The loss
 * is f32 (f64 for f64 logits). options NULL: the default ones. */
TL_API tl_tensor *tl_cross_entropy_with(tl_tensor *logits, tl_tensor *targets, const tl_cross_entropy_options *options);
/* The same from log probabilities and ids, in x's dtype: -x[n][target[n]]. label_smoothing must be 0. */
TL_API tl_tensor *tl_nll_loss(tl_tensor *x, tl_tensor *targets, const tl_cross_entropy_options *options);

/* Losses of single elements; prediction and target broadcast. */
TL_API tl_tensor *tl_mse_loss_with(tl_tensor *prediction, tl_tensor *target, tl_reduction reduction);
TL_API tl_tensor *tl_l1_loss(tl_tensor *prediction, tl_tensor *target, tl_reduction reduction);
/* d^2 / 2 beta where |d| < beta, else |d| - beta/2. beta 0 is tl_l1_loss. */
TL_API tl_tensor *tl_smooth_l1_loss(tl_tensor *prediction, tl_tensor *target, double beta, tl_reduction reduction);
/* -t log sigmoid(x) - (1-t) log(1 - sigmoid(x)), of one shape. pos_weight (broadcasts to x; NULL: 1) multiplies the first
 * part, weight (likewise) the whole. */
TL_API tl_tensor *tl_bce_with_logits(tl_tensor *x, tl_tensor *target, tl_tensor *weight, tl_tensor *pos_weight,
                                     tl_reduction reduction);

/* ---- Fused ops ------------------------------------------------------------------------------------------ */

/* *sum = x + residual; returns its norm over the last axis, as tl_rms_norm and tl_layer_norm give it. x and residual have one
 * shape and dtype; weight (C) or NULL, weight and bias (C) or NULL for both. The gradients of both results meet in one pass. */
TL_API tl_tensor *tl_add_rms_norm(tl_tensor *x, tl_tensor *residual, tl_tensor *weight, double eps, tl_tensor **sum);
TL_API tl_tensor *tl_add_layer_norm(tl_tensor *x, tl_tensor *residual, tl_tensor *weight, tl_tensor *bias, double eps,
                                    tl_tensor **sum);

/* tl_attention with options. Its results and gradients are those of softmax(scale q k^T + mask) v. */
typedef struct tl_attention_options {
    double scale;    /* 0: 1/sqrt(D) */
    bool causal;     /* query t sees keys 0 .. S-T+t */
    int64_t window;  /* query t sees keys s with |s - (S-T+t)| < window only, and when causal none after it: the last
                      * `window` keys, or window - 1 to either side (FlashAttention's window_size of window - 1 twice). 0: all */
    tl_tensor *mask; /* NULL, or what broadcasts to (B,H,T,S), any strides: bool, true where the query sees the key; or a
                      * float, which is added to the scaled score. Its gradient, where the mask needs one, is made as
                      * (B,H,T,S) and then summed to the mask's shape: the one case that holds T x S numbers */
} tl_attention_options;
TL_API tl_attention_options tl_attention_defaults(void); /* not causal, no window, no mask */
/* lse (may be NULL) receives the log of the sum of exp of each query's scores: (B,H,T) f32 (f64 for f64), differentiable. A
 * query that sees nothing has the result 0 and lse -inf. On cuda, masks, windows and lse's gradient take kernels that are right and slow. */
TL_API tl_tensor *tl_attention_ex(tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_attention_options *options,
                                  tl_tensor **lse);

/* Cross entropy of the logits x weight^T, which never exist as a whole: x (N,C), weight (V,C), targets (N) i64 or i32 -> a
 * scalar, f32 (f64 for f64 x). Rows are taken in chunks of at most 64 MiB of f32 logits (on cuda 512 MiB, in x's dtype; at least one row). Where a
 * gradient will be asked for (recording is on and x or weight needs it), the gradients are computed in the same loop,
 * billed to backward, and held until backward scales them. Rows whose target is ignore_index have no part in loss and
 * mean; the mean over no rows is NaN. No second derivative. A selective checkpoint runs it again. */
typedef struct tl_linear_cross_entropy_options {
    int64_t ignore_index;
    bool is_sum; /* the sum over rows instead of the mean */
} tl_linear_cross_entropy_options;
/* ignore_index -100, mean */
TL_API tl_linear_cross_entropy_options tl_linear_cross_entropy_defaults(void);
TL_API tl_tensor *tl_linear_cross_entropy(tl_tensor *x, tl_tensor *weight, tl_tensor *targets,
                                          const tl_linear_cross_entropy_options *options);

/* ---- Einops ------------------------------------------------------------------------------------------- */

/* Axes by name; docs/einops.md explains. A pattern names the axes of the input and those of the result:
 *
 *      tl_rearrange(x, "b s (h d) -> b h s d", "h=8")         // (B,S,H D) -> (B,H,S,D): a view
 *      tl_reduce(x, "b (h 2) (w 2) c -> b h w c", "max", NULL) // 2x2 max pooling
 *      tl_repeat(x, "h w -> h w c", "c=3")                     // a view with stride 0
 *
 * Parentheses split an axis of the input, or merge axes of the result, the last of them fastest. "..." stands for any number
 * of axes, 1 and () for an axis of size 1, a larger number for an axis without a name. A size that does not follow from the
 * input is a length: "h=8 w=4" or "h=8, w=4"; NULL for none. The forms that end in _with take names and sizes in arrays.
 *
 * Splitting, permuting, widening, and merging where strides allow it are views; what must be copied is copied once. The
 * result is x itself when there is nothing to do. A pattern is read once, then found in a table; any thread may call. */
TL_API tl_tensor *tl_rearrange(tl_tensor *x, const char *pattern, const char *lengths); /* every axis on both sides */
/* Axes that are on the left side only go: "sum", "mean" (floats), "max", "min", "prod", "any", "all" or "logsumexp". */
TL_API tl_tensor *tl_reduce(tl_tensor *x, const char *pattern, const char *reduction, const char *lengths);
TL_API tl_tensor *tl_repeat(tl_tensor *x, const char *pattern, const char *lengths); /* axes on the right side only are new */
TL_API tl_tensor *tl_rearrange_with(tl_tensor *x, const char *pattern, const char *const *names, const int64_t *sizes, int n);
TL_API tl_tensor *tl_reduce_with(tl_tensor *x, const char *pattern, const char *reduction, const char *const *names,
                                 const int64_t *sizes, int n);
TL_API tl_tensor *tl_repeat_with(tl_tensor *x, const char *pattern, const char *const *names, const int64_t *sizes, int n);

/* Sums of products over axes: tl_einsum("b i k, b k j -> b i j", TL_TENSORS(x, y)). Axes are names, inputs are separated by
 * commas, an axis that the output does not have is summed over; a name twice in one input is its diagonal; "..." broadcasts,
 * and so does size 1. tl_einsum_letters takes the spelling of torch.einsum instead, where every letter is an axis: "bik,bkj->bij".
 * It may leave out the arrow: the letters that occur once are the output, in alphabetical order, after the ellipsis.
 *
 * 1 to 64 tensors, dtypes promote. They are contracted in pairs, in the order with the fewest FLOPs (exactly for up to 8
 * tensors, by a good guess beyond). A pair is one batched matmul; one without a sum is a product of elements. Integers, which
 * have no matmul, and batches of dot products in f32 and f64 are multiplied and summed. Operands are not copied where strides allow it. The result may be a
 * permuted view. */
#define TL_TENSORS(...) ((tl_tensor *[]){__VA_ARGS__}), ((int)(sizeof((tl_tensor *[]){__VA_ARGS__}) / sizeof(tl_tensor *)))
TL_API tl_tensor *tl_einsum(const char *pattern, tl_tensor **tensors, int n);
TL_API tl_tensor *tl_einsum_letters(const char *pattern, tl_tensor **tensors, int n);

/* What an einsum will do, without doing it. A step takes two of: inputs 0 .. n-1, results n, n+1, ... of earlier steps. */
typedef struct tl_einsum_step {
    int left, right;
    tl_count flops;
    int64_t numel; /* elements of its result */
} tl_einsum_step;
typedef struct tl_contraction {
    int n_steps;
    tl_count flops;          /* of all steps, and of the sums before them; the ledger will count the same */
    tl_count flops_in_order; /* from left to right instead */
    int64_t largest;         /* elements of the largest result on the way; 0 with fewer than two steps */
} tl_contraction;
/* `steps` receives n-1 of them. `text` receives it all in words, malloc'ed. Each of the three may be NULL. */
TL_API bool tl_einsum_plan(const char *pattern, bool is_letters, tl_tensor **tensors, int n, tl_einsum_step *steps,
                           tl_contraction *total, char **text);

/* The packed axes of one tensor. */
typedef struct tl_packed {
    int rank;
    int64_t size[TL_MAX_RANK];
} tl_packed;
/* Joins tensors of different rank along *: with "i j * k" the first two axes and the last are common, and whatever lies
 * between is flattened and joined. `shapes` (n of them, or NULL) receives what * took of each, for tl_unpack. One tensor alone is
 * reshaped, not copied. */
TL_API tl_tensor *tl_pack(tl_tensor **tensors, int n, const char *pattern, tl_packed *shapes);
/* The way back: n views of x. One size among all shapes may be -1. */
TL_API bool tl_unpack(tl_tensor *x, const tl_packed *shapes, int n, const char *pattern, tl_tensor **parts);

/* Names of axes and their sizes. Starts empty: tl_dims d = {0}. */
typedef struct tl_dims {
    int n; /* names */
    int64_t size[TL_MAX_RANK];
    uint16_t name[TL_MAX_RANK], by[TL_MAX_RANK]; /* where in text: the name, and the tensor that bound it */
    uint16_t used;
    char text[512];
    int n_waiting; /* products of names whose sizes are not known yet; their size is -1 */
    int64_t product[4];
    uint16_t product_by[4];
    uint8_t n_factors[4], factor[16];
} tl_dims;
TL_API int64_t tl_dim(const tl_dims *dims, const char *name);                /* its size; -1 and an error when there is none */
TL_API const char *tl_dims_name(const tl_dims *dims, int i);                 /* name i; NULL when there is none */
TL_API bool tl_dims_set(tl_dims *dims, const char *name, int64_t size);      /* binds a name by hand */
/* The sizes of x by name: "b _ h 1" skips axis 1 and wants size 1 of the last. Clears dims first. */
TL_API bool tl_parse_shape(tl_tensor *x, const char *pattern, tl_dims *dims);

/* A contract about a tensor's shape. The first tensor that shows a name binds it; all later ones must agree:
 *
 *      tl_dims d = {0};
 *      if (!tl_expect(&d, x, "x", "batch seq (heads d) : f32|bf16 @cpu") || !tl_expect(&d, w, "w", "d out")) return NULL;
 *      int64_t heads = tl_dim(&d, "heads"); // x said heads d, w said d
 *
 * A pattern is one side of the others, where a name may come twice. _ is any size, "..." any number of axes. Of a group that
 * has several unknown sizes the product is kept until later tensors tell the rest. Behind a colon: dtypes (or float,
 * integer), and a device; meta stands in for every device. A refused tensor binds nothing. */
TL_API bool tl_expect(tl_dims *dims, tl_tensor *x, const char *name, const char *pattern);

/* ---- Optimizers ----------------------------------------------------------------------------------------- */

/* As torch.optim defines them (maximize off), in place, one pass each, billed to the update phase. State tensors have the
 * parameter's shape and are f32 (f64 for f64 parameters); they start as zeros where nothing else is said. Steps are
 * counted from 1. All take the same options, the first two for parameters narrower than f32:
 * master      an f32 copy: the step is made on it, and the parameter becomes its rounded value. NULL: none.
 * stochastic  the parameter is rounded up or down at random, with the probability that makes it right on average; the
 *             words come from the thread's generator, one per element, rounded up to a multiple of four. f32 and
 *             f64 parameters are not rounded: no word is taken.
 * grad_scale  one f32 number on the parameter's device, by which the gradient is multiplied inside the step (tl_clip_scale).
 *             When it is not finite the step changes no bit of parameter, states and master: so clipping, unscaling and
 *             the guard against overflow need no answer from the device. NULL: 1.
 * While an error is pending no step is made: a NULL above may be what failed. */
typedef struct tl_update_options {
    tl_tensor *master;
    bool stochastic;
    tl_tensor *grad_scale;
} tl_update_options;

typedef struct tl_sgd_options {
    double lr, momentum, dampening, weight_decay;
    bool nesterov;
    int64_t step;
    tl_update_options update;
} tl_sgd_options;
TL_API tl_sgd_options tl_sgd_defaults(void); /* lr 1e-3, everything else 0, step 1 */
/* g += weight_decay p; buffer = g in step 1, then momentum buffer + (1 - dampening) g; p -= lr buffer, or with nesterov
 * lr (g + momentum buffer). buffer: NULL exactly when momentum is 0. */
TL_API bool tl_sgd_momentum_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *buffer, const tl_sgd_options *options);
TL_API bool tl_sgd_(tl_tensor *parameter, tl_tensor *grad, double lr); /* p -= lr g */

typedef struct tl_adagrad_options {
    double lr, lr_decay, weight_decay, eps;
    int64_t step;
    tl_update_options update;
} tl_adagrad_options;
TL_API tl_adagrad_options tl_adagrad_defaults(void); /* lr 1e-2, eps 1e-10, else 0, step 1 */
/* g += weight_decay p; sum += g^2; p -= lr / (1 + (step-1) lr_decay) g / (sqrt(sum) + eps). sum starts as the initial
 * accumulator. */
TL_API bool tl_adagrad_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *sum, const tl_adagrad_options *options);

typedef struct tl_rmsprop_options {
    double lr, alpha, eps, weight_decay, momentum;
    bool centered;
    tl_update_options update;
} tl_rmsprop_options;
TL_API tl_rmsprop_options tl_rmsprop_defaults(void); /* lr 1e-2, alpha 0.99, eps 1e-8, else 0 */
/* g += weight_decay p; square = alpha square + (1-alpha) g^2; centered: mean = alpha mean + (1-alpha) g;
 * d = g / (sqrt(square [- mean^2]) + eps); with momentum d = buffer = momentum buffer + d; p -= lr d.
 * mean: NULL unless centered. buffer: NULL exactly when momentum is 0. */
TL_API bool tl_rmsprop_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *square, tl_tensor *mean, tl_tensor *buffer,
                        const tl_rmsprop_options *options);

typedef struct tl_adam_options {
    double lr, beta1, beta2, eps, weight_decay;
    bool decoupled; /* AdamW: p *= 1 - lr weight_decay instead of g += weight_decay p */
    int64_t step;
    tl_update_options update;
} tl_adam_options;
TL_API tl_adam_options tl_adam_defaults(void); /* lr 1e-3, betas 0.9 and 0.999, eps 1e-8, no decay, step 1 */
/* m = beta1 m + (1-beta1) g; v = beta2 v + (1-beta2) g^2; p -= lr/(1-beta1^step) m / (sqrt(v)/sqrt(1-beta2^step) + eps).
 * max (amsgrad; NULL: without): max = max(max, v) takes v's place in the step. */
TL_API bool tl_adam_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *m, tl_tensor *v, tl_tensor *max,
                     const tl_adam_options *options);
/* tl_adam_, decoupled, with the usual options alone */
typedef struct tl_adamw_options {
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step; /* 1 for the first update */
} tl_adamw_options;
TL_API bool tl_adamw_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *m, tl_tensor *v, const tl_adamw_options *options);

/* The sum of the squares of all elements of all of them: a scalar, f32 (f64 where one is f64), no gradient. */
TL_API tl_tensor *tl_sum_squares(tl_tensor **inputs, int n);
/* The norm of the .grad of all parameters together, on their device, an f32 scalar (f64 where a gradient is f64); parameters
 * without .grad count nothing. Billed to the update phase. */
TL_API tl_tensor *tl_grad_norm(tl_tensor **parameters, int n);
/* What to multiply gradients by (grad_scale above), when they are `divisor` times too large (a loss scale, a number of
 * micro-batches) and `norm` is theirs: min(1, max_norm / (norm/divisor + 1e-6)) / divisor, an f32 scalar on the device, with
 * PyTorch's clip_grad_norm_'s 1e-6; NaN where norm is not finite. An infinite max_norm does not clip. */
TL_API tl_tensor *tl_clip_scale(tl_tensor *norm, double max_norm, double divisor);

/* ---- Gradients ---------------------------------------------------------------------------------------- */

/* Recording is on at first, per thread. Returns the old mode. */
TL_API bool tl_grad_mode(bool on);
TL_API tl_tensor *tl_requires_grad(tl_tensor *x, bool on); /* a leaf whose .grad backward fills; returns x */
TL_API bool tl_needs_grad(const tl_tensor *x);
TL_API bool tl_is_leaf(const tl_tensor *x);
TL_API tl_tensor *tl_retain_grad(tl_tensor *x); /* also fill .grad of this result; returns x */
TL_API tl_tensor *tl_grad_of(tl_tensor *x);     /* the gradient, held by x; NULL when there is none */
/* Puts a gradient (x's shape; NULL frees). Later backward passes add into it. */
TL_API bool tl_set_grad(tl_tensor *x, tl_tensor *grad);
TL_API void tl_zero_grad(tl_tensor *x, bool keep); /* keep: fill with zeros; otherwise free it */

typedef enum tl_backward_flags {
    TL_RETAIN_GRAPH = 1, /* the graph may be walked again; without it only where no op had saved anything */
    TL_CREATE_GRAPH = 2  /* record the backward pass too, for higher derivatives; implies retain. With tl_backward, a
                          * leaf and its .grad then hold each other until tl_zero_grad(leaf, false). All ops with a
                          * gradient have higher ones but attention and linear_cross_entropy, which refuse. Norms, swiglu,
                          * softmax and cross entropy then run as several ops, in place of one that is fused. */
} tl_backward_flags;

/* d loss / d leaf is added to every leaf's .grad. `seed` is d(something)/d loss, NULL for 1 (one element). */
TL_API bool tl_backward(tl_tensor *loss, tl_tensor *seed, unsigned flags);
/* The same, returned instead of accumulated: grads[i] = d output / d inputs[i], NULL where there is no path. */
TL_API bool tl_gradients(tl_tensor *output, tl_tensor *seed, tl_tensor **inputs, int n_inputs, unsigned flags,
                         tl_tensor **grads);

/* Called when a leaf's gradient of a backward pass is complete, while the pass goes on. One per leaf; NULL removes. release(context),
 * where it is given, is called once: when the hook is replaced or removed, when the leaf goes, or before this returns an error. */
typedef void (*tl_grad_hook)(tl_tensor *leaf, tl_tensor *grad, void *context);
TL_API bool tl_set_grad_hook(tl_tensor *leaf, tl_grad_hook hook, void *context, void (*release)(void *context));

/* Runs outputs = fn(inputs) without keeping what lies between; backward runs fn again. fn must be a function
 * of its inputs, of parameters, and of random numbers (whose state is restored). fn returns false on error.
 * Gradients are bit-equal to those of calling fn directly. Checkpoints nest. 0 to 16 inputs. context_bytes > 0: that much
 * of the context is copied; 0: the pointer is kept and must stay valid as long as the graph. */
typedef bool (*tl_checkpoint_fn)(void *context, tl_tensor **inputs, int n_inputs, tl_tensor **outputs, int n_outputs);
typedef enum tl_checkpoint_keep {
    TL_KEEP_INPUTS,     /* recompute everything inside */
    TL_KEEP_MATMULS     /* keep results of matmul and attention, recompute the cheap rest */
} tl_checkpoint_keep;
TL_API bool tl_checkpoint(tl_checkpoint_fn fn, void *context, size_t context_bytes, tl_checkpoint_keep keep,
                          tl_tensor **inputs, int n_inputs, tl_tensor **outputs, int n_outputs);

/* x = layer(context, l, x) for l = 0 .. n_layers-1 under a checkpoint policy. */
typedef tl_tensor *(*tl_layer_fn)(void *context, int layer, tl_tensor *x);
typedef enum tl_checkpoint_policy {
    TL_CHECKPOINT_NONE, TL_CHECKPOINT_EVERY_K, /* groups of k layers */
    TL_CHECKPOINT_SQRT,    /* groups of ceil(sqrt(L)) */
    TL_CHECKPOINT_FULL,    /* every layer: block inputs are kept */
    TL_CHECKPOINT_NOTHING, /* all recomputed from the first input: O(L^2) time, O(1) activations */
    TL_CHECKPOINT_SELECTIVE /* every layer, keeping matmul and attention results */
} tl_checkpoint_policy;
TL_API tl_tensor *tl_checkpoint_layers(tl_layer_fn layer, void *context, int n_layers, tl_checkpoint_policy policy,
                                       int k, tl_tensor *x);

/* ---- The ledger --------------------------------------------------------------------------------------- */

/* A bracket bills a stretch of code. Brackets nest: what an inner one counts, the outer ones count too. End them
 * in reverse order. The ledger stays readable after its end, until tl_ledger_free. */
TL_API tl_ledger *tl_ledger_begin(const char *name);
TL_API bool tl_ledger_end(tl_ledger *ledger);
TL_API void tl_ledger_free(tl_ledger *ledger);

#define TL_ALL (-1)
typedef struct tl_totals {
    tl_count flops, bytes_read, bytes_written;
    uint64_t calls;
    double time_s; /* of kernels; 0 unless profiling */
} tl_totals;
/* Sums over the rows with this phase and op (TL_ALL, NULL: any). */
TL_API tl_totals tl_ledger_total(const tl_ledger *ledger, int phase, const char *op);
/* Host-device transfers are a category of their own, outside bytes_read and bytes_written. */
TL_API tl_count tl_ledger_transfer_bytes(const tl_ledger *ledger);

/* The most bytes held on a device at once inside the bracket, and what they were for. Of a ledger that has ended. */
TL_API uint64_t tl_ledger_peak(const tl_ledger *ledger, const tl_device *device, int purpose);
TL_API uint64_t tl_ledger_peak_allocated(const tl_ledger *ledger, const tl_device *device);
TL_API uint64_t tl_ledger_peak_reserved(const tl_ledger *ledger, const tl_device *device);

/* The whole ledger as JSON (schema tally.ledger/1, see docs/ledger.md), malloc'ed: free() it. `device` says whose memory. */
TL_API char *tl_ledger_json(const tl_ledger *ledger, const tl_device *device);
/* As a file, which is there whole or as it was before. */
TL_API bool tl_ledger_write(const tl_ledger *ledger, const tl_device *device, const char *file);

/* Compares two ledgers as JSON texts: exact on FLOPs, bytes, calls, peaks; time is not compared.
 * Returns the number of differences (0: they tally), or -1 and an error. `report` (may be NULL) receives a
 * malloc'ed table of what differs, or NULL. */
TL_API int tl_ledger_diff(const char *price_json, const char *receipt_json, char **report);

/* The phase that ops of this thread are billed to (backward and recompute are set by the library). Returns the old one. */
TL_API tl_phase tl_set_phase(tl_phase phase);

/* Times every kernel. On a GPU it does so without waiting for them, and the seconds come when the bracket ends. Off at first. Returns the old setting. */
TL_API bool tl_profile(bool on);

/* Decimal digits of a count, and its nearest double. */
TL_API const char *tl_count_text(tl_count count, char buffer[40]);
TL_API double tl_count_value(tl_count count);

/* ---- Modules ------------------------------------------------------------------------------------------ */

/* A module is a node of a tree: named parameters and buffers of its own, named children, and a forward function. Names are
 * PyTorch's, joined by dots ("transformer.h.0.attn.c_attn.weight"), so that weights travel. A module owns what is below it:
 * free the root alone. Parameters are created by whoever makes the module, on a device and in a dtype of its choice, and may be
 * replaced later (tl_module_to, tl_module_cast): hold the module, not its tensors. */
typedef struct tl_module tl_module;

/* What a kind of module is. forward: x -> result, given to the scope; NULL (and an error) when it fails. A kind without forward
 * only holds others, as a list does: tl_module_forward refuses it. describe (may be NULL) writes what the printed tree shows
 * in brackets. */
typedef struct tl_module_kind {
    const char *name; /* "Linear" */
    tl_tensor *(*forward)(tl_module *module, tl_tensor *x);
    void (*describe)(const tl_module *module, char *text, size_t size);
    size_t state_bytes; /* plain data of each module, zero at first: tl_module_state */
} tl_module_kind;

/* `kind` must live as long as the module. */
TL_API tl_module *tl_module_new(const tl_module_kind *kind);
TL_API void tl_module_free(tl_module *module);
TL_API const tl_module_kind *tl_module_kind_of(const tl_module *module);
TL_API void *tl_module_state(tl_module *module);
/* Puts a child under a name (no dots). It is the parent's from then on, and freed when this fails. Returns the child, or NULL. */
TL_API tl_module *tl_module_add(tl_module *parent, const char *name, tl_module *child);
/* A parameter becomes a leaf that requires a gradient (floats only), a buffer does not; both are kept. NULL stands for one that is
 * left out, as a bias may be. Numbered in the order of adding, both kinds together. False on error. */
TL_API bool tl_module_add_parameter(tl_module *module, const char *name, tl_tensor *x);
TL_API bool tl_module_add_buffer(tl_module *module, const char *name, tl_tensor *x);
/* Makes `path` (which may be left out so far) the same tensor as the parameter at `source`, for good: tied weights. */
TL_API bool tl_module_tie(tl_module *root, const char *path, const char *source);

TL_API tl_tensor *tl_module_tensor(const tl_module *module, int index); /* a module's own, by number; NULL: left out */
TL_API tl_module *tl_module_find(tl_module *module, const char *path);    /* "h.3.attn"; NULL: there is none */
TL_API tl_tensor *tl_module_find_tensor(tl_module *module, const char *path); /* "h.3.attn.c_attn.weight"; NULL: none */
TL_API int tl_module_children(const tl_module *module);
TL_API tl_module *tl_module_child(const tl_module *module, int index);
TL_API const char *tl_module_name(const tl_module *module); /* under its parent; "" for a root */

/* Every tensor of the tree in the order of adding, parents before children. A tied one comes once, under its first name. Valid
 * until the tree changes; NULL on error. */
typedef struct tl_named_tensor {
    const char *name; /* its path from `module` */
    tl_tensor *tensor;
    bool is_buffer;
    tl_module *owner;
} tl_named_tensor;
TL_API const tl_named_tensor *tl_module_list(tl_module *module, int *n);
TL_API int64_t tl_module_parameters(tl_module *module); /* how many numbers the parameters hold; -1 on error */

/* Runs forward in a scope of its own that bears the module's name: a scope names, owns and bills. The root's name is its kind's
 * unless it was given one (tl_module_set_name). */
TL_API tl_tensor *tl_module_forward(tl_module *module, tl_tensor *x);
TL_API bool tl_module_set_name(tl_module *root, const char *name);

/* For the whole tree. Modules train at first; dropout asks. A frozen parameter requires no gradient. tl_module_to and _cast replace
 * tensors (cast: floats only) and let their gradients go. */
TL_API void tl_module_train(tl_module *module, bool on);
TL_API bool tl_module_is_training(const tl_module *module);
TL_API bool tl_module_freeze(tl_module *module, bool on);
TL_API bool tl_module_to(tl_module *module, tl_device *device);
TL_API bool tl_module_cast(tl_module *module, tl_dtype dtype);
TL_API void tl_module_zero_grad(tl_module *module, bool keep);
/* The tree as PyTorch prints it, into a buffer; returns the length of the whole text. */
TL_API size_t tl_module_print(tl_module *module, char *buffer, size_t size);

/* Layers. Parameters are initialised as PyTorch's are: weights of Linear uniform in +-1/sqrt(in), so that the scale of results
 * does not depend on the width; Embedding normal(0,1); norms 1 and 0. `device` NULL: the thread's default. NULL on error. */
TL_API tl_module *tl_nn_linear(int64_t in, int64_t out, bool bias, tl_dtype dtype, tl_device *device);
TL_API tl_module *tl_nn_embedding(int64_t n, int64_t channels, tl_dtype dtype, tl_device *device); /* forward takes ids */
TL_API tl_module *tl_nn_layer_norm(int64_t channels, double eps, bool bias, tl_dtype dtype, tl_device *device);
TL_API tl_module *tl_nn_rms_norm(int64_t channels, double eps, tl_dtype dtype, tl_device *device);
TL_API tl_module *tl_nn_dropout(double p);
TL_API tl_module *tl_nn_gelu(bool is_tanh);
TL_API tl_module *tl_nn_silu(void);
/* Patterns as modules, as the einops package has them: for the middle of a tl_nn_sequential. A mistake in the pattern is found here, one that
 * depends on the tensor in forward. */
TL_API tl_module *tl_nn_rearrange(const char *pattern, const char *lengths);
TL_API tl_module *tl_nn_reduce(const char *pattern, const char *reduction, const char *lengths);
/* A linear layer by pattern: tl_einsum of x and `weight`, whose axes weight_shape names, between a split of x's axes and a merge of the
 * result's; then `bias` is added, along those of the output's axes that bias_shape names (NULL: none). Axes on the left that the right lacks
 * are summed over. `lengths` has the size of every axis of weight and bias.
 *
 *      tl_nn_einmix("b t cin -> b t cout", "cin cout", "cout", "cin=64 cout=256", TL_F32, NULL)       // a Linear, transposed
 *      tl_nn_einmix("b t (h cin) -> b t (h cout)", "h cin cout", NULL, "h=8 cin=64 cout=64", TL_F32, NULL)   // one for each head
 *      tl_nn_einmix("b t c -> b s c", "t s", "s c", "t=16 s=16 c=64", TL_F32, NULL)                     // over time, not channels
 *
 * An ellipsis is on both sides or none, and outside parentheses on the left; the bias' axes come after it. weight begins uniform in
 * +-sqrt(3/fan_in), bias in +-sqrt(1/fan_in), fan_in being the product of weight's axes that the output lacks. bias has size 1 for each other
 * axis of the output, as in the package. */
TL_API tl_module *tl_nn_einmix(const char *pattern, const char *weight_shape, const char *bias_shape, const char *lengths,
                               tl_dtype dtype, tl_device *device);
TL_API tl_module *tl_nn_sequential(void); /* children in turn; add them as "0", "1", ... */
TL_API tl_module *tl_nn_list(void);       /* holds children, has no forward */

/* Initialisers, in place, without being recorded; they return x. fan_in and fan_out are x's second and first size, times the
 * rest; x needs two axes. */
typedef enum tl_fan { TL_FAN_IN, TL_FAN_OUT } tl_fan;
TL_API tl_tensor *tl_init_xavier_uniform_(tl_tensor *x, double gain); /* +-gain sqrt(6 / (fan_in + fan_out)) */
TL_API tl_tensor *tl_init_xavier_normal_(tl_tensor *x, double gain);  /* deviation gain sqrt(2 / (fan_in + fan_out)) */
TL_API tl_tensor *tl_init_kaiming_uniform_(tl_tensor *x, double slope, tl_fan fan); /* +-sqrt(6 / ((1 + slope^2) fan)) */
TL_API tl_tensor *tl_init_kaiming_normal_(tl_tensor *x, double slope, tl_fan fan);  /* deviation sqrt(2 / ((1 + slope^2) fan)) */

/* ---- Models ------------------------------------------------------------------------------------------- */

typedef enum tl_family {
    TL_GPT2,       /* learned positions, LayerNorm, GELU (tanh), biases, tied head */
    TL_LLAMA,      /* rotary positions, RMSNorm, SwiGLU, grouped heads; with qkv biases it is Qwen 2's */
    TL_DEEP_LINEAR, /* the teaching model: n_layers bias-free square linear layers and a head of one output */
    TL_FAMILY_COUNT
} tl_family;

/* The numbers of a model. Deep linear has n_layers and channels alone. */
typedef struct tl_model_config {
    tl_family family;
    int64_t n_layers, n_heads, n_kv_heads, head_size, channels, ff, vocabulary, context;
    double norm_eps, rope_base, dropout, init_std;
    bool is_tied, has_qkv_bias; /* the head is the embedding; Qwen's biases of q, k and v */
    tl_rope_scaling rope_scaling;
} tl_model_config;

TL_API const char *tl_family_name(tl_family family); /* "gpt2", "llama", "deep-linear"; "?" for none */
TL_API const char *tl_model_preset_name(int index);  /* "gpt2-124m", ...; NULL after the last */
TL_API bool tl_model_preset(const char *name, tl_model_config *config);
/* Sizes that fit together; otherwise an error says which do not. */
TL_API bool tl_model_config_check(const tl_model_config *config);
/* A config.json of Hugging Face's (gpt2, llama, qwen2; and our deep-linear). Keys we do not need are passed over; what would change the
 * results and is not known here is refused by name. */
TL_API bool tl_model_config_read(const char *path, tl_model_config *config);
TL_API bool tl_model_config_write(const tl_model_config *config, const char *path);
/* How many numbers the parameters hold, by formula, without making them. */
TL_API int64_t tl_model_config_parameters(const tl_model_config *config);

/* A model with fresh parameters: normal(0, init_std), GPT-2's residual projections over sqrt(2 n_layers), biases 0. Names are
 * Hugging Face's. `device` NULL: the thread's default. */
TL_API tl_module *tl_model_new(const tl_model_config *config, tl_dtype dtype, tl_device *device);
TL_API const tl_model_config *tl_model_config_of(const tl_module *model);
/* What the blocks keep for backward (tl_checkpoint_layers). Gradients have the same bits under every policy. */
TL_API bool tl_model_set_checkpointing(tl_module *model, tl_checkpoint_policy policy, int k);
/* tokens (B,T), i64 or i32 -> logits (B,T,V). Deep linear: x (B,C), a float -> (B). */
TL_API tl_tensor *tl_model_logits(tl_module *model, tl_tensor *tokens);
/* Mean cross entropy of the next tokens, targets (B,T), f32; the logits are never there as a whole. Deep linear: mean squared
 * error to targets (B). */
TL_API tl_tensor *tl_model_loss(tl_module *model, tl_tensor *tokens, tl_tensor *targets);
/* Keys and values of the tokens that a model of language has seen, so that one more token costs one pass over them instead of a pass
 * over all of them: room for `batch` rows of `capacity` tokens (at most the model's context), L x 2 x Hkv x D numbers per token in the
 * dtype that products have now (tl_autocast), taken at once, as activations of path "cache". It is for this model alone. */
typedef struct tl_cache tl_cache;
TL_API tl_cache *tl_cache_new(tl_module *model, int64_t batch, int64_t capacity);
TL_API void tl_cache_free(tl_cache *cache); /* NULL allowed */
TL_API int64_t tl_cache_length(const tl_cache *cache); /* tokens that are there, of each row */
TL_API bool tl_cache_cut(tl_cache *cache, int64_t length); /* forgets those behind the first `length` */
/* tokens (batch,T) that follow those of the cache, which they join -> logits (batch,T,V): any T that there is room for, so that
 * a prompt goes in at once. Not recorded. When it fails, the cache is as before. */
TL_API tl_tensor *tl_model_extend(tl_module *model, tl_tensor *tokens, tl_cache *cache);
/* The logits after the last of the tokens alone: (B,V). cache NULL: without one. */
TL_API tl_tensor *tl_model_next(tl_module *model, tl_tensor *tokens, tl_cache *cache);
/* Weights from a safetensors file, a folder with model.safetensors, or one with model.safetensors.index.json, cast to the
 * model's dtype. Every parameter must be there in its shape; names of the model without its head's prefix are known too. */
TL_API bool tl_model_load(tl_module *model, const char *path);
/* A model with its weights: from a run's folder (`tally train`; its newest checkpoint), from one checkpoint of it, or from a Hugging Face
 * folder. Parameters have the dtype that the run trained, f32 otherwise. It evaluates (tl_module_train). */
TL_API tl_module *tl_model_open(const char *path, tl_device *device);
/* config.json and model.safetensors, as Hugging Face's library reads them; the folder is made when it is not there. */
TL_API bool tl_model_save(tl_module *model, const char *folder);

/* Text (B,N) i64 has n_prompt tokens in each row and receives the rest, drawn one after the other with the thread's generator, by a
 * cache of its own (as long as the text, at most the model's context; beyond it the model goes on from the last three quarters of the
 * context). Nothing waits for the device. options NULL: the defaults. */
typedef struct tl_generate_options {
    double temperature; /* what logits are divided by; 0: the likeliest token */
    int64_t top_k;      /* among the k likeliest; 0: all */
    double top_p;       /* among the likeliest (of these) that have this share together; 1: all */
} tl_generate_options;
TL_API tl_generate_options tl_generate_defaults(void); /* 1, 0, 1 */
TL_API bool tl_generate(tl_module *model, tl_tensor *text, int64_t n_prompt, const tl_generate_options *options);

/* ---- Optimizers of many parameters --------------------------------------------------------------------- */

/* Steps many parameters together, each with settings of its own. States (zeros; a master copy: the parameter's values) are made
 * when a parameter is added, so a step takes no memory: moments, sums and buffers count as TL_OPTIMIZER, master copies as
 * TL_PARAMETER. What torch.optim takes for its groups is given to each parameter here. */
typedef enum tl_optimizer_kind { TL_SGD, TL_ADAGRAD, TL_RMSPROP, TL_ADAM, TL_ADAMW, TL_OPTIMIZER_KIND_COUNT } tl_optimizer_kind;
TL_API const char *tl_optimizer_kind_name(tl_optimizer_kind kind); /* "adamw"; NULL: no such kind */
typedef struct tl_optimizer_options {
    double lr, beta1, beta2, eps, weight_decay, momentum, dampening, alpha, lr_decay; /* a kind reads those it has */
    bool nesterov, centered, amsgrad;
    bool has_master, stochastic; /* for parameters narrower than f32, without effect on others: see tl_update_options */
} tl_optimizer_options;
TL_API tl_optimizer_options tl_optimizer_defaults(tl_optimizer_kind kind); /* torch.optim's */

typedef struct tl_optimizer tl_optimizer;
TL_API tl_optimizer *tl_optimizer_new(tl_optimizer_kind kind);
TL_API void tl_optimizer_free(tl_optimizer *optimizer);
/* Holds the parameter; names are unique. options NULL: the defaults. A parameter that is replaced afterwards (tl_module_to)
 * is not followed. On failure the optimizer is as before. */
TL_API bool tl_optimizer_add(tl_optimizer *optimizer, const char *name, tl_tensor *parameter,
                             const tl_optimizer_options *options);
/* One step with lr_factor times each lr, from each parameter's .grad, which stays; parameters without one are left out. Parameters of equal
 * options, dtype and device are stepped together, as many in one op as TL_MAX_INPUTS tensors are, in the order in which they were added; random
 * words go to the options that were added first.
 * grad_scale: see tl_update_options. The count of steps, from which Adam's corrections follow, is one for all, and a
 * step that its grad_scale made void counts too: the host does not know of it. */
TL_API bool tl_optimizer_step(tl_optimizer *optimizer, double lr_factor, tl_tensor *grad_scale);
/* The states: "exp_avg.NAME", "exp_avg_sq.NAME", "max_exp_avg_sq.NAME", "momentum_buffer.NAME", "square_avg.NAME",
 * "grad_avg.NAME", "sum.NAME", "master.NAME". With the steps they are all that a checkpoint needs. is_buffer is true, owner
 * NULL. Valid until the next tl_optimizer_add; NULL on error. */
TL_API const tl_named_tensor *tl_optimizer_list(tl_optimizer *optimizer, int *n);
TL_API int64_t tl_optimizer_steps(const tl_optimizer *optimizer); /* made so far */
TL_API void tl_optimizer_set_steps(tl_optimizer *optimizer, int64_t n_steps);

/* What share of its peak the learning rate has in a step; steps count from 0. Warm-up: (step+1) / (warmup_steps+1). Then constant; or
 * falling to min_factor at total_steps, along a line or half a cosine; or 1 until the last decay_steps, which fall along a line
 * (wsd); or sqrt(warmup_steps / step), at least min_factor (inverse-sqrt). */
typedef enum tl_schedule_kind {
    TL_SCHEDULE_CONSTANT, TL_SCHEDULE_LINEAR, TL_SCHEDULE_COSINE, TL_SCHEDULE_WSD, TL_SCHEDULE_INVERSE_SQRT, TL_SCHEDULE_KIND_COUNT
} tl_schedule_kind;
typedef struct tl_schedule {
    tl_schedule_kind kind;
    int64_t warmup_steps, total_steps, decay_steps;
    double min_factor;
} tl_schedule;
TL_API const char *tl_schedule_kind_name(tl_schedule_kind kind); /* "cosine"; NULL: no such kind */
TL_API bool tl_schedule_check(const tl_schedule *schedule);      /* says what is wrong */
TL_API double tl_schedule_factor(const tl_schedule *schedule, int64_t step);

/* The loss scale of f16 training. Multiply the loss by scale, and pass scale as tl_clip_scale's divisor: a step whose gradients
 * overflowed changes nothing. Keep the step's norm and its scale; a step later, when reading it waits for nothing, tell the
 * scaler: it lowers the scale after an overflow, and raises it after growth_interval steps without one. Plain
 * data: a checkpoint keeps it as it is. */
typedef struct tl_scaler {
    double scale, growth, backoff, max_scale;
    int64_t growth_interval;
    int64_t n_good, n_skipped; /* steps since the scale changed or a step was lost; steps lost in all */
} tl_scaler;
TL_API tl_scaler tl_scaler_defaults(void); /* 65536, times 2 after 2000 good steps up to 2^24, times 0.5 down to 1 */
/* norm: of a step whose loss was multiplied by `scale`. Returns whether that step changed the parameters. A report about another
 * scale than the present one changes no scale. */
TL_API bool tl_scaler_update(tl_scaler *scaler, double norm, double scale);

/* ---- Ops of your own ---------------------------------------------------------------------------------- */

/* Kernels see raw pointers, shapes and strides, and nothing else. data is the address of the first element. */
typedef struct tl_operand {
    void *data;
    tl_dtype dtype;
    int rank;
    const int64_t *shape, *stride; /* stride in elements */
} tl_operand;

typedef struct tl_kernel_args {
    const char *op;
    const tl_operand *in, *out; /* an in-place op's out is the same memory as one of its in */
    int n_in, n_out;
    const void *attr;        /* the op's attributes */
    void *workspace;         /* as many bytes as the op's workspace rule asked for */
    size_t workspace_bytes;
    int n_threads;
    void *stream;            /* the device's stream; NULL on cpu */
    char *error;             /* a kernel that fails writes why (at most 200 bytes) and returns false */
} tl_kernel_args;
typedef bool (*tl_kernel)(const tl_kernel_args *args);

#define TL_MAX_INPUTS 64
#define TL_MAX_OUTPUTS 8
/* What a gradient needs: {.inputs = TL_BIT(0) | TL_BIT(2), .outputs = TL_BIT(0)} are inputs 0 and 2, and output 0. */
#define TL_BIT(i) (UINT64_C(1) << (i))
typedef struct tl_saves {
    uint64_t inputs;
    uint8_t outputs;
} tl_saves;

/* What the gradient of an op needs to know, and how it answers. Valid during the rule only. */
TL_API tl_tensor *tl_gradient_of_output(tl_gradient *g, int output); /* NULL: nothing flowed there */
TL_API tl_tensor *tl_gradient_input(tl_gradient *g, int input);      /* a saved input */
TL_API tl_tensor *tl_gradient_output(tl_gradient *g, int output);    /* a saved output */
TL_API const void *tl_gradient_attr(tl_gradient *g);
TL_API bool tl_gradient_needs(tl_gradient *g, int input);
TL_API void tl_gradient_set(tl_gradient *g, int input, tl_tensor *grad);

/* What shape and cost rules see. tl_call_output says the result's dtype and shape. */
TL_API int tl_call_inputs(const tl_call *call);
TL_API tl_tensor *tl_call_input(const tl_call *call, int input);
TL_API const void *tl_call_attr(const tl_call *call);
TL_API bool tl_call_output(tl_call *call, int output, tl_dtype dtype, int rank, const int64_t *shape);
TL_API bool tl_call_fail(tl_call *call, const char *format, ...) TL_PRINTF(2, 3); /* returns false */
/* The same with what is needed, which stands behind the operands: "sizes differ: f32[2]@cpu x f32[3]@cpu (need [n] and [n])". */
TL_API bool tl_call_fail_need(tl_call *call, const char *need, const char *format, ...) TL_PRINTF(3, 4);

/* A gradient rule for results that the caller computed with recording off: outputs[j] are replaced by tensors of the same
 * storage that lead back to the inputs through the rule. The rule reads tl_gradient_of_output and answers with tl_gradient_set; it
 * saves nothing but what its context holds. release(context) is called once, when the graph goes, or before
 * this returns when nothing is recorded, also on error. 1 to 64 inputs, 1 to 8 outputs. */
typedef void (*tl_function_rule)(tl_gradient *g, void *context);
TL_API bool tl_function(tl_function_rule rule, void *context, void (*release)(void *context), tl_tensor **inputs,
                        int n_inputs, tl_tensor **outputs, int n_outputs);

typedef struct tl_op_def {
    const char *name;
    int n_inputs, n_outputs;                    /* 1 to TL_MAX_INPUTS, 1 to TL_MAX_OUTPUTS */
    bool (*shape)(tl_call *call);               /* checks the inputs, says the outputs */
    uint64_t (*flops)(const tl_call *call);     /* mandatory: an op without a cost does not exist */
    size_t (*workspace)(const tl_call *call);   /* bytes; may be NULL */
    void (*backward)(tl_gradient *g);           /* NULL: no derivative */
    tl_saves saves;                             /* inputs and outputs that backward reads */
    tl_kernel cpu, cuda;                        /* at least one; the other device then refuses by name */
} tl_op_def;
/* Registers an op for the life of the process. */
TL_API const tl_op *tl_op_register(const tl_op_def *def);
/* attr (attr_bytes bytes, may be NULL) is copied. outputs receives n_outputs tensors. */
TL_API bool tl_op_call(const tl_op *op, tl_tensor **inputs, int n_inputs, const void *attr, size_t attr_bytes,
                       tl_tensor **outputs);

/* ---- Files ---------------------------------------------------------------------------------------------- */

/* A safetensors file, opened: docs/files.md has the rules. Opening reads and checks the whole header, so that a file which
 * breaks any rule of the format is refused here (TL_ERROR_USE; what the system refuses is TL_ERROR_IO). It may then be read from
 * several threads. Tensors are numbered in the order of their data. */
typedef struct tl_safetensors tl_safetensors;
TL_API tl_safetensors *tl_safetensors_open(const char *path);
TL_API void tl_safetensors_close(tl_safetensors *file); /* NULL allowed; tensors that were got stay valid */

TL_API int tl_safetensors_count(const tl_safetensors *file);
TL_API const char *tl_safetensors_name(const tl_safetensors *file, int index); /* valid until close; NULL out of range */
TL_API int tl_safetensors_find(const tl_safetensors *file, const char *name);  /* its index; -1: not there, no error */

typedef struct tl_safetensors_info {
    const char *name, *type; /* type: the format's name, "BF16" */
    tl_dtype dtype;          /* TL_DTYPE_COUNT for a type we have not (U32, U64, C64, ...) */
    int rank;
    const int64_t *shape;    /* rank sizes; all pointers are valid until close */
    uint64_t begin, bytes;   /* where in the data, and how much */
} tl_safetensors_info;
TL_API bool tl_safetensors_info_at(const tl_safetensors *file, int index, tl_safetensors_info *info); /* false: out of range */

/* A tensor of the file on the cpu, owned by the innermost scope. It looks into the file without a copy (only one that is not aligned is
 * copied); writing to it changes neither the file nor what other programs see of it, but does change what a second
 * get of the same name sees. Types we have not are refused by name. Cutting a file short while it is open makes
 * its tensors unreadable (SIGBUS); replacing it by renaming, as tl_safetensors_save does, is safe. */
TL_API tl_tensor *tl_safetensors_get(tl_safetensors *file, const char *name);

/* The file's own texts: a value by its key (NULL: not there, no error), and the keys in sorted order. */
TL_API const char *tl_safetensors_metadata(const tl_safetensors *file, const char *key);
TL_API int tl_safetensors_metadata_count(const tl_safetensors *file);
TL_API const char *tl_safetensors_metadata_key(const tl_safetensors *file, int index);

/* Writes n tensors of any layout and device (not meta) under their names, with n_metadata pairs of text (sorted by key). The
 * file is whole or not there: a temporary beside it is written, synced and renamed, and the folder synced; on failure what was at
 * `path` is untouched. The bytes are those the reference library writes. Names and texts are any UTF-8. */
TL_API bool tl_safetensors_save(const char *path, const char *const *names, tl_tensor *const *tensors, int n,
                                const char *const *keys, const char *const *values, int n_metadata);

/* ---- Data ----------------------------------------------------------------------------------------------- */

/* Files of tokens, mapped, not read into memory; docs/data.md has the formats. Nothing in them is believed: every size is
 * checked against the bytes that are there when the file is opened, every id and (in our own format) every checksum when it
 * is read. Messages have the file, the byte or the token, and what was expected. */
typedef enum tl_token_format {
    TL_TOKENS_AUTO,  /* by the first bytes; else .bin is raw (see docs/data.md), and anything else bytes */
    TL_TOKENS_TALLY, /* our own: width, vocabulary, count, checksums */
    TL_TOKENS_U16,   /* raw little-endian numbers, as nanoGPT writes them */
    TL_TOKENS_U32,
    TL_TOKENS_LLMC,  /* llm.c's shards: 20240520 (u16) and 20240801 (u32) */
    TL_TOKENS_NPY,   /* NumPy, one axis, any integers */
    TL_TOKENS_BYTES, /* each byte is a token; vocabulary 256 */
    TL_TOKEN_FORMAT_COUNT
} tl_token_format;
TL_API const char *tl_token_format_name(tl_token_format format); /* "llmc"; "?" for none */

/* The vocabulary hash of byte-level tokens. A hash is whatever a tokenizer calls itself; 0: not known. */
#define TL_BYTES_HASH 0x7365747962u

typedef struct tl_token_info {
    tl_token_format format;
    int token_bytes;      /* 1, 2, 4 or 8 */
    bool is_signed, has_checksums;
    int64_t count;        /* tokens */
    int64_t vocabulary;   /* every id must be smaller; 0: the file does not say */
    uint64_t vocabulary_hash;
    uint64_t data_begin, file_bytes;
} tl_token_info;

/* A file without a token is refused. One token file may be read from several threads. A file that is cut short while it is open is
 * noticed at the next read; only what is cut during a read ends the program (SIGBUS). */
typedef struct tl_token_file tl_token_file;
TL_API tl_token_file *tl_token_file_open(const char *path, tl_token_format format);
TL_API void tl_token_file_close(tl_token_file *file); /* NULL allowed; loaders that use it hold it */
TL_API bool tl_token_file_info(const tl_token_file *file, tl_token_info *info);
/* The vocabulary (and hash, 0: any) that the ids are for. A file that names others is refused; ids are checked
 * against it from now on. Before the file is read by other threads. */
TL_API bool tl_token_file_expect(tl_token_file *file, int64_t vocabulary, uint64_t vocabulary_hash);
/* Tokens from .. from + n - 1. An id outside the vocabulary, or of 2^31 and more, is an error that names its position. */
TL_API bool tl_token_file_read(tl_token_file *file, int32_t *ids, int64_t from, int64_t n);

/* Told how far a long piece of work is; false stops it (an error: "stopped"). */
typedef bool (*tl_progress_fn)(uint64_t done, uint64_t total, void *context);
/* Reads everything once. `largest` (NULL allowed) receives the largest id. progress: NULL or told of tokens. */
TL_API bool tl_token_file_check(tl_token_file *file, int64_t *largest, tl_progress_fn progress, void *context);

/* Writes our own format; the file is whole or not there. token_bytes is 1, 2 or 4; vocabulary at most 256^token_bytes and
 * 2^31. commit ends the writer, also when it fails; discard ends it without a file. */
typedef struct tl_token_writer tl_token_writer;
TL_API tl_token_writer *tl_token_writer_new(const char *path, int token_bytes, int64_t vocabulary, uint64_t vocabulary_hash);
TL_API bool tl_token_writer_add(tl_token_writer *writer, const int32_t *ids, int64_t n);
TL_API bool tl_token_writer_commit(tl_token_writer *writer);
TL_API void tl_token_writer_discard(tl_token_writer *writer); /* NULL allowed */

/* Batches of a token file. A window is T tokens, and as targets the T that follow each of them: tokens s .. s+T-1 and
 * s+1 .. s+T. Which windows a step gets is a pure function of (seed, step, rank, world), so any step can be asked for at any
 * time at the same price, and a resumed run sees what the first one would have seen.
 *
 * TL_SAMPLE_ONCE: the N tokens of the part have N-1 targets; an epoch is W = (N-1)/T windows side by side, in an order of its own,
 * so that no target comes twice. What is left over, (N-1) mod T targets, is divided anew between beginning and end in each epoch.
 * Epochs follow each other without a gap: row b of a batch is window (step * world + rank) * batch + b, counted through.
 * TL_SAMPLE_RANDOM: each window begins anywhere, independently (as nanoGPT does). TL_SAMPLE_IN_ORDER: windows from the
 * first to the last, over and over; for evaluation. */
typedef enum tl_sampling { TL_SAMPLE_ONCE, TL_SAMPLE_RANDOM, TL_SAMPLE_IN_ORDER, TL_SAMPLING_COUNT } tl_sampling;
typedef struct tl_loader_options {
    tl_token_file *file; /* held by the loader. NULL: on meta only, `last` is then the count */
    int64_t first, last; /* the part: tokens first .. last-1; last 0: to the end */
    int64_t batch, time; /* rows, and tokens of each */
    uint64_t seed;
    int rank, world;     /* this process is one of `world`; each gets rows of its own */
    tl_sampling sampling;
    int n_buffers;       /* batches that a thread reads ahead, 1 to 64 */
    tl_device *device;   /* where the batches go; NULL: the thread's default */
} tl_loader_options;
/* the whole file, batch 1, time 128, seed 1, rank 0 of 1, once, 3 buffers */
TL_API tl_loader_options tl_loader_defaults(void);

/* A loader makes a ring of n_buffers batches on the host before the first step, billed as data (on the cpu to its pool, where meta bills it
 * too), and a thread that fills it. On meta there is no thread, and nothing is read. A part that is shorter than T+1 is refused. */
typedef struct tl_loader tl_loader;
TL_API tl_loader *tl_loader_new(const tl_loader_options *options);
TL_API void tl_loader_free(tl_loader *loader); /* stops the thread; NULL allowed */

/* The batch of a step (any, from 0): two (batch, time) i32 tensors of one storage, owned by the innermost scope, purpose data, path "data",
 * phase other. Where the device has memory of its own, one transfer of both is billed. What the thread could not read is
 * an error here, at the step that needs it; asking again tries again. One thread at a time. */
TL_API bool tl_loader_next(tl_loader *loader, int64_t step, tl_tensor **tokens, tl_tensor **targets);
/* The token that row `row` of a step begins with, counted from the file's first; its epoch. -1: out of range. */
TL_API int64_t tl_loader_where(const tl_loader *loader, int64_t step, int64_t row, int64_t *epoch);
TL_API int64_t tl_loader_windows(const tl_loader *loader); /* of an epoch, over all ranks */
TL_API double tl_loader_wait_s(const tl_loader *loader);   /* spent waiting for the thread, in all */

/* The built-in corpus: simple stories in English from a grammar whose every choice is known, so that the entropy of the text is known
 * exactly (src/data/corpus.c derives it). Story `index` of a seed is a pure function of both; stories end with an empty line. */

/* One story into a buffer, ended by a 0 and cut to size-1 bytes; returns its whole length. `bits` (NULL allowed) receives -log2 of
 * its probability. */
TL_API size_t tl_corpus_story(uint64_t seed, uint64_t index, char *buffer, size_t size, double *bits);
/* Stories first, first+1, ... one behind the other, exactly `bytes` bytes (the last may be cut, no 0 at the end). Returns how many. */
TL_API uint64_t tl_corpus_text(uint64_t seed, uint64_t first, char *buffer, size_t bytes);
/* Stories 0, 1, ... into a file, whole ones, until it has at least `bytes`. The file is whole or not there. progress is told of bytes. */
TL_API bool tl_corpus_write(const char *path, uint64_t seed, uint64_t bytes, tl_progress_fn progress, void *context);
/* -log2 of the probability of one story's text; -1 when no story has this text. */
TL_API double tl_corpus_bits(const char *text, size_t length);
/* Means over all stories, and the entropy: bits / bytes. tl_corpus_floor is the same in nats per byte: the smallest mean cross entropy
 * that any model of byte-level tokens can have on this text. One that sees T bytes at a time stays above it (see docs/data.md). */
TL_API double tl_corpus_story_bits(void);
TL_API double tl_corpus_story_bytes(void);
TL_API double tl_corpus_entropy_bits_per_byte(void);
TL_API double tl_corpus_floor(void);

/* ---- Training ------------------------------------------------------------------------------------------- */

/* A whole run in its folder, as `tally train` does it: priced, trained, logged, saved, resumed where it stopped; docs/training.md tells
 * everything. `settings` is the text of a JSON object with some of the settings (`tally train --settings` lists them); NULL: none of them.
 * The result is the summary, a JSON object, malloc'ed: "end" is "done", "stopped" or "not finite". NULL: it failed.
 *
 * tell (may be NULL) hears of every step, evaluation and sample, as a JSON object that is valid during the call; false lets the step
 * end, saves, and ends the run. One run at a time in a process, in a thread that runs no other ops meanwhile: a second
 * call, in whatever thread, fails with the folder of the first, and so does tl_train_price in another thread. A run
 * whose data, model or settings are not those that it was started with is refused, or goes on with "accept_changes". */
typedef bool (*tl_train_fn)(const char *news, void *context);
TL_API char *tl_train(const char *settings, tl_train_fn tell, void *context);
/* What the run would cost, made on meta: tally.run/1, malloc'ed. Nothing is written. */
TL_API char *tl_train_price(const char *settings);
/* Every setting with its default: a JSON object, malloc'ed. */
TL_API char *tl_train_settings(void);

/* ---- For tests ----------------------------------------------------------------------------------------- */

/* Makes the n-th allocation from now on fail (1 = the next; 0 switches off): host objects, pool blocks and
 * device segments count alike. forever: every one after it fails too. Returns how many were asked for since the last call. */
TL_API uint64_t tl_fail_allocation(uint64_t n, bool forever);

#ifdef __cplusplus
}
#endif
#endif
