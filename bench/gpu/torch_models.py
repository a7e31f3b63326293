"""torch_models.py MODEL DTYPE [BATCH] [profile]: what PyTorch needs for a model on this card (bert: 128 tokens; gpt2_decode: batch 1, 127 past
tokens).

Prints "ready" when the model is compiled and warm, waits for a line on stdin, then measures and prints one JSON object, times in us:
eager, eager captured in one CUDA graph, and torch.compile(mode="reduce-overhead"), which replays CUDA graphs. Weights are random, as in
the models that optc is measured on. DTYPE f32 allows TF32 products. So that many can compile beside each other, and be measured one
after the other.
"""
import json
import sys
import time

import torch

torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def vision(name, batch):
    import torchvision
    return getattr(torchvision.models, name)(weights=None), [torch.randn(batch, 3, 224, 224)]


def mlp(batch):
    nn = torch.nn
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.GELU(), nn.Linear(256, 10), nn.Softmax(-1)]
    return nn.Sequential(*layers), [torch.randn(batch, 784)]


def bert_base(batch):
    import transformers
    config = transformers.BertConfig()
    config._attn_implementation = 'sdpa'
    model = transformers.BertModel(config)

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask):
            return self.model(input_ids=ids, attention_mask=mask)[0]

    return Hidden(), [torch.randint(0, 1000, (batch, 128)), torch.ones(batch, 128, dtype=torch.int64)]


def gpt2_decode(batch, past=127):
    import transformers
    config = transformers.GPT2Config()
    model = transformers.GPT2LMHeadModel(config)
    layers, heads, width = config.n_layer, config.n_head, config.n_embd // config.n_head

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, positions, *kv):
            cache = transformers.DynamicCache(config=self.model.config)
            for i in range(layers):
                cache.update(kv[2 * i], kv[2 * i + 1], i)
            out = self.model(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True)
            return (out[0], *[t for layer in cache.layers for t in (layer.keys, layer.values)])

    return Step(), [torch.tensor([[7]]), torch.tensor([[past]])] + [torch.randn(1, heads, past, width) for _ in range(2 * layers)]


def lstm_tagger(batch):
    nn = torch.nn

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.r, self.o = nn.Embedding(2000, 128), nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True), nn.Linear(512, 40)

        def forward(self, tokens):
            return nn.functional.log_softmax(self.o(self.r(self.e(tokens))[0]), -1)

    return Tagger(), [torch.randint(0, 2000, (batch, 50))]


CONVOLUTIONAL = ('resnet50', 'convnext_tiny', 'mobilenet_v3_large', 'efficientnet_b0')
MODELS = {'mlp': mlp, 'lstm_tagger': lstm_tagger, 'bert_base': bert_base, 'gpt2_decode': gpt2_decode,
          **{name: lambda batch, name=name: vision(name, batch) for name in CONVOLUTIONAL + ('vit_b_16', 'swin_t')}}


def median_us(call, rounds=30, calls=10):
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / calls)
    return sorted(times)[len(times) // 2] * 1e6


def profile(call, calls=5):
    """Prints the kernels of a call, the longest first."""
    import collections
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as p:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    kernels = collections.defaultdict(list)
    for event in p.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels[event.name].append(event.device_time)
    print(f'torch: {sum(map(len, kernels.values())) / calls:.0f} kernels, {sum(map(sum, kernels.values())) / calls:.1f} us together')
    for name, times in sorted(kernels.items(), key=lambda k: -sum(k[1])):
        print(f'{sum(times) / calls:8.1f} us = {len(times) / calls:5.1f} x {sum(times) / len(times):7.2f}  {name[:160]}')


def main():
    name, dtype = sys.argv[1:3]
    kind = torch.float16 if dtype == 'f16' else torch.float32
    torch.manual_seed(0)
    model, inputs = MODELS[name](next((int(a) for a in sys.argv[3:] if a.isdigit()), 1))
    model = model.eval().cuda().to(kind)
    inputs = [x.cuda().to(kind) if x.is_floating_point() else x.cuda() for x in inputs]
    if name in CONVOLUTIONAL:
        model = model.to(memory_format=torch.channels_last)
        inputs = [x.to(memory_format=torch.channels_last) for x in inputs]
    result = {'model': name, 'dtype': dtype, 'batch': len(inputs[0])}
    with torch.no_grad():
        compiled = torch.compile(model, mode='reduce-overhead')

        def call():
            torch.compiler.cudagraph_mark_step_begin()
            compiled(*inputs)

        try:
            for _ in range(4):
                call()
        except Exception as error:  # a model that this torch cannot compile is told as such
            result['compile_error'] = repr(error)[:200]
        torch.cuda.synchronize()
        print('ready', flush=True)
        sys.stdin.readline()
        if 'profile' in sys.argv[3:]:
            profile(call)
            return
        result['eager'] = median_us(lambda: model(*inputs))
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(3):
                    model(*inputs)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                model(*inputs)
            result['eager_graph'] = median_us(graph.replay)
        except Exception as error:
            result['graph_error'] = repr(error)[:200]
        if 'compile_error' not in result:
            result['compiled'] = median_us(call)
    print(json.dumps(result), flush=True)


main()
