"""Conversions against the world: ml_dtypes, NumPy and PyTorch, bit for bit.

The functions under test are internal, so the library does not export them; the fixture builds the three source
files into a small shared object of its own (or loads the one named by TALLY_TEST_LIB). Where the peers
round twice (integers through f32) or saturate, an exact rounding in Python integers or f64 is the oracle instead.
"""

import ctypes
import os
import pathlib
import subprocess

import ml_dtypes
import numpy as np
import pytest
import torch

# Signalling NaNs are among the inputs; NumPy mentions each.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")

ROOT = pathlib.Path(__file__).resolve().parents[2]
N_RANDOM = 1_000_000 * int(os.environ.get("TALLY_SOAK", "1"))
NEAREST, SATURATE, STOCHASTIC = 0, 1, 2

# Order of enum tl_dtype.
NAMES = ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "f8e8m0", "f4e2m1",
         "i64", "i32", "i16", "u16", "i8", "u8", "bool"]
CODE = {name: i for i, name in enumerate(NAMES)}

NUMPY = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
         "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "f8e8m0": ml_dtypes.float8_e8m0fnu,
         "f4e2m1": ml_dtypes.float4_e2m1fn, "i64": np.int64, "i32": np.int32, "i16": np.int16, "u16": np.uint16,
         "i8": np.int8, "u8": np.uint8, "bool": np.bool_}
STORED = {"f64": np.uint64, "f32": np.uint32, "f16": np.uint16, "bf16": np.uint16, "f8e4m3": np.uint8,
          "f8e5m2": np.uint8, "f8e8m0": np.uint8, "f4e2m1": np.uint8, "i64": np.int64, "i32": np.int32,
          "i16": np.int16, "u16": np.uint16, "i8": np.int8, "u8": np.uint8, "bool": np.uint8}
NARROW = ["f16", "bf16", "f8e4m3", "f8e5m2", "f8e8m0", "f4e2m1"]
IEEE_LIKE = ["f16", "bf16", "f8e4m3", "f8e5m2", "f4e2m1"]
FLOATS = ["f64", "f32"] + NARROW
INTEGERS = ["i64", "i32", "i16", "u16", "i8", "u8"]

# (mantissa bits, smallest normal exponent, largest finite value)
FORMAT = {"f32": (23, -126, 2.0**128 - 2.0**104), "f16": (10, -14, 65504.0), "bf16": (7, -126, 255 * 2.0**120),
          "f8e4m3": (3, -6, 448.0), "f8e5m2": (2, -14, 57344.0), "f4e2m1": (1, 0, 6.0)}


@pytest.fixture(scope="session")
def lib(tmp_path_factory):
    path = os.environ.get("TALLY_TEST_LIB")
    if not path:
        path = str(tmp_path_factory.mktemp("convert") / "convert.so")
        src = ROOT / "src"
        sources = [str(f) for f in (src / "tensor/dtype.c", src / "tensor/convert.c", *(src / "base").glob("*.c"))]
        command = [*os.environ.get("CC", "cc").split(), "-std=c17", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC",
                   f"-I{ROOT}/include", f"-I{src}", *os.environ.get("TALLY_TEST_CFLAGS", "").split(), *sources,
                   "-ljansson", "-lm", "-o", path]
        subprocess.run(command, check=True)
    library = ctypes.CDLL(path)
    pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    library.convert.argtypes = [pointer, integer, size, pointer, integer, size, size, integer, pointer]
    library.convert.restype = None
    for kind in ("f32", "f64", "i64"):
        getattr(library, f"convert_to_{kind}").argtypes = [pointer, pointer, integer, size, size]
        getattr(library, f"convert_from_{kind}").argtypes = [pointer, integer, size, pointer, size]
    for kind, ctype in (("f64", ctypes.c_double), ("i64", size)):
        getattr(library, f"convert_get_{kind}").argtypes = [pointer, integer, size]
        getattr(library, f"convert_get_{kind}").restype = ctype
        getattr(library, f"convert_set_{kind}").argtypes = [pointer, integer, size, ctype]
    return library


def pack(codes):
    """f4 codes, one per byte, to two per byte, even element low."""
    padded = np.append(codes, np.zeros(len(codes) % 2, np.uint8))
    return (padded[0::2] | padded[1::2] << 4).astype(np.uint8)


def unpack(data, n):
    return np.stack([data & 15, data >> 4], 1).reshape(-1)[:n]


def run(lib, source, source_name, target_name, mode=NEAREST, random=None):
    """Bits of `source` (an array of stored bits) to bits of the target."""
    n = len(source)
    data = np.ascontiguousarray(pack(source) if source_name == "f4e2m1" else source)
    out_length = (n + 1) // 2 if target_name == "f4e2m1" else n
    out = np.zeros(out_length, STORED[target_name])
    lib.convert(out.ctypes.data, CODE[target_name], 1, data.ctypes.data, CODE[source_name], 1, n, mode,
                None if random is None else random.ctypes.data)
    return unpack(out, n) if target_name == "f4e2m1" else out


def all_codes(name):
    bits = {"f4e2m1": 4}.get(name, 8 * np.dtype(STORED[name]).itemsize)
    return np.arange(1 << bits).astype(STORED[name])


def values_of(codes, name):
    return codes.view(NUMPY[name])


def hard_f64(rng):
    """10^6 f64: random bits, random values in and around each narrow range, exact ties and their neighbours."""
    n = N_RANDOM // 4
    any_bits = rng.integers(0, 2**64, n, np.uint64).view(np.float64)
    scaled = rng.standard_normal(n) * np.exp2(rng.uniform(-152, 130, n))
    small = rng.standard_normal(n) * np.exp2(rng.uniform(-30, 20, n))
    # A few leading bits and a one: a tie in some format; a far smaller bit pushes it off.
    bits = rng.integers(1, 12, n)
    tie = (2 * rng.integers(0, 2**bits) + 1) * np.exp2(rng.integers(-140, 120, n) - bits)
    tie *= 1 + rng.integers(-1, 2, n) * 2.0**-50
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 5e-324, 2.0**-1022, 1.7e308, 448, 464, 464.0001, 480,
                      57344, 61440, 61439.99, 65504, 65519.999, 65520, 5, 5.0000001, 7, 6, 0.25, 0.2500001, 2.0**-127,
                      2.0**-128, 2.0**-150, 1.5 * 2.0**-150, 1.5 * 2.0**127, 1.4999 * 2.0**127, 2.0**128, 1e-300])
    return np.concatenate([any_bits, scaled, small, tie, edges, -edges])


def hard_f32(rng):
    n = N_RANDOM // 2
    any_bits = rng.integers(0, 2**32, n, np.uint32)
    ties = rng.integers(0, 2**32, n, np.uint32) & np.uint32(0xFFFFF000) | rng.integers(0, 2, n, np.uint32)
    with np.errstate(over="ignore", under="ignore"):
        edges = hard_f64(rng)[-66:].astype(np.float32).view(np.uint32)
    return np.concatenate([any_bits, ties, edges])


def round_exactly(x, name):
    """Nearest, ties to even, in f64 arithmetic that is exact throughout; overflow left as the rounded value."""
    mantissa, emin, _ = FORMAT[name]
    finite = np.isfinite(x) & (np.abs(x) >= 2.0**-300)
    safe = np.where(finite, x, 0.0)
    exponent = np.maximum(np.frexp(safe)[1] - 1, emin) - mantissa
    rounded = np.ldexp(np.rint(np.ldexp(safe, -exponent)), exponent)
    return np.where(finite, rounded, np.where(np.abs(x) < 1, np.copysign(0.0, x), x))


def assert_same_bits(got, want, source, nan=None):
    """`nan` marks elements where both only have to be NaN."""
    bad = got != want
    if nan is not None:
        bad &= ~nan
    where = np.flatnonzero(bad)
    lines = [f"{source[i]!r}: got {int(got[i]):#x} want {int(want[i]):#x}" for i in where[:8]]
    assert len(where) == 0, f"{len(where)} of {len(got)} differ: " + "; ".join(lines)


# ---- Widening: all bit patterns ---------------------------------------------------------------------------

@pytest.mark.parametrize("target", ["f32", "f64"])
@pytest.mark.parametrize("source", NARROW)
def test_every_narrow_float_widens_to_its_exact_value(lib, source, target):
    codes = all_codes(source)
    want = values_of(codes, source).astype(NUMPY[target])
    got = run(lib, codes, source, target).view(NUMPY[target])
    assert_same_bits(np.isnan(got), np.isnan(want), codes)
    same_sign = np.signbit(got) == np.signbit(want)
    assert same_sign[~np.isnan(want)].all(), codes[~same_sign]
    assert_same_bits(got.view(STORED[target]), want.view(STORED[target]), codes, nan=np.isnan(want))


@pytest.mark.parametrize("name", ["f16", "bf16", "f8e4m3", "f8e5m2", "f8e8m0"])
def test_widening_agrees_with_torch(lib, name):
    torch_type = {"f16": torch.float16, "bf16": torch.bfloat16, "f8e4m3": torch.float8_e4m3fn,
                  "f8e5m2": torch.float8_e5m2, "f8e8m0": torch.float8_e8m0fnu}[name]
    codes = all_codes(name)
    want = torch.from_numpy(codes.view(np.int16 if codes.itemsize == 2 else np.uint8)).view(torch_type).float().numpy()
    got = run(lib, codes, name, "f32").view(np.float32)
    assert_same_bits(got.view(np.uint32), want.view(np.uint32), codes, nan=np.isnan(want) & np.isnan(got))


@pytest.mark.parametrize("name", NARROW)
def test_every_value_survives_a_round_trip(lib, name):
    codes = all_codes(name)
    for hub in ("f32", "f64"):
        back = run(lib, run(lib, codes, name, hub), hub, name)
        assert_same_bits(back, codes, codes, nan=np.isnan(values_of(codes, name).astype(np.float32)))


# ---- Narrowing ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("target", NARROW)
def test_f32_narrows_like_ml_dtypes(lib, target):
    bits = hard_f32(np.random.default_rng(1))
    with np.errstate(all="ignore"):
        want = bits.view(np.float32).astype(NUMPY[target]).view(STORED[target])
    if target == "f8e8m0":  # ml_dtypes rounds all of this binade up
        magnitude = np.abs(bits.view(np.float32))
        kept = ~((magnitude > 2.0**-127) & (magnitude < 2.0**-126))
        bits, want = bits[kept], want[kept]
    nan = np.isnan(bits.view(np.float32)) if target == "f16" else None  # NumPy keeps f16 payloads
    got = run(lib, bits, "f32", target)
    assert_same_bits(got, want, bits.view(np.float32), nan)
    if target == "f16":
        assert set(np.unique(got[nan])) == {0x7E00, 0xFE00}


@pytest.mark.parametrize("target", ["f16", "bf16", "f8e5m2"])
def test_f32_narrows_like_torch(lib, target):
    torch_type = {"f16": torch.float16, "bf16": torch.bfloat16, "f8e5m2": torch.float8_e5m2}[target]
    bits = hard_f32(np.random.default_rng(2))
    values = bits.view(np.float32)
    view = torch.int16 if target != "f8e5m2" else torch.uint8
    want = torch.from_numpy(values).to(torch_type).view(view).numpy().view(STORED[target])
    assert_same_bits(run(lib, bits, "f32", target), want, values, nan=np.isnan(values))


@pytest.mark.parametrize("target", ["f32"] + IEEE_LIKE)
def test_f64_narrows_with_a_single_rounding(lib, target):
    x = hard_f64(np.random.default_rng(3))
    limit = FORMAT[target][2]
    with np.errstate(all="ignore"):
        exact = round_exactly(x, target)
        overflow = {"f8e4m3": np.nan, "f4e2m1": 6.0}.get(target, np.inf)
        value = np.where(np.abs(exact) > limit, np.copysign(overflow, x), exact)
        want = value.astype(NUMPY[target]).view(STORED[target])
    got = run(lib, x.view(np.uint64), "f64", target)
    assert_same_bits(got, want, x, nan=np.isnan(x) if target in ("f16", "f32") else None)


def test_f64_becomes_the_nearest_power_of_two(lib):
    x = hard_f64(np.random.default_rng(4))
    with np.errstate(all="ignore"):
        significand, exponent = np.frexp(x)  # significand in [1/2, 1)
        code = exponent - 1 + 127 + (significand >= 0.75)
        code = np.where((x > 0) & (x < np.inf) & (code <= 254), np.maximum(code, 0), 0xFF).astype(np.uint8)
    assert_same_bits(run(lib, x.view(np.uint64), "f64", "f8e8m0"), code, x)


def test_a_double_rounding_would_be_noticed(lib):
    # A shade above the tie between 1 and 1 + 2^-7: through f32 the shade is lost and the tie goes to even.
    x = np.array([1 + 2.0**-8 + 2.0**-40])
    assert run(lib, x.view(np.uint64), "f64", "bf16")[0] == 0x3F81
    assert run(lib, np.array([2**62 + 2**54 + 1]), "i64", "bf16")[0] == 0x5E81
    assert run(lib, np.array([2**62 + 2**54]), "i64", "bf16")[0] == 0x5E80


@pytest.mark.parametrize("source", NARROW)
@pytest.mark.parametrize("target", NARROW)
def test_narrow_to_narrow_equals_the_way_through_f64(lib, source, target):
    if source == target:
        return
    codes = all_codes(source)
    got = run(lib, codes, source, target)
    via = run(lib, run(lib, codes, source, "f64"), "f64", target)
    assert_same_bits(got, via, codes)


# ---- Integers ---------------------------------------------------------------------------------------------

def hard_i64(rng):
    any_bits = rng.integers(-2**63, 2**63, N_RANDOM // 2)
    small = any_bits[: N_RANDOM // 4] >> rng.integers(0, 63, N_RANDOM // 4)
    ties = (rng.integers(0, 2**12, N_RANDOM // 4) | 1) << rng.integers(0, 51, N_RANDOM // 4)
    ties += rng.integers(-1, 2, len(ties))
    edges = np.array([0, 1, -1, 2**63 - 1, -2**63, 2**53, 2**53 + 1, 65504, 65519, 65520, 448, 464, 465, 57344, 61439,
                      61440, 5, 7, 256, 257, 384, 32768, 65536, 2**31, -2**31 - 1])
    return np.concatenate([any_bits, small, ties, edges])


def round_integer(value, mantissa):
    """Nearest, ties to even, in Python integers."""
    magnitude = abs(value)
    shift = max(magnitude.bit_length() - mantissa - 1, 0)
    kept, rest = magnitude >> shift, magnitude & ((1 << shift) - 1)
    half = (1 << shift) >> 1
    kept += rest > half or (shift > 0 and rest == half and kept & 1)
    return (kept << shift) * (-1 if value < 0 else 1)


@pytest.mark.parametrize("target", ["f32"] + IEEE_LIKE)
def test_i64_becomes_float_with_a_single_rounding(lib, target):
    integers = hard_i64(np.random.default_rng(5))
    sample = np.concatenate([integers[::37], integers[-25:]])
    mantissa, _, limit = FORMAT[target]
    overflow = {"f8e4m3": float("nan"), "f4e2m1": 6.0}.get(target, float("inf"))
    exact = [round_integer(int(v), mantissa) for v in sample]
    value = np.array([float(v) if abs(v) <= limit else np.copysign(overflow, v) for v in exact])
    want = value.astype(NUMPY[target]).view(STORED[target])
    assert_same_bits(run(lib, sample, "i64", target), want, sample)


def test_i64_becomes_f64_like_numpy(lib):
    integers = hard_i64(np.random.default_rng(6))
    assert_same_bits(run(lib, integers, "i64", "f64"), integers.astype(np.float64).view(np.uint64), integers)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", INTEGERS + ["bool"])
def test_integers_wrap_like_numpy(lib, source, target):
    integers = hard_i64(np.random.default_rng(7)).astype(NUMPY[source])
    want = integers.astype(NUMPY[target]).view(STORED[target])
    assert_same_bits(run(lib, integers, source, target), want, integers)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", INTEGERS)
def test_floats_truncate_and_saturate(lib, source, target):
    rng = np.random.default_rng(8)
    if source == "f64":
        codes = hard_f64(rng).view(np.uint64)
    elif source == "f32":
        codes = hard_f32(rng)
    else:
        codes = all_codes(source)
    info = np.iinfo(NUMPY[target])
    with np.errstate(all="ignore"):
        values = values_of(codes, source).astype(np.float64)
        truncated = np.trunc(np.where(np.isfinite(values), values, 0))
        fits = np.isfinite(values) & (truncated > float(info.min) - 1) & (truncated < float(info.max) + 1)
        fits &= (truncated < 2.0**63)
        want = np.where(fits, truncated, 0).astype(np.int64)
        want = np.where(np.isnan(values), 0, np.where(fits, want, np.where(values > 0, info.max, info.min)))
    assert_same_bits(run(lib, codes, source, target), want.astype(NUMPY[target]), values)


@pytest.mark.parametrize("source", FLOATS)
def test_any_float_but_zero_is_true(lib, source):
    codes = all_codes(source) if source in NARROW else hard_f32(np.random.default_rng(9)).astype(STORED[source])
    values = values_of(codes, source).astype(np.float64)
    assert_same_bits(run(lib, codes, source, "bool"), (values != 0).astype(np.uint8), values)


def test_any_nonzero_byte_reads_as_true(lib):
    codes = all_codes("bool")
    for target in ("f32", "f8e4m3", "i16"):
        got = run(lib, codes, "bool", target).view(NUMPY[target]).astype(np.float64)
        assert_same_bits(got, (codes != 0).astype(np.float64), codes)


# ---- Modes ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("target", ["f32"] + IEEE_LIKE)
def test_saturation_clamps_and_otherwise_equals_nearest(lib, target):
    x = hard_f64(np.random.default_rng(10))
    limit = FORMAT[target][2]
    with np.errstate(all="ignore"):
        clamped = np.where(np.isnan(x), x, np.clip(x, -limit, limit))
    want = run(lib, clamped.view(np.uint64), "f64", target)
    got = run(lib, x.view(np.uint64), "f64", target, SATURATE)
    assert_same_bits(got, want, x, nan=np.isnan(x) if target == "f32" else None)


def test_saturation_of_integers_and_of_e8m0(lib):
    assert list(run(lib, np.array([10**6, -10**6, 2**62]), "i64", "f16", SATURATE)) == [0x7BFF, 0xFBFF, 0x7BFF]
    x = np.array([np.inf, 1e300, 0.0, -0.0, -1.0, np.nan, 1e-300, 3.0])
    got = run(lib, x.view(np.uint64), "f64", "f8e8m0", SATURATE)
    assert list(got) == [0xFE, 0xFE, 0, 0, 0xFF, 0xFF, 0, 0x81]


@pytest.mark.parametrize("target", IEEE_LIKE + ["f8e8m0"])
def test_stochastic_rounding_is_unbiased_and_picks_neighbours(lib, target):
    rng = np.random.default_rng(11)
    draws = 1 << 16
    # Evenly spread random words: the number that round up is then exact to one.
    random = (np.arange(draws, dtype=np.uint64) << np.uint64(16)).astype(np.uint32)
    rng.shuffle(random)
    tiny = {"f8e8m0": 1.0}.get(target, 2.0 ** (FORMAT.get(target, (0, 0))[1] - 1))
    for value in (1.2, 3.3, 4.9, tiny * 1.37):
        for sign in (1,) if target == "f8e8m0" else (1, -1):
            x = np.full(draws, sign * value, np.float32)
            got = run(lib, x.view(np.uint32), "f32", target, STOCHASTIC, random).view(NUMPY[target]).astype(np.float64)
            low, high = got.min(), got.max()
            assert len(np.unique(got)) == 2 and low < float(x[0]) < high, (value, np.unique(got))
            assert abs(got.mean() - float(x[0])) <= (high - low) / draws, (value, got.mean(), float(x[0]))


@pytest.mark.parametrize("target", IEEE_LIKE)
def test_stochastic_rounding_is_unbiased_far_below_the_smallest_subnormal(lib, target):
    mantissa, emin, _ = FORMAT[target]
    draws = 1 << 16
    random = (np.arange(draws, dtype=np.uint64) << np.uint64(16)).astype(np.uint32)
    for exponent in range(8, 20):  # 1 of 2^exponent draws rounds up
        x = np.full(draws, 2.0 ** (emin - mantissa - exponent))
        got = run(lib, x.view(np.uint64), "f64", target, STOCHASTIC, random)
        assert int((got == 1).sum()) == draws >> exponent and set(got) <= {0, 1}, (exponent, np.unique(got))


@pytest.mark.parametrize("target", NARROW)
def test_stochastic_rounding_keeps_what_is_representable(lib, target):
    codes = all_codes(target)
    wide = run(lib, codes, target, "f32")
    for word in (0, 0xFFFFFFFF):
        random = np.full(len(codes), word, np.uint32)
        back = run(lib, wide, "f32", target, STOCHASTIC, random)
        assert_same_bits(back, codes, codes, nan=np.isnan(wide.view(np.float32)))


def test_stochastic_rounding_never_leaves_the_finite_range(lib):
    x = np.array([65519.0, 65520.0, -65519.0, np.inf], np.float32)
    for word in (0, 0xFFFFFFFF):
        got = run(lib, x.view(np.uint32), "f32", "f16", STOCHASTIC, np.full(4, word, np.uint32))
        assert [hex(g) for g in got] == ["0x7bff", "0x7c00", "0xfbff", "0x7c00"]


# ---- Entry points -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", [n for n in NAMES if n != "f4e2m1"])
def test_strides_pick_and_place_the_right_elements(lib, name):
    rng = np.random.default_rng(12)
    n, stride = 1300, 3
    bits = rng.integers(0, 2, n * stride, np.uint8) if name == "bool" else \
        rng.integers(0, 100, n * stride).astype(STORED[name])
    out = np.zeros(n * 2, np.float64)
    lib.convert(out.ctypes.data, CODE["f64"], 2, bits.ctypes.data, CODE[name], stride, n, NEAREST, None)
    want = run(lib, bits[::stride].copy(), name, "f64").view(np.float64)
    assert np.array_equal(out[::2], want, equal_nan=True) and not out[1::2].any()
    back = np.zeros(n * 2, STORED[name])
    last = back.ctypes.data + (n - 1) * 2 * back.itemsize
    lib.convert(last, CODE[name], -2, want.ctypes.data, CODE["f64"], 1, n, NEAREST, None)
    want_back = run(lib, want.view(np.uint64), "f64", name)
    assert np.array_equal(back[::2][::-1], want_back) and not back[1::2].any()


@pytest.mark.parametrize("name", NAMES)
def test_bulk_entry_points_equal_convert(lib, name):
    codes = np.array([0, 1], np.uint8) if name == "bool" else \
        np.random.default_rng(13).integers(0, 16 if name == "f4e2m1" else 120, 999).astype(STORED[name])
    data = pack(codes) if name == "f4e2m1" else codes
    for hub in ("f32", "f64", "i64"):
        wide = np.zeros(len(codes), NUMPY[hub])
        getattr(lib, f"convert_to_{hub}")(wide.ctypes.data, data.ctypes.data, CODE[name], 1, len(codes))
        assert_same_bits(wide.view(STORED[hub]), run(lib, codes, name, hub), codes)
        back = np.zeros_like(data)
        getattr(lib, f"convert_from_{hub}")(back.ctypes.data, CODE[name], 1, wide.ctypes.data, len(codes))
        got = unpack(back, len(codes)) if name == "f4e2m1" else back
        assert_same_bits(got, run(lib, wide.view(STORED[hub]), hub, name), codes)


@pytest.mark.parametrize("name", NAMES)
def test_same_dtype_copies_bits(lib, name):
    codes = np.random.default_rng(14).integers(0, 16, 1001).astype(STORED[name]) if name == "f4e2m1" else \
        np.frombuffer(np.random.default_rng(14).bytes(1001 * np.dtype(STORED[name]).itemsize), STORED[name])
    assert_same_bits(run(lib, codes, name, name, SATURATE), codes, codes)


def test_odd_f4_count_leaves_the_neighbour_alone(lib):
    data = np.array([0xAB, 0xCD], np.uint8)
    x = np.array([1.0, 2.0, 3.0], np.float32)
    lib.convert(data.ctypes.data, CODE["f4e2m1"], 1, x.ctypes.data, CODE["f32"], 1, 3, NEAREST, None)
    assert [hex(b) for b in data] == ["0x42", "0xc5"]


@pytest.mark.parametrize("name", NAMES)
def test_scalar_accessors_read_and_write_one_element(lib, name):
    data = np.zeros(8, STORED[name])
    pointer = data.ctypes.data
    untouched = lib.convert_get_f64(pointer, CODE[name], 2)
    expected = 1.0 if name in ("bool", "f8e8m0") else 3.0
    for index in (3, 4):
        lib.convert_set_f64(pointer, CODE[name], index, expected)
        assert lib.convert_get_f64(pointer, CODE[name], index) == expected
        lib.convert_set_i64(pointer, CODE[name], index, 1)
        assert lib.convert_get_i64(pointer, CODE[name], index) == 1
    assert lib.convert_get_f64(pointer, CODE[name], 2) == untouched
    assert lib.convert_get_f64(pointer, CODE[name], 5) == untouched
