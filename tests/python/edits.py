"""Edits of a model, one at a time, and a model said in other words: what `optc diff` is tested with.

Each edit is one of a kind (attribute, weight, edge, type) at a place drawn at random; it returns what a reader should be told: the kind of
the change, the index of the node in the graph (None: an input or output of the model) and texts that the line must hold."""

import random
import string

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

KINDS = ("attribute", "weight", "edge", "type")


def edit_attribute(model, rng):
    nodes = model.graph.node
    places = [(i, a) for i, n in enumerate(nodes) if n.op_type not in ("Constant", "Identity") for a in n.attribute
              if a.type in (onnx.AttributeProto.INT, onnx.AttributeProto.INTS, onnx.AttributeProto.FLOAT) and (a.ints or not a.type == onnx.AttributeProto.INTS)]
    if not places:
        return None
    index, attribute = rng.choice(places)
    if attribute.type == onnx.AttributeProto.INT:
        attribute.i += 1
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = attribute.f * 2 + 1
    else:
        attribute.ints[rng.randrange(len(attribute.ints))] += 1
    return {"kind": "attribute", "nodes": [index], "says": ["attribute " + attribute.name]}


def behind_copies(graph, name):
    """The names under which a value stands: its own and those of Identity nodes that copy it."""
    names = {name}
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in names:
            names.add(node.output[0])
    return names


def edit_weight(model, rng):
    graph = model.graph
    places = [t for t in graph.initializer if t.data_type == TensorProto.FLOAT and np.prod(t.dims) > 1
              and any(n.op_type != "Identity" and behind_copies(graph, t.name) & set(n.input) for n in graph.node)]
    if not places:
        return None
    tensor = rng.choice(places)
    values = numpy_helper.to_array(tensor).copy()
    count = rng.randint(1, min(5, values.size))
    step = float(2 ** rng.randint(0, 6))
    flat = values.reshape(-1)
    for at in rng.sample(range(values.size), count):
        flat[at] += np.float32(step)
    names = behind_copies(graph, tensor.name)
    readers = [i for i, n in enumerate(graph.node) if n.op_type != "Identity" and names & set(n.input)]
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return {"kind": "weight", "nodes": readers, "says": [f"{count} of {values.size} values differ"], "largest": step}


def edit_edge(model, rng):
    """An operand becomes another value that is made before the node by another node (never a constant, never a copy of the same)."""
    graph = model.graph
    made, places = [], []
    for index, node in enumerate(graph.node):
        if node.op_type not in ("Identity", "Constant") and made:
            for k, name in enumerate(node.input):
                if name in made:
                    others = [v for v in made if v not in node.input and v != name]
                    if others:
                        places.append((index, k, others))
        if node.op_type not in ("Identity", "Constant"):
            made += [v for v in node.output if v]
    if not places:
        return None
    index, k, others = rng.choice(places)
    old, new = graph.node[index].input[k], rng.choice(others)
    graph.node[index].input[k] = new
    return {"kind": "edge", "nodes": [index], "says": [f"input {k}"], "from": old, "to": new}


def edit_type(model, rng):
    graph = model.graph
    casts = [i for i, n in enumerate(graph.node) if n.op_type == "Cast"]
    infos = {v.name: v for v in graph.value_info if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    inner = [i for i, n in enumerate(graph.node) if n.op_type != "Constant" and n.output[0] in infos]
    ways = ["input"] + ["cast"] * bool(casts) + ["inner"] * bool(inner)
    way = rng.choice(ways)
    if way == "cast":
        index = rng.choice(casts)
        to = graph.node[index].attribute[0]
        to.i = TensorProto.DOUBLE if to.i != TensorProto.DOUBLE else TensorProto.FLOAT
        return {"kind": "attribute", "nodes": [index], "says": ["attribute to", "f64"]}
    if way == "inner":
        index = rng.choice(inner)
        infos[graph.node[index].output[0]].type.tensor_type.elem_type = TensorProto.DOUBLE
        return {"kind": "type", "nodes": [index], "says": ["f32", "f64"]}
    initial = {t.name for t in graph.initializer}
    value = rng.choice([v for v in graph.input if v.name not in initial])
    kind = value.type.tensor_type
    kind.elem_type = TensorProto.DOUBLE if kind.elem_type != TensorProto.DOUBLE else TensorProto.FLOAT
    return {"kind": "input", "nodes": None, "says": ["f64" if kind.elem_type == TensorProto.DOUBLE else "f32"]}


EDITS = {"attribute": edit_attribute, "weight": edit_weight, "edge": edit_edge, "type": edit_type}


def scrambled(model, seed, outer=True):
    """The same model under other names: nodes, values and weights have random ones, notes are gone. With `outer` inputs and outputs too.
    Returns it and the new names of its nodes, in order."""
    rng = random.Random(seed)
    model = onnx.ModelProto.FromString(model.SerializeToString())
    taken, names = set(), {}

    def fresh():
        while True:
            name = "".join(rng.choices(string.ascii_lowercase, k=8))
            if name not in taken:
                taken.add(name)
                return name

    def renamed(name, kept):
        if not name or name in kept:
            return name
        return names.setdefault(name, fresh())

    def walk(graph, kept):
        for node in graph.node:
            node.name = fresh()
            node.doc_string = ""
            del node.metadata_props[:]
            for field in (node.input, node.output):
                field[:] = [renamed(name, kept) for name in field]
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    walk(attribute.g, kept)
        for field in (graph.input, graph.output, graph.initializer, graph.value_info):
            for item in field:
                item.name = renamed(item.name, kept)
                del item.metadata_props[:]

    graph = model.graph
    walk(graph, set() if outer else {v.name for v in [*graph.input, *graph.output]})
    graph.name, model.producer_name, model.doc_string = "g", "", ""
    del model.metadata_props[:]
    return model, [n.name for n in graph.node]


def in_other_order(model, seed):
    """The same model with its nodes in another order that is right, and where each stood before."""
    rng = random.Random(seed)
    model = onnx.ModelProto.FromString(model.SerializeToString())
    nodes = list(model.graph.node)
    made = {v: i for i, n in enumerate(nodes) for v in n.output if v}

    def reads(graph_node):
        for name in graph_node.input:
            yield name
        for attribute in graph_node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                for inner in attribute.g.node:
                    yield from reads(inner)
                yield from (o.name for o in attribute.g.output)

    waits = [{made[v] for v in reads(n) if v in made} for n in nodes]
    order, done, ready = [], set(), [i for i, w in enumerate(waits) if not w]
    while ready:
        i = ready.pop(rng.randrange(len(ready)))
        order.append(i)
        done.add(i)
        ready += [k for k in range(len(nodes)) if k not in done and k not in ready and k not in order and waits[k] <= done]
    del model.graph.node[:]
    model.graph.node.extend(nodes[i] for i in order)
    return model, order


def small(path, nodes, inputs, outputs, initializers=(), opsets=(("", 17),), **more):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers), **more)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets], ir_version=8), path)
    return path
