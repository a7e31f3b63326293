"""Import, rewrite and export against ONNX's checker and ONNX Runtime: a model that is read and written back computes the same."""

import os
import pathlib
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest

onnxruntime.set_default_logger_severity(4)


@pytest.fixture(scope="session")
def tool(root):
    path = pathlib.Path(os.environ.get("OPTC", root / "build/bin/optc")).parent.parent / "tests/import_export"
    if not path.exists():
        pytest.fail(f"{path} is not there: run ./dev build")
    return path


def convert(tool, pairs, *options):
    """[(exit code, what was said)] for pairs of (model, output)."""
    lines = "".join(f"{a}\t{b}\n" for a, b in pairs)
    result = subprocess.run([tool, *options, "-"], input=lines, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr[-2000:]
    answers = [line.partition(" ") for line in result.stdout.splitlines()]
    assert len(answers) == len(pairs), "the tool stopped before the end"
    return [(int(code), said) for code, _, said in answers]


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def same(want, got, rtol=1e-5):
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(same(a, b, rtol) for a, b in zip(want, got))
    want, got = np.asarray(want), np.asarray(got)
    if want.dtype != got.dtype or want.shape != got.shape:
        return False
    if want.dtype == np.float16:
        rtol = max(rtol, 2e-3)
    if want.dtype.kind in "fc":
        scale = np.max(np.abs(want[np.isfinite(want)]), initial=1e-6)
        return np.allclose(want, got, rtol=rtol, atol=rtol * scale, equal_nan=True)
    return np.array_equal(want, got)


def test_invalid_models_are_refused(tool, shared):
    """Each with one error and an exit code that says whose fault it is. Faults that only the run can see are not the importer's."""
    cases = sorted(d for d in (shared / "cases/invalid").iterdir() if "run time" not in (d / "expect.txt").read_text())
    assert len(cases) > 20
    wrong = []
    for case in cases:
        result = subprocess.run([tool, case / "model.onnx"], capture_output=True, text=True, timeout=60)
        if result.returncode not in (3, 4) or not result.stderr.startswith("error["):
            wrong.append(f"{case.name}: exit {result.returncode} {result.stderr[:200]}")
    assert not wrong, "\n".join(wrong)


RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}


def draws_anew(graph):
    """Whether a node gives other values in every run: one that draws numbers and has no seed."""
    return any((n.op_type in RANDOM or (n.op_type == "Dropout" and len(n.input) > 2 and n.input[2]))
               and not any(a.name == "seed" for a in n.attribute)
               for n in graph.node)


# Node tests that do not come back equal, by the options, and why. One that works again must leave the list.
KNOWN = {
    (): {},
    ("--optimize",): {},
}


def node_tests():
    from onnx.backend.test.loader import load_model_tests

    return [t for t in load_model_tests(kind="node") if t.model is not None]


def feeds_of(test):
    """The inputs of a node test's first data set by name; None when one is not a plain tensor."""
    names = [i.name for i in test.model.graph.input]
    inputs = test.data_sets[0][0]
    if any(not isinstance(x, np.ndarray) for x in inputs):
        return None
    return dict(zip(names, inputs))


@pytest.mark.parametrize("options", [(), ("--optimize",)], ids=["as_is", "optimized"])
def test_node_tests_round_trip(tool, tmp_path, options):
    """ONNX's own node tests: import, write at the model's opset, check, run beside the original."""
    tests, pairs = [], []
    for test in node_tests():
        path = tmp_path / f"{test.name}.onnx"
        path.write_bytes(test.model.SerializeToString())
        tests.append(test)
        pairs.append((path, tmp_path / f"{test.name}.out.onnx"))
    answers = convert(tool, pairs, *options)
    wrong, unsupported, equal = [], [], 0
    for test, (source, written), (code, said) in zip(tests, pairs, answers):
        if code == 4:
            unsupported.append(test.name)
            continue
        if code != 0:
            wrong.append(f"{test.name}: exit {code} {said[:300]}")
            continue
        feeds = feeds_of(test)
        try:
            want = run(str(source), feeds) if feeds is not None else None
        except Exception:
            want = None  # ONNX Runtime does not know the original
        try:
            onnx.checker.check_model(str(written), full_check=want is None)
            if want is not None and not draws_anew(test.model.graph):
                try:
                    got = run(str(written), feeds)
                except Exception as error:  # noqa: BLE001
                    if "NOT_IMPLEMENTED" not in str(error):  # a standard operator that this runtime lacks, such as Swish
                        raise
                    continue
                if not all(same(a, b) for a, b in zip(want, got)):
                    wrong.append(f"{test.name}: other results")
                    continue
                equal += 1
        except Exception as error:  # noqa: BLE001
            wrong.append(f"{test.name}: {str(error)[:300]}")
    print(f"{len(tests)} models, {equal} equal under ONNX Runtime, {len(unsupported)} unsupported, {len(wrong)} wrong")
    new = [w for w in wrong if w.partition(":")[0] not in KNOWN[options]]
    assert not new, f"{len(new)} wrong\n" + "\n".join(new[:60])
    stale = set(KNOWN[options]) - {w.partition(":")[0] for w in wrong}
    assert not stale, f"work again: {stale}"
    assert equal >= 1400


@pytest.mark.parametrize("count", [pytest.param(2000, marks=pytest.mark.tier1), pytest.param(10000, marks=pytest.mark.tier2)])
def test_damaged_models_end_in_an_error_or_a_graph(tool, shared, count):
    """No crash, no hang, no internal error, whatever is done to a file."""
    models = sorted((shared / "cases").glob("*/model.onnx"))
    result = subprocess.run([tool.with_name("mutate_models"), str(count), "7", *models], capture_output=True, text=True, errors="replace", timeout=1200)
    assert result.returncode == 0, result.stderr[-2000:]
    print(result.stdout)


# Numbers that may be any integer: values, labels, seeds, places that end with the tensor, hints, the axis of a scale for all.
FREE_NUMBERS = {("Constant", "value_int"), ("LabelEncoder", "default_int64"), ("Dropout", "seed"), ("EyeLike", "k"), ("Shape", "start"), ("Shape", "end"),
                ("NegativeLogLikelihoodLoss", "ignore_index"), ("SoftmaxCrossEntropyLoss", "ignore_index"), ("LinearAttention", "chunk_size"),
                ("StringSplit", "maxsplit"), ("QuantizeLinear", "axis"), ("DequantizeLinear", "axis")}

# Strings that are no names of ways: any text is one.
FREE = {("LabelEncoder", "default_string"), ("LabelEncoder", "keys_as_tensor"), ("RegexFullMatch", "pattern"), ("StringSplit", "delimiter"),
        ("StringNormalizer", "locale")}


def test_names_of_ways_that_no_operator_has_are_refused(tool, tmp_path):
    """Every string attribute of every operator that ONNX's tests use, misspelled: never taken for the default."""
    tried, taken = with_attribute(tool, tmp_path, onnx.defs.OpSchema.AttrType.STRING, "misspelled", FREE)
    assert tried > 30
    assert not taken


def test_numbers_that_no_attribute_can_be_are_refused(tool, tmp_path):
    """Every number of every operator that ONNX's tests use, far from all that has a meaning: never taken for the default, for a flag's other
    value, or for the last one there is."""
    tried, taken = with_attribute(tool, tmp_path, onnx.defs.OpSchema.AttrType.INT, -123456, FREE_NUMBERS)
    assert tried > 60
    assert not taken


def test_types_that_are_none_are_refused(tool, tmp_path):
    """Numbers whose low byte is a type."""
    other = {(op, name) for op, names in attribute_names(onnx.defs.OpSchema.AttrType.INT).items() for name in names if name not in TYPE_NAMES}
    tried, taken = with_attribute(tool, tmp_path, onnx.defs.OpSchema.AttrType.INT, 256 + onnx.TensorProto.FLOAT, other)
    assert tried > 8
    assert not taken


TYPE_NAMES = ("to", "dtype", "output_datatype", "output_dtype", "stash_type", "softmax_precision", "precision")


def attribute_names(kind):
    return {s.name: [n for n, a in s.attributes.items() if a.type == kind] for s in onnx.defs.get_all_schemas_with_history()}


def with_attribute(tool, tmp_path, kind, value, free):
    """How many attributes of `kind` there are, and those where `value` is taken."""
    from onnx.backend.test.loader import load_model_tests

    tried, pairs = [], []
    for case in load_model_tests(kind="node"):
        model = case.model if case.model is not None else onnx.load(pathlib.Path(case.model_dir) / "model.onnx")
        versions = {o.domain: o.version for o in model.opset_import}
        for i, node in enumerate(model.graph.node):
            if not onnx.defs.has(node.op_type, node.domain) or node.domain not in versions:
                continue
            schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
            for name, attribute in schema.attributes.items():
                key = node.op_type, name
                if attribute.type != kind or key in tried or key in free:
                    continue
                wrong = onnx.ModelProto()
                wrong.CopyFrom(model)
                given = wrong.graph.node[i].attribute
                for k in [k for k, a in enumerate(given) if a.name == name]:
                    del given[k]
                given.append(onnx.helper.make_attribute(name, value))
                path = tmp_path / f"{len(tried)}.onnx"
                onnx.save(wrong, path)
                tried.append(key)
                pairs.append((path, tmp_path / "out.onnx"))
    return len(tried), [key for key, (code, _) in zip(tried, convert(tool, pairs)) if code not in (3, 4)]
