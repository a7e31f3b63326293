"""Times of ONNX Runtime on the shapes of the kernel benches: one operator a model, one thread, best of many runs."""
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

GEMM = [(16, 768, 768), (128, 768, 768), (128, 768, 3072), (128, 3072, 768), (512, 512, 512), (1024, 1024, 1024), (3136, 64, 64), (3136, 64, 256),
        (784, 512, 128), (49, 2048, 512), (196, 1024, 256), (1, 256, 1024), (1, 768, 768), (1, 768, 3072), (1, 4096, 4096), (4, 768, 768)]
# h, c, oc, kernel, stride, groups
CONV = [(56, 64, 64, 3, 1, 1), (28, 128, 128, 3, 1, 1), (14, 256, 256, 3, 1, 1), (7, 512, 512, 3, 1, 1), (224, 3, 64, 7, 2, 1), (224, 3, 32, 3, 2, 1),
        (56, 128, 128, 3, 2, 1), (56, 128, 128, 3, 1, 32), (112, 32, 32, 3, 1, 32), (56, 144, 144, 3, 1, 144), (14, 576, 576, 3, 1, 576),
        (112, 96, 96, 3, 2, 96), (28, 240, 240, 5, 1, 240)]
# batch, heads, queries, keys, head size
ATTENTION = [(1, 12, 128, 128, 64), (1, 12, 512, 512, 64), (1, 12, 1, 256, 64), (1, 8, 197, 197, 64)]


def best(nodes, inputs, weights, output_shape, opset=23):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in inputs.items()],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, output_shape)],
                              [numpy_helper.from_array(v, k) for k, v in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    least, end = 1e9, time.time() + 0.3
    binding = session.io_binding()
    for k, v in inputs.items():
        binding.bind_cpu_input(k, v)
    y = np.zeros(output_shape, np.float32)
    binding.bind_output("y", "cpu", 0, np.float32, output_shape, y.ctypes.data)
    while time.time() < end:
        t = time.perf_counter()
        session.run_with_iobinding(binding)
        least = min(least, time.perf_counter() - t)
    return least * 1e6


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def main():
    what = [a for a in sys.argv[1:] if not a.isdigit()] or ["gemm", "conv", "attention"]
    if "gemm" in what:
        for m, k, n in GEMM[next((int(a) for a in sys.argv[1:] if a.isdigit()), 0):]:
            t = best([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": normal(m, k)}, {"w": normal(k, n)}, [m, n])
            print(f"{m} x {k} x {n}: {t:.1f} us {2e-3 * m * n * k / t:.0f} GF/s")
    if "conv" in what:
        for h, c, oc, k, s, g in CONV:
            p, o = k // 2, (h + 2 * (k // 2) - k) // s + 1
            nodes = [helper.make_node("Conv", ["x", "w", "b"], ["t"], strides=[s, s], pads=[p] * 4, group=g, kernel_shape=[k, k]), helper.make_node("Relu", ["t"], ["y"])]
            t = best(nodes, {"x": normal(1, c, h, h)}, {"w": normal(oc, c // g, k, k), "b": normal(oc)}, [1, oc, o, o])
            print(f"{h}x{h} {c} -> {oc}, {k}x{k} s{s} g{g}: {t:.1f} us")
    if "attention" in what:
        for b, heads, q, k, d in ATTENTION:
            nodes = [helper.make_node("Attention", ["q", "k", "v"], ["y"])]
            t = best(nodes, {"q": normal(b, heads, q, d), "k": normal(b, heads, k, d), "v": normal(b, heads, k, d)}, {}, [b, heads, q, d])
            print(f"attention {b}x{heads} {q} queries {k} keys {d}: {t:.1f} us")


main()
