/* tensor.c: handles.
 *
 * *Dead handles.* When the last reference is dropped, the handle is marked dead and waits in a queue of the thread
 * before its memory is reused. Using a tensor after its scope has ended is the most common mistake in C programs;
 * while the handle waits, every call rejects it with an error. The queue is short (GRAVES / 2 to GRAVES): long
 * enough to catch the mistake where it is made, small enough to stay in the cache.
 */
#include "tensor/tensor.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

#define GRAVES 256
#define SMALL_RANK 6 /* handles have room for this many axes, or for TL_MAX_RANK, which is rare */

void (*tensor_forget)(tl_tensor *x);

struct graveyard { /* a ring: the oldest at `first` */
    tl_tensor *grave[GRAVES];
    unsigned first, count;
};
static _Thread_local struct graveyard *graveyard;
static pthread_key_t graveyard_key;
static pthread_once_t graveyard_once = PTHREAD_ONCE_INIT;

static void graveyard_free(void *p) {
    struct graveyard *yard = p;
    for (unsigned i = 0; i < yard->count; i++) free(yard->grave[(yard->first + i) % GRAVES]);
    free(yard);
    graveyard = NULL;
}

static void graveyard_at_exit(void) { /* the main thread's key destructor does not run */
    if (graveyard) graveyard_free(graveyard);
}

static void graveyard_setup(void) {
    pthread_key_create(&graveyard_key, graveyard_free);
    atexit(graveyard_at_exit);
}

static struct graveyard *graveyard_get(void) {
    if (graveyard) return graveyard;
    pthread_once(&graveyard_once, graveyard_setup);
    graveyard = calloc(1, sizeof *graveyard);
    if (graveyard) pthread_setspecific(graveyard_key, graveyard);
    return graveyard;
}

static tl_tensor *grave_open(struct graveyard *yard) {
    tl_tensor *x = yard->grave[yard->first];
    yard->first = (yard->first + 1) % GRAVES;
    yard->count--;
    return x;
}

static tl_tensor *handle_new(int rank) {
    if (memory_fault()) return NULL;
    int capacity = rank <= SMALL_RANK ? SMALL_RANK : TL_MAX_RANK;
    tl_tensor *x = NULL;
    if (graveyard && graveyard->count > GRAVES / 2) x = grave_open(graveyard);
    if (x && x->capacity != capacity) {
        free(x);
        x = NULL;
    }
    if (!x) x = malloc(sizeof *x + 2 * (size_t)capacity * sizeof(int64_t));
    if (!x) return NULL;
    memset(x, 0, sizeof *x);
    x->capacity = (uint8_t)capacity;
    x->stride = x->shape + capacity;
    return x;
}

static void handle_bury(tl_tensor *x) {
    struct graveyard *yard = graveyard_get();
    if (!yard) {
        free(x);
        return;
    }
    x->alive = TENSOR_DEAD;
    if (yard->count == GRAVES) free(grave_open(yard));
    yard->grave[(yard->first + yard->count++) % GRAVES] = x;
}

tl_tensor *tensor_new(struct storage *storage, const struct layout *l, int64_t numel) {
    tl_tensor *x = handle_new(l->rank);
    if (!x) {
        storage_drop(storage);
        error_memory(sizeof *x, "a tensor");
        return NULL;
    }
    x->alive = TENSOR_ALIVE;
    atomic_init(&x->refs, 1);
    x->dtype = l->dtype;
    x->rank = (uint8_t)l->rank;
    x->numel = numel;
    x->offset = l->offset;
    x->storage = storage;
    for (int i = 0; i < l->rank; i++) {
        x->shape[i] = l->shape[i];
        x->stride[i] = l->stride[i];
    }
    x->is_dense = strides_are_dense(x->rank, x->shape, x->stride);
    return x;
}

tl_tensor *tensor_alias(const tl_tensor *x) {
    struct layout l;
    tensor_layout(x, &l);
    return tensor_new(storage_keep(x->storage), &l, x->numel);
}

void tensor_drop(tl_tensor *x) {
    if (!x || !refs_drop(&x->refs)) return;
    if (x->node || x->grad || x->base || x->extra) tensor_forget(x);
    storage_drop(x->storage);
    handle_bury(x);
}

void tensor_layout(const tl_tensor *x, struct layout *l) {
    l->dtype = x->dtype;
    l->rank = x->rank;
    l->offset = x->offset;
    for (int i = 0; i < x->rank; i++) {
        l->shape[i] = x->shape[i];
        l->stride[i] = x->stride[i];
    }
}

void *tensor_data(const tl_tensor *x) {
    if (!x->storage->data) return NULL;
    return (char *)x->storage->data + x->offset * dtype_info(x->dtype)->bits / 8;
}

void tensor_move_into(tl_tensor *x, const tl_tensor *whole, int64_t at) {
    struct storage *before = x->storage;
    x->storage = storage_keep(whole->storage);
    x->offset = whole->offset + at;
    storage_drop(before);
}

bool tensor_same_view(const tl_tensor *a, const tl_tensor *b) {
    if (a->storage != b->storage || a->offset != b->offset || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i] || a->stride[i] != b->stride[i]) return false;
    return true;
}

bool tensor_check(const tl_tensor *x, const char *what) {
    if (!x) return error_set(TL_ERROR_USE, "%s: got NULL instead of a tensor", what);
    if (x->alive == TENSOR_ALIVE) return true;
    return error_set(TL_ERROR_USE,
                     "%s: this tensor is gone: the scope that owned it has ended (tl_scope_return hands a result "
                     "outwards, tl_keep holds one)",
                     what);
}

/* ---- Reading ---- */

int tl_rank(const tl_tensor *x) { return tensor_check(x, "tl_rank") ? x->rank : 0; }

int64_t tl_size(const tl_tensor *x, int axis) {
    if (!tensor_check(x, "tl_size")) return 0;
    int at = axis_check("tl_size", axis, x->rank);
    return at < 0 ? 0 : x->shape[at];
}

int64_t tl_stride(const tl_tensor *x, int axis) {
    if (!tensor_check(x, "tl_stride")) return 0;
    int at = axis_check("tl_stride", axis, x->rank);
    return at < 0 ? 0 : x->stride[at];
}

const int64_t *tl_shape(const tl_tensor *x) { return tensor_check(x, "tl_shape") ? x->shape : NULL; }
int64_t tl_offset(const tl_tensor *x) { return tensor_check(x, "tl_offset") ? x->offset : 0; }
int64_t tl_numel(const tl_tensor *x) { return tensor_check(x, "tl_numel") ? x->numel : 0; }
tl_dtype tl_dtype_of(const tl_tensor *x) { return tensor_check(x, "tl_dtype_of") ? x->dtype : TL_DTYPE_COUNT; }
tl_device *tl_device_of(const tl_tensor *x) { return tensor_check(x, "tl_device_of") ? x->storage->device : NULL; }
bool tl_is_contiguous(const tl_tensor *x) { return tensor_check(x, "tl_is_contiguous") && tensor_is_dense(x); }
uint64_t tl_version_of(const tl_tensor *x) { return tensor_check(x, "tl_version_of") ? x->storage->version : 0; }
void *tl_data(const tl_tensor *x) { return tensor_check(x, "tl_data") ? tensor_data(x) : NULL; }

tl_purpose tl_purpose_of(const tl_tensor *x) {
    return tensor_check(x, "tl_purpose_of") ? x->storage->purpose : TL_TEMPORARY;
}

uint64_t tl_storage_bytes(const tl_tensor *x) { return tensor_check(x, "tl_storage_bytes") ? x->storage->bytes : 0; }

uint64_t tl_bytes(const tl_tensor *x) {
    uint64_t bytes = 0;
    if (tensor_check(x, "tl_bytes")) dtype_bytes(x->dtype, x->numel, &bytes);
    return bytes;
}

bool tl_shares_storage(const tl_tensor *a, const tl_tensor *b) {
    return tensor_check(a, "tl_shares_storage") && tensor_check(b, "tl_shares_storage") && a->storage == b->storage;
}

tl_tensor *tl_set_purpose(tl_tensor *x, tl_purpose purpose) {
    if (!tensor_check(x, "tl_set_purpose")) return NULL;
    if ((unsigned)purpose >= TL_PURPOSE_COUNT) {
        error_set(TL_ERROR_USE, "tl_set_purpose: no purpose has the number %d", (int)purpose);
        return NULL;
    }
    storage_move(x->storage, purpose);
    return x;
}

size_t tl_describe(const tl_tensor *x, char *buffer, size_t size) {
    if (!buffer) size = 0; /* the length alone */
    if (!x || x->alive != TENSOR_ALIVE) return (size_t)snprintf(buffer, size, "%s", x ? "(gone)" : "NULL");
    char shape[TL_MAX_RANK * 21 + 3];
    shape_print(shape, sizeof shape, x->rank, x->shape);
    return (size_t)snprintf(buffer, size, "%s%s@%s", dtype_info(x->dtype)->name, shape, x->storage->device->name);
}
