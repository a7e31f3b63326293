"""Tokens a second of the program beside the same greedy loop on ONNX Runtime, with the same weights of 4 bits.

Usage: bench.py CHAT QUANTIZED.onnx [--tokens 128] [--threads 1] [--rounds 3] [--prompt TEXT] [--level 0] [--json]

QUANTIZED.onnx is what `optc opt MODEL -o QUANTIZED.onnx --quantize-weights=int4 --disable-pass matmul.bias` writes of the model that CHAT was compiled
of. ONNX Runtime makes MatMulNBits of each DequantizeLinear in front of a MatMul, and multiplies floats (accuracy level 0) or activations of 8 bits (level 4). Both take turns; the best
round counts. Of a CHAT that multiplies floats the tokens must be those of level 0, or this ends with 1. One that was compiled with
`--quantize-weights=int4,activations=int8` is told by --level 4: it rounds activations as level 4 does, but for ties, so that tokens are counted. Needs numpy and onnxruntime."""

import argparse
import json
import re
import subprocess
import sys
import time

import numpy as np
import onnxruntime


def of_chat(chat, options):
    command = [chat, "--ids", "--tokens", str(options.tokens), "--threads", str(options.threads), options.prompt]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()], float(re.search(r"([0-9.]+) tokens/s", done.stderr)[1])


class OnnxRuntime:
    """A step a run. The caches stay where the last run left them: they are bound, and never copied to Python."""

    def __init__(self, model, threads, level):
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
        settings.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", str(level))
        self.session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
        self.caches = [(i.name, i.name.replace("past", "present", 1), i.shape) for i in self.session.get_inputs()[1:]]

    def write(self, prompt, count):
        past = {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((shape[0], 0, shape[2]), np.float32)) for name, _, shape in self.caches}
        ids, tokens, begin = np.frombuffer(prompt.encode(), np.uint8).astype(np.int64), [], None
        while True:
            binding = self.session.io_binding()
            binding.bind_cpu_input("ids", ids)
            for name, value in past.items():
                binding.bind_ortvalue_input(name, value)
            for output in ["logits", *(present for _, present, _ in self.caches)]:
                binding.bind_output(output, "cpu")
            self.session.run_with_iobinding(binding)
            results = binding.get_outputs()
            begin = begin or time.perf_counter()
            token = int(results[0].numpy().argmax())
            if token == 256:
                break
            tokens.append(token)
            if len(tokens) == count:
                break
            past = dict(zip(past, results[1:]))
            ids = np.array([token])
        return tokens, (len(tokens) - 1) / (time.perf_counter() - begin) if len(tokens) > 1 else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chat")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", default="The ship left the harbour in the morning, and ")
    parser.add_argument("--level", type=int, default=0, choices=(0, 4), help="whose tokens CHAT should write")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rivals = {f"ONNX Runtime, level {level}": OnnxRuntime(options.model, options.threads, level) for level in (0, 4)}
    tokens, best = {}, {}
    for _ in range(options.rounds):
        for name, write in {"chat": lambda: of_chat(options.chat, options), **{n: (lambda r=r: r.write(options.prompt, options.tokens)) for n, r in rivals.items()}}.items():
            tokens[name], rate = write()
            best[name] = max(rate, best.get(name, 0))
    equal = {name: sum(a == b for a, b in zip(tokens["chat"], tokens[name])) for name in rivals}
    if options.json:
        print(json.dumps({"tokens_per_second": best, "tokens": len(tokens["chat"]), "equal": equal}))
    else:
        for name, rate in best.items():
            same = f", {equal[name]} of {len(tokens['chat'])} tokens as chat's" if name in equal else ""
            print(f"{name:24} {rate:8.1f} tokens/s  {best['chat'] / rate if rate else 0:5.2f}{same}")
    if options.level == 0 and tokens["chat"] != tokens["ONNX Runtime, level 0"]:
        sys.exit("the tokens are not those of ONNX Runtime at level 0")


if __name__ == "__main__":
    main()
