"""models.py CARRY [--precision f32,f16] [--batch B] [--target sm_90a] [--no-torch]: whole models on this machine's card, optc and
PyTorch in one run, as a table.

CARRY holds gpu_bundle (or gpu_bundle.xz), materialize.py and, a model, NAME.onnx (without weights) and NAME/ with inputs.bin and
expected.bin of prepare.py; where there is none, or B is not 1, they are made on the spot (ONNX Runtime). All is compiled first, side by
side; then one thing at a time is measured. --target A,B: a row each, to compare the forms that targets have.
"""
import argparse
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOLERANCE = {'f32': '1e-4', 'f16': '2e-2', 'bf16': '5e-2'}
# The dimension of the batch, and the others: told to the compiler as they are to PyTorch.
BATCH = {'script': 'N', 'script17': 'N', 'dynamo': 's77'}
FIXED = ('gpt2_decode', 'lstm_tagger')  # whose batch is 1
DIMS = {'bert_base.script17': ['S=128']}
TORCH = ('mlp', 'lstm_tagger', 'resnet50', 'vit_b_16', 'bert_base', 'gpt2_decode', 'convnext_tiny', 'swin_t', 'mobilenet_v3_large', 'efficientnet_b0')


def dims(name, batch):
    return [f'{BATCH[name.split(".")[-1]]}={batch}'] + DIMS.get(name, []) if name.split('.')[0] not in FIXED else []


def build(work, bundler, name, precision, target='sm_90a', batch=1):
    """The bundle's GPU half and its runner, in WORK/NAME.PRECISION.TARGET. Returns the bundler's lines, one a kernel."""
    out = f'{work}/{name}.{precision}.{target}'
    done = subprocess.run([bundler, f'{work}/{name}.onnx', '-o', out, '--target', target, '--precision', precision]
                          + [a for d in dims(name, batch) for a in ('--dim', d)], capture_output=True, text=True, check=True)
    with open(f'{out}/forms.txt', 'w') as f:
        f.write(done.stdout)
    subprocess.run([os.environ.get('CXX', 'g++'), '-std=c++17', '-O1', f'-I{ROOT}', f'{ROOT}/bench/gpu/run_model.cpp', f'{out}/cuda.cpp',
                    '-o', f'{out}/run_model', '-ldl'], check=True)
    return done.stdout


def data_of(work, carry, name, batch):
    """The folder with the model's inputs and what is expected of it."""
    if batch == 1 and os.path.exists(f'{carry}/{name}/expected.bin'):
        return f'{carry}/{name}'
    os.makedirs(f'{work}/{name}', exist_ok=True)
    subprocess.run([sys.executable, f'{HERE}/prepare.py', f'{work}/{name}.onnx', f'{work}/{name}'] + dims(name, batch), check=True)
    return f'{work}/{name}'


def measure(work, data, name, precision, target='sm_90a', environment=None):
    out = f'{work}/{name}.{precision}.{target}'
    done = subprocess.run([f'{out}/run_model', f'{out}/cuda.weights', f'{data}/inputs.bin', f'{data}/expected.bin', TOLERANCE[precision]],
                          capture_output=True, text=True, timeout=120, env={**os.environ, **(environment or {})})
    print(f'== {name} {precision} {environment or ""}\n{done.stdout}{done.stderr}', flush=True)
    errors = [float(x) for x in re.findall(r'max\|d\|/max\|y\| (\S+),', done.stdout)]
    same = re.findall(r'argmax (\w+)', done.stdout)
    median = re.search(r'graph: median ([\d.]+) us', done.stdout)
    return {'error': max(errors, default=float('nan')), 'first_error': errors[0] if errors else float('nan'),
            'argmax': 'same' if same and all(s == 'same' for s in same[:1]) else 'DIFFERS',
            'us': float(median.group(1)) if median else float('nan'), 'ok': done.returncode == 0}


def open_carry(carry, only):
    """(work folder, the bundler unpacked there, the names of CARRY's models; `only`: first parts of names, separated by commas, or '')."""
    work = tempfile.mkdtemp()
    bundler = f'{work}/gpu_bundle'
    if os.path.exists(f'{carry}/gpu_bundle.xz'):
        with lzma.open(f'{carry}/gpu_bundle.xz') as f, open(bundler, 'wb') as out:
            shutil.copyfileobj(f, out)
    else:
        shutil.copy(f'{carry}/gpu_bundle', bundler)
    os.chmod(bundler, 0o755)
    names = sorted(f[:-5] for f in os.listdir(carry) if f.endswith('.onnx'))
    return work, bundler, [n for n in names if not only or n.split('.')[0] in only.split(',')]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('carry')
    parser.add_argument('--precision', default='f32,f16')
    parser.add_argument('--only', default='')
    parser.add_argument('--batch', type=int, default=1)
    parser.add_argument('--target', default='sm_90a')
    parser.add_argument('--no-torch', action='store_true')
    options = parser.parse_args()
    carry, precisions, targets = os.path.abspath(options.carry), options.precision.split(','), options.target.split(',')
    data = {}
    work, bundler, names = open_carry(carry, options.only)
    start = time.time()

    workers = {}
    if not options.no_torch:
        for name in names:
            for dtype in sorted({p.replace('bf16', 'f16') for p in precisions}):
                if name.split('.')[0] in TORCH:
                    process = subprocess.Popen([sys.executable, f'{HERE}/torch_models.py', name.split('.')[0], dtype, str(options.batch)], text=True,
                                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(f'{work}/torch.log', 'a'))
                    ready = threading.Event()
                    threading.Thread(target=lambda p=process, r=ready: (p.stdout.readline(), r.set()), daemon=True).start()
                    workers[name, dtype] = process, ready

    def prepare(name):
        subprocess.run([sys.executable, f'{carry}/materialize.py', f'{carry}/{name}.onnx', work], check=True, stdout=subprocess.DEVNULL)
        data[name] = data_of(work, carry, name, options.batch)
        forms = {(p, t): build(work, bundler, name, p, t, options.batch) for p in precisions for t in targets}
        if os.path.exists(f'{work}/{name}.weights'):
            os.remove(f'{work}/{name}.weights')
        return forms

    with ThreadPoolExecutor(4) as pool:
        forms = dict(zip(names, pool.map(prepare, names)))
    print(f'bundles built after {time.time() - start:.0f} s', flush=True)
    for process, ready in workers.values():
        ready.wait(max(1, 300 - (time.time() - start)))
    print(f'torch compiled after {time.time() - start:.0f} s', flush=True)

    rows = {}
    for name in names:
        for p, t in forms[name]:
            row = rows[name, p, t] = measure(work, data[name], name, p, t)
            row['apart'] = measure(work, data[name], name, p, t, {'OPTC_CUDA_OVERLAP': '0'})['us']
            lines = forms[name][p, t].splitlines()
            row['cpu'] = sum(' CPU: ' in line for line in lines)
            row['launches'] = lines[-1].split()[0]
    peers = {}
    for key, (process, ready) in workers.items():
        if not ready.is_set():
            process.kill()
            continue
        try:
            out, _ = process.communicate('go\n', timeout=60)
            peers[key] = json.loads(out.strip().splitlines()[-1])
            print(peers[key], flush=True)
        except Exception as error:
            process.kill()
            print(f'torch {key}: {error!r}', flush=True)

    def time_of(name, dtype, what):
        value = peers.get((name, dtype), {}).get(what)
        return f'{value:.0f}' if value else '-'

    print('\n| model | precision | target | max difference / max value (worst output) | argmax | on CPU | launches | us | us, no overlap | torch compiled | torch eager, '
          'captured | torch eager |\n|---|---|---|---|---|---|---|---|---|---|---|---|')
    for (name, p, t), r in rows.items():
        dtype = 'f32' if p == 'f32' else 'f16'
        print(f"| {name} | {p} | {t} | {r['first_error']:.1e} ({r['error']:.1e}){'' if r['ok'] else ' WRONG'} | {r['argmax']} | {r['cpu']} | "
              f"{r['launches']} | {r['us']:.1f} | {r['apart']:.1f} | {time_of(name, dtype, 'compiled')} | {time_of(name, dtype, 'eager_graph')} | "
              f"{time_of(name, dtype, 'eager')} |")
    shutil.rmtree(work)
    sys.exit(0 if all(r['ok'] for r in rows.values()) else 1)


if __name__ == '__main__':
    main()
