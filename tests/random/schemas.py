#!/usr/bin/env python3
"""Single operators at every opset version, drawn from ONNX's schemas: schemas.py [--seed N] [--seconds S] [--ways eval,opt,unfused] [--out DIR]

Unlike the graphs of run.py, whose operators are of one opset, each model here is of any opset from 7 on, its operator's types are those its
schema lists, and every attribute is drawn now and then. Operands are inputs, initializers or Constant nodes, or come out of one or two nodes
that change nothing (a Slice of more, a Concat of parts, a Transpose of the transpose ...), and results go on into others. With --odd P that
share of the integer operands and attributes is drawn out of range. ONNX Runtime without optimizations and the reference evaluator run the model as a whole. Said is:
  wrong      an answer that no oracle gives
  doubtful   the same where only the reference evaluator runs the model, which has faults of its own
  accepted   an answer where each oracle that has the operator refuses
  refused    no answer where an oracle has one
  crash, timeout, internal ...   optc's own words
"""

import argparse
import collections
import json
import pathlib
import random
import re
import shutil
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
warnings.filterwarnings("ignore")

import numpy as np
import onnx
from compare import difference
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from oracle import NO_KERNEL, Reject, run_session, session
from runner import Case, Runner
from schema_recipes import RECIPES
from values import BOOL, F32, F64, NARROW, NUMPY, ONNX, STRING, is_float, save_case, value_info

FIRST, LAST = 7, onnx.defs.onnx_opset_version()
TYPES = {  # as schemas spell them
    "tensor(" + TensorProto.DataType.Name(t).lower() + ")": d for t, d in NUMPY.items() if t not in NARROW
}


# Operators of which the reference evaluator knows only some forms: activations, lengths, clip; case that is not ASCII; ...
UNLIKE = ("RNN", "GRU", "LSTM", "StringNormalizer", "GridSample", "Hardmax", "LRN", "GlobalMaxPool")


FAULTS = ("wrong", "accepted", "crash", "timeout", "internal", "build")  # of which one fails a run


LACKING = ("not support", "support double", "Failed to construct locale", "Only support")  # of a form, not for being wrong


class Skip(Exception):
    """This draw is no model."""


def versions(name):
    """Opsets at which the operator has another schema than before, from FIRST on."""
    found, last = [], None
    for opset in range(FIRST, LAST + 1):
        try:
            schema = onnx.defs.get_schema(name, opset, "")
        except onnx.defs.SchemaError:
            continue
        if schema.deprecated:
            break
        if last != schema.since_version:
            found.append(opset)
            last = schema.since_version
    return found


class Draw:
    """A model that is drawn around one operator. `r` decides everything."""

    def __init__(self, seed, name, opset, odd):
        self.r, self.name, self.opset, self.odd_share, self.seed = random.Random(seed), name, opset, odd, seed
        self.np = np.random.default_rng(self.r.getrandbits(32))
        self.schema = onnx.defs.get_schema(name, opset, "")
        self.since = self.schema.since_version
        self.nodes, self.inputs, self.initializers, self.outputs, self.number = [], {}, {}, [], 0
        self.bound, self.was_odd = {}, []
        self.open = self.r.random() < 0.45
        self.fixed = self.r.choice(["input", "input", "mixed", "constant"])  # where integer operands stand
        self.dim_names = {}
        self.plain = self.r.random() < 0.4  # no nodes around the operator

    # --- what recipes call
    def fresh(self, word="v"):
        self.number += 1
        return f"{word}{self.number}"

    def maybe(self, p):
        return self.r.random() < p

    def pick(self, *values):
        return self.r.choice(values)

    def size(self, low=1, high=5):
        return self.r.randint(low, high) if self.maybe(0.96) or low > 1 else 0

    def shape(self, low=0, high=4):
        return [self.size() for _ in range(self.r.randint(low, high))]

    def odd(self, good, *bad):
        """`good`, or now and then one of `bad` (or of numbers that fit nowhere)."""
        if self.r.random() >= self.odd_share:
            return good
        value = self.r.choice(bad or (-1, 0, 2, 7, -9, 2**31, -(2**40)))
        if value != good:
            self.was_odd.append(f"{value} for {good}")
        return value

    def dtype(self, index, kind="input"):
        """The element type of a formal parameter; parameters of one type string have one."""
        formals = self.schema.inputs if kind == "input" else self.schema.outputs
        spelled = formals[min(index, len(formals) - 1)].type_str
        if spelled not in self.bound:
            allowed = next((list(c.allowed_type_strs) for c in self.schema.type_constraints if c.type_param_str == spelled), [spelled])
            types = [TYPES[t] for t in allowed if t in TYPES]
            if not types:
                raise Skip
            f32 = np.dtype("f4")
            self.bound[spelled] = f32 if f32 in types and self.maybe(0.35) else self.r.choice(types)
        return self.bound[spelled]

    def values(self, dtype, shape, low=-4, high=4):
        if dtype == STRING:
            return np.array([self.pick("", "a", "Bc", "ä", "the end", "a,b") for _ in range(int(np.prod(shape)))], object).reshape(shape)
        if dtype == BOOL:
            return self.np.integers(0, 2, shape).astype(bool)
        if not is_float(dtype):
            info = np.iinfo(dtype)
            if self.maybe(0.15) and low < -1:
                low, high = int(info.min), int(info.max)
            low = max(low, int(info.min))
            return self.np.integers(low, high, shape, dtype=dtype, endpoint=True)
        a = self.np.uniform(low, high, shape)
        if self.maybe(0.3):
            a = np.round(a * 2) / 2
        return np.asarray(a).astype(dtype)

    def special(self, a):
        """With infinities, NaNs and zeros of either sign."""
        if is_float(a.dtype) and a.size and self.maybe(0.12):
            flat = a.reshape(-1)
            for _ in range(self.r.randint(1, 3)):
                flat[self.r.randrange(flat.size)] = self.pick(0.0, -0.0, np.inf, -np.inf, np.nan)
        return a

    def tensor(self, dtype, shape, low=-4, high=4, special=True):
        a = self.values(dtype, shape, low, high)
        return self.place(self.special(a) if special else a)

    def x(self, index, shape, low=-4, high=4, special=True):
        """An operand of the type of formal input `index`."""
        return self.tensor(self.dtype(index), shape, low, high, special)

    def ints(self, values, dtype=np.int64, fixed=False):
        """An operand of integers that the operator reads as sizes, axes, places."""
        a = np.array(values, dtype)
        if self.fixed == "constant" or fixed or (self.fixed == "mixed" and self.maybe(0.5)):
            return self.constant(a)
        return self.input(a)

    def node(self, inputs, outputs=1, **attributes):
        """The operator itself; the names of its results."""
        names = [self.fresh("y") for _ in range(outputs)] if isinstance(outputs, int) else [self.fresh("y") if o else "" for o in outputs]
        while inputs and inputs[-1] == "":
            inputs = inputs[:-1]
        given = {k: v for k, v in attributes.items() if v is not None and k in self.schema.attributes}
        self.nodes.append(helper.make_node(self.name, list(inputs), names, name="op", **given))
        self.outputs += [n for n in names if n]
        return names

    def has(self, attribute):
        return attribute in self.schema.attributes

    # --- where values come from
    def constant(self, a):
        name = self.fresh("c")
        if self.maybe(0.5):
            self.initializers[name] = a
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(a, name)))
        return name

    def input(self, a):
        name = self.fresh("x")
        self.inputs[name] = a
        return name

    def add(self, op, inputs, outputs=1, **attributes):
        names = [self.fresh("w") for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def vector(self, op, inputs, **attributes):
        """`attributes` as the opset has them: attributes or inputs."""
        schema = onnx.defs.get_schema(op, self.opset, "")
        for key, value in attributes.items():
            if key in schema.attributes:
                continue
            a = np.array(value, np.int64)
            inputs = [*inputs, self.constant(a)]
        return self.add(op, inputs, **{k: v for k, v in attributes.items() if k in schema.attributes})

    def place(self, a):
        """A name of `a`: an input, a constant, or what comes out of nodes that change nothing."""
        if self.plain or self.maybe(0.45) or a.dtype in (STRING,):
            return self.input(a) if self.maybe(0.75) else self.constant(a)
        ways = [self.by_transpose, self.by_slice, self.by_concat, self.by_reshape, self.by_unit, self.by_split, self.by_cast, self.by_where, self.by_gather]
        for _ in range(4):
            name = self.r.choice(ways)(a)
            if name:
                return name
        return self.input(a)

    def by_transpose(self, a):
        if a.ndim < 2:
            return None
        perm = list(range(a.ndim))
        self.r.shuffle(perm)
        return self.add("Transpose", [self.input(np.ascontiguousarray(a.transpose(np.argsort(perm))))], perm=perm)

    def by_slice(self, a):
        if not a.ndim:
            return None
        axis, extra = self.r.randrange(a.ndim), self.r.randint(0, 2)
        first = self.r.randint(0, extra)
        wide = np.pad(a, [(first, extra - first) if k == axis else (0, 0) for k in range(a.ndim)])
        n = a.shape[axis]
        return self.vector("Slice", [self.input(wide)], starts=[first], ends=[first + n], axes=[axis])

    def by_concat(self, a):
        if not a.ndim:
            return None
        axis = self.r.randrange(a.ndim)
        at = self.r.randint(0, a.shape[axis])
        parts = [self.input(np.ascontiguousarray(p)) for p in np.split(a, [at], axis)]
        return self.add("Concat", parts, axis=axis)

    def by_reshape(self, a):
        return self.vector("Reshape", [self.input(a.reshape(-1))], shape=list(a.shape)) if a.ndim and a.size else None

    def by_unit(self, a):
        axis = self.r.randint(0, a.ndim)
        if self.maybe(0.5):
            return self.vector("Squeeze", [self.input(np.expand_dims(a, axis))], axes=[axis])
        if not a.ndim or a.shape[min(axis, a.ndim - 1)] != 1:
            return None
        axis = min(axis, a.ndim - 1)
        return self.vector("Unsqueeze", [self.input(a.squeeze(axis))], axes=[axis])

    def by_split(self, a):
        if not a.ndim:
            return None
        axis = self.r.randrange(a.ndim)
        n, more = a.shape[axis], self.r.randint(1, 3)
        other = np.zeros([more if k == axis else d for k, d in enumerate(a.shape)], a.dtype)
        schema = onnx.defs.get_schema("Split", self.opset, "")
        whole = self.input(np.concatenate([a, other], axis))
        if "split" in schema.attributes:
            return self.add("Split", [whole], 2, axis=axis, split=[n, more])[0]
        return self.add("Split", [whole, self.constant(np.array([n, more], np.int64))], 2, axis=axis)[0]

    def by_cast(self, a):
        if a.dtype == BOOL or a.dtype.kind not in "iuf" or self.opset < 9:
            return None
        other = np.dtype(self.pick("f4", "f8", "i8", "i4"))
        with np.errstate(all="ignore"):
            b = a.astype(other)
            if not np.array_equal(b.astype(a.dtype), a) or np.abs(b.astype("f8")).max(initial=0) > 2**20:
                return None
        return self.add("Cast", [self.input(b)], to=int(ONNX[a.dtype]))

    def by_where(self, a):
        if self.opset < 9:
            return None
        c = self.np.integers(0, 2, a.shape).astype(bool)
        zero = np.zeros_like(a)
        return self.add("Where", [self.input(c), self.input(np.where(c, a, zero)), self.input(np.where(c, zero, a))])

    def by_gather(self, a):
        if not a.ndim or not a.size:
            return None
        axis = self.r.randrange(a.ndim)
        order = self.np.permutation(a.shape[axis])
        back = np.argsort(order).astype(self.pick(np.int64, np.int32))
        return self.add("Gather", [self.input(np.take(a, order, axis)), self.constant(back) if self.maybe(0.5) else self.input(back)], axis=axis)

    # --- the model
    def follow(self, wanted):
        """Nodes behind the results, which stay outputs too; `wanted`: what is known of their values."""
        for name in list(self.outputs):
            if self.plain or self.maybe(0.5):
                continue
            a = wanted.get(name)
            if a is None or not isinstance(a, np.ndarray):
                continue
            ways = []
            if a.ndim:
                ways.append(lambda: self.add("Transpose", [name], perm=list(range(a.ndim))[::-1]))
                ways.append(lambda: self.add("Concat", [name, name], axis=self.r.randrange(a.ndim)))
                ways.append(lambda: self.vector("Unsqueeze", [name], axes=[self.r.randint(0, a.ndim)]))
            if a.dtype == np.float32:
                ways.append(lambda: self.add(self.pick("Relu", "Neg", "Abs", "Floor"), [name]))
                ways.append(lambda: self.add(self.pick("Add", "Mul"), [name, self.constant(np.float32(self.pick(2, 0.5, -1)))]))
            if a.dtype.kind in "iuf" and self.opset >= 13:
                ways.append(lambda: self.add("Cast", [name], to=int(self.pick(1, 7)) if a.dtype.kind != "f" else 11))
            if ways:
                self.outputs.append(self.r.choice(ways)())

    def dims(self, a):
        """Open or not: dims of one size may share a name."""
        found = []
        for d in a.shape:
            if not self.open or self.maybe(0.3):
                found.append(int(d))
                continue
            shared = self.dim_names.get(d)
            if shared and self.maybe(0.5):
                found.append(shared)
            else:
                found.append(self.dim_names.setdefault(d, f"d{len(self.dim_names)}") if d not in self.dim_names else self.fresh("n"))
        return found

    def model(self, outputs=None):
        made = {n: i for node in self.nodes for n, i in zip(node.output, range(9))}
        graph = helper.make_graph(
            self.nodes,
            f"{self.name}_{self.opset}",
            [value_info(n, a, self.dims(a)) for n, a in self.inputs.items()],
            [helper.make_empty_tensor_value_info(n) for n in (outputs or self.outputs) if n in made],
            [numpy_helper.from_array(a, n) for n, a in self.initializers.items()],
        )
        ir = 4 if self.opset < 9 else 8 if self.opset < 21 else 10
        if ir == 3:  # initializers are inputs with defaults
            for n, a in self.initializers.items():
                graph.input.append(value_info(n, a))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=ir)
        return model


def oracles(model, inputs):
    """{who: values or the text of its error}; who lacks a kernel is left out."""
    said = {}
    names = [o.name for o in model.graph.output]
    try:
        said["onnxruntime"] = dict(zip(names, run_session(session(model), inputs)))
    except Exception as error:
        text = str(error)
        if not any(w in text for w in NO_KERNEL):
            said["onnxruntime"] = text
    if model.graph.name.split("_")[0] in UNLIKE:
        return said
    try:
        with np.errstate(all="ignore"):
            said["reference"] = dict(zip(names, ReferenceEvaluator(model).run(None, dict(inputs))))
    except NotImplementedError:
        pass
    except Exception as error:
        said["reference"] = f"{type(error).__name__}: {error}"
    return said


def typed(model, values):
    """The outputs' types, as an oracle's values have them."""
    for o in model.graph.output:
        a = values[o.name]
        if isinstance(a, np.ndarray) and a.dtype.kind == "U":
            a = a.astype(object)
        if not isinstance(a, (np.ndarray, np.generic)) or np.asarray(a).dtype not in ONNX:
            raise Skip
        o.CopyFrom(value_info(o.name, np.asarray(a), [None] * np.asarray(a).ndim))


def draw(seed, names, odd):
    r = random.Random(seed)
    name = r.choice(names)
    d = Draw(r.getrandbits(48), name, r.choice(versions(name)), odd if r.random() < 0.5 else 0)
    if r.random() < 0.3:  # between two versions
        d.opset = next((o for o in range(d.opset + r.randint(0, 2), d.opset, -1) if o <= LAST and onnx.defs.get_schema(name, o, "").since_version == d.since), d.opset)
    d.draw_seed = seed
    RECIPES[name](d)
    return d


def build(d):
    """(model, inputs, what the oracles say) with nodes behind."""
    model = d.model()
    said = oracles(model, d.inputs)
    good = next((v for v in said.values() if isinstance(v, dict)), None)
    if good:
        d.follow(good)
        model = d.model()
        said = oracles(model, d.inputs)
        good = next((v for v in said.values() if isinstance(v, dict)), None)
    if good:
        typed(model, good)
    else:
        declare(model, d)
    return model, said


def declare(model, d):
    """Types of outputs for which there are no values: what inference says, else f32."""
    try:
        inferred = {o.name: o for o in onnx.shape_inference.infer_shapes(model).graph.output}
    except Exception:
        inferred = {}
    for o in model.graph.output:
        element = inferred[o.name].type.tensor_type.elem_type if o.name in inferred else 0
        o.CopyFrom(helper.make_tensor_value_info(o.name, element or TensorProto.FLOAT, None))


def close(want, got):
    if not isinstance(want, (np.ndarray, np.generic)):
        return "no tensor"
    want = np.asarray(want)
    if want.dtype.kind == "U":
        want = want.astype(object)
    return difference(want, got, F32 if want.dtype == F64 else None)


def judge(answer, got, said, way):
    """(word, text) or None. `got`: {name: value} of optc, or None where it failed."""
    values = {who: v for who, v in said.items() if isinstance(v, dict)}
    if got is None:
        failure = answer.failure
        text = failure.text if failure else answer.unsupported or "ONNX Runtime refuses what opt wrote"
        word = "refused" if failure is None or failure.word in ("invalid", "unsupported", "model", "fault", "status") else failure.word
        if word == "refused" and not values:
            return None
        return word, text
    if not values:
        text = said.get("onnxruntime", "")
        refused = text and not any(w in text for w in LACKING)  # what the reference evaluator refuses it may just not know
        return ("accepted" if refused else "alone", "; ".join(f"{w}: {t}" for w, t in said.items())) if said else ("unknown", "")
    texts = {}
    for who, v in values.items():
        texts[who] = next((f"{n}: {t}" for n in v if n in got and (t := close(v[n], got[n]))), None)
    if any(t is None for t in texts.values()):
        return None
    # of several outputs each must be one oracle's
    by_output = [n for n in got if all(close(v[n], got[n]) for v in values.values())]
    if not by_output:
        return None
    if "onnxruntime" not in values:  # which knows fewer forms than the operators have: for a person to look at
        return None if all(v is None or ": dtype" in v for v in texts.values()) else ("doubtful", "; ".join(f"{w}: {t}" for w, t in texts.items()))
    return "wrong", "; ".join(f"{w}: {t}" for w, t in texts.items())


class Asker(Runner):
    """A Runner that hands back what optc gave instead of judging it."""

    def answer(self, case, way, word, text):
        from runner import Answer, Failure

        if word == "unsupported":
            a = Answer(unsupported=text)
            a.got = None
        elif word != "ok":
            a = Answer(Failure(way, word, text))
            a.got = None
        else:
            a = Answer()
            try:
                a.got = self.outputs(case, way)
            except Exception as error:
                # a Reject is of ONNX Runtime, which may refuse what it refuses of the model
                a = Answer(unsupported=f"{error}") if isinstance(error, Reject) else Answer(Failure(way, "outputs", f"{error!r}"[:300]))
                a.got = None
        return a


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--ways", default="unfused,eval,opt")
    parser.add_argument("--ops", default="")
    parser.add_argument("--odd", type=float, default=0.1)
    parser.add_argument("--chunk", type=int, default=1)
    parser.add_argument("--bin", default=str(HERE.parents[1] / "build/bin"))
    parser.add_argument("--out", default="")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--words", default="wrong,doubtful,accepted,crash,timeout,internal,outputs,build")
    options = parser.parse_args()
    names = sorted(n for n in RECIPES if not options.ops or n in options.ops.split(","))
    names = [n for n in names if versions(n)]
    print(f"seed {options.seed}, {len(names)} operators", flush=True)
    counts, by_op = collections.Counter(), collections.Counter()
    work = pathlib.Path(tempfile.mkdtemp(prefix="schemas"))
    runner = Asker(options.bin, work, options.compiler)
    end, seed, groups = time.time() + options.seconds, options.seed, collections.defaultdict(list)
    shown = options.words.split(",")
    while time.time() < end and seed < options.seed + options.count:
        batch = []
        while len(batch) < options.chunk and seed < options.seed + options.count:
            seed += 1
            try:
                d = draw(seed - 1, names, options.odd)
                model, said = build(d)
            except (Skip, ValueError):  # a size of 0 leaves nothing to draw from
                counts["skipped"] += 1
                continue
            if not any(isinstance(v, dict) for v in said.values()) and options.chunk > 1:
                continue
            batch.append((d, Case(None, model, d.inputs, {}), said))
        ways = options.ways.split(",")
        answers = runner.run([c for _, c, _ in batch], ways)
        for i, (d, case, said) in enumerate(batch):
            for way in ways:
                if (i, way) not in answers:
                    continue
                counts["answers"] += 1
                by_op[d.name] += 1
                verdict = judge(answers[i, way], answers[i, way].got, said, way)
                if verdict is None:
                    continue
                word, text = verdict
                if word == "accepted" and not d.was_odd:
                    word = "alone"  # what the oracles lack, most likely
                counts[word] += 1
                key = (word, d.name, re.sub(r"[0-9.e+-]+", "#", text)[:60])
                groups[key].append(d.draw_seed)
                if word in shown and len(groups[key]) <= 1:
                    print(f"{word} {way} {d.name}-{d.since} seed {d.draw_seed} {d.was_odd[:2]}: {text[:330]}", flush=True)
                    if options.out:
                        good = next((v for v in said.values() if isinstance(v, dict)), {})
                        folder = pathlib.Path(options.out) / f"{word}_{d.name}_{d.draw_seed}"
                        shutil.rmtree(folder, ignore_errors=True)
                        good = {n: np.asarray(a) for n, a in good.items() if isinstance(a, np.ndarray) and a.dtype != object}
                        save_case(folder, case.model, [(case.inputs, {n: np.asarray(a) for n, a in good.items()})])
                break
    runner.close()
    shutil.rmtree(work, ignore_errors=True)
    print(json.dumps(dict(counts.most_common()), indent=1))
    if options.out:
        lines = [f"{len(s):5} {' '.join(k)} ({s[0]})" for k, s in sorted(groups.items(), key=lambda g: -len(g[1]))]
        pathlib.Path(options.out).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(options.out) / "groups.txt").write_text("\n".join(lines) + "\n")
    missing = [n for n in names if not by_op[n]]
    print("operators without an answer:", *missing)
    return 1 if sum(counts[w] for w in FAULTS) else 0


if __name__ == "__main__":
    sys.exit(main())
