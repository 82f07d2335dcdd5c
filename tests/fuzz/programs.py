"""Real processes of the program on hostile input, and what must hold of every one of them.

Shared by command_lines.py and mutate.py. The program should be a sanitizer build:
    make BUILD=build/asan SANITIZE=address,undefined CUDA=0 build/asan/tally

Of every process: an exit code that is documented; no sanitizer report and no signal; an end within 10 s (commands that
measure, train or generate may go on, but must end when they are interrupted); no control characters but line ends and
tabs; JSON that is JSON; words with every failure; no temporary and, after a failure, no file of its own; nothing
written anywhere else.
"""
import argparse
import collections
import gzip
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT_S = 10          # of the processor, or asleep
PATIENCE_S = 2.5      # after which what may take long is interrupted
MEMORY_MB = 2048
INTERRUPTIBLE = {"train", "calibrate", "roofline", "generate", "eval", "data", "tokenize"}
DOCUMENTED = {0, 1, 2, 3, 4}
ASAN = (f"detect_leaks=0:exitcode=99:allocator_may_return_null=1:max_allocation_size_mb={MEMORY_MB}:"
        f"hard_rss_limit_mb={MEMORY_MB}:handle_abort=1:print_legend=0")
NOISE = re.compile(rb"^==\d+==WARNING: AddressSanitizer failed to allocate .*\n?", re.M)


class Finding(Exception):
    def __init__(self, kind, detail, signature=None):
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.signature = kind, detail, signature or kind


class World:
    """The program, a folder of files that nobody can write, and one cell per process."""

    def __init__(self, options):
        self.options, self.seed = options, options.seed
        self.work = os.path.abspath(options.work) if options.work else tempfile.mkdtemp(prefix="tally-fuzz-")
        os.makedirs(self.work, exist_ok=True)
        os.chmod(self.work, 0o755)
        # Of nobody else's, so that its files are known
        self.uid = 20000 + os.getpid() % 40000 if os.geteuid() == 0 else os.geteuid()
        self.tally, self.plain = os.path.join(self.work, "tally"), None
        shutil.copy2(options.tally, self.tally)
        if options.plain and os.access(options.plain, os.X_OK):
            self.plain = os.path.join(self.work, "plain")
            shutil.copy2(options.plain, self.plain)
        self.files, self.kept, self.home = (self.folder(name) for name in ("files", "kept", "home"))
        self.environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "OMP_NUM_THREADS": "1", "ASAN_OPTIONS": ASAN,
                            "HOME": self.home, "XDG_CONFIG_HOME": self.home,
                            "UBSAN_OPTIONS": "halt_on_error=1:exitcode=98:print_stacktrace=1"}
        self.began = time.time() - 1

    def folder(self, *names):
        path = os.path.join(self.work, *names)
        os.makedirs(path)
        self.give(path)
        return path

    def give(self, path):
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.uid)

    def must(self, *arguments, codes=(0, 75)):
        """A call of the harness's own, to make files."""
        ids = {"user": self.uid, "group": self.uid, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run([self.plain or self.tally, *arguments], capture_output=True, env=self.environment,
                              cwd=self.files, timeout=600, **ids)
        if done.returncode not in codes:
            raise RuntimeError(f"tally {arguments}: {done.returncode}: {done.stderr.decode()}")
        return done.stdout

    def seal(self):
        """From now on nobody but the harness writes there."""
        if os.geteuid() == 0:
            for folder, folders, files in os.walk(self.files):
                for name in [".", *folders, *files]:
                    os.chown(os.path.join(folder, name), 0, 0, follow_symlinks=False)

    def elsewhere(self):
        """What the user of the processes has written outside the scratch folder since the beginning."""
        if os.geteuid():
            return []
        found = []
        for top in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock"):
            for folder, folders, files in os.walk(top):
                folders[:] = [f for f in folders if os.path.join(folder, f) != self.work and not f.startswith("tally-")]
                for name in files:
                    try:
                        s = os.lstat(os.path.join(folder, name))
                    except OSError:
                        continue
                    if s.st_uid == self.uid and s.st_ctime > self.began and not folder.startswith(self.work):
                        found.append(os.path.join(folder, name))
        return found


# ---- One process

def _clock(pid):
    """Seconds of the processor, children not counted."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0.0


def _wait(child, limit_s):
    """True if the child ended; False if it used limit_s of CPU time, or sleeps and will not end. A busy machine does
    not count against it."""
    began = moved = time.monotonic()
    used = first = _clock(child.pid)
    while True:
        try:
            child.wait(0.1 if time.monotonic() - began < 1 else 0.3)
            return True
        except subprocess.TimeoutExpired:
            now = _clock(child.pid)
            if now > used:
                used, moved = now, time.monotonic()
            idle = time.monotonic() - moved
            if (used - first > limit_s or (idle > 3 and time.monotonic() - began > limit_s)
                    or time.monotonic() - began > 600):
                return False


def _limits():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it, and so would their children
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))


class Result:
    code, stdout, stderr, interrupted, hung, seconds, cpu = None, b"", b"", False, False, 0.0, 0.0


def start(world, program, arguments, cell):
    r = Result()
    command = arguments[0].decode(errors="replace") if arguments else ""
    ids = {"user": world.uid, "group": world.uid, "extra_groups": []} if os.geteuid() == 0 else {}
    paths = [cell + ".stdout", cell + ".stderr"]
    began = time.monotonic()
    with open(paths[0], "wb") as stdout, open(paths[1], "wb") as stderr:
        child = subprocess.Popen([os.fsencode(program), *arguments], stdin=subprocess.DEVNULL, stdout=stdout,
                                 stderr=stderr, cwd=cell, env=world.environment, preexec_fn=_limits, **ids)
    try:
        may_go_on = command in INTERRUPTIBLE
        if not _wait(child, PATIENCE_S if may_go_on else LIMIT_S):
            if may_go_on:
                r.interrupted = True
                child.send_signal(signal.SIGINT)
            r.hung = not may_go_on or not _wait(child, LIMIT_S)
    finally:
        r.cpu = _clock(child.pid)
        if child.poll() is None:
            child.kill()
            child.wait()
    r.code, r.seconds = child.returncode, time.monotonic() - began
    for path, name in zip(paths, ("stdout", "stderr")):
        with open(path, "rb") as file:
            setattr(r, name, file.read(1 << 24))
        os.unlink(path)
    r.stderr = NOISE.sub(b"", r.stderr)
    return r


# ---- What must hold

def _frame(report):
    """The innermost function of ours in a sanitizer's report."""
    for line in report.splitlines():
        match = re.search(r"#\d+ 0x\w+ in (\w+) .*?(src/\S+?):", line)
        if match and "sanitizer" not in line:
            return f"{match[1]} ({match[2]})"
    match = re.search(r"(src/\S+?:\d+):\d+: runtime error: (.{0,60})", report)
    return f"{match[1]}: {match[2]}" if match else report[:60]


def _check_end(r, command):
    text = r.stderr.decode(errors="replace")
    if "hard rss limit exhausted" in text:
        raise Finding("memory", f"more than {MEMORY_MB} MiB", f"memory: {command}")
    if r.code in (98, 99) or "ERROR: AddressSanitizer" in text or "runtime error:" in text:
        raise Finding("sanitizer", text[-3000:], f"sanitizer: {_frame(text)}")
    if r.hung:
        what = ("interrupted, it does not end" if r.interrupted
                else f"no end within {LIMIT_S} s ({r.cpu:.0f} s of the processor)")
        raise Finding("hang", what, f"hang: {command}" + (", interrupted" if r.interrupted else "")
                      + (", asleep" if r.cpu < 1 else ""))
    if r.code < 0 and not (r.interrupted and r.code == -signal.SIGINT):
        raise Finding("signal", signal.Signals(-r.code).name + ": " + text[-300:],
                      f"signal: {command}, {signal.Signals(-r.code).name}")
    if (r.code >= 0 and r.code not in DOCUMENTED | ({"train": {5, 75}, "fit": {6}, "plan": {6}}.get(command, set()))
            and not (r.interrupted and r.code == 130)):
        raise Finding("exit-code", f"{r.code}: {text[-300:]}", f"exit-code: {command}, {r.code}")
    if r.code > 0 and not (r.stdout.strip() or r.stderr.strip()):
        raise Finding("wordless", f"exit {r.code} without a word", f"wordless: {command}")


def _control(data):
    """Where a control character stands that a terminal would obey."""
    match = re.search(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", data)
    if match:
        return match
    try:
        data.decode()
    except UnicodeDecodeError as problem:
        if 0x80 <= data[problem.start] <= 0x9f:
            return re.compile(rb"[\x80-\x9f]").search(data, problem.start)
    return None


def _check_text(r, command, arguments):
    for name, data in (("stdout", r.stdout), ("stderr", r.stderr)):
        # into a file, generate writes the model's bytes as they are
        is_exact = command == "generate" and name == "stdout" and b"--json" not in arguments
        bad = None if is_exact else _control(data)
        if bad:
            around = data[max(0, bad.start() - 60):bad.end() + 20]
            words = data[data.rfind(b"\n", 0, bad.start()) + 1:bad.start()]
            words = re.sub(rb'/\S*/|"[^"]*"?|\d+', b"..", words)[:50]
            raise Finding("control", f"{data[bad.start():bad.end()]!r} on {name}: {around!r}",
                          f"control: {command}, {name}: {words.decode(errors='replace')}")
    if command == "napkin" and r.code == 0 and re.search(rb"(?<![\w.])-?(inf|nan)\b", r.stdout):
        raise Finding("not-finite", r.stdout[-300:].decode(errors="replace"),
                      "not-finite: napkin " + os.fsdecode(arguments[1])[:20])
    if r.code == 0 and b"--json" in arguments and not r.interrupted:
        _check_json(r.stdout, command)


def _check_json(text, command):
    def refuse(word):
        raise ValueError(f"{word} is no JSON")
    try:
        if not text.strip() or text.startswith(b"usage: "):
            return
        try:
            json.loads(text, parse_constant=refuse)
        except json.JSONDecodeError:
            for line in text.splitlines():  # a sweep: one object per line
                json.loads(line, parse_constant=refuse)
    except ValueError as problem:
        raise Finding("json", f"{problem}: {text[:200]!r}", f"json: {command}") from None


def files_in(cell):
    return {os.path.relpath(os.path.join(folder, name), cell) for folder, _, files in os.walk(cell) for name in files}


def _check_files(r, command, cell, before):
    new = sorted(files_in(cell) - before)
    left = [p for p in new if re.match(r"\.tally-\d+-\d+\.tmp$", os.path.basename(p))]
    if left:
        raise Finding("left-behind", f"temporaries: {left}",
                      f"left-behind: {command}" + (", interrupted" if r.interrupted else ""))
    kept = [p for p in new if command == "tokenize" and ".partial" in os.path.basename(p)]  # saved, to be continued
    if r.code and command != "train" and new != kept:
        raise Finding("partial", f"exit {r.code}, and it made {new}", f"partial: {command}")
    gone = sorted(p for p in before - files_in(cell) if command != "tokenize" or ".partial" not in os.path.basename(p))
    if gone and command != "train":
        raise Finding("gone", f"it removed {gone}", f"gone: {command}")


def judge(world, make, number, cell, arguments):
    """Runs one and checks everything. What is only slow under sanitizers is forgiven when the plain program is fast."""
    command = os.fsdecode(arguments[0]) if arguments else ""
    before = files_in(cell)
    r = start(world, world.tally, arguments, cell)
    if r.hung and world.plain:
        shutil.rmtree(cell, ignore_errors=True)
        os.makedirs(cell)
        world.give(cell)
        again = start(world, world.plain, make(world, number, cell)[0], cell)
        r = r if again.hung else again
    try:
        _check_end(r, command)
        _check_text(r, command, arguments)
        _check_files(r, command, cell, before)
    except Finding as finding:
        return r, finding
    return r, None


# ---- All of them

def printable(text):
    """What was found must not do to this terminal what it does to others."""
    return "".join(c if c == "\n" or c.isprintable() else f"\\x{ord(c):02x}"
                   for c in text.encode("utf-8", "backslashreplace").decode())


def shell(arguments):
    """A line for bash, whatever is in it."""
    def word(data):
        if re.fullmatch(rb"[\w./:=,+-]+", data):
            return data.decode()
        safe = "".join(chr(c) if 32 <= c < 127 and chr(c) not in "'\\" else f"\\x{c:02x}" for c in data)
        return f"$'{safe}'" if len(safe) < 3000 else f"$(head -c {len(data)} /dev/zero | tr '\\0' x)"
    return "tally " + " ".join(map(word, arguments))


def worker(world, make, numbers, last, results):
    while True:
        with numbers.get_lock():
            number, numbers.value = numbers.value, numbers.value + 1
        if number >= last:
            break
        try:
            results.put((number, *one(world, make, number)))
        except Exception:
            results.put((number, {"harness": 1},
                         ("harness", traceback.format_exc(), "harness: " + traceback.format_exc()[-200:], "")))
    results.put(None)


def one(world, make, number):
    """make(world, number, cell) puts files into the cell and returns the arguments and a word for the statistics, the
    same each time, or None to skip this number. Returns the counts, and a finding or None."""
    cell = world.folder("cells", str(number))
    made = make(world, number, cell)
    if not made:
        os.rmdir(cell)
        return {}, None
    r, finding = judge(world, make, number, cell, made[0])
    arguments, word = made
    if not finding:
        shutil.rmtree(cell, ignore_errors=True)
        return {f"{word}: exit {r.code}" + (" (interrupted)" if r.interrupted else ""): 1}, None
    kept = os.path.join(world.kept, str(number))
    shutil.rmtree(kept, ignore_errors=True)
    os.rename(cell, kept)
    line = shell([word.replace(os.fsencode(cell), os.fsencode(kept)) for word in arguments])
    return {f"{word}: {finding.kind}": 1}, (finding.kind, finding.detail, finding.signature, line)


def everything(world, make, first, last, jobs):
    context = multiprocessing.get_context("fork")
    numbers, results = context.Value("l", first), context.Queue()
    workers = [context.Process(target=worker, args=(world, make, numbers, last, results)) for _ in range(jobs)]
    for w in workers:
        w.start()
    counted, findings, ended, done, began = collections.Counter(), {}, 0, 0, time.monotonic()
    while ended < len(workers):
        result = results.get()
        if result is None:
            ended += 1
            continue
        number, counts, finding = result
        counted.update(counts)
        done += 1
        if finding:
            entry = findings.setdefault(finding[2], [0, number, finding])
            entry[0] += 1
            if entry[0] == 1:
                print(printable(f"  FINDING {number}: {finding[2]}"), flush=True)
        if done % 1000 == 0:
            print(f"  {done} of {last - first}, {len(findings)} findings, {time.monotonic() - began:.0f} s", flush=True)
    for w in workers:
        w.join()
    return counted, findings


# ---- That it can find something

FAULTS = [(None, ["ops"], "echo fine"), ("exit-code", ["ops"], "exit 9"), ("exit-code", ["ops"], "exit 75"),
          ("signal", ["ops"], "kill -SEGV $$"),
          ("sanitizer", ["ops"], "echo '==1==ERROR: AddressSanitizer: heap-buffer-overflow' >&2; exit 99"),
          ("sanitizer", ["ops"], "echo 'src/ops/x.c:1:2: runtime error: signed integer overflow' >&2; exit 98"),
          ("hang", ["ops"], "exec sleep 100"), ("hang", ["train"], "trap '' INT; while :; do :; done"),
          (None, ["train"], "while :; do :; done"),
          ("memory", ["ops"], "echo '==1==AddressSanitizer: hard rss limit exhausted (1Mb vs 2Mb)' >&2; exit 1"),
          ("wordless", ["ops"], "exit 2"), ("control", ["ops"], "printf '\\033[31m'"),
          ("control", ["ops"], "printf '\\302\\233' >&2"), ("control", ["ops"], "printf '\\233' >&2"),
          ("not-finite", ["napkin", "time"], "echo 'days  inf'"), ("json", ["ops", "--json"], "echo '{\"a\": NaN}'"),
          ("left-behind", ["ops"], "touch .tally-1-1.tmp"), ("partial", ["data"], "touch made; echo no; exit 2"),
          ("gone", ["diff"], "rm mine")]


def self_test(world):
    """Programs that break one rule each, and a loop that was rightly interrupted."""
    global LIMIT_S
    failed, LIMIT_S, world.plain = 0, 4, None
    for number, (kind, arguments, body) in enumerate(FAULTS):
        world.tally = os.path.join(world.work, f"fake-{number}")
        write_script(world.tally, body)

        def make(_world, _number, cell, arguments=arguments):
            with open(os.path.join(cell, "mine"), "w"):
                pass
            return [word.encode() for word in arguments], arguments[0]
        found = one(world, make, number)[1]
        found = found[0] if found else None
        failed += found != kind
        print(f"  {'ok    ' if found == kind else 'FAILED'}  {body}: "
              f"{found or 'nothing'}" + ("" if found == kind else f" (need {kind})"), flush=True)
    if os.geteuid() == 0:
        outside = os.path.join("/dev/shm", f"outside-{os.getpid()}")
        write_script(world.tally, f"touch {outside}")
        one(world, lambda *_: ([b"ops"], "ops"), len(FAULTS))
        is_found = world.elsewhere() == [outside]
        failed += not is_found
        print(f"  {'ok    ' if is_found else 'FAILED'}  a file outside: {world.elsewhere()}")
        os.unlink(outside)
    print(f"{len(FAULTS) + (os.geteuid() == 0) - failed} passed, {failed} failed")
    shutil.rmtree(world.work, ignore_errors=True)
    sys.exit(failed != 0)


def write_script(path, body):
    with open(path, "w") as file:
        file.write(f"#!/bin/bash\n{body}\n")
    os.chmod(path, 0o755)


def options_read(doc, default, short, add=lambda parser: None):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tally", default=os.environ.get("TALLY", os.path.join(ROOT, "build/asan/tally")),
                        help="the program [build/asan/tally]")
    parser.add_argument("--plain", default=os.path.join(ROOT, "build/tally"),
                        help="without sanitizers, to make files and to confirm hangs [build/tally]")
    parser.add_argument("--runs", type=int, default=default, help=f"[{default}]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--only", type=int, help="one of them again")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--work", help="where it works [a new folder in TMPDIR]; it must not exist")
    parser.add_argument("--short", action="store_true", help=f"the form of the test run: {short}")
    parser.add_argument("--self-test", action="store_true",
                        help="that each rule is found broken when a program breaks it")
    add(parser)
    options = parser.parse_args()
    if options.short:
        options.runs = short
    if options.only is not None:
        options.first, options.runs, options.jobs = options.only, 1, 1
    if not os.access(options.tally, os.X_OK):
        sys.exit(f"there is no program {options.tally} (make BUILD=build/asan SANITIZE=address,undefined CUDA=0 "
                 "build/asan/tally)")
    return options


def main(name, world, make, options):
    began = time.monotonic()
    counted, findings = everything(world, make, options.first, options.first + options.runs, options.jobs)
    elsewhere = world.elsewhere()
    if elsewhere:
        findings["outside"] = [len(elsewhere), options.first,
                               ("outside", f"written outside: {elsewhere[:20]}", "outside", "")]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    for key, n in sorted(counted.items()):
        print(f"  {n:6}  {key}")
    for signature, (n, number, (kind, detail, _, line)) in sorted(findings.items()):
        print(printable(f"FINDING {signature} ({n} times)\n    {detail[-1500:]}\n    {line[:1500]}\n"
                        f"    again: {name} --seed {options.seed} --only {number}; kept: {world.kept}/{number}"))
    print(f"{options.runs} runs in {time.monotonic() - began:.0f} s ({cpu:.0f} s of the processor), seed "
          f"{options.seed}: {len(findings) or 'no'} finding{'s' if len(findings) != 1 else ''}")
    if not findings:
        shutil.rmtree(world.work, ignore_errors=True)
    sys.exit(bool(findings))


# ---- Files to begin with

def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


SMALL = ["--model", "tiny-gpt2", "--layers", "1", "--channels", "16", "--heads", "2", "--context", "16", "--batch", "2",
         "--seq", "8", "--warmup", "1", "--sample-tokens", "0", "--eval-every", "0", "--val-share", "0"]
LLAMA = ["--model", "tiny", "--layers", "1", "--channels", "16", "--heads", "2", "--kv-heads", "1", "--context", "16",
         "--batch", "2", "--seq", "8", "--warmup", "1", "--sample-tokens", "0", "--eval-every", "0", "--val-share", "0"]


def good_files(world):
    """One whole file of every kind, by the program's own hand where it writes such files."""
    at = lambda name: os.path.join(world.files, name)  # noqa: E731

    def put(name, data):
        with open(at(name), "wb") as file:
            file.write(data)
        world.give(at(name))
    world.must("data", "make", "--bytes", "3kB", "--seed", "3", "--out", at("text"))
    world.must("data", "convert", at("text"), "--out", at("tokens.tok"))
    lines = b"".join(json.dumps({"id": i, "text": "the hen \u4e2d " * i}).encode() + b"\n" for i in range(20))
    put("lines.jsonl", lines)
    put("lines.jsonl.gz", gzip.compress(lines, mtime=0))
    put("half.jsonl", lines + b"nonsense\n") # work that stops there is saved
    world.must("tokenize", at("lines.jsonl"), "--tokenizer", "bytes", "--out", at("documents.tok"))
    os.mkdir(at("work"))
    world.give(at("work"))
    world.must("tokenize", at("half.jsonl"), "--tokenizer", "bytes", "--out", at("work/half.tok"), codes=(2,))
    ids = [1, 2, 999, 4, 77, 500, 3, 9] * 40
    put("raw.bin", struct.pack(f"<{len(ids)}H", *ids))
    put("wide.bin", struct.pack(f"<{len(ids)}I", *ids))
    put("llmc.bin", struct.pack("<3I", 20240520, 1, len(ids)).ljust(1024, b"\0") + struct.pack(f"<{len(ids)}H", *ids))
    head = f"{{'descr': '<u2', 'fortran_order': False, 'shape': ({len(ids)},), }}".encode().ljust(117) + b"\n"
    put("array.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + struct.pack(f"<{len(ids)}H", *ids))
    for name, model in (("run", SMALL), ("llama", LLAMA)):
        world.must("train", *model, "--data", at("text"), "--steps", "4", "--save-every", "2", "--quiet", "--out",
                   at(name))
    for name in ("price.json", "receipt.json"):
        shutil.copy(at("run/" + name), at(name))
    put("ledger.json", json.dumps(json.load(open(at("price.json")))["kinds"]["step"]["ledger"]).encode())
    shutil.copytree(at("run/final"), at("model"))
    shutil.copy(at("run/final/model.safetensors"), at("model.safetensors"))
    shutil.copy(at("run/final/config.json"), at("gpt2.json"))
    world.must("export", at("model"), "--type", "q8_0", "--out", at("model.gguf"))
    shutil.copy(at("llama/final/config.json"), at("llama.json"))
    shutil.copy(at("run/config.json"), at("settings.json"))
    stream = [{"bytes": n, "read": r, "write": r, "copy": r, "triad": r} for n, r in ((32768, 4e10), (1 << 28, 1e10))]
    put("machine.json", json.dumps({
        "schema": "tally.machine/2", "device": "cpu", "machine": "a machine", "isa": "", "date": "2026-01-01",
        "threads": 2, "clock_hz": 2e9, "call_s": 1e-6, "rest_share": 0.01, "sheet": {}, "product": {"f32": 100e9},
        "measured": {"f32": 80e9}, "sheet_bandwidth": 0,
        "products": [{"dtype": "f32", "m": 64, "k": 64, "n": 64, "flops_per_s": 60e9}], "streams": stream,
        "samples": [{"op": "matmul", "dtype": "f32", "backward": False, "flops": 2e9, "bytes": 12e6, "written": 4e6,
                     "inner": 0, "seconds": 0.05}],
    }).encode())
    put("hardware.json", b'{"schema": "tally.hardware/1", "devices": [{"name": "Abacus", "bf16": 2e12, "f32": 1e12, '
        b'"memory": 1e9, "bandwidth": 1e11}]}')
    put("runs.csv", b"parameters,tokens,loss\n" + b"".join(
        f"{n},{r * n},{1.69 + 406.4 / n ** 0.34 + 410.7 / (r * n) ** 0.28}\n".encode()
        for n in (1e7, 3e7, 1e8, 3e8, 1e9) for r in (5, 20, 80)))


def bad_files(world):
    """What may stand in the place of a file. Their names; devices of the system are among them."""
    at = lambda name: os.path.join(world.files, name)  # noqa: E731
    os.mkfifo(at("fifo"))
    os.chmod(at("fifo"), 0o666)
    os.mkdir(at("folder"))
    os.symlink("loop", at("loop"))
    os.symlink(at("absent"), at("dangling"))
    os.symlink(at("text"), at("link"))
    os.symlink("/dev/zero", at("zero.json"))
    for name, size in (("empty", 0), ("sparse", 1 << 40), ("sparse.json", 5 << 30), ("sparse.bin", 3 << 40),
                       ("sparse.tok", 64 << 20)):
        with open(at(name), "wb") as file:
            try:
                file.truncate(size)
            except OSError:
                file.truncate(1 << 32)
    with open(at("unreadable"), "wb") as file:
        file.write(b"{}")
    os.chmod(at("unreadable"), 0)
    with open(at("deep.json"), "wb") as file:
        file.write(b"[" * 3000000)
    with open(at("wide.json"), "wb") as file:
        file.write(b"[" + b"{}," * 4000000 + b"{}]")
    with open(at("escapes.json"), "wb") as file:
        file.write(b'{"schema": "\\u001b[31m", "\\u009b2J": "\x1b]0;x\x07", "model_type": "gpt2\\u001b[2J"')
    names = ["fifo", "folder", "loop", "dangling", "empty", "sparse", "sparse.json", "sparse.bin", "sparse.tok",
             "unreadable", "deep.json", "wide.json", "escapes.json", "zero.json", "absent", "link"]
    return [at(name) for name in names] + [
        "/dev/zero", "/dev/null", "/dev/full", "/dev/stdin", "/dev/tty", "/dev/random", "/", "", ".", "..",
        "/proc/self/mem", "/proc/self/maps", "/proc/self/fd/0", "/proc/kmsg", "/no/such/place", "x" * 5000,
        at("text") + "/below", at("esc\x1b[31m"), "\x1b[2J\x9b", "a\nb", "-", "--", "builtin"]
