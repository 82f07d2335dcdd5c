/* apply.c: one op call, from inputs to results. Read spec/op.h and apply.h first.
 *
 *   check     live tensors, one device, no write into overlapping memory
 *   complex   if an operand is complex, a rule makes other calls (ops/complex.c), and this one ends here
 *   shape     the op's rule checks the inputs and describes the results
 *   results   fresh storage from the pool, a view of input 0, or an input that is overwritten
 *   prepare   the graph saves what the gradient needs; room is made for all that follows
 *   bill      the cost rule's numbers go to the ledger
 *   run       workspace and kernel; on meta there is none. From here on nothing can fail
 *   commit    versions advance, the graph attaches the node to the results, the scope owns them
 *
 * Until the kernel has succeeded, every step can be undone, and is: a call that fails leaves nothing (apply.h).
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "account/ledger.h"
#include "base/error.h"
#include "base/number.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/scratch.h"
#include "engine/autocast.h"
#include "engine/keeper.h"
#include "engine/graph.h"
#include "engine/apply.h"
#include "engine/inner_calls.h"
#include "engine/scope.h"
#include "spec/op_id.h"
#include "tensor/timeline.h"

/* Operands as part of a format. */
static void operands_format(const tl_call *c, char *to, size_t size) {
    size_t used = 0;
    for (int i = 0; i < c->n_inputs && i < 6; i++) {
        char text[200];
        tl_describe(c->input[i], text, sizeof text);
        used += (size_t)snprintf(to + used, size - used, i ? " x " : ": ");
        for (const char *at = text; *at && used + 2 < size; at++) {
            if (*at == '%') to[used++] = '%';
            to[used++] = *at;
        }
        if (used + 4 >= size) break;
    }
    to[used] = 0;
}

/* The format with the operands inserted at a position. */
static bool fail(const tl_call *c, size_t operands_at, const char *format, const char *end, va_list arguments) {
    char operands[600], whole[1200], message[1200];
    operands_format(c, operands, sizeof operands);
    snprintf(whole, sizeof whole, "%.*s%s%s%s", (int)operands_at, format, operands, format + operands_at, end);
    number_vprint(message, sizeof message, whole, arguments);
    return error_set(TL_ERROR_USE, "%s: %s", c->op->name, message);
}

bool call_fail(const tl_call *c, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fail(c, strlen(format), format, "", arguments);
    va_end(arguments);
    return false;
}

bool call_fail_split(const tl_call *c, size_t operands_at, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fail(c, operands_at, format, ")", arguments);
    va_end(arguments);
    return false;
}

/* Two views of one storage that are not the same view: may they share an element? Exact when their strides have a
 * common divisor that tells them apart (even and odd slices), otherwise by their span. */
static bool views_may_meet(const tl_tensor *a, const tl_tensor *b) {
    int64_t divisor = 0, low_a, high_a, low_b, high_b;
    for (int pass = 0; pass < 2; pass++) {
        const tl_tensor *x = pass ? b : a;
        for (int i = 0; i < x->rank; i++)
            for (int64_t m = x->stride[i] < 0 ? -x->stride[i] : x->stride[i], r; x->shape[i] > 1 && m; m = r)
                r = divisor % m, divisor = m;
    }
    if (divisor > 1 && (a->offset - b->offset) % divisor != 0) return false;
    strides_span(a->rank, a->shape, a->stride, &low_a, &high_a);
    strides_span(b->rank, b->shape, b->stride, &low_b, &high_b);
    return a->offset + low_a <= b->offset + high_b && b->offset + low_b <= a->offset + high_a;
}

/* Whether the call writes into input i: as a result, or without one. */
static bool call_writes(const tl_call *c, int i) {
    bool writes = c->op->changes && c->op->changes(c, i);
    for (int j = 0; j < c->n_outputs && !writes; j++) writes = overwritten(c, j) == i;
    return writes;
}

/* In place: no element may be written twice, or read under another geometry. */
static bool writes_are_safe(const tl_call *c, int target) {
    const tl_tensor *x = c->input[target];
    if (x->numel && strides_overlap(x->rank, x->shape, x->stride))
        return call_fail_need(c, "more than one element of the written-to tensor refers to a single memory location",
                              "a tensor that is not expanded: clone it first");
    for (int i = 0; i < c->n_inputs; i++)
        if (i != target && c->input[i]->storage == x->storage && call_writes(c, i))
            return call_fail_need(c, "two of the written-to tensors share memory", "a clone of one of them");
    for (int i = 0; i < c->n_inputs; i++) {
        const tl_tensor *y = c->input[i];
        if (i == target || y->storage != x->storage || tensor_same_view(x, y) || !x->numel || !y->numel) continue;
        if (views_may_meet(x, y))
            return call_fail_need(
                c, "some elements of the input tensor and the written-to tensor refer to a single memory location",
                "a clone of one of them");
    }
    return true;
}

static bool call_check(tl_call *c) {
    for (int i = 0; i < c->n_inputs; i++) {
        if (!tensor_check(c->input[i], c->op->name)) return false;
        tl_device *device = c->input[i]->storage->device;
        if (c->device && c->device != device)
            return call_fail_need(c, "Expected all tensors to be on the same device", "tl_to");
        c->device = device;
        c->has_complex |= dtype_is_complex(c->input[i]->dtype);
    }
    if (!c->out_device) c->out_device = c->device;
    if (!device_check(c->device, c->op->name) || !device_check(c->out_device, c->op->name)) return false;
    if (c->op->kind == OP_DYNAMIC && !device_has_data(c->device))
        return call_fail_need(c, "its result depends on data, and meta has none", "a real device");
    if (c->has_complex) return true; /* what it writes is checked in the calls on its parts */
    for (int j = 0; j < c->n_outputs; j++)
        if (overwritten(c, j) >= 0 && !writes_are_safe(c, overwritten(c, j))) return false;
    for (int i = 0; c->op->changes && i < c->n_inputs; i++)
        if (c->op->changes(c, i) && !writes_are_safe(c, i)) return false;
    return true;
}

static void outputs_drop(tl_call *c, int n) {
    for (int j = 0; j < n; j++)
        if (overwritten(c, j) < 0) tensor_drop(c->output[j]);
}

static tl_tensor *output_new(tl_call *c, int j) {
    struct layout *l = &c->out[j];
    int64_t numel;
    uint64_t bytes;
    if (!shape_numel(l->rank, l->shape, &numel) || !dtype_bytes(l->dtype, numel, &bytes)) {
        call_fail(c, "the result has more elements than can be counted");
        return NULL;
    }
    bool is_view = c->op->kind == OP_VIEW;
    struct storage *s = is_view ? storage_keep(c->input[0]->storage)
                                : storage_new(c->out_device, bytes, thread_state()->path, TL_TEMPORARY);
    if (s && !is_view) storage_name(s, c->op->name, l->dtype, l->rank, l->shape);
    return s ? tensor_new(s, l, numel) : NULL;
}

static bool outputs_new(tl_call *c) {
    for (int j = 0; j < c->n_outputs; j++) {
        int target = overwritten(c, j);
        c->output[j] = target >= 0 ? c->input[target] : output_new(c, j);
        if (!c->output[j]) {
            outputs_drop(c, j);
            return false;
        }
    }
    return true;
}

static tl_operand operand(const tl_tensor *x) {
    return (tl_operand){
        .data = tensor_data(x), .dtype = x->dtype, .rank = x->rank, .shape = x->shape, .stride = x->stride};
}

__attribute__((noinline)) static tl_kernel custom_kernel(const tl_call *c) {
    const struct device_rules *rules = c->device->target->rules;
    return rules->custom ? rules->custom(c->op->user) : NULL;
}

__attribute__((noinline)) static bool kernel_run(tl_call *c, struct storage *workspace) {
    tl_operand in[TL_MAX_INPUTS], out[TL_MAX_OUTPUTS];
    char error[200] = "";
    for (int i = 0; i < c->n_inputs; i++) in[i] = operand(c->input[i]);
    for (int j = 0; j < c->n_outputs; j++) out[j] = operand(c->output[j]);
    tl_kernel_args args = {.op = c->op->name,
                           .in = in,
                           .out = out,
                           .n_in = c->n_inputs,
                           .n_out = c->n_outputs,
                           .attr = c->attr,
                           .workspace = workspace ? workspace->data : NULL,
                           .workspace_bytes = workspace ? (size_t)workspace->bytes : 0,
                           .n_threads = process_threads(),
                           .stream = c->device->stream,
                           .error = error,
                           .attr_bytes = c->attr_bytes};
    const tl_device *d = c->device;
    tl_kernel kernel = c->op->id >= 0 ? d->kernels[c->op->id] : custom_kernel(c);
    bool ok;
    if (device_is_host(d) && !scratch_ready()) return error_memory(SCRATCH_BYTES, "the scratch of a thread");
    if (c->op->run) ok = c->op->run(c, error);
    else if (!kernel) ok = snprintf(error, sizeof error, "it has no kernel on %s", d->name) < 0;
    else ok = kernel(&args);
    return ok || call_fail(c, "%s", error);
}

static void call_entry(const tl_call *c, struct ledger_entry *entry) {
    const struct thread_state *s = thread_state();
    tl_dtype dtype = c->op->compute_dtype ? c->op->compute_dtype(c)
                     : c->n_inputs        ? c->input[0]->dtype
                                          : c->out[0].dtype;
    c->op->cost(c, &entry->cost);
    entry->span.device = NULL;
    entry->key = (struct ledger_key){.op = c->op->name,
                                     .path = s->path,
                                     .phase = (uint8_t)s->phase,
                                     .dtype = (uint8_t)dtype,
                                     .accumulate = (uint8_t)dtype_accumulate(dtype)};
}

/* Saved tensors of these storages are out of date. */
static void versions_advance(const tl_call *c) {
    for (int j = 0; j < c->n_outputs; j++)
        if (overwritten(c, j) >= 0) c->output[j]->storage->version++;
    for (int i = 0; c->op->changes && i < c->n_inputs; i++)
        if (c->op->changes(c, i)) c->input[i]->storage->version++;
}

static uint64_t workspace_bytes(const tl_call *c) {
    const workspace_rule *own = c->device->workspace, rule = own && c->op->id >= 0 ? own[c->op->id] : NULL;
    return rule ? rule(c, c->device->target) : c->op->workspace ? c->op->workspace(c) : 0;
}

/* "[8,64] x [64,256] -> [8,256]", cut where it is longer. */
static void shapes_print(char *to, size_t size, const tl_call *c) {
    size_t used = 0;
    char text[SHAPE_TEXT];
    *to = 0;
    for (int i = 0; i < c->n_inputs + c->n_outputs && used < size; i++) {
        const tl_tensor *x = i < c->n_inputs ? c->input[i] : c->output[i - c->n_inputs];
        const char *between = i == c->n_inputs ? i ? " -> " : "" : i ? " x " : "";
        shape_print(text, sizeof text, x->rank, x->shape);
        used += (size_t)snprintf(to + used, size - used, "%s%s", between, text);
    }
}

static void held_read(struct held *held, void *to) { memcpy(to, held->by_purpose, sizeof held->by_purpose); }

/* Into the list of what happens when (tensor/timeline.h), while it is on. */
__attribute__((noinline, cold)) static void call_record(const tl_call *c, const struct ledger_entry *entry,
                                                        int64_t from_ns) {
    struct timeline_record r = {.kind = TIMELINE_OP,
                                .name = c->op->name,
                                .from_ns = from_ns,
                                .to_ns = timeline_now(),
                                .device = c->device,
                                .began = entry->span.from,
                                .ended = entry->span.to,
                                .path = entry->key.path,
                                .phase = entry->key.phase,
                                .dtype = entry->key.dtype,
                                .holder = c->out_device};
    for (int i = 0; i < entry->cost.n_parts; i++) {
        const struct cost_part *part = &entry->cost.part[i];
        r.flops += (uint64_t)part->flops;
        r.bytes += (uint64_t)(part->bytes_read + part->bytes_written);
    }
    shapes_print(r.shapes, sizeof r.shapes, c);
    pool_account(c->out_device->pool, held_read, r.held);
    timeline_add(&r);
}

/* The kernel, in its workspace and between marks of time. */
static bool call_compute(tl_call *c, struct ledger_entry *entry) {
    uint64_t bytes = workspace_bytes(c);
    struct storage *workspace = bytes ? storage_new(c->device, bytes, entry->key.path, TL_WORKSPACE) : NULL;
    if (bytes && !workspace) return false;
    if (workspace) storage_name(workspace, c->op->name, TL_U8, 0, NULL);
    bool ok = true;
    if (device_has_data(c->device) && device_has_data(c->out_device)) {
        const struct device_functions *f = c->device->functions;
        bool is_timed = ledger_is_profiling && f->mark;
        int64_t from_ns = is_timed && timeline_is_on ? timeline_now() : 0;
        int64_t from = is_timed ? f->mark(c->device) : 0;
        ok = kernel_run(c, workspace);
        if (is_timed) entry->span = (struct ledger_span){c->device, from, f->mark(c->device)};
        if (from_ns && ok) call_record(c, entry, from_ns);
        if (!ok && device_runs_ahead(c->device)) versions_advance(c); /* it may have begun to write: see apply.h */
    }
    if (workspace) storage_drop(workspace);
    return ok;
}

/* Bills and computes. A bill needs memory, so it comes first, and is undone if the rest fails. */
static bool call_run(tl_call *c) {
    struct ledger_list *held = thread_state()->held_bills;
    struct ledger_entry here, *entry = held ? ledger_entry_new() : &here;
    if (!entry) return false;
    call_entry(c, entry);
    bool is_billed = ledger_bill(entry), ok = is_billed && (c->op->kind == OP_VIEW || call_compute(c, entry));
    if (ok && held) ledger_hold(held, entry);
    else if (ok && entry->span.device) ledger_time(&entry->key, &entry->span);
    if (ok) return true;
    if (is_billed) ledger_unbill(entry);
    if (held) memory_free(entry);
    return false;
}

/* With the results allocated: true if everything is done, false if nothing is. */
static bool call_do(tl_call *c) {
    struct graph_record record;
    if (!scope_reserve((size_t)c->n_outputs) || !graph_prepare(c, &record)) return false;
    bool is_kept = c->op->is_costly && keeper_is_recording();
    if (is_kept && !keeper_prepare(c)) {
        graph_cancel(&record);
        return false;
    }
    if (!c->is_replayed && !call_run(c)) {
        if (is_kept) keeper_cancel(c);
        graph_cancel(&record);
        return false;
    }
    versions_advance(c);
    graph_commit(c, &record);
    for (int j = 0; j < c->n_outputs; j++)
        if (overwritten(c, j) < 0) scope_own(c->output[j]);
    if (is_kept) keeper_commit(c);
    return true;
}

static void account_call(struct held *held, void *call) {
    const struct thread_state *s = thread_state();
    allocations_call(held, ((const tl_call *)call)->op->name, s->path, s->phase);
}

/* In the list of allocations, where it is on: those that follow are this call's. */
__attribute__((noinline, cold)) static void call_note(tl_call *c) {
    pool_account(c->out_device->pool, account_call, c);
}

/* A call with a complex operand, made of calls on real parts: each is billed as it runs, and what they make on the way
 * is freed. */
__attribute__((noinline, cold)) static tl_tensor *call_complex(tl_call *c) {
    const complex_rule rule = inner_calls.complex_rule(c->op);
    if (!rule) {
        int i = 0;
        while (!dtype_is_complex(c->input[i]->dtype)) i++;
        call_fail_need(c, "not implemented for %s", "a real dtype", dtype_info(c->input[i]->dtype)->torch_name);
        return NULL;
    }
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *result = rule(c);
    if (overwritten(c, 0) < 0) return c->output[0] = tl_scope_return(scope, result);
    tl_scope_end(scope);
    return result ? c->output[0] = c->input[0] : NULL;
}

static tl_tensor *call_apply(tl_call *c) {
    if (!call_check(c)) return NULL;
    if (c->has_complex && c->op->kind != OP_VIEW && c->op->id != OP_ID_transfer) return call_complex(c);
    if (!c->op->shape(c)) return NULL;
    if (c->op->is_costly && !keeper_replay(c)) return NULL;
    if (allocations_are_on && c->op->kind != OP_VIEW) call_note(c);
    bool has_outputs = c->is_replayed || outputs_new(c);
    if (has_outputs && call_do(c)) return c->n_outputs ? c->output[0] : c->n_inputs ? c->input[0] : NULL;
    if (has_outputs && !c->is_replayed) outputs_drop(c, c->n_outputs);
    if (c->op->is_costly) keeper_replay_cancel(c);
    return NULL;
}

/* Under autocast: the casts are part of the call, and are undone with it if it fails. */
__attribute__((noinline)) static tl_tensor *call_apply_wide(tl_call *c) {
    struct thread_state *s = thread_state();
    struct ledger_list casts = {0}, *outer = s->held_bills;
    size_t n_owned = s->n_owned;
    tl_tensor *given[TL_MAX_INPUTS];
    memcpy(given, c->input, (size_t)c->n_inputs * sizeof *given);
    s->held_bills = &casts;
    bool ok = autocast_call(c);
    s->held_bills = outer;
    tl_tensor *result = ok ? call_apply(c) : NULL;
    if (result) {
        ledger_list_keep(&casts, outer);
        return result;
    }
    ledger_list_unbill(&casts);
    memcpy(c->input, given, (size_t)c->n_inputs * sizeof *given);
    scope_drop_to(n_owned);
    return NULL;
}

tl_tensor *op_apply(tl_call *c) {
    INVARIANT(c->op->shape && c->op->cost);
    return c->op->is_wide && thread_state()->autocast && !c->in_place ? call_apply_wide(c) : call_apply(c);
}
