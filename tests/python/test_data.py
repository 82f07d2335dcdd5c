"""Token files and batches against NumPy: foreign .npy arrays and memory maps are read as NumPy reads them, our own
files match docs/data.md (read here with struct alone), and batches are slices of the array."""
import contextlib
import ctypes
import struct

import numpy as np
import pytest

from tally_c import Tensor, TallyError, tl

INTEGERS = ["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"]


@contextlib.contextmanager
def opened(path, kind="AUTO"):
    file = tl.token_file_open(str(path), getattr(tl, "TOKENS_" + kind))
    try:
        yield file
    finally:
        tl.token_file_close(file)


def info_of(file):
    info = tl.token_info()
    tl.token_file_info(file, ctypes.byref(info))
    return info


def ids_of(file, start=0, n=None):
    n = info_of(file).count - start if n is None else n
    ids = np.empty(n, np.int32)
    tl.token_file_read(file, ids.ctypes.data, start, n)
    return ids


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_of_every_integer(tmp_path, dtype, version):
    values = np.random.default_rng(1).integers(0, 128 if "1" in dtype else 30000, 5001).astype(dtype)
    with open(tmp_path / "a.npy", "wb") as out:
        np.lib.format.write_array(out, values, version=version)
    with opened(tmp_path / "a.npy") as file:
        info = info_of(file)
        assert (info.format, info.count, info.token_bytes) == (tl.TOKENS_NPY, 5001, values.itemsize)
        assert bool(info.is_signed) == (values.dtype.kind == "i")
        np.testing.assert_array_equal(ids_of(file), values)
        np.testing.assert_array_equal(ids_of(file, 4990, 11), values[4990:])


@pytest.mark.parametrize("array, says", [
    (np.zeros(5, np.float32), "integers"), (np.zeros(5, ">u2"), "little-endian"),
    (np.zeros((5, 2), np.uint16), "one axis"), (np.uint16(5), "one axis"), (np.zeros(0, np.uint16), "no tokens"),
    (np.zeros(5, bool), "integers"), (np.zeros(5, [("a", "<u2")]), "simple type"),
    (np.array(["a"], object), "integers")])
def test_npy_of_anything_else_is_refused(tmp_path, array, says):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(TallyError, match=says):
        tl.token_file_open(str(tmp_path / "a.npy"), tl.TOKENS_AUTO)


@pytest.mark.parametrize("dtype, kind, top", [(np.uint16, "U16", 50257), (np.uint32, "U32", 200000)])
def test_memory_maps(tmp_path, dtype, kind, top):
    path = tmp_path / "train.bin"
    values = np.random.default_rng(2).integers(0, top, 100003).astype(dtype)
    array = np.memmap(path, dtype, "w+", shape=values.shape)
    array[:] = values
    array.flush()
    with opened(path) as file:
        assert info_of(file).format == getattr(tl, "TOKENS_" + kind)
        np.testing.assert_array_equal(ids_of(file), np.memmap(path, dtype, "r"))
        tl.token_file_expect(file, int(values.max()) + 1, 0)
        ids_of(file)
        tl.token_file_expect(file, int(values.max()), 0)
        with pytest.raises(TallyError, match=f"token {int(values.argmax())} "):
            ids_of(file)


@pytest.mark.parametrize("magic, version, dtype", [(20240520, 1, "<u2"), (20240801, 7, "<u4")])
def test_llmc_shards(tmp_path, magic, version, dtype):
    values = np.random.default_rng(3).integers(0, 50000, 3000).astype(dtype)
    header = np.zeros(256, "<i4")
    header[:3] = magic, version, len(values)
    (tmp_path / "shard.bin").write_bytes(header.tobytes() + values.tobytes())
    with opened(tmp_path / "shard.bin") as file:
        assert info_of(file).format == tl.TOKENS_LLMC
        np.testing.assert_array_equal(ids_of(file), values)


def converted(source, target, kind, vocabulary=0):
    with opened(source) as file:
        tl.token_file_convert(file, str(target), getattr(tl, "TOKENS_" + kind), vocabulary, tl.progress_fn(), None)


@pytest.mark.parametrize("dtype, top", [("<u1", 256), ("<u2", 50257), ("<u4", 200000), ("<i4", 60000), ("<i8", 60000)])
def test_conversions_are_what_numpy_and_struct_write(tmp_path, dtype, top):
    """From .npy of every integer to every format and back, by the bytes that others write."""
    values = np.random.default_rng(7).integers(0, top, 70001).astype(dtype)
    np.save(tmp_path / "in.npy", values)
    width = 1 if top <= 256 else 2 if top <= 65536 else 4
    same = values.astype(f"<u{width}")
    np.save(tmp_path / "want.npy", same)
    magic, version = ((20240520, 1), (20240801, 7))[width == 4]
    shard = struct.pack("<3i1012x", magic, version, len(values)) + values.astype(f"<u{max(width, 2)}").tobytes()
    wants = {"NPY": (tmp_path / "want.npy").read_bytes(), "LLMC": shard, "U32": values.astype("<u4").tobytes(),
             "U16": values.astype("<u2").tobytes() if top <= 65536 else None,
             "BYTES": same.tobytes() if top <= 256 else None}
    for kind, want in wants.items():
        path = tmp_path / f"{kind}.bin"
        if want is None:
            limit, at = (256, 65536)[kind == "U16"], int(np.argmax(values >= (256, 65536)[kind == "U16"]))
            with pytest.raises(TallyError, match=f"token {at} is {values[at]}, .*need 0 to {limit - 1}"):
                converted(tmp_path / "in.npy", path, kind)
            assert not path.exists()
            continue
        converted(tmp_path / "in.npy", path, kind, top)
        assert path.read_bytes() == want
        with opened(path, kind) as file:
            np.testing.assert_array_equal(ids_of(file), values)
        if kind != "BYTES":
            tally, back = tmp_path / "x.tok", tmp_path / "back.npy"
            with opened(path, kind) as file:
                tl.token_file_convert(file, str(tally), tl.TOKENS_TALLY, top, tl.progress_fn(), None)
            with opened(tally) as file:
                assert info_of(file).vocabulary == top and info_of(file).token_bytes == width
            converted(tally, back, "NPY")
            np.testing.assert_array_equal(np.load(back), values)


def crc32c(data):
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("width, dtype", [(1, "u1"), (2, "<u2"), (4, "<u4")])
def test_our_own_format_is_as_documented(tmp_path, width, dtype):
    values = np.random.default_rng(4).integers(0, min(256 ** width, 2 ** 31), 70001 // width).astype(np.int32)
    path, vocabulary = tmp_path / "own.tok", min(256 ** width, 2 ** 31)
    writer = tl.token_writer_new(str(path), width, vocabulary, 0xABCD)
    tl.token_writer_add(writer, values.ctypes.data, len(values))
    tl.token_writer_commit(writer)
    data = path.read_bytes()
    magic, version, w, count, v, name, block, table_crc = struct.unpack_from("<8sIIQQQII", data)
    assert (magic, version, w, count, v, name, block) == (b"TALLYTOK", 1, width, len(values), vocabulary, 0xABCD, 65536)
    assert data[48:60] == bytes(12) and struct.unpack_from("<I", data, 60)[0] == crc32c(data[:60])
    tokens = data[64:64 + count * width]
    np.testing.assert_array_equal(np.frombuffer(tokens, dtype), values)
    table = data[64 + -(-len(tokens) // 8) * 8:]
    blocks = [tokens[i:i + block] for i in range(0, len(tokens), block)]
    assert len(blocks) == 2 or width == 1
    assert table == struct.pack(f"<{len(blocks)}I", *map(crc32c, blocks)) and table_crc == crc32c(table)


@pytest.mark.parametrize("sampling", ["ONCE", "RANDOM", "IN_ORDER"])
def test_batches_are_slices(tmp_path, sampling):
    values = np.random.default_rng(5).integers(0, 60000, 4000).astype(np.uint16)
    np.save(tmp_path / "a.npy", values)
    with opened(tmp_path / "a.npy") as file:
        options = tl.loader_defaults()
        options.file, options.batch, options.time, options.seed = file, 4, 33, 9
        options.sampling = getattr(tl, "SAMPLE_" + sampling)
        loader = tl.loader_new(ctypes.byref(options))
        seen = []
        for step in [0, 1, 2, 50, 3, 2]:
            pair = [ctypes.c_void_p(), ctypes.c_void_p()]
            with tl.scope():
                assert tl.loader_next(loader, step, *map(ctypes.byref, pair))
                tokens, targets = (Tensor(p.value).numpy() for p in pair)
            for row in range(4):
                start = tl.loader_where(loader, step, row, None)
                np.testing.assert_array_equal(tokens[row], values[start:start + 33])
                np.testing.assert_array_equal(targets[row], values[start + 1:start + 34])
            seen.append(tokens)
        np.testing.assert_array_equal(seen[2], seen[5])
        tl.loader_free(loader)


def test_stories_are_text_of_words():
    buffer = ctypes.create_string_buffer(200_000)
    assert tl.corpus_text(1, 0, buffer, 200_000) > 100
    text = buffer.raw.decode("ascii")
    assert set(text) <= set(" \n!\",-.:?" "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
    counts = np.bincount(np.frombuffer(buffer.raw, np.uint8), minlength=256) / 200_000
    unigram = -(counts[counts > 0] * np.log2(counts[counts > 0])).sum()
    assert 1 < tl.corpus_entropy_bits_per_byte() < unigram < 5  # what a model of single bytes would reach


def test_no_compressor_goes_below_the_entropy():
    """lzma, bz2 and zlib know nothing of the grammar: they end above its entropy."""
    import bz2
    import lzma
    import zlib
    n = 2_000_000
    buffer = ctypes.create_string_buffer(n)
    tl.corpus_text(2, 0, buffer, n)
    floor = tl.corpus_entropy_bits_per_byte()
    for compress in (lzma.compress, bz2.compress, lambda data: zlib.compress(data, 9)):
        rate = 8 * len(compress(buffer.raw)) / n
        assert floor < rate, rate
