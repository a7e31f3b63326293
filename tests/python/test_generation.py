"""Text generation whose decoder is a graph of the node (com.microsoft's GreedySearch and BeamSearch): small random decoders, beside ONNX Runtime."""

import os
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

PAD = 0  # a token that no decoder here asks for
SEED = int(os.environ.get("OPTC_SEED", "11"))
ORDER = {"GreedySearch": ["input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask"],
         "BeamSearch": ["input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty", "repetition_penalty", "vocab_mask",
                        "prefix_vocab_mask", "attention_mask"]}
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]


def decoder(seed, vocab, layers=1, heads=2, size=3, contrib=False, scale=1.0, name="decoder"):
    """A transformer, and what it looks words up in, which is a constant of the graph around it."""
    rng = np.random.default_rng(seed)
    width = heads * size
    nodes, constants = [], []
    count = iter(range(10_000))

    def constant(value):
        key = f"{name}_c{next(count)}"
        constants.append(numpy_helper.from_array(np.asarray(value), key))
        return key

    def op(kind, inputs, outputs=1, domain="", **attributes):
        names = [f"{name}_{kind}{next(count)}" for _ in range(outputs)]
        nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def random(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    def ints(*values):
        return constant(np.asarray(values, np.int64))

    x = op("Add", [op("Gather", ["words", "input_ids"]), op("Gather", [constant(random(64, width)), "position_ids"])])
    for layer in range(layers):
        weights, bias, past = constant(random(width, 3 * width)), constant(random(3 * width)), f"past_{layer}"
        normal = op("LayerNormalization", [x, constant(np.ones(width, np.float32))])
        if contrib:
            y, present = op("Attention", [normal, weights, bias, "attention_mask", past], 2, "com.microsoft", num_heads=heads, unidirectional=1)
        else:
            packed = op("Reshape", [op("Add", [op("MatMul", [normal, weights]), bias]), ints(0, 0, 3, heads, size)])
            query, fresh = op("Split", [op("Transpose", [packed], perm=[2, 0, 3, 1, 4]), ints(1, 2)], 2, axis=0)
            present = op("Concat", [past, fresh], axis=3)
            key, value = (op("Squeeze", [k, ints(0)]) for k in op("Split", [present, ints(1, 1)], 2, axis=0))
            scores = op("MatMul", [op("Squeeze", [query, ints(0)]), op("Transpose", [key], perm=[0, 1, 3, 2])])
            scores = op("Mul", [scores, constant(np.float32(size**-0.5))])
            length = lambda v, axis: op("Gather", [op("Shape", [v]), constant(np.int64(axis))])  # noqa: E731
            before, total, zero, one = length(past, 3), length(present, 3), constant(np.int64(0)), constant(np.int64(1))
            rows, columns = op("Unsqueeze", [op("Range", [before, total, one]), ints(1)]), op("Range", [zero, total, one])
            hidden = op("Equal", [op("Unsqueeze", ["attention_mask", ints(1, 2)]), constant(np.int32(0))])
            scores = op("Where", [op("Or", [op("Less", [rows, columns]), hidden]), constant(np.float32(-1e4)), scores])
            y = op("Transpose", [op("MatMul", [op("Softmax", [scores], axis=-1), value])], perm=[0, 2, 1, 3])
            y = op("Reshape", [y, ints(0, 0, width)])
        x = op("Add", [x, op("MatMul", [y, constant(random(width, width))])])
        nodes.append(helper.make_node("Identity", [present], [f"present_{layer}"]))
    logits = op("MatMul", [x, constant(random(width, vocab) * np.float32(scale))])
    nodes.append(helper.make_node("Add", [logits, constant(np.where(np.arange(vocab) == PAD, -1e4, 0).astype(np.float32))], ["logits"]))
    info = helper.make_tensor_value_info
    inputs = [info(k, TensorProto.INT32, ["batch", n]) for k, n in (("input_ids", "length"), ("position_ids", "length"), ("attention_mask", "total"))]
    inputs += [info(f"past_{k}", TensorProto.FLOAT, [2, "batch", heads, "past", size]) for k in range(layers)]
    outputs = [info("logits", TensorProto.FLOAT, ["batch", "length", vocab])]
    outputs += [info(f"present_{k}", TensorProto.FLOAT, [2, "batch", heads, "total", size]) for k in range(layers)]
    return helper.make_graph(nodes, name, inputs, outputs, constants), numpy_helper.from_array(random(vocab, width), "words")


def generator(op, graphs, feeds, outputs, constant=(), dynamic=False, **attributes):
    """A model of one node; graphs: attribute -> what `decoder` gives."""
    names = [k if k in feeds else "" for k in ORDER[op]]
    while not names[-1]:
        names.pop()
    node = helper.make_node(op, names, outputs, name="search", domain="com.microsoft", model_type=0, **{k: g for k, (g, _) in graphs.items()}, **attributes)
    inputs = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), [f"{k}_{i}" for i in range(v.ndim)] if dynamic else v.shape)
              for k, v in feeds.items() if k not in constant]
    given = [numpy_helper.from_array(feeds[k], k) for k in constant if k in feeds]
    results = [helper.make_tensor_value_info(k, TensorProto.INT32 if k == "sequences" else TensorProto.FLOAT, None) for k in outputs if k]
    graph = helper.make_graph([node], "generation", inputs, results, [graphs["decoder"][1], *given])
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=9), {k: v for k, v in feeds.items() if k not in constant}


def session(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def written_part(sequences, attributes, length):
    """Behind the token that finishes the last sequence ONNX Runtime leaves what lay in memory."""
    made, pad = sequences[:, length:], attributes["pad_token_id"]
    ended = np.flatnonzero((made == pad).all(axis=0))
    return sequences if not len(ended) else np.concatenate([sequences[:, : length + ended[0]], np.full_like(made[:, ended[0] :], pad)], axis=1)


def run(optc, tmp_path, model, feeds, engine):
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    arguments = []
    for k, v in feeds.items():
        np.save(tmp_path / f"{k}.npy", v)
        arguments += ["--input", f"{k}=@{tmp_path}/{k}.npy"]
    if engine == "opt":
        done = subprocess.run([optc, "opt", path, "-o", tmp_path / "written.onnx", "-q"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return session(str(tmp_path / "written.onnx")).run(None, feeds)
    done = subprocess.run([optc, "run", path, f"--engine={engine}", *arguments, "--outputs", tmp_path / "out", "-q"], capture_output=True, text=True,
                          env={**os.environ, "OPTC_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 0, done.stderr
    return [numpy_helper.to_array(onnx.load_tensor(str(tmp_path / f"out/output_{k}.pb"))) for k in range(len(model.graph.output))]


def options(rng, vocab, batch, length, which):
    """Inputs and attributes of a search; which: of its options, all of them by chance when it is empty."""
    pad, eos = PAD, int(rng.integers(1, 4))
    ids = rng.integers(4, vocab, (batch, length)).astype(np.int32)
    asked = lambda name: name == which or (which == "any" and rng.random() < 0.4)  # noqa: E731
    feeds, attributes = {"max_length": np.asarray([length + int(rng.integers(6, 12))], np.int32)}, {"eos_token_id": eos, "pad_token_id": pad}
    if asked("padding"):
        for row in range(1, batch):
            ids[row, : int(rng.integers(0, length))] = pad
    feeds["input_ids"] = ids
    if asked("min_length"):
        feeds["min_length"] = np.asarray([length + int(rng.integers(1, 6))], np.int32)
    if asked("repetition_penalty"):
        feeds["repetition_penalty"] = np.asarray([rng.uniform(0.7, 2)], np.float32)
    if asked("vocab_mask"):
        feeds["vocab_mask"] = (rng.random(vocab) < 0.6).astype(np.int32)
    if asked("prefix_vocab_mask"):
        feeds["prefix_vocab_mask"] = (rng.random((batch, vocab)) < 0.5).astype(np.int32)
    if asked("attention_mask"):
        feeds["attention_mask"] = (np.arange(length) >= rng.integers(0, length, (batch, 1))).astype(np.int32)
    if asked("no_repeat_ngram_size"):
        attributes["no_repeat_ngram_size"] = int(rng.integers(1, 4))
    if which == "vocab_size":
        attributes["vocab_size"] = vocab
        vocab += 3
    return feeds, attributes, vocab


NAMES = ["none", "padding", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask", "no_repeat_ngram_size", "vocab_size", "any"]
CASES = [(n, k, "evaluate") for n in NAMES for k in range(2)] + [("any", k, "opt") for k in range(3)] + [("any", 0, "bundle")]
LONG = [pytest.param("any", k, e, marks=pytest.mark.tier2) for e in ("evaluate", "opt", "bundle") for k in range(1, 9)]


def case(op, which, number):
    """A model, its feeds, and the numbers of a search."""
    rng = np.random.default_rng([SEED, len(op), NAMES.index(which), number])
    vocab, batch, length = int(rng.integers(20, 60)), int(rng.integers(1, 4)), int(rng.integers(1, 6))
    if which == "vocab_size":
        batch = length = 1  # ONNX Runtime takes others' logits where there are more than vocab_size
    feeds, attributes, logits = options(rng, vocab, batch, length, which)
    outputs = ["sequences"]
    if op == "BeamSearch":
        beams = int(rng.integers(1, 5)) if which != "vocab_size" else 1
        feeds.setdefault("min_length", np.asarray([0], np.int32))  # which ONNX Runtime wants, as it does length_penalty
        feeds |= {"num_beams": np.asarray([beams], np.int32), "num_return_sequences": np.asarray([rng.integers(1, beams + 1)], np.int32)}
        feeds["length_penalty"] = np.asarray([rng.choice([-1, 0, 0.5, 1, 2])], np.float32)
        attributes["early_stopping"] = int(rng.integers(2))
        outputs += [["sequences_scores"], ["sequences_scores", "scores"], ["", "scores"], []][rng.integers(4)]
    if "scores" in outputs and batch > 1:
        attributes["eos_token_id"] = -1  # ONNX Runtime has scores of entries that are done, of beams that go on with padding
    form = dict(layers=int(rng.integers(1, 3)), heads=int(rng.integers(1, 3)), size=int(rng.integers(1, 5)), contrib=bool(rng.random() < 0.4))
    graphs = {"decoder": decoder([SEED, number, 1], logits, **form)}
    if rng.random() < 0.4:
        graphs["init_decoder"] = decoder([SEED, number, 2], logits, **form, name="first")
    constant = [k for k in feeds if k != "input_ids" and rng.random() < 0.5]
    model, given = generator(op, graphs, feeds, outputs, constant, dynamic=rng.random() < 0.5, **attributes)
    return model, given, attributes, length


@pytest.mark.parametrize("which,number,engine", CASES + LONG)
def test_greedy_search(optc, tmp_path, which, number, engine):
    model, feeds, attributes, length = case("GreedySearch", which, number)
    want = written_part(session(model.SerializeToString()).run(None, feeds)[0], attributes, length)
    got = run(optc, tmp_path, model, feeds, engine)[0]
    assert got.dtype == want.dtype and np.array_equal(want, got), f"{want.tolist()} wanted, {got.tolist()} given"


@pytest.mark.parametrize("which,number,engine", CASES + LONG)
def test_beam_search(optc, tmp_path, which, number, engine):
    model, feeds, _, _ = case("BeamSearch", which, number)
    want = session(model.SerializeToString()).run(None, feeds)
    got = run(optc, tmp_path, model, feeds, engine)
    assert got[0].dtype == want[0].dtype and np.array_equal(want[0], got[0]), f"{want} wanted, {got} given"
    names = [o.name for o in model.graph.output]
    for name, a, b in list(zip(names, want, got))[1:]:
        assert a.shape == b.shape and a.dtype == b.dtype
        # Of iterations that were not needed ONNX Runtime gives what lay in memory.
        ran = [k for k in range(len(b)) if name != "scores" or b[k].any()]
        np.testing.assert_allclose(b[ran], a[ran], rtol=1e-4, atol=1e-4)


def refused(optc, tmp_path, change, code, *words):
    rng = np.random.default_rng(SEED)
    feeds, attributes, vocab = options(rng, 20, 2, 3, "none")
    model, _ = generator("GreedySearch", {"decoder": decoder([SEED], vocab)}, feeds, ["sequences"], ["max_length"], **attributes)
    change(model.graph.node[0], model.graph)
    onnx.save(model, tmp_path / "model.onnx")
    done = subprocess.run([optc, "opt", tmp_path / "model.onnx", "-o", tmp_path / "written.onnx"], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    for word in ("search", *words):
        assert word in done.stderr, done.stderr


def attribute(node, name):
    return next(a for a in node.attribute if a.name == name)


def searched(node, *more):
    node.op_type = "BeamSearch"
    node.input.extend(["", "max_length", "max_length", *[""] * 5, *["max_length"] * len(more)])


def test_what_is_not_covered_is_said(optc, tmp_path):
    refused(optc, tmp_path, lambda n, g: setattr(attribute(n, "model_type"), "i", 1), 4, "model_type", "is 1")
    refused(optc, tmp_path, lambda n, g: n.attribute.append(helper.make_attribute("encoder", decoder([SEED], 20, name="e")[0])), 4, "'encoder'")
    refused(optc, tmp_path, lambda n, g: n.attribute.append(helper.make_attribute("temperature", 0.5)), 4, "'temperature'")
    refused(optc, tmp_path, lambda n, g: attribute(n, "decoder").g.input.append(helper.make_tensor_value_info("past_sequence_length", TensorProto.INT32, [1])), 4,
            "past_sequence_length", "past_present_share_buffer")
    refused(optc, tmp_path, lambda n, g: searched(n, "decoder_input_ids"), 4, "decoder_input_ids")


def test_what_is_wrong_is_said(optc, tmp_path):
    refused(optc, tmp_path, lambda n, g: n.attribute.remove(attribute(n, "decoder")), 3, "'decoder'", "required")
    refused(optc, tmp_path, lambda n, g: g.initializer[1].CopyFrom(numpy_helper.from_array(np.asarray([3], np.int32), "max_length")), 3, "max_length", "3 tokens")
    refused(optc, tmp_path, lambda n, g: n.attribute.append(helper.make_attribute("vocab_size", 21)), 3, "vocab_size")
    refused(optc, tmp_path, lambda n, g: attribute(n, "decoder").g.output.pop(), 3, "outputs")
    refused(optc, tmp_path, lambda n, g: attribute(n, "decoder").g.input[3].type.tensor_type.shape.dim[2].Clear(), 3, "heads")
