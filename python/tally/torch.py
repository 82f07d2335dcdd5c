"""Runs a program written for PyTorch, with Tally in torch's place.

    python -m tally.torch train.py --steps 100       a script and its arguments
    python -m tally.torch -m package.module          a module
    python -m tally.torch -c "import torch; ..."     a text

`import torch`, `import torch.nn.functional as F`, `from torch.utils.data import DataLoader` and the like give Tally's
modules of the same names. A name that is not there raises ImportError or AttributeError, which name it and say what
there is instead. `install()` does the same for the process that calls it.
"""
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import dis
import os
import runpy
import sys
import types

VERSION = "2.10.0"  # the PyTorch that the tests compare with
# Where torch's module is a part of another one here.
_PLACES = {"torch._dynamo": "tally.compiler", "torch._dynamo.config": "tally.compiler",
           "torch._inductor": "tally.compiler", "torch._inductor.config": "tally.compiler",
           "torch.nn.modules.module": "tally.nn.module", "torch.nn.modules.container": "tally.nn.containers",
           "torch.optim.adamw": "tally.optim", "torch.optim.adam": "tally.optim", "torch.optim.sgd": "tally.optim",
           "torch.autograd.function": "tally.autograd", "torch.autograd.variable": "tally.autograd",
           "torch._tensor": "tally._tensor", "torch.storage": "tally._tensor", "torch.functional": "tally",
           "torch.serialization": "tally._files", "torch.autograd.grad_mode": "tally._grad",
           "torch.cuda.amp.grad_scaler": "tally.amp", "torch.cuda.amp.autocast_mode": "tally.amp",
           "torch.amp.grad_scaler": "tally.amp", "torch.amp.autocast_mode": "tally.amp",
           "torch.cuda.random": "tally.cuda", "torch.nn.modules.loss": "tally.nn",
           "torch.utils.data.dataloader": "tally.utils.data", "torch.utils.data.dataset": "tally.utils.data",
           "torch.utils.data.sampler": "tally.utils.data", "torch.distributed.distributed_c10d": "tally.distributed",
           "torch.nn.parallel.distributed": "tally.nn.parallel", "torch.nn.utils.clip_grad": "tally.nn.utils",
           "torch.nn.utils.convert_parameters": "tally.nn.utils", "torch.utils.data.distributed": "tally.utils.data"}


def _is_import(frame):
    """Is the caller at `from torch import name`? Such a name raises ImportError, any other AttributeError."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return 0 <= at < len(code) and code[at] == dis.opmap["IMPORT_FROM"]


class _Torch(types.ModuleType):
    """The module `torch`: Tally's names, torch's version."""

    def __getattr__(self, name):
        import tally
        try:
            value = getattr(tally, name)
        except AttributeError:
            from tally._missing import message
            if name.startswith("__"):
                raise AttributeError(f"module 'torch' has no attribute '{name}'") from None
            place = _PLACES.get("torch." + name)
            if place:
                return importlib.import_module("torch." + name)
            kind = ImportError if _is_import(sys._getframe(1)) else AttributeError
            raise kind(message("torch." + name, name), name=name) from None
        if not isinstance(value, types.ModuleType):  # a module is found by its name, so that both spellings agree
            setattr(self, name, value)
        return value

    def __dir__(self):
        import tally
        return dir(tally)


def _make():
    import tally
    module = _Torch("torch", tally.__doc__)
    module.__dict__.update({k: v for k, v in vars(tally).items() if not k.startswith("__")})
    module.__path__, module.__version__, module.__file__ = [], VERSION + "+tally." + tally.__version__, tally.__file__
    return module


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """torch.a.b is tally.a.b, the same module object."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "torch" and not fullname.startswith("torch."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        if spec.name == "torch":
            return _make()
        place = _PLACES.get(spec.name, "tally" + spec.name[len("torch"):])
        if spec.name.startswith("torch.nn.modules.") and spec.name != "torch.nn.modules.utils":
            place = "tally.nn"
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("tally"):
                raise
            from tally._missing import message
            raise ModuleNotFoundError(message(spec.name, spec.name.split(".")[1]), name=spec.name) from None
        self._own = getattr(module, "__spec__", None)
        return module

    def exec_module(self, module):
        if not isinstance(module, _Torch):
            module.__spec__ = self._own  # importlib has set another


def install():
    """From here on, `import torch` imports Tally in this process."""
    loaded = sys.modules.get("torch")
    if loaded is not None and not isinstance(loaded, _Torch):
        raise ImportError("torch itself is imported already: put Tally in its place before that")
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    return importlib.import_module("torch")


def main(argv):
    if not argv or argv[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if argv else 2
    if argv[0] in ("-m", "-c") and len(argv) < 2:
        print(f"python -m tally.torch {argv[0]}: {'a module' if argv[0] == '-m' else 'a text'} is missing",
              file=sys.stderr)
        return 2
    install()
    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv[0] == "-c":
        sys.argv = ["-c"] + argv[2:]
        sys.path.insert(0, "")
        exec(compile(argv[1], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    else:
        if not os.path.exists(argv[0]):
            print(f"python -m tally.torch: {argv[0]}: no such file", file=sys.stderr)
            return 2
        sys.argv = argv
        sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
        runpy.run_path(argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.path[:1] = [] if sys.path[:1] == [os.getcwd()] else sys.path[:1]  # `-m` has put it there; a script has its own
    from tally.torch import main as _main  # the module, which the program under way is not
    sys.exit(_main(sys.argv[1:]))
