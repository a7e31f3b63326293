"""Small models whose graphs have what pages must show: layers in parts, branches, names that are no plain text."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def transformer(path, layers):
    """Encoder layers in parts, as exporters write them: LayerNormalization, attention with a mask, Gelu; a mask that all layers read."""
    rng = np.random.default_rng(3)
    nodes, constants = [], {"two": np.float32(2), "half": np.float32(0.5), "one": np.float32(1), "root2": np.float32(2**0.5),
                            "eps": np.float32(1e-5), "scale": np.float32(0.5), "axis": np.array([-1])}

    def add(op, *inputs, **attributes):
        out = f"t{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [out], name=f"layer.{layer}/{op}_{len(nodes)}", **attributes))
        return out

    def weight(name, *shape):
        constants[name] = rng.standard_normal(shape, np.float32) * np.float32(0.3)
        return name

    layer = "mask"
    mask = add("Where", "keep", weight("zero", 1), weight("low", 1))
    x = "x"
    for layer in range(layers):
        mean = add("ReduceMean", x, "axis", keepdims=1)
        centred = add("Sub", x, mean)
        variance = add("ReduceMean", add("Pow", centred, "two"), "axis", keepdims=1)
        normal = add("Div", centred, add("Sqrt", add("Add", variance, "eps")))
        normal = add("Add", add("Mul", normal, weight(f"g{layer}", 8)), weight(f"b{layer}", 8))
        q, k, v = (add("MatMul", normal, weight(f"{n}{layer}", 8, 8)) for n in "qkv")
        scores = add("Add", add("Mul", add("MatMul", q, add("Transpose", k, perm=[0, 2, 1])), "scale"), mask)
        x = add("Add", x, add("MatMul", add("Softmax", scores, axis=-1), v))
        up = add("MatMul", x, weight(f"u{layer}", 8, 16))
        gelu = add("Mul", add("Mul", up, add("Add", add("Erf", add("Div", up, "root2")), "one")), "half")
        x = add("Add", x, add("MatMul", gelu, weight(f"d{layer}", 16, 8)))
    nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        nodes, "encoder", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "S", 8]),
                           helper.make_tensor_value_info("keep", TensorProto.BOOL, ["N", 1, "S"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "S", 8])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def branches(path):
    """An If, names that are no plain text, and a node without a name."""
    def branch(name, op):
        return helper.make_graph([helper.make_node(op, ["x"], [name], name=f"</script><b>{op}&é")], name, [],
                                 [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"])])
    nodes = [helper.make_node("If", ["c"], ["i"], name="choose", then_branch=branch("t", "Exp"), else_branch=branch("e", "Neg")),
             helper.make_node("Identity", ["i"], ["j"]), helper.make_node("Abs", ["j"], ["y"], name="a" * 300)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                                           helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def stand_in(source, folder):
    """The model with files of zeros (sparse) in place of its external data."""
    proto = onnx.load(source, load_external_data=False)
    sizes = {}
    for tensor in proto.graph.initializer:
        entries = {e.key: e.value for e in tensor.external_data}
        if entries:
            end = int(entries.get("offset", 0)) + int(entries.get("length", 0))
            sizes[entries["location"]] = max(sizes.get(entries["location"], 0), end)
    for name, size in sizes.items():
        with open(folder / name, "wb") as file:
            file.truncate(size)
    path = folder / source.name
    path.write_bytes(source.read_bytes())
    return path
