"""Bundles with GPU kernels, run by a driver library that emulates PTX (tests/ptx_emulator), and without any driver."""

import ctypes
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from abi import FAULT, I64, INVALID, OK, TOO_SMALL, api_of, attempt, build, create, make, value
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture(scope="session")
def emulated_driver(optc):
    path = pathlib.Path(optc).parent.parent / "tests/libemulated_cuda.so"
    if not path.exists() or not (path.parent.parent / "lib/optc/optc-ptx.so").exists():
        pytest.skip("this build has no GPU targets")
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """x [N, 20] -> layer norm of gelu(x w)."""
    random = np.random.default_rng(11)
    tensors = [numpy_helper.from_array(random.standard_normal(shape, dtype=np.float32), name)
               for name, shape in (("w", (20, 24)), ("g", (24,)), ("b", (24,)))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="fc"), helper.make_node("Tanh", ["m"], ["t"], name="act"),
             helper.make_node("LayerNormalization", ["t", "g", "b"], ["y"], name="norm")]
    graph = helper.make_graph(nodes, "gpu", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 20])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 24])], tensors)
    path = tmp_path_factory.mktemp("gpu") / "gpu_small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def environment(driver):
    return {**os.environ, "OPTC_LIBCUDA": str(driver), "OPTC_PYTHON": sys.executable}


def test_a_gpu_bundle_agrees_with_onnx_runtime(optc, model, emulated_driver):
    done = subprocess.run([optc, "verify", model, "--target=cpu,sm_80", "--format=json"], capture_output=True, text=True,
                          env=environment(emulated_driver))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"]


def save_twins(path):
    """Two equal chains, each of kernels that join those of the other; the sizes of their results are known at run time."""
    nodes = []
    for i in "12":
        nodes += [helper.make_node("Mul", ["x", "k" + i], ["m" + i]), helper.make_node("Softmax", ["m" + i], ["s" + i], axis=-1)]
    for i in "12":
        nodes += [helper.make_node("Split", ["s" + i], ["l" + i, "h" + i], axis=-1, num_outputs=2),
                  helper.make_node("Neg", ["h" + i], ["n" + i]), helper.make_node("Concat", ["n" + i, "l" + i], ["r" + i], axis=-1),
                  helper.make_node("Mul", ["r" + i, "c"], ["t" + i]), helper.make_node("Mul", ["s" + i, "d"], ["u" + i]),
                  helper.make_node("Add", ["t" + i, "u" + i], ["v" + i])]
    nodes += [helper.make_node("Transpose", ["v2"], ["z"], perm=[0, 2, 1]), helper.make_node("MatMul", ["v1", "z"], ["y"])]
    weights = [helper.make_tensor("k" + i, TensorProto.FLOAT, [], [float(i)]) for i in "12"]
    weights += [helper.make_tensor(n, TensorProto.FLOAT, [8], np.linspace(a, 2, 8)) for n, a in (("c", -1), ("d", 0.5))]
    graph = helper.make_graph(nodes, "twins", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "S", 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "S", "S"])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def test_what_a_joined_kernel_writes_lives_from_its_launch_on(optc, emulated_driver, tmp_path):
    save_twins(tmp_path / "m.onnx")
    done = subprocess.run([optc, "verify", tmp_path / "m.onnx", "--target=sm_80"], capture_output=True, text=True,
                          env=environment(emulated_driver), check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def save_block(path):
    """Half a decoder's layer for a few tokens: a norm whose rows a product reads, and a residual."""
    random = np.random.default_rng(5)
    weights = [numpy_helper.from_array(random.standard_normal(s, dtype=np.float32) / 8, n)
               for n, s in (("w", (64, 96)), ("g", (96,)), ("b", (96,)), ("up", (96, 160)), ("down", (160, 96)))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="embed"),
             helper.make_node("LayerNormalization", ["h", "g", "b"], ["n"], name="norm"),
             helper.make_node("MatMul", ["n", "up"], ["u"], name="up_to"), helper.make_node("Relu", ["u"], ["r"], name="positive"),
             helper.make_node("MatMul", ["r", "down"], ["d"], name="down_to"), helper.make_node("Add", ["d", "h"], ["y"], name="residual")]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", d]) for n, d in (("x", 64), ("y", 96))]
    graph = helper.make_graph(nodes, "block", values[:1], values[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_a_long_sum_by_one_thread_does_not_stand_still(optc, emulated_driver, tmp_path):
    """Numbers below half a unit of the last place of an f32 sum: 2^25 and 5,999 ones."""
    graph = helper.make_graph([helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], "columns",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6000, "N"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])], [helper.make_tensor("axes", TensorProto.INT64, [1], [0])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    x = np.ones((6000, 5), np.float32)
    x[0] = 2**25
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in/input_0.npy", x)
    subprocess.run([optc, "run", tmp_path / "m.onnx", "--target=sm_80", "--inputs", tmp_path / "in", "--outputs", tmp_path / "out", "-q"],
                   env=environment(emulated_driver), check=True)
    np.testing.assert_allclose(numpy_helper.to_array(onnx.load_tensor(tmp_path / "out/output_0.pb")), np.full(5, 2**25 + 5999, np.float32), rtol=1e-7)


def test_rows_of_any_length_stay_on_the_card(optc, emulated_driver, tmp_path):
    """Shared memory holds no row whose length has no bound: what a row keeps for later is computed again."""
    nodes = [helper.make_node("Mul", ["x", "x"], ["m"]), helper.make_node("Softmax", ["m"], ["y"], axis=-1), helper.make_node("LogSoftmax", ["x"], ["z"], axis=-1),
             helper.make_node("Hardmax", ["x"], ["h"], axis=-1), helper.make_node("MeanVarianceNormalization", ["x"], ["v"], axes=[-1])]
    graph = helper.make_graph(nodes, "rows", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "S"])],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", "S"]) for name in "yzhv"])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    done = subprocess.run([optc, tmp_path / "m.onnx", "--target=cpu,sm_80", "-o", tmp_path / "b"], capture_output=True, text=True, check=True)
    assert "emit gpu" in done.stdout + done.stderr and "on the CPU" not in done.stdout + done.stderr
    reference = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    for number, shape in enumerate([(3, 2000), (2, 7)]):
        x = np.random.default_rng(number).standard_normal(shape, np.float32)
        (tmp_path / f"in{number}").mkdir()
        np.save(tmp_path / f"in{number}/input_0.npy", x)
        subprocess.run([optc, "run", tmp_path / "m.onnx", "--target=sm_80", "--inputs", tmp_path / f"in{number}", "--outputs", tmp_path / f"out{number}", "-q"],
                       env=environment(emulated_driver), check=True)
        for k, wanted in enumerate(reference.run(None, {"x": x})):
            got = numpy_helper.to_array(onnx.load_tensor(tmp_path / f"out{number}/output_{k}.pb"))
            np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dim", ["N=1", "N=1..3"])
def test_a_norm_of_a_few_rows_is_computed_in_the_blocks_of_the_product_that_reads_it(optc, emulated_driver, tmp_path, dim):
    save_block(tmp_path / "m.onnx")
    options = [tmp_path / "m.onnx", "--target=cpu,sm_90", "--precision=f16", "--dim", dim]
    said = subprocess.run([optc, "inspect", *options], capture_output=True, text=True, check=True).stdout
    assert "1 in launches of others" in said, said
    for more in ([], ["--per-kernel"]):
        done = subprocess.run([optc, "verify", *options, *more], capture_output=True, text=True, env=environment(emulated_driver), check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_one_bundle_runs_on_the_cpu_without_a_driver_and_on_a_card_with_one(optc, model, emulated_driver, tmp_path):
    bundle = tmp_path / "bundle"
    subprocess.run([optc, model, "-o", bundle, "--name=gpu_small", "--target=cpu,sm_80", "-q"], check=True)
    assert json.loads((bundle / "manifest.json").read_text())["targets"] == ["cpu", "sm_80"]
    assert (bundle / "kernels/gpu_small.sm_80.ptx").exists()
    build = tmp_path / "build"
    subprocess.run(["cmake", "-S", bundle, "-B", build, "-DBUILD_SHARED_LIBS=ON"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", build, "--target", "gpu_small"], check=True, capture_output=True)
    program = f"""
import sys
import numpy as np
x = np.random.default_rng(3).standard_normal((3, 20), dtype=np.float32)
sys.path.insert(0, {str(bundle / 'python')!r})
import gpu_small
y = gpu_small.Model(library={str(build / 'libgpu_small.so')!r})(x=x)["y"]
np.save(sys.argv[1], y)
"""
    results = []
    for name, driver in (("cpu", "/no/such/libcuda.so"), ("gpu", emulated_driver)):
        done = subprocess.run([sys.executable, "-c", program, tmp_path / f"{name}.npy"], env=environment(driver),
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        results.append(np.load(tmp_path / f"{name}.npy"))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_unknown_targets_are_refused(optc, model, tmp_path):
    done = subprocess.run([optc, model, "-o", tmp_path / "b", "--target=gfx90a"], capture_output=True, text=True)
    assert done.returncode == 4 and "gfx90a" in done.stderr


def save_mixed(path):
    """The entries of tanh(x w) that are positive, in order, as exp; and softmax of all. NonZero has no GPU form, and its result's size decides
    how large the rest is."""
    weights = numpy_helper.from_array(np.random.default_rng(12).standard_normal((20, 24), dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="fc"), helper.make_node("Tanh", ["m"], ["t"], name="act"),
             helper.make_node("Relu", ["t"], ["p"], name="positive"), helper.make_node("NonZero", ["p"], ["i"], name="where"),
             helper.make_node("Transpose", ["i"], ["it"], perm=[1, 0], name="turn"), helper.make_node("GatherND", ["t", "it"], ["v"], name="pick"),
             helper.make_node("Exp", ["v"], ["y"], name="exp"), helper.make_node("Softmax", ["t"], ["s"], name="soft")]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in (("x", ["N", 20]), ("y", ["K"]), ("s", ["N", 24]))]
    onnx.save(helper.make_model(helper.make_graph(nodes, "mixed", values[:1], values[1:], [weights]),
                                opset_imports=[helper.make_opsetid("", 17)]), path)


def test_kernels_without_a_gpu_form_run_on_the_cpu_between_the_others(optc, emulated_driver, tmp_path):
    path = tmp_path / "mixed.onnx"
    save_mixed(path)
    done = subprocess.run([optc, path, "-o", tmp_path / "bundle", "--target=cpu,sm_80"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 kernel on the CPU (where)" in done.stderr
    gpu = json.loads((tmp_path / "bundle/manifest.json").read_text())["gpu"]
    placed = {k["name"]: k for k in gpu["kernels"]}
    assert placed["where"]["placement"] == "cpu" and "nonzero" in placed["where"]["reason"]
    assert {k["placement"] for k in gpu["kernels"]} == {"cpu", "gpu"} and gpu["segments"] == 2
    assert all(k["form"] for k in gpu["kernels"] if k["placement"] == "gpu")
    page = (tmp_path / "bundle/report.html").read_text()
    assert "<h2>On a GPU</h2>" in page and "library function 'nonzero' has no GPU form" in page
    assert [c["to"] for c in gpu["copies"]].count("cpu") >= 3  # what NonZero reads, and both outputs
    done = subprocess.run([optc, "verify", path, "--target=cpu,sm_80", "--format=json"], capture_output=True, text=True,
                          env=environment(emulated_driver))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"]


# y = x c + b for x [N, 3] with N up to 64, b [N] and c [3], which has a default. mixed: z is y where it is positive, by NonZero, which has no
# GPU form.
@pytest.fixture(scope="module", params=["all on the GPU", "mixed"])
def contexts(request, optc, emulated_driver, tmp_path_factory):
    nodes = [helper.make_node("Mul", ["x", "c"], ["xc"]), helper.make_node("Unsqueeze", ["b", "axis"], ["column"]),
             helper.make_node("Add", ["xc", "column"], ["y"])]
    outputs = [value("y", ["N", 3])]
    if request.param == "mixed":
        nodes += [helper.make_node("Relu", ["y"], ["p"]), helper.make_node("NonZero", ["p"], ["i"]),
                  helper.make_node("Transpose", ["i"], ["it"], perm=[1, 0]), helper.make_node("GatherND", ["y", "it"], ["z"])]
        outputs.append(value("z", ["K"]))
    constants = [helper.make_tensor("c", TensorProto.FLOAT, [3], [1, 2, 3]), helper.make_tensor("axis", I64, [1], [1])]
    model = make(nodes, [value("x", ["N", 3]), value("b", ["N"]), value("c", [3])], outputs, constants)
    name = "checked" + str(len(outputs))
    module, library = build(optc, tmp_path_factory.mktemp("checked"), name, model, "--target=cpu,sm_80", "--dim", "N=1..64")
    os.environ["OPTC_LIBCUDA"] = str(emulated_driver)
    api, made = api_of(module, library), []
    for device in (1, 2):
        status, context, said = create(module, api, threads=1, device_type=device)
        assert status == OK, said
        made.append(context)
    yield module, api, made, [o.name for o in outputs]
    for context in made:
        api.context_destroy(context)
    del os.environ["OPTC_LIBCUDA"]


def test_a_context_on_a_gpu_checks_its_inputs_as_one_on_the_cpu(contexts):
    module, api, made, outputs = contexts
    tensors = [("x", [4, 3]), ("b", [4]), ("c", [3])] + [(name, None) for name in outputs]
    dims = ctypes.c_int64 * 8
    for changes, wanted in (
            ({}, OK), ({"device_type": ("x", 77)}, INVALID), ({"device_type": ("y", 77)}, INVALID), ({"type": ("x", 7)}, INVALID),
            ({"rank": ("x", 1)}, INVALID), ({"rank": ("x", 99)}, INVALID), ({"rank": ("b", -1)}, INVALID), ({"data": ("x", None)}, INVALID),
            ({"capacity_bytes": ("x", 8)}, INVALID), ({"dims": ("x", dims(-4, 3))}, INVALID), ({"dims": ("x", dims(4, 5))}, INVALID),
            ({"dims": ("x", dims(1 << 40, 3))}, INVALID), ({"dims": ("b", dims(5))}, INVALID), ({"dims": ("x", dims(65, 3))}, INVALID),
            ({"dims": ("x", dims(0, 3))}, INVALID), ({"type": ("x", 0), "data": ("x", None)}, INVALID), ({"dims": ("c", dims(1))}, INVALID),
            ({"type": ("c", 0), "data": ("c", None)}, OK), ({"capacity_bytes": ("y", 8)}, TOO_SMALL), ({"data": ("y", None)}, TOO_SMALL)):
        on_cpu, on_gpu = (attempt(module, api, context, tensors, **changes) for context in made)
        assert on_cpu[0] == wanted and on_gpu == (wanted, on_cpu[1].replace("runs on the CPU", "runs on a GPU")), (changes, on_cpu, on_gpu)
    no_inputs, no_outputs = [], []
    for context in made:
        values = (module._Value * 3)(), (module._Value * 2)()
        no_inputs.append((api.run(context, None, values[1]), api.last_error(context)))
        no_outputs.append((api.run(context, values[0], None), api.last_error(context)))
    assert no_inputs[0] == no_inputs[1] and no_outputs[0] == no_outputs[1] and no_inputs[0][0] == no_outputs[0][0] == INVALID


def test_an_input_with_a_default_may_be_left_out_on_a_gpu(contexts):
    module, api, made, outputs = contexts
    x, b, c = (np.random.default_rng(5).standard_normal(shape, dtype=np.float32) for shape in ((5, 3), (5,), (3,)))
    for given in ([x, b, c], [x, b], [x[:2], b[:2], 2 * c], [x[:2], b[:2]]):
        want = given[0] * (given[2] if len(given) == 3 else np.float32([1, 2, 3])) + given[1][:, None]
        results, keep = (module._Value * 2)(), []
        values = (module._Value * 3)()
        for slot, array, info in zip(values, given, [api.input_info(i).contents for i in range(3)]):
            module._give(slot, array, 0, info, keep)
        for context in made:
            memory = np.full((2, 64), np.nan, np.float32)
            for slot, row in zip(results, memory):
                slot.tensor.data, slot.tensor.capacity_bytes = row.ctypes.data, row.nbytes
            assert api.run(context, values, results) == OK, api.last_error(context)
            np.testing.assert_allclose(memory[0, :want.size], want.ravel(), rtol=1e-6, atol=1e-6)
            assert len(outputs) == 1 or results[1].tensor.dims[0] == (want > 0).sum()


def test_run_async_takes_tensors_on_the_card_alone(contexts):
    module, api, made, outputs = contexts
    x, c = np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([1, 2, 3])
    values, results, memory, keep = (module._Value * 3)(), (module._Value * 2)(), np.zeros((2, 64), np.float32), []
    for slot, array, info in zip(values, (x, x[0, :2].copy()), [api.input_info(i).contents for i in range(2)]):
        module._give(slot, array, 0, info, keep)
    for slot, row in zip(results, memory):
        slot.tensor.data, slot.tensor.capacity_bytes = row.ctypes.data, row.nbytes
    wanted = INVALID if len(outputs) == 1 else 6  # OPTC_DEVICE: the host takes part
    assert api.run_async(made[1], values, results, None) == wanted and api.last_error(made[1])
    for slot in [*values[:2], *results]:  # the emulated card's memory is the host's
        slot.tensor.device_type = 2
    assert api.run_async(made[1], values, results, None) == (OK if len(outputs) == 1 else 6)
    if len(outputs) == 1:
        np.testing.assert_allclose(memory[0, :6], (x * c + x[0, :2, None]).ravel())


def test_a_model_without_gpu_kernels_runs_on_the_cpu_where_a_gpu_is_asked_for(optc, emulated_driver, tmp_path):
    """The bundle has no GPU half then, and says so when a caller insists on a GPU."""
    node = helper.make_node("NonZero", ["x"], ["y"])
    model = make([node], [value("x", [2, 3])], [value("y", [2, "K"], I64)])
    module, library = build(optc, tmp_path, "host_only", model, "--target=cpu,sm_80")
    status, _, said = create(module, api_of(module, library), device_type=2)
    assert status == 6 and "no code for CUDA devices" in said
    settings = {**environment(emulated_driver), "OPTC_CACHE": str(tmp_path / "cache")}
    for verb in (["verify"], ["run", "--outputs", tmp_path / "out"], ["bench", "--duration", "0.1"]):
        done = subprocess.run([optc, *verb, tmp_path / "host_only.onnx", "--target=cpu,sm_80"], capture_output=True, text=True, env=settings)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mixed", [False, True], ids=["all on the GPU", "mixed"])
def test_an_index_outside_its_dimension_is_said_as_on_the_cpu(mixed, optc, emulated_driver, tmp_path, monkeypatch):
    """y = x[i] + 1; mixed: z is what is positive of it, by NonZero, which has no GPU form."""
    nodes = [helper.make_node("Gather", ["x", "i"], ["g"], name="pick"), helper.make_node("Add", ["g", "one"], ["y"], name="add")]
    outputs = [value("y", ["N", 3])]
    if mixed:
        nodes += [helper.make_node("NonZero", ["y"], ["n"]), helper.make_node("Transpose", ["n"], ["nt"], perm=[1, 0]),
                  helper.make_node("GatherND", ["y", "nt"], ["z"])]
        outputs.append(value("z", ["K"]))
    graph = make(nodes, [value("x", [5, 3]), value("i", ["N"], I64)], outputs, [helper.make_tensor("one", TensorProto.FLOAT, [1], [1])])
    monkeypatch.setenv("OPTC_LIBCUDA", str(emulated_driver))
    module, library = build(optc, tmp_path, "picked" + str(len(outputs)), graph, "--target=cpu,sm_80")
    api, said = api_of(module, library), []
    x, y = np.arange(15, dtype=np.float32), [np.zeros(64, np.float32) for _ in outputs]
    for device in (1, 2):
        status, context, why = create(module, api, threads=1, device_type=device)
        assert status == OK, why
        for indices, wanted in (([4, -5], OK), ([0, 5], FAULT), ([2, 1], OK), ([-6, 1], FAULT), ([3, 3], OK)):
            i = np.array(indices, np.int64)
            values = (module._Value * 2)(), (module._Value * len(y))()
            for slot, array, dims in zip([*values[0], *values[1]], [x, i, *y], [[5, 3], [2]] + [[]] * len(y)):
                slot.tensor.data, slot.tensor.capacity_bytes = array.ctypes.data, array.nbytes
                slot.tensor.type, slot.tensor.rank = (I64 if array is i else TensorProto.FLOAT), len(dims)
                slot.tensor.dims[:len(dims)] = dims
            assert api.run(context, *values) == wanted, (device, indices)
            if wanted == OK:
                np.testing.assert_array_equal(y[0][:6].reshape(2, 3), x.reshape(5, 3)[i] + 1)
            else:
                said.append(api.last_error(context).decode())
        api.context_destroy(context)
    assert len(set(said)) == 1 and said[0].endswith("an index is outside its dimension"), said


def test_a_condition_on_sizes_is_said_as_on_the_cpu(optc, emulated_driver, tmp_path, monkeypatch):
    """y[i, j] = x[i, k[i, j]]: with more rows of k than of x it would read behind x, which no kernel sees."""
    node = helper.make_node("GatherElements", ["x", "k"], ["y"], name="pick", axis=1)
    graph = make([node], [value("x", ["N", 3]), value("k", ["P", "Q"], I64)], [value("y", ["P", "Q"])])
    monkeypatch.setenv("OPTC_LIBCUDA", str(emulated_driver))
    module, library = build(optc, tmp_path, "rows", graph, "--target=cpu,sm_80")
    api, said = api_of(module, library), []
    x, y = np.arange(12, dtype=np.float32), np.zeros(64, np.float32)
    for device in (1, 2):
        status, context, why = create(module, api, threads=1, device_type=device)
        assert status == OK, why
        for rows, wanted in ((2, OK), (4, FAULT), (3, OK)):
            k = np.array([[2, 0], [1, 1], [0, 0], [2, 2]], np.int64)[:rows].copy()
            values = (module._Value * 2)(), (module._Value * 1)()
            for slot, array, dims in zip([*values[0], *values[1]], [x, k, y], [[3, 3], [rows, 2], []]):
                slot.tensor.data, slot.tensor.capacity_bytes = array.ctypes.data, array.nbytes
                slot.tensor.type, slot.tensor.rank = (I64 if array is k else TensorProto.FLOAT), len(dims)
                slot.tensor.dims[:len(dims)] = dims
            assert api.run(context, *values) == wanted, (device, rows)
            if wanted == OK:
                np.testing.assert_array_equal(y[:2 * rows].reshape(rows, 2), np.take_along_axis(x[:9].reshape(3, 3)[:rows], k, 1))
            else:
                said.append(api.last_error(context).decode())
        api.context_destroy(context)
    assert len(set(said)) == 1 and "node 'pick' (GatherElements #0): 4 does not match 3" in said[0], said
