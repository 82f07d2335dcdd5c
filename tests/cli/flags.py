"""Every flag of every command has an effect or is refused: flags.py TALLY RUN WORK.

The flags are those of the option tables in src/cli. Each is added to every form of its command. The answer must then
be another one, or the exit code must be 1 or 2, with a message that names the flag. Prints what fails."""
import re
import subprocess
import sys
from pathlib import Path

TALLY, RUN, WORK = sys.argv[1], sys.argv[2], Path(sys.argv[3])
TEXT, TOKENS, CSV, CHIP = WORK / "f.txt", WORK / "f.tok", WORK / "f.csv", WORK / "f-chip.json"
LINES, CHOICES = WORK / "f.jsonl", WORK / "f-choices.jsonl"
TEXT.write_text("Once upon a time a cat sat on a mat.\n\nIt saw a rat.\n" * 40)
CSV.write_text("".join(f"{n},{d},{1.7 + 400 / n ** .34 + 400 / d ** .28}\n"
                       for n in (1e7, 1e8, 1e9) for d in (1e9, 1e10)))
RATES = WORK / "f-rates.csv"
RATES.write_text("".join(f"{w},{lr},{2 + (i - 1.2) ** 2 / 9 + 9 / w}\n"
                         for w in (64, 128, 256) for i, lr in enumerate((1e-3, 2e-3, 4e-3, 8e-3))))
LINES.write_text('{"text": "A cat sat.", "other": "Another one."}\n' * 8)
CHOICES.write_text('{"ctx": "A cat", "endings": ["sat", "xyz"], "label": 0}\n' * 4)
CHIP.write_text('{"schema": "tally.hardware/1", "devices": [{"name": "H100", "bf16": 9e14, "memory": 5e10, '
                '"bandwidth": 3e12}]}')

SMALL = ["--model", "tiny-gpt2", "--layers", "2", "--channels", "16", "--heads", "2", "--batch", "2", "--seq", "8"]
ON = ["--device", "H100", "--recipe", "bf16"]
FULL = [*SMALL, *ON, "--memory-limit", "8MB"]  # growth ends soon
PLAN = {"devices": "2", "schedule": "zb1p", "chunks": "2", "rings": None, "fabric": "ethernet", "node": "2",
        "link": "7", "network": "3", "tokens": "1B", "price_per_hour": "2", "hardware": CHIP, "json": None}
FIT = PLAN | {"tokens_per_parameter": "3", "days": "1", "money": "5", "unit": "3", "family": "gpt2"}
TRAINED = {"device": "cpu:1", "step": "2", "threads": "1", "best": None, "json": None, "model": WORK,
           "checkpoint": WORK}

# command: forms (what they begin with), and a value for each flag: one that is not the default's
CASES = {
    "plan": ([FULL, [*SMALL, *ON, "--sweep", "accum=1,2"],
              [*SMALL, *ON, "--devices", "4", "--batch", "8", "--layouts"], [*SMALL, *ON, "--inference"],
              [*SMALL, *ON, "--inference", "--draft", "tiny"],
              [*SMALL, *ON, "--short"], [*FULL, "--json"],
              [*SMALL, "--device", "H100", "--best"], [*SMALL, *ON, "--as", "megatron"]],
             PLAN | {"best": None, "as": "hf-trainer", "inference": None, "new_tokens": "3", "layouts": None,
                     "all": None, "sweep": "accum=1,3", "short": None, "csv": None,
                     "markdown": None, "full": None, "svg": WORK / "made2",
                     "price": WORK / "made", "weights": "fp8", "cache": "fp8", "page": "64",
                     "prefill_chunk": "3", "latency": "7", "draft": "nano", "draft_tokens": "3", "acceptance": "0.4",
                     "mfu": "0.2", "goodput": "0.7", "pue": "1.3",
                     "carbon": "100", "host_power": "90"}),
    "fit": ([["batch", *SMALL, *ON], ["model", *ON, "--seq", "64", "--family", "qwen"],
             ["devices", "--model", "gpt2-124m", *ON]], FIT),
    "napkin": ([["time", "--params", "1e9", "--tokens", "1e10", "--device", "H100"],
                ["time", "--model", "gpt2-124m", "--seq", "1024", "--tokens", "1e9", "--device", "H100"],
                ["time", "--flops", "1e21", "--device", "H100"],
                ["time", "--flops", "1e21", "--peak", "1e14", "--days", "3"],
                ["fit", "--memory", "80e9"], ["fit", "--device", "H100"],
                ["flops", "--params", "1e9", "--tokens", "1e10"], ["flops", "--model", "gpt2-124m", "--seq", "1024"],
                ["memory", "--shape", "3,4"],
                ["activations", "--layers", "2", "--channels", "64", "--heads", "2", "--seq", "64", "--batch", "2"],
                ["intensity", "--op", "matmul", "--n", "512"], ["intensity", "--op", "relu", "--n", "512"],
                ["intensity", "--m", "3", "--k", "4", "--n", "512", "--device", "H100"],
                ["chinchilla", "--flops", "1e21"], ["chinchilla", "--params", "1e9"],
                ["mfu", "--model", "gpt2-124m", "--seq", "1024", "--tokens-per-second", "1e5", "--device", "H100"],
                ["mfu", "--layers", "2", "--channels", "64", "--vocabulary", "99", "--seq", "64", "--batch", "2",
                 "--seconds", "1"],
                ["loss", "--runs", CSV], ["loss", "--runs", CSV, "--params", "1e9", "--tokens", "1e10"],
                ["repeat", "--unique", "1e9", "--flops", "1e20"],
                ["repeat", "--unique", "1e9", "--params", "1e8", "--tokens", "3e9"],
                ["lifetime", "--params", "1e9", "--inference-tokens", "1e12"],
                ["lifetime", "--loss", "2.4", "--inference-tokens", "1e12"],
                ["mutransfer", "--runs", RATES],
                ["references"], ["references", "--flops", "1e21"]],
               {"params": "3e9", "tokens": "4e9", "devices": "3", "mfu": "0.3", "peak": "5e14", "days": "2",
                "memory": "7e10", "bytes_per_param": "12", "flops": "3e22", "tokens_per_second": "7",
                "seconds": "3", "flops_per_second": "1e14",
                "unique": "2e9", "inference_tokens": "3e12", "inference_mfu": "0.1", "loss": "2.7",
                "law": "hoffmann-2022", "approach": "2",
                "tokens_per_param": "7", "alpha": "0.3", "beta": "0.3", "huber": "0.1",
                "batch": "3",
                "seq": "512", "layers": "7", "channels": "128", "heads": "4", "vocabulary": "77", "tensor": "2",
                "pipeline": "2", "interleave": "2", "m": "7", "k": "9", "n": "17", "device": "A100", "dtype": "fp16",
                "model": "gpt2-350m", "shape": "5,6", "op": "gelu", "runs": CSV, "convention": "causal",
                "hardware": CHIP, "json": None}),
    "sweep": ([["--price", "--channels", "64", "--heads", "8", "--batch", "2", "--seq", "32", "--out", WORK / "sweep"]],
              {"rungs": "4", "ratio": "4", "tokens_per_param": "3", "predict": "9", "check": None, "price": None,
               "quiet": None, "json": None}),
    "data": ([["make", "--out", WORK / "made", "--bytes", "2000"], ["inspect", TOKENS], ["check", TOKENS],
              ["convert", TOKENS, "--out", WORK / "made", "--vocabulary", "256"], ["show", TOKENS]],
             {"out": WORK / "made2", "bytes": "3000", "format": "bytes", "tokenizer": "bytes", "to": "u32",
              "document_token": "32", "quick": None, "seed": "3", "at": "5", "count": "7", "vocabulary": "99",
              "json": None}),
    "tokenize": ([[TEXT, "--tokenizer", "bytes", "--out", WORK / "made"],
                  [LINES, "--tokenizer", "bytes", "--out", WORK / "made", "--val-share", "0.4"]],
                 {"tokenizer": WORK / "none", "out": WORK / "made2", "val_share": "0.5", "val_out": WORK / "made3",
                  "seed": "7", "json": None, "document_separator": "blank-line", "end_token": "<none>",
                  "field": "other", "format": "jsonl", "special": "refuse"}),
    "export": ([[RUN, "--out", WORK / "made"], [RUN, "--out", WORK / "made", "--best"]],
               {"out": WORK / "made2", "format": "x", "type": "f32", "tokenizer": "none", "pre": "llama-bpe",
                "step": "2", "best": None}),
    "report": ([[RUN, "-o", WORK / "made"], [RUN, "--json"]],
               {"o": WORK / "made2", "output": WORK / "made2", "json": None}),
    "inspect": ([[RUN]], {"json": None, "check": None}),
    "runs": ([[RUN]], {"json": None}),
    "devices": ([[], ["H100"]], {"json": None, "hardware": CHIP}),
    "ops": ([[]], {"json": None}),
    "dtypes": ([[]], {"json": None}),
    "generate": ([["--model", RUN, "--prompt", "A", "--tokens", "8"], ["--model", RUN, "--tokens", "8", "--best"]],
                 TRAINED | {"prompt": "B", "ids": "3,4", "prompts": LINES, "field": "other", "interactive": None,
                            "tokenizer": WORK, "tokens": "5", "temperature": "7", "top_k": "1", "top_p": "1e-6",
                            "min_p": "0.99", "repetition_penalty": "100", "stop": "e", "speed": None, "seed": "9",
                            "samples": "2", "dtype": "bf16", "ignore_eos": None, "batch": "3"}),
    "eval": ([["--checkpoint", RUN, "--data", TEXT], ["--checkpoint", RUN, "--choices", CHOICES]],
             TRAINED | {"data": LINES, "choices": CHOICES, "tokenizer": WORK, "document_mask": "true", "field": "other",
                        "batch": "0", "seq": "3", "stride": "3", "batches": "1", "bytes": "99", "document_token": "32",
                        "limit": "1", "per_document": None, "per_item": None, "harness": None}),
    "train": ([[*SMALL, "--price"], [*SMALL, "--price", "--json"]],
              {"json": None, "quiet": None, "trace": WORK / "made", "trace_steps": "1:2", "profile": None,
               "watch": None}),
}
# the same for every setting of a run, in forms of plan and fit
SETTINGS = {
    "label_smoothing": "0.1", "z_loss": "0.1", "ema": "0.9", "early_stop": "3", "noise_scale": "true",
    "model": "tiny", "layers": "3", "channels": "32", "heads": "4", "kv_heads": "1", "ff": "48", "vocabulary": "300",
    "context": "77", "positions": "none", "data": TEXT, "tokenizer": "chars", "stories": "9", "val_data": TEXT,
    "val_share": "0.5",
    "document_mask": "true", "document_token": "10", "out": WORK / "none", "accept_changes": "true", "device": "A100",
    "recipe": "fp32", "matmul_precision": "high", "fast": "true", "graphs": "off", "steps": "77", "batch": "4",
    "seq": "16", "accum": "2",
    "batch_warmup": "3", "optimizer": "sgd", "lr": "1e-5", "schedule": "zb1p", "warmup": "3", "min_lr": "0.5",
    "decay_share": "0.3", "beta1": "0.5", "beta2": "0.5", "moments": "8bit", "eps": "1e-3", "momentum": "0.5",
    "nesterov": "true", "weight_decay": "0.3", "groups": "*:lr=0.5", "mup_channels": "8", "muon_momentum": "0.5",
    "muon_steps": "3", "muon_scale": "shape", "clip": "0", "freeze": "*norm*", "train_only": "*norm*",
    "chat": "chatml", "preference": "auto", "dpo_beta": "0.5", "lora": "2", "lora_alpha": "3", "lora_dropout": "0.5",
    "lora_targets": "q_proj", "lora_base": "mxfp4", "dora": "true", "adapter": WORK,
    "router_aux_loss": "0.5", "router_z_loss": "0.5", "on_nonfinite": "skip", "checkpointing": "full",
    "checkpoint_k": "1", "dropout": "0.1", "memory_limit": "4MB", "dp": "2", "tp": "2", "cp": "2", "ep": "2",
    "ep_load": "2", "pp": "2",
    "pp_chunks": "2", "sp": "true", "shard": "zero1", "shard_group": "2", "overlap": "false", "seed": "7",
    "seed_init": "7", "seed_data": "7", "seed_dropout": "7", "seed_sample": "7", "sampling": "random",
    "eval_every": "7", "eval_batches": "7", "sample_every": "7", "sample_tokens": "7", "temperature": "0",
    "top_k": "3", "top_p": "0.5", "prompt": "A cat", "log_every": "7", "save_every": "7", "save_best": "false",
    "keep": "7", "threads": "1", "peak": "1e14"}
SET = {"plan": [[*FULL, "--full"], [*SMALL, *ON, "--short", "--full"], [*SMALL, *ON, "--sweep", "accum=1,2"],
                [*SMALL, *ON, "--devices", "4", "--batch", "8", "--layouts", "--all"],
                [*SMALL, *ON, "--as", "megatron", "--full"]],
       "fit": [["batch", "--model", "gpt2-124m", "--layers", "2", "--seq", "64", *ON, "--memory-limit", "3GB"],
               ["devices", "--model", "gpt2-124m", *ON],
               ["model", *ON, "--seq", "256", "--batch", "64", "--family", "gpt2-124m"]]}
# what they change is not in these answers: the speed of this machine; a peak that is not the largest here; bytes below
# the digits of a line
UNSEEN = {"plan": {"threads", "val_share", "data", "seed", "seed_data", "sample_tokens", "prompt"}}
UNSEEN["fit"] = UNSEEN["plan"] | {"context", "heads", "document_mask"}
# no effect on this answer: how fast it comes, how it is grouped, what an accident would leave, what other data need
QUIET = {("generate", "threads"), ("generate", "batch"), ("generate", "ignore_eos"), ("eval", "threads"),
         ("tokenize", "threads"), ("tokenize", "save_every"), ("tokenize", "restart"), ("tokenize", "skip_bad"),
         ("tokenize", "field"), ("tokenize", "document_separator"), ("tokenize", "format"), ("tokenize", "special"),
         ("generate", "device"), ("eval", "device"), ("generate", "step"), ("eval", "step"), ("export", "step"),
         ("generate", "best"), ("eval", "best"), ("export", "best"),
         ("generate", "stop"), ("generate", "speed"), ("generate", "dtype"), ("eval", "document_mask"),
         ("train", "price"), ("eval", "batch"), ("eval", "tokenizer")}
# of these the command needs what is not here: another machine, a server, several processes
ELSEWHERE = {"launch", "watch", "roofline", "completion", "calibrate", "tokenizer"}


def flags_of(path):
    return re.findall(r'\{"--?([a-z][a-z-]*)",\s+OPTION_', (Path("src/cli") / path).read_text())


def answer(command, arguments):
    for made in WORK.glob("made*"):
        made.unlink()
    done = subprocess.run([TALLY, command, *map(str, arguments)], capture_output=True, errors="replace",
                          timeout=120, stdin=subprocess.DEVNULL)
    times = r"(planned in|in) [0-9.]+ s|[0-9.,]+ (tokens|items|MB)/s|\"(seconds|mb_per_s)\": [0-9.e-]+"
    said = re.sub(times, "", done.stdout)
    files = [(made.name, made.read_bytes()) for made in sorted(WORK.glob("made*"))]
    return done.returncode, said, files, done.stderr


def try_flag(command, form, flag, value, before):
    name = ("-" if len(flag) == 1 and command == "report" else "--") + flag.replace("_", "-")
    code, said, files, error = after = answer(command, [*form, name, *([] if value is None else [value])])
    where = f"tally {command} {' '.join(map(str, form))} {name} {value or ''}"
    if code in (1, 2) and before[0] != code:
        return None if code == 2 or name in error or str(value) in error else f"{where}: refused without its name"
    return f"{where}: no effect" if after[:3] == before[:3] else None


def main():
    tables = {path.stem[4:]: set(flags_of(path.name)) for path in Path("src/cli").glob("cmd_*.c")}
    devices = set(flags_of("plan_options.h"))
    tables["plan"] |= devices
    tables["fit"] |= devices
    for command in ("generate", "eval"):
        tables[command] |= set(flags_of("trained_options.c"))
    answer("tokenize", [TEXT, "--tokenizer", "bytes", "--out", TOKENS])
    n = 0
    for command, flags in sorted(tables.items()):
        if command in ELSEWHERE or not flags:
            continue
        forms, values = CASES.get(command, ([], {}))
        missing = {f.replace("-", "_") for f in flags} - set(values) - {f for c, f in QUIET if c == command}
        if missing:
            print(f"tally {command}: nothing is tried with {', '.join(sorted(missing))}")
        for form in forms:
            before = answer(command, form)
            if before[0]:
                print(f"tally {command} {' '.join(map(str, form))}: exit code {before[0]}: {before[3]}")
            for flag, value in values.items():
                name = "--" + flag.replace("_", "-")
                is_there = name in form and (value is None or value in form)
                wrong = not is_there and (command, flag) not in QUIET and try_flag(command, form, flag, value, before)
                n += 1
                if wrong:
                    print(wrong)
    rows = Path("src/step/settings_list.h").read_text()
    names = re.findall(r"^(?:INTEGER|REAL|TEXT|WORD|CHOICE|TRUTH)\((\w+),", rows, re.M)
    if set(names) != set(SETTINGS):
        print(f"nothing is tried with the settings {', '.join(set(names) ^ set(SETTINGS))}")
    for command, forms in SET.items():
        for form in forms:
            before = answer(command, form)
            for name, value in SETTINGS.items():
                wrong = try_flag(command, form, name, value, before)
                n += 1
                if wrong and name not in UNSEEN[command]:
                    print(wrong)
    if n < 1100:
        print(f"only {n} were tried")


main()
