#!/usr/bin/env python3
"""BPE training beside Hugging Face's BpeTrainer: the same text in one run, processor time, peak memory, equal merges.

    build/venv/bin/python bench/bench_tokenizer_training.py [--text FILE] [--megabytes 16] [--vocab 32000] [--threads 1]

Without --text it takes the system's English and code (bench_tokenizers.py). Each trainer runs in a process of its own
and gets the same documents of 100,000 characters; time and memory are of the training alone, reading the text is not
in them. The target is twice the speed of Hugging Face's.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORKER = r"""
import json, sys, time
def memory(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) / 1024
who, path, vocab, out, is_single = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5] == "1"
text = open(path, encoding="utf-8", newline="").read()
documents = [text[i : i + 100_000] for i in range(0, len(text), 100_000)]
if who == "tally":
    import tally
else:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
clock = time.process_time if is_single else time.perf_counter
open("/proc/self/clear_refs", "w").write("5")  # VmHWM begins anew
before, start = memory("VmRSS"), clock()
if who == "tally":
    tokenizer = tally.Tokenizer.train_from_texts(documents, vocab, ties="huggingface")
    elapsed = clock() - start
    tokenizer.save(out)
else:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(documents, trainer)
    elapsed = clock() - start
    tokenizer.save(out + "/tokenizer.json")
print(json.dumps([elapsed, memory("VmHWM") - before]))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text")
    parser.add_argument("--megabytes", type=float, default=16)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    environment = dict(
        os.environ,
        OMP_NUM_THREADS=str(options.threads),
        RAYON_NUM_THREADS=str(options.threads),
        TOKENIZERS_PARALLELISM="true" if options.threads > 1 else "false",
        PYTHONPATH=str(ROOT / "python"),
    )
    with tempfile.TemporaryDirectory() as folder:
        text = options.text
        if not text:
            from bench_tokenizers import system_text

            text = os.path.join(folder, "text")
            Path(text).write_text(system_text(options.megabytes), encoding="utf-8", newline="")
        megabytes = os.path.getsize(text) / 1e6
        print(f"{megabytes:.1f} MB, vocabulary {options.vocab}, {options.threads} thread(s)")
        found = {}
        for who in ("tally", "Hugging Face"):
            out = os.path.join(folder, who)
            os.mkdir(out)
            arguments = [who, text, str(options.vocab), out, str(int(options.threads == 1))]
            done = subprocess.run(
                [sys.executable, "-c", WORKER, *arguments], env=environment, stdout=subprocess.PIPE, check=True
            )
            seconds, memory = json.loads(done.stdout)
            model = json.loads(Path(out, "tokenizer.json").read_text(encoding="utf-8"))["model"]
            found[who] = seconds, model["merges"]
            print(f"{who:13} {seconds:8.2f} s {megabytes / seconds:7.1f} MB/s {memory:8.0f} MiB", flush=True)
    is_same = found["tally"][1] == found["Hugging Face"][1]
    ratio = found["Hugging Face"][0] / found["tally"][0]
    print(f"{ratio:.1f} times as fast (target: 2); the merges are {'the same' if is_same else 'NOT THE SAME'}")
    sys.exit(not is_same)


if __name__ == "__main__":
    main()
