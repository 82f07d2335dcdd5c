"""Pages about runs, ledgers and prices: what `tally report` draws, as a file or in a notebook.

    tally.report("runs/a", "runs/b")            # in a notebook: the page
    tally.report("runs/a").write("a.html")      # the same as `tally report runs/a -o a.html`
"""
import ctypes
import json
import os

from ._ledger import _taken
from ._library import c, lib

_report = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int)(("tl_report_json", c))


def _page(text, is_frame):
    return _taken(lib.tl_page(text, is_frame))


class Report:
    """The page of some runs. Their folders are read whenever it is shown, so a run that trains has news."""

    def __init__(self, *runs):
        self.runs = [os.fspath(run) for run in runs]

    def json(self):
        """The text of schema tally.report/1."""
        folders = (ctypes.c_char_p * len(self.runs))(*map(os.fsencode, self.runs))
        return _taken(_report(folders, len(self.runs)))

    @property
    def data(self):
        """The dictionary of schema tally.report/1."""
        return json.loads(self.json())

    def html(self):
        """One HTML file that needs no other."""
        return _page(self.json(), False)

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html())

    def __repr__(self):
        return f"<Report of {', '.join(self.runs)}>"

    def _repr_html_(self):
        return _page(self.json(), True)


def report(*runs):
    """A page about the runs in these folders. It shows itself in a notebook; `write` makes a file of it."""
    return Report(*runs)


class Summary(dict):
    """How a run ended: a dictionary that a notebook shows as the run's page."""

    def report(self):
        return Report(self["out"])

    def _repr_html_(self):
        return self.report()._repr_html_()


class Price(dict):
    """What a run would cost: a dictionary of schema tally.run/1 that a notebook shows as a page."""

    def _repr_html_(self):
        return _page(json.dumps(self), True)
