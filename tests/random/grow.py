"""Graphs by their seeds."""

import random

import contractions  # noqa: F401  each module registers what it adds
import control  # noqa: F401
import motif_parts  # noqa: F401
import motif_pictures  # noqa: F401
import motif_sequences  # noqa: F401
import nested  # noqa: F401
import others  # noqa: F401
import patterns  # noqa: F401
import pointwise  # noqa: F401
import quantized  # noqa: F401
import rare  # noqa: F401
import rows  # noqa: F401
import sequences  # noqa: F401
import views  # noqa: F401
from graph import RandomGraph
from oracle import Reject
from registry import ADDERS


OFTEN = 30  # how many times as often as usual a wanted function is drawn


def grow(seed, oracle, often=frozenset()):
    """The graph of a seed, of 1 to some 25 nodes. The functions named in `often` are drawn more often. Its `adders` are the functions that gave a node."""
    g = RandomGraph(seed, oracle)
    g.adders = set()
    wanted = random.Random(seed).choice([2, 3, 4, 6, 9, 14, 20])
    for _ in range(g.r.choice([1, 2, 3])):
        g.leaf(g.r.choice(g.types), g.shape())
    names, weights = list(ADDERS), [(weight or 1) * OFTEN if name in often else weight for name, (_, weight) in ADDERS.items()]
    tries = 0
    while len(g.nodes) < wanted and tries < wanted * 6:
        tries += 1
        before, name = g.snapshot(), g.r.choices(names, weights)[0]
        try:
            ADDERS[name][0](g)
        except Exception as error:  # what was added before the refusal stays; it is a good graph
            if not isinstance(error, Reject):
                g.broken[f"{name}: {error!r}"[:160]] += 1
            if len(g.nodes) == len(before[2]):
                g.restore(before)
        if len(g.nodes) > len(before[2]):
            g.adders.add(name)
    return g
