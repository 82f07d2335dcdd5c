"""torch.backends: settings that programs make for PyTorch's libraries. Matrix products follow
`backends.cuda.matmul.allow_tf32` as they follow set_float32_matmul_precision; the other settings are kept and read
back, and change nothing: results here do not depend on them."""
import contextlib
import types

from .. import _tensor


class _Settings(types.ModuleType):
    """Keeps what it is told."""

    def __init__(self, name, **values):
        super().__init__(f"{__name__}.{name}")
        self.__dict__.update(values)

    def is_available(self):
        return bool(self.__dict__.get("_is_there"))

    is_built = is_available


class _Matmul(_Settings):
    allow_tf32 = property(lambda self: _tensor.get_float32_matmul_precision() != "highest",
                          lambda self, on: _tensor.set_float32_matmul_precision("high" if on else "highest"))
    fp32_precision = property(lambda self: "tf32" if self.allow_tf32 else "ieee",
                              lambda self, value: setattr(self, "allow_tf32", value == "tf32"))


def _switch(name):
    """enable_NAME_sdp and NAME_sdp_enabled."""
    def enable(enabled):
        setattr(cuda, "_" + name, bool(enabled))

    def is_enabled():
        return getattr(cuda, "_" + name)
    return enable, is_enabled


@contextlib.contextmanager
def _flags(*args, **kwargs):
    yield


cuda = _Settings("cuda", matmul=_Matmul("cuda.matmul", allow_fp16_reduced_precision_reduction=True,
                                        allow_bf16_reduced_precision_reduction=True, allow_fp16_accumulation=False),
                 _flash=True, _math=True, _mem_efficient=True, _cudnn=True, sdp_kernel=_flags,
                 preferred_linalg_library=lambda backend=None: None)
for _name in ("flash", "math", "mem_efficient", "cudnn"):
    _enable, _ask = _switch(_name)
    setattr(cuda, f"enable_{_name}_sdp", _enable)
    setattr(cuda, f"{_name}_sdp_enabled", _ask)
cuda.is_built = lambda: __import__("tally").cuda.is_available()
cudnn = _Settings("cudnn", enabled=True, benchmark=False, deterministic=True, allow_tf32=True, benchmark_limit=10,
                  flags=_flags, version=lambda: None)
mps, mkl, mkldnn, openmp = (_Settings(n) for n in ("mps", "mkl", "mkldnn", "openmp"))
opt_einsum = _Settings("opt_einsum", enabled=False, strategy=None)
cpu = _Settings("cpu", get_cpu_capability=lambda: "DEFAULT")
mkldnn.flags, openmp._is_there = _flags, True

import sys as _sys  # noqa: E402

for _module in (cuda, cudnn, mps, mkl, mkldnn, openmp, opt_einsum, cpu):  # `import torch.backends.cudnn as cudnn`
    _sys.modules[_module.__name__] = _module
