#!/bin/sh
# device.sh CARRY [options of models.py]: on a machine with a card and without the compiler's build: every model in CARRY in f32 and f16, beside
# PyTorch where it is installed, and one table at the end. CARRY holds gpu_bundle.xz (stripped), materialize.py (which gives models without weights
# theirs), and for each model NAME.onnx (without weights) and NAME/ with inputs.bin and expected.bin of prepare.py; wheels of onnx, if need be.
root=$(cd "$(dirname "$0")/../.." && pwd)
carry=$(cd "$1" && pwd)
shift
python3 -c 'import onnx' 2> /dev/null || python3 -m pip install -q --no-index --find-links "$carry" onnx > /dev/null 2>&1
python3 -c 'import torch' 2> /dev/null || set -- "$@" --no-torch
exec python3 "$root/bench/gpu/models.py" "$carry" "$@"
