"""verify, run and bench on models whose inputs cannot be anything: sizes, values and what an agreement is worth."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT


def run(optc, *arguments, code=0):
    done = subprocess.run([optc, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, "OPTC_PYTHON": sys.executable})
    assert done.returncode == code, done.stdout + done.stderr
    return done


def verify(optc, path, *arguments, code=0):
    return json.loads(run(optc, "verify", path, "--engine=evaluate", "--format=json", *arguments, code=code).stdout)


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def saved(path, nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(np.asarray(v), k) for k, v in dict(constants).items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def test_sizes_come_from_what_operators_state(optc, tmp_path):
    # Halved three times, doubled three times, added to itself: sizes are multiples of 8; pieces of 24 samples.
    nodes = []
    for i in range(3):
        nodes.append(helper.make_node("Conv", [f"d{i}" if i else "x", "w"], [f"d{i + 1}"], strides=[2, 2], pads=[1, 1, 1, 1]))
    for i in range(3):
        nodes.append(helper.make_node("ConvTranspose", [f"u{i}" if i else "d3", "v"], [f"u{i + 1}"], strides=[2, 2]))
    nodes.append(helper.make_node("Add", ["x", "u3"], ["y"]))
    nodes.append(helper.make_node("Reshape", ["t", "pieces"], ["z"]))
    path = saved(tmp_path / "unet.onnx", nodes, [value("x", FLOAT, ["N", 2, "H", "W"]), value("t", FLOAT, ["T"])],
                 [value("y", FLOAT, ["o0", 2, "o2", "o3"]), value("z", FLOAT, ["o4", 24])],
                 {"w": random(2, 2, 3, 3) / 4, "v": random(2, 2, 2, 2) / 2, "pieces": np.array([-1, 24])})
    sizes = verify(optc, path)["sizes"]
    assert len(sizes) == 2 and sizes[0] != sizes[1]
    for one in sizes:
        assert one["H"] % 8 == 0 and one["W"] % 8 == 0 and one["T"] % 24 == 0
    assert sizes[1]["H"] != sizes[1]["W"]
    # A given size is kept, the others follow it; one that cannot fit is said at the node that it does not fit.
    assert all(one["H"] == 40 for one in verify(optc, path, "--dim", "H=40")["sizes"])
    assert "25 elements" in run(optc, "run", path, "--engine=evaluate", "--dim", "T=25", code=3).stderr


def test_values_come_from_how_they_are_used(optc, tmp_path):
    # Token ids below the rows of their table, row numbers of an input of any length, a rate that is compared, labels.
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"]),
             helper.make_node("Gather", ["rows", "edges"], ["r"], axis=0),
             helper.make_node("Equal", ["rate", "high"], ["same"]),
             helper.make_node("Where", ["same", "one", "two"], ["k"]),
             helper.make_node("Mul", ["e", "k"], ["y"]),
             helper.make_node("LabelEncoder", ["words"], ["labels"], domain="ai.onnx.ml", keys_strings=["cat", "dog", "été"],
                              values_int64s=[1, 2, 3], default_int64=-1)]
    path = saved(tmp_path / "used.onnx", nodes,
                 [value("ids", INT64, ["N", "S"]), value("rows", FLOAT, ["Q", 3]), value("edges", INT64, [2, "E"]), value("rate", INT64, []),
                  value("words", TensorProto.STRING, ["L"])],
                 [value("y", FLOAT, ["o0", "o1", 4]), value("r", FLOAT, [2, "o2", 3]), value("labels", INT64, ["o3"])],
                 {"table": random(11, 4), "high": np.array(16000), "one": np.float32(1), "two": np.float32(2)})
    facts = verify(optc, path)
    assert facts["ok"] and all(not one["says_little"] for one in facts["outputs"])
    run(optc, "run", path, "--engine=evaluate", "--dim", "L=30", "--outputs", tmp_path / "out")
    labels = TensorProto.FromString((tmp_path / "out" / "output_2.pb").read_bytes())
    assert set(numpy_helper.to_array(labels)) == {1, 2, 3}


def test_what_no_inputs_suit_is_said_once_with_a_hint(optc, tmp_path):
    path = saved(tmp_path / "shape.onnx", [helper.make_node("Reshape", ["x", "s"], ["y"])],
                 [value("x", FLOAT, [7, 11]), value("s", INT64, [2])], [value("y", FLOAT, ["A", "B"])])
    error = run(optc, "verify", path, "--engine=evaluate", code=2).stderr
    assert error.count("error[") == 1 and "Traceback" not in error
    assert "made at random" in error and "--inputs" in error
    inputs = tmp_path / "in"
    inputs.mkdir()
    np.save(inputs / "x.npy", random(7, 11))
    np.save(inputs / "s.npy", np.array([11, 7]))
    assert verify(optc, path, "--inputs", inputs)["ok"]


def test_an_output_that_depends_on_no_input_is_said(optc, tmp_path):
    nodes = [helper.make_node("Mul", ["x", "tiny"], ["t"]), helper.make_node("Add", ["t", "one"], ["y"]), helper.make_node("Sqrt", ["minus"], ["z"]),
             helper.make_node("Mul", ["x", "z"], ["nan"]), helper.make_node("Relu", ["x"], ["good"])]
    path = saved(tmp_path / "constant.onnx", nodes, [value("x", FLOAT, [3, 5])],
                 [value("y", FLOAT, [3, 5]), value("nan", FLOAT, [3, 5]), value("good", FLOAT, [3, 5])],
                 {"tiny": np.float32(1e-7), "one": np.float32(1), "minus": np.float32(-1)})
    y, nan, good = verify(optc, path)["outputs"]
    assert "other inputs" in y["says_little"] and "NaN" in nan["says_little"] and good["says_little"] == ""
    assert "says little" in run(optc, "verify", path, "--engine=evaluate").stdout


def test_quantized_models_count_the_values_that_crossed_a_step(optc, tmp_path):
    nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]), helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
             helper.make_node("MatMul", ["d", "w"], ["m"]), helper.make_node("QuantizeLinear", ["m", "scale", "zero"], ["p"]),
             helper.make_node("DequantizeLinear", ["p", "scale", "zero"], ["y"])]
    path = saved(tmp_path / "quantized.onnx", nodes, [value("x", FLOAT, ["N", 16])], [value("y", FLOAT, ["N", 16])],
                 {"scale": np.float32(0.05), "zero": np.uint8(128), "w": random(16, 16) / 4})
    assert verify(optc, path, "--dim", "N=4")["quantized"] == {"values": 128, "crossed": 0, "by_more": 0}
    assert "0 of 128 quantized values" in run(optc, "verify", path, "--engine=evaluate", "--dim", "N=4").stdout


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_precision_says_what_it_costs(optc, tmp_path, precision):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["s"]), helper.make_node("MatMul", ["s", "v"], ["y"])]
    path = saved(tmp_path / "net.onnx", nodes, [value("x", FLOAT, ["N", 16])], [value("y", FLOAT, ["N", 8])],
                 {"w": random(16, 32), "v": random(32, 8)})
    text = run(optc, "run", path, "--engine=evaluate", "--precision", precision).stderr
    assert precision in text and "random inputs, N=1; N=2" in text
    samples = tmp_path / "samples"
    samples.mkdir()
    np.save(samples / "x.npy", random(3, 16))
    assert str(samples) in run(optc, "run", path, "--engine=evaluate", "--precision", precision, "--calibrate", samples).stderr
    run(optc, "run", path, "--engine=evaluate", "--precision", precision, "--calibrate", tmp_path / "absent", code=2)


@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
def test_sizes_are_checked_in_each_iteration(optc, tmp_path, engine):
    """Body: data decides how long v is, and v + w must fit: also where it did in the iteration before."""
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["counts", "i"], ["count"]),
            helper.make_node("Unsqueeze", ["count", "zero"], ["end"]),
            helper.make_node("Slice", ["data", "zero", "end"], ["v"]),
            helper.make_node("Add", ["v", "w"], ["y"]),
            helper.make_node("ReduceSum", ["y"], ["part"], keepdims=0),
            helper.make_node("Add", ["s", "part"], ["next"]),
            helper.make_node("Identity", ["c"], ["on"]),
        ],
        "body",
        [value("i", INT64, []), value("c", TensorProto.BOOL, []), value("s", FLOAT, [])],
        [value("on", TensorProto.BOOL, []), value("next", FLOAT, [])],
    )
    model = saved(
        tmp_path / "loop.onnx",
        [helper.make_node("Loop", ["n", "go", "start"], ["r"], body=body)],
        [value("counts", INT64, [3]), value("w", FLOAT, [2]), value("data", FLOAT, [5])],
        [value("r", FLOAT, [])],
        {"zero": np.array([0], np.int64), "n": np.array(3, np.int64), "go": np.array(True), "start": np.array(0, np.float32)},
    )
    arguments = ["--engine=evaluate"] if engine == "evaluate" else []
    for counts, code in (([2, 2, 1], 0), ([2, 3, 2], 1), ([1, 2, 4], 1)):
        folder = tmp_path / "-".join(map(str, counts))
        folder.mkdir()
        for i, a in enumerate((np.array(counts, np.int64), np.array([1, 2], np.float32), np.arange(5, dtype=np.float32))):
            (folder / f"input_{i}.pb").write_bytes(numpy_helper.from_array(a).SerializeToString())
        done = run(optc, "run", model, "--inputs", folder, *arguments, code=code)
        assert ("11" in done.stdout) if code == 0 else ("Add_4" in done.stderr), done.stdout + done.stderr


@pytest.mark.parametrize("form", ["onnxtxt", "json", "textproto"])
def test_models_in_other_forms_are_compared_too(optc, tmp_path, form):
    path = saved(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", FLOAT, ["N", 3])],
                 [value("y", FLOAT, ["N", 2])], {"w": random(3, 2)})
    run(optc, "convert", path, "-o", tmp_path / f"m.{form}", "-q")
    assert verify(optc, tmp_path / f"m.{form}")["ok"]


def test_bench_times_rivals(optc, tmp_path):
    path = saved(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", FLOAT, ["N", 3])],
                 [value("y", FLOAT, ["N", 2])], {"w": random(3, 2)})
    bench = ["bench", path, "--duration", "0.1", "--format=json"]
    facts = json.loads(run(optc, *bench, "--against", "ort").stdout)
    assert facts["against"]["onnxruntime"]["runs"] > 0 and facts["speedup"] > 0
    package = tmp_path / "openvino.py"  # stands for the package, which the tests do not install
    package.write_text("raise ImportError\n")
    done = subprocess.run([optc, *map(str, bench), "--against", "ort,openvino"], capture_output=True, text=True,
                          env={**os.environ, "OPTC_PYTHON": sys.executable, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2 and "cannot import openvino" in done.stderr and "OPTC_PYTHON" in done.stderr
    package.write_text("""
class Core:
    def read_model(self, path):
        self.inputs = [self]
        return self
    def get_names(self):
        return {"x"}
    def reshape(self, shapes):
        assert list(shapes.values()) == [[1, 3]]
    def compile_model(self, model, device, config):
        assert config["INFERENCE_NUM_THREADS"] == 1 and config["INFERENCE_PRECISION_HINT"] == "f32"
        return self
    def create_infer_request(self):
        return self
    def infer(self, given, share_inputs):
        assert given[0].shape == (1, 3)
def get_version():
    return "1.2-3"
""")
    done = subprocess.run([optc, *map(str, bench), "--against", "ort,openvino"], capture_output=True, text=True,
                          env={**os.environ, "OPTC_PYTHON": sys.executable, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    both = json.loads(done.stdout)["against"]
    assert both["openvino"]["version"] == "1.2" and set(both) == {"onnxruntime", "openvino"}


def test_the_last_bits_of_weights_change_no_size(tmp_path):
    """What rounding alone does is asked of ONNX Runtime with other last bits: of weights, not of factors that sizes follow from."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "driver/tools"))
    import ort_run

    text = """<ir_version: 9, opset_import: ["" : 18]>
      g (float[1,2,5,5] x) => (float[1,2,a,b] y, float[n] z)
      <float[4] scales = {1.0, 1.0, 1.4, 2.0}, float[2,1,1] w = {0.3, 0.7}> {
        wide = Resize <mode = "linear"> (x, , scales)
        y = Mul (wide, w)
        stride = Constant <value = float {2.0}> ()
        offset = Constant <value = float {0.37}> ()
        size = Constant <value = float[1] {5.0}> ()
        half = Div (size, stride)
        z = Add (half, offset)
      }"""
    model = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    changed = onnx.load(model)
    ort_run.perturb(changed, np.random.default_rng(0))
    values = {t.name: onnx.numpy_helper.to_array(t) for t in changed.graph.initializer}
    values.update({n.output[0]: onnx.numpy_helper.to_array(n.attribute[0].t) for n in changed.graph.node if n.op_type == "Constant"})
    np.testing.assert_array_equal(values["scales"], np.array([1, 1, 1.4, 2], np.float32))
    assert values["stride"] == 2 and values["size"] == 5
    weights = np.array([0.3, 0.7, 0.37], np.float32)
    got = np.append(values["w"].ravel(), values["offset"])
    assert (got != weights).any()
    np.testing.assert_allclose(got, weights, rtol=1e-6)


@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
@pytest.mark.parametrize("width", [10, "w"])
def test_resize_of_opset_11_by_the_centres_of_pixels(optc, tmp_path, width, engine):
    """tf_half_pixel_for_nn, which opset 13 no longer has, for what converters from TensorFlow write."""
    text = f"""<ir_version: 7, opset_import: ["" : 11]> g (float[1,2,8,{width}] x) => (float[1,2,a,b] y) {{
        roi = Constant <value = float[0] {{}}> ()
        scales = Constant <value = float[4] {{1.0, 1.0, 1.125, 1.3}}> ()
        y = Resize <mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "tf_half_pixel_for_nn"> (x, roi, scales) }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    run(optc, "verify", tmp_path / "m.onnx", f"--engine={engine}")
