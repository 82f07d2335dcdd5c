"""Safetensors beside the reference library: each reads what the other wrote, the files are the same bytes, and what one
refuses the other refuses, but for a list of differences that are meant (docs/files.md)."""
import ctypes
import os
import struct

import ml_dtypes
import numpy as np
import pytest

import tally_c
from tally_c import TallyError, tl

safetensors = pytest.importorskip("safetensors", reason="the package safetensors is not there")

TORCH_NAMES = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
               "float4_e2m1fn_x2", "int64", "int32", "int16", "uint16", "int8", "uint8", "bool"]
FORMAT_NAMES = ["F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "I64", "I32", "I16", "U16", "I8",
                "U8", "BOOL"]
F4 = tally_c.NUMPY_DTYPES.index(np.dtype(ml_dtypes.float4_e2m1fn))


def strings(values):
    return (ctypes.c_char_p * len(values))(*[v.encode() for v in values])


def save(path, tensors, metadata=None):
    metadata = metadata or {}
    tl.safetensors_save(str(path), strings(tensors), list(tensors.values()), len(tensors), strings(metadata),
                        strings(metadata.values()), len(metadata))
    return path.read_bytes()


class Opened:
    def __init__(self, path):
        self.file = tl.safetensors_open(str(path))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        tl.safetensors_close(self.file)

    def names(self):
        return [tl.safetensors_name(self.file, i).decode() for i in range(tl.safetensors_count(self.file))]

    def get(self, name):
        return tl.safetensors_get(self.file, name)

    def metadata(self):
        keys = [tl.safetensors_metadata_key(self.file, i) for i in range(tl.safetensors_metadata_count(self.file))]
        return {k.decode(): tl.safetensors_metadata(self.file, k).decode() for k in keys}


def raw(x):
    """The bytes of a tensor."""
    buffer = ctypes.create_string_buffer(tl.bytes(x) or 1)
    tl.to_data(x, buffer, tl.bytes(x))
    return buffer.raw[:tl.bytes(x)]


def reference_save(entries, metadata=None):
    """entries: name -> (number of the dtype, shape, bytes)."""
    if not hasattr(safetensors, "TensorSpec"):  # before 0.8
        return bytes(safetensors.serialize({n: {"dtype": TORCH_NAMES[d], "shape": list(s), "data": b}
                                            for n, (d, s, b) in entries.items()},
                                           metadata))
    keep, specs = [], {}
    for name, (d, shape, data) in entries.items():
        buffer = ctypes.create_string_buffer(data, len(data) or 1)
        keep.append(buffer)
        shape = list(shape[:-1]) + [shape[-1] // 2] if d == F4 else list(shape)  # torch counts pairs
        specs[name] = safetensors.TensorSpec(dtype=TORCH_NAMES[d], shape=shape, data_ptr=ctypes.addressof(buffer),
                                             data_len=len(data))
    return bytes(safetensors.serialize(specs, metadata=metadata))


def ours(d, shape, data):
    buffer = ctypes.create_string_buffer(data, len(data) or 1)
    return tl.from_data(ctypes.addressof(buffer), len(shape), list(shape) or None, d, None)


def some(rng, d, shape):
    bits = tl.dtype_bits(d)
    n = int(np.prod(shape)) * bits // 8
    data = rng.integers(0, 2 if FORMAT_NAMES[d] == "BOOL" else 256, n, dtype=np.uint8)
    return (d, shape, data.tobytes())


def check_both(tmp_path, entries, metadata=None):
    theirs = reference_save(entries, metadata)
    mine = save(tmp_path / "mine", {n: ours(*e) for n, e in entries.items()}, metadata)
    assert mine == theirs
    (tmp_path / "theirs").write_bytes(theirs)
    with Opened(tmp_path / "theirs") as f:
        assert sorted(f.names()) == sorted(entries)
        for name, (d, shape, data) in entries.items():
            x = f.get(name)
            assert (tl.dtype_of(x), x.shape, raw(x)) == (d, tuple(shape), data), name
        assert f.metadata() == (metadata or {})
    read = dict(safetensors.deserialize(mine))
    assert {n: (FORMAT_NAMES.index(t["dtype"]), tuple(t["shape"]), bytes(t["data"])) for n, t in read.items()} == \
        {n: (d, tuple(s), b) for n, (d, s, b) in entries.items()}


@pytest.mark.parametrize("d", range(len(TORCH_NAMES)), ids=TORCH_NAMES)
def test_each_dtype_is_the_same_file(tmp_path, d):
    rng = np.random.default_rng(d)
    check_both(tmp_path, {"x": some(rng, d, (3, 4)), "row": some(rng, d, (6,)), "none": some(rng, d, (0, 2))})


def test_all_dtypes_in_one_file_are_the_same_file(tmp_path):
    rng = np.random.default_rng(1)
    entries = {f"{name}{i}": some(rng, d, shape) for d, name in enumerate(TORCH_NAMES)
               for i, shape in enumerate([(2, 6), (10,), (1, 1, 2)])}
    check_both(tmp_path, entries, {"format": "pt"})


def test_random_files_are_the_same_files(tmp_path):
    """Any number of tensors, any shape, names of any letters."""
    rng = np.random.default_rng(2)
    letters = list("abz.019 /\"\\\n\t\r\x08\x0c\x01\x1f\x7fé\u2028😀{}[]:,")
    for _ in range(200 * int(os.environ.get("TALLY_SOAK", "1"))):
        entries = {}
        for _ in range(int(rng.integers(0, 12))):
            name = "".join(rng.choice(letters, int(rng.integers(0, 8))))
            shape = tuple(int(s) for s in rng.integers(0, 4, int(rng.integers(0, 5))))
            d = int(rng.integers(0, len(TORCH_NAMES)))
            if d == F4 and (not shape or shape[-1] % 2):
                continue
            entries[name] = some(rng, d, shape)
        metadata = {"".join(rng.choice(letters, 3)): "".join(rng.choice(letters, 9))} if rng.integers(2) else None
        check_both(tmp_path, entries, metadata)  # one pair: the reference writes several in no order


def test_metadata_of_many_keys_is_sorted(tmp_path):
    metadata = {k: k * 2 for k in "zebra"}
    mine = save(tmp_path / "x", {}, metadata)
    assert mine[8:].rstrip() == b'{"__metadata__":{"a":"aa","b":"bb","e":"ee","r":"rr","z":"zz"}}'
    with safetensors.safe_open(tmp_path / "x", "np") as f:
        assert f.metadata() == metadata


def test_torch_reads_strided_tensors_of_ours(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    t = tl.tensor(x)
    save(tmp_path / "x", {"t": tl.transpose(t, 0, 2), "s": tl.slice(t, 2, 1, 4, 2), "b": tl.cast(t, tl.BF16)})
    read = load_file(tmp_path / "x")
    assert torch.equal(read["t"], torch.tensor(x).transpose(0, 2))
    assert torch.equal(read["s"], torch.tensor(x)[:, :, 1:4:2])
    assert torch.equal(read["b"], torch.tensor(x).bfloat16())


# ---- What is refused ----

def file_of(header, n_data=0, length=None):
    header = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(header) if length is None else length) + header + bytes(n_data)


def entry(name="a", dtype="U8", shape="[1]", offsets="[0,1]", more=""):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{more}}}'


def one(**fields):
    return "{" + entry(**fields) + "}"


BROKEN = {
    "an empty file": b"",
    "seven bytes": bytes(7),
    "no header": file_of(""),
    "a header beyond the file": file_of("{}", length=3),
    "a header of 100000001": file_of("{}", length=100_000_001),
    "a header of 2^64 - 1": file_of("{}", length=2**64 - 1),
    "an array": file_of("[]"),
    "a number": file_of("1"),
    "half an object": file_of("{"),
    "something behind": file_of("{}x"),
    "zeros behind": file_of(b"{}\0"),
    "a byte order mark": file_of("\ufeff{}"),
    "not UTF-8": file_of(b'{"\xff":{}}'),
    "a surrogate": file_of(b'{"\xed\xa0\x80":{}}'),
    "half a pair": file_of(one(name="\\ud800"), 1),
    "an unknown escape": file_of(one(name="\\x"), 1),
    "a control character": file_of(one(name="\n"), 1),
    "a trailing comma": file_of('{' + entry() + ',}', 1),
    "no comma": file_of('{' + entry() + entry(name="b", offsets="[1,2]") + '}', 2),
    "no dtype": file_of('{"a":{"shape":[1],"data_offsets":[0,1]}}', 1),
    "no shape": file_of('{"a":{"dtype":"U8","data_offsets":[0,1]}}', 1),
    "no offsets": file_of('{"a":{"dtype":"U8","shape":[1]}}', 1),
    "dtype twice": file_of('{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1),
    "an unknown dtype": file_of(one(dtype="U7"), 1),
    "a dtype in small letters": file_of(one(dtype="u8"), 1),
    "a negative size": file_of(one(shape="[-1]"), 1),
    "minus zero": file_of(one(shape="[-0]", offsets="[0,0]")),
    "a fraction": file_of(one(shape="[1.0]"), 1),
    "an exponent": file_of(one(shape="[1e0]"), 1),
    "a padded number": file_of(one(shape="[01]"), 1),
    "a text as a size": file_of(one(shape='["1"]'), 1),
    "a size of 2^64": file_of(one(shape="[18446744073709551616]"), 1),
    "a product beyond 64 bits": file_of(one(shape="[4294967296,4294967296]", offsets="[0,0]")),
    "bits beyond 64": file_of(one(dtype="F64", shape="[1152921504606846976]", offsets="[0,0]")),
    "one offset": file_of(one(offsets="[0]"), 1),
    "three offsets": file_of(one(offsets="[0,1,1]"), 1),
    "end before begin": file_of(one(offsets="[1,0]"), 1),
    "too few bytes": file_of(one(shape="[2]"), 1),
    "too many bytes": file_of(one(offsets="[0,2]"), 2),
    "half a byte": file_of(one(dtype="F4", shape="[3]", offsets="[0,2]"), 2),
    "an overlap": file_of('{' + entry(shape="[2]", offsets="[0,2]") + ','
                          + entry(name="b", shape="[2]", offsets="[1,3]") + '}', 3),
    "the same bytes": file_of('{' + entry() + ',' + entry(name="b") + '}', 1),
    "a hole": file_of('{' + entry() + ',' + entry(name="b", offsets="[2,3]") + '}', 3),
    "a hole at the start": file_of(one(offsets="[1,2]"), 2),
    "bytes behind": file_of(one(), 2),
    "bytes missing": file_of(one(), 0),
    "a number as metadata": file_of('{"__metadata__":{"k":1}}'),
    "null as metadata": file_of('{"__metadata__":{"k":null}}'),
    "an array as metadata": file_of('{"__metadata__":[]}'),
    "metadata twice": file_of('{"__metadata__":{},"__metadata__":{}}'),
}
UNUSUAL = {
    "white space around": file_of(" \t\r\n{ } \n"),
    "empty metadata": file_of('{"__metadata__":{}}'),
    "metadata of null": file_of('{"__metadata__":null}'),
    "an empty name": file_of(one(name=""), 1),
    "a later field": file_of(one(more=',"x":[{"y":[1.5e3,null]},-0,true]'), 1),
    "fields in another order": file_of('{"a":{"data_offsets":[0,1],"shape":[],"dtype":"U8"}}', 1),
    "nothing twice at one place": file_of('{' + entry(shape="[0]", offsets="[0,0]") + ','
                                          + entry(name="b", shape="[0,7]", offsets="[0,0]") + '}'),
    "unaligned": file_of('{' + entry() + ',' + entry(name="b", dtype="F32", offsets="[1,5]") + '}', 5),
    "types we lack": file_of('{' + entry(dtype="U32", offsets="[0,4]") + ','
                             + entry(name="b", dtype="C64", offsets="[4,12]") + '}', 12),
}
# Where we are stricter than the reference, and meant to be.
STRICTER = {
    "a tensor twice": file_of('{' + entry(offsets="[0,1]") + ',' + entry() + '}', 1),
    "a metadata key twice": file_of('{"__metadata__":{"k":"1","k":"2"}}'),
    "U+0000 in a name": file_of(one(name="\\u0000"), 1),
    "more than 32 axes": file_of(one(shape="[" + "1," * 32 + "1]"), 1),
    "a size of 2^63 beside a 0": file_of(one(shape="[0,9223372036854775808]", offsets="[0,0]")),
    "a tensor as an array": file_of('{"a":["U8",[1],[0,1]]}', 1),
}


def reference_takes(data):
    try:
        safetensors.deserialize(data)
        return True
    except safetensors.SafetensorError:
        return False


def we_take(path, data):
    path.write_bytes(data)
    try:
        with Opened(path):
            return True
    except TallyError:
        return False


@pytest.mark.parametrize("name", BROKEN)
def test_both_refuse(tmp_path, name):
    assert (we_take(tmp_path / "x", BROKEN[name]), reference_takes(BROKEN[name])) == (False, False)


@pytest.mark.parametrize("name", UNUSUAL)
def test_both_take(tmp_path, name):
    assert (we_take(tmp_path / "x", UNUSUAL[name]), reference_takes(UNUSUAL[name])) == (True, True)


@pytest.mark.parametrize("name", STRICTER)
def test_we_are_stricter(tmp_path, name):
    assert (we_take(tmp_path / "x", STRICTER[name]), reference_takes(STRICTER[name])) == (False, True)


def test_a_file_damaged_at_random_is_judged_alike(tmp_path):
    """A byte of the header changed: the same verdict, unless the reference takes what is in the list above."""
    rng = np.random.default_rng(3)
    good = reference_save({"a": some(rng, 1, (2, 2)), "b": some(rng, 13, (3,))}, {"k": "v"})
    n_header = struct.unpack("<Q", good[:8])[0]
    verdicts = {}
    for _ in range(2000 * int(os.environ.get("TALLY_SOAK", "1"))):
        data = bytearray(good)
        data[8 + int(rng.integers(n_header))] = int(rng.integers(256))
        verdict = (we_take(tmp_path / "x", data), reference_takes(bytes(data)))
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
        if verdict[0] != verdict[1]:
            assert not verdict[0] and bytes(data).count(b'"b":{') != 1, data
    assert verdicts[True, True] > 10 and verdicts[False, False] > 500, verdicts
