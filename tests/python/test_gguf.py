"""GGUF beside the package gguf: each reads what the other wrote, and Q8_0 has the same bytes."""
import ctypes

import ml_dtypes
import numpy as np
import pytest

from tally_c import TallyError, tl

gguf = pytest.importorskip("gguf", reason="the package gguf is not there")

LONGS = ctypes.POINTER(ctypes.c_int64)
TYPES = ["F32", "F16", "BF16", "Q8_0"]
NUMPY = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


def tensors_of(path):
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def decoded(tensor):
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type)


def random_values(shape, seed):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape, dtype=np.float32) * np.exp(rng.uniform(-12, 9, (shape[0], 1))).astype("f4")
    values[0] = 0
    values[1, ::3] = np.round(values[1, ::3])
    return values.astype(np.float32)


def save(path, tensors):
    writer = tl.gguf_writer_new()
    for name, (x, kind) in tensors.items():
        tl.gguf_writer_tensor(writer, name, x, TYPES.index(kind))
    tl.gguf_writer_save(writer, str(path))
    tl.gguf_writer_free(writer)


def test_the_package_reads_equal_bytes(tmp_path):
    values = random_values((20, 96), 1)
    x = tl.tensor(values)
    save(tmp_path / "x.gguf", {kind: (x, kind) for kind in TYPES})
    theirs = tensors_of(tmp_path / "x.gguf")
    for kind in TYPES[:3]:
        expected = values.astype(NUMPY[kind]).view(np.uint8).reshape(-1)
        assert np.array_equal(np.asarray(theirs[kind].data).reshape(-1).view(np.uint8), expected), kind
    assert np.array_equal(theirs["Q8_0"].data, gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0))


def test_files_of_the_package_are_read(tmp_path):
    values = random_values((8, 64), 2)
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("a.number", 7)
    writer.add_float64("a.double", 1e-300)
    writer.add_bool("a.truth", True)
    writer.add_array("a.words", ["x", "ä", ""])
    writer.add_array("a.numbers", [1, -2, 3])
    writer.add_int8("an.i8", -128)
    writer.add_uint64("a.u64", 2**63)
    writer.add_tensor("f32", values)
    writer.add_tensor("f16", values.astype(np.float16))
    writer.add_tensor("q8", gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0),
                      raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q4", gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_0),
                      raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = tl.gguf_open(str(path))
    assert tl.gguf_text(file, "general.architecture", 0) == b"llama"
    assert [tl.gguf_text(file, "a.words", i).decode() for i in range(3)] == ["x", "ä", ""]
    number, real = ctypes.c_int64(), ctypes.c_double()
    real_at = ctypes.byref(real)
    for key, i, expected in [("a.number", 0, 7), ("a.truth", 0, 1), ("a.numbers", 1, -2), ("an.i8", 0, -128)]:
        assert tl.gguf_integer(file, key, i, number) and number.value == expected, key
    assert not tl.gguf_integer(file, "a.u64", 0, number)
    assert tl.gguf_number(file, "a.double", 0, real_at) and real.value == 1e-300
    theirs = tensors_of(path)
    for name in ("f32", "f16", "q8"):
        assert np.array_equal(tl.gguf_get(file, name).numpy(), decoded(theirs[name])), name
    with pytest.raises(TallyError, match="its type Q4_0 can be listed but not read"):
        tl.gguf_get(file, "q4")
    tl.gguf_close(file)


def test_types_are_those_of_the_package(tmp_path):
    """Every type of the package is known here with its block and bytes: a row of one block is opened and listed."""
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        path = tmp_path / f"{kind.name}.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tensor("x", np.zeros((2, size), np.uint8), raw_shape=(2, size), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        file = tl.gguf_open(str(path))
        info = tl.gguf_info()
        assert tl.gguf_info_at(file, 0, info), kind.name
        assert (info.type.decode(), info.bytes, ctypes.cast(info.shape, LONGS)[1]) == (kind.name, 2 * size, block)
        tl.gguf_close(file)
