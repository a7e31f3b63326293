"""Makes the models of this folder and torch's answers: one step of training (loss, Gradient, Adam) as one model. Needs torch.

    python make.py
"""

import json
import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).parent
RATE, ALPHA, BETA, EPSILON = 0.01, 0.9, 0.999, 1e-8


def step_model(name, forward, parameters, x, classes):
    """`forward` gives the nodes from x and the parameters to the scores."""
    nodes = [*forward, helper.make_node("SoftmaxCrossEntropyLoss", ["scores", "labels"], ["loss"])]
    names = list(parameters)
    nodes.append(helper.make_node("Gradient", [*names, "x", "labels"], [f"d_{n}" for n in names], domain="ai.onnx.preview.training", xs=names, zs=["x", "labels"], y="loss"))
    groups = [names, [f"d_{n}" for n in names], [f"v_{n}" for n in names], [f"h_{n}" for n in names]]
    outputs = [f"{n}_next" for n in names]
    # Adam in ONNX adds epsilon to the root before it is corrected: torch's, after it.
    nodes.append(helper.make_node("Adam", ["rate", "step", *sum(groups, [])], outputs + [f"{n}_v" for n in names] + [f"{n}_h" for n in names], domain="ai.onnx.preview.training",
                                  alpha=ALPHA, beta=BETA, epsilon=EPSILON * (1 - BETA) ** 0.5))
    constants = {"rate": np.float32(RATE), "step": np.int64(1), **parameters}
    for n, a in parameters.items():
        constants[f"v_{n}"] = constants[f"h_{n}"] = np.zeros_like(a)
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape), helper.make_tensor_value_info("labels", TensorProto.INT64, [len(x)])],
                              [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])] + [helper.make_tensor_value_info(f"{n}_next", TensorProto.FLOAT, a.shape) for n, a in parameters.items()],
                              [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.preview.training", 1)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, FOLDER / f"{name}.onnx")


def torch_step(name, module, keys, x, labels):
    optimizer = torch.optim.Adam(module.parameters(), lr=RATE, betas=(ALPHA, BETA), eps=EPSILON)
    loss = torch.nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(labels))
    loss.backward()
    optimizer.step()
    state = module.state_dict()
    answers = {"x": x.tolist(), "labels": labels.tolist(), "loss": float(loss.detach()), "next": {k: state[v].numpy().round(8).tolist() for k, v in keys.items()}}
    (FOLDER / f"{name}.json").write_text(json.dumps(answers) + "\n")


def main():
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    mlp = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.GELU(), torch.nn.Linear(16, 5))
    keys = {"w1": "0.weight", "b1": "0.bias", "w2": "2.weight", "b2": "2.bias"}
    x, labels = rng.normal(size=(8, 20)).astype(np.float32), rng.integers(0, 5, 8)
    forward = [helper.make_node("Gemm", ["x", "w1", "b1"], ["a"], transB=1), helper.make_node("Gelu", ["a"], ["g"]), helper.make_node("Gemm", ["g", "w2", "b2"], ["scores"], transB=1)]
    step_model("mlp", forward, {k: mlp.state_dict()[v].numpy().copy() for k, v in keys.items()}, x, 5)
    torch_step("mlp", mlp, keys, x, labels)

    cnn = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1, bias=False), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(4, 6, 3, stride=2, bias=False), torch.nn.BatchNorm2d(6),
                              torch.nn.SiLU(), torch.nn.AvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(6, 4))
    keys = {"w1": "0.weight", "w2": "3.weight", "scale": "4.weight", "bias": "4.bias", "w3": "8.weight", "b3": "8.bias"}
    x, labels = rng.normal(size=(4, 1, 12, 12)).astype(np.float32), rng.integers(0, 4, 4)
    forward = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]), helper.make_node("Conv", ["p1", "w2"], ["c2"], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c2", "scale", "bias", "mean", "variance"], ["n2", "mean_next", "variance_next"], training_mode=1),
        helper.make_node("Sigmoid", ["n2"], ["s2"]), helper.make_node("Mul", ["n2", "s2"], ["r2"]),
        helper.make_node("AveragePool", ["r2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2]), helper.make_node("Flatten", ["p2"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["scores"], transB=1)]
    forward = [helper.make_node("Constant", [], ["mean"], value=numpy_helper.from_array(np.zeros(6, np.float32))),
               helper.make_node("Constant", [], ["variance"], value=numpy_helper.from_array(np.ones(6, np.float32))), *forward]
    step_model("cnn", forward, {k: cnn.state_dict()[v].numpy().copy() for k, v in keys.items()}, x, 4)
    torch_step("cnn", cnn, keys, x, labels)


main()
