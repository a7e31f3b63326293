#!/bin/sh
# device.sh CARRY: on a machine with a card and without the compiler's build. CARRY holds gpu_bundle.xz (stripped), materialize.py, and for each model
# NAME.onnx (without weights) and NAME/ with inputs.bin and expected.bin of prepare.py. Prints errors and times of each model.
root=$(cd "$(dirname "$0")/../.." && pwd)
carry=$(cd "$1" && pwd)
work=$(mktemp -d)
python3 -m pip install -q --no-index --find-links "$carry" onnx > /dev/null 2>&1
xz -dc "$carry/gpu_bundle.xz" > "$work/gpu_bundle" && chmod +x "$work/gpu_bundle"
for model in "$carry"/*.onnx; do
  name=$(basename "$model" .onnx)
  echo "== $name"
  python3 "$carry/materialize.py" "$model" "$work" > /dev/null || continue
  "$work/gpu_bundle" "$work/$name.onnx" -o "$work/$name" --target sm_90a | tail -1
  cp "$carry/$name"/*.bin "$work/$name/"
  "$root/bench/gpu/run.sh" "$work/$name" 1e-4
  rm -f "$work/$name.weights" "$work/$name/cuda.weights"
done
