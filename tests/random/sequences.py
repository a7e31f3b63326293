"""Sequences of tensors and strings: made, changed, read."""

import numpy as np

from oracle import Reject
from registry import op
from values import F32, I64

WORDS = ["", "a", "B", "ab c", "Abc", "x,y,z", "été", "12", "no", "The cat"]


@op(1.5)
def sequence(g):
    r = g.r
    dtype, rank = r.choice([F32, F32, I64]), r.choice([1, 2, 2])
    width = r.choice([1, 3, 4])
    part = lambda: g.leaf(dtype, [r.choice([1, 2, 3]), width][-rank:])  # noqa: E731
    kind = r.choice(["construct", "split", "split"])
    if kind == "construct":
        count = r.choice([1, 2, 3])
        s = g.node("SequenceConstruct", [part() for _ in range(count)])
    else:
        n = r.choice([2, 4])
        x = g.leaf(dtype, [n, width][-rank:] if rank == 2 else [n])
        n = g.v[x].shape[0]
        how = r.choice(["", "scalar", "list"])
        sizes = {"": "", "scalar": g.const(np.array(r.choice([1, 2]))), "list": g.ints(*([1, n - 1] if n > 1 else [1]))}[how]
        keep = 1 if how else r.choice([0, 1])
        s = g.node("SplitToSequence", [x, sizes], axis=0, keepdims=None if how else keep)
        count = len(g.sequences[s])
    for _ in range(r.choice([0, 1, 2])):
        kind = r.choice(["insert", "erase"])
        if kind == "insert":
            like = g.sequences[s][0] if g.sequences[s] else None
            if like is None:
                raise Reject
            at = [g.const(np.array(r.randint(-count, count)))] if r.random() < 0.6 else []
            s = g.node("SequenceInsert", [s, g.leaf(dtype, list(like.shape)), *at])
            count += 1
        elif count > 1:
            s = g.node("SequenceErase", [s, *([g.const(np.array(r.randint(-count, count - 1)))] if r.random() < 0.6 else [])])
            count -= 1
    for _ in range(r.choice([1, 2])):
        kind = r.choice(["at", "length", "concat", "stack"])
        if kind == "at":
            y = g.node(
                "SequenceAt",
                [
                    s,
                    g.const(np.array(r.randint(-count, count - 1))) if r.random() < 0.6 else g.give(np.array(r.randint(-count, count - 1))),
                ],
            )
            if dtype == F32:
                g.node("Relu", [y])
        elif kind == "length":
            g.node("SequenceLength", [s])
        else:
            y = g.node("ConcatFromSequence", [s], axis=0, new_axis=1 if kind == "stack" else None)
            if dtype == F32:
                g.node(r.choice(["Neg", "Sigmoid"]), [y])


@op(1)
def strings(g):
    r = g.r
    n = r.choice([1, 2, 4])
    new = lambda shape: g.np.choice(np.array(WORDS, dtype=object), shape).astype(object)  # noqa: E731
    x = g.give(new([n])) if r.random() < 0.7 else g.const(new([n]))
    kind = r.choice(["concat", "split", "match", "normalize", "gather", "equal", "reshape", "where"])
    if kind == "concat":
        if g.opset < 20:
            raise Reject
        g.node("StringConcat", [x, g.const(new(r.choice([[], [1], [n], [2, 1]])))])
    elif kind == "split":
        if g.opset < 20:
            raise Reject
        if "" in g.v[x]:  # one empty part or none
            raise Reject
        g.node("StringSplit", [x], nout=2, delimiter=r.choice([None, ","]), maxsplit=r.choice([None, 1]))
    elif kind == "match":
        if g.opset < 20:
            raise Reject
        g.node("RegexFullMatch", [x], pattern=r.choice(["[a-z]*", "[0-9]+", "a.*"]))
    elif kind == "normalize":
        g.node("StringNormalizer", [x], case_change_action=r.choice(["LOWER", "UPPER", "NONE"]), is_case_sensitive=1)
    elif kind == "gather":
        g.node("Gather", [x, g.give(g.np.integers(0, n, [2, 2]))])
    elif kind == "equal":
        if g.opset < 19:
            raise Reject
        g.node("Equal", [x, g.const(new([1]))])
    elif kind == "reshape":
        g.node("Concat", [g.node("Reshape", [x, g.ints(1, -1)]), g.const(new([1, 2]))], axis=1)
    else:
        g.node("Where", [g.give(g.np.random(n) < 0.5), x, g.const(new([n]))])
