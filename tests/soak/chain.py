"""One run, killed and damaged again and again until it ends, and what must hold after every process of it."""
import collections
import os
import random
import re
import shutil
import signal
import subprocess

import damage
import process
import verify

RECIPES = ["fp32", "amp", "bf16", "bf16-lean", "fp16", "fp8", "fp4"]
DOCUMENTED = {0, 1, 2, 3, 4, 5, 75}
LIMIT_S = 60


class Violation(Exception):
    def __init__(self, kind, detail):
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


class World:
    """What all chains share: the program, the scratch folder, the user that trains, a text and a first model."""

    def __init__(self, tally, work, seed, uid, signals=process.STOPPING):
        self.tally, self.work, self.seed, self.uid = tally, work, seed, uid
        self.stopping = [number for number in signals if number != signal.SIGXFSZ]
        self.has_limits = signal.SIGXFSZ in signals
        self.environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "OMP_NUM_THREADS": "1",
                            "HOME": os.path.join(work, "home"), "XDG_CONFIG_HOME": os.path.join(work, "home")}
        self.text, self.tokens, self.model = (os.path.join(work, name) for name in ("text", "tokens", "model"))

    def call(self, *arguments):
        ids = {"user": self.uid, "group": self.uid, "extra_groups": []} if os.geteuid() == 0 and self.uid else {}
        return subprocess.run([self.tally, *arguments], capture_output=True, text=True, env=self.environment,
                              cwd=self.work, timeout=600, **ids)

    def must(self, *arguments):
        done = self.call(*arguments)
        if done.returncode:
            raise RuntimeError(f"tally {' '.join(arguments)}: exit {done.returncode}: {done.stderr}")

    def folder(self, *names):
        path = os.path.join(self.work, *names)
        os.makedirs(path)
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.uid)
        return path

    def prepare(self):
        self.folder("home")
        self.must("data", "make", "--bytes", "4kB", "--seed", "3", "--out", self.text)
        self.must("data", "convert", self.text, "--out", self.tokens)
        first = os.path.join(self.work, "first")
        self.must("train", *SMALL, "--data", self.text, "--steps", "2", "--warmup", "1", "--sample-tokens", "0",
                  "--quiet", "--out", first)
        shutil.move(os.path.join(first, "final"), self.model)


SMALL = ["--model", "tiny-gpt2", "--layers", "1", "--channels", "16", "--heads", "2", "--context", "16", "--batch", "2",
         "--seq", "8"]


class Chain:
    def __init__(self, world, number, tell=lambda text: None):
        self.world, self.number, self.tell = world, number, tell
        self.home = world.folder(f"chain-{number}")
        self.run = os.path.join(self.home, "run")
        self.outside = world.folder(f"chain-{number}", "outside")
        self.rng = self._rng("settings")
        self.tally = collections.Counter()  # kills, damage, refusals: for the summary
        self.log_was_damaged = False
        self.foreign = set()                # manifests of other runs' checkpoints
        self.damages, self.n_backups, self._other = [], 0, None
        # Temporaries in a folder without a record of its owner: anyone may have made them.
        self.unmarked = set()
        self._choose()
        self._plant()

    def _rng(self, *what):
        return random.Random("/".join(map(str, (self.world.seed, self.number, *what))))

    # ---- What is trained

    def _choose(self):
        r = self.rng
        self.recipe, self.keep, self.save_best = RECIPES[self.number % 7], r.randint(1, 3), r.random() < 0.5
        self.steps, self.save_every = r.randint(20, 60), r.choice([1, 2, 3, 5, 8, 13, 100])
        self.data_file = self.model_folder = None
        arguments = ["--recipe", self.recipe, "--steps", str(self.steps), "--warmup", "3",
                     "--save-every", str(self.save_every), "--save-best", "true" if self.save_best else "false",
                     "--eval-every", str(r.choice([0, 4, 7])), "--eval-batches", "1",
                     "--sample-every", str(r.choice([0, 9])), "--sample-tokens", str(r.choice([0, 4])),
                     "--accum", str(r.choice([1, 1, 2])),
                     "--checkpointing", r.choice(["none", "sqrt", "full"]), "--dropout", r.choice(["0", "0.1"])]
        data = r.choice(["text", "text", "tokens", "builtin"])
        if data != "builtin":
            self.data_file = os.path.join(self.home, data)
            damage.copy(self.world.text if data == "text" else self.world.tokens, self.data_file, self.world.uid)
            arguments += ["--data", self.data_file]
        model = SMALL
        if r.random() < 0.3:
            self.model_folder = os.path.join(self.home, "model")
            damage.copy(self.world.model, self.model_folder, self.world.uid)
            model = ["--model", self.model_folder, *SMALL[-4:]]
        self.settings = [*model, *arguments]

    def arguments(self, out, keep=None):
        return [self.world.tally, "train", *self.settings, "--keep", str(keep or self.keep), "--out", out]

    def _reference(self):
        """The same run, left alone, with all its checkpoints."""
        folder = os.path.join(self.home, "reference")
        os.mkdir(folder)
        damage.own(folder, self.world.uid)
        plan = process.Plan(signal.SIGKILL, phase=1 << 40)  # never comes: the phases are counted
        done = process.run(self.arguments(folder, 100000), plan, folder, self.home, self.world.uid,
                           self.world.environment, 600)
        if done.code != 0:
            raise Violation("reference", f"the run that was left alone ended with {done.code}: {done.text[-500:]}")
        self.duration, self.n_phases = done.seconds, max(12, done.n_phases)
        self.final = verify.digest(os.path.join(folder, "final", "model.safetensors"))
        self.log = verify.plain_log(os.path.join(folder, "log.jsonl"))
        self.weights = {step: c.weights for step, c in verify.checkpoints(folder, self.world.uid).items()}
        if self.steps not in self.weights:
            raise Violation("reference", "no checkpoint of the last step")

    def other(self):
        """Another run of the same shape, from another seed."""
        if not self._other:
            self._other = os.path.join(self.home, "other")
            arguments = [*self.arguments(self._other, 100000), "--seed", "99"]
            process.run(arguments, process.Plan(), self._other, self.home, self.world.uid, self.world.environment, 600)
            self.foreign |= {c.identity for c in verify.checkpoints(self._other, self.world.uid).values()}
        return self._other

    # ---- What must not be touched

    def _plant(self):
        os.mkdir(os.path.join(self.outside, "folder"))
        for name in ("sentinel", "folder/sentinel"):
            with open(os.path.join(self.outside, name), "w") as file:
                file.write("nobody writes here\n" * 50)
        damage.own(self.outside, self.world.uid)
        self.outside_picture = verify.picture(self.outside)
        self.user_files = {}

    def _user_file(self, rng):
        """A file of the user's among those of the run."""
        name = rng.choice(["notes.txt", "plot.png.tmp", "price.json.old", ".hidden", "checkpoints/notes.txt",
                           "checkpoints/step-best", "final/README.md", ".tally-notes.tmp"])
        path = os.path.join(self.run, name)
        if (os.path.isdir(os.path.dirname(path)) and not os.path.islink(os.path.dirname(path))
                and not os.path.lexists(path)):
            with open(path, "w") as file:
                file.write(f"mine: {name}\n")
            damage.own(path, self.world.uid)
            self.user_files[path] = verify.digest(path)

    def _check_untouched(self):
        now = verify.picture(self.outside)
        if now != self.outside_picture:
            changed = sorted(name for name in now.keys() | self.outside_picture.keys()
                             if now.get(name) != self.outside_picture.get(name))
            raise Violation("outside", f"changed outside the folder: {changed}")
        for path, content in self.user_files.items():
            if os.path.lexists(path):
                if verify.digest(path) != content:
                    raise Violation("user-file", f"{path} was changed")
            else:
                raise Violation("user-file", f"{path} was deleted")

    # ---- One process

    def _plan(self, rng, is_last):
        if is_last:
            return process.Plan()
        if rng.random() < 0.04 and self.world.has_limits:
            return process.Plan(file_limit=rng.choice([8000, 20000, 40000]))
        closed = rng.choice([(0,), (1,), (2,), (0, 1, 2), (1, 2)]) if rng.random() < 0.04 else ()
        number = signal.SIGKILL if rng.random() < 0.6 else rng.choice(self.world.stopping)
        if rng.random() < 0.08:
            return process.Plan(closed=closed)
        left = 1 - max(self._whole(), default=0) / self.steps  # of the run
        if rng.random() < 0.55 and os.path.isdir(self.run):
            return process.Plan(number, phase=rng.randint(1, max(4, int(1.1 * left * self.n_phases))), closed=closed)
        return process.Plan(number, after_s=rng.uniform(0, (0.1 + 0.8 * left) * self.duration), closed=closed)

    def _whole(self):
        return {step: c for step, c in verify.checkpoints(self.run, self.world.uid).items()
                if c.identity and c.identity not in self.foreign}

    def _damage(self, rng, is_finished):
        """What is done to the folder before a process; an InputDamage is returned."""
        if not os.path.isdir(self.run) or rng.random() < 0.35:
            return None
        if rng.random() < 0.15:
            self._user_file(rng)
        if rng.random() < 0.2 and not self.damages and not is_finished and self._whole():
            change = damage.InputDamage(rng, self)
            self.tally[f"damage: {change}"] += 1
            return change
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            self.n_backups += 1
            d = damage.Damage(rng, self.run, self.outside, self.world.uid,
                              os.path.join(self.home, f"backup-{self.n_backups}"), self.other)
            if d.apply([*self.user_files, *(d.path for d in self.damages if d.is_outstanding)]):
                self.damages.append(d)
                self.tally[f"damage: {d.kind}"] += 1
                self.log_was_damaged |= os.path.basename(d.path) == "log.jsonl"
        return None

    def _start(self, plan, extra):
        return process.run([*self.arguments(self.run), *extra], plan, self.run, self.home, self.world.uid,
                           self.world.environment, LIMIT_S)

    def step(self, number, is_last, is_finished):
        """One process and everything that must hold after it. True: the run ended with success."""
        rng = self._rng(number)
        change = None if is_last else self._damage(rng, is_finished)
        plan = self._plan(rng, is_last)
        before = self._whole()
        damages = "; ".join(map(str, [*self.damages, *([change] if change else [])])) or "no damage"
        self.story.append(f"{number}: {damages}; {plan}; whole {sorted(before)}")
        self.tell(self.story[-1])
        if not any(os.path.lexists(os.path.join(self.run, name)) for name in ("lock", "run.json")):
            self.unmarked |= set(verify.temporaries(self.run))
        out = self._start(plan, change.extra if change else [])
        last_line = (out.text.strip().splitlines() or [""])[-1]
        self.story[-1] += f" -> exit {out.code} after {out.seconds:.2f} s: {last_line[:200]}"
        self.tell(self.story[-1])
        self.tally[f"kill: {signal.Signals(plan.signal).name}" if out.signalled else "kill: none"] += 1
        if re.search(r"^(?:.*\r)?step \d+/\d+  ", out.text, re.M) or sorted(self._whole()) != sorted(before):
            for d in self.damages:
                d.is_past = True
        self._judge(plan, out, before, change, is_finished)
        if change:
            change.repair()
        return out.code == 0

    # ---- What must hold

    def _judge(self, plan, out, before, change, is_finished):
        if out.hung:
            raise Violation("hang", f"no end within {LIMIT_S} s")
        self._check_code(plan, out)
        self._check_untouched()
        whole = self._whole()
        self._check_saved(out, whole)
        self._check_weights(whole)
        self._check_progress(out, before, whole)
        if out.code in (0, 75):
            if change and not is_finished and self.steps not in before:
                raise Violation("changed-input", f"{change}: it went on silently, and ended with {out.code}")
            self._check_swept(whole)
            self.damages = [d for d in self.damages if d.is_outstanding]
        if out.code == 0:
            self._check_success()
        elif out.code in (1, 2, 3, 4, 5):
            self._refused(plan, out, change)

    def _check_code(self, plan, out):
        if out.code < 0:
            if out.signalled and -out.code == plan.signal and (plan.signal == signal.SIGKILL or not out.was_ready):
                return
            raise Violation("signal", f"it died of {signal.Signals(-out.code).name}"
                            + (" and had its handlers for others" if out.was_ready else ""))
        if out.code not in DOCUMENTED:
            raise Violation("exit-code", f"{out.code} is not documented")
        if out.code == 75 and not (out.signalled and plan.signal != signal.SIGKILL):
            raise Violation("exit-code", "75, and nobody had asked it to stop")

    def _check_saved(self, out, whole):
        said = [int(n) for n in re.findall(r"saved after (\d+) steps", out.text)]
        if out.code == 75 and not said and out.has_words and "stopped before the first step;" not in out.text:
            raise Violation("false-save", "exit 75 without a word about a save")
        for step in said:
            if step not in whole:
                folder = os.path.join(self.run, "checkpoints", f"step-{step:012d}")
                problem = verify.checkpoint_problem(folder, step, self.world.uid)
                raise Violation("false-save",
                                f"\"saved after {step} steps\", and whole are {sorted(whole)}: {problem}")

    def _check_weights(self, whole):
        for step, c in whole.items():
            if self.weights.get(step, c.weights) != c.weights:
                raise Violation("wrong-weights", f"the checkpoint of step {step} is whole and has other weights than "
                                "the run that was left alone")

    def _check_progress(self, out, before, whole):
        newest = max(before, default=0)
        if max(whole, default=0) < newest:
            raise Violation("lost", f"the checkpoint of step {newest} was whole, and now whole are {sorted(whole)}")
        if len(whole) < min(self.keep, len(before)):
            raise Violation("lost", f"{sorted(before)} were whole, now {sorted(whole)}, with keep {self.keep}")
        shown = re.search(r"^(?:.*\r)?step (\d+)/\d+  loss", out.text, re.M)
        every = (self.steps + 19) // 20
        if shown and not newest < int(shown[1]) <= newest + every:
            raise Violation("resume", f"the newest whole checkpoint was of step {newest}; the first step that it shows "
                            f"is {shown[1]}")

    def _check_swept(self, whole):
        left = sorted(os.path.relpath(p, self.run) for p in verify.temporaries(self.run) if p not in self.unmarked)
        if left:
            raise Violation("left-behind", f"temporaries of dead processes after a run: {left}")
        found = verify.checkpoints(self.run, self.world.uid)
        half = sorted(step for step, c in found.items() if c.is_folder and not c.is_finished)
        if half:
            raise Violation("left-behind", f"checkpoints without a manifest after a run: {half}")
        damaged = sorted(step for step, c in found.items() if c.is_folder and step > max(whole, default=-1))
        if damaged:
            raise Violation("left-behind", f"damaged checkpoints newer than the newest whole one: {damaged}")
        if len(whole) > self.keep + 1:
            raise Violation("left-behind", f"{sorted(whole)} are there, with keep {self.keep}")

    def _check_success(self):
        final = os.path.join(self.run, "final", "model.safetensors")
        try:
            content = verify.digest(final)
        except OSError as problem:
            raise Violation("false-success", f"exit 0, and {final}: {problem}") from None
        if content != self.final:
            raise Violation("false-success",
                            "exit 0, and the weights of final/ are not those of the run that was left alone")
        price, receipt = (os.path.join(self.run, name) for name in ("price.json", "receipt.json"))
        compared = self.world.call("diff", price, receipt)
        if compared.returncode:
            raise Violation("false-success",
                            f"exit 0, and price and receipt do not tally: {(compared.stdout + compared.stderr)[-300:]}")
        if verify.read_json(receipt)["kinds"]["step"]["count"] != self.steps:
            raise Violation("false-success", f"exit 0, and the receipt is not of {self.steps} steps")
        if self.log_was_damaged:
            return
        log = os.path.join(self.run, "log.jsonl")
        problem = verify.log_problem(log)
        if problem or verify.plain_log(log) != self.log:
            raise Violation("log", "exit 0, and log.jsonl is not that of the run that was left alone: "
                            f"{problem or 'other numbers'}")

    def _refused(self, plan, out, change):
        """A refusal has a reason, names the place, and ends when the reason is gone. The reason may also be a file that
        the run has set aside since it last continued: then nothing can be repaired, and a new folder is started."""
        repairable = [d for d in self.damages if d.is_repairable]
        is_hindered = plan.file_limit or plan.closed
        if not (self.damages or change or is_hindered):
            raise Violation("refused", f"nothing was damaged, and it ended with {out.code}: {out.text[-300:]}")
        if out.has_words or not plan.closed:
            places = [self.run, self.data_file or self.run, self.model_folder or self.run]
            is_other = any(d.kind == "other_run" for d in self.damages) or (change and change.extra)
            is_setting = is_other and re.search(r"\b(lr|seed|beta1|weight_decay)\b", out.text)
            if 1 in plan.closed:
                places.append("standard output")
            if not is_setting and not any(place in out.text for place in places):
                raise Violation("nameless", f"exit {out.code} without the name of a file: {out.text[-300:]!r}")
        if "\x1b" in out.text:
            raise Violation("escapes", f"a control character in {out.text[-300:]!r}")
        self.tally[f"refusal: {self._class(out.text)}"] += 1
        self.damages = [d for d in self.damages if d not in repairable]
        if repairable or change or is_hindered:
            self._repair(repairable)
        else:
            self._begin_anew()
            self.damages = []

    def _begin_anew(self):
        self.tally["chain: begun anew in another folder"] += 1
        self.n_backups += 1
        os.rename(self.run, os.path.join(self.home, f"given-up-{self.n_backups}"))
        self.user_files, self.log_was_damaged = {}, False

    def _repair(self, damages):
        """A checkpoint that comes back may be newer than the log, which a process has cut back to what it found."""
        for d in reversed(damages):
            self.log_was_damaged |= d.is_outstanding and d.path.startswith(os.path.join(self.run, "checkpoints"))
            d.repair()

    def _class(self, text):
        """A refusal without what differs from run to run."""
        lines = [line for line in text.strip().splitlines()
                 if line.startswith("tally") and "checkpoint ignored" not in line]
        line = re.sub(re.escape(self.home) + r"/*", "", (lines or text.strip().splitlines() or ["no words"])[-1])
        line = re.sub(r"\b[0-9a-f]{8,}\b|-?\d+(\.\d+)?(e[-+]?\d+)?", "N", line)
        return re.sub(r'"[^"]{12,}"|\'[^\']*\'', '"..."', line)[:110]

    # ---- All of it

    def go(self, n_processes):
        self.story = [f"recipe {self.recipe}, keep {self.keep}, save_every {self.save_every}, save_best "
                      f"{self.save_best}, steps {self.steps}: "
                      + " ".join(self.arguments(self.run))]
        self._reference()
        is_finished, n_after = False, self.rng.randint(0, 3)
        for number in range(n_processes):
            is_finished = self.step(number, False, is_finished) or is_finished
            n_after -= is_finished
            if n_after < 0:
                break
        self._end()

    def _end(self):
        """Repaired and not disturbed again, the run must finish. Damage that training has passed stays, unless the run
        refuses it."""
        repaired = [d for d in self.damages if d.is_repairable and not (d.is_past and d.step_folder)]
        self.damages = [d for d in self.damages if d not in repaired]
        self._repair(repaired)
        if not any(self.step(number, True, False) for number in (10000, 10001, 10002)):
            raise Violation("no-end", f"left alone and repaired it does not end with success: {self.story[-1]}")

    def remove(self):
        for path in verify.walk(self.home):
            if os.path.isdir(path) and not os.path.islink(path):
                os.chmod(path, 0o700)
        shutil.rmtree(self.home, ignore_errors=True)


# ---- Folders that are not a run's

def foreign_folder(world, number):
    """A user's folder with files named like those of a run, including the data. They must stay, whatever the program
    does."""
    rng = random.Random(f"{world.seed}/foreign/{number}")
    home = world.folder(f"foreign-{number}")
    mine = os.path.join(home, "mine")
    os.mkdir(mine)
    names = ["stories.txt", "price.json", "receipt.json", "config.json", "log.jsonl", "machine.json",
             "events.out.tfevents.tally", "final/model.safetensors", "final/config.json",
             "checkpoints/step-000000000003/notes", ".tally-notes", "lock"]
    chosen = ["stories.txt"] + rng.sample(names[1:], rng.randint(0, 4))
    text = verify.read_bytes(world.text)
    for name in chosen:
        path = os.path.join(mine, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"" if name == "lock" else text)
    damage.own(mine, world.uid)
    before = {name: verify.digest(os.path.join(mine, name)) for name in chosen}
    data = rng.choice([["--data", os.path.join(mine, "stories.txt")], ["--data", world.text], []])
    arguments = [world.tally, "train", *SMALL, *data, "--steps", "3", "--warmup", "1", "--quiet", "--out", mine]
    out = process.run(arguments, process.Plan(), mine, home, world.uid, world.environment, LIMIT_S)
    story = f"a user's folder with {chosen}: {' '.join(arguments)} -> exit {out.code}: {out.text.strip()[-200:]}"
    if out.hung or out.code not in DOCUMENTED:
        raise Violation("hang" if out.hung else "exit-code", story)
    for name, content in before.items():
        path = os.path.join(mine, name)
        if not os.path.lexists(path) or verify.digest(path) != content:
            raise Violation("user-file", f"{name} was {'changed' if os.path.lexists(path) else 'deleted'}: {story}")
    shutil.rmtree(home)
