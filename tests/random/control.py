"""If and Loop with captures."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from graph import broadcasts
from oracle import Reject
from registry import op
from values import BOOL, F32, F64, FLOATS, I32, I64, INTS, ONNX


def reaches(a, b):
    """Whether `b` broadcasts to the shape of `a`."""
    return broadcasts(a.shape, b.shape) and np.broadcast_shapes(a.shape, b.shape) == a.shape


@op(1.5)
def if_(g):
    r = g.r
    x = g.pick(FLOATS[:3] + INTS + [BOOL])
    a = g.v[x]

    def branch(tag):
        k = r.choice(["cap", "ident", "op", "const", "two"])
        y = g.name("b")
        nodes, inits = [], []
        if k == "cap":  # a branch that yields an outer value by Identity
            nodes = [helper.make_node("Identity", [x], [y])]
        elif k == "const":
            inits = [numpy_helper.from_array(g.data(a.dtype, a.shape), y)] if r.random() < 0.5 else []
            nodes = [] if inits else [helper.make_node("Constant", [], [y], value=numpy_helper.from_array(g.data(a.dtype, a.shape)))]
        else:
            p = g.partner(x)
            if g.v[p].size and not reaches(a, g.v[p]):
                raise Reject
            if a.dtype == BOOL:
                nodes = [helper.make_node("And", [x, p], [y])]
            else:
                t = g.name("b")
                nodes = [helper.make_node("Add", [x, p], [t]), helper.make_node("Mul" if k == "op" else "Sub", [t, x], [y])]
        dims = list(a.shape) if g.symbols == "none" else [None] * a.ndim
        return helper.make_graph(nodes, tag + str(g.made), [], [helper.make_tensor_value_info(y, ONNX[a.dtype], dims)], inits)

    c = g.const(np.array(bool(r.getrandbits(1)))) if r.random() < 0.4 else None
    if c is None:
        c = g.give(np.array(bool(r.getrandbits(1))))
    g.node("If", [c], then_branch=branch("t"), else_branch=branch("e"))


@op(1.5)
def loop(g):
    r = g.r
    x = g.pick([F32, I64, F64, I32])
    a = g.v[x]
    ty = ONNX[a.dtype]
    sh = [None] * a.ndim
    p = g.partner(x)
    if not reaches(a, g.v[p]):
        raise Reject
    it, ci, s, y, co, sc = [g.name("l") for _ in range(6)]
    nodes = [helper.make_node("Identity", [ci], [co])]
    k = r.random()
    if k < 0.3:
        thr = g.const(np.array(r.choice([0, 1, 2])))
        nodes = [helper.make_node("Less", [it, thr], [co])]
    else:
        thr = None
    nodes.append(helper.make_node(r.choice(["Add", "Sub", "Max"]) if g.opset >= 12 else "Add", [s, p], [y]))
    j = r.random()
    if j < 0.4:
        nodes.append(helper.make_node("Identity", [y], [sc]))
    elif j < 0.6:
        nodes.append(helper.make_node("Identity", [s], [sc]))
    elif j < 0.8:
        nodes.append(helper.make_node("Cast", [it], [sc], to=ty))
    else:
        nodes.append(helper.make_node("Identity", [p], [sc]))
    number = [1] if thr is None and r.random() < 0.3 else []  # exporters declare it as a list of one element, too
    body = helper.make_graph(
        nodes,
        "body" + str(g.made),
        [
            helper.make_tensor_value_info(it, TensorProto.INT64, number),
            helper.make_tensor_value_info(ci, TensorProto.BOOL, []),
            helper.make_tensor_value_info(s, ty, sh),
        ],
        [
            helper.make_tensor_value_info(co, TensorProto.BOOL, []),
            helper.make_tensor_value_info(y, ty, sh),
            helper.make_tensor_value_info(sc, ty, None),
        ],
    )
    m = g.const(np.array(r.choice([0, 1, 2, 3, 5]))) if r.random() < 0.6 else None
    if m is None:
        m = g.give(np.array(r.choice([0, 1, 3])))
    c = g.const(np.array(r.random() < 0.9)) if r.random() < 0.6 else ""
    if c and not g.v[c] or not g.v[m] or thr and g.v[thr] < 0:
        raise Reject  # the dims of a scan output without elements are not defined
    g.node("Loop", [m, c, x], nout=2, body=body)
