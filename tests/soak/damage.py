"""Damage to the files of a run, each kind under a name, and its repair."""
import json
import os
import re
import shutil
import stat

import verify


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def own(path, uid):
    """To the user that trains: what the harness made as root would be a wrong owner everywhere."""
    if os.geteuid() == 0:
        for each in [path, *verify.walk(path)]:
            os.chown(each, uid, uid, follow_symlinks=False)


def _copy_one(source, target):
    if stat.S_ISFIFO(os.lstat(source).st_mode):
        os.mkfifo(target)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def copy(source, target, uid):
    if os.path.isdir(source) and not os.path.islink(source):
        os.mkdir(target)
        for name in os.listdir(source):
            copy(os.path.join(source, name), os.path.join(target, name), uid)
        shutil.copystat(source, target)
    else:
        _copy_one(source, target)
    own(target, uid)


def _edit(path, change):
    """In place: the same inode, as a bad disk or an editor leaves it."""
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        change(data)
        file.seek(0)
        file.truncate()
        file.write(data)


# ---- One file

def flip(d, path):
    def change(data):
        if data:
            data[d.rng.randrange(len(data))] ^= 1 << d.rng.randrange(8)
        else:
            data.append(1)
    _edit(path, change)


def cut(d, path):
    os.truncate(path, d.rng.randrange(max(1, os.path.getsize(path))))


def grow(d, path):
    with open(path, "ab") as file:
        file.write(d.rng.choice([b"\0", b"{}\n", b" ", d.rng.randbytes(500)]))


def zero(_d, path):
    _edit(path, lambda data: data.__setitem__(slice(None), bytes(max(1, len(data)))))


def empty(_d, path):
    os.truncate(path, 0)


def delete(_d, path):
    remove(path)


def garbage(d, path):
    text = d.rng.choice([b"", b"{}", b"[]", b"null", b"hello\n", b"{\"step\": -1}", b"[" * 5000, d.rng.randbytes(3000)])
    remove(path)
    with open(path, "wb") as file:
        file.write(text)


def other_run(d, path):
    """The same name in the folder of another run of the same shape."""
    other = d.other_folder()
    source = os.path.join(other, os.path.relpath(path, d.run))
    same_name = [p for p in sorted(verify.walk(other)) if os.path.basename(p) == os.path.basename(path)]
    if not os.path.lexists(source):
        source = same_name[0] if same_name else os.path.join(other, "config.json")
    if os.path.isdir(source) != os.path.isdir(path):
        source = path
    held = source + ".held"
    copy(source, held, d.uid)
    remove(path)
    os.rename(held, path)


def mode(_d, path):
    os.chmod(path, 0)


def owner(_d, path):
    os.chown(path, 0, 0)
    os.chmod(path, 0o700 if os.path.isdir(path) else 0o600)


def fifo(_d, path):
    remove(path)
    os.mkfifo(path)


def link(d, path):
    is_folder = os.path.isdir(path)
    remove(path)
    os.symlink(d.sentinel_folder if is_folder else d.sentinel_file, path)


def dangling(d, path):
    remove(path)
    os.symlink(os.path.join(d.outside, "absent"), path)


def folder(_d, path):
    remove(path)
    os.mkdir(path)


# ---- One folder

def plain_file(_d, path):
    remove(path)
    with open(path, "w") as file:
        file.write("a file in the place of a folder\n")


def emptied(_d, path):
    for name in os.listdir(path):
        remove(os.path.join(path, name))


FILE_KINDS = [flip, flip, flip, cut, grow, zero, empty, delete, garbage, other_run, mode, owner, fifo, link, dangling,
              folder]
FOLDER_KINDS = [delete, other_run, mode, owner, fifo, link, dangling, plain_file, emptied]


class Damage:
    """One piece of damage: what it was, and how to undo it as long as nobody else has touched the place."""

    def __init__(self, rng, run, outside, uid, backup, other_folder):
        self.rng, self.run, self.outside, self.uid = rng, run, outside, uid
        self.backup, self.other_folder = backup, other_folder
        self.sentinel_file = os.path.join(outside, "sentinel")
        self.sentinel_folder = os.path.join(outside, "folder")
        self.path = self.kind = None
        self.is_past = False  # training went on in spite of it

    def __str__(self):
        return f"{self.kind} {os.path.relpath(self.path, self.run)}"

    def _pick(self, avoid):
        """A path to damage: half of the time in a checkpoint, preferably a new one. It never is, contains or lies in
        one of `avoid`."""
        paths = sorted(p for p in verify.walk(self.run) if not verify.TEMPORARY.match(os.path.basename(p))
                       and not any(p == a or p.startswith(a + "/") or a.startswith(p + "/") for a in avoid))
        within = [p for p in paths if "/checkpoints/step-" in p]
        if within and self.rng.random() < 0.5:
            steps = sorted({p.split("/checkpoints/")[1].split("/")[0] for p in within})
            step = steps[-1] if self.rng.random() < 0.7 else self.rng.choice(steps)
            return self.rng.choice([p for p in within if f"/{step}" in p])
        outer = [p for p in paths if p not in within]
        return self.rng.choice(outer) if outer else None

    def apply(self, avoid):
        """False: there is nothing to damage."""
        self.path = self._pick(avoid)
        if not self.path:
            return False
        s = os.lstat(self.path)
        is_folder, is_file = stat.S_ISDIR(s.st_mode), stat.S_ISREG(s.st_mode)
        if not (is_folder or is_file) or (os.geteuid() == 0 and s.st_uid != self.uid):
            return False  # damaged already
        kinds = FOLDER_KINDS if is_folder else FILE_KINDS
        kind = self.rng.choice([k for k in kinds if k is not owner or os.geteuid() == 0])
        copy(self.path, self.backup, self.uid)
        kind(self, self.path)
        if kind is not owner and os.path.lexists(self.path):
            own(self.path, self.uid)
        self.kind = kind.__name__
        match = re.search(r"/checkpoints/step-\d{12}", self.path)
        self.step_folder = self.path[:match.end()] if match else None
        self.stamp = self._stamp()
        return True

    def _stamp(self):
        return verify.stamp(self.path) if os.path.lexists(self.path) else None

    @property
    def is_outstanding(self):
        return self._stamp() == self.stamp

    @property
    def is_repairable(self):
        """A checkpoint whose manifest was deleted looks incomplete, so the run removes it, and nothing can be restored
        in it."""
        parent = os.path.dirname(self.path)
        return self.is_outstanding and os.path.isdir(parent) and not os.path.islink(parent)

    def repair(self):
        """Restores what was there, unless the run has put something of its own in its place. A checkpoint that training
        has passed is removed instead: restored, it would be newer than the log and the receipt."""
        if self.is_outstanding and self.is_past and self.step_folder:
            remove(self.step_folder)
            return
        if self.is_repairable:
            remove(self.path)
            copy(self.backup, self.path, self.uid)


# ---- Inputs

class InputDamage:
    """A change of what the run was made from. It is undone after the next process, whatever that does."""

    kind = "input"

    def __init__(self, rng, chain):
        self.saved, self.extra, self.removed = {}, [], None
        kinds = [self._settings]
        if chain.data_file:
            kinds += [self._replaced, self._cut, self._edited, self._grown] * 2
        if chain.model_folder:
            kinds += [self._config, self._weights] * 2
        what = rng.choice(kinds)
        self.chain, self.rng = chain, rng
        what()
        self.name = what.__name__.strip("_")

    def __str__(self):
        return f"input {self.name}"

    def _keep(self, path):
        self.saved[path] = verify.read_bytes(path), os.stat(path)

    def _write(self, path, data):
        with open(path, "wb") as file:
            file.write(data)

    def _data(self, change):
        path = self.chain.data_file
        self._keep(path)
        self._write(path, change(bytearray(self.saved[path][0])))

    def _replaced(self):
        self._data(lambda data: bytes(reversed(data[64:])).rjust(len(data), b"x") if data[:8] != b"TALLYTOK"
                   else data[:64] + data[-64:64:-1])

    def _cut(self):
        self._data(lambda data: data[:len(data) * 3 // 4])

    def _edited(self):
        def change(data):
            at = self.rng.randrange(64, len(data) // 2)
            data[at] = 65 + (data[at] + 7) % 26
            return data
        self._data(change)

    def _grown(self):
        self._data(lambda data: data + b"and one more line\n")

    def _config(self):
        path = os.path.join(self.chain.model_folder, "config.json")
        self._keep(path)
        config = json.loads(self.saved[path][0])
        config["layer_norm_epsilon"] = 1e-4
        self._write(path, json.dumps(config).encode())

    def _weights(self):
        path = os.path.join(self.chain.model_folder, "model.safetensors")
        self._keep(path)
        data = bytearray(self.saved[path][0])
        data[-self.rng.randrange(4, 400)] ^= 0x10
        self._write(path, data)

    def _settings(self):
        """Other settings, and in half of the cases nobody who would know."""
        self.extra = self.rng.choice([["--lr", "0.02"], ["--seed", "77"], ["--beta1", "0.5"],
                                      ["--weight-decay", "0.3"]])
        path = os.path.join(self.chain.run, "config.json")
        if self.rng.random() < 0.5 and os.path.isfile(path):
            self.removed = path
            self._keep(path)
            os.unlink(path)

    def repair(self):
        for path, (data, s) in self.saved.items():
            if path == self.removed:
                remove(path)
            self._write(path, data)
            if os.geteuid() == 0:
                os.chown(path, s.st_uid, s.st_gid)
            os.utime(path, ns=(s.st_atime_ns, s.st_mtime_ns))
