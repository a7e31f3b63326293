#!/usr/bin/env python3
"""ONNX's tests of single operators with an attribute or an operand that cannot be, or hardly ever is: edited.py [--seed N] [--seconds S] [--out DIR]

Attributes and integer operands get extreme values, lists other lengths, operands other ranks and sizes (as inputs or constants, with dims that are
open or not), and absent, surplus and misplaced operands. Each model must be refused in words, fail in words, or give an answer; what must not
happen: a crash, an internal error, a kernel that reads or writes where its operands do not reach (a bundle has no checks there: inference
must have refused), or that only the unfused Program gives an answer. Prints them, writes them to OUT. Exit code 1 when there is one.
"""

import argparse
import collections
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]
warnings.filterwarnings("ignore")

import export
import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper
from values import load_tensor, save_case

INTS = [-1, 0, 1, 2, 3, -2, -3, 5, 7, 99, -99, 255, 1000, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, -(2**62), 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, -1.0, 1e-45, 1e38, -1e38, float("inf"), float("-inf"), float("nan"), 0.5, 2.0]
TEXTS = ["", "x", "NOTSET", "VALID", "SAME_UPPER", "linear", "forward", "bidirectional", "a" * 5000]
LARGEST = 200_000  # bytes of all inputs of a test
SECONDS = 20  # for one model in all ways


class Edit:
    """One model of ONNX's tests, edited."""

    def __init__(self, r, model, values):
        self.r, self.model, self.values, self.words = r, onnx.ModelProto(), dict(values), []
        self.model.CopyFrom(model)
        self.node = r.choice(self.model.graph.node)
        for _ in range(r.choice([1, 1, 1, 2])):
            r.choice([self.attribute, self.operand, self.size, self.size, self.rank, self.kind, self.missing])()
        self.place()

    def say(self, text):
        self.words.append(f"{self.node.op_type} {text}"[:120])

    def attribute(self):
        """A value of the right kind that is extreme, or a list of another length."""
        r, node, attributes = self.r, self.node, {}
        version = next((o.version for o in self.model.opset_import if o.domain == node.domain), 1)
        if onnx.defs.has(node.op_type, node.domain):
            attributes = onnx.defs.get_schema(node.op_type, version, node.domain).attributes
        given = {a.name: a for a in node.attribute}
        names = sorted({*given, *attributes})
        if not names:
            return
        name = r.choice(names)
        kind = given[name].type if name in given else int(attributes[name].type.value)
        old = helper.get_attribute_value(given[name]) if name in given else []
        if kind == AttributeProto.INTS:
            value = list(old) or [1, 1]
            how = r.choice(["one", "all", "short", "long", "none", "alike"])
            if how == "one":
                value[r.randrange(len(value))] = r.choice(INTS)
            value = {"all": [r.choice(INTS)] * len(value), "short": value[:-1], "long": [*value, r.choice(INTS)], "none": [], "alike": value[:1] * len(value)}.get(how, value)
        elif kind == AttributeProto.FLOATS:
            value = [r.choice(FLOATS) for _ in range(r.choice([0, 1, 2, 5]))]
        elif kind == AttributeProto.STRINGS:
            value = [r.choice(TEXTS) for _ in range(r.choice([0, 1, 2, 5]))]
        elif kind == AttributeProto.TENSOR:
            value = numpy_helper.from_array(r.choice([np.zeros(0, np.float32), np.arange(6.0).reshape(2, 3), np.array([3])]))
        else:
            choices = {AttributeProto.INT: INTS, AttributeProto.FLOAT: FLOATS, AttributeProto.STRING: TEXTS}
            if kind not in choices:
                return
            value = r.choice(choices[kind])
        if name in given:
            node.attribute.remove(given[name])
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
        self.say(f"{name} = {str(value)[:60]}")

    def kind(self):
        """An attribute of another kind."""
        if self.node.attribute:
            attribute = self.r.choice(self.node.attribute)
            value = self.r.choice([1, 1.5, "s", [1, 2], [1.5], ["a"], numpy_helper.from_array(np.ones(2, np.float32))])
            self.node.attribute.remove(attribute)
            self.node.attribute.append(helper.make_attribute(attribute.name, value))
            self.say(f"{attribute.name} = {value!r:.40}")

    def missing(self):
        """An operand or a result that is absent, left out, of no value, or one too many."""
        names = self.node.input if self.r.random() < 0.7 else self.node.output
        how = self.r.choice(["absent", "left out", "of no value", "one more"])
        if how == "one more" or not names:
            names.append(self.r.choice(["", "nowhere", *self.node.input]))
        else:
            i = self.r.randrange(len(names))
            names[i] = "" if how == "absent" else "nowhere"
            if how == "left out":
                del names[i]
        self.say(how)

    def edited(self):
        """(name, value) of an input of numbers."""
        found = [(n, v) for n, v in self.values.items() if v.dtype.kind in "iufb" and v.size]
        return self.r.choice(found) if found else (None, np.zeros(0))

    def operand(self):
        name, value = self.edited()
        if name is None or value.dtype.kind == "b":
            return
        r, flat = self.r, value.ravel().copy()
        if value.dtype.kind == "f":
            flat[r.randrange(flat.size)] = r.choice(FLOATS)
        else:
            info = np.iinfo(value.dtype)
            new = r.choice([i for i in INTS if info.min <= i <= info.max])
            how = r.choice(["one", "all", "alike"])
            if how == "one":
                flat[r.randrange(flat.size)] = new
            else:
                flat[:] = new if how == "all" else flat[0]
        self.values[name] = flat.reshape(value.shape)
        self.say(f"{name} = {flat[:6]}")

    def size(self):
        """One dim shorter, longer, 1 or 0."""
        name, value = self.edited()
        if name is None or not value.ndim:
            return
        axis = self.r.randrange(value.ndim)
        n = value.shape[axis]
        self.values[name] = np.take(value, [i % n for i in range(self.r.choice([0, 1, n + 1, 2 * n, n - 1]))], axis)
        self.say(f"{name} of {self.values[name].shape}")

    def rank(self):
        name, value = self.edited()
        if name is None:
            return
        forms = [value[None], value.reshape(-1), value[..., None], value.reshape(-1)[0]]
        self.values[name] = np.array(self.r.choice(forms))
        self.say(f"{name} of {self.values[name].shape}")

    def place(self):
        """Operands that were edited as constants or inputs, dims declared or open."""
        r, graph = self.r, self.model.graph
        for declared in list(graph.input):
            value = self.values[declared.name]
            if r.random() < 0.3:
                graph.input.remove(declared)
                graph.initializer.append(numpy_helper.from_array(value, declared.name))
                del self.values[declared.name]
                continue
            dims = [f"{declared.name}_{k}" for k in range(value.ndim)] if r.random() < 0.4 else list(value.shape)
            declared.CopyFrom(helper.make_tensor_value_info(declared.name, declared.type.tensor_type.elem_type, dims))
        for result in graph.output:
            if r.random() < 0.8 and result.type.HasField("tensor_type"):
                result.type.tensor_type.ClearField("shape")


def sources():
    """(name, model, values of the inputs) of ONNX's tests of tensors alone."""
    folder = export.cache_folder()
    for name in export.export(folder)["tests"]:
        model = onnx.load(folder / name / "static.onnx")
        paths = [folder / name / "static" / "set_0" / f"input_{i}.pb" for i in range(len(model.graph.input))]
        if not model.graph.node or not all(p.exists() for p in paths) or sum(p.stat().st_size for p in paths) > LARGEST:
            continue
        if not all(i.type.HasField("tensor_type") for i in model.graph.input):
            continue
        try:
            values = [load_tensor(p) for p in paths]
        except ValueError:  # a type that numpy lacks
            continue
        yield name, model, dict(zip((i.name for i in model.graph.input), values))


class Evaluator:
    def __init__(self, binaries):
        command = [str(binaries / "optc_random"), "--timeout", str(SECONDS)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace")

    def ask(self, folder):
        """{way: (word, text)}; "end" is there where the process ended without all answers."""
        self.process.stdin.write("\t".join(["0", str(folder / "model.onnx"), str(folder / "test_data_set_0"), str(folder), "unfused,eval,opt"]) + "\n")
        self.process.stdin.flush()
        said = {}
        for line in self.process.stdout:
            _, way, word, text = line.rstrip("\n").split("\t", 3)
            if way == "end":
                if word in ("crash", "timeout"):
                    said[way] = word, text
                break
            if way != "cells":
                said[way] = word, text
        return said


def fault(said):
    """What is wrong, or an empty text."""
    if "end" in said:  # a model may ask for work without end (a loop of 2^60 steps), so that is no fault
        return " ".join(said["end"]) if said["end"][0] == "crash" else ""
    for way, (word, text) in said.items():
        if word == "internal":
            return f"{way}: {text}"
        if re.search(r"out of range for dimension \d+ \(of", text):
            return f"{way}, where inference must refuse: {text}"
    words = [said[w][0] for w in ("unfused", "eval") if w in said]
    # A rule may know the one size that an operand can ask for, and no longer read the operand: then a run that asks for another ends well.
    # It may know too that a run cannot succeed, or which sizes can: then the words are others.
    differ = len(words) == 2 and words[0] != words[1] and words != ["fault", "ok"] and not (words[0] == "fault" and words[1] in ("invalid", "usage"))
    return f"unfused: {words[0]}, eval: {words[1]}" if differ else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("edited_found"))
    parser.add_argument("--binaries", type=pathlib.Path, default=HERE.parents[1] / "build" / "bin")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    r, cases, evaluator = random.Random(arguments.seed), list(sources()), Evaluator(arguments.binaries)
    counts, found, begun = collections.Counter(), 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="optc_edited_", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as work:
        while time.monotonic() - begun < arguments.seconds:
            name, model, values = r.choice(cases)
            edit = Edit(random.Random(r.random()), model, values)
            if not edit.words:
                continue
            folder = pathlib.Path(work) / "case"
            shutil.rmtree(folder, ignore_errors=True)
            save_case(folder, edit.model, [(edit.values, {})])
            said = evaluator.ask(folder)
            counts["/".join(sorted({word for word, _ in said.values()}))] += 1
            if text := fault(said):
                found += 1
                print(f"WRONG {name}, {'; '.join(edit.words)}: {text}"[:500], flush=True)
                shutil.copytree(folder, arguments.out / f"{name}_{found}", dirs_exist_ok=True)
    print(f"{sum(counts.values())} edited models: " + ", ".join(f"{k} {v}" for k, v in counts.most_common()))
    print(f"{sum(counts.values()) - found} passed, {found} failed")
    return 1 if found or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
