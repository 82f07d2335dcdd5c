"""Reads the folder of a run without the program: checkpoints by their manifests (docs/files.md), weights, logs,
temporaries."""
import array
import functools
import hashlib
import json
import os
import re
import stat

BLOCK_BYTES = 1 << 20
STEP_NAME = re.compile(r"step-(\d{12})$")
RANKS = re.compile(r"-\d{5}-of-\d{5}(?=\.safetensors$)")
TEMPORARY = re.compile(r"\.tally-(\d+)-\d+\.tmp$")


# ---- CRC32C (Castagnoli), two bytes at a time

def _table():
    one = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        one.append(crc)
    return one, array.array("L", (one[(one[n & 255] ^ n >> 8) & 255] ^ one[n & 255] >> 8 for n in range(65536)))


ONE, TWO = _table()


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    two, even = TWO, len(data) & ~1
    words = array.array("H")
    words.frombytes(bytes(data[:even]))
    if array.array("H", b"\1\0")[0] != 1:
        words.byteswap()
    for word in words:
        crc = crc >> 16 ^ two[(crc ^ word) & 65535]
    for byte in data[even:]:
        crc = crc >> 8 ^ ONE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # the check value of every catalogue


@functools.lru_cache(maxsize=4096)
def _sums(path, _stamp):
    """SHA-256 and the CRC32C of each MiB; cached by everything that changes when a file does."""
    data = read_bytes(path)
    blocks = ["%08x" % crc32c(data[at:at + BLOCK_BYTES]) for at in range(0, len(data), BLOCK_BYTES)]
    return hashlib.sha256(data).hexdigest(), len(data), blocks


def stamp(path):
    s = os.lstat(path)
    return s.st_dev, s.st_ino, s.st_mode, s.st_uid, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def sums(path):
    return _sums(path, stamp(path))


def digest(path):
    return sums(path)[0]


def read_bytes(path):
    """A regular file and nothing else: a FIFO must not stop the harness, nor a link lead it away."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is no regular file")
        return file.read()


def read_json(path):
    return json.loads(read_bytes(path))


# ---- Checkpoints

def usable(path, want, uid):
    """Whether the user that trains can use what is there, itself and no link, as a file or as a folder."""
    s = os.lstat(path)
    need = 0o700 if want is stat.S_ISDIR else 0o400
    return want(s.st_mode) and (uid == 0 or (s.st_uid == uid and s.st_mode & need == need))


def checkpoint_problem(folder, step, uid):
    """Why a checkpoint is not whole; None when it is."""
    try:
        if not usable(folder, stat.S_ISDIR, uid):
            return "the folder cannot be used"
        manifest = os.path.join(folder, "manifest.json")
        if not usable(manifest, stat.S_ISREG, uid):
            return "the manifest cannot be read"
        root = read_json(manifest)
        body = root["body"]
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        if root["crc32c"] != "%08x" % crc32c(text.encode()):
            return "the manifest's checksum is wrong"
        if (body["step"] != step or body["block_bytes"] != BLOCK_BYTES
                or not body["schema"].startswith("tally.checkpoint/")):
            return "the manifest is of another step or schema"
        names = [entry["name"] for entry in body["files"]]
        kinds = {RANKS.sub("", name) for name in names}  # of several ranks, each has written a file of its own
        if not {"model.safetensors", "optimizer.safetensors", "state.json"} <= kinds:
            return f"the manifest lists only {names}"
        for entry in body["files"]:
            path = os.path.join(folder, entry["name"])
            if "/" in entry["name"] or not usable(path, stat.S_ISREG, uid):
                return f"{entry['name']} cannot be read"
            _, size, blocks = sums(path)
            if size != entry["bytes"] or blocks != entry["crc32c"]:
                return f"{entry['name']} is not what the manifest says"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


class Checkpoint:
    def __init__(self, folder, step, uid):
        self.folder, self.step = folder, step
        self.problem = checkpoint_problem(folder, step, uid)
        manifest = os.path.join(folder, "manifest.json")
        self.is_folder = stat.S_ISDIR(os.lstat(folder).st_mode)  # a link or a FIFO of such a name is not the run's
        self.is_finished = os.path.lexists(manifest)
        self.identity = None if self.problem else digest(manifest)
        # What the steps made; state.json and the manifest know the clock.
        self.weights = None if self.problem else tuple(
            digest(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if name.endswith(".safetensors"))


def checkpoints(run, uid):
    """{step: Checkpoint} of everything named so, whole or not."""
    folder, found = os.path.join(run, "checkpoints"), {}
    try:
        if not usable(folder, stat.S_ISDIR, uid):
            return found
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names:
        match = STEP_NAME.match(name)
        if match:
            found[int(match[1])] = Checkpoint(os.path.join(folder, name), int(match[1]), uid)
    return found


# ---- The rest of a folder

def walk(top):
    """Every path below, without following links."""
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            yield os.path.join(folder, name)


def temporaries(run):
    """Of processes that no longer live."""
    for path in walk(run):
        match = TEMPORARY.match(os.path.basename(path))
        if match and not os.path.exists(f"/proc/{match[1]}"):
            yield path


def picture(top):
    """Names, kinds, modes and contents of a tree: equal when nobody touched it."""
    out = {}
    for path in [top, *walk(top)]:
        s = os.lstat(path)
        what = digest(path) if stat.S_ISREG(s.st_mode) else os.readlink(path) if stat.S_ISLNK(s.st_mode) else ""
        when = 0 if stat.S_ISDIR(s.st_mode) else s.st_mtime_ns
        out[os.path.relpath(path, top)] = (stat.S_IFMT(s.st_mode), stat.S_IMODE(s.st_mode), s.st_uid, s.st_size, when,
                                           what)
    return out


def log_problem(path):
    """A log is lines of JSON, of steps that rise by one."""
    expected = 1
    try:
        for number, line in enumerate(read_bytes(path).decode().splitlines(), 1):
            entry = json.loads(line)
            if "loss" not in entry:
                continue
            if entry["step"] != expected:
                return f"line {number} is of step {entry['step']} (need {expected})"
            expected += 1
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


def plain_log(path):
    """Without what the clock says."""
    lines = [json.loads(line) for line in read_bytes(path).decode().splitlines()]
    return [{key: value for key, value in line.items() if key != "time"} for line in lines]
