"""models.py DIR [ROWS COLS]: the memory-bound models of bench/gpu/bandwidth as NAME.onnx, by default 8192 x 4096.

Each is one or a few ONNX nodes whose types are stated (f16 or f32), so that a fused kernel has to round where the model does.
"""
import os
import sys

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

F16, F32 = TensorProto.FLOAT16, TensorProto.FLOAT


def model(path, kind, inputs, nodes, output, weights, opset=23):
    """Writes a model of `nodes`; inputs and output are (name, dims), weights are names of vectors."""
    rng = np.random.default_rng(0)
    numpy_kind = np.float16 if kind == F16 else np.float32
    constants = [numpy_helper.from_array((rng.random(n) * 2 - 1).astype(numpy_kind), name) for name, n in weights]
    constants += [numpy_helper.from_array(np.array([1], np.int64), 'axis')] if any(n.op_type == 'ReduceSum' for n in nodes) else []
    graph = helper.make_graph(nodes, os.path.basename(path)[:-5], [helper.make_tensor_value_info(n, kind, d) for n, d in inputs],
                              [helper.make_tensor_value_info(output[0], kind, output[1])], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)], ir_version=10)
    checker.check_model(made)
    save(made, path)


def main():
    folder = sys.argv[1]
    rows, cols = (int(v) for v in sys.argv[2:4]) if len(sys.argv) > 3 else (8192, 4096)
    os.makedirs(folder, exist_ok=True)
    node, x, y, o = helper.make_node, ('x', [rows, cols]), ('y', [rows, cols]), ('o', [rows, cols])
    gb = [('g', cols), ('b', cols)]
    model(f'{folder}/pointwise_f16.onnx', F16, [x, y],
          [node('Mul', ['x', 'g'], ['s']), node('Add', ['s', 'b'], ['t']), node('Gelu', ['t'], ['u']), node('Add', ['u', 'y'], ['o'])], o, gb)
    model(f'{folder}/layernorm_f16.onnx', F16, [x], [node('LayerNormalization', ['x', 'g', 'b'], ['o'])], o, gb)
    model(f'{folder}/add_layernorm_f16.onnx', F16, [x, y],
          [node('Add', ['x', 'y'], ['s']), node('LayerNormalization', ['s', 'g', 'b'], ['o'])], o, gb)
    model(f'{folder}/rmsnorm_f32.onnx', F32, [x], [node('RMSNormalization', ['x', 'g'], ['o'])], o, [('g', cols)])
    model(f'{folder}/softmax_f16.onnx', F16, [x], [node('Softmax', ['x'], ['o'])], o, [])
    model(f'{folder}/rowsum_f32.onnx', F32, [x], [node('ReduceSum', ['x', 'axis'], ['o'], keepdims=0)], ('o', [rows]), [])


main()
