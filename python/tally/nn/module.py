"""Module: torch.nn.Module.

Parameters, buffers and child modules are registered by assignment. Calling a module opens a scope with its name, so the
ledger bills the ops inside to the path of attribute names ("GPT.blocks.3.attn"), as for programs in C.
"""
import collections
import itertools

from .._library import constants, lib
from .._tensor import Tensor
from .._types import DTYPES, as_device, as_dtype, device as device_type, dtype as dtype_type
from ..autograd import RemovableHandle
from .parameter import Buffer, Parameter

_PARAMETER = constants["TL_PARAMETER"]
_numbers = itertools.count()


class _IncompatibleKeys(collections.namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    __slots__ = ()

    def __repr__(self):
        return ("<All keys matched successfully>" if not self.missing_keys and not self.unexpected_keys
                else super().__repr__())


def _kind(x):
    return type(x).__name__


class Module:
    """The base class of all modules: assign parameters and modules in __init__, compute in forward."""

    training: bool
    dump_patches = False

    def __init__(self, *args, **kwargs):
        set_ = super().__setattr__
        set_("training", True)
        for name in ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_state_dict_hooks",
                     "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_backward_hooks",
                     "_backward_pre_hooks"):
            set_(name, {})
        set_("_non_persistent_buffers_set", set())
        set_("_scope", None)

    def forward(self, *args, **kwargs):
        raise NotImplementedError(f'Module [{_kind(self)}] is missing the required "forward" function')

    def __call__(self, *args, **kwargs):
        d = self.__dict__
        try:
            scope = lib.scope_enter(d["_scope"] or type(self).__name__)
        except KeyError:
            raise AttributeError(f"cannot call {_kind(self)} before Module.__init__() call") from None
        try:
            if d["_forward_pre_hooks"] or d["_forward_hooks"] or d["_backward_hooks"] or d["_backward_pre_hooks"]:
                return self._call_with_hooks(args, kwargs)
            return self.forward(*args, **kwargs)
        finally:
            lib.scope_end(scope)

    # ---- Hooks ----

    def _call_with_hooks(self, args, kwargs):
        for hook, with_kwargs, _ in list(self._forward_pre_hooks.values()):
            changed = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if changed is None:
                continue
            if with_kwargs:
                args, kwargs = changed
            else:
                args = changed if isinstance(changed, tuple) else (changed,)
        if self._backward_hooks or self._backward_pre_hooks:
            from .backward_hooks import forward_between
            result = forward_between(self, args, kwargs)
        else:
            result = self.forward(*args, **kwargs)
        for hook, with_kwargs, _ in list(self._forward_hooks.values()):
            changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
            result = result if changed is None else changed
        return result

    @staticmethod
    def _add_hook(hooks, hook, with_kwargs, prepend):
        number = next(_numbers)
        entries = [(number, (hook, with_kwargs, None))]
        if prepend:
            entries += list(hooks.items())
            hooks.clear()
        hooks.update(entries)
        return RemovableHandle(hooks, number)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """hook(module, args, result) after forward; its return value, unless None, replaces the result."""
        return self._add_hook(self._forward_hooks, hook, with_kwargs, prepend)

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """hook(module, args) before forward; its return value, unless None, replaces args."""
        return self._add_hook(self._forward_pre_hooks, hook, with_kwargs, prepend)

    def register_full_backward_hook(self, hook, prepend=False):
        """hook(module, grad_input, grad_output) when the gradients of the module's inputs are known; its return value,
        unless None, replaces grad_input."""
        return self._add_hook(self._backward_hooks, hook, False, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """hook(module, grad_output) before backward goes through the module; its return value, unless None, replaces
        grad_output."""
        return self._add_hook(self._backward_pre_hooks, hook, False, prepend)

    def register_load_state_dict_post_hook(self, hook):
        """hook(module, incompatible_keys) after load_state_dict."""
        number = next(_numbers)
        self._load_state_dict_post_hooks[number] = hook
        return RemovableHandle(self._load_state_dict_post_hooks, number)

    def register_state_dict_post_hook(self, hook):
        """hook(module, state_dict, prefix, local_metadata) after state_dict has been made."""
        number = next(_numbers)
        self._state_dict_hooks[number] = hook
        return RemovableHandle(self._state_dict_hooks, number)

    def register_load_state_dict_pre_hook(self, hook):
        """hook(module, state_dict, prefix, ...) before a module takes its part of a state_dict."""
        number = next(_numbers)
        self._load_state_dict_pre_hooks[number] = hook
        return RemovableHandle(self._load_state_dict_pre_hooks, number)

    # ---- Registration ----

    def _check_name(self, kind, name, table):
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_kind(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: {name}' if kind == "module"
                           else f'{kind} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in table:
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name, param):
        """Registers a parameter under a name; None for a missing one."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name("parameter", name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{_kind(param)}' object to parameter '{name}' (torch.nn.Parameter or None "
                            "required)")
        if param is not None and not param.is_leaf:
            raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created "
                             f"explicitly. To express '{name}' as a function of another Tensor, compute the value in "
                             "the forward() method.")
        self._parameters[name] = param

    def register_buffer(self, name, tensor, persistent=True):
        """A tensor that is part of the state but is not trained; not in state_dict where it is not persistent."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{_kind(tensor)}' object to buffer '{name}' (torch Tensor or None "
                            "required)")
        self._buffers[name] = tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name, module):
        """Registers a child under a name; None for a missing one."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{_kind(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        self._put_module(name, module)

    register_module = add_module

    def _put_module(self, name, module):
        self._modules[name] = module
        if module is not None:
            module._set_scope(self._scope_of(name))

    def _scope_of(self, name):
        """The name that a child's scope has inside this module's."""
        return name

    def _set_scope(self, scope):
        self.__dict__["_scope"] = scope

    def __setattr__(self, name, value):
        d = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in d:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            _remove(name, d, self._buffers, self._modules, self._non_persistent_buffers_set)
            self.register_parameter(name, value)
        elif name in d.get("_parameters", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{_kind(value)}' as parameter '{name}' (torch.nn.Parameter or None "
                                "expected)")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if "_modules" not in d:
                raise AttributeError("cannot assign module before Module.__init__() call")
            _remove(name, d, self._parameters, self._buffers, self._non_persistent_buffers_set)
            self._put_module(name, value)
        elif name in d.get("_modules", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{_kind(value)}' as child module '{name}' (torch.nn.Module or None "
                                "expected)")
            self._modules[name] = value
        elif isinstance(value, Buffer) or name in d.get("_buffers", ()):
            persistent = value.persistent if isinstance(value, Buffer) else name not in self._non_persistent_buffers_set
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign '{_kind(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or "
                                "None expected)")
            _remove(name, d)
            self.register_buffer(name, value, persistent)
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name):  # asked only where nothing of that name was found
        d = self.__dict__
        for table in ("_parameters", "_buffers", "_modules"):
            if name in d.get(table, ()):
                return d[table][name]
        raise AttributeError(f"'{_kind(self)}' object has no attribute '{name}'")

    def __delattr__(self, name):
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self):
        return sorted(set(dir(type(self))) | set(self.__dict__) | set(self._parameters) | set(self._buffers)
                      | set(self._modules))

    # ---- Walking ----

    def children(self):
        for _, module in self.named_children():
            yield module

    def named_children(self):
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self):
        for _, module in self.named_modules():
            yield module

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    def _named_members(self, table, prefix, recurse, remove_duplicate):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, x in getattr(module, table).items():
                if x is None or id(x) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(x))
                yield path + ("." if path else "") + name, x

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        yield from self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        for _, x in self.named_parameters(recurse=recurse):
            yield x

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        yield from self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        for _, x in self.named_buffers(recurse=recurse):
            yield x

    def _member(self, path, kind):
        module = self
        parts = path.split(".")
        for name in parts[:-1] if kind != "module" else parts if path else []:
            if not hasattr(module, name):
                raise AttributeError(f"{_kind(module)} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module, parts[-1]

    def get_submodule(self, target):
        return self._member(target, "module")[0]

    def get_parameter(self, target):
        module, name = self._member(target, "parameter")
        if name not in module._parameters:
            raise AttributeError(f"`{name}` is not an nn.Parameter" if hasattr(module, name)
                                 else f"{_kind(module)} has no attribute `{name}`")
        return module._parameters[name]

    def get_buffer(self, target):
        module, name = self._member(target, "buffer")
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer" if hasattr(module, name)
                                 else f"{_kind(module)} has no attribute `{name}`")
        return module._buffers[name]

    # ---- State ----

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """Every parameter and persistent buffer by its path; they share memory with the module."""
        if args:  # an older order of arguments
            destination, prefix, keep_vars = (*args, *(destination, prefix, keep_vars)[len(args):])
        state = collections.OrderedDict() if destination is None else destination
        for table, left_out in ((self._parameters, ()), (self._buffers, self._non_persistent_buffers_set)):
            for name, x in table.items():
                if x is not None and name not in left_out:
                    state[prefix + name] = x if keep_vars else x.detach()
        extra = self.get_extra_state() if type(self).get_extra_state is not Module.get_extra_state else None
        if extra is not None:
            state[prefix + "_extra_state"] = extra
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=state, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in list(self._state_dict_hooks.values()):
            hook(self, state, prefix, {})
        return state

    def get_extra_state(self):
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state):
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copies values into parameters and buffers; with assign, the tensors themselves become the parameters."""
        if not isinstance(state_dict, collections.abc.Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing, unexpected, problems = [], [], []
        self._load(dict(state_dict), "", assign, missing, unexpected, problems)
        if strict and unexpected:
            problems.insert(0, "Unexpected key(s) in state_dict: " + ", ".join(f'"{k}"' for k in unexpected) + ". ")
        if strict and missing:
            problems.insert(0, "Missing key(s) in state_dict: " + ", ".join(f'"{k}"' for k in missing) + ". ")
        keys = _IncompatibleKeys(missing, unexpected)
        for module in self.modules():
            for hook in list(module._load_state_dict_post_hooks.values()):
                hook(module, keys)
        if problems:
            raise RuntimeError("Error(s) in loading state_dict for "
                               "{}:\n\t{}".format(_kind(self), "\n\t".join(problems)))
        return keys

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                              error_msgs):
        """Loads this module's own part; modules that support older formats override it."""
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = dict(self._parameters,
                   **{k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set})
        for name, x in own.items():
            key = prefix + name
            if x is None:
                continue
            if key not in state_dict:
                missing_keys.append(key)
                continue
            given = state_dict[key]
            if not isinstance(given, Tensor):
                error_msgs.append(f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
                                  f'object from checkpoint but received {type(given)}')
            elif given.shape != x.shape:
                error_msgs.append(f"size mismatch for {key}: copying a param with shape {_size(given)} from "
                                  f"checkpoint, the shape in current model is {_size(x)}.")
            elif assign:
                self._assign(name, x, given)
            else:
                lib.tl_copy_(lib.tl_detach(x), lib.tl_detach(given))
        self._load_extra(state_dict, prefix, missing_keys)
        if strict:
            unexpected_keys += [k for k in state_dict if k.startswith(prefix)
                                and self._is_unknown(k[len(prefix):], own)]

    def _assign(self, name, x, given):
        if isinstance(x, Parameter) and not isinstance(given, Parameter):
            given = Parameter(given, requires_grad=x.requires_grad)
        setattr(self, name, given)

    def _load_extra(self, state_dict, prefix, missing):
        if type(self).set_extra_state is not Module.set_extra_state:
            key = prefix + "_extra_state"
            self.set_extra_state(state_dict[key]) if key in state_dict else missing.append(key)

    def _is_unknown(self, key, own):
        first, _, rest = key.partition(".")
        if rest or key.endswith("."):
            return first not in self._modules
        return key not in own and not (key == "_extra_state"
                                       and type(self).set_extra_state is not Module.set_extra_state)

    def _load(self, state, prefix, assign, missing, unexpected, problems):
        metadata = {"assign_to_params_buffers": assign}
        for hook in list(self._load_state_dict_pre_hooks.values()):
            hook(self, state, prefix, metadata, True, missing, unexpected, problems)
        self._load_from_state_dict(state, prefix, metadata, True, missing, unexpected, problems)
        for name, module in self._modules.items():
            if module is not None:
                inner = prefix + name + "."
                module._load({k: v for k, v in state.items() if k.startswith(inner)}, inner, assign, missing,
                             unexpected, problems)

    # ---- Changing all of it ----

    def apply(self, fn):
        """fn(module) on every module, children first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn, recurse=True):
        """fn on every tensor; parameters stay the objects they are."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for x in self._parameters.values():
            if x is not None:
                _replace(x, fn)
        for name, x in self._buffers.items():
            if x is not None:
                self._buffers[name] = fn(x)
        return self

    def to(self, *args, device=None, dtype=None, non_blocking=False):
        """Changes the dtype (of floats only) or the device, in place."""
        for a in args:
            if isinstance(a, Tensor):
                dtype, device = a.dtype, a.device
            elif isinstance(a, dtype_type):
                dtype = a
            elif isinstance(a, (str, device_type, int)) and not isinstance(a, bool):
                device = a
        if dtype is not None and not as_dtype(dtype).is_inexact:
            raise TypeError("nn.Module.to only accepts floating point or complex dtypes, but got desired "
                            f"dtype={dtype}")
        address = None if device is None else as_device(device).address

        def move(x):
            if dtype is not None and x.dtype.is_inexact:
                x = lib.tl_cast(x, as_dtype(dtype).code)
            return x if address is None else lib.tl_to(x, address)
        return self._apply(move)

    def to_empty(self, *, device, recurse=True):
        """Moves to another device without the values: uninitialised."""
        address = as_device(device).address
        return self._apply(lambda x: lib.tl_empty(lib.shape_of(x), lib.tl_dtype_of(x), address), recurse)

    def float(self):
        return self.to(dtype=DTYPES[1])

    def double(self):
        return self.to(dtype=DTYPES[0])

    def half(self):
        return self.to(dtype=DTYPES[2])

    def bfloat16(self):
        return self.to(dtype=DTYPES[3])

    def type(self, dst_type):
        return self._apply(lambda x: x.to(dst_type))

    def cpu(self):
        return self.to(device="cpu")

    def cuda(self, device=None):
        return self.to(device="cuda" if device is None else device)

    def train(self, mode=True):
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        for x in self.parameters():
            x.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        for x in self.parameters():
            lib.tl_zero_grad(x, not set_to_none)

    def share_memory(self):
        raise NotImplementedError("memory shared between processes is not there")

    def compile(self, *args, **kwargs):
        """Nothing is compiled: ops run as they are called."""

    # ---- Text ----

    def extra_repr(self):
        return ""

    def _get_name(self):
        return _kind(self)

    def __repr__(self):
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + _indent(repr(module), 2) for name, module in self._modules.items()]
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({lines[0]})"
        lines += children
        return f"{self._get_name()}(" + ("\n  " + "\n  ".join(lines) + "\n" if lines else "") + ")"


def _size(x):
    return f"torch.Size([{', '.join(map(str, x.shape))}])"


def _remove(name, *tables):
    for table in tables:
        if name in table:
            table.discard(name) if isinstance(table, set) else table.pop(name)


def _replace(parameter, fn):
    """The same object over fn's result; its gradient goes the same way."""
    grad = parameter.grad
    data = fn(parameter.data)
    parameter.data = data
    lib.tl_set_purpose(parameter, _PARAMETER)
    if grad is not None:
        parameter.grad = fn(grad)


def _indent(text, n):
    first, *rest = text.split("\n")
    return "\n".join([first] + [" " * n + line for line in rest])
