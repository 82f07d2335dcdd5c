"""Tensor: torch.Tensor over a tl_tensor.

The functions of _functions.py are methods here unchanged. Written by hand are methods that differ (sizes as separate
arguments), operators, functions that read or describe a tensor, and in-place forms.
"""
import ctypes
import functools

from . import _complex, _composed, _creation, _errors, _functions, _index, _late, _memory
from ._functions import _axis, _sizes
from ._library import c, constants, lib
from ._numpy import known, np
from ._types import (BY_NAME, DTYPES, Size, as_device, as_dtype, bool_, device_at, dtype as dtype_type,
                     device as device_type, float64)

_LT, _LE, _GT, _GE, _EQ, _NE = (constants["TL_" + n] for n in ("LT", "LE", "GT", "GE", "EQ", "NE"))
_RETAIN, _CREATE = constants["TL_RETAIN_GRAPH"], constants["TL_CREATE_GRAPH"]
_PARAMETER = constants["TL_PARAMETER"]
_NUMBERS = (int, float)


class layout:
    """How elements lie: strided, always."""

    def __repr__(self):
        return "tally.strided"


strided = layout()


class memory_format:
    """An order of axes in memory. Results are dense and row-major, whatever is asked for."""

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return "tally." + self._name


contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")


class Tensor(lib.TensorBase):
    """A view of a storage: shape, strides, dtype, device. Made by tally.tensor, tally.zeros and the like."""

    __array_priority__ = 1000  # NumPy's operators leave mixed operands to ours

    def __new__(cls, *args, device=None):
        """Tensor(2, 3): of that size, not filled; Tensor([1, 2]): of these numbers."""
        from ._runtime import legacy
        made = legacy(args, _creation.get_default_dtype(), device)
        return made if cls is Tensor else lib.wrap(cls, lib.address_of(made))

    # ---- What it is ----

    # shape, dtype and ndim are TensorBase's.

    def size(self, dim=None):
        if dim is None:
            return self.shape
        return lib.tl_size(self, dim)

    def stride(self, dim=None):
        if dim is None:
            return lib.stride_of(self)
        return lib.tl_stride(self, dim)

    def dim(self):
        return lib.tl_rank(self)

    ndimension = dim

    @property
    def device(self):
        return device_at(lib.tl_device_of(self))

    def numel(self):
        return lib.tl_numel(self)

    nelement = numel

    def element_size(self):
        return self.dtype.itemsize

    @property
    def itemsize(self):
        return self.dtype.itemsize

    @property
    def nbytes(self):
        return lib.tl_bytes(self)

    def storage_offset(self):
        return lib.tl_offset(self)

    def data_ptr(self):
        return lib.tl_data(self) or 0

    def untyped_storage(self):
        return UntypedStorage(self)

    def is_contiguous(self, memory_format=None):
        return lib.tl_is_contiguous(self) or not lib.tl_numel(self)

    def get_device(self):
        return self.device.index if self.device.type == "cuda" else -1

    is_cuda = property(lambda x: x.device.type == "cuda")
    is_cpu = property(lambda x: x.device.type == "cpu")
    is_meta = property(lambda x: x.device.type == "meta")
    is_sparse = is_quantized = is_nested = is_mkldnn = is_mps = is_xla = is_xpu = False
    layout = strided
    names = name = None

    def is_signed(self):
        return self.dtype.is_signed

    def is_shared(self):
        return False

    def share_memory_(self):
        """Processes get copies: see multiprocessing."""
        return self

    def is_pinned(self):
        return False

    @property
    def _version(self):
        return lib.tl_version_of(self)

    def __len__(self):
        if not lib.tl_rank(self):
            raise TypeError("len() of a 0-d tensor")
        return lib.tl_size(self, 0)

    def __iter__(self):
        if not lib.tl_rank(self):
            raise TypeError("iteration over a 0-d tensor")
        return iter([lib.tl_select(self, 0, i) for i in range(lib.tl_size(self, 0))])

    def __reversed__(self):
        return _functions.flip(self, 0) if self.ndim else self

    def __contains__(self, element):
        return bool(_functions.any(_functions.eq(self, element)))

    def __hash__(self):
        return id(self)

    # ---- Text ----

    def __repr__(self):
        return _text(self)

    def __format__(self, spec):
        return format(self.item(), spec) if not self.ndim and not self.is_meta else object.__format__(self, spec)

    # ---- Numbers and arrays ----

    def item(self):
        if lib.tl_numel(self) != 1:
            raise RuntimeError(f"a Tensor with {lib.tl_numel(self)} elements cannot be converted to Scalar")
        kind = self.dtype
        if kind.is_floating_point:
            return lib.tl_item(self)
        if kind.is_complex:
            return _complex.item(self)
        value = lib.tl_item_int(self)
        return bool(value) if kind is bool_ else value

    def tolist(self):
        x = self.detach() if lib.tl_needs_grad(self) else self
        if x.dtype.is_floating_point and x.dtype.code > 1:
            x = lib.tl_cast(x, float64.code)
        return _memory.to_numpy(x.cpu()).tolist()

    def __bool__(self):
        n = lib.tl_numel(self)
        if n != 1:
            raise RuntimeError(f"Boolean value of Tensor with {'no values' if not n else 'more than one value'} is "
                               "ambiguous")
        return bool(self.item())

    def __float__(self):
        return float(_only(self))

    def __int__(self):
        return int(_only(self))

    def __index__(self):
        if self.dtype.is_inexact or lib.tl_numel(self) != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __complex__(self):
        return complex(_only(self))

    def numpy(self, *, force=False):
        """The same memory as a NumPy array."""
        return _memory.to_numpy(self, force)

    def __array__(self, dtype=None, copy=None):
        array = _memory.to_numpy(self)
        if copy:
            array = array.copy()
        return array if dtype is None else array.astype(dtype, copy=False)

    @property
    def __array_interface__(self):
        if not self.is_cpu:
            raise AttributeError(f"a tensor on {self.device} has no memory that NumPy can see: use .cpu()")
        if lib.tl_needs_grad(self):
            raise AttributeError("a tensor that requires grad is not shared with NumPy: use .detach()")
        if self.dtype.name not in ("float64", "float32", "float16", "int64", "int32", "int16", "uint16", "int8",
                                   "uint8", "bool", "complex64", "complex128"):
            raise AttributeError(f"NumPy has no {self.dtype.name}")
        return _memory.array_interface(self)

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return _memory.from_numpy(np.asarray(array)) if array.dtype != object else array

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device is not None and tuple(dl_device) != _memory.dlpack_device(self):
            raise BufferError(f"the tensor is on {self.device}: move it first")
        x = self.clone() if copy else self
        return _memory.to_dlpack(x, versioned=max_version is not None and max_version[0] >= 1, is_copy=bool(copy))

    def __dlpack_device__(self):
        return _memory.dlpack_device(self)

    def __reduce__(self):
        if type(self) is not Tensor:
            return (_rebuild_as, (type(self), _plain_bytes(self), tuple(self.shape), self.dtype, self.requires_grad))
        return (_rebuild, (_plain_bytes(self), tuple(self.shape), self.dtype, self.requires_grad))

    def __copy__(self):
        return lib.wrap(type(self), lib.address_of(self))

    def __deepcopy__(self, memo):
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                               "protocol at the moment")
        if id(self) in memo:
            return memo[id(self)]
        with _grad.no_grad():
            fresh = lib.tl_clone(lib.tl_detach(self))
        copy = lib.wrap(type(self), lib.address_of(fresh))
        lib.tl_requires_grad(copy, self.requires_grad) if self.requires_grad else None
        copy.__dict__.update(self.__dict__)
        grad = self.grad
        if grad is not None:
            lib.tl_set_grad(copy, lib.tl_clone(grad))
        memo[id(self)] = copy
        return copy

    # ---- Indexing ----

    def __getitem__(self, index):
        if type(index) is int:
            return _index.number(self, index)
        return _index.get(self, index)

    def __setitem__(self, index, value):
        _index.put(self, index, value)

    # ---- Views ----

    def view(self, *shape):
        if len(shape) == 1 and isinstance(shape[0], dtype_type):
            return self if shape[0] is self.dtype else _view_as(self, shape[0])
        return lib.tl_view(self, shape if type(shape[0]) is int else _sizes(shape)) if shape else lib.tl_view(self, ())

    def view_as(self, other):
        return lib.tl_view(self, lib.shape_of(other))

    def reshape(self, *shape):
        return lib.tl_reshape(self, _sizes(shape))

    def reshape_as(self, other):
        return lib.tl_reshape(self, lib.shape_of(other))

    def permute(self, *dims):
        return _functions.permute(self, _sizes(dims))

    def expand(self, *sizes):
        if not sizes:
            raise TypeError('expand() missing 1 required positional arguments: "size"')
        return lib.tl_expand(self, _sizes(sizes))

    def expand_as(self, other):
        return lib.tl_expand(self, lib.shape_of(other))

    def repeat(self, *sizes):
        sizes = _sizes(sizes)
        if len(sizes) < self.ndim:
            raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of "
                               "tensor")
        return lib.tl_tile(self, sizes)

    def tile(self, *dims):
        return lib.tl_tile(self, _sizes(dims))

    def flip(self, *dims):
        return _functions.flip(self, _sizes(dims))

    def as_strided(self, size, stride, storage_offset=None):
        return lib.tl_as_strided(self, size, stride, lib.tl_offset(self) if storage_offset is None else storage_offset)

    def unfold(self, dimension, size, step):
        """Windows of an axis, as a new last axis; a view."""
        axis = _axis(dimension, self.ndim)
        shape, stride = list(lib.shape_of(self)) or [1], list(lib.stride_of(self)) or [1]
        if size > shape[axis] or step <= 0:
            raise RuntimeError(f"maximum size for tensor at dimension {dimension} is {shape[axis]} but size is {size}"
                               if step > 0 else
                               f"step is {step} but must be > 0")
        windows, stride_between = (shape[axis] - size) // step + 1, stride[axis] * step
        if size < 0:
            raise RuntimeError(f"size is {size} but must be >= 0")
        shape, stride = shape + [size], stride + [stride[axis]]
        shape[axis], stride[axis] = windows, stride_between
        if not self.ndim:
            shape, stride = shape[1:], stride[1:]
        return lib.tl_as_strided(self, shape, stride, lib.tl_offset(self))

    @property
    def T(self):
        return lib.tl_permute(self, tuple(range(self.ndim - 1, -1, -1)))

    @property
    def mT(self):
        if self.ndim == 1:
            raise RuntimeError("tensor.mT is only supported on matrices or batches of matrices. Got 1-D tensor.")
        return lib.tl_transpose(self, -2, -1) if self.ndim else self

    mH = property(lambda x: lib.tl_conj(x.mT) if x.ndim else lib.tl_conj(x))
    real = property(lib.tl_real, lambda x, value: x.real.copy_(value))
    imag = property(lib.tl_imag, lambda x, value: x.imag.copy_(value))

    @property
    def H(self):
        if self.ndim not in (0, 2):
            raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {self.ndim}-D tensor.")
        return lib.tl_conj(self.mT if self.ndim else self)

    # ---- Copies and casts ----

    def clone(self, *, memory_format=None):
        return lib.tl_clone(self)

    def contiguous(self, memory_format=None):
        return lib.tl_contiguous(self) if lib.tl_numel(self) else self

    def to(self, *args, dtype=None, device=None, non_blocking=False, copy=False, memory_format=None):
        for a in args:
            if isinstance(a, Tensor):
                dtype, device = a.dtype, a.device
            elif isinstance(a, dtype_type) or a in (float, int, bool, complex) and not isinstance(a, int):
                dtype = a
            elif isinstance(a, bool) or a is None:
                continue
            elif isinstance(a, (str, device_type, int)):
                device = a
            else:
                raise TypeError(f"to() received an invalid combination of arguments - got ({type(a).__name__})")
        x = self
        if dtype is not None:
            x = lib.tl_cast(x, as_dtype(dtype).code)
        if device is not None:
            x = lib.tl_to(x, as_device(device).address)
        return lib.tl_clone(x) if copy and x is self else x

    def type(self, dtype=None):
        if dtype is None:
            return f"tally.{_functions._scalar_name(self)}Tensor"
        return self.to(dtype=dtype)

    def type_as(self, other):
        return self.to(other.dtype)

    def cpu(self):
        return lib.tl_to(self, _cpu)

    def cuda(self, device=None, non_blocking=False):
        return lib.tl_to(self, as_device("cuda" if device is None else device).address)

    def pin_memory(self):
        """Memory of the cpu is taken as it is: copies to the GPU go through the library's own pinned buffers."""
        return self

    # ---- Gradients ----

    @property
    def requires_grad(self):
        return lib.tl_needs_grad(self)

    @requires_grad.setter
    def requires_grad(self, on):
        self.requires_grad_(on)

    def requires_grad_(self, requires_grad=True):
        if requires_grad == lib.tl_needs_grad(self):
            return self
        if not lib.tl_is_leaf(self):
            raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want to use a "
                               "computed variable in a subgraph that doesn't require differentiation use var_no_grad = "
                               "var.detach().")
        if requires_grad and not self.dtype.is_inexact:
            raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
        return lib.tl_requires_grad(self, requires_grad)

    @property
    def is_leaf(self):
        return lib.tl_is_leaf(self)

    @property
    def grad_fn(self):
        return None if lib.tl_is_leaf(self) else GradFn(self)

    @property
    def grad(self):
        return lib.tl_grad_of(self)

    @grad.setter
    def grad(self, value):
        if value is not None and not isinstance(value, Tensor):
            raise TypeError("assigned grad expected to be a Tensor or None but got grad of type "
                            f"{type(value).__name__}")
        if value is not None and value.shape != self.shape:
            raise RuntimeError(f"assigned grad has data of a different size: {tuple(value.shape)} for "
                               f"{tuple(self.shape)}")
        if value is not None and value.dtype is not self.dtype:
            raise RuntimeError(f"attempting to assign a gradient with dtype '{value.dtype.name}' to a tensor with "
                               f"dtype '{self.dtype.name}'")
        lib.tl_set_grad(self, value) if value is not None else lib.tl_zero_grad(self, False)

    def retain_grad(self):
        """Backward fills .grad of this result too."""
        if not lib.tl_needs_grad(self):
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        if not lib.tl_is_leaf(self):
            lib.tl_retain_grad(self)
            self.__dict__["_retains_grad"] = True

    @property
    def retains_grad(self):
        return not lib.tl_is_leaf(self) and bool(self.__dict__.get("_retains_grad"))

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        from . import autograd
        autograd.backward(self, gradient, retain_graph, create_graph, inputs)

    def detach(self):
        return lib.tl_detach(self)

    def detach_(self):
        lib.replace(self, lib.tl_detach(self))
        return self

    @property
    def data(self):
        return lib.tl_detach(self)

    @data.setter
    def data(self, value):
        if lib.tl_shares_storage(self, value) and _layout(self) == _layout(value):
            return  # x.data -= y has done its work already
        from . import autograd
        on, grad, purpose = self.requires_grad, lib.tl_grad_of(self), lib.tl_purpose_of(self)
        hooks = autograd._leaves.get(lib.address_of(self))
        lib.replace(self, lib.tl_detach(value))
        if purpose == _PARAMETER:
            lib.tl_set_purpose(self, purpose)
        if on:
            lib.tl_requires_grad(self, True)
        if grad is not None and (grad.shape, grad.dtype, grad.device) == (self.shape, self.dtype, self.device):
            lib.tl_set_grad(self, grad)
        if hooks is not None and on:
            autograd._put_hooks(self, hooks)

    def register_hook(self, hook):
        """hook(grad) is called with the gradient of a pass; its return value replaces the gradient. On a result, it
        sees the contributions of uses after this call."""
        from . import autograd
        return autograd._register_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook):
        """hook(leaf) is called when a leaf's gradient of a pass has been added to .grad."""
        from . import autograd
        return autograd._register_after(self, hook)

    # ---- In place ----

    def copy_(self, src, non_blocking=False):
        return lib.tl_copy_(self, src)

    def fill_(self, value):
        if isinstance(value, Tensor):
            if lib.tl_rank(value):
                raise RuntimeError("fill_ only supports 0-dimension value tensor but got tensor with "
                                   f"{lib.tl_rank(value)} dimensions.")
            return lib.tl_copy_(self, value)
        if isinstance(value, complex):
            return _fill_complex(self, value)
        return lib.tl_fill_scalar_(self, value)

    def zero_(self):
        return lib.tl_fill_(self, 0.0)

    def fill_diagonal_(self, fill_value, wrap=False):
        """The diagonal of a matrix, or of all axes where they are equal, all one value."""
        if self.ndim < 2 or self.ndim > 2 and len(set(self.shape)) > 1:
            raise RuntimeError("all dimensions of input must be of equal length" if self.ndim > 2
                               else "dimensions must larger than 1")
        if wrap:
            raise NotImplementedError("fill_diagonal_ with wrap=True is not there")
        n = min(self.shape)
        lib.tl_as_strided(self, (n,), (sum(lib.stride_of(self)),), lib.tl_offset(self)).fill_(fill_value)
        return self

    @_creation._draws
    def uniform_(self, *args, **kwargs):
        low, high = _two(args, kwargs, ("from", "to"), (0.0, 1.0))
        if low > high:
            raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
        return lib.tl_uniform_(self, low, high)

    @_creation._draws
    def normal_(self, mean=0.0, std=1.0):
        return lib.tl_normal_(self, mean, std)

    @_creation._draws
    def bernoulli_(self, p=0.5):
        return lib.tl_bernoulli_(self, p)

    @_creation._draws
    def random_(self, *args):
        low, high = ((0, args[0]) if len(args) == 1 else args
                     or (0, 2**53 if self.dtype.is_floating_point else self.dtype and 2**(self.dtype.bits - 1)))
        return lib.tl_copy_(self, _creation.randint(low, high, self.shape, device=self.device))

    def masked_fill_(self, mask, value):
        if isinstance(value, Tensor):
            _functions._common_shape([lib.shape_of(self), lib.shape_of(mask)])
            return lib.tl_copy_(self, _checked(self, _functions.masked_fill(_before(self), mask, value), "masked_fill"))
        if isinstance(value, complex):
            return self.masked_fill_(mask, _complex.beside(value, self))
        try:
            return lib.tl_masked_fill_(self, mask, value)
        except RuntimeError:  # its parts name the operands in another order
            _functions._common_shape([lib.shape_of(self), lib.shape_of(mask)])
            raise

    def scatter_(self, dim, index, src=None, *, value=None, reduce=None):
        src = value if src is None else src
        if reduce is not None:
            return lib.tl_copy_(self, _functions.scatter(_before(self), dim, index, src, reduce=reduce))
        return (lib.tl_scatter_(self, dim, index, src) if isinstance(src, Tensor)
                else lib.tl_scatter_scalar_(self, dim, index, src))

    def scatter_add_(self, dim, index, src):
        return lib.tl_scatter_add_(self, dim, index, src)

    def scatter_reduce_(self, dim, index, src, reduce, *, include_self=True):
        return lib.tl_copy_(self, _composed.scatter_reduce(_before(self), dim, index, src, reduce,
                                                           include_self=include_self))

    def index_add_(self, dim, index, source, *, alpha=1):
        return lib.tl_index_add_(self, dim, index, source, alpha)

    def masked_scatter_(self, mask, source):
        mask = lib.tl_expand(mask, lib.shape_of(self))
        return lib.tl_copy_(self, _composed.masked_scatter(_before(self), mask, source))

    def index_put_(self, indices, values, accumulate=False):
        view, axes, tensors = _index.put_apart(self, indices, values)
        lib.tl_index_put_(view, axes, tensors, values, accumulate)
        return self

    def index_fill_(self, dim, index, value):
        if not lib.tl_rank(self):
            lib.tl_view(self, (1,)).index_fill_(dim, index, value)
            return self
        self[(slice(None),) * _axis(dim, self.ndim) + (index,)] = value
        return self

    def index_copy_(self, dim, index, tensor):
        if not lib.tl_rank(self):
            lib.tl_view(self, (1,)).index_copy_(dim, index, lib.tl_reshape(tensor, (-1,)))
            return self
        self[(slice(None),) * _axis(dim, self.ndim) + (index,)] = tensor
        return self

    def set_(self, source):
        lib.replace(self, source)
        return self

    # ---- Operators ----

    def __add__(self, other):
        if isinstance(other, Tensor):
            return lib.tl_add(self, other)
        return lib.tl_add_scalar(self, other) if isinstance(other, _NUMBERS) else _other(_functions.add, self, other)

    __radd__ = __add__

    def __sub__(self, other):
        return (_functions.sub(self, other) if isinstance(other, (Tensor, *_NUMBERS))
                else _other(_functions.sub, self, other))

    def __rsub__(self, other):
        return (lib.tl_rsub_scalar(self, other) if isinstance(other, _NUMBERS)
                else _reflected(_functions.sub, self, other))

    def __mul__(self, other):
        if isinstance(other, Tensor):
            return lib.tl_mul(self, other)
        return lib.tl_mul_scalar(self, other) if isinstance(other, _NUMBERS) else _other(_functions.mul, self, other)

    __rmul__ = __mul__

    def __truediv__(self, other):
        if isinstance(other, Tensor):
            return lib.tl_div(self, other)
        return lib.tl_div_scalar(self, other) if isinstance(other, _NUMBERS) else _other(_functions.div, self, other)

    def __rtruediv__(self, other):
        return (lib.tl_rdiv_scalar(self, other) if isinstance(other, _NUMBERS)
                else _reflected(_functions.div, self, other))

    def __floordiv__(self, other):
        return _other(_functions.floor_divide, self, other)

    def __rfloordiv__(self, other):
        return _reflected(_functions.floor_divide, self, other)

    def __mod__(self, other):
        return _other(_functions.remainder, self, other)

    def __rmod__(self, other):
        return _reflected(_functions.remainder, self, other)

    def __pow__(self, other):
        return _other(_functions.pow, self, other)

    def __rpow__(self, other):
        return (lib.tl_rpow_scalar(self, other) if isinstance(other, _NUMBERS)
                else _reflected(_functions.pow, self, other))

    def __matmul__(self, other):
        if not isinstance(other, Tensor):
            return NotImplemented
        return lib.tl_matmul(self, other) if lib.tl_dtype_of(self) < 4 else _functions._matmul(self, other)

    def __rmatmul__(self, other):
        return _reflected(_functions.matmul, self, other)

    def __neg__(self):
        return lib.tl_neg(self)

    def __pos__(self):
        return _composed.positive(self)

    def __abs__(self):
        return lib.tl_abs(self)

    def __invert__(self):
        return _functions.bitwise_not(self)

    def __and__(self, other):
        return _other(_functions.bitwise_and, self, other)

    def __or__(self, other):
        return _other(_functions.bitwise_or, self, other)

    def __xor__(self, other):
        return _other(_functions.bitwise_xor, self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, other):
        return _other(_functions.bitwise_left_shift, self, other)

    def __rshift__(self, other):
        return _other(_functions.bitwise_right_shift, self, other)

    def __rlshift__(self, other):
        return _reflected(_functions.bitwise_left_shift, self, other)

    def __rrshift__(self, other):
        return _reflected(_functions.bitwise_right_shift, self, other)

    def __ilshift__(self, other):
        return self.bitwise_left_shift_(other)

    def __irshift__(self, other):
        return self.bitwise_right_shift_(other)

    def __eq__(self, other):
        return _other(_functions.eq, self, other)

    def __ne__(self, other):
        return _other(_functions.ne, self, other)

    def __lt__(self, other):
        return _other(_functions.lt, self, other)

    def __le__(self, other):
        return _other(_functions.le, self, other)

    def __gt__(self, other):
        return _other(_functions.gt, self, other)

    def __ge__(self, other):
        return _other(_functions.ge, self, other)

    def __iadd__(self, other):
        return (lib.tl_add_(self, other) if isinstance(other, Tensor)
                else lib.tl_add_scalar_(self, _in_place_number(other)))

    def __isub__(self, other):
        return (lib.tl_sub_(self, other) if isinstance(other, Tensor)
                else lib.tl_sub_scalar_(self, _in_place_number(other)))

    def __imul__(self, other):
        return (lib.tl_mul_(self, other) if isinstance(other, Tensor)
                else lib.tl_mul_scalar_(self, _in_place_number(other)))

    def __itruediv__(self, other):
        return (lib.tl_div_(self, other) if isinstance(other, Tensor)
                else lib.tl_div_scalar_(self, _in_place_number(other)))

    def __ipow__(self, other):
        return (lib.tl_pow_(self, other) if isinstance(other, Tensor)
                else lib.tl_pow_scalar_(self, _in_place_number(other)))

    def __imod__(self, other):
        return (lib.tl_remainder_(self, other) if isinstance(other, Tensor)
                else lib.tl_remainder_scalar_(self, _in_place_number(other)))

    def __ifloordiv__(self, other):
        return lib.tl_copy_(self, _checked(self, self // other, "floor_divide"))

    def __iand__(self, other):
        return lib.tl_copy_(self, _checked(self, self & other, "bitwise_and"))

    def __ior__(self, other):
        return lib.tl_copy_(self, _checked(self, self | other, "bitwise_or"))

    def __ixor__(self, other):
        return lib.tl_copy_(self, _checked(self, self ^ other, "bitwise_xor"))


def get_num_threads():
    """How many threads kernels use."""
    n = lib.tl_set_threads(1)
    lib.tl_set_threads(n)
    return n


def set_num_threads(n):
    """How many threads kernels use; 0: as many as the machine has."""
    lib.tl_set_threads(n)


_PRECISIONS = {"highest": "TL_MATMUL_HIGHEST", "high": "TL_MATMUL_HIGH", "medium": "TL_MATMUL_HIGH"}
_precision = "highest"


def set_float32_matmul_precision(precision):
    """The precision of float32 matrix products: "highest" in float32; "high" (and "medium") as sums of two bfloat16
    numbers, where that is faster; see tl_set_matmul_precision."""
    global _precision
    if precision not in _PRECISIONS:
        raise RuntimeError(f"{precision} is not one of 'highest', 'high', or 'medium'; the precision stays "
                           f"{_precision}")
    lib.tl_set_matmul_precision(constants[_PRECISIONS[precision]])
    _precision = precision


def get_float32_matmul_precision():
    """The precision set by set_float32_matmul_precision."""
    return _precision


# ---- Helpers of the above ----

def _fill_complex(x, value):
    """x.fill_(value), of a complex number."""
    if not lib.tl_is_complex(x):
        raise RuntimeError(f"value cannot be converted to type {x.dtype.name} without overflow")
    return lib.tl_copy_(x, _complex.beside(value, x))


def _in_place_number(other):
    if isinstance(other, _NUMBERS):
        return other
    if isinstance(other, known.generic):
        return other.item()
    raise TypeError(f"unsupported operand type(s) for an in-place operator: 'Tensor' and '{type(other).__name__}'")


def _layout(x):
    return lib.shape_of(x), lib.stride_of(x), lib.tl_offset(x), lib.tl_dtype_of(x)


def _only(x):
    if lib.tl_numel(x) != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return x.item()


def _other(function, self, other):
    """NotImplemented for what is neither tensor nor number, so that Python asks the other operand."""
    if isinstance(other, (Tensor, *_NUMBERS, complex)):
        return function(self, other)
    if isinstance(other, known.generic):
        return function(self, other.item())
    if isinstance(other, known.ndarray):
        return function(self, _creation.as_tensor(other))
    return NotImplemented


def _reflected(function, self, other):
    if isinstance(other, known.generic):
        other = other.item()
    if isinstance(other, known.ndarray):
        return function(_creation.as_tensor(np.asarray(other)), self)
    return function(other, self) if isinstance(other, (*_NUMBERS, Tensor, complex)) else NotImplemented


def _two(args, kwargs, names, defaults):
    values = list(args) + [kwargs[n] if n in kwargs else d for n, d in list(zip(names, defaults))[len(args):]]
    return values[:2]


def _view_as(x, kind):
    """The same memory as elements of another dtype: the last axis has more of narrower ones, fewer of wider ones."""
    shape, stride, old, new = list(lib.shape_of(x)), list(lib.stride_of(x)), x.dtype.itemsize, kind.itemsize
    if old != new:
        if not shape:
            raise RuntimeError("self.dim() cannot be 0 to view " + _functions._SCALAR_NAMES.get(x.dtype.name,
                                                                                                x.dtype.name)
                               + " as " + _functions._SCALAR_NAMES.get(kind.name, kind.name) + " (different element "
                               "sizes)")
        if stride[-1] != 1:
            raise RuntimeError("self.stride(-1) must be 1 to view a tensor as another dtype of a different element "
                               "size, "
                               f"but got {stride[-1]}")
        if new > old and (any((s * old) % new for s in stride[:-1]) or (x.storage_offset() * old) % new
                          or (shape[-1] * old) % new):
            raise RuntimeError(f"self.size(-1) must be divisible by {new // old}, and so must its strides and "
                               f"offset, to "
                               f"view {x.dtype} as {kind}")
        shape[-1] = shape[-1] * old // new
        stride = [s * old // new for s in stride[:-1]] + [1]
    if x.is_meta or not x.numel():
        return lib.tl_empty(shape, kind.code, lib.tl_device_of(x))
    x = x.detach()
    return _memory.share(x, lib.tl_data(x), shape, stride, kind, None if x.is_cpu else lib.tl_device_of(x))


_printer = None  # set by set_printoptions


def _text(x):
    if _printer is not None and not x.is_meta:
        return _printer(x)
    if x.is_meta:
        text = (f"tensor(..., device='meta', size={tuple(x.shape)}"
                + ("" if x.dtype is _creation.get_default_dtype() else f", dtype={x.dtype}") + ")")
    else:
        length = c.tl_print(lib.address_of(x), None, 0)
        if lib.tl_version() and c.tl_error():
            c.tl_error_clear()
        buffer = ctypes.create_string_buffer(length + 1)
        c.tl_print(lib.address_of(x), buffer, length + 1)
        text = buffer.value.decode().replace("torch.", "tally.")
    return text


def _plain_bytes(x):
    x = x.detach().cpu().contiguous()
    return ctypes.string_at(x.data_ptr(), x.nbytes) if x.nbytes else b""


def _rebuild(data, shape, kind, requires_grad):
    x = lib.tl_empty(shape, kind.code, _cpu)
    if data:
        ctypes.memmove(lib.tl_data(x), data, len(data))
    return lib.tl_requires_grad(x, True) if requires_grad else x


def _rebuild_as(cls, data, shape, kind, requires_grad):
    plain = _rebuild(data, shape, kind, False)
    x = lib.wrap(cls, lib.address_of(plain))
    return lib.tl_requires_grad(x, True) if requires_grad else x


class UntypedStorage:
    """The bytes under a tensor."""

    def __init__(self, tensor):
        self._tensor = tensor

    def _first(self):
        x = self._tensor
        return lib.tl_as_strided(lib.tl_detach(x), (1,), (1,), 0) if x.numel() else x

    def data_ptr(self):
        return self._first().data_ptr()

    def nbytes(self):
        return lib.tl_storage_bytes(self._tensor)

    __len__ = size = nbytes

    @property
    def device(self):
        return self._tensor.device

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and lib.tl_shares_storage(self._tensor, other._tensor)

    def __hash__(self):
        return hash(self.data_ptr())


class GradFn:
    """A step of the recorded graph: the op that made a tensor, and by next_functions the steps that made its inputs.
    Of a
    leaf that gets a gradient it is AccumulateGrad, with the leaf as `variable`."""

    def __init__(self, tensor, step=None, leaf=None):
        self._tensor, self._leaf = tensor, leaf  # the steps live as long as the tensor
        self._step = c.tl_graph_step(lib.address_of(tensor)) if step is None and leaf is None else step

    def name(self):
        if self._leaf is not None:
            return "AccumulateGrad"
        name = (c.tl_graph_name(self._step) or b"").decode()
        return "".join(part.capitalize() for part in name.split("_")) + "Backward"

    @property
    def variable(self):
        if self._leaf is None:
            raise AttributeError(f"'{self.name()}' object has no attribute 'variable'")
        return self._leaf

    @property
    def next_functions(self):
        if self._leaf is not None:
            return ()
        found = []
        for i in range(c.tl_graph_inputs(self._step)):
            step, leaf = c.tl_graph_input(self._step, i), c.tl_graph_leaf(self._step, i)
            if step:
                found.append((GradFn(self._tensor, step), 0))
            elif leaf:
                found.append((GradFn(self._tensor, leaf=lib.wrap(Tensor, leaf)), 0))
            else:
                found.append((None, 0))
        return tuple(found)

    def __eq__(self, other):
        return isinstance(other, GradFn) and (self._step, self._key()) == (other._step, other._key())

    def _key(self):
        return None if self._leaf is None else lib.address_of(self._leaf)

    def __hash__(self):
        return hash((self._step, self._key()))

    def __repr__(self):
        return f"<{self.name()}>"


# ---- Methods that are functions ----

_METHODS = """
add sub mul div subtract multiply divide true_divide floor_divide pow remainder fmod minimum maximum eq ne lt le
gt ge not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not bitwise_and
bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift atan2 clamp clip clamp_min clamp_max where
lerp addcmul addcdiv round isinf log10
negative absolute sum nansum mean prod max min amax amin argmax argmin any all count_nonzero var std logsumexp
norm cumsum cumprod softmax log_softmax matmul mm bmm mv dot outer transpose swapaxes swapdims t movedim
moveaxis squeeze unsqueeze flatten unflatten ravel narrow select diagonal broadcast_to split chunk tensor_split
unbind repeat_interleave roll triu tril gather take_along_dim scatter scatter_add index_select index_add
masked_fill masked_select nonzero argwhere sort argsort topk unique bincount equal isclose allclose
is_floating_point
""".split()
for _name in _METHODS + list(_functions.UNARY):
    setattr(Tensor, _name, getattr(_functions, _name))
for _name in _composed.METHODS:
    setattr(Tensor, _name, getattr(_composed, _name))
for _name in _complex.METHODS:
    setattr(Tensor, _name, getattr(_complex, _name))
for _module, _names in _late.METHODS.items():
    for _name in _names.split():
        setattr(Tensor, _name, _late.method(_module, _name))


def _as_numpy_calls_it(function):
    """With NumPy's names for its arguments too: np.sum(x, 0) calls x.sum(axis=0, out=None)."""
    @functools.wraps(function)
    def method(self, *args, **kwargs):
        if "axis" in kwargs:
            kwargs["dim"] = kwargs.pop("axis")
            if kwargs["dim"] is None:
                del kwargs["dim"]
        if "keepdims" in kwargs:
            kwargs["keepdim"] = kwargs.pop("keepdims")
        if kwargs.pop("out", None) is not None:
            raise TypeError(f"{function.__name__}(): out= is not there: use copy_ on the tensor that is to hold the "
                            "result")
        return function(self, *args, **kwargs)
    return method


for _name in "sum mean prod std var amax amin max min any all argmax argmin cumsum cumprod".split():
    setattr(Tensor, _name, _as_numpy_calls_it(getattr(_functions, _name)))



def _where(self, condition, other):
    return _functions.where(condition, self, other)


Tensor.where = _where
Tensor.multinomial = _creation.multinomial
Tensor.bernoulli = _creation.bernoulli
Tensor.exponential_ = _creation.exponential_
for _name, _kind in [("float", "float32"), ("double", "float64"), ("half", "float16"), ("bfloat16", "bfloat16"),
                     ("long", "int64"), ("int", "int32"), ("short", "int16"), ("char", "int8"), ("byte", "uint8"),
                     ("bool", "bool"), ("cfloat", "complex64"), ("cdouble", "complex128")]:
    setattr(Tensor, _name, (lambda code: lambda self, memory_format=None: lib.tl_cast(self, code))(BY_NAME[_kind].code))


def _new(make):
    def method(self, *size, dtype=None, device=None, requires_grad=False):
        return make(*size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)
    return method


for _name in ("empty", "zeros", "ones", "full"):
    setattr(Tensor, "new_" + _name, _new(getattr(_creation, _name)))
Tensor.new_tensor = _new(_creation.tensor)


_ALIASES = {"subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg",
            "absolute": "abs"}


def _in_place(name):
    """x.name_(...): the library's own in-place op where it has one, else the result copied into x."""
    function, name = getattr(Tensor, name), _ALIASES.get(name, name)
    own = getattr(lib, f"tl_{name}_", None)
    if own is not None and name in _functions.UNARY:
        return lambda self: own(self)
    scalar = getattr(lib, f"tl_{name}_scalar_", None)
    if own is not None and scalar is not None:
        def method(self, other, *, alpha=1, rounding_mode=None):
            if rounding_mode is not None:
                _check_kind(self, _functions.result_type(self, other))
                return lib.tl_copy_(self,
                                    _checked(self, function(_before(self, other), other, rounding_mode=rounding_mode),
                                             name))
            is_bool = isinstance(other, bool) or isinstance(other, Tensor) and other.dtype is bool_
            alpha = alpha if isinstance(alpha, int) else _functions._number(alpha, name, "alpha")
            if alpha != 1 and not (is_bool and name == "sub"):  # which is refused
                if isinstance(other, Tensor):
                    _check_shape(self, _functions._common_shape([lib.shape_of(self), lib.shape_of(other)]))
                _check_kind(self, _functions.result_type(self, other))
                _functions._check_alpha(self, other, alpha)
                other = _functions._times(self, other, alpha)
            other = _complex.beside(other, self) if isinstance(other, complex) else other
            return (own(self, other) if isinstance(other, Tensor)
                    else scalar(self, _functions._number(other, name, "other")))
        return method

    def method(self, *args, **kwargs):
        return lib.tl_copy_(self, _checked(self, function(_before(self, *args), *args, **kwargs), name))
    return method


def _before(x, *others):
    """What x is before it is changed: a copy where a gradient will read it."""
    is_read = (any(isinstance(y, Tensor) and lib.tl_needs_grad(y) for y in others)
               or lib.tl_needs_grad(x) and not lib.tl_is_leaf(x))
    return lib.tl_clone(x) if is_read else x


def _checked(x, result, name):
    """An in-place result must fit: its shape may not be another, nor its dtype of a higher kind."""
    _check_shape(x, lib.shape_of(result))
    _check_kind(x, result.dtype)
    return result


def _check_shape(x, shape):
    if tuple(shape) != tuple(lib.shape_of(x)):
        raise RuntimeError(f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(shape)}")


def _check_kind(x, kind):
    if not _composed.can_cast(kind, x.dtype):
        raise RuntimeError(f"result type {_functions._SCALAR_NAMES[kind.name]} can't be cast to the desired output "
                           f"type {_functions._scalar_name(x)}")


_IN_PLACE = list(_functions.UNARY) + """
add sub mul div subtract multiply divide true_divide floor_divide pow remainder fmod clamp clip clamp_min
clamp_max lerp addcmul addcdiv round eq ne lt le gt ge logical_and logical_or logical_xor logical_not
bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift atan2 cumsum cumprod triu tril
negative absolute log10 not_equal less
less_equal greater greater_equal
""".split() + _composed.IN_PLACE + _late.IN_PLACE
for _name in _IN_PLACE:
    if _name not in ("isnan", "isfinite"):
        _method = _in_place(_name)
        _method.__name__ = _method.__qualname__ = _name + "_"
        setattr(Tensor, _name + "_", _method)


def _in_place_view(name):
    function = getattr(_functions, name)

    def method(self, *args):
        lib.replace(self, function(self, *args))
        return self
    method.__name__ = method.__qualname__ = name + "_"
    return method


for _name in ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims"):
    setattr(Tensor, _name + "_", _in_place_view(_name))

_functions._Tensor = _index._Tensor = _creation._Tensor = Tensor
_index._as_tensor, _index._scalar_name = _creation.as_tensor, _functions._scalar_name
for _name in ("scatter_", "scatter_add_", "index_add_", "index_fill_", "index_copy_"):
    setattr(Tensor, _name, _functions._numpy_names(getattr(Tensor, _name)))
lib.set_types(Tensor, _errors.from_status, Size, DTYPES)
_cpu = as_device("cpu").address

from . import _grad  # noqa: E402

