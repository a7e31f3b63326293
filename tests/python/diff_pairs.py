#!/usr/bin/env python3
"""How much of what became of a model `optc diff` finds again, pair by pair.

  diff_pairs.py KIND MODEL.onnx... [--optc build/bin/optc] [--verbose]

KIND is `own` (the model and what `optc opt` makes of it, its names and notes replaced and its nodes in another order: the part of the
correspondences, which optc had noted at the nodes, that is found without them), `ort` (what ONNX Runtime's extended optimizations make of it),
`onnxslim`, or `exporters` (two models of one network): the part of the nodes of each side whose fate is told: they belong to a change which
has nodes of both sides, stand in the other model as constants, or are neutral. One line a pair; --verbose names what was not found."""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import edits
import onnx

OPTC = pathlib.Path(__file__).resolve().parents[2] / "build/bin/optc"


def diff(optc, a, b):
    return json.loads(subprocess.run([str(optc), "diff", str(a), str(b), "--format=json"], capture_output=True, text=True, check=True).stdout)


def correspondences(before, after):
    """Index of a node of B -> the nodes of A that it came from, by what optc noted at it."""
    names = {n.name or f"{n.op_type}_{i}" for i, n in enumerate(before.graph.node)}
    pairs = {}
    for index, node in enumerate(after.graph.node):
        if node.op_type == "Constant":
            continue
        origin = [e.value.split("\n") for e in node.metadata_props if e.key == "optc.origin"]
        known = set(origin[0] if origin else [node.name]) & names
        if known:
            pairs[index] = known
    return pairs


def own(optc, model, folder):
    """(correspondences, those that are not found: operator, origin and the group that the node is in) of a model and what `optc opt` makes of
    it, under other names and in another order."""
    subprocess.run([str(optc), "opt", str(model), "-o", str(folder / "opt.onnx"), "-q"], check=True)
    before, after = onnx.load(model, load_external_data=False), onnx.load(folder / "opt.onnx")
    pairs = correspondences(before, after)
    shuffled, order = edits.in_other_order(after, 1)
    scrambled, names = edits.scrambled(shuffled, 1)
    onnx.save(scrambled, folder / "b.onnx")
    del after.graph.initializer[:]
    groups = diff(optc, model, folder / "b.onnx")["groups"]
    group = {node["name"]: one for one in groups for node in one["after"]}
    missed = []
    for at, index in enumerate(order):
        if index in pairs and not pairs[index] & {n["name"] for n in group[names[at]]["before"]}:
            missed.append((after.graph.node[index].op_type, sorted(pairs[index]), group[names[at]]))
    return len(pairs), missed


def by_onnxruntime(model, target):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(target)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", target.name + ".data")
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def by_onnxslim(model, target):
    import onnxslim

    onnx.save(onnxslim.slim(str(model)), str(target))


PEERS = {"ort": by_onnxruntime, "onnxslim": by_onnxslim}


def explained(optc, a, b):
    """For each side (nodes, those that belong to no change with nodes of both sides, stand as a constant in the other one or are neutral)."""
    facts = diff(optc, a, b)

    def alone(own, others):
        return [n["op"] for g in facts["groups"] if not g[others] and g["evidence"] not in ("constant", "neutral") for n in g[own]]

    alone = alone("before", "after"), alone("after", "before")
    return [(facts["nodes_before"], alone[0]), (facts["nodes_after"], alone[1])]


def peer(optc, kind, model, folder):
    PEERS[kind](model, folder / "b.onnx")
    return explained(optc, model, folder / "b.onnx")


def share(total, missed):
    return 1 - len(missed) / total if total else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["own", *PEERS, "exporters"])
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--optc", default=OPTC, type=pathlib.Path)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    pairs = zip(options.models[::2], options.models[1::2]) if options.kind == "exporters" else ((m, None) for m in options.models)
    for a, b in pairs:
        with tempfile.TemporaryDirectory(prefix="optc_pairs_") as folder:
            folder = pathlib.Path(folder)
            if options.kind == "own":
                total, missed = own(options.optc, a, folder)
                sides = [(total, [m[0] for m in missed])]
            else:
                missed = []
                sides = explained(options.optc, a, b) if b else peer(options.optc, options.kind, a, folder)
        print(f"{a.stem:40s} " + "  ".join(f"{total - len(gone):6d} of {total:6d} = {100 * share(total, gone):5.1f} %" for total, gone in sides), flush=True)
        for total, gone in sides:
            if gone and options.verbose:
                print("    " + ", ".join(f"{n} {op}" for op, n in collections.Counter(gone).most_common(12)))
        for op, origin, group in missed[:20 if options.verbose else 0]:
            print(f"    {op} of {origin}: {json.dumps(group)[:300]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
