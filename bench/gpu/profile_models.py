"""profile_models.py CARRY [--only NAME,...] [--precision f32] [--out DIR]: where the time of whole models goes on this machine's card.

CARRY is what models.py takes. For each model the kernels of one run under Nsight Compute (cold or warm as the run leaves the caches), summed by
entry, each with its form, grid and counters; beside it PyTorch's kernels of one call of the compiled model, by its own profiler.
"""
import argparse
import collections
import csv
import io
import lzma
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from models import HERE, TORCH, build, open_carry

SECTIONS = ['SpeedOfLight', 'LaunchStats', 'Occupancy', 'WarpStateStats', 'ComputeWorkloadAnalysis', 'MemoryWorkloadAnalysis']
COLUMNS = [('gpu__time_duration.sum', 'us'), ('launch__registers_per_thread', 'regs'), ('launch__occupancy_limit_registers', 'lim r'),
           ('launch__occupancy_limit_shared_mem', 'lim s'), ('sm__throughput.avg.pct_of_peak_sustained_elapsed', 'sm %'),
           ('gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed', 'mem %'),
           ('l1tex__throughput.avg.pct_of_peak_sustained_active', 'l1 %'), ('lts__throughput.avg.pct_of_peak_sustained_elapsed', 'l2 %'),
           ('gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed', 'dram %'), ('sm__warps_active.avg.pct_of_peak_sustained_active', 'occ %'),
           ('sm__inst_executed.avg.per_cycle_active', 'ipc')]


def number(text):
    try:
        return float(text.replace(',', ''))
    except ValueError:
        return float('nan')


def ncu(out, data, launches):
    command = ['ncu', '--csv', '--page', 'raw', '--clock-control', 'none', '--cache-control', 'none', '-c', str(launches)]
    for section in SECTIONS:
        command += ['--section', section]
    done = subprocess.run(command + [f'{out}/run_model', f'{out}/cuda.weights', f'{data}/inputs.bin', f'{data}/expected.bin', '1'],
                          capture_output=True, text=True, timeout=400, env={**os.environ, 'OPTC_RUN_ONCE': '1', 'OPTC_CUDA_OVERLAP': '0'})
    lines = done.stdout.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        print(done.stdout[-2000:], done.stderr[-2000:])
        return [], ''
    rows = list(csv.DictReader(io.StringIO('\n'.join(lines[start:]))))
    return rows[1:], '\n'.join(lines[start:])  # the first row has the units


def report(rows, units, forms, total):
    by_entry = collections.defaultdict(list)
    for row in rows:
        by_entry[row['Kernel Name'], row.get('Grid Size', ''), row.get('Block Size', '')].append(row)

    def time(row):
        scale = {'ns': 1e-3, 'nsecond': 1e-3, 'us': 1, 'usecond': 1, 'ms': 1e3}.get(units.get('gpu__time_duration.sum', 'us'), 1)
        return number(row.get('gpu__time_duration.sum', 'nan')) * scale

    whole = sum(time(r) for r in rows)
    print(f'{len(rows)} launches, {whole:.1f} us together (a graph without overlap: {total})')
    stalls = [c for c in rows[0] if 'average_warps_issue_stalled' in c and 'ratio' in c and 'not_issued' not in c]
    for (name, grid, block), some in sorted(by_entry.items(), key=lambda e: -sum(time(r) for r in e[1])):
        us = sum(time(r) for r in some)
        cells = [f'{label} {sum(number(r.get(c, "nan")) for r in some) / len(some):.3g}' for c, label in COLUMNS[1:]]
        top = sorted(((sum(number(r[c]) for r in some) / len(some), re.sub(r'.*stalled_|_per_.*', '', c)) for c in stalls), reverse=True)[:3]
        print(f'{us:8.1f} us = {len(some):3d} x {us / len(some):7.2f}  {name} grid {grid} block {block} [{forms.get(name, "")}] ' + ', '.join(cells)
              + '; stalls ' + ', '.join(f'{s} {v:.1f}' for v, s in top))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('carry')
    parser.add_argument('--only', default='')
    parser.add_argument('--precision', default='f32')
    parser.add_argument('--out', default='')
    parser.add_argument('--no-torch', action='store_true')
    options = parser.parse_args()
    carry = os.path.abspath(options.carry)
    work, bundler, names = open_carry(carry, options.only)
    precisions = options.precision.split(',')
    peers = {}
    for name in names if not options.no_torch else []:
        for dtype in sorted({'f32' if p == 'f32' else 'f16' for p in precisions}):
            if name.split('.')[0] in TORCH:
                peers[name, dtype] = subprocess.Popen([sys.executable, f'{HERE}/torch_models.py', name.split('.')[0], dtype, 'profile'],
                                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def prepare(name):
        subprocess.run([sys.executable, f'{carry}/materialize.py', f'{carry}/{name}.onnx', work], check=True, stdout=subprocess.DEVNULL)
        return {p: build(work, bundler, name, p).splitlines() for p in precisions}

    with ThreadPoolExecutor(3) as pool:
        built = dict(zip(names, pool.map(prepare, names)))
    for process in peers.values():
        process.stdout.readline()  # ready
    for name in names:
        for precision in precisions:
            lines = built[name][precision]
            forms = {line.split()[0]: re.sub(r'\s+', ' ', line.split(None, 1)[1]) for line in lines[:-1] if len(line.split()) > 1}
            launches = int(lines[-1].split()[0])
            out, data = f'{work}/{name}.{precision}.sm_90a', f'{carry}/{name}'
            plain = subprocess.run([f'{out}/run_model', f'{out}/cuda.weights', f'{data}/inputs.bin', f'{data}/expected.bin', '1'],
                                   capture_output=True, text=True, env={**os.environ, 'OPTC_CUDA_OVERLAP': '0'}).stdout
            total = re.search(r'graph: median ([\d.]+ us)', plain)
            rows, raw = ncu(out, data, launches)
            print(f'== {name} {precision}')
            if rows:
                report(rows, next(csv.DictReader(io.StringIO(raw))), forms, total.group(1) if total else '?')
            if options.out:
                with lzma.open(f'{options.out}/{name}.{precision}.csv.xz', 'wt') as f:
                    f.write(raw)
                shutil.copy(f'{out}/forms.txt', f'{options.out}/{name}.{precision}.forms.txt')
            sys.stdout.flush()
    for (name, dtype), process in peers.items():
        out, errors = process.communicate('go\n', timeout=100)
        print(f'== PyTorch {name} {dtype}\n{out}{errors[-1000:] if process.returncode else ""}', flush=True)
    shutil.rmtree(work)


if __name__ == '__main__':
    main()
