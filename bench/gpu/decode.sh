#!/usr/bin/env bash
# decode.sh OPTC OUT [STEPS] [options of optc]: the decoder of examples/chat on this machine's card (or on the driver that OPTC_LIBCUDA names), token by
# token, its caches on the card: microseconds a token. RUNTIMES may name other checkouts, separated by colons, whose runtime/ is measured in turns.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
optc=$1 out=$2 steps=${3:-256}
shift $(($# > 3 ? 3 : $#))
mkdir -p "$out"
python3 "$root/examples/chat/make_model.py" "$out/model.onnx" ${MODEL:-}
"$optc" "$out/model.onnx" -o "$out/decoder" --name decoder --target cpu,sm_90a --dim S=1 --alias 'past_*=present_*' "$@" 2>&1 | grep "emit gpu"
IFS=: read -ra runtimes <<< "${RUNTIMES:-}"
names=()
for runtime in "" "${runtimes[@]}"; do
  name=run${#names[@]}
  rm -rf "$out/$name.d"
  cp -r "$out/decoder/src" "$out/$name.d"
  if [[ -n $runtime ]]; then
    cp "$runtime"/runtime/cuda/*.h "$out/$name.d/runtime/cuda"
    sed -i 's#"runtime/optc.h"#"optc.h"#' "$out/$name.d"/runtime/cuda/*.h  # as it lies in a bundle
  fi
  find "$out/$name.d" -maxdepth 1 -name '*.cpp' | xargs -P "$(nproc)" -I{} ${CXX:-g++} -std=c++17 -O2 -ffp-contract=off -fno-math-errno -c {} -o {}.o \
    -I"$out/$name.d" -I"$out/decoder/include" "-DOPTC_BUNDLE_FOLDER=\"$out/decoder\"" '-DOPTC_INSTALL_FOLDER=""' '-DOPTC_SHARE=""'
  ${CXX:-g++} -std=c++17 -O2 -I"$out/decoder/include" -I"$root" "$root/bench/gpu/decode.cpp" "$out/$name.d"/*.o -o "$out/$name" -ldl -pthread
  names+=("$name")
done
for _ in 1 2 3; do for name in "${names[@]}"; do echo "$name: $("$out/$name" "$steps")"; done; done
