_TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16,
          11: np.float64, 12: np.uint32, 13: np.uint64, 14: np.complex64, 15: np.complex128}
_BITS = {16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2}  # no NumPy type: raw bytes
_MAX_RANK = 8
_CPU, _CUDA = 1, 2  # devices, by DLPack's numbers
_LEGACY_STREAM = 1  # CUDA's default stream, with which the streams of frameworks are in order
_DLPACK = {(0, 8): 3, (0, 16): 5, (0, 32): 6, (0, 64): 7, (1, 8): 2, (1, 16): 4, (1, 32): 12, (1, 64): 13, (2, 16): 10, (2, 32): 1,
           (2, 64): 11, (4, 16): 16, (5, 64): 14, (5, 128): 15, (6, 8): 9, (10, 8): 17, (11, 8): 18, (12, 8): 19, (13, 8): 20}


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


class _Alias(ctypes.Structure):
    _fields_ = [("input", ctypes.c_size_t), ("output", ctypes.c_size_t), ("axis", ctypes.c_int32)]


class _Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("threads", ctypes.c_int32), ("parallel_for", ctypes.c_void_p), ("pool", ctypes.c_void_p),
                ("weights_path", ctypes.c_char_p), ("read_weights", ctypes.c_void_p), ("user", ctypes.c_void_p),
                ("check_weights", ctypes.c_int32), ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t)]


class _Dense(ctypes.Structure):  # DLTensor of dlpack.h, what a capsule of __dlpack__ begins with
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("dims", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


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
                ("last_error", _C(ctypes.c_char_p, _P)),
                ("workspace_peak", _C(ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_size_t))),
                ("alias_count", _C(ctypes.c_size_t)), ("alias_info", _C(ctypes.POINTER(_Alias), ctypes.c_size_t))]


class _Model(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("abi_version", ctypes.c_uint32), ("api", ctypes.POINTER(_Api))]


class Error(RuntimeError):
    """A status of the bundle that is not OPTC_OK: `status` is its number."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class State:
    """An input and an output that are one memory. `array`: a contiguous NumPy array or DLPack tensor, which runs write. Where the output is
    longer than the input along an axis, the array has room for all steps there, and `length` counts those that hold values; a run adds its
    own. Model.state() makes one."""

    def __init__(self, array, length=0):
        self.array, self.length = array, length


def _object(value, kind, items, info, keep):
    block = (_Value * max(1, len(items)))()
    for slot, item in zip(block, items):
        _give(slot, item, 1 if isinstance(item, list) else 3 if isinstance(item, dict) else 0, info, keep)
    made = _Object(kind, len(items), block)
    keep += [block, made]
    value.object = ctypes.pointer(made)


def _give(value, given, kind, info, keep, stream=_LEGACY_STREAM):
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
    _tensor(value, given, info.type, info, keep, stream)


def _name(number):
    if number in _TYPES:
        return np.dtype(_TYPES[number]).name
    return {16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz"}.get(
        number, "that no bundle knows" if number is None else f"{number} of onnx.TensorProto.DataType")


def _dlpack(given):
    """Whether an object lends its memory by DLPack (torch, cupy, jax ...), as NumPy's own arrays need not."""
    return hasattr(given, "__dlpack__") and hasattr(given, "__dlpack_device__") and not isinstance(given, np.ndarray)


def _lend(value, given, number, what, keep, stream):
    """Fills `value` with the memory of a DLPack object where it lies; `keep` holds the capsule. On a GPU what is still to be written to it
    comes before what follows in `stream`."""
    on_gpu = int(given.__dlpack_device__()[0]) == _CUDA
    capsule = given.__dlpack__(stream=stream) if on_gpu else given.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    dense = _Dense.from_address(pointer(capsule, b"dltensor"))
    keep.append(capsule)
    dims = dense.dims[:dense.rank]
    has = _DLPACK.get((dense.code, dense.bits)) if dense.lanes == 1 else None
    if has != number:
        raise TypeError(f"{what} has dtype {_name(has)}, expected {_name(number)}")
    step, dense_strides = 1, []
    for size in reversed(dims):
        dense_strides.append(step)
        step *= size
    if dense.strides and step and any(s != d and n != 1 for s, d, n in zip(dense.strides[:dense.rank], reversed(dense_strides), dims)):
        raise ValueError(f"{what} is not contiguous: pass .contiguous(), or a copy in row-major order")
    if dense.rank > _MAX_RANK:
        raise ValueError(f"{what} has rank {dense.rank}; a bundle takes {_MAX_RANK} dims at most")
    tensor = value.tensor
    tensor.data = (dense.data or 0) + dense.byte_offset or ctypes.addressof(value)
    tensor.type, tensor.rank, tensor.device_type, tensor.device_id = number, dense.rank, dense.device_type, dense.device_id
    tensor.capacity_bytes = _bytes(number, step)
    for k, d in enumerate(dims):
        tensor.dims[k] = d


def _tensor(value, given, number, info, keep, stream=_LEGACY_STREAM):
    if number != 8 and _dlpack(given):
        return _lend(value, given, number, f"input '{info.name.decode()}'", keep, stream)
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
                raise TypeError(f"input '{info.name.decode()}' has dtype {array.dtype}, expected {_name(number)}")
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
    """The compiled model. `library`: path of the shared library; by default beside this file or in ../build. `device`: "cpu", "cuda",
    "cuda:1"; by default the first GPU where the bundle has code for it and a driver is there, else the CPU."""

    def __init__(self, library=None, threads=0, weights_path=None, check_weights=False, device=None):
        self._library = ctypes.CDLL(library or _find_library())
        entry = getattr(self._library, NAME + "_model")
        entry.restype = ctypes.POINTER(_Model)
        self._api = entry().contents.api.contents
        kind, _, number = (device or "").partition(":")
        if kind not in ("", "cpu", "cuda") or (number and not (kind == "cuda" and number.isdecimal())):
            raise ValueError(f"device {device!r}: expected 'cpu', 'cuda' or 'cuda:N'")
        options = _Options(struct_size=ctypes.sizeof(_Options), threads=threads, check_weights=int(check_weights),
                           device_type={"": 0, "cpu": _CPU, "cuda": _CUDA}[kind], device_id=int(number or 0),
                           weights_path=os.fsencode(weights_path) if weights_path else None)
        self._context = _P()
        status = self._api.context_create(None, ctypes.byref(options), ctypes.byref(self._context))
        if status:
            raise Error(status, self._api.last_error(None).decode())
        self.inputs = [self._api.input_info(i).contents for i in range(self._api.input_count())]
        self.outputs = [self._api.output_info(i).contents for i in range(self._api.output_count())]
        aliases = [self._api.alias_info(i).contents for i in range(self._api.alias_count())]
        self._aliases = {alias.input: (alias.output, alias.axis) for alias in aliases}

    def __del__(self):
        if getattr(self, "_context", None):
            self._api.context_destroy(self._context)

    def state(self, name, capacity=None, **dims):
        """A State of zeros for the input `name`, in NumPy: with room for `capacity` steps where it grows, and the sizes of open dims by
        their names."""
        known = {info.name.decode(): k for k, info in enumerate(self.inputs)}
        if known.get(name) not in self._aliases:
            raise TypeError(f"'{name}' is no state; the states are {sorted(n for n, k in known.items() if k in self._aliases)}")
        info, (_, axis) = self.inputs[known[name]], self._aliases[known[name]]
        shape = []
        for k, dim in enumerate(info.dims[:info.rank]):
            symbol = dim.symbol.decode() if dim.symbol else None
            size = capacity if k == axis else dims.get(symbol) if symbol else dim.value
            if size is None:
                raise TypeError(f"state '{name}': the size of {'capacity' if k == axis else repr(symbol)} is missing")
            shape.append(size)
        return State(np.zeros(shape, _TYPES[info.type]))

    def _give_state(self, value, given, info, axis, keep, stream):
        name = info.name.decode()
        if not isinstance(given, State):
            if axis >= 0:
                raise TypeError(f"input '{name}' is one memory with an output, and grows: give a State (Model.state makes one)")
            given = State(given)
        array = given.array
        if _dlpack(array):
            _lend(value, array, info.type, f"input '{name}'", keep, stream)
        else:
            fits = isinstance(array, np.ndarray) and info.type in _TYPES and array.dtype == _TYPES[info.type]
            if not fits or not array.flags.c_contiguous or not array.flags.writeable:
                raise TypeError(f"input '{name}': expected a contiguous, writable array or DLPack tensor of {_name(info.type)}")
            _tensor(value, array, info.type, info, keep)
            value.tensor.capacity_bytes, value.tensor.device_type = array.nbytes, _CPU
        if axis >= 0 and axis < value.tensor.rank:
            value.tensor.dims[axis] = given.length
        return given

    def _share_states(self, values, outputs):
        """Gives the outputs that are one memory with inputs that memory; returns the States by the output's number."""
        states = {}
        for k, (output, _) in self._aliases.items():
            tensor, given = outputs[output].tensor, values[k].tensor
            tensor.data, tensor.capacity_bytes = given.data, given.capacity_bytes
            tensor.device_type, tensor.device_id = given.device_type, given.device_id
            states[output] = self._states.pop(k, None)
        return states

    def _grown(self, state, output, tensor):
        axis = next(axis for number, axis in self._aliases.values() if number == output)
        if axis < 0:
            return state.array
        state.length = tensor.dims[axis]
        return state.array[(slice(None),) * axis + (slice(0, state.length),)]

    def __call__(self, *args, out=None, **kwargs):
        """Inputs by position or name; returns a dict of arrays. Types without a NumPy form go in and out as uint8 bytes with dims;
        strings are arrays of str, sequences lists, optionals the value or None, maps dicts.

        Tensors of other libraries (torch, cupy: whatever has __dlpack__) are taken where they lie, on a GPU too. `out`: arrays or such
        tensors by an output's name, of the result's type and shape, that are written and returned instead of new arrays. An input that is
        one memory with an output is given as a State, or where it does not grow as an array; the output is a view of it."""
        values, keep, on_gpu = self._given(args, kwargs)
        outputs = (_Value * max(1, len(self.outputs)))()
        status = self._api.output_dims(self._context, values, outputs)
        if status:
            raise Error(status, self._api.last_error(None).decode())
        theirs = self._out(out or {}, outputs, keep)
        states = self._share_states(values, outputs)
        if on_gpu or any(v.tensor.device_type == _CUDA for v in outputs):
            _wait_for_gpu()  # the bundle's own stream is in order with no other
        memory = [None if k in theirs or k in states else np.empty(max(64, v.tensor.needed_bytes), np.uint8)
                  for k, v in zip(range(len(self.outputs)), outputs)]
        while True:
            for value, block in zip(outputs, memory):
                if block is not None:
                    value.tensor.data = block.ctypes.data
                    value.tensor.capacity_bytes = block.nbytes
            status = self._api.run(self._context, values, outputs)
            small = [k for k, (v, block) in enumerate(zip(outputs, memory)) if block is not None and v.tensor.needed_bytes > block.nbytes]
            if status != 2 or not small:  # OPTC_BUFFER_TOO_SMALL: sizes that only the run finds
                break
            for k in small:
                memory[k] = np.empty(outputs[k].tensor.needed_bytes, np.uint8)
        if status:
            raise Error(status, self._api.last_error(self._context).decode())
        result = {}
        for k, (info, value) in enumerate(zip(self.outputs, outputs)):
            tensor, name = value.tensor, info.name.decode()
            dims = tuple(tensor.dims[:tensor.rank])
            if k in states:
                result[name] = self._grown(states[k], k, tensor)
                continue
            if k in theirs:
                if tuple(theirs[k].shape) != dims:
                    raise ValueError(f"out '{name}' has shape {tuple(theirs[k].shape)}, the result {dims}")
                result[name] = theirs[k]
                continue
            if info.kind or info.type == 8:
                result[name] = _take(value)
                continue
            count = int(np.prod(dims, dtype=np.int64))
            raw = memory[k][:_bytes(info.type, count)]
            result[name] = raw.view(_TYPES[info.type]).reshape(dims) if info.type in _TYPES else raw
        return result

    def run_async(self, *args, out, stream=_LEGACY_STREAM, **kwargs):
        """Puts a run into a CUDA stream (an address, as torch.cuda.Stream.cuda_stream; by default CUDA's default stream) and returns `out`,
        which has a tensor on the GPU for each output. All inputs lie there too, and stay alive until the stream has come that far."""
        values, keep, _ = self._given(args, kwargs, stream)
        outputs = (_Value * max(1, len(self.outputs)))()
        theirs = self._out(out, outputs, keep, stream)
        states = self._share_states(values, outputs)
        for k, info in enumerate(self.outputs):
            if k not in theirs and k not in states:
                raise TypeError(f"run_async: no tensor for the output '{info.name.decode()}' in out")
        given = [tuple(value.tensor.dims[:value.tensor.rank]) for value in outputs]
        if self._api.run_async(self._context, values, outputs, stream):
            raise Error(6, self._api.last_error(self._context).decode())
        for k, state in states.items():
            self._grown(state, k, outputs[k].tensor)
        for k, (info, value, dims) in enumerate(zip(self.outputs, outputs, given)):
            if k in states:
                continue
            wrote = tuple(value.tensor.dims[:value.tensor.rank])
            if wrote != dims:
                raise ValueError(f"out '{info.name.decode()}' has shape {dims}, the result {wrote}")
        return out

    def _given(self, args, kwargs, stream=_LEGACY_STREAM):
        named = {info.name.decode(): value for info, value in zip(self.inputs, args)}
        named.update(kwargs)
        known = {info.name.decode() for info in self.inputs}
        for name in named:
            if name not in known:
                raise TypeError(f"no input '{name}'; the inputs are {sorted(known)}")
        values = (_Value * max(1, len(self.inputs)))()
        keep = []
        self._states = {}  # of this run, by the input's number
        for k, (value, info) in enumerate(zip(values, self.inputs)):
            name = info.name.decode()
            given = named.get(name)
            if k in self._aliases and given is not None:
                self._states[k] = self._give_state(value, given, info, self._aliases[k][1], keep, stream)
                continue
            if info.kind == 2 and given is None and name in named:
                _object(value, 2, [], info, keep)
            elif given is not None:
                _give(value, given, info.kind, info, keep, stream)
        return values, keep, any(v.tensor.device_type == _CUDA for v in values)

    def _out(self, out, outputs, keep, stream=_LEGACY_STREAM):
        """Fills the outputs that the caller has memory for; returns those tensors by the output's number."""
        numbers = {info.name.decode(): k for k, info in enumerate(self.outputs)}
        theirs = {}
        for name, tensor in out.items():
            if name not in numbers:
                raise TypeError(f"no output '{name}'; the outputs are {sorted(numbers)}")
            k = numbers[name]
            if any(k == output for output, _ in self._aliases.values()):
                raise TypeError(f"out '{name}': the result is the memory of an input")
            info, slot = self.outputs[k], outputs[k]
            if info.kind or info.type == 8:
                raise TypeError(f"out '{name}': the result is no tensor of numbers, and a new one each time")
            if _dlpack(tensor):
                _lend(slot, tensor, info.type, f"out '{name}'", keep, stream)
            else:
                fits = isinstance(tensor, np.ndarray) and info.type in _TYPES and tensor.dtype == _TYPES[info.type]
                if not fits or not tensor.flags.c_contiguous or not tensor.flags.writeable:
                    raise TypeError(f"out '{name}': expected a contiguous, writable array or DLPack tensor of {_name(info.type)}")
                slot.tensor.data = tensor.ctypes.data if tensor.size else ctypes.addressof(slot)
                slot.tensor.capacity_bytes = tensor.nbytes
                slot.tensor.device_type = _CPU
                keep.append(tensor)
            theirs[k] = tensor
        return theirs

    def profile(self, on=True):
        """Turns the timing of kernels on or off; returns what was measured so far as JSON text."""
        text = ctypes.c_char_p()
        self._api.profile(self._context, int(on), ctypes.byref(text))
        return text.value.decode()

    def workspace_peak(self, threads=0):
        """The most bytes of workspace that a context of so many threads takes for any dims in the ranges of the inputs."""
        size = ctypes.c_size_t()
        status = self._api.workspace_peak(threads, ctypes.byref(size))
        if status:
            raise Error(status, self._api.last_error(None).decode())
        return size.value

    @property
    def manifest(self):
        text = self._api.manifest_json()
        if text is None:
            raise Error(5, self._api.last_error(None).decode())
        return text.decode()


def _wait_for_gpu():
    """Waits for what frameworks have put into CUDA's default stream."""
    cuda = ctypes.CDLL(os.environ.get("OPTC_LIBCUDA") or "libcuda.so.1")
    status = cuda.cuStreamSynchronize(_P(_LEGACY_STREAM))
    if status:
        raise Error(6, f"cuStreamSynchronize of the default stream: CUDA error {status}")


def _find_library():
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (here, os.path.join(here, "..", "build"), os.path.join(here, ".."), os.path.join(here, "..", "..", "lib")):
        for name in (f"lib{NAME}.so", f"lib{NAME}.dylib", f"{NAME}.dll"):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
    raise FileNotFoundError(f"no lib{NAME}.so beside {here}: build it with -DBUILD_SHARED_LIBS=ON, or pass library=")
