"""Gradients: backward, grad, and functions with a derivative of their own."""
import ctypes
import threading

from .. import _errors
from .._grad import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled  # noqa: F401
from .._library import c, constants, forever, header, lib
from .._tensor import Tensor

_RETAIN, _CREATE = constants["TL_RETAIN_GRAPH"], constants["TL_CREATE_GRAPH"]


def _flags(retain_graph, create_graph):
    retain_graph = create_graph if retain_graph is None else retain_graph
    return (_RETAIN if retain_graph else 0) | (_CREATE if create_graph else 0)


def _check_seed(x, seed):
    if not lib.tl_needs_grad(x):
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    if seed is None and lib.tl_numel(x) != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    if seed is not None and seed.shape != x.shape:
        raise RuntimeError(f"Mismatch in shape: grad_output[0] has a shape of {seed.shape} and output[0] has a shape "
                           f"of {x.shape}.")


class _Passes(threading.local):
    """Whether the pass that this thread is in keeps what Functions saved."""
    retains = False


_passes = _Passes()


class _walking:
    """A pass with such flags; another one may be around it."""

    def __init__(self, flags):
        self.retains = flags != 0

    def __enter__(self):
        self.outer, _passes.retains = _passes.retains, self.retains

    def __exit__(self, *_):
        _passes.retains = self.outer


def _one(tensors, seeds):
    """Several outputs as one: the sum of each times its seed. Alone, an output stays as it is."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    seeds = [None] * len(tensors) if seeds is None else [seeds] if isinstance(seeds, Tensor) else list(seeds)
    for x, seed in zip(tensors, seeds):
        _check_seed(x, seed)
    if len(tensors) == 1:
        return tensors[0], seeds[0]
    total = None
    for x, seed in zip(tensors, seeds):
        if x.dtype.is_complex and seed is not None:  # by parts
            x, seed = lib.tl_view_as_real(x), lib.tl_view_as_real(lib.tl_cast(seed, lib.tl_dtype_of(x)))
        part = x if seed is None else lib.tl_mul(x, seed)
        part = lib.tl_sum_all(part)
        total = part if total is None else lib.tl_add(total, part)
    return total, None


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """Adds the gradients of the outputs to the .grad of every leaf."""
    output, seed = _one(tensors, grad_tensors)
    if inputs is None:
        flags = _flags(retain_graph, create_graph)
        leaves = _leaves_of(output) if detect_anomaly._is_on else ()
        with _earlier_put_aside(), _walking(flags):
            lib.tl_backward(output, seed, flags)
        for x, users in leaves:
            if x.grad is not None and bool(lib.tl_isnan(x.grad).any()):
                raise RuntimeError(f"Function '{users}' returned nan values in the gradient of a leaf of shape "
                                   f"{tuple(x.shape)}")
        return
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for x, g in zip(inputs, grad(output, inputs, seed, retain_graph, create_graph, allow_unused=True)):
        if g is not None:
            x.grad = g if x.grad is None else x.grad + g


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=None,
         materialize_grads=False):
    """The gradients of outputs for each of the inputs, without touching any .grad."""
    output, seed = _one(outputs, grad_outputs)
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for x in inputs:
        if not lib.tl_needs_grad(x):
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    wanted = (ctypes.c_void_p * len(inputs))(*[lib.address_of(x) for x in inputs])
    found = (ctypes.c_void_p * len(inputs))()
    flags, scope = _flags(retain_graph, create_graph), c.tl_scope_begin()
    with _walking(flags):
        ok = c.tl_gradients(lib.address_of(output), None if seed is None else lib.address_of(seed), wanted, len(inputs),
                            flags, found)
    results = [lib.wrap(Tensor, p) if p else None for p in found] if ok else []
    c.tl_scope_end(scope)
    if not ok:
        _raise()
    if any(r is None for r in results) and not (allow_unused or materialize_grads):
        raise RuntimeError("One of the differentiated Tensors appears to not have been used in the graph. "
                           "Set allow_unused=True if this is the desired behavior.")
    if materialize_grads:
        results = [lib.tl_zeros_like(x) if r is None else r for x, r in zip(inputs, results)]
    return tuple(results)


def _raise():
    status, message = c.tl_error(), c.tl_error_message().decode()
    c.tl_error_clear()
    raise _errors.from_status(status, message)


# ---- What the library calls back ----
#
# A callback may raise. The exception is stored, the callback reports failure to the library, and the caller of the
# library raises the exception when the call returns (_errors.from_status).

_living = {}  # number -> the Python side of something the library holds


def _hold(thing):
    number = id(thing)
    _living[number] = thing
    return number


@forever
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _let_go(number, pop=_living.pop):
    pop(number, None)


def _give(x):
    """To the scope that is open in the library, which finds it there when Python has let go."""
    address = lib.address_of(x)
    c.tl_keep(address)
    c.tl_scope_give(address)
    return address


_fail = c["tl_matmul"]  # any function sets an error when it is given NULL
_fail.restype, _fail.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]


def _put_aside(error):
    if getattr(_errors.state, "raised", None) is None:
        _errors.state.raised = error
    _fail(None, None)


class RemovableHandle:
    """Takes a hook away again."""

    def __init__(self, hooks, key):
        self._hooks, self._key = hooks, key

    def remove(self):
        self._hooks.pop(self._key, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


def _add_hook(hooks, hook):
    key = object()
    hooks[key] = hook
    return RemovableHandle(hooks, key)


def _run_hooks(hooks, grad):
    """Each hook sees what the one before it made of the gradient."""
    for hook in list(hooks.values()):
        result = hook(grad)
        if result is not None and not isinstance(result, Tensor):
            raise TypeError(f"expected Variable, but hook returned '{type(result).__name__}'")
        if result is not None and result.shape != grad.shape:
            raise RuntimeError(f"hook '{getattr(hook, '__name__', hook)}' has changed the size of value")
        grad = grad if result is None else result
    return grad


class _LeafHooks:
    """The hooks of a leaf: before the gradient of a pass is added to .grad, and after it."""

    def __init__(self):
        self.before, self.after, self.thread = {}, {}, threading.get_ident()
        self.earlier = None  # .grad of the passes before, while one is under way

    def run(self, x):
        if self.before:
            grad, earlier, self.earlier = _run_hooks(self.before, x.grad), self.earlier, None
            if earlier is not None:
                grad = earlier.add_(grad) if not grad.requires_grad else earlier + grad
            if grad is not x.grad:
                lib.tl_set_grad(x, grad)
        for hook in list(self.after.values()):
            hook(x)


_leaves = {}  # address of a leaf -> its hooks, as long as the library has the leaf


@forever
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _forget_leaf(address, pop=_leaves.pop):  # bound: it is called after the module has gone, too
    pop(address, None)


@forever
@header.callbacks["tl_grad_hook"]
def _on_grad(leaf, grad, number):
    try:
        _leaves[number].run(lib.wrap(Tensor, leaf))
    except BaseException as error:
        _put_aside(error)


def _leaf_hooks(x):
    if not lib.tl_needs_grad(x):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if lib.address_of(x) not in _leaves:
        _put_hooks(x, _LeafHooks())
    return _leaves[lib.address_of(x)]


def _put_hooks(x, hooks):
    address = lib.address_of(x)
    if not c.tl_set_grad_hook(address, _on_grad, address, _forget_leaf):
        _raise()
    _leaves[address] = hooks


class _earlier_put_aside:
    """The library passes hooks the gradient summed over all passes; torch's hooks expect that of this pass alone, so it
    starts from zero. Only tensors with hooks of this thread are reset, since another thread may be in its own pass."""

    def __enter__(self):
        self.held = []
        for address, hooks in list(_leaves.items()):
            if hooks.before and hooks.thread == threading.get_ident() and hooks.earlier is None:
                leaf = lib.wrap(Tensor, address)
                hooks.earlier = leaf.grad
                if hooks.earlier is not None:
                    lib.tl_zero_grad(leaf, False)
                    self.held.append((leaf, hooks))

    def __exit__(self, *_):
        for leaf, hooks in self.held:  # this pass did not come there, or failed
            if hooks.earlier is not None:
                lib.tl_set_grad(leaf, hooks.earlier)
                hooks.earlier = None


class _ResultHooks:
    """Stands between a result and its uses, in the graph."""

    def __init__(self):
        self.hooks = {}

    def run(self, g):
        grad = _run_hooks(self.hooks, lib.wrap(Tensor, c.tl_gradient_of_output(g, 0)))
        c.tl_gradient_set(g, 0, _give(grad))


def _register_hook(x, hook):
    if lib.tl_is_leaf(x):
        return _add_hook(_leaf_hooks(x).before, hook)
    if not lib.tl_needs_grad(x):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    record = x.__dict__.get("_result_hooks")
    if record is None:
        record = x.__dict__["_result_hooks"] = _ResultHooks()
        lib.replace(x, _hang(record, [x], [lib.tl_detach(x)])[0])
    return _add_hook(record.hooks, hook)


def _register_after(x, hook):
    if not lib.tl_is_leaf(x):
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return _add_hook(_leaf_hooks(x).after, hook)


class Context:
    """The context that forward passes to backward."""

    def __init__(self):
        self._saved, self.needs_input_grad = (), ()
        self._materializes, self._no_grad_for = True, ()

    def save_for_backward(self, *tensors):
        self._saved = tensors

    @property
    def saved_tensors(self):
        if self._saved is None:
            raise RuntimeError("Trying to backward through the graph a second time (or directly access saved tensors "
                               "after they have already been freed). Use retain_graph=True the first time")
        return self._saved

    def mark_non_differentiable(self, *tensors):
        self._no_grad_for = tensors

    def mark_dirty(self, *tensors):
        raise NotImplementedError("a Function that changes its inputs in place is not there: return a new tensor")

    def set_materialize_grads(self, value):
        self._materializes = value


class _Rule:
    """One call of a Function, held by the graph."""

    def __init__(self, function, context, positions, outputs, given):
        self.function, self.context, self.positions = function, context, positions
        numbers = iter(range(len(outputs)))  # of those that are tensors
        places = [(x, next(numbers)) for x in outputs if isinstance(x, Tensor)]
        # Which saved tensors are results of this call: for a derivative of the gradient they have a history.
        self.kept = {k: j for k, s in enumerate(context._saved) for x, j in places
                     if s is x and x.dtype.is_inexact and not any(s is a for a in given)}
        self.likes = [(tuple(x.shape), x.dtype.code, lib.tl_device_of(x)) if isinstance(x, Tensor) else None
                      for x in outputs]

    def gradients(self, g):
        """One per output of forward: zeros where nothing flowed, None for what is no tensor."""
        j = 0
        for like in self.likes:
            p = c.tl_gradient_of_output(g, j) if like is not None else None
            j += like is not None
            if p:
                yield lib.wrap(Tensor, p)
            else:
                yield lib.tl_zeros(*like) if like is not None and self.context._materializes else None

    def run(self, g):
        name, n = f"function {self.function.__name__}Backward", len(self.context.needs_input_grad)
        saved = self.context._saved
        if saved and self.kept and is_grad_enabled():
            self.context._saved = tuple(lib.wrap(Tensor, c.tl_gradient_result(g, self.kept[k], _give(x)))
                                        if k in self.kept else x for k, x in enumerate(saved))
        try:
            results = self.function.backward(self.context, *self.gradients(g))
        finally:
            self.context._saved = saved
        results = results if isinstance(results, tuple) else (results,)
        if len(results) < n or any(r is not None for r in results[n:]):
            raise RuntimeError(f"{name} returned an incorrect number of gradients (expected {n}, got {len(results)})")
        for i, position in enumerate(self.positions):
            r = results[position]
            if r is not None and not isinstance(r, Tensor):
                raise RuntimeError(f"{name}: expected a Tensor or None as gradient {position}, got {type(r).__name__}")
            if r is not None and c.tl_gradient_needs(g, i):
                c.tl_gradient_set(g, i, _give(r))
        if self.context._saved and not _passes.retains:
            self.context._saved = None


@forever
@header.callbacks["tl_function_rule"]
def _on_rule(g, number):
    try:
        _living[number].run(g)
    except BaseException as error:
        _put_aside(error)


class Function:
    """An operation with its own gradient, given by the static methods forward(ctx, ...) and backward(ctx, *grads). Call
    it with apply."""

    @staticmethod
    def forward(ctx, *args, **kwargs):
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        raise NotImplementedError("You must implement the backward function for your custom autograd.Function.")

    @classmethod
    def apply(cls, *args):
        has_setup = "setup_context" in {k for base in cls.__mro__ for k in base.__dict__}
        ctx = Context()
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and lib.tl_needs_grad(a) for a in args)
        with no_grad():
            made = cls.forward(*args) if has_setup else cls.forward(ctx, *args)
            if has_setup:
                cls.setup_context(ctx, args, made)
        outputs = list(made) if isinstance(made, (tuple, list)) else [made]
        tensors = [x for x in outputs if isinstance(x, Tensor)]
        inputs = [(i, a) for i, a in enumerate(args) if isinstance(a, Tensor)]
        if is_grad_enabled() and any(ctx.needs_input_grad) and tensors:
            hung = iter(_hang(_Rule(cls, ctx, [i for i, _ in inputs], outputs, args), [a for _, a in inputs], tensors))
            fresh = [next(hung) if isinstance(x, Tensor) else x for x in outputs]
            outputs = [lib.tl_detach(f) if any(x is n for n in ctx._no_grad_for) else f for x, f in zip(outputs, fresh)]
        return tuple(outputs) if isinstance(made, (tuple, list)) else outputs[0]


def _hang(rule, inputs, outputs):
    addresses = (ctypes.c_void_p * len(inputs))(*[lib.address_of(x) for x in inputs])
    results = (ctypes.c_void_p * len(outputs))(*[lib.address_of(x) for x in outputs])
    scope = c.tl_scope_begin()
    ok = c.tl_function(_on_rule, _hold(rule), _let_go, addresses, len(inputs), results, len(outputs))
    hung = [lib.wrap(Tensor, p) for p in results] if ok else None
    c.tl_scope_end(scope)
    if not ok:
        _raise()
    return hung


class function:  # torch.autograd.function.Function
    Function = Function


def _leaves_of(output):
    """(leaf, the ops that use it) of the graph behind an output."""
    found, seen, waiting = {}, set(), [output.grad_fn]
    while waiting:
        step = waiting.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        for other, _ in step.next_functions:
            if other is not None and other._leaf is not None:
                found.setdefault(other, []).append(step.name())
            else:
                waiting.append(other)
    return [(leaf.variable, ", ".join(sorted(set(users)))) for leaf, users in found.items()]


class detect_anomaly:
    """A backward pass inside looks for NaN in the gradients of leaves and names the first that has one. Errors name the
    module and the op in any case."""

    _is_on = False

    def __init__(self, check_nan=True):
        self._on, self._outer = check_nan, []

    def __enter__(self):
        self._outer.append(detect_anomaly._is_on)
        detect_anomaly._is_on = self._on

    def __exit__(self, *_):
        detect_anomaly._is_on = self._outer.pop()
        return False


class set_detect_anomaly(detect_anomaly):
    """detect_anomaly at once; as a context manager, until its end."""

    def __init__(self, mode, check_nan=True):
        super().__init__(mode and check_nan)
        self._before, detect_anomaly._is_on = detect_anomaly._is_on, bool(mode)

    def __enter__(self):
        self._outer.append(self._before)


def is_anomaly_enabled():
    return detect_anomaly._is_on


Variable = Tensor


def __getattr__(name):
    import importlib
    if name in ("functional", "gradcheck", "gradgradcheck", "GradcheckError", "profiler", "graph"):
        if name in ("functional", "profiler", "graph"):
            return importlib.import_module("." + name, __name__)
        module = importlib.import_module(".gradcheck", __name__)
        for each in ("gradcheck", "gradgradcheck", "GradcheckError"):
            globals()[each] = getattr(module, each)
        return globals()[name]
    raise AttributeError(f"module 'tally.autograd' has no attribute '{name}'")
