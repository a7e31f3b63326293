"""compare.py CARRY BUNDLERS MODEL:PRECISION[:NAME=N,...]...: whole models by two or more builds of gpu_bundle on this machine's card, in turns.

CARRY holds materialize.py, each MODEL.onnx (without weights) and each of BUNDLERS (names, separated by commas) as NAME.xz, stripped. Prints for each
model and bundler, twice, the time of its graph, the worst difference from ONNX Runtime and the launches. All is built before anything is measured.
"""
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from models import HERE, ROOT, TOLERANCE


def build(work, bundler, model, precision, dims):
    out = f'{work}/{bundler}.{model}.{precision}'
    done = subprocess.run([f'{work}/{bundler}', f'{work}/{model}.onnx', '-o', out, '--target', 'sm_90a', '--precision', precision]
                          + [a for d in dims for a in ('--dim', d)], capture_output=True, text=True, check=True)
    subprocess.run([os.environ.get('CXX', 'g++'), '-std=c++17', '-O1', f'-I{ROOT}', f'{HERE}/run_model.cpp', f'{out}/cuda.cpp', '-o', f'{out}/run_model',
                    '-ldl'], check=True)
    return out, done.stdout.splitlines()[-1]


def measure(out, data, precision):
    text = subprocess.run([f'{out}/run_model', f'{out}/cuda.weights', f'{data}/inputs.bin', f'{data}/expected.bin', TOLERANCE[precision]],
                          capture_output=True, text=True, timeout=120).stdout
    time, errors = re.search(r'graph: (median [\d.]+ us, min [\d.]+ us)', text), re.findall(r'max\|d\|/max\|y\| (\S+),', text)
    return f'{time.group(1) if time else "no time"}, worst difference {max(map(float, errors), default=float("nan")):.1e}, {text.split()[-1:]}'


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    carry, bundlers = os.path.abspath(sys.argv[1]), sys.argv[2].split(',')
    jobs = [(parts[0], parts[1], parts[2].split(',') if len(parts) > 2 else []) for parts in (job.split(':') for job in sys.argv[3:])]
    work = tempfile.mkdtemp()
    for bundler in bundlers:
        with lzma.open(f'{carry}/{bundler}.xz') as f, open(f'{work}/{bundler}', 'wb') as out:
            shutil.copyfileobj(f, out)
        os.chmod(f'{work}/{bundler}', 0o755)

    def prepare(model, dims):
        subprocess.run([sys.executable, f'{carry}/materialize.py', f'{carry}/{model}.onnx', work], check=True, stdout=subprocess.DEVNULL)
        os.makedirs(f'{work}/{model}', exist_ok=True)
        subprocess.run([sys.executable, f'{HERE}/prepare.py', f'{work}/{model}.onnx', f'{work}/{model}', *dims], check=True)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda job: prepare(*job), {model: (model, dims) for model, _, dims in jobs}.values()))
        built = {(b, m, p): pool.submit(build, work, b, m, p, d) for m, p, d in jobs for b in bundlers}
        built = {key: future.result() for key, future in built.items()}
    for model, precision, _ in jobs:
        for bundler in bundlers * 2:
            out, launches = built[bundler, model, precision]
            print(f'{model} {precision} {bundler}: {measure(out, f"{work}/{model}", precision)}; {launches}', flush=True)
    shutil.rmtree(work)


if __name__ == '__main__':
    main()
