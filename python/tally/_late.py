"""Names of functions and methods whose modules are imported when one is first asked for."""

FUNCTIONS = {
    "_runtime": """compile use_deterministic_algorithms are_deterministic_algorithms_enabled
        is_deterministic_algorithms_warn_only_enabled set_deterministic_debug_mode get_deterministic_debug_mode
        set_flush_denormal get_num_interop_threads set_num_interop_threads set_printoptions FloatTensor DoubleTensor
        HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor CharTensor ByteTensor BoolTensor
        set_default_tensor_type seed typename is_storage is_warn_always_enabled set_warn_always is_vulkan_available
        frombuffer""",
    "_program": "plan fit napkin eval generate",
    "_ledger": "priced assert_price",
    "amp": "GradScaler",
    "autograd": "is_anomaly_enabled",
    "func": "vmap",
    "_tensor": "UntypedStorage",
    "_special": """acos acosh asin asinh atanh arccos arccosh arcsin arcsinh arctan arctan2 arctanh sinc copysign ldexp
        frexp heaviside nextafter gcd lcm digamma lgamma polygamma mvlgamma erfinv i0""",
    "_factors": """cholesky cholesky_inverse cholesky_solve det inverse logdet lu lu_solve lu_unpack matrix_exp pinverse
        qr slogdet svd triangular_solve""",
    "_ordered": """cummax cummin logcumsumexp quantile nanquantile nanmedian mode unique_consecutive histc histogram
        cdist pdist cross cov corrcoef trapezoid trapz cumulative_trapezoid gradient combinations renorm vander
        chain_matmul matrix_power index_reduce put nonzero_static unravel_index as_strided_scatter constant_pad_nd
        empty_strided empty_permuted alias_copy as_strided_copy detach_copy diagonal_copy expand_copy permute_copy
        select_copy split_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unsqueeze_copy
        unfold_copy view_copy slice_copy""",
}
MODULES = """accelerator backends compiler distributed distributions fft func jit linalg masked multiprocessing profiler
random signal special testing types version""".split()

METHODS = {
    "_special": FUNCTIONS["_special"],
    "_factors": """cholesky cholesky_inverse cholesky_solve det inverse logdet lu lu_solve matrix_exp pinverse qr
        slogdet svd triangular_solve""",
    "_ordered": """cummax cummin logcumsumexp quantile nanquantile nanmedian mode unique_consecutive histc histogram
    cross
        cov corrcoef renorm matrix_power index_reduce put nonzero_static as_strided_scatter cauchy_ log_normal_
        geometric_""",
}
IN_PLACE = """acos acosh asin asinh atanh arccos arccosh arcsin arcsinh arctan arctan2 arctanh sinc copysign ldexp
heaviside nextafter gcd lcm digamma lgamma polygamma mvlgamma erfinv i0 renorm index_reduce put""".split()

PLACE = {name: module for module, names in FUNCTIONS.items() for name in names.split()}


def find(name):
    """A function of FUNCTIONS."""
    import importlib
    return getattr(importlib.import_module("." + PLACE[name], __package__), name)


def method(module, name):
    """A method that imports its module when it is first called."""
    def call(self, *args, **kwargs):
        import importlib
        function = getattr(importlib.import_module("." + module, __package__), name)
        return function(self, *args, **kwargs)
    call.__name__ = call.__qualname__ = name
    return call
