/* custom.c: ops added from outside. They become records like all others, and pass op_apply like all others. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "engine/apply.h"

/* The definition's rule, and a check that it described every output. */
static bool custom_shape(tl_call *c) {
    const tl_op_def *def = c->op->user;
    for (int j = 0; j < c->n_outputs; j++) c->out[j].rank = -1;
    if (!def->shape(c)) return tl_error() != TL_OK ? false : call_fail(c, "its shape rule refuses these inputs");
    for (int j = 0; j < c->n_outputs; j++)
        if (c->out[j].rank < 0) return call_fail(c, "its shape rule says nothing of output %d", j);
    return true;
}

/* Compulsory traffic of its tensors, FLOPs as its definition says. */
static void custom_cost(const tl_call *c, struct cost *cost) {
    const tl_op_def *def = c->op->user;
    cost_traffic(c, cost, def->flops(c));
}

static uint64_t custom_workspace(const tl_call *c) {
    const tl_op_def *def = c->op->user;
    return def->workspace(c);
}

static bool definition_is_whole(const tl_op_def *def) {
    if (!def || !def->name || !*def->name) return error_set(TL_ERROR_USE, "tl_op_register: an op needs a name");
    if (!text_is_name(def->name))
        return error_set(TL_ERROR_USE, "tl_op_register: a name is UTF-8 without control characters");
    const char *lacks = !def->shape                                             ? "a shape rule"
                        : !def->flops                                           ? "a cost rule"
                        : !def->cpu && !def->cuda                               ? "a kernel"
                        : def->n_inputs < 1 || def->n_inputs > TL_MAX_INPUTS    ? "an input count from 1 to 64"
                        : def->n_outputs < 1 || def->n_outputs > TL_MAX_OUTPUTS ? "an output count from 1 to 8"
                                                                                : NULL;
    if (lacks) return error_set(TL_ERROR_USE, "tl_op_register: %s lacks %s", def->name, lacks);
    for (int i = def->n_inputs; i < 64; i++)
        if (def->saves.inputs >> i & 1)
            return error_set(TL_ERROR_USE, "tl_op_register: %s saves input %d and has %d", def->name, i, def->n_inputs);
    for (int j = def->n_outputs; j < 8; j++)
        if (def->saves.outputs >> j & 1)
            return error_set(TL_ERROR_USE, "tl_op_register: %s saves output %d and has %d", def->name, j,
                             def->n_outputs);
    return true;
}
_Static_assert(TL_MAX_INPUTS == 64 && TL_MAX_OUTPUTS == 8, "tl_saves has a bit for each, and the messages say so");

const tl_op *tl_op_register(const tl_op_def *def) {
    if (!definition_is_whole(def)) return NULL;
    size_t name_bytes = strlen(def->name) + 1;
    static _Atomic(void *)
        newest; /* they live as long as the process: a chain keeps them reachable, for leak checkers */
    struct {
        tl_op op;
        tl_op_def def;
        void *older;
        char name[];
    } *own = memory_new(sizeof *own + name_bytes);
    if (!own) {
        error_memory(sizeof *own, "an op");
        return NULL;
    }
    memcpy(own->name, def->name, name_bytes);
    own->def = *def;
    own->def.name = own->name;
    own->op = (tl_op){.name = own->name,
                      .kind = OP_KERNEL,
                      .id = -1,
                      .n_outputs = def->n_outputs,
                      .shape = custom_shape,
                      .cost = custom_cost,
                      .workspace = def->workspace ? custom_workspace : NULL,
                      .backward = def->backward,
                      .saves_any = def->saves.inputs | (saved_set)def->saves.outputs << TL_MAX_INPUTS,
                      .user = &own->def};
    own->older = atomic_exchange(&newest, own);
    return &own->op;
}

bool tl_op_call(const tl_op *op, tl_tensor **inputs, int n_inputs, const void *attr, size_t attr_bytes,
                tl_tensor **outputs) {
    if (!op) return error_set(TL_ERROR_USE, "tl_op_call: got NULL instead of an op");
    const tl_op_def *def = op->user;
    if (n_inputs != def->n_inputs)
        return error_set(TL_ERROR_USE, "%s: takes %d inputs, not %d", op->name, def->n_inputs, n_inputs);
    tl_call c;
    call_begin(&c, op, inputs, n_inputs, attr, attr_bytes);
    if (!op_apply(&c)) return false;
    for (int j = 0; j < op->n_outputs; j++) outputs[j] = c.output[j];
    return true;
}

static bool has_call(const tl_call *c) { return error_given(c, "a rule of an op", "its call"); }

int tl_call_inputs(const tl_call *c) { return has_call(c) ? c->n_inputs : 0; }
tl_tensor *tl_call_input(const tl_call *c, int i) {
    return has_call(c) && i >= 0 && i < c->n_inputs ? c->input[i] : NULL;
}
const void *tl_call_attr(const tl_call *c) { return has_call(c) ? c->attr : NULL; }

bool tl_call_output(tl_call *c, int j, tl_dtype dtype, int rank, const int64_t *shape) {
    if (!has_call(c)) return false;
    if (j < 0 || j >= c->op->n_outputs || rank < 0 || rank > TL_MAX_RANK || !dtype_info(dtype))
        return call_fail(c, "its shape rule names output %d of dtype %d and rank %d", j, (int)dtype, rank);
    if (rank && !error_given(shape, c->op->name, "the shape of an output")) return false;
    layout_dense(&c->out[j], dtype, rank, shape);
    return true;
}

bool tl_call_fail(tl_call *c, const char *format, ...) {
    char message[300];
    if (!has_call(c) || !error_given(format, c->op->name, "a message")) return false;
    va_list arguments;
    va_start(arguments, format);
    number_vprint(message, sizeof message, format, arguments);
    va_end(arguments);
    return call_fail(c, "%s", message);
}

bool tl_call_fail_need(tl_call *c, const char *need, const char *format, ...) {
    char message[300];
    if (!has_call(c) || !error_given(need, c->op->name, "a need") || !error_given(format, c->op->name, "a message"))
        return false;
    va_list arguments;
    va_start(arguments, format);
    number_vprint(message, sizeof message, format, arguments);
    va_end(arguments);
    return call_fail_need(c, "%s", "%s", message, need);
}
