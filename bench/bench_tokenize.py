#!/usr/bin/env python3
"""`tally tokenize` from compressed JSONL beside its parts alone: the decompressor and the encoder.

    build/venv/bin/python bench/bench_tokenize.py [--tally build/tally] [--text FILE] [--megabytes 32] [--threads 1]

All in one run, on the same documents: the program on gzip and zstd; zlib and zstd alone (`gzip -dc`, `zstd -dc` to
/dev/null); the encoder alone (tl_tokenizer_encode through the Python package, documents in memory). The target is the
slower of decompressor and encoder. One thread reads and --threads encode, so a machine needs one core more than that.
Without --text it uses the system's English and code, as bench_tokenizers.py does; --tokenizer names another tokenizer
than the BPE of 8,192 tokens that is learnt from the text first.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]
from bench_tokenizers import system_text  # noqa: E402


def best(call, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tally", default=str(ROOT / "build" / "tally"))
    parser.add_argument("--text")
    parser.add_argument("--tokenizer")
    parser.add_argument("--megabytes", type=float, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    o = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(o.threads)
    import tally

    text = open(o.text, encoding="utf-8").read(int(o.megabytes * 1e6)) if o.text else system_text(o.megabytes)
    documents = [text[at : at + 4000] for at in range(0, len(text), 4000)]
    size = sum(len(d.encode()) for d in documents) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "text.jsonl"
        plain.write_text("".join(json.dumps({"id": i, "text": d}) + "\n" for i, d in enumerate(documents)))
        tokenizer = o.tokenizer
        if not tokenizer:
            (Path(folder) / "text.txt").write_text(text)
            tokenizer = folder + "/tok"
            command = [o.tally, "tokenizer", "train", "--vocab", "8192", "--out", tokenizer, folder + "/text.txt"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run(f"gzip -k {plain} && zstd -q -k {plain}", shell=True, check=True)
        ours = tally.Tokenizer(tokenizer)
        ours.encode_batch(documents[:100], disallowed_special=())
        encode = best(lambda: ours.encode_batch(documents, disallowed_special=()), o.repeats)
        print(f"{size:.1f} MB of text in {len(documents)} documents, {o.threads} thread(s) encode")
        print(f"encoder alone          {size / encode:8.1f} MB/s")
        for name, command in (("gzip", ["gzip", "-dc"]), ("zstd", ["zstd", "-dcq"]), ("none", ["cat"])):
            file = str(plain) + {"gzip": ".gz", "zstd": ".zst", "none": ""}[name]
            with open(os.devnull, "wb") as null:
                unpack = best(lambda: subprocess.run([*command, file], stdout=null, check=True), o.repeats)
            arguments = ["--tokenizer", tokenizer, "--threads", str(o.threads), "--json", "--out", folder + "/x.tok"]
            found = []

            def run():
                out = subprocess.run([o.tally, "tokenize", file, *arguments], check=True, stdout=subprocess.PIPE).stdout
                found.append(json.loads(out)["mb_per_s"])

            for _ in range(o.repeats):
                run()
            target = min(size / unpack, size / encode)
            print(f"{name}: decompressor alone {size / unpack:8.1f} MB/s, tally tokenize {max(found):8.1f} MB/s,"
                  f" {max(found) / target:.2f} of the slower (target 1)")


if __name__ == "__main__":
    main()
