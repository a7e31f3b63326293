#!/bin/sh
# prepare.sh GPU_BUNDLE DIR [sm_90a]: writes the models and compiles each into DIR/NAME with the given gpu_bundle. PYTHON must have onnx and numpy.
# DIR (a few hundred KiB) can then be carried to a machine with a card: python run.py DIR.
set -e
here=$(cd "$(dirname "$0")" && pwd)
"${PYTHON:-python3}" "$here/models.py" "$2/models"
for model in "$2"/models/*.onnx; do
  "$1" "$model" -o "$2/$(basename "$model" .onnx)" --target "${3:-sm_90a}" | grep -v ' launches'
done
rm -r "$2/models"
