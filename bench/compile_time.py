#!/usr/bin/env python3
"""What compiling a model costs, one line a model: optc's time and memory, whether two runs give the same bytes, the bundle's build.

  compile_time.py MODEL.onnx... [--optc build/bin/optc] [--no-build] [--jobs 2] [--keep FOLDER]

Memory is the most that optc held at one time without file-backed pages (RssAnon of /proc, read every two milliseconds), and what of it
exceeds the weights in the bundle. Times are wall-clock seconds; processor seconds stand in brackets, since a busy machine does not
change them much.
"""

import argparse
import hashlib
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time


def timed(command):
    """(wall seconds, processor seconds, peak bytes of anonymous memory) of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start, peak = time.monotonic(), 0
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    status = pathlib.Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        try:
            for line in status.read_text().splitlines():
                if line.startswith("RssAnon:"):
                    peak = max(peak, int(line.split()[1]) * 1024)
        except OSError:
            pass
        time.sleep(0.002)
    wall = time.monotonic() - start
    output = process.stdout.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise RuntimeError(f"{command}\n{output[-4000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak


def digests(folder):
    return {p.relative_to(folder): hashlib.sha256(p.read_bytes()).digest() for p in sorted(folder.rglob("*")) if p.is_file()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--optc", default=pathlib.Path(__file__).resolve().parents[1] / "build/bin/optc", type=pathlib.Path)
    parser.add_argument("--no-build", action="store_true", help="leave out the bundle's build")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=pathlib.Path, help="leave the bundles and their builds in this folder")
    options = parser.parse_args()
    print("| model | optc, s | peak memory, MB | weights, MB | beyond them, MB | same bytes | build of the bundle, s |")
    print("|---|---|---|---|---|---|---|", flush=True)
    good = True
    for model in options.models:
        work = pathlib.Path(tempfile.mkdtemp(prefix="optc_compile_"))
        try:
            wall, cpu, peak = timed([options.optc, model, "-o", work / "a", "--name", "m", "-q"])
            timed([options.optc, model, "-o", work / "deeper" / "b", "--name", "m", "-q"])
            same = digests(work / "a") == digests(work / "deeper" / "b")
            weights = sum(p.stat().st_size for p in (work / "a").glob("*.weights"))
            built = "not built"
            if not options.no_build:
                # Without a compiler cache, which would only tell how fast it is.
                timed(["cmake", "-G", "Ninja", "-S", work / "a", "-B", work / "build", "-DCMAKE_CXX_COMPILER=/usr/bin/g++"])
                build = ["env", "CCACHE_DISABLE=1", "cmake", "--build", work / "build", "--target", "m", f"-j{options.jobs}"]
                built = "{:.1f} ({:.1f})".format(*timed(build)[:2])
            beyond = max(0, peak - weights)
            good &= same and beyond < 300e6
            print(f"| {model.stem} | {wall:.2f} ({cpu:.2f}) | {peak / 1e6:.0f} | {weights / 1e6:.0f} | {beyond / 1e6:.0f} | "
                  f"{'yes' if same else 'NO'} | {built} |", flush=True)
            if options.keep:
                shutil.copytree(work, options.keep / model.stem, dirs_exist_ok=True)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
