"""Memory shared with NumPy and, by DLPack, with torch: what is shared and what is copied, lifetimes, errors."""
import ctypes
import gc
import weakref

import numpy as np
import pytest

import tally
from tally import _library, _memory

NUMPY = ["float64", "float32", "float16", "int64", "int32", "int16", "uint16", "int8", "uint8", "bool"]
NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]


def live_bytes():
    gc.collect()
    return _library.c.tl_device_memory(tally.device("cpu").address).live_bytes


def some(name, *shape):
    values = np.arange(int(np.prod(shape))).reshape(shape) % 3
    return values.astype(name)


# ---- NumPy ----

@pytest.mark.parametrize("name", NUMPY)
def test_numpy_shares_both_ways(name):
    array = some(name, 2, 3)
    x = tally.from_numpy(array)
    assert x.dtype is getattr(tally, name) and x.data_ptr() == array.ctypes.data and x.tolist() == array.tolist()
    back = x.numpy()
    assert back.dtype == array.dtype and back.ctypes.data == array.ctypes.data and back.shape == (2, 3)
    back[1, 2] = 1
    assert array[1, 2] == 1 and x[1, 2].item() == 1
    x[0, 1] = 0
    assert array[0, 1] == 0


@pytest.mark.parametrize("name", NARROW)
def test_narrow_floats_share_by_ml_dtypes(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.ones((2, 3), getattr(ml_dtypes, name))
    x = tally.from_numpy(array)
    assert x.dtype is getattr(tally, name) and x.data_ptr() == array.ctypes.data
    back = x.numpy()
    assert back.dtype == array.dtype and back.ctypes.data == array.ctypes.data
    assert x.float().tolist() == [[1.0] * 3] * 2


def test_f4_is_copied():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = tally.tensor([[0.5, -6.0], [1.5, 3.0]]).to(tally.float4_e2m1fn)
    array = x.numpy()
    assert array.dtype == ml_dtypes.float4_e2m1fn and array.astype("float32").tolist() == [[0.5, -6.0], [1.5, 3.0]]
    assert tally.from_numpy(array).float().tolist() == [[0.5, -6.0], [1.5, 3.0]]


@pytest.mark.parametrize("cut", [np.s_[::2], np.s_[:, ::-1], np.s_[::-2, 1:], np.s_[:, 2], np.s_[3], np.s_[1:1],
                                 np.s_[:, None], np.s_[0, 0:1]])
def test_layouts_are_shared(cut):
    array = np.arange(24.0).reshape(4, 6)[cut]
    x = tally.from_numpy(array)
    assert tuple(x.shape) == array.shape and x.tolist() == array.tolist()
    if array.size:
        assert x.data_ptr() == array.ctypes.data
        assert [s * 8 for s in x.stride()] == list(array.strides)
        assert x.numpy().ctypes.data == array.ctypes.data
    t = tally.arange(24.0).reshape(4, 6)
    if all(not isinstance(c, slice) or (c.step or 1) > 0 for c in (cut if isinstance(cut, tuple) else (cut,))):
        assert t[cut].numpy().tolist() == array.tolist()


def test_views_of_tensors_are_shared():
    t = tally.arange(24.0).reshape(4, 6)
    for view in (t.T, t[1:, ::2], t[2], t.permute(1, 0)[1:], t[None], t[:, :1].expand(4, 5)):
        array = view.numpy()
        assert array.ctypes.data == view.data_ptr() and array.tolist() == view.tolist()
        assert tally.from_numpy(array).data_ptr() == view.data_ptr() if array.flags.writeable else True


def test_broadcast_array():
    array = np.broadcast_to(np.arange(3.0), (4, 3))
    with pytest.warns(UserWarning, match="not writable"):
        x = tally.from_numpy(array)
    assert x.stride() == (0, 1) and x.tolist() == array.tolist()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5), ()])
def test_empty_and_scalar(shape):
    array = np.zeros(shape, "float32")
    x = tally.from_numpy(array)
    assert tuple(x.shape) == shape and x.numpy().shape == shape and x.numpy().dtype == np.float32
    assert tally.zeros(shape).numpy().shape == shape


def test_scalars_share():
    array = np.array(3.0)
    x = tally.from_numpy(array)
    x.fill_(5)
    assert array == 5 and x.numpy().ctypes.data == array.ctypes.data


def test_read_only_warns():
    array = np.arange(3.0)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        tally.from_numpy(array)


@pytest.mark.parametrize("array",
                         [np.arange(3, dtype=">i4"), np.arange(3, dtype=">f8"), np.arange(3, dtype="clongdouble"),
                          np.array(["a"]), np.array([None]), np.zeros(3, "datetime64[s]"), np.zeros(2, "V4"),
                          np.arange(3, dtype="uint64")])
def test_dtypes_that_are_refused(array):
    with pytest.raises(TypeError, match="can't convert np.ndarray of type"):
        tally.from_numpy(array)


def test_layouts_that_are_refused():
    fields = np.zeros(4, [("a", "u1"), ("b", "f4")])
    with pytest.raises(ValueError, match="not a multiple of the element byte size"):
        tally.from_numpy(fields["b"])
    with pytest.raises(TypeError, match="expected np.ndarray"):
        tally.from_numpy([1, 2])


def test_misaligned_memory():
    raw = np.zeros(33, "u1")
    array = raw[1:].view("f8")
    with pytest.raises(ValueError, match="aligned"):
        tally.from_numpy(array)


def test_array_outlives_tensor():
    before = live_bytes()
    x = tally.arange(1000.0)
    array = x[10:20].numpy()
    del x
    gc.collect()
    assert live_bytes() > before and array.tolist() == list(range(10, 20))
    view = array[3:5]
    del array
    assert view.tolist() == [13, 14]
    del view
    gc.collect()
    assert live_bytes() == before


def test_tensor_outlives_array():
    class Array(np.ndarray):
        pass
    array = np.arange(1000.0).view(Array)
    gone = weakref.ref(array)
    y = tally.from_numpy(array)[10:20]
    del array
    gc.collect()
    assert gone() is not None and y.tolist() == list(range(10, 20))
    y = y * 1
    gc.collect()
    assert gone() is None


def test_what_numpy_cannot_see():
    x = tally.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        x.numpy()
    with pytest.raises(RuntimeError, match="requires grad"):
        np.asarray(x)
    assert x.numpy(force=True).tolist() == [1, 1, 1] and not hasattr(x, "__array_interface__")
    m = tally.ones(3, device="meta")
    with pytest.raises(TypeError, match="can't convert meta"):
        m.numpy()
    assert not hasattr(m, "__array_interface__")


def test_array_protocols():
    x = tally.arange(6.0).reshape(2, 3)
    assert np.asarray(x).ctypes.data == x.data_ptr()
    assert np.asarray(x, dtype="int64").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.array(x).ctypes.data != x.data_ptr()
    assert x.__array__(copy=True).ctypes.data != x.data_ptr()
    interface = x.T.__array_interface__
    assert interface["shape"] == (3, 2) and interface["data"] == (x.data_ptr(), False)
    assert tally.tensor(np.float32(2)).item() == 2 and np.asarray(x[0]).tolist() == [0, 1, 2]
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        assert np.asarray(x, copy=False).ctypes.data == x.data_ptr()
        with pytest.raises(ValueError):
            np.asarray(x, dtype="int32", copy=False)


def test_numpy_functions():
    x = tally.arange(6.0).reshape(2, 3)
    a = x.numpy()
    for function in (np.exp, np.sum, np.mean, np.max, np.argmin, lambda v: np.sum(v, axis=1),
                     lambda v: np.mean(v, 0, keepdims=True), np.transpose, np.sort, lambda v: np.add(v, v),
                     lambda v: np.concatenate([v, v]), np.linalg.norm):
        assert np.array_equal(np.asarray(function(x)), function(a))
    assert isinstance(np.exp(x), tally.Tensor) and np.allclose(x, a) and np.array_equal(x, a)
    assert isinstance(a + x, tally.Tensor) and isinstance(x + a, tally.Tensor) and (a * x).tolist() == (a * a).tolist()
    assert (np.float64(2) * x).tolist() == (2 * a).tolist() and isinstance(np.float64(2) * x, tally.Tensor)
    assert (a == x).all() and (x[0] < np.float64(1.5)).tolist() == [True, True, False]
    assert a[tally.tensor([1, 0])].tolist() == [[3, 4, 5], [0, 1, 2]]


# ---- DLPack ----

@pytest.fixture
def torch():
    return pytest.importorskip("torch")


TORCH = [n for n in NUMPY if n != "uint16"] + ["bfloat16", "uint16"]


@pytest.mark.parametrize("name", TORCH)
def test_dlpack_with_torch_shares(torch, name):
    x = tally.arange(6).reshape(2, 3).to(getattr(tally, name))
    t = torch.from_dlpack(x)
    assert t.dtype is getattr(torch, name) and t.data_ptr() == x.data_ptr() and t.shape == (2, 3)
    assert t.double().tolist() == x.double().tolist()
    y = tally.from_dlpack(t)
    assert y.dtype is x.dtype and y.data_ptr() == x.data_ptr() and y.shape == x.shape
    t[0, 0] = 1
    assert x[0, 0].item() == 1 and y[0, 0].item() == 1


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_dlpack_eight_bit_floats(torch, name):
    t = torch.tensor([1.0, -2.0]).to(getattr(torch, name))
    try:
        t.__dlpack__(max_version=(1, 0))
    except (BufferError, RuntimeError, TypeError):
        pytest.skip("this torch has no DLPack type for it")
    y = tally.from_dlpack(t)
    assert y.dtype is getattr(tally, name) and y.data_ptr() == t.data_ptr() and y.float().tolist() == [1.0, -2.0]
    assert torch.from_dlpack(y).data_ptr() == t.data_ptr()


def test_dlpack_layouts(torch):
    t = torch.arange(24.0).reshape(4, 6)
    for view in (t.T, t[1:, ::2], t[2], t[:, 3], t[None], t[:1].expand(3, 6), t[2:2], t[0, 0], torch.zeros(3, 0)):
        y = tally.from_dlpack(view)
        assert tuple(y.shape) == tuple(view.shape) and y.tolist() == view.tolist()
        if view.numel():
            assert y.data_ptr() == view.data_ptr() and y.stride() == view.stride()
        again = torch.from_dlpack(y)
        assert again.tolist() == view.tolist() and again.shape == view.shape


def test_dlpack_with_numpy():
    x = tally.arange(6.0).reshape(2, 3)
    a = np.from_dlpack(x.T)
    assert a.ctypes.data == x.data_ptr() and a.tolist() == x.T.tolist()
    array = np.arange(12, dtype="int16").reshape(3, 4)[:, ::2]
    y = tally.from_dlpack(array)
    assert y.data_ptr() == array.ctypes.data and y.tolist() == array.tolist() and y.dtype is tally.int16
    flags = np.array([True, False])
    assert (tally.from_dlpack(flags).dtype is tally.bool
            and np.from_dlpack(tally.tensor([True, False])).tolist() == [True, False])


def test_dlpack_read_only():
    array = np.arange(3.0)
    array.flags.writeable = False
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except (BufferError, TypeError):
        pytest.skip("this NumPy does not export read-only arrays")
    with pytest.warns(UserWarning, match="read-only"):
        y = tally.from_dlpack(capsule)
    assert y.tolist() == [0, 1, 2]


def test_dlpack_jax():
    jax = pytest.importorskip("jax")
    x = tally.arange(6.0).reshape(2, 3)
    assert jax.dlpack.from_dlpack(x).tolist() == x.tolist()
    assert tally.from_dlpack(jax.numpy.arange(3)).tolist() == [0, 1, 2]


def test_dlpack_consumed_once(torch):
    x = tally.ones(3)
    capsule = x.__dlpack__()
    y = torch.utils.dlpack.from_dlpack(capsule)
    with pytest.raises(RuntimeError):
        torch.utils.dlpack.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="consumed only once"):
        tally.from_dlpack(capsule)
    capsule = torch.ones(3).__dlpack__()
    z = tally.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="consumed only once"):
        tally.from_dlpack(capsule)
    assert y.tolist() == z.tolist() == [1, 1, 1]
    for nothing in (None, 3, object()):
        with pytest.raises(RuntimeError, match="invalid capsule"):
            tally.from_dlpack(nothing)


@pytest.mark.parametrize("version", [None, (1, 0), (1, 1), (2, 0), (0, 8)])
def test_dlpack_unconsumed_capsules_are_freed(version):
    before, held = live_bytes(), len(_memory._exported)
    for _ in range(50):
        capsule = tally.ones(1000).__dlpack__(max_version=version)
        name = "dltensor_versioned" if version is not None and version[0] >= 1 else "dltensor"
        assert f'"{name}"' in repr(capsule)
    del capsule
    gc.collect()
    assert live_bytes() == before and len(_memory._exported) == held


def test_dlpack_lifetimes(torch):
    before, held = live_bytes(), len(_memory._exported)
    t = torch.from_dlpack(tally.arange(1000.0))
    gc.collect()
    assert t[500].item() == 500 and live_bytes() > before
    part = t[10:12]
    del t
    assert part.tolist() == [10, 11]
    del part
    gc.collect()
    assert live_bytes() == before and len(_memory._exported) == held
    source = torch.arange(1000.0)
    storage = weakref.ref(source.untyped_storage())
    y = tally.from_dlpack(source)[10:12]
    del source
    gc.collect()
    assert y.tolist() == [10, 11]
    round_trip = tally.from_dlpack(torch.from_dlpack(tally.from_dlpack(torch.arange(5.0))))
    gc.collect()
    assert round_trip.tolist() == [0, 1, 2, 3, 4]
    del storage


def test_dlpack_releases_the_producer():
    array = np.arange(10.0)
    import sys
    count = sys.getrefcount(array)
    y = tally.from_dlpack(array)
    assert sys.getrefcount(array) == count + 1
    del y
    gc.collect()
    assert sys.getrefcount(array) == count
    bad = np.arange(3, dtype="uint64")
    count = sys.getrefcount(bad)
    with pytest.raises(BufferError, match="not known here"):
        tally.from_dlpack(bad)
    gc.collect()
    assert sys.getrefcount(bad) == count


def test_dlpack_arguments(torch):
    x = tally.arange(3.0)
    assert x.__dlpack_device__() == (1, 0)
    copied = torch.utils.dlpack.from_dlpack(x.__dlpack__(copy=True))
    assert copied.data_ptr() != x.data_ptr() and copied.tolist() == [0, 1, 2]
    for plain in (x.__dlpack__(dl_device=(1, 0)), x.__dlpack__(copy=False), x.__dlpack__(stream=None)):
        assert torch.utils.dlpack.from_dlpack(plain).data_ptr() == x.data_ptr()
    with pytest.raises(BufferError, match="move it first"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="require gradient"):
        tally.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="no data"):
        tally.ones(2, device="meta").__dlpack_device__()
    with pytest.raises(BufferError, match="no data"):
        tally.ones(2, device="meta").__dlpack__()
    with pytest.raises(BufferError, match="no DLPack type"):
        tally.ones(2).to(tally.float4_e2m1fn).__dlpack__()


def test_dlpack_versioned_flags():
    x = tally.arange(3.0)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    for copy, flags in ((None, 0), (True, 2)):
        capsule = x.__dlpack__(max_version=(1, 0), copy=copy)
        managed = _memory._DLManagedTensorVersioned.from_address(pointer(capsule, b"dltensor_versioned"))
        assert (managed.major, managed.flags) == (1, flags)
        assert (managed.dl_tensor.data == x.data_ptr()) is (copy is None)


def test_dlpack_of_another_major_version_is_refused():
    capsule = tally.arange(3.0).__dlpack__(max_version=(1, 0))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    _memory._DLManagedTensorVersioned.from_address(pointer(capsule, b"dltensor_versioned")).major = 2
    with pytest.raises(BufferError, match="version 2.0 is not known here"):
        tally.from_dlpack(capsule)


def test_dlpack_shares_with_autograd(torch):
    """Shared memory is data: gradients stay on each side."""
    t = torch.arange(3.0)
    w = tally.from_dlpack(t).requires_grad_()
    (w * w).sum().backward()
    assert w.grad.tolist() == [0, 2, 4] and t.grad is None


def test_dlpack_on_a_gpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    try:
        tally.device("cuda").address
    except RuntimeError as error:
        pytest.skip(str(error))
    t = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    y = tally.from_dlpack(t)
    assert y.is_cuda and y.data_ptr() == t.data_ptr() and (y * 2).sum().item() == (t * 2).double().sum().item()
    back = torch.from_dlpack(y * 2)
    assert torch.equal(back, t * 2)
    # We may read only after the producer's work is done, and the producer may reuse its memory only after ours is.
    for _ in range(50):
        a = torch.randn(1 << 20, device="cuda")
        b = a * 3
        total = tally.from_dlpack(b).sum()
        del b
        c = torch.full((1 << 20,), 9.0, device="cuda")
        assert abs(total.item() - 3 * a.double().sum().item()) < 0.5
        del c
