"""That the soak finds what it looks for: programs that break one rule each, and the violation that must be reported."""
import os
import signal

import chain
import damage
import process

# NAME, what must be found, how the process is stopped, and what the program does instead: $real is the real program,
# $out the folder of the run.
TERM = process.Plan(signal.SIGTERM, after_s=1.5)
FAULTS = [
    ("crash", "signal", None, "kill -SEGV $$"),
    ("deaf to SIGHUP", "signal", process.Plan(signal.SIGHUP, after_s=1.5), "trap : TERM; sleep 5 & wait"),
    ("unknown exit code", "exit-code", None, "exit 9"),
    ("75 unasked", "exit-code", None, "exit 75"),
    ("never ends", "hang", None, "exec sleep 60"),
    ("says it saved", "false-save", TERM, "trap 'echo saved after 7 steps >&2; exit 75' TERM; sleep 5 & wait"),
    ("saves nothing", "false-save", TERM, "trap 'echo bye >&2; exit 75' TERM; sleep 5 & wait"),
    ("other weights at the end", "false-success", None,
     '"$real" "$@" && printf x | dd of="$out/final/model.safetensors" bs=1 seek=900 conv=notrunc 2>/dev/null'),
    ("no weights at the end", "false-success", None, '"$real" "$@" && rm -r "$out/final"'),
    ("another receipt", "false-success", None,
     '"$real" "$@" && sed -i "s/\\"calls\\": 1,/\\"calls\\": 2,/" "$out/receipt.json"'),
    ("another run's weights", "wrong-weights", None,
     '"$real" "$@" --seed 99 --out "$out.x" && rm -r "$out/checkpoints" && mv "$out.x/checkpoints" "$out"'),
    ("another log", "log", None, '"$real" "$@" && echo "{}x" >>"$out/log.jsonl"'),
    ("loses checkpoints", "lost", None, 'rm -rf "$out"/checkpoints/*; exit 0'),
    ("begins again", "resume", None, 'rm -rf "$out"/checkpoints/*; exec "$real" "$@"'),
    ("leaves a temporary", "left-behind", None, '"$real" "$@" && touch "$out/.tally-4194303-0.tmp"'),
    ("leaves half a checkpoint", "left-behind", None, '"$real" "$@" && mkdir "$out/checkpoints/step-000000000002"'),
    ("keeps everything", "left-behind", None, '"$real" "$@" --keep 1000'),
    ("writes through a link", "outside", None, 'echo x >>"$out/../outside/sentinel"; exec "$real" "$@"'),
    ("deletes a user's file", "user-file", None, 'rm "$out/mine"; exec "$real" "$@"'),
    ("refuses what is whole", "refused", None, 'echo "$out is damaged" >&2; exit 2'),
    ("refuses without a name", "nameless", process.Plan(file_limit=1 << 30), 'echo "something is damaged" >&2; exit 2'),
    ("goes on with other data", "changed-input", "input", 'exit 0'),
]


class Scripted(chain.Chain):
    """A chain without chance: text, fp32, a run that was stopped in its middle."""

    plan, input_damage = process.Plan(), False

    def _choose(self):
        self.recipe, self.keep, self.save_best, self.steps, self.save_every = "fp32", 2, False, 20, 4
        self.model_folder, self.data_file = None, os.path.join(self.home, "text")
        damage.copy(self.world.text, self.data_file, self.world.uid)
        self.settings = [*chain.SMALL, "--data", self.data_file, "--steps", "20", "--warmup", "1", "--save-every", "4",
                         "--save-best", "false", "--eval-every", "0", "--val-share", "0", "--sample-tokens", "0"]

    def _plan(self, rng, is_last):
        return self.plan

    def _damage(self, rng, is_finished):
        return damage.InputDamage(rng, self) if self.input_damage else None

    def begin(self):
        """Half of the run, made by the true program."""
        self.story = []
        self._reference()
        self.run_half()
        path = os.path.join(self.run, "mine")
        with open(path, "w") as file:
            file.write("mine\n")
        self.user_files[path] = chain.verify.digest(path)

    def run_half(self):
        damage.copy(os.path.join(self.home, "reference"), self.run, self.world.uid)
        damage.remove(os.path.join(self.run, "final"))
        for step in (4, 16, 20):
            damage.remove(os.path.join(self.run, "checkpoints", f"step-{step:012d}"))


def fake(world, real, name, body):
    path = os.path.join(world.work, "fake-" + name.replace(" ", "-").replace("'", ""))
    with open(path, "w") as file:
        file.write(f'#!/bin/bash\nreal={real}\nout=\nfor word; do [ "$last" = --out ] && out=$word; last=$word; done\n'
                   f'[ "$1" = train ] || exec "$real" "$@"\n{body}\n')
    os.chmod(path, 0o755)
    return path


def found(world, real, number, fault):
    name, _, how, body = fault
    world.tally = real
    c = Scripted(world, number)
    c.begin()
    if body:
        world.tally = fake(world, real, name, body)
    c.plan = how if isinstance(how, process.Plan) else process.Plan()
    c.input_damage = how == "input"
    try:
        c.step(0, False, False)
    except chain.Violation as v:
        return v.kind, v.detail
    finally:
        c.remove()
    return None, c.story[-1]


def foreign(world, real):
    world.tally = fake(world, real, "takes a users folder", 'rm "$out/stories.txt"; exit 0')
    try:
        chain.foreign_folder(world, 9)
    except chain.Violation as v:
        return v.kind, v.detail
    return None, ""


def run(program, work, uid):
    world = chain.World(program, work, 1, uid)
    world.prepare()
    failed, limit, chain.LIMIT_S = 0, chain.LIMIT_S, 10
    rows = [(fault, lambda number=number, fault=fault: found(world, program, number, fault))
            for number, fault in enumerate([("nothing wrong", None, None, ""), *FAULTS])]
    rows.append((("a user's folder", "user-file"), lambda: foreign(world, program)))
    for fault, look in rows:
        kind, detail = look()
        failed += kind != fault[1]
        print(f"  {'ok    ' if kind == fault[1] else 'FAILED'}  {fault[0]}: {kind or 'no violation'}"
              + ("" if kind == fault[1] else f" (need {fault[1]}): {detail}"), flush=True)
    chain.LIMIT_S = limit
    print(f"{len(rows) - failed} passed, {failed} failed")
    return failed != 0
