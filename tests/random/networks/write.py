#!/usr/bin/env python3
"""Writes random networks of PyTorch's layers as cases: write.py FOLDER [--seed N] [--count N] [--jobs N].

Needs torch, onnx, onnxscript and onnxruntime, which tests/requirements.txt does not have all. A network follows from its seed alone: its
layers (layers_pictures.py, layers_sequences.py), the exporter, the opset, which dims are open, the float type, and whether ONNX Runtime's
quantizers have it then. A case is a folder in the layout of the ONNX backend tests, with the answers of ONNX Runtime without optimizations at
one to three sizes, and the distances spread_K.npz by which these answers move when the inputs do by some roundings. run.py reads it.
"""

import argparse
import copy
import logging
import multiprocessing
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np
import onnx
import onnxruntime
import torch
from build import grow
from values import save_case

SCRIPT, DYNAMO = [11, 12, 13, 14, 15, 16, 17, 18, 20], [18, 20, 21, 22, 23]
OPEN = {"picture": [0, 2, 3], "line": [0, 2], "tokens": [0, 1], "volume": [0, 3]}
SAMPLES = 6
NOISE = {"f32": 1e-6, "f64": 1e-14, "f16": 1e-3}  # of an input, relative; what quantizers made is asked with a step's
SECONDS = 90  # for one network


def session(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def exported(network, inputs, exporter, opset, axes, path):
    names = [f"in{i}" for i in range(len(inputs))]
    if exporter == "script":
        dynamic = {n: {a: f"d{i}_{a}" if a else "batch" for a in ax} for i, (n, ax) in enumerate(zip(names, axes)) if ax}
        torch.onnx.export(network, tuple(inputs), str(path), opset_version=opset, dynamo=False, input_names=names, dynamic_axes=dynamic)
    else:
        # A module of *args is one argument to torch.export; this one names them.
        space = {"torch": torch}
        given = ", ".join(names)
        exec(f"class Named(torch.nn.Module):\n def __init__(s, m):\n  super().__init__(); s.m = m\n def forward(s, {given}): return s.m({given})", space)
        shapes = tuple({a: torch.export.Dim.DYNAMIC for a in ax} if ax else None for ax in axes) if any(axes) else None
        program = torch.onnx.export(space["Named"](network).eval(), tuple(inputs), opset_version=opset, dynamo=True, verbose=False, dynamic_shapes=shapes)
        program.save(str(path), external_data=False)
    return onnx.load(path)


def quantized(r, path, inputs, words):
    """The model as one of ONNX Runtime's quantizers leaves it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    out, ready = path.with_name("quantized.onnx"), path.with_name("ready.onnx")
    quant_pre_process(str(path), str(ready), skip_symbolic_shape=True, skip_optimization=r.random() < 0.5)
    weights, channels = r.choice([QuantType.QInt8, QuantType.QUInt8]), r.random() < 0.5
    if r.random() < 0.35:
        words.append(f"quantize_dynamic {weights} {'by channel' if channels else ''}")
        quantize_dynamic(str(ready), str(out), per_channel=channels, weight_type=weights)
        return onnx.load(out)

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = [{f"in{i}": t.numpy() * s for i, t in enumerate(inputs)} for s in (1.0, 0.8, 1.1)]

        def get_next(self):
            return self.left.pop() if self.left else None

    form, activations = r.choice([QuantFormat.QDQ, QuantFormat.QDQ, QuantFormat.QOperator]), r.choice([QuantType.QUInt8, QuantType.QInt8])
    if activations == QuantType.QInt8:  # bytes without a sign times such with one are the only mixed pair
        weights = QuantType.QInt8
    words.append(f"quantize_static {form} {activations} {weights} {'by channel' if channels else ''}")
    quantize_static(str(ready), str(out), Reader(), quant_format=form, per_channel=channels, activation_type=activations, weight_type=weights,
                    extra_options={"ActivationSymmetric": r.random() < 0.3, "AddQDQPairToWeight": r.random() < 0.3})  # fmt: skip
    return onnx.load(out)


def sizes_of(r, net, axes):
    """Shapes of the inputs at other sizes of the open dims: all batches alike."""
    n = r.choice([1, 2, 3])
    shapes = []
    for value, ax in zip(net.inputs, axes):
        shape = list(value.shape)
        for a in ax:
            shape[a] = n if a == 0 else max(1, shape[a] + r.choice([-3, -1, 1, 2, 4, 6]))
        shapes.append(shape)
    return shapes


def answers(run, feeds, noise, draw):
    """The outputs, and how far they move at most when the inputs do a little; None where a size is none for this model."""
    try:
        right = run.run(None, feeds)
    except Exception:
        return None
    spread = [np.zeros(a.shape) for a in right]
    for _ in range(SAMPLES):
        moved = {k: (a + a * draw.uniform(-noise, noise, a.shape)).astype(a.dtype) for k, a in feeds.items()}
        for s, a, b in zip(spread, right, run.run(None, moved)):
            if a.shape == b.shape:
                with np.errstate(all="ignore"):
                    np.fmax(s, np.abs(b.astype(np.float64) - a.astype(np.float64)), out=s)
            else:
                s[...] = np.inf
    return right, spread


def write(folder, seed):
    """One network; a line about it."""
    net = grow(seed)
    if not net.steps:
        return "empty"
    r = net.r
    network = net.network().eval()
    exporter = r.choice(["script", "script", "dynamo"])
    opset = r.choice(SCRIPT if exporter == "script" else DYNAMO)
    kind = r.choice(["f32"] * 9 + ["f16"] * 2 + ["f64"])
    opened = r.random() < 0.5
    axes = [OPEN[k] if opened else [] for k in net.kinds[: len(net.inputs)]]
    if exporter == "dynamo":  # dims of 1 are no open ones to it
        axes = [[a for a in ax if v.shape[a] > 1] for v, ax in zip(net.inputs, axes)]
    quantize = kind == "f32" and r.random() < 0.25
    inputs = net.inputs
    if kind != "f32":
        kind_of = {"f16": torch.float16, "f64": torch.float64}[kind]
        network, inputs = copy.deepcopy(network).to(kind_of), [t.to(kind_of) for t in inputs]
    work = pathlib.Path(tempfile.mkdtemp(prefix="optc_network_"))
    words = [f"{exporter} {opset} {kind}{' open' if opened else ''}", *net.words]
    try:
        try:
            model = exported(network, inputs, exporter, opset, axes, work / "model.onnx")
        except torch.onnx.errors.UnsupportedOperatorError:  # of an opset that lacks an operator
            words[0] += " as 18"
            model = exported(network, inputs, exporter, 18, axes, work / "model.onnx")
        if quantize:
            model = quantized(r, work / "model.onnx", inputs, words)
        run, draw, sets, spreads = session(model), np.random.default_rng(seed), [], []
        shapes = [[list(t.shape) for t in inputs]] + ([sizes_of(r, net, axes) for _ in range(2)] if any(axes) else [])
        for k, of in enumerate(shapes):
            given = [t.numpy() if k == 0 else draw.normal(0, 1, s).astype(t.numpy().dtype) for t, s in zip(inputs, of)]
            feeds = {i.name: given[int(i.name.removeprefix("in"))] for i in run.get_inputs()}
            found = answers(run, feeds, 2e-3 if quantize else NOISE[kind], draw)
            if found is None and k == 0:
                return f"ONNX Runtime does not run it: {' '.join(words)}"
            if found:
                outputs = [o.name for o in run.get_outputs()]
                sets.append((feeds, dict(zip(outputs, found[0]))))
                spread = [np.broadcast_to(s.max(initial=0), s.shape) for s in found[1]] if quantize else found[1]
                spreads.append(dict(zip(outputs, spread)))
        save_case(folder, model, sets)
        for k, spread in enumerate(spreads):
            np.savez_compressed(folder / f"spread_{k}.npz", **spread)
        (folder / "layers.txt").write_text("\n".join(words) + "\n")
        return f"{len(sets)} sizes, {len(model.graph.node)} nodes: {' '.join(words)}"
    finally:
        shutil.rmtree(work, ignore_errors=True)


def work(seeds, out):
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    torch.onnx.export(torch.nn.Linear(2, 2), (torch.randn(2, 2),), dynamo=True, verbose=False)  # once for all networks
    for seed in seeds:
        if (out / str(seed)).exists():
            continue
        reads, writes = os.pipe()
        child = os.fork()  # an exporter may end its process
        if child == 0:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1), os.dup2(null, 2)
            signal.alarm(SECONDS)
            try:
                text = write(out / str(seed), seed)
            except BaseException as error:
                text = f"not exported: {type(error).__name__} {error}"
            os.write(writes, text.replace("\n", " ").encode()[:400])
            os._exit(0)
        os.close(writes)
        text = os.read(reads, 1000).decode(errors="replace")
        os.close(reads)
        _, status = os.waitpid(child, 0)
        print(seed, text or f"not exported: ended by {status}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"seed {arguments.seed}", flush=True)
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    jobs = [multiprocessing.Process(target=work, args=(seeds[k :: arguments.jobs], arguments.out)) for k in range(arguments.jobs)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    print(f"{len(list(arguments.out.glob('*/model.onnx')))} networks in {arguments.out}")


if __name__ == "__main__":
    main()
