#!/bin/sh
# run.sh BUNDLE_DIR [tolerance]: builds run_model for what gpu_bundle and prepare.py left in BUNDLE_DIR and runs it on the first GPU (or on the driver
# that OPTC_LIBCUDA names). BUNDLE_DIR may be carried to another machine: it then holds run_model already and needs no compiler.
set -e
root=$(cd "$(dirname "$0")/../.." && pwd)
if [ ! -x "$1/run_model" ] || [ "$1/cuda.cpp" -nt "$1/run_model" ]; then
  ${CXX:-g++} -std=c++17 -O1 -Wall -Wextra -I"$root" "$root/bench/gpu/run_model.cpp" "$1/cuda.cpp" -o "$1/run_model" -ldl
fi
"$1/run_model" "$1/cuda.weights" "$1/inputs.bin" "$1/expected.bin" ${2:-1e-4}
