#!/usr/bin/env bash
# seeds.sh FOLDER: the graphs of testdata/rules, before and after, one a file: seeds of fuzz_text.
set -euo pipefail
mkdir -p "$1"
for golden in "$(dirname "$0")"/../../testdata/rules/*.golden; do
  name=$(basename "$golden" .golden)
  grep -v '^#\|^rule ' "$golden" | awk -v stem="$1/$name" '/^----$/ {part = 1; next} {print > (stem "_" part+0 ".txt")}'
done
