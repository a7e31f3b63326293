#!/usr/bin/env bash
# package.sh BUILD OUT KIND...: packages of a build folder that holds optc (and optc_ptx_module): archive, deb, wheel.
set -euo pipefail
build=$(realpath "$1") out=$(realpath -m "$2")
shift 2
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
version=$(sed -n 's/^project(optc VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")
name=optc-$version-linux-$(uname -m)
stage=$build/package
export SOURCE_DATE_EPOCH=315532800  # no package holds the time at which it was made
rm -rf "$stage" && mkdir -p "$stage" "$out"
cmake --install "$build" --prefix "$stage/$name" --strip > /dev/null
for kind; do
  case $kind in
    archive) XZ_OPT=-T2 tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cJf "$out/$name.tar.xz" "$name" ;;
    deb)
      (cd "$build" && cpack -B "$stage/deb" > "$stage/cpack.log") || { cat "$stage/cpack.log" >&2; exit 1; }
      cp "$stage"/deb/*.deb "$out/" ;;
    wheel)
      python3 -m venv "$stage/venv"
      "$stage/venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$source/packaging/requirements.txt"
      "$stage/venv/bin/python" "$source/packaging/wheel.py" "$stage/$name" "$version" "$out" ;;
    *) echo "package.sh: unknown kind $kind" >&2; exit 2 ;;
  esac
done
