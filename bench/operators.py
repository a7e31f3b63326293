#!/usr/bin/env python3
"""operators.py OPTC [NAME...] [--threads 1] [--jobs 2]: operators at sizes that models have, each as a model of its own, beside ONNX Runtime in the same
run, one line each, slowest first. NAME: those whose name begins so. Ratio: ONNX Runtime's minimum over optc's.

All bundles are built before the first is timed. A case is a line of `cases`: add one there.
"""
import argparse
import pathlib
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from beside_ort import bench

R = np.random.default_rng(0)


def f(*shape):
    return R.normal(size=shape).astype(np.float32)


def ints(high, *shape, type=np.int64):
    return R.integers(0, high, shape).astype(type)


def model(op, inputs, outputs=1, opset=18, domain="", **attributes):
    """One node. Arrays in a list of one are inputs of the model, other arrays are initializers, None is an input left out."""
    names, values, tensors = [], [], []
    for k, value in enumerate(inputs):
        names.append("" if value is None else f"i{k}")
        if isinstance(value, list):
            values.append(helper.make_tensor_value_info(names[-1], helper.np_dtype_to_tensor_dtype(value[0].dtype), value[0].shape))
        elif value is not None:
            tensors.append(numpy_helper.from_array(np.asarray(value), names[-1]))
    node = helper.make_node(op, names, [f"o{k}" for k in range(outputs)], domain=domain, **attributes)
    graph = helper.make_graph([node], "bench", values, [onnx.ValueInfoProto(name=o) for o in node.output], tensors)
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(domain, {"ai.onnx.ml": 3}.get(domain, 1))] * bool(domain)
    return helper.make_model(graph, opset_imports=imports, ir_version=10), {n: v[0] for n, v in zip(names, inputs) if isinstance(v, list)}


def trees(kind, count=100, depth=6, features=20):
    """count complete trees of `depth` levels of splits."""
    a = {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")}
    leaves = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    for tree in range(count):
        for n in range(nodes):
            leaf = n >= inner
            for key, value in zip(a, (tree, n, 0 if leaf else int(R.integers(features)), 0.0 if leaf else float(R.normal()), "LEAF" if leaf else "BRANCH_LEQ", 0 if leaf else 2 * n + 1, 0 if leaf else 2 * n + 2)):
                a[key].append(value)
            if leaf:
                for key, value in zip(leaves, (tree, n, 0, float(R.normal()))):
                    leaves[key].append(value)
    word = "target" if kind == "TreeEnsembleRegressor" else "class"
    attributes = {f"nodes_{k}": v for k, v in a.items()} | {f"{word}_{k}": v for k, v in leaves.items()}
    return attributes | ({"n_targets": 1} if word == "target" else {"classlabels_int64s": [0, 1]})


def boxes(*shape):
    corner, size = R.random((*shape, 2), np.float32) * 600, R.random((*shape, 2), np.float32) * 60
    return np.concatenate([corner, corner + size], -1)


def recurrent(gates, hidden=128, inputs=64, length=50, batch=1, directions=1):
    return [[f(length, batch, inputs)], f(directions, gates * hidden, inputs) / 8, f(directions, gates * hidden, hidden) / 11, f(directions, 2 * gates * hidden) / 8]


def cases():
    image, map_ = [f(1, 64, 56, 56)], [f(1, 21, 256, 256)]
    yield "TopK 120k k=1000", *model("TopK", [[f(1, 120000)], np.array([1000])], 2)
    yield "TopK 64x1000 k=5", *model("TopK", [[f(64, 1000)], np.array([5])], 2)
    yield "TopK 80x8400 k=100", *model("TopK", [[f(1, 80, 8400)], np.array([100])], 2)
    yield "TopK axis 1", *model("TopK", [[f(1, 300, 80)], np.array([50])], 2, axis=1)
    yield "NonZero", *model("NonZero", [[(f(300, 400) > 1)]])
    yield "NonMaxSuppression 4700, all", *model("NonMaxSuppression", [[boxes(1, 4700)], [R.random((1, 1, 4700), np.float32)], np.array(4700), np.float32(0.5), np.float32(0.05)])
    yield "NonMaxSuppression 80x8400", *model("NonMaxSuppression", [[boxes(1, 8400)], [R.random((1, 80, 8400), np.float32)], np.array(100), np.float32(0.5), np.float32(0.9)])
    yield "Unique", *model("Unique", [[ints(5000, 100000)]], 4)
    yield "Compress", *model("Compress", [[f(1000, 256)], [f(1000) > 0]], axis=0)
    yield "CumSum", *model("CumSum", [[f(64, 4096)], np.array(1)])
    yield "CumSum axis 0", *model("CumSum", [[f(4096, 64)], np.array(0)])
    yield "GatherND", *model("GatherND", [[f(64, 64, 64)], [ints(64, 4096, 2)]])
    yield "GatherElements", *model("GatherElements", [[f(512, 1024)], [ints(1024, 512, 256)]], axis=1)
    yield "ScatterElements", *model("ScatterElements", [[f(512, 1024)], [ints(1024, 512, 256)], [f(512, 256)]], axis=1)
    yield "ScatterElements add", *model("ScatterElements", [[f(2048, 64)], [ints(2048, 8192, 64)], [f(8192, 64)]], axis=0, reduction="add")
    yield "ScatterND", *model("ScatterND", [[f(4096, 64)], [ints(4096, 2048, 1)], [f(2048, 64)]])
    yield "Gather rows", *model("Gather", [f(30000, 256), [ints(30000, 512)]])
    yield "OneHot", *model("OneHot", [[ints(10000, 128)], np.array(10000), np.array([0, 1], np.float32)])
    yield "Resize linear x2", *model("Resize", [image, None, np.array([1, 1, 2, 2], np.float32)], mode="linear")
    yield "Resize nearest x2", *model("Resize", [image, None, np.array([1, 1, 2, 2], np.float32)], mode="nearest")
    yield "Resize cubic", *model("Resize", [[f(1, 3, 256, 256)], None, None, np.array([1, 3, 384, 384])], mode="cubic")
    yield "Resize linear antialias", *model("Resize", [[f(1, 3, 512, 512)], None, None, np.array([1, 3, 224, 224])], mode="linear", antialias=1)
    yield "Resize linear, corners", *model("Resize", [map_, None, None, np.array([1, 21, 520, 520])], mode="linear", coordinate_transformation_mode="align_corners")
    yield "GridSample", *model("GridSample", [image, [R.uniform(-1, 1, (1, 56, 56, 2)).astype(np.float32)]], mode="linear", opset=20)
    yield "GridSample cubic", *model("GridSample", [[f(1, 3, 128, 128)], [R.uniform(-1, 1, (1, 128, 128, 2)).astype(np.float32)]], mode="cubic", opset=20)
    yield "RoiAlign", *model("RoiAlign", [[f(1, 64, 50, 50)], [boxes(300)], [np.zeros(300, np.int64)]], output_height=7, output_width=7, sampling_ratio=2, spatial_scale=0.0625)
    yield "MaxRoiPool", *model("MaxRoiPool", [[f(1, 64, 50, 50)], [np.concatenate([np.zeros((300, 1), np.float32), boxes(300)], 1)]], pooled_shape=[7, 7], spatial_scale=0.0625)
    yield "DeformConv", *model("DeformConv", [[f(1, 64, 28, 28)], f(64, 64, 3, 3), [f(1, 18, 28, 28)]], opset=19, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    yield "MaxPool 3x3 s2", *model("MaxPool", [[f(1, 64, 112, 112)]], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    yield "MaxPool with indices", *model("MaxPool", [image], 2, kernel_shape=[2, 2], strides=[2, 2])
    yield "MaxUnpool", *model("MaxUnpool", [[f(1, 64, 28, 28)], [ints(64 * 56 * 56, 1, 64, 28, 28)]], kernel_shape=[2, 2], strides=[2, 2])
    yield "AveragePool 3x3", *model("AveragePool", [image], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    yield "AveragePool 3-D", *model("AveragePool", [[f(1, 16, 16, 32, 32)]], kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    yield "LpPool", *model("LpPool", [image], kernel_shape=[3, 3], p=2)
    yield "GlobalAveragePool", *model("GlobalAveragePool", [image])
    yield "LRN", *model("LRN", [image], size=5)
    yield "InstanceNormalization", *model("InstanceNormalization", [image, f(64), f(64)])
    yield "GroupNormalization", *model("GroupNormalization", [image, f(64), f(64)], opset=21, num_groups=8)
    yield "BatchNormalization", *model("BatchNormalization", [image, f(64), f(64), f(64), abs(f(64))])
    yield "LayerNormalization", *model("LayerNormalization", [[f(128, 768)], f(768), f(768)])
    yield "RMSNormalization", *model("RMSNormalization", [[f(128, 768)], f(768)], opset=23)
    yield "LpNormalization", *model("LpNormalization", [[f(128, 768)]], axis=-1, p=2)
    yield "MeanVarianceNormalization", *model("MeanVarianceNormalization", [image])
    yield "Softmax rows", *model("Softmax", [[f(12, 128, 128)]], axis=-1)
    yield "Softmax channels", *model("Softmax", [map_], axis=1)
    yield "LogSoftmax vocabulary", *model("LogSoftmax", [[f(16, 30522)]], axis=-1)
    yield "Hardmax", *model("Hardmax", [[f(256, 1000)]], axis=-1)
    yield "ArgMax channels", *model("ArgMax", [map_], axis=1, keepdims=0)
    yield "ArgMax rows", *model("ArgMax", [[f(16, 30522)]], axis=-1, keepdims=0)
    yield "ReduceMean spatial", *model("ReduceMean", [image, np.array([2, 3])])
    yield "ReduceSum axis 0", *model("ReduceSum", [[f(1024, 1024)], np.array([0])])
    yield "ReduceMax middle", *model("ReduceMax", [[f(64, 128, 64)], np.array([1])])
    yield "ReduceL2", *model("ReduceL2", [[f(1024, 512)], np.array([1])])
    yield "ReduceLogSumExp", *model("ReduceLogSumExp", [[f(512, 512)], np.array([1])])
    yield "ReduceProd int64", *model("ReduceProd", [[ints(3, 512, 64)], np.array([1])])
    yield "Einsum bhid,bhjd", *model("Einsum", [[f(1, 12, 128, 64)], [f(1, 12, 128, 64)]], equation="bhid,bhjd->bhij")
    yield "Einsum bid,jd->bij", *model("Einsum", [[f(8, 64, 256)], f(256, 256)], equation="bid,jd->bij")
    yield "Einsum i,j->ij", *model("Einsum", [[f(512)], [f(512)]], equation="i,j->ij")
    yield "MatMul f64", *model("MatMul", [[f(256, 256).astype(np.float64)], f(256, 256).astype(np.float64)])
    yield "MatMul int32", *model("MatMul", [[ints(100, 128, 128, type=np.int32)], ints(100, 128, 128, type=np.int32)])
    yield "MatMul batched", *model("MatMul", [[f(12, 128, 64)], [f(12, 64, 128)]])
    yield "MatMul vector", *model("MatMul", [[f(1, 1024)], f(1024, 1024)])
    yield "MatMul thin", *model("MatMul", [[f(4096, 3)], f(3, 64)])
    yield "Gemm transposed", *model("Gemm", [[f(512, 64)], f(128, 512), f(128)], transA=1, transB=1)
    yield "MatMulInteger", *model("MatMulInteger", [[ints(255, 128, 512, type=np.uint8)], ints(100, 512, 512, type=np.int8), np.uint8(120)])
    yield "QuantizeLinear", *model("QuantizeLinear", [image, np.float32(0.1), np.uint8(128)])
    yield "DequantizeLinear", *model("DequantizeLinear", [[ints(255, 1, 64, 56, 56, type=np.uint8)], np.float32(0.1), np.uint8(128)])
    yield "DynamicQuantizeLinear", *model("DynamicQuantizeLinear", [[f(128, 768)]], 3)
    yield "QLinearConv", *model("QLinearConv", [[ints(255, 1, 64, 28, 28, type=np.uint8)], np.float32(0.1), np.uint8(128), ints(100, 64, 64, 3, 3, type=np.int8), np.float32(0.02), np.int8(0), np.float32(0.3), np.uint8(100)], pads=[1, 1, 1, 1])
    yield "ConvInteger", *model("ConvInteger", [[ints(255, 1, 32, 28, 28, type=np.uint8)], ints(255, 32, 32, 3, 3, type=np.uint8), np.uint8(128), np.uint8(128)], pads=[1, 1, 1, 1])
    yield "Conv 3x3", *model("Conv", [image, f(64, 64, 3, 3)], pads=[1, 1, 1, 1])
    yield "Conv 1x1", *model("Conv", [image, f(128, 64, 1, 1)])
    yield "Conv 7x7 s2", *model("Conv", [[f(1, 3, 224, 224)], f(64, 3, 7, 7)], pads=[3, 3, 3, 3], strides=[2, 2])
    yield "Conv depthwise 5x5", *model("Conv", [[f(1, 120, 28, 28)], f(120, 1, 5, 5)], pads=[2, 2, 2, 2], group=120)
    yield "Conv grouped", *model("Conv", [image, f(64, 8, 3, 3)], pads=[1, 1, 1, 1], group=8)
    yield "Conv dilated", *model("Conv", [[f(1, 64, 33, 33)], f(64, 64, 3, 3)], pads=[6, 6, 6, 6], dilations=[6, 6])
    yield "Conv 1-D", *model("Conv", [[f(1, 80, 1000)], f(256, 80, 3)], pads=[1, 1])
    yield "Conv 1-D depthwise", *model("Conv", [[f(1, 256, 500)], f(256, 1, 31)], pads=[15, 15], group=256)
    yield "Conv 3-D", *model("Conv", [[f(1, 16, 16, 32, 32)], f(16, 16, 3, 3, 3)], pads=[1] * 6)
    yield "Conv f64", *model("Conv", [[f(1, 16, 28, 28).astype(np.float64)], f(16, 16, 3, 3).astype(np.float64)], pads=[1, 1, 1, 1])
    yield "ConvTranspose 2x2 s2", *model("ConvTranspose", [[f(1, 128, 28, 28)], f(128, 64, 2, 2)], strides=[2, 2])
    yield "ConvTranspose 4x4 s2", *model("ConvTranspose", [[f(1, 64, 28, 28)], f(64, 32, 4, 4)], strides=[2, 2], pads=[1, 1, 1, 1])
    yield "ConvTranspose 1-D", *model("ConvTranspose", [[f(1, 64, 200)], f(64, 32, 16)], strides=[8], pads=[4, 4])
    yield "LSTM", *model("LSTM", recurrent(4), 3, hidden_size=128)
    yield "LSTM both ways", *model("LSTM", recurrent(4, directions=2), 3, hidden_size=128, direction="bidirectional")
    yield "GRU", *model("GRU", recurrent(3), 2, hidden_size=128)
    yield "GRU, linear before reset", *model("GRU", recurrent(3, batch=8), 2, hidden_size=128, linear_before_reset=1)
    yield "RNN", *model("RNN", recurrent(1), 2, hidden_size=128)
    yield "DFT 1024", *model("DFT", [[f(32, 1024, 1)]], axis=1, opset=17)
    yield "DFT 400", *model("DFT", [[f(100, 400, 1)]], axis=1, onesided=1, opset=17)
    yield "STFT", *model("STFT", [[f(1, 16000)], np.array(160), np.hanning(400).astype(np.float32)], onesided=1)
    yield "Exp", *model("Exp", [[f(512, 1024)]])
    yield "Erf", *model("Erf", [[f(512, 1024)]])
    yield "Tanh", *model("Tanh", [[f(512, 1024)]])
    yield "Sin", *model("Sin", [[f(512, 1024)]])
    yield "Atan", *model("Atan", [[f(512, 1024)]])
    yield "Pow", *model("Pow", [[abs(f(512, 1024))], [f(512, 1024)]])
    yield "Log", *model("Log", [[abs(f(512, 1024))]])
    yield "Mish", *model("Mish", [[f(512, 1024)]])
    yield "Gelu", *model("Gelu", [[f(512, 1024)]], opset=20)
    yield "Exp f64", *model("Exp", [[f(256, 1024).astype(np.float64)]])
    yield "Mod int64", *model("Mod", [[ints(1000, 512, 512)], [ints(50, 512, 512) + 1]])
    yield "Div int64", *model("Div", [[ints(1000, 512, 512)], [ints(50, 512, 512) + 1]])
    yield "Where", *model("Where", [[f(512, 1024) > 0], [f(512, 1024)], [f(1, 1024)]])
    yield "Cast f32 i64", *model("Cast", [[f(512, 1024)]], to=TensorProto.INT64)
    yield "Cast f32 f16", *model("Cast", [[f(512, 1024)]], to=TensorProto.FLOAT16)
    yield "Cast u8 f32", *model("Cast", [[ints(255, 1, 224, 224, 3, type=np.uint8)]], to=TensorProto.FLOAT)
    yield "Transpose NHWC", *model("Transpose", [image], perm=[0, 2, 3, 1])
    yield "Transpose heads", *model("Transpose", [[f(1, 128, 12, 64)]], perm=[0, 2, 1, 3])
    yield "Transpose 2-D", *model("Transpose", [[f(1024, 768)]], perm=[1, 0])
    yield "Transpose 6-D", *model("Transpose", [[f(1, 8, 7, 8, 7, 96)]], perm=[0, 1, 3, 2, 4, 5])
    yield "Transpose u8", *model("Transpose", [[ints(255, 1, 224, 224, 3, type=np.uint8)]], perm=[0, 3, 1, 2])
    yield "Concat", *model("Concat", [image, [f(1, 64, 56, 56)]], axis=1)
    yield "Concat last", *model("Concat", [[f(4096, 32)], [f(4096, 32)]], axis=1)
    yield "Split", *model("Split", [[f(128, 2304)]], 3, axis=1, num_outputs=3)
    yield "Slice steps", *model("Slice", [image, np.array([0, 0]), np.array([56, 56]), np.array([2, 3]), np.array([2, 2])])
    yield "Pad reflect", *model("Pad", [image, np.array([0, 0, 3, 3, 0, 0, 3, 3])], mode="reflect")
    yield "Pad constant", *model("Pad", [image, np.array([0, 0, 1, 1, 0, 0, 1, 1])])
    yield "Tile", *model("Tile", [[f(1, 64, 28, 28)], np.array([1, 1, 2, 2])])
    yield "Expand", *model("Expand", [[f(1, 8, 1, 128, 64)], np.array([1, 8, 4, 128, 64])])
    yield "DepthToSpace", *model("DepthToSpace", [image], blocksize=2)
    yield "SpaceToDepth", *model("SpaceToDepth", [image], blocksize=2)
    yield "Trilu", *model("Trilu", [[f(12, 256, 256)]])
    yield "ReverseSequence", *model("ReverseSequence", [[f(100, 8, 64)], [ints(100, 8)]], time_axis=0, batch_axis=1)
    yield "Det", *model("Det", [[f(500, 4, 4)]])
    yield "Col2Im", *model("Col2Im", [[f(1, 64 * 9, 784)], np.array([28, 28]), np.array([3, 3])], pads=[1, 1, 1, 1])
    yield "IsNaN", *model("IsNaN", [[f(512, 1024)]])
    yield "Attention", *model("Attention", [[f(1, 12, 128, 64)], [f(1, 12, 128, 64)], [f(1, 12, 128, 64)]], opset=23)
    yield "TfIdfVectorizer", *model("TfIdfVectorizer", [[ints(1000, 64, 100)]], max_gram_length=1, max_skip_count=0, min_gram_length=1, mode="TF", ngram_counts=[0], ngram_indexes=list(range(1000)), pool_int64s=list(range(1000)))
    yield "TreeEnsembleRegressor 1 row", *model("TreeEnsembleRegressor", [[f(1, 20)]], domain="ai.onnx.ml", **trees("TreeEnsembleRegressor"))
    yield "TreeEnsembleRegressor 1000 rows", *model("TreeEnsembleRegressor", [[f(1000, 20)]], domain="ai.onnx.ml", **trees("TreeEnsembleRegressor"))
    yield "TreeEnsembleClassifier 1000 rows", *model("TreeEnsembleClassifier", [[f(1000, 20)]], 2, domain="ai.onnx.ml", **trees("TreeEnsembleClassifier"))
    yield "SVMRegressor", *model("SVMRegressor", [[f(200, 20)]], domain="ai.onnx.ml", kernel_type="RBF", kernel_params=[0.1, 0.0, 3.0], n_supports=500, coefficients=f(500).tolist(), support_vectors=f(500 * 20).tolist(), rho=[0.1])
    yield "LinearClassifier", *model("LinearClassifier", [[f(1000, 50)]], 2, domain="ai.onnx.ml", coefficients=f(500).tolist(), intercepts=f(10).tolist(), classlabels_ints=list(range(10)), post_transform="SOFTMAX")
    yield "Scaler", *model("Scaler", [[f(1000, 50)]], domain="ai.onnx.ml", offset=f(50).tolist(), scale=f(50).tolist())
    yield "Normalizer", *model("Normalizer", [[f(1000, 50)]], domain="ai.onnx.ml", norm="L2")
    yield "Imputer", *model("Imputer", [[f(1000, 50)]], domain="ai.onnx.ml", imputed_value_floats=f(50).tolist(), replaced_value_float=float("nan"))
    yield "LabelEncoder", *model("LabelEncoder", [[ints(1000, 10000)]], domain="ai.onnx.ml", keys_int64s=list(range(1000)), values_int64s=list(range(1000))[::-1])
    yield "OneHotEncoder", *model("OneHotEncoder", [[ints(100, 1000)]], domain="ai.onnx.ml", cats_int64s=list(range(100)))
    yield "SkipLayerNormalization", *model("SkipLayerNormalization", [[f(1, 128, 768)], [f(1, 128, 768)], f(768), f(768)], domain="com.microsoft")
    yield "FastGelu", *model("FastGelu", [[f(128, 3072)], f(3072)], domain="com.microsoft")
    yield "RotaryEmbedding", *model("RotaryEmbedding", [[f(1, 12, 128, 64)], [ints(128, 1, 128)], f(512, 32), f(512, 32)], domain="com.microsoft")


def measured(optc, folder, threads, duration):
    """((ratio, our ms, theirs), "") of minima, or (None, the reason)."""
    facts, rival, problem = bench(optc, folder / "model.onnx", "--inputs", folder, "--threads", threads, "--duration", duration)
    return (None, problem) if problem else ((rival["min_ms"] / facts["min_ms"], facts["min_ms"], rival["min_ms"]), "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("optc")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--jobs", type=int, default=2, help="bundles that are built side by side")
    parser.add_argument("--duration", type=float, default=0.5, help="seconds for each")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="optc_operators_") as work:
        made = []
        for name, proto, inputs in cases():
            if arguments.names and not any(name.startswith(n) for n in arguments.names):
                continue
            folder = pathlib.Path(work) / str(len(made))
            folder.mkdir()
            onnx.save(proto, folder / "model.onnx")
            for k, value in inputs.items():
                np.save(folder / f"{k}.npy", value)
            made.append((name, folder))
        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(lambda m: measured(arguments.optc, m[1], arguments.threads, 0.01), made))
        for name, folder in made:
            found, problem = measured(arguments.optc, folder, arguments.threads, arguments.duration)
            results.append((found or (0, 0, 0), name, problem))
    for (ratio, ours, theirs), name, problem in sorted(results, key=lambda r: r[0][0]):
        print(f"{ratio:7.2f}  {name}: {problem or f'{ours:.4g} ms, ONNX Runtime {theirs:.4g} ms'}")


if __name__ == "__main__":
    main()
