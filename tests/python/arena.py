#!/usr/bin/env python3
"""How much memory a bundle takes for its buffers, beside the most that live at one time.

  arena.py BUNDLE... [--dim NAME=VALUE]... [--threads N]...

Lifetimes and sizes are the manifest's ("buffers": first and last step, bytes; row scratch counts once for each thread). The arena and
the offsets are the answer of the bundle's own planner: its src/model.cpp is compiled without the kernels and asked.
"""

import argparse
import ctypes
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HARNESS = r"""
#include "model.cpp"
#include <stdio.h>
using namespace @NAME@_schedule;
namespace @NAME@_code { const Kernels &kernels() { static const Kernels none{}; return none; } }
// Bytes of the arena for input dims, one after the other; where every placed buffer lies, and begin and bytes of every row scratch.
extern "C" __attribute__((visibility("default"))) int64_t lay_out(const int64_t *dims, int64_t threads, int64_t *offsets,
                                                                  int64_t *scratch_at, int64_t *scratch_bytes) {
  static Run<Model> run;
  static char error[kErrorSize];
  run.error = error;
  for (size_t i = 0; i < Model::kInputs; ++i) {
    run.inputs[i].rank = Model::inputs[i].rank;
    for (int k = 0; k < run.inputs[i].rank; ++k) run.inputs[i].dims[k] = *dims++;
  }
  if (Model::bind(run) != OPTC_OK) return fprintf(stderr, "%s\n", error), -1;
  const int64_t bytes = static_cast<int64_t>(run.lay_out(threads));
  for (size_t i = 0; i < Model::kPlaced; ++i) offsets[i] = run.offsets[i];
  for (size_t i = 0; i < Model::kScratch; ++i) scratch_at[i] = run.offsets[Model::kPlaced + i];
  Model::scratch(run.dims, scratch_bytes);
  return bytes;
}
"""


def dim_value(dim, sizes):
    """A dim of the manifest: a number, or an expression over the symbols (/ rounds down, % follows Python)."""
    if not isinstance(dim, str):
        return dim
    names = {"min": min, "max": max}
    text = re.sub(r"[A-Za-z_]\w*", lambda m: m[0] if m[0] in names else f"s[{m[0]!r}]", dim).replace("/", "//")
    return eval(text, {"__builtins__": {}, "s": sizes, **names})


def symbols_of(manifest):
    text = " ".join(str(d) for value in manifest["inputs"] for d in value.get("dims", []))
    return sorted(set(re.findall(r"[A-Za-z_]\w*", text)) - {"min", "max"})


class Bundle:
    def __init__(self, folder, work):
        self.folder, self.manifest = pathlib.Path(folder), json.loads((pathlib.Path(folder) / "manifest.json").read_text())
        source, library = pathlib.Path(work) / "lay_out.cpp", pathlib.Path(work) / "lay_out.so"
        source.write_text(HARNESS.replace("@NAME@", self.manifest["name"]))
        # The sanitizers and warnings of other tests are not wanted here: this is compiled for its answers. Its symbols are hidden, as a
        # bundle's are: else the tables of two bundles of one name in a process would be those of the first.
        subprocess.run(["g++", "-std=c++17", "-O0", "-w", "-fPIC", "-shared", "-fvisibility=hidden", '-DOPTC_BUNDLE_FOLDER=""', f"-I{self.folder}/src",
                        f"-I{self.folder}/include", str(source), "-o", str(library)], check=True)
        self.ask = ctypes.CDLL(str(library)).lay_out
        self.ask.restype = ctypes.c_int64

    def lay_out(self, sizes, threads):
        """(bytes of the arena, most live bytes of a step, [(name, first, last, begin, bytes)]) for the symbols' values."""
        buffers = self.manifest["buffers"]
        placed = [b for b in buffers if not b.get("each_thread")]
        scratch = [b for b in buffers if b.get("each_thread")]
        dims = [dim_value(d, sizes) for value in self.manifest["inputs"] for d in value["dims"]]
        array = lambda values: (ctypes.c_int64 * max(1, len(values)))(*values)  # noqa: E731
        offsets, at, each = (array([0] * n) for n in (len(placed), len(scratch), len(scratch)))
        arena = self.ask(array(dims), ctypes.c_int64(threads), offsets, at, each)
        assert arena >= 0, f"{self.folder}: these dims are refused: {sizes}"
        places = []
        for i, b in enumerate(placed):
            begin = offsets[i] if b["offset"] is None else b["offset"]  # constant sizes are placed at compile time
            places.append((b["name"], b["first"], b["last"], begin, dim_value(b["bytes"], sizes)))
        for i, b in enumerate(scratch):
            said = dim_value(b["bytes"], sizes)
            assert threads > 1 or b["offset"] in (None, at[i]), b
            # (A plan that depends on a symbolic number of queries may need less than the manifest says.)
            assert each[i] <= said, f"{b['name']}: {each[i]} bytes, the manifest says {said}"
            stride = (each[i] + 63) // 64 * 64
            places.append((b["name"], b["first"], b["last"], at[i], stride * threads))
        steps = 1 + max((p[2] for p in places), default=-1)
        live = max((sum(p[4] for p in places if p[1] <= t <= p[2]) for t in range(steps)), default=0)
        return arena, live, places


def overlaps(arena, places):
    """What is wrong with a layout: buffers that share bytes while both live, or reach beyond the arena."""
    wrong = [f"{p[0]} ends at {p[3] + p[4]} of {arena}" for p in places if p[3] < 0 or p[3] + p[4] > arena]
    for i, a in enumerate(places):
        for b in places[:i]:
            if a[1] <= b[2] and b[1] <= a[2] and a[3] < b[3] + b[4] and b[3] < a[3] + a[4]:
                wrong.append(f"{a[0]} and {b[0]} share bytes")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+")
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--threads", type=int, action="append")
    options = parser.parse_args()
    sizes = {name: int(value) for name, value in (d.split("=") for d in options.dim)}
    worst = 0
    for folder in options.bundles:
        with tempfile.TemporaryDirectory() as work:
            bundle = Bundle(folder, work)
            used = {s: sizes.get(s, 1) for s in symbols_of(bundle.manifest)}
            for threads in options.threads or [1]:
                arena, live, places = bundle.lay_out(used, threads)
                worst = max(worst, arena / max(1, live), 99 if overlaps(arena, places) else 0)
                shown = " ".join(f"{k}={v}" for k, v in used.items())
                print(f"{folder}  {shown}  threads {threads}: arena {arena}, live {live}, ratio {arena / max(1, live):.3f}")
    sys.exit(worst > 1.1)


if __name__ == "__main__":
    main()
