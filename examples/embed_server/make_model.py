"""Writes a small sentence encoder with drawn weights, and the vocabulary of its tokenizer: the shapes and the form of an exported
BERT of two layers of 128 units, some 0.8 MFLOP a token, so 20 MFLOP a text of 25 tokens.

Usage: make_model.py MODEL.onnx VOCABULARY.txt [--layers 2] [--units 128] [--heads 2] [--seed 1]

Needs numpy and onnx. The same arguments give the same bytes."""

import argparse
import string

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

POSITIONS = 512
WORDS = """the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were
all her she there would their we him been has when who will no more if out so up said what its about than into them can only other time
new some could these two may first then do any like my now over such our man me even most made after also did many off before must well
back through years much where your way down should because long each just state people those too mr how little good world make very year
still see work life against here between high being great day last own old under right water sea ship harbour lighthouse boat wind storm
rain snow sun moon star night morning evening summer winter spring river mountain forest tree flower garden house door window table chair
bread cheese milk honey apple cat dog horse bird fish red green blue white black yellow small large quick slow warm cold open close begin
end read write speak hear sing play walk run fly swim sleep dream think know find lose give take bring send buy sell build break""".split()
SUFFIXES = "s es ed ing er est ly ness ment ful less able tion ity al ic ous y en ian ward ship house man".split()


def vocabulary():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = string.ascii_lowercase + string.digits
    pieces += [*string.punctuation, *letters, *(f"##{c}" for c in letters), "é", "漢", "字"]
    pieces += [word for word in WORDS if len(word) > 1]
    pieces += [f"##{suffix}" for suffix in SUFFIXES if len(suffix) > 1]
    return list(dict.fromkeys(pieces))


class Writer:
    """Nodes as an exporter writes them."""

    def __init__(self, seed):
        self.draw, self.nodes, self.weights = np.random.default_rng(seed), [], []

    def weight(self, name, value):
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def drawn(self, name, *dims, scale=None):
        return self.weight(name, (self.draw.standard_normal(dims) * (scale or dims[0] ** -0.5)).astype(np.float32))

    def node(self, kind, *inputs, name, **attributes):
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def linear(self, x, name, inputs, outputs):
        product = self.node("MatMul", x, self.drawn(f"{name}.weight", inputs, outputs), name=f"{name}/MatMul")
        return self.node("Add", product, self.drawn(f"{name}.bias", outputs, scale=0.02), name=f"{name}/Add")

    def norm(self, x, name, units):
        scale = self.weight(f"{name}.weight", (1 + 0.1 * self.draw.standard_normal(units)).astype(np.float32))
        return self.node("LayerNormalization", x, scale, self.drawn(f"{name}.bias", units, scale=0.02), name=f"{name}/LayerNormalization", epsilon=1e-12)

    def heads(self, x, name, heads, units, perm):
        split = self.node("Reshape", x, self.weight(f"{name}.split", np.array([0, 0, heads, units // heads])), name=f"{name}/Reshape")
        return self.node("Transpose", split, name=f"{name}/Transpose", perm=perm)

    def layer(self, x, mask, name, heads, units):
        q = self.heads(self.linear(x, f"{name}.query", units, units), f"{name}.q", heads, units, [0, 2, 1, 3])
        k = self.heads(self.linear(x, f"{name}.key", units, units), f"{name}.k", heads, units, [0, 2, 3, 1])
        v = self.heads(self.linear(x, f"{name}.value", units, units), f"{name}.v", heads, units, [0, 2, 1, 3])
        scores = self.node("MatMul", q, k, name=f"{name}/scores")
        scaled = self.node("Div", scores, self.weight(f"{name}.scale", np.float32((units // heads) ** 0.5)), name=f"{name}/scaled")
        masked = self.node("Add", scaled, mask, name=f"{name}/masked")
        chances = self.node("Softmax", masked, name=f"{name}/Softmax", axis=-1)
        context = self.node("Transpose", self.node("MatMul", chances, v, name=f"{name}/context"), name=f"{name}/Transpose", perm=[0, 2, 1, 3])
        joined = self.node("Reshape", context, self.weight(f"{name}.join", np.array([0, 0, units])), name=f"{name}/join")
        x = self.norm(self.node("Add", self.linear(joined, f"{name}.output", units, units), x, name=f"{name}/residual"), f"{name}.norm", units)
        inner = self.linear(x, f"{name}.inner", units, 4 * units)
        erf = self.node("Erf", self.node("Div", inner, self.weight(f"{name}.root2", np.float32(2**0.5)), name=f"{name}/gelu.div"), name=f"{name}/gelu.erf")
        one = self.node("Add", erf, self.weight(f"{name}.one", np.float32(1)), name=f"{name}/gelu.add")
        gelu = self.node("Mul", self.node("Mul", inner, one, name=f"{name}/gelu.mul"), self.weight(f"{name}.half", np.float32(0.5)), name=f"{name}/gelu")
        return self.norm(self.node("Add", self.linear(gelu, f"{name}.outer", 4 * units, units), x, name=f"{name}/residual2"), f"{name}.norm2", units)


def model(pieces, layers, units, heads, seed):
    w = Writer(seed)
    shape = w.node("Shape", "input_ids", name="shape")
    length = w.node("Slice", shape, w.weight("one", np.array([1])), w.weight("two", np.array([2])), name="length")
    positions = w.node("Slice", w.drawn("embeddings.position", POSITIONS, units, scale=0.3), w.weight("zero", np.array([0])), length, name="positions")
    words = w.node("Gather", w.drawn("embeddings.word", pieces, units, scale=1.0), "input_ids", name="embeddings/word")
    types = w.node("Gather", w.drawn("embeddings.type", 2, units, scale=0.3), "token_type_ids", name="embeddings/type")
    x = w.node("Add", w.node("Add", words, types, name="embeddings/add"), positions, name="embeddings/sum")
    x = w.norm(x, "embeddings.norm", units)
    wide = w.node("Unsqueeze", "attention_mask", w.weight("axes", np.array([1, 2])), name="mask/Unsqueeze")
    absent = w.node("Sub", w.weight("mask.one", np.float32(1)), w.node("Cast", wide, name="mask/Cast", to=TensorProto.FLOAT), name="mask/Sub")
    mask = w.node("Mul", absent, w.weight("mask.lowest", np.float32(-3.4028235e38)), name="mask/Mul")
    for i in range(layers):
        x = w.layer(x, mask, f"layer.{i}", heads, units)
    w.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"], "last"))
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in ("input_ids", "attention_mask", "token_type_ids")]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", units])
    graph = helper.make_graph(w.nodes, "encoder", inputs, [output], w.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("vocabulary")
    for name, value in (("layers", 2), ("units", 128), ("heads", 2), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    pieces = vocabulary()
    with open(options.vocabulary, "w", encoding="utf-8") as file:
        file.writelines(piece + "\n" for piece in pieces)
    made = model(len(pieces), options.layers, options.units, options.heads, options.seed)
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, options.model)


if __name__ == "__main__":
    main()
