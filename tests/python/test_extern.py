"""--extern: operators that an application supplies as C functions of the bundle."""

import importlib.util
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

FUNCTIONS = r"""
#include <math.h>
#include <string.h>
#include "m.h"

/* Row sums of x0 to the power `attribute_power`, and how many elements of each row are above 0. */
optc_status m_my_ops_RowSums(const char *node, const float *x0, const int64_t x0_dims[2], float *y0, const int64_t y0_dims[1], int64_t *y1,
                             const int64_t y1_dims[1], int64_t attribute_power) {
  (void)y1_dims;
  if (x0_dims[1] == 1) return OPTC_MODEL_FAULT;
  if (strcmp(node, "sums") != 0 || y0_dims[0] != x0_dims[0]) return OPTC_INTERNAL;
  for (int64_t i = 0; i < x0_dims[0]; ++i) {
    y0[i] = 0, y1[i] = 0;
    for (int64_t j = 0; j < x0_dims[1]; ++j) {
      y0[i] += powf(x0[i * x0_dims[1] + j], (float)attribute_power);
      y1[i] += x0[i * x0_dims[1] + j] > 0;
    }
  }
  return OPTC_OK;
}

/* Weights by name and place. */
static optc_status weigh(const double factor, const int64_t n, const char *mode, const float *weights, size_t count) {
  return factor == 2 && n >= 0 && strcmp(mode, "by \"place\"") == 0 && count == 2 && weights[1] == 0.5f ? OPTC_OK : OPTC_INTERNAL;
}
optc_status m_my_ops_Weigh(const char *node, const float *x0, const int64_t x0_dims[1], const double *x2, const int64_t x2_dims[1], float *y0,
                           const int64_t y0_dims[1], const char *attribute_mode, const float *attribute_weights, size_t attribute_weights_count) {
  (void)node, (void)x2_dims;
  for (int64_t i = 0; i < y0_dims[0]; ++i) y0[i] = x0[i] * attribute_weights[i % 2] * (float)*x2;
  return weigh(*x2, x0_dims[0], attribute_mode, attribute_weights, attribute_weights_count);
}
optc_status m_my_ops_Weigh_2(const char *node, const int64_t *x0, const int64_t x0_dims[1], int64_t *y0, const int64_t y0_dims[1]) {
  (void)node, (void)x0_dims;
  for (int64_t i = 0; i < y0_dims[0]; ++i) y0[i] = -x0[i];
  return OPTC_OK;
}
"""
PROGRAM = r"""
#include <stdio.h>
#include "m.h"
int main(void) {
  optc_context *context;
  const float x[6] = {1, -2, 3, 4, 5, -6};
  float y[2];
  int64_t z[2];
  if (m_model()->api->context_create(NULL, NULL, &context)) return 1;
  if (m_run(context, 2, 3, x, y, z)) return 2;
  printf("%g %g %d %d\n", y[0], y[1], (int)z[0], (int)z[1]);
  m_model()->api->context_destroy(context);
  return 0;
}
"""


def write(path, declared=True):
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("RowSums", ["r"], ["sums", "counts"], domain="my.ops", name="sums", power=2),
        helper.make_node("Weigh", ["sums", "", "two"], ["w"], domain="my.ops", name="weigh", mode='by "place"', weights=[3.0, 0.5]),
        helper.make_node("Weigh", ["counts"], ["v"], domain="my.ops", name="negate"),
        helper.make_node("Sqrt", ["w"], ["y"]),
        helper.make_node("Abs", ["v"], ["z"]),
    ]
    infos = [helper.make_tensor_value_info(n, t, ["n"]) for n, t in (("sums", TensorProto.FLOAT), ("counts", TensorProto.INT64), ("w", TensorProto.FLOAT), ("v", TensorProto.INT64))]
    two = helper.make_tensor("two", TensorProto.DOUBLE, [], [2.0])
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "k"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"]), helper.make_tensor_value_info("z", TensorProto.INT64, ["n"])],
                              [two], value_info=infos if declared else [])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("my.ops", 3)], ir_version=9), path)
    return path


EXTERNS = ["--extern", "my.ops::RowSums", "--extern", "my.ops::Weigh"]


def compiled(optc, folder):
    subprocess.run([optc, write(folder / "m.onnx"), "-o", folder / "m", "--name", "m", "-q", *EXTERNS], check=True)
    (folder / "functions.c").write_text(FUNCTIONS)
    return folder / "m"


def build(bundle, folder, *options):
    subprocess.run(["cmake", "-S", bundle, "-B", folder, *options], check=True, capture_output=True)
    done = subprocess.run(["cmake", "--build", folder, "--parallel", "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def expected(x):
    r = np.maximum(x, 0)
    w = (r**2).sum(1) * 2 * np.array([3, 0.5] * len(x), np.float32)[: len(x)]
    return np.sqrt(w), (r > 0).sum(1)


def test_a_program_supplies_the_functions(optc, tmp_path):
    bundle = compiled(optc, tmp_path)
    header = (bundle / "include/m.h").read_text()
    assert "optc_status m_my_ops_RowSums(" in header and "m_my_ops_Weigh_2(" in header
    build(bundle, tmp_path / "build")  # a static library; no example, which would lack the functions
    (tmp_path / "main.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", f"-I{bundle}/include", "-c", "functions.c", "main.c"], cwd=tmp_path, check=True)
    subprocess.run(["g++", "main.o", "functions.o", "build/libm.a", "-lpthread", "-ldl", "-lm", "-o", "app"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "app"], capture_output=True, text=True)
    y, z = expected(np.array([[1, -2, 3], [4, 5, -6]], np.float32))
    got = done.stdout.split()
    np.testing.assert_allclose([float(v) for v in got[:2]], y, rtol=1e-5)
    assert [int(v) for v in got[2:]] == z.tolist()


def test_sources_become_a_part_of_the_library(optc, tmp_path):
    bundle = compiled(optc, tmp_path)
    build(bundle, tmp_path / "build", "-DBUILD_SHARED_LIBS=ON", f"-Dm_EXTERNS={tmp_path / 'functions.c'}")
    spec = importlib.util.spec_from_file_location("m", bundle / "python/m.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.Model(library=str(tmp_path / "build/libm.so"))
    for n, k in ((1, 2), (5, 3), (0, 4)):
        x = np.random.default_rng(n).standard_normal((n, k)).astype(np.float32)
        outputs = model(x=x)
        y, z = expected(x)
        np.testing.assert_allclose(outputs["y"], y, rtol=1e-5)
        np.testing.assert_array_equal(outputs["z"], z)
    with pytest.raises(Exception, match="my.ops::RowSums of node 'sums' ended with status 3"):
        model(x=np.ones((2, 1), np.float32))
    assert subprocess.run([tmp_path / "build/m_example", "2", "3"], capture_output=True).returncode == 0


def test_types_may_be_given(optc, tmp_path):
    model = write(tmp_path / "m.onnx", declared=False)
    types = ["--extern", "my.ops::RowSums=float[n],int64[n]", "--extern", "my.ops::Weigh=f32[n]"]
    done = subprocess.run([optc, model, "-o", tmp_path / "m", *types], capture_output=True, text=True)
    assert done.returncode == 3 and "declared as a tensor of int64" in done.stderr  # what comes of the second Weigh
    graph = onnx.load(model)
    del graph.graph.node[3], graph.graph.node[4], graph.graph.output[1]
    onnx.save(graph, model)
    done = subprocess.run([optc, model, "-o", tmp_path / "m", "-q", *types], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("options, code, said", [
    ([], 4, "--extern DOMAIN::OP leaves it to a C function of the application"),
    (["--extern", "my.ops::RowSums"], 4, "my.ops.Weigh"),
    ([*EXTERNS, "--extern", "my.ops::Absent"], 2, "the model has no such node"),
    ([*EXTERNS, "--extern", "ai.onnx::Relu"], 2, "optc knows this operator"),
    ([*EXTERNS, "--extern", "com.microsoft::Gelu"], 2, "optc knows this operator"),
    (["--extern", "RowSums"], 2, "expected DOMAIN::OP"),
    (["--extern", "my.ops::Row*/Sums"], 2, "expected DOMAIN::OP"),
    (["--extern", "my.ops::RowSums=float32x[n]", "--extern", "my.ops::Weigh"], 2, "expected DOMAIN::OP"),
    (["--extern", "my.ops::RowSums=float[n]", "--extern", "my.ops::Weigh"], 2, "gives 1 types, the node has more outputs"),
    (["--extern", "my.ops::RowSums=float[q],int64[n]", "--extern", "my.ops::Weigh"], 2, "'q' is no size that the model's inputs have"),
])
def test_what_cannot_be_is_refused(optc, tmp_path, options, code, said):
    done = subprocess.run([optc, write(tmp_path / "m.onnx"), "-o", tmp_path / "m", *options], capture_output=True, text=True)
    assert said in " ".join(done.stderr.split()), done.stderr
    assert done.returncode == code and not (tmp_path / "m").exists(), done.stderr


def test_shapes_must_be_known(optc, tmp_path):
    done = subprocess.run([optc, write(tmp_path / "m.onnx", declared=False), "-o", tmp_path / "m", *EXTERNS], capture_output=True, text=True)
    assert done.returncode == 4 and "the type and shape of output 'sums' of my.ops::RowSums are not known" in " ".join(done.stderr.split())
    assert "--extern 'my.ops::RowSums=float[1,3]'" in " ".join(done.stderr.split())


@pytest.mark.parametrize("verb", [["run"], ["run", "--engine=evaluate"], ["verify"], ["bench"]])
def test_optc_cannot_run_them(optc, tmp_path, verb):
    done = subprocess.run([optc, verb[0], write(tmp_path / "m.onnx"), *verb[1:], *EXTERNS], capture_output=True, text=True)
    assert done.returncode == 4 and "application" in done.stderr and "--custom-op" in done.stderr, done.stderr


def test_opt_keeps_the_operators(optc, tmp_path):
    subprocess.run([optc, "opt", write(tmp_path / "m.onnx"), "-o", tmp_path / "o.onnx", "-q", *EXTERNS], check=True)
    model = onnx.load(tmp_path / "o.onnx")
    sums = next(n for n in model.graph.node if n.op_type == "RowSums")
    assert sums.domain == "my.ops" and {a.name: a.i for a in sums.attribute} == {"power": 2}
    assert {(o.domain, o.version) for o in model.opset_import} >= {("my.ops", 3)}
