"""What torch has and this package has not, and what to use instead. Errors about missing names read this, and
tools/compare_torch writes the table of docs/python-and-torch.md from it."""

# (reason, what to use instead, names or beginnings of names that end in *). The first that fits counts.
GROUPS = [
    ("inner workings of torch", "", """
        AVG AggregationType AliasDb Any* Argument* Await* Benchmark* Block BufferDict CallStack Capsule Class* Code
        Compil* Complete* Concrete* DeepCopy* Deserial* Device* Dict* Disable* Dispatch* Enum* Error* Exclude*
        Execution* Fatal* FileCheck Float*Type FunctionSchema Future* Graph* Gradient IODesc* Inferred* Int*Type
        Interface* JIT* List* Lite* Locking* Logger* Module* Node None* Noop* Number* Operator* Optional* PRIVATE*
        Parameter* Py* RRef* SUM Script* Serial* Static* Stream* String* Sym* TYPE* Tag Tensor* Throughput* Tracing*
        Tuple* Type* USE* Union* Use Value Accelerator* Event Bool*Type Complex*Type ctypes functools glob importlib
        inspect os platform sys textwrap threading types torch version windows read_vitals set_vital vitals_enabled
        classproperty parse_* import_ir* merge_type* unify_type* typename torch_version compiled_with* cpp classes ops
        library overrides package prepare_multi* quasirandom random return_types storage serialization signal hub
        futures fork wait monitor multiprocessing backends ao amp accelerator testing utils sym_* get_file_path
        init_num* is_storage segment_reduce sources hash_tensor module_load as_subclass reinforce has_lapack has_mkl
        has_openmp has_spectral is_warn* set_warn* set_anomaly* is_anomaly* *_copy output_nr grad_dtype slice_inverse
        builtins math warnings volatile apply_ map_ map2_ index StorageBase"""),
    ("typed storages and tensor classes", "`tally.tensor(..., dtype=...)`",
     "*Storage *Tensor UntypedStorage TypedStorage storage_type"),
    ("modules, losses, layers", "`tally.nn`, `tally.optim` where they are there", """
        nn optim conv* max_pool* avg_pool* adaptive_* batch_norm* native_* group_norm layer_norm rms_norm
        instance_norm embedding* dropout* alpha_dropout* feature_* gru* lstm* rnn* celu* selu* rrelu* prelu hardshrink
        bilinear binary_cross* cosine_embedding* ctc_loss hinge* kl_div margin* poisson* triplet* pairwise_distance
        pdist pixel* channel_shuffle constant_pad_nd grid_sampler* affine_grid* threshold_ norm_except_dim GradScaler
        miopen* mkldnn* cudnn* quantized_*"""),
    ("complex numbers of 16-bit parts", "`complex64`", "complex32 chalf"),
    ("sparse, nested, quantized, named tensors", "dense tensors; `tl_quantize` in C for narrow formats",
     """
        sparse* to_sparse* to_dense* to_mkldnn to_padded* coalesce is_coalesced indices values *col_indices
        *row_indices dense_dim sparse_dim smm spmm hspmm hsmm dsmm saddmm sspaddmm nested jagged is_sparse_csr
        quantize* dequantize q_* qscheme qint* quint* int_repr per_channel* per_tensor* fake_quantize* fused_moving*
        choose_qparams* fbgemm* empty_quantized quantization align_* has_names names refine_names rename* masked
        resize_as_sparse_"""),
    ("dtypes", "the next wider one", "bit bits* float8_*fnuz float4_e2m1fn_x2 int1 int2 int3 int4 int5 int6 int7 uint1 "
     "uint2 uint3 uint4 uint5 uint6 uint7 uint32 uint64"),
    ("other devices, streams", "`device=`", "cuda cpu mps xpu mtia ipu is_* record_stream share_memory_ get_device* "
     "set_default_device set_default_tensor_type is_vulkan*"),
    ("compilation, graphs, export, automatic casts", "casts written out: `x.to(...)`",
     "compile compiler jit fx export func vmap cond while_loop autocast* *autocast* functional profiler* nested"),
    ("rarer linear algebra", "`tally.linalg`, or `numpy.linalg` on `x.numpy()`", """
        eig geqrf linalg lobpcg lstsq matrix_rank orgqr ormqr pca_lowrank solve svd_lowrank symeig frobenius_norm
        nuclear_norm"""),
    ("special functions", "`scipy.special` on `x.numpy()`", """
        acos* acosh* arc* asin* asinh* atan* atanh* cosh* sinh* sinc* erfc* erfinv* lgamma* digamma* polygamma*
        mvlgamma* i0* igamma* special gcd* lcm* ldexp* frexp nextafter* copysign* heaviside* logcumsumexp gradient
        trapezoid trapz cumulative_trapezoid histc histogram* combinations bartlett* blackman* hamming* hann* kaiser*
        stft istft"""),
    ("bits of integers", "NumPy: `tally.from_numpy(numpy.bitwise_and(...))`",
     "bitwise_left* bitwise_right* __*shift__"),
    ("order statistics", "`sort`, `topk`, `kthvalue`, `median`",
     "cummax cummin mode nanmedian nanquantile quantile unique_consecutive"),
    ("einsum", "`matmul`, `tensordot`", "einsum"),
    ("names that are old", "`arange`", "range get_default_device"),
    ("scattering", "`scatter_add`, `index_add`, `index_put_`",
     "index_reduce* scatter_reduce_ put* *_scatter unravel_index nonzero_static"),
    ("distributions", "`uniform_`, `normal_`, `exponential_`, `bernoulli_`, `multinomial`",
     "distributions distributed binomial cauchy_ geometric_ log_normal_ seed default_generator Generator rrelu"),
    ("settings", "none needed: results are the same every time and on every number of threads",
     """
        are_deterministic* use_deterministic* get_deterministic* set_deterministic* set_flush* get_float32*
        set_float32* *interop* set_printoptions get_num_* is_deterministic*"""),
    ("files", "`numpy.save`, safetensors", "load save from_file frombuffer"),
    ("changing a tensor's storage", "a new tensor",
     "resize* as_strided_ new channels_last* legacy_contiguous_format new_empty_strided empty_strided empty_permuted "
     "storage set_ dim_order as_strided_scatter is_set_to swap* to_dlpack"),
]
REST = ("others", "")


def fits(name, pattern):
    if pattern.startswith("*"):
        return name.endswith(pattern[1:]) if not pattern.endswith("*") else pattern[1:-1] in name
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    if "*" in pattern:
        head, tail = pattern.split("*")
        return name.startswith(head) and name.endswith(tail)
    return name == pattern


def reason_of(name):
    """(reason, instead) of a name, or those of REST."""
    plain = name.lstrip(".")
    return next(((reason, instead) for reason, instead, patterns in GROUPS
                 if any(fits(plain, p) for p in patterns.split())), REST)


def message(whole, name):
    """What an error says of a name that is not there: `whole` is how the program spells it."""
    reason, instead = reason_of(name)
    text = f"{whole} is not in tally"
    if (reason, instead) == REST:
        return text + ": docs/python-and-torch.md lists what is missing"
    return f"{text} ({reason})" + (f": use {instead}" if instead else "")
