#include "file/pieces.h"

#include "base/error.h"
#include "base/memory.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

enum { PIECE_BYTES = 4 << 20 };

struct taker {
    char *buffer;
    bool (*take)(void *context, const void *data, size_t bytes);
    void *context;
};

static bool is_plain(const tl_tensor *x) { return device_is_host(x->storage->device) && tensor_is_dense(x); }

static bool piece_take(const struct taker *t, tl_tensor *x) {
    size_t bytes = (size_t)tl_bytes(x);
    return tl_to_data(x, t->buffer, bytes) && t->take(t->context, t->buffer, bytes);
}

/* In row-major order: slices of the first axis that has more than one row, each as many rows as fit (or one, which is
 * then divided along its next axis). */
static bool slices_take(const struct taker *t, tl_tensor *x) {
    if (tl_bytes(x) <= PIECE_BYTES) return piece_take(t, x);
    int axis = 0;
    while (tl_size(x, axis) == 1) axis++; /* there is one: an element is smaller than a piece */
    int64_t n_rows = tl_size(x, axis), row = tl_numel(x) / n_rows;
    int64_t at_once =
        (int64_t)PIECE_BYTES * 8 / tl_dtype_bits(x->dtype) / row; /* whole bytes: row is 1 or even in f4 */
    if (at_once == 0) at_once = 1;
    bool ok = true;
    for (int64_t i = 0; ok && i < n_rows; i += at_once) {
        tl_scope scope = tl_scope_begin();
        int64_t stop = i + at_once < n_rows ? i + at_once : n_rows;
        tl_tensor *rows = scope.depth ? tl_slice(x, axis, i, stop, 1) : NULL;
        ok = rows && slices_take(t, rows);
        if (scope.depth) tl_scope_end(scope);
    }
    return ok;
}

bool pieces_each(struct pieces *p, tl_tensor *x, bool (*take)(void *context, const void *data, size_t bytes),
                 void *context) {
    if (tl_numel(x) == 0) return true;
    if (is_plain(x)) return take(context, tensor_data(x), tl_bytes(x));
    if (!p->buffer) p->buffer = memory_new(PIECE_BYTES);
    if (!p->buffer) return error_memory(PIECE_BYTES, "a buffer to save tensors through");
    bool mode = tl_set_grad_mode(false);
    bool ok = slices_take(&(struct taker){p->buffer, take, context}, x);
    tl_set_grad_mode(mode);
    return ok;
}

void pieces_close(struct pieces *p) { memory_free(p->buffer); }
