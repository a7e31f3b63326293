# The demo, sourced by ./dev (which has set up and built optc): a pretrained model becomes part of a C++ program.
demo_fetch() {
  local wheel=$OPTC_CACHE/magika-1.0.3
  [[ -e $wheel/model.onnx ]] && return
  say "fetching the wheel of magika 1.0.3 (a file-type classifier, Apache-2.0) with pip"
  rm -rf "$wheel.part" && mkdir -p "$wheel.part"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    -r examples/filetype/magika-wheel.txt -d "$wheel.part"
  python3 - "$wheel.part" <<'PYTHON'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
wheel = zipfile.ZipFile(next(folder.glob("*.whl")))
for name in ("models/standard_v3_3/model.onnx", "models/standard_v3_3/config.min.json", "config/content_types_kb.min.json"):
    (folder / pathlib.Path(name).name).write_bytes(wheel.read("magika/" + name))
PYTHON
  rm -f "$wheel.part"/*.whl && rm -rf "$wheel" && mv "$wheel.part" "$wheel"
}

demo() {
  local wheel=$OPTC_CACHE/magika-1.0.3 work=$BUILD/demo
  demo_fetch
  mkdir -p "$work"
  if [[ ! -e $work/magika/manifest.json || $BUILD/bin/optc -nt $work/magika/manifest.json ]]; then
    say "compiling the model: optc model.onnx -o $work/magika --name magika"
    "$BUILD/bin/optc" "$wheel/model.onnx" -o "$work/magika" --name magika
  fi
  if [[ ! -e $work/build/build.ninja ]]; then
    cmake -G Ninja -S examples/filetype -B "$work/build" -DMAGIKA_BUNDLE="$PWD/$work/magika" \
      -DMAGIKA_CONFIG="$wheel/config.min.json" -DMAGIKA_TYPES="$wheel/content_types_kb.min.json" > "$work/configure.log" ||
      { cat "$work/configure.log" >&2; return 1; }
  fi
  say "building the bundle and examples/filetype with it"
  ninja -C "$work/build" filetype > "$work/build.log" || { cat "$work/build.log" >&2; return 1; }
  say "running it: $work/build/filetype examples/filetype/samples/*"
  "$work/build/filetype" --expected examples/filetype/expected.tsv examples/filetype/samples/*
  say "the bundle is in $work/magika; what was done and what it costs: $work/magika/report.html"
}

demo
