"""Random graphs under --quantize-weights: a graph as `optc opt` writes it with its weights in 8 or 4 bits, whose every value the oracle computes
anew. It is a graph as any other then: cut down, judged and run in all ways."""

import collections
import copy
import pathlib
import random
import re
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

from graph import captures, refuse_undefined
from oracle import Reject

FORMATS = ("int8", "int8:32", "int4", "int4:64")
SECONDS = 120


class Fault(Exception):
    """`optc opt` ended in a way that it may not."""


def as_written(graph, outputs, binary, form):
    """The model's path aside: (model, whether any weight was quantized); None where optc does not take the graph, which the other ways say."""
    model, _, _ = graph.build(graph.nodes, outputs)
    with tempfile.TemporaryDirectory(prefix="optc_quantize_") as folder:
        before, after = pathlib.Path(folder) / "model.onnx", pathlib.Path(folder) / "quantized.onnx"
        before.write_bytes(model.SerializeToString())
        command = [str(binary), "opt", str(before), "-o", str(after), "-O0", f"--quantize-weights={form}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise Fault(f"--quantize-weights={form} did not end in {SECONDS} s") from None
        said = done.stdout + done.stderr
        if done.returncode == 4:
            return None
        if done.returncode:
            raise Fault(f"--quantize-weights={form} ended with {done.returncode}: {said[-300:]}")
        count = re.search(r"(\d+) of \d+ weights of products", said)
        return onnx.load(after), bool(count and int(count[1]))


def quantized(graph, outputs, binary, form=None):
    """The graph with its weights quantized; None where it has none. `form`: one of FORMATS, else one by the graph's seed. Raises Fault, and Reject
    where no oracle runs what was written."""
    form = form if form in FORMATS else random.Random(f"{graph.seed} form").choice(FORMATS)
    written = as_written(graph, outputs, binary, form)
    if written is None or not written[1]:
        return None
    model = written[0]
    onnx.checker.check_model(model)
    g = copy.copy(graph)
    g.v, g.kind, g.sequences, g.nodes, g.who = {}, {}, {}, [], dict(graph.who)
    g.uses, g.operators, g.declared = collections.Counter(), collections.Counter(), dict(graph.declared)
    g.opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    g.ir_version = max(g.ir_version, model.ir_version)
    for name, kind in graph.kind.items():  # as they were: also defaults that the caller replaces
        if kind != "node":
            g.v[name], g.kind[name] = graph.v[name], kind
    for tensor in model.graph.initializer:
        if tensor.name not in g.v:
            g.v[tensor.name], g.kind[tensor.name] = numpy_helper.to_array(tensor), "const"
    for node in model.graph.node:
        reads = list(dict.fromkeys(captures(node)))
        feeds = {n: g.value(n) for n in reads}
        refuse_undefined(node, feeds)
        values, who = g.oracle.run(node, feeds, g.opset, g.ir_version)
        for name, value in zip((o for o in node.output if o), values):
            if isinstance(value, list):
                g.sequences[name] = value
            else:
                g.v[name], g.kind[name], g.who[name] = np.asarray(value), "node", who
        g.uses.update(reads)
        g.operators[node.op_type] += 1
        g.nodes.append((node, reads))
    if any(o not in g.v for o in outputs):
        raise Reject
    return g
