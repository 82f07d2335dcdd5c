"""Modules that hold modules."""
import collections
import itertools
import operator

from .module import Module, _indent


class Sequential(Module):
    """Each module on the result of the one before."""

    def __init__(self, *args):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], collections.OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def _key(self, index):
        n = len(self)
        index = operator.index(index)
        if not -n <= index < n:
            raise IndexError(f"index {index} is out of range")
        return next(itertools.islice(self._modules, index % n, None))

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(collections.OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def __setitem__(self, index, module):
        setattr(self, self._key(index), module)

    def __delitem__(self, index):
        keys = list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]
        for key in keys:
            del self._modules[key]
        modules = list(self._modules.values())
        self._modules.clear()
        for i, module in enumerate(modules):
            self._put_module(str(i), module)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self

    def extend(self, sequential):
        for module in sequential:
            self.append(module)
        return self

    def insert(self, index, module):
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._modules.clear()
        for i, m in enumerate(modules):
            self._put_module(str(i), m)
        return self


class _Holder(Module):
    """Has no forward: its children's scopes carry its name in front of theirs."""

    def _scope_of(self, name):
        return f"{self._scope}.{name}" if self._scope else name

    def _set_scope(self, scope):
        super()._set_scope(scope)
        for name, module in self._modules.items():
            if module is not None:
                module._set_scope(self._scope_of(name))


class ModuleList(_Holder):
    """A list of modules."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _key(self, index):
        n = len(self)
        index = operator.index(index)
        if not -n <= index < n:
            raise IndexError(f"index {index} is out of range")
        return str(index % n)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])
        return self._modules[self._key(index)]

    def __setitem__(self, index, module):
        setattr(self, self._key(index), module)

    def _refill(self, modules):
        self._modules.clear()
        for i, module in enumerate(modules):
            self._put_module(str(i), module)

    def __delitem__(self, index):
        modules = list(self._modules.values())
        self._key(index) if not isinstance(index, slice) else None
        del modules[index]
        self._refill(modules)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return ModuleList(list(self) + list(other))

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        if not isinstance(modules, collections.abc.Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in modules:
            self.append(module)
        return self

    def insert(self, index, module):
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._refill(modules)

    def pop(self, key):
        module = self[key]
        del self[key]
        return module

    def __repr__(self):
        texts = [repr(m) for m in self]
        if not texts:
            return self._get_name() + "()"
        groups = []  # runs of equal texts: [first, last, text]
        for i, text in enumerate(texts):
            if groups and groups[-1][2] == text:
                groups[-1][1] = i
            else:
                groups.append([i, i, text])
        lines = [_indent(f"({a}): {t}" if a == b else f"({a}-{b}): {b - a + 1} x {t}", 2) for a, b, t in groups]
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(_Holder):
    """Modules by name."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        self._modules.clear()

    def pop(self, key):
        return self._modules.pop(key)

    def keys(self):
        return self._modules.keys()

    def items(self):
        return self._modules.items()

    def values(self):
        return self._modules.values()

    def update(self, modules):
        for name, module in modules.items() if isinstance(modules, collections.abc.Mapping) else modules:
            self[name] = module


