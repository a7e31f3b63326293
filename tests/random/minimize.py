"""Cuts a failing graph down while it still fails in the same way: to one output, fewer nodes, smaller dims."""

import time

import numpy as np

from graph import ancestors
from oracle import Reject
from runner import EVALUATED, Case


class Minimizer:
    def __init__(self, runner, seconds):
        self.runner, self.until = runner, time.monotonic() + seconds

    def in_time(self):
        return time.monotonic() < self.until

    def first_failing(self, candidates, like):
        """The first of [(graph, nodes, outputs)] that fails like `like`: (that, its Case, its Failure), or None. Bundles are built many at
        a time."""
        size = 1 if like.way in EVALUATED else 12
        candidates = iter(candidates)
        while self.in_time():
            chosen, cases = [], []
            for candidate in candidates:
                if not candidate[1] or not candidate[2]:  # no graph is refused, too
                    continue
                try:
                    case = Case(candidate[0], *candidate[0].build(*candidate[1:]))
                except Exception:
                    continue
                chosen.append(candidate)
                cases.append(case)
                if len(cases) == size:
                    break
            if not cases:
                return None
            answers = self.runner.run(cases, [like.way])
            for i, case in enumerate(cases):
                failure = answers[i, like.way].failure if (i, like.way) in answers else None
                if failure and failure.is_like(like):
                    return chosen[i], case, failure
        return None

    def run(self, graph, case, failure):
        """(Case, Failure) of what is left."""
        best = (case, failure)
        nodes, outputs = list(graph.nodes), list(case.wanted)

        def take(found):
            nonlocal graph, nodes, outputs, best
            if found is None:
                return False
            (graph, nodes, outputs), *best = found
            return True

        # One output: the one that is wrong, or the earliest value that fails alone.
        made = [o for n, _ in ancestors(nodes, [failure.output] if failure.output else outputs) for o in n.output if o]
        if failure.output:
            take(self.first_failing([(graph, ancestors(nodes, [failure.output]), [failure.output])], failure))
        take(self.first_failing(((graph, ancestors(nodes, [o]), [o]) for o in made), failure))
        # Without a node: what it made becomes an input.
        while self.in_time():
            smaller = (
                (graph, ancestors([n for n in nodes if n is not node], outputs), outputs)
                for node in list(nodes)
                if not set(node[0].output) & set(outputs)
            )
            if not take(self.first_failing(smaller, failure)):
                break
        # Smaller dims: every leaf's dims of one size become another.
        changed = True
        while changed and self.in_time():
            leaves = {n for _, reads in nodes for n in reads} - {o for n, _ in nodes for o in n.output}
            sizes = sorted({d for n in leaves for d in graph.v[n].shape if d > 1}, reverse=True)
            smaller = (
                resized
                for size in sizes
                for to in dict.fromkeys((1, 2, size // 2, size - 1))
                if to < size
                for resized in shrink(graph, nodes, outputs, size, to)
            )
            changed = take(self.first_failing(smaller, failure))
        return best


def shrink(graph, nodes, outputs, size, to):
    """The same graph with leaves cut to smaller dims; nothing where the nodes do not fit them."""
    leaves = {}
    for name in {n for _, reads in nodes for n in reads} - {o for n, _ in nodes for o in n.output}:
        array = graph.v[name]
        for axis, d in enumerate(array.shape):
            if d == size:
                array = np.take(array, range(to), axis=axis)
        if array.dtype == np.int64 and array.ndim == 1 and array.size <= 6 and graph.kind[name] != "input":
            array = np.where(array == size, to, array)  # a shape
        leaves[name] = np.ascontiguousarray(array) if array.ndim else array
    try:
        yield graph.replay(nodes, leaves), nodes, outputs
    except Reject:
        return
