"""Element types as ONNX and numpy name them, and files of tensors."""

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F16, F32, F64 = np.dtype("f2"), np.dtype("f4"), np.dtype("f8")
BF16 = np.dtype(ml_dtypes.bfloat16)
I8, I16, I32, I64 = (np.dtype(c) for c in ("i1", "i2", "i4", "i8"))
U8, U16, U32, U64 = (np.dtype(c) for c in ("u1", "u2", "u4", "u8"))
BOOL, STRING = np.dtype("?"), np.dtype(object)
FLOATS = [F32, F64, F16, BF16]
INTS = [I8, I16, I32, I64, U8, U16, U32, U64]
# Types without arithmetic of their own: they are stored, moved and cast.
NARROW = {
    TensorProto.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    TensorProto.FLOAT8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    TensorProto.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    TensorProto.FLOAT8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    TensorProto.INT4: np.dtype(ml_dtypes.int4),
    TensorProto.UINT4: np.dtype(ml_dtypes.uint4),
}
FLOAT8 = [NARROW[t] for t in (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ)]
INT4 = [NARROW[TensorProto.INT4], NARROW[TensorProto.UINT4]]
NUMPY = {
    TensorProto.FLOAT: F32, TensorProto.DOUBLE: F64, TensorProto.FLOAT16: F16, TensorProto.BFLOAT16: BF16,
    TensorProto.INT8: I8, TensorProto.INT16: I16, TensorProto.INT32: I32, TensorProto.INT64: I64,
    TensorProto.UINT8: U8, TensorProto.UINT16: U16, TensorProto.UINT32: U32, TensorProto.UINT64: U64,
    TensorProto.BOOL: BOOL, TensorProto.STRING: STRING, **NARROW,
}  # fmt: skip
ONNX = {v: k for k, v in NUMPY.items()}
EPSILON = {F64: 2.0**-53, F32: 2.0**-24, F16: 2.0**-11, BF16: 2.0**-8}  # half the distance of 1 and the next number


def is_float(dtype):
    return dtype in EPSILON


def is_int(dtype):
    return dtype in INTS


def as_f64(array):
    return array.astype(np.float64)


def value_info(name, array, dims=None):
    if isinstance(array, list):
        return helper.make_tensor_sequence_value_info(name, ONNX[array[0].dtype] if array else TensorProto.FLOAT, None)
    return helper.make_tensor_value_info(name, ONNX[array.dtype], list(array.shape) if dims is None else dims)


def save_case(folder, model, data_sets):
    """A folder of the ONNX test layout: model.onnx, test_data_set_K/input_I.pb and output_I.pb. `data_sets` holds pairs of dicts,
    inputs and right outputs by name; an input that is missing keeps its initializer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for k, (inputs, outputs) in enumerate(data_sets):
        data = folder / f"test_data_set_{k}"
        data.mkdir(exist_ok=True)
        for kind, values, named in (("input", inputs, model.graph.input), ("output", outputs, model.graph.output)):
            for i, value in enumerate(named):
                if value.name in values:
                    (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(values[value.name], value.name).SerializeToString())


def load_tensor(path):
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
