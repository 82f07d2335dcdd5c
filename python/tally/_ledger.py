"""The cost of a section of code: counted while it runs (ledger), or beforehand, on shapes only (price).

    with tally.ledger() as receipt:
        loss = model(x); loss.backward()
    receipt.flops, receipt.bytes, receipt.peak

    tally.price(model, (8, 128))          # the same numbers, without running anything

Both are Ledgers. They print as tables, are displayed in notebooks, and compare exactly: `price.diff(receipt)` is "" if
they agree.
"""
import copy
import ctypes
import html
import json

from . import autograd
from ._library import c, lib
from ._tensor import Tensor
from ._types import Size, as_device, as_dtype, get_default_dtype

_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]
_COUNTS = ("calls", "flops", "bytes_read", "bytes_written", "transfer_bytes")


def _taken(address):
    """The text at an address that the library malloc'ed, which is freed."""
    if not address:
        autograd._raise()
    text = ctypes.string_at(address).decode()
    _libc.free(address)
    return text


class Ledger:
    """Calls, FLOPs, bytes moved and bytes held, by module path, op, phase and dtype. It can be read once its `with`
    block has ended."""

    def __init__(self, name="ledger", device=None):
        self.name, self.result = name, None
        self._device = None if device is None else as_device(device)
        self._address, self._data, self._text = None, None, None

    def __enter__(self):
        if self._device is None:
            self._device = default_device()
        self._device.address  # found before the ledger opens
        self._address = lib.tl_ledger_begin(self.name)
        return self

    def __exit__(self, *_):
        lib.tl_ledger_end(self._address)
        self._text = _taken(lib.tl_ledger_json(self._address, self._device.address))
        self._data = json.loads(self._text)
        lib.tl_ledger_free(self._address)
        self._address = None

    @property
    def data(self):
        """The whole ledger: the dictionary of schema tally.ledger/1."""
        if self._data is None:
            raise RuntimeError("the ledger is still open: read it after its `with` block")
        return self._data

    def _total(self, key):
        return int(self.data["totals"][key])

    calls = property(lambda l: l._total("calls"))
    flops = property(lambda l: l._total("flops"))
    bytes_read = property(lambda l: l._total("bytes_read"))
    bytes_written = property(lambda l: l._total("bytes_written"))
    bytes = property(lambda l: l.bytes_read + l.bytes_written,
                     doc="Bytes moved: each distinct input once, each output once.")
    transfer_bytes = property(lambda l: l._total("transfer_bytes"))
    intensity = property(lambda l: l.flops / l.bytes if l.bytes else 0.0, doc="FLOPs per byte moved.")

    @property
    def peak(self):
        """The most bytes held at once on the device."""
        return int(self.data.get("memory", {}).get("peak_bytes", 0))

    @property
    def peak_by_purpose(self):
        return {k: int(v) for k, v in self.data.get("memory", {}).get("peak_by_purpose", {}).items()}

    @property
    def rows(self):
        """One dictionary per (path, op, phase, dtype), counts as int."""
        return [{k: int(v) if k in _COUNTS else v for k, v in row.items()} for row in self.data["rows"]]

    def by(self, *keys):
        """Counts summed over rows with the same keys: by("phase"), by("path", "op"); the costliest first."""
        sums = {}
        for row in self.rows:
            key = tuple(row[k] for k in keys)
            total = sums.setdefault(key, dict.fromkeys(_COUNTS, 0))
            for k in _COUNTS:
                total[k] += row[k]
        return dict(sorted(((k[0] if len(k) == 1 else k, v) for k, v in sums.items()),
                           key=lambda item: -item[1]["flops"]))

    def json(self):
        """The text of schema tally.ledger/1."""
        self.data
        return self._text

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.json())

    def diff(self, other):
        """A table of differences in FLOPs, bytes, calls and peaks; "" if the two agree."""
        report = ctypes.c_void_p()
        n = c.tl_ledger_diff(self.json().encode(), other.json().encode(), ctypes.byref(report))
        text = _taken(report.value) if report.value else ""
        if n < 0:
            autograd._raise()
        return text if n else ""

    # ---- As tables ----

    def _tables(self):
        """(title, head, rows) of what one wants to see first."""
        phases = [(k, v["calls"], v["flops"], v["bytes_read"] + v["bytes_written"])
                  for k, v in self.by("phase").items()]
        phases.append(("total", self.calls, self.flops, self.bytes))
        yield f"{self.name} on {self.data['device']}", ("phase", "calls", "FLOPs", "bytes moved"), phases
        ops = [(*k, v["calls"], v["flops"], v["bytes_read"] + v["bytes_written"])
               for k, v in self.by("op", "dtype").items()]
        yield "costliest ops", ("op", "dtype", "calls", "FLOPs", "bytes moved"), ops[:12]
        held = [(k, v) for k, v in self.peak_by_purpose.items() if v] + [("peak", self.peak)]
        yield "bytes held at the peak", ("purpose", "bytes"), held

    def __str__(self):
        if self._data is None:
            return f"<Ledger {self.name!r}, open>"
        return "\n\n".join(_text_table(*t) for t in self._tables())

    __repr__ = __str__

    def _repr_html_(self):
        if self._data is None:
            return html.escape(str(self))
        tables = "".join(_html_table(*t) for t in self._tables())  # also where a notebook is not trusted to run scripts
        return _taken(lib.tl_page(self._text, True)) + f"<details><summary>Tables</summary>{tables}</details>"


def _cell(value):
    return f"{value:,}" if isinstance(value, int) else str(value)


def _text_table(title, head, rows):
    cells = [list(head)] + [[_cell(v) for v in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    is_number = [i > 0 and all(isinstance(row[i], int) for row in rows) for i in range(len(head))]
    lines = ["  ".join(v.rjust(w) if n else v.ljust(w) for v, w, n in zip(row, widths, is_number)).rstrip()
             for row in cells]
    return "\n".join([title] + ["  " + line for line in lines])


def _html_table(title, head, rows):
    top = "".join(f"<th style='text-align:{'left' if not i else 'right'}'>{html.escape(h)}</th>"
                  for i, h in enumerate(head))
    cells = ["".join(f"<td style='text-align:{'right' if isinstance(v, int) else 'left'}'>{html.escape(_cell(v))}</td>"
                     for v in row) for row in rows]
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><caption>{html.escape(title)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def ledger(name="ledger", device=None):
    """`with tally.ledger() as l:` counts the cost of the block; `device` (default: the default device) selects the
    memory."""
    return Ledger(name, device)


# ---- The default device ----

def default_device(device=None):
    """The device that creation functions of this thread use; given one, sets it and returns the one before."""
    from ._types import device_at
    cpu = as_device("cpu").address
    if device is not None:
        return device_at(lib.tl_set_default_device(as_device(device).address))
    before = lib.tl_set_default_device(cpu)
    lib.tl_set_default_device(before)
    return device_at(before)


def set_default_device(device):
    default_device("cpu" if device is None else device)


get_default_device = default_device


# ---- Prices ----

def price(function, *arguments, device="meta", name="price"):
    """The cost of a call, without running it.

    Arguments stand for tensors: a shape (a tuple of ints, in the default dtype), (shape, dtype), or a tensor, of which
    only shape and dtype are used. A module, as the function or as an argument, is priced with copies of its parameters
    without data. Anything else is passed unchanged. `device` is "meta" for this machine, or "meta:h200" and the like.
    Tensors made inside have no data either. Returns a Ledger; its .result is the function's result."""
    target = as_device(device)
    if target.type != "meta":
        raise ValueError(f"a price is made on meta, not on {target}")
    before = default_device(target)
    try:
        function = _shadow(function, target)
        arguments = [_stand_in(a, target) for a in arguments]
        with Ledger(name, target) as l:
            l.result = function(*arguments)
    finally:
        default_device(before)
    return l


def _shadow(function, target):
    """A module as a copy with parameters on meta; anything else as it is."""
    return copy.deepcopy(function).to(target) if hasattr(function, "named_parameters") else function


def _is_shape(a):
    return isinstance(a, (tuple, Size)) and all(isinstance(n, int) and not isinstance(n, bool) for n in a)


def _stand_in(a, target):
    if isinstance(a, Tensor):
        x = lib.tl_empty(lib.shape_of(a), lib.tl_dtype_of(a), target.address)
        return x.requires_grad_(True) if a.requires_grad else x
    if _is_shape(a):
        return lib.tl_empty(a, get_default_dtype().code, target.address)
    if isinstance(a, tuple) and len(a) == 2 and _is_shape(a[0]):
        return lib.tl_empty(a[0], as_dtype(a[1]).code, target.address)
    return _shadow(a, target)


def profile(on=True):
    """Times every kernel (and waits for it), for the time_s of ledgers. Returns the setting before."""
    return c.tl_set_profiling(on)




# ---- Prices that are held ----

def _rows(ledger):
    return {tuple(row[k] for k in ("path", "op", "phase", "dtype")): tuple(row[k] for k in _COUNTS)
            for row in ledger.rows}


def differences(price, receipt):
    """The rows in which calls, FLOPs or bytes differ, as texts; [] if none. Peaks are not compared: what was there
    before the call counts for a receipt."""
    a, b = _rows(price), _rows(receipt)
    found = []
    for key in sorted({*a, *b}, key=str):
        if a.get(key) != b.get(key):
            found.append(f"{' '.join(map(str, key))}: price {dict(zip(_COUNTS, a.get(key, ())))}, receipt "
                         f"{dict(zip(_COUNTS, b.get(key, ())))}")
    return found


class priced:
    """A function with its price: each call is priced on shapes, run, and counted. `price`, `receipt` and `diff` (a list
    of texts, [] if they agree) are those of the last call.

        @tally.priced
        def step(x): ...
    """

    def __init__(self, function):
        self.function, self.price, self.receipt = function, None, None
        self.__name__, self.__doc__ = getattr(function, "__name__", "priced"), function.__doc__

    def __call__(self, *arguments):
        self.price = price(self.function, *arguments)
        with Ledger(self.__name__) as self.receipt:
            return self.function(*arguments)

    @property
    def diff(self):
        if self.receipt is None:
            raise RuntimeError(f"{self.__name__} has not been called")
        return differences(self.price, self.receipt)


_LIMITS = ("flops", "bytes", "bytes_read", "bytes_written", "calls", "peak", "transfer_bytes")


def assert_price(function, *arguments, device="meta", runs=False, **expected):
    """Raises AssertionError where the price of a call is not the expected one: flops, bytes, bytes_read, bytes_written,
    calls, peak, transfer_bytes, each a number, or a pair (least, most). With runs=True the call also runs, on tensors,
    and its receipt must agree with the price. Returns the price."""
    unknown = set(expected) - set(_LIMITS)
    if unknown:
        raise TypeError(f"assert_price: {', '.join(sorted(unknown))}: a price has {', '.join(_LIMITS)}")
    found = price(function, *arguments, device=device)
    wrong = []
    for name, want in expected.items():
        value = getattr(found, name)
        low, high = want if isinstance(want, tuple) else (want, want)
        if not low <= value <= high:
            wrong.append(f"{name} is {value:,}, expected {low:,}" + (f" to {high:,}" if high != low else ""))
    if runs:
        with Ledger("receipt") as receipt:
            function(*arguments)
        wrong += differences(found, receipt)
    if wrong:
        raise AssertionError("\n".join(wrong) + f"\n\n{found}")
    return found
