"""bundles.py BUNDLE... [--sizes 3,37,200,3] [--tolerance 1e-4]: whole bundles (optc MODEL -o BUNDLE --target=cpu,sm_90a) on this machine's card,
kernels of the host in between included, beside the same bundle on the CPU.

Each bundle is built, loaded once with the card and once without a driver, and run on the same random inputs at each size of its symbolic dims, so that
memory and graphs change between runs. Prints the largest difference over the largest value, and the milliseconds of the last size on either.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

RUN = """
import importlib, json, sys, time
import numpy as np
bundle, name, library, inputs, out = sys.argv[1:6]
sys.path.insert(0, bundle + '/python')
model = importlib.import_module(name).Model(library=library)
results = {}
for number, feed in enumerate(np.load(inputs, allow_pickle=True)['feeds']):
    for key, value in model(**feed).items():
        results[f'{number} {key}'] = value
times = []
for _ in range(50):
    start = time.perf_counter()
    model(**feed)
    times.append(time.perf_counter() - start)
np.savez(out, **results)
print(json.dumps({'ms': sorted(times)[25] * 1e3}))
"""
TYPES = {'float': np.float32, 'float16': np.float16, 'int64': np.int64, 'int32': np.int32, 'bool': np.bool_, 'double': np.float64}


def feeds(manifest, sizes):
    random = np.random.default_rng(7)
    out = []
    for size in sizes:
        feed = {}
        for value in manifest['inputs']:
            shape = [d if isinstance(d, int) else size for d in value.get('shape', value.get('dims'))]
            kind = TYPES[value['type']]
            feed[value['name']] = random.standard_normal(shape).astype(kind) if np.issubdtype(kind, np.floating) else np.ones(shape, kind)
        out.append(feed)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('bundles', nargs='+')
    parser.add_argument('--sizes', default='3,37,200,3')
    parser.add_argument('--tolerance', type=float, default=1e-4)
    options = parser.parse_args()
    good = True
    for bundle in map(os.path.abspath, options.bundles):
        with open(f'{bundle}/manifest.json') as f:
            manifest = json.load(f)
        name, work = manifest['name'], tempfile.mkdtemp()
        for command in (['cmake', '-S', bundle, '-B', f'{work}/build', '-DBUILD_SHARED_LIBS=ON'], ['cmake', '--build', f'{work}/build', '--target', name, '-j', '8']):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f'{name}: {done.stdout[-1500:]}{done.stderr[-1500:]}')
                sys.exit(1)
        np.savez(f'{work}/inputs.npz', feeds=np.array(feeds(manifest, [int(s) for s in options.sizes.split(',')]), dtype=object))
        results, times = [], []
        for driver in (os.environ.get('OPTC_LIBCUDA', ''), '/no/such/libcuda.so'):
            done = subprocess.run([sys.executable, '-c', RUN, bundle, name, f'{work}/build/lib{name}.so', f'{work}/inputs.npz', f'{work}/out.npz'],
                                  capture_output=True, text=True, env={**os.environ, 'OPTC_LIBCUDA': driver})
            if done.returncode:
                print(f'{name}: {done.stderr[-1500:]}')
                sys.exit(1)
            times.append(json.loads(done.stdout)['ms'])
            results.append(dict(np.load(f'{work}/out.npz')))
        worst = 0.0
        for key, want in results[1].items():
            got = results[0][key]
            if got.shape != want.shape:
                worst = float('inf')
                print(f'{name} {key}: shape {got.shape}, on the CPU {want.shape}')
            elif want.size:
                difference = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
                worst = max(worst, difference / max(np.abs(want.astype(np.float64)).max(), 1e-30))
        copies = len(manifest['gpu']['copies']) if 'gpu' in manifest else 0
        host = [k['name'] for k in manifest.get('gpu', {}).get('kernels', []) if k['placement'] == 'cpu']
        good = good and worst <= options.tolerance
        print(f'{name}: max difference / max value {worst:.1e}{"" if worst <= options.tolerance else " WRONG"}; on the CPU: {host}, {copies} copies; '
              f'{times[0]:.3f} ms with the card, {times[1]:.3f} ms without', flush=True)
    sys.exit(0 if good else 1)


if __name__ == '__main__':
    main()
