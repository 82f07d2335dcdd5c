"""The two bindings, compiled and ctypes, accept the same calls and give the same answers: results, exception classes,
messages."""
import json
import os
import subprocess
import sys

import pytest

from tally import _library

header = _library.header
PLAIN = sorted(f.name for f in header.functions.values() if f.is_plain and f.name not in ("tl_keep", "tl_drop"))

# Run in both bindings. Every line of CALLS is evaluated; what comes out (or is raised) is written down.
PROGRAM = r'''
import json, sys
import tally
from tally import _library
lib, K = _library.lib, _library.constants
def describe(value):
    if isinstance(value, tally.Tensor):
        return ["tensor", str(value.dtype), list(value.shape), value.tolist()]
    if isinstance(value, (tuple, list)):
        return [describe(v) for v in value]
    return [type(value).__name__, repr(value)]
x = tally.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
i = tally.tensor([[0, 1], [1, 0]])
f32, i64 = tally.float32.code, tally.int64.code
class Index:
    def __index__(self): return 1
class Float:
    def __float__(self): return 0.5
class BadIndex:
    def __index__(self): raise ZeroDivisionError("mine")
class BadFloat:
    def __float__(self): raise ZeroDivisionError("mine")
class BadBool:
    def __bool__(self): raise ZeroDivisionError("mine")
class Liar:
    def __index__(self): return "one"
answers = []
for line in json.load(sys.stdin):
    try:
        answers.append(describe(eval(line)))
    except Exception as error:
        answers.append(["raised", type(error).__name__, str(error)])
names = [n for n in dir(lib) if n.startswith("tl_")]
print(json.dumps({"compiled": _library.is_compiled, "names": names, "answers": answers}))
'''

CALLS = r"""
lib.tl_add(x, x)
lib.tl_add(x, None)
lib.tl_add(None, x)
lib.tl_add(None, None)
lib.tl_add(x)
lib.tl_add()
lib.tl_add(x, x, x)
lib.tl_add(x, 1)
lib.tl_add(x, "1")
lib.tl_add(x, i)
lib.tl_add(x, x.T)
lib.tl_add(object(), x)
lib.tl_add_scalar(x, 1)
lib.tl_add_scalar(x, 1.5)
lib.tl_add_scalar(x, True)
lib.tl_add_scalar(i, True)
lib.tl_add_scalar(i, 1)
lib.tl_add_scalar(i, 2**63 - 1)
lib.tl_add_scalar(i, 2**63)
lib.tl_add_scalar(i, -2**63 - 1)
lib.tl_add_scalar(i, 2**200)
lib.tl_add_scalar(x, Float())
lib.tl_add_scalar(x, BadFloat())
lib.tl_add_scalar(x, "1")
lib.tl_add_scalar(x, None)
lib.tl_add_scalar(x, float("nan"))
lib.tl_add_scalar(x, -1.0)
lib.tl_add_scalar(x, -1)
lib.tl_clamp(x, 2, None)
lib.tl_clamp(x, None, 2.5)
lib.tl_clamp(x, None, None)
lib.tl_clamp(x, "a", None)
lib.tl_sum(x, (0,), False)
lib.tl_sum(x, [0, 1], True)
lib.tl_sum(x, 1, True)
lib.tl_sum(x, None, False)
lib.tl_sum(x, (), False)
lib.tl_sum(x, (5,), False)
lib.tl_sum(x, (2**40,), False)
lib.tl_sum(x, (-2**40,), False)
lib.tl_sum(x, (2**70,), False)
lib.tl_sum(x, ("a",), False)
lib.tl_sum(x, "a", False)
lib.tl_sum(x, "", False)
lib.tl_sum(x, (1.0,), False)
lib.tl_sum(x, 1.0, False)
lib.tl_sum(x, (0, 0), False)
lib.tl_sum(x, (Index(),), False)
lib.tl_sum(x, Index(), False)
lib.tl_sum(x, (Liar(),), False)
lib.tl_sum(x, (BadIndex(),), False)
lib.tl_sum(x, (True,), False)
lib.tl_sum(x, range(2), False)
lib.tl_sum(x, iter((0,)), False)
lib.tl_sum(x, {0: 1}, False)
lib.tl_sum(x, (0,) * 64, False)
lib.tl_sum(x, (0,) * 65, False)
lib.tl_sum(x, (0,) * 100000, False)
lib.tl_sum(x, (0,), BadBool())
lib.tl_sum(x, (0,), "yes")
lib.tl_sum(x, (0,), None)
lib.tl_select(x, 0, 1)
lib.tl_select(x, 0, 2)
lib.tl_select(x, 7, 0)
lib.tl_select(x, 2**40, 0)
lib.tl_select(x, 0, 2**63)
lib.tl_select(x, 0, -2**63)
lib.tl_select(x, Index(), Index())
lib.tl_select(x, 0, 1.0)
lib.tl_select(x, 0, None)
lib.tl_select(x, None, 0)
lib.tl_select(x, 0, BadIndex())
lib.tl_select(x, 0, Liar())
lib.tl_select(x, 0, i)
lib.tl_select(x, True, False)
lib.tl_reshape(x, (3, 2))
lib.tl_reshape(x, (-1,))
lib.tl_reshape(x, (4, 2))
lib.tl_reshape(x, None)
lib.tl_reshape(x, 6)
lib.tl_reshape(x, (2**62, 2**62))
lib.tl_reshape(x, (2**64,))
lib.tl_zeros((2, 2), f32, None)
lib.tl_zeros((), f32, None)
lib.tl_zeros(None, f32, None)
lib.tl_zeros((2, -2), f32, None)
lib.tl_zeros((2,), 99, None)
lib.tl_zeros((2,), -1, None)
lib.tl_zeros((2,), 2**31, None)
lib.tl_zeros((2,), "f32", None)
lib.tl_zeros((2,), f32, "cpu")
lib.tl_zeros((2,), f32, 1.5)
lib.tl_zeros((2**40, 2**40), f32, None)
lib.tl_full((2,), 1, f32, None)
lib.tl_full((2,), Float(), f32, None)
lib.tl_full((2,), BadFloat(), f32, None)
lib.tl_full((2,), "1", f32, None)
lib.tl_full((2,), 10**400, f32, None)
lib.tl_full((2,), -1.0, f32, None)
lib.tl_arange(0, 5, 1, i64, None)
lib.tl_concat((x, x), 0)
lib.tl_concat([x, x], 1)
lib.tl_concat((), 0)
lib.tl_concat((x, None), 0)
lib.tl_concat((x, 1), 0)
lib.tl_concat(None, 0)
lib.tl_concat(x, 0)
lib.tl_concat(5, 0)
lib.tl_concat("ab", 0)
lib.tl_concat(iter((x, x)), 0)
lib.tl_concat((t for t in (x, x)), 0)
lib.tl_index(x, (0,), (i,))
lib.tl_index(x, (0, 1), (i, i))
lib.tl_index(x, (0, 1), (i,))
lib.tl_index(x, (0,), (i + 5,))
lib.tl_index(x, (0,), (i, i))
lib.tl_index(x, (), ())
lib.tl_index(x, None, (i,))
lib.tl_index(x, None, ())
lib.tl_index_put_(x.clone(), (0, 1), (i,), x, False)
lib.tl_concat((x * k for k in range(3)), 0)
lib.tl_roll(x, (1,), (0, 1))
lib.tl_roll(x, (1, 1), (0,))
lib.tl_roll(x, (1,), None)
lib.tl_roll(x, (1, 1), None)
lib.tl_roll(x, None, None)
lib.tl_permute(x, (1, 0))
lib.tl_permute(x, (1,))
lib.tl_permute(x, (1, 0, 2))
lib.tl_permute(x, None)
lib.tl_permute(None, (1, 0))
lib.tl_permute(None, None)
lib.tl_at(x, (1, 2))
lib.tl_at(x, (1,))
lib.tl_pad(x, (0, 0), (1, 1), 0, 0.0)
lib.tl_pad(x, (0, 0), (1,), 0, 0.0)
lib.tl_pad(x, None, (1, 1), 0, 0.0)
lib.tl_as_strided(x, (2,), (3,), 0)
lib.tl_as_strided(x, (2,), (3, 1), 0)
lib.tl_as_strided(x, (2, 2), (3,), 0)
lib.tl_as_strided(x, None, (1,), 0)
lib.tl_as_strided(x, (2,), None, 0)
lib.tl_as_strided(x, (), (), 0)
lib.tl_topk(x, 2, 1, True)
lib.tl_topk(x, 9, 1, True)
lib.tl_sort(x, 1, True, False)
lib.tl_device_find("cpu") is not None
lib.tl_device_find("nowhere")
lib.tl_device_find(None)
lib.tl_device_find(3)
lib.tl_device_find(b"cpu")
lib.tl_device_find("a\x00b")
lib.tl_device_find("\ud800")
lib.tl_device_name(lib.tl_device_of(x))
lib.tl_rank(x)
lib.tl_rank(None)
lib.tl_rank(7)
lib.tl_size(x, 0)
lib.tl_size(x, 9)
lib.tl_size(x, -1)
lib.tl_numel(x)
lib.tl_is_contiguous(x.T)
lib.tl_is_contiguous(None)
lib.tl_grad_of(x)
lib.tl_item(x)
lib.tl_item(x[0, 0])
lib.tl_item_int(i[0, 1])
lib.tl_seed(2**64 - 1)
lib.tl_seed(2**64)
lib.tl_seed(-1)
lib.tl_seed(1.5)
lib.tl_version()
lib.tl_promote(f32, i64)
lib.tl_dtype_bits(f32)
lib.tl_contiguous(x) is x
lib.tl_contiguous(x.T) is x
lib.tl_fill_(x.clone(), 2.0)
lib.tl_backward(x, None, 0)
lib.tl_backward(None, None, 0)
lib.tl_matmul(x, x)
lib.tl_matmul(x, x.T)
lib.shape_of(x)
lib.stride_of(x.T)
lib.shape_of(None)
lib.shape_of(3)
lib.wrap(tally.Tensor, lib.address_of(x)).tolist()
lib.wrap(int, lib.address_of(x))
lib.replace(x.clone(), 3)
lib.address_of("x")
lib.from_external(None, None, 0, (0,), None, f32, None).shape
lib.from_external(None, None, 0, (3,), None, f32, None)
lib.from_external(None, 16, 4, (3,), None, f32, lib.tl_device_of(x))
lib.from_external(None, 16, 12, (3,), None, f32, lib.tl_device_find("meta"))
lib.tl_device_stream(lib.tl_device_of(x))
lib.tl_device_stream(None)
tally.Tensor()
tally.Tensor.__new__(tally.Tensor).shape
tally.Tensor.__new__(tally.Tensor) + 1
""".strip().splitlines()


def run(binding):
    done = subprocess.run([sys.executable, "-c", PROGRAM], input=json.dumps(CALLS), capture_output=True, text=True,
                          env={**os.environ, "TALLY_BINDING": binding})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def both():
    compiled, by_ctypes = run(""), run("ctypes")
    assert not by_ctypes["compiled"]
    if not compiled["compiled"]:
        pytest.skip("the compiled binding is not built: make python")
    return compiled, by_ctypes


def test_every_function_in_both(both):
    assert len(PLAIN) > 250
    assert both[0]["names"] == PLAIN and both[1]["names"] == PLAIN


def test_same_answers(both):
    different = [(call, a, b) for call, a, b in zip(CALLS, both[0]["answers"], both[1]["answers"]) if a != b]
    assert not different, "\n".join(f"{call}\n    compiled: {a}\n    ctypes:   {b}" for call, a, b in different)


@pytest.mark.parametrize("call, kind", [
    ("lib.tl_add(x, None)", "TypeError"), ("lib.tl_add(x)", "TypeError"), ("lib.tl_add(x, 1)", "TypeError"),
    ("lib.tl_add(x, x.T)", "RuntimeError"), ("lib.tl_add_scalar(i, 2**63)", "OverflowError"),
    ("lib.tl_add_scalar(x, BadFloat())", "ZeroDivisionError"), ("lib.tl_sum(x, (5,), False)", "IndexError"),
    ("lib.tl_sum(x, (0,) * 65, False)", "ValueError"), ("lib.tl_sum(x, (0,), BadBool())", "ZeroDivisionError"),
    ("lib.tl_index(x, (0, 1), (i,))", "RuntimeError"), ("lib.tl_permute(x, (1,))", "RuntimeError"),
    ("lib.tl_as_strided(x, (2, 2), (3,), 0)", "RuntimeError"), ("lib.tl_select(x, 0, 2)", "IndexError"),
    ("lib.tl_select(x, 2**40, 0)", "OverflowError"), ("lib.tl_select(x, 0, 1.0)", "TypeError"),
    ("lib.tl_zeros((2**40, 2**40), f32, None)", "RuntimeError"),
    ("lib.tl_full((2,), 10**400, f32, None)", "OverflowError"), ("lib.tl_device_find(3)", "TypeError"),
    ("lib.tl_seed(-1)", "OverflowError")])
def test_classes_of_exceptions(both, call, kind):
    for side in both:
        answer = side["answers"][CALLS.index(call)]
        assert answer[:2] == ["raised", kind], answer


def test_results(both):
    answers = dict(zip(CALLS, both[0]["answers"]))
    assert answers["lib.tl_add_scalar(i, 1)"] == ["tensor", "tally.int64", [2, 2], [[1, 2], [2, 1]]]
    assert answers["lib.tl_sum(x, (0,), False)"] == ["tensor", "tally.float32", [3], [5.0, 7.0, 9.0]]
    assert answers["lib.tl_topk(x, 2, 1, True)"][1][3] == [[2, 1], [2, 1]]
