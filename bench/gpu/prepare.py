"""prepare.py MODEL DIR [NAME=N ...]: random inputs for a model and ONNX Runtime's outputs without optimizations, for run_model."""
import struct
import sys

import numpy as np
import onnx
import onnxruntime as ort

NUMPY = {1: np.float32, 7: np.int64, 6: np.int32, 9: np.bool_, 10: np.float16, 11: np.float64, 2: np.uint8, 3: np.int8}


def write(path, arrays):
    with open(path, 'wb') as f:
        f.write(struct.pack('<q', len(arrays)))
        for a in arrays:
            a = np.ascontiguousarray(a)
            kind = next(k for k, v in NUMPY.items() if np.dtype(v) == a.dtype)
            f.write(struct.pack(f'<3q{a.ndim}q', kind, a.ndim, a.nbytes, *a.shape))
            f.write(a.tobytes())


def main():
    path, out = sys.argv[1:3]
    dims = dict(p.split('=') for p in sys.argv[3:])
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options)
    rng = np.random.default_rng(0)
    feed = {}
    model = onnx.load(path, load_external_data=False)
    kinds = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) else int(dims.get(d, 1)) for d in i.shape]
        t = NUMPY[kinds[i.name]]
        if t in (np.int64, np.int32):
            feed[i.name] = np.ones(shape, t) if 'mask' in i.name else rng.integers(0, 100, shape).astype(t)
        elif t is np.bool_:
            feed[i.name] = np.ones(shape, t)
        else:
            feed[i.name] = rng.standard_normal(shape).astype(t)
    write(f'{out}/inputs.bin', list(feed.values()))
    write(f'{out}/expected.bin', session.run(None, feed))


main()
