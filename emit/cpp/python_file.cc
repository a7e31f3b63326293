// The Python module of a bundle.
#include <fmt/format.h>

#include "emit/cpp/abi_files.h"
#include "emit/cpp/text_lines.h"

namespace optc {

std::string python_module(const Program &p, const AbiFacts &f) {
  std::string doc;
  for (const std::string &line : signature(p)) {
    std::string safe;
    for (char c : line) safe += c == '"' || c == '\\' ? '\'' : c;
    doc += wrap_words(safe, "    ", "      ") + "\n";
  }
  std::string out = fmt::format(R"PY("""{0}, compiled by optc: the model as a Python callable on NumPy arrays.

{1}
    from {0} import Model
    outputs = Model()(name=array, ...)   # a dict of arrays
"""
import ctypes
import os

import numpy as np

)PY",
                                f.name, doc);
  out +=
      R"PY(_TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16,
          11: np.float64, 12: np.uint32, 13: np.uint64, 14: np.complex64, 15: np.complex128}
_BITS = {16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2}  # no NumPy type: raw bytes
_MAX_RANK = 8


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("capacity_bytes", ctypes.c_size_t), ("needed_bytes", ctypes.c_size_t),
                ("type", ctypes.c_int32), ("rank", ctypes.c_int32), ("dims", ctypes.c_int64 * _MAX_RANK),
                ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _Value(ctypes.Structure):
    pass


class _Object(ctypes.Structure):  # kind 1: sequence, 2: optional, 3: map
    _fields_ = [("kind", ctypes.c_int32), ("count", ctypes.c_size_t), ("items", ctypes.POINTER(_Value))]


_Value._fields_ = [("tensor", _Tensor), ("object", ctypes.POINTER(_Object))]


class _String(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class _Dim(ctypes.Structure):
    _fields_ = [("symbol", ctypes.c_char_p), ("value", ctypes.c_int64), ("min", ctypes.c_int64), ("max", ctypes.c_int64)]


class _Info(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("kind", ctypes.c_int32), ("type", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("dims", _Dim * _MAX_RANK)]


class _Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("threads", ctypes.c_int32), ("parallel_for", ctypes.c_void_p), ("pool", ctypes.c_void_p),
                ("weights_path", ctypes.c_char_p), ("read_weights", ctypes.c_void_p), ("user", ctypes.c_void_p),
                ("check_weights", ctypes.c_int32), ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t)]


_C = ctypes.CFUNCTYPE
_P = ctypes.c_void_p


class _Api(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("input_count", _C(ctypes.c_size_t)), ("output_count", _C(ctypes.c_size_t)),
                ("input_info", _C(ctypes.POINTER(_Info), ctypes.c_size_t)), ("output_info", _C(ctypes.POINTER(_Info), ctypes.c_size_t)),
                ("manifest_json", _C(ctypes.c_char_p)), ("weights_load", _C(ctypes.c_int, _P, _P)), ("weights_release", _C(None, _P)),
                ("context_create", _C(ctypes.c_int, _P, ctypes.POINTER(_Options), ctypes.POINTER(_P))), ("context_destroy", _C(None, _P)),
                ("output_dims", _C(ctypes.c_int, _P, _P, _P)), ("workspace_bytes", _C(ctypes.c_int, _P, ctypes.POINTER(ctypes.c_size_t))),
                ("run", _C(ctypes.c_int, _P, _P, _P)), ("run_async", _C(ctypes.c_int, _P, _P, _P, _P)), ("cancel", _C(ctypes.c_int, _P)),
                ("profile", _C(ctypes.c_int, _P, ctypes.c_int32, ctypes.POINTER(ctypes.c_char_p))),
                ("last_error", _C(ctypes.c_char_p, _P))]


class _Model(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("abi_version", ctypes.c_uint32), ("api", ctypes.POINTER(_Api))]


class Error(RuntimeError):
    """A status of the bundle that is not OPTC_OK: `status` is its number."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def _object(value, kind, items, info, keep):
    block = (_Value * max(1, len(items)))()
    for slot, item in zip(block, items):
        _give(slot, item, 1 if isinstance(item, list) else 3 if isinstance(item, dict) else 0, info, keep)
    made = _Object(kind, len(items), block)
    keep += [block, made]
    value.object = ctypes.pointer(made)


def _give(value, given, kind, info, keep):
    """Fills `value` with an array, or with a list (sequence), a dict (map) or an optional's value; `keep` owns what it points to."""
    if kind == 1:
        return _object(value, 1, list(given), info, keep)
    if kind == 2:
        return _object(value, 2, [given], info, keep)
    if kind == 3:
        texts = any(isinstance(key, (str, bytes)) for key in given)
        made = (_Value * 2)()
        _tensor(made[0], list(given) if texts else np.array(list(given), np.int64), 8 if texts else 7, info, keep)
        values = list(given.values())
        _tensor(made[1], values if info.type == 8 else np.array(values, _TYPES[info.type]), info.type, info, keep)
        item = _Object(3, 2, made)
        keep += [made, item]
        value.object = ctypes.pointer(item)
        return
    _tensor(value, given, info.type, info, keep)


def _tensor(value, given, number, info, keep):
    dims = None
    if isinstance(given, tuple):  # (bytes, dims) of a type that NumPy lacks
        given, dims = given
    array = np.asarray(given)
    if number == 8:  # strings
        texts = [x if isinstance(x, bytes) else str(x).encode() for x in array.ravel().tolist()]
        block = (_String * max(1, len(texts)))(*(_String(ctypes.cast(ctypes.c_char_p(t), ctypes.c_void_p), len(t)) for t in texts))
        keep += [texts, block]
        value.tensor.data, number, dims = ctypes.addressof(block), 8, array.shape
    else:
        array = np.ascontiguousarray(array)
        if number in _TYPES:
            if array.dtype != _TYPES[number]:
                raise TypeError(f"input '{info.name.decode()}' has dtype {array.dtype}, expected {np.dtype(_TYPES[number])}")
            dims = np.shape(given)
        elif dims is None:
            dims = array.shape
        value.tensor.data = array.ctypes.data if array.size else ctypes.addressof(value)
        keep.append(array)
    value.tensor.type = number
    value.tensor.rank = len(dims)
    for k, d in enumerate(dims[:_MAX_RANK]):
        value.tensor.dims[k] = d


def _take(value):
    """An array; a list for a sequence, None or the value for an optional, a dict for a map. Copied."""
    if value.object:
        made = value.object.contents
        items = [_take(made.items[i]) for i in range(made.count)]
        if made.kind == 2:
            return items[0] if items else None
        return dict(zip(items[0].tolist(), items[1])) if made.kind == 3 else items
    tensor = value.tensor
    dims = tuple(tensor.dims[:tensor.rank])
    count = int(np.prod(dims, dtype=np.int64))
    if tensor.type == 8:
        block = ctypes.cast(tensor.data, ctypes.POINTER(_String))
        texts = [ctypes.string_at(block[i].data, block[i].size).decode() if block[i].size else "" for i in range(count)]
        array = np.empty(count, object)
        array[:] = texts
        return array.reshape(dims)
    raw = np.frombuffer(ctypes.string_at(tensor.data, _bytes(tensor.type, count)), np.uint8).copy()
    return raw.view(_TYPES[tensor.type]).reshape(dims) if tensor.type in _TYPES else raw


def _bytes(type_number, count):
    if type_number in _TYPES:
        return count * np.dtype(_TYPES[type_number]).itemsize
    if type_number == 8:
        return count * ctypes.sizeof(_String)
    return (count * _BITS[type_number] + 7) // 8


class Model:
    """The compiled model. `library`: path of the shared library; by default beside this file or in ../build."""

    def __init__(self, library=None, threads=0, weights_path=None, check_weights=False):
        self._library = ctypes.CDLL(library or _find_library())
        entry = getattr(self._library, NAME + "_model")
        entry.restype = ctypes.POINTER(_Model)
        self._api = entry().contents.api.contents
        options = _Options(struct_size=ctypes.sizeof(_Options), threads=threads, check_weights=int(check_weights),
                           weights_path=os.fsencode(weights_path) if weights_path else None)
        self._context = _P()
        status = self._api.context_create(None, ctypes.byref(options), ctypes.byref(self._context))
        if status:
            raise Error(status, self._api.last_error(None).decode())
        self.inputs = [self._api.input_info(i).contents for i in range(self._api.input_count())]
        self.outputs = [self._api.output_info(i).contents for i in range(self._api.output_count())]

    def __del__(self):
        if getattr(self, "_context", None):
            self._api.context_destroy(self._context)

    def __call__(self, *args, **kwargs):
        """Inputs by position or name; returns a dict of arrays. Types without a NumPy form go in and out as uint8 bytes with dims;
        strings are arrays of str, sequences lists, optionals the value or None, maps dicts."""
        named = {info.name.decode(): value for info, value in zip(self.inputs, args)}
        named.update(kwargs)
        known = {info.name.decode() for info in self.inputs}
        for name in named:
            if name not in known:
                raise TypeError(f"no input '{name}'; the inputs are {sorted(known)}")
        values = (_Value * max(1, len(self.inputs)))()
        keep = []
        for value, info in zip(values, self.inputs):
            given = named.get(info.name.decode())
            if info.kind == 2 and given is None and info.name.decode() in named:
                _object(value, 2, [], info, keep)
            elif given is not None:
                _give(value, given, info.kind, info, keep)
        outputs = (_Value * max(1, len(self.outputs)))()
        status = self._api.output_dims(self._context, values, outputs)
        if status:
            raise Error(status, self._api.last_error(None).decode())
        memory = [np.empty(max(64, v.tensor.needed_bytes), np.uint8) for v in outputs]
        while True:
            for value, block in zip(outputs, memory):
                value.tensor.data = block.ctypes.data
                value.tensor.capacity_bytes = block.nbytes
            status = self._api.run(self._context, values, outputs)
            small = [k for k, (v, block) in enumerate(zip(outputs, memory)) if v.tensor.needed_bytes > block.nbytes]
            if status != 2 or not small:  # OPTC_BUFFER_TOO_SMALL: sizes that only the run finds
                break
            for k in small:
                memory[k] = np.empty(outputs[k].tensor.needed_bytes, np.uint8)
        if status:
            raise Error(status, self._api.last_error(self._context).decode())
        result = {}
        for info, value, block in zip(self.outputs, outputs, memory):
            tensor = value.tensor
            if info.kind or info.type == 8:
                result[info.name.decode()] = _take(value)
                continue
            dims = tuple(tensor.dims[:tensor.rank])
            count = int(np.prod(dims, dtype=np.int64))
            raw = block[:_bytes(info.type, count)]
            result[info.name.decode()] = raw.view(_TYPES[info.type]).reshape(dims) if info.type in _TYPES else raw
        return result

    def profile(self, on=True):
        """Turns the timing of kernels on or off; returns what was measured so far as JSON text."""
        text = ctypes.c_char_p()
        self._api.profile(self._context, int(on), ctypes.byref(text))
        return text.value.decode()

    @property
    def manifest(self):
        text = self._api.manifest_json()
        if text is None:
            raise Error(5, self._api.last_error(None).decode())
        return text.decode()


def _find_library():
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (here, os.path.join(here, "..", "build"), os.path.join(here, ".."), os.path.join(here, "..", "..", "lib")):
        for name in (f"lib{NAME}.so", f"lib{NAME}.dylib", f"{NAME}.dll"):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
    raise FileNotFoundError(f"no lib{NAME}.so beside {here}: build it with -DBUILD_SHARED_LIBS=ON, or pass library=")

)PY";
  out += fmt::format("\nNAME = \"{}\"\n", f.name);
  return out;
}

}  // namespace optc
