"""Writes a small decoder with drawn weights: the layers of a Llama (RMSNorm, rotary positions, grouped heads, SwiGLU) over bytes.

Usage: make_model.py MODEL.onnx [--layers 8] [--units 1024] [--heads 16] [--groups 4] [--seed 1]

One run takes the next S bytes and appends them to the caches: past_k_0 [groups, P, 64] becomes present_k_0 [groups, P + S, 64]. It says the
logits of the byte that follows, 256 of them and one for the end. Needs numpy and onnx. The same arguments give the same bytes."""

import argparse

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEAD = 64  # numbers of a head
TOKENS = 257
COMMON = " etaoinshrdlcumwfgypbvkjxqz"  # of English texts, the likeliest first


def prior():
    """What the bytes start from: with drawn weights alone all 256 were as likely."""
    chances = np.full(TOKENS, -16, np.float32)
    for rank, letter in enumerate(COMMON):
        chances[ord(letter)] = -np.log(rank + 2)
    chances[[ord("."), ord(","), ord("\n")]] = -5
    chances[256] = -6
    return chances


class Writer:
    """Nodes as an exporter writes them."""

    def __init__(self, seed):
        self.draw, self.nodes, self.weights = np.random.default_rng(seed), [], {}

    def constant(self, name, value):
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def ints(self, *values):
        return self.constant("ints_" + "_".join(map(str, values)).replace("-", "m"), np.array(values, np.int64))

    def drawn(self, name, *dims, scale=1):
        return self.constant(name, self.draw.standard_normal(dims, np.float32) * np.float32(scale * dims[0] ** -0.5))

    def node(self, kind, *inputs, name, **attributes):
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def linear(self, x, name, inputs, outputs):
        return self.node("MatMul", x, self.drawn(f"{name}.weight", inputs, outputs), name=f"{name}/MatMul")

    def norm(self, x, name, units):
        mean = self.node("ReduceMean", self.node("Mul", x, x, name=f"{name}/Square"), self.ints(-1), name=f"{name}/Mean", keepdims=1)
        root = self.node("Sqrt", self.node("Add", mean, self.constant("epsilon", np.float32(1e-5)), name=f"{name}/Add"), name=f"{name}/Sqrt")
        scale = self.constant(f"{name}.weight", (1 + 0.1 * self.draw.standard_normal(units)).astype(np.float32))
        return self.node("Mul", self.node("Div", x, root, name=f"{name}/Div"), scale, name=f"{name}/Scale")

    def heads(self, x, name, count):
        """[S, count * HEAD] -> [count, S, HEAD]"""
        split = self.node("Reshape", x, self.ints(-1, count, HEAD), name=f"{name}/Split")
        return self.node("Transpose", split, name=f"{name}/Heads", perm=[1, 0, 2])

    def rotated(self, x, name):
        left = self.node("Slice", x, self.ints(0), self.ints(HEAD // 2), self.ints(2), name=f"{name}/Left")
        right = self.node("Slice", x, self.ints(HEAD // 2), self.ints(HEAD), self.ints(2), name=f"{name}/Right")
        turned = self.node("Concat", self.node("Neg", right, name=f"{name}/Neg"), left, name=f"{name}/Turned", axis=2)
        return self.node("Add", self.node("Mul", x, "cos", name=f"{name}/Cos"), self.node("Mul", turned, "sin", name=f"{name}/Sin"), name=f"{name}/Rotated")

    def positions(self):
        """cos and sin of the angles [S, HEAD], and what is added to scores [S, P + S] so that no byte sees a later one."""
        count = self.node("Shape", "ids", name="S")
        first = self.node("Shape", "past_k_0", name="P", start=1, end=2)
        end = self.node("Add", first, count, name="T")
        scalars = [self.node("Squeeze", v, name=f"{v}_scalar") for v in (first, end)]
        zero, one = self.constant("zero", np.int64(0)), self.constant("one", np.int64(1))
        mine = self.node("Unsqueeze", self.node("Range", scalars[0], scalars[1], one, name="rows"), self.ints(1), name="row")
        all_of = self.node("Unsqueeze", self.node("Range", zero, scalars[1], one, name="columns"), self.ints(0), name="column")
        later = self.node("Greater", all_of, mine, name="later")
        self.node("Where", later, self.constant("hidden", np.float32(-1e9)), self.constant("seen", np.float32(0)), name="mask")
        rates = (10000.0 ** (-np.arange(0, HEAD, 2) / HEAD)).astype(np.float32)
        angles = self.node("Mul", self.node("Cast", mine, name="place", to=TensorProto.FLOAT), self.constant("rates", np.concatenate([rates, rates])), name="angles")
        self.node("Cos", angles, name="cos")
        self.node("Sin", angles, name="sin")

    def attention(self, x, name, layer, units, heads, groups):
        q = self.rotated(self.heads(self.linear(x, f"{name}.q", units, heads * HEAD), f"{name}.q", heads), f"{name}.q")
        k = self.rotated(self.heads(self.linear(x, f"{name}.k", units, groups * HEAD), f"{name}.k", groups), f"{name}.k")
        v = self.heads(self.linear(x, f"{name}.v", units, groups * HEAD), f"{name}.v", groups)
        k = self.node("Concat", f"past_k_{layer}", k, name=f"present_k_{layer}", axis=1)
        v = self.node("Concat", f"past_v_{layer}", v, name=f"present_v_{layer}", axis=1)
        # The heads of a group share its keys: they are rows of one product.
        rows = self.node("Reshape", q, self.ints(groups, -1, HEAD), name=f"{name}/Rows")
        scores = self.node("MatMul", rows, self.node("Transpose", k, name=f"{name}/Keys", perm=[0, 2, 1]), name=f"{name}/Scores")
        scores = self.node("Mul", scores, self.constant("scale", np.float32(HEAD**-0.5)), name=f"{name}/Scaled")
        each = self.node("Reshape", scores, self.node("Concat", self.ints(heads), "S", "T", name=f"{name}/Dims", axis=0), name=f"{name}/Each")
        chances = self.node("Softmax", self.node("Add", each, "mask", name=f"{name}/Masked"), name=f"{name}/Softmax", axis=-1)
        together = self.node("Reshape", chances, self.node("Concat", self.ints(groups, -1), "T", name=f"{name}/Dims2", axis=0), name=f"{name}/Together")
        read = self.node("Reshape", self.node("MatMul", together, v, name=f"{name}/Read"), self.ints(heads, -1, HEAD), name=f"{name}/ReadHeads")
        merged = self.node("Reshape", self.node("Transpose", read, name=f"{name}/Merge", perm=[1, 0, 2]), self.ints(-1, heads * HEAD), name=f"{name}/Merged")
        return self.linear(merged, f"{name}.out", heads * HEAD, units)

    def mlp(self, x, name, units, inner):
        gate = self.linear(x, f"{name}.gate", units, inner)
        silu = self.node("Mul", gate, self.node("Sigmoid", gate, name=f"{name}/Sigmoid"), name=f"{name}/Silu")
        return self.linear(self.node("Mul", silu, self.linear(x, f"{name}.up", units, inner), name=f"{name}/Gated"), f"{name}.down", inner, units)


def decoder(layers, units, heads, groups, seed):
    w = Writer(seed)
    inner = -(-units * 8 // 3 // 64) * 64
    w.positions()
    x = w.node("Gather", w.constant("embedding", w.draw.standard_normal((TOKENS, units), np.float32)), "ids", name="embedded", axis=0)
    for i in range(layers):
        x = w.node("Add", x, w.attention(w.norm(x, f"{i}.norm1", units), f"{i}.attention", i, units, heads, groups), name=f"{i}/Add1")
        x = w.node("Add", x, w.mlp(w.norm(x, f"{i}.norm2", units), f"{i}.mlp", units, inner), name=f"{i}/Add2")
    last = w.node("Gather", w.norm(x, "norm", units), w.constant("last", np.int64(-1)), name="last_row", axis=0)
    logits = w.node("MatMul", w.node("Unsqueeze", last, w.ints(0), name="last_row_2d"), w.drawn("head.weight", units, TOKENS, scale=3), name="head/MatMul")
    likelier = w.node("Add", logits, w.constant("prior", prior()), name="likelier")
    w.node("Reshape", likelier, w.ints(TOKENS), name="logits")
    caches = [f"{c}_{i}" for i in range(layers) for c in "kv"]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["S"])]
    inputs += [helper.make_tensor_value_info(f"past_{c}", TensorProto.FLOAT, [groups, "P", HEAD]) for c in caches]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [TOKENS])]
    outputs += [helper.make_tensor_value_info(f"present_{c}", TensorProto.FLOAT, [groups, "T", HEAD]) for c in caches]
    graph = helper.make_graph(w.nodes, "decoder", inputs, outputs, list(w.weights.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8, producer_name="make_model")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name, value in (("layers", 8), ("units", 1024), ("heads", 16), ("groups", 4), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    if options.heads % options.groups:
        parser.error("--heads must be a multiple of --groups")
    onnx.save(decoder(options.layers, options.units, options.heads, options.groups, options.seed), options.model)


if __name__ == "__main__":
    main()
