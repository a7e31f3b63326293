"""Every form of signature gives a bundle that compiles without a warning and whose example runs: 0 to 5 inputs and outputs, static and
symbolic, strings, sequences, optionals; by g++ and clang++, from C and C++; no generated line is longer than 140 characters."""

import pathlib
import re
import shutil
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

F32, STRING = TensorProto.FLOAT, TensorProto.STRING
FLAGS = ["-Wall", "-Wextra", "-Wconversion", "-Werror", "-ffp-contract=off", "-fno-math-errno"]
COMPILERS = {"g++": "gcc", "clang++": "clang"}


def tensors(inputs, outputs, dims):
    """Sums of the inputs: output k is their sum times k."""
    values = [helper.make_tensor_value_info(f"x{i}", F32, dims) for i in range(inputs)]
    results = [helper.make_tensor_value_info(f"y{i}", F32, dims) for i in range(outputs)]
    nodes, constants = [], [helper.make_tensor(f"k{i}", F32, [], [float(i)]) for i in range(outputs)]
    if inputs == 0:
        nodes.append(helper.make_node("RandomUniform", [], ["sum"], shape=dims, seed=1.0))
    else:
        nodes.append(helper.make_node("Sum", [v.name for v in values], ["sum"]))
    nodes += [helper.make_node("Mul", ["sum", f"k{i}"], [f"y{i}"]) for i in range(outputs)]
    return nodes, values, results, constants


def strings():
    return ([helper.make_node("StringConcat", ["a", "b"], ["c"])],
            [helper.make_tensor_value_info(n, STRING, ["N"]) for n in "ab"], [helper.make_tensor_value_info("c", STRING, ["N"])], [])


def sequences():
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(F32, [3]))
    return ([helper.make_node("SequenceInsert", ["list", "x"], ["longer"])],
            [helper.make_value_info("list", kind), helper.make_tensor_value_info("x", F32, [3])], [helper.make_value_info("longer", kind)], [])


def optionals():
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(F32, [3]))
    return ([helper.make_node("OptionalHasElement", ["maybe"], ["there"])], [helper.make_value_info("maybe", kind)],
            [helper.make_tensor_value_info("there", TensorProto.BOOL, [])], [])


def found_sizes():
    nodes = [helper.make_node("NonZero", ["x"], ["places"]), helper.make_node("Cast", ["places"], ["numbers"], to=F32)]
    return (nodes, [helper.make_tensor_value_info("x", F32, ["N"])],
            [helper.make_tensor_value_info("places", TensorProto.INT64, [1, None]), helper.make_tensor_value_info("numbers", F32, [1, None])], [])


def listed_again():
    """A module that returns a value twice, and what it was given."""
    y, z, x = (helper.make_tensor_value_info(n, F32, ["N", 3]) for n in "yzx")
    return [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("Neg", ["y"], ["z"])], [x], [y, z, y, x, y], []


def strided():
    """Output sizes that are quotients of the input's: as of every network of convolutions."""
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}
    nodes = [helper.make_node("AveragePool", [a], [b], **attributes) for a, b in zip(["x", "half", "quarter"], ["half", "quarter", "eighth"])]
    return nodes, [helper.make_tensor_value_info("x", F32, ["N", 1, "H", "W"])], [helper.make_tensor_value_info("eighth", F32, None)], []


# Names that the code around them uses, macros, and what is no identifier.
NAMES = ["outputs", "Outputs", "T0", "M_PI", "SIZE_MAX", "CHAR_BIT", "INFINITY", "NULL", "EOF", "errno", "in", "out", "context", "run", "Model",
         "Error", "data", "std", "float", "int64_t", "size_t", "this", "linux", "signal", "a/b:c", "ü", "9", "model", "optc_run", "names_run",
         "names_model", "names", "x" * 200, "stdin", "assert", "W", "I", "d", "k", "env", "max", "exp", "round", "kernels", "fill"]


def named():
    """Every name as an input, as a dim, as a node and, as an output, what the node named like it gives."""
    nodes, values, results = [], [], []
    for i, name in enumerate(NAMES):
        values.append(helper.make_tensor_value_info(name, F32, [NAMES[(i + 7) % len(NAMES)], 3]))
        nodes.append(helper.make_node("Softmax" if i % 2 else "ReduceSum", [name], [f"{name}!"], name=name, **({"axis": 0} if i % 2 else {})))
        results.append(helper.make_tensor_value_info(f"{name}!", F32, None))
    return nodes, values, results, []


MODELS = {f"{form}_{n}": (lambda n=n, dims=dims: tensors(n, n, dims))
          for form, dims in (("fixed", [2, 3]), ("open", ["N", "M"])) for n in range(6) if form == "fixed" or n}
MODELS.update({"one_output": lambda: tensors(5, 1, ["N", 3]), "five_outputs": lambda: tensors(1, 5, [4]), "scalars": lambda: tensors(2, 2, []),
               "strings": strings, "sequences": sequences, "optionals": optionals, "found_sizes": found_sizes, "listed_again": listed_again, "strided": strided, "names": named})
SMALL = ["fixed_2", "strings", "strided", "names"]


def compiled(optc, folder, name):
    nodes, inputs, outputs, constants = MODELS[name]()
    if not outputs:
        outputs = [helper.make_tensor_value_info("sum", F32, [2, 3])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, folder / f"m_{name}.onnx")
    subprocess.run([optc, folder / f"m_{name}.onnx", "-o", folder / f"m_{name}", "-q"], check=True)
    return folder / f"m_{name}"


def compile_all(bundle, compiler, work):
    """Every source of the bundle and its example into one program; a C program that includes its header."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not there")
    name = bundle.name
    include = [f"-I{bundle}/include", f"-I{bundle}/src", f'-DOPTC_BUNDLE_FOLDER="{bundle}"']
    (work / "main.c").write_text(f'#include "{name}.h"\nint main(void) {{ return {name}_model()->abi_version == OPTC_ABI_VERSION ? 0 : 1; }}\n')
    commands = [[compiler, "-std=c++17", "-O0", "-fPIC", *FLAGS, *include, *sorted(map(str, (bundle / "src").glob("*.cpp"))),
                 str(bundle / "examples/main.cpp"), "-o", str(work / "example"), "-ldl", "-lpthread"],
                [COMPILERS[compiler], "-std=c99", "-pedantic", "-O0", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", *include,
                 str(work / "main.c")]]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:4000]


def check_lines(bundle):
    for path in bundle.rglob("*"):
        if path.suffix in (".cpp", ".h", ".hpp", ".inc", ".py", ".txt", ".md"):
            for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
                assert len(line) <= 140, f"{path}:{number}: {len(line)} bytes"


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", [n if n in SMALL else pytest.param(n, marks=pytest.mark.tier2) for n in MODELS])
def test_compiles_without_a_warning_and_runs(optc, tmp_path, name, compiler):
    bundle = compiled(optc, tmp_path, name)
    check_lines(bundle)
    compile_all(bundle, compiler, tmp_path)
    done = subprocess.run([tmp_path / "example"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 1


def test_sizes_that_are_quotients_have_the_short_form(optc, tmp_path):
    bundle = compiled(optc, tmp_path, "strided")
    (tmp_path / "main.cpp").write_text("""
#include <cstdio>
#include <cstdlib>
#include "m_strided.hpp"
int main(int, char **argv) {
  const int64_t n = atoi(argv[1]), h = atoi(argv[2]), w = atoi(argv[3]);
  std::vector<float> x(n * h * w);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17);
  m_strided::Model model;
  for (float y : model.run(x, n, h, w).eighth) std::printf("%.6g ", y);
}
""")
    subprocess.run(["g++", "-std=c++17", "-O1", "-fsanitize=address", "-static-libasan", f"-I{bundle}/include", f"-I{bundle}/src", f'-DOPTC_BUNDLE_FOLDER="{bundle}"',
                    *sorted(map(str, (bundle / "src").glob("*.cpp"))), tmp_path / "main.cpp", "-o", tmp_path / "main", "-ldl", "-lpthread"], check=True)
    session = onnxruntime.InferenceSession(str(tmp_path / "m_strided.onnx"), providers=["CPUExecutionProvider"])
    for n, h, w in ((1, 1, 1), (2, 7, 13), (1, 8, 9), (3, 16, 2)):
        x = (np.arange(n * h * w) % 17).astype(np.float32).reshape(n, 1, h, w)
        done = subprocess.run([tmp_path / "main", str(n), str(h), str(w)], check=True, capture_output=True, text=True)
        np.testing.assert_allclose(np.array(done.stdout.split(), float), session.run(None, {"x": x})[0].ravel(), rtol=1e-5)


def words(bundle):
    """The identifiers of a bundle's sources, without those in comments and texts."""
    found = set()
    for path in [*bundle.glob("include/*"), *bundle.glob("src/*")]:
        if path.suffix in (".cpp", ".h", ".hpp", ".inc"):
            text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', " ", path.read_text(), flags=re.S)
            found |= set(re.findall(r"\b[A-Za-z_]\w*", text))
    return found


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_name_of_a_model_is_a_macro_of_the_headers_that_a_bundle_includes(optc, tmp_path, compiler):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not there")
    bundle, macros = compiled(optc, tmp_path, "strings"), set()
    for source in sorted((bundle / "src").glob("*.cpp")):
        done = subprocess.run([compiler, "-std=c++17", "-dM", "-E", f"-I{bundle}/include", f"-I{bundle}/src", f'-DOPTC_BUNDLE_FOLDER="{bundle}"',
                               str(source)], capture_output=True, text=True, check=True)
        macros |= set(re.findall(r"^#define ([A-Za-z]\w*)", done.stdout, re.M))
    assert len(macros) > 300
    # A model all of whose values have such names uses no word more than one whose values are named like nothing.
    said = {}
    for name, names in (("m_macros", sorted(macros)), ("m_plain", [f"plain{i}" for i in range(len(macros))])):
        nodes = [helper.make_node("Relu", ["NULL" if name == "m_macros" else "x"], [n], name=n) for n in names if n != "NULL"]
        inputs = [helper.make_tensor_value_info(nodes[0].input[0], F32, ["EOF" if name == "m_macros" else "N"])]
        outputs = [helper.make_tensor_value_info(n.output[0], F32, [None]) for n in nodes]
        onnx.save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 20)], ir_version=10),
                  tmp_path / f"{name}.onnx")
        subprocess.run([optc, tmp_path / f"{name}.onnx", "-o", tmp_path / name, "-q"], check=True)
        said[name] = words(tmp_path / name)
    assert sorted((said["m_macros"] - said["m_plain"]) & macros) == []


APP = r"""
#include <cstdio>
#include <cstring>
#include <vector>
#include "moved.hpp"
int main() {
  moved::Model model;
  const std::vector<float> x = {1, 2, 3};
  const moved::Outputs outputs = model.run(x);
  std::printf("%g %g", static_cast<double>(outputs.y[0]), static_cast<double>(outputs.y[1]));
  return std::strstr(moved::Model::api().manifest_json(), "\"schema_version\"") ? 0 : 1;
}
"""


@pytest.mark.parametrize("shared", ["OFF", pytest.param("ON", marks=pytest.mark.tier2)])
def test_an_installed_bundle_may_be_moved_when_its_sources_are_gone(optc, tmp_path, shared):
    weights = helper.make_tensor("w", F32, [3, 2], [1, 2, 3, 4, 5, 6])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", F32, [1, 3])],
                              [helper.make_tensor_value_info("y", F32, [1, 2])], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path / "moved.onnx")

    def run(*command):
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    run(optc, tmp_path / "moved.onnx", "-o", tmp_path / "source", "--name", "moved", "-q")
    run("cmake", "-S", tmp_path / "source", "-B", tmp_path / "build", f"-DBUILD_SHARED_LIBS={shared}", "-DCMAKE_CXX_FLAGS=-O0")
    run("cmake", "--build", tmp_path / "build")
    run("cmake", "--install", tmp_path / "build", "--prefix", tmp_path / "first")
    shutil.rmtree(tmp_path / "source")
    shutil.rmtree(tmp_path / "build")
    (tmp_path / "first").rename(tmp_path / "second")
    (tmp_path / "app.cpp").write_text(APP)
    (tmp_path / "CMakeLists.txt").write_text("""cmake_minimum_required(VERSION 3.16)
project(app CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(moved REQUIRED)
add_executable(app app.cpp)
target_link_libraries(app PRIVATE moved::moved)
""")
    run("cmake", "-S", tmp_path, "-B", tmp_path / "app_build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'second'}")
    run("cmake", "--build", tmp_path / "app_build")
    assert run(tmp_path / "app_build/app") == "22 28"
    if shutil.which("pkg-config") is None:
        return
    package = next((tmp_path / "second").rglob("moved.pc"))
    flags = run("env", f"PKG_CONFIG_PATH={package.parent}", "pkg-config", "--cflags", "--libs", "moved").split()
    run("g++", "-std=c++17", tmp_path / "app.cpp", *flags, "-o", tmp_path / "by_pc", f"-Wl,-rpath,{package.parent.parent}")
    assert run(tmp_path / "by_pc") == "22 28"
