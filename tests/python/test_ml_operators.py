"""ai.onnx.ml at random shapes and attributes, against ONNX Runtime."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
from onnx import helper

sys.path.insert(0, str(pathlib.Path(__file__).parent / "operators"))
import cases  # noqa: E402

ML = "ai.onnx.ml"
POST = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
WORDS = ["a", "b", "ab", "", "ä", "日本", "zz", "b c", "0"]


def floats(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def labels(rng, n):
    """classlabels_* of n classes; the attribute of integers has another name in some operators."""
    if rng.integers(2):
        return {"classlabels_strings": [f"class {i}" for i in range(n)]}
    return {"classlabels_ints": [int(x) for x in rng.permutation(100)[:n] - 50]}


def features(rng, columns, kinds=(np.float32, np.float64, np.int64, np.int32)):
    kind = kinds[rng.integers(len(kinds))]
    shape = (int(rng.integers(0, 20)), columns) if rng.integers(5) else (columns,)
    return (rng.normal(size=shape) * 2).astype(kind)


def linear_classifier(rng):
    columns, classes = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    attributes = labels(rng, max(classes, 2))
    return features(rng, columns), 2, dict(coefficients=floats(rng, classes * columns).tolist(), intercepts=floats(rng, classes).tolist(),
                                           post_transform=POST[rng.integers(4)], **attributes)


def linear_regressor(rng):
    columns, targets = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    attributes = {"intercepts": floats(rng, targets).tolist()} if rng.integers(2) else {}
    x = features(rng, columns, (np.float32,))
    return x.reshape(-1, columns), 1, dict(coefficients=floats(rng, targets * columns).tolist(), targets=targets,
                                           post_transform=POST[rng.integers(3)], **attributes)


def kernel(rng, columns):
    kind = ["LINEAR", "POLY", "RBF", "SIGMOID"][rng.integers(4)]
    return dict(kernel_type=kind, kernel_params=[float(rng.uniform(0.1, 1)), float(rng.normal()), float(rng.integers(1, 4))])


def svm_regressor(rng):
    columns, vectors = int(rng.integers(1, 6)), int(rng.integers(0, 7))
    return features(rng, columns, (np.float32,)), 1, dict(
        coefficients=floats(rng, vectors or columns).tolist(), n_supports=vectors, rho=floats(rng, 1).tolist(),
        one_class=int(rng.integers(2)), **({"support_vectors": floats(rng, vectors * columns).tolist()} if vectors else {}),
        **kernel(rng, columns))


def svm_classifier(rng):
    columns, classes = int(rng.integers(1, 6)), int(rng.integers(2, 6))
    per_class = [int(v) for v in rng.integers(1, 5, size=classes)]
    vectors, pairs = sum(per_class), classes * (classes - 1) // 2
    attributes = {}
    if rng.integers(2):
        attributes = dict(prob_a=(-rng.uniform(0.5, 2, size=pairs)).tolist(), prob_b=rng.normal(size=pairs).tolist())
    return features(rng, columns), 2, dict(
        coefficients=floats(rng, (classes - 1) * vectors).tolist(), support_vectors=floats(rng, vectors * columns).tolist(),
        vectors_per_class=per_class, rho=floats(rng, pairs).tolist(), post_transform=POST[rng.integers(4)],
        **attributes, **kernel(rng, columns), **labels(rng, classes))


def strings(rng, *shape):
    return np.array([WORDS[i] for i in rng.integers(len(WORDS), size=int(np.prod(shape)))], object).reshape(shape)


def one_hot(rng):
    shape = tuple(int(d) for d in rng.integers(0, 5, size=rng.integers(1, 4)))
    n = int(rng.integers(1, 6))
    if rng.integers(2):
        return strings(rng, *shape), 1, dict(cats_strings=[WORDS[i] for i in rng.integers(len(WORDS), size=n)])
    kind = [np.int64, np.float32, np.float64][rng.integers(3)]
    return (rng.normal(size=shape) * 3).astype(kind), 1, dict(cats_int64s=[int(v) for v in rng.integers(-4, 5, size=n)])


def category_mapper(rng):
    n = int(rng.integers(1, len(WORDS)))
    attributes = dict(cats_strings=list(rng.permutation(WORDS)[:n]), cats_int64s=[int(v) for v in rng.permutation(9)[:n]])
    if rng.integers(2):
        return strings(rng, int(rng.integers(0, 9))), 1, dict(default_int64=int(rng.integers(-9, 9)), **attributes)
    return rng.integers(0, 9, size=(3, 2)), 1, dict(default_string="none of these", **attributes)


def label_encoder(rng):
    n = int(rng.integers(1, len(WORDS)))
    pools = {"strings": [str(w) for w in rng.permutation(WORDS)[:n]], "int64s": [int(v) for v in rng.permutation(9)[:n] - 4],
             "floats": [float(v) for v in rng.permutation(9)[:n] / 2]}
    key, value = list(pools)[rng.integers(3)], list(pools)[rng.integers(3)]
    x = {"strings": strings(rng, 4, 3), "int64s": rng.integers(-5, 5, size=(4, 3)), "floats": (rng.integers(9, size=12) / 2).astype(np.float32)}[key]
    values = {"strings": [f"v{i}" for i in range(n)], "int64s": list(range(n)), "floats": [i / 3 for i in range(n)]}[value]
    return x, 1, {"keys_" + key: pools[key], "values_" + value: values}


def zip_map(rng):
    n = int(rng.integers(1, 6))
    names = labels(rng, n)
    x = floats(rng, int(rng.integers(1, 6)), n) if rng.integers(4) else floats(rng, n)
    return x, 1, {k.replace("ints", "int64s"): v for k, v in names.items()}


def a_map(rng, words):
    keys = [WORDS[i] for i in rng.permutation(len(WORDS))[:4]] if words else [int(k) for k in rng.permutation(12)[:4]]
    return {k: np.float32(rng.normal() * 5) for k in keys}


def dict_vectorizer(rng):
    words = bool(rng.integers(2))
    vocabulary = {"string_vocabulary": [str(w) for w in rng.permutation(WORDS)]} if words else {"int64_vocabulary": [int(k) for k in rng.permutation(12)]}
    return a_map(rng, words), 1, vocabulary


def cast_map(rng):
    to = ["TO_FLOAT", "TO_STRING", "TO_INT64"][rng.integers(3)]
    return a_map(rng, False), 1, dict(cast_to=to, map_form=["DENSE", "SPARSE"][rng.integers(2)], max_map=int(rng.integers(1, 15)))


def trees(rng, classifier):
    """A random forest as the lists of TreeEnsembleClassifier and -Regressor. Each leaf has a weight for each target: to a target without
    one ONNX Runtime adds no base value, and does not choose it, which is not what the operators say."""
    columns, targets = int(rng.integers(1, 5)), int(rng.integers(3, 5) if classifier else rng.integers(1, 4))
    lists = {k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")}
    leaves = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    positive, repeats = rng.integers(2), int(rng.integers(1, 3))  # of an only target: the first counts
    binary = classifier and rng.integers(2)  # one score decides between two classes

    def grow(tree, depth):
        at = len(lists["treeids"]) - starts[tree]
        for k in lists:
            lists[k].append(0)
        k = len(lists["treeids"]) - 1
        lists["treeids"][k], lists["nodeids"][k] = tree, at
        if depth == 0 or rng.integers(4) == 0:
            lists["modes"][k], lists["values"][k] = "LEAF", 0.0
            for target in [0] * repeats if targets == 1 else range(1 if binary else targets):
                weight = float(rng.normal())
                for name, value in zip(leaves, (tree, at, target, abs(weight) if positive else weight)):
                    leaves[name].append(value)
            return at
        lists["modes"][k] = modes[rng.integers(len(modes))]
        lists["featureids"][k], lists["values"][k] = int(rng.integers(columns)), float(np.float32(rng.integers(-3, 4) / 2))
        lists["missing_value_tracks_true"][k] = int(rng.integers(2))
        lists["truenodeids"][k] = grow(tree, depth - 1)
        lists["falsenodeids"][k] = grow(tree, depth - 1)
        return at

    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"] if rng.integers(2) else ["BRANCH_LEQ"]
    starts = []
    for tree in range(int(rng.integers(1, 5))):
        starts.append(len(lists["treeids"]))
        grow(tree, int(rng.integers(0, 5)))
    prefix = "class_" if classifier else "target_"
    attributes = {"nodes_" + k: v for k, v in lists.items()} | {prefix + k: v for k, v in leaves.items()}
    attributes["post_transform"] = POST[rng.integers(3)]
    if rng.integers(2):
        attributes["base_values"] = floats(rng, 1 if binary else targets).tolist()
    if classifier:
        attributes |= {k.replace("ints", "int64s"): v for k, v in labels(rng, 2 if binary else targets).items()}
    else:
        attributes |= dict(n_targets=targets, aggregate_function=["SUM", "AVERAGE", "MIN", "MAX"][rng.integers(4)])
    x = (rng.integers(-4, 5, size=(int(rng.integers(1, 40)), columns)) / 2).astype(np.float32)
    if modes == ["BRANCH_LEQ"]:
        x[rng.random(x.shape) < 0.1] = np.nan
    return x, 2 if classifier else 1, attributes


def tree_classifier(rng):
    return trees(rng, True)


def tree_regressor(rng):
    return trees(rng, False)


def scaler(rng):
    columns = int(rng.integers(1, 5))
    n = [1, columns][rng.integers(2)]
    return features(rng, columns).reshape(-1, columns), 1, dict(scale=floats(rng, n).tolist(), offset=floats(rng, n).tolist())


def imputer(rng):
    columns = int(rng.integers(1, 5))
    n = [1, columns][rng.integers(2)]
    if rng.integers(2):
        return rng.integers(0, 4, size=(5, columns)), 1, dict(imputed_value_int64s=[int(v) for v in rng.integers(2**62, size=n)],
                                                             replaced_value_int64=int(rng.integers(4)))
    x = floats(rng, 5, columns)
    x[rng.random(x.shape) < 0.4] = np.nan
    return x, 1, dict(imputed_value_floats=floats(rng, n).tolist(), replaced_value_float=float("nan"))


def normalizer(rng):
    x = features(rng, int(rng.integers(1, 5)))
    x = x.reshape(-1, x.shape[-1])
    x[rng.random(len(x)) < 0.3] = 0  # rows without a norm stay
    return x, 1, {"norm": ("MAX", "L1", "L2")[rng.integers(3)]} if rng.integers(4) else {}


def binarizer(rng):
    return features(rng, 3, (np.float32,)), 1, dict(threshold=float(rng.integers(-1, 2)) / 2)


def feature_vectorizer(rng):
    rows, widths = int(rng.integers(1, 5)), [int(n) for n in rng.integers(1, 5, size=rng.integers(1, 4))]
    kind = (np.float32, np.float64, np.int64, np.int32)[rng.integers(4)]
    return tuple((rng.normal(size=(rows, n)) * 3).astype(kind) for n in widths), 1, dict(inputdimensions=widths)


def array_feature_extractor(rng):
    x = features(rng, int(rng.integers(1, 6)))
    return (x, rng.integers(x.shape[-1], size=rng.integers(1, 5))), 1, {}


FAMILIES = {
    "LinearClassifier": linear_classifier, "LinearRegressor": linear_regressor, "SVMRegressor": svm_regressor,
    "SVMClassifier": svm_classifier, "OneHotEncoder": one_hot, "CategoryMapper": category_mapper, "LabelEncoder": label_encoder,
    "ZipMap": zip_map, "DictVectorizer": dict_vectorizer, "CastMap": cast_map, "TreeEnsembleClassifier": tree_classifier,
    "TreeEnsembleRegressor": tree_regressor, "Scaler": scaler, "Imputer": imputer,
    "Normalizer": normalizer, "Binarizer": binarizer, "FeatureVectorizer": feature_vectorizer, "ArrayFeatureExtractor": array_feature_extractor,
}


def random_cases(op, count, seed):
    rng = np.random.default_rng([seed, *op.encode()])
    made = []
    for n in range(count):
        x, outputs, attributes = FAMILIES[op](rng)
        inputs = dict(zip("XVW", x if isinstance(x, tuple) else (x,)))
        node = helper.make_node(op, list(inputs), ["Y", "Z"][:outputs], domain=ML, **attributes)
        model = cases.node_model(node, inputs, {"": 17, ML: 3}, symbolic=bool(rng.integers(2)))
        feeds = {name: {k: v.item() for k, v in x.items()} if isinstance(x, dict) else x for name, x in inputs.items()}
        made.append(cases.Case(f"{op}_{n}", model, inputs, cases.ort_answers(model, feeds), rtol=1e-3, atol=2e-5))
    return made


@pytest.mark.parametrize("op", FAMILIES)
def test_operator_on_the_evaluator(evaluator, op):
    assert cases.failures(evaluator, random_cases(op, 60, 1)) == {}


def test_operators_as_bundles(optc):
    made = [case for op in FAMILIES for case in random_cases(op, 3, 2)]
    assert cases.failures(optc.parent / "optc_conformance_bundles", made) == {}


@pytest.mark.parametrize("op, attributes, columns, words", [
    ("Normalizer", dict(norm="L3"), [2], "'norm' must be MAX, L1 or L2, not 'L3'"),
    ("FeatureVectorizer", dict(inputdimensions=[1, 4]), [2, 3], "the number of columns and the entry of inputdimensions"),
    ("FeatureVectorizer", dict(inputdimensions=[2]), [2, 3], "'inputdimensions' must have an entry for each input"),
])
def test_what_says_two_things_is_refused(optc, tmp_path, op, attributes, columns, words):
    inputs = {f"X{k}": np.zeros((2, n), np.float32) for k, n in enumerate(columns)}
    model = cases.node_model(helper.make_node(op, list(inputs), ["Y"], domain=ML, **attributes), inputs, {"": 17, ML: 3})
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    done = subprocess.run([optc, "inspect", tmp_path / "model.onnx"], capture_output=True, text=True)
    assert done.returncode == 3 and words in done.stderr
