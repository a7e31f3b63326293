#!/usr/bin/env bash
# decode.sh OUT OPTC[:OPTC...] [options of optc]: the decoder of examples/chat (its size by MODEL, "--layers 24 --units 512 --heads 8") on this machine's card,
# or on the driver that OPTC_LIBCUDA names, token by token, its caches on the card: microseconds a token, STEPS of them, as each build of optc makes it.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$1
IFS=: read -ra builds <<< "$2"
shift 2
mkdir -p "$out"
python3 "$root/examples/chat/make_model.py" "$out/model.onnx" ${MODEL:-}
for i in "${!builds[@]}"; do
  folder=$out/$i
  "${builds[$i]}" "$out/model.onnx" -o "$folder/decoder" --name decoder --target cpu,sm_90a --dim S=1 --alias 'past_*=present_*' "$@" 2>&1 | grep "emit gpu"
  find "$folder/decoder/src" -maxdepth 1 -name '*.cpp' | xargs -P "$(nproc)" -I{} ${CXX:-g++} -std=c++17 -O2 -ffp-contract=off -fno-math-errno -c {} -o {}.o \
    -I"$folder/decoder/src" -I"$folder/decoder/include" "-DOPTC_BUNDLE_FOLDER=\"$folder/decoder\"" '-DOPTC_INSTALL_FOLDER=""' '-DOPTC_SHARE=""'
  ${CXX:-g++} -std=c++17 -O2 -I"$folder/decoder/include" -I"$root" "$root/bench/gpu/decode.cpp" "$folder/decoder/src"/*.o -o "$folder/decode" -ldl -pthread
done
for _ in 1 2 3; do for i in "${!builds[@]}"; do echo "${builds[$i]}: $("$out/$i/decode" "${STEPS:-256}")"; done; done
