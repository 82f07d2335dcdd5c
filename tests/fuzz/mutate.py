#!/usr/bin/env python3
"""Damaged files of every kind, each given to a command that reads it. Deterministic by --seed.

  tests/fuzz/mutate.py                          2,000 mutations of each kind
  tests/fuzz/mutate.py --kinds tokens,config    of some kinds
  tests/fuzz/mutate.py --short                  the form of the test run
  tests/fuzz/mutate.py --seed 7 --only 3        one again

Half of the mutations know JSON: they replace a value, a key or a part by one that is hard to handle. If a checksum
would reject the file before anything else reads it, half of the cases correct the checksum. The exit status is 0 if
nothing was found.
"""
import json
import os
import random
import re
import shutil
import struct
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import programs  # noqa: E402

VALUES = [0, -1, 1, 2, 3, 255, 256, 65536, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -2**63, 1e308, -1e308, 1e-320,
          0.5, 1.0, 1e18, True, False, None, "", "x", "\x1b[31mred", "\u009b2J\x7f", "0", "-1", "99999999999999999999",
          "1e999", "nan", "../../../etc/passwd", "/dev/zero", "x" * 3000, "\U0001f600",
          [], {}, [[]], [0] * 50, {"a": {"b": []}}, "bf16", "f32", "gpt2", "llama"]
PIECES = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0000", b"\\ud800", b"null", b"true", b"-1", b"0",
          b"1e999", b"-0.0", b"9223372036854775808", b"18446744073709551616", b"NaN", b"Infinity", b"\xff", b"\xc3\x28",
          b"\0", b"\x1b[31m", b"\x9b", b"\r\n", b"1,5", b"[" * 200, b'{"a":' * 200]


# ---- Mutations

def bytes_mutate(rng, data, other):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(9)
        if what == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif what == 1 and data:
            data[at % len(data)] = rng.choice([0, 255, 127, 128, rng.randrange(256)])
        elif what == 2:
            data[at:at] = rng.choice(PIECES)
        elif what == 3:
            del data[at:at + rng.choice([1, 2, 8, 100])]
        elif what == 4:
            del data[at:]
        elif what == 5:
            data[at:at] = data[at:at + rng.choice([1, 16, 300])]
        elif what == 6:
            sizes = [0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, len(data), len(data) + 1, rng.randrange(2**64)]
            data[at:at + 8] = struct.pack("<Q", rng.choice(sizes))
        elif what == 7:
            start = rng.randrange(len(other) + 1)
            data[at:at + 64] = other[start:start + 64]
        else:
            data += rng.choice([b"\0", b"x", rng.randbytes(100)])
    return bytes(data)


def places(value, found, parent=None, key=None):
    """Every value within a JSON value, with where it is."""
    if parent is not None:
        found.append((parent, key))
    for k in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        places(value[k], found, value, k)
    return found


def json_mutate(rng, data):
    value = json.loads(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        found = places(value, [])
        if not found:
            break
        parent, key = rng.choice(found)
        what = rng.random()
        if what < 0.6:
            parent[key] = rng.choice(VALUES)
        elif what < 0.75:
            del parent[key]
        elif what < 0.85 and isinstance(parent, dict):
            parent[rng.choice(["x", "\x1b[0m", key + "x", key[:-1] or "y", "schema", "name"])] = parent.pop(key)
        elif isinstance(parent, list):
            parent[key:key] = [parent[key]] * rng.choice([1, 2, 30])
        else:
            parent[key] = [parent[key]] if rng.random() < 0.5 else {"x": parent[key]}
    text = json.dumps(value)
    if rng.random() < 0.1:
        text = re.sub(r'("\w+": [^,{}\[\]]+)', r"\1, \1", text, count=1)  # a key twice
    return text.encode()


def mutate(rng, data, other=b""):
    try:
        return json_mutate(rng, data) if rng.random() < 0.6 else bytes_mutate(rng, data, other)
    except (ValueError, RecursionError):
        return bytes_mutate(rng, data, other)


# ---- Checksums made right

def tokens_seal(data):
    """Our own token format: the checksums of the blocks, of their table, of the documents, and of the header."""
    data = bytearray(data)
    if len(data) < 72 or data[:8] != b"TALLYTOK":
        return bytes(data)
    width, count = struct.unpack_from("<IQ", data, 12)
    size, n_documents = count * width, struct.unpack_from("<Q", data, 48)[0]
    documents = 64 + (size + 7) // 8 * 8
    table = documents + 8 * n_documents
    n_blocks = (size + 65535) // 65536
    if 0 < size and table + 4 * n_blocks == len(data):
        for i in range(n_blocks):
            struct.pack_into("<I", data, table + 4 * i,
                             programs.crc32c(data[64 + 65536 * i:min(64 + size, 64 + 65536 * (i + 1))]))
        struct.pack_into("<I", data, 44, programs.crc32c(data[table:]))
        if n_documents:
            struct.pack_into("<I", data, 56, programs.crc32c(data[documents:table]))
    struct.pack_into("<I", data, 60, programs.crc32c(data[:60]))
    return bytes(data)


def manifest_seal(text):
    """The checksum of a manifest's own body."""
    try:
        root = json.loads(text)
        body = json.dumps(root["body"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        root["crc32c"] = "%08x" % programs.crc32c(body.encode())
        return json.dumps(root).encode()
    except (ValueError, KeyError, TypeError):
        return text


def manifest_of(folder):
    """A manifest that says of the files what is true."""
    path = os.path.join(folder, "manifest.json")
    root = json.loads(read(path))
    for entry in root["body"]["files"]:
        data = read(os.path.join(folder, entry["name"]))
        entry["bytes"] = len(data)
        entry["crc32c"] = ["%08x" % programs.crc32c(data[at:at + 1048576]) for at in range(0, len(data), 1048576)]
    write(path, manifest_seal(json.dumps(root).encode()))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


# ---- Kinds of files, and who reads them

class Cell:
    """Where one mutation is made."""

    def __init__(self, world, rng, folder):
        self.world, self.rng, self.folder = world, rng, folder

    def at(self, name):
        return os.path.join(self.folder, name)

    def good(self, name):
        return os.path.join(self.world.files, name)

    def spoiled(self, source, name, seal=None):
        data = mutate(self.rng, read(self.good(source)), read(self.good("text")))
        if seal and self.rng.random() < 0.5:
            data = seal(data)
        write(self.at(name), data)
        return self.at(name)

    def copied(self, source, name):
        shutil.copytree(self.good(source), self.at(name))
        return self.at(name)


def config(c):
    source, rng = c.rng.choice(["gpt2.json", "llama.json"]), c.rng
    folder = c.copied("model" if source == "gpt2.json" else "llama/final", "model")
    path = c.spoiled(source, "model/config.json")
    return rng.choice([["napkin", "flops", "--model", path, "--seq", "8"],
                       ["napkin", "mfu", "--model", path, "--seq", "8", "--tokens-per-second", "10"],
                       ["plan", "--model", path, "--seq", "8", "--batch", "1", "--short", "--steps", "2"],
                       ["train", "--model", path, "--seq", "8", "--batch", "1", "--steps", "2", "--warmup", "0",
                        "--data", c.good("text"), "--price"],
                       ["generate", "--model", folder, "--tokens", "2"],
                       ["eval", "--model", folder, "--data", c.good("text"), "--seq", "8", "--batches", "1"],
                       ["train", "--model", folder, "--seq", "8", "--batch", "1", "--steps", "1", "--warmup", "0",
                        "--data", c.good("text"), "--out", c.at("out")]])


def settings(c):
    path = c.spoiled("settings.json", "settings.json")
    return c.rng.choice([["train", "--config", path, "--price", "--out", c.at("out")],
                         ["plan", "--config", path, "--short"],
                         ["train", "--config", path, "--out", c.at("out"), "--quiet"]])


def ledger(c):
    source = c.rng.choice(["price.json", "receipt.json", "ledger.json"])
    path, other = c.spoiled(source, "ledger.json"), c.good("receipt.json" if source != "ledger.json" else source)
    return c.rng.choice([["diff", path, other], ["diff", other, path], ["diff", path, path],
                         ["calibrate", "--price", path, "--profile", c.good("machine.json")]])


def tokens(c):
    source = c.rng.choice(["tokens.tok", "documents.tok", "array.npy", "array.npy", "llmc.bin", "raw.bin", "wide.bin",
                           "text"])
    path = c.spoiled(source, os.path.basename(source), tokens_seal)
    return c.rng.choice([["data", "inspect", path, "--json"], ["data", "check", path],
                         ["data", "show", path, "--at", c.rng.choice(["0", "5"]), "--count", "30"],
                         ["data", "convert", path, "--vocabulary", "65536", "--out", c.at("made"), "--to",
                          c.rng.choice(["tally", "u16", "u32", "llmc", "npy", "bytes"])],
                         ["eval", "--model", c.good("model"), "--data", path, "--seq", "8", "--batches", "1"]])


def texts(c):
    """Lines and compressed ones, and the state of work that was stopped."""
    if c.rng.random() < 0.4:
        c.copied("work", "work")
        name = c.rng.choice(["half.tok.partial.json", "half.tok.partial.json", "half.tok.partial",
                             "half.tok.partial.documents"])
        c.spoiled("work/" + name, "work/" + name)
        return ["tokenize", c.good("half.jsonl"), "--tokenizer", "bytes", "--out", c.at("work/half.tok"), "--skip-bad"]
    source = c.rng.choice(["lines.jsonl", "lines.jsonl.gz"])
    path = c.spoiled(source, source)
    return ["tokenize", path, "--tokenizer", "bytes", "--out", c.at("made.tok"),
            *c.rng.choice([["--skip-bad"], ["--format", "text"], ["--document-separator", "blank-line", "--format",
                                                                  "text", "--json"], [], ["--val-share", "0.3"]])]


def safetensors(c):
    """The header is JSON behind a length; it is mutated as such in half of the cases, and its length put right."""
    data, rng = read(c.good("model.safetensors")), c.rng
    size = struct.unpack_from("<Q", data)[0]
    if rng.random() < 0.6:
        header = mutate(rng, data[8:8 + size])
        data = struct.pack("<Q", len(header)) + header + data[8 + size:]
    else:
        data = bytes_mutate(rng, data, data)
    folder = c.copied("model", "model")
    write(c.at("model/model.safetensors"), data)
    return rng.choice([["inspect", c.at("model/model.safetensors")],
                       ["inspect", c.at("model/model.safetensors"), "--json"],
                       ["generate", "--model", folder, "--tokens", "2"],
                       ["train", "--model", folder, "--seq", "8", "--batch", "1", "--steps", "1", "--warmup", "0",
                        "--data", c.good("text"), "--out", c.at("out")]])


def gguf(c):
    path = c.at("model.gguf")
    write(path, bytes_mutate(c.rng, read(c.good("model.gguf")), b"general.alignment"))
    return c.rng.choice([["inspect", path], ["inspect", path, "--check", "--json"],
                         ["generate", "--model", path, "--tokens", "2"],
                         ["export", path, "--type", "f32", "--out", c.at("made.gguf")]])


def _resume(c, run):
    return ["train", *programs.SMALL, "--data", c.good("text"), "--steps", "4", "--save-every", "2", "--quiet", "--out",
            run]


def _readers(c, run, step):
    return c.rng.choice([["generate", "--model", run, "--tokens", "2"],
                         ["generate", "--checkpoint", step, "--tokens", "2"],
                         ["eval", "--checkpoint", run, "--batches", "1"], _resume(c, run)])


def manifest(c):
    run = c.copied("run", "run")
    step = c.at("run/checkpoints/step-000000000004")
    c.spoiled("run/checkpoints/step-000000000004/manifest.json", "run/checkpoints/step-000000000004/manifest.json",
              manifest_seal)
    return _readers(c, run, step)


def state(c):
    """The state, or weights, of a checkpoint whose manifest is valid. In half of the cases it is not the last
    checkpoint."""
    run = c.copied("run", "run")
    number = c.rng.choice(["2", "4"])
    if number == "2":
        shutil.rmtree(c.at("run/checkpoints/step-000000000004"))
    step = f"run/checkpoints/step-00000000000{number}"
    c.spoiled(f"{step}/state.json" if c.rng.random() < 0.8 else f"{step}/optimizer.safetensors",
              f"{step}/state.json" if c.rng.random() < 0.8 else f"{step}/optimizer.safetensors")
    if c.rng.random() < 0.8:
        manifest_of(c.at(step))
    return _readers(c, run, c.at(step))


def machine(c):
    path = c.spoiled("machine.json", "machine.json")
    return c.rng.choice([["calibrate", "--show", "--profile", path],
                         ["calibrate", "--show", "--profile", path, "--json"],
                         ["calibrate", "--price", c.good("price.json"), "--profile", path]])


def hardware(c):
    path = c.spoiled("hardware.json", "hardware.json")
    return c.rng.choice([["devices", "--hardware", path], ["devices", "abacus", "--hardware", path, "--json"],
                         ["napkin", "time", "--params", "7e9", "--tokens", "1e12", "--device", "abacus", "--hardware",
                          path],
                         ["plan", *programs.SMALL, "--device", "abacus", "--hardware", path, "--short"]])


def runs(c):
    path = c.spoiled("runs.csv", "runs.csv")
    return ["napkin", "loss", "--runs", path, "--params", "7e9", "--tokens", "140e9",
            *c.rng.choice([[], ["--json"], ["--alpha", "0.3"]])]


def records(c):
    """What a run keeps in its folder beside its checkpoints."""
    run = c.copied("run", "run")
    if c.rng.random() < 0.5:
        shutil.rmtree(c.at("run/checkpoints/step-000000000004"))
        shutil.rmtree(c.at("run/final"))
    names = (sorted(n for n in os.listdir(run) if os.path.isfile(os.path.join(run, n)) and n != "lock")
             + ["final/config.json", "final/model.safetensors"])
    name = c.rng.choice([n for n in names if os.path.exists(os.path.join(run, n))])
    c.spoiled("run/" + name, "run/" + name)
    return _resume(c, run)


KINDS = {k.__name__: k for k in (config, settings, ledger, tokens, texts, safetensors, gguf, manifest, state, machine,
                                 hardware, runs, records)}


def main():
    def add(parser):
        parser.add_argument("--kinds", default=",".join(KINDS), help=f"some of {', '.join(KINDS)}")
    options = programs.options_read(__doc__, 2000, 12, add)
    kinds = options.kinds.split(",")
    if options.only is None:
        options.runs, options.first = options.runs * len(KINDS), options.first * len(KINDS)
    world = programs.World(options)
    if options.self_test:
        programs.self_test(world)
    programs.good_files(world)
    world.seal()

    def make(world, number, cell):
        name = list(KINDS)[number % len(KINDS)]
        if name not in kinds:
            return None
        arguments = KINDS[name](Cell(world, random.Random(f"{world.seed}/{number}"), cell))
        for folder, folders, files in os.walk(cell):
            for each in [*folders, *files]:
                world.give(os.path.join(folder, each))
        return [os.fsencode(word) for word in arguments], name
    programs.main("tests/fuzz/mutate.py", world, make, options)


if __name__ == "__main__":
    main()
