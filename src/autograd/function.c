/* function.c: a gradient rule for results that the program computed itself.
 *
 * An op registered by a program (custom.c) has a kernel; a function has only a rule. Its results were computed by
 * ordinary ops with recording off, and one node attaches the rule to them. Bindings use this to offer functions with
 * hand-written gradients. */
#include "autograd/function.h"

#include "base/error.h"
#include "engine/graph.h"
#include "engine/scope.h"

#define MAX_FUNCTION_INPUTS TL_MAX_INPUTS

struct attr_function {
    tl_function_rule rule;
    void *context;
    void (*release)(void *context);
};

static void function_backward(tl_gradient *g) {
    const struct attr_function *a = g->node->attr;
    a->rule(g, a->context);
}

static void function_forget(void *attr) {
    const struct attr_function *a = attr;
    if (a->release) a->release(a->context);
}

static const tl_op op_function = {
    .name = "function", .id = -1, .backward = function_backward, .forget = function_forget};
static const tl_op op_passing = {
    .name = "function", .id = -1, .backward = function_backward, .forget = function_forget, .passes_on = true};

static bool function_check(tl_function_rule rule, tl_tensor **inputs, int n_inputs, tl_tensor **outputs,
                           int n_outputs) {
    if (!rule || n_inputs < 1 || n_inputs > MAX_FUNCTION_INPUTS || n_outputs < 1 || n_outputs > TL_MAX_OUTPUTS)
        return error_set(TL_ERROR_USE, "tl_function: takes a rule, 1 to %d inputs and 1 to %d outputs",
                         MAX_FUNCTION_INPUTS, TL_MAX_OUTPUTS);
    for (int i = 0; i < n_inputs; i++)
        if (!tensor_check(inputs[i], "tl_function")) return false;
    for (int j = 0; j < n_outputs; j++)
        if (!tensor_check(outputs[j], "tl_function")) return false;
    return true;
}

/* Aliases of the results, without history. */
static bool outputs_alias(tl_tensor **outputs, int n_outputs, tl_tensor **results) {
    for (int j = 0; j < n_outputs; j++)
        if (!(results[j] = scope_adopt(tensor_alias(outputs[j])))) return false;
    return true;
}

static bool function_attach(const tl_op *op, struct attr_function a, tl_tensor **inputs, int n_inputs,
                            tl_tensor **outputs, int n_outputs) {
    const size_t n_owned = thread_state()->n_owned;
    bool needs_grad = false, ok = function_check(a.rule, inputs, n_inputs, outputs, n_outputs);
    for (int i = 0; ok && i < n_inputs && !thread_state()->grad_off; i++) needs_grad |= tensor_needs_grad(inputs[i]);
    tl_tensor *results[TL_MAX_OUTPUTS];
    ok = ok && outputs_alias(outputs, n_outputs, results);
    struct node *n = NULL;
    if (ok && needs_grad) {
        n = node_new(op, inputs, n_inputs, n_outputs, &a, sizeof a, 0);
        ok = n != NULL;
    }
    if (!n) function_forget(&a); /* otherwise the node has taken it over */
    for (int j = 0; ok && j < n_outputs; j++) {
        if (n && dtype_has_gradient(results[j]->dtype)) node_attach(n, results[j], j);
        outputs[j] = results[j];
    }
    if (n) node_drop(n);
    if (!ok) scope_drop_to(n_owned);
    return ok;
}

bool tl_function(tl_function_rule rule, void *context, void (*release)(void *context), tl_tensor **inputs, int n_inputs,
                 tl_tensor **outputs, int n_outputs) {
    return function_attach(&op_function, (struct attr_function){rule, context, release}, inputs, n_inputs, outputs,
                           n_outputs);
}

bool function_passing(tl_function_rule rule, void *context, tl_tensor *input, tl_tensor **outputs, int n_outputs) {
    return function_attach(&op_passing, (struct attr_function){rule, context, NULL}, &input, 1, outputs, n_outputs);
}
