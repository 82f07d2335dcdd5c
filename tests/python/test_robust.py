"""What a long-lived process needs: no leaks, the interpreter lock released in long calls, errors that stay in their
thread, a clean exit.

TALLY_SOAK=1000000 makes the leak tests that long (default 100000 calls in all).
"""
import ctypes
import gc
import os
import threading
import time
import traceback

import pytest

import tally
from tally import _library, autograd

CALLS = int(os.environ.get("TALLY_SOAK", "100000"))
UNDER_ASAN = "asan" in os.environ.get("LD_PRELOAD", "")


def live_bytes():
    gc.collect()
    return _library.c.tl_device_memory(tally.device("cpu").address).live_bytes


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks "
                                                     "fordblks keepcost").split()]


def allocated_bytes():
    """What the C side of the process has from malloc now, exactly; Python's own small objects are elsewhere."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    info = mallinfo()
    return info.uordblks + info.hblkhd


def resident_bytes():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- Leaks ----

class Double(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def plain(x):
    y = (x + 1) * 2 - x / 3
    y[0, 1:3] = 5
    y.sum(0).tolist()
    tally.cat([y, x]).reshape(-1).max().item()


def gradients(x):
    w = x.detach().requires_grad_()
    ((w * 3).exp().sum() + (w @ w.T).sum()).backward()
    autograd.grad((w * w).sum(), w)


def hooks(x):
    w = x.detach().requires_grad_()
    w.register_hook(lambda g: g * 2)
    w.register_post_accumulate_grad_hook(lambda leaf: None)
    y = w * 2
    y.register_hook(lambda g: w.grad)  # a cycle: the hook holds the leaf
    y.sum().backward()


def functions(x):
    w = x.detach().requires_grad_()
    Double.apply(Double.apply(w)).sum().backward()
    Double.apply(w)  # never walked


def refused(x):
    for wrong in (lambda: x @ x, lambda: x.reshape(7), lambda: x[9], lambda: tally.cat([x, 3]), lambda: x.sum(5),
                  lambda: x + "a", lambda: tally.zeros(2**40, 2**40), lambda: tally.from_numpy([1])):
        with pytest.raises((RuntimeError, TypeError, IndexError)):
            wrong()


def sharing(x):
    a = x.numpy()
    tally.from_numpy(a)[0].numpy()
    x.__dlpack__()
    x.__dlpack__(max_version=(1, 0))
    tally.from_dlpack(x)
    tally.from_dlpack(a)


@pytest.mark.parametrize("work, cost",
                         [(plain, 10), (gradients, 12), (hooks, 12), (functions, 15), (refused, 40), (sharing, 25)])
def test_no_leak(work, cost):
    """Held bytes come back to where they were; resident memory does not grow with the number of rounds."""
    x = tally.arange(12.0).reshape(3, 4)
    rounds = max(CALLS // 6 // cost, 60)
    for _ in range(rounds // 3):
        work(x)
    before, resident, allocated, objects = live_bytes(), resident_bytes(), allocated_bytes(), len(gc.get_objects())
    tables = sum(map(len, (autograd._living, autograd._leaves)))
    for _ in range(rounds):
        work(x)
    assert live_bytes() == before
    assert sum(map(len, (autograd._living, autograd._leaves))) == tables
    assert abs(len(gc.get_objects()) - objects) < 50
    if not UNDER_ASAN:  # it keeps freed memory aside
        print(work.__name__, rounds, resident_bytes() - resident, allocated_bytes() - allocated)
        assert resident_bytes() - resident < 2 << 20
        assert allocated_bytes() - allocated < 4 * rounds + 16384


def test_cycles_through_a_context_are_collected():
    class Keeps(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.result = y
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * 2 * (ctx.saved_tensors[1] == ctx.result)
    before, held = live_bytes(), len(autograd._living)
    for _ in range(20):
        w = tally.ones(100, requires_grad=True)
        y = Keeps.apply(w)
        y.sum().backward()
        assert w.grad[0].item() == 2
        Keeps.apply(w)
    del w, y
    assert live_bytes() == before and len(autograd._living) == held


# ---- Threads ----

def test_the_lock_is_released():
    """While one thread is in a long product, another runs Python code."""
    a = tally.randn(1200, 1200)
    ticks, done = [], threading.Event()

    def product():
        for _ in range(3):
            a @ a
        done.set()
    worker = threading.Thread(target=product)
    start = time.perf_counter()
    worker.start()
    while not done.is_set():
        ticks.append(time.perf_counter())
        time.sleep(0.0005)
    worker.join()
    took = time.perf_counter() - start
    # Were the lock held, there would be at most one tick per product.
    assert len(ticks) > 8, f"{len(ticks)} ticks in {took:.3f} s"


def test_tensors_move_between_threads():
    x, results = tally.arange(5.0, requires_grad=True), []

    def work():
        y = (x * 2).sum()
        y.backward()
        results.append(y)
    for _ in range(8):
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
    assert [r.item() for r in results] == [20.0] * 8 and x.grad.tolist() == [16.0] * 5
    del results[:]


def test_errors_belong_to_their_thread():
    failures = []

    def work(n):
        x = tally.ones(n)
        for _ in range(300):
            try:
                x.reshape(n + 1)
            except RuntimeError as error:
                if f"{n + 1}" not in str(error):
                    failures.append(str(error))
            else:
                failures.append("nothing was raised")
            if (x + 1).sum().item() != 2 * n:
                failures.append("wrong sum")
    workers = [threading.Thread(target=work, args=(n,)) for n in (1111, 2222, 3333, 4444)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures, failures[:3]


def test_recording_is_per_thread():
    seen = []
    with tally.no_grad():
        worker = threading.Thread(target=lambda: seen.append(tally.is_grad_enabled()))
        worker.start()
        worker.join()
    assert seen == [True]


# ---- Exceptions in callbacks ----

class Mine(Exception):
    pass


def raising_function(where):
    class Raises(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if where == "forward":
                raise Mine("in forward")
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise Mine("in backward")
    return Raises


def check_usable(before):
    """Nothing of the failure is left: no error, no mode, no memory."""
    assert _library.c.tl_error() == 0 and tally.is_grad_enabled()
    assert getattr(tally._errors.state, "raised", None) is None
    w = tally.ones(3, requires_grad=True)
    (w * w).sum().backward()
    assert w.grad.tolist() == [2, 2, 2]
    del w
    assert live_bytes() == before


def test_backward_that_raises():
    before, held = live_bytes(), len(autograd._living)
    w = tally.ones(3, requires_grad=True)
    loss = (raising_function("backward").apply(w * 1) * 3).sum()
    with pytest.raises(Mine, match="in backward") as caught:
        loss.backward()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "backward" and "run" in names and names[0] == "test_backward_that_raises", names
    assert w.grad is None
    del loss, caught, w
    check_usable(before)
    assert len(autograd._living) == held


def test_backward_that_raises_in_grad():
    w = tally.ones(3, requires_grad=True)
    with pytest.raises(Mine, match="in backward"):
        autograd.grad(raising_function("backward").apply(w).sum(), w)
    del w
    check_usable(live_bytes())


def test_forward_that_raises():
    before = live_bytes()
    with pytest.raises(Mine, match="in forward"):
        raising_function("forward").apply(tally.ones(3, requires_grad=True))
    check_usable(before)


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_that_raise(register):
    before = live_bytes()

    def hook(_):
        raise Mine("in hook")
    w = tally.ones(3, requires_grad=True)
    getattr(w, register)(hook)
    loss = (w * 2).sum()
    with pytest.raises(Mine, match="in hook") as caught:
        loss.backward()
    assert [f.name for f in traceback.extract_tb(caught.value.__traceback__)][-1] == "hook"
    del loss, caught, w
    check_usable(before)


def test_hook_of_a_result_that_raises():
    before = live_bytes()

    def hook(_):
        raise Mine("in hook")
    w = tally.ones(3, requires_grad=True)
    y = w * 2
    y.register_hook(hook)
    with pytest.raises(Mine, match="in hook"):
        y.sum().backward()
    del w, y
    check_usable(before)


def test_interrupts_come_through():
    class Stops(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise KeyboardInterrupt
    w = tally.ones(3, requires_grad=True)
    with pytest.raises(KeyboardInterrupt):
        Stops.apply(w).sum().backward()
    del w
    check_usable(live_bytes())


def test_a_handled_error_does_not_come_back():
    """A callback that meets an error of the library and handles it has not failed."""
    class Tries(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            with pytest.raises(RuntimeError):
                g.reshape(77)
            return g * 2
    w = tally.ones(3, requires_grad=True)
    Tries.apply(w).sum().backward()
    assert w.grad.tolist() == [2, 2, 2]


# ---- The end ----

ENDINGS = {
    "tensors": "x = tally.ones(3); y = x * 2",
    "graphs": "w = tally.ones(3, requires_grad=True); y = (w * w).sum(); z = (w * 3).sum(); z.backward()",
    "functions": """
class Double(tally.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); ctx.y = x * 2; return ctx.y
    @staticmethod
    def backward(ctx, g): return g * 2
w = tally.ones(3, requires_grad=True)
y = Double.apply(w); z = Double.apply(w).sum(); z.backward()""",
    "hooks": "w = tally.ones(3, requires_grad=True); w.register_hook(lambda g: w); y = w * 2; y.register_hook(lambda "
             "g: y); y.sum().backward()",
    "arrays": "import numpy; x = tally.ones(3); a = x.numpy(); b = numpy.arange(3.0); c = tally.from_numpy(b); d = "
              "x.T.numpy()",
    "capsules": "x = tally.ones(3); c = x.__dlpack__(); d = x.__dlpack__(max_version=(1, 0)); import numpy; a = "
                "numpy.from_dlpack(x); b = tally.from_dlpack(numpy.ones(3))",
    "cycles": "class A: pass\na = A(); a.self = a; a.x = tally.ones(3, requires_grad=True); a.y = (a.x * 2).sum(); a.n "
              "= a.x.detach().numpy(); a.d = tally.from_dlpack(a.n)",
    "builtins": "import builtins, numpy; builtins.kept = [tally.ones(3), tally.ones(3).numpy(), "
                "tally.from_numpy(numpy.ones(3)), tally.ones(3).__dlpack__()]",
    "daemon": """
import threading, time
def work():
    x = tally.randn(300, 300, requires_grad=True)
    while True: (x @ x).sum().backward()
for _ in range(2): threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)""",
    "threads": """
import threading, time
def work():
    for _ in range(30): x = tally.randn(100, 100, requires_grad=True); (x @ x).sum().backward()
for _ in range(2): threading.Thread(target=work).start()""",
    "atexit": "import atexit; x = tally.ones(3, requires_grad=True); atexit.register(lambda: (x * x).sum().backward())",
    "exit": "import sys; x = tally.ones(3, requires_grad=True); y = x * 2; sys.exit(0)",
}


@pytest.mark.parametrize("binding", ["", "ctypes"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_clean_end(run_python, ending, binding):
    run_python("import tally\n" + ENDINGS[ending], TALLY_BINDING=binding)


@pytest.mark.parametrize("binding", ["", "ctypes"])
def test_clean_end_with_torch(run_python, binding):
    pytest.importorskip("torch")
    if UNDER_ASAN:
        pytest.skip("torch is not built for it")
    run_python("""import builtins, torch, tally
x = tally.ones(3); t = torch.from_dlpack(x); y = tally.from_dlpack(torch.ones(3)); c = torch.ones(3).__dlpack__()
w = torch.from_dlpack(tally.ones(4)).requires_grad_(); z = (w * w).sum()
builtins.kept = torch.from_dlpack(tally.ones(5)), tally.from_dlpack(torch.ones(5))""", TALLY_BINDING=binding)


def test_fork(run_python):
    """A child may go on with the cpu; what it does does not touch the parent."""
    out = run_python("""
import os, sys, tally
x = tally.randn(64, 64, requires_grad=True)
(x @ x).sum().backward()
child = os.fork()
if child == 0:
    y = x.detach() @ x.detach()
    w = tally.ones(100, 100, requires_grad=True)
    (w @ w).sum().backward()
    ok = w.grad[0, 0].item() == 200.0 and y.shape == (64, 64)
    x.grad = None
    os._exit(0 if ok else 1)
print(os.waitpid(child, 0)[1], x.grad is not None, (x @ x).sum().requires_grad)
""")
    assert out.split() == ["0", "True", "True"]


def test_multiprocessing(run_python, tmp_path):
    (tmp_path / "job.py").write_text("import tally\ndef f(n): return tally.arange(n).sum().item()\n")
    out = run_python("""
import multiprocessing, job
for kind in ("fork", "spawn"):
    with multiprocessing.get_context(kind).Pool(2) as pool:
        print(pool.map(job.f, [3, 4, 5]))
""", PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    assert out.splitlines() == ["[3, 6, 10]"] * 2
