#!/usr/bin/env python3
"""Differential testing with random graphs (README.md beside this file).

  run.py [--seed N] [--count N] [--seconds S] [--jobs N] [--ways unfused,eval,opt] [--out DIR] [--binaries DIR]
         [--spread K] [--with ADDER,...] [--quantize FORMAT] [--save DIR] [--stop]

Ways: unfused, eval, gpu, f16, bf16 (on the evaluator), opt (the optimized model, run by ONNX Runtime), bundle (as this machine takes
it), bundle-base, bundle-avx2, bundle-avx512, bundle-vnni, bundle-amx, bundle-asan (with sanitizers for
addresses and undefined behaviour), ptx and ptx-sm_90a (a GPU bundle on the emulator), card (on an NVIDIA card). Without --seed a fresh one is drawn
and printed. Ends after --count graphs or --seconds, whichever comes first; where a cell of --cells was not reached, it goes on up to
5000 graphs. Failing graphs are cut down and written to OUT/NAME in the layout of the ONNX backend tests, with why.txt; OUT/summary.json
has the counts. Exit code 1 when something is wrong or a cell was never reached.
"""

import argparse
import collections
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
warnings.filterwarnings("ignore")

FOR_CELLS = 10000  # graphs until a cell counts as one that is not reached
# What is drawn often, when the time is over, for cells that were not reached by then: functions of the registry by the strategy's name.
REACHES = {
    "gemm.i8": {"qmatmul", "dynamic_quantized_product"},
    "gemm.blocks": {"quantized_weights"},
    "gemm.stored": {"stored_product"},
    "gemm": {"strategies_of_products"},
    "conv": {"strategies_of_convolutions"},
    "rnn": {"rnn"},
    "attention": {"attention"},
}
SPREAD_OVER = 4  # graphs that are grown for one that --spread keeps, about
KEPT_OF_A_KIND = 2  # failing cases that are written, of those that look alike


# A way that fails as one of these does has nothing of its own to say.
ECHOES = {
    "eval": ["unfused"],
    "opt": ["unfused"],
    "gpu": ["unfused", "eval"],
    "f16": ["unfused", "eval"],
    "bf16": ["unfused", "eval", "f16"],
}


def is_echo(answers, i, way, earlier):
    first, second = (answers.get((i, w)) for w in (earlier, way))
    return first and first.failure and first.failure.word == second.failure.word and first.failure.output == second.failure.output


KNOWN = json.loads((HERE / "known.json").read_text())


def known_fault(case, failure):
    """The reason that known.json gives, or None."""
    nodes = " ".join(f"{n.op_type}({len(n.input)}{''.join(f' {a.name}' for a in n.attribute)})" for n in case.model.graph.node)
    words = f"{failure.word} {failure.text} of {nodes}"
    return next((reason for pattern, reason in KNOWN.items() if re.search(pattern, words)), None)


def signature(case, failure):
    """What makes two failures look alike: operators for wrong values, else the words without numbers and names."""
    if failure.word == "wrong":
        return f"{failure.way} wrong " + " ".join(n.op_type for n in case.model.graph.node if n.op_type != "Constant")
    return f"{failure.way} {failure.word} " + re.sub(r"\d+", "#", re.sub(r"'[^']*'|\[[^\]]*\]", "", failure.text))[:160]


def work(pipe, arguments):
    """A worker: gets lists of seeds, gives counts and failures."""
    import numpy as np

    from compare import other_oracle
    from grow import grow
    from minimize import Minimizer
    from oracle import Oracle
    from runner import EVALUATED, Case, Runner

    np.seterr(all="ignore")
    oracle, folder = Oracle(), pathlib.Path(tempfile.mkdtemp(prefix="optc_random_", dir=arguments.work))
    runner = Runner(arguments.binaries, folder)
    known, reached = collections.Counter(), collections.Counter()
    try:
        while (task := pipe.recv()) is not None:
            seeds, often = task
            adders = arguments.adders | often
            counts, operators, cells = (collections.Counter() for _ in range(3))
            faults, classes, cases = [], [], []
            for seed in seeds:
                pipe.send(("growing", seed))
                graph = grow(seed, oracle, adders)
                if not graph.nodes or adders and not adders & graph.adders:
                    continue
                outputs = graph.outputs()
                if not outputs:  # sequences alone
                    continue
                if arguments.quantize:
                    graph, fault = quantized_graph(graph, outputs, arguments)
                    if fault:
                        faults.append({"seed": seed, "way": "quantize", "kind": fault.split(":")[0], "text": fault, "case": f"seed {seed}"})
                    if not graph:
                        counts["without weights to quantize"] += 1
                        continue
                cases.append(Case(graph, *graph.build(graph.nodes, outputs)))
                other = graph.resized() if graph.r.random() < 0.4 else None
                if other:
                    second = Case(other, *other.build(other.nodes, outputs))
                    if second.model == cases[-1].model:  # not where the rank of an output depends on a size
                        cases.append(second)
                        counts["second sizes"] += 1
                operators.update(graph.operators)
                classes += [("generator", "", seed, text) for text in graph.broken]
            if arguments.spread:
                cases = spread_cases(cases, runner, reached, arguments.spread)
            if arguments.save:
                for case in cases:
                    save_model(arguments.save / f"{case.graph.seed}", case)
            counts["graphs"] += len({c.graph.seed for c in cases})
            counts["nodes"] += sum(len(c.graph.nodes) for c in cases)
            single = all(w in EVALUATED for w in arguments.ways)
            size = 1 if single else arguments.chunk
            for group in [cases[at : at + size] for at in range(0, len(cases), size)]:
                pipe.send(("running", group[0].graph.seed))
                answers = runner.run(group, arguments.ways)
                cells.update(runner.cells)
                for (i, way), answer in answers.items():
                    case, failure = group[i], answer.failure
                    counts[
                        f"{way} "
                        + (failure.word if failure else "unsupported" if answer.unsupported else "excused" if answer.excused else "ok")
                    ] += 1
                    if answer.unsupported:
                        classes.append(("unsupported", way, case.graph.seed, re.sub(r"'[^']*'|\[[^\]]*\]", "", answer.unsupported)[:120]))
                    classes += [(c, way, case.graph.seed, text) for c, text in answer.excused]
                    if not failure:
                        continue
                    if any(is_echo(answers, i, way, earlier) for earlier in ECHOES.get(way, ())):
                        counts["same in another way"] += 1
                        continue
                    if reason := known_fault(case, failure):
                        classes.append(("known", way, case.graph.seed, reason))
                        continue
                    rough = signature(case, failure)
                    if known[rough] < 4 * KEPT_OF_A_KIND:
                        left, last = Minimizer(runner, arguments.minimize).run(case.graph, case, failure)
                    else:
                        left, last = case, failure
                    known[rough] += 1
                    if last.word == "wrong" and last.output and other_oracle(left, last.output, last.got):
                        classes.append(("oracles disagree", way, case.graph.seed, f"{signature(left, last)}: {last.text}"))
                        continue
                    sign = signature(left, last)
                    name = f"{failure.word}_{way}_{case.graph.seed}"
                    if known[sign] < KEPT_OF_A_KIND or sign == rough and known[sign] <= KEPT_OF_A_KIND:
                        write_fault(arguments.out / name, left, last, case.graph)
                    if sign != rough:
                        known[sign] += 1
                    faults.append({"seed": case.graph.seed, "way": way, "kind": sign, "text": last.text[:300], "case": name})
                    if arguments.stop:
                        break
                if arguments.stop and faults:
                    break
            pipe.send(("done", counts, operators, cells, faults, classes))
    finally:
        runner.close()
        shutil.rmtree(folder, ignore_errors=True)


def quantized_graph(graph, outputs, arguments):
    """(the graph with its weights quantized or None, the text of a fault or None)."""
    from oracle import Reject
    from quantize import Fault, quantized

    try:
        return quantized(graph, outputs, arguments.binaries / "optc", arguments.quantize), None
    except Reject:
        return None, None
    except Fault as fault:
        return None, str(fault)


def spread_cases(cases, runner, reached, most):
    """Those that reach a cell (coverage.cc) which fewer than `most` of those before them did."""
    kept = []
    for case in cases:
        runner.run([case], ["eval"])
        if any(reached[c] < most for c in runner.cells):
            reached.update(runner.cells)
            case.cells = frozenset(runner.cells)
            kept.append(case)
    return kept


def save_model(folder, case):
    """A case of its own for each size that a graph is run at, with the cells that it reaches."""
    from values import save_case

    folder = folder.with_name(f"{folder.name}_resized") if folder.exists() else folder
    save_case(folder, case.model, [(case.inputs, case.wanted)])
    (folder / "cells.txt").write_text("".join(f"{c}\n" for c in sorted(case.cells)))


def write_fault(folder, case, failure, graph):
    from values import save_case

    shutil.rmtree(folder, ignore_errors=True)
    save_case(folder, case.model, [(case.inputs, case.wanted)])
    made = {o for n in case.model.graph.node for o in n.output}
    (folder / "why.txt").write_text(
        f"{failure.way}: {failure.word}\n{failure.text}\nseed {graph.seed}, opset {graph.opset}, "
        f"operators {' '.join(n.op_type for n in case.model.graph.node)}, oracle {' '.join(sorted({graph.who[o] for o in made if o in graph.who}))}\n"
    )


class Campaign:
    """Hands seeds to workers and adds up what they say; a worker that dies is replaced, and its seed named."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.counts, self.operators, self.cells = collections.Counter(), collections.Counter(), collections.Counter()
        self.faults, self.classes = [], []
        self.next, self.end = arguments.seed, arguments.seed + arguments.count
        self.must_reach = json.loads(arguments.cells.read_text()) if arguments.cells else []
        self.again = []  # seeds of a worker that died, but for the one that it died of
        self.workers = {}  # pipe -> [process, seeds, (what it did last, seed)]
        self.begun = time.monotonic()
        self.often = set()  # what was first drawn often for missing cells

    @staticmethod
    def reaching(cell):
        return next((often for strategy, often in REACHES.items() if cell.startswith(strategy)), set())

    def start(self):
        mine, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=work, args=(theirs, self.arguments), daemon=True)
        process.start()
        theirs.close()
        self.workers[mine] = [process, [], ("growing", None)]
        self.hand_out(mine)

    def hand_out(self, pipe):
        late = time.monotonic() - self.begun > self.arguments.seconds
        missing, often = self.missing() if late else [], set()
        if missing:
            late = self.counts["graphs"] >= FOR_CELLS
            often = set().union(*(self.reaching(cell) for cell in missing))
        late = late or self.arguments.stop and self.faults
        seeds, self.again = ([], []) if late else (self.again, [])
        if not late and not seeds:
            chunk = self.arguments.chunk * (SPREAD_OVER if self.arguments.spread else 1)
            seeds = list(range(self.next, min(self.next + chunk, self.end)))
            self.next += len(seeds)
        if seeds and often and not self.often:
            print(f"for the cells that were not reached, seeds from {seeds[0]} on --with {','.join(sorted(often))}", flush=True)
        self.often = self.often or often
        pipe.send((seeds, often) if seeds else None)
        if seeds:
            self.workers[pipe][1] = seeds
        else:
            self.workers.pop(pipe)[0].join()

    def missing(self):
        """Cells that must be reached and were not."""
        return sorted(set(self.must_reach) - set(self.cells))

    def buried(self, pipe):
        """A worker died, of a node in ONNX Runtime. While it grew or judged a graph, that seed says nothing; while it ran what `opt` wrote,
        it is a fault. Its other seeds are run again."""
        process, seeds, (did, seed) = self.workers.pop(pipe)
        process.join()
        word = "worker died" if did == "running" and "opt" in self.arguments.ways else "oracle died"
        self.counts[word] += 1
        self.classes.append((word, "", seed, f"exit code {process.exitcode}"))
        if word == "worker died":
            fault = {"seed": seed, "way": "opt", "kind": word, "text": f"exit code {process.exitcode}", "case": f"seed {seed}"}
            self.faults.append(fault)
            print(f"WRONG seed {seed} {word}: {fault['text']}", flush=True)
        self.again += [s for s in seeds if s != seed]
        if self.counts["oracle died"] + self.counts["worker died"] < 1000 and (self.again or self.next < self.end):
            self.start()

    def run(self):
        for _ in range(self.arguments.jobs):
            if self.next < self.end:
                self.start()
        said = time.monotonic()
        while self.workers:
            for pipe in multiprocessing.connection.wait(list(self.workers), timeout=5):
                try:
                    message = pipe.recv()
                except EOFError:
                    self.buried(pipe)
                    continue
                if message[0] != "done":
                    self.workers[pipe][2] = message
                    continue
                _, counts, operators, cells, faults, classes = message
                self.counts.update(counts)
                self.operators.update(operators)
                self.cells.update(cells)
                self.faults += faults
                self.classes += classes
                for fault in faults:
                    print(f"WRONG seed {fault['seed']} {fault['kind']}: {fault['text']}"[:300], flush=True)
                self.hand_out(pipe)
            if time.monotonic() - said > 60:
                said = time.monotonic()
                print(f"{self.counts['graphs']} graphs, {len(self.faults)} wrong, {said - self.begun:.0f} s", flush=True)

    def summary(self):
        kinds = collections.defaultdict(list)
        for fault in self.faults:
            kinds[fault["kind"]].append(fault)
        return {
            "seeds": [self.arguments.seed, self.next],
            "seconds": round(time.monotonic() - self.begun),
            "counts": dict(sorted(self.counts.items())),
            "faults": [
                {"kind": k, "count": len(f), "seeds": [x["seed"] for x in f[:20]], "text": f[0]["text"], "case": f[0]["case"]}
                for k, f in sorted(kinds.items(), key=lambda item: -len(item[1]))
            ],
            "not faults": dict(
                collections.Counter(
                    f"{c[0]} {c[1]}: {c[3]}" if c[0] in ("unsupported", "generator", "known") else f"{c[0]} {c[1]}" for c in self.classes
                )
            ),
            "examples of what is not a fault": [list(c) for c in self.classes if c[0] != "unsupported"][:200],
            "operators": dict(self.operators.most_common()),
            "cells": dict(sorted(self.cells.items())),
        }


def default_binaries():
    """bin/ beside this folder (pack.sh), else the build folder of the checkout."""
    packed = HERE.parent / "bin"
    return packed if packed.is_dir() else HERE.parents[1] / "build/bin"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--ways", default="unfused,eval,opt")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("random_found"))
    parser.add_argument("--binaries", type=pathlib.Path, default=default_binaries())
    parser.add_argument("--chunk", type=int, default=0, help="graphs a worker gets at a time; with bundles, of one translation unit")
    parser.add_argument("--spread", type=int, help="run only graphs that reach a cell of strategies which fewer than this many did before")
    parser.add_argument("--with", dest="adders", default="", help="draw these functions often (nested, loop, conv ...), and run only graphs to which one of them gave a node")
    parser.add_argument("--quantize", help="int8, int4:64 ... or any: run the graphs with their weights quantized, those that have some (--with float_weights)")
    parser.add_argument("--save", type=pathlib.Path, help="a folder for the graphs that are run, as cases")
    parser.add_argument("--stop", action="store_true", help="end with the first graph that fails")
    parser.add_argument("--minimize", type=float, default=20, help="seconds for cutting down one failing graph")
    parser.add_argument("--work", default="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    parser.add_argument("--cells", type=pathlib.Path, help="a JSON list of cells that must be reached; for them a run goes on")
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = int.from_bytes(os.urandom(4), "little")
    arguments.ways = arguments.ways.split(",")
    arguments.adders = set(filter(None, arguments.adders.split(",")))
    from registry import ADDERS
    from runner import EVALUATED, GPU_TARGETS

    known = {*EVALUATED, *GPU_TARGETS, "bundle", *(f"bundle-{isa}" for isa in ("base", "avx2", "avx512", "vnni", "amx", "asan"))}
    if unknown := set(arguments.ways) - known:
        parser.error(f"no such way: {', '.join(sorted(unknown))}")
    import grow  # noqa: F401  fills ADDERS

    if unknown := arguments.adders - set(ADDERS):
        parser.error(f"no such function: {', '.join(sorted(unknown))}; there are {', '.join(sorted(ADDERS))}")
    bundles = set(arguments.ways) - set(EVALUATED)
    arguments.chunk = arguments.chunk or (32 if bundles else 10)
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"seed {arguments.seed}, ways {','.join(arguments.ways)}, {arguments.jobs} workers", flush=True)

    campaign = Campaign(arguments)
    campaign.run()
    summary = campaign.summary()
    missing = summary["cells never covered"] = campaign.missing()
    (arguments.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    for kind in summary["faults"]:
        print(f"{kind['count']:6} x {kind['kind']}: {kind['text'][:160]} ({arguments.out / kind['case']})")
    for cell in missing:
        print(f"never covered: {cell}")
    counts = summary["counts"]
    print(f"{counts.get('graphs', 0)} graphs of {counts.get('nodes', 0)} nodes in {summary['seconds']} s, {len(campaign.cells)} cells; "
          + ", ".join(f"{k} {v}" for k, v in counts.items() if k not in ("graphs", "nodes")))  # fmt: skip
    wrong = len(campaign.faults)
    print(f"{counts.get('graphs', 0) - len({f['seed'] for f in campaign.faults})} passed, {wrong + len(missing)} failed")
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main())
