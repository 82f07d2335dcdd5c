"""torch.profiler over the ledger: what ran, how often, its FLOPs and bytes, and the seconds of its kernels."""
import enum
import json
import time

from ._ledger import Ledger, profile as _set_timing
from ._library import lib


class ProfilerActivity(enum.Enum):
    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class ProfilerAction(enum.Enum):
    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """Which steps are recorded: of every wait + warmup + active, the last `active`."""
    def action(step):
        step -= skip_first
        cycle = wait + warmup + active
        if step < 0 or repeat and step >= repeat * cycle:
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE
    return action


class record_function:
    """A named part of the program: its ops are billed to the path of this name."""

    def __init__(self, name, args=None):
        self.name = name

    def __enter__(self):
        self._scope = lib.scope_enter(self.name)
        return self

    def __exit__(self, *_):
        lib.scope_end(self._scope)
        return False


class _Event:
    """The calls of one op."""

    def __init__(self, key, count, seconds, flops, n_bytes):
        self.key, self.count, self.flops, self.bytes = key, count, flops, n_bytes
        self.self_cpu_time_total = self.cpu_time_total = self.self_device_time_total = seconds * 1e6
        self.device_time_total = self.cuda_time_total = self.cpu_time_total
        self.cpu_time = self.cpu_time_total / max(count, 1)


class _Events(list):
    """key_averages()"""

    def table(self, sort_by=None, row_limit=100, max_src_column_width=75, max_name_column_width=55, header=None,
              top_level_events_only=False):
        rows = sorted(self, key=lambda e: -(getattr(e, sort_by, 0) if sort_by else e.cpu_time_total))
        lines = [f"{'Name':40} {'Calls':>8} {'Time (us)':>12} {'FLOPs':>16} {'Bytes moved':>16}"]
        for e in rows[:row_limit] if row_limit >= 0 else rows:
            lines.append(f"{e.key[:40]:40} {e.count:8} {e.cpu_time_total:12.1f} {e.flops:16,} {e.bytes:16,}")
        return "\n".join(([header] if header else []) + lines)

    def __str__(self):
        return self.table()

    def total_average(self):
        return _Event("Total", sum(e.count for e in self), sum(e.cpu_time_total for e in self) / 1e6,
                      sum(e.flops for e in self), sum(e.bytes for e in self))


class profile:
    """Records what runs inside; `ledger` is the receipt."""

    def __init__(self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False,
                 profile_memory=False,
                 with_stack=False, with_flops=False, with_modules=False, experimental_config=None, use_cuda=None, **_):
        self._schedule, self._ready = schedule, on_trace_ready
        self.step_num, self.ledger, self._open = 0, None, None

    def _action(self):
        return self._schedule(self.step_num) if self._schedule else ProfilerAction.RECORD

    def _begin(self):
        self._timing = _set_timing(True)
        self._start = time.perf_counter()
        self._open = Ledger("profile")
        self._open.__enter__()

    def _end(self):
        if self._open is not None:
            self._open.__exit__()
            _set_timing(self._timing)
            self.ledger, self._open = self._open, None
            self._seconds = time.perf_counter() - self._start
            if self._ready:
                self._ready(self)

    def start(self):
        if self._action() in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._begin()

    def stop(self):
        self._end()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        return False

    def step(self):
        """The end of a step of the program."""
        records = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if self._action() is ProfilerAction.RECORD_AND_SAVE:
            self._end()
        self.step_num += 1
        if self._action() in records and self._open is None:
            self._begin()
        elif self._action() not in records:
            self._end()

    def _receipt(self):
        if self.ledger is None:
            raise RuntimeError("the profile is still open, or no step was recorded: read it after its `with` block")
        return self.ledger

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0):
        seconds = {}
        for row in self._receipt().data["rows"]:
            seconds[row["op"]] = seconds.get(row["op"], 0.0) + float(row.get("time_s", 0) or 0)
        return _Events(_Event(op, v["calls"], seconds.get(op, 0.0), v["flops"], v["bytes_read"] + v["bytes_written"])
                       for op, v in self._receipt().by("op").items())

    def events(self):
        return self.key_averages()

    def total_average(self):
        return self.key_averages().total_average()

    def export_chrome_trace(self, path):
        """One bar per module path and op, one after the other: their lengths are the seconds of their kernels."""
        at, events = 0.0, []
        for row in self._receipt().data["rows"]:
            length = float(row.get("time_s", 0) or 0) * 1e6
            events.append({"name": row["op"], "cat": row["path"], "ph": "X", "ts": at, "dur": length, "pid": 0,
                           "tid": 0, "args": {k: row[k] for k in ("calls", "flops") if k in row}})
            at += length
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events}, file)

    def add_metadata(self, key, value):
        pass

    add_metadata_json = add_metadata


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """Writes every recorded part as a trace into a folder."""
    def handle(prof):
        import os
        os.makedirs(dir_name, exist_ok=True)
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker_name or 'tally'}.{prof.step_num}.pt.trace.json"))
    return handle
