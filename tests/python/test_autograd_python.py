"""Custom functions, hooks, grad() and grad modes against torch: every program runs on both, and the results must
agree."""
import gc
import threading

import pytest

import tally

torch = pytest.importorskip("torch")


def values(x):
    if isinstance(x, (tuple, list)):
        return [values(v) for v in x]
    return x.detach().double().tolist() if hasattr(x, "detach") else x


def agree(program):
    """Runs program(module) on both; the answers must be equal, and so must the classes of what they raise."""
    def run(m):
        try:
            return "gave", values(program(m))
        except Exception as error:
            return "raised", type(error).__name__
    ours, theirs = run(tally), run(torch)
    assert ours[0] == theirs[0], (ours, theirs)
    if ours[0] == "raised":
        assert ours == theirs
        return
    close(ours[1], theirs[1])


def close(a, b):
    if isinstance(a, list) and isinstance(b, list):
        assert len(a) == len(b), (a, b)
        for x, y in zip(a, b):
            close(x, y)
    elif isinstance(a, float) and isinstance(b, float):
        assert a == pytest.approx(b, rel=1e-5, abs=1e-6), (a, b)
    else:
        assert a == b, (a, b)


def leaf(m, *data):
    return m.tensor(data, dtype=m.float32, requires_grad=True)


# ---- Functions ----

def function_of(m, forward, backward, **more):
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    body.update({k: staticmethod(v) for k, v in more.items()})
    return type("Mine", (m.autograd.Function,), body)


def two_results(m):
    def forward(ctx, x, y, k):
        ctx.save_for_backward(x, y)
        ctx.k = k
        return x * y * k, x + y

    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y * ctx.k + h, g * x * ctx.k + h, None
    return function_of(m, forward, backward)


def functions():
    def saves_its_result(m):
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(x, y)
            return y

        def backward(ctx, g):
            return g * ctx.saved_tensors[1]
        x = leaf(m, 0.5, 1)
        y = function_of(m, forward, backward).apply(x)
        first, = m.autograd.grad((y * y).sum(), x, create_graph=True)
        second, = m.autograd.grad(first.sum(), x, create_graph=True)
        third, = m.autograd.grad(second.sum(), x)
        return y, first, second, third

    def simple(m):
        x, y = leaf(m, 1, 2, 3), leaf(m, 4, 5, 6)
        a, b = two_results(m).apply(x, y, 3.0)
        ((a * a).sum() + b.sum()).backward()
        return a, b, x.grad, y.grad, a.requires_grad, a.is_leaf, b.is_leaf

    def one_result_used(m):
        x, y = leaf(m, 1, 2), leaf(m, 3, 4)
        a, b = two_results(m).apply(x, y, 2.0)
        b.sum().backward()
        return x.grad, y.grad

    def unused_is_none(m):
        seen = []

        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        def backward(ctx, g, h):
            seen.append((g is None, h is None))
            return g * 2
        x = leaf(m, 1, 2)
        function_of(m, forward, backward).apply(x)[0].sum().backward()
        return x.grad, [list(map(float, s)) for s in seen]

    def needs(m):
        seen = []

        def forward(ctx, x, y, n):
            seen.append([float(v) for v in ctx.needs_input_grad])
            return x * y

        def backward(ctx, g):
            seen.append([float(v) for v in ctx.needs_input_grad])
            return g * 5, None, None
        x = leaf(m, 1, 2)
        function_of(m, forward, backward).apply(x, m.ones(2), 7).sum().backward()
        return seen, x.grad

    def no_grad_inside(m):
        seen = []

        def forward(ctx, x):
            seen.append(float(m.is_grad_enabled()))
            y = x * 2
            seen.append(float(y.requires_grad))
            return y
        y = function_of(m, forward, lambda ctx, g: g * 2).apply(leaf(m, 1))
        return seen, float(y.requires_grad)

    def under_no_grad(m):
        with m.no_grad():
            y = function_of(m, lambda ctx, x: x * 2, lambda ctx, g: g).apply(leaf(m, 1))
        return y, float(y.requires_grad)

    def without_needs(m):
        y = function_of(m, lambda ctx, x: x * 2, lambda ctx, g: g).apply(m.ones(2))
        return y, float(y.requires_grad)

    def setup(m):
        def forward(x, k):
            return x * k

        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]

        def backward(ctx, g):
            return g * ctx.k, None
        x = leaf(m, 1, 2)
        function_of(m, forward, backward, setup_context=setup_context).apply(x, 4.0).sum().backward()
        return x.grad

    def not_differentiable(m):
        def forward(ctx, x):
            order = x.argsort()
            ctx.mark_non_differentiable(order)
            return x * 2, order

        def backward(ctx, g, _):
            return g * 2
        x = leaf(m, 3, 1, 2)
        a, order = function_of(m, forward, backward).apply(x)
        a.sum().backward()
        return a, order, float(order.requires_grad), x.grad

    def twice(m):
        """The second derivative, through a backward made of ordinary calls."""
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * 3 * x * x
        x = leaf(m, 2, 3)
        y = function_of(m, forward, backward).apply(x).sum()
        first, = m.autograd.grad(y, x, create_graph=True)
        second, = m.autograd.grad(first.sum(), x)
        return first, second

    def chained(m):
        double = function_of(m, lambda ctx, x: x * 2, lambda ctx, g: g * 2)
        x = leaf(m, 1, 2)
        y = x
        for _ in range(10):
            y = double.apply(y)
        y.sum().backward()
        return y, x.grad

    def too_many(m):
        f = function_of(m, lambda ctx, x: x * 2, lambda ctx, g: (g, g))
        f.apply(leaf(m, 1)).sum().backward()

    def too_few(m):
        f = function_of(m, lambda ctx, x, y: x * y, lambda ctx, g: g)
        f.apply(leaf(m, 1), leaf(m, 2)).sum().backward()

    def extra_nones(m):
        x = leaf(m, 1)
        function_of(m, lambda ctx, x: x * 2, lambda ctx, g: (g * 2, None, None)).apply(x).sum().backward()
        return x.grad

    def wrong_shape(m):
        f = function_of(m, lambda ctx, x: x * 2, lambda ctx, g: m.ones(3))
        f.apply(leaf(m, 1, 2)).sum().backward()

    def not_a_tensor(m):
        f = function_of(m, lambda ctx, x: x * 2, lambda ctx, g: 3.0)
        f.apply(leaf(m, 1, 2)).sum().backward()

    def none_for_all(m):
        x = leaf(m, 1, 2)
        (function_of(m, lambda ctx, x: x * 2, lambda ctx, g: None).apply(x).sum() + x.sum()).backward()
        return x.grad

    def raises(m):
        def backward(ctx, g):
            raise KeyError("mine")
        function_of(m, lambda ctx, x: x * 2, backward).apply(leaf(m, 1)).sum().backward()

    def a_second_time(m):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x
        y = function_of(m, forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0]).apply(leaf(m, 1)).sum()
        y.backward()
        y.backward()

    def a_second_time_with_nothing_saved(m):
        x = leaf(m, 1, 2)
        y = function_of(m, lambda ctx, x: x * 2, lambda ctx, g: g * 2).apply(x).sum()
        y.backward()
        y.backward()
        return x.grad

    def a_second_time_with_the_graph_kept(m):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x
        x = leaf(m, 1, 2)
        y = function_of(m, forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0]).apply(x).sum()
        y.backward(retain_graph=True)
        m.autograd.grad(y, x, retain_graph=True)
        y.backward()
        return x.grad

    def a_pass_inside_a_backward(m):
        """The outer pass keeps what was saved, the one inside does not."""
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        def backward(ctx, g):
            with m.enable_grad():
                inner = leaf(m, 3)
                (inner * inner).sum().backward()
            return g * 2 * ctx.saved_tensors[0] + inner.grad
        x = leaf(m, 1, 2)
        y = function_of(m, forward, backward).apply(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        return x.grad

    def returns_its_input(m):
        x = leaf(m, 1, 2)
        y = function_of(m, lambda ctx, x: x, lambda ctx, g: g * 5).apply(x)
        y.sum().backward()
        return y, x.grad

    def returns_a_view(m):
        x = leaf(m, 1, 2, 3, 4)
        y = function_of(m, lambda ctx, x: x.reshape(2, 2), lambda ctx, g: g.reshape(4) * 5).apply(x)
        (y * y).sum().backward()
        return y, x.grad

    def a_tuple_of_one(m):
        x = leaf(m, 1, 2)
        y = function_of(m, lambda ctx, x: (x * 2,), lambda ctx, g: (g * 2,)).apply(x)
        y[0].sum().backward()
        return [float(isinstance(y, tuple)), x.grad]

    def numbers_among_results(m):
        x = leaf(m, 1, 2)
        y, n = function_of(m, lambda ctx, x: (x * 2, 7), lambda ctx, g, _: g * 2).apply(x)
        y.sum().backward()
        return y, float(n), x.grad

    def straight_through(m):
        x = leaf(m, 0.4, 1.6)
        y = function_of(m, lambda ctx, x: x.round(), lambda ctx, g: g).apply(x)
        (y * 3).sum().backward()
        return y, x.grad

    def nothing_defined(m):
        type("Empty", (m.autograd.Function,), {}).apply(leaf(m, 1))
    return [v for k, v in list(locals().items()) if callable(v)]


@pytest.mark.parametrize("program", functions(), ids=lambda p: p.__name__)
def test_function(program):
    agree(program)


# ---- Hooks ----

def hooks():
    def sees_and_replaces(m):
        seen, x = [], leaf(m, 1, 2)
        x.register_hook(lambda g: seen.append(g.tolist()))
        x.register_hook(lambda g: g * 10)
        x.register_hook(lambda g: seen.append(g.tolist()))
        (x * x).sum().backward()
        return seen, x.grad

    def each_pass_alone(m):
        seen, x = [], leaf(m, 1, 2)
        x.register_hook(lambda g: seen.append(g.tolist()))
        for _ in range(3):
            (x * x).sum().backward()
        return seen, x.grad

    def replaced_and_summed(m):
        x = leaf(m, 1, 2)
        (x * 1).sum().backward()
        x.register_hook(lambda g: g * 10)
        (x * x).sum().backward()
        (x * x).sum().backward()
        return x.grad

    def used_several_times(m):
        seen, x = [], leaf(m, 1, 2)
        x.register_hook(lambda g: seen.append(g.tolist()))
        (x * x + x * 3 + x.exp() * 0).sum().backward()
        return seen, x.grad

    def another_leaf_keeps_its_grad(m):
        x, y = leaf(m, 1, 2), leaf(m, 3, 4)
        x.register_hook(lambda g: g * 2)
        (x * y).sum().backward()
        (y * y).sum().backward()
        return x.grad, y.grad

    def of_a_result(m):
        seen, x = [], leaf(m, 1, 2)
        y = x * 2
        y.register_hook(lambda g: seen.append(g.tolist()))
        y.register_hook(lambda g: g * 100)
        (y * 3 + y * y).sum().backward()
        return seen, x.grad

    def removed(m):
        seen, x = [], leaf(m, 1, 2)
        handle = x.register_hook(lambda g: seen.append(1.0))
        (x * 1).sum().backward()
        handle.remove()
        handle.remove()
        (x * 1).sum().backward()
        return seen, x.grad

    def after_accumulation(m):
        seen, x = [], leaf(m, 1, 2)

        def step(p):
            seen.append(p.grad.tolist())
            with m.no_grad():
                p -= 0.1 * p.grad
            p.grad = None
        x.register_post_accumulate_grad_hook(step)
        (x * x).sum().backward()
        (x * x).sum().backward()
        return seen, x, float(x.grad is None)

    def before_and_after(m):
        seen, x = [], leaf(m, 1, 2)
        x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
        x.register_hook(lambda g: g * 3)
        (x * x).sum().backward()
        (x * x).sum().backward()
        return seen, x.grad

    def on_a_constant(m):
        m.ones(2).register_hook(lambda g: g)

    def after_on_a_result(m):
        (leaf(m, 1) * 2).register_post_accumulate_grad_hook(lambda p: None)

    def wrong_answer(m):
        x = leaf(m, 1, 2)
        x.register_hook(lambda g: 3)
        x.sum().backward()

    def wrong_size(m):
        x = leaf(m, 1, 2)
        x.register_hook(lambda g: g[:1])
        (x * 2).sum().backward()

    def raises(m):
        x = leaf(m, 1, 2)

        def hook(g):
            raise KeyError("mine")
        x.register_hook(hook)
        (x * 2).sum().backward()

    def lives_with_the_graph(m):
        seen = []

        def make():
            x = leaf(m, 1, 2)
            x.register_hook(lambda g: seen.append(g.tolist()))
            return (x * 3).sum()
        loss = make()
        gc.collect()
        loss.backward()
        return seen
    return [v for k, v in list(locals().items()) if callable(v)]


@pytest.mark.parametrize("program", hooks(), ids=lambda p: p.__name__)
def test_hook(program):
    agree(program)


# ---- grad and backward ----

def gradients():
    def plain(m):
        x, y = leaf(m, 1, 2), leaf(m, 3, 4)
        a, b = m.autograd.grad((x * y * y).sum(), [x, y])
        return a, b, float(x.grad is None)

    def one_input(m):
        x = leaf(m, 1, 2)
        answer = m.autograd.grad((x * x).sum(), x)
        return [float(isinstance(answer, tuple)), answer[0]]

    def seeded(m):
        x = leaf(m, 1, 2, 3)
        return m.autograd.grad(x * x, x, grad_outputs=m.tensor([1.0, 0.0, -1.0]))[0]

    def several_outputs(m):
        x = leaf(m, 1, 2)
        return m.autograd.grad([(x * x).sum(), x * 3], [x], grad_outputs=[None, m.ones(2)])[0]

    def several_seeded(m):
        x = leaf(m, 1, 2)
        y = x * x
        return m.autograd.grad([y, y * 2], x, [m.ones(2), m.tensor([1.0, 10.0])])[0]

    def intermediate(m):
        x = leaf(m, 1, 2)
        y = x * 2
        return m.autograd.grad((y * y).sum(), [y, x])

    def unused(m):
        x, y = leaf(m, 1), leaf(m, 2)
        return m.autograd.grad((x * x).sum(), [x, y])

    def unused_allowed(m):
        x, y = leaf(m, 1), leaf(m, 2)
        a, b = m.autograd.grad((x * x).sum(), [x, y], allow_unused=True)
        return a, float(b is None)

    def unused_zero(m):
        x, y = leaf(m, 1), leaf(m, 2, 3)
        return m.autograd.grad((x * x).sum(), [x, y], allow_unused=True, materialize_grads=True)

    def not_required(m):
        return m.autograd.grad(leaf(m, 1).sum(), [m.ones(1)])

    def not_scalar(m):
        x = leaf(m, 1, 2)
        return m.autograd.grad(x * 2, x)

    def not_scalar_backward(m):
        (leaf(m, 1, 2) * 2).backward()

    def constant(m):
        m.ones(2).sum().backward()

    def seed_shape(m):
        (leaf(m, 1, 2) * 2).backward(m.ones(3))

    def twice(m):
        y = (leaf(m, 1, 2) ** 2).sum()
        y.backward()
        y.backward()

    def twice_retained(m):
        x = leaf(m, 1, 2)
        y = (x ** 2).sum()
        y.backward(retain_graph=True)
        y.backward()
        return x.grad

    def hessian(m):
        x = leaf(m, 1, 2, 3)
        first, = m.autograd.grad((x ** 3).sum(), x, create_graph=True)
        return [m.autograd.grad(first[i], x, retain_graph=True)[0] for i in range(3)]

    def penalty(m):
        x, w = leaf(m, 1, 2), leaf(m, 3, 4)
        g, = m.autograd.grad((x * x * w).sum(), x, create_graph=True)
        ((g ** 2).sum()).backward()
        return w.grad, x.grad

    def for_inputs(m):
        x, y = leaf(m, 1, 2), leaf(m, 3, 4)
        (x * y).sum().backward(inputs=[x])
        (x * y).sum().backward(inputs=x)
        return x.grad, float(y.grad is None)

    def of_many(m):
        x = leaf(m, 1, 2)
        m.autograd.backward([(x * x).sum(), x * 2], [None, m.ones(2)])
        return x.grad

    def retained(m):
        x = leaf(m, 1, 2)
        y = x * 2
        y.retain_grad()
        (y * y).sum().backward()
        return y.grad, x.grad

    def in_place_after_save(m):
        x = leaf(m, 1, 2)
        y = x.exp()
        z = y * y
        y.add_(1)
        z.sum().backward()

    def leaf_in_place(m):
        leaf(m, 1, 2).add_(1)

    def assigned_grad(m):
        x = leaf(m, 1, 2)
        x.grad = m.ones(2) * 7
        (x * x).sum().backward()
        return x.grad

    def wrong_grad(m):
        leaf(m, 1, 2).grad = m.ones(3)

    def integers(m):
        m.ones(2, dtype=m.int64).requires_grad_()
    return [v for k, v in list(locals().items()) if callable(v)]


@pytest.mark.parametrize("program", gradients(), ids=lambda p: p.__name__)
def test_gradient(program):
    agree(program)


# ---- Modes ----

def modes():
    def nested(m):
        seen = [m.is_grad_enabled()]
        with m.no_grad():
            seen.append(m.is_grad_enabled())
            with m.enable_grad():
                seen.append(m.is_grad_enabled())
                with m.set_grad_enabled(False):
                    seen.append(m.is_grad_enabled())
                seen.append(m.is_grad_enabled())
            seen.append(m.is_grad_enabled())
        return list(map(float, seen + [m.is_grad_enabled()]))

    def function(m):
        m.set_grad_enabled(False)
        a = m.is_grad_enabled()
        m.set_grad_enabled(True)
        return [float(a), float(m.is_grad_enabled())]

    def after_an_exception(m):
        try:
            with m.no_grad():
                raise KeyError
        except KeyError:
            pass
        return float(m.is_grad_enabled())

    def decorators(m):
        @m.no_grad()
        def off(x):
            return m.is_grad_enabled(), x * 2

        @m.enable_grad()
        def on(x):
            return m.is_grad_enabled(), x * 2

        @m.no_grad
        def bare(x):
            return m.is_grad_enabled(), x * 2

        @m.inference_mode()
        def inference(x):
            return m.is_grad_enabled(), x * 2
        x = leaf(m, 1)
        with m.no_grad():
            mode, y = on(x)
        return ([[float(a), float(b.requires_grad)] for a, b in (off(x), bare(x), inference(x), (mode, y))]
                + [float(m.is_grad_enabled())])

    def recursive_decorator(m):
        seen = []

        @m.no_grad()
        def down(n):
            seen.append(float(m.is_grad_enabled()))
            return down(n - 1) if n else None
        down(3)
        return seen + [float(m.is_grad_enabled())]

    def set_in_a_with(m):
        with m.no_grad():
            m.set_grad_enabled(True)
            a = m.is_grad_enabled()
        return [float(a), float(m.is_grad_enabled())]

    def detached(m):
        x = leaf(m, 1, 2)
        y = (x * 2).detach()
        return float(y.requires_grad), float(y.is_leaf), float((y * x).requires_grad)

    def updates(m):
        x = leaf(m, 1, 2)
        (x * x).sum().backward()
        with m.no_grad():
            x -= 0.5 * x.grad
        return x, float(x.is_leaf), float(x.requires_grad)

    def in_a_generator(m):
        @m.no_grad()
        def numbers():
            yield m.is_grad_enabled()
            yield m.is_grad_enabled()
        seen = []
        for v in numbers():
            seen += [float(v), float(m.is_grad_enabled())]
        return seen

    def other_threads(m):
        seen = []
        with m.no_grad():
            t = threading.Thread(target=lambda: seen.append(float(m.is_grad_enabled())))
            t.start()
            t.join()
        return seen
    return [v for k, v in list(locals().items()) if callable(v)]


@pytest.mark.parametrize("program", modes(), ids=lambda p: p.__name__)
def test_mode(program):
    agree(program)
    assert tally.is_grad_enabled() and torch.is_grad_enabled()


def test_one_manager_entered_twice():
    """torch forgets the mode before the first when one object is entered twice; we do not."""
    off = tally.no_grad()
    with off:
        with off:
            assert not tally.is_grad_enabled()
        assert not tally.is_grad_enabled()
    assert tally.is_grad_enabled()


def test_one_mode_entered_twice():
    """Leaving a mode restores the state from before it was entered. torch remembers only the last entry, and leaves
    recording off at the end."""
    mode, seen = tally.no_grad(), []
    with mode:
        with mode:
            seen.append(tally.is_grad_enabled())
        seen.append(tally.is_grad_enabled())
    assert seen == [False, False] and tally.is_grad_enabled()
    with mode:
        assert not tally.is_grad_enabled()
    assert tally.is_grad_enabled()


def test_what_a_function_saved_is_let_go_after_backward():
    class Square(tally.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            contexts.append(ctx)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g
    contexts = []
    x = tally.ones(3, requires_grad=True)
    y = Square.apply(x).sum()
    y.backward(retain_graph=True)
    assert len(contexts[0].saved_tensors) == 1
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        contexts[0].saved_tensors
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
