/* tally.h: the whole public interface of Tally.
 *
 * Tally trains language models. It counts what a run will cost before the run starts (the price) and what it did cost
 * while it ran (the receipt); the two agree to the last byte and FLOP. Both come from the same code: a program that
 * uses the functions below runs on `cpu`, on `cuda`, or on `meta`, which has shapes but no data, and the ledger counts
 * the same on each of them.
 *
 *      tl_scope scope = tl_scope_begin();
 *      tl_tensor *h = tl_gelu(tl_matmul(x, w1));      // temporaries need no names
 *      tl_tensor *y = tl_add(tl_matmul(h, w2), x);    // (B,T,C)
 *      return tl_scope_return(scope, y);
 *
 * Five ideas carry the interface:
 *
 * 1. A tensor is a view: a storage, a dtype, a shape, strides (in elements) and an offset. Views share storage and
 *    cost nothing. Results of ops are dense and row-major.
 * 2. Scopes own tensors. A function that returns a tensor gives it to the innermost open scope of the calling thread.
 *    The scope frees it when it ends. tl_scope_return() passes one result to the enclosing scope; tl_keep() and
 *    tl_drop() hold a tensor across scopes.
 * 3. The first error wins. A call that fails records an error and returns NULL (or false). A call that is given NULL
 *    returns NULL, so a nested expression needs one check at the end. By default the process aborts at the failing
 *    call instead.
 * 4. Every op call goes through one function, which checks, prices, allocates, runs and records it. The ledger cannot
 *    miss one.
 * 5. Gradients are recorded while the program runs. The graph hangs off the tensors it belongs to.
 *
 * Names. Each operation has one function. The arguments are the inputs, then the options, then the outputs. Options
 * that most callers leave alone are a struct, tl_NAME_options; NULL means the defaults, and tl_NAME_defaults() returns
 * them. Four suffixes have a fixed meaning:
 *      tl_NAME_         in place: changes its first argument and returns it
 *      tl_NAME_scalar   takes a number where tl_NAME takes a tensor
 *      tl_NAME_like     takes shape, dtype and device from a tensor
 *      tl_NAME_all      reduces over all axes
 * Functions that set a mode of the thread or of the process (tl_set_threads, tl_set_grad_mode, ...) return the previous
 * mode.
 *
 * Evaluation order. C does not define the order in which the arguments of a call are evaluated, and compilers differ.
 * The order of op calls decides who draws which random numbers and what is live at the peak. If two arguments of a call
 * are op calls themselves, store one of the results in a variable first.
 *
 * Threads. Scopes, errors, gradient mode, phase and path belong to the calling thread. You may pass a tensor to another
 * thread (tl_keep it first), as long as one thread at a time uses it. Accounting is exact for one compute thread, in
 * program order. One thread at a time backpropagates through a graph. Change process-wide settings (error policy, log
 * hook, pool limits, ledgers, number of threads) while no other thread runs ops.
 *
 * Fork. Call fork() while no other thread runs ops. The child may go on using `cpu` and `meta`; its kernels run on one
 * thread, with the same results. Tensors on a GPU cannot be used in the child: the call fails with an error.
 *
 * Axes count from 0, or from the end if negative. Sizes and strides are int64_t. The rank is at most 32.
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

/* C++ has no compound literals. The macros below that pass arrays pass these instead, which live as long: to the end of
 * the whole expression. */
#ifdef __cplusplus
template <typename T, size_t N> struct tl_values {
    T values[N];
    T *data() { return values; }
};
template <typename T, typename... Values> constexpr tl_values<T, sizeof...(Values)> tl_values_of(Values... values) {
    return {{static_cast<T>(values)...}};
}
#define TL_VALUES_OF(type, ...) (tl_values_of<type>(__VA_ARGS__).data())
#define TL_LENGTH_OF(type, ...) static_cast<int>(sizeof(tl_values_of<type>(__VA_ARGS__)) / sizeof(type))
#else
#define TL_VALUES_OF(type, ...) ((type[]){__VA_ARGS__})
#define TL_LENGTH_OF(type, ...) ((int)(sizeof((type[]){__VA_ARGS__}) / sizeof(type)))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the loaded library, as "major.minor.patch". */
TL_API const char *tl_version(void);

/* ---- Types ------------------------------------------------------------------------------------------------------- */

typedef struct tl_tensor tl_tensor;     /* a view of a storage; see above */
typedef struct tl_device tl_device;     /* cpu, meta with a target, cuda; never freed */
typedef struct tl_ledger tl_ledger;     /* what a stretch of code cost */
typedef struct tl_op tl_op;             /* an operation: its rules and kernels */
typedef struct tl_call tl_call;         /* one call of an operation, as its rules see it */
typedef struct tl_gradient tl_gradient; /* one step of backward, as an operation's gradient rule sees it */

/* Element types. f8e8m0 and f4e2m1 are for storage only (cast, copy); two f4 share a byte. Arithmetic on 16-bit and
 * 8-bit floats is done in f32 and rounded once. c64 is two f32, a real and an imaginary part, c128 two f64. Ops that do
 * not take complex numbers fail with an error that names the op and the dtype. */
typedef enum tl_dtype {
    TL_F64,
    TL_F32,
    TL_F16,
    TL_BF16,
    TL_F8E4M3,
    TL_F8E5M2,
    TL_F8E8M0,
    TL_F4E2M1,
    TL_I64,
    TL_I32,
    TL_I16,
    TL_U16,
    TL_I8,
    TL_U8,
    TL_BOOL,
    TL_C64,
    TL_C128,
    TL_DTYPE_COUNT
} tl_dtype;
TL_API const char *tl_dtype_name(tl_dtype dtype); /* "f32"; "?" if it is not a dtype */
TL_API int tl_dtype_bits(tl_dtype dtype);         /* 32 */

/* A shape argument: tl_zeros(TL_SHAPE(2, 3), TL_F32, NULL). The shape of a scalar is TL_SCALAR. */
#define TL_SHAPE(...) TL_LENGTH_OF(int64_t, __VA_ARGS__), TL_VALUES_OF(int64_t, __VA_ARGS__)
#define TL_SCALAR 0, ((const int64_t *)NULL)

/* A number with its kind. Next to a tensor it promotes as a Python number does in PyTorch: a float tensor keeps its
 * dtype next to any number, an integer tensor next to an integer or bool, a bool tensor next to a bool. An integer with
 * a bool tensor gives i64; a float with an integer or bool tensor gives f32. Integers wrap to the tensor's dtype. */
typedef enum tl_scalar_kind { TL_SCALAR_BOOL, TL_SCALAR_INT, TL_SCALAR_FLOAT } tl_scalar_kind;
typedef struct tl_scalar {
    tl_scalar_kind kind;
    int64_t i; /* bool (0 or 1) and int */
    double f;  /* float */
} tl_scalar;
TL_API tl_scalar tl_scalar_bool(bool value);
TL_API tl_scalar tl_scalar_int(int64_t value);
TL_API tl_scalar tl_scalar_float(double value);

/* A count that may exceed 64 bits: training 405 billion parameters on 16 trillion tokens takes 4e25 FLOPs. */
typedef struct tl_count {
    uint64_t low, high;
} tl_count;
TL_API const char *tl_count_text(tl_count count, char buffer[40]); /* in decimal digits */
TL_API double tl_count_value(tl_count count);                      /* the nearest double */

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

typedef enum tl_status {
    TL_OK,
    TL_ERROR_USE,    /* shapes, dtypes, arguments, misuse of scopes or graphs */
    TL_ERROR_MEMORY, /* an allocation failed; the message has the bytes asked for and the bytes in use */
    TL_ERROR_IO,     /* a file could not be read or written */
    TL_ERROR_DEVICE, /* a device or its library failed, or is missing */
    TL_ERROR_SYSTEM  /* the system refused something else, such as a thread */
} tl_status;

typedef enum tl_policy {
    TL_ABORT, /* the default in C: print the message to stderr and abort() inside the failing call */
    TL_RETURN /* record the error and return NULL or false; for bindings and long-running programs */
} tl_policy;

/* The calling thread's first error since the last clear, and its message ("" for TL_OK). The message is valid until the
 * next clear. While an error is pending, later errors do not replace it. */
TL_API tl_status tl_error(void);
TL_API const char *tl_error_message(void);
TL_API void tl_error_clear(void);

/* Sets the policy of the whole process. */
TL_API tl_policy tl_set_error_policy(tl_policy policy);

/* The library prints nothing. It passes notes (a fallback taken, a segment freed) to this hook, from any thread. NULL
 * turns the hook off. */
TL_API void tl_set_log_hook(void (*hook)(const char *line, void *context), void *context);

/* Learning a tokenizer and tokenizing the text of a run can take minutes. Calls of the thread that sets this hook ask
 * it many times a second whether to stop. Once it returns true, it must keep doing so until the call ends: tl_train
 * then ends as "stopped", other calls fail. NULL turns the hook off. */
TL_API void tl_set_stop_hook(bool (*hook)(void *context), void *context);

/* ---- Scopes ------------------------------------------------------------------------------------------------------ */

/* A token. Close scopes in the reverse order of opening; any other order is TL_ERROR_USE and closes nothing. Outside
 * all scopes, results belong to the thread's outermost scope, which ends with the thread or with tl_scope_reset(). */
typedef struct tl_scope {
    uint32_t depth, serial;
} tl_scope;

TL_API tl_scope tl_scope_begin(void);

/* Opens a scope with a name. Its ops and allocations are billed to the current path plus `name` ("blocks.3" inside
 * "model" is "model.blocks.3"). Names are UTF-8 without control characters. */
TL_API tl_scope tl_scope_enter(const char *name);

/* Ends a scope and frees every tensor that it owns and nothing else holds. */
TL_API bool tl_scope_end(tl_scope scope);

/* Ends a scope and gives `result` (may be NULL) to the enclosing scope. Returns `result`. */
TL_API tl_tensor *tl_scope_return(tl_scope scope, tl_tensor *result);

/* Closes all scopes of this thread and frees what the outermost one owns. */
TL_API void tl_scope_reset(void);

/* Holds a tensor beyond its scope, until tl_drop. Each keep needs one drop. tl_keep returns its argument. */
TL_API tl_tensor *tl_keep(tl_tensor *tensor);
TL_API void tl_drop(tl_tensor *tensor);
/* Gives one keep to the innermost scope instead of calling tl_drop, for callbacks that return a kept tensor. Returns
 * its argument. If memory runs out, it drops the tensor and returns NULL. */
TL_API tl_tensor *tl_scope_give(tl_tensor *tensor);

/* The path of the calling thread ("" outside named scopes); valid until the thread's next call. */
TL_API const char *tl_path(void);

/* ---- Devices and their memory ------------------------------------------------------------------------------------ */

/* Finds a device by name: "cpu"; "meta" (shapes only, for this machine's cpu); "meta:NAME" for a target
 * (tl_target_name), as in "meta:h200"; "cuda" or "cuda:N". NULL if there is no such device; the error says why. */
TL_API tl_device *tl_device_find(const char *name);
TL_API const char *tl_device_name(const tl_device *device);

/* The names of the targets that `meta` can price, by index; NULL after the last. */
TL_API const char *tl_target_name(int index);

/* Sets the device that this thread's creation functions use when they are given NULL. Initially cpu. */
TL_API tl_device *tl_set_default_device(tl_device *device);

/* Waits until the device has finished all its work, and reports errors that occurred in it. */
TL_API bool tl_device_sync(tl_device *device);
/* The stream on which all ops of a GPU run, a cudaStream_t, for code that shares memory with it; NULL on other
 * devices. */
TL_API void *tl_device_stream(const tl_device *device);

/* Sets how many threads cpu kernels use; 0: as many as the machine has cores. */
TL_API int tl_set_threads(int n_threads);

/* Sets how tl_matmul, tl_linear, tl_grouped_matmul and tl_linear_cross_entropy multiply f32 matrices, for the whole
 * process, like torch.set_float32_matmul_precision. HIGHEST, the default, multiplies in f32. HIGH may split each
 * number into the sum of two bf16 numbers, which is faster on chips that multiply bf16 (1.2 times on Arm with
 * BFMMLA, more with AMX). The error is then about 4e-6 relative to the largest terms, and an infinity gives NaN.
 * Other chips and cuda still multiply in f32. Costs do not change. */
typedef enum tl_matmul_precision { TL_MATMUL_HIGHEST, TL_MATMUL_HIGH } tl_matmul_precision;
TL_API tl_matmul_precision tl_set_matmul_precision(tl_matmul_precision precision);

/* Allows kernels that are faster but not deterministic in the last bits, for the whole process. Off by default. On
 * cuda this affects the gradient of 16-bit attention, which may then need more workspace, and matrix products: the
 * first call of each shape times up to 8 algorithms that the library proposes and keeps the fastest, instead of taking
 * the first. On compute capability 9.0 it affects neither products in 16 bits nor attention with heads of up to 128,
 * whose deterministic kernels are as fast. */
TL_API bool tl_set_fast(bool is_fast);

/* Caps what the device's pool may reserve. 0: no cap other than the target's memory. */
TL_API void tl_set_pool_limit(tl_device *device, uint64_t limit_bytes);
/* Returns unused segments to the device. An allocation that would otherwise fail does the same. */
TL_API void tl_pool_trim(tl_device *device);

typedef struct tl_memory {
    uint64_t live_bytes;      /* numel x element size of all live storages */
    uint64_t peak_bytes;      /* the largest live_bytes since tl_memory_reset_peak */
    uint64_t allocated_bytes; /* like live_bytes, with each request rounded up to the pool's alignment */
    uint64_t reserved_bytes;  /* segments taken from the device */
    uint64_t peak_reserved_bytes;
    uint64_t live_tensors;                          /* live storages; empty and external ones are not counted */
    uint64_t device_used_bytes, device_total_bytes; /* as the driver reports for the whole device; 0: unknown */
} tl_memory;
TL_API tl_memory tl_device_memory(const tl_device *device);
TL_API void tl_memory_reset_peak(tl_device *device);

/* What an allocation is for. A result starts as a temporary, becomes an activation when the graph saves it, and a
 * gradient when it becomes a tensor's .grad. The program sets the other purposes (tl_set_purpose). */
typedef enum tl_purpose {
    TL_TEMPORARY,
    TL_PARAMETER,
    TL_GRADIENT,
    TL_OPTIMIZER,
    TL_ACTIVATION,
    TL_WORKSPACE,
    TL_DATA,
    TL_COMMUNICATION,
    TL_PURPOSE_COUNT
} tl_purpose;
TL_API const char *tl_purpose_name(tl_purpose purpose); /* "activation" */

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

/* New tensors, owned by the innermost scope. `device` NULL: the thread's default. The contents of tl_empty are
 * undefined. */
TL_API tl_tensor *tl_empty(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_zeros(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_ones(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_full(int rank, const int64_t *shape, double value, tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_empty_like(tl_tensor *x);
TL_API tl_tensor *tl_zeros_like(tl_tensor *x);
TL_API tl_tensor *tl_ones_like(tl_tensor *x);
TL_API tl_tensor *tl_full_like(tl_tensor *x, double value);
/* start, start + step, ... (n values) */
TL_API tl_tensor *tl_arange(double start, double step, int64_t n, tl_dtype dtype, tl_device *device);
/* n evenly spaced values from start to stop, both included; not for bool */
TL_API tl_tensor *tl_linspace(double start, double stop, int64_t n, tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_eye(int64_t n_rows, int64_t n_columns, tl_dtype dtype, tl_device *device);

/* Copies `data`, numel elements of `dtype` in row-major order, from host memory. If the device is not the cpu, the copy
 * is billed as a transfer. On meta the data is ignored and may be NULL. */
TL_API tl_tensor *tl_from_data(const void *data, int rank, const int64_t *shape, tl_dtype dtype, tl_device *device);

/* Wraps existing memory without copying it. `device` says where the memory is (NULL: the cpu; not meta). `stride` is in
 * elements, NULL for row-major. `bytes` bounds every element that the strides can reach. The data must be ready when
 * this is called. When the last view is freed, and the device has finished with the memory, deleter(context) is called
 * once, on whichever thread that happens (NULL: no call). It is also called if this function fails, so the memory is
 * never leaked. External bytes are not in the pool and not in the ledger. */
TL_API tl_tensor *tl_from_external(void *data, size_t bytes, int rank, const int64_t *shape, const int64_t *stride,
                                   tl_dtype dtype, tl_device *device, void (*deleter)(void *context), void *context);

/* ---- Random numbers ---------------------------------------------------------------------------------------------- */

/* The generator is counter-based (Philox 4x32-10; dropout: 4x32-7). A value depends on (seed, stream, index) alone, so
 * all devices and thread counts give the same bits. The index counts 32-bit words: a call takes one word per element,
 * two for f64 and for integers, half a word for dropout, rounded up to a multiple of four. Each thread has its own
 * generator. */
typedef struct tl_generator {
    uint64_t seed, stream, index;
} tl_generator;
TL_API void tl_seed(uint64_t seed); /* stream 0, index 0 */
TL_API tl_generator tl_generator_get(void);
TL_API void tl_generator_set(tl_generator generator);
/* Moves the calling thread to the beginning of another stream of its seed. Streams never overlap. Returns the previous
 * state, for tl_generator_set. */
TL_API tl_generator tl_set_stream(uint64_t stream);

/* Values in [low, high). A value that would round up to high becomes the largest number of the dtype below it, unless
 * that is below low. */
TL_API tl_tensor *tl_uniform(int rank, const int64_t *shape, double low, double high, tl_dtype dtype,
                             tl_device *device);
TL_API tl_tensor *tl_normal(int rank, const int64_t *shape, double mean, double std, tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_bernoulli(int rank, const int64_t *shape, double p, tl_device *device); /* bool */
TL_API tl_tensor *tl_integers(int rank, const int64_t *shape, int64_t low, int64_t high, tl_dtype dtype,
                              tl_device *device);
/* Normal numbers conditioned on [low, high] (values, not multiples of std), by the inverse of the distribution
 * function: one draw per element, however narrow the range. Computed in f64, clamped to the range, rounded once; in a
 * narrow dtype a bound may round outwards. A range entirely beyond 37 standard deviations is an error. */
TL_API tl_tensor *tl_trunc_normal(int rank, const int64_t *shape, double mean, double std, double low, double high,
                                  tl_dtype dtype, tl_device *device);
TL_API tl_tensor *tl_uniform_like(tl_tensor *x, double low, double high);
TL_API tl_tensor *tl_normal_like(tl_tensor *x, double mean, double std);
TL_API tl_tensor *tl_integers_like(tl_tensor *x, int64_t low, int64_t high);

/* Fill x, of any strides, with the numbers that the creation function would put into a tensor of its shape and
 * dtype. */
TL_API tl_tensor *tl_uniform_(tl_tensor *x, double low, double high);
TL_API tl_tensor *tl_normal_(tl_tensor *x, double mean, double std);
TL_API tl_tensor *tl_bernoulli_(tl_tensor *x, double p); /* 1 with probability p, else 0; any arithmetic dtype */
TL_API tl_tensor *tl_trunc_normal_(tl_tensor *x, double mean, double std, double low, double high);

/* 0 .. n-1 in random order, i64: the order that sorts n 64-bit draws. */
TL_API tl_tensor *tl_permutation(int64_t n, tl_device *device);

/* Draws categories with the given weights: p (K) -> (n_samples) or p (N,K) -> (N,n_samples), i64. Weights need not sum
 * to 1; a negative, infinite or NaN weight is an error, and so is a row of zeros. Takes two words of the generator per
 * sample, or per weight without replacement. Samples come in the order of drawing. */
TL_API tl_tensor *tl_multinomial(tl_tensor *p, int64_t n_samples, bool replacement);

/* ---- Reading a tensor -------------------------------------------------------------------------------------------- */

TL_API int tl_rank(const tl_tensor *x);
TL_API int64_t tl_size(const tl_tensor *x, int axis);   /* size of an axis */
TL_API int64_t tl_stride(const tl_tensor *x, int axis); /* in elements */
TL_API const int64_t *tl_shape(const tl_tensor *x);     /* rank sizes, valid as long as x */
TL_API int64_t tl_offset(const tl_tensor *x);
TL_API int64_t tl_numel(const tl_tensor *x);
TL_API uint64_t tl_bytes(const tl_tensor *x);         /* numel x element size */
TL_API uint64_t tl_storage_bytes(const tl_tensor *x); /* of the whole storage that x is a view of */
TL_API tl_dtype tl_dtype_of(const tl_tensor *x);
TL_API tl_device *tl_device_of(const tl_tensor *x);
TL_API tl_purpose tl_purpose_of(const tl_tensor *x);
TL_API bool tl_is_contiguous(const tl_tensor *x);
TL_API bool tl_shares_storage(const tl_tensor *a, const tl_tensor *b);
TL_API uint64_t tl_version_of(const tl_tensor *x); /* counts in-place changes of the storage */

/* Sets what a tensor's storage is for, in the ledger. Returns x. */
TL_API tl_tensor *tl_set_purpose(tl_tensor *x, tl_purpose purpose);

/* The address of the first element: NULL on meta, a device address on cuda. */
TL_API void *tl_data(const tl_tensor *x);

/* One element as a double or an int64. These wait for the device and fail on meta. */
TL_API double tl_at(tl_tensor *x, const int64_t *index); /* index: rank numbers */
TL_API double tl_item(tl_tensor *x);                     /* of a tensor with one element */
TL_API int64_t tl_item_int(tl_tensor *x);

/* Copies all elements in row-major order to host memory. `bytes` must equal tl_bytes(x). */
TL_API bool tl_to_data(tl_tensor *x, void *data, size_t bytes);

/* Writes the tensor as PyTorch prints it ("tensor([1., 2.])") to a buffer, at most `size` bytes including the final 0.
 * Returns the length of the whole text; a buffer of NULL gets none of it. tl_describe writes one line: f32[4,6]@cpu. */
TL_API size_t tl_print(tl_tensor *x, char *buffer, size_t size);
TL_API size_t tl_describe(const tl_tensor *x, char *buffer, size_t size);

/* ---- Views ------------------------------------------------------------------------------------------------------- */

/* Views copy no data. Gradients flow through them. */
TL_API tl_tensor *tl_select(tl_tensor *x, int axis, int64_t index);
/* Elements start, start+step, ... before stop, as in Python: negative numbers count from the end, bounds out of range
 * are clipped, and step may be negative. TL_END as stop means "to the end in the direction of step". */
#define TL_END INT64_MAX
TL_API tl_tensor *tl_slice(tl_tensor *x, int axis, int64_t start, int64_t stop, int64_t step);
/* One size may be -1. If strides cannot express the shape, tl_view fails and tl_reshape copies. */
TL_API tl_tensor *tl_view(tl_tensor *x, int rank, const int64_t *shape);
TL_API tl_tensor *tl_reshape(tl_tensor *x, int rank, const int64_t *shape);
TL_API tl_tensor *tl_transpose(tl_tensor *x, int axis0, int axis1);        /* a scalar has axis 0, as in tl_squeeze */
TL_API tl_tensor *tl_permute(tl_tensor *x, const int *axes);               /* rank numbers */
TL_API tl_tensor *tl_expand(tl_tensor *x, int rank, const int64_t *shape); /* -1 keeps a size */
TL_API tl_tensor *tl_broadcast_to(tl_tensor *x, int rank, const int64_t *shape);
TL_API tl_tensor *tl_squeeze(tl_tensor *x, int axis); /* removes an axis of size 1; leaves any other axis alone */
TL_API tl_tensor *tl_unsqueeze(tl_tensor *x, int axis);
TL_API tl_tensor *tl_flatten(tl_tensor *x, int first, int last); /* a view or a copy, like tl_reshape */
TL_API tl_tensor *tl_unflatten(tl_tensor *x, int axis, int rank, const int64_t *shape);
TL_API tl_tensor *tl_diagonal(tl_tensor *x, int64_t offset, int axis0, int axis1);
/* A view with negative strides, where PyTorch copies. Clone it before you change it in place. */
TL_API tl_tensor *tl_flip(tl_tensor *x, const int *axes, int n_axes);
/* Any geometry inside the storage, in elements from the start of the storage. */
TL_API tl_tensor *tl_as_strided(tl_tensor *x, int rank, const int64_t *shape, const int64_t *stride, int64_t offset);
TL_API tl_tensor *tl_detach(tl_tensor *x); /* the same storage without history */
/* n vectors as n grids of their sizes; is_xy swaps the first two axes. */
TL_API bool tl_meshgrid(tl_tensor **inputs, int n, bool is_xy, tl_tensor **grids);
/* n parts with these sizes, which add up to the size of the axis. At most 2^20 parts. */
TL_API bool tl_split(tl_tensor *x, int axis, const int64_t *sizes, int n, tl_tensor **parts);
/* Up to n parts of ceil(size / n); the last may be smaller. Returns the number of parts, 0 on error. */
TL_API int tl_chunk(tl_tensor *x, int axis, int n, tl_tensor **parts);

/* ---- Copies and conversions -------------------------------------------------------------------------------------- */

TL_API tl_tensor *tl_clone(tl_tensor *x);
TL_API tl_tensor *tl_contiguous(tl_tensor *x);               /* x itself if it is dense and row-major */
TL_API tl_tensor *tl_cast(tl_tensor *x, tl_dtype dtype);     /* x itself if it has that dtype */
TL_API tl_tensor *tl_to(tl_tensor *x, tl_device *device);    /* x itself if it is there */
TL_API tl_tensor *tl_copy_(tl_tensor *x, tl_tensor *source); /* x = source, broadcast and cast */
TL_API tl_tensor *tl_fill_(tl_tensor *x, double value);      /* x may be expanded; the value is cast like tl_cast */
/* A finite number outside the range of the dtype is an error, but a negative integer wraps in u8 and u16 (-1 is
 * 255). */
TL_API tl_tensor *tl_fill_scalar_(tl_tensor *x, tl_scalar value);

/* How a value is rounded to a narrower dtype. */
typedef enum tl_rounding {
    TL_NEAREST,   /* ties to even; overflow gives infinity, NaN in f8e4m3, the largest value in f4e2m1 */
    TL_SATURATE,  /* nearest, but overflow (and infinity, except in f64) gives the largest finite value */
    TL_STOCHASTIC /* up or down with probabilities that make the mean exact; overflow as in TL_NEAREST */
} tl_rounding;
/* tl_cast with a rounding mode: x itself if it has that dtype. TL_STOCHASTIC takes one word of the generator per
 * element. Dtypes that are not floats, and f64, round as in TL_NEAREST. The gradient passes straight through. */
TL_API tl_tensor *tl_round_to(tl_tensor *x, tl_dtype dtype, tl_rounding mode);

/* Complex numbers. An element is a pair in memory, the real part first. The two views show pairs as a last axis of
 * size 2, which is dense in the view back. tl_complex takes two parts, tl_polar a magnitude and an angle: f32 or
 * f64, both of one dtype, broadcast. tl_real and tl_imag are views; of a real tensor, tl_real and tl_conj are x
 * itself, and tl_imag fails. tl_abs gives the magnitude. tl_cast to a real dtype keeps the real part. The gradient
 * of z = x + iy is PyTorch's: dL/dx + i dL/dy. docs/dtypes.md lists the ops that take complex numbers. */
TL_API bool tl_is_complex(const tl_tensor *x);
TL_API tl_tensor *tl_view_as_real(tl_tensor *x);    /* c64 (...) -> f32 (...,2), c128 -> f64 */
TL_API tl_tensor *tl_view_as_complex(tl_tensor *x); /* f32 (...,2) -> c64 (...), f64 -> c128 */
TL_API tl_tensor *tl_complex(tl_tensor *re, tl_tensor *im);
TL_API tl_tensor *tl_polar(tl_tensor *magnitude, tl_tensor *angle);
TL_API tl_tensor *tl_real(tl_tensor *x);
TL_API tl_tensor *tl_imag(tl_tensor *x);
TL_API tl_tensor *tl_conj(tl_tensor *x);
TL_API tl_tensor *tl_angle(tl_tensor *x); /* in (-pi, pi]; of a real number 0 or pi */

/* Discrete Fourier transforms along one axis, of n numbers: x is cut there, or filled up with zeros; n <= 0: as many
 * as it has (tl_irfft: twice as many, less 2). The results are those of torch.fft, and so are the places of the
 * factor 1/n: in the inverse (BACKWARD), in the transform (FORWARD), or its root in both (ORTHO). tl_fft and tl_ifft
 * take real and complex numbers and give complex ones. tl_rfft takes real numbers and gives the first n/2 + 1
 * numbers of the transform; tl_irfft takes those and gives n real ones. Computed in f64, for any n; n with a prime
 * factor above 31 take several times as long. */
typedef enum tl_fft_norm { TL_FFT_BACKWARD, TL_FFT_ORTHO, TL_FFT_FORWARD } tl_fft_norm;
TL_API tl_tensor *tl_fft(tl_tensor *x, int64_t n, int axis, tl_fft_norm norm);
TL_API tl_tensor *tl_ifft(tl_tensor *x, int64_t n, int axis, tl_fft_norm norm);
TL_API tl_tensor *tl_rfft(tl_tensor *x, int64_t n, int axis, tl_fft_norm norm);
TL_API tl_tensor *tl_irfft(tl_tensor *x, int64_t n, int axis, tl_fft_norm norm);

/* What torch.finfo and torch.iinfo return. Another kind of dtype is an error, and the result is all zero. The table is
 * in docs/dtypes.md. */
typedef struct tl_float_info {
    const char *name; /* torch's: "float32" */
    int bits;
    double eps;                   /* from 1 to the next larger value */
    double max, min;              /* the largest and the lowest finite value */
    double tiny, smallest_normal; /* the smallest positive normal value, under both names */
    double smallest_subnormal;    /* the smallest positive value */
    double resolution;            /* 10^-digits, for the decimal digits that survive a round trip */
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

/* ---- Elementwise ops --------------------------------------------------------------------------------------------- */

/* Operands broadcast, and dtypes promote as in PyTorch. In place, an integer tensor is an error if the result would be
 * a float. */
TL_API tl_tensor *tl_add(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_sub(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_mul(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_div(tl_tensor *a, tl_tensor *b); /* true division: integers give f32 */
TL_API tl_tensor *tl_add_(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_sub_(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_mul_(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_div_(tl_tensor *a, tl_tensor *b);
/* Integer powers are integers, truncated if the exponent is negative. The remainder has the sign of the divisor; an
 * integer remainder by 0 is an error. Minimum and maximum give NaN if either operand is NaN; equal operands share the
 * gradient. Not for bool: pow and remainder. */
TL_API tl_tensor *tl_pow(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_remainder(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_minimum(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_maximum(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_pow_(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_remainder_(tl_tensor *a, tl_tensor *b);

/* A tensor and a number; see tl_scalar. */
TL_API tl_tensor *tl_add_scalar(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_sub_scalar(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_rsub_scalar(tl_tensor *x, tl_scalar value); /* value - x */
TL_API tl_tensor *tl_mul_scalar(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_div_scalar(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_rdiv_scalar(tl_tensor *x, tl_scalar value); /* value / x */
TL_API tl_tensor *tl_pow_scalar(tl_tensor *x, tl_scalar value);  /* integers: value must not be negative */
TL_API tl_tensor *tl_rpow_scalar(tl_tensor *x, tl_scalar value); /* value^x */
TL_API tl_tensor *tl_remainder_scalar(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_minimum_scalar(tl_tensor *x, tl_scalar value); /* tl_clamp with max */
TL_API tl_tensor *tl_maximum_scalar(tl_tensor *x, tl_scalar value); /* tl_clamp with min */
TL_API tl_tensor *tl_add_scalar_(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_sub_scalar_(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_mul_scalar_(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_div_scalar_(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_pow_scalar_(tl_tensor *x, tl_scalar value);
TL_API tl_tensor *tl_remainder_scalar_(tl_tensor *x, tl_scalar value);
/* min(max(x, min), max); NULL for no bound, but not for both. Not for bool. Elements at a bound or beyond it have no
 * gradient. */
TL_API tl_tensor *tl_clamp(tl_tensor *x, const tl_scalar *min, const tl_scalar *max);
TL_API tl_tensor *tl_clamp_(tl_tensor *x, const tl_scalar *min, const tl_scalar *max);

/* Several steps in one function. */
TL_API tl_tensor *tl_affine(tl_tensor *x, double scale, double shift); /* x * scale + shift */
TL_API tl_tensor *tl_affine_(tl_tensor *x, double scale, double shift);
TL_API tl_tensor *tl_scale(tl_tensor *x, double scale);
/* a + weight (b - a), floats of one dtype; rounded once */
TL_API tl_tensor *tl_lerp(tl_tensor *a, tl_tensor *b, tl_tensor *weight);
TL_API tl_tensor *tl_lerp_scalar(tl_tensor *a, tl_tensor *b, double weight);
TL_API tl_tensor *tl_addcmul(tl_tensor *x, tl_tensor *a, tl_tensor *b, double value); /* x + (value a) b */
TL_API tl_tensor *tl_addcdiv(tl_tensor *x, tl_tensor *a, tl_tensor *b, double value); /* x + (value a) / b; floats */

/* Sign and rounding. Floats and integers (sign: bool too) keep their dtype. Steps have no gradient. */
TL_API tl_tensor *tl_neg(tl_tensor *x);
TL_API tl_tensor *tl_abs(tl_tensor *x);
TL_API tl_tensor *tl_sign(tl_tensor *x); /* -1, 0, 1; 0 for NaN */
TL_API tl_tensor *tl_floor(tl_tensor *x);
TL_API tl_tensor *tl_ceil(tl_tensor *x);
TL_API tl_tensor *tl_round(tl_tensor *x); /* halves to even */
TL_API tl_tensor *tl_trunc(tl_tensor *x);
TL_API tl_tensor *tl_neg_(tl_tensor *x);
TL_API tl_tensor *tl_abs_(tl_tensor *x);
TL_API tl_tensor *tl_sign_(tl_tensor *x);
TL_API tl_tensor *tl_floor_(tl_tensor *x);
TL_API tl_tensor *tl_ceil_(tl_tensor *x);
TL_API tl_tensor *tl_round_(tl_tensor *x);
TL_API tl_tensor *tl_trunc_(tl_tensor *x);

/* Functions of real numbers. Floats keep their dtype; integers and bool give f32. */
TL_API tl_tensor *tl_exp(tl_tensor *x);
TL_API tl_tensor *tl_exp2(tl_tensor *x);  /* 2^x */
TL_API tl_tensor *tl_expm1(tl_tensor *x); /* e^x - 1, accurate near 0 */
TL_API tl_tensor *tl_log(tl_tensor *x);
TL_API tl_tensor *tl_log2(tl_tensor *x);
TL_API tl_tensor *tl_log1p(tl_tensor *x); /* log(1 + x), accurate near 0 */
TL_API tl_tensor *tl_sqrt(tl_tensor *x);
TL_API tl_tensor *tl_rsqrt(tl_tensor *x);      /* 1 / sqrt(x) */
TL_API tl_tensor *tl_square(tl_tensor *x);     /* x x; integers keep their dtype, bool gives i64 */
TL_API tl_tensor *tl_reciprocal(tl_tensor *x); /* 1 / x */
TL_API tl_tensor *tl_sin(tl_tensor *x);
TL_API tl_tensor *tl_cos(tl_tensor *x);
TL_API tl_tensor *tl_tanh(tl_tensor *x);
TL_API tl_tensor *tl_erf(tl_tensor *x);
TL_API tl_tensor *tl_erfc(tl_tensor *x); /* 1 - erf(x) */
TL_API tl_tensor *tl_sinh(tl_tensor *x);
TL_API tl_tensor *tl_cosh(tl_tensor *x);
TL_API tl_tensor *tl_atan(tl_tensor *x);
TL_API tl_tensor *tl_atan2(tl_tensor *a, tl_tensor *b); /* the angle of the point (b, a), in (-pi, pi] */
TL_API tl_tensor *tl_exp_(tl_tensor *x);
TL_API tl_tensor *tl_exp2_(tl_tensor *x);
TL_API tl_tensor *tl_expm1_(tl_tensor *x);
TL_API tl_tensor *tl_log_(tl_tensor *x);
TL_API tl_tensor *tl_log2_(tl_tensor *x);
TL_API tl_tensor *tl_log1p_(tl_tensor *x);
TL_API tl_tensor *tl_sqrt_(tl_tensor *x);
TL_API tl_tensor *tl_rsqrt_(tl_tensor *x);
TL_API tl_tensor *tl_sin_(tl_tensor *x);
TL_API tl_tensor *tl_cos_(tl_tensor *x);
TL_API tl_tensor *tl_tanh_(tl_tensor *x);
TL_API tl_tensor *tl_erf_(tl_tensor *x);
TL_API tl_tensor *tl_erfc_(tl_tensor *x);
TL_API tl_tensor *tl_sinh_(tl_tensor *x);
TL_API tl_tensor *tl_cosh_(tl_tensor *x);
TL_API tl_tensor *tl_atan_(tl_tensor *x);
TL_API tl_tensor *tl_atan2_(tl_tensor *a, tl_tensor *b);

/* Activation functions. */
TL_API tl_tensor *tl_sigmoid(tl_tensor *x);
TL_API tl_tensor *tl_relu(tl_tensor *x); /* floats and integers keep their dtype */
TL_API tl_tensor *tl_leaky_relu(tl_tensor *x, double slope);
TL_API tl_tensor *tl_gelu(tl_tensor *x);     /* the tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
TL_API tl_tensor *tl_gelu_erf(tl_tensor *x); /* the exact form: x Phi(x) */
TL_API tl_tensor *tl_silu(tl_tensor *x);     /* x sigmoid(x) */
/* log(1 + e^(beta x)) / beta, and x itself where beta x > threshold */
TL_API tl_tensor *tl_softplus(tl_tensor *x, double beta, double threshold);
TL_API tl_tensor *tl_sigmoid_(tl_tensor *x);
TL_API tl_tensor *tl_relu_(tl_tensor *x);
TL_API tl_tensor *tl_leaky_relu_(tl_tensor *x, double slope);
TL_API tl_tensor *tl_gelu_(tl_tensor *x);
TL_API tl_tensor *tl_gelu_erf_(tl_tensor *x);
TL_API tl_tensor *tl_silu_(tl_tensor *x);

/* Comparison and logic. The results are bool and have no gradient. Any value other than 0 is true, NaN included. */
typedef enum tl_compare { TL_EQ, TL_NE, TL_LT, TL_LE, TL_GT, TL_GE } tl_compare;
TL_API tl_tensor *tl_cmp(tl_tensor *a, tl_compare relation, tl_tensor *b);
/* Next to a float tensor the number is rounded to its dtype, so that a tensor filled with 0.1 equals 0.1. */
TL_API tl_tensor *tl_cmp_scalar(tl_tensor *x, tl_compare relation, tl_scalar value);
TL_API tl_tensor *tl_logical_and(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_logical_or(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_logical_xor(tl_tensor *a, tl_tensor *b);
/* Bits of integers and bool. A shift by more bits than there are gives 0, to the right the sign. */
TL_API tl_tensor *tl_bitwise_and(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_bitwise_or(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_bitwise_xor(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_bitwise_left_shift(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_bitwise_right_shift(tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_logical_not(tl_tensor *x);
TL_API tl_tensor *tl_isnan(tl_tensor *x);
TL_API tl_tensor *tl_isfinite(tl_tensor *x); /* neither infinite nor NaN */
/* a where the condition (bool) holds, b elsewhere; a number b is converted as tl_fill_scalar_ does */
TL_API tl_tensor *tl_where(tl_tensor *condition, tl_tensor *a, tl_tensor *b);
TL_API tl_tensor *tl_where_scalar(tl_tensor *condition, tl_tensor *a, tl_scalar b);
TL_API tl_tensor *tl_masked_fill(tl_tensor *x, tl_tensor *mask, double value); /* value where the mask holds */
TL_API tl_tensor *tl_masked_fill_(tl_tensor *x, tl_tensor *mask, double value);

/* ---- Reductions and scans ---------------------------------------------------------------------------------------- */

/* Reductions over a list of axes. n_axes 0: over all; a scalar has axis 0. `keep` leaves the reduced axes with size 1.
 * An extreme over an axis without elements is an error, even if the result is empty. tl_min and tl_max split the
 * gradient evenly among equal elements. */
TL_API tl_tensor *tl_sum(tl_tensor *x, const int *axes, int n_axes, bool keep);
TL_API tl_tensor *tl_nansum(tl_tensor *x, const int *axes, int n_axes, bool keep); /* NaN counts as 0 */
TL_API tl_tensor *tl_prod(tl_tensor *x, const int *axes, int n_axes, bool keep);   /* integers and bool: i64 */
TL_API tl_tensor *tl_mean(tl_tensor *x, const int *axes, int n_axes, bool keep);
TL_API tl_tensor *tl_max(tl_tensor *x, const int *axes, int n_axes, bool keep);
TL_API tl_tensor *tl_min(tl_tensor *x, const int *axes, int n_axes, bool keep);
TL_API tl_tensor *tl_sum_all(tl_tensor *x);
TL_API tl_tensor *tl_prod_all(tl_tensor *x);
TL_API tl_tensor *tl_mean_all(tl_tensor *x);
/* The index of the extreme (i64) among the reduced elements in row-major order; for one axis, the index along it. The
 * first of equal elements; the first NaN wins over everything. */
TL_API tl_tensor *tl_argmax(tl_tensor *x, const int *axes, int n_axes, bool keep);
TL_API tl_tensor *tl_argmin(tl_tensor *x, const int *axes, int n_axes, bool keep);
TL_API tl_tensor *tl_any(tl_tensor *x, const int *axes, int n_axes, bool keep); /* bool; u8 for u8 */
TL_API tl_tensor *tl_all(tl_tensor *x, const int *axes, int n_axes, bool keep);
TL_API tl_tensor *tl_count_nonzero(tl_tensor *x, const int *axes, int n_axes, bool keep); /* i64 */
/* sum (x - mean)^2 / (n - correction): correction 1 for a sample, 0 for a whole population. Floats. */
TL_API tl_tensor *tl_var(tl_tensor *x, const int *axes, int n_axes, double correction, bool keep);
TL_API tl_tensor *tl_std(tl_tensor *x, const int *axes, int n_axes, double correction, bool keep); /* gradient 0 at 0 */
/* Integers and bool are cast to f32 first. */
TL_API tl_tensor *tl_logsumexp(tl_tensor *x, const int *axes, int n_axes, bool keep);
/* (sum |x|^p)^(1/p). p 0 counts nonzero elements; INFINITY and -INFINITY give the largest and smallest |x|. The
 * gradient at norm 0 is 0. */
TL_API tl_tensor *tl_norm(tl_tensor *x, double p, const int *axes, int n_axes, bool keep);
/* The sum of the squares of all elements of all inputs: a scalar, f32 (f64 if an input is f64), no gradient. */
TL_API tl_tensor *tl_sum_squares(tl_tensor **inputs, int n);

/* Running sums and products along an axis; integers and bool in i64 (in place: not bool). */
TL_API tl_tensor *tl_cumsum(tl_tensor *x, int axis);
TL_API tl_tensor *tl_cumprod(tl_tensor *x, int axis); /* its second derivative makes n x n elements per row of n */
TL_API tl_tensor *tl_cumsum_(tl_tensor *x, int axis);
TL_API tl_tensor *tl_cumprod_(tl_tensor *x, int axis);

/* Sorting is stable in both directions; NaN is greater than all numbers, as in PyTorch. Indices are i64. */
TL_API bool tl_sort(tl_tensor *x, int axis, bool descending, tl_tensor **values, tl_tensor **indices);
TL_API tl_tensor *tl_argsort(tl_tensor *x, int axis, bool descending);
/* The k largest (or smallest) in order; of equal elements, the first ones. */
TL_API bool tl_topk(tl_tensor *x, int64_t k, int axis, bool largest, tl_tensor **values, tl_tensor **indices);
/* For each value, how many of the sorted numbers in its row are below it (right: or equal to it), i64. sorted (n) with
 * values of any shape, or both with the same leading axes; dtypes promote. */
TL_API tl_tensor *tl_searchsorted(tl_tensor *sorted, tl_tensor *values, bool right);
/* The distinct values of x in ascending order; for each element the index of its value (x's shape); how often each
 * occurs. Any of the three may be NULL. The shape depends on data: an error on meta. */
TL_API bool tl_unique(tl_tensor *x, tl_tensor **values, tl_tensor **inverse, tl_tensor **counts);
/* How often each of 0 .. n_bins-1 occurs in the vector x, i64; with weights (may be NULL), the sums of the weights in
 * their dtype. A value outside [0, n_bins) is an error, so that the size does not depend on data. */
TL_API tl_tensor *tl_bincount(tl_tensor *x, int64_t n_bins, tl_tensor *weights);

/* ---- Indexing, joining and rearranging --------------------------------------------------------------------------- */

/* Indices are i64 or i32 tensors. An index out of range is an error that names the value and the range; tl_index and
 * tl_index_put count negative indices from the end, the other functions reject them. If several values go to one
 * place, the last in row-major order wins (its gradient flows, the others' are zero), and sums are added in that
 * order: the bits do not depend on the number of threads. Sums of 16-bit and 8-bit floats are rounded once. */
TL_API tl_tensor *tl_gather(tl_tensor *x, int axis, tl_tensor *index); /* out[i][j] = x[index[i][j]][j] for axis 0 */
TL_API tl_tensor *tl_take_along(tl_tensor *x, int axis, tl_tensor *index); /* gather; the other axes broadcast */
/* x with x[index[i][j]][j] = source[i][j] for axis 0. source has x's dtype and is at least as large as index. */
TL_API tl_tensor *tl_scatter(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source);
TL_API tl_tensor *tl_scatter_(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source);
TL_API tl_tensor *tl_scatter_scalar(tl_tensor *x, int axis, tl_tensor *index, double value);
TL_API tl_tensor *tl_scatter_scalar_(tl_tensor *x, int axis, tl_tensor *index, double value);
TL_API tl_tensor *tl_scatter_add(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source); /* += instead of = */
TL_API tl_tensor *tl_scatter_add_(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source);
/* x[i, j]: index tensors for n chosen axes (at most 14), broadcast to one shape. If the axes are adjacent, that shape
 * takes their place; otherwise it comes first, as in NumPy (where a scalar index counts too). The other axes stay
 * whole: slice x before. A bool tensor of rank r is a mask: it stands for r axes starting at its own, whose sizes it
 * has, and means the r columns of its tl_nonzero. It depends on data: an error on meta. */
TL_API tl_tensor *tl_index(tl_tensor *x, const int *axes, tl_tensor **indices, int n);
/* x[i, j] = values, or += values; values broadcast to the shape of tl_index. One mask with one value runs as tl_where:
 * that works on meta, and in place costs a pass over x. */
TL_API tl_tensor *tl_index_put(tl_tensor *x, const int *axes, tl_tensor **indices, int n, tl_tensor *values,
                               bool accumulate);
TL_API tl_tensor *tl_index_put_(tl_tensor *x, const int *axes, tl_tensor **indices, int n, tl_tensor *values,
                                bool accumulate);
TL_API tl_tensor *tl_index_select(tl_tensor *x, int axis, tl_tensor *index); /* index: a vector */
/* x with alpha * source added: slice k of source goes to slice index[k] of x. */
TL_API tl_tensor *tl_index_add(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source, double alpha);
TL_API tl_tensor *tl_index_add_(tl_tensor *x, int axis, tl_tensor *index, tl_tensor *source, double alpha);
TL_API tl_tensor *tl_one_hot(tl_tensor *index, int64_t n_classes); /* (..., n_classes) i64 */
/* Shapes that depend on data: errors on meta. */
TL_API tl_tensor *tl_masked_select(tl_tensor *x, tl_tensor *mask); /* a vector */
TL_API tl_tensor *tl_nonzero(tl_tensor *x);                        /* (n, rank) i64: the indices of nonzero elements */

/* Dtypes promote. As in PyTorch, empty vectors are ignored. */
TL_API tl_tensor *tl_concat(tl_tensor **inputs, int n, int axis);
TL_API tl_tensor *tl_stack(tl_tensor **inputs, int n, int axis); /* along a new axis */
typedef enum tl_pad_mode { TL_PAD_CONSTANT, TL_PAD_REFLECT, TL_PAD_REPLICATE, TL_PAD_CIRCULAR } tl_pad_mode;
/* Adds before[i] and after[i] elements along each axis (rank numbers); negative numbers remove. `value` is for
 * TL_PAD_CONSTANT. */
TL_API tl_tensor *tl_pad(tl_tensor *x, const int64_t *before, const int64_t *after, tl_pad_mode mode, double value);
/* Element i goes to i + shift, wrapping around; axes NULL (and n 1): as if x were flat. */
TL_API tl_tensor *tl_roll(tl_tensor *x, const int64_t *shifts, const int *axes, int n);
/* x counts[i] times along axis i: torch's repeat and tile. Counts align with the last axes; the shorter of the two is
 * padded with ones. (tl_repeat is einops' repeat.) */
TL_API tl_tensor *tl_tile(tl_tensor *x, int n, const int64_t *counts);
TL_API tl_tensor *tl_repeat_interleave(tl_tensor *x, int axis, int64_t count); /* each slice count times */
/* Slice i counts[i] times. The shape depends on data: an error on meta. */
TL_API tl_tensor *tl_repeat_counts(tl_tensor *x, int axis, tl_tensor *counts);
TL_API tl_tensor *tl_triu(tl_tensor *x, int64_t k); /* zero below diagonal k of the last two axes */
TL_API tl_tensor *tl_tril(tl_tensor *x, int64_t k); /* zero above it */

/* ---- Matrix products --------------------------------------------------------------------------------------------- */

/* a (...,m,k) x b (...,k,n) -> (...,m,n). Batch axes broadcast; 16-bit inputs accumulate in f32. */
TL_API tl_tensor *tl_matmul(tl_tensor *a, tl_tensor *b);
/* x (...,k), weight (n,k), bias (n) or NULL -> (...,n): x weight^T + bias. */
TL_API tl_tensor *tl_linear(tl_tensor *x, tl_tensor *weight, tl_tensor *bias);
/* Rows in order of their groups, each group times its own matrix, as in a mixture of experts: a (N,k), b (E,k,n), or
 * (E,n,k) with transpose_b, -> (N,n). Group e is rows ends[e-1] .. ends[e]-1; `ends` (E), i64 or i32, is read by the
 * device alone. Rows behind the last group give zeros. At most 1024 groups. */
TL_API tl_tensor *tl_grouped_matmul(tl_tensor *a, tl_tensor *b, tl_tensor *ends, bool transpose_b);

/* ---- Linear algebra ---------------------------------------------------------------------------------------------- */

/* Factorisations and solutions of the matrices in the last two axes, f32 or f64: on cpu through LAPACK, on cuda in f64.
 * Leading axes of two operands broadcast. A matrix that cannot be factored is an error, so the call waits for the GPU;
 * for the functions that end in _ex it is not, and `info` (...) i32 is 0 or the column at which the work ended. */
TL_API tl_tensor *tl_cholesky(tl_tensor *a); /* l, a = l l^T; the lower triangle is read */
TL_API bool tl_cholesky_ex(tl_tensor *a, tl_tensor **l, tl_tensor **info);
/* a = P L U: L below the diagonal of lu, with ones on its own, and U; row i was swapped with pivots[i] - 1 (i32). */
TL_API bool tl_lu(tl_tensor *a, tl_tensor **lu, tl_tensor **pivots);
TL_API bool tl_lu_ex(tl_tensor *a, tl_tensor **lu, tl_tensor **pivots, tl_tensor **info);
TL_API tl_tensor *tl_swap_rows(tl_tensor *x, tl_tensor *pivots, bool inverse); /* P x, or P^T x */
/* x with a x = b, or a^T x = b, from the results of tl_lu. */
TL_API tl_tensor *tl_lu_solve(tl_tensor *lu, tl_tensor *pivots, tl_tensor *b, bool transposed);
TL_API tl_tensor *tl_solve(tl_tensor *a, tl_tensor *b); /* a (...,n,n), b (...,n,k) -> a^-1 b */
TL_API bool tl_solve_ex(tl_tensor *a, tl_tensor *b, tl_tensor **x, tl_tensor **info);
/* The same for a triangular a, of which one triangle is read; is_unit: its diagonal is ones and not read. */
TL_API tl_tensor *tl_solve_triangular(tl_tensor *a, tl_tensor *b, bool upper, bool is_unit);
TL_API tl_tensor *tl_inv(tl_tensor *a);
TL_API bool tl_inv_ex(tl_tensor *a, tl_tensor **x, tl_tensor **info);
TL_API tl_tensor *tl_det(tl_tensor *a);                                        /* (...) */
TL_API bool tl_slogdet(tl_tensor *a, tl_tensor **sign, tl_tensor **logarithm); /* log |det|; (...) both */
/* a (...,m,n) = q r with k = min(m,n) columns in q, or m if complete; and r (k rows) alone. */
TL_API bool tl_qr(tl_tensor *a, bool complete, tl_tensor **q, tl_tensor **r);
TL_API tl_tensor *tl_qr_r(tl_tensor *a);
/* Of symmetric matrices, of which one triangle is read: values (...,n), rising, and vectors in the columns of
 * (...,n,n); the values alone. In vectors, and u below, the first element at least half as large as the largest is
 * positive. */
TL_API bool tl_eigh(tl_tensor *a, bool upper, tl_tensor **values, tl_tensor **vectors);
TL_API tl_tensor *tl_eigvalsh(tl_tensor *a, bool upper);
/* Of any square matrices, as complex numbers: values (...,n), in no order, and vectors of length 1 in the columns of
 * (...,n,n); the values alone. On cpu; there is no kernel on cuda. */
TL_API bool tl_eig(tl_tensor *a, tl_tensor **values, tl_tensor **vectors);
TL_API tl_tensor *tl_eigvals(tl_tensor *a);
/* a (...,m,n) = u diag(s) vh: (...,m,k), (...,k), (...,k,n) with k = min(m,n); full: u (...,m,m), vh (...,n,n). And s
 * alone. */
TL_API bool tl_svd(tl_tensor *a, bool full, tl_tensor **u, tl_tensor **s, tl_tensor **vh);
TL_API tl_tensor *tl_svdvals(tl_tensor *a);

/* ---- Einops and einsum ------------------------------------------------------------------------------------------- */

/* Axes by name; see docs/einops.md. A pattern names the axes of the input and those of the result:
 *
 *      tl_rearrange(x, "b s (h d) -> b h s d", "h=8")          // (B,S,H D) -> (B,H,S,D): a view
 *      tl_reduce(x, "b (h 2) (w 2) c -> b h w c", "max", NULL) // 2x2 max pooling
 *      tl_repeat(x, "h w -> h w c", "c=3")                     // a view with stride 0
 *
 * Parentheses split an axis of the input or merge axes of the result; the last name varies fastest. "..." stands for
 * any number of axes, 1 and () for an axis of size 1, and a larger number for an axis without a name. A size that does
 * not follow from the input is a length: "h=8 w=4" or "h=8, w=4"; NULL for none.
 *
 * Splitting, permuting, widening, and merging where strides allow it are views; the rest is at most one copy. If there
 * is nothing to do, the result is x itself. Patterns are parsed once and cached; any thread may call. */
TL_API tl_tensor *tl_rearrange(tl_tensor *x, const char *pattern, const char *lengths); /* every axis on both sides */
/* Reduces axes that are only on the left: "sum", "mean" (floats), "max", "min", "prod", "any", "all", "logsumexp". */
TL_API tl_tensor *tl_reduce(tl_tensor *x, const char *pattern, const char *reduction, const char *lengths);
TL_API tl_tensor *tl_repeat(tl_tensor *x, const char *pattern, const char *lengths); /* new axes only on the right */
/* Lengths from variables: tl_lengths("h=%d w=%d", h, w). The text is valid until the thread's next call. */
TL_API const char *tl_lengths(const char *format, ...) TL_PRINTF(1, 2);

/* Sums of products over axes: tl_einsum("b i k, b k j -> b i j", TL_TENSORS(x, y)). Axes are names and commas separate
 * the inputs. Axes that are not in the output are summed over; a name that occurs twice in one input takes its
 * diagonal; "..." and axes of size 1 broadcast. tl_einsum_letters takes torch.einsum's spelling, where every letter is
 * an axis: "bik,bkj->bij". There the arrow may be left out; the output is then the letters that occur once, in
 * alphabetical order after the ellipsis.
 *
 * 1 to 64 tensors; dtypes promote. They are contracted in pairs, in the order with the fewest FLOPs (exact for up to 8
 * tensors, a heuristic beyond). Each pair is one batched matmul, or an elementwise product if nothing is summed.
 * Integers, which have no matmul, and batches of dot products in f32 and f64 are multiplied and summed. Operands are
 * not copied where strides allow it. The result may be a permuted view. */
#define TL_TENSORS(...) TL_VALUES_OF(tl_tensor *, __VA_ARGS__), TL_LENGTH_OF(tl_tensor *, __VA_ARGS__)
TL_API tl_tensor *tl_einsum(const char *pattern, tl_tensor **tensors, int n);
TL_API tl_tensor *tl_einsum_letters(const char *pattern, tl_tensor **tensors, int n);

/* What an einsum will do, without doing it. A step takes two of: inputs 0 .. n-1, results n, n+1, ... of earlier
 * steps. */
typedef struct tl_einsum_step {
    int left, right;
    tl_count flops;
    int64_t numel; /* elements of its result */
} tl_einsum_step;
typedef struct tl_contraction {
    int n_steps;
    tl_count flops;          /* of all steps and the sums before them; the ledger will count the same */
    tl_count flops_in_order; /* if contracted from left to right instead */
    int64_t largest;         /* elements of the largest intermediate result; 0 with fewer than two steps */
} tl_contraction;
/* `steps` receives n-1 steps. `text` receives a description, malloc'ed. Each of the three outputs may be NULL. */
TL_API bool tl_einsum_plan(const char *pattern, bool is_letters, tl_tensor **tensors, int n, tl_einsum_step *steps,
                           tl_contraction *total, char **text);

/* The packed axes of one tensor. */
typedef struct tl_packed {
    int rank;
    int64_t size[TL_MAX_RANK];
} tl_packed;
/* Joins tensors of different rank along *: with "i j * k" the first two axes and the last are common; the axes between
 * are flattened and concatenated. `shapes` (n of them, or NULL) receives the axes that * stands for in each tensor, for
 * tl_unpack. A single tensor is reshaped, not copied. */
TL_API tl_tensor *tl_pack(tl_tensor **tensors, int n, const char *pattern, tl_packed *shapes);
/* The inverse: n views of x. One size among all shapes may be -1. */
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
TL_API int64_t tl_dim(const tl_dims *dims, const char *name);           /* its size; -1 and an error if it is unknown */
TL_API const char *tl_dims_name(const tl_dims *dims, int i);            /* name i; NULL if there is none */
TL_API bool tl_dims_set(tl_dims *dims, const char *name, int64_t size); /* binds a name */
/* The sizes of x by name: "b _ h 1" skips axis 1 and requires size 1 of the last. Clears dims first. */
TL_API bool tl_parse_shape(tl_tensor *x, const char *pattern, tl_dims *dims);

/* A contract about a tensor's shape. The first tensor with a name binds it; all later ones must agree:
 *
 *      tl_dims d = {0};
 *      if (!tl_expect(&d, x, "x", "batch seq (heads d) : f32|bf16 @cpu")) return NULL;
 *      if (!tl_expect(&d, w, "w", "d out")) return NULL;
 *      int64_t heads = tl_dim(&d, "heads"); // x has heads d, w has d
 *
 * The pattern is like one side of a rearrange, but a name may occur twice. _ is any size, "..." any number of axes. If
 * a group has several unknown sizes, its product is kept until later tensors bind the rest. After a colon: dtypes (or
 * float, integer), and a device; meta matches every device. A tensor that is refused binds nothing. */
TL_API bool tl_expect(tl_dims *dims, tl_tensor *x, const char *name, const char *pattern);

/* ---- Neural network ops ------------------------------------------------------------------------------------------ */

/* Along any axis; one that is not the last costs two copies. A scalar has axis 0. */
TL_API tl_tensor *tl_softmax(tl_tensor *x, int axis);
TL_API tl_tensor *tl_log_softmax(tl_tensor *x, int axis);

/* Over the last axis C; weight, bias (C) or NULL for both. */
TL_API tl_tensor *tl_layer_norm(tl_tensor *x, tl_tensor *weight, tl_tensor *bias, double eps);
TL_API tl_tensor *tl_rms_norm(tl_tensor *x, tl_tensor *weight, double eps);
/* *sum = x + residual; returns the norm of the sum over the last axis. x and residual have one shape and dtype. The
 * gradients of both results are combined in one pass. */
TL_API tl_tensor *tl_add_layer_norm(tl_tensor *x, tl_tensor *residual, tl_tensor *weight, tl_tensor *bias, double eps,
                                    tl_tensor **sum);
TL_API tl_tensor *tl_add_rms_norm(tl_tensor *x, tl_tensor *residual, tl_tensor *weight, double eps, tl_tensor **sum);

/* Rows of weight (V,C) by ids (...): (...,C). ids i64 or i32, each in [0, V). */
TL_API tl_tensor *tl_embedding(tl_tensor *weight, tl_tensor *ids);
/* Zeroes each element with probability p and scales the rest by 1/(1-p). Each is decided by 16 bits: the share that is
 * kept is 1-p to the nearest multiple of 2^-16. */
TL_API tl_tensor *tl_dropout(tl_tensor *x, double p);
TL_API tl_tensor *tl_swiglu(tl_tensor *gate, tl_tensor *up); /* silu(gate) * up */

/* Rotary positions on x (B,T,H,D), D even, rotating halves (GPT-NeoX, Llama): position = first_position + t.
 * `scaling` (may be NULL) stretches the context by slower rotation. With original_context 0, every frequency is
 * divided by factor. Otherwise Llama 3's rule: pairs that turn more than high_frequency times within the original
 * context keep their frequency, those that turn less than low_frequency times are divided by factor, and the rest is
 * interpolated. factor 0 or 1: no scaling. `rule` TL_ROPE_YARN: YaRN's rule, which interpolates between the pairs
 * that turn high_frequency and low_frequency times within the original context (its beta_fast and beta_slow) by the
 * pair's number, of which these two are rounded outwards; TL_ROPE_YARN_EXACT: not rounded. TL_ROPE_DYNAMIC:
 * frequencies change only behind the context, which positions here do not exceed: no scaling. TL_ROPE_LIST: the
 * frequency of each pair is divided by its own number in `slower`, of which there are at most 64; factor must not be 0
 * or 1. */
typedef enum tl_rope_rule {
    TL_ROPE_BY_CONTEXT,
    TL_ROPE_DYNAMIC,
    TL_ROPE_YARN,
    TL_ROPE_YARN_EXACT,
    TL_ROPE_LIST
} tl_rope_rule;
typedef struct tl_rope_scaling {
    double factor, low_frequency, high_frequency;
    int64_t original_context;
    int64_t rule;     /* a tl_rope_rule */
    int64_t size;     /* the first channels of a head, an even number of them, turn, and the others stay; 0: all turn */
    double magnitude; /* of what is turned; 0: 1 */
    float slower[64]; /* TL_ROPE_LIST: of each pair */
} tl_rope_scaling;
TL_API tl_tensor *tl_rope(tl_tensor *x, double base, int64_t first_position, const tl_rope_scaling *scaling);
/* The same with a position for each token: positions is i64 or i32 and broadcasts to (B,T). The same bits. */
TL_API tl_tensor *tl_rope_at(tl_tensor *x, double base, tl_tensor *positions, const tl_rope_scaling *scaling);

/* softmax(scale q k^T + mask) v: q (B,T,H,D), k and v (B,S,Hkv,D), H a multiple of Hkv -> (B,T,H,D). The T x S scores
 * are never stored. Any strides with a dense last axis. */
typedef struct tl_attention_options {
    double scale;    /* 0: 1/sqrt(D) */
    bool causal;     /* query t sees keys 0 .. S-T+t */
    int64_t window;  /* query t sees only keys s with |s - (S-T+t)| < window, and if causal none after it: the last
                      * `window` keys, or window - 1 to either side (FlashAttention's window_size is window - 1).
                      * 0: all */
    tl_tensor *mask; /* NULL, or a tensor that broadcasts to (B,H,T,S), of any strides: bool, true where the query sees
                      * the key, or a float that is added to the scaled score. The gradient of the mask, if it needs
                      * one, is made as (B,H,T,S) and then summed to the mask's shape: the one case with T x S
                      * numbers */
    double dropout;  /* 0: none. Otherwise each weight becomes 0 with this probability after the softmax, and the others
                      * are divided by 1 - dropout. The mask is not stored: backward computes it again. It is what
                      * tl_dropout keeps of ones (B, H, T, S rounded up to a multiple of 8), and moves the generator as
                      * far. The same on every device */
    tl_tensor *first_key; /* NULL, or i64 or i32 that broadcasts to (B,T): query t of row b sees no key before
                           * first_key[b][t]. For rows that hold several documents: the place where the query's document
                           * begins. Along T it must not decrease; the cpu checks this. It hides what a bool mask
                           * would, in less time: kernels skip the keys before. FLOPs are billed as without it */
    double soft_cap; /* 0: none. Otherwise a scaled score s becomes c tanh(s / c), between -c and c, before a mask is
                      * added */
} tl_attention_options;
/* Not causal, no window, no mask, no dropout, no first_key, no soft cap. */
TL_API tl_attention_options tl_attention_defaults(void);
/* The usual options of a language model: tl_attention(q, k, v, TL_CAUSAL, NULL). */
#ifdef __cplusplus
#define TL_CAUSAL TL_VALUES_OF(tl_attention_options, tl_attention_options{0, true, 0, nullptr, 0, nullptr, 0})
#else
#define TL_CAUSAL (&(const tl_attention_options){.causal = true})
#endif
/* lse (may be NULL) receives the log of the sum of exp of each query's scores: (B,H,T) f32 (f64 for f64),
 * differentiable, and not affected by dropout. A query that sees no key has the result 0 and lse -inf. On cuda, masks
 * and the gradient with first_key use slower kernels. */
TL_API tl_tensor *tl_attention(tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_attention_options *options,
                               tl_tensor **lse);

/* ---- Losses ------------------------------------------------------------------------------------------------------ */

/* How the losses of elements or rows become one number. */
typedef enum tl_reduction { TL_REDUCE_NONE, TL_REDUCE_MEAN, TL_REDUCE_SUM } tl_reduction;

/* weight: one per class (V), or NULL for 1. Rows with target ignore_index are left out, also of the mean, which is
 * weighted: sum of w[target] loss / sum of w[target]. label_smoothing e: the target is 1 - e, plus e/V for each
 * class. */
#define TL_IGNORE_NONE INT64_MIN
typedef struct tl_cross_entropy_options {
    tl_tensor *weight;
    int64_t ignore_index; /* TL_IGNORE_NONE: every row counts. PyTorch's default is -100 */
    double label_smoothing;
    tl_reduction reduction;
    bool is_narrow; /* the loss has the logits' dtype */
} tl_cross_entropy_options;
TL_API tl_cross_entropy_options tl_cross_entropy_defaults(void); /* no weight, TL_IGNORE_NONE, 0, mean, f32 */
/* -log softmax(logits)[target]. logits (V), (N,V) or (N,V,d1,...); targets are ids (), (N) or (N,d1,...), i64 or
 * i32, or probabilities of the logits' shape, floats, for which ignore_index has no meaning and the mean is over
 * rows. TL_REDUCE_NONE gives the shape of the ids. The loss is f32 (f64 for f64 logits) unless it is to be narrow.
 * Classes that are not the last axis cost a copy. */
TL_API tl_tensor *tl_cross_entropy(tl_tensor *logits, tl_tensor *targets, const tl_cross_entropy_options *options);
/* The same from log probabilities and ids, in x's dtype: -x[n][target[n]]. label_smoothing must be 0. */
TL_API tl_tensor *tl_nll_loss(tl_tensor *x, tl_tensor *targets, const tl_cross_entropy_options *options);

/* Cross entropy of the logits x weight^T, which are never stored as a whole: x (N,C), weight (V,C), targets (N) i64 or
 * i32 -> a scalar, f32 (f64 for f64 x). Rows are processed in chunks of at most 64 MiB of f32 logits (on cuda 512 MiB,
 * in x's dtype; at least one row). If a gradient will be needed (recording is on and x or weight needs it), the same
 * loop computes the gradients, bills them to backward, and holds them until backward scales them. Rows with target
 * ignore_index are left out; the mean over no rows is NaN. It has no second derivative. A selective checkpoint
 * recomputes it. */
typedef struct tl_linear_cross_entropy_options {
    int64_t ignore_index;
    bool is_sum;     /* the sum over rows instead of the mean */
    double soft_cap; /* 0: none. Otherwise a logit z becomes c tanh(z / c), between -c and c */
    double label_smoothing; /* e: the target is 1 - e, plus e/V for each class */
    double z_loss;          /* adds z_loss times the square of log sum exp of a row's logits, which keeps them near 0 */
} tl_linear_cross_entropy_options;
/* ignore_index -100, mean, no soft cap, smoothing or z loss */
TL_API tl_linear_cross_entropy_options tl_linear_cross_entropy_defaults(void);
TL_API tl_tensor *tl_linear_cross_entropy(tl_tensor *x, tl_tensor *weight, tl_tensor *targets,
                                          const tl_linear_cross_entropy_options *options);

/* Losses of elements; prediction and target broadcast. */
TL_API tl_tensor *tl_mse_loss(tl_tensor *prediction, tl_tensor *target, tl_reduction reduction);
TL_API tl_tensor *tl_l1_loss(tl_tensor *prediction, tl_tensor *target, tl_reduction reduction);
/* d^2 / 2 beta where |d| < beta, else |d| - beta/2. beta 0 is tl_l1_loss. */
TL_API tl_tensor *tl_smooth_l1_loss(tl_tensor *prediction, tl_tensor *target, double beta, tl_reduction reduction);
/* -t log sigmoid(x) - (1-t) log(1 - sigmoid(x)), x and t of one shape. pos_weight (broadcasts to x; NULL: 1) multiplies
 * the first term, weight (likewise) the whole. */
TL_API tl_tensor *tl_bce_with_logits(tl_tensor *x, tl_tensor *target, tl_tensor *weight, tl_tensor *pos_weight,
                                     tl_reduction reduction);

/* ---- Block-scaled formats ---------------------------------------------------------------------------------------- */

/* Narrow values, with one scale for each block of consecutive elements of the last axis. */
typedef enum tl_format {
    TL_MXFP8_E4M3,
    TL_MXFP8_E5M2, /* f8 values, one f8e8m0 scale per 32: 8.25 bits per element */
    TL_MXFP4,      /* f4e2m1 values, one f8e8m0 scale per 32: 4.25 bits */
    TL_NVFP4,      /* f4e2m1 values, one f8e4m3 scale per 16, one f32 per tensor: 4.5 bits */
    TL_NF4,        /* codes of 16 quantiles of the normal distribution, two in a u8, one f32 scale per 64: 4.5 bits */
    TL_FORMAT_COUNT
} tl_format;
typedef struct tl_quantized {
    tl_format format;
    tl_tensor *values, *scales, *tensor_scale; /* (...,C), NF4 (...,C/2); (...,C/block); () or NULL; of the scope */
} tl_quantized;
TL_API const char *tl_format_name(tl_format format); /* "mxfp4"; "?" if it is not a format */
TL_API int tl_format_block(tl_format format);        /* 32, 16 or 64 */
/* x (...,C), a float; C a multiple of the block. Scales follow the OCP MX rule, 2^(floor(log2 amax) - emax). In
 * NVFP4 the tensor's scale is amax / (448 x 6), and a block's scale is its amax / 6 divided by that. Values saturate
 * in every mode; TL_STOCHASTIC takes one word of the generator per element. NF4's scale is amax, a code's value the
 * nearest to x / amax; it is rounded to nearest only, and packed as in bitsandbytes. A block with an infinity or a
 * NaN becomes all NaN (its scale is NaN) and does not affect other blocks. No gradient flows. docs/dtypes.md has
 * error bounds. */
TL_API bool tl_quantize(tl_tensor *x, tl_format format, tl_rounding mode, tl_quantized *quantized);
/* value x scale, rounded once to dtype (a float that is not for storage only). */
TL_API tl_tensor *tl_dequantize(const tl_quantized *quantized, tl_dtype dtype);
/* tl_quantize and tl_dequantize in one pass, in x's dtype, with the same bits and the same random words; for training
 * with narrow weights and activations. The gradient passes straight through, also for values that saturated. */
TL_API tl_tensor *tl_fake_quantize(tl_tensor *x, tl_format format, tl_rounding mode);

/* ---- Gradients --------------------------------------------------------------------------------------------------- */

/* Turns recording on or off in this thread. Initially on. */
TL_API bool tl_set_grad_mode(bool on);
TL_API tl_tensor *tl_requires_grad(tl_tensor *x, bool on); /* makes x a leaf whose .grad backward fills; returns x */
TL_API bool tl_needs_grad(const tl_tensor *x);
TL_API bool tl_is_leaf(const tl_tensor *x);
/* The recorded graph, for reading: the step that made x, or NULL for a leaf; the name of a step's op; its inputs, each
 * of which another step made (tl_graph_input) or is a leaf that gets a gradient (tl_graph_leaf), NULL if neither. All
 * of it is valid as long as x is. */
TL_API const void *tl_graph_step(const tl_tensor *x);
TL_API const char *tl_graph_name(const void *step);
TL_API int tl_graph_inputs(const void *step);
TL_API const void *tl_graph_input(const void *step, int i);
TL_API tl_tensor *tl_graph_leaf(const void *step, int i);
TL_API tl_tensor *tl_retain_grad(tl_tensor *x); /* also fills .grad of this result; returns x */
TL_API tl_tensor *tl_grad_of(tl_tensor *x);     /* the gradient, held by x; NULL if there is none */
/* Sets the gradient (x's shape; NULL frees it). Later backward passes add to it. */
TL_API bool tl_set_grad(tl_tensor *x, tl_tensor *grad);
TL_API void tl_zero_grad(tl_tensor *x, bool keep); /* keep: fills it with zeros; otherwise frees it */

typedef enum tl_backward_flags {
    TL_RETAIN_GRAPH = 1, /* keep the graph for another pass; without it a second pass works only if nothing was saved */
    TL_CREATE_GRAPH = 2  /* record the backward pass too, for higher derivatives; implies retain. With tl_backward, a
                          * leaf and its .grad then hold each other until tl_zero_grad(leaf, false). All ops with a
                          * gradient have higher ones, except attention and linear_cross_entropy, which fail. Norms,
                          * swiglu, softmax and cross entropy then run as several ops instead of one fused op. */
} tl_backward_flags;

/* Adds d loss / d leaf to the .grad of every leaf. `seed` is the gradient of the loss, NULL for 1 (one element). */
TL_API bool tl_backward(tl_tensor *loss, tl_tensor *seed, unsigned flags);
/* Returns the gradients instead: grads[i] = d output / d inputs[i], NULL if there is no path. */
TL_API bool tl_gradients(tl_tensor *output, tl_tensor *seed, tl_tensor **inputs, int n_inputs, unsigned flags,
                         tl_tensor **grads);

/* Calls `hook` during a backward pass as soon as a leaf's gradient is complete. One hook per leaf; NULL removes it.
 * release(context), if given, is called once: when the hook is replaced or removed, when the leaf is freed, or before
 * this function returns an error. */
typedef void (*tl_grad_hook)(tl_tensor *leaf, tl_tensor *grad, void *context);
TL_API bool tl_set_grad_hook(tl_tensor *leaf, tl_grad_hook hook, void *context, void (*release)(void *context));

/* ---- Activation checkpointing ------------------------------------------------------------------------------------ */

/* Runs outputs = fn(inputs) without keeping intermediate results; backward runs fn again. fn must depend only on its
 * inputs, on parameters, and on random numbers (their state is restored). It returns false on error. Gradients are
 * bitwise equal to those of calling fn directly. Checkpoints nest. 0 to 16 inputs. If context_bytes > 0, that much of
 * the context is copied; if 0, the pointer is kept and must stay valid as long as the graph. */
typedef bool (*tl_checkpoint_fn)(void *context, tl_tensor **inputs, int n_inputs, tl_tensor **outputs, int n_outputs);
typedef enum tl_checkpoint_keep {
    TL_KEEP_INPUTS, /* recompute everything inside */
    TL_KEEP_MATMULS /* keep the results of matmul and attention, recompute the rest */
} tl_checkpoint_keep;
TL_API bool tl_checkpoint(tl_checkpoint_fn fn, void *context, size_t context_bytes, tl_checkpoint_keep keep,
                          tl_tensor **inputs, int n_inputs, tl_tensor **outputs, int n_outputs);

/* x = layer(context, l, x) for l = 0 .. n_layers-1 under a checkpoint policy. */
typedef tl_tensor *(*tl_layer_fn)(void *context, int layer, tl_tensor *x);
typedef enum tl_checkpoint_policy {
    TL_CHECKPOINT_NONE,
    TL_CHECKPOINT_EVERY_K,  /* groups of k layers */
    TL_CHECKPOINT_SQRT,     /* groups of ceil(sqrt(L)) */
    TL_CHECKPOINT_FULL,     /* every layer: only block inputs are kept */
    TL_CHECKPOINT_NOTHING,  /* everything is recomputed from the first input: O(L^2) time, O(1) activations */
    TL_CHECKPOINT_SELECTIVE /* every layer, keeping matmul and attention results */
} tl_checkpoint_policy;
TL_API tl_tensor *tl_checkpoint_layers(tl_layer_fn layer, void *context, int n_layers, tl_checkpoint_policy policy,
                                       int k, tl_tensor *x);

/* ---- Mixed precision --------------------------------------------------------------------------------------------- */

/* Autocast for this thread. Products (tl_matmul, tl_linear, tl_grouped_matmul, tl_attention,
 * tl_linear_cross_entropy) cast f32, f16 and bf16 operands to `dtype`. These ops cast f16 and bf16 operands to f32:
 * softmax, log_softmax, layer_norm, rms_norm, losses, sum, prod, cumsum, cumprod, norm, logsumexp, exp, expm1, log,
 * log1p, log2, rsqrt, softplus. In-place ops and all others run in the dtypes they are given. The casts are ordinary
 * ops, recorded and billed. Backward runs without autocast; a checkpoint is recomputed under the autocast it ran
 * with. dtype: TL_BF16, TL_F16, TL_F32, or TL_DTYPE_COUNT for off, the initial state. */
TL_API tl_dtype tl_set_autocast(tl_dtype dtype);

/* The loss scale of f16 training. Multiply the loss by `scale`, and pass `scale` to tl_clip_scale as the divisor: a
 * step whose gradients overflowed then changes nothing. Keep the norm and the scale of the step, and report them one
 * step later, when reading the norm does not wait for the device. The scaler lowers the scale after an overflow and
 * raises it after growth_interval steps without one. It is plain data: save it in a checkpoint as it is. */
typedef struct tl_scaler {
    double scale, growth, backoff, max_scale;
    int64_t growth_interval;
    int64_t n_good, n_skipped; /* good steps since the scale changed or a step was skipped; all skipped steps */
} tl_scaler;
TL_API tl_scaler tl_scaler_defaults(void); /* 65536, times 2 after 2000 good steps up to 2^24, times 0.5 down to 1 */
/* Reports the norm of a step whose loss was multiplied by `scale`. Returns whether the step changed the parameters. A
 * report about another scale than the current one does not change it. */
TL_API bool tl_scaler_update(tl_scaler *scaler, double norm, double scale);

/* ---- Optimizers -------------------------------------------------------------------------------------------------- */

/* An optimizer steps many parameters together, each with its own settings. It creates its state (zeros; master
 * copies and schedule-free's z start as the parameter's values) when a parameter is added, so a step allocates
 * nothing. Moments, sums and buffers count as TL_OPTIMIZER, master copies as TL_PARAMETER. */
typedef enum tl_optimizer_kind {
    TL_SGD,
    TL_ADAGRAD,
    TL_RMSPROP,
    TL_ADAM,
    TL_ADAMW,
    TL_LION,
    TL_MUON,
    TL_SCHEDULE_FREE,
    TL_ADAFACTOR,
    TL_OPTIMIZER_KIND_COUNT
} tl_optimizer_kind;
TL_API const char *tl_optimizer_kind_name(tl_optimizer_kind kind); /* "adamw"; NULL if it is not a kind */
typedef struct tl_optimizer_options {
    double lr, beta1, beta2, eps, weight_decay, momentum, dampening, alpha, lr_decay; /* each kind reads its own */
    bool nesterov, centered, amsgrad;
    bool has_master, stochastic; /* for parameters narrower than f32; no effect on others: see tl_update_options */
    /* TL_MUON: see tl_muon_options. A parameter that is no matrix, or says `adamw`, takes AdamW's step in its place. */
    int ns_steps;
    bool matches_adamw, adamw;
    /* Adam, AdamW: bits of a moment. 0 or 32: f32. 16: bf16. 8: codes in blocks (tl_adam_8bit_), for parameters of 4096
     * elements or more; smaller ones have f32. No effect on f64 parameters. */
    int moment_bits;
    double ema; /* decay of a moving average of the parameter, in f32 (f64): see tl_optimizer_average; 0: none */
    double beta2_decay, eps2, d; /* TL_ADAFACTOR, whose eps1 is `eps`: see tl_adafactor_options */
} tl_optimizer_options;
TL_API tl_optimizer_options tl_optimizer_defaults(tl_optimizer_kind kind); /* torch.optim's; the papers' of others */

typedef struct tl_optimizer tl_optimizer;
TL_API tl_optimizer *tl_optimizer_new(tl_optimizer_kind kind);
TL_API void tl_optimizer_free(tl_optimizer *optimizer);
/* Adds a parameter and holds it; names are unique. If the parameter is replaced later (tl_module_to), the optimizer
 * does not follow. On failure the optimizer is unchanged. */
TL_API bool tl_optimizer_add(tl_optimizer *optimizer, const char *name, tl_tensor *parameter,
                             const tl_optimizer_options *options);
/* Makes one step with lr_factor times each lr, from the .grad of each parameter, which stays; parameters without a
 * gradient are skipped. Parameters with equal options, dtype and device share an op call, up to TL_MAX_INPUTS tensors,
 * in the order of adding; random words go to the options that were added first. grad_scale: see tl_update_options. All
 * parameters share one step count, from which Adam's bias correction follows; a step that a non-finite grad_scale
 * skipped counts too, because the host does not know of it. */
TL_API bool tl_optimizer_step(tl_optimizer *optimizer, double lr_factor, tl_tensor *grad_scale);
TL_API int64_t tl_optimizer_steps(const tl_optimizer *optimizer); /* made so far */
/* Puts the averages of parameters that have one into the parameters, for an evaluation; false: puts back what they
 * were, bit for bit. In between the optimizer keeps a copy of them, and makes no step. After step 1 the average is the
 * parameter (its master copy, where it has one); later ema' = ema + (1 - decay) (p - ema). The parameters of
 * TL_SCHEDULE_FREE have the average x of their optimizer. */
TL_API bool tl_optimizer_average(tl_optimizer *optimizer, bool is_averaged);
/* TL_SCHEDULE_FREE: what a checkpoint needs beside the steps: the largest lr_factor so far, and the sum of the squares
 * of what it was in each step. */
typedef struct tl_optimizer_weights {
    double largest, sum;
} tl_optimizer_weights;
TL_API tl_optimizer_weights tl_optimizer_get_weights(const tl_optimizer *optimizer);
TL_API void tl_optimizer_set_weights(tl_optimizer *optimizer, tl_optimizer_weights weights);
TL_API void tl_optimizer_set_steps(tl_optimizer *optimizer, int64_t n_steps);

/* The norm of all .grad together, on their device, an f32 scalar (f64 if a gradient is f64). Parameters without .grad
 * do not count. Billed to the update phase. */
TL_API tl_tensor *tl_grad_norm(tl_tensor **parameters, int n);
/* The factor for gradients (grad_scale below) that are `divisor` times too large (a loss scale, a number of
 * micro-batches) and have norm `norm`: min(1, max_norm / (norm/divisor + 1e-6)) / divisor, an f32 scalar on the device,
 * with the 1e-6 of PyTorch's clip_grad_norm_; NaN if norm is not finite. An infinite max_norm does not clip. */
TL_API tl_tensor *tl_clip_scale(tl_tensor *norm, double max_norm, double divisor);

/* The learning rate as a share of its peak; steps count from 0. Warm-up: (step+1) / (warmup_steps+1). Then: constant;
 * linear or cosine decay to min_factor at total_steps; 1 until the last decay_steps, which decay linearly (wsd); or
 * sqrt(warmup_steps / step), at least min_factor (inverse-sqrt). */
typedef enum tl_schedule_kind {
    TL_SCHEDULE_CONSTANT,
    TL_SCHEDULE_LINEAR,
    TL_SCHEDULE_COSINE,
    TL_SCHEDULE_WSD,
    TL_SCHEDULE_INVERSE_SQRT,
    TL_SCHEDULE_KIND_COUNT
} tl_schedule_kind;
typedef struct tl_schedule {
    tl_schedule_kind kind;
    int64_t warmup_steps, total_steps, decay_steps;
    double min_factor;
} tl_schedule;
TL_API const char *tl_schedule_kind_name(tl_schedule_kind kind); /* "cosine"; NULL if it is not a kind */
TL_API bool tl_schedule_check(const tl_schedule *schedule);      /* false: the error says what is wrong */
TL_API double tl_schedule_factor(const tl_schedule *schedule, int64_t step);

/* One step of one parameter, as torch.optim defines it (maximize off): in place, one pass, billed to the update phase.
 * State tensors have the parameter's shape and are f32 (f64 for f64 parameters); they start as zeros unless noted.
 * Steps count from 1. All take these options, the first two for parameters narrower than f32:
 * master      an f32 copy: the step updates it, and the parameter becomes its rounded value. NULL: none.
 * stochastic  rounds the parameter up or down at random, so that it is right on average; takes one word of the
 *             generator per element, rounded up to a multiple of four. f32 and f64 parameters are not rounded and
 *             take no words.
 * grad_scale  one f32 number on the parameter's device that multiplies the gradient inside the step (tl_clip_scale).
 *             If it is not finite, the step changes no bit of parameter, state and master: clipping, unscaling and the
 *             overflow check need no answer from the device. NULL: 1.
 * While an error is pending no step is made: a NULL argument may be the result of the failed call. */
typedef struct tl_update_options {
    tl_tensor *master;
    bool stochastic;
    tl_tensor *grad_scale;
} tl_update_options;

typedef struct tl_sgd_options {
    double lr, momentum, dampening, weight_decay;
    bool nesterov;
    int64_t step; /* needed only with momentum */
    tl_update_options update;
} tl_sgd_options;
TL_API tl_sgd_options tl_sgd_defaults(void); /* lr 1e-3, everything else 0, step 1 */
/* g += weight_decay p; buffer = g in step 1, then momentum buffer + (1 - dampening) g; p -= lr buffer, or with nesterov
 * lr (g + momentum buffer). buffer: NULL exactly if momentum is 0. */
TL_API bool tl_sgd_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *buffer, const tl_sgd_options *options);

typedef struct tl_adagrad_options {
    double lr, lr_decay, weight_decay, eps;
    int64_t step;
    tl_update_options update;
} tl_adagrad_options;
TL_API tl_adagrad_options tl_adagrad_defaults(void); /* lr 1e-2, eps 1e-10, everything else 0, step 1 */
/* g += weight_decay p; sum += g^2; p -= lr / (1 + (step-1) lr_decay) g / (sqrt(sum) + eps). sum starts as the initial
 * accumulator. */
TL_API bool tl_adagrad_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *sum, const tl_adagrad_options *options);

typedef struct tl_rmsprop_options {
    double lr, alpha, eps, weight_decay, momentum;
    bool centered;
    tl_update_options update;
} tl_rmsprop_options;
TL_API tl_rmsprop_options tl_rmsprop_defaults(void); /* lr 1e-2, alpha 0.99, eps 1e-8, everything else 0 */
/* g += weight_decay p; square = alpha square + (1-alpha) g^2; centered: mean = alpha mean + (1-alpha) g;
 * d = g / (sqrt(square [- mean^2]) + eps); with momentum d = buffer = momentum buffer + d; p -= lr d.
 * mean: NULL unless centered. buffer: NULL exactly if momentum is 0. */
TL_API bool tl_rmsprop_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *square, tl_tensor *mean, tl_tensor *buffer,
                        const tl_rmsprop_options *options);

typedef struct tl_adam_options {
    double lr, beta1, beta2, eps, weight_decay;
    bool decoupled; /* AdamW: p *= 1 - lr weight_decay instead of g += weight_decay p */
    int64_t step;
    tl_update_options update;
} tl_adam_options;
TL_API tl_adam_options tl_adam_defaults(void); /* lr 1e-3, betas 0.9 and 0.999, eps 1e-8, no decay, step 1 */
/* m, v and max may be bf16 for parameters that are not f64: the step computes in f32 and rounds them to nearest.
 * m = beta1 m + (1-beta1) g; v = beta2 v + (1-beta2) g^2; p -= lr/(1-beta1^step) m / (sqrt(v)/sqrt(1-beta2^step) +
 * eps). max (amsgrad; NULL: off): max = max(max, v) takes v's place in the step. */
TL_API bool tl_adam_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *m, tl_tensor *v, tl_tensor *max,
                     const tl_adam_options *options);

/* Adam's step with moments of 8 bits: m and v, u8 and dense, are codes of the dynamic map of Dettmers et al. (2022; as
 * in bitsandbytes and torchao), with a sign and without; m_scale and v_scale, f32 and dense, have the largest magnitude
 * of each 256 elements in row-major order, (elements + 255) / 256 of them. Zeros everywhere are moments of 0. The step
 * has the moments before they are rounded. Parameters are not f64. */
TL_API bool tl_adam_8bit_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *m, tl_tensor *v, tl_tensor *m_scale,
                          tl_tensor *v_scale, const tl_adam_options *options);

typedef struct tl_lion_options {
    double lr, beta1, beta2, weight_decay;
    tl_update_options update;
} tl_lion_options;
TL_API tl_lion_options tl_lion_defaults(void); /* lr 1e-4, betas 0.9 and 0.99, no decay */
/* p = p (1 - lr weight_decay) - lr sign(beta1 m + (1-beta1) g); then m = beta2 m + (1-beta2) g. */
TL_API bool tl_lion_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *m, const tl_lion_options *options);

/* Muon, for matrices: momentum, whose singular values are then brought near 1 by ns_steps Newton-Schulz iterations
 * X <- a X + (b A + c A A) X, A = X X^T (of the transpose if the matrix is taller than wide), from X / max(norm, eps).
 * The products are bf16 where the device multiplies bf16 numbers, otherwise f32 (f64 for f64 parameters). */
typedef struct tl_muon_options {
    double lr, momentum, weight_decay, eps, a, b, c;
    int ns_steps;
    bool nesterov;
    bool matches_adamw; /* lr times 0.2 sqrt(max(rows, columns)), updates as large as AdamW's; otherwise times
                         * sqrt(max(1, rows / columns)) */
    tl_update_options update;
} tl_muon_options;
/* lr 1e-3, momentum 0.95, decay 0.1, eps 1e-7, a, b, c 3.4445, -4.775, 2.0315, 5 steps, nesterov */
TL_API tl_muon_options tl_muon_defaults(void);
/* buffer += (1-momentum) (g - buffer); u = nesterov: g + momentum (buffer - g), or buffer; p = p (1 - lr
 * weight_decay) - lr' NewtonSchulz(u). */
TL_API bool tl_muon_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *buffer, const tl_muon_options *options);

/* Schedule-free AdamW (Defazio et al. 2024): steps are made by z, gradients are taken at the parameter y, and the
 * mean x of all z is the model; y = beta1 x + (1-beta1) z. x is not kept: it is y + (1 - 1/beta1) (z - y). */
typedef struct tl_schedule_free_options {
    double lr, beta1, beta2, eps, weight_decay;
    double share; /* of this step's z in x: lr^2 over the sum of all steps' lr^2, with the largest lr until each */
    int64_t step;
    tl_update_options update;
} tl_schedule_free_options;
/* lr 2.5e-3, betas 0.9 and 0.999, eps 1e-8, no decay, share 1, step 1 */
TL_API tl_schedule_free_options tl_schedule_free_defaults(void);
/* v = beta2 v + (1-beta2) g^2; d = g / (sqrt(v / (1-beta2^step)) + eps) + weight_decay y; y += share (z - y) + lr
 * (beta1 (1 - share) - 1) d; z -= lr d. z starts as the parameter. */
TL_API bool tl_schedule_free_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *z, tl_tensor *v,
                              const tl_schedule_free_options *options);

/* Adafactor, torch.optim.Adafactor's: of a tensor of rank 2 or more, the second moment is kept as its means over rows
 * and over columns, those of the last two axes. */
typedef struct tl_adafactor_options {
    double lr;          /* the largest relative step, and the rate of weight decay */
    double beta2_decay; /* 1 - beta2 = step^beta2_decay; 0 or less */
    double eps1;        /* 0: the epsilon of the parameter's dtype, or of its master copy's */
    double eps2, d, weight_decay;
    int64_t step;
    tl_update_options update;
} tl_adafactor_options;
TL_API tl_adafactor_options tl_adafactor_defaults(void); /* lr 1e-2, -0.8, eps 0 and 1e-3, d 1, no decay, step 1 */
/* row += step^beta2_decay (mean over columns of g^2 - row); column likewise with the mean over rows; v = row column
 * / max(mean of row, eps1). Below rank 2: variance += step^beta2_decay (g^2 - variance); v = variance. Then u = g /
 * max(sqrt(v), eps1) and p = p (1 - lr weight_decay) - min(lr, 1 / sqrt(step)) max(eps2, rms(p)) u / max(1, rms(u) /
 * d). row has the parameter's shape with 1 for its last axis, column with 1 for the one before; variance is NULL
 * exactly if they are not. If u is not finite, p stays as it is. */
TL_API bool tl_adafactor_(tl_tensor *parameter, tl_tensor *grad, tl_tensor *row, tl_tensor *column, tl_tensor *variance,
                          const tl_adafactor_options *options);

/* An exponential moving average: average += weight (x - average), exactly x with weight 1. Any float dtypes, of one
 * shape; billed to the update phase. */
TL_API bool tl_ema_(tl_tensor *average, tl_tensor *x, double weight);

/* ---- Several processes ------------------------------------------------------------------------------------------- */

/* A group of processes, and this process's rank in it. A launcher starts them (`mpirun -n 4 ./program`); a process that
 * was started alone is a group of one. Messages travel through MPI, which is a plugin: libtally_openmpi.so or
 * libtally_mpich.so, whichever the launcher belongs to; the environment variable TALLY_MPI names another.
 *
 * Collectives are ops. Every rank of the group calls them in the same order, with tensors of the same shape and dtype.
 * Their results do not depend on timing: sums are taken in the order of ranks. On meta nothing is sent; with
 * tl_comm_price one process can price each rank of a group. A group must exist as long as gradients through it. */
typedef struct tl_comm tl_comm;
TL_API tl_comm *tl_comm_world(void); /* all processes of the launch; never freed. NULL: recorded */
/* The ranks that give the same color, ordered by key. All ranks of the group call it. */
TL_API tl_comm *tl_comm_split(tl_comm *comm, int color, int key);
/* The n ranks of the group that are listed, in this order. All ranks of the group call it with the same list, also
 * those that are not in it: theirs has rank -1 and takes part in nothing. Of a group for a price it is one too. */
TL_API tl_comm *tl_comm_group(tl_comm *comm, const int *ranks, int n);
TL_API tl_comm *tl_comm_price(int rank, int size); /* no other ranks: for tensors on meta alone */
TL_API void tl_comm_free(tl_comm *comm);           /* NULL and tl_comm_world's are allowed */
TL_API int tl_comm_rank(const tl_comm *comm);
TL_API int tl_comm_size(const tl_comm *comm);
TL_API bool tl_comm_barrier(tl_comm *comm); /* returns when every rank has called it */
/* The host (machine or container) that a rank runs on. Hosts are numbered from 0 by their first rank in the world;
 * ranks of a price are on one. -1: there is no such rank. */
TL_API int tl_comm_host(const tl_comm *comm, int rank);
/* This process's number among the ranks of the group that share its host, and how many these are: which of a machine's
 * GPUs to take. */
TL_API int tl_comm_local_rank(const tl_comm *comm);
TL_API int tl_comm_local_size(const tl_comm *comm);
/* Processes of a launch watch each other. If one dies, if one waits for another for longer than the timeout, or if
 * they call different collectives, rank 0 says so in one line on stderr, and all end with exit status 7. Each rank has
 * a timeout, 600 s unless it is set: while a rank is in no collective, others wait for it for so long. A rank that will
 * be busy alone can set a longer one just for itself. Returns what it was; 0 changes nothing. Step: what is said of a
 * rank, -1 for nothing. See docs/processes.md. */
TL_API double tl_comm_set_timeout(double seconds);
TL_API void tl_comm_set_step(int64_t step);

/* n ranks. The sum over all ranks; any shape. */
TL_API tl_tensor *tl_all_reduce(tl_tensor *x, tl_comm *comm);
TL_API tl_tensor *tl_all_reduce_(tl_tensor *x, tl_comm *comm);
/* x (d,...) of every rank, one after another: (n d,...). */
TL_API tl_tensor *tl_all_gather(tl_tensor *x, tl_comm *comm);
/* x (n d,...): rank r receives the sum of all ranks' rows r d to (r+1) d - 1: (d,...). */
TL_API tl_tensor *tl_reduce_scatter(tl_tensor *x, tl_comm *comm);
/* x (n d,...): rows k d to (k+1) d - 1 of rank r become rows r d to (r+1) d - 1 of rank k. */
TL_API tl_tensor *tl_all_to_all(tl_tensor *x, tl_comm *comm);
/* x of rank `root`, on every rank. It has no gradient. */
TL_API tl_tensor *tl_broadcast(tl_tensor *x, int root, tl_comm *comm);

/* One tensor from one rank to another. The receiver names the shape and dtype, which must be the sender's; each call
 * returns when its own part is done, and a send may wait for the receiver. Two ranks that both send first wait for each
 * other, so an exchange is tl_send_recv. Neither call has a gradient: x may need one, and what is received does not. */
TL_API bool tl_send(tl_tensor *x, int to, tl_comm *comm);
TL_API tl_tensor *tl_recv(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device, int from, tl_comm *comm);
/* Sends x to one rank and, at once, receives a tensor of the same shape and dtype from another. Its gradient travels
 * the other way, so in a ring every rank calls backward as well. */
TL_API tl_tensor *tl_send_recv(tl_tensor *x, int to, int from, tl_comm *comm);

/* ---- Modules ----------------------------------------------------------------------------------------------------- */

/* A module is a node of a tree: its own named parameters and buffers, named children, and a forward function. Names are
 * PyTorch's, joined by dots ("transformer.h.0.attn.c_attn.weight"), so that weights can be exchanged. A module owns its
 * children: free only the root. Whoever makes the module creates its parameters, on a device and in a dtype of its
 * choice; tl_module_to and tl_module_cast may replace them later, so hold the module rather than its tensors. */
typedef struct tl_module tl_module;

/* A kind of module. forward: x -> result, given to the scope; NULL (and an error) on failure. A kind without forward
 * only holds others, like a list; tl_module_forward refuses it. describe (may be NULL) writes what the printed tree
 * shows in parentheses. */
typedef struct tl_module_kind {
    const char *name; /* "Linear" */
    tl_tensor *(*forward)(tl_module *module, tl_tensor *x);
    void (*describe)(const tl_module *module, char *text, size_t size);
    size_t state_bytes; /* plain data of each module, initially zero: tl_module_state */
} tl_module_kind;

/* `kind` must live as long as the module. */
TL_API tl_module *tl_module_new(const tl_module_kind *kind);
TL_API void tl_module_free(tl_module *module);
TL_API const tl_module_kind *tl_module_kind_of(const tl_module *module);
TL_API void *tl_module_state(tl_module *module);
/* Adds a child under a name (without dots). The parent owns it from then on; it is freed if this fails. Returns the
 * child, or NULL. */
TL_API tl_module *tl_module_add(tl_module *parent, const char *name, tl_module *child);
/* Adds a parameter, which becomes a leaf that requires a gradient (floats only), or a buffer, which does not. Both are
 * kept. NULL stands for one that is left out, such as a bias. Parameters and buffers share one numbering, in the order
 * of adding. */
TL_API bool tl_module_add_parameter(tl_module *module, const char *name, tl_tensor *x);
TL_API bool tl_module_add_buffer(tl_module *module, const char *name, tl_tensor *x);
/* Ties `path` (which may be left out so far) permanently to the parameter at `source`. */
TL_API bool tl_module_tie(tl_module *root, const char *path, const char *source);

TL_API tl_tensor *tl_module_tensor(const tl_module *module, int index); /* a module's own, by number; NULL: left out */
TL_API tl_module *tl_module_find(tl_module *module, const char *path);  /* "h.3.attn"; NULL if there is none */
TL_API tl_tensor *tl_module_find_tensor(tl_module *module, const char *path); /* "h.3.attn.c_attn.weight"; NULL: none */
TL_API int tl_module_children(const tl_module *module);
TL_API tl_module *tl_module_child(const tl_module *module, int index);
TL_API const char *tl_module_name(const tl_module *module); /* under its parent; "" for a root */

/* Which part of a parameter a process holds, if several share it (tl_model_new_parallel): of the axis `axis`, elements
 * from .. to - 1. The axis may consist of several equal blocks of `size` elements, each of which is divided by itself:
 * GPT-2's c_attn has three, for q, k and v. Ranks of the group hold the parts in their order; n_copies of them, one
 * after another, hold the same one. */
typedef struct tl_shard {
    int axis, n_copies;
    int64_t n_blocks, size, from, to;
    tl_comm *group;
} tl_shard;

/* All tensors of the tree in the order of adding, parents before children. A tied tensor occurs once, under its first
 * name. Valid until the tree changes; NULL on error. */
typedef struct tl_named_tensor {
    const char *name; /* its path from `module` */
    tl_tensor *tensor;
    bool is_buffer;
    tl_module *owner;
    const tl_shard *shard; /* what `tensor` is of the parameter; NULL: all of it */
} tl_named_tensor;
TL_API const tl_named_tensor *tl_module_list(tl_module *module, int *n);
TL_API int64_t tl_module_parameters(tl_module *module); /* how many numbers the parameters hold; -1 on error */

/* The state of an optimizer: "exp_avg.NAME", "exp_avg_sq.NAME", "max_exp_avg_sq.NAME", "momentum_buffer.NAME",
 * "square_avg.NAME", "grad_avg.NAME", "sum.NAME", "master.NAME". Together with the step count it is all that a
 * checkpoint needs. is_buffer is true, owner NULL. Valid until the next tl_optimizer_add; NULL on error. */
TL_API const tl_named_tensor *tl_optimizer_list(tl_optimizer *optimizer, int *n);

/* Runs forward in a scope with the module's name. The root's name is that of its kind unless tl_module_set_name gave it
 * another. */
TL_API tl_tensor *tl_module_forward(tl_module *module, tl_tensor *x);
TL_API bool tl_module_set_name(tl_module *root, const char *name);

/* For the whole tree. Modules start in training mode; dropout depends on it. A frozen parameter requires no gradient.
 * tl_module_to and tl_module_cast replace tensors (cast: floats only) and free their gradients. */
TL_API void tl_module_train(tl_module *module, bool on);
TL_API bool tl_module_is_training(const tl_module *module);
TL_API bool tl_module_freeze(tl_module *module, bool on);
TL_API bool tl_module_to(tl_module *module, tl_device *device);
TL_API bool tl_module_cast(tl_module *module, tl_dtype dtype);
TL_API void tl_module_zero_grad(tl_module *module, bool keep);
/* Writes the tree as PyTorch prints it to a buffer; returns the length of the whole text. */
TL_API size_t tl_module_print(tl_module *module, char *buffer, size_t size);

/* Layers, initialised as in PyTorch: Linear uniform in +-1/sqrt(in), Embedding normal(0,1), norms 1 and 0. `device`
 * NULL: the thread's default. NULL on error. */
TL_API tl_module *tl_nn_linear(int64_t in, int64_t out, bool bias, tl_dtype dtype, tl_device *device);
TL_API tl_module *tl_nn_embedding(int64_t n, int64_t channels, tl_dtype dtype, tl_device *device); /* takes ids */
TL_API tl_module *tl_nn_layer_norm(int64_t channels, double eps, bool bias, tl_dtype dtype, tl_device *device);
TL_API tl_module *tl_nn_rms_norm(int64_t channels, double eps, tl_dtype dtype, tl_device *device);
TL_API tl_module *tl_nn_dropout(double p);
TL_API tl_module *tl_nn_gelu(bool is_tanh);
TL_API tl_module *tl_nn_silu(void);
TL_API tl_module *tl_nn_sequential(void); /* runs its children in turn; add them as "0", "1", ... */
TL_API tl_module *tl_nn_list(void);       /* holds children; has no forward */
/* Patterns as modules, like the einops package's layers. A mistake in the pattern is found here, one that depends on
 * the tensor in forward. */
TL_API tl_module *tl_nn_rearrange(const char *pattern, const char *lengths);
TL_API tl_module *tl_nn_reduce(const char *pattern, const char *reduction, const char *lengths);
/* A linear layer by pattern: splits x's axes, contracts x with `weight`, whose axes weight_shape names, and merges the
 * axes of the result. Then it adds `bias` along the output axes that bias_shape names (NULL: none). Axes that are only
 * on the left are summed over. `lengths` has the size of every axis of weight and bias.
 *
 *      tl_nn_einmix("b t cin -> b t cout", "cin cout", "cout", "cin=64 cout=256", TL_F32, NULL)   // a Linear
 *      tl_nn_einmix("b t (h cin) -> b t (h cout)", "h cin cout", NULL, "h=8 cin=64 cout=64", TL_F32, NULL) // per head
 *      tl_nn_einmix("b t c -> b s c", "t s", "s c", "t=16 s=16 c=64", TL_F32, NULL)               // over time
 *
 * An ellipsis is on both sides or on neither, and outside parentheses on the left; the bias's axes come after it.
 * weight starts uniform in +-sqrt(3/fan_in) and bias in +-sqrt(1/fan_in), where fan_in is the product of weight's axes
 * that are not in the output. As in the package, bias has size 1 for every other output axis. */
TL_API tl_module *tl_nn_einmix(const char *pattern, const char *weight_shape, const char *bias_shape,
                               const char *lengths, tl_dtype dtype, tl_device *device);

/* Initialisers: in place, not recorded; they return x. fan_in and fan_out are x's second and first size, times the
 * rest; x needs two axes. */
typedef enum tl_fan { TL_FAN_IN, TL_FAN_OUT } tl_fan;
TL_API tl_tensor *tl_init_xavier_uniform_(tl_tensor *x, double gain); /* +-gain sqrt(6 / (fan_in + fan_out)) */
TL_API tl_tensor *tl_init_xavier_normal_(tl_tensor *x, double gain);  /* std gain sqrt(2 / (fan_in + fan_out)) */
TL_API tl_tensor *tl_init_kaiming_uniform_(tl_tensor *x, double slope, tl_fan fan); /* +-sqrt(6/((1+slope^2) fan)) */
TL_API tl_tensor *tl_init_kaiming_normal_(tl_tensor *x, double slope, tl_fan fan);  /* std sqrt(2/((1+slope^2) fan)) */

/* ---- Models ------------------------------------------------------------------------------------------------------ */

typedef enum tl_family {
    TL_GPT2,        /* learned positions, LayerNorm, GELU (tanh), biases, tied head */
    TL_LLAMA,       /* rotary positions, RMSNorm, SwiGLU, grouped heads; with qkv biases it is Qwen 2 */
    TL_DEEP_LINEAR, /* the teaching model: n_layers bias-free square linear layers and a head with one output */
    TL_MISTRAL,     /* Llama with a sliding window */
    TL_QWEN3,       /* Llama with norms of each head of q and k */
    TL_OLMO2,       /* Llama with norms behind sub-layers instead of before them, and of q and k as wholes */
    TL_GPT_NEOX,    /* LayerNorm, biases, GELU, attention and MLP side by side, a part of each head turns: Pythia */
    TL_NEMOTRON,    /* LayerNorm, squared ReLU without a gate, a part of each head turns */
    TL_PHI3,        /* Llama with one matrix for q, k and v, and one for gate and up */
    TL_GPT_BIGCODE, /* GPT-2 with one head of keys and values: StarCoder */
    TL_GEMMA,       /* Llama with a gate of GELU, scaled embeddings, and norms whose weight is stored less 1 */
    TL_GEMMA3,      /* Gemma with norms on both sides of sub-layers and of q and k, and windows in most layers */
    TL_MIXTRAL,     /* Mistral with experts in place of the MLP */
    TL_QWEN3_MOE,   /* Qwen 3 with experts in place of the MLP */
    TL_OLMOE,       /* Llama with norms of q and k as wholes, and experts in place of the MLP */
    TL_GPT_OSS,     /* sinks in attention, windows in every other layer, experts with biases and clamped gates */
    TL_GEMMA2,      /* Gemma with norms on both sides of sub-layers, soft caps, and windows in every other layer */
    TL_SMOLLM3,     /* Llama whose every 4th layer has no positions */
    TL_FALCON,      /* LayerNorm, packed q, k and v, GELU without a gate, attention beside the MLP, or ALiBi */
    TL_DEEPSEEK_V2, /* keys and values by way of a narrow latent, experts of which some are for all tokens */
    TL_DEEPSEEK_V3, /* the same, whose router has sigmoids and a bias */
    TL_LLAMA4,      /* Llama with attention in chunks, a shared expert, and one other for each token */
    TL_FAMILY_COUNT
} tl_family;

/* Where a model's tokens get their positions from. */
typedef enum tl_positions {
    TL_POSITIONS_OWN,    /* of the family: learned in GPT-2, rotary in most others */
    TL_POSITIONS_ROTARY, /* GPT-2: queries and keys turn */
    TL_POSITIONS_ALIBI,  /* GPT-2, Falcon: a score falls with the distance to its key, by a slope of its head */
    TL_POSITIONS_NONE    /* GPT-2: only the causal mask tells tokens apart */
} tl_positions;

/* The sizes of a model. Deep linear uses only n_layers and channels. */
typedef struct tl_model_config {
    tl_family family;
    int64_t n_layers, n_heads, n_kv_heads, head_size, channels, ff, vocabulary, context;
    double norm_eps, rope_base, dropout, init_std;
    bool is_tied, has_qkv_bias; /* the head is the embedding; biases of q, k and v */
    tl_rope_scaling rope_scaling;
    bool has_out_bias, has_mlp_bias; /* of attention's last layer; of the MLP */
    /* A query sees its last `window` keys; 0: all. Only in layers from window_from on, and of these not in every
     * window_every-th of the model; 0: in all. */
    int64_t window, window_from, window_every;
    double window_rope_base; /* of layers with a window, whose rope is not scaled; 0: as in the others */
    double query_scale;      /* scores are divided by its root; 0: the size of a head */
    bool is_parallel;        /* attention and the MLP read the same, and both results are added to it */
    /* A mixture of experts: n_experts MLPs of width expert_ff (0: ff), of which each token takes the n_chosen that its
     * router finds most probable. Their results are weighted by these probabilities, divided by their sum if
     * is_choice_normed. n_experts 0: one MLP for all tokens. */
    int64_t n_experts, n_chosen, expert_ff;
    bool is_choice_normed;
    double gate_limit; /* GPT-OSS: experts' gates are at most this, and what they gate is within +- of it */
    /* A score or logit x becomes c tanh(x / c), between -c and c; 0: it stays. */
    double attention_soft_cap, logit_soft_cap;
    int64_t plain_every; /* every plain_every-th layer has no rotary positions; 0: all have them */
    int64_t positions;   /* a tl_positions */
    bool has_two_norms;  /* Falcon: attention and the MLP beside it have a norm each */
    /* Experts are only in layers from expert_from on, and of these in every expert_every-th of the model (0: in all);
     * the others have an MLP of width ff. n_shared more experts, as one MLP, are for all tokens. Of n_groups groups of
     * experts (0: none), a token chooses only in n_groups_chosen. Weights are multiplied by routed_scale (0: 1). */
    int64_t expert_from, expert_every, n_shared, n_groups, n_groups_chosen;
    double routed_scale;
    /* Latent attention (kv_rank > 0): keys and values of all heads are made from kv_rank numbers for each token, and
     * queries from q_rank (0: from the token itself). The last rope_head channels of a head turn, and all heads
     * share those of the key. Values have value_head channels. Under yarn, scores grow by (0.1 score_yarn
     * log(factor) + 1)^2. */
    int64_t q_rank, kv_rank, rope_head, value_head;
    double score_yarn;
    /* Llama 4: in layers with positions a query sees the keys of its own chunk of so many, and queries and keys are
     * normed; in the others queries grow with log(1 + floor(position / temperature_floor)) temperature_scale. 0:
     * not. */
    int64_t chunk, temperature_floor;
    double temperature_scale;
    bool has_head_norm;
    /* TL_ROPE_LIST, whose list is one of these: the second in rows that are longer than the original context. */
    float short_slower[64], long_slower[64];
} tl_model_config;

TL_API const char *tl_family_name(tl_family family); /* "gpt2", "llama", ...; "?" if it is not a family */
TL_API const char *tl_model_preset_name(int index);  /* "gpt2-124m", ...; NULL after the last */
TL_API bool tl_model_preset(const char *name, tl_model_config *config);
/* Checks that the sizes fit together; the error says which do not. */
TL_API bool tl_model_config_check(const tl_model_config *config);
/* Reads a Hugging Face config.json (docs/models.md lists the types; and our deep-linear). A key is used, or is known
 * not to change the model, or the file is refused with that key. */
TL_API bool tl_model_config_read(const char *path, tl_model_config *config);
TL_API bool tl_model_config_write(const tl_model_config *config, const char *path);
/* How many numbers the parameters hold, by formula. */
TL_API int64_t tl_model_config_parameters(const tl_model_config *config);
/* Those of them that one token meets: without the experts that it does not take. */
TL_API int64_t tl_model_config_active_parameters(const tl_model_config *config);

/* A model with new parameters: normal(0, init_std), GPT-2's residual projections divided by sqrt(2 n_layers), biases 0.
 * Names are Hugging Face's. */
TL_API tl_module *tl_model_new(const tl_model_config *config, tl_dtype dtype, tl_device *device);

/* How processes share a model; zeros and NULL: they do not. The groups must exist as long as the model.
 *
 *  tp   divides the heads, the columns of the MLP and the vocabulary. Its ranks are given the same tokens and compute
 *       the same loss, of which gradients are. Has at most as many ranks as there are heads, and divides these.
 *  has_sequence_parallel   beside tp: norms, dropout and the sums of the residual stream are divided too, by rows
 *  cp   divides each sequence. Its ranks are given the same whole rows of tokens, whose length is a multiple of twice
 *       the group's size; each takes its part of them. The mean of the ranks' losses is that of the rows, and the
 *       mean
 *       of their gradients its gradient.
 *  pp   divides the layers: each rank is a stage of a pipeline and holds consecutive layers, the first one also the
 *       embeddings, the last one the head. Work goes through tl_model_pipeline.
 *  ep   divides the experts, a whole number of them to each rank; not beside tp. Its ranks are given other tokens, and
 *       rows travel to the ranks of their experts and back. Each rank's loss is that of its own tokens; the
 *       gradients of
 *       experts are those of the sum of the ranks' losses, those of other parameters of the rank's own.
 *  ep_load   on meta: the rows that a rank's experts are given, in units of an even share; 0: 1
 *  pp_chunks   of layers on each stage, which micro-batches go through in turn: with p stages, chunk c of stage s is
 *       the (c p + s)-th part of the layers (interleaved 1F1B). 0: one */
typedef struct tl_parallel {
    tl_comm *tp, *cp, *pp;
    bool has_sequence_parallel;
    int pp_chunks;
    tl_comm *ep;
    double ep_load;
} tl_parallel;
/* tl_model_new, of which this process holds its part. Every process draws the numbers of the whole model, so all
 * layouts begin with the same parameters. tl_model_loss and tl_model_document_loss are collective: every process of
 * both groups calls them. Functions that give logits, and caches, are for undivided models. */
TL_API tl_module *tl_model_new_parallel(const tl_model_config *config, tl_dtype dtype, tl_device *device,
                                        const tl_parallel *parallel);

/* Gives tokens and targets (B,T) of a micro-batch, and where documents begin (tl_model_document_loss) or NULL.
 * False: it failed. */
typedef bool (*tl_micro_batch)(void *context, int64_t index, tl_tensor **tokens, tl_tensor **targets,
                               tl_tensor **begin);
/* Forward and backward of micro-batches 0 .. n - 1, all of one shape, through the stages of pp, which all call it
 * with the same batches. A stage alternates between forward and backward (1F1B), so stage s of p holds the
 * activations of at most p - s micro-batches. With chunks, stages are idle for a shorter time, the shortest if n is
 * a multiple of p. Adds the gradients of `weight` times the sum of the losses; weight 0: forward only. Returns the
 * sum of the losses, () f32, on every stage; NULL: recorded. Also for models that are not divided into stages. The
 * gradient of a tied embedding is summed over the first and the last stage, which both hold it, by
 * tl_model_share_tied, once after all micro-batches of a step. */
TL_API tl_tensor *tl_model_pipeline(tl_module *model, int64_t n, tl_micro_batch give, void *context, double weight);
TL_API bool tl_model_share_tied(tl_module *model);
TL_API const tl_model_config *tl_model_config_of(const tl_module *model);
/* What the blocks keep for backward (tl_checkpoint_layers). The gradients' bits are the same under every policy. */
TL_API bool tl_model_set_checkpointing(tl_module *model, tl_checkpoint_policy policy, int k);
/* Experts: what the losses of routers count for in tl_model_loss of a model that trains; 0 and 0: they do not, as at
 * first. balance: E times the sum over experts of the share of choices that fell on it, times its mean probability,
 * as Hugging Face's library computes it. z: the mean square of the logarithm of the sum of exponentials of the logits.
 * Both over the tokens of all layers. */
TL_API bool tl_model_set_router_losses(tl_module *model, double balance, double z);
/* Label smoothing and the weight of the z loss in tl_model_loss of a model that trains, as in tl_linear_cross_entropy;
 * 0 and 0 at first. */
TL_API bool tl_model_set_head_loss(tl_module *model, double label_smoothing, double z_loss);
/* tokens (B,T), i64 or i32 -> logits (B,T,V). Deep linear: x (B,C), a float -> (B). */
TL_API tl_tensor *tl_model_logits(tl_module *model, tl_tensor *tokens);
/* Mean cross entropy of the next tokens, targets (B,T), f32; the logits are never stored as a whole. Deep linear: mean
 * squared error to targets (B). */
TL_API tl_tensor *tl_model_loss(tl_module *model, tl_tensor *tokens, tl_tensor *targets);
/* The same for rows that hold several documents one after another: attention stays inside each document, and
 * positions start again at 0, so that a document has the results that it has in a row of its own, up to rounding.
 * begin (B,T), i32 or i64, has for each token the place in its row where its document begins; it does not decrease
 * along T, and is at most the token's own place (tl_loader_next_documents makes it). NULL: every row is one
 * document. */
TL_API tl_tensor *tl_model_document_logits(tl_module *model, tl_tensor *tokens, tl_tensor *begin);
TL_API tl_tensor *tl_model_document_loss(tl_module *model, tl_tensor *tokens, tl_tensor *targets, tl_tensor *begin);

/* Loads weights from a safetensors file, a folder with model.safetensors, or one with model.safetensors.index.json, and
 * casts them to the model's dtype. Every parameter must be there with its shape; names without the prefix of the head's
 * model are accepted too. */
TL_API bool tl_model_load(tl_module *model, const char *path);
/* Opens a model with its weights: from a run's folder (`tally train`; its newest checkpoint), from one checkpoint of
 * it, from a Hugging Face folder, or from a GGUF file (docs/files.md says of which). Parameters have the dtype that
 * the run trained, f32 otherwise. The model is in evaluation mode. */
TL_API tl_module *tl_model_open(const char *path, tl_device *device);
/* Writes config.json and model.safetensors in the form that Hugging Face's library reads; creates the folder if
 * needed. All processes that divide a model by tp and pp call it: parts are joined, those of all stages are sent to the
 * first rank of the first stage, on the host, and this rank alone writes. Where dp has several copies of the model, one
 * of them calls it. */
TL_API bool tl_model_save(tl_module *model, const char *folder);

/* Adapters of low rank: beside the weight W of a linear layer, y = W x + b becomes y = W x + b + alpha / rank B A x,
 * and only A (rank,in) and B (out,rank) are trained: LoRA. has_magnitude adds a trained length of each row of the sum
 * (DoRA). dropout is of the adapter's x in training. targets: names of layers with commas between, whole or what is
 * behind a dot of them, in which `*` stands for any characters; all-linear: every linear layer of the blocks. Defaults:
 * rank 8, alpha 16, all-linear. */
typedef struct tl_adapter_options {
    int64_t rank;
    double alpha, dropout;
    bool has_magnitude;
    const char *targets;
} tl_adapter_options;
TL_API tl_adapter_options tl_adapter_defaults(void);
/* Freezes the model and adds an adapter, whose parameters have the model's dtype: A uniform in +-1/sqrt(in), B 0. They
 * are in tl_module_list under PEFT's names, "...q_proj.lora_A.weight". */
TL_API bool tl_model_add_adapter(tl_module *model, const tl_adapter_options *options);
/* Reads and writes a folder of PEFT's: adapter_config.json and adapter_model.safetensors. Loading adds the adapter to a
 * model without one. base: what the file says of the model that the adapter is of; may be NULL. */
TL_API bool tl_model_load_adapter(tl_module *model, const char *folder);
TL_API bool tl_model_save_adapter(tl_module *model, const char *folder, const char *base);
/* Adds the adapter's products to the weights and removes it; nothing without one. The weights stay frozen. */
TL_API bool tl_model_merge_adapter(tl_module *model);
/* Whether forward uses the adapter. Off: the model without it. */
TL_API void tl_model_use_adapter(tl_module *model, bool on);

/* A key-value cache, so that each new token costs one pass over the cache instead of a pass over all tokens. It has
 * room for `batch` rows of `capacity` tokens (at most the model's context): L x 2 x Hkv x D numbers per token, in the
 * dtype that products have now (tl_set_autocast), allocated at once as activations of path "cache". It belongs to one
 * model. */
typedef struct tl_cache tl_cache;
TL_API tl_cache *tl_cache_new(tl_module *model, int64_t batch, int64_t capacity);
TL_API void tl_cache_free(tl_cache *cache);                /* NULL allowed */
TL_API int64_t tl_cache_length(const tl_cache *cache);     /* tokens in each row */
TL_API bool tl_cache_cut(tl_cache *cache, int64_t length); /* forgets the tokens after the first `length` */
/* Appends tokens (batch,T) to the cache and returns their logits (batch,T,V). T is anything that fits, so a prompt goes
 * in at once. Not recorded. On failure the cache is unchanged. */
TL_API tl_tensor *tl_model_extend(tl_module *model, tl_tensor *tokens, tl_cache *cache);
/* Only the logits after the last token: (B,V). cache NULL: without a cache. */
TL_API tl_tensor *tl_model_next(tl_module *model, tl_tensor *tokens, tl_cache *cache);

/* Fills text (B,N) i64, which has n_prompt tokens in each row, with generated tokens, drawn one after the other with
 * the thread's generator. It uses its own cache (as long as the text, at most the model's context; when the context is
 * full, generation goes on from its last three quarters). It does not wait for the device. */
typedef struct tl_generate_options {
    double temperature; /* divides the logits; 0: the most likely token */
    int64_t top_k;      /* among the k most likely tokens; 0: all */
    double top_p;       /* among the most likely of these with this total probability; 1: all */
    double min_p;       /* and at least this share of the likeliest one's probability; 0: all */
    /* Logits of tokens that the text has already are divided by it where they are positive and multiplied by it where
     * they are negative, first of all; 0 or 1: they are not changed. */
    double repetition_penalty;
    /* A row that draws one of these ids has ended: the rest of it is filled with that id. Once all rows have ended, no
     * more are drawn. tl_generate then waits for the device after each token. Texts of a session go on until the
     * caller closes them. */
    const int64_t *ends;
    int64_t n_ends;
} tl_generate_options;
TL_API tl_generate_options tl_generate_defaults(void); /* 1, 0, 1, 0, 1; no ends */
TL_API bool tl_generate(tl_module *model, tl_tensor *text, int64_t n_prompt, const tl_generate_options *options);

/* Texts that grow together, each from its own prompt. There is room for 1 to 256 of them, `rows`, in one cache; each
 * may be of any length, and the model sees at most `capacity` tokens of it (at most its context; when these are full, a
 * text continues from the last three quarters). A text has its own options and seed, and does not depend on the others:
 * on the cpu it is bitwise the same alone and among up to 8; in larger batches, and on other devices, matrix products
 * may round differently.
 *
 *     tl_session *s = tl_session_new(model, 8, 1024);
 *     int64_t row = tl_session_open(s, ids, n, &options, seed), next[8];
 *     while (tl_session_step(s, next) && !is_end(next[row])) print(next[row]);
 *     tl_session_free(s);
 */
typedef struct tl_session tl_session;
TL_API tl_session *tl_session_new(tl_module *model, int64_t rows, int64_t capacity);
TL_API void tl_session_free(tl_session *session); /* NULL allowed */
/* Begins a text with a prompt of n tokens and returns its row: the first that is free. -1 on error. NULL options: the
 * defaults. */
TL_API int64_t tl_session_open(tl_session *session, const int64_t *ids, int64_t n, const tl_generate_options *options,
                               uint64_t seed);
/* Appends n tokens to a text, as if they had been drawn. */
TL_API bool tl_session_append(tl_session *session, int64_t row, const int64_t *ids, int64_t n);
/* Keeps the first `length` tokens of a text, at least one. */
TL_API bool tl_session_cut(tl_session *session, int64_t row, int64_t length);
/* Draws one more token of every text: tokens[row], and -1 where a row has no text. Waits for the device. On failure no
 * text is changed. */
TL_API bool tl_session_step(tl_session *session, int64_t *tokens);
/* Ends a text; its row is free. */
TL_API bool tl_session_close(tl_session *session, int64_t row);
/* How many tokens a text has, and how many of them the model saw in the last step; -1 if the row has no text. */
TL_API int64_t tl_session_length(const tl_session *session, int64_t row);
TL_API int64_t tl_session_seen(const tl_session *session, int64_t row);

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* An open safetensors file; docs/files.md has the rules. Opening reads and checks the whole header: a file that breaks
 * a rule of the format is refused here (TL_ERROR_USE; TL_ERROR_IO if the system refuses). Several threads may then read
 * it. Tensors are numbered in the order of their data. */
typedef struct tl_safetensors tl_safetensors;
TL_API tl_safetensors *tl_safetensors_open(const char *path);
TL_API void tl_safetensors_close(tl_safetensors *file); /* NULL allowed; tensors from the file stay valid */

TL_API int tl_safetensors_count(const tl_safetensors *file);
TL_API const char *tl_safetensors_name(const tl_safetensors *file, int index); /* valid until close; NULL: none */
TL_API int tl_safetensors_find(const tl_safetensors *file, const char *name);  /* its index; -1 (no error) if absent */

typedef struct tl_safetensors_info {
    const char *name, *type; /* type: the format's name, "BF16" */
    tl_dtype dtype;          /* TL_DTYPE_COUNT for a type Tally does not have (U32, U64, C64, ...) */
    int rank;
    const int64_t *shape;  /* rank sizes; all pointers are valid until close */
    uint64_t begin, bytes; /* position in the data, and size */
} tl_safetensors_info;
TL_API bool tl_safetensors_info_at(const tl_safetensors *file, int index, tl_safetensors_info *info); /* false: none */

/* A tensor of the file on the cpu, owned by the innermost scope. It maps the file without a copy (an unaligned tensor
 * is copied). Writing to it changes neither the file nor what other programs see, but a second get of the same name
 * sees the change. A type that Tally does not have is an error. Truncating a file while it is open makes its tensors
 * unreadable (SIGBUS); replacing it by renaming, as tl_safetensors_save does, is safe. */
TL_API tl_tensor *tl_safetensors_get(tl_safetensors *file, const char *name);

/* The file's metadata: a value by key (NULL, no error, if absent), and the keys in sorted order. */
TL_API const char *tl_safetensors_metadata(const tl_safetensors *file, const char *key);
TL_API int tl_safetensors_metadata_count(const tl_safetensors *file);
TL_API const char *tl_safetensors_metadata_key(const tl_safetensors *file, int index);

/* Writes n tensors of any layout and device (not meta) under their names, with n_metadata pairs of text (sorted by
 * key). The write is atomic: it writes a temporary file, syncs and renames it, and syncs the folder; on failure the old
 * file is untouched. The bytes are those of the reference library. Names and texts are any UTF-8. */
TL_API bool tl_safetensors_save(const char *path, const char *const *names, tl_tensor *const *tensors, int n,
                                const char *const *keys, const char *const *values, int n_metadata);

/* An open GGUF file (version 3, little-endian), llama.cpp's format; docs/files.md has the rules. Opening reads and
 * checks the whole header, as tl_safetensors_open does. Tensors are numbered in the order of their data, keys in the
 * order of the file. */
typedef struct tl_gguf tl_gguf;
TL_API tl_gguf *tl_gguf_open(const char *path);
TL_API void tl_gguf_close(tl_gguf *file); /* NULL allowed; tensors from the file stay valid */
TL_API int tl_gguf_count(const tl_gguf *file);
TL_API const char *tl_gguf_name(const tl_gguf *file, int index); /* valid until close; NULL: none */
TL_API int tl_gguf_find(const tl_gguf *file, const char *name);  /* its index; -1 (no error) if absent */
typedef struct tl_gguf_info {
    const char *name, *type; /* valid until close; the type as the format names it: "F32", "Q8_0" */
    tl_dtype dtype;          /* of the tensor that tl_gguf_get returns; TL_DTYPE_COUNT if it cannot be read */
    int rank;
    const int64_t *shape; /* outermost axis first, as everywhere in this library; the file has it reversed */
    size_t begin, bytes;  /* where its data is, counted from the beginning of the data */
} tl_gguf_info;
TL_API bool tl_gguf_info_at(const tl_gguf *file, int index, tl_gguf_info *info); /* false: none */
/* A tensor of the file on the cpu, owned by the innermost scope. F32, F16, BF16, F64 and integers map the file as
 * tl_safetensors_get does; Q8_0 is decoded into f32. Other types are an error. */
TL_API tl_tensor *tl_gguf_get(tl_gguf *file, const char *name);

/* Metadata: values with kinds. The numbers are the format's. */
typedef enum tl_gguf_kind {
    TL_GGUF_VALUE_U8,
    TL_GGUF_VALUE_I8,
    TL_GGUF_VALUE_U16,
    TL_GGUF_VALUE_I16,
    TL_GGUF_VALUE_U32,
    TL_GGUF_VALUE_I32,
    TL_GGUF_VALUE_F32,
    TL_GGUF_VALUE_BOOL,
    TL_GGUF_VALUE_TEXT,
    TL_GGUF_VALUE_ARRAY, /* only in the file: tl_gguf_value has is_array instead */
    TL_GGUF_VALUE_U64,
    TL_GGUF_VALUE_I64,
    TL_GGUF_VALUE_F64,
    TL_GGUF_KIND_COUNT
} tl_gguf_kind;
typedef struct tl_gguf_value {
    tl_gguf_kind kind; /* of an array: of its elements */
    bool is_array;
    int64_t count; /* elements of an array; 1 for a single value */
} tl_gguf_value;
TL_API int tl_gguf_metadata_count(const tl_gguf *file);
TL_API const char *tl_gguf_metadata_key(const tl_gguf *file, int index); /* NULL: none */
/* Whether there is a value of this key, and of what kind (value may be NULL). */
TL_API bool tl_gguf_metadata(const tl_gguf *file, const char *key, tl_gguf_value *value);
/* One value, or one of an array (index 0 for a single one). False or NULL, without an error: there is none, or it is of
 * another kind. tl_gguf_integer reads integers and truths that fit, tl_gguf_number also floats. */
TL_API bool tl_gguf_integer(const tl_gguf *file, const char *key, int64_t index, int64_t *value);
TL_API bool tl_gguf_number(const tl_gguf *file, const char *key, int64_t index, double *value);
TL_API const char *tl_gguf_text(const tl_gguf *file, const char *key, int64_t index);

/* Writes a GGUF file: pairs and tensors first, in the order of the file, then save. Keys, names and texts are copied;
 * tensors must live until save, which converts them to their types and writes atomically as tl_safetensors_save does.
 * After a call that failed the writer is as before. */
typedef enum tl_gguf_type { TL_GGUF_F32, TL_GGUF_F16, TL_GGUF_BF16, TL_GGUF_Q8_0 } tl_gguf_type;
typedef struct tl_gguf_writer tl_gguf_writer;
TL_API tl_gguf_writer *tl_gguf_writer_new(void);
TL_API void tl_gguf_writer_free(tl_gguf_writer *writer); /* NULL allowed */
TL_API bool tl_gguf_writer_text(tl_gguf_writer *writer, const char *key, const char *value);
TL_API bool tl_gguf_writer_texts(tl_gguf_writer *writer, const char *key, const char *const *values, int64_t n);
/* kind: an integer's, or TL_GGUF_VALUE_BOOL with 0 or 1; a value that does not fit is an error. */
TL_API bool tl_gguf_writer_integer(tl_gguf_writer *writer, const char *key, tl_gguf_kind kind, int64_t value);
TL_API bool tl_gguf_writer_integers(tl_gguf_writer *writer, const char *key, tl_gguf_kind kind, const int64_t *values,
                                    int64_t n);
TL_API bool tl_gguf_writer_number(tl_gguf_writer *writer, const char *key, tl_gguf_kind kind, double value);
/* At most 4 axes; any dtype, layout and device (not meta). Q8_0 needs a last axis that is a multiple of 32, and values
 * of at most 8.3e6. */
TL_API bool tl_gguf_writer_tensor(tl_gguf_writer *writer, const char *name, tl_tensor *tensor, tl_gguf_type type);
TL_API bool tl_gguf_writer_save(tl_gguf_writer *writer, const char *path);

/* ---- Token files and data loading -------------------------------------------------------------------------------- */

/* Files of tokens, memory-mapped; docs/data.md has the formats. Nothing in them is trusted: sizes are checked against
 * the file when it is opened, ids and (in Tally's format) checksums when they are read. Messages name the file, the
 * byte or token, and what was expected. */
typedef enum tl_token_format {
    TL_TOKENS_AUTO,  /* by the first bytes; otherwise .bin is raw (see docs/data.md), and anything else is bytes */
    TL_TOKENS_TALLY, /* Tally's own: width, vocabulary, count, checksums */
    TL_TOKENS_U16,   /* raw little-endian numbers, as nanoGPT writes them */
    TL_TOKENS_U32,
    TL_TOKENS_LLMC,  /* llm.c's shards: 20240520 (u16) and 20240801 (u32) */
    TL_TOKENS_NPY,   /* NumPy, one axis, any integers */
    TL_TOKENS_BYTES, /* each byte is a token; vocabulary 256 */
    TL_TOKEN_FORMAT_COUNT
} tl_token_format;
TL_API const char *tl_token_format_name(tl_token_format format); /* "llmc"; "?" if it is not a format */

/* The vocabulary hash of byte-level tokens. A hash identifies a tokenizer; 0: unknown. */
#define TL_BYTES_HASH 0x7365747962u

typedef struct tl_token_info {
    tl_token_format format;
    int token_bytes; /* 1, 2, 4 or 8 */
    bool is_signed, has_checksums;
    int64_t count;      /* tokens */
    int64_t vocabulary; /* every id must be smaller; 0: the file does not say */
    uint64_t vocabulary_hash;
    int64_t documents; /* whose beginnings the file records (Tally's format); 0: it does not */
    uint64_t data_begin, file_bytes;
} tl_token_info;

/* An empty file is an error. Several threads may read one token file. If the file is truncated while it is open, the
 * next read notices; only truncation during a read ends the program (SIGBUS). */
typedef struct tl_token_file tl_token_file;
TL_API tl_token_file *tl_token_file_open(const char *path, tl_token_format format);
TL_API void tl_token_file_close(tl_token_file *file); /* NULL allowed; loaders that use it hold it */
TL_API bool tl_token_file_info(const tl_token_file *file, tl_token_info *info);
/* Sets the vocabulary (and hash, 0: any) that ids must belong to. A file with another vocabulary is an error; ids are
 * checked from now on. Call it before other threads read the file. */
TL_API bool tl_token_file_expect(tl_token_file *file, int64_t vocabulary, uint64_t vocabulary_hash);
/* Reads tokens from .. from + n - 1. An id outside the vocabulary, or of 2^31 and more, is an error with its
 * position. */
TL_API bool tl_token_file_read(tl_token_file *file, int32_t *ids, int64_t from, int64_t n);

/* Documents, if the file records where they begin. document_at is the number of the document that has a token;
 * document_begin its first token, and for document == documents the number of tokens. -1 (no error): out of range, or
 * none are recorded. */
TL_API int64_t tl_token_file_document_at(const tl_token_file *file, int64_t token);
TL_API int64_t tl_token_file_document_begin(const tl_token_file *file, int64_t document);

/* Called with the progress of a long operation; returning false stops it (an error: "stopped"). */
typedef bool (*tl_progress_fn)(uint64_t done, uint64_t total, void *context);
/* Reads everything once. `largest` (may be NULL) receives the largest id. progress (may be NULL) counts tokens. */
TL_API bool tl_token_file_check(tl_token_file *file, int64_t *largest, tl_progress_fn progress, void *context);

/* Writes Tally's format atomically. token_bytes is 1, 2 or 4; vocabulary at most 256^token_bytes and 2^31. commit ends
 * the writer, also if it fails; discard ends it without a file. document: the next token begins a new document, the
 * first one at token 0; a document without tokens is not recorded. */
typedef struct tl_token_writer tl_token_writer;
TL_API tl_token_writer *tl_token_writer_new(const char *path, int token_bytes, int64_t vocabulary,
                                            uint64_t vocabulary_hash);
TL_API bool tl_token_writer_document(tl_token_writer *writer);
TL_API bool tl_token_writer_add(tl_token_writer *writer, const int32_t *ids, int64_t n);
TL_API bool tl_token_writer_commit(tl_token_writer *writer);
TL_API void tl_token_writer_discard(tl_token_writer *writer); /* NULL allowed */

/* Writes the tokens of a file to another one, atomically and in bounded memory; any format but AUTO. An id that does
 * not fit is an error with its position. `vocabulary` (0: unknown) is for files that do not record theirs: ids must be
 * below it, and Tally's format needs it. Tally's format, .npy and llm.c's use the fewest bytes per token that the
 * vocabulary allows; if it is unknown, as many as the file has. Tally's format keeps the documents. progress
 * (may be NULL) counts tokens. */
TL_API bool tl_token_file_convert(tl_token_file *file, const char *path, tl_token_format format, int64_t vocabulary,
                                  tl_progress_fn progress, void *context);

/* Batches of a token file. A window is T tokens, and as targets the T that follow: tokens s .. s+T-1 and s+1 .. s+T.
 * The windows of a step are a pure function of (seed, step, rank, world): any step can be loaded at any time at the
 * same cost, and a resumed run sees the same batches.
 *
 * TL_SAMPLE_ONCE: N tokens have N-1 targets; an epoch is W = (N-1)/T adjacent windows, in an order of its own, so that
 * no target occurs twice. The remaining (N-1) mod T targets are split between beginning and end, differently in each
 * epoch. Epochs follow each other without a gap: row b of a batch is window (step * world + rank) * batch + b.
 * TL_SAMPLE_RANDOM: each window starts anywhere, independently (as in nanoGPT).
 * TL_SAMPLE_IN_ORDER: windows from first to last, repeatedly; for evaluation. */
typedef enum tl_sampling { TL_SAMPLE_ONCE, TL_SAMPLE_RANDOM, TL_SAMPLE_IN_ORDER, TL_SAMPLING_COUNT } tl_sampling;
typedef struct tl_loader_options {
    tl_token_file *file; /* held by the loader. NULL: on meta only; `last` is then the number of tokens */
    int64_t first, last; /* the part to use: tokens first .. last-1; last 0: to the end */
    int64_t batch, time; /* rows, and tokens per row */
    uint64_t seed;
    int rank, world; /* this process is one of `world`; each gets different rows */
    tl_sampling sampling;
    int n_buffers;          /* batches that a thread reads ahead, 1 to 64 */
    tl_device *device;      /* where the batches go; NULL: the thread's default */
    bool has_documents;     /* batches say where documents begin (tl_loader_next_documents) */
    int64_t document_token; /* with documents: one begins at each token of this id. -1: the file's own table says where;
                             * a file without one is then an error */
    /* tokens are 2 id, and 2 id + 1 where they are learned: other targets are -100, which losses leave out */
    bool is_marked;
} tl_loader_options;
/* the whole file, batch 1, time 128, seed 1, rank 0 of 1, once, 3 buffers, no documents, no marks */
TL_API tl_loader_options tl_loader_defaults(void);

/* A loader allocates a ring of n_buffers batches on the host before the first step, billed as data (on the cpu to its
 * pool, and meta bills the same), and starts a thread that fills it. On meta there is no thread and nothing is read. A
 * part shorter than T+1 tokens is an error. */
typedef struct tl_loader tl_loader;
TL_API tl_loader *tl_loader_new(const tl_loader_options *options);
TL_API void tl_loader_free(tl_loader *loader); /* stops the thread; NULL allowed */

/* The batch of a step (any step, from 0): two (batch, time) i32 tensors that share a storage, owned by the innermost
 * scope; purpose data, path "data", phase other. If the device has its own memory, one transfer of both is billed. A
 * read error of the thread is reported here, at the step that needs the data; calling again retries. One thread at a
 * time. */
TL_API bool tl_loader_next(tl_loader *loader, int64_t step, tl_tensor **tokens, tl_tensor **targets);
/* The same with a third tensor of the same storage, which tl_model_document_loss takes: for each token, the place in
 * its row where its document begins. A window that begins inside a document begins a document. *begin is NULL if the
 * loader has no documents. */
TL_API bool tl_loader_next_documents(tl_loader *loader, int64_t step, tl_tensor **tokens, tl_tensor **targets,
                                     tl_tensor **begin);
/* Pairs of a query and a key that causal attention inside documents has in the newest batch; without documents, and on
 * meta, in rows of one document: batch T (T+1) / 2. */
TL_API int64_t tl_loader_pairs(const tl_loader *loader);
/* The first token of row `row` of a step, counted from the start of the file, and its epoch. -1: out of range. */
TL_API int64_t tl_loader_where(const tl_loader *loader, int64_t step, int64_t row, int64_t *epoch);
TL_API int64_t tl_loader_windows(const tl_loader *loader); /* per epoch, over all ranks */
TL_API double tl_loader_wait_s(const tl_loader *loader);   /* total time spent waiting for the thread */

/* The built-in corpus: simple English stories from a grammar with known probabilities, so the entropy of the text is
 * known exactly (src/data/corpus.c derives it). Story `index` of a seed is a pure function of both; a story ends with
 * an empty line. */

/* Writes one story to a buffer with a final 0, cut to size-1 bytes; returns its whole length. `bits` (may be NULL)
 * receives -log2 of its probability. */
TL_API size_t tl_corpus_story(uint64_t seed, uint64_t index, char *buffer, size_t size, double *bits);
/* Writes stories first, first+1, ...: exactly `bytes` bytes (the last story may be cut; no final 0). Returns how
 * many. */
TL_API uint64_t tl_corpus_text(uint64_t seed, uint64_t first, char *buffer, size_t bytes);
/* Writes whole stories 0, 1, ... to a file, atomically, until it has at least `bytes`. progress counts bytes. */
TL_API bool tl_corpus_write(const char *path, uint64_t seed, uint64_t bytes, tl_progress_fn progress, void *context);
/* -log2 of the probability of one story's text; -1 if no story has this text. */
TL_API double tl_corpus_bits(const char *text, size_t length);
/* Means over all stories, and the entropy, bits / bytes. tl_corpus_floor is the entropy in nats per byte: the smallest
 * mean cross entropy of any byte-level model on this text. A model that sees T bytes at a time stays above it (see
 * docs/data.md). */
TL_API double tl_corpus_story_bits(void);
TL_API double tl_corpus_story_bytes(void);
TL_API double tl_corpus_entropy_bits_per_byte(void);
TL_API double tl_corpus_floor(void);

/* ---- Tokenizers -------------------------------------------------------------------------------------------------- */

/* Text to tokens and back; docs/tokenizers.md has the formats and what is known of each. A tokenizer does not change
 * after it was made; threads may share it. It keeps a cache of words, about 6 MiB, for each thread that encodes. Files
 * are not trusted: at most 256 MiB, and errors name the file and what is missing. */
typedef struct tl_tokenizer tl_tokenizer;

/* Each byte is a token; vocabulary 256. */
TL_API tl_tokenizer *tl_tokenizer_bytes(void);
/* The distinct characters of a text are the vocabulary, in the order of their code points, as in nanoGPT. The text must
 * be UTF-8. Other characters cannot be encoded. */
TL_API tl_tokenizer *tl_tokenizer_chars(const char *text, size_t bytes);
/* Reads a file, or a folder with one of them (looked for in this order):
 *      tokenizer.json               Hugging Face's: byte-pair encoding; other models are refused by name
 *      tekken.json                  Mistral's
 *      vocab.json and merges.txt    GPT-2's; also encoder.json and vocab.bpe. The path may name either file
 *      *.tiktoken, tokenizer.model  ranks. `encoding` says what belongs to them, pattern and special tokens: a name of
 *                                   tl_tokenizer_encoding; NULL: by the number of ranks
 *      *.gguf                       a model's file (not looked for in folders): byte-level BPE of a known pattern
 * `encoding` is ignored for other files. */
TL_API tl_tokenizer *tl_tokenizer_read(const char *path, const char *encoding);
TL_API const char *tl_tokenizer_encoding(int index);    /* "gpt2", "cl100k_base", ...; NULL after the last */
TL_API void tl_tokenizer_free(tl_tokenizer *tokenizer); /* NULL allowed; encoders and decoders that use it hold it */

/* Ids are smaller than this: with the added tokens, and with gaps, if there are some. */
TL_API int64_t tl_tokenizer_size(const tl_tokenizer *tokenizer);
/* The vocabulary hash for token files: of all ids and their bytes. For bytes it is TL_BYTES_HASH. */
TL_API uint64_t tl_tokenizer_hash(const tl_tokenizer *tokenizer);
/* The bytes that an id stands for, valid as long as the tokenizer; NULL (no error) if no token has the id. */
TL_API const char *tl_tokenizer_token(const tl_tokenizer *tokenizer, int64_t id, size_t *bytes);
/* The id of a token by its bytes, added tokens first; -1 (no error) if there is none. */
TL_API int64_t tl_tokenizer_find(const tl_tokenizer *tokenizer, const char *bytes, size_t n);
TL_API bool tl_tokenizer_is_special(const tl_tokenizer *tokenizer, int64_t id);
/* The token that ends a text: the first of <|endoftext|>, <|end_of_text|>, </s>, <eos> and <|im_end|> that is special;
 * -1 (no error): none. */
TL_API int64_t tl_tokenizer_end_of_text(const tl_tokenizer *tokenizer);

/* What to do with special tokens ("<|endoftext|>") that a text contains. */
typedef enum tl_special {
    TL_SPECIAL_REFUSE, /* an error that names the token: nobody should smuggle in control tokens by accident */
    TL_SPECIAL_ALLOW,  /* they become their ids */
    TL_SPECIAL_TEXT    /* they are ordinary text */
} tl_special;
typedef struct tl_encode_options {
    tl_special special;         /* of special tokens that are not in the list */
    const char *const *allowed; /* the special tokens that become their ids */
    int n_allowed;
    bool has_template; /* put the tokens before and after the text that the file prescribes, such as <s> */
    bool has_offsets;
} tl_encode_options;
TL_API tl_encode_options tl_encode_defaults(void); /* refuse; no template, no offsets */

/* Tokens of one or several texts; free it with tl_encoding_free. */
typedef struct tl_encoding {
    int32_t *ids;
    int64_t *offsets; /* two per token: the bytes begin .. end-1 of its text that it covers; NULL without has_offsets */
    int64_t *starts;  /* the tokens of text i are starts[i] .. starts[i+1]-1 */
    int64_t count, n_texts;
} tl_encoding;
TL_API void tl_encoding_free(tl_encoding *encoding);

/* Encodes n texts, on all threads if there are several; the result does not depend on their number. A text is any
 * bytes, at most 1 GiB; what is not UTF-8 is treated as bytes that are neither letters, numbers nor spaces. NULL
 * options: the defaults. On error `encoding` is empty. */
TL_API bool tl_tokenizer_encode(tl_tokenizer *tokenizer, const char *const *texts, const size_t *bytes, int64_t n,
                                const tl_encode_options *options, tl_encoding *encoding);
/* The text of n ids; free() it. It has `bytes` bytes, and a 0 behind them. Without a normalizer, byte-level tokenizers
 * give back exactly the bytes that were encoded. `skips_special`: special tokens are left out. NULL on error, such as
 * an id that no token has. */
TL_API char *tl_tokenizer_decode(tl_tokenizer *tokenizer, const int32_t *ids, int64_t n, bool skips_special,
                                 size_t *bytes);

/* A text that comes in parts. add and end append to the encoding the tokens that are certain by then; together they are
 * those of tl_tokenizer_encode on the whole text. The encoder holds back text only up to the last place where no word
 * can cross, in common text a few words. Give it an encoding of zeros; you may set its count back to 0 between calls.
 * After end the encoder begins a new text. */
typedef struct tl_encoder tl_encoder;
TL_API tl_encoder *tl_encoder_new(tl_tokenizer *tokenizer, const tl_encode_options *options);
TL_API bool tl_encoder_add(tl_encoder *encoder, const char *text, size_t bytes, tl_encoding *encoding);
TL_API bool tl_encoder_end(tl_encoder *encoder, tl_encoding *encoding);
TL_API void tl_encoder_free(tl_encoder *encoder); /* NULL allowed */

/* Tokens that come one by one. add returns the text that is complete by then: never half a character of UTF-8, which is
 * held back for the next call. end returns what is held back, as it is. The text is valid until the next call, and ends
 * with a 0; "" if nothing is complete. NULL on error. */
typedef struct tl_decoder tl_decoder;
TL_API tl_decoder *tl_decoder_new(tl_tokenizer *tokenizer, bool skips_special);
TL_API const char *tl_decoder_add(tl_decoder *decoder, const int32_t *ids, int64_t n, size_t *bytes);
TL_API const char *tl_decoder_end(tl_decoder *decoder, size_t *bytes);
TL_API void tl_decoder_free(tl_decoder *decoder); /* NULL allowed */

/* Learns byte-level BPE from texts: words are cut by the pattern of an encoding and counted, then the most frequent
 * pair of neighbouring tokens becomes a token, again and again. Memory is proportional to the distinct words, not to
 * the text. Tokens have at most 1,024 bytes; a word of more than 16 MiB is cut. Counting uses all threads; the result
 * does not depend on their number. If no pair is left, the vocabulary is smaller than asked. */
typedef enum tl_ties {
    TL_TIES_GREATER,     /* of equally frequent pairs, the one whose tokens' bytes are lexicographically greater */
    TL_TIES_HUGGING_FACE /* the one of the smaller ids, as in Hugging Face's BpeTrainer, whose ids these are then */
} tl_ties;
/* Called with the bytes that are counted, then with the merges that are made. False stops: an error, "stopped". */
typedef bool (*tl_bpe_progress_fn)(bool is_merging, uint64_t done, uint64_t total, void *context);
typedef struct tl_bpe_options {
    int64_t vocabulary;         /* tokens in all: 256 bytes, the special tokens, and merges */
    const char *encoding;       /* whose pattern cuts words: a name of tl_tokenizer_encoding; NULL: gpt2 */
    tl_ties ties;               /* also says the order of ids: bytes, merges, special tokens; with Hugging Face's rule
                                 * special tokens, bytes (in the order of GPT-2's writing), merges */
    const char *const *special; /* text is cut at special tokens, and they are not counted; copied */
    int n_special;
    int64_t min_count;           /* pairs that occur less often are not merged */
    tl_bpe_progress_fn progress; /* NULL: none */
    void *context;
} tl_bpe_options;
TL_API tl_bpe_options tl_bpe_defaults(void); /* 8,192 tokens, gpt2's pattern, <|endoftext|>, the greater pair */
/* From files, each of which is one text; NULL options: the defaults. */
TL_API tl_tokenizer *tl_tokenizer_train(const char *const *paths, int n, const tl_bpe_options *options);

/* The same in steps, for texts from elsewhere. train forgets the texts. */
typedef struct tl_bpe tl_bpe;
typedef struct tl_bpe_counts {
    uint64_t bytes, words;             /* of the texts so far */
    uint64_t distinct, distinct_bytes; /* words, and their bytes */
} tl_bpe_counts;
TL_API tl_bpe *tl_bpe_new(const tl_bpe_options *options);
TL_API bool tl_bpe_add(tl_bpe *bpe, const char *text, size_t bytes); /* a whole text */
TL_API bool tl_bpe_add_files(tl_bpe *bpe, const char *const *paths, int n);
TL_API tl_bpe_counts tl_bpe_count(const tl_bpe *bpe);
TL_API tl_tokenizer *tl_bpe_train(tl_bpe *bpe);
TL_API void tl_bpe_free(tl_bpe *bpe); /* NULL allowed */

/* Writes a tokenizer into a folder, which is made if it is missing; each file atomically.
 *      "json"   tokenizer.json, Hugging Face's
 *      "gpt2"   vocab.json and merges.txt; the pattern must be gpt2's, for which these files stand
 *      "ranks"  tokenizer.tiktoken; it has neither pattern nor special tokens
 * For bytes, characters (json only), and byte-level BPE with a well-known pattern, special tokens and at most a Unicode
 * normalization (json only): what training gives, and what is read from ranks, tekken and GPT-2's files. Ranks have no
 * merges; the list that is written has the one that each token is really made by. Others are refused by name. */
TL_API bool tl_tokenizer_save(const tl_tokenizer *tokenizer, const char *folder, const char *format);

/* Texts to a token file that records their documents, as `tally tokenize` makes it. Paths are files and folders: texts,
 * and JSON lines with the text in a field, each also compressed with gzip or zstd; "-" is standard input. A file that
 * is stopped, by an error, a signal or `progress`, is continued by the next call with the same arguments; the result is
 * the same, byte for byte. It does not depend on the number of threads. */
typedef struct tl_tokenize_figures {
    uint64_t documents, text_bytes;    /* begun so far, and their bytes */
    uint64_t bad;                      /* lines that were skipped */
    int64_t tokens[2], recorded[2];    /* and documents, in `out` and in val_out */
    int64_t longest;                   /* document, in tokens */
    int64_t files, ignored;            /* inputs; files in folders whose names have no known ending */
    uint64_t used, total;              /* bytes of the inputs; total 0: not known */
    uint64_t used_before, text_before; /* by earlier calls that were stopped */
    double seconds;                    /* of this call */
    bool is_resumed, is_kept;          /* is_kept: what is done can be continued (not with standard input) */
} tl_tokenize_figures;
typedef struct tl_tokenize_options {
    const char *val_out; /* a second file, for some of the documents; NULL: none */
    double val_share;    /* its share: documents whose number, hashed with the seed, is below it */
    uint64_t seed;
    const char *field;     /* of JSON lines; NULL: text */
    const char *format;    /* of all inputs: text or jsonl; NULL: by their names */
    const char *separator; /* cuts texts into documents: blank-line, or any text; NULL: each file is one */
    int64_t end_token;     /* after each document; -1: none */
    tl_special special;    /* special tokens inside documents */
    bool skips_bad;        /* lines that are not JSON or lack the field are counted, not errors */
    bool restarts;         /* forget what a stopped call has done */
    int threads;           /* that encode; 0: all. One more reads */
    double save_every_s;   /* how often the work so far is saved */
    /* After every batch, and while waiting. False stops: an error, "stopped". NULL: none. */
    bool (*progress)(const tl_tokenize_figures *figures, void *context);
    void *context;
} tl_tokenize_options;
/* nothing held out (share 0.01), seed 1, the tokenizer's end of text, special tokens are text, saved every 15 s */
TL_API tl_tokenize_options tl_tokenize_defaults(const tl_tokenizer *tokenizer);
/* NULL options: the defaults. figures (may be NULL) is filled on failure too. */
TL_API bool tl_tokenize_files(tl_tokenizer *tokenizer, const char *const *paths, int n, const char *out,
                              const tl_tokenize_options *options, tl_tokenize_figures *figures);

/* tl_model_open, with the model's tokenizer: the one in the folder or the file; bytes, if a model without one has 256
 * tokens; NULL in *tokenizer if there is none. has_template: prompts are encoded with the tokenizer's template
 * (tl_encode_options), which runs are not trained with. Either may be NULL, and is then not read. */
TL_API tl_module *tl_model_open_text(const char *path, tl_device *device, tl_tokenizer **tokenizer, bool *has_template);
/* The token ids that end a text of the model in `path`, a path as for tl_model_open: "eos_token_id" of
 * generation_config.json, or else of config.json (of a run: what the folder of its tokenizer had); in a GGUF file
 * tokenizer.ggml.eos_token_id; where these say nothing, the tokenizer's end of text (NULL: none). Writes at most `room`
 * ids and returns how many there are, at most 64; -1 on error. */
TL_API int64_t tl_model_ends(const char *path, const tl_tokenizer *tokenizer, int64_t *ids, int64_t room);

/* Writes a GPT-2, Llama or Qwen 2 model as a GGUF file that llama.cpp runs; docs/files.md says what is in it.
 * tokenizer: byte-level BPE; NULL: none, and llama.cpp works on ids. pre: llama.cpp's name of the rule that cuts text
 * into words; NULL: by the tokenizer's pattern. */
TL_API bool tl_model_export_gguf(tl_module *model, const char *path, tl_gguf_type type, const tl_tokenizer *tokenizer,
                                 const char *pre);

/* ---- Training runs ----------------------------------------------------------------------------------------------- */

/* A whole run in its folder, like `tally train`: priced, trained, logged, saved, and resumed if it was stopped; see
 * docs/training.md. `settings` is a JSON object with some of the settings (`tally train --settings` lists them); NULL:
 * all defaults. Returns the summary, a JSON object, malloc'ed: "end" is "done", "stopped" or "not finite". NULL on
 * failure.
 *
 * tell (may be NULL) is called for every step, evaluation and sample with a JSON object that is valid during the call.
 * If it returns false, the run finishes the step, saves and ends. A process runs one run at a time, in a thread that
 * runs no other ops meanwhile: a second call in any thread fails and names the folder of the first, and so does
 * tl_train_price in another thread. If data, model or settings differ from those the run was started with, it is
 * refused, unless "accept_changes" is set. */
typedef bool (*tl_train_fn)(const char *news, void *context);
TL_API char *tl_train(const char *settings, tl_train_fn tell, void *context);
/* What the run would cost, counted on meta: tally.run/1, malloc'ed. Writes nothing. */
TL_API char *tl_train_price(const char *settings);
/* Every setting with its default: a JSON object, malloc'ed. */
TL_API char *tl_train_settings(void);

/* The data of a report about runs, by their folders: tally.report/1, malloc'ed (docs/pages.md). NULL on error. */
TL_API char *tl_report_json(const char *const *runs, int n);
/* One HTML file, malloc'ed, that draws JSON of schema tally.report/1, tally.ledger/1 or tally.run/1. is_frame: as an
 * iframe that has the page inside, for a notebook. NULL on error. */
TL_API char *tl_page(const char *json, bool is_frame);

/* ---- The ledger -------------------------------------------------------------------------------------------------- */

/* A ledger counts what the code between its begin and end costs. Ledgers nest: the outer ones count what the inner
 * ones count. End them in reverse order. A ledger stays readable after its end, until tl_ledger_free. */
TL_API tl_ledger *tl_ledger_begin(const char *name);
TL_API bool tl_ledger_end(tl_ledger *ledger);
TL_API void tl_ledger_free(tl_ledger *ledger);

/* The part of a training step that an op call belongs to. The library sets backward and recompute. */
typedef enum tl_phase { TL_FORWARD, TL_BACKWARD, TL_RECOMPUTE, TL_UPDATE, TL_OTHER, TL_PHASE_COUNT } tl_phase;
TL_API const char *tl_phase_name(tl_phase phase); /* "forward" */
/* Sets the phase that this thread's ops are billed to. */
TL_API tl_phase tl_set_phase(tl_phase phase);

#define TL_ALL (-1)
typedef struct tl_totals {
    tl_count flops, bytes_read, bytes_written;
    uint64_t calls;
    double time_s; /* of kernels; 0 unless profiling */
} tl_totals;
/* Sums over the rows with this phase and op (TL_ALL, NULL: any). */
TL_API tl_totals tl_ledger_total(const tl_ledger *ledger, int phase, const char *op);
/* Host-device transfers, which are not in bytes_read and bytes_written. */
TL_API tl_count tl_ledger_transfer_bytes(const tl_ledger *ledger);
/* Bytes that this process sent to others. */
TL_API tl_count tl_ledger_sent_bytes(const tl_ledger *ledger);

/* The most bytes live on a device at once between begin and end, for one purpose or TL_ALL. Of a ledger that has
 * ended. */
TL_API uint64_t tl_ledger_peak(const tl_ledger *ledger, const tl_device *device, int purpose);
TL_API uint64_t tl_ledger_peak_allocated(const tl_ledger *ledger, const tl_device *device);
TL_API uint64_t tl_ledger_peak_reserved(const tl_ledger *ledger, const tl_device *device);

/* The whole ledger as JSON (schema tally.ledger/1, see docs/ledger.md), malloc'ed. `device` selects the memory
 * shown. */
TL_API char *tl_ledger_json(const tl_ledger *ledger, const tl_device *device);
/* Writes the JSON to a file, atomically. */
TL_API bool tl_ledger_write(const tl_ledger *ledger, const tl_device *device, const char *file);

/* Compares two ledgers as JSON texts: exactly in FLOPs, bytes, calls and peaks; not in time. Returns the number of
 * differences (0: they tally), or -1 and an error. `report` (may be NULL) receives a malloc'ed table of the
 * differences, or NULL. What differs by the load of experts (tl_parallel) is none; the report sums it up. */
TL_API int tl_ledger_diff(const char *price_json, const char *receipt_json, char **report);

/* Lists what ledgers that begin from now on allocate and free, in order: initially off. While it is on, the list of
 * every device grows with each op call, so switch it off again after the steps in question. Returns the state
 * before. */
TL_API bool tl_set_memory_events(bool on);
/* The list of a ledger that has ended, as JSON (schema tally.memory/1, see docs/ledger.md), malloc'ed: what was held
 * at its beginning, and each allocation since with op, module path, shape, purpose and bytes. NULL and an error if
 * none was kept. */
TL_API char *tl_ledger_memory_json(const tl_ledger *ledger, const tl_device *device);

/* Times every kernel. On a GPU this does not wait for kernels; the times arrive when the ledger ends. Initially off. */
TL_API bool tl_set_profiling(bool on);

/* ---- Ops of your own --------------------------------------------------------------------------------------------- */

/* A kernel sees raw pointers, shapes and strides. data is the address of the first element. */
typedef struct tl_operand {
    void *data;
    tl_dtype dtype;
    int rank;
    const int64_t *shape, *stride; /* stride in elements */
} tl_operand;

typedef struct tl_kernel_args {
    const char *op;
    const tl_operand *in, *out; /* in place, an out is the same memory as one of the in */
    int n_in, n_out;
    const void *attr; /* the op's attributes */
    void *workspace;  /* as many bytes as the op's workspace rule asked for */
    size_t workspace_bytes;
    int n_threads;
    void *stream; /* the device's stream; NULL on cpu */
    char *error;  /* a kernel that fails writes the reason (at most 200 bytes) and returns false */
    size_t attr_bytes;
} tl_kernel_args;
typedef bool (*tl_kernel)(const tl_kernel_args *args);

#define TL_MAX_INPUTS 64
#define TL_MAX_OUTPUTS 8
/* What a gradient reads: {.inputs = TL_BIT(0) | TL_BIT(2), .outputs = TL_BIT(0)} are inputs 0 and 2, and output 0. */
#define TL_BIT(i) (UINT64_C(1) << (i))
typedef struct tl_saves {
    uint64_t inputs;
    uint8_t outputs;
} tl_saves;

/* For gradient rules; valid during the rule only. */
TL_API tl_tensor *tl_gradient_of_output(tl_gradient *g, int output); /* NULL: no gradient arrived there */
TL_API tl_tensor *tl_gradient_input(tl_gradient *g, int input);      /* a saved input */
TL_API tl_tensor *tl_gradient_output(tl_gradient *g, int output);    /* a saved output */
/* For rules of tl_function, which keep results themselves: x as result `output`, with its history if the gradient is to
 * have a derivative. */
TL_API tl_tensor *tl_gradient_result(tl_gradient *g, int output, tl_tensor *x);
TL_API const void *tl_gradient_attr(tl_gradient *g);
TL_API bool tl_gradient_needs(tl_gradient *g, int input);
TL_API void tl_gradient_set(tl_gradient *g, int input, tl_tensor *grad);

/* For shape and cost rules. tl_call_output sets the dtype and shape of a result. */
TL_API int tl_call_inputs(const tl_call *call);
TL_API tl_tensor *tl_call_input(const tl_call *call, int input);
TL_API const void *tl_call_attr(const tl_call *call);
TL_API bool tl_call_output(tl_call *call, int output, tl_dtype dtype, int rank, const int64_t *shape);
TL_API bool tl_call_fail(tl_call *call, const char *format, ...) TL_PRINTF(2, 3); /* returns false */
/* The same with what is needed, after the operands: "sizes differ: f32[2]@cpu x f32[3]@cpu (need [n] and [n])". */
TL_API bool tl_call_fail_need(tl_call *call, const char *need, const char *format, ...) TL_PRINTF(3, 4);

/* Adds a gradient rule to results that the caller computed with recording off: replaces outputs[j] with tensors of the
 * same storage that lead back to the inputs through the rule. The rule reads tl_gradient_of_output and answers with
 * tl_gradient_set; it has nothing saved but its context. release(context) is called once, when the graph is freed, or
 * before this returns if nothing is recorded, also on error. 1 to 64 inputs, 1 to 8 outputs. */
typedef void (*tl_function_rule)(tl_gradient *g, void *context);
TL_API bool tl_function(tl_function_rule rule, void *context, void (*release)(void *context), tl_tensor **inputs,
                        int n_inputs, tl_tensor **outputs, int n_outputs);

typedef struct tl_op_def {
    const char *name;
    int n_inputs, n_outputs;                    /* 1 to TL_MAX_INPUTS, 1 to TL_MAX_OUTPUTS */
    bool (*shape)(tl_call *call);               /* checks the inputs, sets the outputs */
    uint64_t (*flops)(const tl_call *call);     /* required: every op has a cost */
    uint64_t (*workspace)(const tl_call *call); /* bytes; may be NULL */
    void (*backward)(tl_gradient *g);           /* NULL: no derivative */
    tl_saves saves;                             /* inputs and outputs that backward reads */
    tl_kernel cpu, cuda;                        /* at least one; on the other device the op is an error */
} tl_op_def;
/* Registers an op for the life of the process. */
TL_API const tl_op *tl_op_register(const tl_op_def *def);
/* attr (attr_bytes bytes, may be NULL) is copied. outputs receives n_outputs tensors. */
TL_API bool tl_op_call(const tl_op *op, tl_tensor **inputs, int n_inputs, const void *attr, size_t attr_bytes,
                       tl_tensor **outputs);

/* ---- For tests --------------------------------------------------------------------------------------------------- */

/* Makes the n-th allocation from now on fail (1 = the next; 0 turns it off): host objects, pool blocks and device
 * segments all count. forever: every later one fails too. Returns how many were requested since the last call. */
TL_API uint64_t tl_fail_allocation(uint64_t n, bool forever);

#ifdef __cplusplus
}
#endif
#endif
