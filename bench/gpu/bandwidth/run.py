"""run.py DIR [NAME ...]: times the memory-bound kernels that gpu_bundle left in DIR/NAME (kernels.ptx, launches.json, cuda.weights) on the first
GPU, beside a copy of the same bytes and torch.compile, in one process. Needs PyTorch; no compiler, no CUDA toolkit.

Every time is per call, the median of replays of one CUDA graph of 12 calls that rotate over three sets of buffers (beyond the L2 cache), measured by
CUDA events; ours, the copy and the rival take turns, so that clocks and heat are the same for all. Bytes are what the model must move: each input once,
each output once. The copy is the driver's (cuMemcpyDtoDAsync) of half as many bytes, which moves as many. Results are compared with float64.
"""
import ctypes
import json
import os
import sys

import torch
import torch.nn.functional as F

CALLS, SETS, ROUNDS = 12, 3, 21
cuda = ctypes.CDLL('libcuda.so.1')


def check(code, what):
    if code:
        raise SystemExit(f'{what}: CUDA error {code}')


class Ours:
    """The launches of one model; run(set) enqueues them on torch's current stream."""

    def __init__(self, folder, sets):
        self.module = ctypes.c_void_p()
        text = open(f'{folder}/kernels.ptx', 'rb').read() + b'\0'
        check(cuda.cuModuleLoadData(ctypes.byref(self.module), text), 'kernels.ptx')
        facts = json.load(open(f'{folder}/launches.json'))
        path = f'{folder}/cuda.weights'
        weights = open(path, 'rb').read() if os.path.exists(path) else b''
        weights = torch.frombuffer(bytearray(weights or b'\0'), dtype=torch.uint8).cuda()
        self.keep, self.launches = [weights], []
        for l in facts['launches']:
            f = ctypes.c_void_p()
            check(cuda.cuModuleGetFunction(ctypes.byref(f), self.module, l['entry'].encode()), l['entry'])
            if l['shared'] > 48 * 1024:
                check(cuda.cuFuncSetAttribute(f, 8, l['shared']), l['entry'])
            regs = ctypes.c_int()
            cuda.cuFuncGetAttribute(ctypes.byref(regs), 4, f)
            self.launches.append((f, l, regs.value))
        temporaries = {}
        self.arguments = []
        for s in sets:
            addresses = []
            for i, b in enumerate(facts['buffers']):
                if b['kind'] in ('input', 'output'):
                    addresses.append(s[b['name']].data_ptr())
                elif b['kind'] == 'constant':
                    addresses.append(weights.data_ptr() + b['offset'])
                else:
                    if i not in temporaries:
                        temporaries[i] = torch.empty(b['bytes'], dtype=torch.uint8, device='cuda')
                    addresses.append(temporaries[i].data_ptr())
            each = []
            for _, l, _ in self.launches:
                values = [ctypes.c_uint64(addresses[a]) for a in l['arguments']]
                self.keep.append(values)
                each.append((ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in values]))
            self.arguments.append(each)
        self.keep.append(temporaries)

    def run(self, which):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for (f, l, _), arguments in zip(self.launches, self.arguments[which]):
            check(cuda.cuLaunchKernel(f, *l['grid'], l['threads'], 1, 1, l['shared'], stream, arguments, None), l['entry'])


def graph_of(call):
    """A CUDA graph of CALLS calls call(set)."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for i in range(SETS):
            call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(CALLS):
            call(i % SETS)
    return graph


def times(graphs):
    """Medians in microseconds a call; the graphs take turns."""
    all_times = {name: [] for name in graphs}
    for round_number in range(ROUNDS + 3):
        for name, graph in graphs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if round_number >= 3:
                all_times[name].append(start.elapsed_time(end) * 1e3 / CALLS)
    return {name: sorted(t)[len(t) // 2] for name, t in all_times.items()}


def weight(folder, name, dtype):
    for b in json.load(open(f'{folder}/launches.json'))['buffers']:
        if b['name'] == name:
            raw = open(f'{folder}/cuda.weights', 'rb').read()[b['offset']:b['offset'] + b['bytes']]
            return torch.frombuffer(bytearray(raw), dtype=dtype).cuda()
    return None


# name: (type, inputs, output keeps columns, f(x, y, g, b))
MODELS = {
    'pointwise_f16': (torch.half, 'xy', True, lambda x, y, g, b: F.gelu(x * g + b) + y),
    'layernorm_f16': (torch.half, 'x', True, lambda x, y, g, b: F.layer_norm(x, x.shape[-1:], g, b)),
    'add_layernorm_f16': (torch.half, 'xy', True, lambda x, y, g, b: F.layer_norm(x + y, x.shape[-1:], g, b)),
    'rmsnorm_f32': (torch.float, 'x', True, lambda x, y, g, b: F.rms_norm(x, x.shape[-1:], g, 1e-5)),
    'softmax_f16': (torch.half, 'x', True, lambda x, y, g, b: torch.softmax(x, -1)),
    'rowsum_f32': (torch.float, 'x', False, lambda x, y, g, b: x.sum(-1)),
}


def main():
    root = sys.argv[1]
    rows, cols = 8192, 4096
    print(f'{torch.cuda.get_device_name()}, driver via PyTorch {torch.__version__}; {rows} x {cols}', flush=True)
    print(f'{"kernel":20} {"us":>8} {"GB/s":>6} {"copy us":>8} {"ratio to copy":>13} {"torch.copy_ us":>14} {"compile us":>10} {"compile/ours":>12}  '
          'max error of max value; registers', flush=True)
    for name in sys.argv[2:] or MODELS:
        folder = f'{root}/{name}'
        dtype, inputs, full, function = MODELS[name]
        torch.manual_seed(0)
        sets = []
        for _ in range(SETS):
            s = {i: (torch.rand(rows, cols, device='cuda') * 4 - 2).to(dtype) for i in inputs}
            s['o'] = torch.empty((rows, cols) if full else (rows,), dtype=dtype, device='cuda')
            sets.append(s)
        g, b = weight(folder, 'g', dtype), weight(folder, 'b', dtype)
        moved = sum(t.numel() * t.element_size() for t in sets[0].values())
        copies = [(torch.empty(moved // 2, dtype=torch.uint8, device='cuda').random_(), torch.empty(moved // 2, dtype=torch.uint8, device='cuda'))
                  for _ in range(SETS)]

        def copy(i):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            check(cuda.cuMemcpyDtoDAsync_v2(ctypes.c_uint64(copies[i][1].data_ptr()), ctypes.c_uint64(copies[i][0].data_ptr()),
                                            ctypes.c_size_t(moved // 2), stream), 'copy')

        def torch_copy(i):
            copies[i][1].view(torch.int32).copy_(copies[i][0].view(torch.int32))

        ours = Ours(folder, sets)
        compiled = torch.compile(function)
        results = {}

        def rival(i):
            results[i] = compiled(sets[i]['x'], sets[i].get('y'), g, b)

        for _ in range(3):
            rival(0)
        ours.run(0)
        torch.cuda.synchronize()
        wide = [None if v is None else v.double() for v in (sets[0]['x'], sets[0].get('y'), g, b)]
        expected = function(*wide)
        error = ((sets[0]['o'].double() - expected).abs().max() / expected.abs().max()).item()
        rival_error = ((results[0].double() - expected).abs().max() / expected.abs().max()).item()
        t = times({'ours': graph_of(ours.run), 'copy': graph_of(copy), 'torch copy': graph_of(torch_copy), 'compile': graph_of(rival)})
        best = min(t['copy'], t['torch copy'])
        print(f'{name:20} {t["ours"]:8.2f} {moved / t["ours"] * 1e-3:6.0f} {t["copy"]:8.2f} {best / t["ours"]:13.3f} {t["torch copy"]:14.2f} '
              f'{t["compile"]:10.2f} {t["compile"] / t["ours"]:12.2f}  {error:.1e} (torch {rival_error:.1e}); '
              f'{", ".join(str(r) for _, _, r in ours.launches)}', flush=True)
        del ours, compiled, results, sets, copies
        torch.cuda.empty_cache()


main()
