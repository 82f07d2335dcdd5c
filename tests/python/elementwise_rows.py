"""The rows of src/spec/elementwise_list.h with PyTorch's function for each. Tests and benchmarks of elementwise ops
derive from them."""
import functools
import importlib.machinery
import importlib.util
from pathlib import Path

import torch
import torch.nn.functional as F

TOOL = Path(__file__).resolve().parents[2] / "tools" / "elementwise_rows"
_loader = importlib.machinery.SourceFileLoader("elementwise_rows_tool", str(TOOL))
_tool = importlib.util.module_from_spec(importlib.util.spec_from_loader(_loader.name, _loader))
_loader.exec_module(_tool)

ROWS = [row for row in _tool.rows() if row["form"] != "SPECIAL" and row["in_place"] != "INTERNAL"]
# Where PyTorch's function has another name.
NAMES = {"gelu": functools.partial(F.gelu, approximate="tanh"), "gelu_erf": F.gelu,
         "swiglu": lambda gate, up: F.silu(gate) * up}


def theirs(name):
    """PyTorch's function, or None where it has none: such an op is compared with its samples alone."""
    return NAMES.get(name) or getattr(torch, name, None) or getattr(F, name, None)


UNARY = [row["name"] for row in ROWS if row["form"] == "UNARY" and theirs(row["name"])]
BINARY = [row["name"] for row in ROWS if row["form"] != "UNARY" and theirs(row["name"])]
IN_PLACE = {row["name"] for row in ROWS if row["in_place"] == "IN_PLACE"}
POSITIVE = {row["name"] for row in ROWS if row["values"] == "POSITIVE"}
UNKNOWN = [name for row in ROWS if not theirs(row["name"])
           for name in (row["name"], row["name"] + "_") if name == row["name"] or row["name"] in IN_PLACE]
