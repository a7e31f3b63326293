"""Bundles as their users meet them: built by CMake, installed and found, embedded in C, C++ and Python, two in one process.

The oracle is ONNX Runtime with its optimizations off.
"""

import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

FLAGS = ["-O1", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]


def save(path, nodes, inputs, outputs, constants):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def mlp(path, width, seed):
    """x [N, 20] -> softmax(relu(x W + b) V): two products with an epilogue, one row kernel."""
    rng = np.random.default_rng(seed)
    constants = {"W": rng.standard_normal((20, width), np.float32), "b": rng.standard_normal(width, np.float32),
                 "V": rng.standard_normal((width, 5), np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "W"], ["xw"]), helper.make_node("Add", ["xw", "b"], ["h"]),
             helper.make_node("Relu", ["h"], ["r"]), helper.make_node("MatMul", ["r", "V"], ["l"]),
             helper.make_node("Softmax", ["l"], ["y"], axis=-1)]
    save(path, nodes, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 20])],
         [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])], constants)


def expected(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def run(*command, cwd=None):
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-6000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def bundles(optc, tmp_path_factory):
    """Two models compiled, built and installed: one with its weights in a file, one with them linked in."""
    folder = tmp_path_factory.mktemp("bundles")
    for name, width, extra in (("first", 33, []), ("second", 48, ["--embed-weights"])):
        mlp(folder / f"{name}.onnx", width, width)
        run(optc, folder / f"{name}.onnx", "-o", folder / name, *extra)
        run("cmake", "-S", folder / name, "-B", folder / f"build_{name}", "-DBUILD_SHARED_LIBS=ON", "-DCMAKE_BUILD_TYPE=None",
            "-DCMAKE_CXX_FLAGS=" + " ".join(FLAGS), f"-DCMAKE_INSTALL_PREFIX={folder / 'installed'}")
        run("cmake", "--build", folder / f"build_{name}")
        run("cmake", "--install", folder / f"build_{name}")
    return folder


def test_python_and_two_models_in_one_process(bundles):
    sys.path[:0] = [str(bundles / "first/python"), str(bundles / "second/python")]
    import first
    import second
    models = {"first": first.Model(bundles / "build_first/libfirst.so", check_weights=True),
              "second": second.Model(bundles / "build_second/libsecond.so", check_weights=True)}
    for rows in (1, 7):
        x = np.random.default_rng(rows).standard_normal((rows, 20)).astype(np.float32)
        for name, model in models.items():
            np.testing.assert_allclose(model(x=x)["y"], expected(bundles / f"{name}.onnx", {"x": x})[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match="no input 'z'"):
        models["first"](z=x)
    with pytest.raises(first.Error, match="expected"):
        models["first"](x=np.zeros((2, 21), np.float32))
    assert '"schema_version"' in models["first"].manifest


C_PROGRAM = r"""
#include <stdio.h>
#include "first.h"
int main(void) {
  const optc_api *api = first_model()->api;
  optc_options options = {sizeof options};
  optc_context *context;
  if (api->context_create(NULL, &options, &context) != OPTC_OK) return fprintf(stderr, "%s\n", api->last_error(NULL)), 1;
  float x[40], y[10];
  for (int i = 0; i < 40; ++i) x[i] = (float)i / 40;
  if (first_run(context, 2, x, y) != OPTC_OK) return fprintf(stderr, "%s\n", api->last_error(context)), 1;
  for (int i = 0; i < 10; ++i) printf("%.9g ", y[i]);
  api->context_destroy(context);
  return 0;
}
"""
CPP_PROGRAM = r"""
#include <cstdio>
#include <vector>
#include "first.hpp"
#include "second.hpp"
int main() {
  first::Model a;
  second::Model b;
  std::vector<float> x(40);
  for (int i = 0; i < 40; ++i) x[i] = static_cast<float>(i) / 40;
  for (float v : a.run(x, 2).y) std::printf("%.9g ", v);
  for (float v : b.run(x, 2).y) std::printf("%.9g ", v);
  try {
    a.run(std::vector<float>(3), 2);
  } catch (const first::Error &error) {
    return error.status == OPTC_INVALID_ARGUMENT ? 0 : 1;
  }
  return 1;
}
"""


def test_find_package_from_c_and_cpp(bundles):
    app = bundles / "app"
    app.mkdir()
    (app / "main.c").write_text(C_PROGRAM)
    (app / "main.cpp").write_text(CPP_PROGRAM)
    (app / "CMakeLists.txt").write_text("""cmake_minimum_required(VERSION 3.16)
project(app C CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(first REQUIRED)
find_package(second REQUIRED)
add_executable(app_c main.c)
target_link_libraries(app_c PRIVATE first::first)
add_executable(app_cpp main.cpp)
target_link_libraries(app_cpp PRIVATE first::first second::second)
""")
    run("cmake", "-S", app, "-B", app / "build", f"-DCMAKE_PREFIX_PATH={bundles / 'installed'}")
    run("cmake", "--build", app / "build")
    x = (np.arange(40, dtype=np.float32) / 40).reshape(2, 20)
    first, second = (expected(bundles / f"{n}.onnx", {"x": x})[0].ravel() for n in ("first", "second"))
    np.testing.assert_allclose(np.array(run(app / "build/app_c").split(), np.float32), first, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.array(run(app / "build/app_cpp").split(), np.float32), np.concatenate([first, second]), rtol=1e-5, atol=1e-6)


def test_same_bytes_twice(bundles, optc):
    run(optc, bundles / "first.onnx", "-o", bundles / "again" / "first")
    files = sorted(p.relative_to(bundles / "first") for p in (bundles / "first").rglob("*") if p.is_file())
    assert len(files) > 10
    for path in files:
        assert (bundles / "first" / path).read_bytes() == (bundles / "again/first" / path).read_bytes(), path


def test_damaged_weights_are_found(bundles):
    sys.path.insert(0, str(bundles / "first/python"))
    import first
    good = (bundles / "first/first.weights").read_bytes()
    damaged = bundles / "damaged.weights"
    damaged.write_bytes(good[:-1] + bytes([good[-1] ^ 1]) if good[-1] else good[:200] + bytes([good[200] ^ 1]) + good[201:])
    with pytest.raises(first.Error, match="checksum"):
        first.Model(bundles / "build_first/libfirst.so", weights_path=damaged, check_weights=True)
    damaged.write_bytes(good[:100])
    with pytest.raises(first.Error, match="bytes"):
        first.Model(bundles / "build_first/libfirst.so", weights_path=damaged)


@pytest.fixture(scope="module")
def objects(optc, tmp_path_factory):
    """Strings, a sequence, an optional, and a loop whose carried value grows while it collects columns: one bundle."""
    folder = tmp_path_factory.mktemp("objects")
    f32, i64 = TensorProto.FLOAT, TensorProto.INT64
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_out"]), helper.make_node("Concat", ["v", "v"], ["doubled"], axis=0),
         helper.make_node("ReduceSum", ["v"], ["total"], keepdims=0)],
        "body", [helper.make_tensor_value_info("i", i64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                 helper.make_tensor_value_info("v", f32, [None])],
        [helper.make_tensor_value_info("go_out", TensorProto.BOOL, []), helper.make_tensor_value_info("doubled", f32, [None]),
         helper.make_tensor_value_info("total", f32, [])])
    nodes = [helper.make_node("StringConcat", ["text", "suffix"], ["joined"]),
             helper.make_node("SequenceInsert", ["list", "x"], ["longer"]),
             helper.make_node("ConcatFromSequence", ["longer"], ["flat"], axis=0),
             helper.make_node("OptionalHasElement", ["maybe"], ["there"]),
             helper.make_node("Loop", ["n", "", "x"], ["grown", "totals"], body=body)]
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(f32, [3]))
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("text", TensorProto.STRING, ["N"]), helper.make_value_info("list", sequence),
         helper.make_tensor_value_info("x", f32, [3]), helper.make_tensor_value_info("n", i64, []),
         helper.make_value_info("maybe", helper.make_optional_type_proto(helper.make_tensor_type_proto(f32, [3])))],
        [helper.make_tensor_value_info("joined", TensorProto.STRING, ["N"]), helper.make_value_info("longer", sequence),
         helper.make_tensor_value_info("flat", f32, [None]), helper.make_tensor_value_info("there", TensorProto.BOOL, []),
         helper.make_tensor_value_info("grown", f32, [None]), helper.make_tensor_value_info("totals", f32, [None])],
        [helper.make_tensor("suffix", TensorProto.STRING, [1], [b"-suffix"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "objects.onnx")
    run(optc, folder / "objects.onnx", "-o", folder / "objects")
    run("cmake", "-S", folder / "objects", "-B", folder / "build", "-DBUILD_SHARED_LIBS=ON", "-DCMAKE_BUILD_TYPE=None",
        "-DCMAKE_CXX_FLAGS=" + " ".join(FLAGS))
    run("cmake", "--build", folder / "build", "--target", "objects")
    return folder


def test_strings_sequences_optionals_and_growing_values(objects):
    sys.path.insert(0, str(objects / "objects/python"))
    import objects as module
    model = module.Model(objects / "build/libobjects.so")
    x = np.array([1.5, -2, 4], np.float32)
    pieces = [np.arange(3, dtype=np.float32), np.array([7, 0, -1], np.float32)]
    for trips, maybe in ((3, x), (0, None), (5, x)):
        text = np.array(["a", "", "längeres Wort"] * (trips + 1), object)
        got = model(text=text, list=pieces, x=x, n=np.int64(trips), maybe=maybe)
        assert got["joined"].tolist() == [t + "-suffix" for t in text]
        assert [a.tolist() for a in got["longer"]] == [a.tolist() for a in [*pieces, x]]
        np.testing.assert_array_equal(got["flat"], np.concatenate([*pieces, x]))
        assert bool(got["there"]) == (maybe is not None)
        np.testing.assert_array_equal(got["grown"], np.tile(x, 2**trips))
        np.testing.assert_allclose(got["totals"], [x.sum() * 2**i for i in range(trips)])
    with pytest.raises(module.Error, match="missing"):
        model(text=text, x=x, n=np.int64(1), maybe=None)


def test_a_model_of_tensors_carries_no_code_for_objects(bundles):
    assert not (bundles / "first/src/runtime/bundle/objects.h").exists()
    assert "NoObjects" in (bundles / "first/src/model.cpp").read_text()


def test_weights_are_packed_as_they_are_written(optc, tmp_path):
    """600 MB of weights in a file beside the model, with 150 MB of memory of its own for optc (a mapped file does not count)."""
    count, size = 24, (1536, 4096)
    nodes, weights, last, at = [], [], "x", 0
    with open(tmp_path / "model.data", "wb") as data:
        for i in range(count):
            shape = size if i % 2 == 0 else size[::-1]
            bytes_of = 4 * shape[0] * shape[1]
            data.seek(at)
            data.write(np.float32(i + 1).tobytes())  # the rest of the file is a hole
            tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
            for key, value in (("location", "model.data"), ("offset", str(at)), ("length", str(bytes_of))):
                tensor.external_data.add(key=key, value=value)
            weights.append(tensor)
            nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [last := f"y{i}"]))
            at += bytes_of
        data.truncate(at)
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, size[0]])],
                              [helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, size[0]])], weights)
    (tmp_path / "model.onnx").write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString())
    done = subprocess.run(["prlimit", f"--data={150 << 20}", str(optc), str(tmp_path / "model.onnx"), "-o", str(tmp_path / "bundle")],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "bundle/model.weights").stat().st_size >= at
