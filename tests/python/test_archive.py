"""PyTorch's .pt files, read and written without pickle: state dicts both ways, and hostile files."""
import collections
import io
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
import torch

import tally
from torch_peer import from_torch

KINDS = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()


def same(ours, theirs):
    """The same object: containers and numbers equal, tensors equal in dtype, shape and bits."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, tally.Tensor) and str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        assert tuple(ours.shape) == tuple(theirs.shape) and ours.requires_grad == theirs.requires_grad
        assert ours.detach().numpy().tobytes() == from_torch(theirs).tobytes()
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for k in theirs:
            same(ours[k], theirs[k])
    elif isinstance(theirs, (list, tuple)) and not isinstance(theirs, torch.Size):
        assert len(ours) == len(theirs) and type(ours).__name__ == type(theirs).__name__
        for a, b in zip(ours, theirs):
            same(a, b)
    elif isinstance(theirs, (torch.dtype, torch.device, torch.Size)):
        assert str(ours).replace("tally.", "torch.") == str(theirs)
    else:
        assert ours == theirs and type(ours) is type(theirs)


def objects(t):
    base = t.arange(24.0).reshape(4, 6)
    return {"all": {k: t.ones(2, 3).to(getattr(t, k)) for k in KINDS}, "view": base[1:, ::2], "base": base,
            "transposed": base.t(), "scalar": t.tensor(3), "empty": t.empty(0, 3), "grad": t.ones(2,
                                                                                                  requires_grad=True),
            "parameter": t.nn.Parameter(t.zeros(3)), "frozen": t.nn.Parameter(t.zeros(2), requires_grad=False),
            "plain": [1, -5, 2**40, -(2**70), 2.5, "ä€", None, True, (1, (2,)), {"a": [], 3: {}}, {4}],
            "order": collections.OrderedDict(b=1, a=2), "dtype": t.bfloat16, "device": t.device("cpu"),
            "size": t.Size([2, 3])}


def test_files_of_torch_are_read(tmp_path):
    torch.save(objects(torch), tmp_path / "a.pt")
    found = tally.load(tmp_path / "a.pt")
    same(found, objects(torch))
    assert found["view"].untyped_storage() == found["base"].untyped_storage()  # one memory, as it was
    with open(tmp_path / "a.pt", "rb") as file:
        same(tally.load(file), objects(torch))


def test_torch_reads_our_files(tmp_path):
    tally.save(objects(tally), tmp_path / "a.pth")
    for only in (True, False):
        theirs = torch.load(tmp_path / "a.pth", weights_only=only)
        same(objects(tally), theirs)
        assert theirs["view"].untyped_storage().data_ptr() == theirs["base"].untyped_storage().data_ptr()
    same(tally.load(tmp_path / "a.pth"), theirs)


def test_models_and_optimizers_go_both_ways(tmp_path):
    def trained(t, path=None):
        model = t.nn.Sequential(t.nn.Linear(4, 8), t.nn.GELU(), t.nn.Linear(8, 2))
        optimizer = t.optim.AdamW(model.parameters(), lr=1e-2)
        if path is not None:
            state = t.load(path)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        x = t.from_numpy(np.random.default_rng(0).standard_normal((5, 4)).astype("float32"))
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        t.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / f"{t.__name__}.pt")
        return losses
    for first, second in ((torch, tally), (tally, torch)):
        trained(first)
        path = tmp_path / "state.pt"
        os.replace(tmp_path / f"{first.__name__}.pt", path)
        np.testing.assert_allclose(trained(first, path=path), trained(second, path=path), rtol=1e-5)


# ---- Hostile files ----

def archive(path, program, **storages):
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("a/data.pkl", program)
        z.writestr("a/version", "3\n")
        for name, data in storages.items():
            z.writestr(f"a/data/{name[1:]}", data)
    return path


class Calls:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def tensor_program(shape=(2, 2), stride=(2, 1), offset=0, n=4, key="0", kind=b"ctorch\nFloatStorage\n"):
    """data.pkl of one tensor."""
    def number(x):
        return b"\x8a\x10" + x.to_bytes(16, "little", signed=True)

    def text(s):
        return b"X" + struct.pack("<I", len(s)) + s.encode()

    def numbers(xs):
        return b"(" + b"".join(map(number, xs)) + b"t"
    return (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + kind + text(key) + text("cpu")
            + number(n) + b"tQ" + number(offset) + numbers(shape) + numbers(stride)
            + b"\x89ccollections\nOrderedDict\n)RtR.")


def test_the_program_of_the_next_test_is_a_tensor(tmp_path):
    path = archive(tmp_path / "a.pt", tensor_program(), _0=np.arange(4, dtype="float32").tobytes())
    assert tally.load(path).tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("change, words", [
    (dict(shape=(3, 2)), "does not lie in its storage of 4 elements"),
    (dict(stride=(3, 1)), "does not lie in its storage"),
    (dict(offset=1), "does not lie in its storage"),
    (dict(offset=-1), "does not lie in its storage"),
    (dict(stride=(-1, 1)), "negative"),
    (dict(stride=(2**62, 2**62)), "does not lie in its storage"),
    (dict(shape=(2**62, 2**62), stride=(0, 0)), "does not lie in its storage"),
    (dict(shape=(2,)), "with strides"),
    (dict(n=2**40), "has 16 bytes, and is said to have"),
    (dict(key="../../../etc/passwd"), "is not in the archive"),
    (dict(kind=b"ctorch\nQInt8Storage\n"), "names torch.QInt8Storage"),
    (dict(kind=b"N"), "a storage is described as"),
])
def test_tensors_lie_in_their_storage(tmp_path, change, words):
    path = archive(tmp_path / "a.pt", tensor_program(**change), _0=np.arange(4, dtype="float32").tobytes())
    with pytest.raises(RuntimeError, match=words):
        tally.load(path)


@pytest.mark.parametrize("thing, words", [
    (Calls(os.system, "touch HERE"), "names posix.system"),
    (Calls(eval, "open('HERE', 'w')"), "names builtins.eval|names __builtin__.eval"),
    (Calls(getattr, "a", "b"), "names (builtins|__builtin__).getattr"),
    (Calls(collections.OrderedDict, 5), "no pairs"),
    (Calls(collections.Counter, "ab"), "names collections.Counter"),
    (np.float64(1.5), "names numpy.*scalar"),
    (Calls(torch.Size, (-1,)), "no sizes"),
], ids=str)
@pytest.mark.parametrize("protocol", [2, 4])
def test_what_a_file_names_is_refused_by_its_name(tmp_path, thing, words, protocol):
    here = tmp_path / "made"
    if isinstance(thing, Calls):
        thing.arguments = tuple(a.replace("HERE", str(here)) if isinstance(a, str) else a for a in thing.arguments)
    with pytest.raises(RuntimeError, match=words):
        tally.load(archive(tmp_path / "a.pt", pickle.dumps({"a": [thing]}, protocol)))
    assert not here.exists()


@pytest.mark.parametrize("program, words", [
    (b"", "damaged|no end|pickle exhausted"), (b"\x80\x02N", "no end|exhausted|no STOP"), (b"\x80\x02.", "damaged"),
    (b"\x80\x02R.", "damaged"), (b"\x80\x02NNR.", "it calls"), (b"\x80\x02h\x05.", "damaged"),
    (b"\x80\x02](e.", None), (b"\x80\x02NN\x85s.", "damaged|adds to"), (b"\x80\x02N}b.", "adds to"),
    (b"\x80\x02}]Ns.", "damaged|adds"), (b"\x80\x02(ios\nsystem\n.", "opcode INST"), (b"\x80\x02\x82\x01.",
                                                                                      "opcode EXT1"),
    (b"\x80\x02X\xff\xff\xff\x7fa.", "whole|damaged"), (b"\x80\x02\x8b\xff\xff\xff\x7f1.", "whole|damaged"),
    (b"\x80\x02N)\x81.", "opcode NEWOBJ"), (b"\x80\x02ccollections\nOrderedDict\n)R}X\x01\0\0\0aNsb.", "attributes"),
])
def test_damaged_programs(tmp_path, program, words):
    path = archive(tmp_path / "a.pt", program)
    if words is None:
        assert tally.load(path) == []
        return
    with pytest.raises(RuntimeError, match=words):
        tally.load(path)


def test_damaged_archives(tmp_path):
    buffer = io.BytesIO()
    torch.save(objects(torch), buffer)
    whole = buffer.getvalue()
    for n in [*range(4, 200, 7), *range(200, len(whole), len(whole) // 40)]:  # cut off
        (tmp_path / "a.pt").write_bytes(whole[:n])
        with pytest.raises(RuntimeError):
            tally.load(tmp_path / "a.pt")
    r = np.random.default_rng(0)
    for _ in range(200):  # one byte changed: an error, or an object
        data = bytearray(whole)
        data[r.integers(len(data))] = r.integers(256)
        (tmp_path / "a.pt").write_bytes(data)
        try:
            tally.load(tmp_path / "a.pt")
        except (RuntimeError, ValueError):
            pass
    with zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a/data.pkl", tensor_program(n=10**7))
        z.writestr("a/data/0", bytes(4 * 10**7))
    with pytest.raises(RuntimeError, match="compressed"):
        tally.load(tmp_path / "b.pt")
    with zipfile.ZipFile(tmp_path / "c.pt", "w") as z:
        z.writestr("b/other", b"")
    with pytest.raises(RuntimeError, match="without data.pkl"):
        tally.load(tmp_path / "c.pt")


def test_a_save_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(TypeError, match=r"\['a'\]\[1\] is a object"):
        tally.save({"a": [1, object()]}, tmp_path / "a.pt")
    assert not os.listdir(tmp_path)
