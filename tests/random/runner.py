"""Runs models through optc in several ways and says what is wrong with the answers."""

import dataclasses
import os
import pathlib
import shutil
import subprocess

import numpy as np
import onnx

from compare import Judge, Spread, coarser, difference
from oracle import Oracle, Reject
from values import BF16, F16, F32, F64, load_tensor, save_case

EVALUATED = ("unfused", "eval", "gpu", "f16", "bf16", "opt")
GPU_TARGETS = {"ptx": "sm_80", "ptx-sm_90a": "sm_90a", "card": "sm_90a"}
STORAGE = {"f16": F16, "bf16": BF16}
JOB_SECONDS = 60  # for one model, compiling of many bundles aside
UNIT_SECONDS = 1800


def sanitizer_libraries():
    """The sanitizers' libraries of the compiler that compiles the bundles, for LD_PRELOAD."""
    for name in ("libasan.so", "libubsan.so"):
        yield subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()


@dataclasses.dataclass
class Case:
    """A model with its inputs and right outputs; `graph` judges what is not close."""

    graph: object
    model: onnx.ModelProto
    inputs: dict
    wanted: dict
    folder: pathlib.Path = None
    cells: frozenset = frozenset()  # what it reaches (coverage.cc), where that was asked
    spread: dict = None  # how far outputs move with inputs that are a little off, where no graph can say it

    def judge(self, way):
        """Who says whether a result that is not close is no fault; None where nobody does."""
        if self.graph:
            return Judge(self.graph, STORAGE.get(way), way.startswith("bundle"))
        return Spread(self.spread) if self.spread else None


def load_case(folder, number=0):
    """A data set of a case that was written, without its graph: differences are judged by spread_NUMBER.npz, where that is, else by the
    tolerance of the type alone."""
    model = onnx.load(folder / "model.onnx")
    values = []
    for kind, named in (("input", model.graph.input), ("output", model.graph.output)):
        paths = {v.name: folder / f"test_data_set_{number}" / f"{kind}_{i}.pb" for i, v in enumerate(named)}
        values.append({name: load_tensor(path) for name, path in paths.items() if path.exists()})
    spread = folder / f"spread_{number}.npz"
    return Case(None, model, *values, spread=dict(np.load(spread)) if spread.exists() else None)


@dataclasses.dataclass
class Failure:
    way: str
    word: str  # wrong, crash, timeout, build, or the kind of optc's error
    text: str
    output: str = ""  # the first that is wrong
    got: object = None

    def is_like(self, other):
        return self.way == other.way and self.word == other.word


@dataclasses.dataclass
class Answer:
    """Of one case in one way."""

    failure: Failure = None
    unsupported: str = ""
    excused: list = dataclasses.field(default_factory=list)  # (class, text) of differences that are no faults


class Runner:
    """Keeps the evaluating program at hand. Not thread-safe; one a process."""

    def __init__(self, binaries, work, compiler="g++", optimize=1):
        """`compiler` and its level `optimize` build the bundles."""
        self.binaries, self.work, self.process = pathlib.Path(binaries), pathlib.Path(work), None
        self.built_by = ["--compiler", compiler, "--optimize", str(optimize)]
        self.work.mkdir(parents=True, exist_ok=True)
        self.cells = set()  # what the last call covered
        self.number = 0
        self.oracle = Oracle()  # of optimized models

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
            self.process = None

    def place(self, case):
        self.number += 1
        case.folder = self.work / f"case_{self.number}"
        save_case(case.folder, case.model, [(case.inputs, case.wanted)])

    def run(self, cases, ways):
        """{(index of the case, way): Answer}."""
        for case in cases:
            self.place(case)
        self.cells = set()
        answers = {}
        evaluated = [w for w in ways if w in EVALUATED]
        if evaluated:
            for i, case in enumerate(cases):
                for way, answer in self.evaluate(case, evaluated).items():
                    answers[i, way] = answer
        for way in ways:
            if way not in EVALUATED:
                answers.update({(i, way): a for i, a in self.bundles(cases, way).items()})
        for case in cases:
            shutil.rmtree(case.folder, ignore_errors=True)
        return answers

    # --- on the evaluator
    def evaluate(self, case, ways):
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [str(self.binaries / "optc_random"), "--timeout", str(JOB_SECONDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
            )
        folder = case.folder
        self.process.stdin.write(
            "\t".join(["0", str(folder / "model.onnx"), str(folder / "test_data_set_0"), str(folder), ",".join(ways)]) + "\n"
        )
        self.process.stdin.flush()
        said, end = {}, ("crash", "the program ended")
        for line in self.process.stdout:
            _, way, word, text = line.rstrip("\n").split("\t", 3)
            if way == "end":
                end = (word, text)
                break
            said[way] = (word, text)
        self.cells.update(said.pop("cells", ("", ""))[1].split())
        answers = {}
        for way in ways:
            word, text = said.get(way, end)
            answers[way] = self.answer(case, way, word, text)
            if way not in said:  # the first without an answer is the one that crashed; those behind it did not run
                break
        return answers

    # --- as bundles
    def bundles(self, cases, way):
        """`way` is bundle, or bundle-base, bundle-avx2, bundle-avx512, bundle-vnni, bundle-amx, bundle-asan; ptx,
        ptx-sm_90a or card."""
        environment, command = dict(os.environ), [str(self.binaries / "optc_conformance_bundles"), "--timeout", str(JOB_SECONDS), *self.built_by]
        if way == "bundle-asan":
            command.append("--sanitize")
            environment["LD_PRELOAD"] = " ".join(sanitizer_libraries())
            # g++ 13 does not align vectors of 64 bytes in the stack frames that it keeps for uses after a return.
            environment["ASAN_OPTIONS"] = "detect_leaks=0:abort_on_error=1:detect_stack_use_after_return=0"
        elif way.startswith("bundle-"):
            environment["OPTC_ISA"] = way.removeprefix("bundle-")
        if way in GPU_TARGETS:
            command += ["--target", GPU_TARGETS[way]]
        if way.startswith("ptx"):
            places = [self.binaries / "libemulated_cuda.so", self.binaries.parent / "tests/libemulated_cuda.so"]
            environment["OPTC_LIBCUDA"] = str(next(p for p in places if p.exists()))
        lines, paths = [], {}
        for i, case in enumerate(cases):
            out = case.folder / way
            out.mkdir()
            model = paths.setdefault(case.model.SerializeToString(deterministic=True), case.folder / "model.onnx")  # compiled once for all its sizes
            lines.append("\t".join([str(i), str(model), str(case.folder / "test_data_set_0"), str(out)]))
        try:
            done = subprocess.run(
                command,
                input="\n".join(lines) + "\n",
                capture_output=True,
                text=True,
                errors="replace",
                env=environment,
                timeout=UNIT_SECONDS,
            ).stdout
        except subprocess.TimeoutExpired:
            return {i: Answer(Failure(way, "timeout", "the unit did not compile in time")) for i in range(len(cases))}
        said = {int(p[0]): p[1:] for p in (line.split("\t", 2) for line in done.splitlines()) if len(p) == 3 and p[0].isdigit()}
        return {i: self.answer(case, way, *said.get(i, ("crash", "no answer"))) for i, case in enumerate(cases)}

    # --- judging
    def answer(self, case, way, word, text):
        if word == "unsupported":
            return Answer(unsupported=text)
        if word != "ok":
            return Answer(Failure(way, word, text))
        try:
            got = self.outputs(case, way)
        except WrongModel as error:
            return Answer(Failure(way, "wrong", str(error)))
        except Reject as error:
            return Answer(unsupported=f"no oracle runs the optimized model: {error}")
        except Exception as error:
            return Answer(Failure(way, "wrong", f"the outputs cannot be read: {error!r}"[:400]))
        if way == "opt" and any(difference(want, got[name], F32) for name, want in case.wanted.items()):
            # Its kernels may be to blame as those of the model itself: node by node they are replaced as there.
            try:
                got = self.outputs(case, way, by_node=True)
            except Exception:  # what the model as a whole gave is judged
                pass
        result = Answer()
        judge, followed = None, {}
        for name, want in in_order(case):
            known_to = STORAGE.get(way)
            if case.graph and name in case.graph.single or way == "opt" and want.dtype == F64:
                known_to = coarser(F32, known_to)
            text = difference(want, got[name], known_to)
            if not text:
                continue
            if way == "f16" and case.graph and beyond_f16(case.graph):
                result.excused.append(("beyond the range of f16", f"{name}: {text}"))
                continue
            judge = judge or case.judge(way)
            excuse = judge and judge.excuse(name, want, got[name], known_to)
            if excuse is None and name in followed and not difference(followed[name], got[name], known_to):
                excuse = "step"  # what follows from another side of the steps before it
            if excuse:
                result.excused.append((excuse, f"{name}: {text}"))
                followed = judge.follow(name, got[name])
                continue
            result.failure = Failure(way, "wrong", f"{name}: {text}", name, got[name])
            break
        return result

    def outputs(self, case, way, by_node=False):
        names = [o.name for o in case.model.graph.output]
        if way != "opt":
            prefix = case.folder / way if way in EVALUATED else case.folder / way / "output"
            return {n: load_tensor(pathlib.Path(f"{prefix}_{i}.pb")) for i, n in enumerate(names)}
        model = onnx.load(case.folder / "opt.onnx")
        try:
            onnx.checker.check_model(model)
        except Exception as error:
            raise WrongModel(f"checker: {error}"[:300]) from None
        if [o.name for o in model.graph.output] != names or [i.name for i in model.graph.input] != [i.name for i in case.model.graph.input]:
            raise WrongModel("other inputs or outputs than the model")
        return self.oracle.run_model(model, case.inputs, case.model, by_node or case.graph and ends_a_process(case.graph))


def in_order(case):
    """(name, right value) of the outputs, those before whose results they may follow from."""
    made = [o for node, _ in case.graph.nodes for o in node.output] if case.graph else []
    place = {name: i for i, name in enumerate(made)}
    return sorted(case.wanted.items(), key=lambda item: place.get(item[0], -1))


def ends_a_process(graph):
    """Whether ONNX Runtime might, with a node that the oracle therefore does not give it (oracle.defined)."""
    return any(node.op_type == "Einsum" and any(graph.value(n).size == 0 for n in reads) for node, reads in graph.nodes)


def beyond_f16(graph):
    """Whether an f32 value of the graph does not fit into 16 bits: an infinity takes its place, or a value beside it."""
    with np.errstate(all="ignore"):
        return any(a.dtype == F32 and a.size and (np.abs(a[np.isfinite(a)]) > 65504).any() for a in graph.v.values())


class WrongModel(Exception):
    """What `opt` wrote is not a model of the same interface."""
