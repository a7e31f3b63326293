"""prepare.py GPU_BUNDLE DIR [--every-tile]: matrix products of many sizes in f16, compiled for a card: DIR/NAME.WAY.cpp, NAME being MxNxK and
what is different about it (t: the second factor is transposed; gelu: bias and GELU behind it).

WAY is chosen (sm_90a, what the model of the time chooses), mma (sm_90: mma.sync) or, with --every-tile, tileI: every tile of the template on
warpgroups (lowering/schedule/warpgroup.cc). DIR (some MB) can be carried to a machine with a card: python run.py DIR.
"""
import os
import shutil
import subprocess
import sys
import tempfile

import onnx
from onnx import TensorProto, helper

SIZES = [(128, 768, 768), (128, 3072, 768), (128, 768, 3072), (256, 512, 512), (512, 512, 512), (1000, 1000, 1000), (1024, 1024, 1024),
         (2048, 2048, 2048), (4096, 768, 768), (4096, 3072, 768), (4096, 768, 3072), (4096, 4096, 4096), (6304, 768, 768), (8192, 8192, 8192),
         (25088, 512, 128), (100352, 64, 64)]
CASES = [(*s, '') for s in SIZES] + [(1024, 1024, 1024, 't'), (128, 3072, 768, 'gelu'), (4096, 3072, 768, 'gelu')]
TILES = 6


def save(path, m, n, k, kind):
    def value(name, *dims):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT16, dims)

    inputs = [value('x', m, k), value('w', n, k) if kind == 't' else value('w', k, n)]
    nodes = [helper.make_node('Gemm', ['x', 'w'], ['y'], transB=1) if kind == 't' else helper.make_node('MatMul', ['x', 'w'], ['y'])]
    if kind == 'gelu':
        inputs.append(value('b', n))
        nodes[0].output[0] = 'p'
        nodes += [helper.make_node('Add', ['p', 'b'], ['q']), helper.make_node('Gelu', ['q'], ['y'], approximate='tanh')]
    onnx.save(helper.make_model(helper.make_graph(nodes, 'product', inputs, [value('y', m, n)]), opset_imports=[helper.make_opsetid('', 20)]), path)


def main():
    bundler, out = sys.argv[1:3]
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for m, n, k, kind in CASES:
            name = f'{m}x{n}x{k}{kind}'
            save(f'{work}/m.onnx', m, n, k, kind)
            ways = {'chosen': ['--target', 'sm_90a'], 'mma': ['--target', 'sm_90']}
            if '--every-tile' in sys.argv[3:]:
                ways |= {f'tile{i}': ['--target', 'sm_90a', '--warpgroup-tile', str(i)] for i in range(TILES)}
            for way, flags in ways.items():
                done = subprocess.run([bundler, f'{work}/m.onnx', '-o', f'{work}/out', '--no-weights', *flags], capture_output=True, text=True, check=True)
                shutil.copy(f'{work}/out/cuda.cpp', f'{out}/{name}.{way}.cpp')
                print(name, way, done.stdout.splitlines()[0].split(None, 1)[1])


if __name__ == '__main__':
    main()
