"""Writes the pipelines of this folder: NAME.onnx, and NAME.json with inputs and what scikit-learn, LightGBM or XGBoost predict for them.

    python3 -m venv venv && venv/bin/pip install scikit-learn==1.9.1 skl2onnx==1.20.0 onnxmltools==1.16.0 lightgbm==4.7.0 \\
        xgboost==3.2.0 onnx==1.23.2
    venv/bin/python make.py
"""

import json
import pathlib
import warnings

import lightgbm
import numpy as np
import sklearn.calibration
import sklearn.cluster
import sklearn.compose
import sklearn.datasets
import sklearn.ensemble
import sklearn.feature_extraction
import sklearn.feature_extraction.text
import sklearn.impute
import sklearn.linear_model
import sklearn.naive_bayes
import sklearn.neighbors
import sklearn.neural_network
import sklearn.pipeline
import sklearn.preprocessing
import sklearn.svm
import sklearn.tree
import xgboost
from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
from skl2onnx import convert_sklearn, update_registered_converter
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes, calculate_linear_regressor_output_shapes

warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).resolve().parent
OPSETS = {"": 18, "ai.onnx.ml": 3}
CLASSES = {"nocl": [True, False], "zipmap": [True, False, "columns"]}
update_registered_converter(lightgbm.LGBMClassifier, "LightGbmLGBMClassifier", calculate_linear_classifier_output_shapes, convert_lightgbm,
                            options=CLASSES)
update_registered_converter(lightgbm.LGBMRegressor, "LightGbmLGBMRegressor", calculate_linear_regressor_output_shapes, convert_lightgbm,
                            options={"split": None})
update_registered_converter(xgboost.XGBClassifier, "XGBoostXGBClassifier", calculate_linear_classifier_output_shapes, convert_xgboost,
                            options=CLASSES)
update_registered_converter(xgboost.XGBRegressor, "XGBoostXGBRegressor", calculate_linear_regressor_output_shapes, convert_xgboost)

iris = sklearn.datasets.load_iris()
NAMES = iris.target_names[iris.target]
diabetes = sklearn.datasets.load_diabetes()
cancer = sklearn.datasets.load_breast_cancer()
TEXTS = ["the cat sat on the mat", "a dog chased the cat", "stocks fell as rates rose", "the bank raised its rates",
         "my dog and my cat sleep", "markets rally on bank news", "cats and dogs play", "shares of the bank fell"]
TOPICS = ["pets", "pets", "money", "money", "pets", "money", "pets", "money"]
UNSEEN = ["the dog sat", "rates and shares rose", "Bank news: markets fell!", "cats, cats, cats"]


def people(count, seed):
    """Columns of numbers with holes and of words, and a label that depends on both."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(count, 3)).astype(np.float32)
    cities = rng.choice(["Oslo", "Lima", "Kyiv"], size=(count, 1)).astype(object)
    label = np.where(numbers[:, 0] + (cities[:, 0] == "Lima") > 0.3, "yes", "no")
    numbers[rng.random(numbers.shape) < 0.15] = np.nan
    return numbers, cities, label


def columns_pipeline(model):
    numbers, words = sklearn.pipeline.make_pipeline(sklearn.impute.SimpleImputer(), sklearn.preprocessing.StandardScaler()), \
        sklearn.preprocessing.OneHotEncoder(handle_unknown="ignore")
    return sklearn.pipeline.make_pipeline(sklearn.compose.ColumnTransformer([("numbers", numbers, [0, 1, 2]), ("words", words, [3])]), model)


def on_table(data, target, rows=12, holes=False):
    x = data.astype(np.float32)
    if holes:
        x = x.copy()
        x[np.random.default_rng(1).random(x.shape) < 0.1] = np.nan
    step = max(1, len(x) // rows)
    return x, target, {"x": x[::step][:rows]}


def write(name, model, x, y, inputs, zipmap=True, classifier=True, options=None):
    model.fit(x, y)
    first = inputs[next(iter(inputs))]
    whole = first if len(inputs) == 1 else np.concatenate([v.astype(object) for v in inputs.values()], axis=1)
    if isinstance(whole[0], str):
        types = [("x", StringTensorType([None, 1]))]
        inputs = {"x": np.array(whole, object).reshape(-1, 1)}
    else:
        types = [(k, (StringTensorType if v.dtype == object else FloatTensorType)([None, v.shape[1]])) for k, v in inputs.items()]
    last = model.steps[-1][1] if isinstance(model, sklearn.pipeline.Pipeline) else model
    settings = {id(last): {"zipmap": zipmap}} if classifier else {}
    for key, value in (options or {}).items():
        settings.setdefault(id(last), {})[key] = value
    onnx_model = convert_sklearn(model, name, types, options=settings or None, target_opset=OPSETS)
    (HERE / f"{name}.onnx").write_bytes(onnx_model.SerializeToString())
    expected = {"label": model.predict(whole).tolist()}
    if classifier and hasattr(last, "predict_proba"):
        expected["probabilities"] = model.predict_proba(whole).tolist()
        expected["classes"] = list(map(lambda c: c.item() if hasattr(c, "item") else c, last.classes_))
    record = {"inputs": {k: {"strings": v.dtype == object, "values": [[None if isinstance(e, float) and np.isnan(e) else e for e in row]
                                                                       for row in v.tolist()]} for k, v in inputs.items()},
              "expected": expected}
    (HERE / f"{name}.json").write_text(json.dumps(record) + "\n")


def main():
    pipeline = sklearn.pipeline.make_pipeline
    scale = sklearn.preprocessing.StandardScaler
    write("logistic_regression", pipeline(scale(), sklearn.linear_model.LogisticRegression()), *on_table(iris.data, NAMES))
    write("logistic_regression_binary", pipeline(sklearn.preprocessing.MinMaxScaler(), sklearn.linear_model.LogisticRegression()),
          *on_table(cancer.data[:, :8], cancer.target))
    tfidf = sklearn.feature_extraction.text.TfidfVectorizer
    write("text_tfidf", pipeline(tfidf(token_pattern="[a-zA-Z]+"), sklearn.linear_model.LogisticRegression()), TEXTS, TOPICS, {"x": UNSEEN})
    count = sklearn.feature_extraction.text.CountVectorizer
    write("text_naive_bayes", pipeline(count(ngram_range=(1, 2), token_pattern="[a-zA-Z]+"), sklearn.naive_bayes.MultinomialNB()), TEXTS, TOPICS,
          {"x": UNSEEN})
    words = np.array([text.split()[:4] for text in TEXTS], object)
    hasher = sklearn.feature_extraction.FeatureHasher
    write("hashed_words", pipeline(hasher(64, input_type="string", dtype=np.float32), sklearn.linear_model.LogisticRegression()), words, TOPICS,
          {"x": np.array([["a", "dog", "sat", ""], ["rates", "and", "Zürich", "rose"], ["cats", "cats", "日本", "cats"]], object)})
    numbers, cities, label = people(120, 1)
    table = np.concatenate([numbers.astype(object), cities], axis=1)
    few_numbers, few_cities, _ = people(12, 2)
    few_cities[3] = "Rome"  # a word that was not there in training
    write("columns_forest", columns_pipeline(sklearn.ensemble.RandomForestClassifier(8, max_depth=5, random_state=0)), table, label,
          {"numbers": few_numbers, "words": few_cities})
    write("columns_gradient_boosting", columns_pipeline(sklearn.ensemble.GradientBoostingClassifier(n_estimators=10, random_state=0)), table,
          label, {"numbers": few_numbers, "words": few_cities}, zipmap=False)
    write("svc_rbf_probability", pipeline(scale(), sklearn.calibration.CalibratedClassifierCV(sklearn.svm.SVC(), ensemble=False, cv=3)),
          *on_table(iris.data, iris.target))
    write("svc_poly", pipeline(scale(), sklearn.svm.SVC(kernel="poly", degree=3, decision_function_shape="ovo")), *on_table(iris.data, NAMES),
          zipmap=False)
    write("svr_rbf", pipeline(scale(), sklearn.svm.SVR(C=50)), *on_table(diabetes.data[:80], diabetes.target[:80]), classifier=False)
    write("one_class_svm", sklearn.svm.OneClassSVM(), *on_table(iris.data, iris.target), classifier=False)
    write("nearest_neighbours", pipeline(scale(), sklearn.neighbors.KNeighborsClassifier(5)), *on_table(iris.data[::2], NAMES[::2]))
    write("knn_imputer", pipeline(sklearn.impute.KNNImputer(n_neighbors=3), scale(), sklearn.linear_model.LogisticRegression()),
          *on_table(iris.data[::3], NAMES[::3], holes=True))
    write("mlp", pipeline(scale(), sklearn.neural_network.MLPClassifier((8,), max_iter=300, random_state=0)), *on_table(iris.data, iris.target))
    write("adaboost", sklearn.ensemble.AdaBoostClassifier(n_estimators=5, random_state=0), *on_table(iris.data, iris.target))
    write("isolation_forest", sklearn.ensemble.IsolationForest(n_estimators=5, max_samples=32, random_state=0), *on_table(iris.data, iris.target),
          classifier=False)
    write("lightgbm_binary", lightgbm.LGBMClassifier(n_estimators=8, num_leaves=6, verbose=-1), *on_table(cancer.data[:, :6], cancer.target))
    write("lightgbm_classes", pipeline(scale(), lightgbm.LGBMClassifier(n_estimators=4, num_leaves=5, verbose=-1)), *on_table(iris.data, NAMES))
    write("lightgbm_regressor", lightgbm.LGBMRegressor(n_estimators=8, num_leaves=6, verbose=-1),
          *on_table(diabetes.data, diabetes.target, holes=True), classifier=False)
    write("xgboost_binary", xgboost.XGBClassifier(n_estimators=5, max_depth=3), *on_table(cancer.data[:, :6], cancer.target), zipmap=False)
    write("xgboost_classes", xgboost.XGBClassifier(n_estimators=4, max_depth=3), *on_table(iris.data, iris.target, holes=True))
    write("xgboost_regressor", xgboost.XGBRegressor(n_estimators=8, max_depth=3), *on_table(diabetes.data, diabetes.target), classifier=False)


if __name__ == "__main__":
    main()
