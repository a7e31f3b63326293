"""DynamicQuantizeLSTM (what ONNX Runtime's quantizer makes of LSTM) in many forms, on the evaluator and as a bundle, beside ONNX Runtime."""

import os
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

SEED = int(os.environ.get("OPTC_SEED", "7"))


def layer(rng, i, lengths):
    """The inputs, constants and node of one; sizes around vectors and panels. lengths: of sequences, which no template takes."""
    steps, batch = int(rng.integers(1, 6)), int(rng.choice([1, 2, 3, 5]))
    size, hidden = int(rng.choice([1, 3, 4, 17, 64])), int(rng.choice([1, 5, 16, 17, 48]))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    directions = 2 if direction == "bidirectional" else 1
    kind = rng.choice([np.int8, np.uint8])
    info = np.iinfo(kind)
    feeds, constants, names = {f"x{i}": rng.standard_normal((steps, batch, size)).astype(np.float32)}, {}, [f"x{i}"]

    def operand(name, value, given=False):
        (feeds if given else constants)[f"{name}{i}"] = value
        return f"{name}{i}"

    names += [operand(n, rng.integers(info.min, info.max, (directions, k, 4 * hidden), endpoint=True).astype(kind)) for n, k in (("w", size), ("r", hidden))]
    names.append(operand("b", rng.standard_normal((directions, 8 * hidden)).astype(np.float32)) if rng.random() < 0.6 else "")
    names.append(operand("l", rng.integers(1, steps + 1, batch).astype(np.int32), True) if lengths else "")
    for n in ("h", "c"):
        names.append(operand(n, rng.standard_normal((directions, batch, hidden)).astype(np.float32), True) if rng.random() < 0.5 else "")
    names.append(operand("p", rng.standard_normal((directions, 3 * hidden)).astype(np.float32)) if rng.random() < 0.3 else "")
    # ONNX Runtime takes one zero point a matrix, which is 0 where there is one scale a column.
    many = kind == np.int8 and rng.random() < 0.5
    for n in ("w", "r"):
        shape = (directions, 4 * hidden) if many else (directions,)
        names.append(operand(n + "s", rng.uniform(0.002, 0.01, shape).astype(np.float32)))
        zero = np.zeros(shape, kind) if many or kind == np.int8 else np.full(shape, 128, kind)
        names.append(operand(n + "z", zero))
    activations = list(rng.choice(["Sigmoid", "Tanh", "Relu", "HardSigmoid"], 3)) * directions if rng.random() < 0.3 else None
    clip = 0.7 if rng.random() < 0.2 else None
    settings = {k: v for k, v in (("activations", activations), ("clip", clip)) if v is not None}
    y = f"y{i}" if rng.random() < 0.7 else ""
    node = helper.make_node("DynamicQuantizeLSTM", names, [y, f"yh{i}", f"yc{i}"], name=f"lstm{i}", domain="com.microsoft", hidden_size=hidden,
                            direction=direction, **settings)
    return node, feeds, constants


def network(seed, lengths, count=10):
    rng = np.random.default_rng(seed)
    made = [layer(rng, i, lengths and rng.random() < 0.5) for i in range(count)]
    feeds = {k: v for _, f, _ in made for k, v in f.items()}
    inputs = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()]
    outputs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for n, _, _ in made for o in n.output if o]
    constants = [numpy_helper.from_array(v, k) for _, _, c in made for k, v in c.items()]
    graph = helper.make_graph([n for n, _, _ in made], "lstms", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=9), feeds


# least: the share of outputs that are equal to the last digits; in the others a state lay between two steps.
@pytest.mark.parametrize("engine,lengths,least", [("evaluate", True, 0.91), ("bundle", False, 0.75)])
def test_agrees_with_onnx_runtime(optc, tmp_path, engine, lengths, least):
    model, feeds = network([SEED, lengths], lengths, 40 if engine == "evaluate" else 10)
    onnx.save(model, tmp_path / "m.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), options, providers=["CPUExecutionProvider"]).run(None, feeds)
    arguments = []
    for k, v in feeds.items():
        np.save(tmp_path / f"{k}.npy", v)
        arguments += ["--input", f"{k}=@{tmp_path}/{k}.npy"]
    done = subprocess.run([optc, "run", tmp_path / "m.onnx", f"--engine={engine}", *arguments, "--outputs", tmp_path / "out", "-q"], capture_output=True, text=True,
                          env={**os.environ, "OPTC_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 0, done.stderr
    wrong, exact = [], 0
    for k, w in enumerate(want):
        got = numpy_helper.to_array(onnx.load_tensor(str(tmp_path / f"out/output_{k}.pb")))
        assert got.shape == w.shape
        worst = np.abs(got - w).max(initial=0)
        exact += worst <= 1e-5 * max(1, np.abs(w).max(initial=0))
        # A state that lies between two steps of its quantization may go to the other one.
        if not worst <= 0.02 * max(1, np.abs(w).max(initial=0)):
            wrong.append(f"{model.graph.output[k].name}: {worst}")
    assert not wrong and exact >= least * len(want), f"{exact} of {len(want)} to the last digits; " + "; ".join(wrong[:10])
