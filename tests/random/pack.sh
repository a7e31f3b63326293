#!/usr/bin/env bash
# pack.sh DIR [BUILD]: a folder that runs campaigns of random graphs on a machine without the checkout; README.md says how.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=${1:?a folder, please} build=${2:-$root/build}
mkdir -p "$folder/bin" "$folder/share/optc" "$folder/lib/optc"
cp "$build/bin/optc" "$build/bin/optc_random" "$build/bin/optc_conformance_bundles" "$folder/bin"
strip "$folder/bin/"*
# For the ways ptx and card, where they were built.
for file in "$build/tests/libemulated_cuda.so:bin" "$build/lib/optc/optc-ptx.so:lib/optc"; do
  [[ -e ${file%%:*} ]] && cp "${file%%:*}" "$folder/${file##*:}" && strip "$folder/${file##*:}/$(basename "${file%%:*}")"
done
rm -rf "$folder/random" "$folder/share/optc/runtime"
cp -r "$here" "$folder/random"
cp -r "$root/runtime" "$folder/share/optc/runtime"
rm -rf "$folder/random/__pycache__"
du -sh "$folder"
