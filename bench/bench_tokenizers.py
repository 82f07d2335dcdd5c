#!/usr/bin/env python3
"""Encoding beside tiktoken and Hugging Face's tokenizers: the same text in one run, MB/s and ratios.

    build/venv/bin/python bench/bench_tokenizers.py [--text FILE] [--megabytes 8] [--threads 1]

The vocabularies are those of the tests (tests/python/vocabularies.py). Without --text it encodes the system's English
and code: manual pages, documentation, sources. The target is 3 times the speed of both. Documents have 100,000
characters; the caches of all three are warm, from a first pass.
"""

import argparse
import glob
import gzip
import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def system_text(megabytes):
    """Prose and code that every Debian has."""
    patterns = [
        "/usr/share/man/man*/*.gz",
        "/usr/share/perl/*/**/*.pod",
        "/usr/lib/python3*/**/*.py",
        "/usr/share/doc/**/*.gz",
        str(ROOT / "docs/*.md"),
        str(ROOT / "src/**/*.c"),
    ]
    found, total = [], 0
    for pattern in patterns:
        part = 0
        for path in sorted(glob.glob(pattern, recursive=True)):
            try:
                data = (gzip.open if path.endswith(".gz") else open)(path, "rb").read().decode("utf-8", "ignore")
            except OSError:
                continue
            found.append(data)
            part += len(data)
            if part > megabytes * 1e6 / 3:
                break
        total += part
        if total > megabytes * 1e6:
            break
    return "".join(found)[: int(megabytes * 1e6)]


def seconds(call, is_single, repeats=3):
    """The best of some calls after a first one: processor time on one thread, so that a busy machine matters less."""
    clock = time.process_time if is_single else time.perf_counter
    best = float("inf")
    call()
    for _ in range(repeats):
        start = clock()
        call()
        best = min(best, clock() - start)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text")
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    is_single = options.threads == 1
    os.environ.update(
        OMP_NUM_THREADS=str(options.threads),
        RAYON_NUM_THREADS=str(options.threads),
        TOKENIZERS_PARALLELISM="true" if options.threads > 1 else "false",
    )
    sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/python")]
    import pytest
    import tally
    import test_tokenizer as cases

    text = (
        open(options.text, encoding="utf-8", errors="ignore").read() if options.text else system_text(options.megabytes)
    )
    documents = [text[i : i + 100_000] for i in range(0, len(text), 100_000)]
    megabytes = len(text.encode()) / 1e6
    print(f"{megabytes:.1f} MB in {len(documents)} documents, {options.threads} thread(s)")
    print(f"{'tokenizer':24} {'tally':>12} {'reference':>12}  ratio (target: 3)")
    worst = float("inf")
    for name in ("gpt2", "cl100k_base", "o200k_base", "llama3", "qwen", "tekken"):
        with pytest.MonkeyPatch.context() as patch:
            ours, theirs = cases.pair(name, patch)
        a = seconds(lambda: ours.encode_batch_to_numpy(documents, disallowed_special=()), is_single)
        if options.threads == 1:
            b = seconds(lambda: [theirs.encode_to_numpy(d, disallowed_special=()) for d in documents], is_single, 1)
        else:
            b = seconds(lambda: theirs.encode_ordinary_batch(documents, num_threads=options.threads), is_single, 1)
        worst = min(worst, b / a)
        print(f"{name + ', tiktoken':24} {megabytes / a:7.1f} MB/s {megabytes / b:7.1f} MB/s  {b / a:5.1f}", flush=True)
    for name in ("gpt2", "llama2", "llama3", "qwen", "gemma", "smollm", "mistral", "deepseek"):
        file, theirs = cases.hugging_face(name)
        path = ROOT / "build/vocabularies" / "bench-tokenizer.json"
        path.write_text(json.dumps(json.loads(file)), encoding="utf-8")
        ours = tally.Tokenizer(path)
        a = seconds(lambda: ours.encode_batch_to_numpy(documents, allowed_special="all"), is_single)
        b = seconds(lambda: theirs.encode_batch_fast(documents, add_special_tokens=False), is_single, 1)
        worst = min(worst, b / a)
        print(
            f"{name + ', Hugging Face':24} {megabytes / a:7.1f} MB/s {megabytes / b:7.1f} MB/s  {b / a:5.1f}",
            flush=True,
        )
    print(f"smallest ratio: {worst:.1f}")


if __name__ == "__main__":
    main()
