#include "tensor/storage.h"

#include "base/error.h"
#include "base/memory.h"
#include "tensor/tensor.h"

static struct storage *storage_alone(tl_device *device, uint64_t bytes, tl_purpose purpose) {
    struct storage *s = memory_take(sizeof *s);
    if (!s) {
        error_memory(sizeof *s, "a storage");
        return NULL;
    }
    *s = (struct storage){.refs = 1, .purpose = purpose, .device = device, .bytes = bytes};
    return s;
}

struct storage *storage_new(tl_device *device, uint64_t bytes, uint32_t path, tl_purpose purpose) {
    struct storage *s = storage_alone(device, bytes, purpose);
    if (!s || bytes == 0) return s;
    s->block = pool_take(device->pool, bytes, path, purpose);
    if (!s->block) {
        memory_put(s, sizeof *s);
        return NULL;
    }
    s->data = block_data(s->block);
    return s;
}

struct storage *storage_external(tl_device *device, void *data, uint64_t bytes, void (*deleter)(void *),
                                 void *context) {
    struct storage *s = storage_alone(device, bytes, TL_DATA);
    if (!s) return NULL;
    s->data = data;
    s->deleter = deleter;
    s->context = context;
    return s;
}

void storage_drop(struct storage *s) {
    if (!refs_drop(&s->refs)) return;
    tensor_drop(s->sums);
    if (s->block) pool_give(s->device->pool, s->block);
    if (s->deleter) {
        /* The pool knows the order of the device's work; the owner of external memory does not. */
        char error[200];
        if (device_runs_ahead(s->device) && device_is_reachable(s->device))
            s->device->functions->sync(s->device,
                                       error); /* a failure is recorded in the device and reported by the next op */
        s->deleter(s->context);
    }
    memory_put(s, sizeof *s);
}

void storage_release(struct storage *s) {
    if (s->block) pool_give(s->device->pool, s->block);
    s->block = NULL;
    s->data = NULL;
}

void storage_refill(struct storage *s, struct storage *from) {
    s->block = from->block;
    s->data = from->data;
    from->block = NULL;
    from->data = NULL;
    if (s->block && s->purpose != from->purpose) pool_move(s->device->pool, s->block, s->purpose);
}

void storage_move(struct storage *s, tl_purpose purpose) {
    if (s->purpose == purpose) return;
    s->purpose = purpose;
    if (s->block) pool_move(s->device->pool, s->block, purpose);
}

void storage_set_sums(struct storage *s, tl_tensor *sums) {
    tensor_drop(s->sums);
    s->sums = tensor_keep(sums);
    s->sums_version = s->version;
}

tl_tensor *storage_take_sums(struct storage *s) {
    tl_tensor *sums = s->sums;
    s->sums = NULL;
    if (!sums || s->sums_version == s->version) return sums;
    tensor_drop(sums);
    return NULL;
}
