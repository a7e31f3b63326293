"""run.py DIR: the products of prepare.py on this machine's card beside cuBLAS (torch.mm), in one process and in turns; as a table.

Each way is captured in a CUDA graph of many launches over several sets of operands, so that none is found in a cache because it was there
a moment ago. Checked against f64 (large ones: f32) products. Ratios are cuBLAS's time over ours; cuBLAS has no epilogue where ours has one, so
torch.compile's linear layer with GELU stands beside it.
"""
import ctypes as C
import glob
import os
import re
import sys

import torch

CUDA = C.CDLL('libcuda.so.1')


def check(status, what):
    if status:
        raise RuntimeError(f'{what}: CUDA error {status}')


class Kernel:
    """The one launch of a cuda.cpp that gpu_bundle wrote."""

    def __init__(self, path):
        text = open(path).read()

        def number(name):
            return int(name.split('_')[-1])

        row = re.search(r'\{"(\w+)", \{(\w+), (\w+), (\w+)\}, (\d+), (\d+), kArguments0, (\d+)', text)
        self.grid, self.threads, self.shared = [number(row.group(i)) for i in (2, 3, 4)], int(row.group(5)), int(row.group(6))
        self.arguments = [(kind, int(i)) for kind, i in
                          re.findall(r'ArgumentKind::k(\w+), (\d+)', re.search(r'kArguments0\[\] = \{(.*?)\};', text, re.S).group(1))]
        self.buffers = [name for name, _ in re.findall(r'\{"(\w+)", Region::k(\w+), ', text)]
        self.workspace = int(re.search(r'(\d+)u, \w+, \d+\};', text).group(1))
        self.maps = []
        for m in re.finditer(r'\{(\d+), (\d+), (\d+), size_(\d+), kMapExtents(\d+), kMapStrides\d+, \{([\d, ]+)\}, nullptr\}', text):
            sizes = re.search(r'kMapExtents%s\[\] = \{(.*?)\}, kMapStrides%s\[\] = \{(.*?)\};' % (m.group(5), m.group(5)), text)
            extents, strides = ([number(x.strip()) for x in sizes.group(i).split(',')] for i in (1, 2))
            self.maps.append((int(m.group(1)), int(m.group(4)), extents, strides, [int(x) for x in m.group(6).split(',')]))
        ptx = ''.join(re.findall(r'R"ptx\((.*?)\)ptx"', text, re.S))
        module, self.function = C.c_void_p(), C.c_void_p()
        check(CUDA.cuModuleLoadData(C.byref(module), ptx.encode()), 'cuModuleLoadData')
        check(CUDA.cuModuleGetFunction(C.byref(self.function), module, row.group(1).encode()), 'cuModuleGetFunction')
        check(CUDA.cuFuncSetAttribute(self.function, 8, self.shared), 'cuFuncSetAttribute')

    def tensor_map(self, i, tensors):
        buffer, offset, extents, strides, box = self.maps[i]
        n, backing = len(extents), C.create_string_buffer(256)
        address = (C.addressof(backing) + 63) // 64 * 64
        check(CUDA.cuTensorMapEncodeTiled(C.c_void_p(address), 6, n, C.c_void_p(tensors[self.buffers[buffer]].data_ptr() + offset),
                                          (C.c_ulonglong * n)(*extents), (C.c_ulonglong * n)(*strides, 0), (C.c_uint * n)(*box),
                                          (C.c_uint * n)(*[1] * n), 0, 3, 3, 0), 'cuTensorMapEncodeTiled')
        return backing, address

    def launcher(self, tensors):
        keep, pointers = [tensors], []
        for kind, i in self.arguments:
            if kind == 'TensorMap':
                backing, address = self.tensor_map(i, tensors)
                keep.append(backing)
                pointers.append(address)
            else:
                cell = C.c_ulonglong((tensors['workspace'] if kind == 'Workspace' else tensors[self.buffers[i]]).data_ptr())
                keep.append(cell)
                pointers.append(C.addressof(cell))
        arguments = (C.c_void_p * len(pointers))(*pointers)

        def launch(keep=keep):
            check(CUDA.cuLaunchKernel(self.function, *self.grid, self.threads, 1, 1, self.shared,
                                      C.c_void_p(torch.cuda.current_stream().cuda_stream), arguments, None), 'cuLaunchKernel')
        return launch


def captured(calls, count):
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            calls[i % len(calls)]()
    return graph


def medians(graphs, count, rounds=9):
    times = [[] for _ in graphs]
    for r in range(rounds + 2):
        for graph, list_of in zip(graphs, times):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if r >= 2:
                list_of.append(begin.elapsed_time(end) * 1e3 / count)
    return [sorted(t)[len(t) // 2] for t in times]


def main():
    folder = sys.argv[1]
    torch.zeros(1, device='cuda')
    names = sorted({os.path.basename(f).split('.')[0] for f in glob.glob(f'{folder}/*.cpp')}, key=lambda n: [int(x) for x in re.findall(r'\d+', n)])
    for name in names:
        m, n, k = (int(x) for x in re.match(r'(\d+)x(\d+)x(\d+)', name).groups())
        transposed, gelu = name.endswith('t'), name.endswith('gelu')
        sets, count = max(2, min(6, int(6e7 / (m * k + k * n + m * n)) + 1)), max(3, min(40, int(1.5e11 / (m * n * k))))
        torch.manual_seed(0)
        data = []
        for _ in range(sets):
            x, w = torch.randn(m, k, device='cuda').half() * 0.5, torch.randn(*((n, k) if transposed else (k, n)), device='cuda').half() * 0.1
            data.append({'x': x, 'w': w, 'b': torch.randn(n, device='cuda').half(), 'out': torch.empty(m, n, device='cuda', dtype=torch.half)})

        def factor(d, transposed=transposed):
            return d['w'].t() if transposed else d['w']

        wide = torch.float64 if m * n * k < 2**34 else torch.float32
        want = data[0]['x'].to(wide) @ factor(data[0]).to(wide)
        if gelu:
            want = torch.nn.functional.gelu(want + data[0]['b'].to(wide), approximate='tanh')
        graphs, labels = [captured([lambda d=d: torch.mm(d['x'], factor(d), out=d['out']) for d in data], count)], ['cuBLAS']
        if gelu:
            compiled = torch.compile(lambda x, w, b: torch.nn.functional.gelu(torch.addmm(b, x, w), approximate='tanh'))
            graphs.append(captured([lambda d=d: compiled(d['x'], factor(d), d['b']) for d in data], count))
            labels.append('torch.compile')
        held = []  # what the graphs use
        for path in sorted(glob.glob(f'{folder}/{name}.*.cpp')):
            kernel, calls = Kernel(path), []
            for d in data:
                tensors = {**d, 'y': torch.full((m, n), float('nan'), device='cuda', dtype=torch.half),
                           'workspace': torch.zeros(8192 + kernel.workspace, device='cuda', dtype=torch.uint8)}
                calls.append(kernel.launcher(tensors))
                if d is data[0]:
                    first = tensors
            calls[0]()
            torch.cuda.synchronize()
            error = ((first['y'].to(wide) - want).abs().max() / want.abs().max()).item()
            graphs.append(captured(calls, count))
            held.append(calls)
            labels.append(os.path.basename(path).split('.')[1] + (f' WRONG by {error:.1e}' if not error < 2e-3 else ''))
        times = medians(graphs, count)
        print(f'| {name} | ' + ' | '.join(f'{label}: {t:.2f} us ({times[0] / t:.2f})' for label, t in zip(labels, times)) + ' |', flush=True)
        del graphs, data, held


if __name__ == '__main__':
    main()
