#!/usr/bin/env python3
"""block_products.py OPTC [--rows 1,8,128] [--levels 0,4] [--threads 1]: eight products by weights of 4 bits in blocks of 32
(com.microsoft::MatMulNBits, 1024 x 4096 and back), as `optc bench --against ort` times them: medians, one line a number of rows and accuracy level.
"""
import argparse
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from beside_ort import bench

BLOCK, WIDTHS = 32, (1024, 4096)


def model(rows, level, path):
    r = np.random.default_rng(0)
    nodes, tensors, value = [], [], "x"
    for i in range(8):
        k, n = WIDTHS[i % 2], WIDTHS[1 - i % 2]
        tensors.append(numpy_helper.from_array(r.integers(0, 256, (n, k // BLOCK, BLOCK // 2), np.uint8), f"w{i}"))
        tensors.append(numpy_helper.from_array((r.random(n * k // BLOCK, np.float32) + 0.5) * np.float32(0.2 / k**0.5), f"s{i}"))
        nodes.append(helper.make_node("MatMulNBits", [value, f"w{i}", f"s{i}"], [f"y{i}"], domain="com.microsoft", K=k, N=n, bits=4, block_size=BLOCK, accuracy_level=level))
        value = f"y{i}"
    graph = helper.make_graph(
        nodes, "block_products", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, WIDTHS[0]])], [helper.make_tensor_value_info(value, TensorProto.FLOAT, [rows, WIDTHS[0]])], tensors
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=9), path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("optc")
    parser.add_argument("--rows", default="1,8,128")
    parser.add_argument("--levels", default="0,4")
    parser.add_argument("--threads", default="1")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for rows in map(int, arguments.rows.split(",")):
            for level in map(int, arguments.levels.split(",")):
                path = f"{folder}/rows{rows}_level{level}.onnx"
                model(rows, level, path)
                facts, rival, problem = bench(arguments.optc, path, "--threads", arguments.threads)
                if problem:
                    sys.exit(problem)
                ours, theirs = facts["median_ms"], rival["median_ms"]
                print(f"{rows} rows, level {level}: {ours:.3g} ms, ONNX Runtime {theirs:.3g} ms, ratio {theirs / ours:.2f}", flush=True)


if __name__ == "__main__":
    main()
