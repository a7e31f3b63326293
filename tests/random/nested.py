"""Nested If, Loop and Scan over vectors whose sizes depend on data and on branches taken.

A body is written without the oracle: its statements hold for vectors of any size. The outermost nodes go through the oracle as all do."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from oracle import Reject
from registry import op
from values import F32

FLOAT, LONG = TensorProto.FLOAT, TensorProto.INT64
LONGEST = 48  # of a vector: what grows is cut
DEEPEST = 3


def info(name, element=FLOAT, dims=(None,)):
    return helper.make_tensor_value_info(name, element, list(dims))


class Outer:
    """Statements of the graph itself: each node is run by the oracle."""

    def __init__(self, g):
        self.g = g

    def node(self, op_type, inputs, count=1, **attributes):
        made = self.g.node(op_type, inputs, nout=count, **attributes)
        return [made] if isinstance(made, str) else made

    def const(self, array):
        return self.g.const(array)


class Body:
    """Statements of a subgraph: a list of nodes and the constants that they read."""

    def __init__(self, g):
        self.g, self.nodes, self.constants = g, [], []

    def node(self, op_type, inputs, count=1, **attributes):
        outputs = [self.g.name("b") for _ in range(count)]
        self.nodes.append(helper.make_node(op_type, inputs, outputs, **attributes))
        return outputs

    def const(self, array):
        if self.g.r.random() < 0.4:  # one of the outer graph
            return self.g.const(array)
        name = self.g.name("b")
        if self.g.r.random() < 0.5:
            self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(array))))
        return name

    def graph(self, inputs, outputs):
        return helper.make_graph(self.nodes, self.g.name("body"), inputs, outputs, self.constants)


class Writer:
    """Writes statements into a place, an Outer or a Body; `vectors` are the float vectors that are visible there."""

    def __init__(self, g, budget):
        self.g, self.r, self.budget = g, g.r, budget

    def clamp(self, at, v):
        return at.node("Slice", [v, at.const(np.array([0])), at.const(np.array([LONGEST])), at.const(np.array([0]))])[0]

    def condition(self, at, vectors):
        kind = self.r.random()
        if kind < 0.4:
            return self.g.give(np.array(bool(self.r.getrandbits(1))))
        if kind < 0.5:
            return at.const(np.array(bool(self.r.getrandbits(1))))
        v = self.r.choice(vectors)
        if kind < 0.6:
            return at.node("Greater", [at.node("Size", [v])[0], at.const(np.array(self.r.choice([0, 2, 4])))])[0]
        total = at.node("ReduceSum", [v], keepdims=0)[0]
        return at.node(self.r.choice(["Greater", "Less"]), [total, at.const(np.array(0, F32))])[0]

    def simple(self, at, vectors):
        r = self.r
        a = r.choice(vectors)
        kind = r.randrange(16)
        one = lambda *values: at.const(np.array(values))  # noqa: E731
        if kind < 3:
            return at.node(r.choice(["Neg", "Tanh", "Relu", "Abs", "Identity", "Sigmoid"]), [a])[0]
        if kind < 6:
            return self.clamp(at, at.node("Concat", [a, r.choice(vectors)], axis=0)[0])
        if kind == 6:
            return at.node("Slice", [a, one(r.choice([0, 1, -3])), one(r.choice([2, 5, -1, 2**40])), one(0)])[0]
        if kind == 7:
            return at.node("Compress", [a, at.node("Greater", [a, at.const(np.array(0, F32))])[0]], axis=0)[0]
        if kind == 8:
            total = at.node("ReduceSum", [a], keepdims=1)[0]
            return at.node("Tanh", at.node("Add", [a, total]))[0]
        if kind == 9:
            return self.clamp(at, at.node("Tile", [a, one(2)])[0])
        if kind == 10:
            return at.node("Softmax", [a], axis=0)[0]
        if kind == 11:
            places = at.node("Squeeze", [at.node("NonZero", [a])[0], one(0)])[0]
            return at.node("Cast", [places], to=FLOAT)[0]
        if kind == 12:  # a product with a row of known size
            n = r.choice([1, 4, 16])
            y = at.node("MatMul", [at.node("Unsqueeze", [a, one(1)])[0], at.const(self.g.data(F32, [1, n]))])[0]
            return at.node(
                "ReduceMax",
                [at.node("Relu", [y])[0], *([one(1)] if self.g.opset >= 18 else [])],
                keepdims=0,
                **({} if self.g.opset >= 18 else {"axes": [1]})
            )[0]
        if kind == 13:
            return at.node("CumSum", [a, at.const(np.array(0))])[0]
        if kind == 14:
            return at.node("Slice", [a, one(-1), one(-(2**40)), one(0), one(-1)])[0]
        halves = at.node("Mul", [a, at.const(np.array(0.5, F32))])[0]
        return at.node("Add", [halves, at.node("Neg", [a])[0]])[0]

    def block(self, vectors, depth, count):
        """(Body, names of its results): statements over what is visible."""
        body, mine = Body(self.g), list(vectors)
        for _ in range(self.r.choice([1, 1, 2, 3])):
            self.budget -= 1
            mine += self.statement(body, mine, depth)
        own = [v for v in mine if v not in vectors]
        results = []
        for _ in range(count):
            v = self.r.choice(own if own and self.r.random() < 0.8 else mine)
            results.append(body.node("Identity", [v])[0] if v in results or v in vectors else v)
        return body, results

    def statement(self, at, vectors, depth):
        """The vectors that it makes."""
        kind = self.r.random()
        if depth >= DEEPEST or self.budget <= 0 or kind < 0.4:
            return [self.simple(at, vectors)]
        if kind < 0.68:
            return self.branch(at, vectors, depth)
        if kind < 0.9 or depth > 0:
            return self.loop(at, vectors, depth)
        return self.scan(at, vectors, depth)

    def branch(self, at, vectors, depth):
        condition, count = self.condition(at, vectors), self.r.choice([1, 1, 2])
        graphs = []
        for _ in range(2):
            body, results = self.block(vectors, depth + 1, count)
            graphs.append(body.graph([], [info(v) for v in results]))
        return at.node("If", [condition], count, then_branch=graphs[0], else_branch=graphs[1])

    def loop(self, at, vectors, depth):
        r, count = self.r, self.r.choice([1, 1, 2])
        states = [self.g.name("b") for _ in range(count)]
        iteration, before, after = (self.g.name("b") for _ in range(3))
        body, results = self.block(vectors + states, depth + 1, count)
        if r.random() < 0.7:
            body.nodes.append(helper.make_node("Identity", [before], [after]))
        else:
            body.nodes.append(helper.make_node("Less", [iteration, self.g.const(np.array(r.choice([0, 1, 2])))], [after]))
        scanned, keep = [], r.choice([0, 1])
        if r.random() < 0.35:
            scanned = body.node("ReduceSum", [results[0]], keepdims=keep)
        graph = body.graph(
            [info(iteration, LONG, []), info(before, TensorProto.BOOL, [])] + [info(s) for s in states],
            [info(after, TensorProto.BOOL, [])] + [info(v) for v in results] + [info(s, FLOAT, [1] if keep else []) for s in scanned],
        )
        trips = at.const(np.array(r.choice([1, 2, 3]))) if r.random() < 0.5 else self.g.give(np.array(r.choice([1, 2, 4])))
        made = at.node("Loop", [trips, "", *[r.choice(vectors) for _ in states]], count + len(scanned), body=graph)
        out = [self.clamp(at, v) for v in made[:count]]
        for s in made[count:]:
            out.append(self.clamp(at, at.node("Squeeze", [s, at.const(np.array([1]))])[0] if keep else s))
        return out

    def scan(self, at, vectors, depth):
        """A state of fixed size over the elements of a vector."""
        state, element = self.g.name("b"), self.g.name("b")
        body = Body(self.g)
        total = body.node("Add", [state, element])[0]
        new = body.node("Identity", [total])[0]
        row = body.node(self.r.choice(["Tanh", "Neg"]), [total])[0]
        graph = body.graph([info(state, FLOAT, [1]), info(element, FLOAT, [])], [info(new, FLOAT, [1]), info(row, FLOAT, [1])])
        made = at.node("Scan", [at.const(np.zeros(1, F32)), self.r.choice(vectors)], 2, body=graph, num_scan_inputs=1)
        return [made[0], at.node("Squeeze", [made[1], at.const(np.array([1]))])[0]]


@op(1.5)
def nested(g):
    """Several statements over one or two vectors."""
    if g.opset < 13:  # Squeeze and its like take axes as inputs
        raise Reject
    vectors = [g.add_input(F32, [g.r.choice([1, 3, 5, 8])]) for _ in range(g.r.choice([1, 2]))]
    vectors += [n for n, a in g.v.items() if a.ndim == 1 and a.dtype == F32 and g.kind[n] == "node" and a.size <= LONGEST][:2]
    writer = Writer(g, g.r.randint(2, 10))
    at = Outer(g)
    while writer.budget > 0:
        writer.budget -= 1
        vectors += writer.statement(at, vectors, 0)
