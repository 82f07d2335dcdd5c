/* _native.c: the parts of the compiled binding that are the same for every function of tally.h; _generate.py puts
 * the rest in place of the mark below.
 *
 * What this knows of Python is small: a base class that holds a tl_tensor, and conversions of arguments and results.
 * What tensors can do is written in Python, on top (_tensor.py). The library is opened by path and its functions are
 * found by name, so that the same extension serves any build of it.
 *
 * Ownership: a Python tensor holds one keep of its tl_tensor. A call runs in a scope of its own: its result is kept,
 * the rest goes. A result that is one of the arguments (in-place ops, contiguous of what is contiguous) is that very
 * object. */
#include <dlfcn.h>
#include <limits.h>

typedef struct {
    PyObject_HEAD
    tl_tensor *tensor;
} TensorBase;

struct site { /* for messages: the function, how many arguments it takes, their names */
    const char *name;
    int n;
    const char *names[16];
};
struct symbol {
    const char *name;
    void **address;
};

static PyTypeObject *base_type, *tensor_type, *size_type;
static PyObject *dtypes;   /* a list, in the order of enum tl_dtype */
static PyObject *on_error; /* (status, message, function) -> exception */

/* ---- Arguments ---- */

static bool too_large(const struct site *site, int at) {
    PyErr_Format(PyExc_OverflowError, "%s(): argument '%s' (position %d) is out of range", site->name, site->names[at],
                 at + 1);
    return false;
}

/* Reading an argument failed. Python's own words for a wrong type or a large int become ours; what the argument
 * itself raised stays. */
static bool wrong_type(const struct site *site, int at, const char *want, PyObject *got) {
    if (PyErr_Occurred()) {
        if (PyLong_Check(got) && PyErr_ExceptionMatches(PyExc_OverflowError)) return too_large(site, at);
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
        PyErr_Clear();
    }
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(got), "__name__");
    if (type)
        PyErr_Format(PyExc_TypeError, "%s(): argument '%s' (position %d) must be %s, not %U", site->name,
                     site->names[at], at + 1, want, type);
    Py_XDECREF(type);
    return false;
}

static bool has_count(Py_ssize_t n, const struct site *site) {
    if (n == site->n) return true;
    PyErr_Format(PyExc_TypeError, "%s() takes %d arguments but %zd were given", site->name, site->n, n);
    return false;
}

static bool get_tensor(PyObject *o, tl_tensor **x, const struct site *site, int at) {
    if (o == Py_None) *x = NULL;
    else if (Py_TYPE(o) == tensor_type || PyObject_TypeCheck(o, base_type)) *x = ((TensorBase *)o)->tensor;
    else return wrong_type(site, at, "Tensor", o);
    return true;
}

static bool get_long(PyObject *o, int64_t *x, const struct site *site, int at) {
    *x = PyLong_AsLongLong(o);
    return *x != -1 || !PyErr_Occurred() || wrong_type(site, at, "int", o);
}

static bool get_unsigned(PyObject *o, uint64_t *x, const struct site *site, int at) {
    *x = PyLong_AsUnsignedLongLong(o);
    return *x != (uint64_t)-1 || !PyErr_Occurred() || wrong_type(site, at, "int", o);
}

static bool get_int(PyObject *o, int *x, const struct site *site, int at) {
    int64_t wide;
    if (!get_long(o, &wide, site, at)) return false;
    if (wide < INT_MIN || wide > INT_MAX) return too_large(site, at);
    *x = (int)wide;
    return true;
}

static bool get_bool(PyObject *o, bool *x, const struct site *site, int at) {
    (void)site, (void)at;
    int truth = PyObject_IsTrue(o);
    *x = truth == 1;
    return truth >= 0;
}

static bool get_double(PyObject *o, double *x, const struct site *site, int at) {
    *x = PyFloat_AsDouble(o);
    return *x != -1 || !PyErr_Occurred() || wrong_type(site, at, "float", o);
}

static bool get_text(PyObject *o, const char **x, const struct site *site, int at) {
    *x = NULL;
    if (o == Py_None) return true;
    if (!PyUnicode_Check(o)) return wrong_type(site, at, "str", o);
    *x = PyUnicode_AsUTF8AndSize(o, NULL);
    return *x != NULL;
}

static bool get_pointer(PyObject *o, void **x, const struct site *site, int at) {
    *x = NULL;
    if (o == Py_None) return true;
    if (!PyLong_Check(o)) return wrong_type(site, at, "an address", o);
    *x = PyLong_AsVoidPtr(o);
    return *x || !PyErr_Occurred();
}

/* has NULL: the number must be there; otherwise None says that there is none. */
static bool get_scalar(PyObject *o, tl_scalar *x, bool *has, const struct site *site, int at) {
    *x = (tl_scalar){0};
    if (has && !(*has = o != Py_None)) return true;
    if (PyBool_Check(o)) *x = (tl_scalar){.kind = TL_SCALAR_BOOL, .i = o == Py_True};
    else if (PyLong_Check(o) || (!PyFloat_Check(o) && PyIndex_Check(o))) /* NumPy's integers too */
        *x = (tl_scalar){.kind = TL_SCALAR_INT, .i = PyLong_AsLongLong(o)};
    else *x = (tl_scalar){.kind = TL_SCALAR_FLOAT, .f = PyFloat_AsDouble(o)};
    return !PyErr_Occurred() || wrong_type(site, at, "Number", o);
}

/* ---- Lists. One number stands for a list of one. ---- */

#define MAX_LIST 64
struct ints {
    int n, *at, item[MAX_LIST];
};
struct longs {
    int n;
    int64_t *at, item[MAX_LIST];
};
struct tensor_list {
    int n;
    tl_tensor **at;
    PyObject *held; /* the tensors, which nobody else may hold on to during the call */
};

static PyObject *list_item(PyObject *list, Py_ssize_t i) { /* borrowed */
    return PyTuple_Check(list) ? PyTuple_GetItem(list, i) : PyList_GetItem(list, i);
}

/* The list's elements as int64; -1: an exception. */
static int list_read(PyObject *o, int64_t item[MAX_LIST], const struct site *site, int at) {
    if (PyLong_Check(o)) return get_long(o, item, site, at) ? 1 : -1;
    PyObject *list = PyTuple_Check(o) || PyList_Check(o) ? (Py_INCREF(o), o) : PySequence_Tuple(o);
    if (!list) {
        wrong_type(site, at, "a list of ints", o);
        return -1;
    }
    Py_ssize_t n = PyTuple_Check(list) ? PyTuple_Size(list) : PyList_Size(list);
    bool ok = n >= 0 && n <= MAX_LIST;
    if (n > MAX_LIST) PyErr_Format(PyExc_ValueError, "%s(): %zd sizes are too many", site->name, n);
    for (Py_ssize_t i = 0; ok && i < n; i++) {
        PyObject *x = list_item(list, i);
        ok = x && get_long(x, &item[i], site, at);
    }
    Py_DECREF(list);
    return ok ? (int)n : -1;
}

static bool get_longs(PyObject *o, struct longs *x, const struct site *site, int at) {
    x->n = 0;
    x->at = o == Py_None ? NULL : x->item;
    if (x->at) x->n = list_read(o, x->item, site, at);
    return x->n >= 0;
}

static bool get_ints(PyObject *o, struct ints *x, const struct site *site, int at) {
    int64_t wide[MAX_LIST];
    x->n = 0;
    x->at = o == Py_None ? NULL : x->item;
    if (x->at) x->n = list_read(o, wide, site, at);
    for (int i = 0; i < x->n; i++) { /* no axis is that large: what does not fit is out of range all the same */
        x->item[i] = wide[i] > INT_MAX ? INT_MAX : wide[i] < INT_MIN ? INT_MIN : (int)wide[i];
    }
    return x->n >= 0;
}

static void list_free(struct tensor_list *x) {
    PyMem_Free(x->at);
    Py_XDECREF(x->held);
}

static bool get_tensors(PyObject *o, struct tensor_list *x, const struct site *site, int at) {
    x->held = PySequence_Tuple(o); /* not the list itself: another thread might empty it meanwhile */
    if (!x->held) return wrong_type(site, at, "tuple of Tensors", o);
    Py_ssize_t n = PyTuple_Size(x->held);
    x->at = PyMem_Malloc(((size_t)n + 1) * sizeof *x->at);
    if (!x->at) PyErr_NoMemory();
    bool ok = x->at && n < INT_MAX;
    for (Py_ssize_t i = 0; ok && i < n; i++) ok = get_tensor(PyTuple_GetItem(x->held, i), &x->at[i], site, at);
    x->n = (int)n;
    return ok;
}

/* Two lists with one length. -1 is no list: the first has no items then, the second is not asked. */
static bool same_length(int n, int other_n, const struct site *site, int at, int other_at) {
    if (n < 0) n = 0;
    if (n == other_n || other_n < 0) return true;
    PyErr_Format(PyExc_RuntimeError, "%s(): '%s' has %d items and '%s' has %d: there must be as many", site->name,
                 site->names[at], n, site->names[other_at], other_n);
    return false;
}

static bool one_per_axis(const tl_tensor *x, int n, const struct site *site, int at) {
    if (!x || n == p_tl_rank(x)) return true; /* without a tensor the library will refuse the call */
    PyErr_Format(PyExc_RuntimeError, "%s(): '%s' has %d items, and the tensor %d axes", site->name, site->names[at],
                 n < 0 ? 0 : n, p_tl_rank(x));
    return false;
}

/* ---- Results ---- */

static bool has_failed(void) {
    if (p_tl_error() == TL_OK) return false;
    PyObject *error = PyObject_CallFunction(on_error, "is", (int)p_tl_error(), p_tl_error_message());
    p_tl_error_clear();
    if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return true;
}

static void keep(tl_tensor *x) {
    if (x) p_tl_keep(x);
}

/* Takes over one keep. */
static PyObject *wrap(PyTypeObject *type, tl_tensor *x) {
    TensorBase *self = (TensorBase *)PyType_GenericAlloc(type, 0);
    if (self) self->tensor = x;
    else p_tl_drop(x);
    return (PyObject *)self;
}

static PyObject *missing_tensor(const struct site *site) {
    if (!has_failed()) PyErr_Format(PyExc_TypeError, "%s(): an argument must be Tensor, not None", site->name);
    return NULL;
}

static PyObject *give_tensor(tl_tensor *x, PyObject *const *args, int n, bool may_be_none, const struct site *site) {
    if (!x) {
        if (!may_be_none) return missing_tensor(site);
        if (has_failed()) return NULL;
        Py_RETURN_NONE;
    }
    for (int i = 0; i < n; i++) {
        if (!PyObject_TypeCheck(args[i], base_type) || ((TensorBase *)args[i])->tensor != x) continue;
        p_tl_drop(x);
        Py_INCREF(args[i]);
        return args[i];
    }
    return wrap(tensor_type, x);
}

/* Takes over one keep of each. */
static PyObject *give_tuple(bool ok, tl_tensor **x, int n, const struct site *site) {
    PyObject *tuple = ok ? PyTuple_New(n) : missing_tensor(site);
    for (int i = 0; i < n; i++) {
        PyObject *item = NULL;
        if (tuple && x[i]) item = wrap(tensor_type, x[i]);
        else if (x[i]) p_tl_drop(x[i]);
        else if (tuple) item = Py_None, Py_INCREF(item);
        if (tuple && item) PyTuple_SetItem(tuple, i, item);
        else Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *give_text(const char *text) {
    if (text) return PyUnicode_FromString(text);
    Py_RETURN_NONE;
}

static PyObject *give_pointer(const void *address) {
    if (address) return PyLong_FromVoidPtr((void *)address);
    Py_RETURN_NONE;
}

static PyObject *Py_NewRef_None(void) { Py_RETURN_NONE; }

/* GENERATED */

/* ---- The base class ---- */

static void base_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    tl_tensor *x = ((TensorBase *)self)->tensor;
    if (x) p_tl_drop(x);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static TensorBase *checked(PyObject *o) {
    if (PyObject_TypeCheck(o, base_type) && ((TensorBase *)o)->tensor) return (TensorBase *)o;
    PyErr_SetString(PyExc_TypeError, "expected a Tensor");
    return NULL;
}

/* What programs read most, without a step through Python. */
static PyObject *base_shape(PyObject *self, void *unused) {
    (void)unused;
    if (!checked(self)) return NULL;
    const tl_tensor *x = ((TensorBase *)self)->tensor;
    int rank = p_tl_rank(x);
    const int64_t *shape = p_tl_shape(x);
    PyObject *size = PyType_GenericAlloc(size_type, rank); /* a subclass of tuple is filled like one */
    for (int i = 0; size && i < rank; i++) {
        PyObject *item = PyLong_FromLongLong(shape[i]);
        if (!item || PyTuple_SetItem(size, i, item)) Py_CLEAR(size);
    }
    return size;
}

static PyObject *base_dtype(PyObject *self, void *unused) {
    (void)unused;
    if (!checked(self)) return NULL;
    PyObject *dtype = PyList_GetItem(dtypes, (Py_ssize_t)p_tl_dtype_of(((TensorBase *)self)->tensor));
    Py_XINCREF(dtype);
    return dtype;
}

static PyObject *base_ndim(PyObject *self, void *unused) {
    (void)unused;
    if (!checked(self)) return NULL;
    return PyLong_FromLong(p_tl_rank(((TensorBase *)self)->tensor));
}

static PyGetSetDef base_fields[] = {
    {"shape", base_shape, NULL, "The sizes, as a Size.", NULL},
    {"dtype", base_dtype, NULL, "The element type.", NULL},
    {"ndim", base_ndim, NULL, "How many axes it has.", NULL},
    {0},
};
static PyType_Slot base_slots[] = {
    {Py_tp_getset, base_fields},
    {Py_tp_dealloc, base_dealloc},
    {Py_tp_doc, "Holds a tl_tensor."},
    {0, NULL},
};
static PyType_Spec base_spec = {"tally.TensorBase", sizeof(TensorBase), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                base_slots};

/* ---- What is not in tally.h ---- */

static PyObject *sizes(PyObject *o, bool is_stride) {
    TensorBase *self = checked(o);
    if (!self) return NULL;
    int rank = p_tl_rank(self->tensor);
    PyObject *tuple = PyTuple_New(rank);
    for (int i = 0; tuple && i < rank; i++) {
        int64_t n = is_stride ? p_tl_stride(self->tensor, i) : p_tl_size(self->tensor, i);
        PyObject *item = PyLong_FromLongLong(n);
        if (item) PyTuple_SetItem(tuple, i, item);
        else Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *get_shape(PyObject *module, PyObject *o) { (void)module; return sizes(o, false); }
static PyObject *get_stride(PyObject *module, PyObject *o) { (void)module; return sizes(o, true); }

static PyObject *get_address(PyObject *module, PyObject *o) {
    (void)module;
    TensorBase *self = checked(o);
    return self ? PyLong_FromVoidPtr(self->tensor) : NULL;
}

/* wrap(class, address): another object for a tensor, which it keeps. */
static PyObject *wrap_address(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    tl_tensor *x = n == 2 && PyType_Check(args[0]) ? PyLong_AsVoidPtr(args[1]) : NULL;
    if (!x || !PyType_IsSubtype((PyTypeObject *)args[0], base_type)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "wrap(class, address)");
        return NULL;
    }
    keep(x);
    return wrap((PyTypeObject *)args[0], x);
}

/* replace(x, y): the object x stands for y's tensor from now on. */
static PyObject *replace(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    TensorBase *x = n == 2 ? checked(args[0]) : NULL, *y = x ? checked(args[1]) : NULL;
    if (!y) return NULL;
    tl_tensor *old = x->tensor;
    keep(y->tensor);
    x->tensor = y->tensor;
    p_tl_drop(old);
    Py_RETURN_NONE;
}

/* Called by whichever thread lets go last; after the interpreter has gone there is nothing left to release. */
static void owner_release(void *owner) {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE lock = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(lock);
}

/* from_external(owner, address, bytes, shape, stride, dtype, device): a tensor over memory that owner holds. */
static PyObject *from_external(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    static const struct site site = {
        "from_external", 7, {"owner", "address", "bytes", "shape", "stride", "dtype", "device"}};
    (void)module;
    void *address, *device;
    uint64_t bytes;
    struct longs shape, stride;
    int dtype;
    if (!has_count(n, &site) || !get_pointer(args[1], &address, &site, 1) || !get_unsigned(args[2], &bytes, &site, 2) ||
        !get_longs(args[3], &shape, &site, 3) || !get_longs(args[4], &stride, &site, 4) ||
        !get_int(args[5], &dtype, &site, 5) || !get_pointer(args[6], &device, &site, 6))
        return NULL;
    Py_INCREF(args[0]);
    tl_scope scope = p_tl_scope_begin();
    tl_tensor *x = p_tl_from_external(address, bytes, shape.n, shape.at, stride.at, (tl_dtype)dtype, device,
                                      owner_release, args[0]);
    keep(x);
    p_tl_scope_end(scope);
    return give_tensor(x, args, 0, false, &site);
}

/* scope_enter(name) -> a number for scope_end: every call of a module opens a scope, so that must be quick. */
static PyObject *scope_enter(PyObject *module, PyObject *name) {
    (void)module;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (!text) return NULL;
    tl_scope scope = p_tl_scope_enter(text);
    return has_failed() ? NULL : PyLong_FromUnsignedLongLong((uint64_t)scope.depth << 32 | scope.serial);
}

static PyObject *scope_end(PyObject *module, PyObject *number) {
    (void)module;
    uint64_t scope = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    p_tl_scope_end((tl_scope){.depth = (uint32_t)(scope >> 32), .serial = (uint32_t)scope});
    return has_failed() ? NULL : Py_NewRef_None();
}

static PyObject *load(PyObject *module, PyObject *path) {
    (void)module;
    const char *text = PyUnicode_AsUTF8AndSize(path, NULL);
    if (!text) return NULL;
    void *library = dlopen(text, RTLD_NOW | RTLD_LOCAL);
    if (!library) return PyErr_Format(PyExc_ImportError, "%s", dlerror());
    for (const struct symbol *s = symbols; s->name; s++) {
        *s->address = dlsym(library, s->name);
        if (!*s->address) return PyErr_Format(PyExc_ImportError, "%s has no %s: it is another version", text, s->name);
    }
    Py_RETURN_NONE;
}

/* set_types(class of results, function that makes exceptions, class of shapes, list of dtypes) */
static PyObject *set_types(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    if (n != 4 || !PyType_Check(args[0]) || !PyType_Check(args[2]) || !PyList_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "set_types(class, function, class, list)");
        return NULL;
    }
    Py_INCREF(args[2]);
    size_type = (PyTypeObject *)args[2];
    Py_INCREF(args[3]);
    dtypes = args[3];
    Py_INCREF(args[0]);
    Py_XDECREF((PyObject *)tensor_type);
    tensor_type = (PyTypeObject *)args[0];
    Py_INCREF(args[1]);
    Py_XDECREF(on_error);
    on_error = args[1];
    Py_RETURN_NONE;
}

#define FAST(name) (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL
static PyMethodDef by_hand[] = {
    {"load", load, METH_O, NULL},
    {"set_types", FAST(set_types)},
    {"shape_of", get_shape, METH_O, NULL},
    {"stride_of", get_stride, METH_O, NULL},
    {"address_of", get_address, METH_O, NULL},
    {"wrap", FAST(wrap_address)},
    {"replace", FAST(replace)},
    {"from_external", FAST(from_external)},
    {"scope_enter", scope_enter, METH_O, NULL},
    {"scope_end", scope_end, METH_O, NULL},
    {0},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_native", .m_size = -1, .m_methods = by_hand};

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    base_type = tensor_type = (PyTypeObject *)PyType_FromSpec(&base_spec);
    Py_XINCREF((PyObject *)base_type);
    if (!base_type || PyModule_AddObject(module, "TensorBase", (PyObject *)base_type) ||
        PyModule_AddFunctions(module, generated)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
