"""The same numbers in both libraries, and how far apart results may be."""
import ml_dtypes
import numpy as np
import torch

from tally_c import NUMPY_DTYPES, TallyError, tl

TORCH = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16,
         "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2, "float8_e8m0fnu": torch.float8_e8m0fnu,
         "int64": torch.int64, "int32": torch.int32, "int16": torch.int16, "uint16": torch.uint16, "int8": torch.int8,
         "uint8": torch.uint8, "bool": torch.bool}
NUMPY = {d.name: d for d in NUMPY_DTYPES if d.name in TORCH}
NAME_OF = {t: name for name, t in TORCH.items()}
RELATIVE = {"float64": 1e-10, "float32": 1e-5}


def to_torch(values):
    if values.dtype == np.bool_:
        return torch.from_numpy(values.copy())
    bits = torch.from_numpy(values.view(f"i{values.itemsize}" if values.itemsize > 1 else "u1").copy())
    return bits.view(TORCH[values.dtype.name])


def from_torch(x):
    x = x.detach().contiguous()
    if x.dtype == torch.bool:
        return x.numpy()
    bits = x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])
    return bits.numpy().view(NUMPY[NAME_OF[x.dtype]])


def spread(values, order, tensor, permute):
    """A leaf whose memory has the axes in another order, and the view with the right one."""
    leaf = tensor(np.ascontiguousarray(np.transpose(values, order)).reshape([values.shape[a] for a in order]))
    return leaf, permute(leaf, [int(a) for a in np.argsort(order)])


def ulp(values, name):
    """Distance to the next number of a dtype, for each value."""
    info = ml_dtypes.finfo(NUMPY[name])
    magnitude = np.maximum(np.abs(np.nan_to_num(values, posinf=0, neginf=0)), float(info.tiny))
    return 2.0 ** np.floor(np.log2(magnitude)) * float(info.eps)


def same_specials(a, b):
    return np.array_equal(np.isnan(a), np.isnan(b)) and np.array_equal(a[np.isinf(a)], b[np.isinf(b)]) and \
        np.array_equal(np.isinf(a), np.isinf(b))


def assert_near(ours, theirs, what, relative=None):
    """ours (ndarray) within the dtype's tolerance of theirs, relative to the largest number among them."""
    assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}, torch {theirs.shape}"
    assert ours.dtype == theirs.dtype, f"{what}: dtype {ours.dtype}, torch {theirs.dtype}"
    if ours.dtype.kind in "iub":
        assert np.array_equal(ours, theirs), f"{what}: ours\n{ours}\ntorch\n{theirs}"
        return
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    assert same_specials(a, b), f"{what}: nan or inf differ\n{ours}\ntorch\n{theirs}"
    finite = np.isfinite(b)
    limit = (relative or RELATIVE.get(ours.dtype.name, 0)) * max(1e-3, np.abs(b).max(where=finite, initial=0))
    error = np.abs(a[finite] - b[finite])
    assert error.size == 0 or error.max() <= limit, \
        f"{what}: off by {error.max():g}, allowed {limit:g}\n{ours}\ntorch\n{theirs}"


def assert_as_good(ours, theirs, exact, what, ulps=1):
    """For 16-bit dtypes: our distance from the f64 result is at most twice torch's, plus one ulp (or more, where
    said)."""
    assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}, torch {theirs.shape}"
    assert ours.dtype == theirs.dtype, f"{what}: dtype {ours.dtype}, torch {theirs.dtype}"
    a, b, c = (x.astype(np.float64) for x in (ours, theirs, exact))
    assert same_specials(a, b), f"{what}: nan or inf differ\n{ours}\ntorch\n{theirs}"
    finite = np.isfinite(b)
    if not finite.any():
        return
    allowed = 2 * np.abs(b - c)[finite].max() + ulps * ulp(c, ours.dtype.name)[finite]
    error = np.abs(a - c)[finite]
    worst = np.argmax(error - allowed)
    assert (error <= allowed).all(), f"{what}: off by {error[worst]:g} from f64, allowed {allowed[worst]:g}"


def outcome(f):
    """(result, None), or (None, error) where the library refuses."""
    try:
        return f(), None
    except (TallyError, RuntimeError, TypeError, IndexError, ValueError) as error:
        return None, error
