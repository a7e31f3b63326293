"""tiles.py CARRY OUT [--only NAME,...] [--precision f32] [--tiles N] [--splits 1,2,...]: times of every product of whole models by every tile.

CARRY is what models.py takes. Each model is compiled once a tile and a number of blocks a tile (gpu_bundle --tile --splits), assembled by ptxas, and
each of its products is timed alone: a CUDA graph of 20 launches, on random data. OUT/tiles.json gets one record a product and choice. What
modelled_cycles in emit/ptx/contraction.cc knows of a card comes from here.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from models import dims, open_carry


def build(work, bundler, name, precision, tile, splits):
    out = f'{work}/{name}.{precision}.{tile}.{splits}'
    flags = ['--tile', str(tile), '--splits', str(splits)] if tile >= 0 else []
    done = subprocess.run([bundler, f'{work}/{name}.onnx', '-o', out, '--target', 'sm_90a', '--precision', precision, '--no-weights', *flags]
                          + [a for d in dims(name, 1) for a in ('--dim', d)], capture_output=True, text=True)
    if done.returncode:
        return None
    assembled = subprocess.run(['ptxas', '-v', '-arch=sm_90a', f'{out}/kernels.ptx', '-o', f'{out}/kernels.cubin'], capture_output=True, text=True)
    if assembled.returncode:
        print(assembled.stderr[-500:])
        return None
    registers = {}
    for block in assembled.stderr.split('Compiling entry function')[1:]:
        entry = re.search(r"'([^']+)'", block).group(1)
        registers[entry] = (int(re.search(r'Used (\d+) registers', block).group(1)), int(re.search(r'(\d+) bytes spill stores', block).group(1)))
    with open(f'{out}/launches.json') as f:
        return out, json.load(f), registers


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('carry')
    parser.add_argument('out')
    parser.add_argument('--only', default='resnet50,bert_base,vit_b_16')
    parser.add_argument('--precision', default='f32')
    parser.add_argument('--tiles', type=int, default=14)
    parser.add_argument('--splits', default='1,2,3,4,6,8')
    options = parser.parse_args()
    import cupy
    import numpy
    carry = os.path.abspath(options.carry)
    work, bundler, names = open_carry(carry, options.only)
    start = time.time()

    def materialize(name):
        subprocess.run([sys.executable, f'{carry}/materialize.py', f'{carry}/{name}.onnx', work], check=True, stdout=subprocess.DEVNULL)

    pool = ThreadPoolExecutor(16)
    list(pool.map(materialize, names))
    print(f'models made after {time.time() - start:.0f} s', flush=True)
    jobs = [(name, -1, 0) for name in names] + [(name, tile, splits) for name in names for tile in range(options.tiles)
                                                for splits in map(int, options.splits.split(','))]
    results = [pool.submit(build, work, bundler, name, options.precision, tile, splits) for name, tile, splits in jobs]
    stream, records, arena = cupy.cuda.Stream(non_blocking=True), [], {}

    def memory(key, size):
        if key not in arena or arena[key].nbytes < size:
            arena[key] = cupy.random.standard_normal(max(1, (size + 3) // 4), dtype=cupy.float32)
        return arena[key]

    workspace = cupy.zeros(64 << 18, dtype=cupy.float32)
    for (name, tile, splits), result in zip(jobs, results):
        built = result.result()
        if not built:
            continue
        out, table, registers = built
        module = cupy.RawModule(path=f'{out}/kernels.cubin')
        seen = set()
        for launch in table['launches']:
            key = launch['entry'], tuple(launch['grid'])
            if not launch['form'].startswith(('gemm', 'attention')) or key in seen or (tile >= 0 and launch['form'].startswith('attention')):
                continue
            seen.add(key)
            kernel = module.get_function(launch['entry'])
            if launch['shared'] > 48 << 10:
                kernel.max_dynamic_shared_size_bytes = launch['shared']
            buffers = [workspace if b < 0 else memory((name, b), table['buffers'][b]['bytes']) for b in launch['arguments']]
            arguments = tuple(numpy.uint64(b.data.ptr) for b in buffers)

            def call():
                kernel(tuple(launch['grid']), (launch['threads'],), arguments, shared_mem=launch['shared'])

            with stream:
                call()
                stream.begin_capture()
                for _ in range(20):
                    call()
                graph = stream.end_capture()
                graph.launch(stream)
                times = []
                for _ in range(5):
                    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                    begin.record(stream)
                    graph.launch(stream)
                    end.record(stream)
                    end.synchronize()
                    times.append(cupy.cuda.get_elapsed_time(begin, end) * 1e3 / 20)
            records.append({'model': name, 'tile': tile, 'splits': splits, 'entry': launch['entry'], 'form': launch['form'], 'grid': launch['grid'],
                            'threads': launch['threads'], 'shared': launch['shared'],
                            'count': sum((x['entry'], tuple(x['grid'])) == key for x in table['launches']),
                            'registers': registers.get(launch['entry'], (0, 0)), 'us': round(sorted(times)[2], 2)})
        shutil.rmtree(out)
    with open(f'{options.out}/tiles.json', 'w') as f:
        json.dump(records, f)
    print(f'{len(records)} measured, {time.time() - start:.0f} s')
    best = {}
    for r in records:
        where = r['model'], r['entry']
        if r['tile'] >= 0 and (where not in best or r['us'] < best[where]['us']):
            best[where] = r
    for r in records:
        if r['tile'] < 0 and (r['model'], r['entry']) in best:
            b = best[r['model'], r['entry']]
            print(f"{r['model']} {r['entry']} x{r['count']}: {r['us']} us by {r['form']}; {b['us']} us by {b['form']} {b['grid']}")
    shutil.rmtree(work)


if __name__ == '__main__':
    main()
