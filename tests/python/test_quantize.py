"""Block-scaled formats against a plain reference in NumPy and ml_dtypes, bit for bit, and against examples worked out
by hand from the OCP Microscaling Formats specification 1.0; what finfo, iinfo and promotion answer against PyTorch.

The reference follows the text: the scale's exponent is floor(log2(amax)) minus the exponent of the largest value;
values are clamped and rounded to nearest, ties to even. It shares no code with the library."""
import ctypes
import json
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from tally_c import LIBRARY, NUMPY_DTYPES, Tensor, TallyError, tl
from torch_peer import TORCH

GRID = {  # mantissa bits, smallest normal exponent
    ml_dtypes.float8_e4m3fn: (3, -6), ml_dtypes.float8_e5m2: (2, -14), ml_dtypes.float4_e2m1fn: (1, 0)}
FORMATS = {  # value dtype, block, emax, largest value
    "MXFP8_E4M3": (ml_dtypes.float8_e4m3fn, 32, 8, 448.0),
    "MXFP8_E5M2": (ml_dtypes.float8_e5m2, 32, 15, 57344.0),
    "MXFP4": (ml_dtypes.float4_e2m1fn, 32, 2, 6.0),
    "NVFP4": (ml_dtypes.float4_e2m1fn, 16, 2, 6.0),
}
NAMES = list(FORMATS)
# Largest error of a block, in parts of its largest magnitude: nearest, stochastic (docs/dtypes.md).
BOUND = {"MXFP8_E4M3": (1 / 8, 1 / 8), "MXFP8_E5M2": (1 / 8, 1 / 4), "MXFP4": (1 / 4, 1 / 2),
         "NVFP4": (17 / 96, 17 / 48)}


def raw(x):
    """Stored bytes of a tensor; f4 stays packed."""
    out = np.empty(tl.bytes(x), np.uint8)
    tl.to_data(x, out.ctypes.data, out.nbytes)
    return out


def codes(x, dtype):
    data = raw(x)
    if dtype == ml_dtypes.float4_e2m1fn:  # low nibble first
        data = np.stack([data & 15, data >> 4], -1).reshape(-1)
    return data


def quantize(x, name, mode="NEAREST"):
    q = tl.quantized()
    with tl.scope():
        tl.quantize(x, getattr(tl, name), getattr(tl, mode), q)
        parts = [Tensor(p) for p in (q.values, q.scales, q.tensor_scale) if p]
    return q, parts


def ours(x, name, mode="NEAREST", out="float32"):
    """value codes, scale codes, tensor scale, and what comes back."""
    q, parts = quantize(tl.tensor(x), name, mode)
    back = tl.dequantize(q, np.dtype(out)).numpy()
    t = parts[2].numpy().item() if len(parts) == 3 else 1.0
    return codes(parts[0], FORMATS[name][0]), raw(parts[1]), t, back


def rounded(x, dtype):
    """f64 to the nearest code, ties to even, in one step: ml_dtypes goes through f32 and would round twice."""
    mantissa, emin = GRID[dtype]
    step = 2.0 ** (np.maximum(np.frexp(x)[1] - 1, emin) - mantissa)
    return (np.rint(x / step) * step).astype(np.float32).astype(dtype).view(np.uint8)


def reference(x, name):
    dtype, block, emax, largest = FORMATS[name]
    x = x.astype(np.float64).reshape(-1, block)
    finite = np.isfinite(x).all(1)
    amax = np.abs(np.where(finite[:, None], x, 0)).max(1, initial=0)
    with np.errstate(all="ignore"):
        if name == "NVFP4":
            whole = amax.max(initial=0)
            t = 1.0 if whole == 0 else float(np.float32(max(whole / 2688, 2.0**-126)))
            wanted = np.where(amax > 0, np.clip(amax / (6 * t), 2.0**-9, 448), 0)
            scale_codes = np.where(finite, rounded(wanted, ml_dtypes.float8_e4m3fn), 0x7F)
            scale = scale_codes.astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64) * t
        else:
            t = 1.0
            exponent = np.where(amax > 0, np.frexp(amax)[1] - 1 - emax, -127)
            exponent = np.clip(exponent, -127, 127)
            scale_codes = np.where(finite, exponent + 127, 0xFF)
            scale = np.where(finite, 2.0**exponent, np.nan)
        scaled = np.where(amax[:, None] > 0, x / scale[:, None], np.copysign(0, x))
        scaled = np.where(finite[:, None], np.clip(scaled, -largest, largest), 0)
        value_codes = rounded(scaled, dtype)
        back = value_codes.view(dtype).astype(np.float64) * scale[:, None]
    return value_codes.reshape(-1), scale_codes.astype(np.uint8), t, back.reshape(-1)


def hard_rows(rng, block):
    """Blocks of many kinds: smooth, wild, tiny, huge, ties, zeros, and some with an infinity or a NaN."""
    n = 64
    rows = [rng.standard_normal((n, 2 * block)) * 10.0 ** rng.integers(-6, 6, (n, 1)),
            rng.standard_normal((n, 2 * block)) * 2.0 ** rng.integers(-30, 30, (n, 2 * block)),
            rng.integers(-16, 17, (n, 2 * block)) / 4.0,  # ties
            rng.standard_normal((8, 2 * block)) * 1e-40, rng.standard_normal((8, 2 * block)) * 1e37,
            np.zeros((2, 2 * block)), -np.zeros((1, 2 * block))]
    x = np.concatenate(rows).astype(np.float32)
    x[3, 5], x[7, 0], x[11, block] = np.inf, np.nan, -np.inf
    x[13, :block] = 0
    return x


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_bits_equal_the_reference(name, dtype):
    x = hard_rows(np.random.default_rng(1), FORMATS[name][1])
    for scale in (1.0, 1e-3, 0.0):  # NVFP4's tensor scale follows the whole tensor
        with np.errstate(all="ignore"):
            y = (x * np.float32(scale) if scale else np.nan_to_num(x, posinf=0, neginf=0) * 0).astype(np.dtype(dtype))
        values, scales, t, back = ours(y, name)
        want_values, want_scales, want_t, want_back = reference(y, name)
        assert t == want_t
        assert np.array_equal(scales, want_scales), np.flatnonzero(scales != want_scales)[:5]
        assert np.array_equal(values, want_values), np.flatnonzero(values != want_values)[:5]
        with np.errstate(all="ignore"):
            assert np.array_equal(back.reshape(-1), want_back.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["NEAREST", "SATURATE", "STOCHASTIC"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_fake_quantize_is_there_and_back_with_a_straight_gradient(name, mode, dtype):
    rng = np.random.default_rng(3)
    with np.errstate(all="ignore"):
        x = hard_rows(rng, FORMATS[name][1]).astype(np.dtype(dtype))
    leaf = tl.requires_grad(tl.tensor(x), True)
    tl.seed(11)
    y = tl.fake_quantize(leaf, getattr(tl, name), getattr(tl, mode))
    words = tl.generator_get().index
    tl.seed(11)
    q, _ = quantize(tl.tensor(x), name, mode)
    assert tl.generator_get().index == words
    assert raw(y).tobytes() == raw(tl.dequantize(q, np.dtype(dtype))).tobytes()
    if mode == "NEAREST":
        with np.errstate(all="ignore"):
            assert np.array_equal(y.numpy().reshape(-1), reference(x, name)[3].astype(np.dtype(dtype)), equal_nan=True)
    seed = rng.standard_normal(x.shape).astype(np.dtype(dtype))
    tl.backward(y, tl.tensor(seed), 0)
    assert leaf.grad.numpy().tobytes() == seed.tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(5))
def test_small_random_tensors_of_any_shape_and_layout(name, seed):
    rng = np.random.default_rng(seed)
    block = FORMATS[name][1]
    for _ in range(20):
        shape = [*rng.integers(0, 4, rng.integers(0, 3)), block * rng.integers(0, 4)]
        x = rng.standard_normal(shape).astype(np.float32)
        order = [int(a) for a in rng.permutation(len(shape))]
        leaf = tl.tensor(np.ascontiguousarray(np.transpose(x, order)).reshape([shape[a] for a in order]))
        q, parts = quantize(tl.permute(leaf, [int(a) for a in np.argsort(order)]), name)
        want = reference(x, name)
        assert parts[0].shape == tuple(shape) and parts[1].shape == (*shape[:-1], shape[-1] // block)
        assert np.array_equal(codes(parts[0], FORMATS[name][0]), want[0]) and np.array_equal(raw(parts[1]), want[1])
        assert np.array_equal(tl.dequantize(q, np.dtype("float32")).numpy().reshape(-1), want[3].astype(np.float32))


def test_worked_examples_of_the_mx_rule():
    # amax 7 = 1.75 * 2^2: floor(log2) 2, minus e2m1's 2, gives 2^0. 7 saturates at 6; 5 is a tie between 4 and 6 and
    # goes to the even 4; 2.5 between 2 and 3 to 2; 0.25 between 0 and 0.5 to 0; 0.75 between 0.5 and 1 to 1.
    x = np.zeros(32, np.float32)
    x[:7] = [7, 5, 2.5, 0.25, 0.75, -3, -0.1]
    values, scales, _, back = ours(x, "MXFP4")
    assert list(scales) == [127] and list(back[:7]) == [6, 4, 2, 0, 1, -3, 0]
    assert list(values[:7]) == [0x7, 0x6, 0x4, 0x0, 0x2, 0xD, 0x8]
    # The same 2^10 times larger: the same values, the exponent 10 more.
    assert list(ours(x * 1024, "MXFP4")[1]) == [137] and np.array_equal(ours(x * 1024, "MXFP4")[0], values)
    # e4m3: emax 8. amax 1: 2^(0-8), 1 becomes 256 (0x78); amax 1.99: 1.99*256 = 509.4 saturates at 448 (0x7e): 1.75.
    x = np.full(32, 1, np.float32)
    assert list(ours(x, "MXFP8_E4M3")[1]) == [119] and set(ours(x, "MXFP8_E4M3")[0]) == {0x78}
    x[0] = 1.99
    values, _, _, back = ours(x, "MXFP8_E4M3")
    assert values[0] == 0x7E and back[0] == 1.75
    # e5m2: emax 15. amax 3: 2^(1-15); 3 becomes 1.5 * 2^15 (0x7a).
    x = np.full(32, 3, np.float32)
    assert list(ours(x, "MXFP8_E5M2")[1]) == [113] and set(ours(x, "MXFP8_E5M2")[0]) == {0x7A}
    # The ends of e8m0: 2^-149 wants 2^-151 and gets 2^-127; a f64 of 2^300 wants 2^298 and saturates.
    assert list(ours(np.full(32, 2.0**-149, np.float32), "MXFP4")[1]) == [0]
    values, scales, _, back = ours(np.full(32, 2.0**300), "MXFP4", out="float64")
    assert list(scales) == [254] and set(values) == {7} and set(back) == {6 * 2.0**127}


def test_worked_example_of_nvfp4():
    # amax 2688: tensor scale 1. First block: 2688/6 = 448, values 6. Second block: amax 6, scale 1, the e2m1 grid
    # itself.
    x = np.zeros((2, 16), np.float32)
    x[0] = 2688
    x[1, :8] = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    values, scales, t, back = ours(x, "NVFP4")
    assert t == 1 and [scales.view(ml_dtypes.float8_e4m3fn)[i] for i in (0, 1)] == [448, 1]
    assert np.array_equal(back, x) and list(values[16:24]) == list(range(8))


@pytest.mark.parametrize("name", NAMES)
def test_blocks_of_zeros_and_blocks_that_are_not_finite(name):
    block = FORMATS[name][1]
    x = np.ones((4, block), np.float32)
    x[0] = 0
    x[1, 3], x[2, 0] = np.inf, np.nan
    values, scales, _, back = ours(x, name)
    assert not values[:block].any() and scales[0] == 0 and (back[0] == 0).all()
    assert not values[block:3 * block].any() and np.isnan(back[1:3]).all()
    assert set(scales[1:3]) == {0x7F if name == "NVFP4" else 0xFF}
    assert np.abs(back[3] - 1).max() < 1e-6  # the neighbours do not notice


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["NEAREST", "STOCHASTIC"])
def test_errors_stay_within_the_documented_bounds(name, mode):
    rng = np.random.default_rng(7)
    block, bound = FORMATS[name][1], BOUND[name][mode == "STOCHASTIC"]
    kinds = [rng.standard_normal((4096, block)), rng.uniform(-1, 1, (4096, block)) ** 9,
             rng.standard_normal((4096, block)) * 2.0 ** rng.integers(-20, 20, (4096, 1)),
             np.sort(rng.uniform(4, 8, (4096, block)), 1) * rng.choice([1, 2], (4096, 1))]
    worst = 0
    for x in kinds:
        x = x.astype(np.float32)
        back = ours(x, name, mode, "float64")[3]
        amax = np.abs(x.astype(np.float64)).max(1)
        allowed = bound * amax + (6 * 2.0**-10 / 2688 * amax.max() if name == "NVFP4" else 0)
        error = np.abs(back - x).max(1)
        assert (error <= allowed * (1 + 1e-12)).all(), (error / amax).max()
        worst = max(worst, (error / np.where(allowed > 0, allowed, 1)).max())
    assert worst > 0.9  # the bound is not idle


@pytest.mark.parametrize("name", NAMES)
def test_stochastic_quantization_is_unbiased_and_keeps_what_fits(name):
    block = FORMATS[name][1]
    row = np.linspace(-1, 1, block).astype(np.float32)
    row[0] = 4  # sets the scale, and fits
    x = np.tile(row, (20000, 1))
    tl.seed(5)
    back = ours(x, name, "STOCHASTIC")[3].astype(np.float64)
    low, high = back.min(0), back.max(0)
    error = 5 * (high - low) / 2 / np.sqrt(len(x)) + 1e-12
    assert (np.abs(back.mean(0) - row) <= error + (0 if name != "NVFP4" else 1e-7)).all()
    assert (back[:, 0] == back[0, 0]).all() and abs(back[0, 0] - 4) < 1e-6
    # What overflows saturates, whatever the draw.
    big = np.full((64, block), 1, np.float32)
    big[:, 1] = 1.9999
    assert np.isfinite(ours(big, name, "STOCHASTIC")[3]).all()


@pytest.mark.parametrize("name", NAMES)
def test_dequantizing_rounds_once_to_any_float(name):
    x = np.random.default_rng(3).standard_normal((8, 64)).astype(np.float32)
    q, _parts = quantize(tl.tensor(x), name)
    exact = reference(x, name)[3]
    for out in ("float64", "float32"):
        assert np.array_equal(tl.dequantize(q, np.dtype(out)).numpy().reshape(-1), exact.astype(out))
    for out in ("bfloat16", "float16"):
        assert np.array_equal(tl.dequantize(q, np.dtype(out)).numpy().reshape(-1).astype(np.float32),
                              torch.from_numpy(exact).to(TORCH[out]).float().numpy())


def test_quantizing_again_changes_nothing_in_mx():
    for name in NAMES[:3]:
        x = np.random.default_rng(4).standard_normal((64, 64)).astype(np.float32)
        once = ours(x, name)[3]
        # Saturation keeps the largest value below the next power of two, so the scale is found again.
        assert np.array_equal(ours(once, name)[3], once)


def test_refusals():
    x = tl.tensor(np.zeros((2, 40), np.float32))
    with pytest.raises(TallyError, match="the last axis has 40 elements, nvfp4 has blocks of 16.*pad it with zeros"):
        quantize(x, "NVFP4")
    with pytest.raises(TallyError, match="not implemented for int64"):
        quantize(tl.tensor(np.zeros(32, np.int64)), "MXFP4")
    with pytest.raises(TallyError, match="no dtype|needs a floating point"):
        q, _parts = quantize(tl.tensor(np.zeros(32, np.float32)), "MXFP4")
        tl.dequantize(q, np.dtype("int8"))


# ---- Questions about dtypes ----

def text(pointer):
    return ctypes.string_at(pointer).decode()


@pytest.mark.parametrize("name", [n for n in TORCH if n.startswith(("float", "bfloat"))])
def test_finfo_is_torchs(name):
    theirs, mine = torch.finfo(TORCH[name]), tl.finfo(np.dtype(name))
    assert text(mine.name) == name and mine.bits == theirs.bits
    for field in ("eps", "max", "min", "tiny", "smallest_normal"):
        assert getattr(mine, field) == getattr(theirs, field), field
    assert mine.resolution == pytest.approx(theirs.resolution, rel=1e-6)
    assert mine.smallest_subnormal == float(ml_dtypes.finfo(np.dtype(name)).smallest_subnormal)


def test_finfo_of_f4_is_ml_dtypes():
    theirs, mine = ml_dtypes.finfo(ml_dtypes.float4_e2m1fn), tl.finfo(np.dtype(ml_dtypes.float4_e2m1fn))
    for field in ("eps", "max", "min", "smallest_normal", "smallest_subnormal"):
        assert getattr(mine, field) == float(getattr(theirs, field)), field


@pytest.mark.parametrize("name", [n for n in TORCH if "int" in n])
def test_iinfo_is_torchs(name):
    theirs, mine = torch.iinfo(TORCH[name]), tl.iinfo(np.dtype(name))
    assert (text(mine.name), mine.bits, mine.min, mine.max) == (name, theirs.bits, theirs.min, theirs.max)


@pytest.mark.parametrize("a", list(TORCH))
@pytest.mark.parametrize("b", list(TORCH))
def test_promotion_is_torchs(a, b):
    try:
        theirs = torch.promote_types(TORCH[a], TORCH[b])
    except RuntimeError:
        with pytest.raises(TallyError, match="no common dtype"):
            tl.promote(np.dtype(a), np.dtype(b))
        return
    assert TORCH[NUMPY_DTYPES[tl.promote(np.dtype(a), np.dtype(b))].name] == theirs


# ---- tally dtypes ----

PROGRAM = Path(LIBRARY).parent / "tally"


@pytest.mark.skipif(not PROGRAM.exists(), reason="no program beside the library")
def test_the_command_tells_what_numpy_and_torch_tell():
    answer = json.loads(subprocess.run([PROGRAM, "dtypes", "--json"], check=True, capture_output=True,
                                       text=True).stdout)
    assert [row["numpy"] for row in answer["dtypes"]] == [d.name for d in NUMPY_DTYPES]
    for row, dtype in zip(answer["dtypes"], NUMPY_DTYPES):
        with np.errstate(all="ignore"):
            assert dtype.kind == "c" or row["stored_1e-8"] == float(np.float64(1e-8).astype(dtype)), row["name"]
        if "eps" in row:
            info = ml_dtypes.finfo(dtype)
            assert [row[k] for k in ("max", "min", "eps", "smallest_normal")] == \
                [float(v) for v in (info.max, info.min, info.eps, info.smallest_normal)]
    by_name = {row["name"]: row for row in answer["dtypes"]}
    assert by_name["f16"]["stored_1e-8"] == 0 and by_name["bf16"]["stored_1e-8"] > 0
    assert {f["name"]: f["bits"] for f in answer["formats"]} == \
        {"mxfp8_e4m3": 8.25, "mxfp8_e5m2": 8.25, "mxfp4": 4.25, "nvfp4": 4.5, "nf4": 4.5}


@pytest.mark.skipif(not PROGRAM.exists(), reason="no program beside the library")
def test_the_command_prints_a_row_per_dtype_and_refuses_other_options():
    text_ = subprocess.run([PROGRAM, "dtypes"], check=True, capture_output=True, text=True).stdout
    rows = [line for line in text_.splitlines() if line.startswith(("f", "b", "i", "u", "c"))]
    assert len(rows) == len(NUMPY_DTYPES) + 1
    wrong = subprocess.run([PROGRAM, "dtypes", "--yaml"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "--yaml" in wrong.stderr and not wrong.stdout


# ---- NF4

def test_nf4_is_that_of_bitsandbytes():
    package = pytest.importorskip("bitsandbytes.functional")
    x = np.random.default_rng(20).standard_normal((64, 256)).astype(np.float32)
    theirs, state = package.quantize_4bit(torch.from_numpy(x), blocksize=64, quant_type="nf4")
    q, (values, scales) = quantize(tl.tensor(x), "NF4")
    assert np.array_equal(raw(values), theirs.numpy().reshape(-1))
    assert np.array_equal(scales.numpy().reshape(-1), state.absmax.numpy())
    assert np.array_equal(tl.dequantize(q, np.dtype("float32")).numpy(), package.dequantize_4bit(theirs, state).numpy())


# The values of bitsandbytes.
NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
                0.7229568362236023, 1.0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_nf4_is_the_nearest_of_its_table(dtype):
    table = NF4
    x = np.random.default_rng(21).standard_normal((24, 192)).astype(np.dtype(dtype))
    x[3, :64], x[4, 5], x[5, 64] = 0, np.inf, np.nan
    q, (values, scales) = quantize(tl.tensor(x), "NF4")
    blocks = x.astype(np.float64).reshape(-1, 64)
    amax = np.abs(blocks).max(1)
    with np.errstate(invalid="ignore"):
        want = np.abs((blocks / amax[:, None])[..., None] - table).argmin(-1)
    want[~np.isfinite(amax) | (amax == 0)] = 7
    packed = raw(values)
    assert np.array_equal(np.stack([packed >> 4, packed & 15], -1).reshape(-1, 64), want)
    assert np.array_equal(scales.numpy().reshape(-1), np.where(np.isfinite(amax), amax, np.nan).astype("f4"),
                          equal_nan=True)
    exact = table[want] * scales.numpy().reshape(-1, 1).astype(np.float64)
    for out in ("float32", "bfloat16"):
        back = tl.dequantize(q, np.dtype(out)).numpy().reshape(-1, 64)
        assert np.array_equal(back, exact.astype(np.float32) if out == "float32" else exact.astype(np.dtype(out)),
                              equal_nan=True)
    is_number = np.isfinite(amax) & (amax > 0)
    assert (np.abs(exact - blocks)[is_number] / amax[is_number, None]).max() < 0.1520
    with pytest.raises(TallyError, match="nf4 is rounded to nearest"):
        quantize(tl.tensor(x), "NF4", "STOCHASTIC")
