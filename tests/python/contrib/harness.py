"""Random nodes of ONNX Runtime's own operators: what optc computes beside what ONNX Runtime's CPU kernels compute, or beside numpy
where it has no kernel."""

import pathlib
import subprocess

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

onnxruntime.set_default_logger_severity(4)


class Node:
    """One node and what it is run on.

    inputs: arrays, None where absent. constant: numbers of the inputs that are initializers (the others may be, by chance).
    outputs: how many, or a list with False where an output is left out. want: the right outputs where ONNX Runtime has no kernel.
    tolerance: of the output's range; steps: of whole numbers (quantized results that are rounded elsewhere).
    """

    def __init__(self, op, inputs, outputs=1, *, domain="com.microsoft", constant=(), want=None, tolerance=1e-5, steps=0, model_opset=21, types=None, **attributes):
        self.op, self.inputs, self.domain, self.want = op, inputs, domain, want
        self.outputs = [True] * outputs if isinstance(outputs, int) else list(outputs)
        self.constant, self.tolerance, self.steps, self.opset = set(constant), tolerance, steps, model_opset
        self.types = types or {}  # of outputs that ONNX Runtime does not infer
        self.attributes = {k: v for k, v in attributes.items() if v is not None}

    def model(self, seed, dynamic):
        """The model and its feeds; the same inputs are constants for the same seed."""
        rng = np.random.default_rng(seed)
        names = ["" if a is None else f"in{k}" for k, a in enumerate(self.inputs)]
        inputs, initializers, feeds = [], [], {}
        for k, array in enumerate(self.inputs):
            if array is None:
                continue
            if k in self.constant or (k > 0 and rng.random() < 0.3):
                initializers.append(numpy_helper.from_array(array, names[k]))
                continue
            shape = [f"d{k}_{i}" for i in range(array.ndim)] if dynamic else array.shape
            inputs.append(helper.make_tensor_value_info(names[k], helper.np_dtype_to_tensor_dtype(array.dtype), shape))
            feeds[names[k]] = array
        while names and not names[-1]:
            names.pop()
        results = [f"out{k}" if there else "" for k, there in enumerate(self.outputs)]
        node = helper.make_node(self.op, names, results, name="node", domain=self.domain, **self.attributes)
        outputs = [onnx.ValueInfoProto(name=r) for r in results if r]
        for k, dtype in self.types.items():
            if results[k]:
                outputs[[o.name for o in outputs].index(results[k])].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        graph = helper.make_graph([node], "graph", inputs, outputs, initializers)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


def session(model, level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def difference(want, got, tolerance, steps):
    """Empty when equal, else what differs."""
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"{want.dtype}{list(want.shape)} wanted, {got.dtype}{list(got.shape)} given"
    if want.size == 0:
        return ""
    if want.dtype.kind in "iub":
        far = np.abs(want.astype(np.int64) - got.astype(np.int64)).max()
        return "" if far <= steps else f"{far} steps apart, {np.mean(want != got):.0%} of the elements"
    want, got = want.astype(np.float64), got.astype(np.float64)
    if not np.array_equal(np.isfinite(want), np.isfinite(got)):
        return "not finite at other places"
    scale = np.max(np.abs(want[np.isfinite(want)]), initial=1e-6)
    far = np.max(np.abs(want - got)[np.isfinite(want)], initial=0) / scale
    return "" if far <= tolerance else f"{far:.1e} of the range apart"


class Batch:
    """Nodes as models in a folder, with ONNX Runtime's answers (or the nodes' own)."""

    def __init__(self, folder, nodes, seed):
        self.folder, self.nodes = pathlib.Path(folder), nodes
        self.paths, self.feeds, self.want, self.refused = [], [], [], []
        for k, node in enumerate(nodes):
            model, feeds = node.model([seed, k], dynamic=k % 2 == 1)
            path = self.folder / f"{k}_{node.op}"
            (path / "inputs").mkdir(parents=True)
            (path / "outputs").mkdir()
            onnx.save(model, path / "model.onnx")
            for i, info in enumerate(model.graph.input):
                (path / "inputs" / f"input_{i}.pb").write_bytes(numpy_helper.from_array(feeds[info.name]).SerializeToString())
            self.paths.append(path)
            self.feeds.append(feeds)
            if node.want is not None:
                self.want.append([np.asarray(w) for w in node.want])
                continue
            try:
                fixed, _ = node.model([seed, k], dynamic=False)
                self.want.append(session(fixed.SerializeToString()).run(None, feeds))
            except Exception as error:  # noqa: BLE001
                self.want.append(None)
                self.refused.append(f"{path}: ONNX Runtime: {str(error)[:300]}")

    def compare(self, k, got):
        node, want = self.nodes[k], self.want[k]
        if len(want) != len(got):
            return f"{self.paths[k]}: {len(want)} outputs wanted, {len(got)} given"
        for i, (a, b) in enumerate(zip(want, got)):
            wrong = difference(a, b, node.tolerance, node.steps)
            if wrong:
                return f"{self.paths[k]}: output {i}: {wrong}"
        return ""

    def evaluated(self, evaluator):
        """What is wrong with what the evaluator computes."""
        jobs = "".join(f"{k}\t{p}/model.onnx\t{p}/inputs\t{p}/outputs\n" for k, p in enumerate(self.paths))
        done = subprocess.run([evaluator], input=jobs, capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stderr[-2000:]
        answers = [line.split("\t") for line in done.stdout.splitlines()]
        assert len(answers) == len(self.paths), done.stdout[-2000:]
        wrong = []
        for k, (_, word, text) in enumerate(answers):
            if self.want[k] is None:
                continue
            if word != "ok":
                wrong.append(f"{self.paths[k]}: {word} {text[:400]}")
                continue
            got = []
            for i in range(len(self.want[k])):
                tensor = onnx.TensorProto.FromString((self.paths[k] / "outputs" / f"output_{i}.pb").read_bytes())
                got.append(numpy_helper.to_array(tensor))
            wrong.append(self.compare(k, got))
        return [w for w in wrong if w]

    def written(self, tool, *options):
        """What is wrong with the models that optc writes of them: they are standard, valid, and compute the same."""
        lines = "".join(f"{p}/model.onnx\t{p}/written.onnx\n" for p in self.paths)
        done = subprocess.run([tool, *options, "-"], input=lines, capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stderr[-2000:]
        answers = [line.partition(" ") for line in done.stdout.splitlines()]
        assert len(answers) == len(self.paths), done.stdout[-2000:]
        wrong = []
        for k, (code, _, said) in enumerate(answers):
            if self.want[k] is None:
                continue
            path = self.paths[k] / "written.onnx"
            if code != "0":
                wrong.append(f"{self.paths[k]}: exit {code} {said[:400]}")
                continue
            model = onnx.load(path)
            foreign = {n.op_type for n in model.graph.node if n.domain not in ("", "ai.onnx")}
            if foreign:
                wrong.append(f"{path}: operators of other domains: {foreign}")
                continue
            try:
                onnx.checker.check_model(str(path), full_check=True)
                got = session(str(path)).run(None, self.feeds[k])
            except Exception as error:  # noqa: BLE001
                if "NOT_IMPLEMENTED" not in str(error) and "is under development" not in str(error):
                    wrong.append(f"{path}: {str(error)[:400]}")
                continue
            wrong.append(self.compare(k, got))
        return [w for w in wrong if w]
