"""Tally's tensors in the einops package: rearrange(x, "b c h w -> b (c h w)") with x a tally.Tensor.

einops looks for a backend among the subclasses of its AbstractBackend. Tally defines one as soon as einops is imported:
immediately if that happened before, otherwise at the import. Tally never imports einops and changes nothing in it.
"""
import importlib.abc
import importlib.util
import sys

_MODULE = "einops._backends"


_backend = None  # held here: einops knows its backends only by a list of subclasses, which keeps none alive


def _define(backends):
    """Gives einops its backend for our tensors."""
    global _backend
    import tally

    class TallyBackend(backends.AbstractBackend):
        framework_name = "tally"

        def is_appropriate_type(self, tensor):
            return isinstance(tensor, tally.Tensor)

        def from_numpy(self, x):
            tensor = tally.from_numpy(x)
            return tensor.requires_grad_() if tensor.is_floating_point() else tensor

        def to_numpy(self, x):
            return x.detach().cpu().numpy()

        def arange(self, start, stop):
            return tally.arange(start, stop, dtype=tally.int64)

        def shape(self, x):
            return tuple(x.shape)

        def transpose(self, x, axes):
            return x.permute(axes)

        def reduce(self, x, operation, axes):
            axes = tuple(axes)
            if operation in ("min", "max"):
                return x.amin(axes) if operation == "min" else x.amax(axes)
            if operation in ("sum", "mean"):
                return x.sum(axes) if operation == "sum" else x.mean(axes)
            if operation not in ("prod", "any", "all"):
                raise NotImplementedError(f"reduction {operation} is not known here")
            # These take one axis. One after the other would overflow in a product where all at once does not.
            kept = [axis for axis in range(x.ndim) if axis not in axes]
            return getattr(x.permute(*kept, *axes).flatten(len(kept)), operation)(-1) if axes else x

        def stack_on_zeroth_dimension(self, tensors):
            return tally.stack(tensors)

        def add_axis(self, x, new_position):
            return x.unsqueeze(new_position)

        def add_axes(self, x, n_axes, pos2len):
            sizes = [-1] * n_axes
            for position, length in pos2len.items():
                x = x.unsqueeze(position)
                sizes[position] = length
            return x.expand(sizes)  # a view: nothing is copied

        def tile(self, x, repeats):
            return x.tile(repeats)

        def concat(self, tensors, axis):
            return tally.cat(tensors, axis)

        def is_float_type(self, x):
            return x.is_floating_point()

        def einsum(self, pattern, *x):
            return tally.einsum(pattern, *x)

    _backend = TallyBackend


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, and then calls us."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        _define(module)

    def __getattr__(self, name):  # reading sources, resources: the module's own loader
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for einops to be imported; finds that one module, once, and nothing else."""

    def find_spec(self, name, path=None, target=None):
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


if _MODULE in sys.modules:
    _define(sys.modules[_MODULE])
else:
    sys.meta_path.insert(0, _Finder())
