#!/usr/bin/env python3
"""Command lines by grammar and mutation: every command, every flag of its --help and of `tally train --settings`, with
values that make sense and values that do not, and wrong files in every place. Deterministic by --seed.

  tests/fuzz/command_lines.py                   20,000 lines
  tests/fuzz/command_lines.py --short           the form of the test run
  tests/fuzz/command_lines.py --seed 7 --only 3 one line again

Exit status: 0 when nothing was found.
"""
import os
import random
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import programs  # noqa: E402

WEIGHTS = {"train": 8, "plan": 10, "fit": 5, "generate": 10, "eval": 8, "diff": 14, "ops": 3, "napkin": 20,
           "roofline": 3, "calibrate": 6, "devices": 5, "dtypes": 1, "export": 4, "inspect": 8, "data": 20,
           "tokenize": 8}
WORDS = {"data": ["make", "inspect", "convert", "check", "show"],
         "fit": ["batch", "seq", "layers", "channels", "model", "devices"],
         "napkin": ["time", "fit", "flops", "memory", "activations", "intensity", "chinchilla", "mfu", "loss",
                    "references"],
         "ops": ["matmul", "add_rms_norm", "attention", "nope"], "devices": ["H100", "A100-80", "abacus", "this"]}
MODELS = ["nano", "tiny", "tiny-gpt2", "gpt2-124m", "llama-3-8b", "llama-3.1-405b", "qwen2.5-0.5b", "nope"]
NUMBERS = ["0", "1", "2", "3", "7", "16", "64", "-1", "-3", "0.5", "1e-3", "70B", "15T", "80GiB", "1e9", "1e12", "1e18",
           "1e30", "1e308", "1e309", "4294967296", "2147483648", "9223372036854775807", "9223372036854775808",
           "18446744073709551616", "99999999999999999999999", "nan", "inf", "-inf", "0x10", "1e", "1.5.2", "", " ",
           "+3", "1,5", "3x", "1e-320", "-0", "1__0", "\u0663", "1000000"]
SIZES = ["0", "1", "2", "3", "5", "8", "16", "17", "100", "1000", "4096", "65536", "100000", "1000000", "1000000000",
         "4294967296", "1099511627776"]
LARGE = ("--layers", "--channels", "--batch", "--seq")  # many of these are a large run, and no mistake
LONG = ("1000", "4096", "65536", "100000", "1000000")
SHARES = ["0", "1", "0.5", "0.9", "0.99", "1e-9", "1e-3", "1e-8", "100", "1e6"]
TEXTS = ["", "x", "\x1b[31mred\x1b[0m", "\u009b31m", "\x7f", "a\tb\nc", "é", "\U0001f600" * 30, "%s%n%x", "$(id)",
         "../../x", "x" * 4000, "\x9b2J", "{}", "\u202eabc", "null", "true", "false"]
CHOICES = ["fp32", "amp", "bf16", "bf16-lean", "fp16", "fp8", "fp4", "f32", "f16", "f64", "i64", "f4e2m1", "none",
           "sqrt", "full", "every-k", "zero1", "zero3", "auto", "tally", "u16", "u32", "llmc", "npy", "bytes",
           "standard", "training", "inference", "cosine", "wsd", "sgd", "adamw", "rollback", "random",
           "H100", "A100-80", "RTX 4090", "MI300X", "cpu", "meta", "meta:h200", "cuda", "cuda:7", "this", "matmul",
           "gelu", "relu", "gpt2", "llama-3"]
OWN_FILES = {"--out", "--svg", "--val-out"}  # what is written: in the cell
READ_FILES = {"--config", "--hardware", "--profile", "--price", "--runs", "--data", "--val-data", "--model",
              "--checkpoint"}
TRUTHS = {"--json", "--quiet", "--short", "--show", "--best", "--inference", "--quick", "--fast", "--nesterov",
          "--save-best", "--profile", "--price", "--help"}


class Grammar:
    """Read from the program's own tables, so that a new flag is fuzzed from its first day."""

    def __init__(self, world):
        listed = world.must("--help").decode()
        # `watch` runs until Ctrl-C: tests/python/test_watch.py is its test
        self.commands = [c for c in re.findall(r"^  ([a-z]+) ", listed, re.M) if c != "watch"]
        settings = re.findall(r"^  (--\w+) ?(\S*)", world.must("train", "--settings").decode(), re.M)
        self.settings = [(flag, kind) for flag, kind in settings if flag != "--out"]
        self.flags = {c: sorted(set(re.findall(r"--[a-z][a-z0-9_-]*", world.must(c, "--help").decode())))
                      for c in self.commands}
        for command in ("train", "plan", "fit"):
            self.flags[command] += [flag for flag, _ in settings]
        self.numeric = {flag.replace("_", "-") for flag, kind in settings if kind in ("N", "X")} | {
            flag for c in self.commands
            for flag in re.findall(r"(--[a-z-]+) (?:N|X|D|B|T|S|L|C|n|[a-z])\b", world.must(c, "--help").decode())}
        at = lambda name: os.path.join(world.files, name)  # noqa: E731
        good = ["text", "tokens.tok", "raw.bin", "wide.bin", "llmc.bin", "array.npy", "run", "llama", "model",
                "price.json", "receipt.json", "ledger.json", "model.safetensors", "gpt2.json", "llama.json",
                "settings.json", "machine.json", "hardware.json", "runs.csv", "run/checkpoints/step-000000000004",
                "run/final"]
        self.good = [at(name) for name in good]
        self.bad = programs.bad_files(world)
        self.lines = self.seeds(at)

    def seeds(self, at):
        """Lines that work."""
        small, llama = programs.SMALL, programs.LLAMA
        run, price = at("run"), at("price.json")
        return [["train", *small, "--data", at("text"), "--steps", "2", "--quiet", "--out", "out"],
                ["train", *llama, "--data", at("tokens.tok"), "--steps", "2", "--json", "--recipe", "bf16", "--out",
                 "out"],
                ["train", *small, "--steps", "2", "--price"], ["train", "--config", at("settings.json"), "--price"],
                ["train", "--model", at("model"), "--data", at("text"), "--batch", "2", "--seq", "8", "--steps", "2",
                 "--out", "out", "--sample-tokens", "4", "--val-share", "0.3", "--eval-batches", "1", "--quiet"],
                ["train", "--models"], ["train", "--settings"],
                ["plan", *small, "--short"], ["plan", *small, "--json", "--device", "H100"],
                ["plan", *llama, "--device", "A100-80", "--devices", "8", "--shard", "zero3", "--batch", "8"],
                ["plan", *llama, "--device", "H100", "--devices", "16", "--tp", "2", "--sp", "--pp", "2", "--batch",
                 "8", "--layers", "2", "--accum", "2", "--schedule", "zb1p", "--link", "100", "--network", "10"],
                ["plan", *llama, "--device", "H100", "--devices", "16", "--batch", "16", "--layouts", "--json"],
                ["plan", *small, "--price", "plan.json", "--short"], ["plan", *small, "--sweep", "batch=1,2", "--json"],
                ["plan", "--inference", *small, "--new-tokens", "4", "--device", "H100"],
                ["plan", "--config", at("settings.json"), "--short"],
                ["fit", "batch", *small, "--memory-limit", "2MiB"],
                ["fit", "model", "--family", "gpt2", "--device", "L4", "--seq", "8", "--batch", "1"],
                ["generate", "--model", run, "--tokens", "4"],
                ["generate", "--model", at("model"), "--tokens", "4", "--json", "--ids", "65,66", "--top-k", "3"],
                ["generate", "--model", at("llama"), "--tokens", "4", "--prompt", "a", "--temperature", "0", "--step",
                 "4"],
                ["eval", "--checkpoint", run, "--data", at("text"), "--batches", "2"],
                ["eval", "--model", at("model"), "--data", at("text"), "--seq", "8", "--json"],
                ["eval", "--checkpoint", at("llama"), "--best"],
                ["diff", price, at("receipt.json")], ["diff", at("ledger.json"), at("ledger.json")],
                ["ops"], ["ops", "matmul", "--json"], ["dtypes"], ["dtypes", "--json"], ["devices"],
                ["devices", "H100", "--json"], ["devices", "abacus", "--hardware", at("hardware.json")],
                ["napkin", "time", "--params", "70e9", "--tokens", "15e12", "--device", "H100", "--devices", "1024",
                 "--mfu", "0.5"],
                ["napkin", "fit", "--memory", "80e9", "--devices", "8"],
                ["napkin", "flops", "--model", "gpt2-124m", "--seq", "1024"],
                ["napkin", "memory", "--shape", "49152,12288", "--dtype", "f32"],
                ["napkin", "chinchilla", "--flops", "5.76e23", "--json"],
                ["napkin", "activations", "--layers", "48", "--channels", "6144", "--heads", "64", "--seq", "2048",
                 "--batch", "4", "--tensor", "8", "--pipeline", "2"],
                ["napkin", "intensity", "--op", "gelu", "--n", "1e6", "--device", "H100"],
                ["napkin", "loss", "--runs", at("runs.csv"), "--params", "7e9", "--tokens", "140e9"],
                ["napkin", "mfu", "--model", at("gpt2.json"), "--seq", "8", "--tokens-per-second", "1e5", "--device",
                 "H100"], ["napkin", "references"],
                ["roofline", "--profile", at("machine.json"), "--set", "standard", "--json"],
                ["calibrate", "--show", "--profile", at("machine.json")],
                ["calibrate", "--price", price, "--profile", at("machine.json"), "--json"],
                ["inspect", at("model.safetensors")], ["inspect", at("model.safetensors"), "--json"],
                ["inspect", at("run")], ["inspect", at("model.gguf"), "--check", "--json"],
                ["export", at("model"), "--type", "q8_0", "--out", "made"],
                ["data", "make", "--bytes", "2kB", "--seed", "3", "--out", "made"],
                ["data", "convert", at("raw.bin"), "--to", "npy", "--out", "made"],
                ["data", "inspect", at("array.npy"), "--json"], ["data", "check", at("llmc.bin")],
                ["data", "show", at("tokens.tok"), "--at", "10", "--count", "20"], ["data", "inspect", "builtin"],
                ["tokenize", at("lines.jsonl.gz"), "--tokenizer", "bytes", "--val-share", "0.3", "--out", "made"],
                ["tokenize", at("text"), "--tokenizer", "bytes", "--document-separator", "blank-line", "--out", "made"]]

    # ---- Values

    def value(self, rng, flag):
        """Three in four times of the right kind, good or bad."""
        flag = flag.replace("_", "-")
        kind = rng.random()
        if flag in OWN_FILES and kind < 0.9:
            return rng.choice(["made", "out", "a/b/c", ".", "out/../made"]) if kind < 0.6 else rng.choice(self.bad)
        if flag in READ_FILES and kind < 0.75:
            return rng.choice(self.good if kind < 0.35 else self.bad if kind < 0.65 else MODELS)
        if flag in self.numeric and kind < 0.75:
            return rng.choice(NUMBERS)
        if flag and kind < 0.75:
            return rng.choice(CHOICES + TEXTS)
        return rng.choice(NUMBERS + CHOICES + MODELS + TEXTS + self.good + self.bad)

    def flag(self, rng, command):
        flag = rng.choice(self.flags[command] or ["--help"])  # `completion` has none
        return rng.choice([flag, flag, flag, flag.replace("_", "-"), flag.replace("-", "_").replace("__", "--", 1)])

    # ---- Lines

    def fresh(self, rng):
        command = rng.choices(self.commands, [WEIGHTS.get(c, 5) for c in self.commands])[0]
        line = [command]
        if command in WORDS and rng.random() < 0.95:
            line.append(rng.choice(WORDS[command]))
        n_files = {"diff": 2, "export": 1, "inspect": 1, "tokenize": 1,
                   "data": int(line[-1] in ("inspect", "convert", "check", "show"))}.get(command, 0)
        for _ in range(n_files if rng.random() < 0.9 else rng.randint(0, 3)):
            line.append(rng.choice(self.good if rng.random() < 0.5 else self.bad))
        for _ in range(rng.randint(0, 5)):
            line += self.pair(rng, command)
        # The last value of a flag wins: the run is small unless a later flag makes it larger.
        if command in ("train", "plan", "fit", "roofline") and rng.random() < 0.8:
            line[1:1] = (programs.SMALL if command != "roofline"
                         else ["--layers", "1", "--channels", "16", "--heads", "2"])
        return line

    def pair(self, rng, command):
        flag = self.flag(rng, command)
        value = self.value(rng, flag)
        if flag.replace("_", "-") in TRUTHS:
            return [flag] if rng.random() < 0.8 else [f"{flag}={value}"]
        return [flag, value] if rng.random() < 0.7 else [f"{flag}={value}"] if rng.random() < 0.9 else [flag]

    def mutate(self, rng, line):
        line = list(line)
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            at = rng.randrange(1, len(line)) if len(line) > 1 else 0
            what = rng.random()
            if what < 0.55 and len(line) > 1:
                values = [i for i in range(1, len(line)) if not line[i].startswith("--") and line[i - 1] not in TRUTHS]
                at = rng.choice(values) if values and rng.random() < 0.9 else at
                before = line[at - 1] if line[at - 1].startswith("--") else ""
                line[at] = self.value(rng, before)
            elif what < 0.6 and len(line) > 1:
                del line[at]
            elif what < 0.82:
                line += self.pair(rng, line[0]) if line[0] in self.flags else [rng.choice(TEXTS)]
            elif what < 0.88 and len(line) > 1:
                line[at] = self.spoil(rng, line[at])
            elif what < 0.93:
                line.insert(rng.randint(0, len(line)), rng.choice(TEXTS + NUMBERS + self.bad))
            else:
                line[at:at] = line[at:at + 2]
        return line

    @staticmethod
    def spoil(rng, word):
        """One word, a character at a time."""
        letters = list(word) or ["x"]
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(letters))
            letters[at] = rng.choice([letters[at] * 2, "", "\x1b", "=", "-", "\n", "9", "\u00ff",
                                      chr(rng.randrange(1, 0x300))])
        return "".join(letters)

    def tame(self, rng, line):
        """One change that a reader of flags has no reason to refuse: what is behind it must cope."""
        line, what = list(line), rng.random()
        numbers = [i for i in range(2, len(line)) if re.fullmatch(r"[\d.]+(e\d+)?", line[i])]
        files = [i for i in range(1, len(line)) if line[i] in self.good]
        if what < 0.4 and numbers:
            at = rng.choice(numbers)
            line[at] = rng.choice(SIZES if rng.random() < 0.8 else SHARES)
        elif what < 0.7 and files:
            line[rng.choice(files)] = rng.choice(self.bad if rng.random() < 0.6 else self.good)
        elif line[0] in ("train", "plan", "fit") and len(line) > 2:
            flag, kind = rng.choice(self.settings)
            choices = {"N": SIZES, "X": SHARES, "TEXT": self.good + self.bad + MODELS + TEXTS,
                       "": ["true", "false"]}.get(kind) or kind.split("|")
            line += [flag, rng.choice(choices)] if kind else [f"{flag}={rng.choice(choices)}"]
        else:
            line = self.mutate(rng, line)
        # Thousands of layers and millions of sequences are allowed, but take longer, or more memory, than a process may
        # here.
        return ["100" if at and line[at - 1] in LARGE and word in LONG else word for at, word in enumerate(line)]

    def line(self, rng):
        kind = rng.random()
        if kind < 0.25:
            return self.fresh(rng)
        by_command = {}
        for seed in self.lines:
            by_command.setdefault(seed[0], []).append(seed)
        commands = list(by_command)
        command = rng.choices(commands, [WEIGHTS.get(c, 5) for c in commands])[0]
        return (self.tame if kind < 0.7 else self.mutate)(rng, rng.choice(by_command[command]))


def encoded(word):
    """As bytes of an argument: no zeros in them, and bytes of their own where Latin-1 has them."""
    word = word.replace("\0", "")
    is_latin = word and all(0x80 <= ord(c) < 0x100 or c < "\x7f" for c in word) and "\x9b" in word
    return word.encode("latin-1") if is_latin else word.encode(errors="replace")


def main():
    options = programs.options_read(__doc__, 20000, 150)
    world = programs.World(options)
    if options.self_test:
        programs.self_test(world)
    programs.good_files(world)
    grammar = Grammar(world)
    world.seal()

    def make(world, number, cell):
        line = grammar.line(random.Random(f"{world.seed}/{number}"))
        if (line[0] == "calibrate" and not any(w.startswith(("--show", "--price", "--help")) for w in line)
                and number % 10):
            line.append("--show")  # measuring takes its time: one in ten
        return [encoded(word) for word in line], line[0] if line[0] in grammar.commands else "(no command)"
    programs.main("tests/fuzz/command_lines.py", world, make, options)


if __name__ == "__main__":
    main()
