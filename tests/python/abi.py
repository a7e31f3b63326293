"""Bundles called by their C ABI, and tensors lent to their Python modules."""

import ctypes
import importlib.util
import subprocess

import onnx
from onnx import TensorProto, helper

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
CPU, CUDA = 1, 2  # devices
OK, INVALID, TOO_SMALL, FAULT, IO, DEVICE = 0, 1, 2, 3, 5, 6


def build(optc, folder, name, model, *options):
    """The Python module of the model's bundle, and its library: compiled without optimization. options: of optc."""
    onnx.checker.check_model(model)
    onnx.save(model, folder / f"{name}.onnx")
    bundle, library = folder / name, folder / f"lib{name}.so"
    subprocess.run([optc, folder / f"{name}.onnx", "-o", bundle, "-q", *options], check=True)
    subprocess.run(["g++", "-std=c++17", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{bundle}/include", f"-I{bundle}/src",
                    f'-DOPTC_BUNDLE_FOLDER="{bundle}"', *sorted(map(str, (bundle / "src").glob("*.cpp"))), "-o", library, "-ldl",
                    "-lpthread"], check=True)
    spec = importlib.util.spec_from_file_location(name, bundle / "python" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, library


def value(name, dims, element=F32):
    return helper.make_tensor_value_info(name, element, dims)


def make(nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def api_of(module, library):
    entry = getattr(ctypes.CDLL(str(library)), module.NAME + "_model")
    entry.restype = ctypes.POINTER(module._Model)
    return entry().contents.api.contents


def create(module, api, **fields):
    """(status, context, text) of context_create with these options."""
    options, context = module._Options(struct_size=fields.pop("struct_size", ctypes.sizeof(module._Options)), **fields), ctypes.c_void_p()
    status = api.context_create(None, ctypes.byref(options), ctypes.byref(context))
    return status, context, api.last_error(None).decode()


def attempt(module, api, context, tensors, **changes):
    """(status, text) of a run. tensors: (name, dims) of each input and output, outputs with None for dims; all are floats and lie in one
    memory. changes: of a field, (name of the tensor, content)."""
    memory = (ctypes.c_float * 64)()
    inputs, outputs = [t for t in tensors if t[1] is not None], [t for t in tensors if t[1] is None]
    values = (module._Value * len(inputs))(), (module._Value * len(outputs))()
    slots = dict(zip([t[0] for t in inputs + outputs], [*values[0], *values[1]]))
    for name, dims in tensors:
        t = slots[name].tensor
        t.data, t.capacity_bytes, t.type, t.rank = ctypes.addressof(memory), 256, F32, len(dims or [])
        t.dims[:t.rank] = dims or []
    for field, (name, content) in changes.items():
        setattr(slots[name].tensor, field, content)
    return api.run(context, *values), api.last_error(context).decode()


class Dense(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("dims", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64), ("manager", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


class Lent:
    """The memory of an array, lent by DLPack as a tensor of a device and of an element type."""

    def __init__(self, array, device=CPU, code=2, offset=0):
        self.array, self.device, self.code, self.offset, self.streams = array, device, code, offset, []

    @property
    def shape(self):
        return self.array.shape

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        a, rank = self.array, self.array.ndim
        self.keep = (ctypes.c_int64 * rank)(*a.shape), (ctypes.c_int64 * rank)(*(s // a.itemsize for s in a.strides))
        self.dense = Dense(a.ctypes.data - self.offset, self.device, 0, rank, self.code, 8 * a.itemsize, 1, *self.keep, self.offset)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.dense), b"dltensor", None)
