"""One small network on every instruction set, compiler and processor that bundles are meant for, against ONNX Runtime.

AArch64 is cross-built and run under qemu-user. On x86-64 OPTC_ISA forces what a bundle would choose on an older machine, and g++ and
clang++ both build it with warnings as errors.
"""

import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror", "-pthread"]
ROWS = 3

# Reads float32 values of `image` from a file and prints those of `y`. Three contexts run at a time, each with a pool of four threads,
# and must agree to the last bit.
PROGRAM = r"""
#include <cstdio>
#include <thread>
#include <vector>
#include "net.hpp"
int main(int, char **argv) {
  std::vector<float> x(@COUNT@);
  FILE *file = std::fopen(argv[1], "rb");
  if (!file || std::fread(x.data(), sizeof(float), x.size(), file) != x.size()) return 2;
  std::fclose(file);
  std::vector<std::vector<float>> results(3);
  std::vector<std::thread> callers;
  for (std::vector<float> &y : results)
    callers.emplace_back([&x, &y] {
      optc_options options = optc_options();
      options.threads = 4;
      net::Model model(options);
      for (int i = 0; i < 3; ++i) y = model.run(x, @ROWS@).y;
    });
  for (std::thread &caller : callers) caller.join();
  for (const std::vector<float> &y : results)
    if (y != results[0]) return 3;
  for (float v : results[0]) std::printf("%.9g ", v);
}
"""


@pytest.fixture(scope="module")
def net(optc, tmp_path_factory):
    """Convolutions of every strategy, of floats and of bytes, pooling, a norm, products, recurrent layers whose units are divided among
    threads, and a softmax; the bundle, its input and the right answer."""
    folder = tmp_path_factory.mktemp("portable")
    rng = np.random.default_rng(4)
    shapes = {"w0": (16, 3, 3, 3), "w1": (16, 1, 3, 3), "w2": (24, 16, 1, 1), "w3": (32, 24, 3, 3), "v": (32, 40), "u": (40, 10), "b": (19, 40), "t": (200, 40),
              "lw": (2, 400, 40), "lr": (2, 400, 100), "gw": (1, 270, 40), "gr": (1, 270, 90), "gt": (90, 40)}
    constants = {k: rng.standard_normal(s).astype(np.float32) / np.float32(np.prod(s[1:]) ** 0.5) for k, s in shapes.items()}
    constants |= {"gamma": rng.standard_normal(40).astype(np.float32), "beta": rng.standard_normal(40).astype(np.float32)}
    constants |= {k: rng.integers(-128, 128, s).astype(np.int8) for k, s in {"q0": (16, 3, 3, 3), "q1": (3, 1, 3, 3)}.items()}
    constants |= {"step": np.float32(0.03125), "small": np.float32(0.0078125), "zero": np.uint8(120), "none": np.int8(0)}
    constants |= {"one": np.array([1]), "rows": np.array([-1, 200]), "units": np.array([-1, 90])}
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "w0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]), node("HardSwish", ["c0"], ["a0"]),
        node("Conv", ["a0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=16), node("Sigmoid", ["c1"], ["a1"]),
        node("Conv", ["a1", "w2"], ["c2"]), node("Relu", ["c2"], ["a2"]),
        node("Conv", ["a2", "w3"], ["c3"], pads=[1, 1, 1, 1]), node("GlobalAveragePool", ["c3"], ["p"]),
        node("Flatten", ["p"], ["f"]), node("MatMul", ["f", "v"], ["m0"]),
        node("QuantizeLinear", ["image", "step", "zero"], ["q"]), node("DequantizeLinear", ["q", "step", "zero"], ["d"]),
        node("DequantizeLinear", ["q0", "small", "none"], ["d0"]), node("DequantizeLinear", ["q1", "small", "none"], ["d1"]),
        node("Conv", ["d", "d0"], ["e0"], pads=[1, 0, 2, 1], strides=[2, 1]), node("GlobalAveragePool", ["e0"], ["p0"]),
        node("Conv", ["d", "d1"], ["e1"], pads=[1, 1, 1, 1], group=3), node("GlobalAveragePool", ["e1"], ["p1"]),
        node("Concat", ["p0", "p1"], ["p2"], axis=1), node("Flatten", ["p2"], ["f2"]), node("MatMul", ["f2", "b"], ["m1"]),
        node("Add", ["m0", "m1"], ["m2"]), node("Unsqueeze", ["m2", "one"], ["s"]),
        node("LSTM", ["s", "lw", "lr"], ["h0"], hidden_size=100, direction="bidirectional"), node("Reshape", ["h0", "rows"], ["h1"]),
        node("GRU", ["s", "gw", "gr"], ["g0"], hidden_size=90), node("Reshape", ["g0", "units"], ["g1"]),
        node("MatMul", ["h1", "t"], ["h2"]), node("MatMul", ["g1", "gt"], ["g2"]), node("Sum", ["m2", "h2", "g2"], ["m"]),
        node("LayerNormalization", ["m", "gamma", "beta"], ["n"], axis=-1), node("Gelu", ["n"], ["g"]),
        node("MatMul", ["g", "u"], ["l"]), node("Softmax", ["l"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 24, 24])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
                              [numpy_helper.from_array(v, k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "net.onnx")
    subprocess.run([optc, folder / "net.onnx", "-o", folder / "net", "-q", "--embed-weights"], check=True)
    x = rng.standard_normal((ROWS, 3, 24, 24)).astype(np.float32)
    x.tofile(folder / "x.bin")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"), options, providers=["CPUExecutionProvider"])
    (folder / "main.cpp").write_text(PROGRAM.replace("@COUNT@", str(x.size)).replace("@ROWS@", str(ROWS)))
    return folder, session.run(None, {"image": x})[0].ravel()


def build(net, compiler, *extra):
    folder, _ = net
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not there")
    program = folder / "_".join(["app", compiler, *(e.strip("-").replace("=", "_").replace(",", "_") for e in extra)])
    if not program.exists():
        sources = sorted(str(p) for p in (folder / "net/src").glob("*.cpp"))
        done = subprocess.run([compiler, *FLAGS, *extra, f"-I{folder}/net/include", f"-I{folder}/net/src",
                               f'-DOPTC_BUNDLE_FOLDER="{folder}/net"', *sources, str(folder / "main.cpp"), "-o", str(program), "-ldl"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-6000:]
    return program


def check(net, command, **environment):
    folder, expected = net
    done = subprocess.run([*map(str, command), str(folder / "x.bin")], capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-3000:]
    np.testing.assert_allclose(np.array(done.stdout.split(), np.float32), expected, rtol=2e-5, atol=1e-6)
    return done.stdout


@pytest.mark.parametrize("isa", ["base", "avx2", "avx512"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_instruction_sets(net, compiler, isa):
    if os.uname().machine != "x86_64":
        pytest.skip("these instruction sets are those of x86-64")
    check(net, [build(net, compiler)], OPTC_ISA=isa)  # a set that the machine lacks falls to the next one


def test_aarch64_under_qemu(net):
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("qemu-aarch64 is not there")
    program = build(net, "aarch64-linux-gnu-g++", "-static")
    header = pathlib.Path(program).read_bytes()[:20]
    assert struct.unpack_from("<H", header, 18)[0] == 183  # EM_AARCH64: it is not this machine's program that runs
    check(net, ["qemu-aarch64", program])


@pytest.mark.tier2
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitized_bundle(net, sanitizer):
    program = build(net, "g++", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
    for isa in ("base", "avx2", "avx512"):
        check(net, [program], OPTC_ISA=isa)
